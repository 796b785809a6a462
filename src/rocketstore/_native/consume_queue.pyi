"""ConsumeQueue units. Positions are in bytes from the start of the given file buffer."""

from collections.abc import Buffer

def put_units(buffer: Buffer, position: int, physical_offsets: Buffer, sizes: Buffer, tags_codes: Buffer, /) -> int:
    """Write consecutive units (int64, int32, int64 native arrays of one length) until the buffer's
    end; returns units written. ``ValueError``: position outside or no multiple of 20, lengths differ."""
def fill_units(buffer: Buffer, position: int, stop: int, /) -> None:
    """Write filler units (offset 0, size 2**31-1, code 0) from ``position`` to ``stop``."""
def read_units(buffer: Buffer, position: int, stop: int, physical_offsets: Buffer, sizes: Buffer, tags_codes: Buffer, /) -> int:
    """Decode units into the arrays; returns units decoded (limited by stop and the arrays)."""
def scan_units(buffer: Buffer, position: int, stop: int, last_end: int, log_end: int, /) -> tuple[int, int, int]:
    """Walk good units: offset >= 0, size > 0, offset >= last_end of the unit before, offset + size <=
    log_end; fillers are accepted where no real unit came before (last_end < 0). Returns (position of
    the first unit that is not good or stop, last_end, status): END, NO_UNIT (zeros) or BAD_UNIT."""
def find_unit(buffer: Buffer, position: int, stop: int, physical_offset: int, /) -> int:
    """Position of the first unit whose physical offset is >= ``physical_offset`` (binary search;
    fillers count as -1), ``stop`` when none."""
def filter_units(buffer: Buffer, position: int, stop: int, tags_codes: Buffer, out: Buffer, /) -> int:
    """Unit numbers (relative to ``position``) whose tags code is one of the int64 ``tags_codes``, as
    int64 into ``out`` (room for every unit); returns how many. Fillers never match."""
def select_messages(units: Buffer, position: int, stop: int, queue_offset: int,
                    log: Buffer, log_stop: int, base_offset: int, segment_end: int, min_offset: int,
                    topic: bytes, queue_id: int, tags_codes: Buffer | None,
                    max_count: int, max_nbytes: int, disk_below: int, max_disk_count: int, max_disk_nbytes: int,
                    selected_nbytes: int, selected_count: int,
                    flags: int, out: Buffer, /) -> tuple[int, int, int, int, int]:
    """Follow units into one log segment, as getMessage's loop does.

    For each unit from ``position`` (whose queue offset is ``queue_offset``): fillers and units that lie
    below ``min_offset`` (expired) are passed over and leave reason MESSAGE_WAS_REMOVING; a unit outside
    this segment's [base_offset, segment_end) stops with OTHER_SEGMENT; the batch limits stop with LIMIT
    (counted with what the caller has already: ``selected_count``, ``selected_nbytes``; a unit below
    physical offset ``disk_below`` uses the disk limits; nothing stops the very first message); a tags
    code not among ``tags_codes`` (int64, None: all) is passed over (reason NO_MATCHED_MESSAGE); else the
    record is checked strictly (``flags``), against the unit's size, topic, queue id and queue offset
    (disagreement or damage stops with MISMATCH or the record status) and becomes a row of
    ``formats.SELECTED_MESSAGE`` in ``out``.
    Returns (position behind the last unit consumed, rows, bytes selected by this call, status, reason):
    status END when ``stop`` was reached, OK when ``out`` is full; reason is the ``GetMessageStatus`` of the
    last unit passed over (NO_MATCHED_MESSAGE or MESSAGE_WAS_REMOVING), 0 when none was."""
