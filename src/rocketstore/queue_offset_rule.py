"""Whether a record's queue offset beyond its queue's end can be right; for all who build queues."""

from __future__ import annotations

from collections.abc import Callable

from rocketstore import formats

#: How far, and how far in all, the log is searched for the next record of a queue with a gap.
NEXT_NBYTES = 4 * 1024 * 1024
MAX_LOOK_AHEAD_NBYTES = 1024 * 1024 * 1024


class QueueOffsetRule:
    """Judges records whose queue offset lies beyond their queue's next one.

    Every missing message took at least a shortest record between the queue's last record (or the
    log's start, unless the log's head is gone) and this one. Where asked, the queue's next record
    counts, too: if it does not go on from this one, this one's number is wrong.

    Notes
    -----
    Records must be judged in log order. Threading: one thread at a time.
    """

    def __init__(self) -> None:
        #: By queue: next queue offset and the last record's end, when a record was passed over.
        self._passed_over: dict[tuple[str, int], tuple[int, int]] = {}

    def refusal(
        self,
        queue: tuple[str, int],
        queue_offset: int,
        next_index: int,
        place: int,
        last_end: int,
        log_min_offset: int,
        next_of_queue: Callable[[], int | None] | None = None,
    ) -> str | None:
        """Judge one record.

        Parameters
        ----------
        queue : (topic, queue id)
        queue_offset : int
            What the record claims.
        next_index : int
            Where the queue ends.
        place : int
            Physical offset of the record.
        last_end : int
            Physical offset behind the queue's last record, -1 when it has none.
        log_min_offset : int
            Where the log begins.
        next_of_queue : callable or None
            Returns the queue offset that the queue's next record claims, ``None`` when there is
            none near; called only where it counts.

        Returns
        -------
        str or None
            Why its queue offset cannot be, ``None`` when it can.
        """
        start = max(last_end, 0)
        if last_end < 0 and log_min_offset > 0:
            start = 0  # the log's head is gone
        passed_over = self._passed_over.get(queue)
        if passed_over is not None and passed_over[0] == next_index:
            start = passed_over[1]  # what was passed over is among the missing
        reason = f"the queue ends at {next_index}"
        if queue_offset - next_index <= (place - start) // formats.RECORD_MIN_NBYTES:
            following = None
            if next_of_queue is not None and queue_offset > next_index:
                following = next_of_queue()
            if following is None or not next_index <= following <= queue_offset:
                return None
            reason = f"the next record of the queue, which ends at {next_index}, claims {following}"
        self._passed_over[queue] = next_index, start
        return reason
