"""``VirtualClock``: a clock that stands still until the test moves it."""

from __future__ import annotations

import threading


class VirtualClock:
    """A store's clock that only the test moves; give it to ``rocketstore.open(clock=...)``.

    Store times, expiry, delays, time-outs of transactions: all that a store dates, it dates by this
    clock. Waiting is by the computer's time: after a step, call ``deliver_due``,
    ``transaction_check`` or ``clean_expired`` to have what is due done at once.

    Parameters
    ----------
    now : int
        Epoch ms at the beginning; 1,700,000,000,000 is 2023-11-14 22:13:20 UTC.

    Notes
    -----
    Threading: any thread may read and move it.
    """

    def __init__(self, now: int = 1_700_000_000_000) -> None:
        self._now = now  # guarded by: _lock
        self._lock = threading.Lock()

    def __call__(self) -> int:
        """Return epoch ms."""
        return self._now

    def advance(self, ms: int) -> int:
        """Move by ``ms`` milliseconds, backwards if negative; return the new time."""
        with self._lock:
            self._now += ms
            return self._now

    def set(self, now: int) -> None:
        """Move to ``now``, epoch ms."""
        with self._lock:
            self._now = now

    def __repr__(self) -> str:
        return f"VirtualClock({self._now})"
