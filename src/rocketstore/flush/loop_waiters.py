"""Futures of event loops that wait for a sync of the log, without a thread per waiter."""

from __future__ import annotations

import contextlib
import itertools
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from rocketstore import kernels
from rocketstore.errors import ServiceFailedError, error_text
from rocketstore.lock_order import LockRank
from rocketstore.status import PutMessageStatus

if TYPE_CHECKING:
    import asyncio


class Waiter(NamedTuple):
    """A put that waits since ``begin`` until the log is on disk up to ``offset``, or until
    ``deadline``."""

    offset: int
    deadline: float
    future: asyncio.Future[Any]
    result: Any
    begin: float


class WaitersOfLoop:
    """The waiting puts of one event loop, ordered by offset.

    Attributes
    ----------
    is_asking : bool
        Whether the loop is going to ask for a sync; set on its thread.

    Notes
    -----
    Threading: ``add`` and completions on the loop's thread; ``reached`` and ``fail`` on any.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        late_status: PutMessageStatus = PutMessageStatus.FLUSH_DISK_TIMEOUT,
        add_wait: Callable[[int], None] | None = None,
    ) -> None:
        self.loop = loop
        self._add_wait = add_wait
        self.is_asking = False
        self._late_status = late_status
        self._lock = kernels.locks.OrderedLock(LockRank.WAITING)
        self._waiters: deque[Waiter] = deque()  # guarded by: _lock
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Return the number of waiting puts of this loop."""
        return len(self._waiters)

    @property
    def end_offset(self) -> int:
        """Return the greatest offset that a put waits for, 0 if none waits."""
        try:
            return self._waiters[-1].offset
        except IndexError:  # they were completed meanwhile
            return 0

    def add(self, offset: int, timeout_s: float, result: Any) -> asyncio.Future[Any]:
        """Return a future that becomes ``result`` once the log is on disk up to ``offset``.

        After ``timeout_s`` it becomes ``result.with_flush_status(late_status)``.
        """
        future = self.loop.create_future()
        begin = self.loop.time()
        waiter = Waiter(offset, begin + timeout_s, future, result, begin)
        with self._lock:
            self._waiters.append(waiter)
        if self._timer is None:
            self._timer = self.loop.call_at(waiter.deadline, self._expire)
        return future

    def reached(self, offset: int) -> None:
        """Complete all waiters up to ``offset``, with one call into the loop."""
        if not self._waiters:
            return
        with self._lock:
            ready = list(itertools.takewhile(lambda one: one.offset <= offset, self._waiters))
            if ready:
                self._call(
                    self._complete, ready
                )  # if the call raises, the waiters must stay queued
                for _ in ready:
                    self._waiters.popleft()

    def fail(self, error: BaseException) -> None:
        """Make all waiting futures raise ``ServiceFailedError``."""
        with self._lock:
            waiters = list(self._waiters)
            if waiters:
                self._call(_fail, waiters, error)
            self._waiters.clear()

    def _call(self, *call: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed; its futures are unused
            self.loop.call_soon_threadsafe(*call)

    def _expire(self) -> None:
        now = self.loop.time()
        late: list[Waiter] = []
        with self._lock:
            while self._waiters and self._waiters[0].deadline <= now:
                late.append(self._waiters.popleft())
            waiting = self._waiters[0] if self._waiters else None
        self._timer = None
        if waiting is not None:
            self._timer = self.loop.call_at(waiting.deadline, self._expire)
        for waiter in late:
            if not waiter.future.done():
                waiter.future.set_result(waiter.result.with_flush_status(self._late_status))
                self._count(now - waiter.begin)

    def _complete(self, waiters: list[Waiter]) -> None:
        now = self.loop.time()
        for waiter in waiters:
            if not waiter.future.done():  # not cancelled
                waiter.future.set_result(waiter.result)
                self._count(now - waiter.begin)

    def _count(self, elapsed_s: float) -> None:
        if self._add_wait is not None:
            self._add_wait(int(elapsed_s * 1000))


def _fail(waiters: list[Waiter], error: BaseException) -> None:
    for waiter in waiters:
        if not waiter.future.done():
            failure = ServiceFailedError(
                f"syncing the log failed ({error_text(error)}); the message may not be on disk"
            )
            failure.__cause__ = error
            waiter.future.set_exception(failure)


class LoopWaiters:
    """The waiting puts of all event loops, one ``WaitersOfLoop`` each.

    Attributes
    ----------
    late_status : PutMessageStatus
        Status of a put whose wait timed out; set before the first put.
    add_wait : callable or None
        Called with the ms that a put waited; set before the first put.

    Notes
    -----
    Threading: any thread.
    """

    def __init__(self) -> None:
        self.late_status = PutMessageStatus.FLUSH_DISK_TIMEOUT
        self.add_wait: Callable[[int], None] | None = None
        self._lock = kernels.locks.OrderedLock(LockRank.WAITING)
        self._lines: tuple[WaitersOfLoop, ...] = ()  # replaced as a whole under _lock

    def __len__(self) -> int:
        """Return the number of waiting puts."""
        return sum(map(len, self._lines))

    def line(self, loop: asyncio.AbstractEventLoop) -> WaitersOfLoop:
        """Return the line of ``loop``, created on first use; drop those of closed loops."""
        for line in self._lines:
            if line.loop is loop:
                return line
        with self._lock:
            open_lines = tuple(line for line in self._lines if not line.loop.is_closed())
            line = WaitersOfLoop(loop, self.late_status, self.add_wait)
            self._lines = (*open_lines, line)
        return line

    def reached(self, offset: int) -> None:
        """Complete the waiters up to ``offset``, which the log has reached on disk."""
        for line in self._lines:
            line.reached(offset)

    def fail(self, error: BaseException) -> None:
        """Fail all waiters: no later sync will succeed."""
        for line in self._lines:
            line.fail(error)
