"""Opens files by path or URI for reading: local disks, and storage of fsspec or pyarrow."""

from __future__ import annotations

import concurrent.futures
import errno
import io
import os
import re
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from rocketstore import formats
from rocketstore.errors import ConfigError, MappedFileError
from rocketstore.files.durable import READ_ONLY, open_regular_file

#: Size of the ranges in which a thread reads remote files ahead.
RANGE_NBYTES = 8 << 20
_SCHEME = re.compile("([A-Za-z][A-Za-z0-9+.-]+)://|(file):/", re.IGNORECASE)


class RawInput(Protocol):
    """A file open for reading, unbuffered; one thread at a time."""

    def readinto(self, buffer: memoryview, /) -> int:
        """Read up to ``len(buffer)`` bytes; return 0 at the file's end, else at least 1."""

    def seek(self, position: int, /) -> int:
        """Continue at ``position``, counted from the start of the file."""

    def next_data(self, position: int, /) -> int | None:
        """Return the first position from ``position`` on that is not in a hole, or ``None``.

        Return ``position`` itself if the file system does not report holes.
        """

    def close(self) -> None:
        """Close; idempotent."""


class RemoteEntry(NamedTuple):
    """A file or folder of a remote file system; ``size`` in bytes, 0 for a folder."""

    name: str
    is_folder: bool
    size: int


class RemoteFiles(Protocol):
    """The calls that a remote file system must support."""

    def entries(self, path: str) -> list[RemoteEntry]:
        """List a folder, sorted by name.

        Raises ``FileNotFoundError`` for a missing folder, ``NotADirectoryError`` for a file.
        """

    def read(self, path: str, position: int, nbytes: int) -> bytes:
        """Read ``nbytes`` bytes at ``position``; fewer at the file's end."""


def local_path(uri: str | os.PathLike[str]) -> Path | None:
    """Return the path of a local file or folder, ``None`` for a remote URI.

    Parameters
    ----------
    uri : str or path-like
        A plain path or a ``file:`` URI is local.
    """
    text = os.fspath(uri)
    scheme = _SCHEME.match(text)
    if scheme is None:
        return Path(text)
    if scheme[1] is not None and scheme[1].lower() not in ("file", "local"):
        return None
    return Path(urllib.request.url2pathname(urllib.parse.urlsplit(text).path))


def remote_files(
    uri: str, storage_options: Mapping[str, Any] | None = None
) -> tuple[RemoteFiles, str]:
    """Return the file system of a URI, and the path in it.

    Parameters
    ----------
    uri : str
        ``scheme://…``; tried with fsspec first, then with ``pyarrow.fs``.
    storage_options : mapping, optional
        Passed to fsspec.

    Raises
    ------
    ConfigError
        No installed package supports the scheme.
    """
    reasons = []
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        reasons.append("fsspec is not installed")
    else:
        try:
            system, path = url_to_fs(uri, **dict(storage_options or {}))
            return _FsspecFiles(system), path
        except (ImportError, ValueError) as error:
            reasons.append(str(error))
    if not storage_options:
        try:
            from pyarrow.fs import FileSystem

            system, path = FileSystem.from_uri(uri)
            return _ArrowFiles(system), path
        except ImportError:
            reasons.append("pyarrow is not installed")
        except (OSError, ValueError) as error:
            reasons.append(str(error))
    raise ConfigError(
        f"{uri} cannot be opened ({'; '.join(reasons)}); `pip install 'rocketstore[remote]'` "
        "installs fsspec and S3, other storage needs its fsspec package"
    )


