"""Units of BatchConsumeQueue. Positions are in bytes from the start of the given file buffer.

A range is ``position`` (a multiple of the unit's 46 bytes) up to ``stop`` (rounded down to whole
units behind ``position``); ``ValueError`` when it is not within the buffer. Native bodies run
without the GIL and guarded: where a kernel has no status to answer, a mapping whose file was
shortened raises ``OSError`` (EFAULT)."""

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
    """Write one unit; its size goes last, so that a reader in another process sees a whole unit
    or none. ``ValueError``: no room for it at ``position``; ``OverflowError``: a value that its
    field cannot hold."""

def read_unit(buffer: Buffer, position: int, /) -> tuple[int, int, int, int, int, int, int, int]:
    """The fields of the unit at ``position``, in the order of the layout. ``ValueError``: there is
    no whole unit."""

def scan_units(
    buffer: Buffer, position: int, stop: int, last_end: int, next_offset: int, log_end: int, /
) -> tuple[int, int, int, int]:
    """Walk good units: offset >= 0, size > 0, batch size > 0, offset >= last_end of the unit
    before, base offset >= next_offset (the queue offset behind the unit before), offset + size <=
    log_end. Returns (position of the first unit that is not good or stop, last_end, next_offset,
    status): END, NO_UNIT (zeros), BAD_UNIT or FAULT."""

def search_units(buffer: Buffer, position: int, stop: int, field_at: int, value: int, /) -> int:
    """Position of the first unit whose int64 at byte ``field_at`` is >= ``value``, ``stop`` when
    none (binary search: the field ascends). ``ValueError`` for a field outside the unit."""
