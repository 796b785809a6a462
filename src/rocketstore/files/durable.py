"""Creating, replacing and syncing files so that a power cut leaves the old or the new, nothing
between."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rocketstore.errors import MappedFileError, StoreFullError, UnsafePathError

if TYPE_CHECKING:
    from types import TracebackType

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
#: What pathlib takes for "there is none".
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.EBADF, errno.ELOOP)
_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
_NONBLOCK = getattr(os, "O_NONBLOCK", 0)
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_BINARY = getattr(os, "O_BINARY", 0)
READ_ONLY = os.O_RDONLY | _CLOEXEC | _NONBLOCK | _BINARY
READ_WRITE = os.O_RDWR | _CLOEXEC | _NONBLOCK | _BINARY
#: How the names of files begin that are not in their place yet.
TEMPORARY_PREFIX = ".rocketstore-new-"
#: Errors of making a file that say nothing about the disk.
PASSING_ERRORS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN)
#: Those of them that no sync ever reports.
NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


class ReplacedFileError(MappedFileError, OSError):
    """What stands under a file's name is not the file that is open under it any more."""


def refuse_replaced(
    path: str, identity: tuple[int, int] | None, least_nbytes: int = 0, *, may_be_gone: bool = False
) -> None:
    """Raise ``ReplacedFileError`` unless ``path`` names the file of this device and inode
    (``None``: any), and it is not shorter than ``least_nbytes``: what is written into a file
    without a name is lost.

    ``may_be_gone``: nothing at all under the name is fine.
    """
    try:
        about = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        if may_be_gone:
            return
        found = "was deleted, or it or its folder was moved"
    else:
        if identity is not None and (about.st_dev, about.st_ino) != identity:
            found = "was replaced: another file stands under its name now"
        elif about.st_size < least_nbytes:
            found = f"was cut to {about.st_size} of {least_nbytes} bytes"
        else:
            return
    raise ReplacedFileError(
        errno.ESTALE,
        f"the file {found}, by somebody else while the store was open; nothing more is written. "
        "Keep other programs away, put the file back if it was moved, and open the store again",
        path,
    )


class naming:  # noqa: N801 - reads as contextlib.suppress does; a generator costs 1 µs each sync
    """Let errors of calls that were given a descriptor, not a name, say that they are about
    ``path``."""

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
        if error.filename is None:
            error.filename = str(self._path)


@contextlib.contextmanager
def reporting_full_disk(path: Path) -> Iterator[None]:
    """Turn "no room" errors about ``path`` into ``StoreFullError``; others name it."""
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
    """Sync a file's data and what is needed to read it back; on macOS through to the medium."""
    if sys.platform == "darwin":
        import fcntl

        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fsync(fd)


def begin_writing(fd: int, start: int, nbytes: int) -> None:
    """Let the disk begin with what was written just now, so that a later sync has less to wait for.

    Pages that wait for the disk stay in the cache.
    """
    advise = getattr(os, "posix_fadvise", None)
    if advise is not None and nbytes:
        with contextlib.suppress(OSError):  # advice: a file system may not take it
            advise(fd, start, nbytes, os.POSIX_FADV_DONTNEED)


def sync_directory(path: Path) -> None:
    """Make the directory entries of ``path`` durable. Raises ``OSError`` when that fails."""
    fd = os.open(str(path), READ_ONLY)
    try:
        with naming(path):
            sync_descriptor(fd)
    finally:
        os.close(fd)


def refuse_link_out(path: Path, root: Path) -> bool:
    """Return whether ``path`` is a symbolic link; raise ``UnsafePathError`` when it leaves
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

    Raises ``UnsafePathError`` when a folder on the way is a link out of ``root``,
    ``StoreFullError`` when the disk has no room.
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
                os.rmdir(str(directory))  # so that the next try makes it durable
                raise


def create_sized_file(path: Path, nbytes: int, allocated: int, root: Path) -> tuple[int, int]:
    """Create a file of zeros at ``path`` that is never seen half made.

    It is built under a temporary name in ``root`` (a 0-byte or short file in a queue's own
    directory stops a broker from loading), sized, given blocks for its first ``allocated`` bytes,
    synced, and moved into place without replacing anything.

    Returns
    -------
    (int, int)
        Device and inode of the file.

    Raises
    ------
    StoreFullError
        When the disk has no room.
    FileExistsError
        When ``path`` exists.
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
            path.unlink()  # so that it can be tried again where the error was that of a full disk
            raise
    return about.st_dev, about.st_ino


def reserve_blocks(fd: int, position: int, length: int, path: Path, *, used: int) -> None:
    """Reserve disk blocks for a range; where that is unsupported, write zeros over the part of it
    that does not lie in front of ``used``."""
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


def write_file(path: Path, content: bytes | Iterable[bytes]) -> None:
    """Replace a file: temporary name, sync, rename, sync of the directory. Parts of zeros among
    several become holes."""
    temporary = str(path.parent / f"{TEMPORARY_PREFIX}{os.getpid()}-{os.urandom(6).hex()}")
    with reporting_full_disk(path):
        fd = os.open(temporary, READ_WRITE | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            for part in (content,) if isinstance(content, bytes) else content:
                view = memoryview(part)
                if part is not content and not part.strip(b"\0"):
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
    """Open a store's file, refusing what ``regular_file_name`` refuses."""
    return _open_named(regular_file_name(path, root), path, flags)[0]


def _open_named(name: str, path: Path, flags: int) -> tuple[int, os.stat_result]:
    fd = os.open(name, flags | NO_FOLLOW)
    about = os.fstat(fd)
    if not stat.S_ISREG(about.st_mode):
        os.close(fd)
        raise MappedFileError(f"{path} is not a regular file")
    return fd, about


class LookedAt(NamedTuple):
    """What a look at a store's file tells: its bytes, and whether it is a symbolic link or has hard
    links, so that another name may lead to it."""

    nbytes: int
    is_linked: bool


def look_at_file(path: Path, root: Path) -> LookedAt:
    """Look at a store's file, refusing what ``open_regular_file`` refuses for reading."""
    name = regular_file_name(path, root)
    fd, about = _open_named(name, path, READ_ONLY)
    os.close(fd)
    return LookedAt(about.st_size, about.st_nlink > 1 or name != str(path))


def regular_file_name(path: Path, root: Path) -> str:
    """Return the name of a store's file without the link that may lead to it; nothing is opened.

    Raises
    ------
    FileNotFoundError
        There is none, or a link to nothing.
    UnsafePathError
        ``path`` is a link that leads out of ``root``.
    MappedFileError
        It is a directory, FIFO, socket or device, or a link to itself.
    """
    name = str(path)  # a lack of memory within the system calls' own conversion is a TypeError
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
    """What stands in the place of a folder, with its article; empty where one does, or nothing."""
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
    """Names in a folder, sorted; none where there is no folder, whatever is in its place."""
    try:
        return sorted(os.listdir(path))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return []


def kind_name(mode: int) -> str:
    """What a file that is no regular one is, with its article."""
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


def _move_without_replacing(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except FileExistsError:
        raise
    except OSError:
        # File systems without hard links: the lock on the store keeps other writers away.
        if os.path.exists(target):
            raise FileExistsError(errno.EEXIST, "exists already", target) from None
        os.rename(source, target)
    else:
        os.unlink(source)
