"""Create output directories: built beside their path, and renamed to it once complete."""

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
    """Yield a folder to build in, which becomes ``out`` at the end.

    Parameters
    ----------
    out : str or path-like
        A directory on a file system that the driver and all executors see under this path. It must
        be absent or empty; its parent must exist.

    Yields
    ------
    Path
        An empty folder beside ``out``. The caller syncs the files it writes into it; this function
        syncs the folders. After an exception the folder is removed, and ``out`` is unchanged.

    Raises
    ------
    FileExistsError
        If ``out`` is not empty, or not a directory.
    FileNotFoundError
        If its parent does not exist.
    ConfigError
        If it is a URI of a remote file system.
    """
    path = local_path(out)
    if path is None:
        raise ConfigError(
            f"{os.fspath(out)} is remote; it must be a directory on a file system that driver and "
            "executors mount, because tasks write parts of its files in any order"
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
        raise FileExistsError(f"{path} exists and is not a directory")
    if path.is_dir() and any(path.iterdir()):
        raise FileExistsError(f"{path} is not empty; give an absent or empty directory")
