"""Counting inside the process that valgrind runs."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

#: The specializing interpreter and the store's caches are settled after a few runs.
WARM_UPS = 3
#: An odd number: the count of a path is the median of its runs.
RUNS = 3
#: Sizes of CPython's allocator of small objects; nothing depends on their being exact.
_POOL_STEP_NBYTES, _LARGEST_POOLED_NBYTES, _POOL_NBYTES = 16, 512, 16_384
_BYTES_HEAD_NBYTES = sys.getsizeof(b"")


def nothing() -> None:
    """Prepare nothing."""


@dataclass(frozen=True, kw_only=True)
class CountedPath:
    """One path through the library.

    Attributes
    ----------
    name : str
        Unique; parts separated by dots.
    work : callable
        Makes the calls in a loop of ``loops`` iterations.
    units : int
        Calls or messages of one ``work``; the count is for one of them.
    of : str
        What a unit is.
    loops : int
        The count of an empty loop of as many iterations is subtracted.
    prepare : callable
        Called before each ``work``, and not counted.
    """

    name: str
    work: Callable[[], object]
    units: int
    of: str
    loops: int
    prepare: Callable[[], object] = nothing


class Counter:
    """Callgrind's counters, by way of the compiled ``counter.c``."""

    def __init__(self, library: Path) -> None:
        # The GIL is kept, so that no other thread runs between the two ends of a measurement.
        found = ctypes.PyDLL(str(library))
        self._instrument, self._rest = found.rs_instrument, found.rs_rest
        self._start, self._stop = found.rs_start, found.rs_stop
        self._stop.argtypes = [ctypes.c_char_p]
        self._loops: set[int] = set()
        if not found.rs_is_counted():
            raise RuntimeError("this program counts only under valgrind; run `make bench-check`")

    def count(self, path: CountedPath) -> None:
        """Run a path; callgrind writes one file per run, named after the path."""
        if path.loops not in self._loops:
            self._loops.add(path.loops)
            self._count(empty_loop(path.loops))
        self._count(path)

    def _count(self, path: CountedPath) -> None:
        for _ in range(WARM_UPS):
            path.prepare()
            path.work()
        name, work, start, stop = path.name.encode(), path.work, self._start, self._stop
        # After the warm-ups: what they freed would otherwise be the first choice again.
        kept = half_full_pools()
        self._instrument()
        for _ in range(RUNS):
            if path.prepare is not nothing:
                self._rest()
                path.prepare()
                kept += half_full_pools()
                self._instrument()
            start()
            work()
            stop(name)
        self._rest()
        del kept


def half_full_pools() -> list[object]:
    """Return objects that leave free places between them, for every size that Python pools.

    Otherwise it depends on the addresses of a run whether each repetition empties a pool and takes
    a new one, which moved counts by up to 3 %.
    """
    kept: list[object] = []
    for nbytes in range(_POOL_STEP_NBYTES, _LARGEST_POOLED_NBYTES + 1, _POOL_STEP_NBYTES):
        count = 2 * _POOL_NBYTES // nbytes
        if nbytes == _POOL_STEP_NBYTES:
            made: list[object] = [object() for _ in range(count)]
        elif nbytes < _BYTES_HEAD_NBYTES:
            made = [float(number) for number in range(count)]
        else:
            made = [bytes(nbytes - _BYTES_HEAD_NBYTES) for _ in range(count)]
        kept += made[::2]
    return kept


def empty_name(loops: int) -> str:
    """Return the name under which an empty loop is counted."""
    return f"empty.{loops}"


def empty_loop(loops: int) -> CountedPath:
    """Return the path whose count is subtracted from those of paths with as many iterations."""
    items = [None] * loops

    def work() -> None:
        for _ in items:
            pass

    return CountedPath(name=empty_name(loops), work=work, units=1, of="loop", loops=loops)
