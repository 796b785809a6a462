"""``replay``: messages of a store, put again into another one."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Unpack

from rocketstore.arguments import OnCorruption, Progress, StoreOptions
from rocketstore.arrow.reading import read_batches
from rocketstore.config import MessageStoreConfig
from rocketstore.directory.paths import StorePaths, configured_logs
from rocketstore.directory.place import check_platform
from rocketstore.filter.message_filter import sql_filter
from rocketstore.looking.log_source import open_log
from rocketstore.mending.journal import Journal
from rocketstore.moving.exports.findings import Findings
from rocketstore.moving.exports.import_new import NO_COUNTS, MapFile, Putter
from rocketstore.moving.exports.import_rows import Row, rows_of
from rocketstore.moving.exports.manifest import Totals
from rocketstore.moving.exports.pieces import Piece, Pieces
from rocketstore.moving.exports.unfinished import Unfinished, open_to_put
from rocketstore.moving.tree import refuse_overlap
from rocketstore.store.arguments import check_int, check_settings, check_times, merge

#: Appended to the destination's name while messages are put.
WORK_SUFFIX = ".rocketstore-replay"
#: What a put needs, and what the map says of where a message was.
_COLUMNS = (
    "topic", "queueId", "queueOffset", "physicalOffset", "flag", "sysFlag", "bornTimestamp",
    "bornHost", "reconsumeTimes", "properties", "body",
)  # fmt: skip


@dataclass
class ReplayReport:
    """What ``replay`` put.

    Attributes
    ----------
    path, destination : str
        The store that was read, and the one that has the messages now.
    state : str
        ``done``.
    messages : int
        Stored, those of an interrupted call included.
    skipped : int
        Messages of RocketMQ's own topics: waiting delayed and timed messages, halves and ends of
        transactions.
    read_start, read_end : int
        Physical offsets of ``path``; the log between them was read.
    log_start, log_end : int
        Physical offsets of the destination's log.
    resumed : bool
        An earlier call had been interrupted.
    findings : list of dict
        What is missing in the destination: messages that it refused (``refused``), and ranges of
        the log that are corrupt or missing (``lost``). At most 1000.
    finding_count : int
    notes : list of str
    duration_s : float
    """

    path: str
    destination: str
    state: str = "done"
    messages: int = 0
    skipped: int = 0
    read_start: int = 0
    read_end: int = 0
    log_start: int = 0
    log_end: int = 0
    resumed: bool = False
    findings: list[dict[str, Any]] = field(default_factory=list)
    finding_count: int = 0
    notes: list[str] = field(default_factory=list)
    duration_s: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether every selected message was stored."""
        return not self.finding_count


