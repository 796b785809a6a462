"""Following a log on an event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING

from rocketstore.consumer.hold import WHOLE_LOG, HeldPull

if TYPE_CHECKING:
    from rocketstore.consumer.hold import PullRequestHoldService
    from rocketstore.message import StoredMessage
    from rocketstore.query.tail import LogTail

#: Other tasks get their turn after so many seconds of reading.
_TURN_S = 0.005
_SHORTEST_PAUSE_S = 0.001


async def follow(
    tail: LogTail,
    hold: PullRequestHoldService,
    match: Callable[[StoredMessage], bool],
    interval_s: float,
    timeout_s: float | None,
) -> AsyncGenerator[StoredMessage]:
    """Yield the new records that ``match``; see ``DefaultMessageStore.atail``.

    Parameters
    ----------
    tail : LogTail
        What reads the log.
    hold : PullRequestHoldService
        What wakes it when records were dispatched.
    match : callable
        Whether a record is wanted; one that is not takes up no time-out either.
    interval_s : float
        Seconds until the next poll if nothing is dispatched before.
    timeout_s : float, optional
        End after so many seconds without a new record.
    """
    pull = HeldPull(*WHOLE_LOG, tail.position)
    idle_since = turn = time.monotonic()
    while not tail.ended:
        before = tail.position
        if await _look(tail):
            for message in tail.deliver():
                if match(message):
                    yield message
                if time.monotonic() - turn > _TURN_S:
                    await asyncio.sleep(0)
                    turn = time.monotonic()
        if tail.position != before:
            idle_since = time.monotonic()
        pause_s = tail.pause_s(interval_s, timeout_s, idle_since)
        if pause_s is None:
            return
        if not tail.ended:
            pull.offset = tail.position
            await hold.wait_async((pull,), max(pause_s, _SHORTEST_PAUSE_S))
            turn = time.monotonic()


async def _look(tail: LogTail) -> bool:
    """Look for changes; a thread refreshes the store if that is necessary."""
    if tail.must_refresh():
        return await asyncio.get_running_loop().run_in_executor(None, tail.look)
    return tail.look()
