"""Files of a store that have other names: what is written under one name is written under all."""

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
    """Yield each path that leads to the same file as one before it, and that one."""
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
    """Raise ``MappedFileError`` where two paths lead to one file."""
    for path, other in shared_files(paths):
        raise MappedFileError(
            f"{path} and {other} are one file, by a link; what is written to one would "
            "be written over the other. Move the one away that does not belong there"
        )


def hard_linked_files(paths: Iterable[Path], roots: Iterable[Path]) -> list[Path]:
    """Return those of ``paths`` that have hard links other than the store's own.

    Its own are below ``roots``: what a salvage keeps in ``quarantine``, and the temporary name that
    a killed writer left to a file that it had just made.
    """
    roots = frozenset(roots)
    found = []
    for path in paths:
        with contextlib.suppress(FileNotFoundError):  # deleted by the store's writer
            about = os.stat(path)
            if about.st_nlink < 2:
                continue
            own = 1 + sum(_is_file(entry, about) for entry in _own_links(roots))
            # Again: the store's writer may have taken a temporary name away meanwhile.
            if os.stat(path).st_nlink > own:
                found.append(path)
    return found


def refuse_hard_linked_files(paths: Iterable[Path], roots: Iterable[Path]) -> None:
    """Raise ``UnsafePathError`` where one of ``paths`` has hard links other than the store's
    own."""
    found = hard_linked_files(paths, roots)
    if found:
        name = shlex.quote(str(found[0]))
        raise UnsafePathError(
            f"{_named(found)} hard links elsewhere, as a copy made with cp -al: what is written "
            "here would be written there, too. Open a copy made with cp -a --reflink=auto, or make "
            f"a file of its own of each: cp -p {name} FILE && mv FILE {name}"
        )


def hard_links_note(paths: Iterable[Path], roots: Iterable[Path]) -> str | None:
    """Say which of ``paths`` opening for writing refuses for their hard links; ``None``: none."""
    found = hard_linked_files(paths, roots)
    if not found:
        return None
    return (
        f"{_named(found)} hard links elsewhere, so that opening for writing is refused; open a "
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
        return []  # none, or none that may be looked at


def _is_file(entry: os.DirEntry[str], about: os.stat_result) -> bool:
    try:
        return os.path.samestat(entry.stat(follow_symlinks=False), about)
    except FileNotFoundError:
        return False
