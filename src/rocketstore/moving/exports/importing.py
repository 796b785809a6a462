"""``import``: messages of an export into a store, with their offsets or with new ones."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Unpack

from rocketstore.arguments import Progress, StoreOptions
from rocketstore.config import MessageStoreConfig
from rocketstore.directory.place import check_platform
from rocketstore.errors import RepairRefusedError
from rocketstore.mending.journal import Journal
from rocketstore.moving.exports.import_kept import KeepingImport
from rocketstore.moving.exports.import_new import NO_COUNTS, MapFile, Putter, unknown_names
from rocketstore.moving.exports.import_rows import ImportSource, Row
from rocketstore.moving.exports.unfinished import Unfinished, open_to_put
from rocketstore.moving.tree import refuse_overlap
from rocketstore.store.arguments import check_settings, merge

#: Appended to the store's name while messages are imported.
WORK_SUFFIX = ".rocketstore-import"


@dataclass
class ImportReport:
    """What ``import_`` stored.

    Attributes
    ----------
    source, path : str
        The export, and the store.
    offsets : str
        ``keep`` or ``new``.
    state : str
        ``done``, or ``already``: an earlier call had made the store.
    messages : int
        Stored, those of an interrupted call included.
    skipped : int
        Half and rolled back messages and those of system topics, which get no new offsets.
    log_start, log_end : int
        Physical offsets of the store's log.
    resumed : bool
        An earlier call had been interrupted.
    findings : list of dict
        Messages that the store refused, at most 1000.
    finding_count : int
    notes : list of str
    duration_s : float
    """

    source: str
    path: str
    offsets: str
    state: str = "done"
    messages: int = 0
    skipped: int = 0
    log_start: int = 0
    log_end: int = 0
    resumed: bool = False
    findings: list[dict[str, Any]] = field(default_factory=list)
    finding_count: int = 0
    notes: list[str] = field(default_factory=list)
    duration_s: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether every message was stored."""
        return not self.finding_count


def import_(
    source: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    offsets: str = "new",
    map: str | os.PathLike[str] | None = None,
    config: MessageStoreConfig | None = None,
    progress: Progress | None = None,
    **options: Unpack[StoreOptions],
) -> ImportReport:
    """Store the messages of an export.

    Parameters
    ----------
    source : path
        The folder of a complete export, or one file (``.parquet``, ``.arrow``, ``.ndjson``,
        ``.csv``, the last two also with ``.gz``). Files of a folder are compared with the hashes of
        its manifest before anything is stored.
    path : path
        The store; it is created if it does not exist.
    offsets : {"new", "keep"}
        ``"new"`` puts each message again, into its topic and queue; it keeps properties, flags,
        born time and host, and gets new offsets and a new store time. ``"keep"`` makes a new store
        with the same log, byte for byte, and needs an export of the whole log with the column
        ``raw``, of a log that lacks nothing.
    map : path, optional
        A file for the old and the new offsets, one line of JSON for each message; with ``"new"``.
    config : MessageStoreConfig, optional
    progress : callable, optional
        Called as ``progress(what, done, total)``.
    **options
        Fields of ``MessageStoreConfig``.

    Returns
    -------
    ImportReport

    Raises
    ------
    FileNotFoundError, MappedFileError
        There is no complete export, or a file of it was changed.
    FileExistsError
        ``"keep"`` and the store exists; the map exists; or an unfinished import there is of
        another source.
    RepairRefusedError
        ``"keep"`` and the log would not be the same. There is no store then.
    SourceChangedError
        Another program put messages since the import was interrupted.
    StoreLockedError, StoreFullError, ConfigError
        As ``open`` raises them.

    Notes
    -----
    After a kill or a full disk the same call goes on: with ``"new"`` exactly after the last message
    that the store has, with ``"keep"`` after the last 64 MiB of log that are on disk. All is stored
    when the folder ``path.rocketstore-import`` is gone. Memory: below 300 MiB.
    """
    settings = merge(config, options)
    check_platform("r+")
    check_settings(settings)
    if offsets not in ("new", "keep"):
        raise ValueError(f"offsets is {offsets!r}; it must be 'new' or 'keep'")
    if map is not None and offsets == "keep":
        raise ValueError("offsets that are kept need no map")
    job = _Import(Path(source), Path(path), settings, progress,
                  offsets=offsets, mapped=None if map is None else Path(map))  # fmt: skip
    began = time.monotonic()
    job.run()
    job.report.duration_s = time.monotonic() - began
    return job.report


