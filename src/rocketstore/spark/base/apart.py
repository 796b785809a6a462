"""Refuse to write into the store that is read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from rocketstore import formats
from rocketstore.directory.parts import is_store, store_parts
from rocketstore.errors import ConfigError
from rocketstore.sources.files import local_path


def check_apart(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Refuse a target that is the source store or its log, or lies inside it.

    Messages written there would be read again, endlessly, or stop a broker from starting. Folders
    are compared by device and inode, which resolves links, relative paths and bind mounts. Remote
    paths are not compared.

    Raises
    ------
    ConfigError
        Before anything is written.
    """
    here, there = local_path(source), local_path(target)
    if here is None or there is None:
        return
    read = set(_identities(_read_folders(here)))
    own = Path(os.path.abspath(there))
    real = Path(os.path.realpath(own))
    written = (own / formats.COMMIT_LOG_DIR, own, *own.parents, *real.parents)
    if not read.isdisjoint(_identities(written)):
        raise ConfigError(
            f"{os.fspath(target)} is, or lies in, the source store "
            f"({os.fspath(source)}); give a path outside it"
        )


def _read_folders(path: Path) -> Iterator[Path]:
    """Yield the folders of the source store at ``path``: the store, and its log."""
    path = Path(os.path.realpath(path))
    yield path
    yield path / formats.COMMIT_LOG_DIR
    if path.name == formats.COMMIT_LOG_DIR and is_store(store_parts(path.parent)):
        yield path.parent


def _identities(paths: Iterator[Path] | tuple[Path, ...]) -> Iterator[tuple[int, int]]:
    for path in paths:
        try:
            found = os.stat(path)
        except OSError:
            continue  # it does not exist yet, or is not accessible: opening it reports that
        yield found.st_dev, found.st_ino
