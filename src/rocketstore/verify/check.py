"""``verify``: check every record, queue unit and index entry against the log. Read-only."""

from __future__ import annotations

import bisect
import contextlib
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rocketstore import formats
from rocketstore.arguments import Progress
from rocketstore.files.forward_pages import ForwardPages
from rocketstore.index.index_service import IndexService
from rocketstore.log.commit_log import CommitLog, describe
from rocketstore.log.damage import DamagedRange
from rocketstore.log.scan import LogScan, RecordBatch, find_next_record, has_content
from rocketstore.queues.queue_table import QueueTable
from rocketstore.status import RecordFlags, RecordStatus
from rocketstore.survey.salvage_traces import SalvageTraces, salvage_notes
from rocketstore.verify.beside.findings import begin_surroundings, finish_surroundings
from rocketstore.verify.lots import LogReader
from rocketstore.verify.notes import write_notes
from rocketstore.verify.report import LEVELS, VerifyReport
from rocketstore.verify.scope import VerifyScope

if TYPE_CHECKING:
    from rocketstore.files.mapped_file import MappedFile
    from rocketstore.verify.beside.surroundings import Surroundings
    from rocketstore.verify.gathering import QueuedRecords, RowCounts
    from rocketstore.verify.index import IndexCheck
    from rocketstore.verify.index_entries import BatchKeys, KeysAhead
    from rocketstore.verify.queues import QueuesCheck

#: Records per batch.
_BATCH_COUNT = 4096


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
    crc_offset: int | None = None,
    releases_pages: bool = False,
    jobs: int = 1,
    progress: Progress | None = None,
    max_findings: int = 1000,
) -> VerifyReport:
    """Check a store's log, queues and index against each other.

    Parameters
    ----------
    log, queues, index
        The opened parts; ``index`` is ``None`` if the store has none.
    queues_in_files : bool
        Whether the queues have files to be checked.
    delay_ms : tuple of int
        Delay levels, for the deliver times of delayed messages.
    dispatched_offset, indexed_offset : int or None
        Records from here on may lack their units and keys (``None``: none may).
    damaged : sequence of DamagedRange
        What recovery found; ranges past the log's end become findings too.
    around : Surroundings, optional
        Tables, checkpoint and folders, to be judged as well.
    level : str
        ``"structure"``: lengths, offsets and references. ``"crc"``: every body's CRC as well.
    crc_offset : int or None
        At the level ``structure``, bodies' CRCs are checked from this log offset on.
    releases_pages : bool
        The log's mappings are read by nothing else: release the pages that were walked.
    jobs : int
        From 2 on, as many threads (at most 8) read the log ahead of the comparisons. The report is
        the same.
    progress : callable or None
        ``progress(what, done, total)``, in bytes of the log, then in index files.
    max_findings : int
        Findings that are listed; all are counted.

    Returns
    -------
    VerifyReport

    Raises
    ------
    ValueError
        For an unknown level.

    Notes
    -----
    Memory is bounded by a batch of the log, half a million units and a chunk of each index file. An
    index file whose entries are out of order is read into memory as a whole.
    """
    if level not in LEVELS:
        raise ValueError(f"level must be one of {LEVELS}, not {level!r}")
    began = time.monotonic()
    report = VerifyReport(level=level, max_findings=max_findings)
    scope = VerifyScope(log, report, queues.directory.parent)
    if around is not None:
        begin_surroundings(around, scope)
    report.log_start, report.log_end = scope.start, scope.stop
    check_segments(scope)
    damaged = note_another_log(scope, damaged)
    note_lost_end(scope, damaged)
    note_misnamed(scope, damaged)
    check = _StoreCheck(
        scope, queues, index, delay_ms, progress, crc_offset, queues_in_files=queues_in_files
    )
    check.pages = ForwardPages() if releases_pages else None
    check.jobs = jobs
    check.run(
        scope.stop if dispatched_offset is None else dispatched_offset,
        scope.stop if indexed_offset is None else indexed_offset,
    )
    note_unseen_damage(scope, damaged)
    note_tail(scope, damaged)
    if around is not None:
        finish_surroundings(around, scope, queues if queues_in_files else None, check.queue_ends, 0)
        for note in salvage_notes(around.paths.root, check.traces):
            report.remark(note.text, "store.salvaged" if note.is_loss else "", count=note.number)
    report.notes += scope.before.notes(scope.start)
    for name in ("expired_units", "expired_keys"):
        scope.counts.pop(name, None)  # included in that note
    note_foreign(scope)
    write_notes(report, scope.counts)
    report.damaged = scope.damaged()
    report.duration_s = time.monotonic() - began
    return report


