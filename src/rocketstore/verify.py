"""``verify``: every record, queue unit and index entry against the log. Changes nothing."""

from __future__ import annotations

import bisect
import os
import time
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocketstore import formats, kernels
from rocketstore.before_log import BeforeLog
from rocketstore.commit_log import CommitLog, RecordGoneError, describe
from rocketstore.config_files import TOPICS_FILE, config_path
from rocketstore.index_service import IndexService
from rocketstore.log_scan import LogScan, RecordBatch, find_next_record, has_content
from rocketstore.lost_messages import SalvageTraces, find_traces
from rocketstore.message import StoredMessage
from rocketstore.queue_table import QueueTable
from rocketstore.recovery_report import DamagedRange
from rocketstore.salvage_notes import salvage_notes
from rocketstore.status import RecordFlags, RecordStatus
from rocketstore.store_files import StorePaths
from rocketstore.store_kinds import refuse_dledger
from rocketstore.verify_again import look_until_settled
from rocketstore.verify_notes import write_notes
from rocketstore.verify_segments import SegmentFit

if TYPE_CHECKING:
    import numpy

    from rocketstore.config import MessageStoreConfig
    from rocketstore.mapped_file import MappedFile
    from rocketstore.reader import ReadOnlyParts
    from rocketstore.store import DefaultMessageStore
    from rocketstore.store_files import StoreFacts
    from rocketstore.verify_surroundings import Surroundings

