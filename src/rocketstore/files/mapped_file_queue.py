"""The files of one log or queue in order of offset: loading with every refusal, finding,
rolling."""

from __future__ import annotations

import bisect
import errno
import itertools
import os
import weakref
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rocketstore import formats, kernels
from rocketstore.errors import ConfigError, MappedFileError
from rocketstore.files.durable import (
    READ_ONLY,
    look_at_file,
    make_directories,
    open_regular_file,
    refuse_link_out,
    sync_directory,
)
from rocketstore.files.linked_files import refuse_shared_files
from rocketstore.files.mapped_file import MappedFile, MemoryFile
from rocketstore.files.mapping_cache import MappingCache
from rocketstore.files.raw import data_ranges
from rocketstore.lock_order import LockRank

#: What is said of a file behind its name.
MAY_NOT_BE_READ = f"may not be read: {os.strerror(errno.EACCES)}"
#: Files mapped privately at one time; of others a copy is made, which takes no mapping of its own.
MAX_PRIVATE_FILES = 8192
_private: weakref.WeakSet[MappedFile] = weakref.WeakSet()


@dataclass
class DirectoryListing:
    """What lies in a queue's directory.

    Attributes
    ----------
    files : list of (int, Path, int)
        File-from-offset, path and size in bytes, ascending.
    foreign : list of Path
        Entries whose name is none of the queue's; never touched.
    unreadable : dict of Path to str
        Files that may not be read or are no regular files, or the directory itself (only when
        those are tolerated), and why, to stand behind their names.
    linked : list of Path
        Files that are symbolic links or have hard links.
    """

    files: list[tuple[int, Path, int]] = field(default_factory=list)
    foreign: list[Path] = field(default_factory=list)
    unreadable: dict[Path, str] = field(default_factory=dict)
    linked: list[Path] = field(default_factory=list)

    def refuse_unreadable(self) -> None:
        """Raise ``PermissionError`` or ``MappedFileError`` for the first file that cannot be
        read."""
        for path, why in self.unreadable.items():
            if why == MAY_NOT_BE_READ:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            raise MappedFileError(f"{path} {why}")


def list_directory(
    directory: Path,
    root: Path,
    *,
    tolerate_unreadable: bool = False,
    tolerate_odd: bool = False,
) -> DirectoryListing:
    """List the mapped-queue files of ``directory`` (missing: empty).

    Raises
    ------
    PermissionError
        A file may not be read, unless ``tolerate_unreadable``.
    MappedFileError
        A directory, FIFO, socket or device has a queue file's name, unless ``tolerate_odd``.
    UnsafePathError
        The directory, the one it is in, or a queue file is a link out of ``root``.
    """
    listing = DirectoryListing()
    for folder in (directory, directory.parent):
        if folder != root:
            refuse_link_out(folder, root)
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return listing
    except PermissionError:
        if not tolerate_unreadable:
            raise
        listing.unreadable[directory] = MAY_NOT_BE_READ
        return listing
    for name in sorted(names):
        path = directory / name
        offset = formats.file_name_to_offset(name)
        if offset is None:
            listing.foreign.append(path)
            continue
        try:
            nbytes, is_linked = look_at_file(path, root)
        except FileNotFoundError:
            if not os.path.lexists(path):
                # Its writer has deleted it, and maybe those in front: without them there is no gap.
                return list_directory(
                    directory,
                    root,
                    tolerate_unreadable=tolerate_unreadable,
                    tolerate_odd=tolerate_odd,
                )
            if not tolerate_odd:
                raise  # a link to nowhere
            target = os.path.realpath(path)
            listing.unreadable[path] = f"is a symbolic link to {target}, which does not exist"
            continue
        except PermissionError:
            if not tolerate_unreadable:
                raise
            listing.unreadable[path] = MAY_NOT_BE_READ
            continue
        except MappedFileError as error:
            if not tolerate_odd:
                raise
            listing.unreadable[path] = str(error).removeprefix(f"{path} ")
            continue
        listing.files.append((offset, path, nbytes))
        if is_linked:
            listing.linked.append(path)
    return listing


