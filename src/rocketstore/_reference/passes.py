"""Common code of all passes: the walk over the records of a window (``rs_pass.h``)."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from rocketstore._reference import record_check
from rocketstore._reference.arguments import INT64_MAX, Buffer, check_int64
from rocketstore._reference.record_check import Row
from rocketstore.status import RecordStatus

_COMPLETE = (
    RecordStatus.OK,
    RecordStatus.GHOST,
    RecordStatus.NUL_PROPERTIES,
    RecordStatus.UNSAFE_TOPIC,
)


class Pass(ABC):
    """Processes records one by one; its state is kept from window to window."""

    #: Added to the flags of every call.
    extra_flags = 0

    @abstractmethod
    def _take(self, record: memoryview, row: Row) -> bool:
        """Process a record, also a ghost; return ``False`` if there is no room left."""

    def consume(
        self,
        window: Buffer,
        position: int,
        stop: int,
        base_offset: int,
        segment_end: int,
        limit: int,
        flags: int,
        /,
    ) -> tuple[int, int]:
        """Process the records of a window; return (status, position to continue from)."""
        view = record_check.record_buffer(window, position, stop, base_offset, segment_end)
        check_int64(limit, flags)
        while position < stop and base_offset + position < limit:
            row = record_check.check(
                view[position:stop], base_offset + position, segment_end, flags | self.extra_flags
            )
            if row.status not in _COMPLETE:
                return int(row.status), position
            if not self._take(view[position : position + row.total_size], row):
                return int(RecordStatus.FULL), position
            position += row.total_size
        return int(RecordStatus.END), position


def bounded(name: str, value: Any, low: int, high: int) -> int:
    """Return an argument as a number; raise ``ValueError`` if it is out of range."""
    number = operator.index(value)
    if not low <= number <= high:
        raise ValueError(f"{name} {number} is outside {low} .. {high}")
    return number


def delays(delay_ms: Sequence[int]) -> tuple[int, ...]:
    """Return the delay levels, checked."""
    return tuple(bounded("delay", delay, 0, INT64_MAX) for delay in delay_ms)
