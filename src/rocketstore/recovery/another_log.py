"""Detect a log that belongs to another store, which must not be opened with these queues."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from rocketstore import formats
from rocketstore.log.commit_log import CommitLog
from rocketstore.log.continuity import good_batches
from rocketstore.log.damage import DamagedRange
from rocketstore.queues.batch_consume_queue import BatchConsumeQueue
from rocketstore.recovery.orderly_stop import OrderlyStop
from rocketstore.recovery.report import RecoveryReport
from rocketstore.recovery.written_units import written_units
from rocketstore.status import RecordStatus
from rocketstore.survey.lost_log import ELSEWHERE
from rocketstore.survey.salvage_traces import find_traces

if TYPE_CHECKING:
    from rocketstore.message import StoredMessage
    from rocketstore.queues.consume_queue import ConsumeQueue
    from rocketstore.survey.facts import StoreFacts

#: Queues and units that are checked.
_MOST_QUEUES = 256
_MOST_UNITS = 100
#: Newest units checked of each queue.
_NEWEST = 3
#: Units checked of each queue, spread over its length.
_SPREAD = 6
#: Segments that are searched for traces of a salvage.
_MOST_SEGMENTS = 4
#: Fewer units that name no record of their queue prove nothing.
_LEAST_UNITS = 3
_COMPLETE = (RecordStatus.OK, RecordStatus.NUL_PROPERTIES, RecordStatus.UNSAFE_TOPIC)
#: Statuses that are possible at an offset where the log once ended.
_ENDS = (*_COMPLETE, RecordStatus.BLANK, RecordStatus.GHOST)


class _Unit(NamedTuple):
    """A unit, and the range of the log that it names."""

    queue: ConsumeQueue
    number: int
    start: int
    end: int


def note_another_log(
    log: CommitLog, facts: StoreFacts, report: RecoveryReport, queues: Iterable[ConsumeQueue]
) -> None:
    """Report a log that is another store's, as the first damaged range.

    Parameters
    ----------
    log : CommitLog
        Recovered, with the result in ``report``.
    facts : StoreFacts
    report : RecoveryReport
    queues : iterable of ConsumeQueue
        With loaded files.
    """
    state = facts.valid_state
    if report.log_end <= max(log.min_offset, 0):
        return
    if state is not None and not facts.aborted and not state.clean:
        return  # a salvage or a recovery wrote it, after which all units are rebuilt
    witnesses = _Witnesses(log, facts, report, list(queues))
    why = witnesses.against()
    if why is None or (not facts.aborted and not OrderlyStop(facts, log).still_holds()):
        return
    paths = facts.paths
    reason = (
        f"the log in {paths.commit_log} is another store's: {why}. Check whether another disk is "
        f"mounted in its place; mount this store's own log, or {ELSEWHERE}. Nothing was changed. "
        f"To keep this log, move {formats.CONSUME_QUEUE_DIR}, {formats.BATCH_QUEUE_DIR}, "
        f"{formats.INDEX_DIR}, {formats.CHECKPOINT_FILE} and {formats.STATE_FILE} away; they are "
        "rebuilt from it"
    )
    end = report.log_end
    log.damage.setdefault(end, RecordStatus.EMPTY)
    log.reasons[end] = reason
    # A missing end after it was derived from the other log's durable offset.
    damaged = [one for one in report.damaged if one.start < end]
    path = str(log.queue.files[0].path)
    report.damaged = [DamagedRange(path, 0, end, end, reason, is_another_log=True), *damaged]


class _Witnesses:
    """Evidence for and against the log being this store's."""

    def __init__(
        self, log: CommitLog, facts: StoreFacts, report: RecoveryReport, queues: list[ConsumeQueue]
    ) -> None:
        self._log = log
        self._facts = facts
        self._report = report
        self._start = max(log.min_offset, 0)
        # Batch queues have other units; a light queue's messages have other topics.
        self._queues = [
            queue
            for queue in queues
            if not isinstance(queue, BatchConsumeQueue) and not queue.is_light
        ]

    def against(self) -> str | None:
        """Return why it is another store's log; ``None`` if it is, or may be, this store's."""
        physic = self._facts.checkpoint.physic_timestamp
        # True after every orderly stop.
        is_timed = not self._facts.aborted and 0 < physic == self._report.newest_store_timestamp
        if self._mark_is_off():
            newest = self._newest_unit()
            if is_timed if newest is None else self._fits(newest) is not False:
                return None
            state = self._facts.state
            return (
                f"{self._facts.paths.state} says that the log was on disk up to offset "
                f"{0 if state is None else state.flushed_offset}, where no record of this log "
                "begins or ends"
            )
        if is_timed:
            return None
        misfits: list[_Unit] = []
        for unit in self._sample(_newest_of):
            fits = self._fits(unit)
            if fits:
                return None
            if fits is False:
                misfits.append(unit)
        misfits = self._without_salvaged(misfits)
        queues = {(unit.queue.topic, unit.queue.queue_id) for unit in misfits}
        if len(misfits) < _LEAST_UNITS or self._has_own_segment(misfits):
            return None
        if not self._speaks_against(len(queues)):
            return None
        return (
            f"none of the {len(misfits)} newest units of {len(queues)} queues that name offsets "
            "in it names a record of its queue"
        )

    def _has_own_segment(self, misfits: list[_Unit]) -> bool:
        """Return whether a segment fits the units that name it.

        Then only other segments are not this store's.
        """
        size = self._log.segment_size
        bad = {unit.start // size for unit in misfits}
        good = set[int]()
        for unit in self._sample(_spread_over):
            fits = self._fits(unit)
            if fits is not None:
                (good if fits else bad).add(unit.start // size)
        return bool(good - bad)

    def _speaks_against(self, queue_count: int) -> bool:
        """Return whether the checkpoint or older units speak against the log, too.

        The checkpoint does if no record has its time of the log. If that record may have expired,
        older units of several queues must not fit.
        """
        physic = self._facts.checkpoint.physic_timestamp
        start, end = self._start, self._report.log_end
        first = next(good_batches(self._log, start, end, 1), None)
        if first is None:
            return False
        if physic <= 0 or physic < first.columns["store_timestamp"][0]:
            older = self._sample(_spread_over)
            return queue_count > 1 and not any(self._fits(unit) for unit in older)
        if not self._facts.aborted:
            return True  # after an orderly stop, the newest record would have this time
        batches = good_batches(self._log, start, end)
        return not any((batch.columns["store_timestamp"] == physic).any() for batch in batches)

    # --- the durable offset -------------------------------------------------------------------

    def _mark_is_off(self) -> bool:
        """Return whether the state file of an orderly stop names an end this log never had."""
        state = self._facts.valid_state
        if state is None or self._facts.aborted or state.flushed_offset <= 0:
            return False
        log, mark = self._log, state.flushed_offset
        if mark < self._start:
            return True  # a segment is deleted only after the next one was synced
        if mark >= self._report.log_end or self._is_damaged(mark):
            return False
        return log.check(mark)[0] not in _ENDS and not log.claims(mark)

    def _is_damaged(self, offset: int) -> bool:
        if self._log.window(offset) is None:
            return True
        return any(one.start <= offset < one.stop for one in self._report.damaged)

    # --- units --------------------------------------------------------------------------------

    def _sample(self, choose: Callable[[int, int], Iterable[int]]) -> Iterator[_Unit]:
        """Yield some units of each queue that name places within the log."""
        count = 0
        for queue in self._queues[:_MOST_QUEUES]:
            first, stop = self._named_range(queue)
            for number in choose(first, stop):
                unit = _unit(queue, number)
                if unit is not None:
                    yield unit
                    count += 1
            if count >= _MOST_UNITS:
                return

    def _newest_unit(self) -> _Unit | None:
        """Return the unit of the newest record that the log may have."""
        newest = None
        for queue in self._queues:
            first, stop = self._named_range(queue)
            unit = _unit(queue, stop - 1) if first < stop else None
            if unit is not None and (newest is None or unit.end > newest.end):
                newest = unit
        return newest

    def _named_range(self, queue: ConsumeQueue) -> tuple[int, int]:
        """Return the range of queue offsets whose units name places within the log."""
        first, stop = written_units(queue)
        end = self._report.log_end
        indexes = range(first, stop)
        first += bisect.bisect_left(indexes, self._start, key=queue.start_of)
        return first, indexes.start + bisect.bisect_left(indexes, end, key=queue.start_of)

    def _fits(self, unit: _Unit) -> bool | None:
        """Return whether the log has the unit's record; ``None`` if unknown."""
        if unit.end > self._report.log_end or self._is_damaged(unit.start):
            return None
        status, message = self._log.record_at(unit.start)
        if status in _COMPLETE and message is not None:
            return _is_of(message, unit)
        return None if self._log.claims(unit.start) else False

    def _without_salvaged(self, units: list[_Unit]) -> list[_Unit]:
        """Return the units of segments without traces of a salvage; check few segments only."""
        size, salvaged, found = self._log.segment_size, dict[int, bool](), list[_Unit]()
        for unit in units:
            base = unit.start - unit.start % size
            if base not in salvaged:
                if len(salvaged) == _MOST_SEGMENTS:
                    continue
                salvaged[base] = bool(find_traces(self._log, base, base + size))
            if not salvaged[base]:
                found.append(unit)
        return found


def _newest_of(first: int, stop: int) -> Iterable[int]:
    return range(max(first, stop - _NEWEST), stop)


def _spread_over(first: int, stop: int) -> Iterable[int]:
    count = stop - first
    return sorted({first + count * number // _SPREAD for number in range(_SPREAD)} if count else ())


def _is_of(message: StoredMessage, unit: _Unit) -> bool | None:
    """Return whether it is the unit's record; ``None`` if it is, but with another length."""
    queue = unit.queue
    if message.topic == queue.topic:
        place = (message.queue_id, message.queue_offset)
        is_it = place == (queue.queue_id, unit.number)
        return None if is_it and message.store_size != unit.end - unit.start else is_it
    others = message.properties.get(formats.PROPERTY_INNER_MULTI_DISPATCH, "")
    return queue.topic in others.split(formats.MULTI_DISPATCH_SEPARATOR)


def _unit(queue: ConsumeQueue, index: int) -> _Unit | None:
    """Return a unit as stored in the files; ``None`` for a filler."""
    start, size, _ = queue.raw_unit(index)
    if start < 0 or not 0 < size < formats.FILLER_UNIT_SIZE:
        return None
    return _Unit(queue, index, start, start + size)
