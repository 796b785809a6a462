"""The order in which a thread enters the store's locks, see ``_native/locks.pyi``."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Final


class LockRank:
    """Ranks: a thread that holds a lock may enter only locks listed before it here."""

    #: Held for a short read or update; no other lock is entered.
    LEAF: Final = 0
    #: Mappings and descriptors of one file.
    FILE: Final = 1
    #: Waiters for the disk or for dispatch.
    WAITING: Final = 2
    #: The list of files of one queue.
    ROW: Final = 3
    #: The transient store pool.
    POOL: Final = 4
    #: Allocating space in the log.
    ROLL: Final = 5
    #: Syncing the log.
    FLUSH: Final = 6
    #: Dispatch of records to queues and index.
    DISPATCH: Final = 7
    #: Writing checkpoint and state file, and closing the store.
    MARKS: Final = 8
    #: Refreshing the directory.
    REFRESH: Final = 9


def held_lock() -> threading.Lock:
    """Return a lock that is held: a thread that acquires it waits until another releases it."""
    try:
        lock = threading.Lock()
    except RuntimeError as error:  # the interpreter's error for a failed allocation
        raise MemoryError("no memory for a lock") from error
    lock.acquire()
    return lock


if TYPE_CHECKING or sys.version_info < (3, 14):
    ReentrantLock = threading.RLock
else:

    class ReentrantLock(type(threading.RLock())):
        """A lock that is released if an interrupt arrives before the block of ``with``.

        From Python 3.14 on an interrupt may arrive between ``__enter__`` and the block.
        """

        def __enter__(self) -> bool:
            before = self._recursion_count()
            try:
                return self.acquire()
            except BaseException:
                if self._recursion_count() > before:
                    self.release()
                raise
