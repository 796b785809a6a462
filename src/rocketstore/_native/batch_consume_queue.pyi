"""Units of BatchConsumeQueue. Positions are in bytes from the start of the given file buffer.

A range is ``position`` (a multiple of the unit's 46 bytes) up to ``stop`` (rounded down to whole
units after ``position``); ``ValueError`` if it is not within the buffer. Native bodies run without
the GIL and guarded. A kernel that returns no status raises ``OSError`` (EFAULT) if the mapped file
was shortened."""

from typing_extensions import Buffer

def put_unit(
    buffer: Buffer,
    position: int,
    physical_offset: int,
    size: int,
    tags_code: int,
    store_timestamp: int,
    base_offset: int,
    batch_size: int,
    /,
) -> None:
    """Write one unit, its size last, so that a reader in another process sees a whole unit or
    none. ``ValueError``: no room for it at ``position``; ``OverflowError``: a value does not fit
    its field."""

def read_unit(buffer: Buffer, position: int, /) -> tuple[int, int, int, int, int, int, int, int]:
    """Return the fields of the unit at ``position``, in the order of the layout. ``ValueError``:
    no whole unit is there."""

def scan_units(
    buffer: Buffer, position: int, stop: int, last_end: int, next_offset: int, log_end: int, /
) -> tuple[int, int, int, int]:
    """Walk valid units: offset >= 0, size > 0, batch size > 0, offset >= last_end of the previous
    unit, base offset >= next_offset (the queue offset after the previous unit), offset + size <=
    log_end. Return (position of the first invalid unit or stop, last_end, next_offset, status):
    END, NO_UNIT (zeros), BAD_UNIT or FAULT."""

def search_units(buffer: Buffer, position: int, stop: int, field_at: int, value: int, /) -> int:
    """Return the position of the first unit whose int64 at byte ``field_at`` is >= ``value``, or
    ``stop`` (binary search: the field ascends). ``ValueError`` for a field outside the unit."""
