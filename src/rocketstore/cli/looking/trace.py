"""``rocketstore trace``: what happened to one message."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rocketstore.cli.common.options import (
    CommitLogOption,
    ConfigOption,
    FormatOption,
    QuietOption,
    check_words,
    store_config,
)
from rocketstore.cli.common.outcome import ExitCode, complain
from rocketstore.cli.common.output import chosen, print_rows, print_text
from rocketstore.cli.common.progress import progress_bar
from rocketstore.cli.common.quantities import counted, format_time
from rocketstore.cli.looking.answers import LogPath, check_log_path, damage_rows, print_answer
from rocketstore.looking.timeline import Event, Timeline
from rocketstore.looking.timeline import trace as follow

COLUMNS = (
    *("kind", "time", "event", "offset", "topic", "queueId", "queueOffset", "group", "detail"),
    "message",
)


def trace(
    path: LogPath,
    asked: Annotated[
        str,
        typer.Argument(
            metavar="KEY|OFFSET",
            callback=check_words,
            help="A key, unique key, message id, or the log offset of one of the records.",
        ),
    ],
    commit_log: CommitLogOption = None,
    config: ConfigOption = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Follow one message: put, half, commit, rollback, checks, delays, retries, dead letter.

    A store's index finds the records at once; a bare log, or one that the index does not cover, is
    read. Exit status 1 if nothing is found, or if a part of the log could not be searched.

    \b
    Examples:
      rocketstore trace /data/store order-17
      rocketstore trace /data/store 73728
      rocketstore trace /data/store 7F0000010A3C18B4AAC21F5B2C400000 --format ndjson
    """
    settings = store_config(config, commit_log)
    where = check_log_path(path, settings, quiet=quiet)
    with progress_bar(quiet=quiet) as progress:
        timeline = follow(where, asked, config=settings, progress=progress)
    summary = {
        "path": timeline.path,
        "asked": timeline.asked,
        "messages": len(timeline.messages),
        "events": len(timeline.events),
        "wholeLog": timeline.whole_log,
        "truncated": timeline.truncated,
        "damaged": damage_rows(timeline.damaged),
    }
    rows = [_document(event) for event in timeline.events]
    if not print_answer("trace", summary, rows, COLUMNS, chosen(form)):
        _print_table(timeline)
    if not timeline.events and not quiet:
        complain(f"nothing is found for {asked}")
    if not timeline.events or timeline.damaged:
        raise typer.Exit(int(ExitCode.FINDINGS))


def _document(event: Event) -> dict[str, Any]:
    values = (
        *("event", event.time, event.kind.value, event.offset, event.topic, event.queue_id),
        *(event.queue_offset, event.group, event.detail, event.message),
    )
    return dict(zip(COLUMNS, values, strict=True))


def _print_table(timeline: Timeline) -> None:
    headings = ("time", "event", "log offset", "topic", "queue", "offset", "group", "detail")
    for name in timeline.messages:
        print_text(f"Message {name}", style="bold")
        rows = [
            (format_time(one.time), one.kind.value, one.offset, one.topic, one.queue_id,
             one.queue_offset, one.group or "", one.detail)
            for one in timeline.events
            if one.message == name
        ]  # fmt: skip
        print_rows(headings, rows, right=("log offset", "queue", "offset"), shrink=("topic",))
        print_text()
    for one in timeline.damaged[:20]:
        print_text(f"Not searched: {one.path} at position {one.position}: {one.reason}", "bold red")
    if timeline.truncated:
        print_text("The key names further messages.")
    print_text(
        f"{counted(len(timeline.messages), 'message')}, {counted(len(timeline.events), 'record')}."
    )
