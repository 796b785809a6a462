"""Threads that wait for an offset of the log to be on disk: the twin of ``_native/waiting``."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import final

from rocketstore._reference.locks import OrderedLock
from rocketstore.lock_order import LockRank


@final
class OffsetWaiters:
    """See ``_native/waiting.pyi``."""

    def __init__(self) -> None:
        self._reached = 0
        self._has_failed = False
        self._renew()

    def _renew(self) -> None:
        """Forget every thread: a forked child has none of them."""
        self._process = os.getpid()
        self._lock = OrderedLock(LockRank.WAITING)
        self._waiting: dict[threading.Lock, int] = {}  # guarded by: _lock
        self._silent = _locked()

    def _check_process(self) -> None:
        if self._process != os.getpid():
            self._renew()

    def __len__(self) -> int:
        self._check_process()
        return len(self._waiting)

    def wait(self, offset: int, timeout_s: float) -> bool:
        self._check_process()
        if self._reached >= offset or self._has_failed:
            return True
        ticket = _locked()
        with self._lock:
            self._waiting[ticket] = offset
        try:
            self.ring()
            # Checked after entering, so that no call of ``reach`` or ``fail`` is missed.
            if not (self._reached >= offset or self._has_failed):
                ticket.acquire(timeout=_within_limits(timeout_s))
        finally:
            with self._lock:
                left = self._waiting.pop(ticket, None)
        return left is None or self._reached >= offset

    def reach(self, offset: int) -> None:
        self._check_process()
        self._reached = offset
        self._let_go()

    def fail(self) -> None:
        self._check_process()
        self._has_failed = True
        self._let_go()

    def _let_go(self) -> None:
        with self._lock:
            ready = [
                ticket
                for ticket, offset in self._waiting.items()
                if offset <= self._reached or self._has_failed
            ]
            for ticket in ready:
                with contextlib.suppress(RuntimeError):  # an interrupted call woke it already
                    ticket.release()
                self._waiting.pop(ticket, None)

    def ring(self) -> None:
        self._check_process()
        if self._silent.locked():
            with contextlib.suppress(RuntimeError):  # another thread rang at the same time
                self._silent.release()

    def listen(self, timeout_s: float) -> bool:
        self._check_process()
        return self._silent.acquire(timeout=_within_limits(timeout_s))


def _locked() -> threading.Lock:
    """Return a lock that is held: it is acquired again when another thread releases it."""
    try:
        lock = threading.Lock()
    except RuntimeError as error:  # the interpreter's error for a failed allocation
        raise MemoryError("no memory for a lock") from error
    lock.acquire()
    return lock


def _within_limits(timeout_s: float) -> float:
    return min(max(timeout_s, 0.0), threading.TIMEOUT_MAX)