def note_another_log(scope: VerifyScope, damaged: Sequence[DamagedRange]) -> Sequence[DamagedRange]:
    """Report a log that is another store's; return the other damage."""
    for one in damaged:
        if one.is_another_log:
            scope.report.add("another-log", scope.log.queue.directory, 0, None, one.reason)
    return [one for one in damaged if not one.is_another_log]


def note_lost_end(scope: VerifyScope, damaged: Sequence[DamagedRange]) -> None:
    """Note the damage past the log's end, so that its units and keys are not listed one by one."""
    size = scope.log.segment_size
    for one in damaged:
        if one.start >= scope.stop:
            # A truncated file has lost the bytes past its end, too.
            scope.note_damage(one.start, max(one.stop, one.start - one.start % size + size))


def note_misnamed(scope: VerifyScope, damaged: Sequence[DamagedRange]) -> None:
    """Report segments with wrong names, and let the walk skip them.

    Their records are complete, but all at wrong offsets.
    """
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
            f"it is likely another store's: none of the {count:,} units that name it fits a record"
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
                reason += ": the bytes past them belong to no segment, and no broker starts"
            position = min(nbytes, size)
            offset = file.file_from_offset + position
            scope.report.add("log-file", file.path, position, offset, reason)


def _nbytes_on_disk(file: MappedFile) -> int:
    """Return the file's size on disk; of a file that is too long, only a segment is mapped."""
    try:
        return os.stat(file.path).st_size
    except FileNotFoundError:  # the writer has deleted it
        return file.file_size


class _Preparer:
    """Derives from batches what the checks need: all for which the log's bytes are read."""

    def __init__(self, index: IndexCheck | None) -> None:
        self._keys: KeysAhead | None = None if index is None else index.keys_ahead()
        self.begin_anew()

    def prepare(self, batch: RecordBatch) -> tuple[RowCounts, QueuedRecords, BatchKeys | None]:
        """Return counts, the records with units, and the keys of a batch."""
        return *self._reader.read(batch), None if self._keys is None else self._keys.of(batch)

    def begin_anew(self) -> None:
        """Number the queues from 0 again."""
        from rocketstore.verify.gathering import BatchReader

        self._reader = BatchReader()


