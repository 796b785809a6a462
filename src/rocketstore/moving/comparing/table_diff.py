"""Comparing two stores' tables below ``config``, value by value."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rocketstore import formats
from rocketstore.config_managers.files import BACKUP_SUFFIX, read_config_file
from rocketstore.errors import CorruptionError
from rocketstore.files.durable import READ_ONLY, list_folder, open_regular_file
from rocketstore.moving.comparing.difference import Findings

_TABLE_SUFFIX = ".json"
#: Counts changes and says when; two stores with the same values may differ in it.
_VERSION = "dataVersion"
#: Larger tables are compared byte by byte, so that memory stays bounded.
_MOST_PARSED_NBYTES = 8 << 20
_STEP_NBYTES = 1 << 20
_MOST_SHOWN = 200


class TablesDiff:
    """Compares the files below ``config``; ``.bak`` files only stand in for a missing table.

    Parameters
    ----------
    a, b : Path
        The stores' roots.
    names : tuple of str
        How the words name the stores.
    found : Findings
    """

    def __init__(self, a: Path, b: Path, names: tuple[str, str], found: Findings) -> None:
        self._roots = a, b
        self._names = names
        self._found = found

    def run(self) -> None:
        """Compare the tables."""
        there = [self._tables(root) for root in self._roots]
        for name in sorted(there[0] | there[1]):
            where = f"{formats.CONFIG_DIR}/{name}"
            lacking = [name not in names for names in there]
            if any(lacking):
                store = self._names[lacking.index(True)]
                self._found.add("config.missing", where, [not one for one in lacking],
                                f"{store} lacks the file")  # fmt: skip
                continue
            self._found.compared["files"] += 1
            self._compare(name, where)

    def _tables(self, root: Path) -> set[str]:
        folder, found = root / formats.CONFIG_DIR, set()
        for name in list_folder(folder):
            path = folder / name
            if path.is_dir() and not path.is_symlink():
                self._found.cannot_read(f"{path} is a folder, which holds no table")
            else:
                found.add(name.removesuffix(BACKUP_SUFFIX))
        return found

    def _compare(self, name: str, where: str) -> None:
        paths = [root / formats.CONFIG_DIR / name for root in self._roots]
        sizes = [path.stat().st_size if path.is_file() else 0 for path in paths]
        if not name.endswith(_TABLE_SUFFIX) or max(sizes) > _MOST_PARSED_NBYTES:
            self._compare_bytes(where, paths)
            return
        documents = []
        for root, path in zip(self._roots, paths, strict=True):
            try:
                documents.append(read_config_file(path, root).content)
            except CorruptionError as error:
                self._found.cannot_read(str(error))
        if len(documents) == 2:
            a, b = ({} if one is None else dict(one) for one in documents)
            a.pop(_VERSION, None)
            b.pop(_VERSION, None)
            for place, x, y in _differing(a, b, ""):
                self._found.add("config.value", f"{where}: {place}", (_shown(x), _shown(y)),
                                "the values differ")  # fmt: skip

    def _compare_bytes(self, where: str, paths: list[Path]) -> None:
        existing = [
            path if os.path.lexists(path) else path.with_name(path.name + BACKUP_SUFFIX)
            for path in paths
        ]
        at = 0
        descriptors: list[int] = []
        try:
            for root, path in zip(self._roots, existing, strict=True):
                descriptors.append(open_regular_file(path, READ_ONLY, root))
            while True:
                a, b = (os.pread(fd, _STEP_NBYTES, at) for fd in descriptors)
                if a != b:
                    sizes = [os.fstat(fd).st_size for fd in descriptors]
                    self._found.add("config.bytes", where, sizes, "the bytes differ")
                if a != b or not a:
                    return
                at += len(a)
        finally:
            for fd in descriptors:
                os.close(fd)


_NOTHING = object()


def _differing(a: Any, b: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield (path, a's value, b's value) of all values that differ."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted({*a, *b}, key=str):
            inner = f"{path}.{key}" if path else str(key)
            yield from _differing(a.get(key, _NOTHING), b.get(key, _NOTHING), inner)
    elif type(a) is not type(b) or a != b:
        yield path, a, b


def _shown(value: Any) -> Any:
    """Return a value as it is reported: short, ``None`` for nothing."""
    if value is _NOTHING:
        return None
    text = str(value)
    return value if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "…"
