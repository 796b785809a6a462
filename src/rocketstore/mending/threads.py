"""Calls for many things at a time, each on a thread."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Sequence
from typing import TypeVar

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


def each(call: Callable[[_Item], _Answer], items: Sequence[_Item], jobs: int) -> list[_Answer]:
    """Return ``call(item)`` of each item, in their order; ``jobs`` run at a time.

    The first error in that order is raised; calls that have not begun then do not begin.
    """
    if jobs == 1 or len(items) < 2:
        return [call(item) for item in items]
    with concurrent.futures.ThreadPoolExecutor(jobs, "rocketstore-mending") as pool:
        tasks = [pool.submit(call, item) for item in items]
        try:
            return [task.result() for task in tasks]
        finally:
            for task in tasks:
                task.cancel()
