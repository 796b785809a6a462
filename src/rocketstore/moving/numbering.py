"""New queue offsets of a merged store: which queues keep theirs, and where consumers go on."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from rocketstore import formats
from rocketstore.moving.selected_log import Record

#: Stores are numbers: 0 and 1.
Queue = tuple[str, int]
_HAS_UNIT = (formats.SYS_FLAG_TRANSACTION_NOT, formats.SYS_FLAG_TRANSACTION_COMMIT)


def has_unit(record: Record) -> bool:
    """Return whether a record takes a queue offset."""
    return record.row["sys_flag"] & formats.SYS_FLAG_TRANSACTION_MASK in _HAS_UNIT


class Numbering:
    """Numbers messages in the order in which they come.

    A queue that one store has keeps its queue offsets; a queue of both begins at 0.

    Parameters
    ----------
    queues : pair of dict
        The queues of each store that have a record in its log, and the first queue offset there.
    committed : pair of dict
        For each store and queue, the queue offsets from which some consumer goes on.
    """

    def __init__(
        self,
        queues: tuple[dict[Queue, int], dict[Queue, int]],
        committed: tuple[dict[Queue, set[int]], dict[Queue, set[int]]],
    ) -> None:
        self._queues = queues
        self.shared = queues[0].keys() & queues[1].keys()
        self._next: dict[Queue, int] = dict.fromkeys(self.shared, 0)
        #: Committed offsets whose place is not known yet, the next one last.
        self._open: list[dict[Queue, list[int]]] = [
            {
                queue: sorted(offsets | {-1}, reverse=True)
                for queue, offsets in each.items()
                if queue in self.shared
            }
            for each in committed
        ]
        for store in (0, 1):
            for queue in self.shared:
                self._open[store].setdefault(queue, [-1])
        self._places: list[dict[Queue, dict[int, int]]] = [defaultdict(dict), defaultdict(dict)]

    def number(self, store: int, record: Record) -> int:
        """Return the new queue offset of a store's next record."""
        old = record.row["queue_offset"]
        queue = record.topic, record.row["queue_id"]
        if queue not in self.shared or not has_unit(record):
            return old
        new = self._next[queue]
        self._next[queue] = new + 1
        waiting = self._open[store][queue]
        while waiting and waiting[-1] <= old:
            self._places[store][queue][waiting.pop()] = new
        return new

    def place_of(self, queue: Queue, offsets: tuple[int | None, int | None]) -> int | None:
        """Return where a consumer goes on that has these offsets in the stores.

        Nothing that it has not consumed lies before. ``None`` if it has no offset in either store.
        """
        if offsets == (None, None):
            return None
        if queue not in self.shared:
            for store in (0, 1):
                if queue in self._queues[store]:
                    own = offsets[store]
                    return self._queues[store][queue] if own is None else own
            return max(offset for offset in offsets if offset is not None)
        found = [self._next[queue]]
        for store in (0, 1):
            offset = offsets[store]
            place = self._places[store][queue].get(-1 if offset is None else offset)
            if place is not None:
                found.append(place)
        return min(found)

    # --- going on after a kill ------------------------------------------------------------------

    def state(self) -> list[Any]:
        """Return what ``restore`` needs, as JSON can hold it."""
        places = [
            [topic, queue_id, list(each.items())]
            for store in (0, 1)
            for (topic, queue_id), each in self._places[store].items()
        ]
        split = len(self._places[0])
        numbers = [[topic, queue_id, number] for (topic, queue_id), number in self._next.items()]
        return [numbers, places, split]

    def restore(self, state: list[Any]) -> None:
        """Go on as after the call of ``state``."""
        numbers, places, split = state
        for topic, queue_id, number in numbers:
            self._next[topic, queue_id] = number
        for at, (topic, queue_id, pairs) in enumerate(places):
            store = 0 if at < split else 1
            known = self._places[store][topic, queue_id]
            known.update((offset, place) for offset, place in pairs)
            waiting = self._open[store][topic, queue_id]
            self._open[store][topic, queue_id] = [one for one in waiting if one not in known]
