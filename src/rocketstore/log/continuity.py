"""Judging records around a corrupt range by their queue offsets and store times."""

from __future__ import annotations

import bisect
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rocketstore import formats, kernels
from rocketstore.inner_batch import inner_batch
from rocketstore.log.commit_log import CommitLog
from rocketstore.log.scan import (
    CAPACITY,
    NO_UNIT,
    OF_A_QUEUE,
    LogScan,
    RecordBatch,
    find_next_record,
)
from rocketstore.status import RecordStatus

#: Records examined after a corrupt range to distinguish a stale tail from durable messages.
PROBE_COUNT = 256
#: Further corrupt ranges that are skipped while examining them.
_PROBE_STRETCHES = 8
#: Upper limit of plausible store times (epoch ms, in the year 2248).
LAST_TIME = 2**43
#: Gaps and repeated queue offsets that are listed.
MAX_LISTED = 1000


class QueuePlace(NamedTuple):
    """A record's place in its queue and in the log."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    width: int

    @property
    def next_queue_offset(self) -> int:
        """Queue offset of the queue's next record (an inner batch covers several)."""
        return self.queue_offset + self.width


def queue_places(batch: RecordBatch) -> Iterator[QueuePlace]:
    """Yield the places of the records of a batch that have a queue unit."""
    columns = batch.columns
    names = ("status", "sys_flag", "position", "queue_id", "queue_offset", "physical_offset")
    lists = (columns[name].tolist() for name in names)
    for status, sys_flag, position, queue_id, queue_offset, offset in zip(*lists, strict=True):
        if status not in OF_A_QUEUE or sys_flag & formats.SYS_FLAG_TRANSACTION_MASK in NO_UNIT:
            continue
        message = batch.window.message(position)
        batched = inner_batch(message) if sys_flag & formats.SYS_FLAG_INNER_BATCH else None
        width = 1 if batched is None else batched[1]
        yield QueuePlace(message.topic, queue_id, queue_offset, offset, width)


class QueueRun(NamedTuple):
    """Consecutive records of one queue in a batch.

    ``first``: queue offset of the first record; ``following``: of the next one after the run;
    ``place``: log offset of the last.
    """

    queue: tuple[str, int]
    first: int
    following: int
    place: int


class QueueRuns:
    """Groups the records of batches by queue, natively."""

    def __init__(self) -> None:
        self._numbers = kernels.passes_rows.QueueNumbers()
        #: Topic and queue id by the queue's number.
        self._queues: list[tuple[str, int]] = []

    def of(self, batch: RecordBatch) -> list[QueueRun] | None:
        """Return the run of each queue; call it for each batch, in their order.

        ``None`` if a record has no unit, is an inner batch, or does not continue the one before it.
        """
        columns, numbers = batch.columns, batch.number(self._numbers)
        for topic, queue_id in self._numbers.queues(len(self._queues)):
            self._queues.append((topic.decode("utf-8", "surrogateescape"), queue_id))
        is_batch = (columns["sys_flag"] & formats.SYS_FLAG_INNER_BATCH) != 0
        if (numbers < 0).any() or is_batch.any():
            return None
        order = numbers.argsort(kind="stable")
        numbers, offsets = numbers[order], columns["queue_offset"][order]
        is_first = numbers[1:] != numbers[:-1]
        if not (is_first | (offsets[1:] == offsets[:-1] + 1)).all():
            return None
        edges = [0, *(is_first.nonzero()[0] + 1).tolist(), len(numbers)]
        places = columns["physical_offset"][order]
        return [
            QueueRun(
                self._queues[numbers[start]], int(offsets[start]), int(offsets[stop - 1]) + 1,
                int(places[stop - 1]),
            )
            for start, stop in itertools.pairwise(edges)
        ]  # fmt: skip


class QueueEnds:
    """Next queue offset of each queue, derived from the records seen so far."""

    def __init__(self) -> None:
        self._ends: dict[tuple[str, int], int] = {}

    def take(self, batch: RecordBatch) -> None:
        """Update the ends with a batch."""
        for place in queue_places(batch):
            self._ends[place.topic, place.queue_id] = place.next_queue_offset

    def fit(self, places: Iterable[QueuePlace], room: int) -> bool:
        """Return whether the records may continue the queues after a corrupt range.

        A queue agrees if its records use new queue offsets and do not skip too many of them. At
        most ``room`` records may be missing over all queues. At least half of the records must be
        in queues that agree, because the queue offset of a single record may be corrupt itself.
        """
        skipped: dict[tuple[str, int], list[int]] = {}
        width: dict[tuple[str, int], int] = {}
        for place in places:
            key = (place.topic, place.queue_id)
            if key in self._ends:
                taken = width.get(key, 0)
                skipped.setdefault(key, []).append(place.queue_offset - taken - self._ends[key])
                width[key] = taken + place.width
        votes = sorted((_usual(missing), len(missing)) for missing in skipped.values())
        good = bad = 0
        for missing, count in votes:
            if 0 <= missing <= room:
                room -= missing
                good += count
            else:
                bad += count
        return good >= bad


