"""The cleanup of a store open for writing: its services, and what it needs from the writer."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterator
from typing import Protocol

from rocketstore import kernels
from rocketstore.cleaning.clean_service import CleanCommitLogService, CleanConsumeQueueService
from rocketstore.cleaning.cleaner import StoreCleaner
from rocketstore.cleaning.plan import CleanReport, plan
from rocketstore.config import MessageStoreConfig
from rocketstore.dialect import Dialect
from rocketstore.directory.paths import StorePaths
from rocketstore.dispatch.dispatcher import CommitLogDispatcher
from rocketstore.dispatch.reput_service import ReputMessageService
from rocketstore.errors import ReentrantCallError
from rocketstore.files.disk_space import SpaceWatch
from rocketstore.flush.flush import FlushedLog
from rocketstore.index.index_service import IndexService
from rocketstore.lock_order import LockRank
from rocketstore.log.writable_commit_log import WritableCommitLog
from rocketstore.queues.consume_queue import ConsumeQueue
from rocketstore.queues.queue_table import QueueTable
from rocketstore.services.service_thread import ServiceThread
from rocketstore.services.waiting import refuse_interrupted
from rocketstore.status import PutMessageStatus
from rocketstore.store.marks import StoreMarks


class CleanedWriter(Protocol):
    """The calls that cleaning makes on the writer."""

    marks: StoreMarks

    def flush_thoroughly(self) -> None:
        """Sync log, queues and index, then write state file and checkpoint."""

    def fail(self, error: BaseException) -> None:
        """Accept no puts from now on."""


class StoreCleaning:
    """Owns the cleaner and the cleaning services of a ``StoreWriter``.

    Attributes
    ----------
    log_service : CleanCommitLogService
    queue_service : CleanConsumeQueueService
    services : list of ServiceThread
        The services that run on threads: both with ``clean_resource_enable``, otherwise empty.

    Notes
    -----
    Threading: any.
    """

    def __init__(
        self,
        log: WritableCommitLog,
        queues: QueueTable,
        index: IndexService,
        config: MessageStoreConfig,
        paths: StorePaths,
        dialect: Dialect,
        clock: Callable[[], int],
        flushed: FlushedLog,
        dispatcher: CommitLogDispatcher,
        reput: ReputMessageService,
        writer: CleanedWriter,
    ) -> None:
        self.log = log
        self.index = index
        self.queues = queues
        self.is_disk_full = False  # guarded by: _refusal_lock
        self._dialect = dialect
        self._is_slave = config.broker_role == "SLAVE"
        self._flushed = flushed
        self._dispatcher = dispatcher
        self._reput = reput
        self._writer = writer
        self._closing = False  # guarded by: _refusal_lock
        self._refusal_lock = kernels.locks.OrderedLock(LockRank.WAITING)
        self.cleaner = StoreCleaner(self)
        watch = SpaceWatch(
            paths.log_folders, paths.consume_queue, config, dialect, self._own_nbytes
        )
        self.log_service = CleanCommitLogService(
            self.cleaner,
            watch,
            config,
            clock,
            self.expirable_end,
            self._set_disk_full,
            writer.fail,
        )
        self.queue_service = CleanConsumeQueueService(self.cleaner, config, writer.fail)
        services: list[ServiceThread] = [self.log_service, self.queue_service]
        self.services = services if config.clean_resource_enable else []

    def clean(self, *, what_if: bool) -> CleanReport:
        """Delete expired files now, at any hour; with ``what_if`` only report them."""
        with self.nothing_else_deleted():
            space = self.log_service.watch.judge()
            rule = self.log_service.rule(space)
            report = plan(self.log, self.queues, self.index, self.cleaner.ages, rule)
            report.used_ratio = space.log_ratio
            if not what_if:
                self.cleaner.run(rule, report)
            return report

    @property
    def is_cleaning_here(self) -> bool:
        """Whether this thread was interrupted while it held the cleaner's lock."""
        return bool(self.cleaner.lock._is_owned())  # type: ignore[attr-defined]

    @contextlib.contextmanager
    def nothing_else_deleted(self) -> Iterator[None]:
        """Keep other threads from deleting files.

        Raises ``BlockingIOError`` in an arriving listener while another thread deletes files. That
        thread may wait for dispatch, and dispatch waits for the listener.
        """
        if self.is_cleaning_here:
            raise ReentrantCallError()
        refuse_interrupted()
        lock = self.cleaner.lock
        if not lock.acquire(blocking=not self._reput.is_held_here):
            raise BlockingIOError(
                errno.EAGAIN,
                "another thread is deleting files and may wait for this arriving listener; retry "
                "later, or from another thread",
            )
        try:
            yield
        finally:
            lock.release()

    # --- calls of the cleaner -----------------------------------------------------------------

    def expirable_end(self) -> int:
        """See ``StoreToClean``."""
        return min(self._flushed.offset, self._dispatcher.reput_offset)

    def is_settled(self, offset: int) -> bool:
        """See ``StoreToClean``."""
        return self._writer.marks.covers(offset)

    def settle_before_deleting(self, offset: int) -> None:
        """See ``StoreToClean``."""
        marks = self._writer.marks
        if not marks.covers(offset):
            marks.expired_before = offset
            self._writer.flush_thoroughly()

    def settle_after_deleting(self) -> None:
        """See ``StoreToClean``."""
        self._writer.flush_thoroughly()

    def dispatch_paused(self) -> contextlib.AbstractContextManager[None]:
        """See ``StoreToClean``."""
        return self._reput.paused()

    def correct_min_index(self, queue: ConsumeQueue) -> None:
        """See ``StoreToClean``."""
        queue.correct_min_index(
            self.log.min_offset, keep_when_empty=self._dialect.empty_queue_keeps_min
        )

    def fail(self, error: BaseException) -> None:
        """See ``StoreToClean``."""
        self._writer.fail(error)

    def _own_nbytes(self) -> int:
        """Return the total size of all segments, queue files and index files."""
        rows = [self.log.queue, *(queue.queue for queue in self.queues)]
        of_rows = sum(file.file_size for row in rows for file in row.files)
        return of_rows + sum(file.file.file_size for file in self.index.files)

    # --- refusing puts ------------------------------------------------------------------------

    def _set_disk_full(self, full: bool) -> None:
        with self._refusal_lock:
            if full == self.is_disk_full or self._closing:
                return
            self.is_disk_full = full
            if not self._is_slave:
                status = PutMessageStatus.SERVICE_NOT_AVAILABLE if full else None
                self.log.appender.refuse(status)

    def refuse_for_good(self) -> None:
        """Refuse puts from now on: the store is being closed."""
        with self._refusal_lock:
            self._closing = True
            self.log.appender.refuse(PutMessageStatus.SERVICE_NOT_AVAILABLE)
