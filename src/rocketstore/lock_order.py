"""The order in which a thread enters the store's locks, see ``_native/locks.pyi``."""

from __future__ import annotations

from typing import Final


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