class _Import:
    """One call."""

    def __init__(
        self,
        source: Path,
        path: Path,
        config: MessageStoreConfig,
        progress: Progress | None,
        *,
        offsets: str,
        mapped: Path | None,
    ) -> None:
        self.report = ImportReport(str(source), str(path), offsets)
        self._from = source
        self._path = path
        self._config = config
        self._progress = progress
        self._map = mapped

    def run(self) -> None:
        """Import, or go on with it."""
        source = ImportSource(self._from)
        refuse_overlap(self._path, self._from)
        if self.report.offsets == "keep":
            job = KeepingImport(source, self._path, WORK_SUFFIX, self._config, self._progress)
            made, report = job.run(), self.report
            report.state = "already" if made.already else "done"
            report.messages, report.resumed = made.messages, made.resumed
            report.log_start, report.log_end = made.start, made.end
            return
        unfinished = Unfinished(self._path, WORK_SUFFIX)
        with unfinished.held() as journal:
            if not journal.has("begun"):
                if self._map is not None and os.path.lexists(self._map):
                    raise FileExistsError(17, "it exists", str(self._map))
                self._check(source)
                next(self._rows(source), None)  # refuses a source without the columns
            self._put(source, journal, unfinished.work)

    def _check(self, source: ImportSource) -> None:
        source.check(lambda done: self._tell("checking", done, source.nbytes))

    def _tell(self, what: str, done: int, total: int) -> None:
        if self._progress is not None:
            self._progress(what, done, total)

    # --- new offsets ----------------------------------------------------------------------------

    def _put(self, source: ImportSource, journal: Journal, work: Path) -> None:
        asked = {
            "offsets": "new",
            "source": source.identity,
            "map": None if self._map is None else str(self._map),
        }
        begun = journal.find("begun")
        if begun is not None and {name: begun.get(name) for name in asked} != asked:
            raise FileExistsError(
                17, "there is an unfinished import of another source, or with another map",
                str(work),
            )  # fmt: skip
        self.report.resumed = begun is not None
        mapped = MapFile(self._map)
        with open_to_put(self._path, self._config) as store:
            if begun is None:
                journal.write("begun", **asked, end=store.max_physical_offset, mapped=0,
                              **NO_COUNTS)  # fmt: skip
            putter = Putter(store, journal, mapped)
            total = 0 if source.totals is None else source.totals.rows
            try:
                if not journal.has("finished"):
                    rows = self._rows(source)
                    for number in range(putter.counts["row"]):
                        next(rows, None)
                        self._tell("importing", number, total)
                    for _ in putter.run(rows):
                        self._tell("importing", putter.counts["row"], total)
            finally:
                mapped.close()
            self.report.log_start = max(store.min_physical_offset, 0)
            self.report.log_end = store.max_physical_offset
        if not journal.has("finished"):
            journal.write("finished")
        mapped.finish()
        self.report.messages, self.report.skipped = (
            putter.counts["stored"],
            putter.counts["skipped"],
        )
        self.report.findings = putter.findings
        self.report.finding_count = putter.finding_count
        if source.totals is not None and source.totals.lost:
            self.report.notes.append(
                f"the export lacks {source.totals.lost_nbytes} bytes of its log"
            )

    def _rows(self, source: ImportSource) -> Iterator[Row]:
        is_first = True
        for _, files in source.pieces():
            for row in source.rows(files):
                if is_first:
                    is_first = False
                    _refuse_columns(row)
                yield row


def _refuse_columns(row: Row) -> None:
    """Raise ``RepairRefusedError`` before anything is stored if a source is no messages."""
    missing = next((name for name in ("topic", "body") if name not in row), None)
    reason = unknown_names(row) if missing is None else f"the messages have no column {missing}"
    if reason is not None:
        raise RepairRefusedError(reason)
