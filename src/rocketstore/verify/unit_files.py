"""The units of a queue as stored in its files."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rocketstore import formats
from rocketstore.directory.access import StoreAccess
from rocketstore.files.durable import is_zeros
from rocketstore.files.mapped_file import MappedFile, MemoryFile
from rocketstore.files.raw import data_ranges, read_bytes
from rocketstore.queues.consume_queue import UNIT_NBYTES, ConsumeQueue
from rocketstore.queues.consume_queue_ext import ConsumeQueueExt

_DTYPE = formats.CONSUME_QUEUE_UNIT.dtype
_CHUNK_UNITS = 65536
_STEP_NBYTES = 1 << 20

Array = np.ndarray[Any, Any]


class UnitFiles:
    """The units of a queue as stored in its files, without the queue's own interpretation."""

    def __init__(
        self, queue: ConsumeQueue | None, directory: Path, file_size: int, root: Path
    ) -> None:
        files: dict[int, MappedFile | MemoryFile] = {}
        if queue is not None:
            files = {file.file_from_offset: file for file in queue.queue.files}
            files.update({file.file_from_offset: file for file in queue.files()})
        self._files = [files[start] for start in sorted(files)]
        self._queue = queue
        self._directory = directory
        self._root = root
        self._per_file = file_size // UNIT_NBYTES
        #: Ranges of units in unreadable files.
        self.hidden: list[tuple[int, int]] = []

    def hide(self, access: StoreAccess) -> None:
        """Mark the units in files that are unreadable or not regular files."""
        if access.hides(self._directory):
            self.hidden.append((0, 2**63 - 1))
        for path in access.closed:
            start = formats.file_name_to_offset(path.name)
            if path.parent == self._directory and start is not None:
                first = start // UNIT_NBYTES
                self.hidden.append((first, first + self._per_file))

    def is_hidden(self, first: int, count: int) -> Array:
        """Return which of ``count`` units from ``first`` on are unreadable."""
        numbers = np.arange(first, first + count)
        hidden = np.zeros(count, bool)
        for low, high in self.hidden:
            hidden |= (numbers >= low) & (numbers < high)
        return hidden

    @functools.cached_property
    def ext(self) -> ConsumeQueueExt | None:
        """Return the ext files that the units point into, ``None`` if the store has none."""
        return self._queue.ext if self._queue is not None else None

    @property
    def first_index(self) -> int | None:
        """Return the queue offset of the first file's first unit."""
        return self._files[0].file_from_offset // UNIT_NBYTES if self._files else None

    @property
    def blank_index(self) -> int | None:
        """Return the queue offset of the last file's first unit if that file holds only zeros."""
        if not self._files or isinstance(last := self._files[-1], MemoryFile) or last.private:
            return None
        for start, stop in data_ranges(last, 0):
            for at in range(start, stop, _STEP_NBYTES):
                if not is_zeros(last.read(at, min(_STEP_NBYTES, stop - at))):
                    return None
        return last.file_from_offset // UNIT_NBYTES

    def place(self, index: int) -> tuple[str, int]:
        """Return file and position of a unit, also of a file that does not exist."""
        start = index - index % self._per_file
        path = self._directory / formats.offset_to_file_name(start * UNIT_NBYTES)
        return str(path), (index - start) * UNIT_NBYTES

    def read(self, first: int, stop: int) -> Array:
        """Return the units ``first`` .. ``stop``; zeros where there is no file."""
        units = np.zeros(stop - first, _DTYPE)
        for file in self._files:
            base = file.file_from_offset // UNIT_NBYTES
            low, high = max(first, base), min(stop, base + file.file_size // UNIT_NBYTES)
            if low < high:
                content = read_bytes(
                    file, self._root, (low - base) * UNIT_NBYTES, (high - low) * UNIT_NBYTES
                )
                units[low - first : high - first] = np.frombuffer(content, _DTYPE)
        return units

    def written(self, first: int, stop: int | None) -> Iterator[tuple[int, Array]]:
        """Yield (queue offset, units) of ``first`` .. ``stop`` from the files, in chunks.

        Without ``stop``, read to the end of the last file and skip holes.
        """
        for file in self._files:
            base = file.file_from_offset // UNIT_NBYTES
            end = base + file.file_size // UNIT_NBYTES
            low, high = max(first, base), end if stop is None else min(stop, end)
            if low >= high:
                continue
            ranges = [(low, high)] if stop is not None else self._data(file, low, high)
            for start, last in ranges:
                for at in range(start, last, _CHUNK_UNITS):
                    yield at, self.read(at, min(last, at + _CHUNK_UNITS))

    def _data(self, file: MappedFile | MemoryFile, low: int, high: int) -> list[tuple[int, int]]:
        base = file.file_from_offset // UNIT_NBYTES
        if isinstance(file, MemoryFile) or file.private:
            end = self._queue.max_index if self._queue is not None else high
            return [(low, min(high, end))] if low < end else []
        found: list[tuple[int, int]] = []
        for start, stop in data_ranges(file, (low - base) * UNIT_NBYTES):
            first = max(low, base + start // UNIT_NBYTES)
            last = min(high, base - (-stop // UNIT_NBYTES))
            if found and first <= found[-1][1]:
                found[-1] = (found[-1][0], last)
            elif first < last:
                found.append((first, last))
        return found
