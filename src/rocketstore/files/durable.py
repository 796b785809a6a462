"""Atomic, durable file operations: after a power failure a file is either old or new."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rocketstore.errors import MappedFileError, RocketStoreError, StoreFullError, UnsafePathError

if TYPE_CHECKING:
    from types import TracebackType

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
#: Errors that pathlib treats as "does not exist".
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.EBADF, errno.ELOOP)
_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
_NONBLOCK = getattr(os, "O_NONBLOCK", 0)
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_BINARY = getattr(os, "O_BINARY", 0)
READ_ONLY = os.O_RDONLY | _CLOEXEC | _NONBLOCK | _BINARY
READ_WRITE = os.O_RDWR | _CLOEXEC | _NONBLOCK | _BINARY
#: Prefix of files that were not moved to their final name yet.
TEMPORARY_PREFIX = ".rocketstore-new-"
#: Transient errors of creating a file: they say nothing about the disk.
PASSING_ERRORS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN)
#: Those of them that a sync never reports.
NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


class NamedFile(NamedTuple):
    """A file that must keep its name and at least ``nbytes`` bytes."""

    path: bytes
    device: int
    inode: int
    nbytes: int


class ReplacedFileError(MappedFileError, OSError):
    """A file's name no longer leads to the file that the store has open."""


def is_interrupt(error: OSError) -> bool:
    """Return whether no call failed: a signal's handler raised this, as ``TimeoutError("late")``.

    The system's errors have a number. Like ``KeyboardInterrupt``, it says nothing about the disk.
    """
    return error.errno is None and not isinstance(error, RocketStoreError)


def refuse_replaced(
    path: str, identity: tuple[int, int] | None, least_nbytes: int = 0, *, may_be_gone: bool = False
) -> None:
    """Raise ``ReplacedFileError`` unless ``path`` still names the expected file.

    Writes to a file that lost its name would be lost.

    Parameters
    ----------
    path : str
    identity : (int, int) or None
        Device and inode of the expected file; ``None`` accepts any file.
    least_nbytes : int
        The file must not be shorter than this.
    may_be_gone : bool
        Accept a missing file.
    """
    try:
        about = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        if may_be_gone:
            return
        found = "was deleted or moved, or its folder was"
    else:
        if identity is not None and (about.st_dev, about.st_ino) != identity:
            found = "was replaced by another file"
        elif about.st_size < least_nbytes:
            found = f"was truncated from {least_nbytes} to {about.st_size} bytes"
        else:
            return
    raise ReplacedFileError(
        errno.ESTALE,
        f"another process changed the open store: the file {found}. No more data is written. "
        "Stop the other process, put the file back if it was moved, and reopen the store",
        path,
    )


class naming:  # noqa: N801 - reads like contextlib.suppress; a generator costs 1 µs each sync
    """Add ``path`` to errors of calls that take a descriptor instead of a name."""

    __slots__ = ("_path",)

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not isinstance(error, OSError) or type(error) is StoreFullError:
            return
        if error.filename is None and not is_interrupt(error):
            error.filename = str(self._path)


@contextlib.contextmanager
def reporting_full_disk(path: Path) -> Iterator[None]:
    """Turn "disk full" errors into ``StoreFullError``; add ``path`` to all other errors."""
    try:
        with naming(path):
            yield
    except StoreFullError:
        raise
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise StoreFullError(
                error.errno, f"no room for {path}: {error.strerror}; free space and try again"
            ) from error
        raise


def sync_descriptor(fd: int) -> None:
    """Sync a file's data and metadata, on macOS down to the medium."""
    if sys.platform == "darwin":
        import fcntl

        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fsync(fd)


def begin_writing(fd: int, start: int, nbytes: int) -> None:
    """Start writing back a range that was just written, so that a later sync waits less.

    Pages that are not on disk yet stay in the page cache.
    """
    advise = getattr(os, "posix_fadvise", None)
    if advise is not None and nbytes:
        with contextlib.suppress(OSError):  # only advice: a file system may refuse it
            advise(fd, start, nbytes, os.POSIX_FADV_DONTNEED)


def sync_directory(path: Path) -> None:
    """Make the directory entries of ``path`` durable. Raises ``OSError``."""
    fd = os.open(str(path), READ_ONLY)
    try:
        with naming(path):
            sync_descriptor(fd)
    finally:
        os.close(fd)


