"""``rocketstore retention``: which log files go when."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from rocketstore.cli.common.opening import check_has, has_segments, reading
from rocketstore.cli.common.options import (
    CommitLogOption,
    ConfigOption,
    FormatOption,
    QuietOption,
    StorePath,
    check_time,
    store_config,
)
from rocketstore.cli.common.outcome import ExitCode
from rocketstore.cli.common.output import chosen, print_rows, print_text
from rocketstore.cli.common.quantities import counted, format_size, format_time, parse_time
from rocketstore.cli.looking.answers import print_answer
from rocketstore.config import MessageStoreConfig
from rocketstore.errors import ConfigError
from rocketstore.looking.expiry import (
    ExpiringFile,
    RetentionReport,
    what_if_config,
)
from rocketstore.looking.expiry import retention as forecast
from rocketstore.store.default_message_store import DefaultMessageStore

COLUMNS = (
    *("kind", "file", "start", "bytes", "from", "to", "expires", "time", "reason"),
    *("explanation", "messages", "lostUnread"),
)


def parse_changes(texts: list[str]) -> dict[str, str]:
    """Return names and values of ``name=value[,name=value]…``."""
    changes: dict[str, str] = {}
    for text in texts:
        for part in text.split(","):
            name, separator, value = (word.strip() for word in part.partition("="))
            if not name or not separator or not value:
                raise typer.BadParameter(f"{part!r} is not name=value: fileReservedTime=24")
            if name in changes:
                raise typer.BadParameter(f"{name} is given twice")
            changes[name] = value
    return changes


def _check_changes(texts: list[str] | None) -> list[str] | None:
    try:
        what_if_config(MessageStoreConfig(), parse_changes(texts or []))
    except (ConfigError, ValueError) as error:
        raise typer.BadParameter(str(error)) from None
    return texts


def retention(
    path: StorePath,
    what_if: Annotated[
        list[str] | None,
        typer.Option(
            "--what-if",
            metavar="NAME=VALUE",
            callback=_check_changes,
            help="A broker's option to try: fileReservedTime=24, deleteWhen=04; several with "
            "commas.",
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="TIME", callback=check_time, help="Count from this time."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--until", metavar="TIME", callback=check_time, help="Only files that go by then."
        ),
    ] = None,
    commit_log: CommitLogOption = None,
    config: ConfigOption = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Show which log files go when, and which groups lose unread messages with them.

    Nothing is deleted. The rules are those of --config, changed by --what-if; the disk is judged as
    it is now. `rocketstore clean --what-if` shows what goes at once. Exit status 1 if a group loses
    unread messages.

    \b
    Examples:
      rocketstore retention /data/store --config broker.conf
      rocketstore retention /data/store --what-if fileReservedTime=24,deleteWhen=02
      rocketstore retention /data/store --until 2026-12-01 --format ndjson | jq .lostUnread
    """
    settings = store_config(config, commit_log)
    rules = what_if_config(settings, parse_changes(what_if or []))
    with _opened(path, settings, quiet=quiet) as (store, log):
        report = forecast(
            store,
            config=rules if log is None else rules.replace(store_path_commit_log=log),
            at=None if at is None else parse_time(at),
            upto=None if until is None else parse_time(until),
        )
    if log is not None:
        report.path = os.fspath(path)
        report.notes = ["only a log was given: what groups have not read is unknown"]
    summary = {
        "path": report.path,
        "at": report.at,
        "options": report.options,
        "files": len(report.files),
        "bytes": sum(one.nbytes for one in report.files),
        "lostUnread": report.lost_unread,
        "kept": report.kept,
        "usedRatio": report.used_ratio,
        "notes": report.notes,
    }
    rows = [_document(one) for one in report.files]
    if not print_answer("retention", summary, rows, COLUMNS, chosen(form)):
        _print_table(report)
    if report.lost_unread:
        raise typer.Exit(int(ExitCode.FINDINGS))


@contextlib.contextmanager
def _opened(
    path: Path, settings: MessageStoreConfig, *, quiet: bool
) -> Iterator[tuple[DefaultMessageStore, str | None]]:
    """Open a store, or a log alone from an empty root; give that log's folder, too."""
    log, root = None, path
    with contextlib.ExitStack() as stack:
        if has_segments(path, settings):
            if path.is_file():
                check_has(path, settings, "the segments that follow it")
            log, root = os.fspath(path), Path(stack.enter_context(TemporaryDirectory()))
            settings = settings.replace(store_path_commit_log=log)
        store = stack.enter_context(
            reading(root, quiet=quiet, config=settings, message_index_enable=False)
        )
        yield store, log


def _document(one: ExpiringFile) -> dict[str, Any]:
    lost = [
        {"group": each.group, "topic": each.topic, "queueId": each.queue_id,
         "messages": each.messages}
        for each in one.lost
    ]  # fmt: skip
    values = (
        *("file", one.path, one.start, one.nbytes, one.oldest_timestamp, one.newest_timestamp),
        *(one.expires, one.time, one.reason.value, one.explanation, one.messages, lost),
    )
    return dict(zip(COLUMNS, values, strict=True))


def _print_table(report: RetentionReport) -> None:
    if report.files:
        rows = [
            (format_time(one.time), one.path.rsplit("/", 1)[-1], format_size(one.nbytes),
             sum(one.messages.values()), sum(each.messages for each in one.lost),
             ", ".join(sorted({each.group for each in one.lost})), one.explanation)
            for one in report.files
        ]  # fmt: skip
        headings = ("goes", "file", "size", "messages", "unread", "groups", "why")
        print_rows(headings, rows, right=("size", "messages", "unread"), shrink=("why", "groups"))
        print_text()
    for note in report.notes:
        print_text(f"Note: {note}.")
    print_text(
        f"{counted(len(report.files), 'file')}, "
        f"{format_size(sum(one.nbytes for one in report.files))}; {report.kept}. "
        f"{counted(report.lost_unread, 'unread message')} would be lost."
    )
