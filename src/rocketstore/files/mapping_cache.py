"""A limit on how many files are mapped at a time: a process may have 65,530 mappings in all."""

from __future__ import annotations

from typing import Protocol

from rocketstore import kernels
from rocketstore.lock_order import LockRank


class CachedFile(Protocol):
    """A file whose mapping can be dropped and created again.

    Attributes
    ----------
    was_used : bool
        Set by every use of the mapping.
    """

    was_used: bool

    def release_mapping(self) -> None:
        """Drop the mapping; the next use maps the file again."""


class MappingCache:
    """Releases the mappings that were not used recently when there are too many.

    Parameters
    ----------
    limit : int
        Number of mappings to keep.

    Notes
    -----
    Threading: any thread. The policy is second chance: a file that was used since it was added or
    last examined is kept once more. So a use only sets a flag.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._files: dict[CachedFile, None] = {}  # the oldest first; guarded by: _lock
        self._lock = kernels.locks.OrderedLock(LockRank.LEAF)

    def __len__(self) -> int:
        return len(self._files)

    def add(self, file: CachedFile) -> None:
        """Register ``file`` as mapped; release another mapping if the limit is reached."""
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
        for other in surplus:  # without the lock: the files have their own locks
            other.release_mapping()

    def discard(self, file: CachedFile) -> None:
        """Unregister ``file`` because it was closed or deleted."""
        with self._lock:
            self._files.pop(file, None)


#: Files of consume queues and their ext files, of all stores of the process. Files that dispatch
#: appends to, or that messages and views in use refer to, are not counted.
QUEUE_MAPPINGS = MappingCache(16_384)
