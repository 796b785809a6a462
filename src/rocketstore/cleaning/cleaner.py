"""Delete expired files: the log's first segments, then the files that only they needed."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from rocketstore.cleaning.plan import (
    CleanReport,
    DueSegment,
    Retention,
    SegmentAges,
    due_segments,
    expired_ext_files,
    expired_index_files,
    expired_queue_files,
)
from rocketstore.errors import StoreFullError
from rocketstore.files.durable import PASSING_ERRORS, is_interrupt, sync_directory
from rocketstore.files.mapped_file import MappedFile
from rocketstore.index.index_service import IndexService
from rocketstore.lock_order import ReentrantLock
from rocketstore.log.commit_log import CommitLog
from rocketstore.queues.consume_queue import ConsumeQueue

_log = logging.getLogger(__name__)

#: Called between two deletions; returns False to stop.
Pause = Callable[[], bool]


class StoreToClean(Protocol):
    """What the cleaner needs of a store that is open for writing."""

    @property
    def log(self) -> CommitLog:
        """Return the commit log."""

    @property
    def index(self) -> IndexService:
        """Return the index files."""

    @property
    def queues(self) -> Iterable[ConsumeQueue]:
        """Return all consume queues."""

    def expirable_end(self) -> int:
        """Return the offset up to which log, queues and index are on disk."""

    def settle_before_deleting(self, offset: int) -> None:
        """Write state and checkpoint so that they fit a log that begins at ``offset``.

        Raises ``StoreFullError``.
        """

    def is_settled(self, offset: int) -> bool:
        """Return whether state and checkpoint fit a log that begins at ``offset``."""

    def settle_after_deleting(self) -> None:
        """Record deleted queue and index files in state and checkpoint."""

    def dispatch_paused(self) -> contextlib.AbstractContextManager[None]:
        """Pause dispatch, so that queues and index do not change."""

    def correct_min_index(self, queue: ConsumeQueue) -> None:
        """Set the queue's beginning to its first message that the log still has."""

    def fail(self, error: BaseException) -> None:
        """Mark the state on disk as unknown; later puts fail."""


