"""The records of a log that a filter takes: the twin of ``_native/passes_select``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rocketstore._reference.arguments import Buffer
from rocketstore._reference.message import StoredMessage
from rocketstore._reference.passes import Pass
from rocketstore._reference.record_check import Row
from rocketstore._reference.record_filter import RecordFilter
from rocketstore.record_filters import CompiledFilter, check_batch_limits, record_filters
from rocketstore.status import RecordStatus


class SelectPass(Pass):
    """See ``_native/passes_select.pyi``."""

    def __init__(
        self,
        *,
        topics: Iterable[str] | None = None,
        tags: Iterable[str] | None = None,
        keys: Iterable[str] | None = None,
        queue_ids: Mapping[str, Iterable[int]] | None = None,
        begin: int | None = None,
        end: int | None = None,
        start_offsets: Mapping[tuple[str, int], tuple[int | None, int | None]] | None = None,
        filter: CompiledFilter | None = None,
        capacity: int = 1024,
    ) -> None:
        check_batch_limits(capacity, 1)
        self._filter = RecordFilter(
            record_filters(topics, tags, keys, queue_ids, begin, end, start_offsets, filter)
        )
        self._capacity = capacity
        self._positions: list[int] = []
        self._base_offset = 0
        self.last = -1

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
        """Judge the records from ``position`` on; return (status, position to continue from)."""
        self.last, self._base_offset = -1, base_offset
        return super().consume(window, position, stop, base_offset, segment_end, limit, flags)

    def _take(self, record: memoryview, row: Row) -> bool:
        if row.status == RecordStatus.GHOST:
            return True
        if len(self._positions) == self._capacity:
            return False
        message = StoredMessage(record, 0, row.physical_offset, row.physical_offset + len(record))
        self.last = row.physical_offset - self._base_offset
        if self._filter.takes(message):
            self._positions.append(self.last)
        return True

    @property
    def rows(self) -> int:
        """Positions not yet taken."""
        return len(self._positions)

    def take(self) -> list[int]:
        """Return the positions not yet taken, and forget them."""
        found, self._positions = self._positions, []
        return found
