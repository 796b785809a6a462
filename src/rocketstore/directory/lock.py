"""One writer per store: RocketMQ's lock on byte 0 of ``lock``, locks on folders, and a registry
of this process."""

from __future__ import annotations

import errno
import os
import stat
import struct
import sys
from pathlib import Path

from rocketstore import formats, kernels
from rocketstore.errors import MappedFileError, StoreLockedError
from rocketstore.files.durable import (
    NO_FOLLOW,
    READ_ONLY,
    READ_WRITE,
    NamedFile,
    kind_name,
    naming,
    open_regular_file,
    refuse_link_out,
    refuse_replaced,
    reporting_full_disk,
)
from rocketstore.lock_order import LockRank

#: Errors of file systems that do not support locks on folders, such as network file systems.
_NO_FOLDER_LOCKS = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
#: RocketMQ writes four bytes; a file longer than this is not a lock file.
_MOST_NBYTES = 4096
_registry_lock = kernels.locks.OrderedLock(LockRank.LEAF)
#: Locks that are held or being acquired, by device and inode of the store.
_locks: dict[tuple[int, int], StoreLock] = {}  # guarded by: _registry_lock


class StoreLock:
    """Holds the store's lock until ``release``.

    A running RocketMQ broker holds a POSIX record lock on the same byte, so broker and writer
    exclude each other. A forked child closes its copy of the descriptor at once and cannot keep
    the lock alive.

    A user may delete or replace ``lock`` as stale; a second writer would then lock another file.
    So writers of this library also lock (``flock``) the store's folder and the log's folder, if
    the file system supports it. Brokers and readers do not use these locks. ``check`` detects that
    ``lock`` was replaced.
    """

    def __init__(self, root: Path) -> None:
        """Acquire the lock of the store at ``root``. Raises ``StoreLockedError`` at once if it is
        held."""
        self.path = root / formats.LOCK_FILE
        self._fd = -1
        self._path_bytes = os.fsencode(self.path)
        self._identity: tuple[int, int] | None = None
        #: Descriptors of locked folders by path.
        self._folders: dict[Path, int] = {}
        self._is_new = False
        about = os.stat(root)
        self._key = (about.st_dev, about.st_ino)
        with _registry_lock:
            if self._key in _locks:
                raise StoreLockedError(f"{root} is already open for writing in this process")
            _locks[self._key] = self
        try:
            self.hold_folder(root)
            self._fd = self._take(root)
            about = os.fstat(self._fd)
            self._identity = about.st_dev, about.st_ino
        except BaseException:
            self._let_folders_go()
            self._forget()
            raise

    def hold_folder(self, folder: Path) -> None:
        """Also lock ``folder``, once; do nothing if the file system does not support it.

        Raises ``StoreLockedError`` if another writer of this library holds it.
        """
        if folder in self._folders:
            return
        fd = os.open(folder, READ_ONLY)
        try:
            _lock_folder(fd)
            self._folders[folder] = fd
        except BaseException as error:  # also an interrupt: a leaked lock would block the next try
            os.close(fd)
            if not isinstance(error, OSError):
                raise
            if error.errno == errno.EWOULDBLOCK:
                raise StoreLockedError(
                    f"another writer holds the lock on the folder {folder}; stop it, or only read "
                    "the store (mode 'r')"
                ) from error
            if error.errno not in _NO_FOLDER_LOCKS:
                raise

    @property
    def named_file(self) -> NamedFile:
        """The file that ``check`` looks for."""
        assert self._identity is not None
        return NamedFile(self._path_bytes, *self._identity, 0)

    def check(self) -> None:
        """Raise ``ReplacedFileError`` if ``lock`` is no longer the file that was locked: another
        writer may use the store."""
        assert self._identity is not None
        device, inode = self._identity
        if not kernels.mapping.is_named(self._path_bytes, device, inode, 0):
            refuse_replaced(str(self.path), self._identity)

    def _take(self, root: Path) -> int:
        while True:
            fd = self._open(root)
            self._lock_or_refuse(fd, root)
            if self._is_ours(fd):
                return fd
            os.close(fd)  # another writer, which could not open the store, removed its new file

    def _open(self, root: Path) -> int:
        refuse_odd_lock(self.path, root)
        try:
            return open_regular_file(self.path, READ_WRITE, root)
        except FileNotFoundError:
            self._is_new = True
            with reporting_full_disk(self.path):
                return os.open(self.path, READ_WRITE | os.O_CREAT | NO_FOLLOW, 0o644)

    def _lock_or_refuse(self, fd: int, root: Path) -> None:
        try:
            with naming(self.path):
                _lock_first_byte(fd)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise StoreLockedError(
                    f"{self.path} is held by another process: a broker or another writer uses "
                    f"{root}; stop it, or only read the store (mode 'r')"
                ) from error
            raise

    def _is_ours(self, fd: int) -> bool:
        """Return whether the locked file is still the one in the directory."""
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(fd))
        except FileNotFoundError:
            return False

    def mark(self) -> None:
        """Write RocketMQ's content into the file, and keep the file."""
        with reporting_full_disk(self.path):
            if os.pread(self._fd, len(formats.LOCK_CONTENT) + 1, 0) != formats.LOCK_CONTENT:
                os.pwrite(self._fd, formats.LOCK_CONTENT, 0)
        self._is_new = False

    def release(self) -> None:
        """Release the lock. Idempotent.

        A new lock file without a ``mark`` is deleted, because the store was not opened.
        """
        fd, self._fd = self._fd, -1
        if fd >= 0:
            if self._is_new:
                self.path.unlink(missing_ok=True)
            os.close(fd)
            self._let_folders_go()
            self._forget()

    def _let_folders_go(self) -> None:
        while self._folders:
            os.close(self._folders.popitem()[1])

    def _forget(self) -> None:
        with _registry_lock:
            _locks.pop(self._key, None)

    def drop_in_child(self) -> None:
        """Close the child's descriptors without releasing the parent's lock."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
        self._let_folders_go()


def odd_lock(path: Path) -> str:
    """Return what is in the place of ``lock`` if it must not be written, with its article.

    The result is empty if nothing is wrong. Only a file with hard links is opened.
    """
    try:
        about = os.lstat(path)
    except FileNotFoundError:
        return ""
    if stat.S_ISLNK(about.st_mode):
        return f"a symbolic link to {os.path.realpath(path)}"
    if not stat.S_ISREG(about.st_mode):
        return kind_name(about.st_mode)
    if about.st_size > _MOST_NBYTES:
        return f"a file of {about.st_size} bytes"
    if about.st_nlink > 1 and path.read_bytes() != formats.LOCK_CONTENT:
        return "another file by a hard link"
    return ""


def refuse_odd_lock(path: Path, root: Path) -> None:
    """Raise if a write to ``lock`` would change another file.

    Raises
    ------
    UnsafePathError
        ``lock`` is a link out of ``root``.
    MappedFileError
        ``lock`` is any other link, is too long, or is not a regular file.
    """
    refuse_link_out(path, root)
    what = odd_lock(path)
    if what:
        raise MappedFileError(
            f"{path} is {what}, not a lock file. Move it away; the writer then creates a new one"
        )


def is_held(path: Path) -> bool | None:
    """Return whether a process holds the lock file ``path``, without acquiring the lock.

    ``None`` if the system cannot report it.
    """
    try:
        import fcntl
    except ImportError:
        return None
    query = getattr(fcntl, "F_OFD_GETLK", None)
    if query is None or not path.is_file():
        return None if path.is_file() else False
    fd = os.open(path, READ_ONLY | os.O_NONBLOCK)
    try:
        asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        answer = fcntl.fcntl(fd, query, asked)
    finally:
        os.close(fd)
    return bool(struct.unpack_from("h", answer)[0] != fcntl.F_UNLCK)


def _drop_all_in_child() -> None:
    for lock in _locks.values():
        lock.drop_in_child()
    _locks.clear()


# Registered once: a fork hook cannot be removed.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drop_all_in_child)


def _lock_folder(fd: int) -> None:
    import fcntl

    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _lock_first_byte(fd: int) -> None:
    import fcntl

    command = getattr(fcntl, "F_OFD_SETLK", None)
    if command is None or sys.platform != "linux":
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        return
    fcntl.fcntl(fd, command, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
