"""Which of a log's segments may be another store's, and which queue offsets are claimed twice."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from rocketstore.named_queues import next_of_queue

if TYPE_CHECKING:
    from rocketstore.commit_log import CommitLog
    from rocketstore.verify import VerifyScope

#: Fewer units or queues than these tell nothing of a segment.
_LEAST_UNITS = 3
_LEAST_QUEUES = 2
#: A queue's record is remembered once in so many queue offsets.
_STEP = 1024
#: Records that are looked for one by one in a store.
_MOST_LOOKED_FOR = 20

Array = np.ndarray[Any, Any]


class SegmentFit:
    """How well each segment's records fit the units that name it, and the queues before it.

    Attributes
    ----------
    looked_for : int
        Records that ``DoubledOffsets`` looked for one by one.
    """

    def __init__(self) -> None:
        self.looked_for = 0
        self._right: Counter[int] = Counter()
        self._wrong: Counter[int] = Counter()
        self._breaks: dict[int, set[str]] = {}
        self._is_broken_within = False

    def take_units(self, offsets: Array, size: int, *, right: bool) -> None:
        """Count units that fit a record, or that none fits, by the log offsets that they name."""
        bases, counts = np.unique(offsets // size * size, return_counts=True)
        counter = self._right if right else self._wrong
        counter.update(dict(zip(bases.tolist(), counts.tolist(), strict=True)))

    def take_break(self, queue: str, last_end: int, place: int, size: int) -> None:
        """Take note that a queue's records do not go on: one ends at ``last_end``, the next one is
        at ``place``."""
        base = place - place % size
        if last_end <= base:
            self._breaks.setdefault(base, set()).add(queue)
        else:
            self._is_broken_within = True

    def foreign(self, log: CommitLog) -> list[tuple[int, int]]:
        """Return the segments that are likely another store's: first log offset, and how many units
        name a place there, none of which fits a record, though units of other segments do."""
        starts = {file.file_from_offset for file in log.queue.files}
        if not any(count for base, count in self._right.items() if base in starts):
            return []
        return [
            (base, count)
            for base, count in sorted(self._wrong.items())
            if base in starts and count >= _LEAST_UNITS and not self._right[base]
        ]

    def notes(self, log: CommitLog) -> Iterator[str]:
        """Yield where queues break off at a segment's beginning, and nowhere else."""
        if self._is_broken_within:
            return
        for base, names in sorted(self._breaks.items()):
            file = log.queue.find_mapped_file_by_offset(base)
            if file is not None and len(names) >= _LEAST_QUEUES:
                yield (
                    f"{len(names)} queues do not go on where {file.path} begins: it may be another "
                    "store's, or the segments before it"
                )


class DoubledOffsets:
    """Queue offsets of one queue that more than one record claims."""

    def __init__(self, scope: VerifyScope, topic: str, queue_id: int) -> None:
        self._scope = scope
        self._topic = topic
        self._queue_id = queue_id
        #: Some of the records: queue offset and place, in log order.
        self._known: list[tuple[int, int]] = []
        self._next = -1
        self._count = 0
        self._first: tuple[int, int] | None = None

    def take(self, first: int, offsets: Array) -> None:
        """Remember records with the queue offsets from ``first`` on, and where they lie."""
        stop = first + len(offsets)
        if first != self._next or not self._known or stop - self._known[-1][0] > _STEP:
            self._known += [
                (first + row, int(offsets[row])) for row in range(0, len(offsets), _STEP)
            ]
        self._next = stop

    def repeat(self, first: int, count: int, place: int) -> None:
        """Take note that the record at ``place`` and those behind it claim ``count`` queue offsets
        from ``first`` on once more."""
        self._count += count
        if self._first is None:
            self._first = first, place

    def finish(self) -> None:
        """Report them, as one finding."""
        if self._first is None:
            return
        index, place = self._first
        former = self._former(index, place)
        name = f"{self._topic} queue {self._queue_id} offset {index}"
        kind = "doubled-offset"
        reason = f"two records claim {name}, at log offsets {former} and {place}"
        if former is None:
            kind = "queue-offset"
            reason = (
                f"the record at log offset {place} claims {name}, though later ones stand before"
            )
            reason += " it"
        if self._count > 1:
            reason += f"; {self._count:,} queue offsets of this queue are claimed so"
        path, position = self._scope.place(place)
        self._scope.report.add(kind, path, position, place, reason)

    def _former(self, index: int, place: int) -> int | None:
        """Log offset of the record that claimed a queue offset first; ``None`` where it would take
        long to find."""
        number = bisect.bisect_right(self._known, (index, 2**63))
        fit = self._scope.fit
        if number == 0 or fit.looked_for >= _MOST_LOOKED_FOR:
            return None
        fit.looked_for += 1
        start = max(self._known[number - 1][1], self._scope.start)
        for _ in range(2 * _STEP):
            found = next_of_queue(
                self._scope.log, start, place, self._topic, self._queue_id, names=0
            )
            if found is None or found.queue_offset == index:
                return None if found is None else found.place
            start = found.end
        return None