def refuse_link_out(path: Path, root: Path) -> bool:
    """Return whether ``path`` is a symbolic link; raise ``UnsafePathError`` if it leaves
    ``root``."""
    name = str(path)  # as in open_regular_file
    try:
        if not stat.S_ISLNK(os.lstat(name).st_mode):
            return False
    except OSError as error:
        if error.errno in _NOT_THERE:
            return False
        raise
    target = Path(os.path.realpath(name))
    if not target.is_relative_to(os.path.realpath(str(root))):
        raise UnsafePathError(f"{path} is a symbolic link to {target}, outside the store {root}")
    return True


def make_directories(path: Path, root: Path) -> None:
    """Create ``path`` below the existing ``root`` and make every new entry durable.

    Raises ``UnsafePathError`` if a folder on the way is a link out of ``root``, and
    ``StoreFullError`` if the disk is full.
    """
    for folder in (path, *path.parents):
        if folder == root or not folder.is_relative_to(root):
            break
        refuse_link_out(folder, root)
    missing = []
    while path != root and not os.path.isdir(str(path)):
        missing.append(path)
        path = path.parent
    for directory in reversed(missing):
        with reporting_full_disk(directory):
            try:
                os.mkdir(str(directory))
            except FileExistsError:
                if not os.path.isdir(str(directory)):
                    raise
            try:
                sync_directory(directory.parent)
            except OSError:
                os.rmdir(str(directory))  # the next attempt creates it and makes it durable
                raise


