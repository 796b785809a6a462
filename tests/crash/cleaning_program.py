"""Clean copies of a store, each in a process that is killed before another file operation.

Usage: ``python cleaning_program.py PRISTINE FOLDER NOW FIRST STEP [closed]``. The copy
``FOLDER/<n>`` is cleaned at the time NOW by a process that kills itself before its n-th
operation, for n from FIRST in steps of STEP, until one completes; prints the number of that one.
With ``closed``, the program cleans it without opening it, as if there were no space to open it.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rocketstore
from rocketstore.directory.paths import StorePaths
from rocketstore.store.closed_cleaning import clean_closed_store


class Killer:
    """Counts the file operations that change what is on disk, and kills before one."""

    def __init__(self, fatal: int) -> None:
        self._left = fatal

    def guard(self, operation: Callable[..., Any]) -> Callable[..., Any]:
        """The operation, counted."""

        def counted(*arguments: Any, **others: Any) -> Any:
            self._left -= 1
            if self._left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return operation(*arguments, **others)

        return counted


def clean(root: Path, now: int, fatal: int, *, closed: bool) -> None:
    """Open and clean; the operations of opening and closing count, too."""
    killer = Killer(fatal)
    for name in ("unlink", "fsync", "replace", "rename", "link", "pwrite", "write"):
        setattr(os, name, killer.guard(getattr(os, name)))
    if closed:
        config = rocketstore.MessageStoreConfig()
        clean_closed_store(StorePaths.of(root, config), config, clock=lambda: now)
        return
    with rocketstore.open(root, "r+", clock=lambda: now, start=False) as store:
        store.clean_expired()


def main() -> None:
    pristine, folder, now = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    number, step = int(sys.argv[4]), int(sys.argv[5])
    while True:
        root = folder / str(number)
        shutil.copytree(pristine, root)
        child = os.fork()
        if child == 0:
            clean(root, now, number, closed=sys.argv[6:] == ["closed"])
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status == 0:
            print(number)
            return
        assert os.WTERMSIG(status) == signal.SIGKILL, status
        number += step


if __name__ == "__main__":
    main()
