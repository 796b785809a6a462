"""One file of a mapped-file queue: created whole, mapped on first use, flushed by range."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from rocketstore import kernels
from rocketstore.errors import MappedFileError, StoreClosedError
from rocketstore.files.durable import (
    READ_ONLY,
    READ_WRITE,
    NamedFile,
    ReplacedFileError,
    create_sized_file,
    is_zeros,
    naming,
    open_regular_file,
    refuse_replaced,
    reporting_full_disk,
    reserve_blocks,
    sync_descriptor,
)
from rocketstore.files.mapping_cache import MappingCache
from rocketstore.lock_order import LockRank

#: Whether syncing a mapping leaves the bytes in the disk's cache, so that the descriptor must be
#: synced as well.
SYNCS_DESCRIPTOR = sys.platform == "darwin"
#: Most bytes that a file system's blocks have, nearly everywhere.
_BLOCK_NBYTES = 4096


class MappedFile:
    """A file of fixed size that starts at ``file_from_offset`` of its queue.

    Parameters
    ----------
    path : Path
    file_from_offset : int
        Offset of byte 0, in bytes from the start of the queue.
    file_size : int
        Bytes that are mapped.
    root : Path
        The store's root; links that leave it raise an error.
    writable : bool
        Map for writing. A read-only file is never changed.
    private : bool
        Writes stay in this process's memory. Used to complete derived files without touching disk.
    cache : MappingCache, optional
        Limits how many files are mapped. Not for private files, whose bytes would be lost.

    Notes
    -----
    Threading: any thread may use ``mapping``; each position has a single writer.
    Source: RocketMQ ``store/logfile/DefaultMappedFile.java``.
    """

    def __init__(
        self,
        path: Path,
        file_from_offset: int,
        file_size: int,
        root: Path,
        *,
        writable: bool = False,
        private: bool = False,
        cache: MappingCache | None = None,
    ) -> None:
        self.path = path
        self._name = str(path)
        self._path_bytes = os.fsencode(path)
        self.file_from_offset = file_from_offset
        self.file_size = file_size
        self.writable = writable
        self.wrote_position = file_size
        self.flushed_position = file_size
        self.allocated_position = 0
        self.root = root
        self.private = private
        self.was_used = False
        self._cache = cache
        #: The mapping, ``None`` while there is none; see ``mapping``.
        self.mapped: Any = None  # guarded by: _lock
        self._view: memoryview | None = None  # guarded by: _lock
        self._fd: int | None = None  # guarded by: _lock
        #: Device and inode of a file that is written, known since it was first opened.
        self._identity: tuple[int, int] | None = None  # guarded by: _lock
        self._closed = False
        self._deleted = False  # guarded by: _lock
        self._lock = kernels.locks.OrderedLock(LockRank.FILE)

    @classmethod
    def create(
        cls,
        path: Path,
        file_from_offset: int,
        file_size: int,
        root: Path,
        *,
        allocated: int,
        cache: MappingCache | None = None,
    ) -> MappedFile:
        """Create a file of zeros with blocks for its first ``allocated`` bytes, durably.

        Raises ``StoreFullError`` if the disk is full, ``FileExistsError`` if the name is taken.
        """
        allocated = min(allocated, file_size)
        identity = create_sized_file(path, file_size, allocated, root)
        file = cls(path, file_from_offset, file_size, root, writable=True, cache=cache)
        file.wrote_position = file.flushed_position = 0
        file.allocated_position = allocated
        file._identity = identity
        return file

    @property
    def end_offset(self) -> int:
        """Queue offset after the file's last byte."""
        return self.file_from_offset + self.file_size

    @property
    def is_full(self) -> bool:
        """Whether every byte has been written."""
        return self.wrote_position >= self.file_size

    @property
    def mapping(self) -> Any:
        """The mapping (a buffer of ``file_size`` bytes), created on first use.

        Raises ``StoreClosedError`` after ``close``, ``MappedFileError`` if the file was truncated.
        """
        mapping = self.mapped
        if mapping is None:
            with self._lock:
                mapping = self.mapped
                if mapping is None:
                    mapping = self.mapped = self._map()
            cache = self._cache
            if cache is not None:
                cache.add(self)
                if self._cache is None:  # another thread called leave_cache meanwhile
                    cache.discard(self)
        self.was_used = True
        return mapping

    @property
    def view(self) -> memoryview:
        """A view of the mapping that keeps the file mapped while it is held, even after
        ``close``."""
        view = self._view
        if view is None:
            mapping = self.mapping
            with self._lock:
                if self._closed:
                    raise StoreClosedError(f"{self.path} is closed")
                view = memoryview(mapping)
                if self.mapped is mapping:  # else it was released meanwhile
                    self._view = view
        return view

    def _map(self) -> Any:
        if self._closed:
            raise StoreClosedError(f"{self.path} is closed")
        fd = self._descriptor()
        try:
            size = os.fstat(fd).st_size
            if size < self.file_size:
                raise MappedFileError(
                    f"{self.path} has {size} bytes, but must have {self.file_size}"
                )
            shared = self._is_shared
            with naming(self.path):
                if self.private:
                    return kernels.mapping.Mapping(fd, self.file_size, True, True)
                return kernels.mapping.Mapping(fd, self.file_size, shared)
        finally:
            if fd != self._fd:
                os.close(fd)

    def _descriptor(self) -> int:
        if self._fd is not None:
            return self._fd
        if not self._is_shared:
            return open_regular_file(self.path, READ_ONLY, self.root)
        try:
            fd = open_regular_file(self.path, READ_WRITE, self.root)
        except FileNotFoundError:
            self.check_name()
            raise
        try:
            self._identify(os.fstat(fd))
        except BaseException:
            os.close(fd)
            raise
        return fd

    @property
    def _is_shared(self) -> bool:
        """Whether writes go to the disk."""
        return self.writable and not self.private

    def _identify(self, about: os.stat_result) -> None:
        """Store the identity of the file; raise ``ReplacedFileError`` if it has changed."""
        identity = about.st_dev, about.st_ino
        if self._identity is None:
            self._identity = identity
        elif self._identity != identity:
            refuse_replaced(self._name, self._identity)
            raise OSError(errno.ESTALE, "the file was replaced for a moment; try again", self._name)

    def check_name(self) -> None:
        """Raise ``ReplacedFileError`` if a written file lost its name or was truncated.

        What is synced to such a file would be lost. A file that this store deleted is accepted.
        """
        if self._deleted or not self._is_shared:
            return
        identity = self._identity
        if identity is not None:
            device, inode = identity
            if kernels.mapping.is_named(self._path_bytes, device, inode, self.file_size):
                return
        try:
            refuse_replaced(self._name, self._identity, self.file_size)
        except ReplacedFileError:
            if not self._deleted:  # this store's cleaner may have deleted it meanwhile
                raise

    @property
    def named_file(self) -> NamedFile | None:
        """What ``check_name`` looks for; ``None`` if it has nothing to look for."""
        if self._deleted or not self._is_shared or self._identity is None:
            return None
        return NamedFile(self._path_bytes, *self._identity, self.file_size)

    @property
    def descriptor(self) -> int:
        """The held descriptor, see ``keep_descriptor``; -1 if there is none."""
        fd = self._fd
        return -1 if fd is None else fd

    def is_cut(self) -> bool:
        """Return whether the file with this name on disk is too short."""
        try:
            return os.stat(self._name).st_size < self.file_size
        except FileNotFoundError:
            return False

    def is_in_place(self) -> bool:
        """Return whether the file still has its name and its full size."""
        try:
            self.check_name()
        except ReplacedFileError:
            return False
        return True

    def keep_descriptor(self) -> None:
        """Hold one descriptor until ``release_descriptor`` or ``close``, so that no write error of
        the file is missed."""
        with self._lock:
            if self._fd is None:
                self._fd = self._descriptor()

    def release_descriptor(self) -> None:
        """Close the held descriptor: the file will not be written again."""
        with self._lock:
            fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def release_mapping(self) -> None:
        """Drop the mapping; the next use maps the file again.

        Callers that hold the mapping or a view of it can continue to use it.
        """
        with self._lock:
            if not self._deleted:  # a deleted file cannot be mapped again
                self.mapped = self._view = None

    def leave_cache(self) -> None:
        """Leave the cache: the file then stays mapped for as long as it is referenced."""
        cache, self._cache = self._cache, None
        if cache is not None:
            cache.discard(self)

    def allocate(self, position: int, *, used: int) -> int:
        """Reserve disk blocks up to ``position``; return the allocated position.

        Bytes before ``used`` may hold data. If blocks cannot be reserved, zeros are written, but
        only from ``used`` on. Raises ``StoreFullError`` if the disk is full.
        """
        position = min(position, self.file_size)
        with self._lock:
            if position > self.allocated_position:
                fd = self._descriptor()
                try:
                    start = self.allocated_position
                    reserve_blocks(fd, start, position - start, self.path, used=used)
                finally:
                    if fd != self._fd:
                        os.close(fd)
                self.allocated_position = position
            return self.allocated_position

    def empty_rest(self, position: int) -> None:
        """Make what follows ``position`` zeros that no search for data finds, blocks kept.

        Pages that were mapped for writing count as data until then. Does nothing if a byte follows
        soon, which another process wrote, or where the file system does not support that.
        """
        start = -(-position // _BLOCK_NBYTES) * _BLOCK_NBYTES
        stop = self.allocated_position // _BLOCK_NBYTES * _BLOCK_NBYTES
        if start >= stop or self.private:
            return
        if not is_zeros(self.read(position, min(start + _BLOCK_NBYTES, stop) - position)):
            return
        with self._lock:
            fd = self._descriptor()
            try:
                kernels.mapping.zero_range(fd, start, stop - start)
            finally:
                if fd != self._fd:
                    os.close(fd)

    def write(self, position: int, content: memoryview) -> None:
        """Write ``content`` at ``position`` through the descriptor (see ``keep_descriptor``), not
        through the mapping.

        Raises ``StoreFullError`` if the disk is full; a part may be written then.
        """
        assert self._fd is not None
        with reporting_full_disk(self.path):
            while len(content):
                count = os.pwrite(self._fd, content, position)
                position += count
                content = content[count:]

    def flush(self, position: int) -> None:
        """Sync the bytes from the flushed position to ``position``.

        Raises ``OSError``, or ``ReplacedFileError`` if the file lost its name or was truncated.
        The flushed position then stays. The caller must treat the error as final: the kernel may
        have marked the pages as clean although they are not on disk.
        """
        start = self.flushed_position
        if position <= start:
            return
        mapping = self.mapping
        with naming(self.path):
            mapping.sync(start, position - start)
            if SYNCS_DESCRIPTOR:
                self.keep_descriptor()
                assert self._fd is not None
                sync_descriptor(self._fd)
        if self._fd is not None:
            # A file system that is shut down during a sync may report success and never write its
            # journal. Every later read fails, so a read confirms the sync.
            self.read(start, 1)
        self.check_name()
        self.flushed_position = position

    def read(self, position: int, nbytes: int) -> bytes:
        """Read bytes with ``pread``; the result is shorter at the file's end.

        Only a deleted file is read through the mapping.
        """
        with self._lock, naming(self.path):
            if self._fd is not None:  # the held descriptor is closed under the lock only
                return os.pread(self._fd, nbytes, position)
        if not self._deleted:
            try:
                return self._read_reopened(position, nbytes)
            except FileNotFoundError:
                if not self._deleted:
                    self.check_name()
                    raise
        return bytes(self.view[position : position + nbytes])

    @contextlib.contextmanager
    def reading(self) -> Iterator[Callable[[int, int], bytes]]:
        """Open the file once for many calls of ``read``."""
        try:
            fd = open_regular_file(self.path, READ_ONLY, self.root)
        except FileNotFoundError:
            yield self.read
            return
        try:
            with naming(self.path):
                yield lambda position, nbytes: os.pread(fd, nbytes, position)
        finally:
            os.close(fd)

    def _read_reopened(self, position: int, nbytes: int) -> bytes:
        fd = open_regular_file(self.path, READ_ONLY, self.root)
        try:
            if self._is_shared:
                self._identify(os.fstat(fd))
            with naming(self.path):
                return os.pread(fd, nbytes, position)
        finally:
            os.close(fd)

    def close(self) -> None:
        """Close the file. Idempotent.

        The pages are unmapped with the last reference to the mapping or to a view of it, because
        another thread may be about to read.
        """
        with self._lock:
            self._closed = True
            self.mapped = self._view = None
            fd, self._fd = self._fd, None
        if self._cache is not None:
            self._cache.discard(self)
        if fd is not None:
            os.close(fd)

    def destroy(self) -> None:
        """Close and delete the file; its views stay valid, and the last one frees the space.

        Raises ``ReplacedFileError``, and deletes nothing, if another file has its name.
        """
        self.close()
        refuse_replaced(self._name, self._identity, may_be_gone=True)
        self.path.unlink(missing_ok=True)

    def delete(self) -> None:
        """Delete the file while readers use it: it stays mapped and readable for them.

        Raises ``OSError`` if the file cannot be deleted; nothing has changed then.
        """
        mapping = None
        # A file that cannot be mapped now (too short, no memory) was not readable before either.
        with contextlib.suppress(OSError, MappedFileError):
            mapping = self.mapping
        with self._lock:
            refuse_replaced(self._name, self._identity, may_be_gone=True)
            self._deleted = True  # first: a thread that finds the name missing checks this flag
            try:
                self.path.unlink(missing_ok=True)
            except OSError:
                self._deleted = False
                raise
            if self.mapped is None:  # another thread released it meanwhile
                self.mapped = mapping
            fd, self._fd = self._fd, None
        if self._cache is not None:
            self._cache.discard(self)
        if fd is not None:
            os.close(fd)

    def __repr__(self) -> str:
        return f"MappedFile({str(self.path)!r}, {self.file_from_offset}, {self.file_size})"


def name_cut_file(error: OSError, files: Iterable[MappedFile | MemoryFile]) -> None:
    """Add the name of the truncated file to a kernel's error: kernels see only memory.

    If there is only one file, it is named without a check. Raises ``ReplacedFileError`` instead if
    the store writes that file.
    """
    if error.errno != errno.EFAULT or error.filename is not None:
        return
    on_disk = [file for file in files if isinstance(file, MappedFile)]
    for file in on_disk:
        file.check_name()
        if len(on_disk) == 1 or file.is_cut():
            error.filename = str(file.path)
            return


class MemoryFile:
    """A file of zeros that exists in memory only, in place of a derived file that is not on
    disk."""

    def __init__(self, name: Path, file_from_offset: int, file_size: int) -> None:
        self.path = name
        self.file_from_offset = file_from_offset
        self.file_size = file_size
        self.wrote_position = 0
        self.was_used = False
        #: The memory, ``None`` after ``close``.
        self.mapped: Any = kernels.mapping.Mapping(-1, file_size, True, True)

    @property
    def mapping(self) -> Any:
        """The memory. Raises ``StoreClosedError`` after ``close``."""
        mapping = self.mapped
        if mapping is None:
            raise StoreClosedError(f"{self.path} is closed")
        return mapping

    @property
    def end_offset(self) -> int:
        """Queue offset after the file's last byte."""
        return self.file_from_offset + self.file_size

    @property
    def is_full(self) -> bool:
        """Whether every byte has been written."""
        return self.wrote_position >= self.file_size

    def release_mapping(self) -> None:
        """Do nothing: there is no file on disk to map again."""

    def close(self) -> None:
        """Close; the last reference to the memory frees it."""
        self.mapped = None
