"""Files of a store with several names: a write under one name changes the file under all."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path

from rocketstore import formats
from rocketstore.errors import MappedFileError, UnsafePathError
from rocketstore.files.durable import TEMPORARY_PREFIX


def shared_files(paths: Iterable[Path]) -> Iterator[tuple[Path, Path]]:
    """Yield each path that leads to the same file as an earlier path, with that earlier path."""
    seen: dict[tuple[int, int], Path] = {}
    for path in paths:
        try:
            about = os.stat(path)
        except FileNotFoundError:
            continue  # deleted by the store's writer
        other = seen.setdefault((about.st_dev, about.st_ino), path)
        if other is not path:
            yield path, other


def refuse_shared_files(paths: Iterable[Path]) -> None:
    """Raise ``MappedFileError`` if two paths lead to the same file."""
    for path, other in shared_files(paths):
        raise MappedFileError(
            f"{path} and {other} are one file because of a link: a write to one would "
            "overwrite the other. Move away the one that does not belong there"
        )


def hard_linked_files(paths: Iterable[Path], roots: Iterable[Path]) -> list[Path]:
    """Return those of ``paths`` that have hard links other than the store's own.

    The store's own links are below ``roots``: files that salvage keeps in ``quarantine``, and
    temporary names of files that a killed writer was creating.
    """
    roots = frozenset(roots)
    found = []
    for path in paths:
        with contextlib.suppress(FileNotFoundError):  # deleted by the store's writer
            about = os.stat(path)
            if about.st_nlink < 2:
                continue
            own = 1 + sum(_is_file(entry, about) for entry in _own_links(roots))
            # Check again: the store's writer may have removed a temporary name meanwhile.
            if os.stat(path).st_nlink > own:
                found.append(path)
    return found


def refuse_hard_linked_files(paths: Iterable[Path], roots: Iterable[Path]) -> None:
    """Raise ``UnsafePathError`` if one of ``paths`` has hard links other than the store's own."""
    found = hard_linked_files(paths, roots)
    if found:
        name = shlex.quote(str(found[0]))
        raise UnsafePathError(
            f"{_named(found)} hard links elsewhere, like a copy made with cp -al: a write here "
            "would change the other file. Open a copy made with cp -a --reflink=auto, or break "
            f"each link: cp -p {name} FILE && mv FILE {name}"
        )


def hard_links_note(paths: Iterable[Path], roots: Iterable[Path]) -> str | None:
    """Return a note on the ``paths`` whose hard links prevent opening for writing, if any."""
    found = hard_linked_files(paths, roots)
    if not found:
        return None
    return (
        f"{_named(found)} hard links elsewhere, so the store cannot be opened for writing; open a "
        "copy made with cp -a --reflink=auto"
    )


def _named(paths: list[Path]) -> str:
    others = len(paths) - 1
    if not others:
        return f"{paths[0]} has"
    return f"{paths[0]} and {others} other file{'s' if others > 1 else ''} of the store have"


def _own_links(roots: Iterable[Path]) -> Iterator[os.DirEntry[str]]:
    for root in roots:
        yield from (one for one in _entries(root) if one.name.startswith(TEMPORARY_PREFIX))
        yield from _entries(root / formats.QUARANTINE_DIR)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []  # missing, or not readable


def _is_file(entry: os.DirEntry[str], about: os.stat_result) -> bool:
    try:
        return os.path.samestat(entry.stat(follow_symlinks=False), about)
    except FileNotFoundError:
        return False
