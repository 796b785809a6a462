"""``rocketstore delay``: what waits in the delay levels, what is due when, and delivery."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from rocketstore.cli.common.opening import check_is_store, quieten, reading
from rocketstore.cli.common.options import (
    CommitLogOption,
    ConfigOption,
    FormatOption,
    QuietOption,
    StorePath,
    check_time,
    check_words,
    configures,
    store_config,
)
from rocketstore.cli.common.outcome import ExitCode, answering
from rocketstore.cli.common.output import Format, Rows, chosen, print_report, print_rows, print_text
from rocketstore.cli.common.progress import progress_bar
from rocketstore.cli.common.quantities import counted, format_time, now_ms, parse_time
from rocketstore.config import MessageStoreConfig
from rocketstore.delay.report import DelayedMessage, DelayLevel, DelayReport
from rocketstore.store.default_message_store import open as open_store

#: Longest pause between looks at the store while ``--until`` waits.
_PAUSE_S = 0.05
_COUNTS = ("pending", "overdue")


def delay(
    path: StorePath,
    due: Annotated[
        bool, typer.Option("--due", help="List the waiting messages, the next due one first.")
    ] = False,
    level: Annotated[
        int | None, typer.Option("--level", metavar="N", min=1, help="Only this delay level.")
    ] = None,
    deliver: Annotated[
        bool, typer.Option("--deliver", help="Deliver what is due. Stop the broker first.")
    ] = False,
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="TIME",
            callback=check_time,
            help="With --deliver: go on delivering until this time.",
        ),
    ] = None,
    delay_levels: Annotated[
        str | None,
        typer.Option(
            "--delay-levels",
            metavar="TEXT",
            callback=configures("message_delay_level", check_words),
            help="The broker's messageDelayLevel.",
        ),
    ] = None,
    commit_log: CommitLogOption = None,
    config: ConfigOption = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Show the delay levels: waiting and overdue messages, and what cannot be delivered.

    Without --deliver nothing changes, and the command works beside a running broker. --deliver
    needs the store for itself; each message is delivered once, also if a former delivery crashed.
    Exit status 1 if a message is overdue or cannot be delivered.

    \b
    Examples:
      rocketstore delay /data/store
      rocketstore delay /data/store --due --level 3
      rocketstore delay /data/store --deliver
    """
    if quiet:
        quieten()
    if until is not None and not deliver:
        raise typer.BadParameter("--until needs --deliver", param_hint="'--until'")
    if due and deliver:
        raise typer.BadParameter("--due and --deliver exclude each other", param_hint="'--due'")
    if level is not None and deliver:
        raise typer.BadParameter("--deliver has no --level", param_hint="'--level'")
    settings = store_config(config, commit_log)
    if delay_levels is not None:
        settings = settings.replace(message_delay_level=delay_levels)
    if deliver and settings.broker_role == "SLAVE":
        raise typer.BadParameter("brokerRole is SLAVE: a slave delivers nothing")
    if deliver:
        _deliver(path, settings, until, chosen(form), quiet=quiet)
        return
    with reading(path, quiet=quiet, config=settings) as store:
        report = store.delays()
        _check_level(report, level)
        if due:
            _print_due(report, level, chosen(form))
        else:
            _print(report, level, chosen(form), None)
    _end(report, level)


def _check_level(report: DelayReport, level: int | None) -> None:
    if level is not None and all(one.level != level for one in report.levels):
        raise typer.BadParameter(f"there is no delay level {level}", param_hint="'--level'")


def _shown(report: DelayReport, level: int | None) -> list[DelayLevel]:
    """Return the requested level, or those that have or had messages."""
    if level is not None:
        return [one for one in report.levels if one.level == level]
    return [one for one in report.levels if one.max_offset or one.parked]


def _end(report: DelayReport, level: int | None) -> None:
    if any(one.overdue or one.parked for one in _shown(report, level)):
        raise typer.Exit(int(ExitCode.FINDINGS))