def check_place(offset: int, path: Path | str, file_size: int) -> None:
    """Raise ``MappedFileError`` when a file's name is no multiple of the file size."""
    if offset % file_size:
        raise MappedFileError(
            f"{path} starts at {offset}, which is no multiple of the file size {file_size}"
        )


def shown_file_size(starts: Sequence[int], sizes: Sequence[int], hint: int | None) -> int | None:
    """Return the file size that the files of a log show, ``None`` when there are none.

    Parameters
    ----------
    starts, sizes : sequence of int
        File-from-offsets, ascending, and bytes of the files (0 says nothing).
    hint : int or None
        The size to believe in when the only file is shorter and begins where one of it may.
    """
    told = [size for size in sizes if size]
    if len(told) > 1:
        steps = Counter(b - a for a, b in itertools.pairwise(starts))
        common = Counter(told).most_common(1)[0][0]
        return common if common in steps or len(set(told)) == 1 else min(steps)
    if not told:
        return None
    return hint if hint and told[0] < hint and starts[0] % hint == 0 else told[0]


class MappedFileQueue:
    """Files of one size, each named after the offset of its first byte.

    Parameters
    ----------
    directory : Path
    file_size : int
        Bytes of every file.
    root : Path
        The store's root.
    writable : bool
        Whether files may be created and written.
    cache : MappingCache, optional
        Bounds how many of the files are mapped.

    Notes
    -----
    Threading: the list is replaced, never changed in place, so readers need no lock; any thread may
    add files at the end or delete them in front. Source: RocketMQ ``store/MappedFileQueue.java``.
    """

    def __init__(
        self,
        directory: Path,
        file_size: int,
        root: Path,
        *,
        writable: bool,
        cache: MappingCache | None = None,
    ) -> None:
        self.directory = directory
        self.file_size = file_size
        self.writable = writable
        self.flushed_where = 0
        self._root = root
        self._cache = cache
        self._change_lock = kernels.locks.OrderedLock(LockRank.ROW)
        self._sync_is_due = False
        self._loaded: frozenset[int] = frozenset()
        #: The files, and the offset of each one's first byte; replaced under _change_lock.
        self._row: tuple[tuple[MappedFile, ...], tuple[int, ...]] = (), ()

    def load(self, listing: DirectoryListing) -> None:
        """Take over listed files that were found fit (see ``check``)."""
        self._loaded = frozenset(offset for offset, _, _ in listing.files)
        self._replace(
            MappedFile(
                path,
                offset,
                min(size, self.file_size),
                self._root,
                writable=self.writable,
                cache=self._cache,
            )
            for offset, path, size in listing.files
        )

    def load_new(self) -> None:
        """Add the whole files behind the last one that another process has made meanwhile."""
        listing = list_directory(
            self.directory, self._root, tolerate_unreadable=True, tolerate_odd=True
        )
        for offset, path, size in listing.files:
            last = self.last()
            if (last is None or offset == last.end_offset) and size == self.file_size:
                self.append(MappedFile(path, offset, size, self._root, cache=self._cache))

    def hold(self, most: int) -> int:
        """Map up to ``most`` files now, so that they stay readable when others delete them.

        Returns
        -------
        int
            Files that were mapped; fewer than there are when memory for mappings is short: the
            others are mapped when they are used.

        Raises
        ------
        FileNotFoundError
            When one is gone already.
        """
        for count, file in enumerate(self.files[:most]):
            try:
                file.mapping  # noqa: B018 - made on first use
            except OSError as error:
                if error.errno != errno.ENOMEM:
                    raise
                return count
        return min(most, len(self.files))

    def check(self, listing: DirectoryListing) -> None:
        """Refuse a directory that cannot be opened for writing.

        Raises
        ------
        ConfigError
            The files have another size than the queue.
        MappedFileError
            One file is short, misnamed, or missing between two others; the message names the range.
        """
        sizes = {size for _, _, size in listing.files}
        if len(sizes) == 1 and max(sizes) > self.file_size:
            raise ConfigError(
                f"the files of {self.directory} have {sizes.pop()} bytes, not {self.file_size}; "
                "configure that file size, or leave it to be detected"
            )
        if listing.linked:
            refuse_shared_files(path for _, path, _ in listing.files)
        expected = listing.files[0][0] if listing.files else 0
        for offset, path, size in listing.files:
            check_place(offset, path, self.file_size)
            if offset != expected:
                raise MappedFileError(
                    f"{self.directory} lacks the bytes {expected} to {offset}: there is no file "
                    f"{formats.offset_to_file_name(expected)}"
                )
            if size > self.file_size:
                raise MappedFileError(
                    f"{path} has {size} bytes instead of {self.file_size}: what lies behind them "
                    "belongs to no segment"
                )
            if size != self.file_size:
                raise MappedFileError(
                    f"{path} has {size} bytes instead of {self.file_size}: the bytes "
                    f"{offset + size} to {offset + self.file_size} are missing"
                )
            expected = offset + self.file_size

    def _replace(self, files: Iterable[MappedFile]) -> None:
        row = tuple(files)
        # One step, so that no reader and no interrupt sees files without their offsets.
        self._row = row, tuple(file.file_from_offset for file in row)

    @property
    def files(self) -> tuple[MappedFile, ...]:
        """The files, ascending."""
        return self._row[0]

    @property
    def created(self) -> list[MappedFile]:
        """The files that were not there when the queue was loaded."""
        return [file for file in self.files if file.file_from_offset not in self._loaded]

    @property
    def min_offset(self) -> int:
        """Offset of the first file, -1 when there is none."""
        starts = self._row[1]
        return starts[0] if starts else -1

    @property
    def max_offset(self) -> int:
        """Offset behind the last written byte, 0 when there is no file."""
        files = self.files
        return files[-1].file_from_offset + files[-1].wrote_position if files else 0

    def find_mapped_file_by_offset(
        self, offset: int, *, return_first_on_not_found: bool = False
    ) -> MappedFile | None:
        """Return the file that holds ``offset``; else ``None``, or the first file when asked
        for."""
        files, starts = self._row
        if not files:
            return None
        number = bisect.bisect_right(starts, offset) - 1
        if number >= 0 and offset < files[number].file_from_offset + self.file_size:
            return files[number]
        return files[0] if return_first_on_not_found else None

    def last(self) -> MappedFile | None:
        """The last file."""
        files = self.files
        return files[-1] if files else None

    def create_file(self, file_from_offset: int, *, allocated: int) -> MappedFile:
        """Create and append the file that starts at ``file_from_offset``.

        Raises ``StoreFullError`` without room; the queue is then unchanged.
        """
        file = self.create_spare(file_from_offset, allocated=allocated)
        self.append(file)
        return file

    def create_spare(self, file_from_offset: int, *, allocated: int) -> MappedFile:
        """Create a file without appending it yet (see ``append``)."""
        make_directories(self.directory, self._root)
        path = self.directory / formats.offset_to_file_name(file_from_offset)
        arguments = (path, file_from_offset, self.file_size, self._root)
        try:
            return MappedFile.create(*arguments, allocated=allocated, cache=self._cache)
        except FileExistsError:
            # An interrupt (Ctrl-C) may strike between the creation of a file and its taking over.
            if not self._is_leftover(path):
                raise
            path.unlink()
            return MappedFile.create(*arguments, allocated=allocated, cache=self._cache)

    def _is_leftover(self, path: Path) -> bool:
        """Whether ``path`` is a file of zeros of the right size that is not in the list."""
        if any(file.path == path for file in self.files):
            return False
        fd = open_regular_file(path, READ_ONLY, self._root)
        try:
            position = 0
            while chunk := os.pread(fd, 1 << 20, position):
                if chunk.strip(b"\0"):
                    return False
                position += len(chunk)
            return position == self.file_size
        finally:
            os.close(fd)

    def append(self, file: MappedFile) -> None:
        """Add a file that was created as a spare: the last one, or one that was missing."""
        with self._change_lock:
            files, starts = self._row
            place = bisect.bisect_right(starts, file.file_from_offset)
            self._replace((*files[:place], file, *files[place:]))

    def truncate_dirty_files(self, offset: int) -> list[MappedFile]:
        """Set positions to ``offset``; return (and forget) the files that start behind it."""
        kept, dropped = [], []
        for file in self.files:
            if file.file_from_offset >= offset and file.file_from_offset > self.min_offset:
                dropped.append(file)
                continue
            kept.append(file)
            position = min(max(offset - file.file_from_offset, 0), file.file_size)
            file.wrote_position = file.flushed_position = position
        self._replace(kept)
        self.flushed_where = offset
        return dropped

    def destroy_behind(self, offset: int, *, keep_first: bool = True) -> None:
        """Set positions to ``offset``; delete the files that start behind it, the last one first,
        each durably, so that a kill or a power cut leaves no hole in the row."""
        dropped = self.truncate_dirty_files(offset)
        if not keep_first:
            dropped = [*self.files, *dropped]
            self._replace(())
        for file in reversed(dropped):
            file.destroy()
            sync_directory(self.directory)

    def files_in_row(self) -> tuple[MappedFile, ...]:
        """The files up to the first that is missing between two others."""
        files = self.files
        for number in range(1, len(files)):
            if files[number].file_from_offset != files[number - 1].end_offset:
                return files[:number]
        return files

    def remove(self, files: list[MappedFile]) -> None:
        """Forget files (the caller destroys or closes them)."""
        gone = set(map(id, files))
        with self._change_lock:
            self._replace(file for file in self.files if id(file) not in gone)

    def delete_first(self, files: Sequence[MappedFile]) -> None:
        """Delete the first files of the row, the oldest first, each durably before the next, so
        that a kill or a power cut leaves no hole.

        Whoever holds one of them, or a view of it, goes on reading it: its space is freed with the
        last of them. So no file ever hangs as it may in RocketMQ, where a held file is not deleted.

        Parameters
        ----------
        files : sequence of MappedFile
            The row's first ones; never the last one.

        Raises
        ------
        ValueError
            When they are not; nothing is deleted.
        OSError
            When a file could not be deleted, which then is still in the row, or its directory not
            synced, which then is the first thing the next call does; those behind it are untouched.
        """
        row = self.files
        if len(files) >= len(row) or any(a is not b for a, b in zip(files, row, strict=False)):
            raise ValueError(f"only the first files of {self.directory}, and never its last")
        self._sync_deletion()
        for file in files:
            file.delete()
            self._sync_is_due = True
            self.remove([file])
            self._sync_deletion()

    def _sync_deletion(self) -> None:
        if self._sync_is_due:
            sync_directory(self.directory)
            self._sync_is_due = False

    def abandon(self) -> None:
        """Leave the files to whoever reads them."""
        for file in self.files:
            file.leave_cache()

    def close(self) -> None:
        """Close every file; views stay valid. Idempotent."""
        for file in self.files:
            file.close()


def overlay_file(queue: MappedFileQueue, start: int) -> MappedFile | MemoryFile:
    """Return a file that can be written without changing the disk, with what the file of ``queue``
    at offset ``start`` holds; zeros when there is none of its full size."""
    disk = queue.find_mapped_file_by_offset(start)
    name = queue.directory / formats.offset_to_file_name(start)
    if disk is None or disk.file_size != queue.file_size:
        return MemoryFile(name, start, queue.file_size)
    if len(_private) < MAX_PRIVATE_FILES:
        file = MappedFile(disk.path, start, disk.file_size, disk.root, writable=True, private=True)
        _private.add(file)
        return file
    copy = MemoryFile(name, start, queue.file_size)
    view = memoryview(copy.mapping)
    for position, stop in data_ranges(disk, 0):
        content = disk.read(position, stop - position)
        view[position : position + len(content)] = content
    return copy
