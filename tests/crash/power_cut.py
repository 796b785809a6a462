"""A model of a disk without power: what is durable for sure, and images of what may be left.

Every ``fsync`` and every sync of a mapped range is followed. What was not synced since may have
reached the disk or not, page by page or sector by sector, in any order; so may directory entries.
"""

from __future__ import annotations

import os
import random
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from rocketstore.files.mapped_file import MappedFile
from support.syncs import sync_by_calls

PAGE_NBYTES = 4096
SECTOR_NBYTES = 512
_DIRECTORY = -1
#: Files by their path below the store's root; directories are None.
Image = dict[str, bytes | None]


class DurableFile:
    """What of one file is on the medium: its length, and the pages that differ from zeros."""

    def __init__(self, fd: int) -> None:
        self.fd = fd  # keeps the inode's number from being used again
        self.nbytes = 0
        self.pages: dict[int, bytes] = {}

    def current(self) -> bytes:
        """The content that a reader sees now."""
        return os.pread(self.fd, os.fstat(self.fd).st_size, 0)

    def sync(self, start: int, stop: int) -> None:
        """The pages of ``start`` .. ``stop`` are durable as they are now."""
        first = start - start % PAGE_NBYTES
        stop = min(stop + -stop % PAGE_NBYTES, os.fstat(self.fd).st_size)
        for position in range(first, stop, PAGE_NBYTES):
            self.pages[position // PAGE_NBYTES] = os.pread(self.fd, PAGE_NBYTES, position)

    def sync_all(self) -> None:
        """Everything is durable, the length too."""
        self.nbytes = os.fstat(self.fd).st_size
        self.pages.clear()
        self.sync(0, self.nbytes)


class FileState(NamedTuple):
    """One file at one moment: what a reader sees, the durable length, and the pages for which the
    medium may hold something older (page number, old bytes)."""

    current: bytes
    durable_nbytes: int
    older: tuple[tuple[int, bytes], ...]

    @classmethod
    def of(cls, file: DurableFile) -> FileState:
        """The state of ``file`` now."""
        current = file.current()
        older = []
        for number in range(-(-len(current) // PAGE_NBYTES)):
            new = current[number * PAGE_NBYTES : (number + 1) * PAGE_NBYTES]
            old = file.pages.get(number, b"").ljust(PAGE_NBYTES, b"\0")[: len(new)]
            if old != new:
                older.append((number, old))
        return cls(current, file.nbytes, tuple(older))

    def content(self, choose: random.Random, fresh: float, *, tears: bool) -> bytes:
        """Bytes that may be left: each unsynced page (``tears``: sector) new or old."""
        nbytes = len(self.current)
        if self.durable_nbytes != nbytes and choose.random() >= fresh:
            nbytes = self.durable_nbytes
        if not self.older:
            return self.current[:nbytes].ljust(nbytes, b"\0")
        content = bytearray(self.current)
        for number, old in self.older:
            start = number * PAGE_NBYTES
            step = SECTOR_NBYTES if tears else PAGE_NBYTES
            for at in range(0, len(old), step):
                if choose.random() >= fresh:
                    content[start + at : start + at + step] = old[at : at + step]
        return bytes(content[:nbytes]).ljust(nbytes, b"\0")


class Moment:
    """The disk at one moment, from which any number of images may be drawn.

    Attributes
    ----------
    entries : dict
        By directory below the root (``""`` itself): durable and present names with their inodes.
    files : dict
        ``FileState`` by inode.
    """

    def __init__(
        self,
        entries: dict[str, tuple[dict[str, int], dict[str, int]]],
        files: dict[int, FileState],
    ) -> None:
        self.entries = entries
        self.files = files

    def image(self, choose: random.Random) -> Image:
        """What a power failure at this moment may leave."""
        image: Image = {}
        fresh = choose.choice((0.0, 1.0, 0.5, 0.2, 0.9))
        self._build("", image, choose, fresh, choose.random() < 0.5)
        return image

    def durable_end(self, folder: str) -> int:
        """How far the files of ``folder``, named by their first position, are on the medium for
        sure."""
        durable, now = self.entries.get(folder, ({}, {}))
        end = -1
        for name, inode in sorted(durable.items()):
            state = self.files[inode]
            if now.get(name) != inode or end not in (-1, int(name)):
                break
            nbytes = min(state.durable_nbytes, len(state.current))
            if state.older:
                nbytes = min(nbytes, state.older[0][0] * PAGE_NBYTES)
            end = int(name) + nbytes
            if nbytes < len(state.current):
                break
        return max(end, 0)

    def _build(
        self, folder: str, image: Image, choose: random.Random, fresh: float, tears: bool
    ) -> None:
        durable, now = self.entries.get(folder, ({}, {}))
        for name in sorted({*durable, *now}):
            inode = durable.get(name)
            if inode != now.get(name) and choose.random() < fresh:
                inode = now.get(name)
            path = f"{folder}/{name}" if folder else name
            if inode == _DIRECTORY:
                image[path] = None
                self._build(path, image, choose, fresh, tears)
            elif inode is not None:
                image[path] = self.files[inode].content(choose, fresh, tears=tears)


def write_image(image: Image, root: str) -> None:
    """Make the directory ``root`` with the image's files."""
    os.mkdir(root)
    for path, content in image.items():
        if content is None:
            os.mkdir(f"{root}/{path}")
        else:
            fd = os.open(f"{root}/{path}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                if os.write(fd, content) != len(content):
                    raise OSError(f"no room for {path}")
            finally:
                os.close(fd)


class Disk:
    """Follows one store directory.

    Parameters
    ----------
    root : Path
        The store; what lies there now is durable.
    choose : random.Random
    on_moment : callable
        Called with the file or directory that is about to be synced, or just was: every moment at
        which the power may fail.
    """

    def __init__(
        self, root: Path, choose: random.Random, on_moment: Callable[[Path], None]
    ) -> None:
        self.root = root
        self.sync_count = 0
        self._choose = choose
        self._on_moment = on_moment
        self._files: dict[int, DurableFile] = {}
        self._directories: dict[str, dict[str, int]] = {"": {}}
        if root.is_dir():
            for folder in ["", *self._folders_below("")]:
                self._directories[folder] = self._entries(folder)
            for file in self._files.values():
                file.sync_all()

    # --- following ----------------------------------------------------------------------------

    @contextmanager
    def following(self) -> Iterator[None]:
        """Watch every sync of this process; ``fsync`` only updates this model then."""
        with pytest.MonkeyPatch.context() as patch:
            flush = MappedFile.flush

            def watched_fsync(fd: int) -> None:
                path = Path(os.readlink(f"/proc/self/fd/{fd}"))
                if not path.is_relative_to(self.root):
                    return
                self._on_moment(path)
                self.sync_count += 1
                if stat.S_ISDIR(os.fstat(fd).st_mode):
                    folder = "" if path == self.root else str(path.relative_to(self.root))
                    self._directories[folder] = self._entries(folder)
                else:
                    self._file(os.dup(fd)).sync_all()
                self._on_moment(path)

            def watched_flush(file: MappedFile, position: int) -> None:
                self._on_moment(file.path)
                start = file.flushed_position
                flush(file, position)
                self.sync_count += 1
                if position > start and file.path.exists():
                    self._file(os.open(file.path, os.O_RDONLY)).sync(start, position)
                self._on_moment(file.path)

            patch.setattr(os, "fsync", watched_fsync)
            patch.setattr(os, "fdatasync", watched_fsync)
            sync_by_calls(patch)
            patch.setattr(MappedFile, "flush", watched_flush)
            # Names of temporary files, by whose order images are drawn.
            patch.setattr(os, "urandom", self._choose.randbytes)
            yield

    def _file(self, fd: int) -> DurableFile:
        inode = os.fstat(fd).st_ino
        known = self._files.get(inode)
        if known is None:
            # A descriptor for reading of its own: the given one may be for writing only.
            self._files[inode] = known = DurableFile(os.open(f"/proc/self/fd/{fd}", os.O_RDONLY))
        os.close(fd)
        return known

    def _entries(self, folder: str) -> dict[str, int]:
        """Inodes by name of what lies in a folder now."""
        entries = {}
        try:
            found = sorted(os.scandir(self.root / folder), key=lambda entry: entry.name)
        except FileNotFoundError:
            return entries
        for entry in found:
            if entry.is_dir():
                entries[entry.name] = _DIRECTORY
                continue
            inode = entry.inode()
            if inode not in self._files:
                self._file(os.open(entry.path, os.O_RDONLY))
            entries[entry.name] = inode
        return entries

    def _folders_below(self, folder: str) -> Iterator[str]:
        for entry in sorted(os.scandir(self.root / folder), key=lambda entry: entry.name):
            if entry.is_dir():
                path = f"{folder}/{entry.name}" if folder else entry.name
                yield path
                yield from self._folders_below(path)

    def write_back_some(self) -> None:
        """Let some dirty pages reach the medium, as the system does at any time."""
        for file in list(self._files.values()):
            nbytes = os.fstat(file.fd).st_size
            if nbytes and file.nbytes == nbytes and self._choose.random() < 0.3:
                position = self._choose.randrange(nbytes)
                file.sync(position, min(nbytes, position + self._choose.choice((1, 9000))))

    def moment(self) -> Moment:
        """The disk as it is now."""
        folders = sorted({*self._directories, "", *self._folders_below("")})
        entries = {
            folder: (self._directories.get(folder, {}), self._entries(folder)) for folder in folders
        }
        wanted = {
            inode
            for names in entries.values()
            for inode in (*names[0].values(), *names[1].values())
            if inode != _DIRECTORY
        }
        return Moment(entries, {inode: FileState.of(self._files[inode]) for inode in wanted})

    def close(self) -> None:
        """Let go of every file."""
        for file in self._files.values():
            os.close(file.fd)
        self._files.clear()
