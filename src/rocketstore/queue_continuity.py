"""What queue offsets and store times say about records around a damaged place."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rocketstore import formats
from rocketstore.commit_log import CommitLog
from rocketstore.log_scan import (
    NO_UNIT,
    OF_A_QUEUE,
    LogScan,
    RecordBatch,
    find_next_record,
)
from rocketstore.message import StoredMessage
from rocketstore.status import RecordStatus

#: Records looked at behind damage to tell a stale tail from durable messages.
PROBE_COUNT = 256
#: Repeated queue offsets that are listed.
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
        """Queue offset of the queue's next record (an inner batch takes several)."""
        return self.queue_offset + self.width


def queue_places(batch: RecordBatch) -> Iterator[QueuePlace]:
    """Yield the places of those records of a batch that have a queue unit."""
    window, columns = batch.window, batch.columns
    names = ("status", "sys_flag", "position", "queue_id", "queue_offset", "physical_offset")
    lists = (columns[name].tolist() for name in names)
    for status, sys_flag, position, queue_id, queue_offset, offset in zip(*lists, strict=True):
        if status not in OF_A_QUEUE or sys_flag & formats.SYS_FLAG_TRANSACTION_MASK in NO_UNIT:
            continue
        message = StoredMessage(window.buffer, position, window.base_offset, window.segment_end)
        width = _inner_count(message) if sys_flag & formats.SYS_FLAG_INNER_BATCH else 1
        yield QueuePlace(message.topic, queue_id, queue_offset, offset, width)


def _inner_count(message: StoredMessage) -> int:
    """Queue offsets that an inner batch takes."""
    text = message.properties.get(formats.PROPERTY_INNER_NUM, "")
    return max(int(text), 1) if text.isascii() and text.isdigit() and len(text) < 6 else 1


class QueueEnds:
    """Next queue offset of each queue, as the records seen so far tell it."""

    def __init__(self) -> None:
        self._ends: dict[tuple[str, int], int] = {}

    def take(self, batch: RecordBatch) -> None:
        """Follow a batch."""
        for place in queue_places(batch):
            self._ends[place.topic, place.queue_id] = place.next_queue_offset

    def allow(self, batch: RecordBatch, room: int) -> bool:
        """Whether a batch can go on where the queues stand.

        The first record of each queue counts: its queue offset was not used before, and of those in
        between no more are missing, over all queues, than ``room`` records.
        """
        seen = set()
        for place in queue_places(batch):
            key = (place.topic, place.queue_id)
            if key in seen:
                continue
            seen.add(key)
            missing = place.queue_offset - self._ends.get(key, place.queue_offset)
            if missing < 0 or missing > room:
                return False
            room -= missing
        return True


def goes_on_behind(
    log: CommitLog, start: int, behind: int, limit: int, ends: QueueEnds, last_timestamp: int | None
) -> bool:
    """Whether the records at ``behind`` were written after those in front of ``start``.

    They are if not all of them are older than ``last_timestamp`` (of the record in front), and if
    the queue offsets that are missing fit into the stretch in between. Otherwise they are what an
    earlier life of the log left there.
    """
    room = (behind - start) // formats.RECORD_MIN_NBYTES + 1
    for batch in LogScan(log, behind, limit, log.record_flags, capacity=PROBE_COUNT):
        newest = int(batch.columns["store_timestamp"].max())
        if last_timestamp is not None and newest < last_timestamp:
            return False
        return ends.allow(batch, room)
    return False


def good_batches(log: CommitLog, start: int, stop: int) -> Iterator[RecordBatch]:
    """Yield the records from ``start`` to ``stop``, going on behind damage."""
    while start < stop:
        scan = LogScan(log, start, stop, log.record_flags)
        yield from scan
        if scan.status == RecordStatus.END:
            return
        behind = find_next_record(log, scan.offset + 1)
        if behind is None:
            return
        start = behind


def displaced(log: CommitLog, ghosts: Sequence[int], start: int, stop: int) -> set[int]:
    """Return those of the ghosts (ascending) between whose neighbours a queue lacks a record.

    There a real record stood: the ghost was written over it, or its own offset was damaged.
    """
    # Gaps are intervals of ghosts; they are counted up and down at their ends, so that many gaps
    # over many ghosts cost no more than their sum.
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
    """Where queue offsets do not count up one by one in log order.

    ``gaps``: (topic, queue id, first missing queue offset, next queue offset). ``repeated``:
    records whose queue offset is not above those of their queue in front of them.
    """

    gaps: list[tuple[str, int, int, int]]
    repeated: list[QueuePlace]


def queue_order(log: CommitLog, start: int, stop: int) -> QueueOrder:
    """Look at the records from ``start`` to ``stop``; at most ``MAX_LISTED`` of each are told."""
    order = QueueOrder([], [])
    ends: dict[tuple[str, int], int] = {}
    before_gap: dict[tuple[str, int], int] = {}
    for batch in good_batches(log, start, stop):
        if _counts_on(batch, ends):
            continue
        for place in queue_places(batch):
            key = (place.topic, place.queue_id)
            expected = ends.get(key, place.queue_offset)
            if place.queue_offset < expected:
                # It may go on where the queue was before the gap: then the number behind the gap
                # is wrong, not this one.
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


def _counts_on(batch: RecordBatch, ends: dict[tuple[str, int], int]) -> bool:
    """Whether each queue's offsets in the batch count up one by one from where it ended.

    ``ends`` is then moved on; otherwise it stays, and the records are looked at one by one.
    """
    import numpy

    columns = batch.columns
    kind, status = columns["sys_flag"] & formats.SYS_FLAG_TRANSACTION_MASK, columns["status"]
    has_unit = numpy.logical_or.reduce([status == wanted for wanted in OF_A_QUEUE])
    for transaction in NO_UNIT:
        has_unit &= kind != transaction
    columns = columns[has_unit]
    if (columns["sys_flag"] & formats.SYS_FLAG_INNER_BATCH).any():
        return False
    window = batch.window
    log = numpy.frombuffer(window.buffer, "u1")
    following: dict[tuple[str, int], int] = {}
    for nbytes in numpy.unique(columns["topic_nbytes"]).tolist():
        rows = columns[columns["topic_nbytes"] == nbytes]
        places = (rows["position"] + rows["topic_at"]).astype("i8")
        names = log[places[:, None] + numpy.arange(nbytes)]
        # One row of bytes tells a queue from all others with a topic of that length.
        queues = numpy.hstack((names, rows["queue_id"].astype(">i4")[:, None].view("u1")))
        order = numpy.lexsort(queues.T)  # stable: log order within a queue
        changes = (queues[order[1:]] != queues[order[:-1]]).any(axis=1)
        for part in numpy.split(order, changes.nonzero()[0] + 1):
            offsets = rows["queue_offset"][part]
            first = rows[part[0]]
            message = StoredMessage(
                window.buffer, int(first["position"]), window.base_offset, window.segment_end
            )
            key = (message.topic, int(first["queue_id"]))
            if offsets[0] != ends.get(key, offsets[0]) or (numpy.diff(offsets) != 1).any():
                return False
            following[key] = int(offsets[-1]) + 1
    ends.update(following)
    return True
