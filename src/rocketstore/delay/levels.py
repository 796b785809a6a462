"""Delay levels: the queues of the schedule topic, and when their messages are due."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from rocketstore import formats, kernels
from rocketstore.log.commit_log import CommitLog
from rocketstore.queues.consume_queue import UNIT_NBYTES, ConsumeQueue
from rocketstore.queues.consume_queue_ext import is_ext_address
from rocketstore.queues.queue_table import QueueTable
from rocketstore.status import RecordStatus

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

#: Unit of a queue: physical offset, size, tags code.
Unit = tuple[int, int, int]


class Waiting(NamedTuple):
    """Waiting units: queue offsets, ascending, and due times in epoch ms, int64 of shape (n,)."""

    offsets: NDArray[numpy.int64]
    dues: NDArray[numpy.int64]


def level_delays(queues: QueueTable, delay_ms: tuple[int, ...]) -> dict[int, int | None]:
    """Return the delay in ms of each level, ``None`` for a level that only the queues have.

    Such queues remain when a store's level table was shortened. A broker no longer delivers them.
    """
    delays: dict[int, int | None] = dict(enumerate(delay_ms, 1))
    for queue in queues:
        if queue.topic == formats.TOPIC_SCHEDULE:
            delays.setdefault(queue.queue_id + 1, None)
    return dict(sorted(delays.items()))


class LevelQueue:
    """The queue of one delay level.

    Parameters
    ----------
    log : CommitLog
    queues : QueueTable
    level : int
        From 1; its queue id is one less.
    delay_ms : int or None

    Notes
    -----
    Threading: any thread. The queue need not exist yet; nothing is created.
    """

    def __init__(
        self, log: CommitLog, queues: QueueTable, level: int, delay_ms: int | None
    ) -> None:
        self.level = level
        self.delay_ms = delay_ms
        self._log = log
        self._queues = queues
        self._queue: ConsumeQueue | None = None

    @property
    def queue(self) -> ConsumeQueue | None:
        """The queue, ``None`` while no message of the level was dispatched."""
        if self._queue is None:
            self._queue = self._queues.get(formats.TOPIC_SCHEDULE, self.level - 1)
        return self._queue

    @property
    def min_offset(self) -> int:
        """Queue offset of the first message that is still in the log."""
        return 0 if self.queue is None else self.queue.min_index

    @property
    def max_offset(self) -> int:
        """Queue offset after the last message."""
        return 0 if self.queue is None else self.queue.max_index

    def unit(self, offset: int) -> Unit | None:
        """Return a unit; ``None`` for a filler or outside the queue."""
        return None if self.queue is None else self.queue.unit(offset)

    def due(self, unit: Unit) -> int:
        """Return the due time of a unit, epoch ms.

        A unit whose ext unit is lost is due by its record's store time, like a broker's.
        """
        code = unit[2]
        if not is_ext_address(code):
            return code
        ext = None if self.queue is None or self.queue.ext is None else self.queue.ext.unit(code)
        if ext is not None:
            return ext.tags_code
        status, message = self._log.record_at(unit[0])
        if message is None or status not in (RecordStatus.OK, RecordStatus.NUL_PROPERTIES):
            return 0  # delivering it reports what is wrong
        delay = formats.UNKNOWN_DELAY_MS if self.delay_ms is None else self.delay_ms
        return message.store_timestamp + delay

    def corrected(self, due: int, now: int) -> int:
        """Return the due time as a broker corrects it.

        A time later than a whole delay from now means that the clock was set back or the level was
        shortened: the message is due now.
        """
        if self.delay_ms is not None and due > now + self.delay_ms:
            return now
        return due

    def waiting(self, offset: int, done: Collection[int] = ()) -> Waiting:
        """Return the units from ``offset`` on, without fillers and those that are ``done``."""
        import numpy

        at, end = max(offset, self.min_offset), self.max_offset
        offsets = [numpy.empty(0, numpy.int64)]
        dues = [numpy.empty(0, numpy.int64)]
        while at < end and self.queue is not None:
            found = self.queue.units_from(at)
            if found is None:
                break
            buffer, position, stop = found
            count = min((stop - position) // UNIT_NBYTES, end - at)
            places, codes = (numpy.empty(count, numpy.int64) for _ in range(2))
            sizes = numpy.empty(count, numpy.int32)
            stop = position + count * UNIT_NBYTES
            kernels.consume_queue.read_units(buffer, position, stop, places, sizes, codes)
            for number in numpy.flatnonzero(codes <= formats.MAX_EXT_ADDRESS):
                unit = int(places[number]), int(sizes[number]), int(codes[number])
                codes[number] = self.due(unit)
            real = (sizes != formats.FILLER_UNIT_SIZE) | (places != 0)
            offsets.append(numpy.flatnonzero(real) + at)
            dues.append(codes[real])
            at += count
        all_offsets, all_dues = numpy.concatenate(offsets), numpy.concatenate(dues)
        if done:
            kept = ~numpy.isin(all_offsets, list(done))
            all_offsets, all_dues = all_offsets[kept], all_dues[kept]
        return Waiting(all_offsets, all_dues)
