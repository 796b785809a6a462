"""ReputMessageService: follows the log to build queues and index."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from rocketstore import kernels
from rocketstore.dispatch.dispatcher import CommitLogDispatcher
from rocketstore.dispatch.named_queues import named_queues
from rocketstore.errors import ServiceFailedError, StoreFullError, error_text
from rocketstore.files.durable import PASSING_ERRORS
from rocketstore.lock_order import LockRank
from rocketstore.log.commit_log import CommitLog
from rocketstore.log.scan import LogScan
from rocketstore.services.service_thread import ServiceThread
from rocketstore.services.waiting import Waiters, Wakeup, refuse_interrupted
from rocketstore.status import RecordFlags, RecordStatus

_STEP_COUNT = 16_384
_BACK_OFF_S = 0.2
#: Longest pause while reads wait for records that were written and are not visible.
_ATTENTIVE_S = 0.002

ArrivingListener = Callable[..., Any]


class HeldReads(Protocol):
    """Reads that wait for messages, see ``consumer/hold.py``."""

    #: Empty if no read waits.
    held: dict[Any, Any]

    def lags(self, offset: int) -> bool:
        """Return whether reads wait that ``announce(offset)`` was not called for."""

    def announce(self, offset: int) -> None:
        """Wake the reads whose queues got messages, now that dispatch is at ``offset``."""


class ReputMessageService(ServiceThread):
    """Dispatch records as they become visible.

    Parameters
    ----------
    dispatcher : CommitLogDispatcher
    limit : callable
        Physical offset up to which records may be dispatched (the flushed one in SYNC_FLUSH).
    log : CommitLog
    listener : callable or None
        ``listener(topic, queue_id, next_queue_offset, tags_code, store_timestamp, bit_map,
        properties)``, called on the service's thread for every dispatched record; then again for
        each light or other queue that multi dispatch adds the record to.

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
        #: Ends the pause of an idle service.
        self.bell = Wakeup()
        super().__init__("reput", 0.001, on_failure, longest_s=0.01, bell=self.bell)
        self.dispatcher = dispatcher
        self._limit = limit
        self._log = log
        self._listener = listener
        self._delay_ms = delay_ms
        self._moved = Waiters()
        self._dispatching = kernels.locks.OrderedLock(LockRank.DISPATCH)
        self._pause = Wakeup()
        self._is_announcing = False  # guarded by: _step_lock
        #: Physical offset up to which the listener was called.
        self._announced_offset = dispatcher.reput_offset  # guarded by: _step_lock
        #: The temporary error that stopped the last step, and the number of such errors.
        self._obstacle: OSError | None = None
        self._obstacle_count = 0
        self._on_dispatch: tuple[Callable[[], None], ...] = ()
        self._changing = kernels.locks.OrderedLock(LockRank.LEAF)
        #: The reads that wait for messages, once there was one.
        self.hold: HeldReads | None = None
        #: Set while reads wait for records that become visible later than they are written:
        #: returns the physical offset up to which the log is written.
        self.written_offset: Callable[[], int] | None = None

    def call_after_steps(self, call: Callable[[], None]) -> None:
        """Call ``call`` after each step that dispatched records, from now on."""
        with self._changing:
            self._on_dispatch = (*self._on_dispatch, call)

    def call_no_longer(self, call: Callable[[], None]) -> None:
        """End what ``call_after_steps`` began."""
        with self._changing:
            self._on_dispatch = tuple(one for one in self._on_dispatch if one is not call)

    def run_once(self) -> bool:
        """Dispatch a bounded number of records; return whether there were any."""
        start, limit = self.dispatcher.reput_offset, self._limit()
        if start >= limit:
            if self._announced_offset < start:
                self._announce()  # the last call failed for lack of memory
            elif self.hold is not None and self.hold.lags(start):
                self.hold.announce(start)
            return False
        try:
            with self._dispatching:
                status = self.dispatcher.dispatch_until(limit, max_records=_STEP_COUNT)
            self._obstacle = None
        except OSError as error:
            if not isinstance(error, StoreFullError) and error.errno not in PASSING_ERRORS:
                self.dispatcher.name_cut_file(error)
                raise
            # Retry the same record until there is room, memory or a descriptor (D-7, D-15).
            self._obstacle = error
            self._obstacle_count += 1
            if not self._stopping:
                self._pause.listen(_BACK_OFF_S)
            return False
        finally:
            self._announce()
        if status not in (RecordStatus.OK, RecordStatus.END):
            raise self.dispatcher.error(status)
        return self.dispatcher.reput_offset > start

    def _listen(self, timeout_s: float) -> bool:
        """Pause until there may be work; shortly while records are not visible yet."""
        written_offset = self.written_offset
        if written_offset is not None and self.dispatcher.reput_offset < written_offset():
            timeout_s = min(timeout_s, _ATTENTIVE_S)
        return super()._listen(timeout_s)

    def stop(self) -> None:
        """Stop the service; also end its pause after a temporary error."""
        super().stop()
        self._pause.ring()

    def _announce(self) -> None:
        if self._listener is None:
            self._announced_offset = self.dispatcher.reput_offset
        elif not self._is_announcing:
            self._is_announcing = True
            try:
                # Loop, because a listener that waits dispatches further records.
                while self._announced_offset < (end := self.dispatcher.reput_offset):
                    self._call_listener(self._announced_offset, end)
                    self._announced_offset = end
            finally:
                self._is_announcing = False
        for call in self._on_dispatch:
            call()
        if self.hold is not None and self.hold.held:
            self.hold.announce(self.dispatcher.reput_offset)
        self._moved.wake_all()

    def _call_listener(self, start: int, end: int) -> None:
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
                self._announced_offset = message.physical_offset + len(message.raw)

    def wait_until(self, offset: int, timeout_s: float | None) -> bool:
        """Wait until the log is dispatched up to ``offset``; return False after ``timeout_s``.

        If the service's thread does not run, the calling thread dispatches. So does a listener
        that waits, because it runs on that thread; it is called for these records after it has
        returned.

        Raises
        ------
        ServiceFailedError
            When the service has failed.
        ReentrantCallError
            When this thread was interrupted in a step that dispatch may have to wait for.
        StoreFullError, OSError
            Without ``timeout_s``, when room, memory or descriptors are exhausted. Dispatch
            continues with the same record later.
        """
        refuse_interrupted()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        before = self._obstacle_count
        ticket = self._moved.enter()
        try:
            while self.dispatcher.reput_offset < offset:
                if self.failure is not None:
                    raise ServiceFailedError(
                        f"dispatch failed: {error_text(self.failure)}"
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
    """Return a copy of the error, to be raised in another thread."""
    if isinstance(error, StoreFullError):
        return StoreFullError(*error.args)
    return OSError(error.errno, error.strerror, error.filename)


def lag_limit_nbytes(max_lag_files: int | None, segment_size: int) -> int | None:
    """Return how many bytes dispatch may lag before puts wait; ``None`` for no limit."""
    return None if max_lag_files is None else max_lag_files * segment_size
