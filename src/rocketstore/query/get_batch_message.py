"""``getMessage`` over a BatchConsumeQueue: whole records, limits counted in messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketstore import formats, kernels
from rocketstore.errors import CorruptMessageError
from rocketstore.inner_batch import BatchUnit
from rocketstore.query.get_message import Selection
from rocketstore.queues.batch_consume_queue import BATCH_UNIT_NBYTES, unit_at
from rocketstore.queues.consume_queue import UNIT_NBYTES
from rocketstore.status import GetMessageStatus

if TYPE_CHECKING:
    from rocketstore.filter import MessageFilter
    from rocketstore.filter.bloom_filter import GroupBits

_UNIT = formats.CONSUME_QUEUE_UNIT.struct


class BatchSelection(Selection):
    """One run of the getMessage loop over the units of one BatchConsumeQueue file.

    Every unit is converted to a consume-queue unit, which ``Selection`` reads. Only the counting
    differs: a record counts as many messages as it holds.
    """

    __slots__ = ("_count", "_kept", "_nbytes")

    def run(
        self, offset: int, message_filter: MessageFilter | None, bits: GroupBits | None = None
    ) -> tuple[GetMessageStatus, int]:
        """Collect records from the one that holds queue offset ``offset``; see ``Selection``.

        These queues have no bit maps.
        """
        found = self._queue.units_from(offset)
        if found is None:
            # RocketMQ's BatchConsumeQueue does not find the next file and sends the consumer to 0.
            return GetMessageStatus.OFFSET_FOUND_NULL, 0
        units, position, stop = found
        examined = max(self._limits.filter_nbytes, self._max_count * UNIT_NBYTES)
        self._kept, self._count, self._nbytes = kernels.reading.MessageList(), 0, 0
        next_offset = offset
        while position < stop:
            unit = unit_at(units, position)
            if (unit.base_offset - offset) * UNIT_NBYTES >= examined or self._is_past_limits(unit):
                break
            try:
                self._take(unit, message_filter)
            except CorruptMessageError:
                if self._kept:
                    break
                raise
            next_offset = unit.next_offset
            position += BATCH_UNIT_NBYTES
        self.messages = self._kept
        return GetMessageStatus.FOUND if self._kept else self._reason, next_offset

    def _is_past_limits(self, unit: BatchUnit) -> bool:
        """Return RocketMQ's ``isTheBatchFull``; the first record always fits."""
        if not self._kept:
            return False
        limits = self._limits
        memory_from = self._log.max_offset - limits.memory_window_nbytes
        count, nbytes = (
            (limits.disk_count, limits.disk_nbytes)
            if unit.physical_offset < memory_from
            else (limits.memory_count, limits.memory_nbytes)
        )
        return (
            self._count + unit.batch_size > self._max_count
            or self._count >= count
            or self._nbytes + unit.size > nbytes
        )

    def _take(self, unit: BatchUnit, message_filter: MessageFilter | None) -> None:
        """Add the unit's record unless it is filtered out or deleted."""
        if message_filter is not None and not message_filter.is_matched_by_consume_queue(
            unit.tags_code, None
        ):
            self._reason = GetMessageStatus.NO_MATCHED_MESSAGE
            return
        self.messages = kernels.reading.MessageList()
        plain = _UNIT.pack(unit.physical_offset, unit.size, unit.tags_code)
        self._collect(plain, 0, UNIT_NBYTES, unit.base_offset)
        if not self.messages:
            return
        if message_filter is not None and not message_filter.is_matched_by_commit_log(
            self.messages[0]
        ):
            self._reason = GetMessageStatus.NO_MATCHED_MESSAGE
            return
        self._kept.extend(self.messages)
        self._count += unit.batch_size
        self._nbytes += unit.size
