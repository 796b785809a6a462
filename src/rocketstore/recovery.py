"""Finding the log's true end: what is good, what is torn, what is damaged, and cutting the torn
tail."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rocketstore import formats
from rocketstore.commit_log import CommitLog, describe
from rocketstore.durable_file import make_directories, sync_descriptor, sync_directory, write_file
from rocketstore.errors import CorruptMessageError
from rocketstore.log_scan import LogScan, RecordBatch, find_next_record, has_content
from rocketstore.mapped_file import MappedFile
from rocketstore.status import RecordFlags, RecordStatus

if TYPE_CHECKING:
    from rocketstore.store_files import StoreFacts

_log = logging.getLogger(__name__)
#: Records looked at behind damage to tell a stale tail from durable messages.
_PROBE_COUNT = 256

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class DamagedRange:
    """A stretch of the log that is no record. Offsets are physical; ``stop`` is the next good
    record."""

    path: str
    position: int
    start: int
    stop: int
    reason: str

    def error(self) -> CorruptMessageError:
        """The error that reading it raises."""
        return CorruptMessageError(self.path, self.position, self.reason)


@dataclass(frozen=True, slots=True)
class CutRange:
    """Bytes that recovery dropped from the log's end."""

    path: str
    position: int
    start: int
    nbytes: int
    reason: str
    quarantined: str | None


@dataclass
class RecoveryReport:
    """What opening the store found and did.

    Attributes
    ----------
    clean : bool
        The last writer stopped in good order.
    scanned_from, log_end : int
        Physical offsets: where the check began, and behind the last record.
    scanned_count : int
        Records checked.
    durable_mark : int
        Offset below which everything is known to have been on disk.
    damaged : list of DamagedRange
    cut : list of CutRange
    ghosts, nul_properties, unsafe_topics : list of int
        Physical offsets of records that are passed over, or kept though odd.
    gaps, refused : list
        Queue offsets that no record carries; records whose queue offset cannot be.
    skipped : list of str
        Entries of the directory that are no part of a store; they were left alone.
    rebuilt_units, rebuilt_keys : int
        Units and index entries made from the log.
    notes : list of str
        Everything else worth knowing, in words.
    duration_s : float
    """

    clean: bool = True
    scanned_from: int = 0
    log_end: int = 0
    scanned_count: int = 0
    durable_mark: int = 0
    damaged: list[DamagedRange] = field(default_factory=list)
    cut: list[CutRange] = field(default_factory=list)
    ghosts: list[int] = field(default_factory=list)
    nul_properties: list[int] = field(default_factory=list)
    unsafe_topics: list[int] = field(default_factory=list)
    gaps: list[tuple[str, int, int, int]] = field(default_factory=list)
    refused: list[tuple[str, int, int, int]] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    rebuilt_units: int = 0
    rebuilt_keys: int = 0
    notes: list[str] = field(default_factory=list)
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True)
class DurableMark:
    """Up to where the log is known to be on disk.

    ``offset`` comes from a valid state file; without one, ``physic_timestamp`` of the checkpoint
    tells it by the records' times (``inclusive`` after a clean stop).
    """

    offset: int | None
    physic_timestamp: int = 0
    inclusive: bool = False


