"""Find the log's valid end: good records, torn writes, corrupt ranges. Changes nothing."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from rocketstore import formats
from rocketstore.arguments import Progress
from rocketstore.errors import CorruptionError
from rocketstore.files.durable import is_zeros
from rocketstore.files.forward_pages import ForwardPages
from rocketstore.log.commit_log import CommitLog, describe
from rocketstore.log.continuity import (
    LAST_TIME,
    BeforeRange,
    QueueEnds,
    continues_log,
    displaced,
    good_batches,
    queue_order,
)
from rocketstore.log.damage import DamagedRange
from rocketstore.log.misnamed_segments import claimed_start, renaming_in_words
from rocketstore.log.scan import (
    BatchSummary,
    LogScan,
    RecordBatch,
    find_next_record,
    has_content,
)
from rocketstore.recovery.crash_losses import CrashLosses
from rocketstore.recovery.durable_mark import DurableMark
from rocketstore.recovery.invalid_records import invalid_delay_levels, invalid_inner_batches
from rocketstore.recovery.orderly_stop import OrderlyStop, end_of_files
from rocketstore.recovery.report import RecoveryReport
from rocketstore.status import RecordFlags, RecordStatus

_log = logging.getLogger(__name__)
#: Batches before damage that are used to know the queues' ends.
_RECENT_BATCHES = 8
#: Batches at the log's end in which the order of queue offsets is checked.
_ORDERED_BATCHES = 32
_MAX_DELAY_NOTES = 100
#: A check of more bytes releases pages, also of a store that is opened for writing.
_LONG_NBYTES = 256 << 20
#: Missing segments in a row that are reported file by file; the rest is reported as one range.
_MOST_NAMED = 100
#: After this many corrupt ranges that were proven durable, all of them count as durable.
_ENOUGH_PROOFS = 1000
#: A store time this far (five years) after the previous one may be damaged.
_FAR_AHEAD_MS = 5 * 365 * 24 * 3_600_000
#: ``BatchSummary.property_crcs`` of records with valid and with invalid CRCs.
_BOTH_CRCS = 3


@dataclass(slots=True)
class _OddPlace:
    """A range that is not a plain good record: damage, a ghost, NULs in properties.

    ``proven``: later records show that it was durable. ``void``: zeros up to the durable offset, so
    that the durable offset is wrong.
    """

    start: int
    stop: int
    status: RecordStatus
    proven: bool = False
    void: bool = False


class LogRecovery:
    """Scan a log from a trusted start and decide where it ends. Changes nothing on disk.

    Parameters
    ----------
    log : CommitLog
        Its end and its corrupt ranges are set here.
    start : int
        A record's or segment's first offset.
    mark : DurableMark
    progress : callable or None
        ``progress(what, done, total)`` in bytes.
    stop_at_damage : bool
        Stop at the first durable damage, because the caller refuses it anyway.
    orderly : OrderlyStop or None
        Other evidence of the log's end, for a log without a state file whose last writer stopped
        in order.

    Attributes
    ----------
    report : RecoveryReport
    torn_reason : str
        What was found at the log's end, if the end is not clean.
    is_end_clean : bool
        Only zeros follow the log's end.
    misnamed : list of CorruptionError
        Segments whose records belong elsewhere.
    losses : CrashLosses or None
        What names missing log files that are not reported as damage.
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
        is_long = self._limit - start > _LONG_NBYTES
        #: Pages of a long check are not kept, nor are those of a log that is only read.
        self._pages = ForwardPages() if is_long or not stop_at_damage else None
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
        self._crc_seen: dict[int, int] = {}

    def run(self) -> RecoveryReport:
        """Scan, move the log's end to the end of its last good record, and return the report."""
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
        """Map the durable part to be read in one call: page faults would cost more than reading."""
        if self._pages is not None:
            return  # step by step
        for file in self.log.queue.files:
            start = max(self._start, file.file_from_offset)
            stop = min(self._marked_offset, file.end_offset)
            if start < stop:
                position = start - file.file_from_offset
                file.mapping.populate_for_reading(position, stop - start)

    def _last_batches(self, end: int) -> Iterable[RecordBatch]:
        """Return the log's last batches; scan again if damage was found among those of the scan."""
        if not self._odd:
            return self._ordered
        start = self._ordered[0].row(0)["physical_offset"]
        return good_batches(self.log, start, end)

    # --- walking ------------------------------------------------------------------------------

    def _walk(self) -> bool:
        """Walk to the end and note every odd place; return False if the walk must be repeated."""
        offset = self._start
        while True:
            offset, status = self._scan(offset)
            if not self._crcs_agree():
                return False
            self._end = offset
            if status == RecordStatus.END or self._is_clean_end(offset, status):
                self.is_end_clean = True
                return True
            following = find_next_record(self.log, offset + 1)
            if following is not None and self._is_complete_now(offset):
                continue
            place = self._take_damage(offset, status, following)
            durable = place.proven or place.start < self._marked_offset
            if place.stop >= self._limit or not durable or self._stop_at_damage:
                return True
            offset = place.stop

    def _scan(self, offset: int) -> tuple[int, RecordStatus]:
        flags = self.log.record_flags | RecordFlags.REPORT_PROPERTY_CRC
        scan = LogScan(self.log, offset, self._limit, flags)
        self._prepare(offset)
        for batch in scan:
            self._prepare(scan.offset)
            self._take(batch)
            full = len(self._ordered) > _ORDERED_BATCHES
            scan.leave_rows(self._ordered.popleft() if full else None)
            if self._progress is not None:
                self._progress("check log", scan.offset - self._start, self._limit - self._start)
        return scan.offset, scan.status

    def _prepare(self, offset: int) -> None:
        """Make the durable pages from ``offset`` on present, and release those long before it."""
        file = self.log.queue.find_mapped_file_by_offset(offset)
        if self._pages is not None and file is not None:
            start = file.file_from_offset
            self._pages.move(file, offset - start, self._marked_offset - start)

    def _take(self, batch: RecordBatch) -> None:
        self.report.scanned_count += batch.count
        self._ordered.append(batch)
        self._recent.append(batch)
        found = batch.summary(self._mark.covered_before)
        if found.property_crcs:
            base = batch.window.base_offset
            self._crc_seen[base] = self._crc_seen.get(base, 0) | found.property_crcs
        if found.odd:
            for number, (_, status) in enumerate(batch.places()):
                if status != RecordStatus.OK:
                    self._take_odd(batch.row(number))
        if found.good:
            self._take_good(found)
        if found.special:
            room = max(_MAX_DELAY_NOTES - len(self.report.notes), 0)
            notes = [*invalid_delay_levels(batch), *invalid_inner_batches(batch)]
            self.report.notes += notes[:room]

    def _take_good(self, found: BatchSummary) -> None:
        previous = found.previous if found.good > 1 else self._last_timestamp
        self._last_timestamp = _last_plausible_time(found.last, previous)
        self._newest_timestamp = max(self._newest_timestamp, found.newest)
        self._last_good_end = found.end
        if found.covered_end >= 0:
            self._timed_mark = found.covered_end

    def _take_odd(self, row: dict[str, int]) -> None:
        offset, status = row["physical_offset"], RecordStatus(row["status"])
        if status == RecordStatus.UNSAFE_TOPIC:
            self.report.unsafe_topics.append(offset)
        else:
            self._odd.append(_OddPlace(offset, offset + row["total_size"], status))

    def _crcs_agree(self) -> bool:
        """Return whether no segment holds both valid and invalid property CRCs.

        If a segment has a valid one, all of its records carry them, and invalid ones are damage.
        """
        mixed = [base for base, seen in self._crc_seen.items() if seen == _BOTH_CRCS]
        for base in mixed:
            self.log.demand_property_crc(base)
        return not mixed

    # --- damage -------------------------------------------------------------------------------

    @property
    def _marked_offset(self) -> int:
        """Return the state file's durable offset, -1 without one."""
        return -1 if self._mark.offset is None else self._mark.offset

    def _is_clean_end(self, offset: int, status: RecordStatus) -> bool:
        return status == RecordStatus.EMPTY and not has_content(self.log, offset)

    def _is_complete_now(self, offset: int) -> bool:
        """Return whether a good record has appeared at ``offset``.

        A reader may see a record that a writer has not finished, and a moment later the next one.
        By then the first one is complete too, because a log is written in order.
        """
        scan = LogScan(self.log, offset, self._limit, self.log.record_flags, capacity=1)
        return any(scan) or scan.offset > offset

    def _take_damage(self, offset: int, status: RecordStatus, following: int | None) -> _OddPlace:
        """Note the damage at ``offset``, joined with the odd records right before it.

        ``following``: offset of the next good record.
        """
        start, status = self._join_odd(offset, status)
        place = _OddPlace(start, self._limit if following is None else following, status)
        if following is not None:
            place.proven = self._is_proven(start, following)
        elif status == RecordStatus.EMPTY and offset < self._marked_offset:
            is_sure = self._mark.inclusive
            place.void = not is_sure and not self._has_content_between(offset, self._marked_offset)
        if not place.proven and self._orderly is not None:
            # An orderly stop leaves no torn write. Bytes past the end that no unit, entry or
            # checkpoint names are older content of the file.
            place.proven = not self._orderly.is_whole(start, self._newest_timestamp)
        if not place.proven:
            place.proven = any(self._claimed_by(base) for base in self._bases(place))
        self._odd.append(place)
        return place

    def _bases(self, place: _OddPlace) -> list[int]:
        """Return the start offsets of existing segments that begin within a place."""
        size = self.log.segment_size
        if place.start - 1 + size - (place.start - 1) % size >= place.stop:
            return []  # the usual case: it ends in the segment where it began
        starts = (file.file_from_offset for file in self.log.queue.files)
        return [start for start in starts if place.start <= start < place.stop]

    def _claimed_by(self, base: int) -> int | None:
        """Return where the segment at ``base`` begins according to its records, if misnamed."""
        if base not in self._claimed:
            file = self.log.queue.find_mapped_file_by_offset(base)
            self._claimed[base] = None if file is None else claimed_start(self.log, file)
        return self._claimed[base]

    def _join_odd(self, start: int, status: RecordStatus) -> tuple[int, RecordStatus]:
        """Join ghosts, and a record with zeroed properties, to the damage right after them.

        A real ghost is followed by a good record.
        """
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
        """Return whether ``start`` .. ``stop`` (at most one segment) has a non-zero byte."""
        file = self.log.queue.find_mapped_file_by_offset(start)
        while file is not None and start < stop:
            position = start - file.file_from_offset
            chunk = file.read(position, min(1 << 20, stop - start, file.file_size - position))
            if not is_zeros(chunk):
                return True
            if not chunk:
                return False
            start += len(chunk)
            file = self.log.queue.find_mapped_file_by_offset(start)
        return False

    def _is_proven(self, start: int, following: int) -> bool:
        """Return whether good records at ``following`` prove damage at ``start`` was durable."""
        file = self.log.queue.find_mapped_file_by_offset(start)
        size = self.log.segment_size
        if following >= start - start % size + size and (file is None or file.file_size < size):
            return True  # a segment is missing or truncated although a later one exists
        if self._mark.offset is not None:
            return False
        if self._proven_count == _ENOUGH_PROOFS:
            return True  # damaged all over, so not a stale tail; more proofs only take time
        while self._recent:
            self._queue_ends.take(self._recent.popleft())
        self._lost_nbytes += following - start
        known = BeforeRange(
            self._queue_ends, self._last_timestamp, self._mark.physic_timestamp, self._lost_nbytes
        )
        proven = continues_log(self.log, following, self._limit, known)
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
        """Return the log's end: the first torn one of the odd places, or the end of the walk."""
        self._join_misnamed()
        self._mark_displaced_ghosts()
        mark = self._durable_mark()
        # Places before proven damage were durable too, even past the durable offset, which is
        # unreliable if the walk stopped at the damage.
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
        """Report a durable place: damage, or a ghost that is skipped, or a record that is kept."""
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
        """Turn each segment with a wrong name into one damaged place."""
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
        """Mark ghosts that replaced a real record as damage: they leave a gap in a queue."""
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
        """Report a corrupt range; report each missing segment in it as a range of its own."""
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
        """Return the missing or unreadable segments between ``start`` and ``stop``."""
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
                f"the file has a wrong name: its records say that it begins at log offset "
                f"{claimed}. Rename it to {formats.offset_to_file_name(claimed)}, or move it away"
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
        """Return the commands that rename all misnamed segments."""
        files = self.log.queue.files
        claims = {file.file_from_offset: self._claimed_by(file.file_from_offset) for file in files}
        wrong = {base: start for base, start in claims.items() if start is not None}
        return renaming_in_words(self.log.queue.directory, wrong, set(claims))

    def _note_unseen_holes(self, end: int) -> None:
        """Report the missing segments outside the checked range."""
        known = [(damage.start, damage.stop) for damage in self.report.damaged]
        for start, stop in self.log.holes:
            is_known = any(a <= start < b for a, b in known)
            if (stop <= self._start or start >= end) and not is_known:
                self._note_damage(_OddPlace(start, stop, RecordStatus.EMPTY))
        self.report.damaged.sort(key=lambda damage: damage.start)


def _last_plausible_time(last: int, previous: int | None) -> int | None:
    """Return the store time of the last record.

    If it is so far after the previous record's that it may be damaged, return the previous one.
    """
    if previous is not None and 0 < previous < min(last - _FAR_AHEAD_MS, LAST_TIME):
        return previous
    return last if last < LAST_TIME else None
