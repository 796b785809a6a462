"""A bound on how many files are mapped at one time: a process may have 65,530 mappings in all."""

from __future__ import annotations

from typing import Protocol

from rocketstore import kernels
from rocketstore.lock_order import LockRank


class CachedFile(Protocol):
    """A file that can do without its mapping for a while.

    Attributes
    ----------
    was_used : bool
        Set by every use of the mapping.
    """

    was_used: bool

    def release_mapping(self) -> None:
        """Drop the mapping; it is made again on the next use."""


class MappingCache:
    """Lets go of mappings that were not used for long when there are too many.

    Parameters
    ----------
    limit : int
        Mappings that are kept.

    Notes
    -----
    Threading: any thread. A file that was used since it came in, or was looked at last, gets a
    second chance, so that a use costs no more than setting a flag.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._files: dict[CachedFile, None] = {}  # the oldest first; guarded by: _lock
        self._lock = kernels.locks.OrderedLock(LockRank.LEAF)

    def __len__(self) -> int:
        return len(self._files)

    def add(self, file: CachedFile) -> None:
        """Note that ``file`` was mapped; another one may lose its mapping for it."""
        surplus = []
        with self._lock:
            self._files.pop(file, None)
            chances = len(self._files)
            while len(self._files) >= self.limit:
                oldest = next(iter(self._files))
                del self._files[oldest]
                if oldest.was_used and chances > 0:
                    oldest.was_used = False
                    self._files[oldest] = None
                    chances -= 1
                else:
                    surplus.append(oldest)
            self._files[file] = None
        for other in surplus:  # without the lock: they have locks of their own
            other.release_mapping()

    def discard(self, file: CachedFile) -> None:
        """Forget ``file``: it is closed or deleted."""
        with self._lock:
            self._files.pop(file, None)


#: Files of consume queues and their ext files, of all stores of the process. Those that dispatch
#: appends to, and those that messages and views in use refer to, are mapped besides.
QUEUE_MAPPINGS = MappingCache(16_384)