class _StoreCheck:
    """Walk along the log, and pass every batch to the checks of queues and index."""

    def __init__(
        self,
        scope: VerifyScope,
        queues: QueueTable,
        index: IndexService | None,
        delay_ms: tuple[int, ...],
        progress: Progress | None,
        crc_offset: int | None,
        *,
        queues_in_files: bool,
    ) -> None:
        self._crc_offset = 2**63 - 1 if crc_offset is None else crc_offset
        self.pages: ForwardPages | None = None
        self.jobs = 1
        self._queues_in_files = queues_in_files
        self._scope = scope
        self._queues = queues
        self._index = index
        self._delay_ms = delay_ms
        self._progress = progress
        self._last_timestamp: int | None = None
        self.traces = SalvageTraces()
        #: Next queue offset by (topic, queue id), according to the records.
        self.queue_ends: dict[tuple[str, int], int] = {}
        self._property_crcs: dict[int, tuple[int, list[int]]] = {}

    def run(self, dispatched_offset: int, indexed_offset: int) -> None:
        """Walk the log; add findings and counts to the scope's report."""
        from rocketstore.verify.batch_queues import BatchQueuesCheck
        from rocketstore.verify.index import IndexCheck
        from rocketstore.verify.queues import QueuesCheck

        scope = self._scope
        queues = batch_queues = None
        if self._queues_in_files:
            batch_queues = BatchQueuesCheck(scope, self._queues, dispatched_offset)
            queues = QueuesCheck(scope, self._queues, dispatched_offset, batch_queues.take)
        index = None
        if self._index is not None:
            index = IndexCheck(scope, self._index, self._delay_ms, indexed_offset)
        self._walk(queues, index)
        self._report("check log", scope.stop)
        self._judge_property_crcs()
        if queues is not None and batch_queues is not None:
            queues.finish()
            batch_queues.finish()
            self.queue_ends = {**queues.ends(), **batch_queues.ends()}
        if index is not None:
            index.finish(self._progress)

    def _walk(self, queues: QueuesCheck | None, index: IndexCheck | None) -> None:
        """Pass every batch of the log to the checks, and report what is no record."""
        scope = self._scope
        reader = LogReader(scope.log, self._scan, lambda: _Preparer(index), self.pages, self.jobs)
        offset = scope.start
        while offset < scope.stop:
            edges = [*scope.hidden, *([self._crc_offset] if offset < self._crc_offset else [])]
            stop = min([scope.stop, *(edge for edge in edges if edge > offset)])
            with contextlib.closing(reader.read(offset, stop)) as batches:
                for batch, (counts, queued, keys) in batches:
                    self._take(batch, counts)
                    if queues is not None:
                        queues.take(batch, counts, queued)
                    if index is not None:
                        index.take(batch, keys)
                    self._report("check log", batch.window.base_offset + batch.last()["position"])
            offset = reader.offset
            if offset >= scope.stop:
                break
            if reader.status == RecordStatus.END and offset == stop == self._crc_offset:
                continue
            offset = self._pass_damage(offset, reader.status)
        if self.pages is not None:
            self.pages.release()

    def _scan(self, start: int, stop: int) -> LogScan:
        """Return the scan of a range that is, as a whole, before or after ``crc_offset``."""
        return LogScan(
            self._scope.log, start, stop, self._flags(has_crc=start >= self._crc_offset),
            self._delay_ms, _BATCH_COUNT, releases_pages=self.pages is None,
        )  # fmt: skip

    def _flags(self, *, has_crc: bool) -> int:
        flags = int(RecordFlags.PARSE_PROPERTIES)
        if has_crc or self._scope.report.level == "crc":
            flags |= self._scope.log.record_flags | RecordFlags.REPORT_PROPERTY_CRC
        return flags

    def _report(self, what: str, offset: int) -> None:
        if self._progress is not None:
            start = self._scope.start
            self._progress(what, offset - start, self._scope.stop - start)

    def _take(self, batch: RecordBatch, counts: RowCounts) -> None:
        scope = self._scope
        for name in _ODD_RECORDS:
            scope.counts[name] += getattr(counts, name)
        scope.report.records += counts.records
        scope.report.nbytes += counts.nbytes
        if counts.records:
            scope.newest = max(scope.newest, counts.newest)
            scope.counts["backward_times"] += counts.backward
            if self._last_timestamp is not None and counts.first < self._last_timestamp:
                scope.counts["backward_times"] += 1
            self._last_timestamp = counts.last
        if counts.rolled_back or counts.short_bodies:
            self.traces.take(batch)
        if counts.judged_crcs:
            self._take_property_crcs(batch)

    def _take_property_crcs(self, batch: RecordBatch) -> None:
        states = batch.columns["property_crc"]
        segment = batch.window.base_offset
        valid, wrong = self._property_crcs.setdefault(segment, (0, []))
        wrong += batch.columns["physical_offset"][states == 2].tolist()
        self._property_crcs[segment] = (valid + int((states == 1).sum()), wrong)

    def _judge_property_crcs(self) -> None:
        """Report invalid property CRCs in segments where other records have valid ones."""
        for valid, wrong in self._property_crcs.values():
            if not valid:
                self._scope.counts["foreign_property_crcs"] += len(wrong)
                continue
            for offset in wrong:
                self._add_damage(offset, RecordStatus.BAD_PROPERTY_CRC, "")

    def _pass_damage(self, offset: int, status: RecordStatus) -> int:
        """Report the damage at ``offset``; return the offset of the next good record."""
        scope = self._scope
        if offset in scope.hidden:
            return min(scope.hidden[offset], scope.stop)  # already reported
        missing = scope.log.window(offset, scope.stop) is None
        following = find_next_record(scope.log, offset if missing else offset + 1)
        stop = scope.stop if following is None else min(following, scope.stop)
        stop = min([stop, *(start for start in scope.hidden if start > offset)])
        scope.note_damage(offset, stop)
        where = f"; {stop - offset} bytes are lost, " + (
            "nothing good follows" if following is None else f"log offset {stop} is good again"
        )
        if missing:
            name = formats.offset_to_file_name(offset - offset % scope.log.segment_size)
            reason = f"log offset {offset}: the segment {name} is missing" + where
            scope.report.add(
                "record", scope.log.queue.directory / name, 0, offset, reason,
                code="log.segment.missing",
            )  # fmt: skip
            scope.reported.add(offset)
        else:
            self._add_damage(offset, status, where)
        return stop

    def _add_damage(self, offset: int, status: RecordStatus, where: str) -> None:
        path, position = self._scope.place(offset)
        self._scope.reported.add(offset)
        reason = describe(status, offset) + where
        self._scope.report.add(
            "record", path, position, offset, reason, code=_CODES.get(status, "log.record.shape")
        )


