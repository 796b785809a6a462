"""``export``: a store's messages as Parquet, Arrow, NDJSON or CSV files, with a manifest."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rocketstore.arguments import OnCorruption, Progress, Records
from rocketstore.arrow.layout import PARTITIONS, check_partitions
from rocketstore.arrow.reading import read_batches
from rocketstore.config import MessageStoreConfig
from rocketstore.directory.lock import StoreLock
from rocketstore.directory.parts import is_store, store_parts
from rocketstore.directory.paths import configured_logs
from rocketstore.display.columns import resolve
from rocketstore.errors import MappedFileError, RocketStoreError
from rocketstore.files.durable import make_directories, sync_directory
from rocketstore.filter.message_filter import sql_filter
from rocketstore.looking.log_source import open_log
from rocketstore.moving.exports.bodies import BODY_COLUMNS, decompressed_batches
from rocketstore.moving.exports.export_files import FORMATS, Layout, PieceWriter
from rocketstore.moving.exports.findings import Findings
from rocketstore.moving.exports.manifest import MANIFEST_FILE, SCHEMA, Manifest
from rocketstore.moving.exports.pieces import Piece, Pieces
from rocketstore.moving.tree import refuse_overlap
from rocketstore.query.queue_records import check_record_word
from rocketstore.store.arguments import check_int
from rocketstore.store.default_message_store import open as open_store
from rocketstore.version import __version__

#: In the export's folder while it is made; datasets ignore names that begin with ``_``.
WORK_FOLDER = "_unfinished"
_NEW = "new"
_COPY = "copy.ndjson"


@dataclass
class ExportReport:
    """What ``export`` wrote.

    Attributes
    ----------
    path, destination, manifest : str
        The store, the folder, and the file in it that lists everything.
    state : str
        ``done``, or ``already``: there was nothing to append, or an earlier call had made it.
    log_start, log_end : int
        Physical offsets; the log between them is exported.
    rows, files, nbytes : int
        Of the whole export.
    new_rows, new_files, new_nbytes : int
        Of this call.
    resumed, appended : bool
        An earlier call had been interrupted; an earlier export was complete.
    findings : list of dict
        Lines of the manifest that say what the export lacks: ranges of the log that are corrupt or
        missing (``lost``), and bodies that are as stored (``undecompressed``). Of this run, at most
        1000.
    finding_count : int
    duration_s : float
    """

    path: str
    destination: str
    manifest: str
    state: str = "done"
    log_start: int = 0
    log_end: int = 0
    rows: int = 0
    files: int = 0
    nbytes: int = 0
    new_rows: int = 0
    new_files: int = 0
    new_nbytes: int = 0
    resumed: bool = False
    appended: bool = False
    findings: list[dict[str, Any]] = field(default_factory=list)
    finding_count: int = 0
    duration_s: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the export lacks nothing."""
        return not self.finding_count