class LogRecovery:
    """Scans a log from a trusted start and decides what its end is. Changes nothing.

    Parameters
    ----------
    log : CommitLog
        Read-only segments; its end is moved here.
    start : int
        A record's or segment's first offset.
    mark : DurableMark
    progress : callable or None
        ``progress(what, done, total)`` in bytes.
    """

    def __init__(
        self, log: CommitLog, start: int, mark: DurableMark, progress: Progress | None = None
    ) -> None:
        self.log = log
        self.report = RecoveryReport(scanned_from=start)
        self._start = start
        self._mark = mark
        self._progress = progress
        self._limit = self._files_end()
        self._last_timestamp: int | None = None
        self._newest_timestamp = 0
        self._timed_mark = start
        self._trailing: int | None = None  # start of ghosts and torn-looking records at the end

    def _files_end(self) -> int:
        last = self.log.queue.last()
        return last.file_from_offset + last.file_size if last is not None else 0

    def run(self) -> RecoveryReport:
        """Scan; return the report. The log's end is moved to behind the last good record."""
        began = time.monotonic()
        offset = self._start
        while True:
            offset, status = self._scan(offset)
            if status == RecordStatus.END:
                break
            behind = find_next_record(self.log, offset + 1)
            if behind is None or not self._is_durable(offset, behind):
                if self._is_below_mark(offset, status):
                    self._note_damage(offset, self._limit if behind is None else behind, status)
                break
            self._note_damage(offset, behind, status)
            offset = behind
        self._settle_ghosts()
        end = self._end_without_trailing(offset)
        self.report.log_end = end
        self.report.durable_mark = min(self._durable_mark(), end)
        self.report.duration_s = time.monotonic() - began
        self.log.move_end(end)
        return self.report

    # --- scanning -----------------------------------------------------------------------------

    def _scan(self, offset: int) -> tuple[int, RecordStatus]:
        scan = LogScan(
            self.log, offset, self._limit, self._flags(offset) | RecordFlags.REPORT_PROPERTY_CRC
        )
        for batch in scan:
            self._take(batch)
            if self._progress is not None:
                self._progress("check log", scan.offset - self._start, self._limit - self._start)
        return scan.offset, scan.status

    def _flags(self, offset: int) -> int:
        """Flags for a segment: its whole-record CRCs count when any record carries a valid one."""
        flags = self.log.record_flags
        if flags & (RecordFlags.CHECK_PROPERTY_CRC | RecordFlags.REQUIRE_PROPERTY_CRC):
            return flags
        report = flags | RecordFlags.REPORT_PROPERTY_CRC
        for batch in LogScan(self.log, offset, self._limit, report, capacity=64):
            if (batch.columns["property_crc"] == 1).any():
                return flags | RecordFlags.CHECK_PROPERTY_CRC
            break
        return flags

    def _take(self, batch: RecordBatch) -> None:
        columns = batch.columns
        self.report.scanned_count += batch.count
        last = batch.last()
        times = columns["store_timestamp"]
        self._newest_timestamp = max(self._newest_timestamp, int(times.max()))
        self._take_times(batch)
        self._last_timestamp = last["store_timestamp"]
        if last["status"] in (RecordStatus.OK, RecordStatus.UNSAFE_TOPIC):
            self._trailing = None
        if not columns["status"].any():
            return
        for number in columns["status"].nonzero()[0].tolist():
            self._take_odd(batch.row(number))

    def _take_times(self, batch: RecordBatch) -> None:
        physic = self._mark.physic_timestamp
        if self._mark.offset is not None or physic <= 0:
            return
        times = batch.columns["store_timestamp"]
        covered = times <= physic if self._mark.inclusive else times < physic
        if covered.any():
            row = batch.row(int(covered.nonzero()[0][-1]))
            self._timed_mark = row["physical_offset"] + row["total_size"]

    def _take_odd(self, row: dict[str, int]) -> None:
        offset, status = row["physical_offset"], row["status"]
        if status == RecordStatus.UNSAFE_TOPIC:
            self.report.unsafe_topics.append(offset)
            self._trailing = None
            return
        if status == RecordStatus.GHOST:
            self.report.ghosts.append(offset)
        elif status == RecordStatus.NUL_PROPERTIES:
            self.report.nul_properties.append(offset)
        if self._trailing is None:
            self._trailing = offset

    # --- judging ------------------------------------------------------------------------------

    def _durable_mark(self) -> int:
        if self._mark.offset is not None:
            return self._mark.offset
        if self._mark.physic_timestamp > self._newest_timestamp:
            return self._start  # a time later than the newest record proves nothing
        return self._timed_mark

    def _is_below_mark(self, offset: int, status: RecordStatus) -> bool:
        """Whether what stands at ``offset`` was durable once (zeros there: the mark is void)."""
        return offset < self._durable_mark() and status != RecordStatus.EMPTY

    def _is_durable(self, offset: int, behind: int) -> bool:
        """Whether the good records at ``behind`` prove that the damage at ``offset`` was
        durable."""
        if self._mark.offset is not None:
            return offset < self._mark.offset
        if offset < self._durable_mark():
            return True
        return self._continues(offset, behind)

    def _continues(self, offset: int, behind: int) -> bool:
        """Whether the records at ``behind`` go on where those in front of ``offset`` stopped.

        Their times are not earlier, and the queue offsets that are missing in between fit into the
        damaged stretch. Older times, or queue offsets used already, mean a stale tail.
        """
        ends = self._queue_ends(offset)
        room = (behind - offset) // formats.RECORD_MIN_NBYTES + 1
        probe = LogScan(self.log, behind, self._limit, self.log.record_flags, capacity=_PROBE_COUNT)
        for batch in probe:
            first = batch.row(0)
            if self._last_timestamp is not None and first["store_timestamp"] < self._last_timestamp:
                return False
            for row in map(batch.row, range(batch.count)):
                key = _queue_key(batch, row)
                if key is None:
                    continue
                expected = ends.get(key)
                if expected is not None:
                    missing = row["queue_offset"] - expected
                    if missing < 0 or missing > room:
                        return False
                    room -= missing
                ends[key] = row["queue_offset"] + 1
            return True
        return False

    def _queue_ends(self, offset: int) -> dict[tuple[bytes, int], int]:
        """Next queue offset of each queue seen in the two segments in front of ``offset``."""
        start = max(self._start, offset - offset % self.log.segment_size - self.log.segment_size)
        ends: dict[tuple[bytes, int], int] = {}
        for batch in LogScan(self.log, start, offset, self.log.record_flags):
            for row in map(batch.row, range(batch.count)):
                key = _queue_key(batch, row)
                if key is not None:
                    ends[key] = row["queue_offset"] + 1
        return ends

    def _settle_ghosts(self) -> None:
        """A ghost in place of a real record leaves a gap in a queue: then it is damage, not a
        ghost."""
        for ghost in list(self.report.ghosts):
            segment = ghost - ghost % self.log.segment_size
            ends = self._queue_ends(ghost)
            stop = min(segment + self.log.segment_size, self._limit)
            for batch in LogScan(self.log, ghost, stop, self.log.record_flags):
                seen = self._first_gap(batch, ends)
                if seen:
                    _, size = self.log.check(ghost)
                    self.report.ghosts.remove(ghost)
                    self._note_damage(ghost, ghost + size, RecordStatus.BAD_PHYSICAL_OFFSET)
                    break

    @staticmethod
    def _first_gap(batch: RecordBatch, ends: dict[tuple[bytes, int], int]) -> bool:
        for row in map(batch.row, range(batch.count)):
            key = _queue_key(batch, row)
            if key is None or row["status"] == RecordStatus.GHOST:
                continue
            expected = ends.get(key)
            ends[key] = row["queue_offset"] + 1
            if expected is not None and row["queue_offset"] > expected:
                return True
        return False

    def _end_without_trailing(self, offset: int) -> int:
        """Ghosts at the very end, and records with NULs above the mark, are a torn tail."""
        mark = self._durable_mark()
        if self._mark.offset is not None:
            torn = [at for at in self.report.nul_properties if at >= mark]
            if torn:
                return min(torn)
        if self._trailing is not None and self._trailing >= mark:
            return self._trailing
        ghost = self._trailing
        if ghost is not None and ghost in self.report.ghosts:
            return ghost
        return offset

    def _note_damage(self, start: int, stop: int, status: int) -> None:
        file = self.log.queue.find_mapped_file_by_offset(start)
        base = file.file_from_offset if file is not None else 0
        path = file.path if file is not None else self.log.queue.directory
        reason = f"{describe(status, start)}; the next good record is at log offset {stop}"
        if stop >= self._limit:
            reason = f"{describe(status, start)}; it had been written durably"
        self.report.damaged.append(DamagedRange(str(path), start - base, start, stop, reason))


