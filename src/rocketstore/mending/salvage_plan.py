"""Plans a salvage: which ranges of a log are lost, and what replaces them."""

from __future__ import annotations

import bisect
import functools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from rocketstore import formats, kernels
from rocketstore.errors import CorruptMessageError
from rocketstore.log.commit_log import CommitLog
from rocketstore.log.continuity import QueuePlace, QueueRuns, good_batches, queue_places
from rocketstore.queues.batch_consume_queue import BatchConsumeQueue
from rocketstore.status import RecordFlags
from rocketstore.survey.salvage_traces import FILLER_TOPIC, LOST_MARK

if TYPE_CHECKING:
    from rocketstore.log.damage import DamagedRange
    from rocketstore.log.scan import RecordBatch
    from rocketstore.queues.consume_queue import ConsumeQueue
    from rocketstore.queues.queue_table import QueueTable

_MARK_NBYTES = len(LOST_MARK) + 2
#: A broker reads each record into memory when it recovers.
_FILLER_NBYTES = 1 << 20
#: Most bytes that are filled so that the log continues in a segment whose end is lost. If more is
#: lost, the log continues in the next segment.
_MOST_FILLED_NBYTES = 16 << 20
_HOST = "127.0.0.1:0"
_BLANK_NBYTES = formats.BLANK.nbytes


def _properties(*pairs: tuple[str, str]) -> bytes:
    name_end, end = chr(formats.NAME_VALUE_SEPARATOR), chr(formats.PROPERTY_SEPARATOR)
    return "".join(f"{name}{name_end}{value}{end}" for name, value in pairs).encode()


#: Body and properties that make a broker ignore a placeholder in one of its own topics: it drops a
#: delayed message for the half topic, and an operation on no half message needs no work.
_KEPT_CONTENT = {
    formats.TOPIC_SCHEDULE: (
        b"",
        _properties(
            (formats.PROPERTY_REAL_TOPIC, formats.TOPIC_HALF),
            (formats.PROPERTY_REAL_QUEUE_ID, "0"),
        ),
    ),
    formats.TOPIC_OP: (b"-", _properties((formats.PROPERTY_TAGS, "d"))),
}
#: Topics whose consumer in the broker stops at a message that it cannot interpret.
_WITHOUT_PLACEHOLDERS = frozenset({formats.TOPIC_TIMER})
_CHECKED_PROPERTY_CRC = RecordFlags.CHECK_PROPERTY_CRC | RecordFlags.REQUIRE_PROPERTY_CRC


class LostPlace(NamedTuple):
    """A queue offset whose message is lost, and the log offsets between which it was."""

    topic: str
    queue_id: int
    queue_offset: int
    low: int
    high: int


