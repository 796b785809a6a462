"""Reads of an open store that wait for messages: what they wait on, and their loops."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from rocketstore.consumer.hold import HeldPull, PullRequestHoldService, following_offset
from rocketstore.errors import ReentrantCallError
from rocketstore.store.arguments import check_wait

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from rocketstore.consumer.growth import GrowingStore
    from rocketstore.filter import MessageFilter
    from rocketstore.query.results import GetMessageResult
    from rocketstore.store.writer import StoreWriter


class StoreToWait(Protocol):
    """What a waiting read needs of its store."""

    @property
    def hold(self) -> PullRequestHoldService:
        """What wakes the read."""

    @property
    def is_dispatching_here(self) -> bool:
        """Whether this thread runs a step of dispatch."""

    def get_message(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int = 32,
        *,
        filter: str | MessageFilter | None = None,
    ) -> GetMessageResult:
        """Read without waiting."""

    def message_filter(self, given: str | MessageFilter) -> MessageFilter:
        """Return the filter that was given; a str is an SQL92 expression."""


def make_hold(writer: StoreWriter | None, store: GrowingStore) -> PullRequestHoldService:
    """Return what holds the waiting reads of a store, connected to its dispatch.

    Without a writer, in mode ``"r"``, it watches the log.
    """
    if writer is None:
        from rocketstore.consumer.growth import WatchedHold

        return WatchedHold(store)
    hold = PullRequestHoldService(
        lambda: writer.queues.table,
        lambda: writer.dispatcher.reput_offset,
        lambda: writer.log,
        writer.dispatcher.multi_dispatch,
        _attention(writer),
    )
    writer.hold = writer.reput.hold = hold
    if writer.failure is not None:
        hold.close(writer.failure_error)
    return hold


def _attention(writer: StoreWriter) -> Any:
    """Return what makes dispatch attentive while reads wait.

    Puts end its pauses. Where records become visible only after a sync, or after they are copied
    from the transient store pool, it looks more often until they are.
    """
    reput, appender = writer.reput, writer.log.appender
    is_late = writer.group_commit is not None or writer.log.pool is not None

    def written_offset() -> int:
        return writer.log.wrote_offset

    def change(is_waiting: bool) -> None:
        appender.bell = reput.bell.lock if is_waiting else None
        reput.written_offset = written_offset if is_waiting and is_late else None
        if is_waiting:
            reput.wakeup()

    return change


def refuse_on_dispatch(store: StoreToWait) -> None:
    """Raise ``ReentrantCallError`` if this thread dispatches: nothing arrives while it waits."""
    if store.is_dispatching_here:
        raise ReentrantCallError(
            "an arriving listener or a filter, called by dispatch, waits for a message that only "
            "dispatch can bring; wait on another thread"
        )


class WaitingRead(HeldPull):
    """One ``get_message`` that waits: where it is, what must pass, and until when.

    Parameters
    ----------
    store : StoreToWait
    group, topic, queue_id, filter
        As in ``get_message``.
    wait_s : float

    Attributes
    ----------
    filter : MessageFilter or None
    deadline : float
        By ``time.monotonic``.
    """

    __slots__ = ("_store", "deadline", "filter")

    def __init__(
        self,
        store: StoreToWait,
        group: str,
        topic: str,
        queue_id: int,
        filter: str | MessageFilter | None,
        wait_s: float,
    ) -> None:
        check_wait(wait_s)
        self.filter = None if filter is None else store.message_filter(filter)
        read = None
        if self.filter is not None:
            read = partial(store.get_message, group, max_count=1, filter=self.filter)
        super().__init__(topic, queue_id, 0, read)
        self._store = store
        self.deadline = time.monotonic() + wait_s

    def following(self, result: GetMessageResult, offset: int) -> int | None:
        """Return where to read next: ``offset`` after waiting, another one at once.

        ``None`` if ``result`` is the answer, because it has messages or the time is over.
        """
        following = following_offset(result, offset)
        return None if following is None or self.deadline <= time.monotonic() else following

    def wait(self, offset: int) -> None:
        """Wait at the queue's end; then read on from ``self.offset``."""
        self._enter(offset).wait((self,), self._left_s)

    def wait_async(self, offset: int) -> Coroutine[Any, Any, bool]:
        """Return what waits as ``wait`` does, on an event loop.

        Without a coroutine of its own: each takes up memory while it waits.
        """
        return self._enter(offset).wait_async((self,), self._left_s)

    def _enter(self, offset: int) -> PullRequestHoldService:
        refuse_on_dispatch(self._store)
        self.offset = offset
        return self._store.hold

    @property
    def _left_s(self) -> float:
        return self.deadline - time.monotonic()


def get_message(
    store: StoreToWait,
    group: str,
    topic: str,
    queue_id: int,
    offset: int,
    max_count: int,
    filter: str | MessageFilter | None,
    wait_s: float,
) -> GetMessageResult:
    """See ``DefaultMessageStore.get_message``, with ``wait_s``."""
    waiting = WaitingRead(store, group, topic, queue_id, filter, wait_s)
    while True:
        result = store.get_message(group, topic, queue_id, offset, max_count, filter=waiting.filter)
        following = waiting.following(result, offset)
        if following is None:
            return result
        if following == offset:
            waiting.wait(offset)
            following = waiting.offset
        offset = following
