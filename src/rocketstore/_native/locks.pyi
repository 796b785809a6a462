"""Locks that a thread enters in one order only.

A signal handler, a finalizer, a weak reference's callback, or a hook of the garbage collector or of
a profiler can run on any thread, in the middle of its work. If it calls the store, the thread may
already hold one of the store's locks. Waiting for the same lock would deadlock the thread; waiting
for another lock could deadlock with a thread that waits for it. So every lock has a rank, and a
thread that holds a lock enters only locks of lower rank.
"""

from types import TracebackType
from typing import final

def holds_any() -> bool:
    """Return whether this thread holds an ``OrderedLock``: then it must not wait for a thread."""

@final
class OrderedLock:
    """A lock, used as a context manager only.

    Raises ``ReentrantCallError`` instead of waiting when this thread holds one of the same rank or
    a lower one. In a forked child it is free, whichever thread held it.
    """

    def __init__(self, rank: int) -> None: ...
    def __enter__(self) -> None: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
