"""Queue offsets that more than one record claims."""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING, Any

import numpy as np

from rocketstore.dispatch.named_queues import next_of_queue

if TYPE_CHECKING:
    from rocketstore.verify.scope import VerifyScope


#: A queue's record is remembered once in so many queue offsets.
_STEP = 1024
#: Records that are looked for one by one in a store.
_MOST_LOOKED_FOR = 20
Array = np.ndarray[Any, Any]


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
