"""Finds records that one wrong bit moved to another place: in a field that no checksum covers.

The CRC of a record covers its body. A wrong bit in its topic, queue id, queue offset or transaction
type leaves a complete record, and a gap in the queue from which it came.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from rocketstore import formats, kernels
from rocketstore.log.commit_log import CommitLog
from rocketstore.log.continuity import QueueRuns, good_batches, queue_places
from rocketstore.log.scan import NO_UNIT, OF_A_QUEUE, LogScan, RecordBatch
from rocketstore.queues.batch_consume_queue import BatchConsumeQueue
from rocketstore.status import RecordStatus

if TYPE_CHECKING:
    from rocketstore.log.damage import DamagedRange
    from rocketstore.queues.consume_queue import ConsumeQueue
    from rocketstore.queues.queue_table import QueueTable

_HEAD = formats.RECORD_HEAD
_GOOD = (*OF_A_QUEUE, RecordStatus.UNSAFE_TOPIC)
#: Most records out of place and most gaps that are remembered; a log with more is damaged in
#: another way.
_MOST_ODD = 100_000
_MOST_GAPS = 1000
#: Most units of one queue or gap that are looked up.
_MOST_UNITS = 1000
_Key = tuple[str, int]


class WrongBit(NamedTuple):
    """One bit of a record that must be inverted.

    Attributes
    ----------
    record : int
        Log offset of the record.
    at : int
        Log offset of the byte.
    mask : int
        The bit.
    field : str
        What it belongs to.
    topic, queue_id, queue_offset
        The record's true place.
    """

    record: int
    at: int
    mask: int
    field: str
    topic: str
    queue_id: int
    queue_offset: int

    @property
    def place(self) -> tuple[str, int, int]:
        """Topic, queue id and queue offset."""
        return self.topic, self.queue_id, self.queue_offset

    @property
    def sentence(self) -> str:
        """What is wrong, in words."""
        return (
            f"the record at log offset {self.record} has one wrong bit in its {self.field}; it is "
            f"queue offset {self.queue_offset} of {self.topic} queue {self.queue_id}"
        )


class _Record(NamedTuple):
    """A record's fields that no checksum covers."""

    topic: bytes
    queue_id: int
    queue_offset: int
    sys_flag: int
    offset: int
    nbytes: int
    topic_at: int

    def wrong_bit(self, topic: str, queue_id: int, queue_offset: int) -> WrongBit | None:
        """Return the bit that keeps the record from this place, if it is one bit."""
        name = _name(topic)
        if len(name) != len(self.topic):
            return None
        fields = (
            ("topic", self.topic, name, self.topic_at),
            ("queue id", *_as_bytes("queue_id", self.queue_id, queue_id)),
            ("queue offset", *_as_bytes("queue_offset", self.queue_offset, queue_offset)),
            ("transaction type", *_as_bytes("sys_flag", self.sys_flag, _with_unit(self.sys_flag))),
        )
        found: WrongBit | None = None
        for what, has, wants, at in fields:
            if has == wants:
                continue
            for number, (one, other) in enumerate(zip(has, wants, strict=True)):
                if not (mask := one ^ other):
                    continue
                if found is not None or mask.bit_count() != 1:
                    return None
                place = self.offset + at + number
                found = WrongBit(self.offset, place, mask, what, topic, queue_id, queue_offset)
        return found


def _name(topic: str) -> bytes:
    return topic.encode(errors="surrogateescape")


def _as_bytes(name: str, has: int, wants: int) -> tuple[bytes, bytes, int]:
    nbytes = 8 if name == "queue_offset" else 4
    pair = (one.to_bytes(nbytes, "big", signed=True) for one in (has, wants))
    return *pair, _HEAD.at(name)  # type: ignore[return-value]