def replay(
    path: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    *,
    topics: Iterable[str] | None = None,
    filter: str | None = None,
    begin: int | None = None,
    end: int | None = None,
    start: int | None = None,
    stop: int | None = None,
    map: str | os.PathLike[str] | None = None,
    on_corruption: OnCorruption = "fail",
    check_crc: bool = True,
    config: MessageStoreConfig | None = None,
    config_to: MessageStoreConfig | None = None,
    progress: Progress | None = None,
    **options: Unpack[StoreOptions],
) -> ReplayReport:
    """Put messages of a store again, into another store, in the order of the log.

    A message goes to its topic and queue. It keeps body, properties (also its unique key), flags,
    born time and host, and gets new log and queue offsets and a new store time. It is not delayed
    again. Half and rolled back messages of transactions are not put, nor are messages of RocketMQ's
    own topics, which are counted; those of retry and dead letter topics are. A batch is put message
    by message.

    Parameters
    ----------
    path : path
        A store, its ``commitlog`` folder, or one segment. It is only read, beside a broker, too: up
        to the end that its log has when the replay begins.
    destination : path
        The other store; it is created if it does not exist.
    topics : iterable of str, optional
    filter : str, optional
        An SQL92 expression over the properties.
    begin, end : int, optional
        Store times in epoch ms, ``begin <= time < end``.
    start, stop : int, optional
        Physical offsets: only records that begin in this range.
    map : path, optional
        A file for the old and the new offsets, one line of JSON for each message.
    on_corruption : {"fail", "skip", "stop"}
        At a corrupt or missing range: raise, and go on there when called again; leave it out; or
        end there. What is left out is a finding.
    check_crc : bool
    config : MessageStoreConfig, optional
        ``store_path_commit_log`` names a log outside of ``path``.
    config_to : MessageStoreConfig, optional
        For the destination. No delayed message is delivered there meanwhile, and no file expires.
    progress : callable, optional
        Called as ``progress(what, done, total)``, in bytes of the log.
    **options
        Fields of ``MessageStoreConfig``, for the destination.

    Returns
    -------
    ReplayReport

    Raises
    ------
    CorruptMessageError
        With ``"fail"``; names file and position.
    FileExistsError
        The map exists, or an unfinished replay there has other arguments.
    SourceChangedError
        Since the replay was interrupted, another program put messages into the destination, or the
        log of ``path`` was truncated or replaced.
    StoreLockedError
        A writer has the destination open.
    StoreFullError
        The disk is full.
    FileNotFoundError, MappedFileError, UnsafePathError, ConfigError, ValueError, TypeError
        There is no readable log, one store is in the other, or an argument is invalid.

    Notes
    -----
    After a kill or a full disk the same call goes on, and stores no message twice. Its progress is
    in the folder ``destination.rocketstore-replay``; everything is stored when that is gone.
    Memory: below 300 MiB. One call at a time for one destination. Needs pyarrow.
    """
    settings = merge(config_to, options)
    check_platform("r+")
    check_settings(settings)
    check_times(begin, end)
    for name, value in (("start", start), ("stop", stop)):
        if value is not None:
            check_int(name, value)
            if value < 0:
                raise ValueError(f"{name} is {value}; a log offset is 0 or more")
    if on_corruption not in ("fail", "skip", "stop"):
        raise ValueError(f"on_corruption is {on_corruption!r}; it must be 'fail', 'skip' or 'stop'")
    if filter is not None:
        sql_filter(filter)  # raises where it is wrong
    asked = {
        "source": os.path.realpath(path),
        "topics": None if topics is None else _sorted_names(topics),
        "filter": filter,
        "begin": begin,
        "end": end,
        "start": start,
        "stop": stop,
        "map": None if map is None else os.path.abspath(map),
    }
    job = _Replay(Path(path), Path(destination), asked, settings, on_corruption=on_corruption,
                  check_crc=check_crc, config=config, progress=progress)  # fmt: skip
    began = time.monotonic()
    job.run()
    job.report.duration_s = time.monotonic() - began
    return job.report


def _sorted_names(topics: Iterable[str]) -> list[str]:
    names = set(topics)
    if isinstance(topics, str) or not all(isinstance(topic, str) for topic in names):
        raise TypeError("topics must be several str")
    return sorted(names)


