"""One index file: geometry, header and lookups over the kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from rocketstore import formats, kernels
from rocketstore.errors import CorruptIndexError
from rocketstore.files.forward_pages import release_pages
from rocketstore.files.mapped_file import MappedFile, MemoryFile, name_cut_file

#: Largest number of seconds that an entry can hold.
MAX_SECONDS = 2**31 - 1


class IndexHeader(NamedTuple):
    """Values of an index file's header; ``index_count`` is 1 in a file without entries."""

    begin_timestamp: int
    end_timestamp: int
    begin_physical_offset: int
    end_physical_offset: int
    hash_slot_count: int
    index_count: int


class IndexFile(kernels.reading.IndexPlace):
    """A hash index over ``topic#key``.

    Parameters
    ----------
    file : MappedFile or MemoryFile
    slots, entries : int
        Geometry; the file holds ``entries - 1`` keys.

    Notes
    -----
    Threading: one writer (the dispatcher); readers see a key no later than the dispatcher's
    ``indexed_offset``. Source: RocketMQ ``store/index/IndexFile.java``.
    """

    file: MappedFile | MemoryFile

    @property
    def path(self) -> Path:
        """Path of the file."""
        return self.file.path

    @property
    def buffer(self) -> Any:
        """The whole file."""
        return self.file.mapping

    @property
    def header(self) -> IndexHeader:
        """The header as it is now."""
        try:
            return IndexHeader(*kernels.index_file.read_header(self.buffer))
        except OSError as error:
            name_cut_file(error, [self.file])
            raise

    @property
    def entry_count(self) -> int:
        """Keys in the file."""
        return self.header.index_count - 1

    @property
    def is_full(self) -> bool:
        """Whether the file has no room for another key."""
        return self.header.index_count >= self.entries

    def entry(self, number: int) -> tuple[int, int, int, int]:
        """Return (key hash, physical offset, seconds, previous number) of entry ``number``."""
        position = formats.index_file_nbytes(self.slots, number)
        values = self._load(formats.INDEX_ENTRY, position)
        return values[0], values[1], values[2], values[3]

    def slot(self, number: int) -> int:
        """Return the newest entry number of a slot."""
        position = formats.INDEX_HEADER.nbytes + number * formats.INDEX_SLOT.nbytes
        return self._load(formats.INDEX_SLOT, position)[0]

    def _load(self, layout: formats.Layout, position: int) -> tuple[int, ...]:
        """Read a few numbers, from disk without the mapping: another process may truncate it."""
        file = self.file
        if not isinstance(file, MappedFile) or file.private:
            return layout.struct.unpack_from(self.buffer, position)
        content = file.read(position, layout.nbytes)
        if len(content) < layout.nbytes:
            reason = "the file was truncated while it was in use"
            raise CorruptIndexError(file.path, position, reason)
        return layout.struct.unpack(content)

    def walk_key(self, text: bytes, begin: int, end: int) -> tuple[list[int], int]:
        """Return all hits of ``topic#key``, and a status (see the kernel)."""
        try:
            found: tuple[list[int], int] = kernels.index_file.walk_key(
                self.buffer, self.slots, self.entries, text, begin, end
            )
        except OSError as error:
            name_cut_file(error, [self.file])
            raise
        return found

    def looks_whole(self) -> bool:
        """Return whether header, first and last entry agree, and the last entry's slot refers to
        it.

        The check reads four places, regardless of the file's size.
        """
        header = self.header
        last = header.index_count - 1
        if not 1 <= last < self.entries:
            return False
        key_hash, physical_offset, *_ = self.entry(last)
        return (
            physical_offset == header.end_physical_offset
            and self.entry(1)[1] == header.begin_physical_offset
            and key_hash >= 0
            and self.slot(key_hash % self.slots) == last
        )

    def check(self, limit: int) -> tuple[int, int]:
        """Return the number of good leading entries, and whether these are all (``KernelStatus``).

        Entries of records from log offset ``limit`` on are bad. A process that only reads the file
        does not keep its pages meanwhile: a full file has 420 MB.
        """
        mapped = self.file
        passed = None
        if isinstance(mapped, MappedFile) and not mapped.writable:

            def passed(number: int) -> None:
                release_pages(mapped, formats.index_file_nbytes(self.slots, number))

        return kernels.index_file.check_entries(
            self.buffer, self.slots, self.entries, limit, passed
        )

    def close(self) -> None:
        """Close the file."""
        self.file.close()


def entry_seconds(begin_timestamp: int, store_timestamp: int) -> int:
    """Return the seconds in the entry of a record, for a file that begins at ``begin_timestamp``
    (both in ms)."""
    difference = store_timestamp - begin_timestamp
    return 0 if begin_timestamp <= 0 else min(max(difference, 0) // 1000, MAX_SECONDS)
