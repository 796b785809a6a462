"""Count readable messages and existing log bytes of a damaged store."""

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
    """Unreadable messages by (topic, queue id), and missing bytes of the log.

    Attributes
    ----------
    queues : dict
        Number of lost messages.
    readable : dict or None
        Number of readable messages; ``None`` when nothing is lost.
    nbytes : int
        Missing bytes of the log before ``end``.
    end : int
        Where the log ended as far as is known; its current end if nothing is missing there.
    """

    queues: dict[tuple[str, int], int]
    readable: dict[tuple[str, int], int] | None
    nbytes: int
    end: int


def count_lost(store: DefaultMessageStore) -> LostMessages:
    """Count the messages an open store lost; fast if it has no damage and no gap."""
    report, end = store.recovery_report, store.max_physical_offset
    start = max(store.min_physical_offset, 0)
    ranges = merged(report.damaged)
    if not ranges and not report.gaps:
        return LostMessages({}, None, 0, end)
    past = any(stop > end for _, stop in ranges)
    lost: dict[tuple[str, int], int] = {}
    readable: dict[tuple[str, int], int] = {}
    for queue in store.reader.queues:
        place = queue.topic, queue.queue_id
        # A queue that was rebuilt from a damaged log may have begun before its first record.
        is_whole = start == 0 and not queue.queue.files
        first = 0 if is_whole else queue.min_index
        readable[place], shown = _readable(queue, ranges, start, end)
        missing = (
            queue.max_index
            - first
            - readable[place]
            + (max(0, _named_past(queue, end) - shown) if past else 0)
        )
        if missing > 0:
            lost[place] = missing
    nbytes = sum(stop - max(low, start) for low, stop in ranges if stop > start)
    return LostMessages(lost, readable, nbytes, max(end, ranges[-1][1]) if past else end)


def _named_past(queue: ConsumeQueue, end: int) -> int:
    """Return how many units in the queue's files point past the log's end."""
    count = 0
    for file in reversed(queue.queue.files):
        units, _, is_all = units_behind(queue, file, end)
        count += units
        if not is_all:
            break
    return count


def merged(damaged: Sequence[DamagedRange]) -> list[tuple[int, int]]:
    """Return start and stop of the corrupt ranges; ranges that touch are merged."""
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
    """Count a queue's messages between ``start`` and ``end`` that are in no corrupt range, and
    the units that point past ``end``."""
    import numpy as np

    is_batch = isinstance(queue, BatchConsumeQueue)
    layout = formats.BATCH_QUEUE_UNIT if is_batch else formats.CONSUME_QUEUE_UNIT
    lows, highs = np.array([one[0] for one in ranges]), np.array([one[1] for one in ranges])
    count = past = 0
    for first, buffer, number in queue.view():
        units = np.frombuffer(buffer, layout.dtype, number)
        offsets, sizes = units["physical_offset"].astype("i8"), units["size"].astype("i8")
        good = (offsets >= start) & (sizes > 0)
        if is_batch:
            good &= units["base_offset"].astype("i8") >= queue.min_index
        else:
            good &= np.arange(first, first + number) >= queue.min_index
            good &= (sizes != formats.FILLER_UNIT_SIZE) | (offsets != 0)
        past += int((good & (offsets + sizes > end)).sum())
        good &= offsets + sizes <= end
        if len(lows):
            nearest = np.searchsorted(lows, offsets, side="right") - 1
            good &= (nearest < 0) | (offsets >= highs[np.maximum(nearest, 0)])
        count += int(units["batch_size"][good].astype("i8").sum()) if is_batch else int(good.sum())
    return count, past
