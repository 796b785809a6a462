"""``rocketstore import``: store the messages of an export."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from rocketstore.cli.common.opening import quieten
from rocketstore.cli.common.options import (
    CommitLogOption,
    ConfigOption,
    FormatOption,
    QuietOption,
    path,
    store_config,
)
from rocketstore.cli.common.outcome import ExitCode, answering, fail
from rocketstore.cli.common.output import Format, chosen, print_report, print_text
from rocketstore.cli.common.progress import progress_bar
from rocketstore.cli.common.quantities import counted
from rocketstore.errors import SourceChangedError
from rocketstore.moving.exports.importing import ImportReport
from rocketstore.moving.exports.importing import import_ as import_messages

_COLUMNS = ("kind", "row", "topic", "offset", "reason", "text")
_LISTED = 20


class _Offsets(StrEnum):
    NEW = "new"
    KEEP = "keep"


def import_(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="IN", parser=path, help="An export's folder, or one file of messages."
        ),
    ],
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH", parser=path, help="The store; created if it does not exist."
        ),
    ],
    offsets: Annotated[
        _Offsets,
        typer.Option(
            "--offsets", help="new: put each message again; keep: a new store with the same log."
        ),
    ] = _Offsets.NEW,
    map_file: Annotated[
        Path | None,
        typer.Option(
            "--map", metavar="FILE", parser=path, help="Write old and new offsets to this file."
        ),
    ] = None,
    commit_log: CommitLogOption = None,
    config: ConfigOption = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Store the messages of an export.

    With new offsets, each message is put again into its topic and queue, with its properties,
    flags, born time and host. Half and rolled back messages and those of system topics are skipped.
    With --offsets keep, a new store gets the same log, byte for byte; the export needs the column
    raw and must lack nothing. If it is interrupted, the same command goes on; no message is stored
    twice.

    Exit status 1 if the store refused messages; 4 if the store is open for writing, or if the log
    would not be the same: then there is no store.

    \b
    Examples:
      rocketstore import /lake/messages /data/new
      rocketstore import /lake/messages /data/new --map offsets.ndjson
      rocketstore export /data/store exact --columns topic,raw
      rocketstore import exact /data/same --offsets keep
    """
    settings = store_config(config, commit_log)
    quieten()  # the report contains everything, once
    try:
        with progress_bar(quiet=quiet) as progress:
            report = import_messages(
                source, path, offsets=offsets.value, map=map_file, config=settings,
                progress=progress,
            )  # fmt: skip
    except (FileExistsError, SourceChangedError) as error:
        named = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
        text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise fail(ExitCode.UNSAFE, f"{named}{text}") from None
    except ImportError as error:
        raise fail(
            ExitCode.CANNOT_READ,
            f"import needs pyarrow: pip install 'rocketstore[arrow]' ({error})",
        ) from None
    except ValueError as error:
        raise fail(ExitCode.USAGE, str(error)) from None
    except KeyboardInterrupt:
        raise fail(ExitCode.INTERRUPTED, "interrupted; the same command goes on") from None
    with answering(f"{report.messages} messages are stored"):
        _print(report, chosen(form))
    if not report.ok:
        raise typer.Exit(int(ExitCode.FINDINGS))


def _print(report: ImportReport, form: Format) -> None:
    rows: list[dict[str, Any]] = [{"kind": "note", "text": note} for note in report.notes]
    rows += report.findings
    summary: dict[str, Any] = {
        "kind": "summary",
        "schema": "rocketstore.import/1",
        "source": report.source,
        "path": report.path,
        "offsets": report.offsets,
        "state": report.state,
        "messages": report.messages,
        "skipped": report.skipped,
        "log": [report.log_start, report.log_end],
        "resumed": report.resumed,
        "findings": report.finding_count,
        "durationSeconds": round(report.duration_s, 3),
    }
    if not print_report(summary, "rows", rows, _COLUMNS, form):
        _print_text(report)


def _print_text(report: ImportReport) -> None:
    how = "Went on: stored" if report.resumed else "Stored"
    print_text(
        f"{how} {counted(report.messages, 'message')}; the log has offsets {report.log_start} to "
        f"{report.log_end}."
    )
    if report.skipped:
        print_text(
            f"Skipped {counted(report.skipped, 'message')} that no consumer got: half, rolled "
            "back, or of a system topic."
        )
    for note in report.notes:
        print_text(f"Note: {note}.")
    if report.ok:
        return
    print_text(f"The store refused {counted(report.finding_count, 'message')}:", style="bold red")
    for one in report.findings[:_LISTED]:
        print_text(f"  row {one['row']}, topic {one['topic']}: {one['reason']}")