class _FsspecFiles:
    """An fsspec file system."""

    def __init__(self, system: Any) -> None:
        self._system = system

    def entries(self, path: str) -> list[RemoteEntry]:
        """See ``RemoteFiles``."""
        self._system.invalidate_cache(path)
        rows = self._system.ls(path, detail=True)
        own = [row for row in rows if row["name"].rstrip("/") == path.rstrip("/")]
        if len(rows) == len(own) == 1 and own[0]["type"] != "directory":
            raise NotADirectoryError(path)
        found = (
            RemoteEntry(_last_part(row["name"]), row["type"] == "directory", row["size"] or 0)
            for row in rows
            if row not in own
        )
        return sorted(found)

    def read(self, path: str, position: int, nbytes: int) -> bytes:
        """See ``RemoteFiles``."""
        with self._system.open(path, "rb", cache_type="none") as file:
            file.seek(position)
            return bytes(file.read(nbytes))


class _ArrowFiles:
    """A ``pyarrow.fs`` file system."""

    def __init__(self, system: Any) -> None:
        self._system = system

    def entries(self, path: str) -> list[RemoteEntry]:
        """See ``RemoteFiles``."""
        from pyarrow.fs import FileSelector, FileType

        rows = self._system.get_file_info(FileSelector(path))
        found = (
            RemoteEntry(row.base_name, row.type == FileType.Directory, row.size or 0)
            for row in rows
        )
        return sorted(found)

    def read(self, path: str, position: int, nbytes: int) -> bytes:
        """See ``RemoteFiles``."""
        with self._system.open_input_file(path) as file:
            size = file.size()
            nbytes = max(0, min(nbytes, size - position))
            return bytes(file.read_at(nbytes, position)) if nbytes else b""


def _last_part(path: str) -> str:
    return path.rstrip("/").rsplit("/", 1)[-1]


# --- reading ----------------------------------------------------------------------------------


class _LocalInput:
    """A local file, read by ``readinto``."""

    def __init__(self, path: Path, position: int) -> None:
        fd = open_regular_file(path, READ_ONLY, folder_of_links(path))
        self._file = io.FileIO(fd, "rb")
        self._file.seek(position)

    def readinto(self, buffer: memoryview, /) -> int:
        """See ``RawInput``."""
        return self._file.readinto(buffer) or 0

    def seek(self, position: int, /) -> int:
        """See ``RawInput``."""
        return self._file.seek(position)

    def next_data(self, position: int, /) -> int | None:
        """See ``RawInput``."""
        return self._look("SEEK_DATA", position, position)

    def next_hole(self, position: int) -> int:
        """Return the first position from ``position`` on that is in a hole, else the file size."""
        size = os.fstat(self._file.fileno()).st_size
        hole = self._look("SEEK_HOLE", position, size)
        return size if hole is None else hole

    def _look(self, way: str, position: int, otherwise: int) -> int | None:
        """Look a position up with ``lseek``, then restore the file's position.

        Return ``None`` after the last data, ``otherwise`` if the system does not report holes.
        """
        number = getattr(os, way, None)
        if number is None:
            return otherwise
        fd = self._file.fileno()
        before = os.lseek(fd, 0, os.SEEK_CUR)
        try:
            return os.lseek(fd, position, number)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return None
            if error.errno != errno.EINVAL:
                raise
            return otherwise
        finally:
            os.lseek(fd, before, os.SEEK_SET)

    def close(self) -> None:
        """See ``RawInput``."""
        self._file.close()


def folder_of_links(path: Path) -> Path:
    """Return the folder that a segment's link must not leave: the store, or the log's folder."""
    return path.parent.parent if path.parent.name == formats.COMMIT_LOG_DIR else path.parent


