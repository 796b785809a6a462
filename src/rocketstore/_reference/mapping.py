"""Mapped files: bytes in memory, without paths. The pure-Python body, over ``mmap.mmap``."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import weakref
from collections.abc import Callable
from typing import Any, Final

_UNSUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
_MADV_POPULATE_READ, _MADV_POPULATE_WRITE = 22, 23
_MLOCK_ONFAULT = 1
_ADVICE: Final = {
    "normal": "MADV_NORMAL",
    "random": "MADV_RANDOM",
    "sequential": "MADV_SEQUENTIAL",
    "willneed": "MADV_WILLNEED",
    "dontneed": "MADV_DONTNEED",
}
_mapped = 0


def is_named(path: bytes, device: int, inode: int, nbytes: int) -> bool:
    """See ``_native/mapping.pyi``."""
    if not isinstance(path, bytes):
        raise TypeError(f"a path is bytes here, not {type(path).__name__}")
    try:
        about = os.stat(path)
    except OSError:
        return False
    return (about.st_dev, about.st_ino) == (device, inode) and about.st_size >= nbytes


def mapped_nbytes() -> int:
    """Return the bytes that are mapped now in this process."""
    return _mapped


def _count(nbytes: int) -> None:
    global _mapped
    _mapped += nbytes


def _uninterrupted(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Return the result of a call that ``mmap`` does not retry after a signal."""
    while True:
        try:
            return call(*arguments, **options)
        except InterruptedError:
            pass


def _check_range(position: int, length: int) -> None:
    if position < 0 or length <= 0 or position > 2**63 - 1 - length:
        raise ValueError(f"position {position} and length {length} are not a range")


def zero_range(fd: int, position: int, length: int) -> bool:
    """Return False: Python has no call for it."""
    _check_range(position, length)
    return False


def allocate(fd: int, position: int, length: int) -> bool:
    """Reserve disk blocks within the file's size; return False if unsupported.

    ``posix_fallocate`` would extend the file, so the range past its end is left out.
    """
    _check_range(position, length)
    if not hasattr(os, "posix_fallocate"):
        return False
    length = min(length, os.fstat(fd).st_size - position)
    if length > 0:
        os.posix_fallocate(fd, position, length)
    return True


