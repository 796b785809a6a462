"""``rocketstore clean``: delete expired files, or list them."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from rocketstore.cleaning.plan import CleanedFile, CleanReport
from rocketstore.cli.common.opening import check_is_store, quieten
from rocketstore.cli.common.options import (
    CommitLogOption,
    ConfigOption,
    FormatOption,
    QuietOption,
    StorePath,
    configures,
    store_config,
)
from rocketstore.cli.common.outcome import ExitCode, answering, complain, words_of
from rocketstore.cli.common.output import Format, chosen, print_report, print_rows, print_text
from rocketstore.cli.common.progress import progress_bar
from rocketstore.cli.common.quantities import counted, format_size, format_time, now_ms
from rocketstore.config import MessageStoreConfig
from rocketstore.directory.paths import StorePaths
from rocketstore.errors import StoreFullError
from rocketstore.store.closed_cleaning import clean_closed_store
from rocketstore.store.default_message_store import DefaultMessageStore
from rocketstore.store.default_message_store import open as open_store
from rocketstore.store.fit_for_writing import refuse_unfit

#: Attempts to examine a store while another process deletes its files.
_LOOKS_BESIDE_A_WRITER = 10


def clean(
    path: StorePath,
    what_if: Annotated[
        bool, typer.Option("--what-if", help="Only list the expired files; change nothing.")
    ] = False,
    hours: Annotated[
        int | None,
        typer.Option(
            "--hours",
            metavar="N",
            min=0,
            callback=configures("file_reserved_time"),
            help="Hours to keep messages [default: 72, or the configuration file's].",
        ),
    ] = None,
    commit_log: CommitLogOption = None,
    config: ConfigOption = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Delete the files that hold only expired messages. Stop the broker first.

    A log file expires when its newest message is older than fileReservedTime. The oldest files go
    first, with the queue and index files that refer to nothing else. If the disk is nearly full,
    log files of any age go (cleanFileForciblyEnable), at most deleteFileBatchMax of them. The
    newest log file always stays. --what-if changes nothing and works beside a running broker; it
    refuses whatever cleaning would refuse. Exit status 1 if a file could not be deleted.

    \b
    Examples:
      rocketstore clean /data/store --what-if
      rocketstore clean /data/store --hours 48
      rocketstore clean /data/store --config broker.conf --what-if --format ndjson | jq .path
    """
    if quiet:
        quieten()
    settings = store_config(config, commit_log)
    check_is_store(path, config=settings)
    settings = settings.replace(clean_resource_enable=False)
    if hours is not None:
        settings = settings.replace(file_reserved_time=hours)
    ask = _what_if if what_if else _clean
    report = ask(path, settings, quiet=quiet)
    report.files = [_as_given(file, path) for file in report.files]
    done = f"{counted(len(report.files), 'file')} {'would go' if what_if else 'deleted'}"
    with answering(done):
        _print(report, chosen(form))
    if report.failures:
        raise typer.Exit(int(ExitCode.FINDINGS))


def _as_given(file: CleanedFile, root: Path) -> CleanedFile:
    """Return the file with its path below ``root`` as the user wrote that."""
    whole = os.path.abspath(root)
    if not Path(file.path).is_relative_to(whole):
        return file
    return dataclasses.replace(file, path=str(root / Path(file.path).relative_to(whole)))


def _opened(
    path: Path, settings: MessageStoreConfig, *, quiet: bool, mode: Literal["r", "r+"] = "r+"
) -> DefaultMessageStore:
    with progress_bar(quiet=quiet) as progress:
        return open_store(path, mode, config=settings, progress=progress)


def _what_if(path: Path, settings: MessageStoreConfig, *, quiet: bool) -> CleanReport:
    """List what would go; refuse what cleaning would refuse, except a store that is in use."""
    for _ in range(_LOOKS_BESIDE_A_WRITER):
        try:
            refuse_unfit(StorePaths.of(path, settings), settings, log_files=True)
            break
        except FileNotFoundError as error:
            missing = error  # the store's writer deleted a file meanwhile
    else:
        raise missing
    with _opened(path, settings, quiet=quiet, mode="r") as store:
        if store.recovery_report.damaged:
            raise store.recovery_report.damaged[0].refusal()
        return store.clean_expired(what_if=True)


def _clean(path: Path, settings: MessageStoreConfig, *, quiet: bool) -> CleanReport:
    """Clean the store; if the disk is too full to open it, clean it closed."""
    try:
        store = _opened(path, settings, quiet=quiet)
    except StoreFullError as error:
        report = clean_closed_store(StorePaths.of(path, settings), settings, clock=now_ms)
        if report.files:
            _settle(path, settings, quiet=quiet)
        elif not quiet:
            complain(f"nothing expired; opening for writing needs disk space: {words_of(error)}")
        return report
    with contextlib.ExitStack() as closing:
        closing.callback(_close, store)
        return store.clean_expired()


def _close(store: DefaultMessageStore) -> None:
    """Close a cleaned store; a full disk must not hide the report of deleted files."""
    try:
        store.close()
    except StoreFullError as error:
        complain(f"the disk is too full for the store's final state, so the next opening takes "
                 f"longer: {words_of(error)}")  # fmt: skip


def _settle(path: Path, settings: MessageStoreConfig, *, quiet: bool) -> None:
    """Open the store for writing and close it in order, if enough space was freed."""
    try:
        _opened(path, settings, quiet=quiet).close()
    except StoreFullError as error:
        if not quiet:
            complain(f"writing to the store needs more disk space: {words_of(error)}")


#: Field names of a file.
FILE_NAMES = (
    *("kind", "path", "bytes", "allocatedBytes"),
    *("oldestStoreTimestamp", "newestStoreTimestamp", "reason", "explanation"),
)


def _file(file: CleanedFile) -> dict[str, Any]:
    values = (
        *(file.kind, file.path, file.nbytes, file.allocated_nbytes),
        *(file.oldest_store_timestamp, file.newest_store_timestamp),
        *(file.reason.value, file.explanation),
    )
    return dict(zip(FILE_NAMES, values, strict=True))


def _summary(report: CleanReport) -> dict[str, Any]:
    return {
        "kind": "summary",
        "whatIf": report.what_if,
        "files": len(report.files),
        "allocatedBytes": report.nbytes,
        "logStart": report.min_offset,
        "kept": report.kept,
        "usedRatio": report.used_ratio,
        "failures": report.failures,
    }


def _print(report: CleanReport, form: Format) -> None:
    files = [_file(one) for one in report.files]
    if not print_report(_summary(report), "files", files, FILE_NAMES, form):
        _print_table(report)


def _print_table(report: CleanReport) -> None:
    if report.files:
        rows = [
            (one.kind, one.path, format_size(one.allocated_nbytes), _time(one), one.explanation)
            for one in report.files
        ]
        headings = ("kind", "file", "on disk", "newest message", "why")
        print_rows(headings, rows, right=("on disk",), shrink=("why", "file"))
        print_text()
    did = "would go" if report.what_if else "deleted"
    print_text(
        f"{counted(len(report.files), 'file')} {did}, {format_size(report.nbytes)}; the log "
        f"begins at {max(report.min_offset, 0)}: {report.kept}."
    )
    for failure in report.failures:
        print_text(f"Could not be deleted: {failure}.", style="bold red")


def _time(file: CleanedFile) -> str:
    newest = file.newest_store_timestamp
    return "" if newest is None else format_time(newest)
