"""ConsumeQueue units. Positions are in bytes from the start of the given file buffer.

A range is ``position`` (a multiple of the unit's 20 bytes) up to ``stop`` (rounded down to whole
units after ``position``); ``ValueError`` if it is not within the buffer. Array arguments are
buffers of native integers of the width named (or of their bytes). Native bodies run without the GIL
and guarded. A kernel that returns no status raises ``OSError`` (EFAULT) if the mapped file was
shortened."""

from typing_extensions import Buffer

from rocketstore.record_filters import CompiledFilter

def put_units(
    buffer: Buffer, position: int, physical_offsets: Buffer, sizes: Buffer, tags_codes: Buffer, /
) -> int:
    """Write consecutive units (int64, int32, int64 arrays of one length) until the buffer's end;
    return the number written. ``ValueError``: ``position`` is outside or not a multiple of 20, or
    the lengths differ."""

def fill_units(buffer: Buffer, position: int, stop: int, /) -> None:
    """Write pre-blank units (offset 0, size 2**31-1, code 0) from ``position`` to ``stop``."""

def read_units(
    buffer: Buffer,
    position: int,
    stop: int,
    physical_offsets: Buffer,
    sizes: Buffer,
    tags_codes: Buffer,
    /,
) -> int:
    """Decode units into the arrays (of one length); return the number decoded (limited by stop
    and the arrays)."""

def scan_units(
    buffer: Buffer, position: int, stop: int, last_end: int, log_end: int, /
) -> tuple[int, int, int]:
    """Walk valid units: offset >= 0, size > 0, offset >= last_end of the previous unit, offset +
    size <= log_end; pre-blanks are valid before the first real unit (last_end < 0). Return
    (position of the first invalid unit or stop, last_end, status): END, NO_UNIT (zeros), BAD_UNIT
    or FAULT."""

def find_unit(buffer: Buffer, position: int, stop: int, physical_offset: int, /) -> int:
    """Return the position of the first unit whose physical offset is >= ``physical_offset``, or
    ``stop``. Binary search among the units that are not pre-blanks; for a negative offset
    pre-blanks count as -1."""

def filter_units(
    buffer: Buffer, position: int, stop: int, tags_codes: Buffer, out: Buffer, /
) -> int:
    """Write the numbers (relative to ``position``) of units whose tags code is in the int64
    ``tags_codes`` to ``out``, as int64; return how many. ``out`` must have room for every unit,
    else ``ValueError``; bytes after the numbers are arbitrary. Pre-blanks and unwritten units never
    match."""

def select_messages(
    units: Buffer,
    position: int,
    stop: int,
    queue_offset: int,
    log: Buffer,
    log_stop: int,
    base_offset: int,
    segment_end: int,
    min_offset: int,
    topic: bytes,
    queue_id: int,
    tags_codes: Buffer | None,
    filter: CompiledFilter | None,
    max_count: int,
    max_nbytes: int,
    disk_below: int,
    max_disk_count: int,
    max_disk_nbytes: int,
    selected_nbytes: int,
    selected_count: int,
    flags: int,
    out: Buffer,
    /,
) -> tuple[int, int, int, int, int]:
    """Follow units into one log segment, like getMessage's loop.

    For each unit from ``position`` (whose queue offset is ``queue_offset``), in this order:

    1. ``stop`` reached: END. ``out`` full: OK.
    2. Zeros: NO_UNIT. Offset negative, size not positive, or their sum beyond 2**63-1: BAD_UNIT.
    3. A unit of a log file already found expired (before the end of that file) is skipped.
    4. Batch limits (``batchFull``): LIMIT if count > 0 and either count >= max_count or bytes
       + size > max_nbytes. Both include what the caller already has (``selected_count``,
       ``selected_nbytes``). For a unit whose physical offset is below ``disk_below``,
       ``max_disk_count`` and ``max_disk_nbytes`` apply instead. So the very first message always
       passes. The caller makes each limit the smaller of the requested and the configured one
       (RocketMQ: 32 and 262144 in memory, 8 and 65536 on disk).
    5. A tags code not among ``tags_codes`` (int64, None: all) is skipped, reason
       NO_MATCHED_MESSAGE. A consume-queue-ext address counts as a match, since only its record
       has the code.
    6. Pre-blanks, and units below ``min_offset`` (expired), are skipped, reason
       MESSAGE_WAS_REMOVING.
    7. A unit outside this segment's [base_offset, segment_end): OTHER_SEGMENT.
    8. The record is checked strictly (``flags``): OK, NUL_PROPERTIES and UNSAFE_TOPIC pass. A
       blank is a MISMATCH, a record that does not end before ``log_stop`` INCOMPLETE, else the
       record's status is returned. Then its size, topic, queue id and queue offset must be the
       unit's, and its transaction type NOT or COMMIT (the others are in no queue), else MISMATCH.
       A record that names this queue in INNER_MULTI_DISPATCH also matches, with any queue offset
       (queue id 0 for %LMQ% names, else the record's own). With an empty ``topic`` only the size
       is compared.
    9. A record for which ``filter`` is not TRUE is skipped, reason NO_MATCHED_MESSAGE; errors are
       counted with ``filter.count_errors``.
    10. It becomes a row of ``formats.SELECTED_MESSAGE`` in ``out``.

    Return (position after the last unit consumed, rows, bytes selected by this call, status,
    reason). ``reason`` is the ``GetMessageStatus`` of the last skipped unit (NO_MATCHED_MESSAGE or
    MESSAGE_WAS_REMOVING), or 0. ``ValueError``: a range that is not within its buffer, or an
    impossible segment."""
