"""How a consumer without messages waits for more."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from rocketstore import kernels
from rocketstore.consumer.growth import WatchedHold
from rocketstore.consumer.hold import HeldPull, PullRequestHoldService
from rocketstore.services.waiting import refuse_interrupted

#: Longest wait for one announcement; then the queues are looked at again.
_LOOK_S = 1.0
#: Log and queues of another process are looked at after so many times as long as a look took.
_LOOKS_PER_PAUSE = 3


class Arrivals:
    """The waits of one consumer: for messages, for new queues, and for what its loops give back.

    Parameters
    ----------
    hold : PullRequestHoldService
    refuse : callable
        Called before each wait. Raises if this thread must not wait.

    Attributes
    ----------
    count : int
        Read it, look for messages, and wait with it: what was given back in between ends the wait
        at once.

    Notes
    -----
    Threading: any thread or event loop waits; any thread rings.
    """

    def __init__(
        self, hold: PullRequestHoldService, refuse: Callable[[], None] = lambda: None
    ) -> None:
        self.count = 0
        self._hold = hold
        self._refuse = refuse
        self._waiting: set[HeldPull] = set()  # the first pull of each wait

    def ring(self) -> None:
        """End all waits. A finalizer may call it: within a step of the store it only counts."""
        self.count += 1
        waiting = list(self._waiting)
        if waiting and not kernels.locks.holds_any():
            self._hold.end_waits(waiting)

    def wait(self, pulls: Sequence[HeldPull], count: int, timeout_s: float) -> None:
        """Wait until messages arrive for a pull, or ``ring`` was called after ``count`` was read.

        Parameters
        ----------
        pulls : sequence of HeldPull
            At least one.
        count : int
        timeout_s : float

        Raises
        ------
        StoreClosedError, ServiceFailedError
            The store was closed, or failed.
        ReentrantCallError
            This thread was interrupted in a step of a store, or dispatches.
        """
        self._refuse()
        self._waiting.add(pulls[0])
        try:
            self._hold.wait(pulls, min(timeout_s, _LOOK_S), lambda: self.count != count)
        finally:
            self._waiting.discard(pulls[0])

    async def wait_async(self, pulls: Sequence[HeldPull], count: int, timeout_s: float) -> None:
        """Wait as ``wait`` does, on an event loop."""
        self._refuse()
        self._waiting.add(pulls[0])
        try:
            await self._hold.wait_async(pulls, min(timeout_s, _LOOK_S), lambda: self.count != count)
        finally:
            self._waiting.discard(pulls[0])


class Feed(Protocol):
    """Where messages come from."""

    def catch_up(self, *, surely: bool = False) -> bool:
        """Make what was put readable; return whether there may be messages that were not.

        With ``surely``, look although the last look was a moment ago.
        """


class Patience:
    """How long to wait for the next look.

    Parameters
    ----------
    feed : Feed
    timeout_s : float
        From the first look on.
    surely : bool
        Look once more when the time is over, although a look is not due.
    """

    def __init__(self, feed: Feed, timeout_s: float, *, surely: bool) -> None:
        self._feed = feed
        self._timeout_s = timeout_s
        self._surely = surely
        self._deadline: float | None = None
        self._is_last = False

    def pause(self) -> float | None:
        """Return the seconds to wait, 0 to look again at once; ``None`` if the time is over."""
        now = time.monotonic()
        if self._deadline is None:
            self._deadline = now + self._timeout_s
        left = self._deadline - now
        if left <= 0:
            if self._is_last:
                return None
            self._is_last = True
            self._feed.catch_up(surely=self._surely)
            return 0
        return 0 if self._feed.catch_up() else left


class Dispatched(Protocol):
    """What dispatches a store's messages, see ``ReputMessageService``."""

    @property
    def dispatcher(self) -> Any:
        """Its dispatcher, which has ``reput_offset``."""

    def wait_until(self, offset: int, timeout_s: float | None) -> bool:
        """Wait until the log is dispatched up to an offset."""


class DispatchFeed:
    """Messages of a store that is written by this process.

    Parameters
    ----------
    reput : Dispatched
    visible_end : callable
        Returns the log offset up to which records are dispatched.

    Notes
    -----
    Threading: any thread.
    """

    #: Longest wait for the dispatch of what was put.
    _CATCH_UP_S = 0.1

    def __init__(self, reput: Dispatched, visible_end: Callable[[], int]) -> None:
        self._reput = reput
        self._visible_end = visible_end

    def catch_up(self, *, surely: bool = False) -> bool:
        """Wait until what was put before this call is in the queues.

        Raises ``ServiceFailedError`` if dispatch has failed.
        """
        end = self._visible_end()
        if self._reput.dispatcher.reput_offset >= end:
            return False
        self._reput.wait_until(end, self._CATCH_UP_S)
        return True


class WatchedFeed:
    """Messages of a store that another process writes.

    Parameters
    ----------
    hold : WatchedHold
        What watches the log. While reads wait it looks by itself.

    Notes
    -----
    Threading: any thread.
    """

    def __init__(self, hold: WatchedHold) -> None:
        self._hold = hold
        self._next_at = 0.0

    def catch_up(self, *, surely: bool = False) -> bool:
        """Bring the queues up to the log's end; return whether they may have changed.

        Raises
        ------
        CorruptionError, MappedFileError, FileNotFoundError
            The log cannot be followed, or is gone.
        ReentrantCallError
            This thread was interrupted in a step of a store.
        """
        refuse_interrupted()
        began = time.monotonic()
        if began < self._next_at and not surely:
            return False
        has_changed = self._hold.look()
        now = time.monotonic()
        self._next_at = now + _LOOKS_PER_PAUSE * (now - began)
        return has_changed
