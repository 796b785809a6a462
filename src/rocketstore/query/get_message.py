"""``getMessage``: statuses, batch limits and filters over one queue."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, NamedTuple

from rocketstore import formats, kernels
from rocketstore.config import MessageStoreConfig
from rocketstore.errors import CorruptMessageError
from rocketstore.log.commit_log import CommitLog, LogWindow
from rocketstore.queues.consume_queue import UNIT_NBYTES, ConsumeQueue
from rocketstore.queues.consume_queue_ext import CqExtUnit, is_ext_address
from rocketstore.status import GetMessageStatus, KernelStatus, RecordStatus

if TYPE_CHECKING:
    from rocketstore.filter import MessageFilter
    from rocketstore.filter.bloom_filter import GroupBits
    from rocketstore.record_filters import CompiledFilter

_ROW_NBYTES = formats.SELECTED_MESSAGE.nbytes
#: Most messages that one kernel call selects.
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
        """Return the limits of a configuration on this machine."""
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
    """Return status and next offset for an ``offset`` outside the queue, ``None`` inside."""
    if min_offset <= offset < max_offset:
        return None
    if max_offset == 0:
        return GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0
    if offset < min_offset:
        return GetMessageStatus.OFFSET_TOO_SMALL, min_offset
    if offset == max_offset:
        return GetMessageStatus.OFFSET_OVERFLOW_ONE, offset
    return GetMessageStatus.OFFSET_OVERFLOW_BADLY, max_offset


class Selection:
    """One run of the getMessage loop over the units of one queue file.

    Parameters
    ----------
    log : CommitLog
    queue : ConsumeQueue
    limits : BatchLimits
    max_count : int
        Requested number of messages.
    tags_codes : bytes or None
        Accepted int64 codes, ``None`` for all.
    sql_filter : CompiledFilter or None
        Only records for which it is TRUE; evaluated by the kernel.
    """

    __slots__ = (
        "_codes",
        "_columns",
        "_limits",
        "_log",
        "_max_count",
        "_queue",
        "_reason",
        "_sql_filter",
        "messages",
    )

    def __init__(
        self,
        log: CommitLog,
        queue: ConsumeQueue,
        limits: BatchLimits,
        max_count: int,
        tags_codes: bytes | None,
        sql_filter: CompiledFilter | None = None,
    ) -> None:
        self.messages = kernels.reading.MessageList()
        self._log = log
        self._queue = queue
        self._limits = limits
        self._max_count = max_count
        self._codes = tags_codes
        self._sql_filter = sql_filter
        self._reason = GetMessageStatus.NO_MATCHED_MESSAGE
        self._columns = array("q", (0,)), array("i", (0,)), array("q", (0,))

    def run(
        self, offset: int, message_filter: MessageFilter | None, bits: GroupBits | None = None
    ) -> tuple[GetMessageStatus, int]:
        """Collect messages from queue offset ``offset``; return status and next offset.

        ``message_filter`` is called for every message that passes the tags codes. With ``bits``,
        messages that their bit maps exclude are skipped without being read.
        Raises ``CorruptMessageError`` if the first message to be returned is damaged.
        """
        found = self._queue.units_from(offset)
        if found is None:
            per_file = self._queue.units_per_file
            return GetMessageStatus.OFFSET_FOUND_NULL, offset + per_file - offset % per_file
        units, start, stop = found
        examined = max(self._limits.filter_nbytes, self._max_count * UNIT_NBYTES)
        if self._queue.pull_looks_no_further:
            examined = max(self._max_count, 1) * UNIT_NBYTES
        if stop - start > examined:
            stop = start + -(-examined // UNIT_NBYTES) * UNIT_NBYTES
        ext = self._queue.ext
        if bits is not None and ext is not None:
            units = ext.without_excluded(units, start, stop, bits)
            start, stop, self._codes = 0, len(units), b""
        elif message_filter is None and self._codes is not None and ext is not None:
            units = ext.resolve(units, start, stop)
            start, stop = 0, len(units)
        if message_filter is None:
            reached = self._collect(units, start, stop, offset)
        else:
            judged = bits is not None
            reached = self._collect_filtered(
                units, start, stop, offset, message_filter, judged=judged
            )
        status = GetMessageStatus.FOUND if self.messages else self._reason
        return status, offset + (reached - start) // UNIT_NBYTES

    def _unit(self, units: Any, position: int) -> tuple[int, int, int]:
        """Return physical offset, size and tags code of one unit.

        Another process may truncate the file, so a guarded kernel reads it. Raises
        ``MappedFileError`` then.
        """
        place, size, code = self._columns
        kernels.consume_queue.read_units(units, position, position + UNIT_NBYTES, place, size, code)
        return place[0], size[0], code[0]

    def _collect(self, units: Any, position: int, stop: int, index: int) -> int:
        """Read the units' records, segment by segment; return the position reached."""
        log, limits, queue, messages = self._log, self._limits, self._queue, self.messages
        max_count, nbytes = self._max_count, 0
        memory_count = max_count if max_count < limits.memory_count else limits.memory_count
        disk_count = max_count if max_count < limits.disk_count else limits.disk_count
        room = min(max(memory_count, disk_count, 1), _MAX_ROOM)
        while position < stop:
            physical_offset, size, _ = self._unit(units, position)
            window = log.window(physical_offset)
            if window is None or size == formats.FILLER_UNIT_SIZE:
                if size != formats.FILLER_UNIT_SIZE and messages:
                    place = physical_offset, size
                    if len(messages) >= max_count or self._is_full(len(messages), nbytes, *place):
                        break  # the next pull begins there
                passed = self._skip_unreadable(units, position, stop)
                index += (passed - position) // UNIT_NBYTES
                position = passed
                continue
            upto = stop if not log.damage else self._next_known_damage(units, position, stop)
            if upto == position:
                if messages:
                    break
                raise log.corruption(physical_offset, log.damage[physical_offset])
            rows = bytearray(room * _ROW_NBYTES)
            reached, count, added, status, reason = kernels.consume_queue.select_messages(
                units, position, upto, index,
                window.buffer, window.stop, window.base_offset, window.segment_end, log.min_offset,
                queue.topic_bytes, queue.queue_id, self._codes, self._sql_filter,
                memory_count, limits.memory_nbytes,
                log.max_offset - limits.memory_window_nbytes, disk_count, limits.disk_nbytes,
                nbytes, len(messages), window.flags, rows,
            )  # fmt: skip
            if count:
                messages.add(window, rows, count)
                nbytes += added
            elif reason:
                self._reason = GetMessageStatus(reason)
            index += (reached - position) // UNIT_NBYTES
            position = reached
            if status == KernelStatus.LIMIT or status == RecordStatus.OK:
                break
            if status == RecordStatus.INCOMPLETE and self._has_grown(window, units, position):
                continue
            if status != RecordStatus.END and status != KernelStatus.OTHER_SEGMENT:
                if messages:
                    break
                self._meet_damage(units, position, status)
                position += UNIT_NBYTES
                index += 1
        return position

    def _has_grown(self, window: LogWindow, units: Any, position: int) -> bool:
        """Return whether the log now shows more of the segment than the cached ``window``.

        The unit's record lies past the window's end.
        """
        now = self._log.window(self._unit(units, position)[0])
        if now is None or now.base_offset != window.base_offset:
            return False
        return now.stop > window.stop

    def _skip_unreadable(self, units: Any, position: int, stop: int) -> int:
        """Skip a filler, or all units whose records lie in a deleted segment.

        A unit with another tag is skipped as not matched, before its record is looked up.
        """
        physical_offset, size, tags_code = self._unit(units, position)
        position += UNIT_NBYTES
        if not self._may_match(tags_code):
            self._reason = GetMessageStatus.NO_MATCHED_MESSAGE
            return position
        self._reason = GetMessageStatus.MESSAGE_WAS_REMOVING
        if size == formats.FILLER_UNIT_SIZE or physical_offset < 0:
            return position
        next_file = self._log.roll_next_file(physical_offset)
        while position < stop and self._unit(units, position)[0] < next_file:
            position += UNIT_NBYTES
        return position

    def _may_match(self, tags_code: int) -> bool:
        codes = self._codes
        if codes is None or tags_code <= formats.MAX_EXT_ADDRESS:
            return True
        return tags_code in memoryview(codes).cast("B").cast("q")

    def _next_known_damage(self, units: Any, position: int, stop: int) -> int:
        """Return the position of the next unit that names a corrupt range and may match, ``stop``
        without one.

        Recovery detects damage that a record alone does not show. Examples are ghosts in place of
        messages, and records whose last bytes were zeroed with the next record's head.
        """
        while position < stop:
            physical_offset, _, tags_code = self._unit(units, position)
            if physical_offset in self._log.damage and self._may_match(tags_code):
                break
            position += UNIT_NBYTES
        return position

    def _meet_damage(self, units: Any, position: int, status: int) -> None:
        """Raise for a damaged record; skip a unit that names no record of its own."""
        wrong_unit = status >= KernelStatus.FULL or status == RecordStatus.INCOMPLETE
        if wrong_unit:
            self._reason = GetMessageStatus.MESSAGE_WAS_REMOVING
            return
        raise self._log.corruption(self._unit(units, position)[0], status)

    def _collect_filtered(
        self,
        units: Any,
        position: int,
        stop: int,
        index: int,
        message_filter: MessageFilter,
        *,
        judged: bool,
    ) -> int:
        """Collect like ``_collect``, but call a Python filter for each unit and message.

        With ``judged``, the units' codes say which may match; the filter is called for messages
        only.
        """
        kept, nbytes, gone_below = kernels.reading.MessageList(), 0, -1
        while position < stop and len(kept) < self._max_count:
            physical_offset, size, tags_code = self._unit(units, position)
            if kept and self._is_full(len(kept), nbytes, physical_offset, size):
                break
            if physical_offset < gone_below:
                pass  # in a deleted segment; the filter was called for its first unit
            elif not (
                self._may_match(tags_code)
                if judged
                else message_filter.is_matched_by_consume_queue(*self._ext_of(tags_code))
            ):
                self._reason = GetMessageStatus.NO_MATCHED_MESSAGE
            else:
                self.messages = kernels.reading.MessageList()
                try:
                    self._collect(units, position, position + UNIT_NBYTES, index)
                except CorruptMessageError:
                    if kept:
                        break  # the next pull begins there
                    raise
                if self.messages:
                    message = self.messages[0]
                    if not message_filter.is_matched_by_commit_log(message):
                        self._reason = GetMessageStatus.NO_MATCHED_MESSAGE
                    else:
                        kept.extend(self.messages)
                        nbytes += message.store_size
                elif self._log.window(physical_offset) is None:
                    gone_below = self._log.roll_next_file(physical_offset)
            position += UNIT_NBYTES
            index += 1
        self.messages = kept
        return position

    def _ext_of(self, tags_code: int) -> tuple[int | None, CqExtUnit | None]:
        """Return tags code and ext unit of a unit; an unknown code is ``None``."""
        if not is_ext_address(tags_code):
            return tags_code, None
        ext = self._queue.ext
        found = ext.unit(tags_code) if ext is not None else None
        return (None, None) if found is None else (found.tags_code, found)

    def _is_full(self, count: int, nbytes: int, physical_offset: int, size: int) -> bool:
        """Return RocketMQ's ``isTheBatchFull`` for the next unit, before filtering."""
        limits = self._limits
        on_disk = physical_offset < self._log.max_offset - limits.memory_window_nbytes
        most_count, most_nbytes = (
            (limits.disk_count, limits.disk_nbytes)
            if on_disk
            else (limits.memory_count, limits.memory_nbytes)
        )
        return count >= most_count or nbytes + size > most_nbytes
