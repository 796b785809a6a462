"""Which of a log's segments may be another store's, and which queue offsets are claimed twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from rocketstore.log.commit_log import CommitLog

#: Fewer units or queues than these tell nothing of a segment.
_LEAST_UNITS = 3
_LEAST_QUEUES = 2

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
