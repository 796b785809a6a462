"""A store open for writing: opening it, its services, and closing it cleanly."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rocketstore import formats, kernels
from rocketstore.arguments import Progress
from rocketstore.config import INT_MAX, MessageStoreConfig
from rocketstore.directory.lock import StoreLock
from rocketstore.directory.paths import StorePaths
from rocketstore.directory.state import StoreState
from rocketstore.dispatch.dispatcher import CommitLogDispatcher
from rocketstore.dispatch.reput_service import (
    ArrivingListener,
    ReputMessageService,
    lag_limit_nbytes,
)
from rocketstore.errors import (
    ReentrantCallError,
    ServiceFailedError,
    StoreClosedError,
    StoreFullError,
    error_text,
)
from rocketstore.files.durable import (
    NO_DESCRIPTORS,
    ReplacedFileError,
    is_interrupt,
    make_directories,
    sync_directory,
    write_file,
)
from rocketstore.flush.commit_real_time import CommitRealTimeService
from rocketstore.flush.flush import FlushConsumeQueueService, FlushedLog, FlushRealTimeService
from rocketstore.flush.group_commit import GroupCommitService
from rocketstore.lock_order import LockRank
from rocketstore.log.allocate import AllocateService
from rocketstore.log.commit_log import record_flags
from rocketstore.log.writable_commit_log import WritableCommitLog
from rocketstore.services.service_thread import ServiceThread
from rocketstore.services.waiting import refuse_interrupted
from rocketstore.status import FlushDiskType, PutMessageStatus
from rocketstore.store.cleaning import StoreCleaning
from rocketstore.store.dispatch_recovery import DispatchRecovery
from rocketstore.store.engine.tables import WriterTables
from rocketstore.store.marks import DispatchSnapshot, StoreMarks
from rocketstore.store.opening_undo import OpeningUndo, is_refusal
from rocketstore.store.taking_over import TakenOver, TakeOver

if TYPE_CHECKING:
    from rocketstore.consumer.hold import PullRequestHoldService
    from rocketstore.delay.service import DelayService

T = TypeVar("T")
_log = logging.getLogger(__name__)


class StoreWriter(WriterTables):
    """Owns lock, log, queues, index and services of a store open for writing.

    Opening takes the lock, examines the files, scans the log, refuses corruption, truncates the
    torn tail and syncs (``TakeOver``). It then writes ``abort``, dispatches missing units and keys,
    and accepts puts.

    Attributes
    ----------
    paths : StorePaths
    config : MessageStoreConfig
    clock, put_clock : callable
        Epoch ms; ``put_clock`` is ``None`` if records get the system's time.
    put_wait : callable or None
        How a put that bypasses the appender waits for the disk; ``None`` if it does not.
    facts : StoreFacts
    dialect : Dialect
    report : RecoveryReport
    log : WritableCommitLog
    queues : QueueTable
    index : IndexService
    flushed : FlushedLog
        The offset up to which the log is on disk.
    marks : StoreMarks
        State file and checkpoint.
    filters : LiveGroupFilters or None
        The groups' filters, if they make bit maps or one was registered.
    dispatcher : CommitLogDispatcher
    group_commit : GroupCommitService or None
        With SYNC_FLUSH.
    flush_log, reput, flush_queues, allocate : ServiceThread
    cleaning : StoreCleaning
    delay : DelayService or None
        Delivers delayed messages, if the store does or a caller asked for it.
    hold : PullRequestHoldService or None
        The reads that wait for messages, once there was one.
    services : list of ServiceThread
        All that run on threads, in the order in which they are stopped.
    failure : BaseException or None
        Why puts are no longer accepted.
    """

    hold: PullRequestHoldService | None = None

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
        self.paths, self.config = paths, config
        self.clock, self.put_clock = clock, put_clock
        self.failure: BaseException | None = None
        self.group_commit: GroupCommitService | None = None
        self.delay: DelayService | None = None
        self._closed = False
        self._released = False  # guarded by: _write_lock
        self._write_lock = kernels.locks.OrderedLock(LockRank.MARKS)
        self._lock = StoreLock(paths.root)
        undo = OpeningUndo(paths)
        try:
            with contextlib.ExitStack() as opened:
                if paths.commit_log.is_dir():
                    self._lock.hold_folder(paths.commit_log)
                found = TakeOver(paths, config, clock, progress, undo, opened).run()
                self.facts = found.facts
                self.dialect = found.facts.dialect
                self.queues, self.index = found.queues, found.index
                self.report = found.report
                self._write_abort()
                self._clear_the_way(found)
                is_sync_master = config.broker_role == "SYNC_MASTER"
                self._lacks_slave = is_sync_master and self.dialect.sync_master_wants_slave
                self._max_lag_nbytes = lag_limit_nbytes(
                    self.dialect.max_dispatch_lag_files, found.segments.file_size
                )
                self.log = self._make_log(found, put_clock)
                opened.callback(self.log.close)
                self.flushed = self._make_flushed()
                self._has_doubtful_filters = self.facts.aborted and found.state is None
                self.filters = self._load_filters() if self.makes_bit_maps else None
                self.marks = StoreMarks(paths, found.facts, config, self.log, found.state)
                self.dispatcher = self._dispatch_missing(found)
                opened.callback(self.dispatcher.close)
                self._write_first_marks(found.state)
                self._remove_unused(found.unused)
                self.group_commit, self.flush_log = self._make_flush_service()
                self.reput = ReputMessageService(
                    self.dispatcher, self.visible_end, self.log, listener, config.delay_ms,
                    self.fail,
                )  # fmt: skip
                self.flush_queues = FlushConsumeQueueService(
                    self._flush_queues, self.flush_thoroughly, config, self.fail
                )
                self.allocate = AllocateService(self.log, self.fail)
                self.cleaning = self._make_cleaning()
                self.services = self._threads()
                if config.broker_role == "SLAVE":
                    self.log.appender.refuse(PutMessageStatus.SERVICE_NOT_AVAILABLE)
                self._lock.mark()
                self.report.warn(paths.root)
                self._parts = opened.pop_all()
        except BaseException as error:
            if is_refusal(error):
                undo.run()
            self._lock.release()
            raise
        if start:
            self._start_services()

    # --- opening ------------------------------------------------------------------------------

    def _write_abort(self) -> None:
        content = str(os.getpid()).encode() if self.dialect.abort_holds_pid else b""
        write_file(self.paths.abort, content)

    def _clear_the_way(self, found: TakenOver) -> None:
        """Delete segments past the log's end; move files aside that block queues and index."""
        separate = self.paths.log_root != self.paths.root
        if not self.paths.commit_log.is_dir():  # of a new store
            create_root(self.paths.commit_log)
            if separate:
                self._lock.hold_folder(self.paths.commit_log)
        found.segments.destroy_after(self.report.log_end)
        self.queues.clear_the_way()
        self.report.skipped += [str(path) for path in self.queues.skipped]
        self.report.skipped += [str(path) for path in self.index.skipped]
        self.report.notes += [
            f"moved to {path}: an index file of an unknown size; its keys are rebuilt from the log"
            for path in self.index.move_unusable_aside()
        ]

    def _make_log(self, found: TakenOver, put_clock: Callable[[], int] | None) -> WritableCommitLog:
        config = self.config
        is_sync = config.flush_disk_type == FlushDiskType.SYNC_FLUSH
        waits = is_sync or self._lacks_slave
        self.put_wait: Callable[[int], int] | None = self._timed_wait if waits else None
        is_lag_limited = self._max_lag_nbytes is not None
        return WritableCommitLog(
            found.segments,
            self.report.log_end,
            record_flags(config),
            config,
            self.dialect,
            wait=self._wait if waits else None,
            clock=put_clock,
            before_roll=self._let_dispatch_catch_up if is_lag_limited else None,
            on_failure=self.fail,
            lock=self._lock,
            is_congested=self._congestion(),
        )

    def _congestion(self) -> Callable[[int], bool] | None:
        """Return the test for crowded slots, ``None`` without a limit for the timer's slots."""
        limit = self.config.timer_congest_num_each_slot
        if not self.config.timer_wheel_enable or limit >= INT_MAX:
            return None
        from rocketstore.timer.congestion import SlotCongestion

        return SlotCongestion(limit, self._slot_counts)

    def _slot_counts(self) -> dict[int, int]:
        from rocketstore.timer.reader import read_timers

        precision_ms, now = self.config.timer_precision_ms, self.clock()
        return read_timers(
            self.paths.root, self.dialect, self.log, self.queues, precision_ms=precision_ms, now=now
        ).slot_counts()

    def _make_flushed(self) -> FlushedLog:
        newest = self.report.newest_store_timestamp
        physic = min(self.facts.checkpoint.physic_timestamp, newest)
        flushed = FlushedLog(self.log, physic, self.fail)
        flushed.loops.add_wait = self.log.appender.add_wait
        if self._lacks_slave:  # as ``_wait`` returns, whatever the result of the sync
            flushed.loops.late_status = PutMessageStatus.SLAVE_NOT_AVAILABLE
        return flushed

    def _dispatch_missing(self, found: TakenOver) -> CommitLogDispatcher:
        """Dispatch missing units and keys; set each queue's next offset after its last message."""
        recovery = DispatchRecovery(
            self.log, self.queues, self.index, self.config, self.dialect, found.state, self.report,
            self._give_up_state, found.index_check,
            None if self.filters is None else self.filters.for_dispatch(),
        )  # fmt: skip
        try:
            dispatcher = recovery.run()
        except BaseException:
            if recovery.dispatcher is not None:
                recovery.dispatcher.close()
            raise
        self.log.appender.set_batch_topics(self.queues.batch_topics)
        for queue in self.queues:
            self.log.appender.set_next_queue_offset(queue.topic, queue.queue_id, queue.max_index)
        for lost in recovery.lost:
            self.log.appender.set_next_queue_offset(lost.topic, lost.queue_id, lost.next_offset)
        return dispatcher

    def _write_first_marks(self, state: StoreState | None) -> None:
        """Sync everything and write a state file if there is no valid one.

        Durable data then cannot look like a torn write later, and an opening after a kill knows the
        file sizes.
        """
        is_stated = state is not None and self.facts.are_stated_in(state)
        if not is_stated or not self.paths.state.exists():
            snapshot = DispatchSnapshot.take(self.dispatcher)
            self._sync_and_mark(
                snapshot, self.report.log_end, self.flushed.physic_timestamp, clean=False
            )

    def _give_up_state(self) -> None:
        """Delete the state file durably: rebuilt files are not synced yet, so that after another
        crash no state file may call them complete."""
        self.paths.state.unlink(missing_ok=True)
        sync_directory(self.paths.root)

    def _remove_unused(self, unused: list[Path]) -> None:
        for path in unused:
            _log.warning("removed the empty segment %s", path)
            path.unlink()
            self.report.notes.append(f"removed {path}: a segment of 0 bytes at the log's end")

    # --- services -----------------------------------------------------------------------------

    def _make_flush_service(self) -> tuple[GroupCommitService | None, ServiceThread]:
        """Return the group commit service, if puts wait for the sync, and the service that syncs
        the log."""
        if self.config.flush_disk_type != FlushDiskType.SYNC_FLUSH:
            return None, FlushRealTimeService(
                self.flushed, lambda: self.log, self.config, self.fail
            )
        service = GroupCommitService(self.flushed, lambda: self.log, self.config, self.fail)
        if self._lacks_slave:
            service.synced_status = PutMessageStatus.SLAVE_NOT_AVAILABLE
        return service, service

    def _make_cleaning(self) -> StoreCleaning:
        return StoreCleaning(
            self.log, self.queues, self.index, self.config, self.paths, self.dialect, self.clock,
            self.flushed, self.dispatcher, self.reput, self,
        )  # fmt: skip

    def _threads(self) -> list[ServiceThread]:
        """Return all services that run on threads, in the order in which they are stopped."""
        commit: list[ServiceThread] = []
        if self.log.pool is not None and self.group_commit is None:
            commit.append(CommitRealTimeService(self.log, self.config, self.fail))
        own: list[ServiceThread] = [self.flush_log, self.reput, self.flush_queues]
        if self.config.schedule_message_enable and self.config.broker_role != "SLAVE":
            self.delay = self._make_delay()
            own.insert(0, self.delay)
        return [self.allocate, *commit, *own, *self.cleaning.services]

    def _make_delay(self) -> DelayService:
        from rocketstore.store.engine.delaying import make_delay_service

        return make_delay_service(self)

    def _start_services(self) -> None:
        """Start all services; if the system refuses a thread, close the store.

        The order is reversed: the first service has most work at the beginning and would delay the
        start of the others.
        """
        try:
            for service in reversed(self.services):
                service.start()
        except BaseException:
            with contextlib.suppress(OSError, ServiceFailedError):
                self.close()
            raise

    def visible_end(self) -> int:
        """Return the offset up to which records are dispatched: only synced ones with
        SYNC_FLUSH."""
        return self.flushed.offset if self.group_commit is not None else self.log.max_offset

    def _wait(self, end_offset: int) -> int:
        """Wait for the sync and return its status, or SLAVE_NOT_AVAILABLE if a slave is missing."""
        service = self.group_commit
        status: int = PutMessageStatus.PUT_OK if service is None else service.wait(end_offset)
        return PutMessageStatus.SLAVE_NOT_AVAILABLE if self._lacks_slave else status

    def _timed_wait(self, end_offset: int) -> int:
        """Wait as ``_wait``, and count the time as that of a put: the appender does it itself."""
        begin = time.monotonic()
        status = self._wait(end_offset)
        self.log.appender.add_wait(int((time.monotonic() - begin) * 1000))
        return status

    def _let_dispatch_catch_up(self) -> None:
        """Wait until dispatch is within its lag limit: a broker 5.4 or later recovers only the last
        ten files."""
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

    @property
    def root(self) -> Path:
        """The store's directory."""
        return self.paths.root

    def sync_log(self) -> None:
        """Bring what was put to the disk."""
        self.flushed.flush()

    def fail(self, error: BaseException) -> None:
        """Stop accepting puts permanently."""
        if self.failure is None:
            self.failure = error
            self.log.appender.fail(error)
            if self.group_commit is not None:
                self.group_commit.abandon(error)
        if self.hold is not None:
            self.hold.close(self.failure_error)

    # --- flushing -----------------------------------------------------------------------------

    def _flush_queues(self, least_pages: int) -> None:
        least_units = least_pages * 4096 // formats.CONSUME_QUEUE_UNIT.nbytes
        with self._write_lock:
            self._refuse_after_failure()
            self.log.check_newest_name()  # each second, to detect a broker that writes this store
            for queue in self.queues:
                if queue.max_index - queue.flushed_index >= least_units:
                    queue.flush(queue.max_index)

    def failure_error(self) -> ServiceFailedError:
        """Return the error of calls after ``fail``."""
        error = ServiceFailedError(f"writing has failed: {error_text(self.failure)}")
        error.__cause__ = self.failure
        return error

    def _refuse_after_failure(self) -> None:
        if self.failure is not None:
            raise self.failure_error()
        if self._released:
            raise StoreClosedError(f"the store {self.paths.root} is closed")

    def flush_thoroughly(self, *, clean: bool = False) -> None:
        """Sync log, queues and index in this order, then write state file and checkpoint.

        Raises ``ReplacedFileError`` if a file of the store is gone; the store then fails
        permanently.
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
            self.flushed.flush()
            flushed, physic_timestamp = self.flushed.mark()
            self.log.check_names()
            clean = clean and snapshot.dispatched_offset >= self.log.max_offset
            try:
                self._sync_and_mark(snapshot, flushed, physic_timestamp, clean=clean)
            except StoreFullError:
                raise  # the old marks stay valid; the next call may find disk space
            except OSError as error:
                if error.errno not in NO_DESCRIPTORS and not is_interrupt(error):
                    self.fail(error)
                raise

    def _sync_and_mark(
        self, snapshot: DispatchSnapshot, flushed: int, physic_timestamp: int, *, clean: bool
    ) -> None:
        for queue in self.queues:
            queue.flush(queue.max_index)
        index_timestamp = self.index.flush(flushed)
        self.marks.write(snapshot, flushed, physic_timestamp, index_timestamp, clean=clean)

    # --- closing ------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop cleanly; after a failure or an interrupt ``abort`` stays. Idempotent.

        Raises ``ServiceFailedError`` if a service failed or could not finish, ``StoreFullError`` if
        the disk has no space for state file and checkpoint.
        """
        if self._closed:
            return
        self._closed = True
        try:
            self._stop_services()
            if self.failure is not None:
                raise self.failure_error()
            self.flushed.flush()
            if self.delay is not None:
                self.delay.persist()
            self.reput.drain()
            self.flush_thoroughly(clean=True)
            if self.dispatcher.reput_offset >= self.log.max_offset:
                self.paths.abort.unlink(missing_ok=True)
                sync_directory(self.paths.root)
        finally:
            with self._write_lock:
                self._released = True
                try:
                    self._parts.close()
                finally:
                    self._lock.release()

    def refuse_interrupted_close(self) -> None:
        """Raise ``ReentrantCallError`` if a close would wait forever.

        Closing waits for the current steps of the services. A signal handler may have interrupted
        this thread in such a step, or while it held a lock that a step needs.
        """
        refuse_interrupted()
        services = (*self.services, self.cleaning.log_service, self.cleaning.queue_service)
        if any(service.is_interrupted_here for service in services):
            raise ReentrantCallError()
        if self.cleaning.is_cleaning_here:
            raise ReentrantCallError()

    def _stop_services(self) -> None:
        """Refuse puts and stop all services, even after one fails; then raise the first failure.

        An interrupt is also raised only then: no file is closed, and the lock is not released,
        while a service may still write.
        """
        failures: list[BaseException] = []
        left = list(self.services)
        while True:
            try:
                if self.delay is not None:  # its puts may wait for the other services
                    _shut_down(left, [self.delay], failures)
                self.cleaning.refuse_for_good()
                for service in left:
                    service.stop()
                _shut_down(left, list(left), failures)
                break
            except (KeyboardInterrupt, SystemExit) as interrupt:
                failures.insert(0, interrupt)
        if failures:
            raise failures[0]


def _shut_down(
    left: list[ServiceThread], services: list[ServiceThread], failures: list[BaseException]
) -> None:
    """Shut down those of the services that are left, and take them out; note their failures."""
    for service in services:
        if service in left:
            try:
                service.shutdown()
            except ServiceFailedError as error:
                failures.append(error)
            left.remove(service)


def create_root(root: Path) -> None:
    """Create a new store's root directory, durably."""
    existing = root.parent
    while not existing.is_dir():
        existing = existing.parent
    make_directories(root, existing)