class Placeholder(NamedTuple):
    """An empty message that keeps the queue offset of a lost one."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int


@dataclass
class LostOfTopic:
    """Lost messages of one topic whose queue offsets are known.

    They were stored between ``oldest`` and ``newest`` (epoch ms); ``newest`` is 0 if nothing was
    stored after them.
    """

    topic: str
    count: int = 0
    oldest: int = 0
    newest: int = 0


@dataclass
class Stretch:
    """A lost part of one segment, ``start`` .. ``stop`` in log offsets.

    ``is_end``: no good record follows in the segment; an end-of-segment marker closes it.
    ``is_last``: no good record follows at all; the log continues in the segment, but not before
    ``reached``, the end of the offsets already assigned. ``lacks``: lost messages of this part have
    no placeholder.
    """

    start: int
    stop: int
    is_end: bool
    is_last: bool
    reached: int = 0
    store_timestamp: int = 0
    next_timestamp: int = 0
    property_crc: bool = False
    places: list[LostPlace] = field(default_factory=list)
    used: int = 0
    lacks: bool = False

    @property
    def room(self) -> int:
        """Bytes available for records."""
        return self.stop - self.start - (_BLANK_NBYTES if self.is_end else 0)

    def take(self, place: LostPlace) -> bool:
        """Reserve a placeholder for ``place``.

        Return False if there is no room, or if the message was not in this part.
        """
        if self.stop <= place.low or self.start >= place.high:
            return False
        nbytes = self._least_nbytes(place.topic)
        if self.used + nbytes > self.room:
            return False
        self.used += nbytes
        self.places.append(place)
        return True

    def records(self) -> tuple[list[bytes], list[Placeholder]]:
        """Encode the records of the stretch; without ``is_last`` they fill it completely."""
        sizes = [self._least_nbytes(place.topic) for place in self.places]
        left = self.room - self.used
        has_mark = bool(sizes) and left >= _MARK_NBYTES
        for number in range(len(sizes)):
            if left >= _MARK_NBYTES:
                sizes[number] += _MARK_NBYTES
                left -= _MARK_NBYTES
        least = self._least_nbytes(FILLER_TOPIC[:1])
        if not self.is_last and 0 < left < least and not self.is_end:
            if not sizes:
                raise CorruptMessageError(
                    "the log", self.start, f"a range of {left} bytes is too short for any record"
                )
            sizes[-1] += left
            left = 0
        records, placed, offset = [], [], self.start
        for place, nbytes in zip(self.places, sizes, strict=True):
            records.append(self._placeholder(place, offset, nbytes))
            placed.append(Placeholder(*place[:3], offset))
            offset += nbytes
        if self.is_last:
            left = self.reached - offset
            left = max(left, least) if left > 0 else 0
        if self.is_end and (not self.is_last or left > self._most_filled(offset)):
            room = self.stop - _BLANK_NBYTES - offset
            if room >= least and self.lacks and not has_mark:
                # Leave a trace that messages were lost here.
                whole = least_record_nbytes(FILLER_TOPIC, self.property_crc)
                records.append(self._filler(offset, min(room, whole)))
                offset += len(records[-1])
            blank = self.stop - offset
            records.append(formats.BLANK.struct.pack(blank, formats.BLANK_MAGIC))
            return records, placed
        for nbytes in filler_sizes(left, least):
            records.append(self._filler(offset, nbytes))
            offset += nbytes
        return records, placed

    def _most_filled(self, offset: int) -> int:
        """Return the most bytes that are filled after ``offset``; else the segment is closed."""
        return min(self.stop - _BLANK_NBYTES - offset, _MOST_FILLED_NBYTES)

    def _encode(
        self,
        topic: str,
        queue: tuple[int, int],
        offset: int,
        *,
        body: bytes = b"",
        properties: bytes = b"",
        sys_flag: int = 0,
    ) -> bytes:
        time = self.store_timestamp
        born = formats.LOST_HALF_BORN_TIMESTAMP if topic == formats.TOPIC_HALF else time
        version = 2 if len(topic.encode()) > formats.MAX_TOPIC_LENGTH else 1
        record: bytes = kernels.message.encode_record(
            topic, body, *queue, offset, 0, sys_flag, born, _HOST, time, _HOST, 0, 0, properties,
            version, self.property_crc,
        )  # fmt: skip
        return record

    def _least_nbytes(self, topic: str) -> int:
        return least_record_nbytes(topic, self.property_crc)

    def _placeholder(self, place: LostPlace, offset: int, nbytes: int) -> bytes:
        """Encode an empty message of ``nbytes``.

        It has the property ``ROCKETSTORE_LOST`` if that fits; otherwise zeros in its body fill the
        size.
        """
        extra = nbytes - self._least_nbytes(place.topic)
        queue = (place.queue_id, place.queue_offset)
        body, properties = _KEPT_CONTENT.get(place.topic, (b"", b""))
        if extra < _MARK_NBYTES:
            body += bytes(extra)
        else:
            value = b"1".ljust(extra - len(LOST_MARK) - 1, b"0")
            properties = LOST_MARK + value + bytes((formats.PROPERTY_SEPARATOR,)) + properties
        return self._encode(place.topic, queue, offset, body=body, properties=properties)

    def _filler(self, offset: int, nbytes: int) -> bytes:
        """Encode a record that gets no queue unit and no keys: a rolled-back transaction."""
        topic = FILLER_TOPIC[: nbytes - self._least_nbytes(FILLER_TOPIC[:1]) + 1]
        body = bytes(nbytes - self._least_nbytes(topic))
        rolled_back = formats.SYS_FLAG_TRANSACTION_ROLLBACK
        return self._encode(topic, (0, 0), offset, body=body, sys_flag=rolled_back)


@functools.lru_cache(maxsize=4096)
def least_record_nbytes(topic: str, property_crc: bool) -> int:
    """Return the size of a record with no more body and properties than a placeholder needs."""
    nbytes = len(topic.encode())
    content = sum(map(len, _KEPT_CONTENT.get(topic, ())))
    version = 2 if nbytes > formats.MAX_TOPIC_LENGTH else 1
    crc = formats.PROPERTY_CRC32_NBYTES if property_crc else 0
    return formats.RECORD_MIN_NBYTES + version - 1 + nbytes + content + crc


def filler_sizes(nbytes: int, least: int) -> Iterator[int]:
    """Split ``nbytes`` into records of at least ``least`` bytes."""
    while nbytes:
        size = nbytes if nbytes <= _FILLER_NBYTES else min(_FILLER_NBYTES, nbytes - least)
        yield size
        nbytes -= size


@dataclass
class SalvagePlan:
    """The lost ranges and messages, and their replacements.

    Attributes
    ----------
    stretches : dict of int to list of Stretch
        By the segment's first log offset.
    unplaced : list of LostPlace
        Lost queue offsets without a placeholder.
    lost : dict of str to LostOfTopic
        All lost messages, by topic.
    """

    stretches: dict[int, list[Stretch]] = field(default_factory=dict)
    unplaced: list[LostPlace] = field(default_factory=list)
    lost: dict[str, LostOfTopic] = field(default_factory=dict)

    def count(self, topic: str, between: Sequence[Stretch]) -> None:
        """Count a lost message of one of these stretches."""
        one = self.lost.setdefault(topic, LostOfTopic(topic))
        oldest, newest = between[0].store_timestamp, between[-1].next_timestamp
        one.oldest = min(one.oldest or oldest, oldest)
        is_open = newest == 0 or (one.count > 0 and one.newest == 0)
        one.newest = 0 if is_open else max(one.newest, newest)
        one.count += 1


def make_plan(
    log: CommitLog,
    queues: QueueTable,
    damaged: Sequence[DamagedRange],
    *,
    placeholders: bool,
    found: Collection[tuple[str, int, int]] = (),
) -> SalvagePlan:
    """Plan the replacement of the corrupt ranges of a log that was checked completely.

    Parameters
    ----------
    log : CommitLog
        Its end is known.
    queues : QueueTable
        As the files have them; their units show where lost messages were.
    damaged : sequence of DamagedRange
        Ascending.
    placeholders : bool
        Keep the queue offsets of lost messages with empty ones.
    found : collection of (topic, queue id, queue offset)
        Messages that are not lost, although no good record has their place.
    """
    plan = SalvagePlan()
    stretches = [part for damage in damaged for part in _split(damage, log)]
    for stretch in stretches:
        base = stretch.start - stretch.start % log.segment_size
        plan.stretches.setdefault(base, []).append(stretch)
    if not stretches:
        return plan
    ends = [stretch.stop for stretch in stretches]
    batch_topics = {queue.topic for queue in queues if isinstance(queue, BatchConsumeQueue)}
    for place in _Losses(log, queues, stretches).find():
        if place[:3] in found:
            continue
        able = placeholders and place.topic not in batch_topics | _WITHOUT_PLACEHOLDERS
        first = bisect.bisect_right(ends, place.low)
        last = bisect.bisect_left(ends, place.high) + 1
        plan.count(place.topic, stretches[first:last] or stretches[-1:])
        if not able or not any(part.take(place) for part in stretches[first:last]):
            plan.unplaced.append(place)
            for part in stretches[first:last]:
                part.lacks = True
    return plan


def _split(damage: DamagedRange, log: CommitLog) -> Iterator[Stretch]:
    """Split a range at the ends of segments."""
    is_last = damage.start >= log.max_offset
    start = damage.start
    while start < damage.stop:
        end = log.roll_next_file(start)
        if is_last and damage.stop < end:
            yield Stretch(start, end, is_end=True, is_last=True, reached=damage.stop)
        else:
            stop = min(end, damage.stop)
            yield Stretch(start, stop, is_end=stop == end, is_last=False)
        start = end


class _Losses:
    """Finds the queue offsets of lost messages: no good record near corruption has them."""

    def __init__(self, log: CommitLog, queues: QueueTable, stretches: list[Stretch]) -> None:
        self._log = log
        self._queues = queues
        self._stretches = stretches
        self._starts = [stretch.start for stretch in stretches]
        #: Next queue offset of each queue, and the log offset of its last record.
        self._ends: dict[tuple[str, int], tuple[int, int]] = {}
        self._found: list[LostPlace] = []
        self._runs = QueueRuns()
        self._dated = self._followed = 0
        self._minimum = min(max(log.min_offset, 0), self._starts[0])

    def find(self) -> list[LostPlace]:
        """Return all lost queue offsets by log offset, topic, queue and number."""
        log = self._log
        for batch in good_batches(log, max(log.min_offset, 0), log.max_offset):
            self._date_stretches(batch)
            if self._take_orderly(batch):
                continue
            for place in queue_places(batch):
                if not self._is_lost(place.physical_offset):
                    self._follow(*place[:4], place.next_queue_offset)
                elif self._gives_room(place.physical_offset):
                    self._give_up(place)
        self._date_rest()
        for queue in self._queues:
            if not queue.is_light and not isinstance(queue, BatchConsumeQueue):
                self._find_behind(queue)
        self._found.sort(key=lambda place: (place.low, *place[:3]))
        return self._found

    def _take_orderly(self, batch: RecordBatch) -> bool:
        """Follow a batch whose records all continue their queues, far from damage; else return
        False."""
        runs = self._runs.of(batch)
        first, last = batch.row(0)["physical_offset"], batch.last()["physical_offset"]
        number = bisect.bisect_right(self._starts, last) - 1
        if runs is None or (number >= 0 and self._stretches[number].stop > first):
            return False
        if any(self._ends.get(run.queue, (-1, 0))[0] != run.first for run in runs):
            return False
        for run in runs:
            self._ends[run.queue] = run.following, run.place
        return True

    def _date_stretches(self, batch: RecordBatch) -> None:
        """Set each stretch's store time and use of property CRCs from the record before it, or from
        the first record after it."""
        columns = batch.columns
        offsets, times = columns["physical_offset"], columns["store_timestamp"]
        crc = bool(batch.window.flags & _CHECKED_PROPERTY_CRC)
        for stretch in self._stretches[self._dated :]:
            number = int(offsets.searchsorted(stretch.start)) - 1
            if number >= 0 or not stretch.store_timestamp:
                stretch.store_timestamp = max(int(times[max(number, 0)]), 1)
                stretch.property_crc = crc
            if stretch.start > offsets[-1]:
                break  # later records may be before it, and nearer
            self._dated += 1
        for stretch in self._stretches[self._followed :]:
            if stretch.stop > offsets[-1]:
                break
            newest = int(times[int(offsets.searchsorted(stretch.stop))])
            stretch.next_timestamp = max(newest, stretch.store_timestamp)
            self._followed += 1

    def _date_rest(self) -> None:
        """Date stretches past all records like the stretch before them."""
        time, crc = 1, False
        for stretch in self._stretches:
            if not stretch.store_timestamp:
                stretch.store_timestamp, stretch.property_crc = time, crc
            time, crc = stretch.store_timestamp, stretch.property_crc

    def _is_lost(self, offset: int) -> bool:
        number = bisect.bisect_right(self._starts, offset) - 1
        return number >= 0 and offset < self._stretches[number].stop

    def _follow(self, topic: str, queue_id: int, offset: int, place: int, following: int) -> None:
        # If the log begins at 0, each queue does too; otherwise it begins at its first record.
        start = (0 if self._minimum == 0 else offset, self._minimum)
        expected, low = self._ends.get((topic, queue_id), start)
        if expected < offset and self._could_hold(offset - expected, low, place):
            self._add(topic, queue_id, range(expected, offset), low, place)
        if following > expected:
            self._ends[topic, queue_id] = following, place

    def _gives_room(self, offset: int) -> bool:
        """Return whether a good record is given up because the end-of-segment marker does not fit
        after it."""
        end = self._log.roll_next_file(offset)
        _, nbytes = self._log.check(offset)
        return end - _BLANK_NBYTES < offset + nbytes < end

    def _give_up(self, place: QueuePlace) -> None:
        """Add the queue offsets of a good record that is given up."""
        topic, queue_id, first, offset, _ = place
        self._follow(topic, queue_id, first, offset, place.next_queue_offset)
        for number in range(first, place.next_queue_offset):
            self._found.append(LostPlace(topic, queue_id, number, offset, offset + 1))

    def _could_hold(self, count: int, low: int, high: int) -> bool:
        """Return whether the stretches between two log offsets can have held ``count`` records."""
        room = sum(part.room for part in self._stretches if low <= part.start < high)
        return count <= room // formats.RECORD_MIN_NBYTES

    def _add(self, topic: str, queue_id: int, lost: range, low: int, high: int) -> None:
        """Add lost queue offsets.

        A unit gives the log offset of its record, and limits for records without a unit: in the log
        a queue's records are ordered by queue offset.
        """
        queue = self._queues.get(topic, queue_id)
        spans: list[tuple[int, int]] = []
        for number in lost:
            unit = queue.unit(number) if queue is not None and not queue.is_light else None
            here = low, high
            if unit is not None and low <= unit[0] < high and self._is_lost(unit[0]):
                here, low = (unit[0], unit[0] + 1), unit[0] + 1
            spans.append(here)
        for number, (first, stop) in zip(reversed(lost), reversed(spans), strict=True):
            self._found.append(LostPlace(topic, queue_id, number, first, min(stop, high)))
            high = first if stop == first + 1 else high

    def _find_behind(self, queue: ConsumeQueue) -> None:
        """Add the queue offsets of units past a queue's last good record."""
        key = queue.topic, queue.queue_id
        end, _ = self._ends.get(key, (0, 0))
        found: list[LostPlace] = []
        for number in range(queue.recovered_index - 1, end - 1, -1):
            unit = queue.unit(number)
            if unit is not None and self._is_lost(unit[0]):
                found.append(LostPlace(*key, number, unit[0], unit[0] + 1))
            elif unit is None or unit[0] < self._log.max_offset or found:
                break  # units of a truncated tail, past the log's end, are skipped
        self._found += reversed(found)
