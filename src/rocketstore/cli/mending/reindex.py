"""``rocketstore reindex``: build queues and index from the log again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rocketstore.cli.common.opening import check_is_store, quieten
from rocketstore.cli.common.options import (
    BuiltOptionsOption,
    BuiltVersionOption,
    CommitLogOption,
    ConfigOption,
    FormatOption,
    QuietOption,
    StorePath,
    WhatIfOption,
    check_words,
    optional_path_word,
    store_config,
    with_broker,
)
from rocketstore.cli.common.outcome import ExitCode, complain
from rocketstore.cli.common.output import Format, chosen, print_report, print_text
from rocketstore.cli.common.progress import progress_bar
from rocketstore.cli.common.quantities import counted, format_size
from rocketstore.cli.common.text import command_line
from rocketstore.mending.reindex import ReindexReport
from rocketstore.mending.reindex import reindex as reindex_store

#: CSV columns of a row.
ROW_NAMES = ("kind", "path", "text")
_LISTED = 20


def reindex(
    path: StorePath,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            metavar="GLOB",
            help="Replace queues of these topics only, and no index; * and ? as in a shell.",
            callback=check_words,
        ),
    ] = None,
    queues_only: Annotated[
        bool, typer.Option("--queues-only", help="Leave the index as it is.")
    ] = False,
    index_only: Annotated[
        bool, typer.Option("--index-only", help="Leave the queues as they are.")
    ] = False,
    what_if: WhatIfOption = False,
    undo: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Keep the old files there [default: a folder in PATH/quarantine].",
            callback=optional_path_word,
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            "-j",
            metavar="N",
            min=1,
            max=256,
            help="Threads that sync and compare the queues [default: the processors, at most 4].",
        ),
    ] = None,
    broker_version: BuiltVersionOption = None,
    broker_option: BuiltOptionsOption = None,
    commit_log: CommitLogOption = None,
    config: ConfigOption = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Build queues and index from the log again; replace what differs. Stop the broker first.

    All files are built in a folder of their own. Those that differ from the store's take their
    places, one by one; the old ones are kept, and "rocketstore repair PATH --undo DIR" brings them
    back. If it is interrupted, the same command goes on. A damaged log is refused: run salvage.
    With --what-if the exit status is 1 if there is anything to replace.

    \b
    Examples:
      rocketstore reindex /data/store --what-if
      rocketstore reindex /data/store
      rocketstore reindex /data/store --topic 'Order*' --undo /backup/before
    """
    if queues_only and index_only:
        raise typer.BadParameter("--queues-only and --index-only exclude each other")
    if index_only and topic:
        raise typer.BadParameter("--topic selects queues; --index-only replaces none")
    settings = with_broker(store_config(config, commit_log), broker_version, broker_option)
    check_is_store(path, config=settings)
    quieten()  # the report contains everything, once
    with progress_bar(quiet=quiet) as progress:
        report = reindex_store(
            path,
            topics=topic or (),
            queues=not index_only,
            index=not queues_only,
            what_if=what_if,
            undo=None if undo is None else Path(undo),
            jobs=jobs,
            progress=progress,
            config=settings,
        )
    if not quiet:
        for note in report.notes:
            complain(note)
    _print(report, chosen(form))
    if what_if and report.files:
        raise typer.Exit(int(ExitCode.FINDINGS))


def _print(report: ReindexReport, form: Format) -> None:
    rows: list[dict[str, Any]] = [{"kind": "file", "path": path} for path in report.files]
    rows += [{"kind": "note", "text": note} for note in report.notes]
    summary = {
        "kind": "summary",
        "whatIf": report.what_if,
        "queues": report.queues,
        "units": report.units,
        "keys": report.keys,
        "files": len(report.files),
        "bytesRead": report.nbytes_read,
        "undo": report.undo,
        "resumed": report.resumed,
        "durationSeconds": round(report.duration_s, 3),
    }
    if not print_report(summary, "rows", rows, ROW_NAMES, form):
        _print_text(report)


def _print_text(report: ReindexReport) -> None:
    if report.resumed:
        print_text("Finished what an earlier call had begun.")
    else:
        print_text(
            f"Built {counted(report.units, 'unit')} of {counted(report.queues, 'queue')} and "
            f"{counted(report.keys, 'key')} from {format_size(report.nbytes_read)} of the log."
        )
    if not report.files:
        print_text("The store's files are the same; nothing was replaced.", style="green")
        return
    verb = "Would replace" if report.what_if else "Replaced"
    print_text(f"{verb} {counted(len(report.files), 'file')}:")
    for path in report.files[:_LISTED]:
        print_text(f"  {path}")
    hidden = len(report.files) - _LISTED
    if hidden > 0:
        print_text(f"  and {counted(hidden, 'more file')}; --format ndjson lists them.")
    if report.undo is not None:
        print_text(f"The old files are in {report.undo}. To take it back:")
        undo = command_line("repair", Path(report.path), "--undo", Path(report.undo))
        print_text(f"  {undo}")