def _with_unit(sys_flag: int) -> int:
    """Return the flag with the nearest transaction type whose records are in a queue."""
    kind = sys_flag & formats.SYS_FLAG_TRANSACTION_MASK
    if kind == formats.SYS_FLAG_TRANSACTION_PREPARED:
        return sys_flag & ~formats.SYS_FLAG_TRANSACTION_MASK
    if kind == formats.SYS_FLAG_TRANSACTION_ROLLBACK:
        return sys_flag & ~formats.SYS_FLAG_TRANSACTION_MASK | formats.SYS_FLAG_TRANSACTION_COMMIT
    return sys_flag


class _Gap(NamedTuple):
    """Missing queue offsets between two records of a queue, ``low`` and ``high`` in the log."""

    topic: str
    queue_id: int
    numbers: range
    low: int
    high: int


@dataclass
class _Queue:
    """A queue as the records show it so far.

    ``odd``: the last record, if it does not continue the one before it. ``before``: where the queue
    was before that record: next queue offset, log offset and number of the gap. ``first``,
    ``last``: queue offsets of the first and the last record.
    """

    end: int
    place: int
    first: int
    last: int
    odd: int | None = None
    before: tuple[int, int, int] | None = None


@dataclass
class Survey:
    """Follows all queues through the log and collects gaps and records out of place."""

    queues: dict[_Key, _Queue] = field(default_factory=dict)
    gaps: list[_Gap | None] = field(default_factory=list)
    #: By log offset.
    odd: dict[int, _Record] = field(default_factory=dict)
    #: Log offsets of records whose place another one claims, too.
    contested: set[int] = field(default_factory=set)
    _runs: QueueRuns = field(default_factory=QueueRuns)

    @classmethod
    def of(cls, log: CommitLog) -> Survey:
        """Follow all good records of a log."""
        survey = cls()
        for batch in _batches(log):
            survey.take(batch)
        return survey

    def lacks(self, topic: str, queue_id: int, queue_offset: int, offset: int) -> bool:
        """Return whether a queue lacks a record that would be at this offset of the log."""
        queue = self.queues.get((topic, queue_id))
        if queue is None or (queue_offset == queue.end and offset > queue.place):
            return True
        if queue_offset < queue.first:
            return queue_offset + 1 == queue.first
        return any(
            gap is not None and gap[:2] == (topic, queue_id) and queue_offset in gap.numbers
            and gap.low < offset < gap.high
            for gap in self.gaps
        )  # fmt: skip

    def take(self, batch: RecordBatch) -> None:
        """Follow the records of a batch."""
        if self._take_orderly(batch):
            return
        columns = batch.columns
        kind = columns["sys_flag"] & formats.SYS_FLAG_TRANSACTION_MASK
        is_odd = columns["status"] == RecordStatus.UNSAFE_TOPIC
        for one in NO_UNIT:
            is_odd |= kind == one
        for number in is_odd.nonzero()[0].tolist():
            self._add(batch, number)
        offsets = columns["physical_offset"]
        for place in queue_places(batch):
            key, at = place[:2], place.physical_offset
            if self._follow(key, place.queue_offset, place.next_queue_offset, at):
                self._add(batch, int(offsets.searchsorted(at)))

    def _take_orderly(self, batch: RecordBatch) -> bool:
        """Follow a batch whose records all continue known queues; else return False."""
        runs = self._runs.of(batch)
        if runs is None:
            return False
        known = [self.queues.get(run.queue) for run in runs]
        queues = [queue for queue in known if queue is not None]
        if [queue.end for queue in queues] != [run.first for run in runs]:
            return False
        for queue, run in zip(queues, runs, strict=True):
            if queue.odd is not None:  # two records agree
                self.odd.pop(queue.odd, None)
            queue.end, queue.place = run.following, run.place
            queue.last, queue.odd = run.following - 1, None
        return True

    def _add(self, batch: RecordBatch, number: int) -> None:
        if len(self.odd) < _MOST_ODD:
            record = _record_of(batch, number)
            self.odd[record.offset] = record

    def _follow(self, key: _Key, number: int, following: int, at: int) -> bool:
        """Follow one record; return whether it does not continue its queue."""
        queue = self.queues.get(key)
        if queue is None:
            self.queues[key] = _Queue(following, at, number, number, at)
            return True
        if number == queue.end:
            if queue.odd is not None:  # two records agree
                self.odd.pop(queue.odd, None)
            queue.end, queue.place, queue.last, queue.odd = following, at, number, None
            return False
        if number > queue.end:
            queue.before = queue.end, queue.place, len(self.gaps)
            if len(self.gaps) < _MOST_GAPS:
                self.gaps.append(_Gap(*key, range(queue.end, number), queue.place, at))
        elif queue.before is not None and number >= queue.before[0]:
            # Not this record is wrong, but the one before it.
            end, place, gap = queue.before
            if gap < len(self.gaps):
                lacking = _Gap(*key, range(end, number), place, at)
                self.gaps[gap] = lacking if number > end else None
            queue.before = None
        elif number < queue.last:
            return True
        else:  # of two records for one place either may be wrong
            if len(self.contested) < _MOST_ODD:
                self.contested |= {queue.place, at}
            return False
        queue.end, queue.place, queue.last, queue.odd = following, at, number, at
        return True