class StoreCleaner:
    """Delete expired files without disturbing readers.

    A kill or power failure at any moment leaves a valid store, because of the order of steps.
    First, state and checkpoint are written without what will be deleted. Then the segments are
    deleted one by one, each with a sync of the directory. Then the queues' beginnings are moved
    and their files deleted, then index files. Finally the state is written again.

    Parameters
    ----------
    store : StoreToClean

    Attributes
    ----------
    failures : dict of Path to str
        Files that could not be deleted, and why.

    Notes
    -----
    Threading: any thread; one run at a time. Source: RocketMQ ``store/DefaultMessageStore.java``
    ``CleanCommitLogService`` and ``CleanConsumeQueueService``.
    """

    def __init__(self, store: StoreToClean) -> None:
        self.lock = ReentrantLock()
        self.failures: dict[Path, str] = {}
        self.ages = SegmentAges(store.log)
        self._store = store
        self._cleaned_offset = -1  # guarded by: lock

    # --- the log ------------------------------------------------------------------------------

    def clean_log(self, rule: Retention, pause: Pause = lambda: True) -> tuple[int, str]:
        """Delete the segments that ``rule`` selects; return their number and why it stopped.

        ``pause`` is called between two of them; other threads may clean meanwhile.
        """
        with self.lock:
            planned, kept = due_segments(self._store.log, self.ages, rule)
            due = self._settled(planned)
        for number, one in enumerate(due):
            if number and not pause():
                return number, "the store is being closed"
            with self.lock:
                if one.file not in self._store.log.queue.files[:1]:
                    return number, "another thread is cleaning this store"
                if not self._delete(self._store.log, one.file):
                    return number, f"{one.file.path.name} could not be deleted"
                self.ages.forget_before(self._store.log.min_offset)
            _log.info("deleted %s: %s", one.file.path, one.reason)
        return len(due), kept

    def _settled(self, due: Sequence[DueSegment]) -> Sequence[DueSegment]:
        """Return the segments of ``due`` that state and checkpoint on disk allow to delete.

        On a full disk they cannot be rewritten. Segments that they already allowed are deleted all
        the same, which makes room.
        """
        if not due:
            return due
        try:
            self._store.settle_before_deleting(due[-1].file.end_offset)
        except StoreFullError:
            while due and not self._store.is_settled(due[-1].file.end_offset):
                due = due[:-1]
        return due

    def _delete(self, owner: Any, file: MappedFile) -> bool:
        """Delete one file durably; return whether it worked, and note a failure."""
        try:
            owner.delete_first([file])
        except OSError as error:
            self._note(file.path, error)
            return False
        self.failures.pop(file.path, None)
        return True

    def _note(self, path: Path, error: OSError) -> None:
        """Note a file that could not be deleted, to retry it later.

        If the file was deleted but its directory could not be synced, the names on disk are
        unknown. Then the store stops writing, and ``OSError`` is raised.
        """
        _log.warning("%s could not be deleted: %s", path, error)
        if path.exists():
            self.failures[path] = str(error)
        elif error.errno not in PASSING_ERRORS and not is_interrupt(error):
            self._store.fail(error)
            raise error

    # --- queues and index ---------------------------------------------------------------------

    def clean_followers(self, pause: Pause = lambda: True) -> int:
        """Delete queue, ext and index files that only expired segments needed; return how many.

        Do nothing if the log's beginning has not moved since the last call. ``pause`` is called
        after each queue that lost files; other threads may clean meanwhile.
        """
        with self.lock:
            minimum, failed = self._store.log.min_offset, len(self.failures)
            if minimum <= self._cleaned_offset:
                return 0
        count = 0
        for queue in self._store.queues:
            with self.lock:
                deleted = self._clean_queue(queue, minimum)
            count += deleted
            if deleted and not pause():
                return count
        with self.lock:
            count += self._clean_index(minimum)
            if count:
                with contextlib.suppress(StoreFullError):  # the next thorough flush records it
                    self._store.settle_after_deleting()
            if len(self.failures) <= failed:
                self._cleaned_offset = max(minimum, self._cleaned_offset)
        return count

    def _clean_queue(self, queue: ConsumeQueue, minimum: int) -> int:
        # Move the queue's beginning first, so that no reader is sent to a deleted file.
        with self._store.dispatch_paused():
            self._store.correct_min_index(queue)
        gone = expired_queue_files(queue, minimum)
        unused = expired_ext_files(queue, gone)
        recent = queue.recent
        if gone and recent is not None and recent[1] < queue.min_index:
            queue.recent = None  # it would hold the space of a deleted file
        count = self._delete_row(queue.queue, gone)
        if queue.ext is not None and count == len(gone):
            count += self._delete_row(queue.ext.queue, unused)
        return count

    def _delete_row(self, owner: Any, files: Sequence[MappedFile]) -> int:
        for number, file in enumerate(files):
            if not self._delete(owner, file):
                return number
        return len(files)

    def _clean_index(self, minimum: int) -> int:
        index = self._store.index
        for number, file in enumerate(expired := expired_index_files(index, minimum)):
            assert isinstance(file.file, MappedFile)
            try:
                file.file.delete()
                with self._store.dispatch_paused():
                    index.remove([file])
                sync_directory(index.directory)
            except OSError as error:
                self._note(file.path, error)
                return number
            self.failures.pop(file.path, None)
        return len(expired)

    # --- the report ---------------------------------------------------------------------------

    def run(self, rule: Retention, report: CleanReport) -> None:
        """Delete the files that ``report`` plans; drop those from it that could not be deleted."""
        with self.lock:
            _, kept = self.clean_log(rule)
            self.clean_followers()
            report.min_offset = self._store.log.min_offset
            report.files = [file for file in report.files if not Path(file.path).exists()]
            report.failures = [f"{path}: {why}" for path, why in sorted(self.failures.items())]
            report.kept = kept
            report.what_if = False
