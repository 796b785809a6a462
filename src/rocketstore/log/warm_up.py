"""Warming up new segments: creating their pages before they are written and keeping them in
memory."""

from __future__ import annotations

import collections
from collections.abc import Callable

from rocketstore.config import MessageStoreConfig
from rocketstore.errors import StoreFullError
from rocketstore.files.mapped_file import MappedFile
from rocketstore.files.memory_lock import MemoryLock
from rocketstore.status import FlushDiskType

_PAGE_NBYTES = 4096


class LogWarmUp:
    """Fills new segments with zeros in steps, and locks them into memory until they are full.

    Parameters
    ----------
    config : MessageStoreConfig
    on_failure : callable
        Called if the zeros cannot be synced: the system reports such an error only once, and the
        segment may already be in use.

    Notes
    -----
    Threading: any thread may call ``add``, one thread calls ``step``. A put never waits for it,
    unlike in RocketMQ. Source: RocketMQ ``store/logfile/DefaultMappedFile.java``
    ``warmMappedFile``.
    """

    def __init__(
        self, config: MessageStoreConfig, on_failure: Callable[[BaseException], None]
    ) -> None:
        self._step_nbytes = config.flush_least_pages_when_warm_maped_file * _PAGE_NBYTES
        self._syncs = config.flush_disk_type == FlushDiskType.SYNC_FLUSH
        self._on_failure = on_failure
        self._memory_lock = MemoryLock()
        self._waiting: collections.deque[MappedFile] = collections.deque()
        self._position = 0
        self._locked: list[MappedFile] = []

    def add(self, file: MappedFile) -> None:
        """Queue a new segment for the next steps."""
        self._waiting.append(file)

    def step(self) -> bool:
        """Warm up the next pages; return whether there were any.

        Raises ``StoreFullError`` if the disk is full; the segment is then not warmed up further.
        """
        self._unlock_full()
        while self._waiting:
            file = self._waiting[0]
            if self._position < file.file_size and not file.is_full:
                self._warm(file)
                return True
            self._waiting.popleft()
            self._position = 0
            if not file.is_full:
                file.mapping.advise("willneed")
                if self._memory_lock.lock(file.mapping):
                    self._locked.append(file)
        return False

    def _warm(self, file: MappedFile) -> None:
        start = self._position
        stop = min(start + self._step_nbytes, file.file_size)
        try:
            file.allocate(stop, used=file.allocated_position)
        except StoreFullError:
            self._waiting.popleft()
            self._position = 0
            raise
        file.mapping.populate(start, stop - start)
        if self._syncs:
            try:
                file.mapping.sync(start, stop - start)
            except OSError as error:
                self._on_failure(error)
                raise
        self._position = stop

    def _unlock_full(self) -> None:
        for file in [file for file in self._locked if file.is_full]:
            self._locked.remove(file)
            file.mapping.unlock(0, file.file_size)
