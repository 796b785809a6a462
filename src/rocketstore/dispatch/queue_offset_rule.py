"""The rule that accepts or refuses a record's queue offset past its queue's end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from rocketstore import formats

#: Bytes of log searched for the next record of a queue with a gap: per search, and in total.
NEXT_NBYTES = 16 * 1024 * 1024
MAX_LOOK_AHEAD_NBYTES = 1024 * 1024 * 1024
#: Missing queue offsets that are accepted before a record without further evidence.
MAX_UNFOUNDED_COUNT = 1024
#: Limits of the filler for one record's queue offset, if the log's length explains no more.
MAX_FILLER_NBYTES = 64 * 1024 * 1024
MAX_FILLER_FILES = 512
#: Positions in a queue have 63 bits, including the end of its last file.
MAX_QUEUE_OFFSET = (2**63 - 2**32) // formats.CONSUME_QUEUE_UNIT.nbytes


class NextRecord(NamedTuple):
    """A later record of a queue."""

    queue_offset: int
    place: int
    end: int


class Claim(NamedTuple):
    """A record's queue offset past its queue's end.

    Attributes
    ----------
    queue : (topic, queue id)
    queue_offset : int
        The record's own value.
    next_index : int
        Where the queue ends.
    place, end : int
        Physical offsets of the record's start and end.
    last_end : int
        Physical offset of the end of the queue's last record, -1 if it has none.
    filler_count, units_per_file : int
        Filler units that would be written; units in a queue file.
    has_unit : bool
        The queue's files hold the record's unit at this queue offset.
    """

    queue: tuple[str, int]
    queue_offset: int
    next_index: int
    place: int
    end: int
    last_end: int
    filler_count: int
    units_per_file: int
    has_unit: bool = False

    @property
    def needs_much_filler(self) -> bool:
        """Return whether the filler would exceed the limits for one record."""
        nbytes = self.filler_count * formats.CONSUME_QUEUE_UNIT.nbytes
        files = self.filler_count // self.units_per_file
        return nbytes > MAX_FILLER_NBYTES or files > MAX_FILLER_FILES

    def is_followed_by(self, other: NextRecord) -> bool:
        """Return whether a later record continues from this one.

        Between them as many records may be missing as fit there.
        """
        missing = other.queue_offset - self.queue_offset - 1
        return 0 <= missing <= (other.place - self.end) // formats.RECORD_MIN_NBYTES


class QueueOffsetRule:
    """Judge records whose queue offset is past the next one of their queue.

    A queue may begin at any number. A queue offset is accepted if the queue's files hold the same
    unit, or if the queue's next records continue from it. A single number is refused if the next
    records contradict it. It is also refused if more messages would be missing than fit between the
    queue's last record and this one. For a queue without a record, the log's start counts, unless
    the log's head was deleted. A few missing messages are always accepted. The filler is bounded.

    Notes
    -----
    Records must be judged in log order. Threading: one thread at a time.
    """

    def __init__(self) -> None:
        #: By queue with a refused record: next queue offset, and the last accepted record's end.
        self._refused: dict[tuple[str, int], tuple[int, int]] = {}

    def refusal(
        self,
        claim: Claim,
        log_min_offset: int,
        next_of_queue: Callable[[], Iterator[NextRecord]],
        *,
        always_ask: bool,
    ) -> str | None:
        """Judge one record; return why it is refused.

        Parameters
        ----------
        claim : Claim
        log_min_offset : int
            Where the log begins.
        next_of_queue : callable
            Yields the queue's next records within the look-ahead limit; called only if needed.
        always_ask : bool
            Call it even if the missing messages fit into the log.

        Returns
        -------
        str or None
            Why its queue offset is impossible, ``None`` if it is accepted.
        """
        start = max(claim.last_end, 0)
        if claim.last_end < 0 and log_min_offset > 0:
            start = 0  # the log's head is gone
        refused = self._refused.get(claim.queue)
        if refused is not None and refused[0] == claim.next_index:
            start = refused[1]  # the refused records are among the missing ones
        fits = claim.queue_offset - claim.next_index <= _room(start, claim.place)
        reason = None
        if claim.queue_offset > MAX_QUEUE_OFFSET:
            reason = "it is beyond what a queue's files can hold"
        elif not claim.has_unit and claim.queue_offset > claim.next_index:
            asks = always_ask or not fits
            reason = _doubt(claim, next_of_queue() if asks else iter(()), fits=fits)
        if reason is None and not fits and claim.needs_much_filler:
            reason = f"the queue ends at {claim.next_index}, too far away to be filled"
        if reason is not None:
            self._refused[claim.queue] = claim.next_index, start
        return reason


def _room(start: int, stop: int) -> int:
    """Return how many records fit from ``start`` to ``stop``."""
    return (stop - start) // formats.RECORD_MIN_NBYTES


def _doubt(claim: Claim, later: Iterator[NextRecord], *, fits: bool) -> str | None:
    """Return the evidence against a queue offset that the queue's files do not confirm."""
    first = next(later, None)
    if first is not None and claim.next_index <= first.queue_offset <= claim.queue_offset:
        # One of the two is wrong: the one that the third record does not continue.
        second = next(later, None)
        goes_on = second is not None and claim.is_followed_by(second)
        if not goes_on or second is None or second.queue_offset == first.queue_offset + 1:
            return (
                f"the next record of the queue, which ends at {claim.next_index}, claims "
                f"{first.queue_offset}"
            )
        return None
    if fits or claim.queue_offset - claim.next_index <= MAX_UNFOUNDED_COUNT:
        return None
    if first is not None and claim.is_followed_by(first):
        return None
    return f"the queue ends at {claim.next_index}"
