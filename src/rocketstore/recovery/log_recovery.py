"""Finding the log's true end: what is good, what is torn, what is damaged. Changes nothing."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rocketstore import formats
from rocketstore.arguments import Progress
from rocketstore.errors import CorruptionError
from rocketstore.log.commit_log import CommitLog, describe
from rocketstore.log.continuity import (
    LAST_TIME,
    Behind,
    QueueEnds,
    displaced,
    goes_on_behind,
    good_batches,
    queue_order,
)
from rocketstore.log.damage import DamagedRange
from rocketstore.log.misnamed_segments import claimed_start, renaming_in_words
from rocketstore.log.scan import LogScan, RecordBatch, find_next_record, has_content
from rocketstore.recovery.crash_losses import CrashLosses
from rocketstore.recovery.durable_mark import DurableMark
from rocketstore.recovery.odd_records import odd_batches, odd_delays
from rocketstore.recovery.orderly_stop import OrderlyStop, end_of_files
from rocketstore.recovery.report import RecoveryReport
from rocketstore.status import RecordFlags, RecordStatus

if TYPE_CHECKING:
    import numpy


_log = logging.getLogger(__name__)
#: Batches in front of damage from which the queues' ends are known.
_RECENT_BATCHES = 8
#: Batches at the log's end in which the order of queue offsets is looked at.
_ORDERED_BATCHES = 32
_MAX_DELAY_NOTES = 100
#: So many missing segments in a row are reported file by file, the others as one range.
_MOST_NAMED = 100
#: So many damaged places with later records behind them show that all of them were durable.
_ENOUGH_PROOFS = 1000
#: A store time so far (five years) ahead of the one in front of it may be a damaged one.
_FAR_AHEAD_MS = 5 * 365 * 24 * 3_600_000
_GOOD = (RecordStatus.OK, RecordStatus.UNSAFE_TOPIC)


@dataclass(slots=True)
class _OddPlace:
    """A place that is no plain good record: damage, a ghost, NULs in properties.

    ``proven``: what follows shows that it was durable. ``void``: zeros up to the mark, so that it
    is the mark which is wrong.
    """

    start: int
    stop: int
    status: RecordStatus
    proven: bool = False
    void: bool = False


class LogRecovery:
    """Scans a log from a trusted start and decides what its end is. Changes nothing on disk.

    Parameters
    ----------
    log : CommitLog
        Its end and its damaged places are set here.
    start : int
        A record's or segment's first offset.
    mark : DurableMark
    progress : callable or None
        ``progress(what, done, total)`` in bytes.
    stop_at_damage : bool
        Look no further once something durable is damaged (for opening that refuses it anyway).
    orderly : OrderlyStop or None
        Without a state file, what else tells of the log's end when its last writer stopped in
        order.

    Attributes
    ----------
    report : RecoveryReport
    torn_reason : str
        What stands at the log's end, when that is no clean end.
    is_end_clean : bool
        Nothing but zeros lies behind the log's end.
    misnamed : list of CorruptionError
        Segments whose records belong elsewhere.
    losses : CrashLosses or None
        Whatever names log files that are gone, though no damage tells of them.
    """

    def __init__(
        self,
        log: CommitLog,
        start: int,
        mark: DurableMark,
        progress: Progress | None = None,
        *,
        stop_at_damage: bool = False,
        orderly: OrderlyStop | None = None,
    ) -> None:
        self.log = log
        self.torn_reason = "nothing good follows"
        self.losses: CrashLosses | None = None
        self._start = start
        self._mark = mark
        self._progress = progress
        self._stop_at_damage = stop_at_damage
        self._orderly = orderly
        self._limit = end_of_files(log)
        self._reset()

    def _reset(self) -> None:
        self.report = RecoveryReport(scanned_from=self._start)
        self.misnamed: list[CorruptionError] = []
        self.log.damage, self.log.reasons = {}, {}
        self._end = self._start
        self._last_timestamp: int | None = None
        self._newest_timestamp = 0
        self._timed_mark = self._start
        self._last_good_end = self._start
        self.is_end_clean = False
        self._odd: list[_OddPlace] = []
        self._recent: deque[RecordBatch] = deque(maxlen=_RECENT_BATCHES)
        self._queue_ends = QueueEnds()
        self._proven_count = 0
        self._lost_nbytes = 0
        self._claimed: dict[int, int | None] = {}
        self._ordered: deque[RecordBatch] = deque()
        self._crc_seen: dict[int, set[int]] = {}

    def run(self) -> RecoveryReport:
        """Scan; return the report. The log's end is moved to behind the last good record."""
        began = time.monotonic()
        self._make_present()
        while not self._walk():
            self._reset()
        end = self._resolve()
        report = self.report
        report.unsafe_topics = [offset for offset in report.unsafe_topics if offset < end]
        report.log_end = end
        report.newest_store_timestamp = self._newest_timestamp
        report.durable_mark = min(self._durable_mark(), end)
        report.duration_s = time.monotonic() - began
        self._note_unseen_holes(end)
        self.log.move_end(end)
        if self._ordered:
            order = queue_order(self._last_batches(end))
            report.gaps, report.repeated = order.gaps, [place[:4] for place in order.repeated]
        self._recent.clear()  # they hold mappings
        self._ordered.clear()
        return report

    def _make_present(self) -> None:
        """Map what is there for sure and will be read, at once: page by page it costs more than the
        reading does."""
        for file in self.log.queue.files:
            start = max(self._start, file.file_from_offset)
            stop = min(self._marked_offset, file.end_offset)
            if start < stop:
                position = start - file.file_from_offset
                file.mapping.populate_for_reading(position, stop - start)

    def _last_batches(self, end: int) -> Iterable[RecordBatch]:
        """The log's last batches: those of the scan, or anew when not all of them stay."""
        if not self._odd:
            return self._ordered
        start = self._ordered[0].row(0)["physical_offset"]
        return good_batches(self.log, start, end)

    # --- walking ------------------------------------------------------------------------------

    def _walk(self) -> bool:
        """Walk to the end and note every odd place; False when it has to be done again."""
        offset = self._start
        while True:
            offset, status = self._scan(offset)
            if not self._crcs_agree():
                return False
            self._end = offset
            if status == RecordStatus.END or self._is_clean_end(offset, status):
                self.is_end_clean = True
                return True
            behind = find_next_record(self.log, offset + 1)
            if behind is not None and self._is_complete_now(offset):
                continue
            place = self._take_damage(offset, status, behind)
            durable = place.proven or place.start < self._marked_offset
            if place.stop >= self._limit or not durable or self._stop_at_damage:
                return True
            offset = place.stop

    def _scan(self, offset: int) -> tuple[int, RecordStatus]:
        flags = self.log.record_flags | RecordFlags.REPORT_PROPERTY_CRC
        scan = LogScan(self.log, offset, self._limit, flags)
        for batch in scan:
            self._take(batch)
            full = len(self._ordered) > _ORDERED_BATCHES
            scan.leave_rows(self._ordered.popleft() if full else None)
            if self._progress is not None:
                self._progress("check log", scan.offset - self._start, self._limit - self._start)
        return scan.offset, scan.status

    def _take(self, batch: RecordBatch) -> None:
        import numpy

        columns = batch.columns
        self.report.scanned_count += batch.count
        self._ordered.append(batch)
        self._recent.append(batch)
        self._take_crcs(batch)
        statuses = columns["status"]
        if statuses.any():
            good = numpy.isin(statuses, _GOOD)
            for number in statuses.nonzero()[0].tolist():
                self._take_odd(batch.row(number))
            columns = columns[good]
        if len(columns):
            self._take_good(columns)
        room = _MAX_DELAY_NOTES - len(self.report.notes)
        self.report.notes += [*odd_delays(batch), *odd_batches(batch)][: max(room, 0)]

    def _take_good(self, columns: numpy.ndarray[Any, Any]) -> None:
        times = columns["store_timestamp"]
        ends = columns["physical_offset"] + columns["total_size"]
        self._last_timestamp = _time_in_front(times, self._last_timestamp)
        self._newest_timestamp = max(self._newest_timestamp, int(times.max()))
        self._last_good_end = int(ends[-1])
        physic = self._mark.physic_timestamp
        if self._mark.offset is None and physic > 0:
            covered = times <= physic if self._mark.inclusive else times < physic
            if covered.any():
                self._timed_mark = int(ends[covered][-1])

    def _take_odd(self, row: dict[str, int]) -> None:
        offset, status = row["physical_offset"], RecordStatus(row["status"])
        if status == RecordStatus.UNSAFE_TOPIC:
            self.report.unsafe_topics.append(offset)
        else:
            self._odd.append(_OddPlace(offset, offset + row["total_size"], status))

    def _take_crcs(self, batch: RecordBatch) -> None:
        judged = batch.columns["property_crc"]
        if judged.any():
            seen = self._crc_seen.setdefault(batch.window.base_offset, set())
            seen.update(int(value) for value in (1, 2) if (judged == value).any())

    def _crcs_agree(self) -> bool:
        """Whether no segment holds both right and wrong whole-record CRCs that were let pass.

        Records carry them as soon as any of their segment has a right one; then wrong ones count.
        """
        mixed = [base for base, seen in self._crc_seen.items() if len(seen) == 2]
        for base in mixed:
            self.log.demand_property_crc(base)
        return not mixed

    # --- damage -------------------------------------------------------------------------------

    @property
    def _marked_offset(self) -> int:
        """The state file's mark, -1 without one."""
        return -1 if self._mark.offset is None else self._mark.offset

    def _is_clean_end(self, offset: int, status: RecordStatus) -> bool:
        return status == RecordStatus.EMPTY and not has_content(self.log, offset)

    def _is_complete_now(self, offset: int) -> bool:
        """Whether a good record stands at ``offset`` after all.

        Beside a writer a record is seen half written, and the one behind it complete a moment
        later. By then the first one is complete too: a log is written in order.
        """
        scan = LogScan(self.log, offset, self._limit, self.log.record_flags, capacity=1)
        return any(scan) or scan.offset > offset

    def _take_damage(self, offset: int, status: RecordStatus, behind: int | None) -> _OddPlace:
        """Note the damage at ``offset`` with the odd records that lean on it.

        ``behind``: where the next good record is.
        """
        start, status = self._join_odd(offset, status)
        place = _OddPlace(start, self._limit if behind is None else behind, status)
        if behind is not None:
            place.proven = self._is_proven(start, behind)
        elif status == RecordStatus.EMPTY and offset < self._marked_offset:
            is_sure = self._mark.inclusive
            place.void = not is_sure and not self._has_content_between(offset, self._marked_offset)
        if not place.proven and self._orderly is not None:
            # Nothing was torn, so that only what nobody names is of an earlier life of the log.
            place.proven = not self._orderly.is_whole(start, self._newest_timestamp)
        if not place.proven:
            place.proven = any(self._claimed_by(base) for base in self._bases(place))
        self._odd.append(place)
        return place

    def _bases(self, place: _OddPlace) -> list[int]:
        """The segments that are there and begin within a place."""
        size = self.log.segment_size
        if place.start - 1 + size - (place.start - 1) % size >= place.stop:
            return []  # as most places do, it ends where it began
        starts = (file.file_from_offset for file in self.log.queue.files)
        return [start for start in starts if place.start <= start < place.stop]

    def _claimed_by(self, base: int) -> int | None:
        """Where the segment at ``base`` begins by the word of its records, when it is misnamed."""
        if base not in self._claimed:
            file = self.log.queue.find_mapped_file_by_offset(base)
            self._claimed[base] = None if file is None else claimed_start(self.log, file)
        return self._claimed[base]

    def _join_odd(self, start: int, status: RecordStatus) -> tuple[int, RecordStatus]:
        """Ghosts right in front of damage are a part of it (a ghost stands between good records),
        and so is a record whose properties were zeroed up to its end."""
        while self._odd and self._odd[-1].stop == start:
            place = self._odd[-1]
            if place.status == RecordStatus.GHOST:
                status = RecordStatus.BAD_PHYSICAL_OFFSET
            elif place.status == RecordStatus.NUL_PROPERTIES and self._byte_at(start - 1) == 0:
                status = RecordStatus.BAD_PROPERTIES
            else:
                break
            start = self._odd.pop().start
        return start, status

    def _byte_at(self, offset: int) -> int:
        file = self.log.queue.find_mapped_file_by_offset(offset)
        content = b"" if file is None else file.read(offset - file.file_from_offset, 1)
        return content[0] if content else 0

    def _has_content_between(self, start: int, stop: int) -> bool:
        """Whether a byte that is not zero lies in ``start`` .. ``stop`` (at most one segment)."""
        file = self.log.queue.find_mapped_file_by_offset(start)
        while file is not None and start < stop:
            position = start - file.file_from_offset
            chunk = file.read(position, min(1 << 20, stop - start, file.file_size - position))
            if chunk.strip(b"\0"):
                return True
            if not chunk:
                return False
            start += len(chunk)
            file = self.log.queue.find_mapped_file_by_offset(start)
        return False

    def _is_proven(self, start: int, behind: int) -> bool:
        """Whether the good records at ``behind`` prove that the damage at ``start`` was durable."""
        file = self.log.queue.find_mapped_file_by_offset(start)
        size = self.log.segment_size
        if behind >= start - start % size + size and (file is None or file.file_size < size):
            return True  # a segment is missing or cut short although a later one was made
        if self._mark.offset is not None:
            return False
        if self._proven_count == _ENOUGH_PROOFS:
            return True  # damaged all over: it is no stale tail, and more proof only takes time
        while self._recent:
            self._queue_ends.take(self._recent.popleft())
        self._lost_nbytes += behind - start
        known = Behind(
            self._queue_ends, self._last_timestamp, self._mark.physic_timestamp, self._lost_nbytes
        )
        proven = goes_on_behind(self.log, behind, self._limit, known)
        self._proven_count += proven
        return proven

    # --- judging ------------------------------------------------------------------------------

    def _durable_mark(self) -> int:
        if self._mark.offset is not None:
            return self._mark.offset
        if self._mark.physic_timestamp > self._newest_timestamp:
            return self._start  # a time later than the newest record proves nothing
        return self._timed_mark

    def _resolve(self) -> int:
        """Go through the odd places in order; the first torn one is the log's end."""
        self._join_misnamed()
        self._mark_displaced_ghosts()
        mark = self._durable_mark()
        # What lies in front of proven damage was durable before it, whatever the marks say: they
        # mean little when the walk ended there.
        proven = max((place.start for place in self._odd if place.proven), default=-1)
        for place in self._odd:
            if place.start >= proven and not self._is_durable(place, mark):
                self.torn_reason = describe(place.status, place.start)
                self.is_end_clean = False
                return place.start
            self._accept(place)
        return self._end

    def _is_durable(self, place: _OddPlace, mark: int) -> bool:
        if place.void:
            return False
        if place.proven or place.start < mark:
            return True
        is_followed = place.start < self._last_good_end
        if self._mark.offset is not None:
            return is_followed and place.status == RecordStatus.GHOST
        if self._orderly is not None and not is_followed:
            return self._orderly.names(place.start, self._newest_timestamp)
        return is_followed

    def _accept(self, place: _OddPlace) -> None:
        """Report something durable: damage, or what is passed over or kept."""
        if place.status == RecordStatus.GHOST:
            if place.start < self._last_good_end:
                self.report.ghosts.append(place.start)
                return
            place.status = RecordStatus.BAD_PHYSICAL_OFFSET
        if place.status == RecordStatus.NUL_PROPERTIES:
            self.report.nul_properties.append(place.start)
        else:
            self._note_damage(place)

    def _join_misnamed(self) -> None:
        """Make one damaged place of each segment that bears a wrong name."""
        whole: list[_OddPlace] = []
        for place in self._odd:
            start = place.start
            if whole and whole[-1].stop > start and self._claimed.get(whole[-1].start) is not None:
                continue  # in a misnamed segment
            for base in self._bases(place):
                if self._claimed_by(base) is None:
                    continue
                if start < base:
                    whole.append(_OddPlace(start, base, place.status, proven=True))
                start = min(base + self.log.segment_size, self._limit)
                status = RecordStatus.BAD_PHYSICAL_OFFSET
                whole.append(_OddPlace(base, start, status, proven=True))
            if start < place.stop:
                whole.append(dataclasses.replace(place, start=start))
        self._odd = whole

    def _mark_displaced_ghosts(self) -> None:
        """A ghost in place of a real record leaves a gap in a queue: then it is damage."""
        ghosts = [place.start for place in self._odd if place.status == RecordStatus.GHOST]
        if not ghosts:
            return
        size = self.log.segment_size
        start = max(self._start, ghosts[0] - ghosts[0] % size - size)
        stop = min(ghosts[-1] - ghosts[-1] % size + 2 * size, self._end)
        lost = displaced(self.log, ghosts, start, stop)
        for place in self._odd:
            if place.start in lost:
                place.status = RecordStatus.BAD_PHYSICAL_OFFSET

    def _note_damage(self, place: _OddPlace) -> None:
        """Report a damaged stretch; each segment that is missing in it by its own file."""
        start, stop = place.start, place.stop
        for hole, hole_stop in self._holes(start, stop):
            if start < hole:
                self._note_range(start, hole, place)
            size = self.log.segment_size
            for at in range(hole, min(hole_stop, hole + _MOST_NAMED * size), size):
                self._note_range(at, at + size, place)
                start = at + size
            if start < hole_stop:
                self._note_range(start, hole_stop, place)
            start = hole_stop
        if start < stop:
            self._note_range(start, stop, place)

    def _holes(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Segments between ``start`` and ``stop`` that are missing or cannot be read."""
        return [(max(a, start), min(b, stop)) for a, b in self.log.holes if a < stop and start < b]

    def _note_range(self, start: int, stop: int, place: _OddPlace) -> None:
        status = place.status
        if start != place.start:
            scan = LogScan(self.log, start, self._limit, self.log.record_flags, capacity=1)
            status = RecordStatus.EMPTY if any(scan) else scan.status
        self.log.damage[start] = status
        path, position, reason = self.log.place(start)
        reason = reason or describe(status, start)
        claimed = self._claimed.get(start)
        if claimed is not None:
            reason = (
                f"the records of this file say that it begins at log offset {claimed}: it bears a "
                f"wrong name. Name it {formats.offset_to_file_name(claimed)}, or move it away"
            )
            if not self.misnamed:
                reason += self._renaming()
            self.misnamed.append(CorruptionError(path, position, reason))
        if place.stop < self._limit:
            reason += f"; the next good record is at log offset {place.stop}"
        elif not self.log.place(start)[2]:
            reason += "; it had been written durably"
        self.report.damaged.append(DamagedRange(str(path), position, start, stop, reason, claimed))

    def _renaming(self) -> str:
        """The commands that give all misnamed segments their names, in words."""
        files = self.log.queue.files
        claims = {file.file_from_offset: self._claimed_by(file.file_from_offset) for file in files}
        wrong = {base: start for base, start in claims.items() if start is not None}
        return renaming_in_words(self.log.queue.directory, wrong, set(claims))

    def _note_unseen_holes(self, end: int) -> None:
        """Report the missing segments that lie outside of the stretch that was checked."""
        known = [(damage.start, damage.stop) for damage in self.report.damaged]
        for start, stop in self.log.holes:
            is_known = any(a <= start < b for a, b in known)
            if (stop <= self._start or start >= end) and not is_known:
                self._note_damage(_OddPlace(start, stop, RecordStatus.EMPTY))
        self.report.damaged.sort(key=lambda damage: damage.start)


def _time_in_front(times: numpy.ndarray[Any, Any], before: int | None) -> int | None:
    """The store time of the last record, or of the one in front of it where the last one's is so
    far ahead of that that it may be damaged itself."""
    last = int(times[-1])
    previous = int(times[-2]) if len(times) > 1 else before
    if previous is not None and 0 < previous < min(last - _FAR_AHEAD_MS, LAST_TIME):
        return previous
    return last if last < LAST_TIME else None


# --- where to begin -----------------------------------------------------------------------------
