"""Refuse messages of crowded slots, as a broker does (``timerCongestNumEachSlot``)."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from rocketstore import kernels
from rocketstore.lock_order import LockRank


class SlotCongestion:
    """Counts the messages of each slot, and decides whether it takes another one.

    Parameters
    ----------
    limit : int
        Up to here all are taken, from twice as many on none; in between by chance.
    counts : callable
        Returns the number of messages that wait, by the time of their slot; called once, with the
        first message.
    chance : callable, optional
        Returns a number from 0 to 999.

    Notes
    -----
    Threading: any thread. A message that is refused for another reason stays counted. Source:
    RocketMQ ``store/timer/TimerMessageStore.java`` (``isReject``).
    """

    def __init__(
        self,
        limit: int,
        counts: Callable[[], Mapping[int, int]],
        chance: Callable[[], int] = lambda: random.randrange(1000),
    ) -> None:
        self._limit = limit
        self._read = counts
        self._chance = chance
        self._lock = kernels.locks.OrderedLock(LockRank.LEAF)
        self._counts: dict[int, int] | None = None  # guarded by: _lock

    def __call__(self, slot_time: int) -> bool:
        """Return whether a slot, by its time in epoch ms, is full; otherwise count a message."""
        known = dict(self._read()) if self._counts is None else None
        chance = self._chance()
        with self._lock:
            if self._counts is None:
                self._counts = known if known is not None else {}
            count = self._counts.get(slot_time, 0)
            if self._is_full(count, chance):
                return True
            self._counts[slot_time] = count + 1
            return False

    def _is_full(self, count: int, chance: int) -> bool:
        if count <= self._limit:
            return False
        if count >= 2 * self._limit:
            return True
        return chance > 1000 * (count - self._limit) / (self._limit + 0.1)
