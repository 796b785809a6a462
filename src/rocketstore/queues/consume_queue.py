"""ConsumeQueue: the units of one queue in its files."""

from __future__ import annotations

import errno
import os
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rocketstore import formats, kernels
from rocketstore.files.durable import READ_ONLY, is_zeros, open_regular_file
from rocketstore.files.mapped_file import MappedFile, MemoryFile, name_cut_file
from rocketstore.files.mapped_file_queue import (
    MappedFileQueue,
    overlay_file,
)
from rocketstore.queues.consume_queue_ext import ConsumeQueueExt, is_ext_address
from rocketstore.status import KernelStatus

UNIT_NBYTES = formats.CONSUME_QUEUE_UNIT.nbytes
#: No delay of a level table is longer.
_MOST_DELAY_MS = 400 * 86_400_000
#: Limits of how far ahead blocks are reserved in a queue file; in between, as far as it is long.
ALLOCATE_AHEAD_NBYTES = 64 * 1024
MOST_AHEAD_NBYTES = 1024 * 1024


def load_unit(file: MappedFile | MemoryFile, position: int) -> tuple[int, int, int]:
    """Return physical offset, size and tags code of one unit.

    The kernel is guarded: if another process truncates the file, ``OSError`` names the file.
    """
    try:
        return _load(file.mapping, position)
    except OSError as error:
        name_cut_file(error, [file])
        raise


def _load(buffer: Any, position: int) -> tuple[int, int, int]:
    place, size, code = array("q", (0,)), array("i", (0,)), array("q", (0,))
    kernels.consume_queue.read_units(buffer, position, position + UNIT_NBYTES, place, size, code)
    return place[0], size[0], code[0]


def find_unit(file: MappedFile | MemoryFile, stop: int, offset: int) -> int:
    """Return the position of the first unit before ``stop`` with a log offset of at least
    ``offset``, ``stop`` without one. Raises as ``load_unit``."""
    try:
        return int(kernels.consume_queue.find_unit(file.mapping, 0, stop, offset))
    except OSError as error:
        name_cut_file(error, [file])
        raise


def _units_of(file: MappedFile | MemoryFile, count: int) -> Any:
    """Return the first ``count`` units of a file as an array."""
    import numpy

    if isinstance(file, MappedFile) and not file.private:
        content = file.read(0, count * UNIT_NBYTES)
    else:
        content = bytes(memoryview(file.mapping)[: count * UNIT_NBYTES])
    return numpy.frombuffer(content, formats.CONSUME_QUEUE_UNIT.dtype)


def are_of_another_table(found: Any, made: Any) -> Any:
    """Return where due times of delayed messages differ as those of two level tables do.

    The unit of a delayed message has its due time, from the ``messageDelayLevel`` of the broker
    that made the unit. ``found``, ``made``: arrays of tags codes, of units and of their records.
    """
    difference = found.astype("i8") - made.astype("i8")
    is_delay = (difference % 1000 == 0) & (abs(difference) <= _MOST_DELAY_MS)
    return (difference != 0) & is_delay  # delays are whole seconds


