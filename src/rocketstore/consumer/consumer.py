"""``Consumer``: what a group reads, settles, retries and gives up."""

from __future__ import annotations

import asyncio
import io
import logging
import math
import threading
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, NamedTuple, NoReturn

from rocketstore.consumer.arrivals import Arrivals, Feed, Patience
from rocketstore.consumer.cursor import Lease
from rocketstore.consumer.progress import GroupProgress, Key
from rocketstore.consumer.retried import RetriedMessage, stored_record
from rocketstore.errors import ForkedStoreError, StoreClosedError
from rocketstore.message import StoredMessage

_log = logging.getLogger(__name__)
#: What ends an idle wait to look whether the store still lives.
_FOR_EVER = math.inf


class Parts(NamedTuple):
    """What a consumer is made of; see ``store/engine/consuming.py``.

    Attributes
    ----------
    progress : GroupProgress
    feed : Feed
    arrivals : Arrivals
    send_back : callable or None
        ``send_back(message, delay_level)`` writes a message to the retry or the dead letter topic;
        a negative level gives it up. ``None`` in a store that is only read.
    commit : callable
        ``commit(sync)`` stores the positions; with ``sync`` on disk.
    claim_retries : callable
        Returns whether this consumer, and no other of the group, reads the retry topic.
    release : callable
        Gives the queues back, and writes the positions.
    """

    progress: GroupProgress
    feed: Feed
    arrivals: Arrivals
    send_back: Callable[[StoredMessage, int], None] | None
    commit: Callable[[bool], None]
    claim_retries: Callable[[Consumer], bool]
    release: Callable[[Consumer], None]


class _Holder:
    """What one thread or task works on. When it ends, its messages are given back unsettled.

    An interrupt may come between any two steps: a lease is over only when it is given back, and
    forgotten only when it is over. Giving it back twice does no harm.
    """

    __slots__ = ("__weakref__", "_returned", "loop", "polled")

    def __init__(self, returned: deque[Lease]) -> None:
        self._returned = returned
        self.loop: Lease | None = None
        self.polled: list[Lease] = []

    def keep(self, lease: Lease) -> None:
        """Remember what the loop is about to work on."""
        self.loop = lease

    def end_loop(self) -> bool:
        """Give back what a loop that was left, or forgotten, holds; return whether it held any."""
        lease = self.loop
        holds = lease is not None and not lease.over
        if lease is not None and holds:
            lease.revoked = True
            self._returned.append(lease)
            lease.over = True
        self.loop = None
        return holds

    def end_poll(self, *, settled: bool) -> bool:
        """Give back what ``poll`` returned; return whether it was anything."""
        has_returned = False
        for lease in self.polled:
            if not lease.over:
                lease.is_done = settled
                self._returned.append(lease)
                lease.over = has_returned = True
        self.polled = []
        return has_returned

    def __del__(self) -> None:
        if not hasattr(self, "polled"):
            return  # interrupted before it could hold anything
        self.end_loop()
        self.end_poll(settled=False)


