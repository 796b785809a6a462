"""Checks before a store is opened: platform, directory, file system."""

from __future__ import annotations

import io
import os
import struct
import sys
import warnings
from pathlib import Path

from rocketstore import formats
from rocketstore.directory.parts import is_store, refuse_dledger, store_parts
from rocketstore.errors import RocketStoreError, UnsafePathError

_NETWORK_FILE_SYSTEMS = ("nfs", "cifs", "smb", "fuse", "9p", "afs")


def check_platform(mode: str) -> None:
    """Raise on platforms that are not supported: 32 bits, and Windows for writing."""
    if struct.calcsize("P") < 8:
        raise RocketStoreError("rocketstore needs a 64-bit Python")
    if sys.platform == "win32" and mode != "r":
        raise io.UnsupportedOperation('Windows supports mode "r" only')


def is_there(path: str | os.PathLike[str]) -> bool:
    """Whether anything is at ``path``; links are followed.

    Raises
    ------
    OSError
        It cannot be known, as below a folder that this user may not search. ``os.path.exists``
        says "no" then, and from Python 3.14 on ``Path.exists`` does, too.
    """
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def check_root(root: Path, mode: str) -> None:
    """Raise if the root does not fit the mode; warn about network file systems.

    Raises ``FileExistsError``, ``FileNotFoundError`` or ``NotADirectoryError``. Raises
    ``UnsafePathError`` if a new store would be created among other files.
    """
    if mode == "x" and os.path.lexists(root):
        raise FileExistsError(f"{root} exists; open it with mode 'r+' or 'a'")
    if not is_there(root):
        if mode in ("r", "r+"):
            raise FileNotFoundError(f"there is no store {root}; mode 'a' would create one")
    elif not root.is_dir():
        raise NotADirectoryError(f"{root} is a file; a store is a directory")
    else:
        _refuse_other_directory(root, mode)
    if mode != "r":
        _warn_of_network_file_system(root)


def refuse_vanished(root: Path) -> None:
    """Raise ``FileNotFoundError`` if the root of an open store no longer exists."""
    if not root.is_dir():
        raise FileNotFoundError(f"the store {root} is gone: it was moved, deleted or unmounted")


def _refuse_other_directory(root: Path, mode: str) -> None:
    """Raise for a directory that holds files, but no store."""
    parts = store_parts(root)
    if is_store(parts) or all(part.kind != "foreign" for part in parts):
        return
    refuse_dledger(root, root / formats.COMMIT_LOG_DIR)
    if mode == "a":
        raise UnsafePathError(
            f"{root} is not a store and not empty; a new store needs an empty directory or a new "
            "path"
        )
    raise FileNotFoundError(
        f"{root} is not a store: it has no folder {formats.COMMIT_LOG_DIR}, but {parts[0].name}"
    )


def _warn_of_network_file_system(root: Path) -> None:
    kind = file_system_of(root)
    if kind.startswith(_NETWORK_FILE_SYSTEMS):
        warnings.warn(
            f"{root} is on {kind}, where locks and syncs may not be reliable; use a local disk",
            stacklevel=4,
        )


def file_system_of(path: str | os.PathLike[str]) -> str:
    """Return the type of the file system of ``path`` as Linux names it, ``""`` if unknown."""
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="replace") as file:
            mounts = [line.split()[1:3] for line in file]
    except OSError:
        return ""
    real = os.path.realpath(path)
    best = ("", "")
    for point, kind in mounts:
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best[0]):
            best = (point, kind)
    return best[1]
