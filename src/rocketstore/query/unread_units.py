"""Queue units whose messages are unreadable: damaged, missing, or without read permission."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from rocketstore import formats
from rocketstore.errors import CorruptConsumeQueueError, CorruptionError
from rocketstore.log.commit_log import CommitLog
from rocketstore.message import StoredMessage
from rocketstore.queues.batch_consume_queue import BatchConsumeQueue
from rocketstore.queues.consume_queue import UNIT_NBYTES, ConsumeQueue
from rocketstore.status import RecordStatus

_COMPLETE = (RecordStatus.OK, RecordStatus.NUL_PROPERTIES, RecordStatus.UNSAFE_TOPIC)


class UnreadUnit(NamedTuple):
    """A queue offset with an unreadable message, its log offset, and the error."""

    queue_offset: int
    physical_offset: int
    error: CorruptionError


class UnreadUnits:
    """Find the unreadable messages of one queue.

    Pre-blank units and expired messages do not count, unless the log is corrupt where the message
    was.

    Parameters
    ----------
    log : CommitLog
    queue : ConsumeQueue
    tags_codes : collection of int, optional
        Consider only units with one of these codes; ``None``: all.
    """

    def __init__(
        self, log: CommitLog, queue: ConsumeQueue, tags_codes: Collection[int] | None = None
    ) -> None:
        self._log = log
        self._queue = queue
        self._codes = tags_codes

    def between(
        self, first: int, stop: int, read: Collection[int] = frozenset()
    ) -> Iterator[UnreadUnit]:
        """Yield the unreadable messages from queue offset ``first`` to before ``stop``, ascending.

        ``read``: log offsets of records that were already read; they are not checked.
        """
        index, end, blanks = first, self._end_before(first), list[int]()
        while index < stop:
            following, unit = self._at(index)
            if unit is None:
                blanks.append(index)
            else:
                yield from self._blanks(blanks, end, unit[0])
                blanks, end = [], unit[0] + unit[1]
                if unit[0] not in read and self._is_wanted(unit[2]):
                    yield from self._judge(index, unit[0])
            index = following
        if blanks:
            yield from self._blanks(blanks, end, self._start_of_next(stop))

    def behind_end(self) -> Iterator[UnreadUnit]:
        """Yield the unit on disk after the queue's end if its record was in the log's lost end."""
        log, index = self._log, self._queue.max_index
        places = [at for at in log.damage if at >= log.max_offset]
        offset = self._queue.start_of(index) if places else -1
        if offset >= log.max_offset:
            yield UnreadUnit(index, offset, log.corruption(offset, log.damage[min(places)]))

    def _at(self, index: int) -> tuple[int, tuple[int, int, int] | None]:
        """Return the next unit's queue offset, and this one's physical offset, size, tags code."""
        queue = self._queue
        if isinstance(queue, BatchConsumeQueue):
            batch = queue.batch_unit(index)
            if batch is None:
                return index + 1, None
            following = max(batch.next_offset, index + 1)
            return following, (batch.physical_offset, batch.size, batch.tags_code)
        unit = queue.unit(index)
        if unit is not None and unit[1] == formats.FILLER_UNIT_SIZE:
            unit = None
        return index + 1, unit

    def _end_before(self, index: int) -> int:
        """Return the log offset where the record of the unit before ``index`` ends."""
        unit = self._at(index - 1)[1] if index > 0 else None
        return max(self._log.min_offset, 0) if unit is None else unit[0] + unit[1]

    def _start_of_next(self, index: int) -> int:
        while index < self._queue.max_index:
            index, unit = self._at(index)
            if unit is not None:
                return unit[0]
        return max([self._log.max_offset, *(at + 1 for at in self._log.damage)])

    def _is_wanted(self, tags_code: int) -> bool:
        codes = self._codes
        return codes is None or tags_code <= formats.MAX_EXT_ADDRESS or tags_code in codes

    def _judge(self, index: int, offset: int) -> Iterator[UnreadUnit]:
        log = self._log
        if offset < log.min_offset:
            return  # expired
        status, message = log.record_at(offset)
        if log.place(offset)[2] is not None or offset in log.damage:
            yield UnreadUnit(index, offset, log.corruption(offset, status))
        elif status in _COMPLETE and message is not None:
            if not self._is_of_queue(message):
                yield UnreadUnit(index, offset, self._wrong_unit(index, offset))
        elif offset < log.max_offset:
            error: CorruptionError = log.corruption(offset, status)
            if status >= RecordStatus.FIRST_DAMAGE and not log.claims(offset):
                error = self._wrong_unit(index, offset)
            yield UnreadUnit(index, offset, error)

    def _is_of_queue(self, message: StoredMessage) -> bool:
        queue = self._queue
        if (message.topic, message.queue_id) == (queue.topic, queue.queue_id):
            return True
        others = message.properties.get(formats.PROPERTY_INNER_MULTI_DISPATCH, "")
        return queue.topic in others.split(formats.MULTI_DISPATCH_SEPARATOR)

    def _wrong_unit(self, index: int, offset: int) -> CorruptConsumeQueueError:
        queue = self._queue
        file = queue.queue.find_mapped_file_by_offset(index * UNIT_NBYTES)
        if isinstance(queue, BatchConsumeQueue) or file is None:
            path, position = queue.queue.directory, 0
        else:
            path, position = file.path, index * UNIT_NBYTES - file.file_from_offset
        reason = f"queue offset {index} names log offset {offset}, where no record of it begins"
        return CorruptConsumeQueueError(path, position, reason)

    def _blanks(self, blanks: list[int], start: int, stop: int) -> Iterator[UnreadUnit]:
        """Yield queue offsets without a unit whose messages were in ``start`` .. ``stop``.

        Only if that range is damaged.
        """
        if not blanks:
            return
        places = [at for at in self._log.damage if start <= at < stop]
        if places:
            at = min(places)
            error = self._log.corruption(at, self._log.damage[at])
            for index in blanks:
                yield UnreadUnit(index, at, error)