def create_sized_file(path: Path, nbytes: int, allocated: int, root: Path) -> tuple[int, int]:
    """Create a file of zeros at ``path`` atomically.

    The file is built under a temporary name in ``root``: a short file in a queue's own directory
    stops a broker from loading. It is resized, gets blocks for its first ``allocated`` bytes, is
    synced, and is then moved into place without replacing anything.

    Returns
    -------
    (int, int)
        Device and inode of the file.

    Raises
    ------
    StoreFullError
        If the disk is full.
    FileExistsError
        If ``path`` exists.
    """
    temporary = str(root / f"{TEMPORARY_PREFIX}{os.getpid()}-{os.urandom(6).hex()}")
    with reporting_full_disk(path):
        fd = os.open(temporary, READ_WRITE | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            os.ftruncate(fd, nbytes)
            reserve_blocks(fd, 0, allocated, path, used=0)
            sync_descriptor(fd)
            about = os.fstat(fd)
            _move_without_replacing(temporary, str(path))
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
        finally:
            os.close(fd)
        try:
            sync_directory(path.parent)
        except OSError:
            path.unlink()  # so that the caller can retry after freeing disk space
            raise
    return about.st_dev, about.st_ino


def reserve_blocks(fd: int, position: int, length: int, path: Path, *, used: int) -> None:
    """Reserve disk blocks for a range.

    Where the file system does not support that, write zeros from ``used`` onwards instead.
    """
    from rocketstore import kernels

    if length <= 0:
        return
    with reporting_full_disk(path):
        if kernels.mapping.allocate(fd, position, length):
            return
        zeros = bytes(min(length, 1 << 20))
        end = position + length
        position = max(position, used)
        while position < end:
            position += os.pwrite(fd, zeros[: end - position], position)


def is_zeros(chunk: bytes) -> bool:
    """Return whether all bytes of ``chunk`` are zero."""
    return chunk == bytes(len(chunk))  # at memory speed, unlike ``strip``


def write_file(path: Path, content: bytes | Iterable[bytes]) -> None:
    """Replace a file durably: temporary name, sync, rename, directory sync.

    If ``content`` has several parts, parts that hold only zeros become holes.
    """
    temporary = str(path.parent / f"{TEMPORARY_PREFIX}{os.getpid()}-{os.urandom(6).hex()}")
    with reporting_full_disk(path):
        fd = os.open(temporary, READ_WRITE | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            for part in (content,) if isinstance(content, bytes) else content:
                view = memoryview(part)
                if part is not content and is_zeros(part):
                    os.ftruncate(fd, os.lseek(fd, len(part), os.SEEK_CUR))
                    continue
                while view:
                    view = view[os.write(fd, view) :]
            sync_descriptor(fd)
            os.replace(temporary, str(path))
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
        finally:
            os.close(fd)
        sync_directory(path.parent)


def remove_leftovers(root: Path) -> None:
    """Delete the temporary files that a killed writer of this library left in ``root``."""
    for path in root.glob(f"{TEMPORARY_PREFIX}*"):
        path.unlink(missing_ok=True)


def open_regular_file(path: Path, flags: int, root: Path) -> int:
    """Open a store's file. Raises as ``regular_file_name``."""
    return _open_named(regular_file_name(path, root), path, flags)[0]


def _open_named(name: str, path: Path, flags: int) -> tuple[int, os.stat_result]:
    fd = os.open(name, flags | NO_FOLLOW)
    about = os.fstat(fd)
    if not stat.S_ISREG(about.st_mode):
        os.close(fd)
        raise MappedFileError(f"{path} is not a regular file")
    return fd, about


class LookedAt(NamedTuple):
    """Size of a store's file, and whether other names may lead to it (symbolic or hard links)."""

    nbytes: int
    is_linked: bool


def look_at_file(path: Path, root: Path) -> LookedAt:
    """Return size and links of a store's file. Raises as ``open_regular_file`` for reading."""
    name = regular_file_name(path, root)
    fd, about = _open_named(name, path, READ_ONLY)
    os.close(fd)
    return LookedAt(about.st_size, about.st_nlink > 1 or name != str(path))


def regular_file_name(path: Path, root: Path) -> str:
    """Return the name of a store's file with links resolved, without opening it.

    Raises
    ------
    FileNotFoundError
        The file does not exist, or ``path`` is a dangling link.
    UnsafePathError
        ``path`` is a link that leads out of ``root``.
    MappedFileError
        ``path`` is a directory, FIFO, socket or device, or a link to itself.
    """
    name = str(path)  # if the system call converts it, running out of memory is a TypeError
    kind = os.lstat(name).st_mode
    if stat.S_ISLNK(kind):
        refuse_link_out(path, root)
        name = os.path.realpath(name)
        try:
            kind = os.lstat(name).st_mode
        except FileNotFoundError:
            raise FileNotFoundError(
                errno.ENOENT, f"it is a symbolic link to {name}, which does not exist", str(path)
            ) from None
    if stat.S_ISLNK(kind):
        raise MappedFileError(f"{path} is a symbolic link to itself, not a regular file")
    if not stat.S_ISREG(kind):
        raise MappedFileError(f"{path} is {kind_name(kind)}, not a regular file")
    return name


def no_folder(path: Path) -> str:
    """Return what is in the place of a folder, with its article.

    The result is empty if the folder exists, or if nothing does.
    """
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return ""
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return "a symbolic link to itself"
    if stat.S_ISREG(mode):
        return "a file"
    return "" if stat.S_ISDIR(mode) else kind_name(mode)


def list_folder(path: Path) -> list[str]:
    """Return the sorted names in a folder; an empty list if ``path`` is not a folder."""
    try:
        return sorted(os.listdir(path))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return []


def kind_name(mode: int) -> str:
    """Return what kind of non-regular file a mode describes, with its article."""
    for test, name in (
        (stat.S_ISDIR, "a directory"),
        (stat.S_ISFIFO, "a FIFO"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISBLK, "a block device"),
        (stat.S_ISCHR, "a character device"),
    ):
        if test(mode):
            return name
    return "of an unknown kind"


def odd_folder(path: Path) -> str:
    """Describe what is in the place of a folder; empty if a folder is there, or nothing."""
    if os.path.isdir(path) or not os.path.lexists(path):
        return ""
    if path.is_symlink():
        kind = f"a symbolic link to {os.path.realpath(path)}, which is no folder,"
    else:
        mode = os.lstat(path).st_mode
        kind = "a file" if stat.S_ISREG(mode) else kind_name(mode)
    return f"{path} is {kind} in the place of a folder"


def refuse_odd_output(path: Path) -> None:
    """Raise unless a new file may take the place of ``path``: a device, a FIFO or a folder is not
    replaced.

    Raises
    ------
    NotADirectoryError
        The folder does not exist.
    MappedFileError
        Something else than a regular file, or a link to one, is there.
    """
    if not path.parent.is_dir():
        raise NotADirectoryError(f"there is no folder {path.parent}")
    if os.path.lexists(path) and not path.is_file():
        is_dead = path.is_symlink() and not path.exists()
        kind = "a link to nothing" if is_dead else kind_name(path.stat().st_mode)
        raise MappedFileError(f"{path} is {kind}, not a regular file")


def _move_without_replacing(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except FileExistsError:
        raise
    except OSError:
        # File systems without hard links: the store's lock keeps other writers out.
        if os.path.exists(target):
            raise FileExistsError(errno.EEXIST, "exists already", target) from None
        os.rename(source, target)
    else:
        os.unlink(source)
