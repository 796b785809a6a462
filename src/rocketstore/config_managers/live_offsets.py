"""The one owner of ``consumerOffset.json`` in a store that is open for writing."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from rocketstore import kernels
from rocketstore.config_managers.managers import ConsumerOffsetManager
from rocketstore.errors import ReentrantCallError
from rocketstore.lock_order import LockRank, ReentrantLock

#: (topic, queue id): next queue offset to consume.
Offsets = Mapping[tuple[str, int], int]
#: What shows that a file was replaced.
_Version = tuple[int, int, int] | None


class LiveConsumerOffsets:
    """What consumer groups and transactions commit while a store is written.

    Changes are in memory until ``persist`` writes them. It reads the file again before, so that
    entries of groups that are not consumed here are kept as they are in the file then.

    Parameters
    ----------
    root : Path
        The store's root.
    clock : callable
        Epoch ms, for the file's version.
    has_version : bool
        Write the version, as 5.x does.

    Notes
    -----
    Threading: any thread.
    """

    def __init__(self, root: Path, clock: Callable[[], int], *, has_version: bool = True) -> None:
        self._root = root
        self._clock = clock
        self._has_version = has_version
        self._lock = kernels.locks.OrderedLock(LockRank.LEAF)
        #: Held while changes become durable: an older state must not replace a newer one.
        self._persisting = ReentrantLock()
        self._writing = kernels.locks.OrderedLock(LockRank.FILE)
        self._changes: dict[tuple[str, str, int], int] = {}  # guarded by: _lock
        self._read: tuple[_Version, ConsumerOffsetManager] | None = None  # guarded by: _writing

    @property
    def has_changes(self) -> bool:
        """Whether there is something to persist."""
        return bool(self._changes)

    def commit_offset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Keep the next offset to consume, even if it is smaller than before."""
        known = self.query_offset(group, topic, queue_id)
        if known != offset:
            with self._lock:
                self._changes[group, topic, queue_id] = offset

    def query_offset(self, group: str, topic: str, queue_id: int) -> int:
        """Return the next offset to consume, -1 if none was committed.

        Raises ``CorruptionError`` if the file and its backup are damaged.
        """
        changed = self._changes.get((group, topic, queue_id))
        if changed is not None:
            return changed
        with self._writing:
            return self._table().query_offset(group, topic, queue_id)

    def all_offsets(self) -> dict[str, dict[tuple[str, int], int]]:
        """Return what every group has committed, by group and (topic, queue id)."""
        with self._writing:
            found = offsets_by_group(self._table())
        for (group, topic, queue_id), offset in list(self._changes.items()):
            found.setdefault(group, {})[topic, queue_id] = offset
        return found

    def persist(self, before: Callable[[], object] = lambda: None) -> bool:
        """Write the changes durably; return whether there were any.

        Parameters
        ----------
        before : callable
            Called before the file is written, if it is: makes durable what the changes stand for.

        Raises
        ------
        CorruptionError
            The file and its backup are damaged; nothing was changed.
        StoreFullError
            The disk is full; the file is unchanged, and the changes are kept.
        ReentrantCallError
            The call interrupted another one of the same thread.
        """
        if self._persisting._is_owned():  # type: ignore[attr-defined]
            raise ReentrantCallError()
        with self._persisting:
            with self._lock:
                changes = dict(self._changes)
            if not changes:
                return False
            before()
            with self._writing:
                self._write(changes)
            with self._lock:
                for key, offset in changes.items():
                    if self._changes.get(key) == offset:
                        del self._changes[key]
        return True

    def _write(self, changes: Mapping[tuple[str, str, int], int]) -> None:
        manager = self._table()
        self._read = None
        for (group, topic, queue_id), offset in changes.items():
            manager.commit_offset(group, topic, queue_id, offset)
        manager.data_version.next_version(self._clock())
        manager.persist()
        self._read = self._version(), manager

    def _table(self) -> ConsumerOffsetManager:
        """Return the file's content; the caller holds ``_writing``."""
        version = self._version()
        if self._read is None or self._read[0] != version:
            manager = ConsumerOffsetManager(self._root, clock=self._clock)
            manager.has_version = self._has_version
            manager.load()
            self._read = version, manager
        return self._read[1]

    def _version(self) -> _Version:
        path = ConsumerOffsetManager(self._root).config_file_path
        try:
            found = os.stat(path)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


class StoredConsumerOffsets:
    """What is committed in a store that is only read; commits stay in memory.

    Notes
    -----
    Threading: any thread.
    """

    has_changes = False

    def __init__(self, root: Path) -> None:
        self._root = root

    def commit_offset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Do nothing: the positions are those of the consumer."""

    def query_offset(self, group: str, topic: str, queue_id: int) -> int:
        """Return the next offset to consume, -1 if none was committed.

        Raises ``CorruptionError`` if the file and its backup are damaged.
        """
        return self._load().query_offset(group, topic, queue_id)

    def all_offsets(self) -> dict[str, dict[tuple[str, int], int]]:
        """Return what every group has committed, by group and (topic, queue id)."""
        return offsets_by_group(self._load())

    def persist(self, before: Callable[[], object] = lambda: None) -> bool:
        """Do nothing."""
        return False

    def _load(self) -> ConsumerOffsetManager:
        manager = ConsumerOffsetManager(self._root)
        manager.load()
        return manager


def offsets_by_group(manager: ConsumerOffsetManager) -> dict[str, dict[tuple[str, int], int]]:
    """Return the offsets of a table by group and (topic, queue id)."""
    found: dict[str, dict[tuple[str, int], int]] = {}
    for topic, group, offsets in manager.entries():
        for queue_id, offset in offsets.items():
            found.setdefault(group, {})[topic, queue_id] = offset
    return found
