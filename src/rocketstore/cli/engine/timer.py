"""``rocketstore timer``: list the messages that wait for their delivery time."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Any

import typer

from rocketstore.cli.common.opening import reading
from rocketstore.cli.common.options import (
    CommitLogOption,
    ConfigOption,
    FormatOption,
    QuietOption,
    StorePath,
    store_config,
)
from rocketstore.cli.common.outcome import ExitCode
from rocketstore.cli.common.output import Format, Rows, chosen, print_line, print_report, print_text
from rocketstore.cli.common.quantities import counted, format_time
from rocketstore.cli.common.table import Table
from rocketstore.timer.pending import TimerMessage
from rocketstore.timer.report import TimerReport

#: Field names of a message.
NAMES = (
    *("dueTimestamp", "topic", "queueId", "rolls", "deletes", "isDeleted", "rollTimes"),
    *("slotTimestamp", "isEnqueued", "physicalOffset", "queueOffset", "storeTimestamp"),
    *("uniqKey", "tags", "keys", "bodySize"),
)
_HEADINGS = ("due", "topic", "queue", "log offset", "key", "size", "remarks")


class By(StrEnum):
    """What to count."""

    TOPIC = "topic"
    TIME = "time"


def timer(
    path: StorePath,
    by: Annotated[
        By | None,
        typer.Option("--by", help="Count the messages by topic, or by the time that is left."),
    ] = None,
    commit_log: CommitLogOption = None,
    config: ConfigOption = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """List the messages that wait for their delivery time (TIMER_*, RocketMQ 5), and findings.

    Reads timer wheel, timer log, queue and checkpoint; changes nothing, and works beside a running
    broker. Only a broker delivers these messages. Exit status 1 if there are findings: slots,
    links and units that contradict each other, messages that cannot be read, deletes that hit
    nothing.

    \b
    Examples:
      rocketstore timer /data/store
      rocketstore timer /data/store --by topic
      rocketstore timer /data/store --format ndjson | jq .dueTimestamp
    """
    form = chosen(form)
    with reading(path, quiet=quiet, config=store_config(config, commit_log)) as store:
        report = store.timers()
        if by is None:
            _print_messages(report, form)
        elif by is By.TOPIC:
            rows = [{"topic": name, "messages": n} for name, n in report.by_topic.items()]
            _print_counts(report, rows, ("topic", "messages"), form)
        else:
            bounds = [{"seconds": s, "messages": n} for s, n in report.by_bound.items()]
            _print_counts(report, bounds, ("seconds", "messages"), form)
        if form is Format.TABLE:
            _print_summary(report)
        if report.findings:
            raise typer.Exit(int(ExitCode.FINDINGS))


def _document(one: TimerMessage) -> dict[str, Any]:
    message = one.message
    values = (
        *(one.due, one.topic, one.queue_id, one.rolls, one.delete, one.is_deleted, one.roll_times),
        *(one.slot_time, one.is_enqueued, message.physical_offset, message.queue_offset),
        *(message.store_timestamp, message.unique_key, message.tags, message.keys),
        len(message.body),
    )
    return dict(zip(NAMES, values, strict=True))


def _cells(one: TimerMessage) -> tuple[Any, ...]:
    remarks = [
        f"rolls at {format_time(one.slot_time)}" if one.rolls else "",
        "deletes another" if one.delete else "",
        "will be deleted" if one.is_deleted else "",
        "" if one.is_enqueued else "not in the wheel",
    ]
    return (
        format_time(one.due),
        one.topic,
        one.queue_id,
        one.message.physical_offset,
        one.message.keys or one.message.unique_key or "",
        len(one.message.body),
        ", ".join(filter(None, remarks)),
    )


def _print_messages(report: TimerReport, form: Format) -> None:
    if form is Format.JSON:
        rows = [_document(one) for one in report.pending]
        print_report(_summary(report), "messages", rows, NAMES, form)
        return
    table = Table(_HEADINGS, right=("queue", "log offset", "size"), shrink=("key", "topic"))
    with Rows(form, NAMES, table=table, row=_cells, document=_document) as out:
        for one in report.pending:
            out.write(one)
    if form is Format.NDJSON:
        print_line(_summary(report))


def _print_counts(
    report: TimerReport, rows: list[dict[str, Any]], names: tuple[str, ...], form: Format
) -> None:
    if form is not Format.TABLE:
        print_report(_summary(report), "counts", rows, names, form)
        return
    numbers = [name for name in names if name != "topic"]
    table = Table(names, right=numbers, shrink=[name for name in names if name == "topic"])
    _add_all(table, rows)


def _add_all(table: Table, rows: Iterable[dict[str, Any]]) -> None:
    for row in rows:
        table.add(tuple(row.values()))
    table.flush()


def _summary(report: TimerReport) -> dict[str, Any]:
    return {
        "kind": "summary",
        "pending": len(report),
        "overdue": report.overdue,
        "nextDue": report.next_due,
        "readTime": report.read_time,
        "queueOffset": report.queue_offset,
        "notEnqueued": report.not_enqueued,
        "precisionMs": report.precision_ms,
        "wheel": report.wheel,
        "findings": [one._asdict() for one in report.findings],
    }


def _print_summary(report: TimerReport) -> None:
    if len(report):
        print_text()
    text = f"{counted(len(report), 'message')} pending, {report.overdue:,} overdue"
    if report.not_enqueued:
        text += f", {report.not_enqueued:,} not in the wheel yet"
    if report.read_time is not None:
        text += f"; a broker delivered up to {format_time(report.read_time)}"
    print_text(f"{text}.")
    if report.findings:
        print_text()
        print_text("Findings:")
        for one in report.findings:
            print_text(f"  {one.kind}: {one.path} at position {one.position}: {one.reason}")
