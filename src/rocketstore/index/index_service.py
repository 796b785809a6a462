"""The index files of a store: loading, rolling, lookups across files, flushing."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rocketstore.files.mapped_file import name_cut_file
from rocketstore.index.geometry import index_paths
from rocketstore.status import RecordStatus

if TYPE_CHECKING:
    import numpy

import datetime
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from rocketstore import formats, kernels
from rocketstore.files.durable import make_directories, sync_directory
from rocketstore.files.mapped_file import MappedFile, MemoryFile
from rocketstore.index.index_file import IndexFile
from rocketstore.status import KernelStatus

#: Blocks are reserved this far ahead of the newest entry; slots are reserved whole.
ALLOCATE_AHEAD_NBYTES = 16 * 1024 * 1024
_MAX_TIMESTAMP = 2**63 - 1


class IndexHits(NamedTuple):
    """Result of ``query_offset``: physical offsets, newest first, and end values of the newest
    file."""

    offsets: list[int]
    last_update_timestamp: int
    last_update_physical_offset: int


class IndexService:
    """All index files, oldest first.

    Parameters
    ----------
    directory : Path
        ``index``.
    slots, entries : int
        Geometry of new files.
    root : Path
        The store's root.
    writable : bool
        Whether files on disk may be written.
    in_memory : bool
        Write new keys to a private copy of the last file and to memory files.
    zone : tzinfo or None
        Time zone of file names.
    clock : callable
        Epoch ms, for file names.

    Notes
    -----
    Threading: the list is replaced, never changed in place; ``roll`` belongs to the dispatching
    thread. Source: RocketMQ ``store/index/IndexService.java``.
    """

    def __init__(
        self,
        directory: Path,
        slots: int,
        entries: int,
        root: Path,
        *,
        writable: bool,
        in_memory: bool = False,
        zone: datetime.tzinfo | None = None,
        clock: Callable[[], int],
    ) -> None:
        self.directory = directory
        self.slots = slots
        self.entries = entries
        self.files: tuple[IndexFile, ...] = ()
        self.skipped: list[Path] = []
        self.unusable: list[Path] = []
        #: Files that are symbolic links or have hard links.
        self.linked: list[Path] = []
        #: The newest file if it is empty: a broker has just created it, or was killed then.
        self.begun: Path | None = None
        #: Ranges of the log without keys, ascending, because a file is missing or corrupt. Set for
        #: readers only.
        self.gaps: tuple[tuple[int, int], ...] = ()
        self.moved_names: list[str] = []
        self.bad_chains = 0
        self._root = root
        self._writable = writable
        self._in_memory = in_memory
        self._zone = zone
        self._clock = clock
        self._flushed_counts: dict[Path, int] = {}

    # --- loading ------------------------------------------------------------------------------

    def load(self, geometry: Callable[[Path, int], tuple[int, int] | None]) -> None:
        """Open the files; ``geometry(path, nbytes)`` returns (slots, entries) of each, or ``None``.

        Files whose name is not a timestamp are listed in ``skipped``, those without a usable
        geometry in ``unusable``. A reader stores an empty last file in ``begun``.
        """
        files = []
        found = index_paths(
            self.directory,
            self._root,
            self.skipped,
            tolerant=self._in_memory,
            linked=self.linked,
        )
        if self._in_memory and found and not found[-1][1]:
            self.begun = found.pop()[0]
        for path, nbytes in found:
            pair = geometry(path, nbytes)
            if pair is None or formats.index_file_nbytes(*pair) != nbytes:
                self.unusable.append(path)
                continue
            files.append(
                IndexFile(MappedFile(path, 0, nbytes, self._root, writable=self._writable), *pair)
            )
        self.files = tuple(files)

    def move_unusable_aside(self) -> list[Path]:
        """Move the files of unknown geometry to quarantine; return their new paths.

        Their keys cannot be read, and a broker would use them as if they were valid.
        """
        moved = []
        for path in self.unusable:
            directory = self._root / formats.QUARANTINE_DIR
            make_directories(directory, self._root)
            name, number = f"index-{path.name}", 1
            target = directory / name
            while os.path.lexists(target):
                number += 1
                target = directory / f"{name}~{number}"
            os.rename(path, target)
            sync_directory(directory)
            sync_directory(path.parent)
            moved.append(target)
            self.moved_names.append(path.name)
        self.unusable = []
        return moved

    @property
    def writable(self) -> bool:
        """Whether files on disk are written."""
        return self._writable

    def remove(self, gone: list[IndexFile]) -> None:
        """Remove files from the list; the caller closes or deletes them."""
        names = {id(file) for file in gone}
        self.files = tuple(file for file in self.files if id(file) not in names)

    # --- appending ----------------------------------------------------------------------------

    def last_for_append(self) -> IndexFile | None:
        """Prepare the newest file for new keys and return it, ``None`` without files."""
        last = self.files[-1] if self.files else None
        if last is None or not isinstance(last.file, MappedFile):
            return last
        if self._in_memory and not last.file.private:
            disk = last.file
            private = MappedFile(
                disk.path, 0, disk.file_size, self._root, writable=True, private=True
            )
            last = IndexFile(private, last.slots, last.entries)
            self.files = (*self.files[:-1], last)
        elif not self._in_memory:
            self._reserve(last)
        return last

    def roll(self) -> IndexFile:
        """Create the next file; its header begins where the last file ends.

        Raises ``StoreFullError`` if the disk is full.
        """
        previous = self.files[-1].header if self.files else None
        nbytes = formats.index_file_nbytes(self.slots, self.entries)
        path = self.directory / self._next_name()
        file: MappedFile | MemoryFile
        if self._in_memory:
            file = MemoryFile(path, 0, nbytes)
        else:
            make_directories(self.directory, self._root)
            reserved = new_file_nbytes(self.slots, self.entries)
            file = MappedFile.create(path, 0, nbytes, self._root, allocated=reserved)
        index_file = IndexFile(file, self.slots, self.entries)
        if previous is not None:
            try:
                kernels.index_file.init_header(
                    file.mapping, previous.end_timestamp, previous.end_physical_offset
                )
            except OSError:
                # A retry in the same millisecond needs the same name.
                file.close()
                path.unlink(missing_ok=True)
                raise
        self.files = (*self.files, index_file)
        return index_file

    def _next_name(self) -> str:
        last = self.files[-1].path.name if self.files else ""
        return next_index_name(self._clock(), last, self._zone)

    def _reserve(self, index_file: IndexFile) -> None:
        file = index_file.file
        if isinstance(file, MappedFile) and file.writable and not file.private:
            used = formats.index_file_nbytes(index_file.slots, index_file.header.index_count)
            wanted = used + ALLOCATE_AHEAD_NBYTES // 2
            if file.allocated_position < min(wanted, file.file_size):
                file.allocate(used + ALLOCATE_AHEAD_NBYTES, used=used)

    def entries_with_room(self, index_file: IndexFile) -> int:
        """Return how many entries of a prepared file have disk blocks, in the units of
        ``entries``."""
        file = index_file.file
        if not isinstance(file, MappedFile) or file.private:
            return index_file.entries
        start = formats.index_file_nbytes(index_file.slots, 0)
        room = (file.allocated_position - start) // formats.INDEX_ENTRY.nbytes
        return min(index_file.entries, room)

    def count_files(self, offset: int) -> int:
        """Return the number of files with a key of a record before ``offset``."""
        return sum(file.entry_count > 0 and file.entry(1)[1] < offset for file in self.files)

    def flush(self, flushed_offset: int) -> int:
        """Sync all entries; return the end time of the newest full file, 0 without one.

        Only files whose records are all before ``flushed_offset`` of the log count: dispatch may
        continue meanwhile and fill a file with later records.

        Raises ``OSError``; the error is final.
        """
        full_timestamp = 0
        for index_file in self.files:
            file, header = index_file.file, index_file.header
            if isinstance(file, MemoryFile):
                continue
            if self._flushed_counts.get(file.path) != header.index_count:
                file.flushed_position = 0
                file.flush(formats.index_file_nbytes(index_file.slots, header.index_count))
                self._flushed_counts[file.path] = header.index_count
            is_full = header.index_count >= index_file.entries
            if is_full and header.end_physical_offset < flushed_offset:
                full_timestamp = header.end_timestamp
        return full_timestamp

    # --- lookups ------------------------------------------------------------------------------

    def query_offset(self, topic: str, key: str, max_count: int, begin: int, end: int) -> IndexHits:
        """Return hits as RocketMQ does: newest file first, by hash, in whole seconds (D-3,
        D-5)."""
        text = f"{topic}#{key}".encode("utf-8", "replace")
        hits: list[int] = []
        newest = None
        for file in reversed(self.files):
            first, last, found = self._select_in(file, text, max_count - len(hits), begin, end)
            newest = newest or last
            hits += found
            if first < begin or len(hits) >= max_count:
                break
        return IndexHits(hits, *(newest or (0, 0)))

    def _select_in(
        self, index_file: IndexFile, text: bytes, max_count: int, begin: int, end: int
    ) -> tuple[int, tuple[int, int], list[int]]:
        """Return a file's first store time, its last (time, offset), and its hits."""
        buffer = index_file.file.mapping
        try:
            first, last, _, last_offset, *_ = kernels.index_file.read_header(buffer)
            found: list[int] = []
            # RocketMQ's test whether the times overlap.
            if (begin < first and end > last) or first <= begin <= last or first <= end <= last:
                found, status = kernels.index_file.select_offsets(
                    buffer, index_file.slots, index_file.entries, text, max_count, begin, end
                )
                if status:
                    self.bad_chains += status == KernelStatus.BAD_CHAIN
        except OSError as error:
            name_cut_file(error, [index_file.file])
            raise
        return first, (last, last_offset), found

    def find_offsets(
        self, topic: str, key: str, begin: int, end: int
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """Return all hits of the key's hash in ``begin`` .. ``end``, ascending, and lost ranges.

        Entries hold whole seconds, so hits may lie just outside the time range. The lost ranges are
        the log ranges of files in which the hash's chain is broken.
        """
        text = f"{topic}#{key}".encode("utf-8", "replace")
        hits: set[int] = set()
        broken = []
        for file in self.files:
            found, status = file.walk_key(text, begin, end)
            hits.update(found)
            if status == KernelStatus.BAD_CHAIN:
                self.bad_chains += 1
                broken.append((file.header.begin_physical_offset, file.header.end_physical_offset))
        return sorted(hits), broken

    def close(self) -> None:
        """Close every file."""
        for file in self.files:
            file.close()


def next_index_name(timestamp: int, last: str, zone: datetime.tzinfo | None) -> str:
    """Return the name of an index file created at ``timestamp`` (epoch ms).

    The name sorts after ``last``, the name of the newest file (empty without files).
    """
    name = formats.timestamp_to_index_name(timestamp, zone)
    while name <= last:  # clock step, DST change, or two files in a millisecond (D-40)
        former, timestamp = name, timestamp + 1
        name = formats.timestamp_to_index_name(timestamp, zone)
        if name <= last and (name == former or int(last) - int(name) > 1000):
            name = f"{int(last) + 1:0{formats.INDEX_NAME_DIGITS}d}"
    return name


def new_file_nbytes(slots: int, entries: int) -> int:
    """Return the bytes of disk that a new index file of this geometry needs."""
    reserved = formats.index_file_nbytes(slots, 0) + ALLOCATE_AHEAD_NBYTES
    return min(reserved, formats.index_file_nbytes(slots, entries))


def lookup_many(
    index: IndexService, topic: str, keys: Sequence[str]
) -> tuple[numpy.ndarray[Any, Any], numpy.ndarray[Any, Any]]:
    """Return (physical offsets, row splits) of the hash hits of ``topic#key`` for all ``keys``."""
    import numpy

    if isinstance(keys, str):
        raise TypeError("keys must be a sequence of str, not str")
    for key in keys:
        if not isinstance(key, str):
            raise TypeError(f"keys must be str, not {type(key).__name__}")
    texts = [f"{topic}#{key}".encode("utf-8", "replace") for key in keys]
    hashes = numpy.array([kernels.index_file.key_hash(text) for text in texts], numpy.int32)
    rows: list[Any] = []
    offsets: list[Any] = []
    for file in index.files:
        capacity = max(1024, 2 * len(keys))
        start = 0
        while start < len(hashes):
            out_rows = numpy.empty(capacity, numpy.int64)
            out_offsets = numpy.empty(capacity, numpy.int64)
            hits, following, status = kernels.index_file.lookup(
                file.buffer, file.slots, file.entries, hashes, 0, _MAX_TIMESTAMP,
                out_rows, out_offsets, start,
            )  # fmt: skip
            if status == RecordStatus.FAULT:
                error = OSError(errno.EFAULT, "the mapped file was shortened")
                name_cut_file(error, [file.file])
                raise error
            rows.append(out_rows[:hits])
            offsets.append(out_offsets[:hits])
            if following == start:
                capacity *= 2
            start = following
    all_rows = numpy.concatenate(rows) if rows else numpy.empty(0, numpy.int64)
    all_offsets = numpy.concatenate(offsets) if offsets else numpy.empty(0, numpy.int64)
    order = numpy.lexsort((all_offsets, all_rows))
    splits = numpy.searchsorted(all_rows[order], numpy.arange(len(keys) + 1))
    return all_offsets[order], splits.astype(numpy.int64)


class IndexPosition(NamedTuple):
    """Where indexing continues: the record at ``offset``, of which ``keys`` keys are indexed."""

    offset: int
    keys: int
