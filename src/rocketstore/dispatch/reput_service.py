"""ReputMessageService: follows the log and builds queues and index."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rocketstore import kernels
from rocketstore.dispatch.dispatcher import CommitLogDispatcher
from rocketstore.dispatch.named_queues import named_queues
from rocketstore.errors import ServiceFailedError, StoreFullError, told
from rocketstore.files.durable import PASSING_ERRORS
from rocketstore.lock_order import LockRank
from rocketstore.log.commit_log import CommitLog
from rocketstore.log.scan import LogScan
from rocketstore.services.service_thread import ServiceThread
from rocketstore.services.waiting import Bell, WaitingRoom, refuse_interrupted
from rocketstore.status import RecordFlags, RecordStatus

_STEP_COUNT = 16_384
_BACK_OFF_S = 0.2

ArrivingListener = Callable[..., Any]


class ReputMessageService(ServiceThread):
    """Dispatches records as they become visible.

    Parameters
    ----------
    dispatcher : CommitLogDispatcher
    limit : callable
        Physical offset up to which records may be dispatched (the flushed one in SYNC_FLUSH).
    log : CommitLog
    listener : callable or None
        ``listener(topic, queue_id, next_queue_offset, tags_code, store_timestamp, bit_map,
        properties)`` for every dispatched record, on the service's thread; then once more for
        each light queue (or other queue that it names) that the record goes into.

    Notes
    -----
    Source: RocketMQ ``store/DefaultMessageStore.java`` ``ReputMessageService``.
    """

    def __init__(
        self,
        dispatcher: CommitLogDispatcher,
        limit: Callable[[], int],
        log: CommitLog,
        listener: ArrivingListener | None,
        delay_ms: tuple[int, ...],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        super().__init__("reput", 0.001, on_failure, longest_s=0.01)
        self.dispatcher = dispatcher
        self._limit = limit
        self._log = log
        self._listener = listener
        self._delay_ms = delay_ms
        self._moved = WaitingRoom()
        self._dispatching = kernels.locks.OrderedLock(LockRank.DISPATCH)
        self._pause = Bell()
        self._is_telling = False  # guarded by: _step_lock
        #: The listener was told of everything in front of it.
        self._told_offset = dispatcher.reput_offset  # guarded by: _step_lock
        #: Why a step could not go on for the moment, and how often that was.
        self._obstacle: OSError | None = None
        self._obstacle_count = 0

    def run_once(self) -> bool:
        """Dispatch a bounded number of records; True when any was."""
        start, limit = self.dispatcher.reput_offset, self._limit()
        if start >= limit:
            if self._told_offset < start:
                self._announce()  # a lack of memory was in the way
            return False
        try:
            with self._dispatching:
                status = self.dispatcher.dispatch_until(limit, max_records=_STEP_COUNT)
            self._obstacle = None
        except OSError as error:
            if not isinstance(error, StoreFullError) and error.errno not in PASSING_ERRORS:
                self.dispatcher.name_cut_file(error)
                raise
            # Nothing is lost: the same record is tried again once there is room, memory, or a
            # descriptor (D-7, D-15).
            self._obstacle = error
            self._obstacle_count += 1
            if not self._stopping:
                self._pause.wait(_BACK_OFF_S)
            return False
        finally:
            self._announce()
        if status not in (RecordStatus.OK, RecordStatus.END):
            raise self.dispatcher.error(status)
        return self.dispatcher.reput_offset > start

    def stop(self) -> None:
        """Also end the pause in front of an obstacle."""
        super().stop()
        self._pause.ring()

    def _announce(self) -> None:
        if self._listener is None:
            self._told_offset = self.dispatcher.reput_offset
        elif not self._is_telling:
            self._is_telling = True
            try:
                # Again for what was dispatched while a listener waited for it.
                while self._told_offset < (end := self.dispatcher.reput_offset):
                    self._tell_listener(self._told_offset, end)
                    self._told_offset = end
            finally:
                self._is_telling = False
        self._moved.wake_all()

    def _tell_listener(self, start: int, end: int) -> None:
        assert self._listener is not None
        flags = int(RecordFlags.PARSE_PROPERTIES)
        for batch in LogScan(self._log, start, end, flags, self._delay_ms):
            for row in map(batch.row, range(batch.count)):
                if row["status"] not in (RecordStatus.OK, RecordStatus.NUL_PROPERTIES):
                    continue
                message = batch.window.message(row["position"])
                flags_of_names = self.dispatcher.multi_dispatch
                own = message.topic, message.queue_id, message.queue_offset
                for topic, queue_id, queue_offset in (own, *named_queues(message, flags_of_names)):
                    self._listener(
                        topic,
                        queue_id,
                        queue_offset + 1,
                        row["tags_code"],
                        message.store_timestamp,
                        None,
                        message.properties,
                    )
                self._told_offset = message.physical_offset + len(message.raw)

    def wait_until(self, offset: int, timeout_s: float | None) -> bool:
        """Wait until everything in front of ``offset`` is dispatched; False after ``timeout_s``.

        Without the thread the calling thread dispatches, and so does a listener that waits: the
        thread is its own. It is told of what it dispatched so when it has returned.

        Raises
        ------
        ServiceFailedError
            When the service has failed.
        ReentrantCallError
            When this thread was interrupted in a step that dispatch may have to wait for.
        StoreFullError, OSError
            Without ``timeout_s``, when there is no room, memory or descriptor to go on; nothing is
            lost by that.
        """
        refuse_interrupted()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        before = self._obstacle_count
        ticket = self._moved.enter()
        try:
            while self.dispatcher.reput_offset < offset:
                if self.failure is not None:
                    raise ServiceFailedError(
                        f"dispatch failed: {told(self.failure)}"
                    ) from self.failure
                obstacle = self._obstacle
                if obstacle is not None and self._obstacle_count > before and timeout_s is None:
                    raise _like(obstacle) from obstacle
                if not self.is_running or self.is_held_here:
                    if not self.step() and self._obstacle is None:
                        return self.dispatcher.reput_offset >= offset
                    if deadline is not None and time.monotonic() >= deadline:
                        return self.dispatcher.reput_offset >= offset
                    continue
                left = 0.05 if deadline is None else min(0.05, deadline - time.monotonic())
                if left <= 0:
                    return False
                self.wakeup()
                if ticket.acquire(timeout=left):
                    ticket = self._moved.enter()
            return True
        finally:
            self._moved.leave(ticket)


def _like(error: OSError) -> OSError:
    """An error that says the same, for one more who meets it."""
    if isinstance(error, StoreFullError):
        return StoreFullError(*error.args)
    return OSError(error.errno, error.strerror, error.filename)


def lag_limit_nbytes(max_lag_files: int | None, segment_size: int) -> int | None:
    """Bytes dispatch may lag behind the log before puts wait, ``None`` for no limit."""
    return None if max_lag_files is None else max_lag_files * segment_size
