"""What ``rocketstore bench`` measures of one piece of work."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from statistics import median


class Clock:
    """Adds up wall time and the calling thread's processor time; a context manager."""

    def __init__(self) -> None:
        self.wall_ns = 0
        self.cpu_ns = 0

    def __enter__(self) -> Clock:
        self._cpu = time.thread_time_ns()
        self._wall = time.perf_counter_ns()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall_ns += time.perf_counter_ns() - self._wall
        self.cpu_ns += time.thread_time_ns() - self._cpu


@dataclass
class Figure:
    """One row: what was done, and nanoseconds for each message or call, by round."""

    name: str
    meaning: str
    #: What is counted: ``message``, ``call``.
    of: str
    #: Bytes of one, 0 where bytes mean nothing.
    nbytes: float = 0
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def take(self, clock: Clock, count: int) -> None:
        """Add a round."""
        self.wall.append(clock.wall_ns / count)
        self.cpu.append(clock.cpu_ns / count)

    @property
    def wall_ns(self) -> float:
        """Median of the rounds."""
        return median(self.wall)

    @property
    def cpu_ns(self) -> float:
        """Median of the rounds."""
        return median(self.cpu)

    @property
    def spread(self) -> float:
        """(Longest - shortest) / median of the rounds' wall times."""
        return (max(self.wall) - min(self.wall)) / self.wall_ns if self.wall_ns else 0.0
