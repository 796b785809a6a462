"""Deleting what has expired: the log's first segments, then what only they needed."""

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
from rocketstore.files.durable import PASSING_ERRORS, sync_directory
from rocketstore.files.mapped_file import MappedFile
from rocketstore.index.index_service import IndexService
from rocketstore.lock_order import ReentrantLock
from rocketstore.log.commit_log import CommitLog
from rocketstore.queues.consume_queue import ConsumeQueue

_log = logging.getLogger(__name__)

#: Called between two deletions; False when no more are wanted.
Pause = Callable[[], bool]


class StoreToClean(Protocol):
    """What the cleaner needs of a store that is written."""

    @property
    def log(self) -> CommitLog:
        """The commit log."""

    @property
    def index(self) -> IndexService:
        """All index files."""

    @property
    def queues(self) -> Iterable[ConsumeQueue]:
        """All consume queues."""

    def expirable_end(self) -> int:
        """Log offset up to which everything is on disk, in the log, the queues and the index."""

    def settle_before_deleting(self, offset: int) -> None:
        """Make state and checkpoint true of a log that begins at ``offset``. Raises
        ``StoreFullError``."""

    def is_settled(self, offset: int) -> bool:
        """Whether state and checkpoint are true of a log that begins at ``offset``."""

    def settle_after_deleting(self) -> None:
        """Tell state and checkpoint of queue and index files that are gone."""

    def dispatch_paused(self) -> contextlib.AbstractContextManager[None]:
        """Keep queues and index as they are for a moment."""

    def correct_min_index(self, queue: ConsumeQueue) -> None:
        """Let the queue begin at its first message that the log still has."""

    def fail(self, error: BaseException) -> None:
        """Take it that nothing is known any more of what is on disk."""


class StoreCleaner:
    """Deletes expired files so that a kill or a power cut at any moment leaves a good store, and
    that readers of what goes are not disturbed.

    The order is: state and checkpoint name nothing that will go, the segments go one after the
    other, each with its directory synced; then the queues begin later, and lose their files; then
    the index; then the state tells of it.

    Parameters
    ----------
    store : StoreToClean

    Attributes
    ----------
    failures : dict of Path to str
        Files that could not be deleted, and why.

    Notes
    -----
    Threading: any; one run at a time. Source: RocketMQ ``store/DefaultMessageStore.java``
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
        """Delete the segments that go by ``rule``; return how many did, and why no more.

        ``pause`` is called between two of them; others may clean meanwhile.
        """
        with self.lock:
            planned, kept = due_segments(self._store.log, self.ages, rule)
            due = self._settled(planned)
        for number, one in enumerate(due):
            if number and not pause():
                return number, "the store is being closed"
            with self.lock:
                if one.file not in self._store.log.queue.files[:1]:
                    return number, "others clean this store, too"
                if not self._delete(self._store.log, one.file):
                    return number, f"{one.file.path.name} could not be deleted"
                self.ages.forget_before(self._store.log.min_offset)
            _log.info("deleted %s: %s", one.file.path, one.reason)
        return len(due), kept

    def _settled(self, due: Sequence[DueSegment]) -> Sequence[DueSegment]:
        """As many of ``due`` as state and checkpoint on disk allow to go.

        On a full disk they cannot be written anew; what they allowed before can go all the same,
        and makes room.
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
        """Delete one file durably; note it when that fails, and return False."""
        try:
            owner.delete_first([file])
        except OSError as error:
            self._note(file.path, error)
            return False
        self.failures.pop(file.path, None)
        return True

    def _note(self, path: Path, error: OSError) -> None:
        """Note a file that could not be deleted, to be tried again.

        One that was, in a directory that cannot be synced, ends the store's writing: nobody knows
        which names are on disk. Raises ``OSError`` then.
        """
        _log.warning("%s could not be deleted: %s", path, error)
        if path.exists():
            self.failures[path] = str(error)
        elif error.errno not in PASSING_ERRORS:
            self._store.fail(error)
            raise error

    # --- queues and index ---------------------------------------------------------------------

    def clean_followers(self, pause: Pause = lambda: True) -> int:
        """Delete queue, ext and index files that only expired segments needed; return how many.

        Nothing when the log begins where it did the last time. ``pause`` is called behind each
        queue that lost files; others may clean meanwhile.
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
                with contextlib.suppress(StoreFullError):  # the next thorough flush tells of it
                    self._store.settle_after_deleting()
            if len(self.failures) <= failed:
                self._cleaned_offset = max(minimum, self._cleaned_offset)
        return count

    def _clean_queue(self, queue: ConsumeQueue, minimum: int) -> int:
        # The queue begins later first, so that nobody is sent to a file that goes.
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

    # --- telling ------------------------------------------------------------------------------

    def run(self, rule: Retention, report: CleanReport) -> None:
        """Delete what ``report`` plans; what could not be deleted is taken off it."""
        with self.lock:
            _, kept = self.clean_log(rule)
            self.clean_followers()
            report.min_offset = self._store.log.min_offset
            report.files = [file for file in report.files if not Path(file.path).exists()]
            report.failures = [f"{path}: {why}" for path, why in sorted(self.failures.items())]
            report.kept = kept
            report.what_if = False
