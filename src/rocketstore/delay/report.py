"""What waits for delivery, and what is overdue."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rocketstore import formats
from rocketstore.delay.levels import LevelQueue, Waiting
from rocketstore.delay.progress import DelayProgress, LevelProgress
from rocketstore.delay.redelivery import is_lost
from rocketstore.log.commit_log import CommitLog
from rocketstore.message import StoredMessage
from rocketstore.message_copy import real_queue_id
from rocketstore.status import RecordStatus

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

_READABLE = (RecordStatus.OK, RecordStatus.NUL_PROPERTIES)


@dataclass(frozen=True, slots=True)
class DelayLevel:
    """One delay level.

    Attributes
    ----------
    level : int
        From 1.
    delay_ms : int or None
        ``None`` for a level that ``message_delay_level`` lacks although messages wait in it.
    offset : int
        Queue offset of the next message to deliver, in queue ``level - 1`` of
        ``SCHEDULE_TOPIC_XXXX``.
    min_offset, max_offset : int
        Bounds of that queue.
    pending : int
        Messages that are not delivered, without parked ones.
    overdue : int
        Those of them that are due.
    next_due : int or None
        When the next one is due, epoch ms.
    parked : mapping of int to str
        Queue offsets of messages that cannot be delivered, with the reason.
    skipped : int
        Messages that expired before they were delivered, as far as the offset table shows.
    """

    level: int
    delay_ms: int | None
    offset: int
    min_offset: int
    max_offset: int
    pending: int
    overdue: int
    next_due: int | None
    parked: Mapping[int, str]
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class DelayedMessage:
    """A message that waits.

    Attributes
    ----------
    message : StoredMessage or None
        The record in the schedule topic; ``None`` if it cannot be read.
    level : int
    due : int
        Epoch ms.
    topic, queue_id : str or None, int or None
        Where it will be delivered; ``None`` if the record does not say.
    """

    message: StoredMessage | None
    level: int
    due: int
    topic: str | None
    queue_id: int | None


class DelayReport:
    """The delay levels of a store at one moment.

    Attributes
    ----------
    levels : sequence of DelayLevel
        Ascending; levels without a message too.
    now : int
        The store's time when the report was made, epoch ms.
    notes : sequence of str
        What is odd: levels that the table lacks, offsets outside their queue, an unreadable table.

    Notes
    -----
    Threading: any thread. ``due`` reads the store's files.
    """

    def __init__(
        self,
        log: CommitLog,
        progress: DelayProgress,
        clock: Callable[[], int],
        check: Callable[[], object],
        notes: Sequence[str] = (),
    ) -> None:
        self._log = log
        self._check = check
        self._queues = {
            level: (entry.queue, entry.offset, frozenset(entry.ahead))
            for level, entry in progress.levels.items()
        }
        waiting = {
            level: self._waiting(queue, offset, done)
            for level, (queue, offset, done) in self._queues.items()
        }
        self.now = clock()  # after what is compared with it was put
        self.levels: Sequence[DelayLevel] = tuple(
            self._level(level, entry, waiting[level].dues)
            for level, entry in progress.levels.items()
        )
        found = [*notes, *_notes(progress, self.levels)]
        self.notes: Sequence[str] = tuple(found)

    def _level(self, level: int, progress: LevelProgress, dues: NDArray[numpy.int64]) -> DelayLevel:
        queue = progress.queue
        dues = self._delivery_times(queue, dues)
        return DelayLevel(
            level=level,
            delay_ms=queue.delay_ms,
            offset=self._queues[level][1],
            min_offset=queue.min_offset,
            max_offset=queue.max_offset,
            pending=len(dues),
            overdue=int((dues <= self.now).sum()),
            next_due=int(dues[0]) if len(dues) else None,
            parked=dict(progress.parked),
            skipped=progress.skipped,
        )

    def _waiting(self, queue: LevelQueue, offset: int, done: Collection[int]) -> Waiting:
        """Return what waits in a level, without the placeholders that a salvage left there."""
        found = queue.waiting(offset, done)
        kept = found.dues != 0  # a placeholder has no due time
        for number in (~kept).nonzero()[0].tolist():
            unit = queue.unit(int(found.offsets[number]))
            message = None if unit is None else self._log.record_at(unit[0])[1]
            kept[number] = message is None or not is_lost(message)
        return Waiting(found.offsets[kept], found.dues[kept])

    def _delivery_times(
        self, queue: LevelQueue, dues: NDArray[numpy.int64]
    ) -> NDArray[numpy.int64]:
        """When a level's messages come: at once after a clock set back, in the queue's order."""
        import numpy

        if queue.delay_ms is not None:  # as LevelQueue.corrected
            dues[dues > self.now + queue.delay_ms] = self.now
        return numpy.maximum.accumulate(dues)

    @property
    def pending(self) -> int:
        """Messages that are not delivered, in all levels."""
        return sum(level.pending for level in self.levels)

    @property
    def overdue(self) -> int:
        """Messages that are due but not delivered, in all levels."""
        return sum(level.overdue for level in self.levels)

    def due_counts(self, bounds: Sequence[int]) -> list[int]:
        """Return how many messages are due before the first bound, from each bound up to the next,
        and from the last one on.

        Parameters
        ----------
        bounds : sequence of int
            Epoch ms, ascending.
        """
        import numpy

        counts = numpy.zeros(len(bounds) + 1, numpy.int64)
        for queue, offset, done in self._queues.values():
            dues = self._delivery_times(queue, self._waiting(queue, offset, done).dues)
            places = numpy.searchsorted(bounds, dues, side="right")
            counts += numpy.bincount(places, minlength=len(counts))
        return [int(one) for one in counts]

    def due(
        self, begin: int | None = None, end: int | None = None, level: int | None = None
    ) -> Iterator[DelayedMessage]:
        """Yield the waiting messages, ascending by due time.

        Parameters
        ----------
        begin, end : int, optional
            Only messages due from ``begin`` to ``end`` (both included), epoch ms.
        level : int, optional
            Only this level. Raises ``ValueError`` for one that the store does not have.
        """
        if level is not None and level not in self._queues:
            raise ValueError(f"there is no delay level {level}")
        return self._due(begin, end, level)

    def _due(
        self, begin: int | None, end: int | None, level: int | None
    ) -> Iterator[DelayedMessage]:
        import numpy

        columns = []
        for number, (queue, offset, done) in self._queues.items():
            if level is None or level == number:
                waiting = self._waiting(queue, offset, done)
                numbers = numpy.full(len(waiting.dues), number)
                columns.append(numpy.stack((waiting.dues, numbers, waiting.offsets)))
        dues, numbers, offsets = numpy.concatenate(columns, axis=1)
        for place in numpy.lexsort((offsets, numbers, dues)):
            due, number, at = int(dues[place]), int(numbers[place]), int(offsets[place])
            if (begin is not None and due < begin) or (end is not None and due > end):
                continue
            self._check()
            entry = self._message(self._queues[number][0], at, due)
            if entry is not None:
                yield entry

    def _message(self, queue: LevelQueue, at: int, due: int) -> DelayedMessage | None:
        unit = queue.unit(at)
        if unit is None or unit[0] < self._log.min_offset:
            return None  # it expired since the report was made
        status, message = self._log.record_at(unit[0])
        if message is None or status not in _READABLE:
            return DelayedMessage(None, queue.level, due, None, None)
        return DelayedMessage(
            message,
            queue.level,
            due,
            message.properties.get(formats.PROPERTY_REAL_TOPIC),
            real_queue_id(message.properties),
        )

    def __repr__(self) -> str:
        parked = sum(len(level.parked) for level in self.levels)
        rest = f", {parked} parked" if parked else ""
        return f"<DelayReport {self.pending} pending, {self.overdue} overdue{rest}>"


def _notes(progress: DelayProgress, levels: Sequence[DelayLevel]) -> list[str]:
    return progress.notes + [
        f"delay level {level.level}: {level.pending} messages wait in queue {level.level - 1} of "
        f"{formats.TOPIC_SCHEDULE}, but message_delay_level has no such level; a broker never "
        "delivers them"
        for level in levels
        if level.delay_ms is None and level.pending
    ]
