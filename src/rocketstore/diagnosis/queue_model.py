"""A broker's consume queue in memory: recovery, truncation and puts as ``ConsumeQueue`` does."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from rocketstore import formats
from rocketstore.diagnosis.image import SparseFile

UNIT = struct.Struct(">qiq")
_FILLER = (0, formats.FILLER_UNIT_SIZE, 0)
Unit = tuple[int, int, int]


class _File:
    """One file of a queue; ``wrote`` bytes are readable."""

    def __init__(self, start: int, content: SparseFile | None, path: Path | None, wrote: int):
        self.start = start
        self.path = path
        self.wrote = wrote
        self._content = content
        self._put: dict[int, Unit] = {}

    def unit(self, position: int) -> Unit:
        """Return the unit at ``position``, even past ``wrote``."""
        found = self._put.get(position)
        if found is not None:
            return found
        if self._content is None:
            return 0, 0, 0
        offset, size, tags = UNIT.unpack(self._content.read(position, UNIT.size))
        return offset, size, tags

    def append(self, unit: Unit) -> None:
        """Write a unit after the others."""
        self._put[self.wrote] = unit
        self.wrote += UNIT.size


class BrokerQueue:
    """One queue of a broker.

    Attributes
    ----------
    max_physical : int
        End of the last dispatched record, -1 if there is none.
    deleted : list of Path
        Files that the broker deletes.
    """

    def __init__(self, file_nbytes: int, *, is_4: bool) -> None:
        self._size = file_nbytes
        self._is_4 = is_4
        self._files: list[_File] = []
        self._min = 0
        self.max_physical = -1
        self.deleted: list[Path] = []

    def load(self, start: int, content: SparseFile, path: Path) -> None:
        """Add a file that exists."""
        self._files.append(_File(start, content, path, self._size))

    @property
    def _max(self) -> int:
        return self._files[-1].start + self._files[-1].wrote if self._files else 0

    @property
    def min_offset(self) -> int:
        """The lowest queue offset."""
        return self._min // UNIT.size

    @property
    def max_offset(self) -> int:
        """The next queue offset."""
        return self._max // UNIT.size

    def _delete(self, file: _File) -> None:
        self._files.remove(file)
        if file.path is not None:
            self.deleted.append(file.path)

    def destroy(self) -> None:
        """Delete all files."""
        for file in list(self._files):
            self._delete(file)
        self.max_physical, self._min = -1, 0

    def recover(self) -> int:
        """Find the end of the queue from the third-last file on; return ``max_physical``."""
        if not self._files:
            return self.max_physical
        end = 0
        for file in self._files[max(0, len(self._files) - 3) :]:
            position = 0
            while position < self._size:
                offset, size, _ = file.unit(position)
                if offset < 0 or size <= 0:
                    break
                self.max_physical = offset + size
                position += UNIT.size
            end = file.start + position
            if position < self._size:
                break
        for file in list(self._files):
            if file.start + self._size > end:
                if end >= file.start:
                    file.wrote = end % self._size
                else:
                    self._delete(file)
        return self.max_physical

    def truncate(self, log_end: int) -> None:
        """Keep the units of records that begin before ``log_end``."""
        self.max_physical = log_end
        while self._files:
            file = self._files[-1]
            file.wrote = 0
            offset, size, _ = file.unit(0)
            if offset >= log_end:
                self._delete(file)
                continue
            file.wrote, self.max_physical = UNIT.size, offset + size
            for position in range(UNIT.size, self._size, UNIT.size):
                offset, size, _ = file.unit(position)
                if offset < 0 or size <= 0 or offset >= log_end:
                    return
                file.wrote, self.max_physical = position + UNIT.size, offset + size
            return

    def put(self, offset: int, size: int, tags: int, queue_offset: int) -> None:
        """Append the unit of a record, unless it is there."""
        if offset + size <= self.max_physical:
            return
        expected = queue_offset * UNIT.size
        is_first = not self._files
        if is_first:
            self._files.append(_File(expected - expected % self._size, None, None, 0))
        elif self._files[-1].wrote >= self._size:
            self._files.append(_File(self._files[-1].start + self._size, None, None, 0))
        file = self._files[-1]
        if is_first and queue_offset:
            self._min = expected
            for _ in range(0, expected % self._size, UNIT.size):
                file.append(_FILLER)
        if queue_offset and expected < file.start + file.wrote:
            return
        self.max_physical = offset + size
        file.append((offset, size, tags))

    def correct_min(self, log_start: int) -> bool:
        """Set the lowest offset to the first unit whose record begins at or after ``log_start``.

        Return False if the broker fails there: 5.x reads the last unit of the last file, and the
        file has none.
        """
        if not self._files:
            return True
        first, last = self._files[0], self._files[-1]
        if self._is_4:
            self._find_min(first, 0, log_start)
        elif self._min < self._max:
            if not last.wrote:
                return False
            if last.unit(last.wrote - UNIT.size)[0] < log_start:
                self._min = self._max
            else:
                self._find_min(first, max(0, self._min - first.start), log_start)
        return True

    def _find_min(self, first: _File, begin: int, log_start: int) -> None:
        for position in range(begin, first.wrote, UNIT.size):
            if first.unit(position)[0] >= log_start:
                self._min = first.start + position
                return

    def units_from(self, queue_offset: int) -> Iterator[Unit] | None:
        """Yield the units from ``queue_offset`` to the end of that file; ``None``: unreadable."""
        at = queue_offset * UNIT.size
        file = next((one for one in self._files if one.start <= at < one.start + self._size), None)
        if at < self._min or file is None or at - file.start >= file.wrote:
            return None
        return (file.unit(one) for one in range(at - file.start, file.wrote, UNIT.size))