class _Replay:
    """One call."""

    def __init__(
        self,
        source: Path,
        destination: Path,
        asked: dict[str, Any],
        settings: MessageStoreConfig,
        *,
        on_corruption: OnCorruption,
        check_crc: bool,
        config: MessageStoreConfig | None,
        progress: Progress | None,
    ) -> None:
        self.report = ReplayReport(str(source), str(destination))
        self._source = source
        self._destination = destination
        self._asked = asked
        self._settings = settings
        self._on_corruption: OnCorruption = on_corruption
        self._check_crc = check_crc
        self._config = config
        self._progress = progress
        #: Where the last row was: its piece of the log and offset, and how many rows had that.
        self._piece = self._at = 0
        self._same = 0
        #: Up to there, rows were put by an earlier call.
        self._done = (-1, 0)

    def run(self) -> None:
        """Replay, or go on with it."""
        pieces = Pieces(open_log(self._source, self._config))
        self._check_places()
        unfinished = Unfinished(self._destination, WORK_SUFFIX)
        with unfinished.held() as journal:
            begun = journal.find("begun")
            if begun is None:
                begun = self._begun(pieces)
            else:
                self._compare(begun, unfinished.work)
                _check_source(pieces, begun)
                self.report.resumed = True
            self.report.read_start, self.report.read_end = begun["log"]
            self._put(journal, pieces, begun)

    def _check_places(self) -> None:
        folder = self._source if self._source.is_dir() else self._source.parent
        logs = [folder, *map(Path, configured_logs(self._config or MessageStoreConfig()))]
        paths = StorePaths.of(self._destination, self._settings)
        for log in logs:
            for place in (self._destination, paths.commit_log):
                refuse_overlap(log, place)

    def _begun(self, pieces: Pieces) -> dict[str, Any]:
        """Return the journal's first line: what is read, up to the end that the log has now."""
        if self._asked["map"] is not None and os.path.lexists(self._asked["map"]):
            raise FileExistsError(17, "it exists", self._asked["map"])
        stop = self._asked["stop"]
        first, last = pieces.bounds(self._asked["start"], stop)
        return {
            "asked": self._asked,
            "log": [first, last],
            "aligned": stop is None or stop >= pieces.end,
            "anchor": pieces.anchor_before(last),
            "piece": first, "at": -1, "same": 0,
        }  # fmt: skip

    def _compare(self, begun: dict[str, Any], work: Path) -> None:
        for name, value in self._asked.items():
            before = begun["asked"][name]
            if before != value:
                raise FileExistsError(
                    17, f"there is an unfinished replay with {name} {before!r}, not "
                    f"{value!r}; repeat it, or delete the folder to give it up", str(work),
                )  # fmt: skip

    def _put(self, journal: Journal, pieces: Pieces, begun: dict[str, Any]) -> None:
        mark = journal.find("mark") or begun
        self._piece, self._at, self._same = mark["piece"], mark["at"], mark["same"]
        self._done = self._at, self._same
        # Raises before there is a store where a part is missing.
        run = {**begun, **self._asked, "startsAtRecord": False}
        plan = list(pieces.plan(run, self._position(pieces), self._on_corruption))
        mapped = MapFile(None if self._asked["map"] is None else Path(self._asked["map"]))
        with open_to_put(self._destination, self._settings) as store:
            if not journal.has("begun"):
                journal.write("begun", **begun, end=store.max_physical_offset, mapped=0,
                              **NO_COUNTS)  # fmt: skip
            putter = Putter(store, journal, mapped, self._place)
            start, stop = begun["log"]
            try:
                if not journal.has("finished"):
                    for _ in putter.run(self._rows(plan, putter)):
                        if self._progress is not None:
                            self._progress("replaying", self._at - start, max(stop - start, 1))
            finally:
                mapped.close()
            self.report.log_start = max(store.min_physical_offset, 0)
            self.report.log_end = store.max_physical_offset
        if not journal.has("finished"):
            journal.write("finished")
        mapped.finish()
        report = self.report
        report.messages, report.skipped = putter.counts["stored"], putter.counts["skipped"]
        report.findings, report.finding_count = putter.findings, putter.finding_count

    def _position(self, pieces: Pieces) -> int:
        """Return where reading goes on: the last piece, or what the log still has of it."""
        first = pieces.log.min_offset
        if not pieces.log.segments or self._piece >= first:
            return self._piece
        return min(first, max(self._piece, self._at))

    def _place(self) -> dict[str, int]:
        return {"piece": self._piece, "at": self._at, "same": self._same}

    # --- rows -----------------------------------------------------------------------------------

    def _rows(self, plan: list[Piece], putter: Putter) -> Iterator[Row]:
        """Yield the messages that were not put yet; note what is missing."""
        for piece in plan:
            self._piece = piece.start
            found = Findings(piece)
            yield from self._rows_of(piece, found)
            for line in found.lines():
                putter.note(line)
            self._piece = piece.stop
            if self._on_corruption == "stop" and found.first_lost is not None:
                return

    def _rows_of(self, piece: Piece, found: Findings) -> Iterator[Row]:
        if piece.split is None:
            return
        batches = read_batches(
            piece.split,
            _COLUMNS,
            topics=self._asked["topics"],
            begin=self._asked["begin"],
            end=self._asked["end"],
            filter=self._asked["filter"],
            on_corruption=self._on_corruption,
            check_crc=self._check_crc,
            on_damage=found.note_damage,
            records="queues",
        )
        at, same = -1, 0
        for batch in batches:
            for row in rows_of(batch):
                same = same + 1 if row["physicalOffset"] == at else 1
                at = row["physicalOffset"]
                if (at, same) > self._done:
                    self._at, self._same = at, same
                    yield row


def _check_source(pieces: Pieces, begun: dict[str, Any]) -> None:
    """Raise ``SourceChangedError`` unless the log has what it had when the replay began."""
    totals = Totals()
    totals.run, totals.anchor = begun, begun["anchor"]
    pieces.check_source(totals)
