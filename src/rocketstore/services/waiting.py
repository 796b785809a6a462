"""Waking and waiting that an interrupt cannot leave half done.

``threading.Event`` and ``Condition`` are Python code: a ``KeyboardInterrupt`` between two of their
lines leaves their lock held, and whoever comes next waits for ever. A plain lock is taken and given
back by one call.
"""

from __future__ import annotations

import contextlib
import threading

from rocketstore import kernels
from rocketstore.errors import ReentrantCallError
from rocketstore.lock_order import LockRank


def refuse_interrupted() -> None:
    """Raise ``ReentrantCallError`` where this thread was interrupted within a step of a store,
    which others may be waiting for: it must not wait for them."""
    if kernels.locks.holds_any():
        raise ReentrantCallError()


class Bell:
    """Wakes the one who waits; sticky when nobody does.

    Notes
    -----
    Threading: any number may ring, one waits.
    """

    def __init__(self) -> None:
        self._silent = threading.Lock()
        self._silent.acquire()

    def ring(self) -> None:
        """End the wait, or the next one."""
        if self._silent.locked():
            with contextlib.suppress(RuntimeError):  # somebody else rang it just now
                self._silent.release()

    def wait(self, timeout_s: float) -> bool:
        """Wait until it rings, at most so long; whether it did. It is silent again then."""
        return self._silent.acquire(timeout=timeout_s)


class WaitingRoom:
    """Any number of threads wait, each for a place in the log; all that it reached are woken.

    Notes
    -----
    Threading: any thread. Enter, then look whether there is something to wait for, then wait.
    """

    def __init__(self) -> None:
        self._lock = kernels.locks.OrderedLock(LockRank.WAITING)
        self._waiting: dict[threading.Lock, int] = {}  # guarded by: _lock

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def enter(self, offset: int = 0) -> threading.Lock:
        """Return a lock that is free once ``offset`` was reached; wait by acquiring it."""
        try:
            ticket = threading.Lock()
        except RuntimeError as error:  # which is what the interpreter makes of it
            raise MemoryError("no memory for a lock") from error
        ticket.acquire()
        with self._lock:
            self._waiting[ticket] = offset
        return ticket

    def leave(self, ticket: threading.Lock) -> None:
        """Wait no longer with ``ticket``; nothing when its holder was woken."""
        with self._lock:
            self._waiting.pop(ticket, None)

    def wake(self, offset: int) -> None:
        """Wake all who wait for a place up to ``offset``."""
        if not self._waiting:
            return
        with self._lock:
            ready = [ticket for ticket, place in self._waiting.items() if place <= offset]
            for ticket in ready:
                with contextlib.suppress(RuntimeError):  # an interrupted call woke this one
                    ticket.release()
                del self._waiting[ticket]

    def wake_all(self) -> None:
        """Wake all who entered."""
        if not self._waiting:
            return
        with self._lock:
            for ticket in self._waiting:
                with contextlib.suppress(RuntimeError):  # an interrupted call woke this one
                    ticket.release()
            self._waiting.clear()
