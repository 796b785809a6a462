"""Sums over records and over queue files, to compare both for the same queues."""

from collections.abc import Sequence
from typing import final

from typing_extensions import Buffer

@final
class FsckPass:
    """Count records and sum up what they imply for each queue.

    Parameters
    ----------
    delay_ms : sequence of int
        Delay levels, for the tags code of delayed records.
    report_property_crc : bool
        Also check the whole-record CRCs (``RecordFlags.REPORT_PROPERTY_CRC``).
    max_queues, max_wrong : int
        ``consume`` returns FULL after so many queues, or wrong whole-record CRCs.
    index_keys : bool
        Also gather the records' index keys, like ``IndexKeysPass(mark_tags=True)``.
    key_capacity : int
        Room for keys until ``take_keys``, ``MAX_RECORD_KEYS`` or more (``ValueError``);
        ``consume`` returns FULL if there is no room for the keys of one more record.

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
        """Process the records of ``window[position:stop]`` that begin before ``limit`` (a physical
        offset). Return (``RecordStatus``, position to continue from): END, FULL (call ``take``,
        and ``take_keys`` if keys are gathered, then continue), or the status of the place there."""

    def take(
        self,
    ) -> tuple[
        dict[str, int], list[tuple[bytes, int, int, int, int, int, int, int, int]], list[int]
    ]:
        """Return the sums since the last call and clear them: counts by name, queues in order of
        appearance, physical offsets of records whose whole-record CRC is wrong.

        ``records``, ``nbytes``, ``nul_properties``, ``unsafe_topics`` and ``backward_times`` (store
        times earlier than the previous record's) count records that are not ghosts.
        ``first_timestamp`` and ``last_timestamp`` are theirs (0 without records). Further counts
        are ``ghosts``, ``named`` (records that name other queues, with offsets there),
        ``inner_batches`` and ``valid_crcs``. A queue is (topic, queue id, records with a unit,
        first queue offset, queue offset after the last record, physical offset of the first record,
        end of the last one, records whose queue offset does not follow the previous one, checksum
        of their units). Keys are kept."""

    def take_keys(self) -> tuple[memoryview, memoryview, memoryview]:
        """Return the keys gathered and clear them, like ``IndexKeysPass.take``; raise
        ``ValueError`` if no keys are gathered."""

def sum_units(
    units: Buffer, first_index: int, log_start: int = 0, /
) -> tuple[int, int, int, int, int, int, int]:
    """Sum up the units of a part of a queue that begins at queue offset ``first_index``; an
    incomplete unit at its end is ignored.

    Return (units that count, first and last queue offset of these or -1, their checksum,
    pre-blanks, units that point before ``log_start``, last queue offset of a unit of these two
    kinds or -1). Unwritten units do not count. Checksums of parts are added modulo 2**64. The
    checksum of a queue's units equals the one from ``FsckPass`` if both agree (it detects
    accidents, not malice). Runs without the GIL."""