class Consumer:
    """Reads the messages of a group's topics; made by ``DefaultMessageStore.consumer``.

    ``for message in consumer`` waits for messages, without end unless ``idle_timeout_s`` is given.
    With ``ack="next"`` a message is settled when the next one is asked for; leaving the loop by an
    exception, or by ``break``, does not settle it. With ``ack="manual"`` each message is settled by
    ``ack``, ``retry`` or ``dead``, in any order. The committed offset of a queue is that of the
    first message that is not settled: after a crash, reading goes on there.

    Attributes
    ----------
    group : str

    Notes
    -----
    Threading: threads, and tasks of event loops, may share a consumer. Messages of one queue are
    handed out in order, each to one of them; with ``ack="next"`` a queue is read by one thread at a
    time. A thread or task has one loop at a time: what an earlier one had not settled is handed
    out again. Use it as a context manager, or ``close`` it.
    """

    def __init__(
        self,
        group: str,
        parts: Parts,
        *,
        settles: bool,
        max_count: int,
        idle_timeout_s: float | None,
    ) -> None:
        self.group = group
        self._parts = parts
        self._progress = parts.progress
        self._settles = settles
        self._max_count = max_count
        self._idle_s = _FOR_EVER if idle_timeout_s is None else idle_timeout_s
        self._closed: str | None = None
        self._has_warned = False
        self._path = parts.progress.path
        self._closing = threading.Lock()
        self._local = threading.local()
        self._tasks: weakref.WeakKeyDictionary[Any, _Holder] = weakref.WeakKeyDictionary()

    def __enter__(self) -> Consumer:
        self._check()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a consumer of an open store cannot be copied or pickled: open {self._path} and "
            f"consume for the group {self.group} where it is needed"
        )

    def __repr__(self) -> str:
        if self._closed is not None:
            return f"<Consumer {self.group!r} closed>"
        return f"<Consumer {self.group!r} of {len(self._progress.cursors)} queues>"

    # --- reading ------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        """Iterate over messages; see the class.

        Raises
        ------
        OffsetOutOfRangeError
            The group is to go on past a queue's end: ``seek`` says where instead.
        CorruptMessageError
            The next message of a queue is corrupt; ``seek`` to the next offset skips it.
        StoreClosedError
            The consumer or its store was closed.
        """
        return self._iterate(self._begin())

    def _iterate(self, holder: _Holder) -> Iterator[Any]:
        while (lease := self._next_lease(holder)) is not None:
            try:
                if self._settles:
                    for message in lease.shown():
                        if lease.revoked:
                            break
                        lease.handed += 1
                        yield message
                else:
                    for message in self._hand_out(lease):
                        yield message
                lease.is_done = not lease.revoked
            finally:
                self._end_of_loop(lease)

    def __aiter__(self) -> AsyncIterator[Any]:
        """Iterate on an event loop, as ``__iter__`` does; waiting does not block the loop."""
        return self._iterate_async(self._begin())

    async def _iterate_async(self, holder: _Holder) -> AsyncIterator[Any]:
        while (lease := await self._next_lease_async(holder)) is not None:
            try:
                for message in self._hand_out(lease):
                    yield message
                lease.is_done = not lease.revoked
            finally:
                self._end_of_loop(lease)

    def _hand_out(self, lease: Lease) -> Iterator[Any]:
        """Yield the messages of a lease, each remembered before it is handed out."""
        is_retry = lease.cursor.is_retry
        for message in lease.messages:
            if lease.revoked:
                return
            if self._settles:
                lease.handed += 1
            else:
                self._progress.hand_out(lease, message)
            yield RetriedMessage(message) if is_retry else message

    def _end_of_loop(self, lease: Lease) -> None:
        if not lease.over:
            self._progress.returned.append(lease)
            lease.over = True
            if not lease.is_done:
                self._parts.arrivals.ring()

    def poll(self, max_count: int = 32, timeout_s: float = 0) -> list[Any]:
        """Return the next messages, of one or several queues.

        With ``ack="next"`` the messages that the last call returned to this thread are settled.

        Parameters
        ----------
        max_count : int
            Most messages to return, at least 1.
        timeout_s : float
            Seconds to wait for the first message; 0 waits for nothing.

        Returns
        -------
        list of StoredMessage
            Empty when nothing came in time.

        Raises
        ------
        OffsetOutOfRangeError, CorruptMessageError, StoreClosedError
            As when iterating.
        """
        _check_poll(max_count, timeout_s)
        holder = self._begin()
        patience = Patience(self._parts.feed, timeout_s, surely=timeout_s > 0)
        while True:
            count = self._look()
            found = self._collect(holder, max_count)
            if found or (pause := patience.pause()) is None:
                return found
            if pause > 0:
                self._parts.arrivals.wait(self._progress.pulls(), count, pause)

    async def apoll(self, max_count: int = 32, timeout_s: float = 0) -> list[Any]:
        """Return the next messages, as ``poll``, on an event loop; the thread is the task here.

        Await it in the task that works on the messages. In a task of its own, such as
        ``create_task`` and, before Python 3.12, ``asyncio.wait_for`` make, messages need
        ``ack="manual"``: with ``ack="next"`` no later call of that task settles them, so they come
        again. Give ``timeout_s`` in place of ``wait_for``.
        """
        _check_poll(max_count, timeout_s)
        holder = self._begin()
        self._warn_of_own_task()
        patience = Patience(self._parts.feed, timeout_s, surely=timeout_s > 0)
        while True:
            count = self._look()
            found = self._collect(holder, max_count)
            if found or (pause := patience.pause()) is None:
                return found
            if pause > 0:
                await self._parts.arrivals.wait_async(self._progress.pulls(), count, pause)

    def _warn_of_own_task(self) -> None:
        """Log once that messages come again, if the running task is for one ``apoll`` alone."""
        if not self._settles or self._has_warned:
            return
        task = asyncio.current_task()
        code = None if task is None else getattr(task.get_coro(), "cr_code", None)
        if code is Consumer.apoll.__code__:
            self._has_warned = True
            _log.warning(
                "apoll() of the group %s runs in a task of its own, which ends with it: its "
                'messages are not settled and come again; await it directly, or use ack="manual"',
                self.group,
            )

    def _begin(self) -> _Holder:
        """Give back what the calling thread or task worked on; ``poll``'s messages are settled."""
        self._check()
        holder = self._holder()
        has_returned = holder.end_loop()
        if holder.end_poll(settled=True) or has_returned:
            self._parts.arrivals.ring()
        return holder

    def _collect(self, holder: _Holder, max_count: int) -> list[Any]:
        """Return what can be read now; of a queue after a corrupt message nothing.

        If it raises, by an interrupt for example, nothing counts as handed out.
        """
        found: list[Any] = []
        try:
            while len(found) < max_count:
                try:
                    lease = self._progress.lease(max_count - len(found), holder.polled.append)
                except Exception:
                    if found:
                        break  # the next call meets it
                    raise
                if lease is None:
                    break
                found += self._show(lease)
                while len(found) < max_count:
                    if not self._progress.extend(lease, max_count - len(found)):
                        break
                    found += self._show(lease)
        except BaseException:
            if not self._settles:
                self._progress.take_away(holder.polled, map(stored_record, found))
            holder.end_poll(settled=False)
            raise
        if not self._settles:
            holder.end_poll(settled=True)  # each message is settled by name
        return found

    def _show(self, lease: Lease) -> Iterable[Any]:
        return lease.shown() if self._settles else self._hand_out(lease)

    # --- waiting ------------------------------------------------------------------------------

    def _next_lease(self, holder: _Holder) -> Lease | None:
        self._settle_polled(holder)
        patience = Patience(self._parts.feed, self._idle_s, surely=True)
        while True:
            count = self._look()
            lease = self._progress.lease(self._max_count, holder.keep)
            if lease is not None:
                return lease
            if (pause := patience.pause()) is None:
                self._parts.arrivals.ring()  # another loop reads on
                return None
            if pause > 0:
                self._parts.arrivals.wait(self._progress.pulls(), count, pause)

    async def _next_lease_async(self, holder: _Holder) -> Lease | None:
        self._settle_polled(holder)
        patience = Patience(self._parts.feed, self._idle_s, surely=True)
        while True:
            count = self._look()
            lease = self._progress.lease(self._max_count, holder.keep)
            if lease is not None:
                return lease
            if (pause := patience.pause()) is None:
                self._parts.arrivals.ring()  # another loop reads on
                return None
            if pause > 0:
                await self._parts.arrivals.wait_async(self._progress.pulls(), count, pause)

    def _settle_polled(self, holder: _Holder) -> None:
        """Settle what ``poll`` returned inside a loop: else the loop would wait for its own."""
        if holder.end_poll(settled=True):
            self._parts.arrivals.ring()

    def _look(self) -> int:
        """Return the arrivals so far, before a look for messages."""
        if self._closed is not None:
            raise StoreClosedError(self._closed)
        progress = self._progress
        if not progress.reads_retries and self._parts.claim_retries(self):
            progress.reads_retries = True
            progress.discover(again=True)
        return self._parts.arrivals.count

    def _holder(self) -> _Holder:
        """Return what the calling task, or thread, works on."""
        try:
            task = asyncio.current_task()
        except RuntimeError:
            task = None
        if task is not None:
            holder = self._tasks.get(task)
            if holder is None:
                holder = self._tasks[task] = _Holder(self._progress.returned)
            return holder
        try:
            found: _Holder = self._local.holder
        except AttributeError:
            found = self._local.holder = _Holder(self._progress.returned)
        return found

    # --- settling -----------------------------------------------------------------------------

    def ack(self, message: StoredMessage) -> None:
        """Settle a message; nothing happens if it is settled already.

        With ``ack="next"`` only the message that this thread's loop has at hand can be settled, for
        example before ``break``.

        Raises ``ValueError`` for another message then, ``TypeError`` for something else.
        """
        if self._closed is not None:
            raise StoreClosedError(self._closed)
        stored = message if type(message) is StoredMessage else stored_record(message)
        if not self._settles:
            self._progress.settle(stored)
            return
        lease = self._holder().loop
        if lease is None or lease.over or lease.handed == 0:
            raise ValueError('with ack="next" only the message at hand in a loop can be settled')
        if lease.messages[lease.handed - 1].physical_offset != stored.physical_offset:
            raise ValueError('with ack="next" only the message at hand in a loop can be settled')
        lease.acked = True

    def retry(self, message: StoredMessage, delay_level: int = 0) -> None:
        """Give a message back: the group gets it again later, from ``%RETRY%group``.

        The messages of an inner batch are given back one by one. If the store fails meanwhile, the
        batch is not settled, and those that were stored come again.

        Parameters
        ----------
        message : StoredMessage
        delay_level : int
            0: level 3 (10 s by default) for the first retry, then a level more each time. A level
            past the last one is the last one. After ``max_reconsume_times`` retries the message is
            a dead letter; so it is with a negative level.

        Raises
        ------
        ConsumerError
            The message is settled already, or the store refused the record; then it is not settled.
        ValueError
            With ``ack="next"``.
        io.UnsupportedOperation
            Mode ``"r"``.
        StoreFullError, ServiceFailedError
            As ``put``; the message is not settled.
        """
        if isinstance(delay_level, bool) or not isinstance(delay_level, int):
            raise TypeError(f"delay_level must be int, not {type(delay_level).__name__}")
        self._leave(message, delay_level)

    def dead(self, message: StoredMessage) -> None:
        """Give a message up: it goes to ``%DLQ%group``. Raises as ``retry``."""
        self._leave(message, -1)

    def _leave(self, message: StoredMessage, delay_level: int) -> None:
        self._check()
        stored = stored_record(message)
        send_back = self._parts.send_back
        if send_back is None:
            raise io.UnsupportedOperation('a consumer of a store with mode "r" cannot retry')
        if self._settles:
            raise ValueError('retry() and dead() need ack="manual"')
        cursor = self._progress.begin_leaving(stored)
        is_stored = False
        try:
            send_back(stored, delay_level)
            is_stored = True
        finally:
            self._progress.end_leaving(cursor, stored, stored=is_stored)

    # --- positions ----------------------------------------------------------------------------

    def commit(self, *, sync: bool = False) -> None:
        """Commit the positions.

        With ``ack="next"``, messages that ``poll`` returned to this thread are settled before; the
        message at hand in a loop is not. Positions are written every
        ``flush_consumer_offset_interval`` and at closing.

        Parameters
        ----------
        sync : bool
            Return when the positions, and the log up to now, are on disk.

        Raises
        ------
        StoreFullError, CorruptionError
            With ``sync``, if the table cannot be written; nothing is lost.
        """
        self._check()
        if self._settles and self._holder().end_poll(settled=True):
            self._parts.arrivals.ring()
        self._parts.commit(sync)

    def commit_positions(self) -> None:
        """Keep the positions, to be written at the next interval; settles nothing."""
        self._parts.commit(False)

    def pulled(self) -> dict[Key, int]:
        """Return the queue offset by (topic, queue id) up to which messages were read."""
        return self._progress.pulled()

    @property
    def positions(self) -> dict[Key, int]:
        """Queue offset by (topic, queue id): everything before it is settled."""
        return self._progress.positions()

    @property
    def lag(self) -> dict[Key, int]:
        """Messages from the position to the end of each queue, as the queue counts them."""
        self._check()
        self._progress.discover()
        return self._progress.lag(self._progress.positions())

    def seek(self, topic: str, queue_id: int, offset: int) -> None:
        """Go on at a queue offset; messages of the queue that were handed out are forgotten.

        Raises
        ------
        OffsetOutOfRangeError
            The queue does not have the offset; its end is valid.
        ValueError
            This consumer does not read the queue.
        """
        self._check()
        if isinstance(offset, bool) or not isinstance(offset, int):
            raise TypeError(f"offset must be int, not {type(offset).__name__}")
        self._progress.seek((topic, queue_id), offset)

    def seek_to_time(self, ms: int) -> None:
        """Go on at the first message that was stored at ``ms`` or later, in every queue.

        The retry topic keeps its position. ``ms`` is epoch ms.
        """
        self._check()
        if isinstance(ms, bool) or not isinstance(ms, int):
            raise TypeError(f"ms must be int, not {type(ms).__name__}")
        self._progress.seek_to_time(ms)

    # --- closing ------------------------------------------------------------------------------

    def close(self) -> None:
        """Write the positions, and let others consume the queues. Idempotent.

        Loops and calls that wait raise ``StoreClosedError``. Messages that are not settled come
        again. Raises ``StoreFullError`` if there is no room for the positions, and
        ``ServiceFailedError`` if the store has failed; the consumer is closed all the same.
        """
        self.end("the consumer is closed")

    def end(self, reason: str) -> None:
        """Close; calls that wait raise ``StoreClosedError`` with the reason."""
        with self._closing:
            if self._closed is not None:
                return
            self._closed = reason
        try:
            self._progress.check_store()
        except ForkedStoreError:
            return  # its positions are the parent's affair
        except StoreClosedError:
            pass
        self._parts.arrivals.ring()
        self._progress.revoke()
        self._parts.release(self)

    @property
    def closed(self) -> bool:
        """Whether the consumer was closed."""
        return self._closed is not None

    def _check(self) -> None:
        if self._closed is not None:
            raise StoreClosedError(self._closed)
        self._progress.check_store()


def _check_poll(max_count: int, timeout_s: float) -> None:
    if isinstance(max_count, bool) or not isinstance(max_count, int):
        raise TypeError(f"max_count must be int, not {type(max_count).__name__}")
    if max_count < 1:
        raise ValueError(f"max_count is {max_count}; it must be at least 1")
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float):
        raise TypeError(f"timeout_s must be a number, not {type(timeout_s).__name__}")
    if math.isnan(timeout_s) or timeout_s < 0:
        raise ValueError(f"timeout_s is {timeout_s}; it must be 0 or more seconds")
