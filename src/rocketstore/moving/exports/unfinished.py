"""The folder beside a store while messages are put into it: who puts them, and how far it is."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from rocketstore import formats
from rocketstore.config import MessageStoreConfig
from rocketstore.directory.lock import StoreLock
from rocketstore.files.durable import sync_directory
from rocketstore.mending.journal import JOURNAL_FILE, Journal
from rocketstore.status import FlushDiskType
from rocketstore.store.default_message_store import DefaultMessageStore
from rocketstore.store.default_message_store import open as open_store

#: Appended to the folder's name when everything is stored, until it is deleted.
_OVER_SUFFIX = "-over"


class Unfinished:
    """The folder; while it exists, not everything is known to be stored.

    Parameters
    ----------
    store : Path
        The store's root, which may not exist; its parent does.
    suffix : str
        Appended to the store's name.

    Attributes
    ----------
    work : Path
    """

    def __init__(self, store: Path, suffix: str) -> None:
        self.work = store.with_name(store.name + suffix)
        self._over = store.with_name(store.name + suffix + _OVER_SUFFIX)

    @contextlib.contextmanager
    def held(self) -> Iterator[Journal]:
        """Yield the journal, under a lock; remove the folder at the end, unless it is needed.

        It is needed after a line ``begun`` and before a line ``finished``. It goes in one step: a
        killed call has either left the line ``finished``, or no folder.

        Raises
        ------
        FileNotFoundError
            The store's parent does not exist.
        StoreLockedError
            Another call puts messages.
        """
        if not self.work.parent.is_dir():
            raise FileNotFoundError(2, "there is no such folder", str(self.work.parent))
        os.makedirs(self.work, exist_ok=True)
        lock = StoreLock(self.work)
        try:
            yield Journal(self.work)
        finally:
            try:
                self._end()
            finally:
                lock.release()

    def _end(self) -> None:
        """Remove the folder, unless it is needed."""
        journal = Journal(self.work)
        if journal.has("begun") and not journal.has("finished"):
            return
        _discard(self._over)
        os.rename(self.work, self._over)
        sync_directory(self.work.parent)
        _discard(self._over)


def _discard(folder: Path) -> None:
    for name in (formats.LOCK_FILE, JOURNAL_FILE):
        (folder / name).unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):
        folder.rmdir()


def open_to_put(path: Path, config: MessageStoreConfig) -> DefaultMessageStore:
    """Open, or create, a store that gets the messages of another one.

    Nothing but those is added or deleted meanwhile: a broker's file may say that delayed messages
    are delivered and expired files deleted. Puts need not wait for a sync, because a mark syncs.
    """
    settings = config.replace(
        schedule_message_enable=False,
        clean_resource_enable=False,
        flush_disk_type=FlushDiskType.ASYNC_FLUSH,
    )
    return open_store(path, "a", config=settings)
