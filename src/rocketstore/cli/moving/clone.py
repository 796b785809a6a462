"""``rocketstore clone``: copy a store consistently."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rocketstore.cli.common.opening import check_is_store, quieten
from rocketstore.cli.common.options import (
    CommitLogOption,
    ConfigOption,
    FormatOption,
    QuietOption,
    StorePath,
    path,
    store_config,
)
from rocketstore.cli.common.outcome import ExitCode, answering
from rocketstore.cli.common.output import Format, chosen, print_report, print_text
from rocketstore.cli.common.progress import progress_bar
from rocketstore.cli.common.quantities import counted, format_size
from rocketstore.cli.common.text import command_line
from rocketstore.cli.moving.made_store import making
from rocketstore.moving.clone import WORK_SUFFIX, CloneReport
from rocketstore.moving.clone import clone as clone_store

_COLUMNS = ("kind", "code", "path", "position", "offset", "text")
_LISTED = 20


def clone(
    path: StorePath,
    destination: Annotated[
        Path,
        typer.Argument(
            metavar="DEST",
            parser=path,
            help="The copy: a path that does not exist, or an empty folder.",
        ),
    ],
    live: Annotated[
        bool,
        typer.Option("--live", help="Copy beside a running broker, up to the log's end of now."),
    ] = False,
    at: Annotated[
        int | None,
        typer.Option(
            "--at",
            metavar="OFFSET",
            min=0,
            help="Only records that end at or before this log offset.",
        ),
    ] = None,
    no_reflink: Annotated[
        bool, typer.Option("--no-reflink", help="Copy all bytes, also where files can share them.")
    ] = False,
    commit_log: CommitLogOption = None,
    config: ConfigOption = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Copy a store consistently and check the copy; the source is only read.

    A store that was closed in order is copied byte for byte, with holes and times. With --live or
    --at, and after a crash, the log is copied up to one offset, and queues, index and checkpoint
    are brought to it, so that the copy opens like a store that was closed there.

    The copy is made in DEST.rocketstore-clone and gets its name when it is complete, checked and on
    disk. If it is interrupted or the disk fills, the same command goes on.

    Exit status 1 if the copy has findings, as the source has; 4 if a writer has the store open and
    --live is not given, if the store was changed meanwhile, or if DEST exists.

    \b
    Examples:
      rocketstore clone /data/store /backup/store
      rocketstore clone /data/store /backup/store --live
      rocketstore clone /data/store /tmp/before --at 1073741824
    """
    settings = store_config(config, commit_log)
    check_is_store(path, config=settings)
    quieten()  # the report contains everything, once
    with making(destination, WORK_SUFFIX), progress_bar(quiet=quiet) as progress:
        report = clone_store(
            path, destination, live=live, at=at, reflink=not no_reflink, config=settings,
            progress=progress,
        )  # fmt: skip
    with answering(f"{destination} is made"):
        _print(report, chosen(form))
    if not report.ok:
        raise typer.Exit(int(ExitCode.FINDINGS))


def _print(report: CloneReport, form: Format) -> None:
    found = report.verify
    rows: list[dict[str, Any]] = [{"kind": "note", "text": note} for note in report.notes]
    for one in found.findings if found is not None else ():
        rows.append(
            {"kind": "finding", "code": one.kind, "path": one.path, "position": one.position,
             "offset": one.offset, "text": one.reason}
        )  # fmt: skip
    summary = {
        "kind": "summary",
        "schema": "rocketstore.clone/1",
        "path": report.path,
        "destination": report.destination,
        "state": report.state,
        "live": report.live,
        "log": [report.log_start, report.log_end],
        "files": report.files,
        "copiedBytes": report.copied_nbytes,
        "sharedBytes": report.shared_nbytes,
        "resumed": report.resumed,
        "settled": report.settled,
        "rebuilt": report.rebuilt,
        "findings": found.finding_count if found is not None else 0,
        "durationSeconds": round(report.duration_s, 3),
    }
    if not print_report(summary, "rows", rows, _COLUMNS, form):
        _print_text(report)


def _print_text(report: CloneReport) -> None:
    if report.state == "already":
        print_text(f"{report.destination} was complete already; nothing was left to do.")
        return
    how = "Went on and copied" if report.resumed else "Copied"
    shared = f", shared {format_size(report.shared_nbytes)}" if report.shared_nbytes else ""
    print_text(
        f"{how} {format_size(report.copied_nbytes)}{shared}: {counted(report.files, 'file')}, log "
        f"offsets {report.log_start} to {report.log_end}."
    )
    if report.settled:
        built = "built from the log" if report.rebuilt else "brought to the end of the log"
        print_text(f"Queues and index were {built}.")
    for note in report.notes:
        print_text(f"Note: {note}.")
    found = report.verify
    if found is None or found.ok:
        print_text("The copy was verified: no findings.", style="green")
        return
    print_text(f"The copy has {counted(found.finding_count, 'finding')}:", style="bold red")
    for one in found.findings[:_LISTED]:
        print_text(f"  {one.path} at {one.position}: {one.reason}")
    print_text(f"What to do: {command_line('doctor', Path(report.destination))}")
