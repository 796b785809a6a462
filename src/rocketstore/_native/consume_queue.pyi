"""ConsumeQueue units. Positions are in bytes from the start of the given file buffer.

A range is ``position`` (a multiple of the unit's 20 bytes) up to ``stop`` (rounded down to whole
units behind ``position``); ``ValueError`` when it is not within the buffer. Array arguments are
buffers of native integers of the width named (or of their bytes). Native bodies run without the
GIL and guarded: where a kernel has no status to answer, a mapping whose file was shortened raises
``OSError`` (EFAULT)."""

from typing_extensions import Buffer

def put_units(
    buffer: Buffer, position: int, physical_offsets: Buffer, sizes: Buffer, tags_codes: Buffer, /
) -> int:
    """Write consecutive units (int64, int32, int64 arrays of one length) until the buffer's end;
    returns units written. ``ValueError``: position outside or no multiple of 20, lengths
    differ."""

def fill_units(buffer: Buffer, position: int, stop: int, /) -> None:
    """Write filler units (offset 0, size 2**31-1, code 0) from ``position`` to ``stop``."""

def read_units(
    buffer: Buffer,
    position: int,
    stop: int,
    physical_offsets: Buffer,
    sizes: Buffer,
    tags_codes: Buffer,
    /,
) -> int:
    """Decode units into the arrays (of one length); returns units decoded (limited by stop and
    the arrays)."""

def scan_units(
    buffer: Buffer, position: int, stop: int, last_end: int, log_end: int, /
) -> tuple[int, int, int]:
    """Walk good units: offset >= 0, size > 0, offset >= last_end of the unit before, offset +
    size <= log_end; fillers are accepted where no real unit came before (last_end < 0). Returns
    (position of the first unit that is not good or stop, last_end, status): END, NO_UNIT (zeros),
    BAD_UNIT or FAULT."""

def find_unit(buffer: Buffer, position: int, stop: int, physical_offset: int, /) -> int:
    """Position of the first unit whose physical offset is >= ``physical_offset`` (binary search
    among the units that are no fillers; for a negative offset fillers count as -1), ``stop`` when
    none."""

def filter_units(
    buffer: Buffer, position: int, stop: int, tags_codes: Buffer, out: Buffer, /
) -> int:
    """Unit numbers (relative to ``position``) whose tags code is one of the int64 ``tags_codes``,
    as int64 into ``out`` (room for every unit, else ``ValueError``); returns how many (what lies
    behind them in ``out`` is arbitrary). Fillers and unwritten units never match."""

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
    """Follow units into one log segment, as getMessage's loop does.

    For each unit from ``position`` (whose queue offset is ``queue_offset``), in this order:

    1. ``stop`` reached: END. ``out`` full: OK.
    2. Zeros: NO_UNIT. Offset negative, size not positive, or their sum beyond 2**63-1: BAD_UNIT.
    3. A unit of a log file already found expired (below the end of that file) is passed over.
    4. Batch limits (``batchFull``): LIMIT when, with what the caller has already
       (``selected_count``, ``selected_nbytes``), count > 0 and either count >= max_count or bytes
       + size > max_nbytes; a unit whose physical offset is below ``disk_below`` is measured by
       ``max_disk_count`` and ``max_disk_nbytes`` instead. So the very first message always
       passes. The caller makes each count the smaller of what was asked for and what is
       configured (RocketMQ: 32 and 262144 in memory, 8 and 65536 on disk).
    5. A tags code not among ``tags_codes`` (int64, None: all) is passed over, reason
       NO_MATCHED_MESSAGE; a consume-queue-ext address counts as a match, since only its record
       knows the code.
    6. Fillers, and units below ``min_offset`` (expired), are passed over, reason
       MESSAGE_WAS_REMOVING.
    7. A unit outside this segment's [base_offset, segment_end): OTHER_SEGMENT.
    8. The record is checked strictly (``flags``): OK, NUL_PROPERTIES and UNSAFE_TOPIC pass; a
       blank is a MISMATCH, a record that does not end before ``log_stop`` INCOMPLETE, else the
       record's status. Then its size, topic, queue id and queue offset must be the unit's, and
       its transaction type NOT or COMMIT (the others are in no queue), else MISMATCH. Or the
       record names this queue in INNER_MULTI_DISPATCH (queue id 0 for %LMQ% names, else the
       record's own), at whatever number. With an empty ``topic`` only the size is compared.
    9. It becomes a row of ``formats.SELECTED_MESSAGE`` in ``out``.

    Returns (position behind the last unit consumed, rows, bytes selected by this call, status,
    reason); reason is the ``GetMessageStatus`` of the last unit passed over (NO_MATCHED_MESSAGE
    or MESSAGE_WAS_REMOVING), 0 when none was. ``ValueError``: a range that is not within its
    buffer, or no segment."""
