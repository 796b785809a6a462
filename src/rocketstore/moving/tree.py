"""What lies below a store's root: folders, files and links, looked at without opening any."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from rocketstore import formats
from rocketstore.errors import MappedFileError
from rocketstore.files.durable import TEMPORARY_PREFIX, kind_name, refuse_link_out

#: A file system's own folder, which only its owner may read.
_OF_THE_FILE_SYSTEM = "lost+found"


class TreeFile(NamedTuple):
    """A regular file: its name below the root (with ``/``), its path, and what ``lstat`` said."""

    name: str
    path: Path
    nbytes: int
    mtime_ns: int
    mode: int
    owner: tuple[int, int]
    inode: tuple[int, int]
    blocks_nbytes: int


class TreeFolder(NamedTuple):
    """A folder: its name below the root, mode and times."""

    name: str
    mtime_ns: int
    mode: int
    owner: tuple[int, int]


class TreeLink(NamedTuple):
    """A symbolic link that stays below the root: its name, and a relative target."""

    name: str
    target: str


@dataclass
class Tree:
    """Everything below a root, sorted by name; ``folders[0]`` is the root itself, named ``""``."""

    root: Path
    folders: list[TreeFolder] = field(default_factory=list)
    files: list[TreeFile] = field(default_factory=list)
    links: list[TreeLink] = field(default_factory=list)

    @property
    def fingerprint(self) -> str:
        """SHA-256 over names, inodes, sizes and times of all files and links but ``lock``."""
        digest = hashlib.sha256()
        for file in self.files:
            if file.name != formats.LOCK_FILE:
                line = f"{file.name}\0{file.inode}\0{file.nbytes}\0{file.mtime_ns}\n"
                digest.update(os.fsencode(line))
        for link in self.links:
            digest.update(os.fsencode(f"{link.name}\0{link.target}\n"))
        return digest.hexdigest()


def list_tree(root: Path) -> Tree:
    """List a store's files; temporary files of a killed writer are left out.

    Files that a writer deletes meanwhile are left out, too.

    Raises
    ------
    UnsafePathError
        A link leads out of the root.
    MappedFileError
        There is a FIFO, socket or device, a dangling link, or a link to a folder around it.
    OSError
        A folder cannot be read.
    """
    tree = Tree(root)
    for path, name in _walk(root, root, ""):
        try:
            about = os.lstat(path)
        except FileNotFoundError:
            continue
        owner = about.st_uid, about.st_gid
        if stat.S_ISDIR(about.st_mode):
            tree.folders.append(TreeFolder(name, about.st_mtime_ns, about.st_mode, owner))
        elif stat.S_ISLNK(about.st_mode):
            tree.links.append(TreeLink(name, _inner_target(path, root)))
        elif stat.S_ISREG(about.st_mode):
            blocks = getattr(about, "st_blocks", -(-about.st_size // 512)) * 512
            inode = about.st_dev, about.st_ino
            tree.files.append(
                TreeFile(name, path, about.st_size, about.st_mtime_ns, about.st_mode, owner, inode,
                         blocks)
            )  # fmt: skip
        else:
            raise MappedFileError(
                f"{path} is {kind_name(about.st_mode)}; move it away: only files, folders and "
                "links inside the store are copied"
            )
    return tree


def _walk(root: Path, folder: Path, prefix: str) -> Iterator[tuple[Path, str]]:
    yield folder, prefix
    try:
        names = sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        if folder == root:
            raise
        return
    for one in names:
        path, name = folder / one, f"{prefix}/{one}" if prefix else one
        if one.startswith(TEMPORARY_PREFIX) or (not prefix and one == _OF_THE_FILE_SYSTEM):
            continue
        is_folder = False
        with contextlib.suppress(FileNotFoundError):
            is_folder = stat.S_ISDIR(os.lstat(path).st_mode)
        if is_folder:
            yield from _walk(root, path, name)
        else:
            yield path, name


def _inner_target(path: Path, root: Path) -> str:
    """Return a link's target relative to its folder; refuse one that leaves the root."""
    refuse_link_out(path, root)
    real = os.path.realpath(path)
    if not os.path.lexists(real) or os.path.islink(real):
        raise MappedFileError(f"{path} is a symbolic link to {real}, which does not exist")
    return os.path.relpath(real, os.path.realpath(path.parent))


def refuse_overlap(source: Path, destination: Path) -> None:
    """Raise ``MappedFileError`` if one of two folders is, or is inside, the other."""
    a, b = Path(os.path.realpath(source)), Path(os.path.realpath(destination))
    if a == b:
        raise MappedFileError(f"{destination} is the store {source} itself")
    if b.is_relative_to(a):
        raise MappedFileError(f"{destination} is inside the store {source}, which is only read")
    if a.is_relative_to(b):
        raise MappedFileError(f"{destination} contains the store {source}; name another folder")
