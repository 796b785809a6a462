"""``getMessage``: statuses, batch limits and filters over one queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rocketstore import formats, kernels
from rocketstore.commit_log import CommitLog, LogWindow
from rocketstore.config import MessageStoreConfig
from rocketstore.consume_queue import UNIT_NBYTES, ConsumeQueue
from rocketstore.results import MessageList
from rocketstore.status import GetMessageStatus, KernelStatus, RecordStatus

if TYPE_CHECKING:
    from rocketstore.filter import MessageFilter

_ROW_NBYTES = formats.SELECTED_MESSAGE.nbytes
_UNIT = formats.CONSUME_QUEUE_UNIT.struct
#: Messages one kernel call selects at the most.
_MAX_ROOM = 1024


class BatchLimits(NamedTuple):
    """Limits of one ``get_message`` call; see ``MessageStoreConfig``."""

    memory_nbytes: int
    memory_count: int
    disk_nbytes: int
    disk_count: int
    filter_nbytes: int
    memory_window_nbytes: int

    @classmethod
    def of(cls, config: MessageStoreConfig) -> BatchLimits:
        """Limits of a configuration on this machine."""
        import os

        try:
            ram = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (AttributeError, ValueError, OSError):
            ram = 8 << 30
        return cls(
            config.max_transfer_bytes_on_message_in_memory,
            config.max_transfer_count_on_message_in_memory,
            config.max_transfer_bytes_on_message_in_disk,
            config.max_transfer_count_on_message_in_disk,
            config.max_filter_message_size,
            int(ram * config.access_message_in_memory_max_ratio / 100),
        )


def bounds_status(
    offset: int, min_offset: int, max_offset: int
) -> tuple[GetMessageStatus, int] | None:
    """Status and next offset for an ``offset`` outside the queue, ``None`` inside."""
    if max_offset == 0:
        return GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0
    if offset < min_offset:
        return GetMessageStatus.OFFSET_TOO_SMALL, min_offset
    if offset == max_offset:
        return GetMessageStatus.OFFSET_OVERFLOW_ONE, offset
    if offset > max_offset:
        return GetMessageStatus.OFFSET_OVERFLOW_BADLY, max_offset
    return None


class Selection:
    """One run of the getMessage loop over the units of one queue file.

    Parameters
    ----------
    log : CommitLog
    queue : ConsumeQueue
    limits : BatchLimits
    max_count : int
        Messages asked for.
    tags_codes : bytes or None
        int64 codes that pass, ``None`` for all.
    message_filter : MessageFilter or None
        Asked for every message besides, when it is more than a set of tags codes.
    """

    def __init__(
        self,
        log: CommitLog,
        queue: ConsumeQueue,
        limits: BatchLimits,
        max_count: int,
        tags_codes: bytes | None,
        message_filter: MessageFilter | None,
    ) -> None:
        self.messages = MessageList()
        self._log = log
        self._queue = queue
        self._limits = limits
        self._max_count = max_count
        self._codes = tags_codes
        self._filter = message_filter
        self._nbytes = 0
        self._reason = GetMessageStatus.NO_MATCHED_MESSAGE
        room = min(max_count, max(limits.memory_count, limits.disk_count))
        self._room = max(1, min(room, _MAX_ROOM))

    def run(self, offset: int) -> tuple[GetMessageStatus, int]:
        """Collect messages from queue offset ``offset``; return status and next offset.

        Raises ``CorruptMessageError`` when the first message that would be returned is damaged.
        """
        found = self._queue.units_from(offset)
        if found is None:
            per_file = self._queue.units_per_file
            return GetMessageStatus.OFFSET_FOUND_NULL, offset + per_file - offset % per_file
        units, start, stop = found
        examined = max(self._limits.filter_nbytes, self._max_count * UNIT_NBYTES)
        stop = min(stop, start + -(-examined // UNIT_NBYTES) * UNIT_NBYTES)
        position, going = start, True
        while going and position < stop:
            physical_offset, size, tags_code = _UNIT.unpack_from(units, position)
            window = self._log.window(physical_offset)
            index = offset + (position - start) // UNIT_NBYTES
            if window is None or size == formats.FILLER_UNIT_SIZE:
                position = self._pass_over(units, position, stop)
            elif self._filter is None:
                position, going = self._select(window, units, position, stop, index)
            elif self._filter.is_matched_by_consume_queue(tags_code, None):
                position, going = self._select_one(window, units, position, index)
            else:
                self._reason = GetMessageStatus.NO_MATCHED_MESSAGE
                position += UNIT_NBYTES
        status = GetMessageStatus.FOUND if self.messages else self._reason
        return status, offset + (position - start) // UNIT_NBYTES

    def _pass_over(self, units: Any, position: int, stop: int) -> int:
        """Pass over a filler, or all units whose records lie in a segment that is gone."""
        self._reason = GetMessageStatus.MESSAGE_WAS_REMOVING
        physical_offset, size, _ = _UNIT.unpack_from(units, position)
        position += UNIT_NBYTES
        if size == formats.FILLER_UNIT_SIZE or physical_offset < 0:
            return position
        next_file = self._log.roll_next_file(physical_offset)
        while position < stop and _UNIT.unpack_from(units, position)[0] < next_file:
            position += UNIT_NBYTES
        return position

    def _select(
        self, window: LogWindow, units: Any, position: int, stop: int, index: int
    ) -> tuple[int, bool]:
        """Follow units into one segment; return the position reached and whether to go on."""
        limits, queue = self._limits, self._queue
        out = bytearray(self._room * _ROW_NBYTES)
        reached, rows, nbytes, status, reason = kernels.consume_queue.select_messages(
            units, position, stop, index,
            window.buffer, window.stop, window.base_offset, window.segment_end,
            self._log.min_offset, queue.topic_bytes, queue.queue_id, self._codes,
            min(self._max_count, limits.memory_count), limits.memory_nbytes,
            self._log.max_offset - limits.memory_window_nbytes,
            min(self._max_count, limits.disk_count), limits.disk_nbytes,
            self._nbytes, len(self.messages), self._log.record_flags, out,
        )  # fmt: skip
        if rows:
            self.messages.add(window, out, rows)
            self._nbytes += nbytes
        elif reason:
            self._reason = GetMessageStatus(reason)
        if status in (RecordStatus.END, KernelStatus.OTHER_SEGMENT):
            return reached, True
        if status in (RecordStatus.OK, KernelStatus.LIMIT):
            return reached, False
        return self._meet_damage(units, reached, status)

    def _meet_damage(self, units: Any, position: int, status: int) -> tuple[int, bool]:
        """A damaged record ends the batch, as the first of it it raises; a wrong unit is passed
        over."""
        if self.messages:
            return position, False
        if status == KernelStatus.MISMATCH or status == RecordStatus.INCOMPLETE:
            self._reason = GetMessageStatus.MESSAGE_WAS_REMOVING
            return position + UNIT_NBYTES, True
        raise self._log.corruption(_UNIT.unpack_from(units, position)[0], status)

    def _select_one(
        self, window: LogWindow, units: Any, position: int, index: int
    ) -> tuple[int, bool]:
        """One unit under a filter that is asked in Python."""
        assert self._filter is not None
        count, nbytes = len(self.messages), self._nbytes
        reached, going = self._select(window, units, position, position + UNIT_NBYTES, index)
        if len(self.messages) > count and not self._filter.is_matched_by_commit_log(
            self.messages[count]
        ):
            self.messages.drop_last()
            self._nbytes = nbytes
            self._reason = GetMessageStatus.NO_MATCHED_MESSAGE
        return reached, going
