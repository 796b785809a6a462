"""Gather what ``verify`` compares of the log's records."""

from __future__ import annotations

from array import array
from typing import Any, NamedTuple

import numpy as np

from rocketstore import kernels
from rocketstore.log.scan import RecordBatch
from rocketstore.verify.queue_check import Records

#: Records that are gathered before they are compared queue by queue: enough for each queue to
#: compare many at a time.
_LEAST_COUNT, _MOST_COUNT = 1 << 17, 1 << 19
_OF_A_QUEUE = 64

Array = np.ndarray[Any, Any]


class RowCounts(NamedTuple):
    """What ``kernels.passes_rows.gather`` returns, in its order."""

    queued: int
    records: int
    nbytes: int
    newest: int
    first: int
    last: int
    backward: int
    ghosts: int
    nul_properties: int
    unsafe_topics: int
    judged_crcs: int
    rolled_back: int
    short_bodies: int
    named: int


class QueuedRecords(NamedTuple):
    """The records of a batch that have a unit.

    ``numbers``: for all records of the batch the number of the queue, -1 without a unit; ``wide``,
    ``sizes`` and ``own``: of those with one, what is compared and the number. ``keys``: the queues
    that are new. ``places``: the number that the check gave each queue; the check fills it.
    """

    numbers: Array
    wide: Array
    sizes: Array
    own: Array
    keys: list[tuple[bytes, int]]
    places: array[int]


class BatchReader:
    """Numbers the queues of batches in order of appearance, and gathers. Threading: one thread."""

    def __init__(self) -> None:
        self._numbers = kernels.passes_rows.QueueNumbers()
        self._count = 0
        self._places = array("i")

    def read(self, batch: RecordBatch) -> tuple[RowCounts, QueuedRecords]:
        """Return the counts of a batch, and the records with a unit."""
        numbers = batch.number(self._numbers)
        keys = self._numbers.queues(self._count)
        self._count += len(keys)
        wide = np.empty((batch.count, len(Gathering.WIDE)), "i8")
        sizes, own = np.empty(batch.count, "i4"), np.empty(batch.count, "i4")
        counts = RowCounts(*kernels.passes_rows.gather(batch.filled, numbers, wide, sizes, own))
        kept = slice(counts.queued)
        queued = QueuedRecords(numbers, wide[kept], sizes[kept], own[kept], keys, self._places)
        return counts, queued


class Gathering:
    """The records of many batches, to be taken together."""

    #: Fields of 8 bytes each, held side by side: NumPy gathers rows of 32 bytes at once.
    WIDE = ("queue_offset", "physical_offset", "tags_code", "store_timestamp")

    def __init__(self) -> None:
        self.count = 0
        self._wide = np.empty((0, len(self.WIDE)), "i8")
        self._sizes = np.empty(0, "i4")
        self._numbers = np.empty(0, "i4")

    def is_enough(self, queues: int) -> bool:
        """Return whether to take the records; ``queues``: how many are known."""
        return self.count >= min(max(_LEAST_COUNT, _OF_A_QUEUE * queues), _MOST_COUNT)

    def add(self, numbers: Array, wide: Array, sizes: Array) -> None:
        """Add records: the numbers of their queues, and their fields."""
        start, self.count = self.count, self.count + len(numbers)
        if self.count > len(self._sizes):
            room = max(self.count, 2 * start, _LEAST_COUNT + len(numbers))
            for name in ("_wide", "_sizes", "_numbers"):
                held = getattr(self, name)
                grown = np.empty((room, *held.shape[1:]), held.dtype)
                grown[:start] = held[:start]
                setattr(self, name, grown)
        self._wide[start : self.count] = wide
        self._sizes[start : self.count] = sizes
        self._numbers[start : self.count] = numbers

    def take(self) -> tuple[Array, Records]:
        """Return the numbers of the queues in ascending order and their records, and clear all."""
        numbers = self._numbers[: self.count]
        if self.count and int(numbers.max()) < 1 << 16:
            numbers = numbers.astype("u2")  # sorted by radix
        order = np.argsort(numbers, kind="stable")
        self.count = 0
        indexes, offsets, codes, times = self._wide.take(order, axis=0).T
        return numbers.take(order), Records(indexes, offsets, self._sizes.take(order), codes, times)
