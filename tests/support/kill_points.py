"""Kills a program at the n-th change that it makes to the file system, or at its n-th call."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

#: Changes of the file system that Python's own calls announce before they happen.
_EVENTS = frozenset(
    ("os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "os.utime", "os.truncate")
)


def run_until_change(program: Callable[[], Any], number: int) -> bool:
    """Run in a forked process, killed before its ``number``-th change; return whether it got there.

    An opening of a file for writing counts as a change.
    """
    return _ends_killed(program, lambda: _kill_at(number))


def run_until_call(program: Callable[[], Any], number: int) -> bool:
    """Run in a forked process, killed at its ``number``-th call; return whether it got there.

    Calls of functions and returns from them are counted, in all threads, so that a number is about
    the same place in each run.
    """
    return _ends_killed(program, lambda: _count_calls(itertools.count(1), number))


def calls_of(program: Callable[[], Any]) -> int:
    """Run in a forked process; return how many calls ``run_until_call`` counts."""
    calls = itertools.count(1)
    ours, theirs = os.pipe()

    def counted() -> None:
        program()
        sys.setprofile(None)
        os.write(theirs, b"%d" % next(calls))

    assert not _ends_killed(counted, lambda: _count_calls(calls, -1))
    os.close(theirs)
    with os.fdopen(ours, "rb") as file:
        return int(file.read())


def _count_calls(calls: itertools.count[int], last: int) -> None:
    def watch(*_: object) -> None:
        if next(calls) == last:
            os.kill(os.getpid(), signal.SIGKILL)

    threading.setprofile(watch)
    sys.setprofile(watch)


def _ends_killed(program: Callable[[], Any], prepare: Callable[[], None]) -> bool:
    child = os.fork()
    if child == 0:
        try:
            prepare()
            program()
        except BaseException:  # noqa: BLE001 - printed; the exit status says so
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return True
    assert os.WIFEXITED(status), f"the program ended by {status}"
    assert os.WEXITSTATUS(status) == 0, "the program failed; see its standard error"
    return False


def _kill_at(number: int) -> None:
    changes = itertools.count(1)

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITING
        if (event in _EVENTS or writes) and next(changes) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
