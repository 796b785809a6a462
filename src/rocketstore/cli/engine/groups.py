"""``rocketstore groups``: what consumer groups have committed, and what waits for them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rocketstore.cli.common.opening import quieten, reading
from rocketstore.cli.common.options import (
    CommitLogOption,
    ConfigOption,
    FormatOption,
    QuietOption,
    StorePath,
    check_words,
    store_config,
)
from rocketstore.cli.common.outcome import ExitCode, complain
from rocketstore.cli.common.output import Format, Rows, chosen, print_report, print_rows, print_text
from rocketstore.cli.common.quantities import counted
from rocketstore.cli.common.table import Table
from rocketstore.consumer.report import GroupReport

#: Field names of a group, and of one of its queues.
NAMES = ("group", "queues", "lag", "lagMs", "retryCount", "deadLetterCount")
QUEUE_NAMES = ("kind", "topic", "queueId", "committed", "maxOffset", "lag", "lagMs", "beyond")
_HEADINGS = ("group", "queues", "lag", "age", "retries", "dead letters")


def groups(
    path: StorePath,
    group: Annotated[
        str | None,
        typer.Argument(metavar="GROUP", callback=check_words, help="Show this group's queues."),
    ] = None,
    commit_log: CommitLogOption = None,
    config: ConfigOption = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Show consumer groups: committed offsets, lag, retries and dead letters.

    The lag counts messages from the committed offset on; its time is the age of the oldest of them.
    Changes nothing and works beside a running broker, which writes its offsets every 5 seconds.
    Exit status 1 if there is no group of the name.

    \b
    Examples:
      rocketstore groups /data/store
      rocketstore groups /data/store audit --format json
    """
    if quiet:
        quieten()
    form = chosen(form)
    with reading(path, quiet=quiet, config=store_config(config, commit_log)) as store:
        found = store.groups()
        if group is not None and group not in found:
            if not quiet:
                complain(f"there is no consumer group {group!r} here")
            raise typer.Exit(int(ExitCode.FINDINGS))
        if group is not None:
            _print_group(found[group], form)
            return
        table = Table(_HEADINGS, right=_HEADINGS[1:], shrink=("group",))
        with Rows(form, NAMES, table=table, row=_cells) as out:
            for report in found.values():
                out.write(_document(report))
        if not out.count and not quiet:
            complain("there is no consumer group here")


def _document(report: GroupReport) -> dict[str, Any]:
    values = (
        *(report.group, len(report.committed), report.total_lag),
        *(max(report.lag_ms.values(), default=0), report.retry_count, report.dead_letter_count),
    )
    return dict(zip(NAMES, values, strict=True))


def _cells(document: dict[str, Any]) -> tuple[Any, ...]:
    values = [document[name] for name in NAMES]
    values[3] = _span(values[3])
    return tuple(values)


def _span(nms: int) -> str:
    for unit, length in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000)):
        if nms >= length:
            return f"{nms / length:.1f} {unit}"
    return f"{nms / 1000:.1f} s" if nms else ""


def _queues(report: GroupReport) -> list[dict[str, Any]]:
    return [
        dict(
            zip(
                QUEUE_NAMES,
                (
                    *("queue", key[0], key[1], offset),
                    None if key in report.beyond else offset + report.lag[key],
                    *(report.lag[key], report.lag_ms[key], key in report.beyond),
                ),
                strict=True,
            )
        )
        for key, offset in report.committed.items()
    ]


def _print_group(report: GroupReport, form: Format) -> None:
    rows = _queues(report)
    summary = {"kind": "summary", **_document(report)}
    summary.pop("queues")
    if print_report(summary, "queues", rows, QUEUE_NAMES, form):
        return
    headings = ("topic", "queue", "committed", "max offset", "lag", "age")
    cells = [
        (
            *(row["topic"], row["queueId"], row["committed"]),
            "queue ends before" if row["beyond"] else row["maxOffset"],
            *(row["lag"], _span(row["lagMs"])),
        )
        for row in rows
    ]
    if cells:
        print_rows(headings, cells, right=headings[1:], shrink=("topic",))
        print_text()
    print_text(
        f"{counted(report.total_lag, 'message')} to consume; "
        f"{counted(report.retry_count, 'message')} to retry, "
        f"{counted(report.dead_letter_count, 'dead letter')}."
    )