def _queue_key(batch: RecordBatch, row: dict[str, int]) -> tuple[bytes, int] | None:
    """(topic, queue id) of a row that consumes a queue offset, else ``None``."""
    transaction = row["sys_flag"] & formats.SYS_FLAG_TRANSACTION_MASK
    if (
        transaction
        in (
            formats.SYS_FLAG_TRANSACTION_PREPARED,
            formats.SYS_FLAG_TRANSACTION_ROLLBACK,
        )
        or row["status"] == RecordStatus.GHOST
    ):
        return None
    start = row["position"] + row["topic_at"]
    topic = bytes(memoryview(batch.window.buffer)[start : start + row["topic_nbytes"]])
    return topic, row["queue_id"]


def log_start(log: CommitLog, facts: StoreFacts) -> tuple[DurableMark, int]:
    """Return what is known to be durable and where checking begins.

    With a valid state file: the segment that holds its oldest position. Otherwise the whole log,
    since a checkpoint's times are no proof of anything but an order.
    """
    minimum = max(log.min_offset, 0)
    state = facts.valid_state
    if state is None:
        physic = facts.checkpoint.physic_timestamp
        return DurableMark(None, physic, inclusive=not facts.aborted), minimum
    position = min(state.flushed_offset, state.dispatched_offset, state.indexed_offset)
    start = position - position % log.segment_size
    if log.queue.find_mapped_file_by_offset(start) is None:
        start = minimum
        last = log.queue.last()
        if last is not None and start < last.end_offset <= position:
            start = last.file_from_offset
    return DurableMark(state.flushed_offset), max(start, minimum)