Progress = Callable[[str, int, int], None]
LEVELS = ("structure", "crc")
#: Records looked at in one go.
_BATCH_COUNT = 8192


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it must be.

    Attributes
    ----------
    kind : str
        ``log-file``, ``record``, ``misnamed-segment``, ``foreign-segment``, ``another-log``
        (all of it is another store's), ``queue-offset``,
        ``doubled-offset`` (claimed by two records), ``queue-file``, ``unit``, ``missing-unit``,
        ``index-file``, ``index-header``, ``index-chain``, ``index-entry``, ``missing-key``,
        ``missing-folder``, ``unreadable`` (may not be read), ``odd-file`` (no file or
        folder, or one file with another),
        ``foreign-file`` (none of the folder's), ``checkpoint``, ``config-table``,
        ``config-offset``, ``timer-file``, ``lost-queue`` (only the tables of offsets tell of it) or
        ``queue-type`` (not that of its topic).
    path : str
        File.
    position : int
        From the start of the file, in bytes.
    offset : int or None
        Commit-log offset it is about.
    reason : str
        What was found and what was expected.
    """

    kind: str
    path: str
    position: int
    offset: int | None
    reason: str


@dataclass
class VerifyReport:
    """What ``verify`` looked at and found.

    Attributes
    ----------
    level : str
        ``structure`` or ``crc``.
    log_start, log_end : int
        Physical offsets between which records were checked.
    records, nbytes : int
        Good records and their bytes.
    queues, units : int
        Queues, and units that agree with their record.
    index_files, keys : int
        Index files, and entries that agree with their record.
    findings : list of Finding
        The first ``max_findings`` of them.
    finding_counts : dict
        All of them, by kind.
    notes : list of str
        What is odd but allowed, in words.
    duration_s : float
    max_findings : int
        Limit on the length of ``findings``.
    """

    level: str = "crc"
    log_start: int = 0
    log_end: int = 0
    records: int = 0
    nbytes: int = 0
    queues: int = 0
    units: int = 0
    index_files: int = 0
    keys: int = 0
    findings: list[Finding] = field(default_factory=list)
    finding_counts: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    duration_s: float = 0.0
    max_findings: int = 1000

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.finding_counts

    @property
    def finding_count(self) -> int:
        """Number of findings, those beyond the limit included."""
        return sum(self.finding_counts.values())

    def add(
        self,
        kind: str,
        path: str | os.PathLike[str],
        position: int,
        offset: int | None,
        reason: str,
    ) -> None:
        """Take a finding; only counted once the limit is reached."""
        self._count(kind, 1)
        if len(self.findings) < self.max_findings:
            self.findings.append(Finding(kind, os.fspath(path), position, offset, reason))

    def keep(self, is_kept: Callable[[Finding], bool]) -> None:
        """Take back the listed findings that are not to be kept."""
        for one in [one for one in self.findings if not is_kept(one)]:
            self.findings.remove(one)
            self._count(one.kind, -1)

    def _count(self, kind: str, number: int) -> None:
        self.finding_counts[kind] = self.finding_counts.get(kind, 0) + number
        if not self.finding_counts[kind]:
            del self.finding_counts[kind]

    def shown(self, kind: str, numbers: Sequence[int]) -> Sequence[int]:
        """The leading ``numbers`` that still fit the limit; the rest is counted at once.

        For loops over many findings of a kind, so that a store that is wrong throughout is told so
        quickly.
        """
        room = max(1, self.max_findings - len(self.findings))
        if len(numbers) > room:
            self._count(kind, len(numbers) - room)
        return numbers[:room]


class VerifyScope:
    """What all checks share: the log and its bounds, what of it is damaged, and the report.

    Attributes
    ----------
    hidden : dict of int to int
        Start and end of segments that may not be read.
    newest : int
        Latest store time of the records that were walked over.
    around : Surroundings or None
        What else there is to know of the store.
    told : set of int
        Log offsets of the damage that is a finding.
    """

    def __init__(self, log: CommitLog, report: VerifyReport, root: Path) -> None:
        self.log = log
        self.report = report
        self.root = root
        self.start = max(log.min_offset, 0)
        self.stop = max(log.max_offset, self.start)
        self.counts: Counter[str] = Counter()
        self.hidden: dict[int, int] = {}
        self.newest = 0
        self.around: Surroundings | None = None
        self.told: set[int] = set()
        #: Units and keys of records before the log's beginning.
        self.before = BeforeLog()
        #: Which segments' records fit what names them.
        self.fit = SegmentFit()
        self._starts: list[int] = []
        self._stops: list[int] = []
        self._traces: dict[int, array[int]] = {}

    @property
    def is_empty(self) -> bool:
        """Whether the log has no file that can be read."""
        return self.log.queue.last() is None

    @property
    def lost_end(self) -> bool:
        """Whether the log's last records cannot be read."""
        return bool(self._stops) and max(self._stops) >= self.stop > 0

    def note_damage(self, start: int, stop: int) -> None:
        """Remember a stretch without records."""
        number = bisect.bisect_left(self._starts, start)
        self._starts.insert(number, start)
        self._stops.insert(number, stop)

    def damaged(self) -> list[tuple[int, int]]:
        """Start and end of every stretch without records that is known."""
        return list(zip(self._starts, self._stops, strict=True))

    def is_absent(self, folder: str) -> bool:
        """Whether a folder of files that are derived from the log is missing."""
        return self.around is not None and folder in self.around.absent

    def may_be_record(self, offset: int) -> bool:
        """Whether a record starts at ``offset``, or may have before it was damaged."""
        import numpy as np

        return bool(self.is_damaged(np.array([offset]))[0]) or self.is_record(offset)

    def is_damaged(self, offsets: numpy.ndarray[Any, Any]) -> numpy.ndarray[Any, Any]:
        """Which of the offsets lie in a damaged stretch."""
        import numpy as np

        if not self._starts:
            return np.zeros(len(offsets), bool)
        number = np.searchsorted(np.array(self._starts), offsets, side="right") - 1
        stops = np.array(self._stops)[np.maximum(number, 0)]
        return (number >= 0) & (offsets < stops)

    def has_damage_between(self, start: int, stop: int) -> bool:
        """Whether a damaged stretch lies in ``start`` .. ``stop``."""
        number = bisect.bisect_left(self._starts, start)
        return number < len(self._starts) and self._starts[number] < stop

    def loss_between(self, start: int, stop: int) -> str | None:
        """The count of lost queue offsets to which those between two log offsets belong; ``None``
        where nothing says that records were lost there."""
        if self.has_damage_between(start, stop):
            return "lost_queue_offsets"
        return "salvaged_queue_offsets" if self.was_salvaged_between(start, stop) else None

    def was_salvaged_between(self, start: int, stop: int) -> bool:
        """Whether a salvage put something in place of lost records in ``start`` .. ``stop``."""
        size = self.log.segment_size
        for base in range(start - start % size, stop, size):
            if base not in self._traces:
                self._traces[base] = find_traces(self.log, base, base + size).offsets
            traces = self._traces[base]
            number = bisect.bisect_left(traces, start)
            if number < len(traces) and traces[number] < stop:
                return True
        return False

    def place(self, offset: int) -> tuple[str, int]:
        """File and position of a log offset."""
        file = self.log.queue.find_mapped_file_by_offset(offset)
        if file is None:
            return str(self.log.queue.directory), 0
        return str(file.path), offset - file.file_from_offset

    def record_at(self, offset: int, size: int) -> StoredMessage | None:
        """The good record of ``size`` bytes at ``offset``, behind the verified end too."""
        if offset < 0 or not 0 < size < 2**31:
            return None
        window = self.log.window(offset, offset + size)
        if window is None or offset - window.base_offset >= window.stop:
            return None  # its segment is not there, or shorter than it was
        position = offset - window.base_offset
        status, nbytes = kernels.message.check_record(
            window.buffer,
            position,
            window.stop,
            window.base_offset,
            window.segment_end,
            self.log.record_flags,
        )
        if status not in (RecordStatus.OK, RecordStatus.NUL_PROPERTIES) or nbytes != size:
            return None
        try:
            return window.message(position)
        except RecordGoneError:
            return None

    def is_record(self, offset: int) -> bool:
        """Whether a good record starts at ``offset``, behind the verified end too."""
        window = self.log.window(offset, offset + 1)
        if window is None or offset - window.base_offset >= window.stop:
            return False
        head = formats.RECORD_HEAD
        try:
            content = window.file.read(offset - window.base_offset, head.nbytes)
        except FileNotFoundError:
            return False  # deleted meanwhile
        if len(content) < head.nbytes:
            return False
        return self.record_at(offset, head.struct.unpack(content)[0]) is not None

    def is_newer(self, offset: int) -> bool:
        """Whether ``offset`` lies in a segment that a writer made after this log was opened."""
        last = self.log.queue.last()
        # The last one may have lost its end, which no writer brings back.
        if last is None or offset < last.file_from_offset + self.log.segment_size:
            return False
        name = formats.offset_to_file_name(offset - offset % self.log.segment_size)
        return (self.log.queue.directory / name).exists()


def verify(
    store: DefaultMessageStore,
    config: MessageStoreConfig,
    *,
    level: str = "crc",
    progress: Progress | None = None,
    max_findings: int = 1000,
) -> VerifyReport:
    """Check an open store's files against each other; see ``verify_parts``.

    In mode ``"r"`` the files are looked at afresh and as they are, nothing derived in memory.
    """
    if store.mode == "r":
        return verify_files(
            store.path, config, level=level, progress=progress, max_findings=max_findings
        )
    paths = StorePaths.of(store.path, config)

    def look() -> VerifyReport:
        parts, behind = store.reader, store.dispatch_behind_nbytes
        end = max(parts.log.max_offset, 0) - behind
        return verify_parts(
            parts.log,
            parts.queues,
            parts.index if config.message_index_enable else None,
            delay_ms=config.delay_ms,
            dispatched_offset=end,
            indexed_offset=end,
            damaged=store.recovery_report.damaged,
            around=_surroundings(paths, store.facts),
            level=level,
            progress=progress,
            max_findings=max_findings,
        )

    return look_until_settled(look, paths)


def verify_files(
    root: Path,
    config: MessageStoreConfig,
    *,
    level: str = "crc",
    progress: Progress | None = None,
    max_findings: int = 1000,
) -> VerifyReport:
    """Check the files of the store at ``root`` as they lie there; see ``verify_parts``.

    Beside a writer, findings in files that were just changed are looked at again (see
    ``look_until_settled``).

    Raises ``FileNotFoundError`` when there is no log, unless the state file of a new store tells
    that there is none yet, and what ``open`` raises.
    """
    if level not in LEVELS:
        raise ValueError(f"level {level!r} is none of {LEVELS}")
    paths = StorePaths.of(root, config)

    def look() -> VerifyReport:
        return _look_at_files(paths, config, level, progress, max_findings)

    return look_until_settled(look, paths)


def _look_at_files(
    paths: StorePaths,
    config: MessageStoreConfig,
    level: str,
    progress: Progress | None,
    max_findings: int,
) -> VerifyReport:
    from rocketstore.reader import ReadOnlyParts

    refuse_dledger(paths.root, paths.commit_log)
    has_none = not paths.commit_log.is_dir() and not paths.state.is_file()
    none = FileNotFoundError(f"{paths.root} is no store: it has no folder {paths.commit_log.name}")
    if has_none and not paths.root.is_dir():
        raise none
    around = _surroundings(paths)
    files = ReadOnlyParts(
        paths, config, derive="none", as_files=True, clock=no_clock, progress=progress
    )
    try:
        if has_none:
            raise none  # nothing tells that there was a log
        around.take_facts(files.facts)
        dispatched = dispatched_offset(files, around)
        indexed = indexed_offset(files, dispatched, around)
        if paths.has_writer():
            files.load_again()  # what is in front of these offsets is there now
        report = verify_parts(
            files.log,
            files.queues,
            files.index if config.message_index_enable else None,
            delay_ms=config.delay_ms,
            dispatched_offset=dispatched,
            indexed_offset=indexed,
            damaged=files.report.damaged,
            around=around,
            queues_in_files=files.rocksdb is None or files.rocksdb.beside_files,
            level=level,
            progress=progress,
            max_findings=max_findings,
        )
        # What is wrong with the tables was judged with all of them, and so were queues' types.
        topics, told = str(config_path(paths.root, TOPICS_FILE)), around.queue_types.contradictions
        report.notes += [
            note for note in files.report.notes if not note.startswith(topics) and note not in told
        ]
        return report
    finally:
        files.close()


def no_clock() -> int:
    """Stand in for the clock of a store that is only looked at."""
    raise AssertionError("nothing is written, so nobody asks for the time")


def _surroundings(paths: StorePaths, facts: StoreFacts | None = None) -> Surroundings:
    from rocketstore.verify_surroundings import Surroundings

    around = Surroundings(paths)
    if facts is not None:
        around.dialect = facts.dialect
    return around


def dispatched_offset(files: ReadOnlyParts, around: Surroundings) -> int:
    """Records in front of this offset must have their units.

    After an orderly stop nothing is behind. Otherwise dispatch may be, unless all queues are gone
    that there were.
    """
    end = files.log.max_offset
    if formats.CONSUME_QUEUE_DIR in around.absent:
        was_there = around.was_there(formats.CONSUME_QUEUE_DIR, files.facts)
        return end if was_there else end - files.behind_nbytes
    return end if not files.facts.aborted else end - files.behind_nbytes


def indexed_offset(files: ReadOnlyParts, dispatched: int, around: Surroundings) -> int:
    """Records in front of this offset must have their keys.

    After a clean stop these are all dispatched ones; otherwise the index may end earlier, and the
    last record that it knows may have been cut short.
    """
    if not files.facts.aborted:
        return dispatched
    if formats.INDEX_DIR in around.absent and around.was_there(formats.INDEX_DIR, files.facts):
        return dispatched
    newest = files.index.files[-1].header if files.index.files else None
    if newest is None or newest.index_count <= 1:
        return max(files.log.min_offset, 0)
    return min(dispatched, newest.end_physical_offset)


def verify_parts(
    log: CommitLog,
    queues: QueueTable,
    index: IndexService | None,
    *,
    queues_in_files: bool = True,
    delay_ms: tuple[int, ...] = (),
    dispatched_offset: int | None = None,
    indexed_offset: int | None = None,
    damaged: Sequence[DamagedRange] = (),
    around: Surroundings | None = None,
    level: str = "crc",
    progress: Progress | None = None,
    max_findings: int = 1000,
) -> VerifyReport:
    """Check a store's log, queues and index against each other.

    Parameters
    ----------
    log, queues, index
        The opened parts; ``index`` is ``None`` when the store keeps none.
    queues_in_files : bool
        Whether the queues have files to be checked.
    delay_ms : tuple of int
        Delay levels, for the deliver times of delayed messages.
    dispatched_offset, indexed_offset : int or None
        Records from here on may lack their units and keys (``None``: none may).
    damaged : sequence of DamagedRange
        What recovery found; ranges behind the log's end become findings too.
    around : Surroundings, optional
        Tables, checkpoint and folders, which are judged then too.
    level : str
        ``"structure"``: lengths, offsets and references. ``"crc"``: every body's CRC as well.
    progress : callable or None
        ``progress(what, done, total)``, in bytes of the log, then in index files.
    max_findings : int
        Findings kept; all are counted.

    Returns
    -------
    VerifyReport

    Raises
    ------
    ValueError
        For another level.

    Notes
    -----
    Memory: bounded by a batch of the log, half a million units and a chunk of each index file; an
    index file whose entries are out of order is held whole.
    """
    if level not in LEVELS:
        raise ValueError(f"level {level!r} is none of {LEVELS}")
    began = time.monotonic()
    report = VerifyReport(level=level, max_findings=max_findings)
    scope = VerifyScope(log, report, queues.directory.parent)
    if around is not None:
        around.begin(scope)
    report.log_start, report.log_end = scope.start, scope.stop
    check_segments(scope)
    damaged = note_another_log(scope, damaged)
    note_lost_end(scope, damaged)
    note_misnamed(scope, damaged)
    check = _StoreCheck(scope, queues, index, delay_ms, progress, queues_in_files=queues_in_files)
    check.run(
        scope.stop if dispatched_offset is None else dispatched_offset,
        scope.stop if indexed_offset is None else indexed_offset,
    )
    note_unseen_damage(scope, damaged)
    note_tail(scope, damaged)
    if around is not None:
        around.finish(scope, queues if queues_in_files else None, check.queue_ends, 0)
        report.notes += salvage_notes(around.paths.root, check.traces)
    report.notes += scope.before.notes(scope.start)
    for name in ("expired_units", "expired_keys"):
        scope.counts.pop(name, None)  # that note tells of them
    note_foreign(scope)
    write_notes(report, scope.counts)
    report.duration_s = time.monotonic() - began
    return report


def note_another_log(scope: VerifyScope, damaged: Sequence[DamagedRange]) -> Sequence[DamagedRange]:
    """Report a log that is another store's; return the other damage."""
    for one in damaged:
        if one.is_another_log:
            scope.report.add("another-log", scope.log.queue.directory, 0, None, one.reason)
    return [one for one in damaged if not one.is_another_log]


def note_lost_end(scope: VerifyScope, damaged: Sequence[DamagedRange]) -> None:
    """Remember what recovery knows to be lost behind the log's end, so that units and keys of it
    are not told one by one."""
    size = scope.log.segment_size
    for one in damaged:
        if one.start >= scope.stop:
            # A file that was cut short has lost what lay behind its end, too.
            scope.note_damage(one.start, max(one.stop, one.start - one.start % size + size))


def note_misnamed(scope: VerifyScope, damaged: Sequence[DamagedRange]) -> None:
    """Report segments under wrong names, and let the walk pass over them: each of their records is
    whole, and none stands where it says."""
    for one in damaged:
        if one.claimed_start is not None and one.start not in scope.hidden:
            scope.note_damage(one.start, one.stop)
            scope.hidden[one.start] = one.stop
            path, position = one.path, one.position
            scope.report.add("misnamed-segment", path, position, one.start, one.reason)


def note_foreign(scope: VerifyScope) -> None:
    """Report segments that are likely another store's."""
    foreign = scope.fit.foreign(scope.log)
    for base, count in foreign:
        path, position = scope.place(base)
        reason = (
            f"it is likely another store's: of the {count:,} units that name it none fits a record"
        )
        scope.report.add("foreign-segment", path, position, base, reason)
    if not foreign:
        scope.report.notes += scope.fit.notes(scope.log)


def check_segments(scope: VerifyScope) -> None:
    """Report segments of another size than the log's."""
    size = scope.log.segment_size
    for file in scope.log.queue.files:
        nbytes = _nbytes_on_disk(file)
        if nbytes != size:
            reason = f"{nbytes} bytes instead of {size}"
            if nbytes > size:
                reason += ": what lies behind them belongs to no segment, and no broker starts"
            position = min(nbytes, size)
            offset = file.file_from_offset + position
            scope.report.add("log-file", file.path, position, offset, reason)


def _nbytes_on_disk(file: MappedFile) -> int:
    """The size that its name shows; what is mapped of a file that is too long is a segment."""
    try:
        return os.stat(file.path).st_size
    except FileNotFoundError:  # its writer has deleted it
        return file.file_size


class _StoreCheck:
    """One walk along the log that hands every batch to the checks of queues and index."""

    def __init__(
        self,
        scope: VerifyScope,
        queues: QueueTable,
        index: IndexService | None,
        delay_ms: tuple[int, ...],
        progress: Progress | None,
        *,
        queues_in_files: bool,
    ) -> None:
        self._queues_in_files = queues_in_files
        self._scope = scope
        self._queues = queues
        self._index = index
        self._delay_ms = delay_ms
        self._progress = progress
        self._last_timestamp: int | None = None
        self.traces = SalvageTraces()
        #: Next queue offset by (topic, queue id), as the records tell it.
        self.queue_ends: dict[tuple[str, int], int] = {}
        self._property_crcs: dict[int, tuple[int, list[int]]] = {}

    def run(self, dispatched_offset: int, indexed_offset: int) -> None:
        """Walk; findings and counts go to the scope's report."""
        from rocketstore.verify_batch_queues import BatchQueuesCheck
        from rocketstore.verify_index import IndexCheck
        from rocketstore.verify_queues import QueuesCheck

        scope = self._scope
        queues = batch_queues = None
        if self._queues_in_files:
            batch_queues = BatchQueuesCheck(scope, self._queues, dispatched_offset)
            queues = QueuesCheck(scope, self._queues, dispatched_offset, batch_queues.take)
        index = None
        if self._index is not None:
            index = IndexCheck(scope, self._index, self._delay_ms, indexed_offset)
        offset, flags = scope.start, self._flags()
        while offset < scope.stop:
            stop = min([scope.stop, *(start for start in scope.hidden if start > offset)])
            scan = LogScan(scope.log, offset, stop, flags, self._delay_ms, _BATCH_COUNT)
            for batch in scan:
                self._take(batch)
                if queues is not None:
                    queues.take(batch)
                if index is not None:
                    index.take(batch)
                self._report("check log", batch.window.base_offset + batch.last()["position"])
            if scan.offset >= scope.stop:
                break
            offset = self._pass_damage(scan.offset, scan.status)
        self._report("check log", scope.stop)
        self._judge_property_crcs()
        if queues is not None and batch_queues is not None:
            queues.finish()
            batch_queues.finish()
            self.queue_ends = {**queues.ends(), **batch_queues.ends()}
        if index is not None:
            index.finish(self._progress)

    def _flags(self) -> int:
        flags = int(RecordFlags.PARSE_PROPERTIES)
        if self._scope.report.level == "crc":
            flags |= self._scope.log.record_flags | RecordFlags.REPORT_PROPERTY_CRC
        return flags

    def _report(self, what: str, offset: int) -> None:
        if self._progress is not None:
            start = self._scope.start
            self._progress(what, offset - start, self._scope.stop - start)

    def _take(self, batch: RecordBatch) -> None:
        columns, scope = batch.columns, self._scope
        good = columns["status"] != RecordStatus.GHOST
        scope.report.records += int(good.sum())
        scope.report.nbytes += int(columns["total_size"][good].sum(dtype="i8"))
        if columns["status"].any():
            for status, name in _ODD_RECORDS:
                scope.counts[name] += int((columns["status"] == status).sum())
        times = columns["store_timestamp"][good]
        if len(times):
            scope.newest = max(scope.newest, int(times.max()))
            scope.counts["backward_times"] += int((times[1:] < times[:-1]).sum())
            if self._last_timestamp is not None and times[0] < self._last_timestamp:
                scope.counts["backward_times"] += 1
            self._last_timestamp = int(times[-1])
        self.traces.take(batch)
        self._take_property_crcs(batch)

    def _take_property_crcs(self, batch: RecordBatch) -> None:
        states = batch.columns["property_crc"]
        if not states.any():
            return
        segment = batch.window.base_offset
        valid, wrong = self._property_crcs.setdefault(segment, (0, []))
        wrong += batch.columns["physical_offset"][states == 2].tolist()
        self._property_crcs[segment] = (valid + int((states == 1).sum()), wrong)

    def _judge_property_crcs(self) -> None:
        """A wrong whole-record CRC counts where other records of the segment carry valid ones."""
        for valid, wrong in self._property_crcs.values():
            if not valid:
                self._scope.counts["foreign_property_crcs"] += len(wrong)
                continue
            for offset in wrong:
                self._add_damage(offset, RecordStatus.BAD_PROPERTY_CRC, "")

    def _pass_damage(self, offset: int, status: RecordStatus) -> int:
        """Report what stands at ``offset``; return where good records go on."""
        scope = self._scope
        if offset in scope.hidden:
            return min(scope.hidden[offset], scope.stop)  # it was told already
        missing = scope.log.window(offset, scope.stop) is None
        behind = find_next_record(scope.log, offset if missing else offset + 1)
        stop = scope.stop if behind is None else min(behind, scope.stop)
        stop = min([stop, *(start for start in scope.hidden if start > offset)])
        scope.note_damage(offset, stop)
        where = f"; {stop - offset} bytes are lost, " + (
            "nothing good follows" if behind is None else f"log offset {stop} is good again"
        )
        if missing:
            name = formats.offset_to_file_name(offset - offset % scope.log.segment_size)
            reason = f"log offset {offset}: the segment {name} is missing" + where
            scope.report.add("record", scope.log.queue.directory / name, 0, offset, reason)
            scope.told.add(offset)
        else:
            self._add_damage(offset, status, where)
        return stop

    def _add_damage(self, offset: int, status: RecordStatus, where: str) -> None:
        path, position = self._scope.place(offset)
        self._scope.told.add(offset)
        self._scope.report.add("record", path, position, offset, describe(status, offset) + where)


#: Damage to where records lie, which is seen without a look at their bodies.
_OF_PLACES = (RecordStatus.BAD_PHYSICAL_OFFSET, RecordStatus.GHOST, RecordStatus.EMPTY)
_ODD_RECORDS = (
    (RecordStatus.GHOST, "ghosts"),
    (RecordStatus.NUL_PROPERTIES, "nul_properties"),
    (RecordStatus.UNSAFE_TOPIC, "unsafe_topics"),
)


def note_unseen_damage(scope: VerifyScope, damaged: Sequence[DamagedRange]) -> None:
    """Report damage that recovery knows of and that a walk from record to record passes over: each
    record of a segment under a wrong name is whole."""
    told = [(at, at + 1) for at in scope.told]
    stretches = sorted([*told, *scope.damaged(), *scope.hidden.items()])
    for one in damaged:
        number = bisect.bisect_left(stretches, (one.stop, 0)) - 1
        if one.start >= scope.stop or (number >= 0 and stretches[number][1] > one.start):
            continue
        if scope.report.level == "crc" or scope.log.damage.get(one.start) in _OF_PLACES:
            scope.report.add("record", one.path, one.position, one.start, one.reason)


def note_tail(scope: VerifyScope, damaged: Sequence[DamagedRange]) -> None:
    """What lies behind the log's end: damage that recovery knows of, or a torn write."""
    behind = [one for one in damaged if one.start >= scope.stop]
    for one in behind:
        if one.start in scope.hidden:
            continue  # told already
        scope.report.add("record", one.path, one.position, one.start, one.reason)
    if not behind and scope.log.queue.last() is not None and has_content(scope.log, scope.stop):
        path, position = scope.place(scope.stop)
        scope.report.notes.append(
            f"bytes behind the log's end {scope.stop} ({path} at position {position}): a torn "
            "write, or a writer that has gone on"
        )
