"""GroupCommitService: SYNC_FLUSH, one sync for all puts that wait, on threads or event loops."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from rocketstore import kernels
from rocketstore.config import MessageStoreConfig
from rocketstore.errors import ServiceFailedError, StoreFullError, told
from rocketstore.flush.flush import FlushedLog
from rocketstore.log.writable_commit_log import WritableCommitLog
from rocketstore.services.service_thread import ServiceThread
from rocketstore.status import PutMessageStatus

if TYPE_CHECKING:
    import asyncio

#: Locks cannot be waited for much longer.
_LONGEST_WAIT_S = threading.TIMEOUT_MAX / 2

_Result = TypeVar("_Result")


class _Deferral:
    """What a put is given to call in place of a wait.

    Attributes
    ----------
    end_offset : int
        What it would have waited for, 0 when there is nothing to wait for.
    """

    __slots__ = ("_status", "end_offset")

    def __init__(self, status: int) -> None:
        self.end_offset = 0
        self._status = status

    def __call__(self, end_offset: int) -> int:
        self.end_offset = end_offset
        return self._status


class GroupCommitService(ServiceThread):
    """SYNC_FLUSH: one sync acknowledges every put that was written before it began.

    Notes
    -----
    Threading: ``wait`` is called by any number of putters. Source: RocketMQ
    ``store/CommitLog.java`` ``GroupCommitService``.
    """

    def __init__(
        self,
        flushed: FlushedLog,
        log: Callable[[], WritableCommitLog],
        config: MessageStoreConfig,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        super().__init__("group-commit", 0.01, on_failure)
        self._flushed = flushed
        self._log = log
        self.timeout_s = min(config.sync_flush_timeout / 1000, _LONGEST_WAIT_S)
        self._error: BaseException | None = None  # set once
        #: What a put answers that is on disk.
        self.synced_status = PutMessageStatus.PUT_OK

    def run_once(self) -> bool:
        """Sync what was put since the last time; False also when there was no room to commit it."""
        if self._log().wrote_offset <= self._flushed.offset:
            if self._flushed.waiter_count > 0:  # an interrupt struck another flush behind its sync
                self._flushed.let_go()
            return False
        try:
            self._flushed.flush()
        except StoreFullError:
            return False
        return True

    def wait(self, end_offset: int) -> int:
        """Return ``PUT_OK`` when the log is on disk up to ``end_offset``, else FLUSH_DISK_TIMEOUT:
        at once, where this thread was interrupted in a step that the sync may have to wait for.

        Raises
        ------
        ServiceFailedError
            When a sync failed; what was not confirmed before never will be.
        KeyboardInterrupt
            While waiting; the message's fate is then unknown.
        """
        flushed = self._flushed
        if flushed.offset < end_offset and (kernels.locks.holds_any() or self.is_held_here):
            # A handler that interrupted this very thread put: what it waits for waits for it.
            return PutMessageStatus.FLUSH_DISK_TIMEOUT
        if not self.is_running and flushed.offset < end_offset:
            self.step_by_hand()
        deadline = time.monotonic() + self.timeout_s
        while flushed.offset < end_offset:
            ticket, woken = flushed.waiting.enter(end_offset), False
            try:
                self.wakeup()
                if flushed.offset >= end_offset:
                    break
                self._refuse_after_failure()
                left = deadline - time.monotonic()
                if left <= 0:
                    return PutMessageStatus.FLUSH_DISK_TIMEOUT
                woken = ticket.acquire(timeout=left)
            finally:
                if not woken:
                    flushed.waiting.leave(ticket)
        return PutMessageStatus.PUT_OK

    def step_by_hand(self) -> None:
        """Sync on this thread, for when none runs the service; who waits is told of a failure."""
        if self._error is None:
            with contextlib.suppress(OSError):  # the store was told, and has abandoned who waits
                self.step()

    def _refuse_after_failure(self) -> None:
        if self._error is not None:
            raise ServiceFailedError(
                f"syncing the log failed ({told(self._error)}); the message may not be on disk"
            ) from self._error

    def put_deferred(self, put: Callable[..., _Result]) -> tuple[_Result, int]:
        """Call ``put`` of the appender without waiting; return its result and the end offset it did
        not wait for, 0 when there is nothing to wait for.

        Only this put does not wait: others may be made meanwhile by what it calls, a clock or the
        messages themselves.
        """
        deferral = _Deferral(self.synced_status)
        result = put(_wait=deferral)
        return result, deferral.end_offset

    def wait_on_loop(
        self, loop: asyncio.AbstractEventLoop, end_offset: int, result: _Result
    ) -> asyncio.Future[_Result]:
        """Return a future that becomes ``result`` when the log is on disk up to ``end_offset``.

        It becomes ``result`` with FLUSH_DISK_TIMEOUT (or what ``loops.late_status`` says) when that
        takes too long, and raises ``ServiceFailedError`` when a sync fails. Called on the thread of
        ``loop``.
        """
        flushed = self._flushed
        line = flushed.loops.line(loop)
        future = line.add(end_offset, self.timeout_s, result)
        # Whoever reaches the offset or fails from now on sees the line; now for who did before.
        if flushed.offset >= end_offset:
            line.reached(flushed.offset)
        elif self._error is not None:
            line.fail(self._error)
        elif len(line) == 1:  # behind the first one the service looks by itself
            self.wakeup()
        return future

    def abandon(self, error: BaseException) -> None:
        """Wake every waiter with ``error``."""
        self._error = error
        self._flushed.waiting.wake_all()
        self._flushed.loops.fail(error)
