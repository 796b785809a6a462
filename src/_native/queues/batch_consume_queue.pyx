"""Units of BatchConsumeQueue: write, scan, search. Contract: ``batch_consume_queue.pyi``."""

from cpython.buffer cimport PyBuffer_Release
from libc.stdint cimport INT64_MAX, int16_t, int32_t, int64_t, uint8_t

from rs_arguments cimport rs_get_bytes
from rs_bytes cimport (
    RS_RELEASE_FENCE, rs_load_be16, rs_load_be32, rs_load_be32_acquire, rs_load_be64, rs_store_be16,
    rs_store_be32, rs_store_be32_release, rs_store_be64,
)
from rs_formats cimport (
    RS_BCQ_UNIT_BASE_OFFSET_AT, RS_BCQ_UNIT_BATCH_SIZE_AT, RS_BCQ_UNIT_COMPACTED_OFFSET_AT,
    RS_BCQ_UNIT_NBYTES, RS_BCQ_UNIT_PHYSICAL_OFFSET_AT, RS_BCQ_UNIT_RESERVED_AT,
    RS_BCQ_UNIT_SIZE_AT, RS_BCQ_UNIT_STORE_TIMESTAMP_AT, RS_BCQ_UNIT_TAGS_CODE_AT,
)
from rs_guard cimport rs_guard_import, rs_guarded
from rs_status cimport RS_BAD_UNIT, RS_END, RS_NO_UNIT, RS_OK
from rs_units cimport rs_run, rs_whole_units

rs_guard_import()


# --- One unit ---------------------------------------------------------------------------------

cdef struct Unit:
    uint8_t* place
    int64_t physical_offset
    int64_t size
    int64_t tags_code
    int64_t store_timestamp
    int64_t base_offset
    int64_t batch_size
    int64_t compacted_offset
    int64_t reserved


cdef int store_unit(void* argument) noexcept nogil:
    """Store the size last: a reader in another process that sees it sees the whole unit."""
    cdef Unit* unit = <Unit*>argument
    cdef uint8_t* p = unit.place
    rs_store_be32(p + RS_BCQ_UNIT_SIZE_AT, 0)
    rs_store_be64(p + RS_BCQ_UNIT_PHYSICAL_OFFSET_AT, unit.physical_offset)
    rs_store_be64(p + RS_BCQ_UNIT_TAGS_CODE_AT, unit.tags_code)
    rs_store_be64(p + RS_BCQ_UNIT_STORE_TIMESTAMP_AT, unit.store_timestamp)
    rs_store_be64(p + RS_BCQ_UNIT_BASE_OFFSET_AT, unit.base_offset)
    rs_store_be16(p + RS_BCQ_UNIT_BATCH_SIZE_AT, <int16_t>unit.batch_size)
    rs_store_be32(p + RS_BCQ_UNIT_COMPACTED_OFFSET_AT, -1)
    rs_store_be32(p + RS_BCQ_UNIT_RESERVED_AT, 0)
    rs_store_be32_release(p + RS_BCQ_UNIT_SIZE_AT, <int32_t>unit.size)
    return RS_OK


cdef int check_width(str name, int64_t value, int nbytes) except -1:
    if value != (<int32_t>value if nbytes == 4 else <int16_t>value):
        raise OverflowError(f"{name} {value} does not fit {nbytes} bytes")
    return 0


def put_unit(
    buffer, int64_t position, int64_t physical_offset, int64_t size, int64_t tags_code,
    int64_t store_timestamp, int64_t base_offset, int64_t batch_size, /
):
    """Write one unit, its size last."""
    cdef Py_buffer view
    cdef Unit unit
    rs_get_bytes(buffer, &view, True)
    try:
        if rs_whole_units(&view, RS_BCQ_UNIT_NBYTES, position, view.len) == position:
            raise ValueError(f"no room for a unit at position {position} of {view.len} bytes")
        check_width("size", size, 4)
        check_width("batch_size", batch_size, 2)
        unit.place = <uint8_t*>view.buf + position
        unit.physical_offset = physical_offset
        unit.size = size
        unit.tags_code = tags_code
        unit.store_timestamp = store_timestamp
        unit.base_offset = base_offset
        unit.batch_size = batch_size
        rs_run(store_unit, &unit)
    finally:
        PyBuffer_Release(&view)


cdef int load_unit(void* argument) noexcept nogil:
    cdef Unit* unit = <Unit*>argument
    cdef const uint8_t* p = unit.place
    unit.size = rs_load_be32_acquire(p + RS_BCQ_UNIT_SIZE_AT)
    unit.physical_offset = rs_load_be64(p + RS_BCQ_UNIT_PHYSICAL_OFFSET_AT)
    unit.tags_code = rs_load_be64(p + RS_BCQ_UNIT_TAGS_CODE_AT)
    unit.store_timestamp = rs_load_be64(p + RS_BCQ_UNIT_STORE_TIMESTAMP_AT)
    unit.base_offset = rs_load_be64(p + RS_BCQ_UNIT_BASE_OFFSET_AT)
    unit.batch_size = rs_load_be16(p + RS_BCQ_UNIT_BATCH_SIZE_AT)
    unit.compacted_offset = rs_load_be32(p + RS_BCQ_UNIT_COMPACTED_OFFSET_AT)
    unit.reserved = rs_load_be32(p + RS_BCQ_UNIT_RESERVED_AT)
    return RS_OK