def _usual(numbers: Sequence[int]) -> int:
    """Return the most frequent number; among several, the lowest that is not negative."""
    counts = Counter(numbers)
    most = max(counts.values())
    frequent = [number for number, count in counts.items() if count == most]
    return min(frequent, key=lambda number: (number < 0, number))


class BeforeRange(NamedTuple):
    """What is known before a corrupt range, to judge the records after it.

    Attributes
    ----------
    ends : QueueEnds
    last_timestamp : int or None
        Store time of the last record before the range.
    mark : int
        Durable time: records stored before it were on disk (epoch ms; 0 if unknown).
    lost_nbytes : int
        Bytes of all corrupt ranges up to here.
    """

    ends: QueueEnds
    last_timestamp: int | None
    mark: int
    lost_nbytes: int


def continues_log(log: CommitLog, position: int, limit: int, known: BeforeRange) -> bool:
    """Return whether the records at ``position`` continue the log after a corrupt range.

    They do if some record is not older than the last one before the range, and one of these holds:

    - such a record is older than the durable time ``known.mark``;
    - the missing queue offsets fit into the lost bytes (see ``QueueEnds.fit``).

    Otherwise they are stale records of an earlier use of the file. If further corrupt ranges
    follow soon, the records after those are examined as well.
    """
    room = known.lost_nbytes // formats.RECORD_MIN_NBYTES + 1
    places: list[QueuePlace] = []
    seen, is_newer = 0, False
    for stretch, batch in enumerate(good_batches(log, position, limit, PROBE_COUNT)):
        times = batch.columns["store_timestamp"]
        if known.last_timestamp is not None:
            newer = (times >= known.last_timestamp) & (times < LAST_TIME)
            is_newer |= bool(newer.any())
            if (newer & (times < known.mark)).any():
                return True
        else:
            is_newer = True
        places += queue_places(batch)
        seen += batch.count
        if is_newer and known.ends.fit(places, room):
            return True
        if seen >= PROBE_COUNT or stretch >= _PROBE_STRETCHES:
            break
    return False


def good_batches(
    log: CommitLog, start: int, stop: int, capacity: int = CAPACITY
) -> Iterator[RecordBatch]:
    """Yield the records from ``start`` to ``stop``, at most ``capacity`` at a time; skip corrupt
    ranges."""
    while start < stop:
        scan = LogScan(log, start, stop, log.record_flags, capacity=capacity)
        yield from scan
        if scan.status == RecordStatus.END:
            return
        following = find_next_record(log, scan.offset + 1)
        if following is None:
            return
        start = following


def displaced(log: CommitLog, ghosts: Sequence[int], start: int, stop: int) -> set[int]:
    """Return the ghosts (ascending) that took the place of a real record.

    A queue lacks a record around such a ghost: the ghost overwrote it, or is that record with a
    corrupt physical offset.
    """
    # Gaps are intervals of ghosts, counted up and down at their ends: so the cost is linear in
    # gaps plus ghosts.
    depth = [0] * (len(ghosts) + 1)
    ends: dict[tuple[str, int], tuple[int, int]] = {}
    for batch in good_batches(log, start, stop):
        for place in queue_places(batch):
            key = (place.topic, place.queue_id)
            expected, last_place = ends.get(key, (place.queue_offset, start))
            if place.queue_offset > expected:
                depth[bisect.bisect_left(ghosts, last_place)] += 1
                depth[bisect.bisect_left(ghosts, place.physical_offset)] -= 1
            ends[key] = (place.next_queue_offset, place.physical_offset)
    found, level = set(), 0
    for ghost, change in zip(ghosts, depth, strict=False):
        level += change
        if level > 0:
            found.add(ghost)
    return found


class QueueOrder(NamedTuple):
    """Places where queue offsets do not increase by one in log order.

    ``gaps``: (topic, queue id, first missing queue offset, next queue offset). ``repeated``:
    records whose queue offset is not greater than all earlier ones of their queue.
    """

    gaps: list[tuple[str, int, int, int]]
    repeated: list[QueuePlace]


def queue_order(batches: Iterable[RecordBatch]) -> QueueOrder:
    """Check the queue offsets of records in log order; list at most ``MAX_LISTED`` of each kind."""
    order = QueueOrder([], [])
    offsets = kernels.passes_rows.QueueOffsets()
    ends: dict[tuple[str, int], int] | None = None
    before_gap: dict[tuple[str, int], int] = {}
    for batch in batches:
        if ends is None:
            if batch.follow(offsets):
                continue
            ends = offsets.ends()  # from here on the records are checked one by one
        for place in queue_places(batch):
            key = (place.topic, place.queue_id)
            expected = ends.get(key, place.queue_offset)
            if place.queue_offset < expected:
                # If it continues the queue from before the gap, the record after the gap is wrong
                # and not this one.
                if place.queue_offset < before_gap.pop(key, expected):
                    order.repeated.append(place)
                    continue
            elif place.queue_offset > expected:
                order.gaps.append((*key, expected, place.queue_offset))
                before_gap[key] = expected
            ends[key] = place.next_queue_offset
        if max(len(order.gaps), len(order.repeated)) >= MAX_LISTED:
            break
    return QueueOrder(order.gaps[:MAX_LISTED], order.repeated[:MAX_LISTED])
