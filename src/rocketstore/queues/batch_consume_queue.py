"""BatchConsumeQueue: one unit per stored record, which may be a batch of messages (RocketMQ 5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rocketstore import formats, kernels
from rocketstore.files.mapped_file import MappedFile, MemoryFile
from rocketstore.files.mapped_file_queue import MappedFileQueue
from rocketstore.inner_batch import BatchUnit
from rocketstore.queues.consume_queue import ALLOCATE_AHEAD_NBYTES, MOST_AHEAD_NBYTES, ConsumeQueue
from rocketstore.status import KernelStatus

if TYPE_CHECKING:
    import numpy

BATCH_UNIT_NBYTES = formats.BATCH_QUEUE_UNIT.nbytes
_OFFSET_AT = formats.BATCH_QUEUE_UNIT.at("physical_offset")
_TIME_AT = formats.BATCH_QUEUE_UNIT.at("store_timestamp")
_NO_COMPACTED_OFFSET = -1
_MAX_OFFSET = 2**63 - 1
_BASE_AT = formats.BATCH_QUEUE_UNIT.at("base_offset")


class BatchConsumeQueue(ConsumeQueue):
    """The units of one (topic, queue id) whose topic has the queue type ``BatchCQ``.

    It has the interface of a ``ConsumeQueue``. Queue offsets count messages, and a unit covers all
    messages of its record. So units are found by a search: their position in the files does not
    determine their queue offset.

    Parameters
    ----------
    topic : str
    queue_id : int
    queue : MappedFileQueue
        Its files, loaded; their size is a multiple of 46 bytes.
    in_memory : bool
        Write new units to private copies and memory files; do not change the disk.

    Notes
    -----
    Threading: readers need no lock; ``append`` and ``recover`` belong to the dispatching thread.
    Source: RocketMQ ``store/queue/BatchConsumeQueue.java``.
    """

    def __init__(
        self, topic: str, queue_id: int, queue: MappedFileQueue, *, in_memory: bool = False
    ) -> None:
        super().__init__(topic, queue_id, queue, in_memory=in_memory)
        #: Position after the last unit, in bytes from the start of the queue.
        self._end = 0
        self._flushed_end = 0

    # --- bounds -------------------------------------------------------------------------------

    @property
    def units_per_file(self) -> int:
        """Units in one file."""
        return self.queue.file_size // BATCH_UNIT_NBYTES

    def follow(self, next_index: Callable[[], int]) -> None:
        """Do nothing: ``append`` moves the queue's end."""

    def correct_min_index(self, log_min_offset: int, *, keep_when_empty: bool) -> None:
        """Set ``min_index`` to the first message of the first record from ``log_min_offset`` on.

        Without such a record, set it to the queue's end. (4.9 does not have these queues.)
        """
        for file in self._all_files():
            stop = self._readable(file)
            position = kernels.batch_consume_queue.search_units(
                file.mapping, 0, stop, _OFFSET_AT, log_min_offset
            )
            if position < stop:
                self.min_index = unit_at(file.mapping, position).base_offset
                return
        self.min_index = self.max_index

    # --- reading ------------------------------------------------------------------------------

    def _readable(self, file: MappedFile | MemoryFile) -> int:
        return max(0, min(self._end - file.file_from_offset, self._used(file.file_size)))

    @staticmethod
    def _used(file_size: int) -> int:
        return file_size - file_size % BATCH_UNIT_NBYTES

    def first_place(self, file: MappedFile, log_min_offset: int) -> int:
        """Return the log offset of the first record that ``file`` refers to, -1 without one."""
        if self._readable(file) < formats.BATCH_QUEUE_UNIT.nbytes:
            return -1
        content = file.read(0, formats.BATCH_QUEUE_UNIT.nbytes)
        return int(formats.BATCH_QUEUE_UNIT.struct.unpack(content)[0])

    def units_from(self, index: int) -> tuple[Any, int, int] | None:
        """Return (buffer, position, stop) of the units from ``index`` to the end of the file.

        If no unit covers ``index``, the next unit is the first. ``None`` if ``index`` is outside
        the queue.
        """
        if not 0 <= index < self.max_index:
            return None
        files = self.files()
        low, high = 0, len(files)
        while low < high:
            middle = (low + high) // 2
            if unit_at(files[middle].mapping, 0).base_offset <= index:
                low = middle + 1
            else:
                high = middle
        if not low:
            return None
        file = files[low - 1]
        stop = self._readable(file)
        following = kernels.batch_consume_queue.search_units(
            file.mapping, 0, stop, _BASE_AT, index + 1
        )
        position = following - BATCH_UNIT_NBYTES
        if unit_at(file.mapping, position).next_offset > index:
            return file.mapping, position, stop
        # No record holds this offset. RocketMQ would return the record before it again and again.
        if following < stop:
            return file.mapping, following, stop
        if low == len(files):
            return None
        return files[low].mapping, 0, self._readable(files[low])

    def batch_unit(self, index: int) -> BatchUnit | None:
        """Return the unit that covers queue offset ``index``, ``None`` without one."""
        found = self.units_from(index)
        if found is None:
            return None
        unit = unit_at(found[0], found[1])
        return unit if unit.base_offset <= index < unit.next_offset else None

    def unit(self, index: int) -> tuple[int, int, int] | None:
        """Return (physical offset, size, tags code) of the record that holds ``index``."""
        unit = self.batch_unit(index)
        return None if unit is None else unit[:3]

    def start_of(self, index: int) -> int:
        """Return the physical offset in the unit after the last good one, -1 without a file."""
        file = self.queue.find_mapped_file_by_offset(self._end)
        if file is None:
            return -1
        return unit_at(file.mapping, self._end - file.file_from_offset).physical_offset

    def readable_units(self, file: MappedFile | MemoryFile) -> int:
        """Return the number of units in ``file``."""
        return self._readable(file) // BATCH_UNIT_NBYTES

    def view(self) -> Iterator[tuple[int, Any, int]]:
        """Yield (number of the first unit, buffer, units) of every file."""
        for file in self.files():
            first = file.file_from_offset // BATCH_UNIT_NBYTES
            yield first, file.mapping, self.readable_units(file)

    def array(self) -> numpy.ndarray[Any, Any]:
        """Return the units whose records are still in the log, as a structured array (a copy)."""
        import numpy

        dtype = formats.BATCH_QUEUE_UNIT.dtype
        parts = [numpy.frombuffer(buffer, dtype, count) for _, buffer, count in self.view()]
        if not parts:
            return numpy.empty(0, dtype)
        units = numpy.concatenate(parts)
        return units[units["base_offset"] >= self.min_index]

    def offsets_with(self, tags_codes: bytes) -> numpy.ndarray[Any, Any]:
        """Return the queue offsets (int64) of messages whose unit has one of ``tags_codes``."""
        import numpy

        units = self.array()
        units = units[numpy.isin(units["tags_code"], numpy.frombuffer(tags_codes, numpy.int64))]
        counts = units["batch_size"].astype(numpy.int64)
        # The numbers 0, 1, ... of the messages within each unit.
        within = numpy.arange(counts.sum()) - numpy.repeat(counts.cumsum() - counts, counts)
        offsets: numpy.ndarray[Any, Any] = within
        offsets += numpy.repeat(units["base_offset"].astype(numpy.int64), counts)
        return offsets

    def offset_by_time(self, timestamp: int) -> int:
        """Return the queue offset for a store time, as RocketMQ does.

        Returns
        -------
        int
            First message of the first record stored at or after ``timestamp`` (epoch ms). Only
            one file is searched: the last one that begins no later. If all its records are not
            newer than ``timestamp``, the first message of its last record. 0 without a unit.

        Notes
        -----
        Source: RocketMQ ``store/queue/BatchConsumeQueue.java`` ``getOffsetInQueueByTime``.
        """
        files = self.files()
        if not files:
            return 0
        chosen = files[0]
        for file in files:
            if unit_at(file.mapping, 0).store_timestamp <= timestamp:
                chosen = file
        stop = self._readable(chosen)
        last = unit_at(chosen.mapping, stop - BATCH_UNIT_NBYTES)
        if timestamp >= last.store_timestamp:
            return last.base_offset
        position = kernels.batch_consume_queue.search_units(
            chosen.mapping, 0, stop, _TIME_AT, timestamp
        )
        return unit_at(chosen.mapping, position).base_offset

    # --- loading ------------------------------------------------------------------------------

    def _recover_in(self, files: Sequence[MappedFile], log_end: int) -> KernelStatus:
        """Find the last good unit, see ``recover``: log and queue offsets must ascend."""
        last_end, next_offset, end, status = -1, 0, 0, KernelStatus.OK
        for file in files:
            size = self._used(file.file_size)
            position, last_end, next_offset, code = kernels.batch_consume_queue.scan_units(
                file.mapping, 0, size, last_end, next_offset, log_end
            )
            if position:
                end = file.file_from_offset + position
            if position < size:
                status = KernelStatus(code)
                break
        self._end = self._flushed_end = end
        self.recovered_end = last_end
        self.recovered_index = self.flushed_index = next_offset
        return status

    # --- appending ----------------------------------------------------------------------------

    def append(self, unit: BatchUnit) -> bool:
        """Append one unit; return False if the file contained it already.

        Raises ``StoreFullError`` if the disk is full; nothing has changed then.
        """
        start = self._end - self._end % self.queue.file_size
        position = self._end - start
        is_there = self._has_written(start, position, unit)
        if not is_there:
            if self._in_memory:
                file = self._memory_file(start)
            else:
                file = self._file_with_room(start, position)
            kernels.batch_consume_queue.put_unit(file.mapping, position, *unit)
        if self._end == 0 or self.recovered_end < 0:
            self.min_index = unit.base_offset
        self._end += BATCH_UNIT_NBYTES
        self.recovered_end = unit.physical_offset + unit.size
        self.recovered_index = unit.next_offset
        return not is_there

    def _has_written(self, start: int, position: int, unit: BatchUnit) -> bool:
        file = self._overlay.get(start) or self.queue.find_mapped_file_by_offset(start)
        if file is None:
            return False
        found = kernels.batch_consume_queue.read_unit(file.mapping, position)
        return found == (*unit, _NO_COMPACTED_OFFSET, 0)

    def begin_comparing(self, log_min_offset: int) -> None:
        """Set the queue's end before the first unit whose record is still in the log.

        Dispatch from the log's beginning then appends every unit again and so corrects wrong ones.
        ``clear_after`` ends the comparison.
        """
        expired, kept = -1, 0
        for file in self.files():
            stop = self._readable(file)
            position = kernels.batch_consume_queue.search_units(
                file.mapping, 0, stop, _OFFSET_AT, log_min_offset
            )
            if position:
                last = unit_at(file.mapping, position - BATCH_UNIT_NBYTES)
                expired, kept = last.physical_offset + last.size, last.next_offset
                end = file.file_from_offset + position
            if position < stop:
                break
        if expired < 0:
            # The first files may have expired with their messages: start at the first file left.
            self.recovered_end, self.recovered_index = -1, 0
            self._end = self._flushed_end = max(self.queue.min_offset, 0)
            return
        self.recovered_end, self.recovered_index = expired, kept
        self._end = self._flushed_end = end

    def _file_with_room(self, start: int, position: int) -> MappedFile:
        file = self.queue.find_mapped_file_by_offset(start)
        if file is None:
            file = self.queue.create_file(start, allocated=ALLOCATE_AHEAD_NBYTES)
            file.mapping.advise("random")
        if position + BATCH_UNIT_NBYTES > file.allocated_position:
            ahead = min(max(position, ALLOCATE_AHEAD_NBYTES), MOST_AHEAD_NBYTES)
            file.allocate(position + ahead, used=position)
        return file

    def clear_after(self) -> None:
        """Overwrite everything after the last good unit with zeros, so that stale units never
        reappear (D-12)."""
        if self.recovered_end < 0:
            self._end = 0
        self._clear_from(self._end)

    def flush(self, end_index: int) -> None:
        """Sync all units. Raises ``OSError``; the error is final."""
        end = self._end
        # Recovery sets 0 if it is unknown what is on disk.
        done = self._flushed_end if self.flushed_index else 0
        self._flush_range(done, end)
        self._flushed_end = end
        self.flushed_index = max(self.flushed_index, end_index)


def unit_at(buffer: Any, position: int) -> BatchUnit:
    """Return one unit.

    The kernel is guarded: if another process truncates the file, it raises ``OSError`` (EFAULT).
    """
    return BatchUnit._make(kernels.batch_consume_queue.read_unit(buffer, position)[:6])