def export(
    path: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    *,
    to: str | None = None,
    columns: str | Sequence[str] | None = None,
    partition_by: Sequence[str] | None = None,
    compression: str | None = None,
    append: bool = False,
    decompress: bool | None = None,
    topics: Iterable[str] | None = None,
    filter: str | None = None,
    begin: int | None = None,
    end: int | None = None,
    start: int | None = None,
    stop: int | None = None,
    records: Records | None = None,
    on_corruption: OnCorruption = "fail",
    check_crc: bool = True,
    config: MessageStoreConfig | None = None,
    progress: Progress | None = None,
) -> ExportReport:
    """Write a store's messages to files; the store is only read, and no lock of it is taken.

    Every 256 MiB of log make a file, or one for each partition. A file gets its name when it is
    complete and on disk. The manifest ``_manifest.ndjson`` appears when the export is complete.
    After a kill or a full disk the same call goes on and makes the same files.

    Parameters
    ----------
    path : path
        A store, its ``commitlog`` folder, or one segment.
    destination : path
        A folder that is absent, empty, or has an export to append to; outside the store.
    to : {"parquet", "arrow", "ndjson", "csv"}, optional
        The default is Parquet. NDJSON has the names of ``rocketstore scan``; times are epoch ms,
        and bytes that are not UTF-8 are in base 64 (``bodyBase64``).
    columns : str or sequence of str, optional
        As in ``store.scan_arrow``; the default is ``"full"``. ``"raw"`` is the record's bytes.
    partition_by : sequence of str, optional
        Any of ``topic``, ``queueId`` and ``date`` (the day of storeTimestamp in UTC). Each value
        gets a folder with the naming of Hive and Spark; Parquet and Arrow files lack the column.
    compression : str, optional
        Parquet: ``snappy`` (the default), ``zstd``, ``gzip``, ``lz4``, ``brotli``, ``none``;
        Arrow: ``none``, ``lz4``, ``zstd``; NDJSON and CSV: ``none``, ``gzip``.
    append : bool
        Add what the log got since the export in ``destination``, with the same settings; those
        that are given must be equal. Without an export there, make one.
    decompress : bool, optional
        Decompress bodies; ``sysFlag`` and ``bodySize`` then describe the decompressed one. A body
        that cannot be decompressed stays as stored, and is a finding.
    topics : iterable of str, optional
    filter : str, optional
        An SQL92 expression over the properties.
    begin, end : int, optional
        Store times in epoch ms, ``begin <= time < end``.
    start, stop : int, optional
        Physical offsets: only records that begin in this range. Not ``start`` with ``append``.
    records : {"log", "queues"}, optional
        See ``DefaultMessageStore.scan``; the default is ``"log"``.
    on_corruption : {"fail", "skip", "stop"}
        At a corrupt or missing range: raise, and go on there when called again; leave it out; or
        end there. What is left out is a finding.
    check_crc : bool
    config : MessageStoreConfig, optional
        ``store_path_commit_log`` names a log elsewhere.
    progress : callable, optional
        Called as ``progress(what, done, total)``, in bytes of the log.

    Returns
    -------
    ExportReport

    Raises
    ------
    CorruptMessageError
        With ``"fail"``; names file and position.
    FileExistsError
        The folder holds something else, a complete export without ``append``, or an unfinished one
        with other settings.
    SourceChangedError
        The folder's export is of another store, or its log was truncated.
    StoreLockedError
        Another call writes to the folder.
    StoreFullError
        The disk is full.
    FileNotFoundError, MappedFileError, UnsafePathError, ValueError, TypeError
        There is no readable log, the folder is in the store, or an argument is invalid.

    Notes
    -----
    A store in use is exported up to the end that its log has when the call begins. Memory: below
    300 MiB. One call at a time for one destination. Needs pyarrow.
    """
    asked = _asked(
        {
            "to": to,
            "columns": None if columns is None else resolve(columns),
            "partitionBy": None if partition_by is None else list(partition_by),
            "compression": compression,
            "decompress": decompress,
            "topics": None if topics is None else sorted(set(topics)),
            "filter": filter,
            "begin": begin,
            "end": end,
            "records": records,
        }
    )
    for name, value in (("start", start), ("stop", stop)):
        if value is not None:
            check_int(name, value)
            if value < 0:
                raise ValueError(f"{name} is {value}; a log offset is 0 or more")
    if append and start is not None:
        raise ValueError("an appending export begins where the earlier one ended; omit start")
    if on_corruption not in ("fail", "skip", "stop"):
        raise ValueError(f"on_corruption is {on_corruption!r}; it must be 'fail', 'skip' or 'stop'")
    job = _Export(
        Path(path), Path(destination), asked, (start, stop), append=append,
        on_corruption=on_corruption, check_crc=check_crc, config=config, progress=progress,
    )  # fmt: skip
    began = time.monotonic()
    job.run()
    job.report.duration_s = time.monotonic() - began
    return job.report