def read_unit(buffer, int64_t position, /):
    """Return the fields of one unit."""
    cdef Py_buffer view
    cdef Unit unit
    rs_get_bytes(buffer, &view, False)
    try:
        if rs_whole_units(&view, RS_BCQ_UNIT_NBYTES, position, view.len) == position:
            raise ValueError(f"no unit at position {position} of {view.len} bytes")
        unit.place = <uint8_t*>view.buf + position
        rs_run(load_unit, &unit)
    finally:
        PyBuffer_Release(&view)
    return (
        unit.physical_offset, unit.size, unit.tags_code, unit.store_timestamp, unit.base_offset,
        unit.batch_size, unit.compacted_offset, unit.reserved,
    )


# --- Ranges -----------------------------------------------------------------------------------

cdef struct Range:
    const uint8_t* units # the file's first byte
    int64_t position
    int64_t stop
    int64_t last_end
    int64_t next_offset
    int64_t log_end
    int64_t field_at
    int64_t value


cdef bint is_unwritten(const uint8_t* p) noexcept nogil:
    cdef int i
    for i in range(RS_BCQ_UNIT_NBYTES):
        if p[i] != 0:
            return False
    return True


cdef int scan_range(void* argument) noexcept nogil:
    """Move the positions unit by unit, so that after a fault they cover the walked units."""
    cdef Range* units = <Range*>argument
    cdef const uint8_t* p
    cdef int64_t offset, base, count, size
    while units.position < units.stop:
        p = units.units + units.position
        size = rs_load_be32_acquire(p + RS_BCQ_UNIT_SIZE_AT)
        offset = rs_load_be64(p + RS_BCQ_UNIT_PHYSICAL_OFFSET_AT)
        base = rs_load_be64(p + RS_BCQ_UNIT_BASE_OFFSET_AT)
        count = rs_load_be16(p + RS_BCQ_UNIT_BATCH_SIZE_AT)
        if (offset < 0 or offset < units.last_end or size <= 0 or count <= 0 or base < 0
                or base < units.next_offset or base > INT64_MAX - count
                or offset > units.log_end or size > units.log_end - offset):
            return RS_NO_UNIT if is_unwritten(p) else RS_BAD_UNIT
        units.last_end = offset + size
        units.next_offset = base + count
        units.position += RS_BCQ_UNIT_NBYTES
        RS_RELEASE_FENCE()
    return RS_END


def scan_units(
    buffer, int64_t position, int64_t stop, int64_t last_end, int64_t next_offset,
    int64_t log_end, /
):
    """Walk valid units; return where it ended, the running values, and why it ended."""
    cdef Py_buffer view
    cdef Range units
    cdef int status
    rs_get_bytes(buffer, &view, False)
    try:
        units.stop = rs_whole_units(&view, RS_BCQ_UNIT_NBYTES, position, stop)
        units.units = <const uint8_t*>view.buf
        units.position = position
        units.last_end = last_end
        units.next_offset = next_offset
        units.log_end = log_end
        with nogil:
            status = rs_guarded(scan_range, &units)
    finally:
        PyBuffer_Release(&view)
    return units.position, units.last_end, units.next_offset, status


cdef int search_range(void* argument) noexcept nogil:
    cdef Range* units = <Range*>argument
    cdef const uint8_t* first = units.units + units.position + units.field_at
    cdef int64_t low = 0, high = (units.stop - units.position) // RS_BCQ_UNIT_NBYTES, middle
    while low < high:
        middle = (low + high) // 2
        if rs_load_be64(first + middle * RS_BCQ_UNIT_NBYTES) < units.value:
            low = middle + 1
        else:
            high = middle
    units.position += low * RS_BCQ_UNIT_NBYTES
    return RS_OK


def search_units(buffer, int64_t position, int64_t stop, int64_t field_at, int64_t value, /):
    """Return the position of the first unit whose field is at least ``value``, or ``stop``."""
    cdef Py_buffer view
    cdef Range units
    rs_get_bytes(buffer, &view, False)
    try:
        units.stop = rs_whole_units(&view, RS_BCQ_UNIT_NBYTES, position, stop)
        if not 0 <= field_at <= RS_BCQ_UNIT_NBYTES - 8:
            raise ValueError(f"a unit of {RS_BCQ_UNIT_NBYTES} bytes has no int64 at {field_at}")
        units.units = <const uint8_t*>view.buf
        units.position = position
        units.field_at = field_at
        units.value = value
        rs_run(search_range, &units)
    finally:
        PyBuffer_Release(&view)
    return units.position
