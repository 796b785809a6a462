"""Iterators that run ahead on threads, and whose items are taken in the order of their list."""

from __future__ import annotations

import concurrent.futures
import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import TypeVar

_Item = TypeVar("_Item")
#: Items that wait for the taker, of each iterator.
_MOST_WAITING = 2
#: Seconds between two looks whether the taker has stopped.
_LOOK_S = 0.1
_END = object()


def in_order(sources: Sequence[Callable[[], Iterable[_Item]]], jobs: int) -> Generator[_Item]:
    """Yield the items of all sources, one source after another.

    Parameters
    ----------
    sources : sequence of callable
        Each makes an iterable, on the thread that runs it.
    jobs : int
        Sources that run at a time, each on its own thread; 1: all on the caller's.

    Notes
    -----
    An exception of a source is raised in its place. Memory: a few items of each running source. If
    the iterator is closed, the threads end at their next item.
    """
    if jobs == 1 or len(sources) < 2:
        for source in sources:
            yield from source()
        return
    stopped = threading.Event()
    waiting: deque[queue.Queue[object]] = deque()
    left = iter(sources)
    with concurrent.futures.ThreadPoolExecutor(jobs, "rocketstore-ahead") as pool:

        def begin() -> None:
            for source in left:
                items: queue.Queue[object] = queue.Queue(_MOST_WAITING)
                pool.submit(_run, source, items, stopped)
                waiting.append(items)
                break

        try:
            for _ in range(jobs):
                begin()
            while waiting:
                yield from _taken(waiting.popleft(), begin)
        finally:
            stopped.set()


def _run(
    source: Callable[[], Iterable[object]], items: queue.Queue[object], stopped: threading.Event
) -> None:
    try:
        for item in source():
            if not _put(items, item, stopped):
                return
    except BaseException as error:  # noqa: BLE001 - raised by the taker
        _put(items, _Raised(error), stopped)
        return
    _put(items, _END, stopped)


def _put(items: queue.Queue[object], item: object, stopped: threading.Event) -> bool:
    while not stopped.is_set():
        try:
            items.put(item, timeout=_LOOK_S)
        except queue.Full:
            continue
        return True
    return False


def _taken(items: queue.Queue[object], at_end: Callable[[], None]) -> Iterator[_Item]:
    while True:
        item = items.get()
        if isinstance(item, _Raised):
            raise item.error
        if item is _END:
            at_end()
            return
        yield item  # type: ignore[misc]


class _Raised:
    """What a source raised."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
