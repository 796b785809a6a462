"""How many of a damaged store's messages can be read, and how many bytes of its log are there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from rocketstore import formats
from rocketstore.batch_consume_queue import BATCH_UNIT_NBYTES, BatchConsumeQueue
from rocketstore.consume_queue import UNIT_NBYTES, ConsumeQueue
from rocketstore.lost_messages import pointers_behind

if TYPE_CHECKING:
    import rocketstore
    from rocketstore.recovery_report import DamagedRange


class LostMessages(NamedTuple):
    """Messages that cannot be read, by queue, and bytes of the log that are not there.

    Attributes
    ----------
    queues, behind : dict of (topic, queue id) to int
        All, and those of them that lay behind the log's end.
    nbytes : int
        Of the log, in front of ``end``.
    end : int
        Where the log ended, as far as anything tells; its end now when nothing is missing there.
    """

    queues: dict[tuple[str, int], int]
    behind: dict[tuple[str, int], int]
    nbytes: int
    end: int


def count_lost(store: rocketstore.DefaultMessageStore) -> LostMessages:
    """Count what an open store cannot give; quick where it knows of no damage and no gap."""
    report, start, end = (
        store.recovery_report,
        max(store.min_physical_offset, 0),
        store.max_physical_offset,
    )
    ranges = merged(report.damaged)
    if not ranges and not report.gaps:
        return LostMessages({}, {}, 0, end)
    counts, gone = {}, {}
    for queue in store.reader.queues:
        lost = queue.max_index - queue.min_index - _readable(queue, ranges, start, end)
        if lost > 0:
            counts[queue.topic, queue.queue_id] = lost
    behind = [(low, high) for low, high in ranges if high > end]
    if behind:
        gone = pointers_behind(end, store.reader.queues, store.reader.index).queues
        for place, count in gone.items():
            counts[place] = counts.get(place, 0) + count
        end = max(end, behind[-1][1])
    nbytes = sum(high - max(low, start) for low, high in ranges if high > start)
    return LostMessages(counts, gone, nbytes, end)


def merged(damaged: Sequence[DamagedRange]) -> list[tuple[int, int]]:
    """Start and stop of the stretches that are damaged, those that touch put together."""
    found: list[tuple[int, int]] = []
    for start, stop in sorted((one.start, one.stop) for one in damaged):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(stop, found[-1][1]))
        elif start < stop:
            found.append((start, stop))
    return found


def _readable(queue: ConsumeQueue, ranges: Sequence[tuple[int, int]], start: int, end: int) -> int:
    """Messages of a queue whose records lie in ``start`` .. ``end`` and in no damaged stretch."""
    import numpy as np

    is_batch = isinstance(queue, BatchConsumeQueue)
    layout = formats.BATCH_QUEUE_UNIT if is_batch else formats.CONSUME_QUEUE_UNIT
    assert layout.nbytes == (BATCH_UNIT_NBYTES if is_batch else UNIT_NBYTES)
    lows, highs = np.array([one[0] for one in ranges]), np.array([one[1] for one in ranges])
    count = 0
    for first, buffer, number in queue.view():
        units = np.frombuffer(buffer, layout.dtype, number)
        offsets, sizes = units["physical_offset"].astype("i8"), units["size"].astype("i8")
        good = (offsets >= start) & (sizes > 0) & (offsets + sizes <= end)
        if is_batch:
            good &= units["base_offset"].astype("i8") >= queue.min_index
        else:
            good &= np.arange(first, first + number) >= queue.min_index
            good &= (sizes != formats.FILLER_UNIT_SIZE) | (offsets != 0)
        if len(lows):
            nearest = np.searchsorted(lows, offsets, side="right") - 1
            good &= (nearest < 0) | (offsets >= highs[np.maximum(nearest, 0)])
        count += int(units["batch_size"][good].astype("i8").sum()) if is_batch else int(good.sum())
    return count
