"""A directory held in memory: read it, write it to disk, and compare it with the disk."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from store_fuzz.access import readable

#: Files above this size are compared by size and time only: files of default sizes are sparse and
#: have hundreds of megabytes.
_HASHED_NBYTES = 4 << 20


@dataclass(frozen=True)
class Entry:
    """One entry: ``kind`` is ``file``, ``folder``, ``link`` or ``fifo``.

    ``forbidden`` files have no read permission.
    """

    kind: str
    content: bytes = b""
    target: str = ""
    forbidden: bool = False


Tree = dict[str, Entry]
FOLDER = Entry("folder")


def read_tree(root: Path) -> Tree:
    """Read everything below ``root``, by relative path."""
    tree: Tree = {}
    for directory, folders, files in os.walk(root):
        for name in sorted(folders + files):
            path = Path(directory, name)
            relative = path.relative_to(root).as_posix()
            if path.is_symlink():
                tree[relative] = Entry("link", target=os.readlink(path))
            elif path.is_dir():
                tree[relative] = FOLDER
            else:
                tree[relative] = Entry("file", path.read_bytes())
    return tree


def write_tree(tree: Tree, root: Path) -> None:
    """Write a tree below ``root``; skip entries below something that is not a folder."""
    root.mkdir(parents=True)
    for relative in sorted(tree):
        entry, path = tree[relative], root / relative
        parents = [str(parent) for parent in Path(relative).parents if str(parent) != "."]
        if any(tree.get(parent, FOLDER).kind != "folder" for parent in parents):
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if entry.kind == "folder":
            path.mkdir(exist_ok=True)
        elif entry.kind == "file":
            path.write_bytes(entry.content)
            if entry.forbidden:
                path.chmod(0)
        elif entry.kind == "link":
            path.symlink_to(entry.target)
        else:
            os.mkfifo(path)


def fingerprint(root: Path) -> dict[str, tuple[object, ...]]:
    """Return kind, mode, content and link target of everything below ``root``."""
    found: dict[str, tuple[object, ...]] = {}
    for directory, folders, files in os.walk(root):
        for name in folders + files:
            path = os.path.join(directory, name)
            about = os.lstat(path)
            kind: tuple[object, ...] = (about.st_mode,)
            if stat.S_ISLNK(about.st_mode):
                kind += (os.readlink(path),)
            elif stat.S_ISREG(about.st_mode):
                kind += (about.st_size, _digest(path, about))
            found[os.path.relpath(path, root)] = kind
    return found


def _digest(path: str, about: os.stat_result) -> object:
    if about.st_size > _HASHED_NBYTES:
        return about.st_mtime_ns, about.st_ino
    with readable(path), open(path, "rb") as file:
        return hashlib.blake2b(file.read(), digest_size=16).digest()


def differences(before: dict[str, tuple[object, ...]], after: dict[str, tuple[object, ...]]) -> str:
    """List the entries that differ; return an empty text if all are equal."""
    names = sorted(set(before) | set(after))
    changed = [name for name in names if before.get(name) != after.get(name)]
    kinds = [
        f"{name} ({'made' if name not in before else 'gone' if name not in after else 'changed'})"
        for name in changed[:5]
    ]
    return ", ".join(kinds)
