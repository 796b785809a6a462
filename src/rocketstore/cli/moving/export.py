"""``rocketstore export``: messages as Parquet, Arrow, NDJSON or CSV files."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from rocketstore.cli.common.opening import quieten
from rocketstore.cli.common.options import (
    BeginOption,
    CommitLogOption,
    ConfigOption,
    EndOption,
    FormatOption,
    OnCorruption,
    OnCorruptionOption,
    QuietOption,
    RecordWord,
    StartOption,
    StopOption,
    TopicsOption,
    check_words,
    path,
    store_config,
)
from rocketstore.cli.common.outcome import ExitCode, answering, check_found, complain, fail
from rocketstore.cli.common.output import Format, chosen, print_report, print_text
from rocketstore.cli.common.progress import progress_bar
from rocketstore.cli.common.quantities import counted, format_size, parse_time
from rocketstore.cli.common.where import WhereOption, filter_warnings
from rocketstore.errors import CorruptMessageError, FilterSyntaxError, SourceChangedError
from rocketstore.moving.exports.exporting import ExportReport
from rocketstore.moving.exports.exporting import export as export_store

_COLUMNS = ("kind", "log", "path", "position", "offset", "reason", "more")
_LISTED = 20


class _To(StrEnum):
    PARQUET = "parquet"
    ARROW = "arrow"
    NDJSON = "ndjson"
    CSV = "csv"


def export(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH", parser=path, help='A store, its "commitlog" folder, or one segment.'
        ),
    ],
    destination: Annotated[
        Path,
        typer.Argument(
            metavar="OUT",
            parser=path,
            help="A folder that is absent, empty, or (--append) has an export.",
        ),
    ],
    to: Annotated[
        _To | None,
        typer.Option("--to", show_default=False, help="Format of the files [default: parquet]."),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns",
            metavar="NAMES",
            callback=check_words,
            help="core, full, kafka, or names with commas [default: full].",
        ),
    ] = None,
    partition_by: Annotated[
        str | None,
        typer.Option(
            "--partition-by",
            metavar="NAMES",
            callback=check_words,
            help="Folders by topic, queueId, date (UTC), with commas [default: none].",
        ),
    ] = None,
    compression: Annotated[
        str | None,
        typer.Option(
            "--compression",
            metavar="NAME",
            help="parquet: snappy, zstd, gzip, lz4, brotli, none; arrow: none, lz4, zstd; "
            "ndjson, csv: none, gzip [default: the first].",
        ),
    ] = None,
    append: Annotated[
        bool, typer.Option("--append", help="Add what the log got since the export in OUT.")
    ] = False,
    decompress: Annotated[
        bool, typer.Option("--decompress", help="Decompress bodies that producers compressed.")
    ] = False,
    topics: TopicsOption = None,
    where: WhereOption = None,
    begin: BeginOption = None,
    end: EndOption = None,
    start: StartOption = None,
    stop: StopOption = None,
    records: Annotated[
        RecordWord | None,
        typer.Option(
            "--records",
            show_default=False,
            help="log: every record, including half messages and rollbacks of transactions; "
            "queues: what consumers see, with batches split into messages [default: log].",
        ),
    ] = None,
    on_corruption: OnCorruptionOption = OnCorruption.FAIL,
    commit_log: CommitLogOption = None,
    config: ConfigOption = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Write the messages of a store to files; the store is only read, beside a broker, too.

    Every 256 MiB of log make a file, or one for each partition. Files have their final names only
    when they are complete and on disk; _manifest.ndjson, which lists them with log offsets and
    SHA-256, appears when the export is complete. If it is interrupted, the same command goes on.
    --append keeps the settings of the export in OUT and adds what was stored since.

    Exit status 1 if no message meets the conditions, or if the export lacks something: corrupt or
    missing ranges of the log that --on-corruption skip or stop left out, or bodies that
    --decompress left as stored; the manifest lists them. 4 if OUT holds something else, or is of
    another store.

    \b
    Examples:
      rocketstore export /data/store /lake/messages
      rocketstore export /data/store /lake/messages --append
      rocketstore export /data/store out --to ndjson --partition-by topic,date --decompress
      rocketstore export /data/store out --topic Orders --begin -1d --columns topic,body
    """
    settings = store_config(config, commit_log)
    quieten()  # the report contains everything, once
    try:
        with filter_warnings(quiet=quiet), progress_bar(quiet=quiet) as progress:
            report = export_store(
                path, destination,
                to=None if to is None else to.value,
                columns=columns,
                partition_by=None if partition_by is None else _names(partition_by),
                compression=compression,
                append=append,
                decompress=decompress or None,
                topics=topics,
                filter=where,
                begin=None if begin is None else parse_time(begin),
                end=None if end is None else parse_time(end),
                start=start, stop=stop,
                records=None if records is None else records.value,
                on_corruption=on_corruption.value,
                config=settings,
                progress=progress,
            )  # fmt: skip
    except FilterSyntaxError as error:
        raise fail(ExitCode.USAGE, f"--where: {error}", keep="\n") from None
    except (FileExistsError, SourceChangedError) as error:
        named = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
        text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise fail(ExitCode.UNSAFE, f"{named}{text}") from None
    except ImportError as error:
        raise fail(
            ExitCode.CANNOT_READ,
            f"export needs pyarrow: pip install 'rocketstore[arrow]' ({error})",
        ) from None
    except CorruptMessageError:
        if not quiet:
            complain("the same command with --on-corruption skip goes on after a corrupt range")
        raise
    except ValueError as error:
        raise fail(ExitCode.USAGE, str(error)) from None
    except KeyboardInterrupt:
        raise fail(ExitCode.INTERRUPTED, "interrupted; the same command goes on") from None
    with answering(f"{report.manifest} is complete"):
        _print(report, chosen(form))
    conditions = (topics, where, begin, end, start, stop)
    check_found(report.rows + report.finding_count, conditions, quiet=quiet)
    if not report.ok:
        raise typer.Exit(int(ExitCode.FINDINGS))


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def _print(report: ExportReport, form: Format) -> None:
    summary: dict[str, Any] = {
        "kind": "summary",
        "schema": "rocketstore.export/1",
        "path": report.path,
        "destination": report.destination,
        "manifest": report.manifest,
        "state": report.state,
        "log": [report.log_start, report.log_end],
        "messages": report.rows,
        "files": report.files,
        "bytes": report.nbytes,
        "newMessages": report.new_rows,
        "newFiles": report.new_files,
        "newBytes": report.new_nbytes,
        "resumed": report.resumed,
        "appended": report.appended,
        "findings": report.finding_count,
        "durationSeconds": round(report.duration_s, 3),
    }
    if not print_report(summary, "rows", report.findings, _COLUMNS, form):
        _print_text(report)


def _print_text(report: ExportReport) -> None:
    if report.state == "already":
        print_text(f"Nothing to write: everything up to log offset {report.log_end} is there.")
        return
    how = "Went on and wrote" if report.resumed else "Appended" if report.appended else "Wrote"
    print_text(
        f"{how} {counted(report.new_rows, 'message')} in {counted(report.new_files, 'file')} "
        f"({format_size(report.new_nbytes)})."
    )
    print_text(
        f"The export has {counted(report.rows, 'message')} of log offsets {report.log_start} to "
        f"{report.log_end}; {report.manifest} lists its files."
    )
    if report.ok:
        return
    print_text(f"It lacks {counted(report.finding_count, 'thing')}:", style="bold red")
    for one in report.findings[:_LISTED]:
        if one["kind"] == "lost":
            print_text(f"  log offsets {one['log'][0]} to {one['log'][1]}: {one['reason']}")
        else:
            print_text(f"  the body at log offset {one['offset']} is as stored: {one['reason']}")
