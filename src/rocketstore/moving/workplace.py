"""Where a new store is made: beside its destination, renamed when it is complete."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

from rocketstore.directory.lock import StoreLock
from rocketstore.files.durable import sync_directory
from rocketstore.mending.journal import JOURNAL_FILE, Journal
from rocketstore.moving.tree import refuse_overlap


class Workplace:
    """The folder ``work`` beside a destination; one call at a time, kept after a kill.

    Parameters
    ----------
    destination : Path
        A path that does not exist, or an empty folder.
    suffix : str
        Appended to the destination's name.

    Attributes
    ----------
    work : Path
    place : Path
        The store, while it is made.
    """

    def __init__(self, destination: Path, suffix: str) -> None:
        self.destination = destination
        self.work = destination.with_name(destination.name + suffix)
        self.place = self.work / "store"

    def check(self, sources: Iterable[Path]) -> None:
        """Raise unless a store can be made there, apart from the sources."""
        for source in sources:
            for place in (self.destination, self.work):
                refuse_overlap(source, place)
        if not self.destination.parent.is_dir():
            raise FileNotFoundError(2, "there is no such folder", str(self.destination.parent))
        if os.path.ismount(self.destination):
            raise FileExistsError(17, "it is a mount point; name a folder in it",
                                  str(self.destination))  # fmt: skip

    def is_named(self) -> bool:
        """Return whether a killed call had given the finished store its name already.

        Raises ``FileExistsError`` if something else is there.
        """
        there = os.path.lexists(self.destination)
        if there and not self.destination.is_symlink() and self.destination.is_dir():
            there = bool(os.listdir(self.destination))
        if not there:
            return False
        if self.work.is_dir() and not os.listdir(self.work):
            return True  # killed just before the folder itself was deleted
        finished = self.work.is_dir() and Journal(self.work).has("finished")
        if finished and not self.place.exists():
            return True
        raise FileExistsError(17, "it exists; name a new folder", str(self.destination))

    def run(self, job: Callable[[Journal], None]) -> None:
        """Call ``job`` under the lock; delete the folder afterwards, unless it is needed again."""
        os.makedirs(self.work, exist_ok=True)
        lock, is_over = StoreLock(self.work), False
        try:
            job(Journal(self.work))
            is_over = True
        finally:
            is_over = is_over or not Journal(self.work).has("begun")
            lock.release()
            if is_over:
                # The journal goes last: until then the same call knows that all was done.
                for name in sorted(os.listdir(self.work), key=lambda name: name == JOURNAL_FILE):
                    path = self.work / name
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
                self.work.rmdir()
                sync_directory(self.destination.parent)

    def begin_again(self, kept: Iterable[str]) -> None:
        """Delete all that an earlier call made, but for the names ``kept``, and make ``place``."""
        for name in os.listdir(self.work):
            if name not in kept:
                path = self.work / name
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        os.mkdir(self.place)

    def name_store(self) -> None:
        """Give the store its name, durably; it may be write-protected."""
        mode = stat.S_IMODE(os.stat(self.place).st_mode)
        is_protected = not mode & stat.S_IWUSR
        if is_protected:  # only who may write a folder can move it to another one
            os.chmod(self.place, mode | stat.S_IWUSR)
        os.rename(self.place, self.destination)
        if is_protected:
            os.chmod(self.destination, mode)
        sync_directory(self.destination.parent)
