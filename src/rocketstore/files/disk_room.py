"""Checking for free disk space before a command makes its first change."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path

from rocketstore.errors import StoreFullError
from rocketstore.files.disk_space import disk_space

#: Small files and folders that opening for writing may add, one block each: ``lock``, ``abort``,
#: state file, checkpoint, and the folders ``quarantine`` and ``index``.
_MARK_COUNT = 6


class RoomNeeded:
    """Sum the bytes that will be written to each disk.

    Parameters
    ----------
    what : str
        What the bytes are for; the error message quotes it.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        #: By device: a folder on that device, and the bytes needed there.
        self._disks: dict[int, tuple[Path, int]] = {}

    def add(self, folder: Path, files: Iterable[int]) -> None:
        """Count new files of these sizes below ``folder``, each in whole blocks."""
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        block = max(os.statvfs(folder).f_frsize, 1)
        nbytes = sum(-(-size // block) * block for size in files)
        device = os.stat(folder).st_dev
        known, needed = self._disks.get(device, (folder, 0))
        self._disks[device] = known, needed + nbytes

    def add_marks(self, root: Path) -> None:
        """Count the small files that an opening for writing adds to the store at ``root``."""
        self.add(root, [1] * _MARK_COUNT)

    def refuse_lack(self) -> None:
        """Raise ``StoreFullError`` if a disk has too few free bytes."""
        for folder, needed in self._disks.values():
            free = disk_space(folder).usable_nbytes
            if free < needed:
                raise StoreFullError(
                    errno.ENOSPC,
                    f"no room for {self._what}: the disk of {folder} needs {needed:,} bytes for "
                    f"it, {free:,} are free; nothing was changed. Free space and try again",
                )


def allocated_nbytes(path: Path) -> int:
    """Return the bytes of disk that a file occupies; holes occupy none."""
    about = os.stat(path)
    blocks: int = getattr(about, "st_blocks", -(-about.st_size // 512))
    return blocks * 512
