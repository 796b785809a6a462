"""Appends for event loops: on the loop's thread, or on a worker thread if they might block."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from rocketstore import kernels
from rocketstore.errors import StoreClosedError
from rocketstore.flush.flush import FlushedLog
from rocketstore.flush.group_commit import GroupCommitService
from rocketstore.lock_order import LockRank
from rocketstore.log.writable_commit_log import WritableCommitLog

#: Upper bound of a record's bytes besides its body: topic, properties and the fixed part.
_MOST_BESIDE_BODY_NBYTES = 128 * 1024

_Result = TypeVar("_Result")


class AsyncAppends:
    """Append on the loop's thread, or on a worker thread if the append might wait for room.

    Notes
    -----
    Threading: any number of loops, each on its thread. The puts of one loop are appended in the
    order of the calls.
    """

    def __init__(
        self,
        log: WritableCommitLog,
        flushed: FlushedLog,
        group_commit: GroupCommitService | None,
    ) -> None:
        self._log = log
        self._flushed = flushed
        self._group_commit = group_commit
        self._lock = kernels.locks.OrderedLock(LockRank.WAITING)
        self._closed = False  # guarded by: _lock
        self._executor: ThreadPoolExecutor | None = None  # guarded by: _lock
        #: Number of calls of each loop that are queued or running in the executor.
        self._away: WeakKeyDictionary[asyncio.AbstractEventLoop, int] = WeakKeyDictionary()

    def may_put_here(self, body: object) -> bool:
        """Return whether a message with ``body`` may be appended on this loop's thread.

        It may if there is room for it and no earlier put of the loop is with the worker thread.
        """
        service = self._group_commit
        if service is not None and not service.is_running:
            return False
        return self._has_room(body) and not self._away.get(asyncio.get_running_loop())

    def is_plain(self, body: object) -> bool:
        """Return whether a put of ``body`` appends on this loop's thread and waits for no disk."""
        return self._group_commit is None and not self._away and self._has_room(body)

    def put_here(
        self, put: Callable[..., _Result]
    ) -> tuple[_Result, asyncio.Future[_Result] | None]:
        """Append by calling ``put``; return its result, and a future if it is not on disk yet."""
        service = self._group_commit
        if service is None:
            return put(), None
        result, end_offset = service.put_deferred(put)
        if end_offset <= self._flushed.offset:
            return result, None
        return result, service.wait_on_loop(asyncio.get_running_loop(), end_offset, result)

    async def put_away(self, put: Callable[..., _Result]) -> _Result:
        """Append by calling ``put`` on the worker thread; wait until it is on disk."""
        loop = asyncio.get_running_loop()
        service = self._group_commit
        if service is None:
            return await self._run(loop, put)
        result, end_offset = await self._run(loop, partial(service.put_deferred, put))
        if end_offset <= self._flushed.offset:
            return result
        waiting = service.wait_on_loop(loop, end_offset, result)
        if not service.is_running:
            # If the store is closed meanwhile, closing syncs the put and completes its future.
            with contextlib.suppress(StoreClosedError):
                await self._run(loop, service.step_by_hand)
        return await waiting

    def _has_room(self, body: object) -> bool:
        """Return whether a record with ``body`` fits the segment's allocated blocks for sure."""
        try:
            nbytes = memoryview(body).nbytes  # type: ignore[arg-type]
        except TypeError:
            nbytes = 0  # the put raises
        return self._log.appender.has_room(nbytes + _MOST_BESIDE_BODY_NBYTES)

    async def _run(self, loop: asyncio.AbstractEventLoop, call: Callable[[], _Result]) -> _Result:
        self._away[loop] = self._away.get(loop, 0) + 1
        running: Future[_Result] | None = None
        try:
            with self._lock:
                if self._closed:
                    raise StoreClosedError("the store is closed")
                if self._executor is None:
                    self._executor = ThreadPoolExecutor(1, "rocketstore-aput")
                try:
                    running = self._executor.submit(call)
                except RuntimeError:  # no thread could start; the call must not run later either
                    self._executor.shutdown(wait=False, cancel_futures=True)
                    self._executor = None
                    raise
            return await asyncio.wrap_future(running, loop=loop)
        finally:
            if running is None or running.done():
                self._is_back(loop)
            else:  # cancelled, but the call still runs: later puts must keep their order
                running.add_done_callback(partial(self._call_back, loop))

    def _is_back(self, loop: asyncio.AbstractEventLoop) -> None:
        left = self._away[loop] - 1
        if left:
            self._away[loop] = left
        else:
            del self._away[loop]

    def _call_back(self, loop: asyncio.AbstractEventLoop, _: Future[Any]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(self._is_back, loop)

    def close(self) -> None:
        """Finish the queued appends, then refuse further ones."""
        with self._lock:
            self._closed = True
        if self._executor is not None:
            self._executor.shutdown()
