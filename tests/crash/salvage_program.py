"""Kills a salvage before every call that changes the disk, each time on a fresh copy.

Usage: ``python salvage_program.py ROOT COPIES``. Copies whose salvage was killed and then run again
are left in ``COPIES``, those killed before the log was whole; one in four is killed in the rerun
too.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import rocketstore

#: What is written in between changes nothing that anybody sees: it goes to temporary files.
CALLS = ("ftruncate", "fsync", "replace", "link", "rename", "unlink")


def kill_before(number: int) -> None:
    """Have the process kill itself before its ``number``-th call."""
    left = number

    def wrap(call: Any) -> Any:
        def counted(*arguments: Any, **named: Any) -> Any:
            nonlocal left
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1
            return call(*arguments, **named)

        return counted

    for name in CALLS:
        setattr(os, name, wrap(getattr(os, name)))


def salvage_killed(root: Path, number: int) -> bool:
    """Salvage in a child that dies before call ``number``; False if it completed."""
    child = os.fork()
    if child == 0:
        kill_before(number)
        rocketstore.salvage(root)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL, status
        return True
    assert os.WEXITSTATUS(status) == 0, status
    return False


def main() -> None:
    root, copies = Path(sys.argv[1]), Path(sys.argv[2])
    copies.mkdir()
    rocketstore.salvage(root, what_if=True)  # so that children find everything imported
    number, was_killed = 0, True
    while was_killed:
        copy = copies / f"{number:05d}"
        shutil.copytree(root, copy)
        was_killed = salvage_killed(copy, number)
        if was_killed and number % 4 == 0:
            salvage_killed(copy, number // 2)
        if was_killed and not rocketstore.salvage(copy).was_needed:
            shutil.rmtree(copy)  # the opening at the end was killed: other tests do that
        number += 1


if __name__ == "__main__":
    main()
