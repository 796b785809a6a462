"""How long calls take, by ms; see ``_native/files/rs_times.h``."""

from __future__ import annotations

import time

_SHARE = 256
_LONGEST_MS = 10_001


def sampled_ns(number: int) -> int:
    """Return the time in ns if the call of this number is in the sample, else 0: for
    calls whose number is at hand."""
    spread = number * 2654435769 & 0xFFFFFFFF
    return time.monotonic_ns() if spread < 0xFFFFFFFF // _SHARE else 0


def elapsed_ms(begin_ns: int) -> int:
    """Return the ms since ``begin_ns``."""
    return (time.monotonic_ns() - begin_ns) // 1_000_000


class TimedCall:
    """One call; ``begin_ns`` is 0 if it is not timed."""

    def __init__(self, waits: bool = False, begin_ns: int = 0) -> None:
        self.waits = waits
        self.begin_ns = begin_ns

    def wait(self) -> None:
        """Time a call from here on if it was not timed yet, since now it waits."""
        self.waits = True
        self.begin_ns = self.begin_ns or time.monotonic_ns()


class CallTimes:
    """Times of each call that is known to wait, and of a sample of the others."""

    def __init__(self) -> None:
        self._calls = 0
        self._next_sampled = 0
        self._longest_ms = 0
        self._sampled: dict[int, int] = {}
        self._waited: dict[int, int] = {}

    def begin(self, waits: bool) -> TimedCall:
        """Begin a call."""
        chosen = False
        if self._calls == self._next_sampled:
            chosen = self._calls != 0  # the first never is
            spread = self._calls * 2654435769 & 0xFFFFFFFF
            spread = (spread ^ spread >> 16) * 2246822507 & 0xFFFFFFFF
            self._next_sampled += ((spread >> 16) * (2 * _SHARE - 1) >> 16) + 1
        self._calls += 1
        return TimedCall(waits, time.monotonic_ns() if chosen or waits else 0)

    def end(self, call: TimedCall) -> None:
        """Count the time of a call, if it is timed."""
        if call.begin_ns:
            self._count(self._waited if call.waits else self._sampled, elapsed_ms(call.begin_ns))

    def add(self, elapsed: int) -> None:
        """Count the time of a call that waited, in ms."""
        self._calls += 1
        self._next_sampled += 1
        self._count(self._waited, elapsed)

    def _count(self, counts: dict[int, int], elapsed: int) -> None:
        self._longest_ms = max(self._longest_ms, elapsed)
        key = min(elapsed, _LONGEST_MS)
        counts[key] = counts.get(key, 0) + 1

    def read(self) -> tuple[int, int, dict[int, int], dict[int, int]]:
        """Return the calls, the longest in ms, and by ms how many of the sample, and of waits."""
        return self._calls, self._longest_ms, dict(self._sampled), dict(self._waited)
