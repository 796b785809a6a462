"""Whether a record's queue offset beyond its queue's end can be right; for all who build queues."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from rocketstore import formats

#: How far, and how far in all, the log is searched for the next record of a queue with a gap.
NEXT_NBYTES = 16 * 1024 * 1024
MAX_LOOK_AHEAD_NBYTES = 1024 * 1024 * 1024
#: So many numbers may be missing in front of a record that nothing else speaks for or against.
MAX_UNFOUNDED_COUNT = 1024
#: Filler written for one record's queue offset, where the log's length explains no more.
MAX_FILLER_NBYTES = 64 * 1024 * 1024
MAX_FILLER_FILES = 512
#: A queue's positions in its files have 63 bits; its last file must have an end, too.
MAX_QUEUE_OFFSET = (2**63 - 2**32) // formats.CONSUME_QUEUE_UNIT.nbytes


class NextRecord(NamedTuple):
    """A later record of a queue."""

    queue_offset: int
    place: int
    end: int


class Claim(NamedTuple):
    """A record's queue offset beyond its queue's end.

    Attributes
    ----------
    queue : (topic, queue id)
    queue_offset : int
        What the record claims.
    next_index : int
        Where the queue ends.
    place, end : int
        Physical offsets of the record, and behind it.
    last_end : int
        Physical offset behind the queue's last record, -1 when it has none.
    filler_count, units_per_file : int
        Units of filler that would be written, and of a queue file.
    has_unit : bool
        The queue's files hold the record's unit in this very place.
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
        """Whether more would have to be filled than one record may ask for."""
        nbytes = self.filler_count * formats.CONSUME_QUEUE_UNIT.nbytes
        files = self.filler_count // self.units_per_file
        return nbytes > MAX_FILLER_NBYTES or files > MAX_FILLER_FILES

    def is_followed_by(self, other: NextRecord) -> bool:
        """Whether a later record goes on from this one; as many may be missing as fit between."""
        missing = other.queue_offset - self.queue_offset - 1
        return 0 <= missing <= (other.place - self.end) // formats.RECORD_MIN_NBYTES


class QueueOffsetRule:
    """Judges records whose queue offset lies beyond their queue's next one.

    Right is what the log and the queue's files say together, and what an unbroken row of records
    says: a queue may begin at any number. One number that stands alone is not believed when the
    queue's next records do not go on from it, nor when more messages would be missing than can
    have stood between the queue's last record (or the log's start, unless the log's head is gone)
    and this one; a few may be missing all the same. What has to be filled is bounded.

    Notes
    -----
    Records must be judged in log order. Threading: one thread at a time.
    """

    def __init__(self) -> None:
        #: By queue: next queue offset and the last record's end, when a record was passed over.
        self._passed_over: dict[tuple[str, int], tuple[int, int]] = {}

    def refusal(
        self,
        claim: Claim,
        log_min_offset: int,
        next_of_queue: Callable[[], Iterator[NextRecord]],
        *,
        always_ask: bool,
    ) -> str | None:
        """Judge one record.

        Parameters
        ----------
        claim : Claim
        log_min_offset : int
            Where the log begins.
        next_of_queue : callable
            Yields the queue's next records, as far as they are near; called only where it counts.
        always_ask : bool
            Ask for them even where as many messages can be missing.

        Returns
        -------
        str or None
            Why its queue offset cannot be, ``None`` when it can.
        """
        start = max(claim.last_end, 0)
        if claim.last_end < 0 and log_min_offset > 0:
            start = 0  # the log's head is gone
        passed_over = self._passed_over.get(claim.queue)
        if passed_over is not None and passed_over[0] == claim.next_index:
            start = passed_over[1]  # what was passed over is among the missing
        fits = claim.queue_offset - claim.next_index <= _room(start, claim.place)
        reason = None
        if claim.queue_offset > MAX_QUEUE_OFFSET:
            reason = "no queue's files have a place for it"
        elif not claim.has_unit and claim.queue_offset > claim.next_index:
            asks = always_ask or not fits
            reason = _doubt(claim, next_of_queue() if asks else iter(()), fits=fits)
        if reason is None and not fits and claim.needs_much_filler:
            reason = f"the queue ends at {claim.next_index}, too far away to be filled"
        if reason is not None:
            self._passed_over[claim.queue] = claim.next_index, start
        return reason


def _room(start: int, stop: int) -> int:
    """Records that can have stood from ``start`` to ``stop``."""
    return (stop - start) // formats.RECORD_MIN_NBYTES


def _doubt(claim: Claim, later: Iterator[NextRecord], *, fits: bool) -> str | None:
    """What speaks against a number that the queue's files do not confirm."""
    first = next(later, None)
    if first is not None and claim.next_index <= first.queue_offset <= claim.queue_offset:
        # One of the two is wrong: the one that the third does not go on from.
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
