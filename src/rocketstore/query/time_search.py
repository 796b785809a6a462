"""Queue offsets by store time."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from rocketstore.dialect import Dialect
from rocketstore.log.commit_log import CommitLog
from rocketstore.query.results import MAX_TIMESTAMP
from rocketstore.queues.consume_queue import UNIT_NBYTES, ConsumeQueue


class TimeSearch:
    """Search a queue for an offset by time, as each RocketMQ version does."""

    def __init__(
        self,
        log: CommitLog,
        queue: ConsumeQueue,
        time_of: Callable[[int], int],
        narrow: Callable[[int, int, int, bool], tuple[int, int]],
        dialect: Dialect,
    ) -> None:
        """Set up.

        ``time_of`` returns the store time at a queue offset, -1 without a message. ``narrow`` is
        ``ReaderPlace.narrow`` for the queue.
        """
        self._log = log
        self._queue = queue
        self._time = time_of
        self._narrow = narrow
        self._clamp = dialect.clamp_offset_by_time

    def _is_expired(self, index: int) -> bool:
        """Return whether the unit names a place before the log's beginning."""
        unit = self._queue.unit(index)
        return (0 if unit is None else unit[0]) < self._log.min_offset

    def _bounds(self, file: Any) -> tuple[int, int]:
        """Return the first and last queue offset of a file whose messages the log still has."""
        first = file.file_from_offset // UNIT_NBYTES
        last = first + self._queue.readable_units(file) - 1
        return max(first, self._queue.min_index), last

    def by_message_time(self, timestamp: int, boundary: str) -> int:
        """Return the smallest offset with a time >= ``timestamp``; "upper": the largest with <=."""
        first, end = self._queue.min_index, self._queue.max_index
        low, high = first, end
        upper = boundary == "upper"
        while True:
            low, high = self._narrow(low, high, timestamp, upper)
            if low >= high:
                break
            middle = at = (low + high) // 2
            time = self._time(at)
            while time < 0 and at + 1 < high:  # a filler, or an unreadable record
                at += 1
                time = self._time(at)
            if time < 0 and self._is_expired(middle):
                low = middle + 1  # all remaining messages are later
            elif 0 <= time < timestamp or (upper and time == timestamp):
                low = at + 1
            else:
                high = middle
        if upper:
            low = max(low - 1, first if self._clamp else 0)
        return min(low, end)

    def by_modification_time(self, timestamp: int) -> int:
        """Pick the file by mtime, then the nearest message, ties to the left (to 5.1.0; D-16)."""
        files = self._queue.files()
        if not files:
            return 0
        chosen = files[-1]
        for file in files:
            if _mtime_ms(file.path) >= timestamp:
                chosen = file
                break
        low, high = self._bounds(chosen)
        left = left_time = right_time = -1
        right = chosen.file_from_offset // UNIT_NBYTES - 1  # RocketMQ's answer without a neighbour
        while low <= high:
            middle = (low + high) // 2
            if self._is_expired(middle):
                low = middle + 1
                continue
            time = self._time(middle)
            if time < 0:
                return 0
            if time == timestamp:
                return middle
            if time > timestamp:
                high, right, right_time = middle - 1, middle, time
            else:
                low, left, left_time = middle + 1, middle, time
        if left_time < 0 or right_time < 0:
            return max(left if left_time >= 0 else right, 0)
        return left if timestamp - left_time <= right_time - timestamp else right


def _mtime_ms(path: Any) -> int:
    try:
        return os.stat(path).st_mtime_ns // 1_000_000
    except FileNotFoundError:
        return MAX_TIMESTAMP
