"""Directories that jobs make: built beside their place, and put there when they are whole."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rocketstore.errors import ConfigError
from rocketstore.files.durable import sync_directory
from rocketstore.sources.files import local_path


@contextmanager
def new_directory(out: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a folder to build in, which becomes ``out`` at the end.

    Parameters
    ----------
    out : str or path-like
        A directory of a file system that the driver and all executors see under this path. It must
        not exist, or be empty; its parent must exist.

    Yields
    ------
    Path
        An empty folder beside ``out``. Whoever writes files into it syncs them; its folders are
        synced here. After an exception it is removed, and ``out`` stays as it was.

    Raises
    ------
    FileExistsError
        When ``out`` holds anything, or is no directory.
    FileNotFoundError
        When its parent does not exist.
    ConfigError
        When it is a URI of a remote file system.
    """
    path = local_path(out)
    if path is None:
        raise ConfigError(
            f"{os.fspath(out)} is remote; the files are written at places that lie apart, so it "
            "must be a directory on a file system that driver and executors mount"
        )
    path = Path(os.path.abspath(path))
    _refuse_used(path)
    building = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    try:
        building.chmod(0o755)
        yield building
        for folder, _, _ in os.walk(building):
            sync_directory(Path(folder))
        _refuse_used(path)
        if path.exists():
            path.rmdir()
        os.rename(building, path)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    sync_directory(path.parent)


def _refuse_used(path: Path) -> None:
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        raise FileExistsError(f"{path} exists and is no directory")
    if path.is_dir() and any(path.iterdir()):
        raise FileExistsError(f"{path} is not empty; nothing is ever written over")
