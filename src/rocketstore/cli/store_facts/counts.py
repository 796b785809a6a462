"""How many of a damaged store's messages can be read, and how many bytes of its log are there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from rocketstore import formats
from rocketstore.queues.batch_consume_queue import BatchConsumeQueue
from rocketstore.queues.consume_queue import ConsumeQueue
from rocketstore.survey.pointers import units_behind

if TYPE_CHECKING:
    from rocketstore.log.damage import DamagedRange
    from rocketstore.store.default_message_store import DefaultMessageStore


class LostMessages(NamedTuple):
    """Messages that cannot be read, by (topic, queue id), and bytes of the log that are not there.

    Attributes
    ----------
    queues : dict
        What is lost.
    readable : dict or None
        What can be read; ``None`` when nothing is lost.
    nbytes : int
        Of the log, in front of ``end``.
    end : int
        Where the log ended, as far as anything tells; its end now when nothing is missing there.
    """

    queues: dict[tuple[str, int], int]
    readable: dict[tuple[str, int], int] | None
    nbytes: int
    end: int


def count_lost(store: DefaultMessageStore) -> LostMessages:
    """Count what an open store cannot give; quick where it knows of no damage and no gap."""
    report, end = store.recovery_report, store.max_physical_offset
    start = max(store.min_physical_offset, 0)
    ranges = merged(report.damaged)
    if not ranges and not report.gaps:
        return LostMessages({}, None, 0, end)
    behind = any(stop > end for _, stop in ranges)
    lost: dict[tuple[str, int], int] = {}
    readable: dict[tuple[str, int], int] = {}
    for queue in store.reader.queues:
        place = queue.topic, queue.queue_id
        # A queue that was made from a damaged log alone began in front of its first record.
        is_whole = start == 0 and not queue.queue.files
        first = 0 if is_whole else queue.min_index
        readable[place], shown = _readable(queue, ranges, start, end)
        missing = (
            queue.max_index
            - first
            - readable[place]
            + (max(0, _named_behind(queue, end) - shown) if behind else 0)
        )
        if missing > 0:
            lost[place] = missing
    nbytes = sum(stop - max(low, start) for low, stop in ranges if stop > start)
    return LostMessages(lost, readable, nbytes, max(end, ranges[-1][1]) if behind else end)


def _named_behind(queue: ConsumeQueue, end: int) -> int:
    """Messages behind the log's end that the queue's files name."""
    count = 0
    for file in reversed(queue.queue.files):
        units, _, is_all = units_behind(queue, file, end)
        count += units
        if not is_all:
            break
    return count


def merged(damaged: Sequence[DamagedRange]) -> list[tuple[int, int]]:
    """Start and stop of the stretches that are damaged, those that touch put together."""
    found: list[tuple[int, int]] = []
    for start, stop in sorted((one.start, one.stop) for one in damaged):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(stop, found[-1][1]))
        elif start < stop:
            found.append((start, stop))
    return found


def _readable(
    queue: ConsumeQueue, ranges: Sequence[tuple[int, int]], start: int, end: int
) -> tuple[int, int]:
    """Messages of a queue whose records lie in ``start`` .. ``end`` and in no damaged stretch, and
    units that name what lies behind ``end``."""
    import numpy as np

    is_batch = isinstance(queue, BatchConsumeQueue)
    layout = formats.BATCH_QUEUE_UNIT if is_batch else formats.CONSUME_QUEUE_UNIT
    lows, highs = np.array([one[0] for one in ranges]), np.array([one[1] for one in ranges])
    count = behind = 0
    for first, buffer, number in queue.view():
        units = np.frombuffer(buffer, layout.dtype, number)
        offsets, sizes = units["physical_offset"].astype("i8"), units["size"].astype("i8")
        good = (offsets >= start) & (sizes > 0)
        if is_batch:
            good &= units["base_offset"].astype("i8") >= queue.min_index
        else:
            good &= np.arange(first, first + number) >= queue.min_index
            good &= (sizes != formats.FILLER_UNIT_SIZE) | (offsets != 0)
        behind += int((good & (offsets + sizes > end)).sum())
        good &= offsets + sizes <= end
        if len(lows):
            nearest = np.searchsorted(lows, offsets, side="right") - 1
            good &= (nearest < 0) | (offsets >= highs[np.maximum(nearest, 0)])
        count += int(units["batch_size"][good].astype("i8").sum()) if is_batch else int(good.sum())
    return count, behind
