"""GroupCommitService (SYNC_FLUSH): one sync for all waiting puts, of threads or event loops."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from rocketstore import kernels
from rocketstore.config import MessageStoreConfig
from rocketstore.errors import ServiceFailedError, StoreFullError, error_text
from rocketstore.flush.flush import FlushedLog
from rocketstore.log.writable_commit_log import WritableCommitLog
from rocketstore.services.service_thread import ServiceThread
from rocketstore.status import PutMessageStatus

if TYPE_CHECKING:
    import asyncio

    from rocketstore.flush.loop_waiters import WaitersOfLoop

#: Python limits how long a thread can wait for a lock.
_LONGEST_WAIT_S = threading.TIMEOUT_MAX / 2

_Result = TypeVar("_Result")


class _Deferral:
    """Called by a put in place of a wait; remembers what the put would have waited for.

    Attributes
    ----------
    end_offset : int
        Offset the put would have waited for; 0 if it has nothing to wait for.
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
        super().__init__("group-commit", 0.01, on_failure, bell=flushed.waiting)
        self._flushed = flushed
        self._log = log
        self.timeout_s = min(config.sync_flush_timeout / 1000, _LONGEST_WAIT_S)
        self._error: BaseException | None = None  # set once
        #: Status of a put that is on disk.
        self.synced_status = PutMessageStatus.PUT_OK

    def run_once(self) -> bool:
        """Sync new puts; return whether there were any and the commit had room."""
        if self._log().wrote_offset <= self._flushed.offset:
            # An interrupt may have stopped another flush after its sync, before it woke waiters.
            if self._flushed.waiter_count > 0:
                self._flushed.let_go()
            return False
        try:
            self._flushed.flush()
        except StoreFullError:
            return False
        return True

    def stop(self) -> None:
        """Ask the thread to stop after its current sync (see ``shutdown``)."""
        if not self._stopping:
            self._flushed.waiting.__enter__()  # for good: while puts come, it would not return
        super().stop()

    def _listen(self, timeout_s: float) -> bool:
        """Sync puts as they come: no step is needed while they go to one segment."""
        return self._flushed.follow(timeout_s)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Keep the service from syncing."""
        with self._flushed.waiting:
            self._flushed.mark()  # ends once no thread follows the log
            with super().paused():
                yield

    def wait(self, end_offset: int) -> int:
        """Wait until the log is on disk up to ``end_offset``; return ``PUT_OK``.

        Return ``FLUSH_DISK_TIMEOUT`` after the timeout. Return it at once if a handler that
        interrupted a step of this thread put the message, because the sync may need that step.

        Raises
        ------
        ServiceFailedError
            When a sync failed; puts that were not confirmed before it never will be.
        KeyboardInterrupt
            While waiting; the message's fate is then unknown.
        """
        flushed = self._flushed
        if flushed.offset < end_offset and (kernels.locks.holds_any() or self.is_held_here):
            # The interrupted step cannot continue before this handler returns: a deadlock.
            return PutMessageStatus.FLUSH_DISK_TIMEOUT
        if not self.is_running and flushed.offset < end_offset:
            self.step_by_hand()
        deadline = time.monotonic() + self.timeout_s
        while flushed.offset < end_offset:
            self._refuse_after_failure()
            if not flushed.waiting.wait(end_offset, deadline - time.monotonic()):
                return PutMessageStatus.FLUSH_DISK_TIMEOUT
        return PutMessageStatus.PUT_OK

    def step_by_hand(self) -> None:
        """Sync on this thread if the service's thread does not run; waiters get the failure."""
        if self._error is None:
            with contextlib.suppress(OSError):  # on_failure got it and called ``abandon``
                self.step()

    def _refuse_after_failure(self) -> None:
        if self._error is not None:
            raise ServiceFailedError(
                f"syncing the log failed ({error_text(self._error)}); the message may not be on "
                "disk"
            ) from self._error

    def put_deferred(self, put: Callable[..., _Result]) -> tuple[_Result, int]:
        """Call ``put`` of the appender without waiting; return its result and its end offset.

        The end offset is 0 if there is nothing to wait for. Only this put skips the wait: puts
        made by a clock or message that it calls do wait.
        """
        deferral = _Deferral(self.synced_status)
        result = put(_wait=deferral)
        return result, deferral.end_offset

    def wait_on_loop(
        self, loop: asyncio.AbstractEventLoop, end_offset: int, result: _Result
    ) -> asyncio.Future[_Result]:
        """Return a future that becomes ``result`` when the log is on disk up to ``end_offset``.

        After the timeout it becomes ``result`` with ``loops.late_status`` (FLUSH_DISK_TIMEOUT by
        default). It raises ``ServiceFailedError`` when a sync fails. Call it on the thread of
        ``loop``.
        """
        line = self._flushed.loops.line(loop)
        future = line.add(end_offset, self.timeout_s, result)
        if not line.is_asking:
            # Once for all puts that the loop's other ready tasks make first.
            loop.call_soon(self._ask, line)
            line.is_asking = True
        return future

    def _ask(self, line: WaitersOfLoop) -> None:
        """Ask for a sync of what the loop has put; called by the loop."""
        line.is_asking = False
        flushed, end_offset = self._flushed, line.end_offset
        # Later syncs see the waiters; handle a sync or failure that came before they were added.
        if flushed.waiting.ask_back() >= end_offset or flushed.offset >= end_offset:
            line.reached(flushed.offset)
        elif self._error is not None:
            line.fail(self._error)
        else:
            self.wakeup()

    def abandon(self, error: BaseException) -> None:
        """Wake every waiter with ``error``."""
        self._error = error
        self._flushed.waiting.fail()
        self._flushed.loops.fail(error)