class Mapping(mmap.mmap):
    """A mapping of the first ``nbytes`` bytes of an open file.

    Differences from the native body: ``mmap`` keeps a duplicate of the descriptor. ``exports``
    counts views from ``view`` that are still referenced, not buffers taken from the mapping
    itself. Such buffers can still be taken after ``close`` while another one exists.
    """

    _nbytes: int
    _writable: bool
    _private: bool
    _is_closed: bool
    _sync_error: int
    _views: int
    _uncount: Any

    def __new__(
        cls, fd: int, nbytes: int, writable: bool = False, private: bool = False
    ) -> Mapping:
        """Map the file; -1 for anonymous memory, which must be writable and private."""
        if nbytes <= 0:
            raise ValueError(f"a mapping must have at least one byte, not {nbytes}")
        if fd < 0 and not (fd == -1 and writable and private):
            raise ValueError(f"descriptor {fd}: memory without a file must be writable and private")
        file_nbytes = os.fstat(fd).st_size if fd >= 0 else nbytes
        if nbytes > file_nbytes:
            raise ValueError(f"{nbytes} bytes to map, but the file has {file_nbytes}")
        access = mmap.ACCESS_READ
        if writable:
            access = mmap.ACCESS_COPY if private and fd >= 0 else mmap.ACCESS_WRITE
        self: Mapping = _uninterrupted(super().__new__, cls, fd, nbytes, access=access)
        self._nbytes = nbytes
        self._writable = bool(writable)
        self._private = bool(private)
        self._is_closed = False
        self._sync_error = 0
        self._views = 0
        _count(nbytes)
        self._uncount = weakref.finalize(self, _count, -nbytes)
        self._uncount.atexit = False
        return self

    def _check(self, position: int, length: int) -> None:
        if self._is_closed:
            raise ValueError("the mapping is closed")
        if not 0 <= position <= self._nbytes or not 0 <= length <= self._nbytes - position:
            raise ValueError(
                f"position {position} and length {length} are outside {self._nbytes} bytes"
            )

    def _check_for_writing(self, position: int, length: int, what: str) -> None:
        self._check(position, length)
        if not self._writable:
            raise ValueError(f"a read-only mapping cannot be {what}")

    @property
    def nbytes(self) -> int:
        """Length in bytes."""
        return self._nbytes

    @property
    def writable(self) -> bool:
        """Return whether its buffers are writable."""
        return self._writable

    @property
    def closed(self) -> bool:  # type: ignore[override]  # mmap's is as read-only as this one
        """Return whether ``close`` was called."""
        return self._is_closed

    @property
    def exports(self) -> int:
        """Views given out and still referenced."""
        return self._views

    def __len__(self) -> int:
        return self._nbytes

    def view(self) -> memoryview:
        """Return a memoryview of all bytes."""
        if self._is_closed:
            raise ValueError("the mapping is closed")
        view = memoryview(self)
        self._views += 1
        weakref.finalize(view, self._forget).atexit = False
        return view

    def _forget(self) -> None:
        self._views -= 1
        if self._is_closed:
            self._unmap_if_unused()

    def _unmap_if_unused(self) -> None:
        try:
            super().close()
        except BufferError:
            return  # the end of the last view, or of the mapping, calls this again
        self._uncount()

    def close(self) -> None:
        """Allow no more views; the last view unmaps the pages. Idempotent."""
        self._is_closed = True
        self._unmap_if_unused()

    def advise(self, advice: str, position: int = 0, length: int | None = None) -> bool:
        """Advise the system how a range will be used; return False if unsupported."""
        if advice not in _ADVICE:
            raise ValueError(f"advice {advice!r} must be one of {', '.join(_ADVICE)}")
        length = self._nbytes - position if length is None else length
        self._check(position, length)
        word = getattr(mmap, _ADVICE[advice], None)
        if word is None or (self._private and advice == "dontneed"):
            return False
        return self._madvise(word, position, length)

    def _madvise(self, word: int, position: int, length: int) -> bool:
        ragged = position % mmap.PAGESIZE
        if length + ragged == 0:
            return True
        try:
            self.madvise(word, position - ragged, length + ragged)
        except OSError as error:
            if error.errno in _UNSUPPORTED:
                return False
            raise
        return True

    def sync(self, position: int, length: int) -> None:
        """Write the pages of the range to disk and wait for it."""
        self._check(position, length)
        ragged = position % mmap.PAGESIZE
        try:
            if length + ragged > 0 and self._sync_error == 0:
                _uninterrupted(self.flush, position - ragged, length + ragged)
        except OSError as error:
            self._sync_error = error.errno or errno.EIO
        if self._sync_error:
            raise OSError(self._sync_error, os.strerror(self._sync_error))

    def refuse_syncs(self, error: int) -> None:
        if not self._sync_error:
            self._sync_error = error

    def populate(self, position: int, length: int) -> bool:
        """Make the range's pages present and writable; return False if unsupported."""
        self._check_for_writing(position, length, "populated for writing")
        if not hasattr(self, "madvise"):
            return False
        return self._madvise(_MADV_POPULATE_WRITE, position, length)

    def populate_for_reading(self, position: int, length: int) -> bool:
        """Make the range's pages present; return False if unsupported or a page cannot be read."""
        self._check(position, length)
        if not hasattr(self, "madvise"):
            return False
        try:
            return self._madvise(_MADV_POPULATE_READ, position, length)
        except OSError:
            return False

    def _call_libc(self, function: Callable[..., int], position: int, length: int) -> None:
        """Call ``function(address, nbytes)`` for the pages of a range."""
        ragged = position % mmap.PAGESIZE
        start = ctypes.c_char.from_buffer(self)
        address = ctypes.addressof(start) + position - ragged
        failed = function(ctypes.c_void_p(address), ctypes.c_size_t(length + ragged))
        code = ctypes.get_errno()
        if failed:
            raise OSError(code, os.strerror(code))

    def lock(self, position: int, length: int) -> None:
        """Keep the range's pages in memory once they are present. Raises ``OSError``."""
        self._check_for_writing(position, length, "locked")
        libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(libc, "mlock2"):
            self._call_libc(libc.mlock, position, length)
            return
        flags = ctypes.c_int(_MLOCK_ONFAULT)
        self._call_libc(lambda *where: int(libc.mlock2(*where, flags)), position, length)

    def unlock(self, position: int, length: int) -> None:
        """Take ``lock`` back. Raises ``OSError``."""
        self._check_for_writing(position, length, "unlocked")
        self._call_libc(ctypes.CDLL(None, use_errno=True).munlock, position, length)

    def clear(self, position: int, length: int) -> None:
        """Write zeros over the range."""
        self._check_for_writing(position, length, "cleared")
        self[position : position + length] = bytes(length)

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "writable" if self._writable else "read-only"
        return f"<Mapping of {self._nbytes} bytes, {state}>"
