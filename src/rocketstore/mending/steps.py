"""The steps of a repair: which files are replaced, by what, and how that is known."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rocketstore.errors import MappedFileError, RepairRefusedError
from rocketstore.files.durable import READ_ONLY, odd_folder, open_regular_file

_STEP_NBYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Content:
    """What a file holds: its size in bytes and the SHA-256 of its bytes."""

    size: int
    sha256: str

    def to_json(self) -> dict[str, Any]:
        """Return the members of a plan."""
        return {"size": self.size, "sha256": self.sha256}


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file before and after a step; ``None`` where there is no file.

    ``path`` is relative to the store's root, with ``/`` between folders.
    """

    path: str
    expects: Content | None
    becomes: Content | None

    def to_json(self) -> dict[str, Any]:
        """Return the members of a plan."""
        sides = {"expects": self.expects, "becomes": self.becomes}
        return {"path": self.path} | {
            name: {"absent": True} if content is None else content.to_json()
            for name, content in sides.items()
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> FileChange:
        """Read what ``to_json`` made; raise ``ValueError`` for anything else."""
        path = found.get("path")
        if not isinstance(path, str) or not is_inner_path(path):
            raise ValueError(f"{path!r} is no path below a store's root")
        return cls(path, _content(found, "expects"), _content(found, "becomes"))


@dataclass(frozen=True, slots=True)
class Step:
    """One step: files that change together, and why.

    ``kind`` is ``queue.build`` or ``index.build``; ``sentence`` is for people.
    """

    id: str
    kind: str
    sentence: str
    files: tuple[FileChange, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        """Return the members of a plan."""
        return {
            "id": self.id,
            "kind": self.kind,
            "sentence": self.sentence,
            "files": [change.to_json() for change in self.files],
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Step:
        """Read what ``to_json`` made; raise ``ValueError`` for anything else."""
        number, kind, sentence = (found.get(name) for name in ("id", "kind", "sentence"))
        files = found.get("files")
        if (
            not isinstance(number, str)
            or not isinstance(kind, str)
            or not isinstance(sentence, str)
            or not isinstance(files, list)
        ):
            raise ValueError("a step has id, kind, sentence and files")
        return cls(number, kind, sentence, tuple(FileChange.from_json(one) for one in files))


def is_inner_path(path: str) -> bool:
    """Return whether a path of a plan stays below the store's root."""
    parts = path.split("/")
    return bool(path) and "\0" not in path and not any(part in ("", ".", "..") for part in parts)


def _content(found: Mapping[str, Any], name: str) -> Content | None:
    given = found.get(name)
    if given == {"absent": True}:
        return None
    if not isinstance(given, dict) or set(given) != {"size", "sha256"}:
        raise ValueError(f"{name} has size and sha256, or absent, not {given!r}")
    size, digest = given["size"], given["sha256"]
    if type(size) is not int or size < 0 or not isinstance(digest, str) or len(digest) != 64:
        raise ValueError(f"{name} has a size and a SHA-256, not {given!r}")
    return Content(size, digest)


def content_of(path: Path, root: Path) -> Content | None:
    """Read and hash a file; return ``None`` if there is none.

    Raises
    ------
    MappedFileError, UnsafePathError
        ``path`` is not a regular file of ``root``.
    RepairRefusedError
        Something else is in the place of a folder above ``path``.
    """
    if not os.path.lexists(path):
        _refuse_no_folder(path, root)
        return None
    fd = open_regular_file(path, READ_ONLY, root)
    try:
        digest, size = hashlib.sha256(), 0
        while chunk := os.pread(fd, _STEP_NBYTES, size):
            digest.update(chunk)
            size += len(chunk)
        return Content(size, digest.hexdigest())
    finally:
        os.close(fd)


def _refuse_no_folder(path: Path, root: Path) -> None:
    """Raise ``RepairRefusedError`` if a folder for ``path`` cannot be made."""
    for folder in path.parents:
        if folder == root or folder.is_dir():
            return
        if os.path.lexists(folder):
            raise RepairRefusedError(f"{odd_folder(folder)}; move it away first")


def refuse_change(path: Path, expected: Content | None, found: Content | None) -> None:
    """Raise ``MappedFileError`` unless a file is what a plan expects."""
    if found == expected:
        return
    if found is None:
        raise MappedFileError(f"{path} is gone; nothing was changed")
    if expected is None:
        raise MappedFileError(f"{path} was not there before; nothing was changed")
    raise MappedFileError(f"{path} was changed by another process; nothing was changed")
