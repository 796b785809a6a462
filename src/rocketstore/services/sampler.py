"""Totals of a store about every second: what its rates and its last minute are computed from."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from rocketstore import kernels
from rocketstore.lock_order import LockRank

#: Windows of the rates in seconds: RocketMQ's.
WINDOWS_S = (10, 60, 600)
#: Least pause between samples: below a second, since a service may wake a little early.
_PAUSE_S = 0.9
_MINUTE_S = 60.0


class Sampler:
    """Samples of totals.

    Parameters
    ----------
    read_totals : callable
        Returns numbers that only grow from 0.
    read_times : callable
        Returns what is kept for each minute.
    monotonic : callable
        The clock, in seconds. The system's time may be set back; this one never is.
    began_at : float, optional
        When all totals were 0; by default now.

    Notes
    -----
    Samples older than the longest window are dropped, except for the one that begins it.
    Threading: any thread.
    """

    def __init__(
        self,
        read_totals: Callable[[], tuple[int, ...]],
        read_times: Callable[[], Any],
        monotonic: Callable[[], float] = time.monotonic,
        *,
        began_at: float | None = None,
    ) -> None:
        self._read_totals = read_totals
        self._read_times = read_times
        self._monotonic = monotonic
        self._lock = kernels.locks.OrderedLock(LockRank.LEAF)
        begin = monotonic() if began_at is None else began_at
        # Both guarded by: _lock
        self._seconds = deque([(begin, (0,) * len(read_totals()))])
        self._minutes = deque([(begin, read_times())], maxlen=2)

    def step(self) -> None:
        """Take a sample if the last one is old enough."""
        now = self._monotonic()
        if now - self._seconds[-1][0] < _PAUSE_S:
            return
        totals = self._read_totals()
        times = self._read_times() if now - self._minutes[-1][0] >= _MINUTE_S else None
        with self._lock:
            kept = self._seconds
            if now - kept[-1][0] < _PAUSE_S:
                return  # another thread took one
            while len(kept) > 1 and now - kept[1][0] >= WINDOWS_S[-1]:
                kept.popleft()
            kept.append((now, totals))
            if times is not None:
                self._minutes.append((now, times))

    def rates(self) -> list[tuple[float | None, ...]]:
        """Return for each total its growth per second over each window, up to this moment.

        A window begins at the newest sample that is old enough; the rate is over the time since
        then. ``None`` for a window that is longer than there are samples.
        """
        totals = self._read_totals()
        now = self._monotonic()
        with self._lock:
            begins = [
                next((one for one in reversed(self._seconds) if now - one[0] >= window), None)
                for window in WINDOWS_S
            ]
        return [
            tuple(
                None if begin is None else (total - begin[1][i]) / (now - begin[0])
                for begin in begins
            )
            for i, total in enumerate(totals)
        ]

    def last_minute(self) -> tuple[Any, Any] | None:
        """Return what was kept at the begin and the end of the last complete minute.

        ``None`` before there is one. Without samples in time it is longer than a minute.
        """
        with self._lock:
            if len(self._minutes) < 2:
                return None
            (_, before), (_, after) = self._minutes
            return before, after
