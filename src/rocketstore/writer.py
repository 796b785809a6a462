"""A store open for writing: taking it over, its services, and leaving it in good order."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from rocketstore import formats, kernels
from rocketstore.commit_log import (
    NO_DESCRIPTORS,
    CommitLog,
    WritableCommitLog,
    record_flags,
)
from rocketstore.config import MessageStoreConfig
from rocketstore.dispatch_recovery import DispatchRecovery
from rocketstore.durable_file import (
    ReplacedFileError,
    make_directories,
    remove_leftovers,
    sync_directory,
    write_file,
)
from rocketstore.errors import (
    ReentrantCallError,
    ServiceFailedError,
    StoreClosedError,
    StoreFullError,
)
from rocketstore.failure_words import told
from rocketstore.fit_for_writing import (
    examine_for_writing,
    load_index,
    load_queues,
    refuse_linked,
    refuse_linked_end,
    take_unused_segments,
)
from rocketstore.index_recovery import EarlyIndexCheck
from rocketstore.lock_order import LockRank
from rocketstore.log_cut import cut_tail, drop_cached_pages, sync_log
from rocketstore.mapped_file_queue import MappedFileQueue
from rocketstore.opening_undo import OpeningUndo, is_refusal
from rocketstore.recovery import LogRecovery, Progress, recover_log
from rocketstore.services.allocate import AllocateService
from rocketstore.services.commit_real_time import CommitRealTimeService
from rocketstore.services.flush import (
    FlushConsumeQueueService,
    FlushedLog,
    FlushRealTimeService,
)
from rocketstore.services.group_commit import GroupCommitService
from rocketstore.services.reput import ArrivingListener, ReputMessageService, lag_limit_nbytes
from rocketstore.services.service_thread import ServiceThread
from rocketstore.services.waiting import refuse_interrupted
from rocketstore.status import FlushDiskType, PutMessageStatus
from rocketstore.store_cleaning import StoreCleaning
from rocketstore.store_files import StoreFacts, StorePaths
from rocketstore.store_lock import StoreLock
from rocketstore.store_marks import DispatchSnapshot, StoreMarks
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
        self.group_commit: GroupCommitService | None = None
        self._progress = progress
        self._closed = False
        self._released = False  # guarded by: _write_lock
        self._write_lock = kernels.locks.OrderedLock(LockRank.MARKS)
        self._lock = StoreLock(paths.root)
        self._undo = OpeningUndo(paths)
        try:
            if paths.commit_log.is_dir():
                self._lock.hold_folder(paths.commit_log)
            self._open(config, put_clock, listener)
        except BaseException as error:
            self._release_parts()
            if is_refusal(error):
                self._undo.run(getattr(self, "queues", None), getattr(self, "index", None))
            self._lock.release()
            raise
        if start:
            self._start_services()

    # --- opening ------------------------------------------------------------------------------

    def _open(
        self,
        config: MessageStoreConfig,
        put_clock: Callable[[], int] | None,
        listener: ArrivingListener | None,
    ) -> None:
        self.facts = facts = examine_for_writing(self.paths, config)
        self.dialect = facts.dialect
        self.config = config
        unused = take_unused_segments(facts.listing)
        self._load_index(facts)
        self._load_queues(facts)
        state = self._take_over_log(facts)
        end = self.report.log_end
        self._write_abort()
        self._open_parts(facts, end, put_clock)
        self._bring_up(state, end)
        for path in unused:
            _log.warning("removed the empty segment %s", path)
            path.unlink()
            self.report.notes.append(f"removed {path}: a segment of 0 bytes at the log's end")
        self._make_services(listener)
        self._lock.mark()
        self.report.warn(self.paths.root)

    def _take_over_log(self, facts: StoreFacts) -> StoreState | None:
        """Check the log, refuse what is damaged, cut what is torn; return the state as far as it is
        true."""
        log = self._load_log(facts)
        recovery, state = self._recover_log(log, facts)
        self.report = report = recovery.report
        if report.damaged:
            raise report.damaged[0].refusal()
        refuse_linked_end(facts, report.log_end)
        if recovery.losses is not None:
            recovery.losses.keep(self.paths.root, report, self.clock)
        for directory in {self.paths.root, self.paths.log_root}:
            remove_leftovers(directory)
        end = report.log_end
        if not recovery.is_end_clean:
            report.cut = cut_tail(log, end, recovery.torn_reason, self.paths.root, self.clock)
        sync_log(log, 0 if state is None else report.durable_mark, end)
        return state

    def _load_index(self, facts: StoreFacts) -> None:
        """Load the index files, and begin to check the newest."""
        self.index = load_index(facts, self.config, self.clock)
        state = facts.valid_state
        self._index_check = (
            EarlyIndexCheck.of_newest(self.index, state.indexed_offset)
            if state is not None and self.config.message_index_enable
            else None
        )

    def _load_queues(self, facts: StoreFacts) -> None:
        """Load the queues' files. What is refused of them is refused before the log is cut."""
        self.queues = load_queues(facts)
        self._undo.note_queues(self.queues)
        refuse_linked(facts, self.index, self.queues)

    def _load_log(self, facts: StoreFacts) -> CommitLog:
        """The log as it is found; its segments are mapped once, for the check and for all that
        comes later."""
        self._segments = queue = MappedFileQueue(
            self.paths.commit_log, facts.commit_log_file_size, self.paths.log_root, writable=True
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
        recovery, state = recover_log(
            log, facts, self._progress, queues=self.queues, index=self.index, for_writing=True
        )
        report = recovery.report
        report.clean = not facts.aborted
        report.notes += facts.notes
        report.skipped += [str(path) for path in facts.listing.foreign]
        return recovery, state

    def _write_abort(self) -> None:
        content = str(os.getpid()).encode() if self.dialect.abort_holds_pid else b""
        write_file(self.paths.abort, content)

    def _open_parts(self, facts: StoreFacts, end: int, put_clock: Callable[[], int] | None) -> None:
        config = self.config
        queue = self._segments
        queue.destroy_behind(end)
        self.queues.clear_the_way()
        self.report.skipped += [str(path) for path in self.queues.skipped]
        self.report.skipped += [str(path) for path in self.index.skipped]
        self.report.notes += [
            f"moved to {path}: an index file of a size that says nothing; its keys are made again"
            for path in self.index.move_unusable_aside()
        ]
        is_sync = config.flush_disk_type == FlushDiskType.SYNC_FLUSH
        is_sync_master = config.broker_role == "SYNC_MASTER"
        self._lacks_slave = is_sync_master and self.dialect.sync_master_wants_slave
        lag = lag_limit_nbytes(self.dialect.max_dispatch_lag_files, queue.file_size)
        self._max_lag_nbytes = lag
        self.log = WritableCommitLog(
            queue,
            end,
            record_flags(config),
            config,
            self.dialect,
            wait=self._wait if is_sync or self._lacks_slave else None,
            clock=put_clock,
            before_roll=None if lag is None else self._let_dispatch_catch_up,
            on_failure=self.fail,
            lock=self._lock,
        )
        physic = min(facts.checkpoint.physic_timestamp, self.report.newest_store_timestamp)
        self.flushed = FlushedLog(self.log, physic, self.fail)
        if self._lacks_slave:  # which is what ``_wait`` answers, whatever the disk says
            self.flushed.loops.late_status = PutMessageStatus.SLAVE_NOT_AVAILABLE

    def _bring_up(self, state: StoreState | None, end: int) -> None:
        """Dispatch what is missing; without a true state file, sync everything and write one, so
        that nothing that is durable now will look torn later, and so that the sizes that files
        will have are known to whoever opens the store after a kill."""
        recovery = DispatchRecovery(
            self.log, self.queues, self.index, self.config, self.dialect, state, self.report,
            self._give_up_state, self._index_check,
        )  # fmt: skip
        self.marks = StoreMarks(self.paths, self.facts, self.config, self.log, state)
        try:
            self.dispatcher = recovery.run()
            bits = self.config.bit_map_length_consume_queue_ext
            self.dispatcher.max_bit_map_nbytes = -(-bits // 8)
        except BaseException:
            if recovery.dispatcher is not None:
                recovery.dispatcher.close()
            raise
        self.log.appender.set_batch_topics(self.queues.batch_topics)
        for queue in self.queues:
            self.log.appender.set_next_queue_offset(queue.topic, queue.queue_id, queue.max_index)
        for lost in recovery.lost:
            self.log.appender.set_next_queue_offset(lost.topic, lost.queue_id, lost.next_offset)
        is_told = state is not None and self.facts.are_told_by(state)
        if not is_told or not self.paths.state.exists():
            self._sync_and_mark(DispatchSnapshot.take(self.dispatcher), end, clean=False)

    def _give_up_state(self) -> None:
        """Delete the state file durably: what is made anew is not on disk yet, and must not be
        believed after another crash."""
        self.paths.state.unlink(missing_ok=True)
        sync_directory(self.paths.root)

    # --- services -----------------------------------------------------------------------------

    def _make_services(self, listener: ArrivingListener | None) -> None:
        config = self.config
        flush: ServiceThread
        if config.flush_disk_type == FlushDiskType.SYNC_FLUSH:
            flush = self.group_commit = GroupCommitService(
                self.flushed, lambda: self.log, config, self.fail
            )
            if self._lacks_slave:
                self.group_commit.synced_status = PutMessageStatus.SLAVE_NOT_AVAILABLE
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
        self.services: list[ServiceThread] = [
            *(self.allocate, flush, self.reput, self.flush_queues)
        ]
        if self.log.pool is not None and self.group_commit is None:
            self.services.insert(1, CommitRealTimeService(self.log, config, self.fail))
        self.cleaning = StoreCleaning(self)
        self.services += self.cleaning.services
        if config.broker_role == "SLAVE":
            self.log.appender.refuse(PutMessageStatus.SERVICE_NOT_AVAILABLE)

    def _start_services(self) -> None:
        """Start all; where the system gives no thread, leave the store as it was found.

        The first one has most to do at the beginning, and would keep the others from starting.
        """
        try:
            for service in reversed(self.services):
                service.start()
        except BaseException:
            with contextlib.suppress(OSError, ServiceFailedError):
                self.close()
            raise

    def _visible_end(self) -> int:
        """Dispatch never runs ahead of what SYNC_FLUSH promises."""
        return self.flushed.offset if self.group_commit is not None else self.log.max_offset

    def _wait(self, end_offset: int) -> int:
        """Wait for the disk, then for the slave that is not there: its answer wins."""
        service = self.group_commit
        status = PutMessageStatus.PUT_OK if service is None else service.wait(end_offset)
        return PutMessageStatus.SLAVE_NOT_AVAILABLE if self._lacks_slave else status

    def _let_dispatch_catch_up(self) -> None:
        """A broker of 5.4 and later recovers the last ten files only; dispatch must not lag
        further."""
        lag = self._max_lag_nbytes
        if lag is not None and self.log.max_offset - self.dispatcher.reput_offset > lag:
            if self.group_commit is not None:
                self.flushed.flush()
            self.reput.wait_until(self.log.max_offset - lag, None)

    def wait_dispatched(self, timeout_s: float | None) -> bool:
        """See ``DefaultMessageStore.wait_dispatched``."""
        refuse_interrupted()
        end = self.log.commit()
        if self.group_commit is not None and self.flushed.offset < end:
            self.flushed.flush()
        return self.reput.wait_until(end, timeout_s)

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
        with self._write_lock:
            self._refuse_after_failure()
            self.log.check_newest_name()  # each second, so that no broker writes beside this store
            for queue in self.queues:
                if queue.max_index - queue.flushed_index >= least_units:
                    queue.flush(queue.max_index)

    def _raise_failure(self) -> NoReturn:
        raise ServiceFailedError(f"writing has failed: {told(self.failure)}") from self.failure

    def _refuse_after_failure(self) -> None:
        if self.failure is not None:
            self._raise_failure()
        if self._released:
            raise StoreClosedError(f"the store {self.paths.root} is closed")

    def flush_thoroughly(self, *, clean: bool = False) -> None:
        """Sync log, queues, index, in this order, then write state and checkpoint.

        Raises ``ReplacedFileError``, which is final, when a file of the store is gone.
        """
        try:
            self._flush_thoroughly(clean=clean)
        except ReplacedFileError as error:
            self.fail(error)
            raise

    def _flush_thoroughly(self, *, clean: bool) -> None:
        refuse_interrupted()
        with self.reput.paused():
            snapshot = DispatchSnapshot.take(self.dispatcher)
        with self._write_lock:
            self._refuse_after_failure()
            flushed = self.flushed.flush()
            self.log.check_names()
            clean = clean and snapshot.dispatched_offset >= self.log.max_offset
            try:
                self._sync_and_mark(snapshot, flushed, clean=clean)
            except StoreFullError:
                raise  # the marks stay where they were, which is true; the next try may have room
            except OSError as error:
                if error.errno not in NO_DESCRIPTORS:  # as without room
                    self.fail(error)
                raise

    def _sync_and_mark(self, snapshot: DispatchSnapshot, flushed: int, *, clean: bool) -> None:
        physic_timestamp = self.flushed.physic_timestamp
        for queue in self.queues:
            queue.flush(queue.max_index)
        index_timestamp = self.index.flush(flushed)
        self.marks.write(snapshot, flushed, physic_timestamp, index_timestamp, clean=clean)

    # --- closing ------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop in good order; ``abort`` stays when anything had failed, or an interrupt struck.
        Idempotent.

        Raises ``ServiceFailedError`` when a service had failed or could not finish,
        ``StoreFullError`` when there was no room for the last marks.
        """
        if self._closed:
            return
        self._closed = True
        try:
            self._stop_services()
            if self.failure is not None:
                raise ServiceFailedError(
                    f"writing has failed: {told(self.failure)}"
                ) from self.failure
            self.flushed.flush()
            self.reput.drain()
            self.flush_thoroughly(clean=True)
            if self.dispatcher.reput_offset >= self.log.max_offset:
                self.paths.abort.unlink(missing_ok=True)
                sync_directory(self.paths.root)
        finally:
            with self._write_lock:
                self._released = True
                try:
                    self._release_parts()
                finally:
                    self._lock.release()

    def refuse_interrupted_close(self) -> None:
        """Raise ``ReentrantCallError`` where a close would wait for ever: services wait for the
        steps that their threads take, and those for what this thread was interrupted in."""
        refuse_interrupted()
        services = (*self.services, self.cleaning.log_service, self.cleaning.queue_service)
        if any(service.is_interrupted_here for service in services):
            raise ReentrantCallError()
        if self.cleaning.is_cleaning_here:
            raise ReentrantCallError()

    def _stop_services(self) -> None:
        """Refuse puts and stop all services, also those behind one that fails; then raise the first
        failure.

        An interrupt is raised behind that, too: nothing is closed, nor the lock given back, under a
        service that is about to write.
        """
        failures: list[BaseException] = []
        left = list(self.services)
        while True:
            try:
                self.cleaning.refuse_for_good()
                for service in left:
                    service.stop()
                while left:
                    try:
                        left[0].shutdown()
                    except ServiceFailedError as error:
                        failures.append(error)
                    del left[0]
                break
            except (KeyboardInterrupt, SystemExit) as interrupt:
                failures.insert(0, interrupt)
        if failures:
            raise failures[0]

    def _release_parts(self) -> None:
        for name in ("dispatcher", "log", "_segments", "queues", "index"):
            part = getattr(self, name, None)
            if part is not None:
                part.close()


def create_root(root: Path) -> None:
    """Create a new store's root directory, durably."""
    existing = root.parent
    while not existing.is_dir():
        existing = existing.parent
    make_directories(root, existing)
