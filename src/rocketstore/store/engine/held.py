"""The calls of a store that wait for messages on an event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketstore.store.arguments import check_wait
from rocketstore.store.reading import ReadingStore

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from rocketstore.arguments import OnCorruption
    from rocketstore.filter import MessageFilter
    from rocketstore.message import StoredMessage
    from rocketstore.query.results import GetMessageResult


class HeldStore(ReadingStore):
    """The calls that wait on an event loop; the first of them loads what they need."""

    async def aget_message(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int = 32,
        *,
        filter: str | MessageFilter | None = None,
        wait_s: float | None = None,
    ) -> GetMessageResult:
        """Read messages of one queue as ``get_message`` does, but wait on an event loop.

        Parameters
        ----------
        group, topic, queue_id, offset, max_count, filter, wait_s
            As in ``get_message``.

        Returns
        -------
        GetMessageResult
            As of ``get_message``.

        Raises
        ------
        StoreClosedError, ServiceFailedError
            The store was closed, or failed, while the call waited.
        CorruptMessageError, FilterSyntaxError, ReentrantCallError, TypeError, ValueError
            As ``get_message``.

        Notes
        -----
        The messages are read on the loop's thread, which takes microseconds. Waiting needs no
        thread, and about a kilobyte. Cancelling ends the wait and leaves nothing registered. All
        calls of one loop that wait for the same messages are woken by one callback. Threading: any
        number of loops in any threads.
        """
        if wait_s is None:
            return self.get_message(group, topic, queue_id, offset, max_count, filter=filter)
        from asyncio import sleep

        from rocketstore.store.engine.holding import WaitingRead

        waiting = WaitingRead(self, group, topic, queue_id, filter, wait_s)
        while True:
            result = self.get_message(
                group, topic, queue_id, offset, max_count, filter=waiting.filter
            )
            following = waiting.following(result, offset)
            if following is None:
                return result
            if following == offset:
                del result
                await waiting.wait_async(offset)
                offset = waiting.offset
            else:
                offset = following
                await sleep(0)  # a long way of messages that do not pass: let other tasks run

    def atail(
        self,
        *,
        topics: Sequence[str] | None = None,
        start: int | None = None,
        filter: str | MessageFilter | None = None,
        interval_s: float = 0.5,
        timeout_s: float | None = None,
        on_corruption: OnCorruption = "fail",
        on_event: Callable[[str], None] | None = None,
    ) -> AsyncGenerator[StoredMessage]:
        """Follow the log as ``tail`` does, on an event loop: ``async for`` over new records.

        Parameters
        ----------
        topics, start, filter, timeout_s, on_corruption, on_event
            As in ``tail``.
        interval_s : float
            Seconds until the next poll if nothing is dispatched before. At least a millisecond.

        Returns
        -------
        async generator of StoredMessage
            Without end, or until ``timeout_s``. ``start=None`` is the log's end at this call.

        Raises
        ------
        CorruptMessageError, ValueError, FilterSyntaxError
            As ``tail``.
        StoreClosedError, ServiceFailedError
            The store was closed, or failed, while it was followed.

        Notes
        -----
        Arrivals are waited for as in ``aget_message``, without a thread. Records are read on the
        loop's thread; in long runs of them other tasks get their turn. In mode ``"r"`` a thread of
        the loop's executor refreshes the store when files were added or deleted. Cancelling a task
        or closing the generator leaves nothing registered. Threading: one task at a time; any
        number of generators.
        """
        from rocketstore.consumer.async_tail import follow

        check_wait(interval_s, "interval_s")
        if timeout_s is not None:
            check_wait(timeout_s, "timeout_s")
        follower, match = self._follower(topics, start, filter, on_corruption, on_event)
        return follow(follower, self.hold, match, interval_s, timeout_s)
