"""Copying one file: its holes, times and mode, sharing blocks where the file system can."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from rocketstore.errors import SourceChangedError
from rocketstore.files.durable import (
    NO_FOLLOW,
    READ_ONLY,
    READ_WRITE,
    is_zeros,
    naming,
    open_regular_file,
    reporting_full_disk,
    sync_descriptor,
)
from rocketstore.moving.tree import TreeFile

#: Linux: let a file share all blocks of another one.
_FICLONE = 0x40049409
_STEP_NBYTES = 8 << 20
_COMPARED_NBYTES = 1 << 20
_CANNOT = frozenset(
    (errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.EPERM,
     errno.EBADF, errno.EISDIR)
)  # fmt: skip


class Copier:
    """Copies files of one store; not for several threads.

    Parameters
    ----------
    root : Path
        The source: links must not leave it.
    reflink : bool
        Share blocks where the file system can.
    on_bytes : callable
        Called with the bytes that were copied or shared since the last call.

    Attributes
    ----------
    copied_nbytes, shared_nbytes : int
    """

    def __init__(self, root: Path, *, reflink: bool, on_bytes: Callable[[int], None]) -> None:
        self.copied_nbytes = self.shared_nbytes = 0
        self._root = root
        self._reflink = reflink
        self._in_kernel = reflink and hasattr(os, "copy_file_range")
        self._on_bytes = on_bytes

    def copy(
        self,
        file: TreeFile,
        target: Path,
        *,
        limit: int | None = None,
        whole: bool = False,
        compare: bool = True,
        sync: bool = True,
    ) -> bool:
        """Copy a file to ``target``, which is replaced; return whether it shares the blocks.

        Parameters
        ----------
        file : TreeFile
        target : Path
        limit : int, optional
            Copy only so many bytes; the copy is as long, and ends with a hole.
        whole : bool
            The source must not change: raise ``SourceChangedError`` if its size did.
        compare : bool
            Compare the bytes afterwards, unless they are shared.
        sync : bool
            The copy is on disk when the call returns.

        Raises
        ------
        FileNotFoundError
            The source was deleted.
        StoreFullError
            The disk is full.
        SourceChangedError
            The bytes differ after copying.
        """
        source = open_regular_file(file.path, READ_ONLY, self._root)
        try:
            nbytes = os.fstat(source).st_size
            if whole and nbytes != file.nbytes:
                raise SourceChangedError(_changed(file.path))
            stop = nbytes if limit is None else min(limit, nbytes)
            with reporting_full_disk(target):
                flags = READ_WRITE | NO_FOLLOW | os.O_CREAT | os.O_TRUNC
                fd = os.open(target, flags, 0o600)
                try:
                    shared = self._share(source, fd, nbytes, stop)
                    if not shared:
                        self._copy_data(source, fd, nbytes, stop)
                        if compare:
                            _compare(source, fd, stop, file.path, holes=limit is None)
                    set_facts(fd, file)
                    if sync:
                        sync_descriptor(fd)
                finally:
                    os.close(fd)
            return shared
        finally:
            os.close(source)

    def _share(self, source: int, fd: int, nbytes: int, stop: int) -> bool:
        if not self._reflink or not nbytes or not share_blocks(source, fd):
            return False
        if stop < os.fstat(fd).st_size:
            os.ftruncate(fd, stop)
        os.ftruncate(fd, nbytes)
        self.shared_nbytes += stop
        self._on_bytes(stop)
        return True

    def _copy_data(self, source: int, fd: int, nbytes: int, stop: int) -> None:
        os.ftruncate(fd, nbytes)
        position = 0
        for start, end in data_ranges_of(source, stop):
            self._on_bytes(start - position)
            position = start
            while position < end:
                count = self._copy_some(source, fd, position, min(end - position, _STEP_NBYTES))
                if not count:
                    break
                position += count
                self.copied_nbytes += count
                self._on_bytes(count)
        self._on_bytes(max(0, stop - position))

    def _copy_some(self, source: int, fd: int, position: int, nbytes: int) -> int:
        if self._in_kernel:
            try:
                return os.copy_file_range(source, fd, nbytes, position, position)
            except OSError as error:
                if error.errno not in _CANNOT:
                    raise
                self._in_kernel = False
        data = os.pread(source, min(nbytes, 1 << 20), position)
        written = 0
        while written < len(data):
            written += os.pwrite(fd, data[written:], position + written)
        return len(data)


def share_blocks(source: int, fd: int) -> bool:
    """Let the file ``fd`` share the blocks of ``source``; return False where that is impossible."""
    try:
        import fcntl
    except ImportError:
        return False
    try:
        fcntl.ioctl(fd, _FICLONE, source)
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
        return False
    return True


def can_share_blocks(sample: TreeFile, root: Path, folder: Path) -> bool:
    """Return whether a file in ``folder`` can share the blocks of ``sample``; leaves nothing."""
    probe = folder / "probe"
    source = open_regular_file(sample.path, READ_ONLY, root)
    try:
        fd = os.open(probe, READ_WRITE | NO_FOLLOW | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            return share_blocks(source, fd)
        finally:
            os.close(fd)
            probe.unlink()
    finally:
        os.close(source)


def data_ranges_of(fd: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield the (start, stop) ranges before ``stop`` that are not holes."""
    position, seek_data = 0, getattr(os, "SEEK_DATA", None)
    while position < stop:
        start, end = position, stop
        if seek_data is not None:
            try:
                start = os.lseek(fd, position, seek_data)
                end = os.lseek(fd, start, os.SEEK_HOLE)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    return  # only a hole up to the end
                if error.errno != errno.EINVAL:
                    raise
                start, end = position, stop  # the file system does not report holes
        if start >= stop:
            return
        yield start, min(end, stop)
        position = end


def set_facts(fd: int, file: TreeFile) -> None:
    """Give a copy the mode, owner and times of its source."""
    if hasattr(os, "fchown") and os.geteuid() == 0:
        with contextlib.suppress(PermissionError):
            os.fchown(fd, *file.owner)
    os.fchmod(fd, stat.S_IMODE(file.mode))
    os.utime(fd, ns=(file.mtime_ns, file.mtime_ns))


def _compare(source: int, fd: int, stop: int, path: Path, *, holes: bool) -> None:
    """Raise ``SourceChangedError`` unless two files have the same first ``stop`` bytes.

    Without ``holes``, holes are read, too: a writer's memory may not be data for the file system
    yet.
    """
    ranges = sorted({*data_ranges_of(source, stop), *data_ranges_of(fd, stop)})
    position = 0
    for start, end in ranges if holes else [(0, stop)]:
        position = max(position, start)
        while position < end:
            nbytes = min(end - position, _COMPARED_NBYTES)
            with naming(path):
                a, b = os.pread(source, nbytes, position), os.pread(fd, nbytes, position)
            if a != b:
                if not holes and is_zeros(b) and len(a) == len(b):
                    os.pwrite(fd, a, position)  # was a hole when the file system was asked
                    continue
                raise SourceChangedError(_changed(path))
            if not a:
                raise SourceChangedError(_changed(path))
            position += nbytes


def _changed(path: Path) -> str:
    return (
        f"{path} was changed while it was copied: another process writes the store. Stop it, or "
        "use --live (live=True); the same command then goes on"
    )
