"""Asking for room before the first change: what a command will write, disk by disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path

from rocketstore.errors import StoreFullError
from rocketstore.files.disk_space import disk_space

#: Small files and folders that every opening for writing may add, each in a block of its own:
#: ``lock``, ``abort``, state file, checkpoint, and the folders ``quarantine`` and ``index``.
_MARK_COUNT = 6


class RoomNeeded:
    """Bytes that will be written, by the disk that they go to.

    Parameters
    ----------
    what : str
        What they are for, as the refusal says it.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        #: By device: one folder on it, and the bytes.
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
        """Raise ``StoreFullError`` when a disk has less room than that."""
        for folder, needed in self._disks.values():
            free = disk_space(folder).usable_nbytes
            if free < needed:
                raise StoreFullError(
                    errno.ENOSPC,
                    f"no room for {self._what}: the disk of {folder} needs {needed:,} bytes for "
                    f"it, {free:,} are free; nothing was changed. Free space and try again",
                )


def allocated_nbytes(path: Path) -> int:
    """Bytes of disk that a file occupies; holes occupy none."""
    about = os.stat(path)
    blocks: int = getattr(about, "st_blocks", -(-about.st_size // 512))
    return blocks * 512
