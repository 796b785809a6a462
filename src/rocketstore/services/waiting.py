"""Waking and waiting that an interrupt cannot leave half done.

``threading.Event`` and ``Condition`` are Python code: a ``KeyboardInterrupt`` between two of their
lines leaves their lock held, and whoever comes next waits for ever. A plain lock is taken and given
back by one call.
"""

from __future__ import annotations

import contextlib
import threading


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
        with contextlib.suppress(RuntimeError):  # it rings already
            self._silent.release()

    def wait(self, timeout_s: float) -> bool:
        """Wait until it rings, at most so long; whether it did. It is silent again then."""
        return self._silent.acquire(timeout=timeout_s)


class WaitingRoom:
    """Any number wait, all are woken at once.

    Notes
    -----
    Threading: any thread. Enter, then look whether there is something to wait for, then wait.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: set[threading.Lock] = set()  # guarded by: _lock

    def enter(self) -> threading.Lock:
        """Return a lock that is free once ``wake_all`` was called; wait by acquiring it."""
        ticket = threading.Lock()
        ticket.acquire()
        with self._lock:
            self._waiting.add(ticket)
        return ticket

    def leave(self, ticket: threading.Lock) -> None:
        """Wait no longer with ``ticket``; nothing when its holder was woken."""
        with self._lock:
            self._waiting.discard(ticket)

    def wake_all(self) -> None:
        """Wake all who entered."""
        if not self._waiting:
            return
        with self._lock:
            for ticket in self._waiting:
                with contextlib.suppress(RuntimeError):  # an interrupted call woke this one
                    ticket.release()
            self._waiting.clear()
