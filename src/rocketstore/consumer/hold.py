"""PullRequestHoldService: reads that wait, without a thread each, until messages arrive."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rocketstore import kernels
from rocketstore.dispatch.named_queues import named_queues
from rocketstore.lock_order import LockRank, held_lock
from rocketstore.log.scan import CAPACITY, OF_A_QUEUE, LogScan
from rocketstore.query.results import GetMessageResult
from rocketstore.services.waiting import refuse_interrupted
from rocketstore.status import GetMessageStatus, RecordStatus

if TYPE_CHECKING:
    import asyncio

    from rocketstore.log.commit_log import CommitLog
    from rocketstore.queues.consume_queue import ConsumeQueue

#: Topic and queue id under which a pull waits for any record. Its offset is a log offset, and it
#: arrives when dispatch is past it.
WHOLE_LOG = ("", -1)
#: Under these a pull waits until the number of queues is no longer its offset.
ALL_QUEUES = ("", -2)
#: Looking a queue up costs so much less than reading one record's topic.
_LOOKUPS_PER_RECORD = 16

Key = tuple[str, int]
PullRead = Callable[[str, int, int], GetMessageResult]


class HeldPull:
    """A position in a queue, from which on messages are waited for.

    Parameters
    ----------
    topic : str
    queue_id : int
        The queue need not exist yet.
    offset : int
        Queue offset of the next message, where the last read found nothing. It is the queue's end,
        0 for a queue that does not exist.
    read : callable, optional
        ``read(topic, queue_id, offset)`` pulls one message with the filter that messages must pass.
        It is called on the thread that dispatches, without a lock. If it raises, the pull counts
        as arrived, and its own read meets the error.

    Attributes
    ----------
    offset : int
        Moved past messages that do not pass, while it waits: continue to read there.
    arrived : bool
        Whether the queue's end is no longer ``offset``, or a message passes, since the last wait
        began.

    Notes
    -----
    Threading: one wait at a time. It may be used for the next wait with another ``offset``.
    """

    __slots__ = ("_ticket", "arrived", "key", "offset", "read")

    def __init__(
        self, topic: str, queue_id: int, offset: int, read: PullRead | None = None
    ) -> None:
        self.key: Key = (topic, queue_id)
        self.offset = offset
        self.read = read
        self.arrived = False
        self._ticket: Ticket | None = None

    def __repr__(self) -> str:
        return f"HeldPull({self.key[0]!r}, {self.key[1]}, {self.offset}, arrived={self.arrived})"


class Ticket:
    """One wait: the lock that its thread acquires, or the future of its event loop."""

    __slots__ = ("future", "lock")

    def __init__(self, lock: threading.Lock | None, future: asyncio.Future[None] | None) -> None:
        self.lock, self.future = lock, future


class PullRequestHoldService:
    """Pulls that are held until messages arrive in their queues.

    A wait registers its pulls, then looks at their queues again, then sleeps: nothing that arrives
    meanwhile is missed (D-27). Dispatch calls ``announce`` after each batch if ``held`` is not
    empty. All waits of the queues that got messages end, one or several for the same message.

    Parameters
    ----------
    queues : callable
        Returns the store's queues by (topic, queue id).
    dispatched_offset : callable
        Returns the physical offset up to which those queues cover the log.
    log : callable
        Returns the log.
    multi_dispatch : int
        ``MultiDispatch`` flags: which queues besides its own a record is dispatched to.
    on_change : callable
        ``on_change(is_waiting)`` is called, with a lock held, when the first pull is held and when
        none is left.

    Attributes
    ----------
    held : dict
        The pulls that wait, by (topic, queue id). Empty if no read waits.

    Notes
    -----
    Threading: any thread waits; one at a time announces. Source: RocketMQ
    ``broker/longpolling/PullRequestHoldService.java``.
    """

    def __init__(
        self,
        queues: Callable[[], Mapping[Key, ConsumeQueue]],
        dispatched_offset: Callable[[], int],
        log: Callable[[], CommitLog],
        multi_dispatch: int = 0,
        on_change: Callable[[bool], None] = lambda is_waiting: None,
    ) -> None:
        # One pull needs no table of its own, which saves a fifth of its memory. guarded by: _lock
        self.held: dict[Key, HeldPull | dict[HeldPull, None]] = {}
        self._queues = queues
        self._dispatched_offset = dispatched_offset
        self._log = log
        self._multi_dispatch = multi_dispatch
        self._on_change = on_change
        self._lock = kernels.locks.OrderedLock(LockRank.LEAF)
        self._announced_offset = 0
        self._loops: set[asyncio.AbstractEventLoop] = set()  # guarded by: _lock
        #: Waits that are over, until their threads or loops know.
        self._unrung: dict[Ticket, None] = {}  # guarded by: _lock
        self._end: Callable[[], Exception] | None = None  # guarded by: _lock

    def __len__(self) -> int:
        """Return the number of pulls that wait."""
        with self._lock:
            return sum(len(self.pulls_of(key)) for key in self.held)

    def pulls_of(self, key: Key) -> list[HeldPull]:
        """Return the pulls that wait for a queue."""
        pulls = self.held.get(key)
        if pulls is None:
            return []
        return [pulls] if isinstance(pulls, HeldPull) else list(pulls)

    # --- waiting ------------------------------------------------------------------------------

    def wait(
        self,
        pulls: Sequence[HeldPull],
        timeout_s: float,
        is_over: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Wait until messages arrive for any of the pulls; return whether they did.

        Parameters
        ----------
        pulls : sequence of HeldPull
            One for each (topic, queue id), none of which waits elsewhere. Afterwards ``arrived``
            and ``offset`` of each are current.
        timeout_s : float
            ``math.inf`` waits without end; 0 or less only looks.
        is_over : callable
            Called once the pulls are registered; the wait ends at once if it returns True.

        Raises
        ------
        StoreClosedError, ServiceFailedError
            The store was closed, or failed, before messages arrived.
        ReentrantCallError
            This thread was interrupted in a step that arrivals may have to wait for.

        Notes
        -----
        Threading: any thread; it sleeps on a lock of its own. An interrupt, such as
        ``KeyboardInterrupt``, ends the wait and leaves nothing registered.
        """
        refuse_interrupted()
        lock = held_lock()
        ticket = Ticket(lock, None)
        try:
            self._enter(pulls, ticket)
            if not self._look(pulls) and timeout_s > 0 and not is_over():
                if timeout_s == math.inf:
                    lock.acquire()
                else:
                    lock.acquire(timeout=min(timeout_s, threading.TIMEOUT_MAX))
        finally:
            self._leave(pulls, ticket)
        return self._outcome(pulls)

    async def wait_async(
        self,
        pulls: Sequence[HeldPull],
        timeout_s: float,
        is_over: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Wait on an event loop; parameters, result and errors are those of ``wait``.

        Cancelling ends the wait and leaves nothing registered; messages stay in their queues, and
        other waits for them end as usual.

        Notes
        -----
        Threading: any number of loops. All waits of a loop that one batch ends are ended by one
        callback. No thread is used.
        """
        from asyncio import get_running_loop

        loop = get_running_loop()
        future = loop.create_future()
        ticket = Ticket(None, future)
        timer = None
        try:
            self._enter(pulls, ticket)
            if not self._look(pulls) and timeout_s > 0 and not is_over():
                if timeout_s < math.inf:
                    timer = loop.call_later(timeout_s, _end_wait, future)
                await future
        finally:
            if timer is not None:
                timer.cancel()
            self._leave(pulls, ticket)
        return self._outcome(pulls)

    def _enter(self, pulls: Sequence[HeldPull], ticket: Ticket) -> None:
        """Register the pulls; raise if nothing will arrive any longer."""
        deserted: list[HeldPull] = []
        with self._lock:
            if self._end is not None:
                raise self._end()
            if ticket.future is not None and ticket.future.get_loop() not in self._loops:
                deserted = self._drop_closed_loops()
                self._loops.add(ticket.future.get_loop())
            for pull in pulls:
                if pull._ticket is not None:
                    raise ValueError(f"{pull!r} is in use by another wait")
                is_first = not self.held
                if is_first:
                    self._announced_offset = self._dispatched_offset()
                pull._ticket, pull.arrived = ticket, False
                self._put_in(pull)
                if is_first:
                    self._on_change(True)
        del deserted  # their finalizers run without the lock

    def _drop_closed_loops(self) -> list[HeldPull]:
        """Take out the pulls of closed loops, whose tasks never end; the caller holds the lock."""
        closed = {loop for loop in self._loops if loop.is_closed()}
        if not closed:
            return []
        self._loops -= closed
        deserted = [
            pull
            for key in self.held
            for pull in self.pulls_of(key)
            if pull._ticket is not None
            and pull._ticket.future is not None
            and pull._ticket.future.get_loop() in closed
        ]
        for pull in deserted:
            self._take_out(pull)
        return deserted

    def _put_in(self, pull: HeldPull) -> None:
        """Add a pull to the table; the caller holds the lock."""
        pulls = self.held.get(pull.key)
        if pulls is None:
            self.held[pull.key] = pull
        elif isinstance(pulls, HeldPull):
            self.held[pull.key] = {pulls: None, pull: None}
        else:
            pulls[pull] = None

    def _take_out(self, pull: HeldPull) -> None:
        """Remove a pull from the table; the caller holds the lock."""
        pulls = self.held.get(pull.key)
        if isinstance(pulls, dict):
            pulls.pop(pull, None)
            if pulls:
                return
        elif pulls is not pull:
            return
        del self.held[pull.key]
        if not self.held:
            self._loops.clear()
            self._on_change(False)

    def _leave(self, pulls: Sequence[HeldPull], ticket: Ticket) -> None:
        with self._lock:
            for pull in pulls:
                if pull._ticket is ticket:
                    pull._ticket = None
                    self._take_out(pull)

    def _look(self, pulls: Sequence[HeldPull]) -> bool:
        """Look at the queues after registering; return whether the wait is over."""
        arrived = False
        for pull in pulls:
            if not _is_past(pull, self._end_of(pull.key, self._queues())):
                continue
            if pull.read is not None:
                offset, passes = _first_passing(pull, pull.offset)
                with self._lock:
                    pull.offset = max(pull.offset, offset)
                if not passes:
                    continue
            pull.arrived = arrived = True
        return arrived or self._end is not None

    def _outcome(self, pulls: Iterable[HeldPull]) -> bool:
        if any(pull.arrived for pull in pulls):
            return True
        if self._end is not None:
            raise self._end()
        return False

    def _end_of(self, key: Key, queues: Mapping[Key, ConsumeQueue]) -> int:
        if key == WHOLE_LOG:
            return self._dispatched_offset()
        if key == ALL_QUEUES:
            return len(queues)
        queue = queues.get(key)
        return 0 if queue is None else queue.max_index

    # --- waking -------------------------------------------------------------------------------

    def lags(self, offset: int) -> bool:
        """Return whether pulls are held that ``announce(offset)`` was not called for."""
        return bool(self._unrung) or (bool(self.held) and self._announced_offset < offset)

    def announce(self, offset: int, *, all_queues: bool = False) -> None:
        """End the waits of queues that got messages.

        Parameters
        ----------
        offset : int
            Physical offset up to which the log is dispatched now.
        all_queues : bool
            Look at all queues, because more may have changed than the records show.

        Notes
        -----
        Threading: one thread at a time. Filters are called here, without a lock. After an error,
        such as a failed allocation, call it again: only what was not announced yet is repeated.
        """
        start = self._announced_offset
        named = None if all_queues else self._keys_of_records(start, offset)
        with self._lock:
            keys = list(self.held) if named is None else [key for key in named if key in self.held]
        queues = self._queues()
        ends = {key: self._end_of(key, queues) for key in keys}
        try:
            for pull, ticket, first in self._wake_unfiltered(ends):
                reached, passes = _first_passing(pull, first)
                with self._lock:
                    if pull._ticket is ticket:  # it has not left meanwhile
                        pull.offset = max(pull.offset, reached)
                        if passes:
                            self._wake(pull, ticket)
        finally:
            self._ring()
        self._announced_offset = offset

    def _wake_unfiltered(
        self, ends: Mapping[Key, int]
    ) -> list[tuple[HeldPull, Ticket | None, int]]:
        """Wake the pulls without a filter whose queue has another end; return those with one.

        With each come its wait and its offset.
        """
        filtered = []
        with self._lock:
            for key, end in ends.items():
                for pull in self.pulls_of(key):
                    if not _is_past(pull, end):
                        continue
                    if pull.read is None:
                        self._wake(pull, pull._ticket)
                    else:
                        filtered.append((pull, pull._ticket, pull.offset))
        return filtered

    def _wake(self, pull: HeldPull, ticket: Ticket | None) -> None:
        """Take out a pull for which messages arrived; the caller holds the lock."""
        assert ticket is not None
        pull.arrived = True
        self._unrung[ticket] = None
        self._take_out(pull)

    def _ring(self) -> None:
        """Wake the waits that are over: threads by their locks, futures by one call to a loop.

        Repeat it after an error: those that were not woken for sure are woken again.
        """
        if not self._unrung:
            return
        with self._lock:
            tickets = list(self._unrung)
        of_loops: dict[Any, list[asyncio.Future[None]]] = {}
        for ticket in tickets:
            if ticket.future is not None:
                of_loops.setdefault(ticket.future.get_loop(), []).append(ticket.future)
            elif ticket.lock is not None:
                with contextlib.suppress(RuntimeError):  # an interrupted call woke it already
                    ticket.lock.release()
        for loop, futures in of_loops.items():
            with contextlib.suppress(RuntimeError):  # the loop is closed; its futures are unused
                loop.call_soon_threadsafe(_end_waits, futures)
        with self._lock:
            for ticket in tickets:
                self._unrung.pop(ticket, None)

    def _keys_of_records(self, start: int, stop: int) -> set[Key] | None:
        """Return the keys of held pulls to which records of the log belong.

        ``None`` if there are so many records that it costs less to look at all queues.
        """
        most = len(self.held) // _LOOKUPS_PER_RECORD
        if most == 0:
            return None
        keys = {WHOLE_LOG, ALL_QUEUES}
        scan = LogScan(self._log(), start, stop, 0, capacity=min(most, CAPACITY))
        for batch in scan:
            most -= batch.count
            if most < 0:
                return None
            for position, status in batch.places():
                if status not in OF_A_QUEUE:
                    continue
                message = batch.window.message(position)
                keys.add((message.topic, message.queue_id))
                for topic, queue_id, _ in named_queues(message, self._multi_dispatch):
                    keys.add((topic, queue_id))
        return keys if scan.status == RecordStatus.END else None

    def end_waits(self, pulls: Iterable[HeldPull]) -> None:
        """End the waits of pulls, as if their time was over. Threading: any thread."""
        with self._lock:
            for pull in pulls:
                if pull._ticket is not None:
                    self._unrung[pull._ticket] = None
        self._ring()

    def close(self, error: Callable[[], Exception]) -> None:
        """End all waits with the error that ``error`` makes; later ones raise it at once."""
        with self._lock:
            if self._end is None:
                self._end = error
            for key in self.held:
                for pull in self.pulls_of(key):
                    if pull._ticket is not None:
                        self._unrung[pull._ticket] = None
        self._ring()


def following_offset(result: GetMessageResult, offset: int) -> int | None:
    """Return where a read without messages continues; ``None`` if its answer is final.

    Parameters
    ----------
    result : GetMessageResult
        The answer of a pull from ``offset``.
    offset : int

    Returns
    -------
    int or None
        ``offset`` at the end of the queue, where a broker holds the pull; a later one if none of
        the messages that were examined passes the filter.

    Notes
    -----
    Source: RocketMQ ``broker/processor/PullMessageProcessor.java``: only PULL_NOT_FOUND is held.
    """
    if result.status is GetMessageStatus.OFFSET_OVERFLOW_ONE:
        return offset
    if result.status is GetMessageStatus.NO_MESSAGE_IN_QUEUE and offset == 0:
        return offset
    is_skipped = result.status is GetMessageStatus.NO_MATCHED_MESSAGE
    return result.next_begin_offset if is_skipped and result.next_begin_offset > offset else None


def _is_past(pull: HeldPull, end: int) -> bool:
    """Return whether there is something to read from the pull's offset on, or to report."""
    return end > pull.offset if pull.key == WHOLE_LOG else end != pull.offset


def _first_passing(pull: HeldPull, offset: int) -> tuple[int, bool]:
    """Return the queue offset up to which no message passes the filter, and whether one follows."""
    read = pull.read
    assert read is not None
    try:
        while True:
            following = following_offset(read(*pull.key, offset), offset)
            if following is None or following == offset:
                return offset, following is None
            offset = following
    except Exception:  # noqa: BLE001 - the waiting read meets the error itself
        return offset, True


def _end_waits(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        _end_wait(future)


def _end_wait(future: asyncio.Future[None]) -> None:
    if not future.done():  # not cancelled
        future.set_result(None)
