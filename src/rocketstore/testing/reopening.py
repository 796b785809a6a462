"""Finds the bytes that opening a store for writing changes, using a copy."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rocketstore import formats
from rocketstore.config import MessageStoreConfig
from rocketstore.store.default_message_store import open as open_store

_DERIVED_FOLDERS = ("consumequeue", "consumequeue_ext", "batchconsumequeue", "index")


class Change(NamedTuple):
    """A file that opening changed, with a description."""

    path: Path
    what: str


def changes_by_opening(
    root: Path, log_folder: Path, log_end: int, config: MessageStoreConfig
) -> list[Change]:
    """Open a copy of the store for writing, close it, and return the changes.

    Preallocated files (all zeros) and bytes past the log's end do not count.
    """
    with tempfile.TemporaryDirectory(prefix="rocketstore-check-") as scratch:
        copy = Path(scratch) / "store"
        _copy_tree(root, copy)
        log_copy = copy / formats.COMMIT_LOG_DIR
        if config.store_path_commit_log:
            log_copy = Path(scratch) / "log"
            _copy_tree(log_folder, log_copy)
            config = config.replace(store_path_root_dir=None, store_path_commit_log=str(log_copy))
        open_store(copy, "r+", config=config, start=False).close()
        found = list(_compare(log_folder, log_copy, log_end))
        for name in _DERIVED_FOLDERS:
            found += _compare(root / name, copy / name, None)
    return found


def _compare(before: Path, after: Path, log_end: int | None) -> Iterator[Change]:
    old, new = _files(before), _files(after)
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            yield Change(old[name], "the file is gone")
        elif name not in old:
            if _first_difference(new[name], None) is not None:
                yield Change(before / name, "a file with content was created")
        else:
            base = formats.file_name_to_offset(name)
            stop = None
            if log_end is not None and base is not None:
                stop = max(0, log_end - base)
            at = _first_difference(old[name], new[name], stop)
            if at is not None:
                yield Change(old[name], f"byte {at} changed")


def _files(folder: Path) -> dict[str, Path]:
    if not folder.is_dir():
        return {}
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path for path in paths}


def _first_difference(one: Path, other: Path | None, stop: int | None = None) -> int | None:
    """Return the first position that differs from ``other`` (or from zeros), or ``None``."""
    size = one.stat().st_size
    if other is not None and other.stat().st_size != size:
        return min(size, other.stat().st_size)
    stop = size if stop is None else min(stop, size)
    with one.open("rb") as left, (other or one).open("rb") as right:
        for start in range(0, stop, 1 << 20):
            nbytes = min(1 << 20, stop - start)
            here = left.read(nbytes)
            there = right.read(nbytes) if other is not None else bytes(nbytes)
            if here != there:
                return start + next(
                    at for at, pair in enumerate(zip(here, there, strict=False)) if len({*pair}) > 1
                )
    return None


def _copy_tree(source: Path, target: Path) -> None:
    """Copy a folder; keep holes, so that a store of default sizes needs no disk space."""
    ignored = shutil.ignore_patterns(formats.LOCK_FILE, "quarantine")
    shutil.copytree(source, target, ignore=ignored, copy_function=_copy_sparse)


def _copy_sparse(source: str, target: str) -> None:
    with open(source, "rb") as old, open(target, "wb") as new:
        nbytes = os.fstat(old.fileno()).st_size
        new.truncate(nbytes)
        at = 0
        while at < nbytes:
            try:
                at = os.lseek(old.fileno(), at, os.SEEK_DATA)
            except OSError:  # no data after this position
                break
            stop = os.lseek(old.fileno(), at, os.SEEK_HOLE)
            old.seek(at)
            new.seek(at)
            for start in range(at, stop, 1 << 20):
                new.write(old.read(min(1 << 20, stop - start)))
            at = stop
    shutil.copystat(source, target)
