"""``rocketstore lag``: unread messages of consumer groups."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rocketstore.cli.common.opening import check_has, reading
from rocketstore.cli.common.options import (
    CommitLogOption,
    ConfigOption,
    FormatOption,
    QuietOption,
    StorePath,
    check_time,
    check_words,
    store_config,
)
from rocketstore.cli.common.outcome import ExitCode, complain
from rocketstore.cli.common.output import chosen, print_rows, print_text
from rocketstore.cli.common.quantities import counted, format_size, format_time, parse_time
from rocketstore.cli.looking.answers import format_span, print_answer
from rocketstore.looking.consumer_lag import LagReport, QueueLag
from rocketstore.looking.consumer_lag import lag as compare

COLUMNS = (
    *("kind", "group", "topic", "queueId", "committed", "min", "max", "messages", "bytes"),
    *("ageMs", "lostUnread", "state"),
)


def lag(
    path: StorePath,
    group: Annotated[
        str | None,
        typer.Option(
            "--group", "-g", metavar="GROUP", callback=check_words, help="Only this consumer group."
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="TIME",
            callback=check_time,
            help="Count only messages stored before this time, and ages up to it.",
        ),
    ] = None,
    commit_log: CommitLogOption = None,
    config: ConfigOption = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Show the unread messages of each consumer group, queue by queue.

    Committed offsets come from config/consumerOffset.json, which a broker writes every 5 seconds.
    Exit status 1 if an offset is past its queue's end (beyond) or unread messages were deleted
    (below), or if --group has no offsets.

    \b
    Examples:
      rocketstore lag /data/store
      rocketstore lag /data/store --group billing --format csv
      rocketstore lag /backup/store --at 2026-01-31T12:00:00+01:00
    """
    settings = store_config(config, commit_log)
    check_has(path, settings, "its queues and config/consumerOffset.json")
    with reading(path, quiet=quiet, config=settings, message_index_enable=False) as store:
        report = compare(store, group=group, at=None if at is None else parse_time(at))
    form = chosen(form)
    summary = {
        "path": report.path,
        "at": report.at,
        "groups": len({one.group for one in report.queues}),
        "messages": report.messages,
        "bytes": sum(one.nbytes for one in report.queues),
        "lostUnread": sum(one.lost_unread for one in report.queues),
        "notes": report.notes,
    }
    rows = [_document(one) for one in report.queues]
    if not print_answer("lag", summary, rows, COLUMNS, form):
        _print_table(report)
    if group is not None and not report.queues:
        if not quiet:
            complain(f"group {group} has no committed offsets")
        raise typer.Exit(int(ExitCode.FINDINGS))
    if not report.ok:
        raise typer.Exit(int(ExitCode.FINDINGS))


def _document(one: QueueLag) -> dict[str, Any]:
    values = (
        *("queue", one.group, one.topic, one.queue_id, one.committed, one.min_offset),
        *(one.max_offset, one.messages, one.nbytes, one.age_ms, one.lost_unread, one.state.value),
    )
    return dict(zip(COLUMNS, values, strict=True))


def _print_table(report: LagReport) -> None:
    if report.queues:
        headings = (
            *("group", "topic", "queue", "committed", "min", "max", "messages", "bytes", "age"),
            *("lost", "state"),
        )
        rows = [
            (one.group, one.topic, one.queue_id, one.committed, one.min_offset, one.max_offset,
             one.messages, one.nbytes, None if one.age_ms is None else format_span(one.age_ms),
             one.lost_unread, one.state.value)
            for one in report.queues
        ]  # fmt: skip
        print_rows(headings, rows, right=headings[2:10], shrink=("topic", "group"))
        print_text()
    for note in report.notes:
        print_text(f"Note: {note}.")
    print_text(
        f"{counted(report.messages, 'unread message')} "
        f"({format_size(sum(one.nbytes for one in report.queues))}) at {format_time(report.at)}."
    )
