"""``diff``: where two stores differ; both are only read."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Unpack

from rocketstore import formats
from rocketstore.arguments import Progress, StoreOptions
from rocketstore.config import MessageStoreConfig
from rocketstore.directory.parts import is_store, refuse_dledger, store_parts
from rocketstore.directory.paths import StorePaths
from rocketstore.directory.place import is_there
from rocketstore.errors import ConfigError, SourceChangedError
from rocketstore.moving.comparing.difference import PARTS, Difference, DiffReport, Findings
from rocketstore.moving.comparing.key_diff import KeysDiff
from rocketstore.moving.comparing.log_diff import LogDiff, LogSide
from rocketstore.moving.comparing.queue_diff import QueuesDiff
from rocketstore.moving.comparing.table_diff import TablesDiff
from rocketstore.store.arguments import check_int, merge
from rocketstore.store.read_only import ReadOnlyParts
from rocketstore.store.verifying import no_clock

__all__ = ["PARTS", "DiffReport", "Difference", "diff"]


def diff(
    a: str | os.PathLike[str],
    b: str | os.PathLike[str],
    *,
    since: int | None = None,
    parts: Sequence[str] = PARTS,
    config: MessageStoreConfig | None = None,
    config_b: MessageStoreConfig | None = None,
    limit: int = 1000,
    progress: Progress | None = None,
    **options: Unpack[StoreOptions],
) -> DiffReport:
    """Compare two stores: their logs record by record, queues, keys and tables; both are only read.

    Parameters
    ----------
    a, b : path
        Roots of stores, or folders with a log's segments alone; of such only the logs are compared.
    since : int, optional
        A log offset: only records that end after it, and their units and keys, are compared.
    parts : sequence of str
        What to compare, of ``log``, ``queues``, ``keys`` and ``config``.
    config, config_b : MessageStoreConfig, optional
        Sizes and places of files. Without ``config_b``, ``config`` is for both, except for a log
        outside the store.
    limit : int
        Differences that are listed; all are counted.
    progress : callable, optional
        Called as ``progress(what, done, total)``.
    **options
        Fields of ``MessageStoreConfig``, for both.

    Returns
    -------
    DiffReport

    Raises
    ------
    FileNotFoundError
        There is no store.
    ValueError
        ``since`` is past the end of both logs, or an argument is invalid.
    ConfigError
        Sizes contradict the files, or both stores have the same log.
    SourceChangedError
        A log expired or was truncated while it was compared.
    MappedFileError, UnsafePathError, PermissionError
        As ``open`` raises.

    Notes
    -----
    Queues and index are compared as their files are; what ``open`` would derive from the log is
    not. Index files count by their entries, so that two stores may have different files. Not
    compared: the checkpoint, ``abort``, ``.bak`` files, the timer wheel, ``dataVersion`` of tables,
    and what lies in a segment after its last record. A store that is written meanwhile is compared
    up to the end that its log has at the beginning. Memory: below 300 MiB, whatever the sizes.
    An interrupt carries a note (``__notes__``) that says how to go on.
    """
    if since is not None:
        check_int("since", since)
    check_int("limit", limit)
    if since is not None and since < 0:
        raise ValueError(f"since is {since}; it must be 0 or more")
    unknown = [part for part in parts if part not in PARTS]
    if unknown or not parts or isinstance(parts, str):
        raise ValueError(f"parts must be some of {PARTS}, not {parts!r}")
    began = time.monotonic()
    settings = merge(config, options)
    others = settings if config_b is None else merge(config_b, options)
    if config_b is None and settings.store_path_commit_log and not settings.store_path_root_dir:
        others = settings.replace(store_path_commit_log=None)
    job = _Diff((Path(a), Path(b)), (settings, others), since, parts, limit, progress)
    report = job.run()
    report.duration_s = time.monotonic() - began
    return report


class _Diff:
    """One call."""

    def __init__(
        self,
        roots: tuple[Path, Path],
        configs: tuple[MessageStoreConfig, MessageStoreConfig],
        since: int | None,
        parts: Sequence[str],
        limit: int,
        progress: Progress | None,
    ) -> None:
        self._roots = roots
        self._names = str(roots[0]), str(roots[1])
        self._since = since
        self._found = Findings(limit)
        self._progress = progress
        self._log: LogDiff | None = None
        found = [_place(root, one) for root, one in zip(roots, configs, strict=True)]
        self._configs = [config for config, _ in found]
        self._paths = [
            StorePaths.of(root, config) for root, config in zip(roots, self._configs, strict=True)
        ]
        self._parts = [part for part in PARTS if part in parts]
        if any(is_bare for _, is_bare in found):
            self._parts = [part for part in self._parts if part == "log"]
            self._found.notes.append("only the logs were compared: the rest is not there")
        logs = [set(map(os.path.realpath, paths.log_folders)) for paths in self._paths]
        shared = logs[0] & logs[1]
        if shared and os.path.realpath(roots[0]) != os.path.realpath(roots[1]):
            raise ConfigError(f"both stores have the log {shared.pop()}; name that of each store")

    def run(self) -> DiffReport:
        """Compare the stores."""
        report = DiffReport(*self._names, since=self._since, parts=tuple(self._parts))
        for paths in self._paths:
            refuse_dledger(paths.root, *paths.log_folders)
        with self._opened(0) as a, self._opened(1) as b:
            sides = [
                LogSide(name, one.log, max(one.log.min_offset, 0),
                        max(one.log.max_offset, one.log.min_offset, 0))
                for name, one in zip(self._names, (a, b), strict=True)
            ]  # fmt: skip
            report.log_a, report.log_b = ((side.start, side.end) for side in sides)
            if self._since is not None and self._since > max(side.end for side in sides):
                raise ValueError(
                    f"since is {self._since}; the logs end at {sides[0].end} and {sides[1].end}"
                )
            try:
                self._compare(sides[0], sides[1], a, b)
            except KeyboardInterrupt as error:
                error.add_note(self._how_to_go_on())
                raise
            except FileNotFoundError as error:
                if any(paths.has_writer() for paths in self._paths):
                    raise SourceChangedError(
                        f"{error.filename} was deleted while it was compared; the same command "
                        "begins again"
                    ) from None
                raise
        found = self._found
        report.first_offset = self._log.first if self._log is not None else None
        report.state, report.differences, report.counts = (
            found.state, found.differences, dict(found.counts),
        )  # fmt: skip
        report.truncated = sum(found.counts.values()) > len(found.differences)
        report.unread, report.notes = found.unread, [*report.notes, *found.notes]
        names = ("bytes", "records", "queues", "units", "keys", "files")
        report.compared = {name: found.compared[name] for name in names}
        return report

    @contextlib.contextmanager
    def _opened(self, number: int) -> Iterator[ReadOnlyParts]:
        paths = self._paths[number]
        if not paths.commit_log.is_dir():
            raise FileNotFoundError(2, "this is not a store: its log is missing", str(paths.root))
        files = ReadOnlyParts(
            paths, self._configs[number], derive="none", as_files=True, clock=no_clock,
            progress=self._progress,
        )  # fmt: skip
        try:
            if paths.has_writer():
                files.load_again()  # so that units of all records up to the log's end are there
            yield files
        finally:
            files.close()

    def _compare(self, first: LogSide, second: LogSide, a: ReadOnlyParts, b: ReadOnlyParts) -> None:
        found, floor = self._found, self._since or 0
        for files in (a, b):
            for one in files.report.damaged:
                if one.stop > floor:
                    found.cannot_read(str(one))
        if "log" in self._parts:
            self._log = LogDiff(first, second, self._since, found, self._advance("comparing logs"))
            self._log.run()
        if "queues" in self._parts:
            self._compare_queues(a, b)
        if "keys" in self._parts:
            KeysDiff(
                a.index, b.index, self._names, roots=self._roots,
                start=max(first.start, second.start, floor), stop=min(first.end, second.end),
                found=found, advance=self._advance("comparing keys"),
            ).run()  # fmt: skip
        if "config" in self._parts:
            TablesDiff(*self._roots, self._names, found).run()

    def _compare_queues(self, a: ReadOnlyParts, b: ReadOnlyParts) -> None:
        for files in (a, b):
            if files.rocksdb is not None:
                self._found.cannot_read(
                    f"{files.rocksdb.directory} holds consume queues in RocksDB, which are not read"
                )
            if self._since is not None:
                for queue in files.queues:
                    queue.correct_min_index(
                        max(self._since, files.log.min_offset), keep_when_empty=False
                    )
        QueuesDiff(
            a.queues, b.queues, self._names, roots=self._roots, whole=self._since is None,
            found=self._found, advance=self._advance("comparing queues"),
        ).run()  # fmt: skip

    def _advance(self, what: str) -> Callable[[int, int], None]:
        def advance(done: int, total: int) -> None:
            if self._progress is not None:
                self._progress(what, done, total)

        return advance

    def _how_to_go_on(self) -> str:
        log = self._log
        if log is None:
            return "the same command begins again"
        if log.position < log.stop and log.first is None:
            return (
                f"the logs are equal up to offset {log.position}; with --since {log.position} "
                "(since=…) the comparison goes on there"
            )
        state = "equal" if log.first is None else f"different from offset {log.first} on"
        rest = " ".join(f"--only {part}" for part in self._parts if part != "log")
        return f"the logs are {state}; {rest} (parts=…) compares the rest"


def _place(root: Path, config: MessageStoreConfig) -> tuple[MessageStoreConfig, bool]:
    """Return the configuration, and whether ``root`` is a log without a store around it."""
    if not is_there(root) or not root.is_dir():
        raise FileNotFoundError(2, "there is no store", str(root))
    if config.store_path_commit_log or is_store(store_parts(root)):
        return config, False
    try:
        names = os.listdir(root)
    except NotADirectoryError:
        names = []
    if any(formats.file_name_to_offset(name) is not None for name in names):
        return config.replace(store_path_root_dir=None, store_path_commit_log=str(root)), True
    raise FileNotFoundError(
        2, f"this is not a store: it has no folder {formats.COMMIT_LOG_DIR}", str(root)
    )
