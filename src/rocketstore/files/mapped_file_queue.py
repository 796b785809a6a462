"""The files of one log or queue in order of offset: checked loading, lookup, rolling, deletion."""

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
    is_zeros,
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

#: Why a file is unreadable, as the text after its name in a message.
MAY_NOT_BE_READ = f"may not be read: {os.strerror(errno.EACCES)}"
#: Files mapped privately at a time. Further files are copied to memory, which needs no mapping.
MAX_PRIVATE_FILES = 8192
_private: weakref.WeakSet[MappedFile] = weakref.WeakSet()


@dataclass
class DirectoryListing:
    """The content of a queue's directory.

    Attributes
    ----------
    files : list of (int, Path, int)
        File-from-offset, path and size in bytes, ascending.
    foreign : list of Path
        Entries without the name of a queue file; never touched.
    unreadable : dict of Path to str
        Files that are not readable or not regular, or the directory itself (only if those are
        tolerated), and why. The reason continues a sentence that begins with the name.
    linked : list of Path
        Files that are symbolic links or have hard links.
    """

    files: list[tuple[int, Path, int]] = field(default_factory=list)
    foreign: list[Path] = field(default_factory=list)
    unreadable: dict[Path, str] = field(default_factory=dict)
    linked: list[Path] = field(default_factory=list)

    def refuse_unreadable(self) -> None:
        """Raise ``PermissionError`` or ``MappedFileError`` for the first unreadable file."""
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
    """List the queue files of ``directory``; a missing directory is empty.

    Raises
    ------
    PermissionError
        A file is not readable, unless ``tolerate_unreadable``.
    MappedFileError
        A directory, FIFO, socket or device has a queue file's name, unless ``tolerate_odd``.
    UnsafePathError
        The directory, its parent, or a queue file is a link out of ``root``.
    """
    listing = DirectoryListing()
    for folder in (directory, directory.parent):
        if folder == root:
            break  # a link on the way to the root is its owner's choice
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
                # Its writer deleted it, maybe with earlier files. A new listing shows no gap.
                return list_directory(
                    directory,
                    root,
                    tolerate_unreadable=tolerate_unreadable,
                    tolerate_odd=tolerate_odd,
                )
            if not tolerate_odd:
                raise  # a dangling link
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


def list_directories(
    directories: Sequence[Path],
    root: Path,
    *,
    tolerate_unreadable: bool = False,
    tolerate_odd: bool = False,
) -> DirectoryListing:
    """List the queue files of directories that hold the parts of one log.

    Raises as ``list_directory``; also ``MappedFileError`` if a file is in two of them.
    """
    whole = DirectoryListing()
    for directory in directories:
        own_root = root if directory.is_relative_to(root) else directory
        listing = list_directory(
            directory, own_root, tolerate_unreadable=tolerate_unreadable, tolerate_odd=tolerate_odd
        )
        whole.files += listing.files
        whole.foreign += listing.foreign
        whole.unreadable.update(listing.unreadable)
        whole.linked += listing.linked
    whole.files.sort()
    for (offset, path, _), (following, other, _) in itertools.pairwise(whole.files):
        if offset == following:
            raise MappedFileError(
                f"{path} and {other} have the same name: which of them belongs to the log is "
                "unknown; move the other one away"
            )
    return whole


def check_place(offset: int, path: Path | str, file_size: int) -> None:
    """Raise ``MappedFileError`` if a file's name is not a multiple of the file size."""
    if offset % file_size:
        raise MappedFileError(
            f"{path} starts at {offset}, which is not a multiple of the file size {file_size}"
        )


def shown_file_size(starts: Sequence[int], sizes: Sequence[int], hint: int | None) -> int | None:
    """Derive the file size of a log from its files; ``None`` without files.

    Parameters
    ----------
    starts, sizes : sequence of int
        File-from-offsets, ascending, and bytes of the files; sizes of 0 are ignored.
    hint : int or None
        The size to assume if the only file is shorter and starts at a multiple of it.
    """
    known = [size for size in sizes if size]
    if len(known) > 1:
        steps = Counter(b - a for a, b in itertools.pairwise(starts))
        common = Counter(known).most_common(1)[0][0]
        return common if common in steps or len(set(known)) == 1 else min(steps)
    if not known:
        return None
    return hint if hint and known[0] < hint and starts[0] % hint == 0 else known[0]


