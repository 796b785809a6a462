"""Locks that a thread enters in one order only.

A signal handler, a finalizer, a weak reference's callback, a hook of the garbage collector or of a
profiler runs on whatever thread it meets, in the middle of whatever that thread does. Where it
calls the store, the thread may hold one of the store's locks already: for the same lock it would
wait for itself for ever, and with another it might wait for somebody who waits for it. So every
lock has a rank, and a thread that holds one enters only those of lower rank.
"""

from types import TracebackType
from typing import final

def holds_any() -> bool:
    """Whether this thread holds an ``OrderedLock``: it must not wait for other threads then."""

@final
class OrderedLock:
    """A lock, used as a context manager only.

    Raises ``ReentrantCallError`` instead of waiting when this thread holds one of the same rank or
    a lower one. In a forked child it is free, whoever held it.
    """

    def __init__(self, rank: int) -> None: ...
    def __enter__(self) -> None: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
