"""Detect segments of a log that may be another store's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from rocketstore.log.commit_log import CommitLog

#: Fewer units or queues prove nothing about a segment.
_LEAST_UNITS = 3
_LEAST_QUEUES = 2

Array = np.ndarray[Any, Any]


class SegmentFit:
    """How well each segment's records fit the units that name it, and earlier records.

    Attributes
    ----------
    looked_for : int
        Records that ``DoubledOffsets`` searched one by one.
    """

    def __init__(self) -> None:
        self.looked_for = 0
        self._right: Counter[int] = Counter()
        self._wrong: Counter[int] = Counter()
        self._breaks: dict[int, set[str]] = {}
        self._is_broken_within = False

    def take_units(self, offsets: Array, size: int, *, right: bool) -> None:
        """Count units that fit a record (``right``) or not, by the log offsets that they name."""
        counter = self._right if right else self._wrong
        if not len(offsets):
            return
        base = int(offsets.min()) // size * size
        if int(offsets.max()) < base + size:  # as of most portions of a queue
            counter[base] += len(offsets)
            return
        bases, counts = np.unique(offsets // size * size, return_counts=True)
        counter.update(dict(zip(bases.tolist(), counts.tolist(), strict=True)))

    def take_break(self, queue: str, last_end: int, place: int, size: int) -> None:
        """Note a break in a queue's offsets between two of its records.

        The first record ends at ``last_end``, the next one starts at ``place``.
        """
        base = place - place % size
        if last_end <= base:
            self._breaks.setdefault(base, set()).add(queue)
        else:
            self._is_broken_within = True

    def foreign(self, log: CommitLog) -> list[tuple[int, int]]:
        """Return the segments that are likely another store's.

        Each is a first log offset and a number of units. These units name offsets in the segment
        and fit no record there, although units of other segments do.
        """
        starts = {file.file_from_offset for file in log.queue.files}
        if not any(count for base, count in self._right.items() if base in starts):
            return []
        return [
            (base, count)
            for base, count in sorted(self._wrong.items())
            if base in starts and count >= _LEAST_UNITS and not self._right[base]
        ]

    def notes(self, log: CommitLog) -> Iterator[str]:
        """Yield the segments where queues break, if they break only between segments."""
        if self._is_broken_within:
            return
        for base, names in sorted(self._breaks.items()):
            file = log.queue.find_mapped_file_by_offset(base)
            if file is not None and len(names) >= _LEAST_QUEUES:
                yield (
                    f"{len(names)} queues have a gap where {file.path} begins: it, or the segments "
                    "before it, may be another store's"
                )
