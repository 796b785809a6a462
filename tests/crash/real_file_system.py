"""A kernel file system in a file, which the test can shut down: everything that it has not written
is gone, and the next mount replays its journal."""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
import time
from pathlib import Path
from types import TracebackType

_SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN and XFS_IOC_GOINGDOWN: _IOR('X', 125, u32)
#: What is written first, by name: everything, the journal, nothing.
SHUTDOWNS = {"default": 0, "logflush": 1, "nologflush": 2}
#: Size of the file, and the command that makes the file system.
KINDS = {
    "ext4": (96 << 20, ["mkfs.ext4", "-q", "-F"]),
    "xfs": (320 << 20, ["mkfs.xfs", "-q", "-f"]),
}


class ImpossibleError(Exception):
    """This machine has no such file system; the text is one sentence."""


class FileSystem:
    """A mounted file system in ``folder``; a context manager that unmounts it.

    Attributes
    ----------
    place : Path
        Where it is mounted.
    """

    def __init__(self, folder: Path, kind: str) -> None:
        nbytes, command = KINDS[kind]
        self.place = folder / "mounted"
        self._image = folder / f"{kind}.image"
        if os.geteuid() != 0:
            raise ImpossibleError("only root can mount a file system")
        if shutil.which(command[0]) is None:
            raise ImpossibleError(f"there is no {command[0]}, and none could be installed")
        self.place.mkdir()
        with self._image.open("wb") as file:
            file.truncate(nbytes)
        _run([*command, str(self._image)])
        self._kind = kind
        self.mount()

    def mount(self) -> None:
        """Mount it, which replays the journal after a shutdown."""
        options = ["-t", self._kind, "-o", "loop,noatime"]
        _run(["mount", *options, str(self._image), str(self.place)])

    def shut_down(self, how: str) -> None:
        """Cut the power; everything in it answers EIO from now on."""
        fd = os.open(self.place, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.ioctl(fd, _SHUTDOWN, struct.pack("I", SHUTDOWNS[how]))
        except OSError as error:
            raise ImpossibleError(f"{self._kind} cannot be shut down: {error}") from error
        finally:
            os.close(fd)

    def unmount(self) -> None:
        """Unmount it; waits for processes that are about to end."""
        deadline = time.monotonic() + 120
        while True:
            done = subprocess.run(["umount", str(self.place)], capture_output=True, text=True)
            if done.returncode == 0:
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"umount {self.place}: {done.stderr}")
            time.sleep(0.02)

    def __enter__(self) -> FileSystem:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if os.path.ismount(self.place):
            self.unmount()


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        text = " ".join(done.stderr.split()) or f"exit status {done.returncode}"
        raise ImpossibleError(f"{command[0]} says: {text}")
