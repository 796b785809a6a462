"""Refusing to write into the store that is read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from rocketstore import formats
from rocketstore.directory.parts import is_store, store_parts
from rocketstore.errors import ConfigError
from rocketstore.sources.files import local_path


def check_apart(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Refuse a target that is the store that is read, its log, or lies inside of it.

    What is written there would be read once more, without an end, or stop a broker from starting.
    Folders are compared by device and inode: links, relative paths and bind mounts are seen
    through. Remote places are not compared.

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
            f"{os.fspath(target)} is, or lies in, the store that is read "
            f"({os.fspath(source)}); give a place outside of it"
        )


def _read_folders(path: Path) -> Iterator[Path]:
    """The folders of the store that is read at ``path``: the store, or its log."""
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
            continue  # nothing is there yet, or nobody may look: opening says so
        yield found.st_dev, found.st_ino