def _record_of(batch: RecordBatch, number: int) -> _Record:
    row = batch.row(number)
    start = row["position"] + row["topic_at"]
    topic = bytes(batch.window.buffer[start : start + row["topic_nbytes"]])
    return _Record(
        topic, row["queue_id"], row["queue_offset"], row["sys_flag"], row["physical_offset"],
        row["total_size"], row["topic_at"],
    )  # fmt: skip


def find_wrong_bits(
    log: CommitLog,
    queues: QueueTable,
    damaged: Sequence[DamagedRange],
    *,
    is_orderly_stop: bool,
) -> list[WrongBit]:
    """Find complete records with a wrong bit in topic, queue id, queue offset or transaction type.

    Such a record fills a gap of its true queue but for one bit. Besides, the queue's old unit names
    it, or it is between the gap's neighbours in the log; and it does not fit where it claims to be.

    Parameters
    ----------
    log : CommitLog
        Its end is known.
    queues : QueueTable
        As the files have them.
    damaged : sequence of DamagedRange
        Ranges that are replaced as a whole.
    is_orderly_stop : bool
        The store was closed in order.

    Returns
    -------
    list of WrongBit
        Ascending by record; at most one of each.
    """
    if _is_orderly(log, queues):
        return []
    survey = Survey.of(log)
    out_of_place = survey.odd.keys() | survey.contested
    named = _by_record(
        one for one in _named_by_units(log, queues, survey, is_orderly_stop=is_orderly_stop)
        if one.record in out_of_place
    )  # fmt: skip
    fitting = _by_record(_fitting(survey))
    # Two places for one record, or two records for one place, are no evidence.
    sure = [bits.pop() for bits in (fitting | named).values() if len(bits) == 1]
    claims = Counter(one.place for one in sure)
    return sorted(
        one for one in sure
        if claims[one.place] == 1
        and not any(part.start <= one.record < part.stop for part in damaged)
    )  # fmt: skip


def _by_record(bits: Iterable[WrongBit]) -> dict[int, set[WrongBit]]:
    found: dict[int, set[WrongBit]] = {}
    for one in bits:
        found.setdefault(one.record, set()).add(one)
    return found


def _batches(log: CommitLog) -> Iterator[RecordBatch]:
    return good_batches(log, max(log.min_offset, 0), log.max_offset)


def _is_orderly(log: CommitLog, queues: QueueTable) -> bool:
    """Return whether the queue offsets have no gap, and the units end where the records do."""
    offsets = kernels.passes_rows.QueueOffsets()
    if not all(batch.follow(offsets) for batch in _batches(log)):
        return False
    ends = offsets.ends()
    return not any(
        any(_units_past_end(log, queue, ends)) or _begins_elsewhere(log, queue)
        for queue in _plain(queues)
    )


def _begins_elsewhere(log: CommitLog, queue: ConsumeQueue) -> bool:
    """Return whether a queue's first unit names a record of another place."""
    unit = queue.unit(queue.min_index)
    if unit is None or not log.min_offset <= unit[0] < log.max_offset:
        return False
    record = _read(log, unit[0])
    place = _name(queue.topic), queue.queue_id, queue.min_index
    return record is not None and record[:3] != place