#: The codes of damaged records; others are ``log.record.shape``.
_CODES = {
    RecordStatus.EMPTY: "log.record.zeros",
    RecordStatus.BAD_BODY_CRC: "log.record.crc",
    RecordStatus.BAD_PROPERTY_CRC: "log.record.crc",
}
#: Damage that is detected without reading bodies.
_OF_PLACES = (RecordStatus.BAD_PHYSICAL_OFFSET, RecordStatus.GHOST, RecordStatus.EMPTY)
_ODD_RECORDS = ("ghosts", "nul_properties", "unsafe_topics")


def note_unseen_damage(scope: VerifyScope, damaged: Sequence[DamagedRange]) -> None:
    """Report damage that recovery detected but that the walk does not meet.

    An example is a segment with a wrong name, whose records are complete.
    """
    reported = [(at, at + 1) for at in scope.reported]
    stretches = sorted([*reported, *scope.damaged(), *scope.hidden.items()])
    for one in damaged:
        number = bisect.bisect_left(stretches, (one.stop, 0)) - 1
        if one.start >= scope.stop or (number >= 0 and stretches[number][1] > one.start):
            continue
        if scope.report.level == "crc" or scope.log.damage.get(one.start) in _OF_PLACES:
            code = _code_of(scope, one)
            scope.report.add("record", one.path, one.position, one.start, one.reason, code=code)


def _code_of(scope: VerifyScope, one: DamagedRange) -> str:
    """Return the code of damage that recovery detected."""
    if not os.path.lexists(one.path):
        return "log.segment.missing"
    status = scope.log.damage.get(one.start)
    return "log.record.shape" if status is None else _CODES.get(status, "log.record.shape")


def note_tail(scope: VerifyScope, damaged: Sequence[DamagedRange]) -> None:
    """Report the bytes past the log's end: damage that recovery detected, or a torn write."""
    past = [one for one in damaged if one.start >= scope.stop]
    for one in past:
        if one.start in scope.hidden:
            continue  # already reported
        code = _code_of(scope, one)
        scope.report.add("record", one.path, one.position, one.start, one.reason, code=code)
    if not past and scope.log.queue.last() is not None and has_content(scope.log, scope.stop):
        path, position = scope.place(scope.stop)
        text = (
            f"bytes past the log's end {scope.stop} ({path} at position {position}): a torn "
            "write, or a writer has appended since"
        )
        scope.report.remark(text, "log.torn", path)