# --- cutting ----------------------------------------------------------------------------------


def cut_tail(log: CommitLog, end: int, root: Path, clock: Callable[[], int]) -> list[CutRange]:
    """Drop everything behind ``end`` from the log's files, durably; complete records are kept
    aside.

    The files are cut from the last one backwards, so that a kill in between leaves a state that the
    next open cuts again.
    """
    cuts: list[CutRange] = []
    if not has_content(log, end):
        return cuts
    for file in reversed(log.queue.files):
        position = max(0, end - file.file_from_offset)
        if position >= file.file_size:
            continue
        nbytes = _content_nbytes(file, position)
        if not nbytes:
            continue
        kept = _quarantine(log, file, position, nbytes, root, clock)
        _write_zeros(file, position, nbytes)
        status, _ = log.check(file.file_from_offset + position)
        _log.warning("cut %d bytes at position %d of %s", nbytes, position, file.path)
        cuts.append(
            CutRange(
                str(file.path),
                position,
                file.file_from_offset + position,
                nbytes,
                describe(status, file.file_from_offset + position),
                kept,
            )
        )
    return cuts[::-1]


def _content_nbytes(file: MappedFile, position: int) -> int:
    """Bytes from ``position`` to the last one that is not zero."""
    stop = file.file_size
    step = 1 << 20
    while stop > position:
        start = max(position, stop - step)
        chunk = file.read(start, stop - start).rstrip(b"\0")
        if chunk:
            return start + len(chunk) - position
        stop = start
    return 0


def _quarantine(
    log: CommitLog,
    file: MappedFile,
    position: int,
    nbytes: int,
    root: Path,
    clock: Callable[[], int],
) -> str | None:
    """Keep a copy of the bytes when a complete record is among them."""
    base = file.file_from_offset
    first = find_next_record(log, base + position)
    if first is None or first >= base + position + nbytes:
        return None
    directory = root / formats.QUARANTINE_DIR
    make_directories(directory, root)
    path = directory / f"{clock()}-{file.path.name}-{position}"
    write_file(path, file.read(position, nbytes))
    return str(path)


def _write_zeros(file: MappedFile, position: int, nbytes: int) -> None:
    fd = os.open(file.path, os.O_RDWR | os.O_CLOEXEC)
    try:
        zeros = bytes(min(nbytes, 1 << 20))
        stop = position + nbytes
        while position < stop:
            position += os.pwrite(fd, zeros[: stop - position], position)
        sync_descriptor(fd)
    finally:
        os.close(fd)


def drop_cached_pages(log: CommitLog, offset: int) -> None:
    """Forget clean cached pages behind ``offset``: after an I/O error they may be newer than the
    disk."""
    advise = getattr(os, "posix_fadvise", None)
    if advise is None:
        return
    for file in log.queue.files:
        if file.end_offset > offset:
            fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                advise(fd, max(0, offset - file.file_from_offset), 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)


def sync_log(log: CommitLog, offset: int, end: int) -> None:
    """Sync the segments that hold ``offset`` .. ``end`` and their directory."""
    for file in log.queue.files:
        if file.end_offset > offset and file.file_from_offset < end:
            fd = os.open(file.path, os.O_RDWR | os.O_CLOEXEC)
            try:
                sync_descriptor(fd)
            finally:
                os.close(fd)
    if log.queue.files:
        sync_directory(log.queue.directory)
