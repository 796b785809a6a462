"""The order in which a thread enters the store's locks, see ``_native/locks.pyi``."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Final


class LockRank:
    """Ranks: whoever holds a lock enters only those that stand above it here."""

    #: Held for a look or a change of one thing; nothing else is entered.
    LEAF: Final = 0
    #: What is mapped and open of one file.
    FILE: Final = 1
    #: Whoever waits for the disk or for dispatch.
    WAITING: Final = 2
    #: The list of files of one queue.
    ROW: Final = 3
    #: The transient store pool.
    POOL: Final = 4
    #: Making room in the log.
    ROLL: Final = 5
    #: Syncing the log.
    FLUSH: Final = 6
    #: Dispatch of records to queues and index.
    DISPATCH: Final = 7
    #: Writing the marks, and leaving the store.
    MARKS: Final = 8
    #: Looking at the directory again.
    REFRESH: Final = 9


if TYPE_CHECKING or sys.version_info < (3, 14):
    ReentrantLock = threading.RLock
else:

    class ReentrantLock(type(threading.RLock())):
        """A lock that an interrupt between ``__enter__`` and the block of ``with``, where it may
        strike from Python 3.14 on, does not leave taken."""

        def __enter__(self) -> bool:
            before = self._recursion_count()
            try:
                return self.acquire()
            except BaseException:
                if self._recursion_count() > before:
                    self.release()
                raise