def _deliver(
    path: Path, settings: MessageStoreConfig, until: str | None, form: Format, *, quiet: bool
) -> None:
    check_is_store(path, config=settings)
    settings = settings.replace(schedule_message_enable=False, clean_resource_enable=False)
    end = None if until is None else parse_time(until)
    with progress_bar(quiet=quiet) as progress:
        store = open_store(path, "r+", config=settings, progress=progress)
    with store:
        count = store.deliver_due()
        while end is not None and (left := end - now_ms()) > 0:
            time.sleep(min(_PAUSE_S, left / 1000))
            count += store.deliver_due()
        report = store.delays()
        with answering(f"{counted(count, 'message')} delivered"):
            _print(report, None, form, count)
    _end(report, None)


LEVEL_NAMES = (
    *("kind", "level", "delayMs", "offset", "minOffset", "maxOffset"),
    *("pending", "overdue", "nextDue", "parked", "skipped"),
)


def _level(one: DelayLevel) -> dict[str, Any]:
    parked = [{"offset": at, "reason": why} for at, why in sorted(one.parked.items())]
    values = (
        *("level", one.level, one.delay_ms, one.offset, one.min_offset, one.max_offset),
        *(one.pending, one.overdue, one.next_due, parked, one.skipped),
    )
    return dict(zip(LEVEL_NAMES, values, strict=True))


def _print(report: DelayReport, level: int | None, form: Format, delivered: int | None) -> None:
    levels = _shown(report, level)
    pending, overdue = (sum(getattr(one, name) for one in levels) for name in _COUNTS)
    summary = {
        "kind": "summary",
        "pending": pending,
        "overdue": overdue,
        "parked": sum(len(one.parked) for one in levels),
        "notes": list(report.notes),
        **({} if delivered is None else {"delivered": delivered}),
    }
    if print_report(summary, "levels", [_level(one) for one in levels], LEVEL_NAMES, form):
        return
    if levels:
        rows = [
            (one.level, _span(one.delay_ms), one.offset, one.max_offset, one.pending, one.overdue,
             "" if one.next_due is None else format_time(one.next_due))
            for one in levels
        ]  # fmt: skip
        headings = ("level", "delay", "offset", "max offset", "pending", "overdue", "next due")
        print_rows(headings, rows, right=headings[2:6])
        print_text()
    for one in levels:
        for at, why in sorted(one.parked.items()):
            print_text(f"Level {one.level}, offset {at}: not delivered: {why}.", style="bold red")
    for note in report.notes:
        print_text(f"Note: {note}.")
    done = "" if delivered is None else f"{counted(delivered, 'message')} delivered; "
    print_text(f"{done}{counted(pending, 'message')} pending, {overdue:,} overdue.")


def _span(delay_ms: int | None) -> str:
    if delay_ms is None:
        return "none"
    for unit, nms in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000)):
        if delay_ms and delay_ms % nms == 0:
            return f"{delay_ms // nms}{unit}"
    return f"{delay_ms / 1000:g}s"


DUE_NAMES = (
    *("due", "overdue", "level", "topic", "queueId", "queueOffset", "physicalOffset"),
    *("uniqueKey", "keys", "bodySize"),
)


def _due(entry: DelayedMessage, now: int) -> dict[str, Any]:
    message = entry.message
    stored: tuple[Any, ...] = (None,) * 5
    if message is not None:
        stored = (
            *(message.queue_offset, message.physical_offset, message.unique_key),
            *(message.keys, len(message.body_view)),
        )
    values = (entry.due, entry.due <= now, entry.level, entry.topic, entry.queue_id, *stored)
    return dict(zip(DUE_NAMES, values, strict=True))


def _print_due(report: DelayReport, level: int | None, form: Format) -> None:
    rows = (_due(entry, report.now) for entry in report.due(level=level))
    if form is Format.TABLE:
        names = ("due", "", "level", "topic", "queue", "key", "body")
        print_rows(
            names,
            [
                (format_time(row["due"]), "overdue" if row["overdue"] else "", row["level"],
                 row["topic"] or "?", row["queueId"], row["uniqueKey"] or row["keys"] or "",
                 row["bodySize"])
                for row in rows
            ],
            right=("level", "queue", "body"),
            shrink=("key", "topic"),
        )  # fmt: skip
        return
    with Rows(form, DUE_NAMES) as out:
        for row in rows:
            out.write(row)
