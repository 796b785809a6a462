"""Threads that wait for an offset of the log to be on disk: the twin of ``_native/waiting``."""

from __future__ import annotations

import contextlib
import os
import threading
from types import TracebackType
from typing import Any, final

from rocketstore._reference.locks import OrderedLock
from rocketstore.lock_order import LockRank, held_lock

_MOST_NAMES = 2


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
        self._silent = held_lock()
        self._holds = 0  # guarded by: _lock

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
        ticket = held_lock()
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

    @property
    def reached(self) -> int:
        return self._reached

    def follow(
        self,
        appender: Any,
        segment: Any,
        base_offset: int,
        flushed: int,
        fd: int,
        names: tuple[tuple[bytes, int, int, int], ...],
        timeout_s: float,
    ) -> tuple[bool, int, int, int]:
        """Only listen: without native code nothing is gained by syncing here."""
        if not 0 <= base_offset <= flushed <= base_offset + len(segment):
            raise ValueError(f"offset {flushed} is not in the segment at {base_offset}")
        if len(names) > _MOST_NAMES:
            raise ValueError(f"{len(names)} names, at most {_MOST_NAMES}")
        return self.is_held or self.listen(timeout_s), flushed, 0, 0

    def __enter__(self) -> None:
        self._hold(1)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._hold(-1)

    def _hold(self, change: int) -> None:
        self._check_process()
        with self._lock:
            self._holds = max(self._holds + change, 0)
        self.ring()

    @property
    def is_held(self) -> bool:
        self._check_process()
        return self._holds > 0

    def ask_back(self) -> int:
        return self._reached


def _within_limits(timeout_s: float) -> float:
    return min(max(timeout_s, 0.0), threading.TIMEOUT_MAX)
