"""Queue offsets that more than one record claims."""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING, Any

import numpy as np

from rocketstore.dispatch.named_queues import next_of_queue

if TYPE_CHECKING:
    from rocketstore.verify.scope import VerifyScope


#: One record of a queue is remembered per this many queue offsets.
_STEP = 1024
#: Records of a store that are searched one by one.
_MOST_LOOKED_FOR = 20
Array = np.ndarray[Any, Any]


class DoubledOffsets:
    """Queue offsets of one queue that more than one record claims."""

    def __init__(self, scope: VerifyScope, topic: str, queue_id: int) -> None:
        self._scope = scope
        self._topic = topic
        self._queue_id = queue_id
        #: Queue offset and log offset of some of the records, in log order.
        self._known: list[tuple[int, int]] = []
        self._next = -1
        self._count = 0
        self._first: tuple[int, int] | None = None

    def take(self, first: int, offsets: Array) -> None:
        """Remember records with consecutive queue offsets from ``first`` on, by log offset."""
        stop = first + len(offsets)
        if first != self._next or not self._known or stop - self._known[-1][0] > _STEP:
            self._known += [
                (first + row, int(offsets[row])) for row in range(0, len(offsets), _STEP)
            ]
        self._next = stop

    def repeat(self, first: int, count: int, place: int) -> None:
        """Note that the records from ``place`` on claim ``count`` queue offsets again.

        The first of these queue offsets is ``first``.
        """
        self._count += count
        if self._first is None:
            self._first = first, place

    def finish(self) -> None:
        """Report the doubled offsets, as one finding."""
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
                f"the record at log offset {place} claims {name}, though higher ones come before"
            )
            reason += " it"
        if self._count > 1:
            reason += f"; {self._count:,} queue offsets of this queue are claimed again"
        path, position = self._scope.place(place)
        self._scope.report.add(
            kind, path, position, place, reason,
            queue=(self._topic, self._queue_id), first=index, count=self._count,
        )  # fmt: skip

    def _former(self, index: int, place: int) -> int | None:
        """Return the log offset of the record that claimed a queue offset first.

        ``None`` if there is none, or if the search would take too long.
        """
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
