"""BatchConsumeQueue units in pure Python: twin of ``_native/batch_consume_queue``."""

from __future__ import annotations

import struct

from rocketstore import formats
from rocketstore._reference.arguments import (
    INT64_MAX,
    Buffer,
    check_int64,
    readable,
    whole_units,
    writable,
)
from rocketstore.status import KernelStatus, RecordStatus

_UNIT = formats.BATCH_QUEUE_UNIT.struct
_SIZE_AT = formats.BATCH_QUEUE_UNIT.at("size")
_NBYTES = _UNIT.size
_UNWRITTEN = bytes(_NBYTES)
#: Fields of a unit that a caller gives, with their widths in bytes.
_GIVEN = {field.name: field.nbytes for field in formats.BATCH_QUEUE_UNIT.fields[:6]}


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
    """Write one unit, its size last."""
    view = writable(buffer)
    check_int64(physical_offset, size, tags_code, store_timestamp, base_offset, batch_size)
    if whole_units(view, _NBYTES, position, len(view)) == position:
        raise ValueError(f"no room for a unit at position {position} of {len(view)} bytes")
    values = (physical_offset, size, tags_code, store_timestamp, base_offset, batch_size)
    for (name, nbytes), value in zip(_GIVEN.items(), values, strict=True):
        if not -(1 << (8 * nbytes - 1)) <= value < 1 << (8 * nbytes - 1):
            raise OverflowError(f"{name} {value} does not fit {nbytes} bytes")
    row = (physical_offset, 0, tags_code, store_timestamp, base_offset, batch_size, -1, 0)
    _UNIT.pack_into(view, position, *row)
    struct.pack_into(">i", view, position + _SIZE_AT, size)


def read_unit(buffer: Buffer, position: int, /) -> tuple[int, int, int, int, int, int, int, int]:
    """Return the fields of one unit."""
    view = readable(buffer)
    if whole_units(view, _NBYTES, position, len(view)) == position:
        raise ValueError(f"no unit at position {position} of {len(view)} bytes")
    offset, size, code, time, base, count, compacted, reserved = _UNIT.unpack_from(view, position)
    return offset, size, code, time, base, count, compacted, reserved


def scan_units(
    buffer: Buffer, position: int, stop: int, last_end: int, next_offset: int, log_end: int, /
) -> tuple[int, int, int, int]:
    """Walk valid units; return where it ended, the running values, and why it ended."""
    view = readable(buffer)
    check_int64(last_end, next_offset, log_end)
    stop = whole_units(view, _NBYTES, position, stop)
    for at in range(position, stop, _NBYTES):
        offset, size, _, _, base, count, _, _ = _UNIT.unpack_from(view, at)
        good = (
            offset >= max(0, last_end)
            and size > 0
            and count > 0
            and base >= max(0, next_offset)
            and base <= INT64_MAX - count
            and offset + size <= log_end
        )
        if not good:
            unwritten = view[at : at + _NBYTES] == _UNWRITTEN
            status = KernelStatus.NO_UNIT if unwritten else KernelStatus.BAD_UNIT
            return at, last_end, next_offset, status
        last_end, next_offset = offset + size, base + count
    return stop, last_end, next_offset, RecordStatus.END


def search_units(buffer: Buffer, position: int, stop: int, field_at: int, value: int, /) -> int:
    """Return the position of the first unit whose field is at least ``value``, or ``stop``."""
    view = readable(buffer)
    check_int64(field_at, value)
    stop = whole_units(view, _NBYTES, position, stop)
    if not 0 <= field_at <= _NBYTES - 8:
        raise ValueError(f"a unit of {_NBYTES} bytes has no int64 at {field_at}")
    low, high = 0, (stop - position) // _NBYTES
    while low < high:
        middle = (low + high) // 2
        found = struct.unpack_from(">q", view, position + middle * _NBYTES + field_at)[0]
        if found < value:
            low = middle + 1
        else:
            high = middle
    return position + low * _NBYTES
