"""The order in which a thread enters the store's locks, see ``_native/locks.pyi``."""

from __future__ import annotations

from enum import IntEnum


class LockRank(IntEnum):
    """Ranks: whoever holds a lock enters only those that stand above it here."""

    #: Held for a look or a change of one thing; nothing else is entered.
    LEAF = 0
    #: What is mapped and open of one file.
    FILE = 1
    #: Whoever waits for the disk or for dispatch.
    WAITING = 2
    #: The list of files of one queue.
    ROW = 3
    #: The transient store pool.
    POOL = 4
    #: Making room in the log.
    ROLL = 5
    #: Syncing the log.
    FLUSH = 6
    #: Dispatch of records to queues and index.
    DISPATCH = 7
    #: Writing the marks, and leaving the store.
    MARKS = 8
    #: Looking at the directory again.
    REFRESH = 9
