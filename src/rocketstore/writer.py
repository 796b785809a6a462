"""A store open for writing: taking it over, its services, and leaving it in good order."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

from rocketstore import formats
from rocketstore.commit_log import CommitLog, WritableCommitLog, record_flags
from rocketstore.config import MessageStoreConfig
from rocketstore.consume_queue import ConsumeQueueTable
from rocketstore.dispatch import CommitLogDispatcher
from rocketstore.durable_file import (
    make_directories,
    remove_leftovers,
    sync_directory,
    write_file,
)
from rocketstore.index_recovery import IndexPosition, IndexRecovery
from rocketstore.index_service import IndexService
from rocketstore.log_cut import cut_tail, drop_cached_pages, sync_log
from rocketstore.mapped_file_queue import DirectoryListing, MappedFileQueue
from rocketstore.recovery import LogRecovery, Progress, recover_log
from rocketstore.services.allocate import AllocateService
from rocketstore.services.flush import (
    FlushConsumeQueueService,
    FlushedLog,
    FlushRealTimeService,
    GroupCommitService,
)
from rocketstore.services.reput import ArrivingListener, ReputMessageService, lag_limit_nbytes
from rocketstore.services.service_thread import ServiceThread
from rocketstore.status import FlushDiskType, KernelStatus, PutMessageStatus, RecordStatus
from rocketstore.store_checkpoint import StoreCheckpoint, signed_crc
from rocketstore.store_files import StoreFacts, StorePaths, examine
from rocketstore.store_lock import StoreLock
from rocketstore.store_state import StoreState

_log = logging.getLogger(__name__)


class StoreWriter:
    """Owns lock, log, queues, index and services of a store that is written.

    The order of opening is: lock, examine, scan the log, refuse damage, cut the torn tail, sync,
    write ``abort``, dispatch what is missing, accept puts. Nothing on disk changes before the log
    was found fit.
    """

    def __init__(
        self,
        paths: StorePaths,
        config: MessageStoreConfig,
        *,
        clock: Callable[[], int],
        put_clock: Callable[[], int] | None,
        listener: ArrivingListener | None,
        progress: Progress | None,
        start: bool,
    ) -> None:
        self.paths = paths
        self.clock = clock
        self.failure: BaseException | None = None
        self._progress = progress
        self._closed = False
        self._write_lock = threading.Lock()
        self._lock = StoreLock(paths.root)
        try:
            self._open(config, put_clock, listener)
        except BaseException:
            self._release_parts()
            self._lock.release()
            raise
        if start:
            for service in self.services:
                service.start()

    # --- opening ------------------------------------------------------------------------------

    def _open(
        self,
        config: MessageStoreConfig,
        put_clock: Callable[[], int] | None,
        listener: ArrivingListener | None,
    ) -> None:
        facts = examine(self.paths, config)
        self.facts = facts
        self.dialect = facts.dialect
        self.config = config
        unused = take_unused_segments(facts.listing)
        state = self._take_over_log(facts, unused)
        end = self.report.log_end
        self._write_abort()
        self._open_parts(facts, end, put_clock)
        self._first_state(state, end)
        self._dispatch_missing(state, end)
        self._make_services(listener)
        self.report.warn(self.paths.root)

    def _take_over_log(self, facts: StoreFacts, unused: list[Path]) -> StoreState | None:
        """Check the log, refuse what is damaged, cut what is torn; return the state as far as it is
        true."""
        log = self._load_log(facts, writable=False)
        try:
            recovery, state = self._recover_log(log, facts)
            self.report = report = recovery.report
            if report.damaged:
                raise report.damaged[0].error()
            self._lock.mark()
            remove_leftovers(self.paths.root)
            for path in unused:
                _log.warning("removed the empty segment %s", path)
                path.unlink()
            end = report.log_end
            root = self.paths.log_root
            report.cut = cut_tail(log, end, recovery.torn_reason, root, self.clock)
            sync_log(log, report.durable_mark, end)
        finally:
            log.close()
        return state

    def _load_log(self, facts: StoreFacts, *, writable: bool) -> CommitLog:
        queue = MappedFileQueue(
            self.paths.commit_log,
            facts.commit_log_file_size,
            self.paths.log_root,
            writable=writable,
        )
        queue.check(facts.listing)
        queue.load(facts.listing)
        return CommitLog(queue, 0, record_flags(self.config))

    def _recover_log(
        self, log: CommitLog, facts: StoreFacts
    ) -> tuple[LogRecovery, StoreState | None]:
        if facts.aborted:
            known = facts.valid_state
            drop_cached_pages(log, known.flushed_offset if known is not None else 0)
        recovery, state = recover_log(log, facts, self._progress, for_writing=True)
        report = recovery.report
        report.clean = not facts.aborted
        report.notes += facts.notes
        report.skipped += [str(path) for path in facts.listing.foreign]
        return recovery, state

    def _first_state(self, state: StoreState | None, end: int) -> None:
        """Without a true state file one is written before the first append: all of the log was just
        synced, and what was durable once must never look torn later."""
        self._checkpoint = self.facts.checkpoint
        self._checkpoint_crc = self.facts.checkpoint_crc
        byte_40 = self._checkpoint.logics_physical_offset
        if byte_40 >= end:
            self._checkpoint = self._checkpoint.replace(logics_physical_offset=0)
        if state is None:
            self._write_state(end, 0, 0, end, clean=False)

    def _write_abort(self) -> None:
        content = str(os.getpid()).encode() if self.dialect.abort_holds_pid else b""
        write_file(self.paths.abort, content)

    def _open_parts(self, facts: StoreFacts, end: int, put_clock: Callable[[], int] | None) -> None:
        config, root = self.config, self.paths.root
        queue = self._load_log(facts, writable=True).queue
        for file in queue.truncate_dirty_files(end):
            file.destroy()
        self.queues = ConsumeQueueTable(
            self.paths.consume_queue, facts.consume_queue_file_size, root, writable=True
        )
        self.queues.load()
        self.report.skipped += [str(path) for path in self.queues.skipped]
        self.index = IndexService(
            self.paths.index,
            *facts.index.pair,
            root,
            writable=True,
            zone=config.zone,
            clock=self.clock,
        )
        self.index.load(lambda _, nbytes: facts.index.by_nbytes.get(nbytes))
        self.report.skipped += [str(path) for path in self.index.skipped]
        is_sync = config.flush_disk_type == FlushDiskType.SYNC_FLUSH
        lag = lag_limit_nbytes(self.dialect.max_dispatch_lag_files, queue.file_size)
        self._max_lag_nbytes = lag
        self.log = WritableCommitLog(
            queue,
            end,
            record_flags(config),
            config,
            self.dialect,
            wait=self._wait if is_sync else None,
            clock=put_clock,
            before_roll=None if lag is None else self._let_dispatch_catch_up,
        )
        self.flushed = FlushedLog(self.log, facts.checkpoint.physic_timestamp)

    # --- dispatching what is missing ----------------------------------------------------------

    def _dispatch_missing(self, state: StoreState | None, end: int) -> None:
        """Bring queues and index up to the log's end; each from its own verified position
        (D-24)."""
        minimum = max(self.log.min_offset, 0)
        whole = state is None
        for queue in list(self.queues):
            status = queue.recover(end, whole=whole)
            if status == KernelStatus.BAD_UNIT:
                self.report.notes.append(
                    f"{queue.topic} queue {queue.queue_id}: units from {queue.recovered_index} on "
                    "are not good; they are made again from the log"
                )
            queue.clear_behind()
        index_recovery = IndexRecovery(self.index, self.log, self.dialect.index_tags)
        indexed = IndexPosition(end, 0)
        if self.config.message_index_enable:
            indexed = index_recovery.run(minimum, end)
        self.report.notes += index_recovery.notes
        start = minimum
        if state is not None and self._is_complete(state):
            start = max(minimum, min(state.dispatched_offset, indexed.offset, end))
        self._start_dispatcher(start, indexed)
        self._dispatch_all(end)
        if self.dispatcher.notes.gaps and start > minimum:
            # A queue lost units that lie in front of the start: make all of them again.
            self._restart_dispatcher(minimum, end)
        self._finish_dispatch(minimum)

    def _is_complete(self, state: StoreState) -> bool:
        """Whether no queue and no index file vanished since the state was written."""
        if len(self.index.files) < state.index_file_count:
            return False
        if state.clean:
            return self._queue_crc() == state.queue_crc
        return len(self.queues) >= state.queue_count

    def _queue_crc(self) -> int:
        lines = sorted(
            f"{queue.topic}\0{queue.queue_id}\0{queue.max_index}"
            for queue in self.queues
            if queue.max_index > 0
        )
        return signed_crc("\n".join(lines).encode("utf-8", "surrogateescape"))

    def _start_dispatcher(self, start: int, indexed: IndexPosition) -> None:
        index = self.index if self.config.message_index_enable else None
        self.dispatcher = CommitLogDispatcher(
            self.log,
            self.queues,
            index,
            index_tags=self.dialect.index_tags,
            delay_ms=self.config.delay_ms,
            start_offset=start,
            indexed=indexed,
        )

    def _restart_dispatcher(self, minimum: int, end: int) -> None:
        broken = {(topic, queue_id) for topic, queue_id, _, _ in self.dispatcher.notes.gaps}
        kernel = self.dispatcher.kernel
        indexed = IndexPosition(kernel.indexed_offset, kernel.indexed_keys)
        self.dispatcher.close()
        for topic, queue_id in broken:
            queue = self.queues.get(topic, queue_id)
            if queue is not None:
                queue.recovered_index, queue.recovered_end = 0, -1
                queue.clear_behind()
        self._start_dispatcher(minimum, indexed)
        self._dispatch_all(end)

    def _dispatch_all(self, end: int) -> None:
        """Dispatch up to ``end``. Raises ``CorruptMessageError`` for damage in a part of the log
        that was not checked."""
        status = self.dispatcher.dispatch_until(end)
        if status != RecordStatus.END:
            raise self.log.corruption(self.dispatcher.reput_offset, status)

    def _finish_dispatch(self, minimum: int) -> None:
        for queue in self.queues:
            queue.correct_min_index(minimum, keep_when_empty=self.dialect.empty_queue_keeps_min)
            self.log.appender.set_next_queue_offset(queue.topic, queue.queue_id, queue.max_index)
        notes = self.dispatcher.notes
        self.report.take_dispatch(notes.gaps, notes.refused)
        self.report.rebuilt_units = self.dispatcher.kernel.dispatched_count

    # --- services -----------------------------------------------------------------------------

    def _make_services(self, listener: ArrivingListener | None) -> None:
        config = self.config
        self.group_commit: GroupCommitService | None = None
        flush: ServiceThread
        if config.flush_disk_type == FlushDiskType.SYNC_FLUSH:
            flush = self.group_commit = GroupCommitService(
                self.flushed, lambda: self.log, config, self.fail
            )
        else:
            flush = FlushRealTimeService(self.flushed, lambda: self.log, config, self.fail)
        self.flush_log = flush
        self.reput = ReputMessageService(
            self.dispatcher, self._visible_end, self.log, listener, config.delay_ms, self.fail
        )
        self.flush_queues = FlushConsumeQueueService(
            self._flush_queues, self.flush_thoroughly, config, self.fail
        )
        self.allocate = AllocateService(self.log, self.fail)
        self.services = [self.allocate, flush, self.reput, self.flush_queues]
        if config.broker_role == "SLAVE":
            self.log.appender.refuse(PutMessageStatus.SERVICE_NOT_AVAILABLE)

    def _visible_end(self) -> int:
        """Dispatch never runs ahead of what SYNC_FLUSH promises."""
        return self.flushed.offset if self.group_commit is not None else self.log.max_offset

    def _wait(self, end_offset: int) -> int:
        assert self.group_commit is not None
        return self.group_commit.wait(end_offset)

    def _let_dispatch_catch_up(self) -> None:
        """A broker of 5.4 and later recovers the last ten files only; dispatch must not lag
        further."""
        lag = self._max_lag_nbytes
        if lag is not None and self.log.max_offset - self.dispatcher.reput_offset > lag:
            if self.group_commit is not None:
                self.flushed.flush()
            self.reput.wait_until(self.log.max_offset - lag, None)

    def fail(self, error: BaseException) -> None:
        """Stop accepting puts for good: a sync or a service failed."""
        if self.failure is None:
            self.failure = error
            self.log.appender.fail(error)
            if self.group_commit is not None:
                self.group_commit.abandon(error)

    # --- flushing -----------------------------------------------------------------------------

    def _flush_queues(self, least_pages: int) -> None:
        least_units = least_pages * 4096 // formats.CONSUME_QUEUE_UNIT.nbytes
        for queue in self.queues:
            if queue.max_index - queue.flushed_index >= least_units:
                queue.flush(queue.max_index)

    def flush_log_now(self) -> int:
        """Sync the log; a failure ends the store's writing."""
        try:
            return self.flushed.flush()
        except OSError as error:
            self.fail(error)
            raise

    def flush_thoroughly(self, *, clean: bool = False) -> None:
        """Sync log, queues, index, in this order, then write checkpoint and state."""
        with self._write_lock:
            dispatched = self.dispatcher.reput_offset
            indexed = self.dispatcher.indexed_offset
            logics = self.dispatcher.kernel.last_store_timestamp
            last_record = self.dispatcher.kernel.last_record_offset
            flushed = self.flush_log_now()
            try:
                for queue in self.queues:
                    queue.flush(queue.max_index)
                index_timestamp = self.index.flush()
            except OSError as error:
                self.fail(error)
                raise
            self._write_checkpoint(logics, last_record, index_timestamp)
            self._write_state(
                flushed,
                min(dispatched, flushed),
                min(indexed if self.config.message_index_enable else dispatched, flushed),
                self.log.max_offset,
                clean=clean and dispatched >= self.log.max_offset,
            )

    def _write_checkpoint(self, logics: int, last_record: int, index_timestamp: int) -> None:
        old = self._checkpoint
        nbytes = self.dialect.checkpoint_nbytes
        offset = old.logics_physical_offset
        if nbytes >= formats.CHECKPOINT.nbytes and logics:
            offset = last_record
        if offset < max(self.log.min_offset, 0) or offset >= self.log.max_offset:
            offset = 0
        confirm = old.confirm_physical_offset
        if nbytes > formats.CHECKPOINT.at("confirm_physical_offset") and logics:
            confirm = last_record
        self._checkpoint = StoreCheckpoint(
            physic_timestamp=self.flushed.physic_timestamp,
            logics_timestamp=logics or old.logics_timestamp,
            index_timestamp=max(index_timestamp, old.index_timestamp),
            master_flushed_offset=old.master_flushed_offset,
            confirm_physical_offset=confirm,
            logics_physical_offset=offset,
        )
        self._checkpoint_crc = self._checkpoint.write(self.paths.checkpoint)

    def _write_state(
        self, flushed: int, dispatched: int, indexed: int, log_end: int, *, clean: bool
    ) -> None:
        StoreState(
            flushed_offset=flushed,
            dispatched_offset=dispatched,
            indexed_offset=indexed,
            log_end_offset=log_end,
            commit_log_file_size=self.facts.commit_log_file_size,
            consume_queue_file_size=self.facts.consume_queue_file_size,
            hash_slot_num=self.facts.index.pair[0],
            index_num=self.facts.index.pair[1],
            clean=clean,
            queue_count=sum(queue.max_index > 0 for queue in self.queues),
            queue_crc=self._queue_crc(),
            index_file_count=len(self.index.files),
            checkpoint_crc=self._checkpoint_crc,
            broker_version=self.dialect.name,
            timezone=self.config.timezone or "",
        ).write(self.paths.state)

    # --- closing ------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop in good order; ``abort`` stays when anything had failed. Idempotent.

        Raises ``ServiceFailedError`` when a service had failed or could not finish.
        """
        if self._closed:
            return
        self._closed = True
        appender = self.log.appender
        appender.refuse(PutMessageStatus.SERVICE_NOT_AVAILABLE)
        try:
            for service in (self.allocate, self.flush_log, self.reput, self.flush_queues):
                service.shutdown()
            if self.failure is None:
                self.flush_log_now()
                self.reput.drain()
                self.flush_thoroughly(clean=True)
                if self.dispatcher.reput_offset >= self.log.max_offset:
                    self.paths.abort.unlink(missing_ok=True)
                    sync_directory(self.paths.root)
        finally:
            self._release_parts()
            self._lock.release()

    def _release_parts(self) -> None:
        for name in ("dispatcher", "log", "queues", "index"):
            part = getattr(self, name, None)
            if part is not None:
                part.close()


def take_unused_segments(listing: DirectoryListing) -> list[Path]:
    """Take segments of 0 bytes off the end of ``listing``; return their paths.

    A kill between create and extend leaves them: they held nothing. One that is alone and does not
    begin at 0 stays, because only its name tells where the log goes on.
    """
    files, unused = listing.files, []
    while files and files[-1][2] == 0 and (len(files) > 1 or files[0][0] == 0):
        unused.append(files.pop()[1])
    return unused


def create_root(root: Path) -> None:
    """Create a new store's root directory, durably."""
    existing = root.parent
    while not existing.is_dir():
        existing = existing.parent
    make_directories(root, existing)
