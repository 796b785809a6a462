"""Staged records of delayed messages that are due: what a broker puts when it delivers them."""

from typing import final

from typing_extensions import Buffer

@final
class DeliveryEncoder:
    """Encodes delayed messages as staged records (see ``staged_records``).

    A delivery has topic and queue of ``REAL_TOPIC`` and ``REAL_QID``, the body, flags, born fields,
    store host and reconsume times of its original, and all its properties in the order of a
    broker's hash map.

    Parameters
    ----------
    broker_version : str
    max_message_size, segment_nbytes : int
        Limits of a put, in bytes.
    append_property_crc : bool
        The put appends a whole-record CRC; the original's is left out.
    gives_offsets : bool
        Puts give offsets in the queues that ``INNER_MULTI_DISPATCH`` names.
    capacity : int
        Bytes staged until ``take``; a longer record is staged alone.

    Notes
    -----
    Threading: one thread at a time (``RuntimeError``); staging runs without the GIL and guarded.
    """

    rows: int
    def __init__(
        self,
        *,
        broker_version: str = "5.5.0",
        max_message_size: int = 4194304,
        segment_nbytes: int = 1073741824,
        append_property_crc: bool = False,
        gives_offsets: bool = False,
        capacity: int = 1048576,
    ) -> None: ...
    def stage(
        self,
        units: Buffer,
        position: int,
        stop: int,
        queue_offset: int,
        queue_id: int,
        now: int,
        delay: int,
        log: Buffer,
        log_stop: int,
        base_offset: int,
        segment_end: int,
        flags: int,
        /,
    ) -> tuple[int, int]:
        """Stage the messages of consecutive units of the schedule topic while they are due.

        ``position`` is that of the first unit in ``units``, ``queue_offset`` its queue offset. The
        log is given as in ``consume_queue.select_messages``. A unit is due if its tags code, a due
        time in epoch ms, is at most ``now`` or greater than ``now + delay`` (then the clock or the
        level's delay has changed). With a negative ``delay`` only the first holds.

        Return (position of the first unit that was not staged, status): END at ``stop``; OK at a
        unit that is not due; OTHER_SEGMENT if its record is not in this segment; LIMIT without room
        (take first); MISMATCH if the unit needs care: no ordinary due time, a record that is
        corrupt or not the unit's, no valid ``REAL_TOPIC`` or ``REAL_QID``, a half message, more
        than 64 properties, queues named in ``INNER_MULTI_DISPATCH`` under ``gives_offsets``, or a
        record that a put would refuse. ``ValueError``: a range that is not within its buffer;
        ``OSError``: a mapped file was shortened. ``rows`` counts the records staged since ``take``.
        """

    @property
    def nbytes(self) -> int:
        """Bytes staged and not yet taken."""

    def take(self) -> bytes:
        """Return what was staged since the last ``take``, positions counting from its start."""
