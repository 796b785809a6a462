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

import pytest

from rocketstore.mapped_file import MappedFile

PAGE_NBYTES = 4096
SECTOR_NBYTES = 512
_DIRECTORY = -1


class DurableFile:
    """What of one file is on the medium: its length, and the pages that differ from zeros."""

    def __init__(self, fd: int) -> None:
        self.fd = fd  # keeps the inode's number from being used again
        self.nbytes = 0
        self.pages: dict[int, bytes] = {}

    def page(self, number: int) -> bytes:
        return self.pages.get(number, b"").ljust(PAGE_NBYTES, b"\0")

    def current(self) -> bytes:
        return os.pread(self.fd, os.fstat(self.fd).st_size, 0)

    def sync(self, start: int, stop: int) -> None:
        """The pages of ``start`` .. ``stop`` are durable as they are now."""
        first = start - start % PAGE_NBYTES
        stop = min(stop + -stop % PAGE_NBYTES, os.fstat(self.fd).st_size)
        for position in range(first, stop, PAGE_NBYTES):
            self.pages[position // PAGE_NBYTES] = os.pread(self.fd, PAGE_NBYTES, position)

    def sync_all(self) -> None:
        self.nbytes = os.fstat(self.fd).st_size
        self.pages.clear()
        self.sync(0, self.nbytes)


class Disk:
    """Follows one store directory.

    Parameters
    ----------
    root : Path
        The store; what lies there now is durable.
    choose : random.Random
    on_moment : callable
        Called with the file or directory that is about to be synced, or just was: every moment at
        which the power may be cut.
    """

    def __init__(
        self, root: Path, choose: random.Random, on_moment: Callable[[Path], None]
    ) -> None:
        self.root = root
        self.sync_count = 0
        self._choose = choose
        self._on_moment = on_moment
        self._files: dict[int, DurableFile] = {}
        self._directories: dict[Path, dict[str, int]] = {root: {}}
        if root.is_dir():
            for directory in [root, *(path for path in root.rglob("*") if path.is_dir())]:
                self._sync_directory(directory)
            for file in self._files.values():
                file.sync_all()

    # --- following ----------------------------------------------------------------------------

    @contextmanager
    def following(self) -> Iterator[None]:
        """Watch every sync of this process; ``fsync`` is none but for this model then."""
        with pytest.MonkeyPatch.context() as patch:
            flush = MappedFile.flush

            def watched_fsync(fd: int) -> None:
                path = Path(os.readlink(f"/proc/self/fd/{fd}"))
                if not path.is_relative_to(self.root):
                    return
                self._on_moment(path)
                self.sync_count += 1
                if stat.S_ISDIR(os.fstat(fd).st_mode):
                    self._sync_directory(path)
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
            patch.setattr(MappedFile, "flush", watched_flush)
            yield

    def _file(self, fd: int) -> DurableFile:
        inode = os.fstat(fd).st_ino
        known = self._files.get(inode)
        if known is None:
            # A descriptor for reading of its own: the given one may be for writing only.
            self._files[inode] = known = DurableFile(os.open(f"/proc/self/fd/{fd}", os.O_RDONLY))
        os.close(fd)
        return known

    def _entries(self, directory: Path) -> dict[str, int]:
        entries = {}
        for path in directory.iterdir() if directory.is_dir() else ():
            if path.is_dir():
                entries[path.name] = _DIRECTORY
            else:
                inode = path.stat().st_ino
                self._file(os.open(path, os.O_RDONLY))
                entries[path.name] = inode
        return entries

    def _sync_directory(self, directory: Path) -> None:
        self._directories[directory] = self._entries(directory)

    def write_back_some(self) -> None:
        """Let some dirty pages reach the medium, as the system does at any time."""
        for file in list(self._files.values()):
            nbytes = os.fstat(file.fd).st_size
            if nbytes and file.nbytes == nbytes and self._choose.random() < 0.3:
                position = self._choose.randrange(nbytes)
                file.sync(position, min(nbytes, position + self._choose.choice((1, 9000))))

    def close(self) -> None:
        for file in self._files.values():
            os.close(file.fd)
        self._files.clear()

    # --- images -------------------------------------------------------------------------------

    def image(self, target: Path) -> None:
        """Write to ``target`` what may be found after a power cut at this moment."""
        fresh = self._choose.choice((0.0, 1.0, 0.5, 0.2, 0.9))
        tears = self._choose.random() < 0.5
        target.mkdir()
        self._build(self.root, target, fresh, tears)

    def _build(self, source: Path, target: Path, fresh: float, tears: bool) -> None:
        durable, now = self._directories.get(source, {}), self._entries(source)
        for name in sorted({*durable, *now}):
            inode = durable.get(name)
            if inode != now.get(name) and self._choose.random() < fresh:
                inode = now.get(name)
            if inode is None:
                continue
            if inode == _DIRECTORY:
                (target / name).mkdir()
                self._build(source / name, target / name, fresh, tears)
            else:
                (target / name).write_bytes(self._content(self._files[inode], fresh, tears))

    def _content(self, file: DurableFile, fresh: float, tears: bool) -> bytes:
        current = file.current()
        nbytes = len(current)
        if file.nbytes != nbytes and self._choose.random() >= fresh:
            nbytes = file.nbytes
        content = bytearray()
        for number in range(-(-nbytes // PAGE_NBYTES)):
            old = file.page(number)
            new = current[number * PAGE_NBYTES :][:PAGE_NBYTES].ljust(PAGE_NBYTES, b"\0")
            content += self._page(old, new, fresh, tears)
        return bytes(content[:nbytes])

    def _page(self, old: bytes, new: bytes, fresh: float, tears: bool) -> bytes:
        if old == new:
            return old
        if not tears:
            return new if self._choose.random() < fresh else old
        parts = (
            (new if self._choose.random() < fresh else old)[at : at + SECTOR_NBYTES]
            for at in range(0, PAGE_NBYTES, SECTOR_NBYTES)
        )
        return b"".join(parts)
