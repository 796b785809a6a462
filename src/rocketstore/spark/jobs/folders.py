"""Folders that jobs write to, local or on any file system that fsspec supports."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from rocketstore.files.durable import make_directories, sync_directory
from rocketstore.sources.files import local_path
from rocketstore.spark.base.local import require


class Folder(Protocol):
    """A job's output folder; names are relative, with ``/`` between parts."""

    uri: str

    def make(self) -> None:
        """Create the folder, if it does not exist."""

    def names(self) -> list[str]:
        """Return the names directly in the folder."""

    def create(self, name: str) -> Any:
        """Open a new file for writing; create its parent folders."""

    def finish(self, file: Any) -> int:
        """Sync and close a file that ``create`` opened; return its bytes."""

    def write(self, name: str, data: bytes) -> None:
        """Write a small file; create its parent folders."""

    def read(self, name: str) -> bytes | None:
        """Return the content of a small file; None if it does not exist."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file; replace an existing one."""

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with its content, if it exists."""

    def remove_empty(self, name: str) -> None:
        """Remove a folder if it is empty."""


def open_folder(uri: str | os.PathLike[str], options: Mapping[str, Any] | None = None) -> Folder:
    """Return the folder of a path or URI without creating it.

    Parameters
    ----------
    uri : str or path-like
    options : mapping, optional
        Options for fsspec.
    """
    path = local_path(uri)
    if path is not None:
        return LocalFolder(Path(os.path.abspath(path)))
    return RemoteFolder(os.fspath(uri), dict(options or {}))


class LocalFolder:
    """A local folder; finished and renamed files are synced."""

    def __init__(self, path: Path) -> None:
        self.uri = str(path)
        self._path = path

    def make(self) -> None:
        """See ``Folder``."""
        if not self._path.is_dir():
            existing = next(folder for folder in self._path.parents if folder.is_dir())
            make_directories(self._path, existing)

    def names(self) -> list[str]:
        """See ``Folder``."""
        return sorted(os.listdir(self._path))

    def create(self, name: str) -> Any:
        """See ``Folder``."""
        path = self._path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return open(path, "xb")

    def finish(self, file: Any) -> int:
        """See ``Folder``."""
        with file:
            file.flush()
            os.fsync(file.fileno())
            return int(file.tell())

    def write(self, name: str, data: bytes) -> None:
        """See ``Folder``."""
        path = self._path / name
        make_directories(path.parent, self._path)
        with open(path, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        sync_directory(path.parent)

    def read(self, name: str) -> bytes | None:
        """See ``Folder``."""
        with contextlib.suppress(FileNotFoundError):
            return (self._path / name).read_bytes()
        return None

    def rename(self, old: str, new: str) -> None:
        """See ``Folder``."""
        path = self._path / new
        make_directories(path.parent, self._path)
        os.replace(self._path / old, path)
        sync_directory(path.parent)

    def remove(self, name: str) -> None:
        """See ``Folder``."""
        path = self._path / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    def remove_empty(self, name: str) -> None:
        """See ``Folder``."""
        with contextlib.suppress(OSError):
            (self._path / name).rmdir()


class RemoteFolder:
    """A folder on a file system that fsspec supports, usually an object store."""

    def __init__(self, uri: str, options: dict[str, Any]) -> None:
        require("fsspec", "remote")
        from fsspec.core import url_to_fs

        self.uri = uri.rstrip("/")
        self._system, path = url_to_fs(uri, **options)
        self._path = path.rstrip("/")

    def _at(self, name: str) -> str:
        return f"{self._path}/{name}"

    def make(self) -> None:
        """See ``Folder``; an object store has no folders to create."""
        self._system.makedirs(self._path, exist_ok=True)

    def names(self) -> list[str]:
        """See ``Folder``."""
        self._system.invalidate_cache()
        with contextlib.suppress(FileNotFoundError):
            found = (row.rstrip("/") for row in self._system.ls(self._path, detail=False))
            return sorted(row.rsplit("/", 1)[-1] for row in found if row != self._path)
        return []

    def create(self, name: str) -> Any:
        """See ``Folder``."""
        path = self._at(name)
        self._system.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
        return self._system.open(path, "wb")

    def finish(self, file: Any) -> int:
        """See ``Folder``."""
        nbytes = int(file.tell())
        file.close()
        return nbytes

    def write(self, name: str, data: bytes) -> None:
        """See ``Folder``."""
        self._system.pipe_file(self._at(name), data)

    def read(self, name: str) -> bytes | None:
        """See ``Folder``."""
        self._system.invalidate_cache()
        with contextlib.suppress(FileNotFoundError):
            return bytes(self._system.cat_file(self._at(name)))
        return None

    def rename(self, old: str, new: str) -> None:
        """See ``Folder``."""
        path = self._at(new)
        self._system.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
        self._system.mv(self._at(old), path)

    def remove(self, name: str) -> None:
        """See ``Folder``."""
        self._system.invalidate_cache()
        with contextlib.suppress(FileNotFoundError):
            self._system.rm(self._at(name), recursive=True)

    def remove_empty(self, name: str) -> None:
        """See ``Folder``."""
        with contextlib.suppress(OSError):
            if self._system.ls(self._at(name), detail=False) in ([], [self._at(name)]):
                self._system.rm(self._at(name), recursive=True)
