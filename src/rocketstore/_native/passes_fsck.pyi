"""What records and queue files say about the same queues, summed up."""

from collections.abc import Sequence
from typing import final

from typing_extensions import Buffer

@final
class FsckPass:
    """A pass that counts records and sums up what they say about each queue.

    Parameters
    ----------
    delay_ms : sequence of int
        Delay levels, for the tags code of delayed records.
    report_property_crc : bool
        Look at the whole-record CRCs too (``RecordFlags.REPORT_PROPERTY_CRC``).
    max_queues, max_wrong : int
        ``consume`` answers FULL once so many queues, or wrong whole-record CRCs, were met.
    index_keys : bool
        Gather the records' keys for the index too, as ``IndexKeysPass(mark_tags=True)`` does.
    key_capacity : int
        Keys to be gathered before they must be taken, ``MAX_RECORD_KEYS`` or more (``ValueError``);
        ``consume`` answers FULL when there is no room for so many as one record may have.

    Notes
    -----
    Threading: one thread at a time; ``consume`` runs without the GIL.
    """

    def __init__(
        self,
        *,
        delay_ms: Sequence[int] = (),
        report_property_crc: bool = False,
        max_queues: int = 65536,
        max_wrong: int = 65536,
        index_keys: bool = False,
        key_capacity: int = 65536,
    ) -> None: ...
    def consume(
        self,
        window: Buffer,
        position: int,
        stop: int,
        base_offset: int,
        segment_end: int,
        limit: int,
        flags: int,
        /,
    ) -> tuple[int, int]:
        """Take the records of ``window[position:stop]`` that begin in front of ``limit`` (a
        physical offset). Returns (``RecordStatus``, position of the next look): END, FULL (call
        ``take``, and ``take_keys`` when they are gathered, and go on from there), or what stands
        there."""

    def take(
        self,
    ) -> tuple[
        dict[str, int], list[tuple[bytes, int, int, int, int, int, int, int, int]], list[int]
    ]:
        """Return what was met since the last call, and forget it: counts by name, queues in order
        of appearance, physical offsets of records whose whole-record CRC is wrong.

        The counts are ``records``, ``nbytes``, ``nul_properties``, ``unsafe_topics`` and
        ``backward_times`` (store times earlier than the one in front) of records that are no
        ghosts, their ``first_timestamp`` and ``last_timestamp`` (0 without records), ``ghosts``,
        ``named`` (records that name other queues, with offsets there), ``inner_batches``,
        ``valid_crcs``. A queue is (topic, queue id, records with a unit, first queue offset, the
        one behind the last record's, physical offset of the first record, end of the last one,
        records whose queue offset does not follow the one in front, checksum of their units).
        Keys are kept."""

    def take_keys(self) -> tuple[memoryview, memoryview, memoryview]:
        """Return the keys gathered and forget them, as ``IndexKeysPass.take`` does; ``ValueError``
        when they are not."""

def sum_units(
    units: Buffer, first_index: int, log_start: int = 0, /
) -> tuple[int, int, int, int, int, int, int]:
    """Sum up the units of a stretch of a queue that begins at queue offset ``first_index``; what is
    no whole unit at its end is passed over.

    Returns (units that count, first and last queue offset of these or -1, their checksum, fillers,
    units that point in front of ``log_start``, last queue offset of a filler or of such a unit or
    -1). Unwritten units do not count. Checksums of stretches are added modulo 2**64; that of a
    queue's units equals ``FsckPass``'s of its records where both say the same (they tell accidents,
    not malice). Runs without the GIL."""
