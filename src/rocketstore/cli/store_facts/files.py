"""List a store's files by name and size without reading their contents."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rocketstore import formats
from rocketstore.directory.parts import store_parts

_BLOCK_NBYTES = 512
#: Kinds whose file names are byte offsets, and the bytes of one counted item.
_COUNTED = {
    "commitLog": 1,
    "consumeQueue": formats.CONSUME_QUEUE_UNIT.nbytes,
    "batchConsumeQueue": 1,
    "consumeQueueExt": 1,
}


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One file.

    Attributes
    ----------
    path : str
        Relative to the store's root.
    kind : str
        Kind of the store part it belongs to, such as ``"commitLog"``.
    nbytes, allocated_nbytes : int
        Its length, and its space on disk.
    first_offset, end_offset : int or None
        Range that name and length span, as log offsets or queue offsets.
    modified_ms : int
        Epoch ms.
    """

    path: str
    kind: str
    nbytes: int
    allocated_nbytes: int
    first_offset: int | None
    end_offset: int | None
    modified_ms: int

    def document(self) -> dict[str, Any]:
        """Return the values by their JSON names."""
        return {
            "path": self.path,
            "kind": self.kind,
            "bytes": self.nbytes,
            "allocatedBytes": self.allocated_nbytes,
            "firstOffset": self.first_offset,
            "endOffset": self.end_offset,
            "modified": self.modified_ms,
        }


class FileSums(NamedTuple):
    """Totals of the regular files in one folder."""

    file_count: int
    nbytes: int
    allocated_nbytes: int


def regular_files(folder: Path) -> FileSums:
    """Add up the regular files in ``folder``; a missing folder has none."""
    try:
        with os.scandir(folder) as entries:
            found = [entry.stat() for entry in entries if entry.is_file(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return FileSums(0, 0, 0)
    return FileSums(len(found), sum(one.st_size for one in found), sum(map(_allocated, found)))


def _allocated(found: os.stat_result) -> int:
    """Return the bytes on disk; the file's length on systems that do not report them."""
    blocks = getattr(found, "st_blocks", None)
    return found.st_size if blocks is None else blocks * _BLOCK_NBYTES


def files_below(root: Path) -> Iterator[StoredFile]:
    """Yield every file, sorted by name; list links without following them.

    Raises ``OSError`` when the root cannot be listed. Other folders that are missing count as
    empty.
    """
    kinds = {part.name: part.kind for part in store_parts(root)}
    for folder, names, files in os.walk(root, onerror=_complain_of_others_only):
        names.sort()
        links = [name for name in names if os.path.islink(os.path.join(folder, name))]
        for name in sorted([*files, *links]):
            path = os.path.join(folder, name)
            relative = os.path.relpath(path, root)
            part = relative.split(os.sep, 1)[0]
            file = _stored_file(path, relative, kinds.get(part, "foreign"))
            if file is not None:
                yield file


def _complain_of_others_only(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


def _stored_file(path: str, relative: str, kind: str) -> StoredFile | None:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None  # deleted meanwhile
    if stat.S_ISLNK(found.st_mode):
        kind = "link"
    first = end = None
    unit = _COUNTED.get(kind)
    offset = formats.file_name_to_offset(os.path.basename(path)) if unit else None
    if offset is not None and unit is not None and kind != "batchConsumeQueue":
        first, end = offset // unit, (offset + found.st_size) // unit
    return StoredFile(
        relative,
        kind,
        found.st_size,
        _allocated(found),
        first,
        end,
        found.st_mtime_ns // 1_000_000,
    )
