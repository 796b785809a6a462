"""Waking and waiting that are safe against interrupts.

``threading.Event`` and ``Condition`` are Python code: a ``KeyboardInterrupt`` between two of their
lines leaves their lock held, and the next thread waits forever. A plain lock is acquired and
released by a single call.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Protocol

from rocketstore import kernels
from rocketstore.errors import ReentrantCallError
from rocketstore.lock_order import LockRank, held_lock


def refuse_interrupted() -> None:
    """Raise ``ReentrantCallError`` if this thread was interrupted within a step of a store.

    Other threads may be waiting for that step, so this thread must not wait for them.
    """
    if kernels.locks.holds_any():
        raise ReentrantCallError()


class Bell(Protocol):
    """What ends a pause: see ``Wakeup``."""

    def ring(self) -> None:
        """End the current pause, or the next one."""

    def listen(self, timeout_s: float) -> bool:
        """Pause until it rings, at most ``timeout_s``; return whether it rang."""


class Wakeup:
    """Wakes one waiting thread, or the next one that waits.

    Notes
    -----
    Threading: any thread may ring; one thread waits.
    """

    def __init__(self) -> None:
        self._silent = held_lock()

    @property
    def lock(self) -> threading.Lock:
        """The lock that a ring releases, for kernels that ring."""
        return self._silent

    def ring(self) -> None:
        """End the current wait, or the next one."""
        if self._silent.locked():
            with contextlib.suppress(RuntimeError):  # another thread rang at the same time
                self._silent.release()

    def listen(self, timeout_s: float) -> bool:
        """Wait for a ring, at most ``timeout_s``; reset it and return whether it rang."""
        return self._silent.acquire(timeout=timeout_s)


class Waiters:
    """Threads that wait until they are all woken.

    Notes
    -----
    Threading: any thread. Enter first, then check whether waiting is necessary, then wait.
    """

    def __init__(self) -> None:
        self._lock = kernels.locks.OrderedLock(LockRank.WAITING)
        self._waiting: set[threading.Lock] = set()  # guarded by: _lock

    def __len__(self) -> int:
        """Return the number of waiting threads."""
        return len(self._waiting)

    def enter(self) -> threading.Lock:
        """Return a lock that ``wake_all`` releases; wait by acquiring it."""
        ticket = held_lock()
        with self._lock:
            self._waiting.add(ticket)
        return ticket

    def leave(self, ticket: threading.Lock) -> None:
        """Stop waiting with ``ticket``; do nothing if it was woken already."""
        with self._lock:
            self._waiting.discard(ticket)

    def wake_all(self) -> None:
        """Wake all waiting threads."""
        if not self._waiting:
            return
        with self._lock:
            for ticket in self._waiting:
                with contextlib.suppress(RuntimeError):  # an interrupted call woke it already
                    ticket.release()
            self._waiting.clear()