class MappedFileQueue:
    """Files of equal size, each named after the offset of its first byte.

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
        Limits how many of the files are mapped.
    more_directories : sequence of Path
        Further directories with files; for reading only.

    Notes
    -----
    Threading: the list is replaced, never changed in place, so readers need no lock. Any thread may
    append files or delete the first ones. Source: RocketMQ ``store/MappedFileQueue.java``.
    """

    def __init__(
        self,
        directory: Path,
        file_size: int,
        root: Path,
        *,
        writable: bool,
        cache: MappingCache | None = None,
        more_directories: Sequence[Path] = (),
    ) -> None:
        self.directory = directory
        self.directories = (directory, *more_directories)
        self.file_size = file_size
        self.writable = writable
        self.flushed_where = 0
        self._root = root
        self._cache = cache
        self._change_lock = kernels.locks.OrderedLock(LockRank.ROW)
        self._sync_is_due = False
        self._loaded: frozenset[int] = frozenset()
        #: The files, and the offset of each file's first byte; replaced under _change_lock.
        self._row: tuple[tuple[MappedFile, ...], tuple[int, ...]] = (), ()
        #: Offset after the last file's last byte, written or not; 0 without files.
        self.files_end = 0

    def load(self, listing: DirectoryListing) -> None:
        """Load listed files; call ``check`` before."""
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
        """Append the complete files that another process has created after the last one."""
        listing = list_directories(
            self.directories, self._root, tolerate_unreadable=True, tolerate_odd=True
        )
        for offset, path, size in listing.files:
            last = self.last()
            if (last is None or offset == last.end_offset) and size == self.file_size:
                self.append(MappedFile(path, offset, size, self._root, cache=self._cache))

    def hold(self, most: int) -> int:
        """Map up to ``most`` files now: they stay readable if another process deletes them.

        Returns
        -------
        int
            Number of mapped files. It is smaller if the process runs out of mappings; the
            remaining files are then mapped on first use.

        Raises
        ------
        FileNotFoundError
            If a file is gone already.
        """
        for count, file in enumerate(self.files[:most]):
            try:
                file.mapping  # noqa: B018 - created on first use
            except OSError as error:
                if error.errno != errno.ENOMEM:
                    raise
                return count
        return min(most, len(self.files))

    def check(self, listing: DirectoryListing) -> None:
        """Check that a directory can be opened for writing.

        Raises
        ------
        ConfigError
            The files do not have the queue's file size.
        MappedFileError
            A file is too short, too long, misnamed or missing; the message names the range.
        """
        sizes = {size for _, _, size in listing.files}
        if len(sizes) == 1 and max(sizes) > self.file_size:
            raise ConfigError(
                f"the files of {self.directory} have {sizes.pop()} bytes, not {self.file_size}; "
                "configure that file size, or leave it unset to have it detected"
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
                    f"{path} has {size} bytes instead of {self.file_size}: the bytes after "
                    f"{self.file_size} belong to no segment"
                )
            if size != self.file_size:
                raise MappedFileError(
                    f"{path} has {size} bytes instead of {self.file_size}: the bytes "
                    f"{offset + size} to {offset + self.file_size} are missing"
                )
            expected = offset + self.file_size

    def _replace(self, files: Iterable[MappedFile]) -> None:
        row = tuple(files)
        self.files_end = row[-1].file_from_offset + self.file_size if row else 0
        # A single assignment, so that readers and interrupts never see files without offsets.
        self._row = row, tuple(file.file_from_offset for file in row)

    @property
    def files(self) -> tuple[MappedFile, ...]:
        """The files, ascending."""
        return self._row[0]

    @property
    def created(self) -> list[MappedFile]:
        """The files created since the queue was loaded."""
        return [file for file in self.files if file.file_from_offset not in self._loaded]

    @property
    def min_offset(self) -> int:
        """Offset of the first file, -1 without files."""
        starts = self._row[1]
        return starts[0] if starts else -1

    @property
    def max_offset(self) -> int:
        """Offset after the last written byte, 0 if there is no file."""
        files = self.files
        return files[-1].file_from_offset + files[-1].wrote_position if files else 0

    def find_mapped_file_by_offset(
        self, offset: int, *, return_first_on_not_found: bool = False
    ) -> MappedFile | None:
        """Return the file that holds ``offset``.

        Otherwise return ``None``, or the first file with ``return_first_on_not_found``.
        """
        files, starts = self._row
        if not files:
            return None
        number = bisect.bisect_right(starts, offset) - 1
        if number >= 0 and offset < files[number].file_from_offset + self.file_size:
            return files[number]
        return files[0] if return_first_on_not_found else None

    def last(self) -> MappedFile | None:
        """Return the last file, ``None`` without files."""
        files = self.files
        return files[-1] if files else None

    def create_file(self, file_from_offset: int, *, allocated: int) -> MappedFile:
        """Create and append the file that starts at ``file_from_offset``.

        Raises ``StoreFullError`` if the disk is full and ``ReplacedFileError`` if the queue's
        folder was moved away; the queue is then unchanged.
        """
        file = self.create_spare(file_from_offset, allocated=allocated)
        self.append(file)
        return file

    def create_spare(self, file_from_offset: int, *, allocated: int) -> MappedFile:
        """Create a file without appending it yet (see ``append``)."""
        files = self.files
        if not files:
            make_directories(self.directory, self._root)
        path = self.directory / formats.offset_to_file_name(file_from_offset)
        arguments = (path, file_from_offset, self.file_size, self._root)
        try:
            return MappedFile.create(*arguments, allocated=allocated, cache=self._cache)
        except FileNotFoundError:
            # A new folder in place of one that was moved away would keep it from coming back.
            if files:
                files[-1].check_name()
            raise
        except FileExistsError:
            # An interrupt (Ctrl-C) may have occurred after the file was created, before ``append``.
            if not self._is_leftover(path):
                raise
            path.unlink()
            return MappedFile.create(*arguments, allocated=allocated, cache=self._cache)

    def _is_leftover(self, path: Path) -> bool:
        """Return whether ``path`` is an unlisted file of zeros of the right size."""
        if any(file.path == path for file in self.files):
            return False
        fd = open_regular_file(path, READ_ONLY, self._root)
        try:
            position = 0
            while chunk := os.pread(fd, 1 << 20, position):
                if not is_zeros(chunk):
                    return False
                position += len(chunk)
            return position == self.file_size
        finally:
            os.close(fd)

    def append(self, file: MappedFile) -> None:
        """Add a file that was created as a spare, at the end or in a gap."""
        with self._change_lock:
            files, starts = self._row
            place = bisect.bisect_right(starts, file.file_from_offset)
            self._replace((*files[:place], file, *files[place:]))

    def truncate_dirty_files(self, offset: int) -> list[MappedFile]:
        """Set positions to ``offset``; remove and return the files that start after it."""
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

    def destroy_after(self, offset: int, *, keep_first: bool = True) -> None:
        """Set positions to ``offset``; delete the files that start after it.

        The last file is deleted first, each durably, so that a crash leaves no gap.
        """
        dropped = self.truncate_dirty_files(offset)
        if not keep_first:
            dropped = [*self.files, *dropped]
            self._replace(())
        for file in reversed(dropped):
            file.destroy()
            sync_directory(self.directory)

    def files_in_row(self) -> tuple[MappedFile, ...]:
        """Return the files before the first gap."""
        files = self.files
        for number in range(1, len(files)):
            if files[number].file_from_offset != files[number - 1].end_offset:
                return files[:number]
        return files

    def remove(self, files: list[MappedFile]) -> None:
        """Remove files from the list; the caller destroys or closes them."""
        gone = set(map(id, files))
        with self._change_lock:
            self._replace(file for file in self.files if id(file) not in gone)

    def delete_first(self, files: Sequence[MappedFile]) -> None:
        """Delete the first files, the oldest first, each durably, so that a crash leaves no gap.

        Readers that hold a file or a view of it can continue to read; the last one frees the
        space. So deletion never waits for readers. In RocketMQ a held file is not deleted.

        Parameters
        ----------
        files : sequence of MappedFile
            The first files of the queue; the last file must not be among them.

        Raises
        ------
        ValueError
            If ``files`` are not the first ones; nothing is deleted then.
        OSError
            If a file cannot be deleted, which then stays listed, or if the directory cannot be
            synced, which the next call then does first. Later files are not touched.
        """
        row = self.files
        if len(files) >= len(row) or any(a is not b for a, b in zip(files, row, strict=False)):
            raise ValueError(f"files must be the first ones of {self.directory}, without its last")
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
        """Leave the mapping cache: each file stays mapped only while a reader references it."""
        for file in self.files:
            file.leave_cache()

    def close(self) -> None:
        """Close every file; views stay valid. Idempotent."""
        for file in self.files:
            file.close()


def overlay_file(queue: MappedFileQueue, start: int) -> MappedFile | MemoryFile:
    """Return a copy of the file of ``queue`` at ``start`` that is written in memory only.

    The copy holds zeros if there is no file of the full size.
    """
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
