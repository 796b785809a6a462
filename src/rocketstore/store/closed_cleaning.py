"""Deletes expired files from a store that cannot be opened for writing: its disk is full."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable

from rocketstore import formats
from rocketstore.cleaning.cleaner import StoreCleaner
from rocketstore.cleaning.plan import CleanReport, Retention, due_segments, plan
from rocketstore.config import MessageStoreConfig
from rocketstore.directory.lock import StoreLock
from rocketstore.directory.paths import StorePaths
from rocketstore.files.disk_space import SpaceWatch
from rocketstore.files.durable import naming, sync_descriptor
from rocketstore.index.index_service import IndexService
from rocketstore.log.commit_log import CommitLog
from rocketstore.query.store_reader import StoreReader
from rocketstore.queues.consume_queue import ConsumeQueue
from rocketstore.queues.queue_table import QueueTable
from rocketstore.store.fit_for_writing import refuse_unfit
from rocketstore.store.marks import has_all_queues
from rocketstore.store.read_only import ReadOnlyParts

#: Transaction types of records that are in no queue.
_UNQUEUED = (formats.SYS_FLAG_TRANSACTION_PREPARED, formats.SYS_FLAG_TRANSACTION_ROLLBACK)


def clean_closed_store(
    paths: StorePaths, config: MessageStoreConfig, *, clock: Callable[[], int]
) -> CleanReport:
    """Delete whole expired files under the store's lock, without writing anything.

    Opening for writing needs disk space, at least for ``abort``, which a full disk does not have.
    State file and checkpoint stay as they are: only segments are deleted whose deletion leaves both
    valid. ``abort`` is not touched.

    Parameters
    ----------
    paths : StorePaths
    config : MessageStoreConfig
    clock : callable
        Epoch ms.

    Returns
    -------
    CleanReport

    Raises
    ------
    StoreLockedError
        Another process writes the store.
    CorruptionError, MappedFileError, OSError
        The log is corrupt, or cannot be read.
    """
    lock = StoreLock(paths.root)
    try:
        refuse_unfit(paths, config)
        with contextlib.closing(
            ReadOnlyParts(paths, config, derive="none", as_files=True, clock=clock, progress=None)
        ) as parts:
            if parts.report.damaged:
                raise parts.report.damaged[0].refusal()
            store = ClosedStore(parts)
            return store.clean(config, clock())
    finally:
        lock.release()


class ClosedStore:
    """What the cleaner needs from a store that is not open; see ``StoreToClean``."""

    def __init__(self, parts: ReadOnlyParts) -> None:
        self.log: CommitLog = parts.log
        self.index: IndexService = parts.index
        self.queues: QueueTable = parts.queues
        self._parts = parts
        self._limit: int | None = None

    def clean(self, config: MessageStoreConfig, now: int) -> CleanReport:
        """Delete the files that have expired at ``now`` (epoch ms)."""
        parts, paths = self._parts, self._parts.paths
        watch = SpaceWatch(paths.log_folders, paths.consume_queue, config, parts.dialect, lambda: 0)
        space = watch.judge()
        rule = Retention(
            now=now,
            reserved_ms=config.file_reserved_time * 3_600_000,
            at_once=config.clean_file_forcibly_enable and space.cleans_at_once,
            limit_offset=self.expirable_end(),
            most_at_once=max(1, config.delete_file_batch_max),
        )
        cleaner = StoreCleaner(self)
        due, _ = due_segments(self.log, cleaner.ages, rule)
        if due and not self._state_is_true():
            self._limit = self._proven_end(due[-1].file.end_offset, config)
            rule = dataclasses.replace(rule, limit_offset=self._limit)
        report = plan(self.log, self.queues, self.index, cleaner.ages, rule)
        report.used_ratio = space.log_ratio
        cleaner.run(rule, report)
        return report

    def expirable_end(self) -> int:
        """Return the log offset up to which segments may be deleted.

        Queues are on disk up to it, and state file and checkpoint stay valid for a log that starts
        there.
        """
        if self._limit is None:
            facts = self._parts.facts
            state = facts.valid_state
            if state is not None:
                limit = min(state.dispatched_offset, self.log.max_offset)
            else:
                limit = self.log.max_offset - self._parts.behind_nbytes
            place = facts.checkpoint.logics_physical_offset
            self._limit = min(limit, place) if place > 0 else limit
        return self._limit

    def _state_is_true(self) -> bool:
        """Return whether a valid state file matches the queue files.

        It does not match if a queue's files were deleted after it was written.
        """
        state, log = self._parts.facts.valid_state, self.log
        if state is None:
            return False
        log_start, last = max(log.min_offset, 0), log.queue.last()
        end = last.file_from_offset + last.file_size if last is not None else 0
        for queue in self.queues:
            queue.recover(min(log.max_offset, max(state.dispatched_offset, log_start)), whole=False)
        is_true = has_all_queues(state, self.queues, log_start)
        for queue in self.queues:
            queue.recover(end, whole=False)
        return is_true

    def _proven_end(self, end: int, config: MessageStoreConfig) -> int:
        """Return the log offset, at most ``end``, up to which every queue has its units on disk.

        This is for stores without a usable state file: a broker's own store, or one that crashed or
        lost queue files. One queue may then lack units although a later one has them. The units
        must not be lost: they alone hold the next queue offset of a queue whose messages have all
        expired.
        """
        self._sync_queues()
        parts = self._parts
        reader = StoreReader(self.log, self.queues, self.index, config, parts.dialect)
        for message in reader.scan(max(self.log.min_offset, 0), end, "stop"):
            if message.sys_flag & formats.SYS_FLAG_TRANSACTION_MASK in _UNQUEUED:
                continue
            queue = self.queues.get(message.topic, message.queue_id)
            named = formats.PROPERTY_INNER_MULTI_DISPATCH in message.properties
            if named and parts.facts.aborted:
                return message.physical_offset  # its other queues are not checked here
            if queue is None or queue.max_index <= message.queue_offset:
                return message.physical_offset
        return end

    def _sync_queues(self) -> None:
        """Sync the queue files."""
        for queue in self.queues:
            rows = [queue.queue] if queue.ext is None else [queue.queue, queue.ext.queue]
            for path in (file.path for row in rows for file in row.files):
                descriptor = os.open(path, os.O_RDONLY)
                try:
                    with naming(path):
                        sync_descriptor(descriptor)
                finally:
                    os.close(descriptor)

    # --- calls of the cleaner -----------------------------------------------------------------

    def settle_before_deleting(self, offset: int) -> None:
        """Do nothing: state file and checkpoint are valid for a log that starts at ``offset``."""

    def is_settled(self, offset: int) -> bool:
        """See ``StoreToClean``."""
        return offset <= self.expirable_end()

    def settle_after_deleting(self) -> None:
        """Do nothing: the next opening detects which queue and index files are gone."""

    def dispatch_paused(self) -> contextlib.AbstractContextManager[None]:
        """Return an empty context: a closed store has no dispatch to pause."""
        return contextlib.nullcontext()

    def correct_min_index(self, queue: ConsumeQueue) -> None:
        """See ``StoreToClean``."""
        queue.correct_min_index(
            self.log.min_offset, keep_when_empty=self._parts.dialect.empty_queue_keeps_min
        )

    def fail(self, error: BaseException) -> None:
        """Do nothing: the cleaner raises ``error`` itself, and no service is running."""
