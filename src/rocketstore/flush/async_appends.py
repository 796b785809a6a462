"""Appends for event loops: on the loop's thread, or on a worker thread if they might block."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from rocketstore import kernels
from rocketstore.errors import StoreClosedError
from rocketstore.flush.flush import FlushedLog
from rocketstore.flush.group_commit import GroupCommitService
from rocketstore.lock_order import LockRank, ReentrantLock
from rocketstore.log.writable_commit_log import WritableCommitLog

#: Upper bound of a record's bytes besides its body: topic, properties and the fixed part.
_MOST_BESIDE_BODY_NBYTES = 128 * 1024

_Result = TypeVar("_Result")


@dataclass(slots=True, eq=False)
class _Append:
    """One call that appends, and the future of the coroutine that waits for it.

    ``nbytes`` is the room that it needs at most, ``None`` if a worker thread has to call it.
    """

    call: Callable[[], Any]
    nbytes: int | None
    done: asyncio.Future[Any]

    def run(self) -> tuple[asyncio.Future[Any], Any, BaseException | None]:
        """Append; return the future, and the result or the error that is its."""
        try:
            return self.done, self.call(), None
        except StopIteration as error:  # a future refuses it
            failure = RuntimeError("the put raised StopIteration")
            failure.__cause__ = error
            return self.done, None, failure
        except BaseException as error:  # noqa: BLE001 - the waiting coroutine raises it
            return self.done, None, error


class _Line:
    """The appends of a loop after one that the worker thread has, in the order of the calls."""

    __slots__ = ("is_away", "queued", "turn")

    def __init__(self) -> None:
        self.queued: deque[_Append] = deque()
        #: Whether the worker thread has appends of this line: the others wait for them.
        self.is_away = False
        #: Held to append from the line: by the loop's thread, or by the one that closes the store.
        self.turn = ReentrantLock()


class AsyncAppends:
    """Append on the loop's thread, or on a worker thread if the append might wait for room.

    Notes
    -----
    Threading: any number of loops, each on its thread. The puts of one loop are appended in the
    order of the calls: while the worker thread has one, the later ones of the loop wait in line.
    As soon as there is room again, the loop's thread appends them.
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
        #: The lines of the loops whose appends the worker thread has. Changed under _lock.
        self._lines: dict[asyncio.AbstractEventLoop, _Line] = {}

    def may_put_here(self, body: object) -> bool:
        """Return whether a message with ``body`` may be appended on this loop's thread.

        It may if there is room for it and no earlier put of the loop is with the worker thread.
        """
        if self._lines and asyncio.get_running_loop() in self._lines:
            return False
        return self._is_room_for(_most(body))

    def is_plain(self, body: object) -> bool:
        """Return whether a put of ``body`` appends on this loop's thread and waits for no disk."""
        return (
            self._group_commit is None
            and not self._lines
            and self._log.appender.has_room(_most(body))
        )

    def put_here(
        self, put: Callable[..., _Result]
    ) -> tuple[_Result, asyncio.Future[_Result] | None]:
        """Append by calling ``put``; return its result, and a future if it is not on disk yet."""
        service = self._group_commit
        if service is None:
            return put(), None
        result, end_offset = service.put_deferred(put)
        if end_offset <= self._flushed.offset:
            self._log.appender.add_wait(0)
            return result, None
        return result, service.wait_on_loop(asyncio.get_running_loop(), end_offset, result)

    async def put_away(self, put: Callable[..., _Result], body: object = None) -> _Result:
        """Append by calling ``put`` on the worker thread, or in line; wait until it is on disk.

        With a ``body``, the loop's thread may call it as soon as there is room for the message.
        """
        loop = asyncio.get_running_loop()
        service = self._group_commit
        call: Callable[[], Any] = put if service is None else partial(service.put_deferred, put)
        append = _Append(call, None if body is None else _most(body), loop.create_future())
        self._enter(loop, append)
        answer = await append.done
        if service is None:
            return answer  # type: ignore[no-any-return]
        result, end_offset = answer
        if end_offset <= self._flushed.offset:
            self._log.appender.add_wait(0)
            return result  # type: ignore[no-any-return]
        waiting = service.wait_on_loop(loop, end_offset, result)
        if not service.is_running:
            # If the store is closed meanwhile, closing syncs the put and completes its future.
            with contextlib.suppress(StoreClosedError):
                await asyncio.wrap_future(self._submit(service.step_by_hand), loop=loop)
        return await waiting  # type: ignore[no-any-return]

    def _is_room_for(self, nbytes: int | None) -> bool:
        """Return whether the loop's thread can append so much for sure without waiting."""
        service = self._group_commit
        is_served = service is None or service.is_running
        return nbytes is not None and is_served and self._log.appender.has_room(nbytes)

    def _enter(self, loop: asyncio.AbstractEventLoop, append: _Append) -> None:
        """Append after the earlier ones of the loop."""
        with self._lock:
            if self._closed:
                raise StoreClosedError("the store is closed")
            line = self._lines.setdefault(loop, _Line())
            line.queued.append(append)
        self._go_on(loop, line)

    def _go_on(self, loop: asyncio.AbstractEventLoop, line: _Line) -> None:
        """Append what there is room for; leave the rest to the worker thread. On ``loop``."""
        try:
            with line.turn:
                self._append_from(loop, line)
        except BaseException:  # an interrupt; the others in line go on
            loop.call_soon(self._go_on, loop, line)
            raise

    def _append_from(self, loop: asyncio.AbstractEventLoop, line: _Line) -> None:
        while not (line.is_away or self._closed):  # ``close`` appends what is left
            if not line.queued:
                with self._lock:
                    if self._lines.get(loop) is line:
                        del self._lines[loop]
                return
            if not self._is_room_for(line.queued[0].nbytes):
                batch, line.is_away = _take_all(line), True
                try:
                    self._submit(partial(self._work, loop, line, batch))
                except Exception as error:  # noqa: BLE001 - nothing was appended: all raise it
                    line.is_away = False
                    _settle([(append.done, None, error) for append in batch])
                continue
            append = line.queued.popleft()
            if not append.done.done():  # cancelled
                _settle([append.run()])

    def _submit(self, call: Callable[[], _Result]) -> Future[_Result]:
        """Call on the worker thread."""
        with self._lock:
            if self._closed:
                raise StoreClosedError("the store is closed")
            if self._executor is None:
                self._executor = ThreadPoolExecutor(1, "rocketstore-aput")
            try:
                return self._executor.submit(call)
            except RuntimeError:  # no thread could start; the call must not run later either
                self._executor.shutdown(wait=False, cancel_futures=True)
                self._executor = None
                raise

    def _work(self, loop: asyncio.AbstractEventLoop, line: _Line, batch: list[_Append]) -> None:
        """Append all that are still wanted, then go on with the line on the loop's thread."""
        outcomes = [append.run() for append in batch if not append.done.cancelled()]
        try:
            loop.call_soon_threadsafe(self._return, loop, line, outcomes)
        except RuntimeError:  # the loop is closed, and its futures are unused
            with self._lock:
                self._lines.pop(loop, None)

    def _return(self, loop: asyncio.AbstractEventLoop, line: _Line, outcomes: list[Any]) -> None:
        line.is_away = False
        try:
            _settle(outcomes)
        finally:
            self._go_on(loop, line)

    def close(self) -> None:
        """Finish the queued appends, then refuse further ones."""
        with self._lock:
            self._closed = True
            lines = list(self._lines.items())
        if self._executor is not None:
            self._executor.shutdown()
        for loop, line in lines:
            with line.turn:
                self._work(loop, line, _take_all(line))


def _most(body: object) -> int:
    """Return the most bytes of a record with ``body``."""
    if type(body) is bytes:
        return len(body) + _MOST_BESIDE_BODY_NBYTES
    try:
        nbytes = memoryview(body).nbytes  # type: ignore[arg-type]
    except TypeError:
        nbytes = 0  # the put raises
    return nbytes + _MOST_BESIDE_BODY_NBYTES


def _take_all(line: _Line) -> list[_Append]:
    batch = list(line.queued)
    line.queued.clear()
    return batch


def _settle(outcomes: list[tuple[asyncio.Future[Any], Any, BaseException | None]]) -> None:
    """Complete the futures that are not cancelled. Called on the thread of their loop."""
    for done, result, error in outcomes:
        if done.done():
            continue
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)
