"""The report of a timer: which messages are due when, and what is wrong with its files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rocketstore import formats
from rocketstore.timer.findings import TimerFinding, TimerFindings

if TYPE_CHECKING:
    from rocketstore.timer.pending import PendingMessages, TimerMessage


@dataclass(frozen=True)
class TimerReport:
    """The state of a store's timer when ``timers()`` was called.

    Attributes
    ----------
    read_time : int or None
        Epoch ms: earlier slots were delivered. ``None`` if no broker ran a timer here.
    queue_offset : int
        Queue offset on the timer topic of the next message to be put into the wheel.
    not_enqueued : int
        Messages of the timer topic that are not in the wheel yet.
    precision_ms : int
        Width of a slot.
    now : int
        Epoch ms, by the store's clock.
    wheel : str or None
        The file that was read: the wheel, or its newest valid snapshot.

    Notes
    -----
    Threading: any thread; it refers to the open store, which must stay open.
    """

    read_time: int | None
    queue_offset: int
    not_enqueued: int
    precision_ms: int
    now: int
    wheel: str | None
    _findings: TimerFindings = field(repr=False)
    _pending: PendingMessages = field(repr=False)

    def __len__(self) -> int:
        """Return the number of pending messages, those that delete others included."""
        return self._pending.count

    @property
    def pending(self) -> Iterator[TimerMessage]:
        """The messages that were not delivered yet, ascending by ``due``; a new iterator each time.

        Yields
        ------
        TimerMessage

        Raises
        ------
        StoreClosedError
            The store was closed.
        """
        return self._pending.messages()

    @property
    def findings(self) -> list[TimerFinding]:
        """What is wrong with wheel, log, queue and checkpoint.

        Iterating ``pending`` and ``by_topic`` add messages that cannot be read. At most 1,000 are
        listed; the number of the others is the last one's reason.
        """
        return self._findings.listed()

    @property
    def by_topic(self) -> dict[str, int]:
        """Pending messages for each topic, without those that delete others."""
        return self._pending.by_topic()

    @property
    def by_bound(self) -> dict[int, int]:
        """Pending messages by when their slots are read: as a broker counts them.

        Keys are RocketMQ's bounds in seconds (5, 60, 300, 900, 3600, 14400, 28800, 86400). Each
        counts the slots from the bound before it on. Overdue and later messages are not counted.
        """
        begin = self.now // self.precision_ms * self.precision_ms
        bounds = [begin, *(begin + bound * 1000 for bound in formats.TIMER_BOUNDS_S)]
        counts = self._pending.counts_between(bounds)
        return dict(zip(formats.TIMER_BOUNDS_S, counts, strict=True))

    @property
    def overdue(self) -> int:
        """Messages whose slot a running broker would have read by now."""
        return self._pending.counts_between([-(2**63), self.now - self.precision_ms])[0]

    @property
    def next_due(self) -> int | None:
        """Epoch ms: when the first slot is to be read; ``None`` if nothing is pending."""
        return self._pending.first_time()

    def slot_counts(self) -> dict[int, int]:
        """Return the number of pending messages for each slot, by its time in epoch ms."""
        return self._pending.slot_counts()
