"""Locks that a thread must enter in one order: the twin of ``_native/locks``."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from rocketstore.errors import ReentrantCallError

_forks = 0
_of_thread = threading.local()
if TYPE_CHECKING:
    _RLock = Any
else:
    _RLock = type(threading.RLock())


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


def _held() -> list[OrderedLock]:
    """Return the locks that this thread holds.

    Released locks are removed only here. So a release is one call of the interpreter's own lock,
    which no interrupt can leave half done.
    """
    entered: list[OrderedLock] = getattr(_of_thread, "entered", [])
    _of_thread.entered = held = [lock for lock in entered if lock._is_owned()]
    return held


def holds_any() -> bool:
    """Return whether this thread holds an ``OrderedLock``."""
    return bool(_held())


class OrderedLock(_RLock):  # type: ignore[misc]
    """See ``_native/locks.pyi``."""

    def __init__(self, rank: int) -> None:
        if rank < 0:
            raise ValueError(f"a lock's rank is 0 or more, not {rank}")
        self._rank = rank
        self._forks = _forks

    def __enter__(self) -> None:
        held = _held()
        if any(lock._rank <= self._rank for lock in held):
            raise ReentrantCallError()
        if self._forks != _forks:
            self._at_fork_reinit()
            self._forks = _forks
        held.append(self)
        try:
            self.acquire()
        except BaseException:
            if self._is_owned():
                self.release()
            raise