class _RemoteInput:
    """A remote file; a thread fetches the next range while the current one is used."""

    def __init__(self, uri: str, files: RemoteFiles, path: str, position: int) -> None:
        self._uri = uri
        self._files = files
        self._path = path
        self._position = position
        self._range = b""
        self._range_start = position
        self._next: tuple[int, concurrent.futures.Future[bytes]] | None = None
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "rocketstore-read-ahead")

    def readinto(self, buffer: memoryview, /) -> int:
        """See ``RawInput``."""
        at = self._position - self._range_start
        if not 0 <= at < len(self._range):
            try:
                if self._fetch() == 0:
                    return 0
            except FileNotFoundError as error:
                raise _gone(self._uri) from error
            at = 0
        count = min(len(buffer), len(self._range) - at)
        buffer[:count] = memoryview(self._range)[at : at + count]
        self._position += count
        return count

    def _fetch(self) -> int:
        """Fetch the range at the current position; return its size."""
        start = self._position
        is_next = self._range != b"" and start == self._range_start + len(self._range)
        waiting, self._next = self._next, None
        if waiting is not None and waiting[0] == start:
            self._range = waiting[1].result()
        else:
            # The first range is short: some callers only read a file's head.
            nbytes = RANGE_NBYTES if is_next else RANGE_NBYTES // 8
            self._range = self._files.read(self._path, start, nbytes)
        self._range_start = start
        if self._range and is_next:
            following = start + len(self._range)
            read = self._thread.submit(self._files.read, self._path, following, RANGE_NBYTES)
            self._next = following, read
        return len(self._range)

    def seek(self, position: int, /) -> int:
        """See ``RawInput``."""
        self._position = position
        return position

    def next_data(self, position: int, /) -> int | None:
        """See ``RawInput``."""
        return position

    def close(self) -> None:
        """See ``RawInput``."""
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._next = None
        self._range = b""


def open_input(
    uri: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    position: int = 0,
) -> RawInput:
    """Open a file for reading from ``position`` on.

    Parameters
    ----------
    uri : str or path-like
        A path, a ``file:`` URI, or any URI that fsspec or ``pyarrow.fs`` opens. Remote files are
        read ahead by a thread, in ranges of 8 MiB.
    storage_options : mapping, optional
        Passed to fsspec (endpoint, credentials, ...).
    position : int
        Bytes from the start of the file.

    Returns
    -------
    RawInput
        Has ``readinto(memoryview) -> int``, ``seek`` and ``close``; for one thread at a time.

    Raises
    ------
    MappedFileError
        The file does not exist (it may have been deleted), or it is not a regular file.
    UnsafePathError
        The file is a link that leaves its store.
    ConfigError
        No installed package can open the URI.
    """
    path = local_path(uri)
    try:
        if path is not None:
            return _LocalInput(path, position)
        files, name = remote_files(os.fspath(uri), storage_options)
        return _RemoteInput(os.fspath(uri), files, name, position)
    except FileNotFoundError as error:
        raise _gone(uri) from error


def _gone(uri: str | os.PathLike[str]) -> MappedFileError:
    return MappedFileError(
        f"{os.fspath(uri)} does not exist; it may have expired and been deleted since the log was "
        "listed: list the log again"
    )


def data_end(uri: str, file_size: int) -> int:
    """Return the position after which a file is only a hole.

    Return ``file_size`` if the file system does not report holes. Raises ``MappedFileError`` if the
    file is gone.
    """
    path = local_path(uri)
    if path is None:
        return file_size
    try:
        file = _LocalInput(path, 0)
    except FileNotFoundError as error:
        raise _gone(uri) from error
    try:
        data, end = file.next_data(0), 0
        while data is not None and data < file_size:
            end = file.next_hole(data)
            data = file.next_data(end) if end > data else None
        return min(end, file_size)
    finally:
        file.close()


def read_at(
    uri: str,
    position: int,
    nbytes: int,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> bytes:
    """Read ``nbytes`` bytes at ``position``; fewer at the file's end.

    Raises what ``open_input`` raises.
    """
    path = local_path(uri)
    if path is None:
        try:
            files, name = remote_files(uri, storage_options)
            return files.read(name, position, nbytes)
        except FileNotFoundError as error:
            raise _gone(uri) from error
    file = open_input(uri, position=position)
    try:
        buffer = memoryview(bytearray(nbytes))
        filled = 0
        while filled < nbytes:
            count = file.readinto(buffer[filled:])
            if count == 0:
                break
            filled += count
        return bytes(buffer[:filled])
    finally:
        file.close()
