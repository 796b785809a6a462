"""Removes the files that an opening for writing created, if it fails before the first message."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable
from pathlib import Path

from rocketstore import formats
from rocketstore.directory.paths import StorePaths
from rocketstore.files.durable import sync_directory
from rocketstore.index.index_service import IndexService
from rocketstore.queues.consume_queue import ConsumeQueue
from rocketstore.queues.queue_table import QueueTable

#: Errors of an opening after which nothing is lost: no disk space, no permission, no descriptors.
#: After other errors (a failed sync) the marks of an unclean stop stay.
_REFUSALS = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS, errno.EFBIG),
    *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EEXIST, errno.ENOENT, errno.EINTR),
)


def is_refusal(error: BaseException) -> bool:
    """Return whether an opening that failed with ``error`` wrote nothing that may be lost."""
    return not isinstance(error, OSError) or error.errno in _REFUSALS


class OpeningUndo:
    """What existed before an opening changed anything.

    Undoing removes ``abort``, so that a cleanly closed store counts as clean again, and the new
    files of queues and index. Units and entries added to existing files stay: they match the log.
    """

    def __init__(self, paths: StorePaths) -> None:
        self._paths = paths
        self._folders = (
            paths.index,
            paths.consume_queue,
            paths.batch_consume_queue,
            paths.consume_queue_ext,
            paths.root / formats.QUARANTINE_DIR,
        )
        self._absent = [
            path
            for path in (paths.abort, paths.state, paths.checkpoint, *self._folders)
            if not os.path.lexists(path)
        ]
        self._index_names: frozenset[str] = frozenset()
        self._index: IndexService | None = None
        self._queues: QueueTable | None = None
        self._queue_names: frozenset[tuple[str, int]] = frozenset()
        with contextlib.suppress(OSError):
            self._index_names = frozenset(os.listdir(paths.index))

    def note_parts(self, queues: QueueTable, index: IndexService) -> None:
        """Record which queues exist; called right after they were loaded."""
        self._index = index
        self._queues = queues
        self._queue_names = frozenset(queues.table)

    def run(self) -> None:
        """Remove the created files, as far as the system allows. No file may be in use."""
        made = [] if self._index is None else [file.path for file in self._index.files]
        self._remove(path for path in made if path.name not in self._index_names)
        for queue in self._queues or ():
            ext = () if queue.ext is None else queue.ext.queue.created
            self._remove(file.path for file in (*queue.queue.created, *ext))
            if (queue.topic, queue.queue_id) not in self._queue_names:
                _remove_folders(queue)
        marks = (self._paths.abort, self._paths.state, self._paths.checkpoint)
        self._remove(path for path in marks if path in self._absent)
        for folder in self._folders:
            if folder in self._absent:
                _remove_empty(folder)
        with contextlib.suppress(OSError):
            sync_directory(self._paths.root)

    @staticmethod
    def _remove(paths: Iterable[Path]) -> None:
        for path in paths:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


def _remove_folders(queue: ConsumeQueue) -> None:
    ext = [] if queue.ext is None else [queue.ext.queue.directory]
    for folder in (queue.queue.directory, *ext):
        for path in (folder, folder.parent):
            with contextlib.suppress(OSError):
                path.rmdir()


def _remove_empty(folder: Path) -> None:
    """Remove a folder that holds only empty folders."""
    for path, _, _ in os.walk(folder, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(path)