#: What is not given and not in an earlier export.
_DEFAULTS: dict[str, Any] = {
    "to": "parquet",
    "columns": resolve("full"),
    "partitionBy": [],
    "decompress": False,
    "topics": None,
    "filter": None,
    "begin": None,
    "end": None,
    "records": "log",
}


def _asked(given: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that are given, checked."""
    asked = {name: value for name, value in given.items() if value is not None}
    settings = {**_DEFAULTS, **asked}
    if settings["to"] not in FORMATS:
        raise ValueError(f"to is {settings['to']!r}; it must be one of {', '.join(FORMATS)}")
    for name in ("begin", "end"):
        if name in asked:
            check_int(name, asked[name])
    if not all(isinstance(topic, str) for topic in settings["topics"] or ()):
        raise TypeError("topics must be str")
    check_partitions(settings["partitionBy"], settings["columns"])
    check_record_word(settings["records"])
    if "filter" in asked:
        sql_filter(asked["filter"])  # raises where it is wrong
    if "compression" in asked and "to" in asked:
        _check_compression(settings)
    return asked


def _check_compression(settings: dict[str, Any]) -> None:
    known = FORMATS[settings["to"]]
    if settings["compression"] not in known:
        raise ValueError(
            f"compression {settings['compression']!r} is not one of {settings['to']}'s: "
            f"{', '.join(known)}"
        )


class _Export:
    """One call."""

    def __init__(
        self,
        source: Path,
        destination: Path,
        asked: dict[str, Any],
        bounds: tuple[int | None, int | None],
        *,
        append: bool,
        on_corruption: OnCorruption,
        check_crc: bool,
        config: MessageStoreConfig | None,
        progress: Progress | None,
    ) -> None:
        self.report = ExportReport(str(source), str(destination), str(destination / MANIFEST_FILE))
        self._source = source
        self._place = destination
        self._work = destination / WORK_FOLDER
        self._final = destination / MANIFEST_FILE
        self._asked = asked
        self._start, self._stop = bounds
        self._append = append
        self._on_corruption = on_corruption
        self._check_crc = check_crc
        self._config = config
        self._progress = progress
        #: An earlier call was killed after it had finished the export.
        self._was_finished = False

    # --- the whole ------------------------------------------------------------------------------

    def run(self) -> None:
        """Make the export, or go on with it."""
        log = open_log(self._source, self._config)
        self._check_place()
        was_there = self._place.is_dir()
        self._was_finished = self._work.is_dir() and not (self._work / MANIFEST_FILE).exists()
        if was_there:
            self._refuse_contents()
        make_directories(self._work, _existing_parent(self._work))
        lock, is_over = StoreLock(self._work), False
        try:
            self._run(Pieces(log))
            is_over = True
        finally:
            is_over = is_over or not (self._work / MANIFEST_FILE).exists()
            lock.release()
            if is_over:
                shutil.rmtree(self._work)
                if not was_there and not os.listdir(self._place):
                    os.rmdir(self._place)

    def _check_place(self) -> None:
        folder = self._source if self._source.is_dir() else self._source.parent
        refuse_overlap(folder, self._place)
        for log in configured_logs(self._config or MessageStoreConfig()):
            refuse_overlap(Path(log), self._place)
        if self._place.name in ("", ".."):
            return
        if os.path.lexists(self._place) and not self._place.is_dir():
            raise FileExistsError(17, "it is not a folder", str(self._place))

    def _refuse_contents(self) -> None:
        """Refuse a folder with anything but an unfinished export, or one to append to."""
        names = set(os.listdir(self._place)) - {WORK_FOLDER}
        if MANIFEST_FILE in names and not self._append and not self._was_finished:
            raise FileExistsError(
                17, "there is a complete export; append to it, or name a new folder",
                str(self._place),
            )  # fmt: skip
        if names and MANIFEST_FILE not in names and not (self._work / MANIFEST_FILE).exists():
            raise FileExistsError(
                17, f"the folder is not empty (it has {min(names)}) and has no export",
                str(self._place),
            )  # fmt: skip

    def _run(self, pieces: Pieces) -> None:
        manifest = self._begun(pieces)
        before = manifest.totals.rows, manifest.totals.files, manifest.totals.nbytes
        run = manifest.totals.run
        assert run is not None
        if self.report.state == "done":
            self._write(manifest, pieces, run)
            manifest.finish(self._final)
        totals, report = manifest.totals, self.report
        report.log_start, report.log_end = totals.start, totals.end
        report.rows, report.files, report.nbytes = totals.rows, totals.files, totals.nbytes
        report.new_rows, report.new_files = totals.rows - before[0], totals.files - before[1]
        report.new_nbytes = totals.nbytes - before[2]
        if report.state == "done":
            report.findings, report.finding_count = totals.findings, totals.finding_count

    def _begun(self, pieces: Pieces) -> Manifest:
        """Return the manifest of the run: an interrupted one, or a new one with its first line."""
        self._refuse_contents()
        finished = self._final.exists()
        manifest = Manifest(self._work / MANIFEST_FILE)
        if manifest.totals.run is not None:
            self._compare(manifest.totals.run, "the unfinished export there")
            pieces.check_source(manifest.totals)
            self.report.resumed, self.report.appended = True, finished
            return manifest
        if finished:
            # Under another name until its new run has begun.
            manifest = Manifest(self._work / _COPY)
            manifest.copy(self._final)
            self.report.appended = True
        self._begin(manifest, pieces)
        if finished and self.report.state == "done":
            manifest.rename(self._work / MANIFEST_FILE)
        return manifest

    def _begin(self, manifest: Manifest, pieces: Pieces) -> None:
        """Write the first line of a run, unless there is nothing to append."""
        totals = manifest.totals
        settings = {**_DEFAULTS, **self._asked}
        start = self._start
        aligned = False
        if totals.run is not None:
            self._compare(totals.run, "the export there")
            pieces.check_source(totals)
            settings = {name: totals.run[name] for name in (*_DEFAULTS, "compression")}
            start = totals.end
            aligned = totals.run["aligned"] or start < totals.run["log"][1]
        settings.setdefault("compression", FORMATS[settings["to"]][0])
        _check_compression(settings)
        log = pieces.bounds(start, self._stop)
        if totals.run is not None and (log[0] >= log[1] or not self._append):
            self.report.state = "already"
            return
        # What an earlier call made, before it wrote its first line.
        self._drop_new()
        manifest.write(
            [
                {
                    "kind": "export",
                    "schema": SCHEMA,
                    "run": totals.runs + 1,
                    "madeBy": __version__,
                    "takenAt": int(time.time() * 1000),
                    "store": os.path.realpath(self._source),
                    "brokerVersion": self._broker_version(),
                    "log": list(log),
                    "segmentSize": pieces.log.segment_size,
                    "startsAtRecord": aligned,
                    "aligned": self._stop is None or self._stop >= pieces.end,
                    **settings,
                }
            ]
        )

    def _broker_version(self) -> str | None:
        """Return the version whose formats the store has, ``None`` if its files do not show it:
        of a log alone, or of a damaged store."""
        config = self._config or MessageStoreConfig()
        if not self._source.is_dir() or not is_store(store_parts(self._source)):
            return None
        try:
            with open_store(self._source, config=config, derive="none") as store:
                return store.broker_version
        except (RocketStoreError, OSError):
            return None

    def _compare(self, run: dict[str, Any], what: str) -> None:
        """Refuse settings that differ from those of an earlier call."""
        for name, value in self._asked.items():
            if run[name] != value:
                raise FileExistsError(
                    17, f"{what} has {name} {run[name]!r}, not {value!r}; name another folder",
                    str(self._place),
                )  # fmt: skip
        if self._start is not None and run["log"][0] != self._start:
            raise FileExistsError(
                17, f"{what} begins at log offset {run['log'][0]}", str(self._place)
            )

    # --- the pieces -----------------------------------------------------------------------------

    def _write(self, manifest: Manifest, pieces: Pieces, run: dict[str, Any]) -> None:
        self._name(manifest.last_files, manifest.last_start)
        self._drop_new()
        if manifest.totals.is_stopped:
            return
        layout = Layout(run["to"], run["compression"], tuple(run["columns"]),
                        tuple(run["partitionBy"]))  # fmt: skip
        done, total = manifest.totals.end - run["log"][0], run["log"][1] - run["log"][0]
        for piece in pieces.plan(run, manifest.totals.end, self._on_corruption):
            os.mkdir(self._new(piece.start))
            found = Findings(piece)
            lines, rows = self._write_piece(piece, layout, run, found, (done, total))
            for line in lines:
                if os.path.lexists(self._place / line["path"]):
                    raise FileExistsError(
                        17, "it exists, and is not of this export", str(self._place / line["path"])
                    )
            stop, stopped = piece.stop, False
            if self._on_corruption == "stop" and found.first_lost is not None:
                stop, stopped = min(stop, found.first_lost), True
            manifest.write(
                [
                    *lines,
                    *found.lines(),
                    {"kind": "piece", "log": [piece.start, stop], "rows": rows,
                     "stopped": stopped, "anchor": pieces.anchor(piece, stop)},
                ]
            )  # fmt: skip
            self._name(lines, piece.start)
            os.rmdir(self._new(piece.start))
            if stopped:
                return
            done += piece.stop - piece.start

    def _write_piece(
        self,
        piece: Piece,
        layout: Layout,
        run: dict[str, Any],
        found: Findings,
        progress: tuple[int, int],
    ) -> tuple[list[dict[str, Any]], int]:
        """Write the files of one piece under temporary names; return their lines, and the rows."""
        writer = PieceWriter(self._new(piece.start), piece.start, layout)
        if piece.split is None:
            return [], 0
        further = [PARTITIONS[part] for part in layout.partition_by]
        decompresses = run["decompress"] and any(name in layout.columns for name in BODY_COLUMNS)
        if decompresses:
            further += ["sysFlag", "value" if "value" in layout.columns else "body"]
        columns = list(dict.fromkeys((*layout.columns, "physicalOffset", *further)))
        batches = read_batches(
            piece.split,
            columns,
            topics=run["topics"],
            begin=run["begin"],
            end=run["end"],
            filter=run["filter"],
            on_corruption=self._on_corruption,
            check_crc=self._check_crc,
            on_damage=found.note_damage,
            records=run["records"],
        )
        try:
            for batch in batches:
                if self._progress is not None:
                    at = batch.column("physicalOffset")[-1].as_py() - piece.start
                    self._progress("exporting", progress[0] + at, progress[1])
                if not decompresses:
                    writer.add(batch)
                    continue
                for rows in decompressed_batches(batch, found.note_undecompressed):
                    writer.add(rows)
            return writer.finish(), writer.rows
        except BaseException:
            writer.abort()
            raise

    def _new(self, start: int) -> Path:
        """Folder for the new files of the piece at ``start``; no other piece uses it."""
        return self._work / f"{_NEW}-{start}"

    def _drop_new(self) -> None:
        for path in self._work.glob(f"{_NEW}-*"):
            shutil.rmtree(path)

    def _name(self, lines: list[dict[str, Any]], start: int) -> None:
        """Give the files of a piece that the manifest has their names."""
        folders = set()
        for number, line in enumerate(lines):
            made, final = self._new(start) / str(number), self._place / line["path"]
            if made.exists():
                make_directories(final.parent, self._place)
                os.replace(made, final)
                folders.add(final.parent)
            elif not final.is_file() or final.stat().st_size != line["bytes"]:
                raise MappedFileError(f"{final} is gone, or was changed after it was exported")
        for folder in folders:
            sync_directory(folder)


def _existing_parent(path: Path) -> Path:
    return next(folder for folder in Path(os.path.abspath(path)).parents if folder.is_dir())