def _plain(queues: Iterable[ConsumeQueue]) -> Iterator[ConsumeQueue]:
    return (
        one for one in queues if not one.is_light and not isinstance(one, BatchConsumeQueue)
    )  # fmt: skip


def _units_past_end(
    log: CommitLog, queue: ConsumeQueue, ends: dict[_Key, int]
) -> Iterator[tuple[int, tuple[int, int, int]]]:
    """Yield queue offsets and units that follow a queue's last record, but name the log."""
    end = ends.get((queue.topic, queue.queue_id), queue.min_index)
    stop = queue.recovered_index
    for number in range(stop - 1, max(end, stop - _MOST_UNITS) - 1, -1):
        unit = queue.unit(number)
        if unit is None or unit[0] < log.min_offset:
            return
        if unit[0] < log.max_offset:
            yield number, unit


def _named_by_units(
    log: CommitLog, queues: QueueTable, survey: Survey, *, is_orderly_stop: bool
) -> Iterator[WrongBit]:
    """Yield the wrong bits of records that the unit of a missing queue offset names.

    Past a queue's last record a unit may be stale after a crash: the log was written again there.
    """
    ends = {key: queue.end for key, queue in survey.queues.items()}
    for queue in _plain(queues):
        for number, unit in _units_past_end(log, queue, ends) if is_orderly_stop else ():
            yield from _bit_at(log, unit, queue, number)
        known = survey.queues.get((queue.topic, queue.queue_id))
        first = known.first if known is not None else queue.min_index
        for number in range(queue.min_index, first)[:_MOST_UNITS]:
            early = queue.unit(number)
            if early is not None and log.min_offset <= early[0] < log.max_offset:
                yield from _bit_at(log, early, queue, number)
    for gap in survey.gaps:
        queue_of_gap = None if gap is None else queues.get(*gap[:2])
        if gap is None or queue_of_gap is None or not any(_plain([queue_of_gap])):
            continue
        for number in gap.numbers[:_MOST_UNITS]:
            found = queue_of_gap.unit(number)
            if found is not None and gap.low < found[0] <= gap.high:
                yield from _bit_at(log, found, queue_of_gap, number)


def _bit_at(
    log: CommitLog, unit: tuple[int, int, int], queue: ConsumeQueue, number: int
) -> Iterator[WrongBit]:
    record = _read(log, unit[0])
    if record is not None and record.nbytes == unit[1]:
        bit = record.wrong_bit(queue.topic, queue.queue_id, number)
        if bit is not None:
            yield bit


def _read(log: CommitLog, offset: int) -> _Record | None:
    for batch in LogScan(log, offset, log.max_offset, log.record_flags, capacity=1):
        return _record_of(batch, 0) if batch.row(0)["status"] in _GOOD else None
    return None


def _fitting(survey: Survey) -> Iterator[WrongBit]:
    """Yield the wrong bits of records out of place that a gap around them lacks."""
    by_key: dict[tuple[int, int], list[_Gap]] = {}
    for gap in survey.gaps:
        if gap is not None:
            by_key.setdefault((len(_name(gap.topic)), gap.queue_id), []).append(gap)
    for record in survey.odd.values():
        for queue_id in (record.queue_id, *_one_bit_from(record.queue_id, 32)):
            for gap in by_key.get((len(record.topic), queue_id), ()):
                if gap.low < record.offset < gap.high:
                    yield from _bits_for(record, gap)


def _bits_for(record: _Record, gap: _Gap) -> Iterator[WrongBit]:
    for number in (record.queue_offset, *_one_bit_from(record.queue_offset, 64)):
        if number in gap.numbers:
            bit = record.wrong_bit(gap.topic, gap.queue_id, number)
            if bit is not None:
                yield bit


def _one_bit_from(value: int, width: int) -> Iterator[int]:
    """Yield the signed integers of ``width`` bits that differ in one bit."""
    yield from (value ^ 1 << bit for bit in range(width - 1))
    yield value ^ -(1 << width - 1)