class ConsumeQueue(kernels.reading.QueuePlace):
    """The units of one (topic, queue id).

    Parameters
    ----------
    topic : str
    queue_id : int
    queue : MappedFileQueue
        Its files, loaded.
    in_memory : bool
        Write new units to private copies and memory files; do not change the disk.

    Attributes
    ----------
    min_index : int
        Queue offset of the first unit whose message is still in the log.
    recovered_index, recovered_end : int
        Queue offset after the last good unit on disk, and the end of its record in the log (-1
        without one).
    ext : ConsumeQueueExt or None
        The ext units that its units refer to; ``None`` if the store has no ext files.

    Notes
    -----
    Threading: readers need no lock; ``file_for_append`` and ``recover`` belong to the dispatching
    thread. Source: RocketMQ ``store/ConsumeQueue.java``.
    """

    def __init__(
        self, topic: str, queue_id: int, queue: MappedFileQueue, *, in_memory: bool = False
    ) -> None:
        super().__init__(topic.encode("utf-8", "surrogateescape"), queue_id)
        self.topic = topic
        self.queue = queue
        self.recovered_end = -1
        self.flushed_index = 0
        self.ext: ConsumeQueueExt | None = None
        #: Whether a pull examines only as many units as messages are wanted (RocksDB, up to 5.4).
        self.pull_looks_no_further = False
        self._in_memory = in_memory
        self._overlay: dict[int, MappedFile | MemoryFile] = {}

    # --- bounds -------------------------------------------------------------------------------

    @property
    def units_per_file(self) -> int:
        """Units in one file."""
        return self.queue.file_size // UNIT_NBYTES

    def follow(self, next_index: Callable[[], int]) -> None:
        """Use the dispatcher's ``next_index`` as the queue's end."""
        self.next_index = next_index

    def correct_min_index(self, log_min_offset: int, *, keep_when_empty: bool) -> None:
        """Set ``min_index`` to the first unit whose record starts at or after ``log_min_offset``.

        Without such a unit, keep the value if ``keep_when_empty`` (4.9), else use the queue's end
        (5.x).
        """
        for file in self._all_files():
            stop = self._readable(file)
            position = find_unit(file, stop, log_min_offset)
            if position < stop:
                self.min_index = (file.file_from_offset + position) // UNIT_NBYTES
                return
        if not keep_when_empty:
            self.min_index = self.max_index

    # --- reading ------------------------------------------------------------------------------

    def _all_files(self) -> list[MappedFile | MemoryFile]:
        files: dict[int, MappedFile | MemoryFile] = {
            file.file_from_offset: file for file in self.queue.files
        }
        files.update(self._overlay)
        return [files[start] for start in sorted(files)]

    def _readable(self, file: MappedFile | MemoryFile) -> int:
        """Return the position after the last unit of ``file``."""
        end = self.max_index * UNIT_NBYTES - file.file_from_offset
        return max(0, min(end, file.file_size))

    def units_from(self, index: int) -> tuple[Any, int, int] | None:
        """Return (buffer, position, stop) of the units from ``index`` to the end of its file.

        ``None`` if ``index`` is outside the queue, or if the file is gone: the store's writer may
        have deleted it before it was mapped.
        """
        end = self.max_index
        if not 0 <= index < end:
            return None
        size = self.queue.file_size
        offset = index * UNIT_NBYTES
        position = offset % size
        file = self._overlay.get(offset - position) if self._overlay else None
        if file is None:
            file = self.queue.find_mapped_file_by_offset(offset)
            if file is None:
                return None
        first = (offset - position) // UNIT_NBYTES
        try:
            mapping = file.mapping
        except FileNotFoundError:
            return None
        self.recent = (file, first, first + size // UNIT_NBYTES)
        return mapping, position, min(end * UNIT_NBYTES - offset + position, size)

    def start_of(self, index: int) -> int:
        """Return the physical offset in unit ``index``, good or not; -1 without a file."""
        return self.raw_unit(index)[0]

    def raw_unit(self, index: int) -> tuple[int, int, int]:
        """Return physical offset, size and tags code as in the files, even past the queue's end.

        Without a file, return (-1, 0, 0).
        """
        file = self.queue.find_mapped_file_by_offset(index * UNIT_NBYTES)
        position = index * UNIT_NBYTES - (0 if file is None else file.file_from_offset)
        if file is None or position + UNIT_NBYTES > file.file_size:
            return -1, 0, 0
        return load_unit(file, position)

    def first_place(self, file: MappedFile, log_min_offset: int) -> int:
        """Return the log offset of the first record that ``file`` refers to and that is still in
        the log; -1 without one."""
        stop = self._readable(file)
        if stop and log_min_offset <= 0:
            place, size, _ = load_unit(file, 0)
            if place == 0 and size != formats.FILLER_UNIT_SIZE:
                return 0
        # Fillers refer to log offset 0.
        position = find_unit(file, stop, max(log_min_offset, 1))
        return load_unit(file, position)[0] if position < stop else -1

    def unit(self, index: int) -> tuple[int, int, int] | None:
        """Return (physical offset, size, tags code) of one unit; ``None`` for a filler or without
        a unit."""
        found = self.units_from(index)
        if found is None:
            return None
        buffer, position, stop = found
        if position + UNIT_NBYTES > stop:
            return None
        try:
            physical_offset, size, tags_code = _load(buffer, position)
        except OSError as error:
            name_cut_file(error, self._all_files())
            raise
        if size == formats.FILLER_UNIT_SIZE and physical_offset == 0:
            return None
        return physical_offset, size, tags_code

    def has_written(self, index: int) -> bool:
        """Return whether the files have non-zero bytes in the place of unit ``index``."""
        file = self.queue.find_mapped_file_by_offset(index * UNIT_NBYTES)
        if file is None:
            return False
        position = index * UNIT_NBYTES - file.file_from_offset
        return not is_zeros(file.read(position, UNIT_NBYTES))

    def holds(self, index: int, physical_offset: int, size: int) -> bool:
        """Return whether the files have a record's unit in the place of unit ``index``, even past
        the queue's end."""
        return self.raw_unit(index)[:2] == (physical_offset, size)

    def index_of(self, physical_offset: int) -> int | None:
        """Return the queue offset of the unit for ``physical_offset``, ``None`` without one."""
        for file in self._all_files():
            stop = self._readable(file)
            position = find_unit(file, stop, physical_offset)
            if position < stop:
                index = (file.file_from_offset + position) // UNIT_NBYTES
                return index if self.start_of(index) == physical_offset else None
        return None

    def first_named(self, stop: int, log_min_offset: int) -> int:
        """Return the queue offset of the first unit before ``stop`` whose log offset is at least
        ``log_min_offset``; ``stop`` without one.

        Files are read from the last one backwards, up to one with a unit of an expired record.
        """
        first = stop
        for file in reversed(self._all_files()):
            base = file.file_from_offset // UNIT_NBYTES
            count = min(stop - base, file.file_size // UNIT_NBYTES)
            if count <= 0:
                continue
            units = _units_of(file, count)
            real = (units["size"] > 0) & (units["size"] != formats.FILLER_UNIT_SIZE)
            named = (real & (units["physical_offset"] >= log_min_offset)).nonzero()[0]
            if len(named):
                first = base + int(named[0])
            if real.sum() > len(named):
                break
        return first

    def files(self) -> list[MappedFile | MemoryFile]:
        """Return the files that hold units, ascending; in-memory copies replace files on disk."""
        return [file for file in self._all_files() if self._readable(file) > 0]

    def readable_units(self, file: MappedFile | MemoryFile) -> int:
        """Return the number of units in ``file``."""
        return self._readable(file) // UNIT_NBYTES

    def view(self) -> Iterator[tuple[int, Any, int]]:
        """Yield (first queue offset, buffer, units) of every file."""
        for file in self.files():
            yield file.file_from_offset // UNIT_NBYTES, file.mapping, self.readable_units(file)

    # --- loading ------------------------------------------------------------------------------

    @property
    def is_light(self) -> bool:
        """Whether it is a light queue, whose messages belong to other topics."""
        return self.topic.startswith(formats.TOPIC_LMQ_PREFIX)

    def recover(self, log_end: int, *, whole: bool) -> KernelStatus:
        """Find the last good unit: log offsets must ascend and lie inside the log.

        Parameters
        ----------
        log_end : int
            Units of records that end after it are not good.
        whole : bool
            Scan every file. Otherwise scan the last three, as RocketMQ does, and all files only
            if those have no good unit.

        Returns
        -------
        KernelStatus
            What ended the scan: NO_UNIT (zeros), OK (all units good), BAD_UNIT.
        """
        row = self.queue.files_in_row()
        files = row if whole else row[-3:]
        status = self._recover_in(files, log_end)
        if self.recovered_end < 0 and len(files) < len(row):
            # All units in the last files are bad: the last good one is in an earlier file.
            status = self._recover_in(row, log_end)
        return status

    def _recover_in(self, files: Sequence[MappedFile], log_end: int) -> KernelStatus:
        last_end, index, status = -1, 0, KernelStatus.OK
        for file in files:
            position, last_end, code = kernels.consume_queue.scan_units(
                file.mapping, 0, file.file_size - file.file_size % UNIT_NBYTES, last_end, log_end
            )
            if position or not index:
                index = (file.file_from_offset + position) // UNIT_NBYTES
            if position < file.file_size - file.file_size % UNIT_NBYTES:
                status = KernelStatus(code)
                break
        self.recovered_index = index if last_end >= 0 else 0
        self.recovered_end = last_end
        self.flushed_index = self.recovered_index
        return status

    def recover_ext(self, *, whole: bool) -> bool:
        """Find the last unit whose tags code, if it is an address, refers to a good ext unit.

        Queue and ext files end there. Return False if that is before the end that ``recover``
        found. Without ext files no address is good.

        Parameters
        ----------
        whole : bool
            As in ``recover``.
        """
        ext = self.ext
        if self.recovered_index == 0 or (ext is None and not self._ends_in_address()):
            return True
        files = self.files()
        # If the newest files have no address, an earlier one may show where the ext files end.
        count = len(files) if whole or ext is None else min(3, len(files))
        while True:
            bad = self._first_bad_address(files[len(files) - count :])
            known = ext is None or not ext.queue.files or ext.recovered_offset > 0
            if known or bad is not None or count == len(files):
                break
            count = len(files)
        if bad is None:
            return True
        self._end_at(bad)
        return False

    def _ends_in_address(self) -> bool:
        unit = self.unit(self.recovered_index - 1)
        return unit is not None and unit[2] <= formats.MAX_EXT_ADDRESS

    def _first_bad_address(self, files: list[MappedFile | MemoryFile]) -> int | None:
        """Return the queue offset of the first unit in ``files`` whose address is not good."""
        import numpy

        for file in files:
            first, count = file.file_from_offset // UNIT_NBYTES, self.readable_units(file)
            codes = _units_of(file, count)["tags_code"].astype("i8")
            if self.ext is not None:
                number = self.ext.first_bad(codes)
            else:
                found = numpy.flatnonzero(codes <= formats.MAX_EXT_ADDRESS)
                number = int(found[0]) if len(found) else count
            if number < count:
                return first + number
        return None

    def _end_at(self, index: int) -> None:
        """Set the queue's end before unit ``index``."""
        self.recovered_index, self.recovered_end = index, -1
        unit = self.unit(index - 1) if index else None
        if unit is None:
            self.recovered_index = 0
        else:
            self.recovered_end = unit[0] + unit[1]
        self.flushed_index = min(self.flushed_index, self.recovered_index)

    def ext_offset_before(self, index: int) -> int:
        """Return the offset after the ext unit of the last unit before ``index``.

        Fillers are skipped. If that unit has no ext unit, return the offset after the last known
        one. Without a unit, return the start of the ext files.
        """
        assert self.ext is not None
        first = max(self.queue.min_offset, 0) // UNIT_NBYTES
        unit = None
        while unit is None and index > first:
            index -= 1
            unit = self.unit(index)
        if unit is None:
            return max(self.ext.queue.min_offset, 0)
        found = self.ext.unit(unit[2]) if is_ext_address(unit[2]) else None
        if found is None:
            return self.ext.recovered_offset
        return unit[2] - formats.EXT_ADDRESS_BASE + found.nbytes

    def forget(self) -> None:
        """Empty the queue."""
        self.recovered_index, self.recovered_end, self.flushed_index = 0, -1, 0
        if self.ext is not None:
            self.ext.recovered_offset = 0
        self.clear_after()

    def fill_expired(self, log_min_offset: int) -> int:
        """Write fillers over the queue's start if units of expired records are zero; return how
        many were.

        RocketMQ truncates a queue at its first zero unit. So all units up to the last zero one
        become fillers, which a broker also writes before a queue's first message. A read-only
        queue is not changed.
        """
        import numpy

        files = () if self._in_memory else self.queue.files_in_row()
        count, last = 0, -1
        for file in files:
            used = file.file_size - file.file_size % UNIT_NBYTES
            end = find_unit(file, used, log_min_offset)
            content = file.read(0, end)
            units = numpy.frombuffer(content[:end], formats.CONSUME_QUEUE_UNIT.dtype)
            if end == used:  # zeros after the last unit are not a hole
                written = (units["size"] != 0).nonzero()[0]
                units = units[: written[-1] if len(written) else 0]
            zeroed = (units["size"] == 0).nonzero()[0]
            if len(zeroed):
                count += len(zeroed)
                last = file.file_from_offset + int(zeroed[-1]) * UNIT_NBYTES
            if end < used:
                break
        for file in files:
            stop = min(last + UNIT_NBYTES - file.file_from_offset, file.file_size)
            if last >= 0 and stop > 0:
                file.allocate(stop, used=0)
                kernels.consume_queue.fill_units(file.mapping, 0, stop - stop % UNIT_NBYTES)
                file.flushed_position = 0
                file.flush(stop)
        return count

    # --- appending ----------------------------------------------------------------------------

    def file_for_append(self, index: int) -> MappedFile | MemoryFile:
        """Return the file for unit ``index``; create it if it is missing.

        Raises ``StoreFullError`` if the disk is full.
        """
        offset = index * UNIT_NBYTES
        start = offset - offset % self.queue.file_size
        if self._in_memory:
            return self._memory_file(start)
        file = self.queue.find_mapped_file_by_offset(offset)
        if file is None:
            file = self.queue.create_file(start, allocated=ALLOCATE_AHEAD_NBYTES)
            file.mapping.advise("random")
        return file

    def room_for_append(self, index: int) -> tuple[Any, int]:
        """Return (buffer, queue offset of its first unit) for unit ``index``.

        The buffer ends where the file has no disk blocks: writing to a hole through a mapping kills
        the process if the disk is full.

        Raises ``StoreFullError`` if the disk is full.
        """
        file = self.file_for_append(index)
        first = file.file_from_offset // UNIT_NBYTES
        if not isinstance(file, MappedFile) or file.private:
            return file.mapping, first
        position = (index - first) * UNIT_NBYTES
        # Data has blocks already. Reserving them would change the file's mtime, by which 4.9 finds
        # messages.
        written = self._data_end(file, position)
        if written >= position + UNIT_NBYTES:
            return memoryview(file.mapping)[:written], first
        if position + UNIT_NBYTES > file.allocated_position:
            ahead = min(max(position, ALLOCATE_AHEAD_NBYTES), MOST_AHEAD_NBYTES)
            file.allocate(position + ahead, used=position)
        if file.allocated_position >= file.file_size:
            return file.mapping, first
        return memoryview(file.mapping)[: file.allocated_position], first

    @staticmethod
    def _data_end(file: MappedFile, position: int) -> int:
        """Return the end of the data around ``position``.

        Return ``position`` if it is in a hole or in reserved blocks, or if the file system does
        not report holes.
        """
        if file.allocated_position > 0 or not hasattr(os, "SEEK_DATA"):
            return position
        fd = open_regular_file(file.path, READ_ONLY, file.root)
        try:
            if os.lseek(fd, position, os.SEEK_DATA) == position:
                return min(os.lseek(fd, position, os.SEEK_HOLE), file.file_size)
        except OSError as error:
            if error.errno not in (errno.ENXIO, errno.EINVAL):
                raise
        finally:
            os.close(fd)
        return position

    def _memory_file(self, start: int) -> MappedFile | MemoryFile:
        file = self._overlay.get(start)
        if file is None:
            file = self._overlay[start] = overlay_file(self.queue, start)
        return file

    def clear_after(self) -> None:
        """Overwrite everything after the last good unit with zeros, so that stale units never
        reappear (D-12). A read-only queue is not changed."""
        if self._in_memory:
            return
        self._clear_from(self.recovered_index * UNIT_NBYTES)
        if self.ext is not None:
            self.ext.truncate()

    def _clear_from(self, end: int) -> None:
        """Delete the files after position ``end`` of the queue; write zeros after it in its
        file."""
        from rocketstore.files.raw import data_ranges

        self.recent = None  # it may be a file that is deleted and created again
        self.queue.destroy_after(end, keep_first=end > 0)
        last = self.queue.last()
        if last is None:
            return
        position = end - last.file_from_offset
        for start, stop in data_ranges(last, position):
            if not is_zeros(last.read(start, stop - start)):
                memoryview(last.mapping)[start:stop] = bytes(stop - start)
                last.flushed_position = start
                last.flush(stop)
        last.wrote_position = last.flushed_position = position

    def flush(self, end_index: int) -> None:
        """Sync all units before ``end_index``, their ext units first. Raises ``OSError``; the
        error is final."""
        if self.ext is not None:
            self.ext.flush(self.ext.max_offset)
        self._flush_range(self.flushed_index * UNIT_NBYTES, end_index * UNIT_NBYTES)
        self.flushed_index = max(self.flushed_index, end_index)

    def _flush_range(self, start: int, end: int) -> None:
        """Sync the positions from ``start`` to ``end`` of the queue."""
        for file in self.queue.files:
            if file.end_offset <= start:
                continue
            if file.file_from_offset >= end:
                break
            position = min(end - file.file_from_offset, file.file_size)
            file.flushed_position = max(0, start - file.file_from_offset)
            file.flush(position)
            file.wrote_position = position

    def abandon(self) -> None:
        """Leave the mapping cache: files stay mapped only while a reader references them."""
        self.queue.abandon()
        if self.ext is not None:
            self.ext.queue.abandon()

    def close(self) -> None:
        """Close all files."""
        self.recent = None
        for file in self._overlay.values():
            file.close()
        self.queue.close()
        if self.ext is not None:
            self.ext.close()

    def __repr__(self) -> str:
        return f"ConsumeQueue({self.topic!r}, {self.queue_id}, {self.min_index}..{self.max_index})"
