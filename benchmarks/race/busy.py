"""Recognise a busy machine: who else used the processors, and whether a fixed loop took longer."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

#: Share of all processors' time that others may use, and the spread of the calibration loop, above
#: which the machine is called busy.
MOST_OTHERS = 0.05
MOST_SPREAD = 0.10
_BLOCK = bytes(range(256)) * 4096
_KERNEL_PARENT = 2


class Usage(NamedTuple):
    """Processor time since the machine started, in clock ticks."""

    total: int
    busy: int
    kernel_threads: int

    @classmethod
    def now(cls) -> Usage:
        """Read ``/proc``; the kernel's threads are listed apart, for they write what we dirty."""
        return cls(*parse_stat(Path("/proc/stat").read_text()), _kernel_ticks(Path("/proc")))


def parse_stat(text: str) -> tuple[int, int]:
    """Return (total, busy) ticks of the first line of ``/proc/stat``; stolen time is busy."""
    fields = [int(field) for field in text.split("\n", 1)[0].split()[1:9]]
    idle = fields[3] + fields[4]
    return sum(fields), sum(fields) - idle


def _kernel_ticks(proc: Path) -> int:
    total = 0
    for place in proc.glob("[0-9]*/stat"):
        try:
            fields = place.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        if int(fields[1]) == _KERNEL_PARENT:
            total += int(fields[11]) + int(fields[12])
    return total


def others_share(before: Usage, after: Usage, own_ticks: float) -> float:
    """Return the share of all processors' time that neither we nor the kernel's threads used."""
    total = after.total - before.total
    if total <= 0:
        return 0.0
    kernel = after.kernel_threads - before.kernel_threads
    return max(0.0, (after.busy - before.busy - kernel - own_ticks) / total)


def spread(values: Sequence[float]) -> float:
    """Return (max - min) / median; 0 for fewer than two values."""
    if len(values) < 2:
        return 0.0
    middle = median(values)
    return (max(values) - min(values)) / middle if middle else 0.0


def calibrate() -> int:
    """Return nanoseconds of a fixed loop: arithmetic in the interpreter, then CRCs of 1 MiB."""
    best = []
    for _ in range(3):
        began = time.perf_counter_ns()
        total = 0
        for number in range(100_000):
            total += number & 7
        for _ in range(10):
            zlib.crc32(_BLOCK)
        best.append(time.perf_counter_ns() - began)
    return min(best)


class Watch:
    """Notes other processes' share before and during a run, and the calibration loop's times.

    Parameters
    ----------
    own_cpu_s : callable
        CPU seconds of this process and the contestants so far.
    ticks_per_s : int
    """

    def __init__(self, own_cpu_s: Callable[[], float], ticks_per_s: int) -> None:
        self._own_cpu_s = own_cpu_s
        self._ticks = ticks_per_s
        self.before = 0.0
        self.during: list[float] = []
        self.calibrations: list[int] = []
        self._last = (Usage.now(), own_cpu_s())

    def _lap(self) -> float:
        now = (Usage.now(), self._own_cpu_s())
        own = (now[1] - self._last[1]) * self._ticks
        found = others_share(self._last[0], now[0], own)
        self._last = now
        return found

    def look_before(self, seconds: float = 2.0) -> None:
        """Measure while nothing of ours runs."""
        self._lap()
        time.sleep(seconds)
        self.before = self._lap()

    def begin_round(self) -> None:
        """Run the calibration loop; the share of the round counts from here on."""
        self.calibrations.append(calibrate())
        self._lap()

    def end_round(self) -> None:
        """Note the share of the round."""
        self.during.append(self._lap())

    def sentences(self) -> list[str]:
        """Return what shows that the machine was busy; empty if it was quiet."""
        return verdict(self.before, self.during, self.calibrations)


def verdict(before: float, during: Iterable[float], calibrations: Sequence[float]) -> list[str]:
    """Return a sentence for each sign of a busy machine."""
    found = []
    if before > MOST_OTHERS:
        found.append(f"before the run, other processes used {before:.0%} of the processors")
    worst = max(during, default=0.0)
    if worst > MOST_OTHERS:
        found.append(f"in a round, other processes used {worst:.0%} of the processors")
    varied = spread(calibrations)
    if varied > MOST_SPREAD:
        found.append(f"a loop of fixed work varied by {varied:.0%} from round to round")
    return found
