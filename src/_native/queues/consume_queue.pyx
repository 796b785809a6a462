"""Units of ConsumeQueue: write, read, scan, search, filter, follow (``consume_queue.pyi``)."""

from cpython.buffer cimport PyBuffer_Release
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint64_t
from libc.string cimport memset

from rs_arguments cimport (
    rs_get_bytes, rs_get_i32, rs_get_i64, rs_get_integers, rs_set_i32, rs_set_i64,
)
from rs_bytes cimport RS_RELEASE_FENCE, rs_load_be64, rs_load_u64, rs_store_be64
from rs_crc cimport rs_crc_import
from rs_formats cimport (
    RS_CQ_UNIT_NBYTES, RS_CQ_UNIT_PHYSICAL_OFFSET_AT, RS_CQ_UNIT_TAGS_CODE_AT, RS_FILLER_UNIT_SIZE,
    rs_selected_message,
)
from rs_guard cimport rs_guard_import, rs_guarded
from rs_get_message cimport rs_get_message_all, rs_selection
from rs_sql92 cimport rs_compile, rs_sql92_free
from rs_status cimport RS_BAD_UNIT, RS_END, RS_NO_UNIT, RS_OK
from rs_units cimport (
    rs_is_filler, rs_is_unwritten, rs_load_unit, rs_run, rs_store_unit, rs_unit, rs_whole_units,
)

rs_guard_import()
rs_crc_import()


# --- Columns ----------------------------------------------------------------------------------

cdef struct Columns:
    uint8_t* units
    uint8_t* physical_offsets
    uint8_t* sizes
    uint8_t* tags_codes
    Py_ssize_t count


cdef int store_columns(void* argument) noexcept nogil:
    cdef Columns* columns = <Columns*>argument
    cdef Py_ssize_t i
    for i in range(columns.count):
        rs_store_unit(
            columns.units + i * RS_CQ_UNIT_NBYTES, rs_get_i64(columns.physical_offsets, i),
            rs_get_i32(columns.sizes, i), rs_get_i64(columns.tags_codes, i),
        )
    return RS_OK


cdef int load_columns(void* argument) noexcept nogil:
    cdef Columns* columns = <Columns*>argument
    cdef rs_unit unit
    cdef Py_ssize_t i
    for i in range(columns.count):
        rs_load_unit(columns.units + i * RS_CQ_UNIT_NBYTES, &unit)
        rs_set_i64(columns.physical_offsets, i, unit.physical_offset)
        rs_set_i32(columns.sizes, i, unit.size)
        rs_set_i64(columns.tags_codes, i, unit.tags_code)
    return RS_OK


cdef int get_columns(
    Py_buffer* views, physical_offsets, sizes, tags_codes, bint writes, Py_ssize_t units,
    Columns* columns,
) except -1:
    """Take the three arrays into ``views``; they must be of one length."""
    cdef Py_ssize_t count
    rs_get_integers(physical_offsets, &views[0], 8, "physical_offsets", writes)
    rs_get_integers(sizes, &views[1], 4, "sizes", writes)
    rs_get_integers(tags_codes, &views[2], 8, "tags_codes", writes)
    count = views[0].len // 8
    if views[1].len != 4 * count or views[2].len != 8 * count:
        raise ValueError(
            f"arrays differ in length: {count}, {views[1].len // 4}, {views[2].len // 8}"
        )
    columns.physical_offsets = <uint8_t*>views[0].buf
    columns.sizes = <uint8_t*>views[1].buf
    columns.tags_codes = <uint8_t*>views[2].buf
    columns.count = count if count < units else units
    return 0


def put_units(buffer, int64_t position, physical_offsets, sizes, tags_codes, /):
    """Write consecutive units until the buffer's end; return how many."""
    cdef Py_buffer[4] views
    cdef Columns columns
    cdef int64_t stop
    cdef int i
    memset(views, 0, sizeof(views))
    try:
        rs_get_bytes(buffer, &views[3], True)
        stop = rs_whole_units(&views[3], RS_CQ_UNIT_NBYTES, position, views[3].len)
        get_columns(
            views, physical_offsets, sizes, tags_codes, False,
            (stop - position) // RS_CQ_UNIT_NBYTES, &columns,
        )
        columns.units = <uint8_t*>views[3].buf + position
        rs_run(store_columns, &columns)
    finally:
        for i in range(4):
            PyBuffer_Release(&views[i])
    return columns.count


def read_units(buffer, int64_t position, int64_t stop, physical_offsets, sizes, tags_codes, /):
    """Decode units into the arrays; return how many."""
    cdef Py_buffer[4] views
    cdef Columns columns
    cdef int i
    memset(views, 0, sizeof(views))
    try:
        rs_get_bytes(buffer, &views[3], False)
        stop = rs_whole_units(&views[3], RS_CQ_UNIT_NBYTES, position, stop)
        get_columns(
            views, physical_offsets, sizes, tags_codes, True,
            (stop - position) // RS_CQ_UNIT_NBYTES, &columns,
        )
        columns.units = <uint8_t*>views[3].buf + position
        rs_run(load_columns, &columns)
    finally:
        for i in range(4):
            PyBuffer_Release(&views[i])
    return columns.count


# --- Ranges -----------------------------------------------------------------------------------

cdef struct Range:
    uint8_t* units # the file's first byte
    int64_t position
    int64_t stop
    int64_t last_end
    int64_t log_end
    int64_t physical_offset


cdef int fill_range(void* argument) noexcept nogil:
    cdef Range* units = <Range*>argument
    while units.position < units.stop:
        rs_store_unit(units.units + units.position, 0, RS_FILLER_UNIT_SIZE, 0)
        units.position += RS_CQ_UNIT_NBYTES
    return RS_OK


def fill_units(buffer, int64_t position, int64_t stop, /):
    """Write pre-blank units from ``position`` to ``stop``."""
    cdef Py_buffer view
    cdef Range units
    rs_get_bytes(buffer, &view, True)
    try:
        units.stop = rs_whole_units(&view, RS_CQ_UNIT_NBYTES, position, stop)
        units.units = <uint8_t*>view.buf
        units.position = position
        rs_run(fill_range, &units)
    finally:
        PyBuffer_Release(&view)


cdef inline int judge_unit(const rs_unit* unit, int64_t last_end, int64_t log_end) noexcept nogil:
    """Return RS_OK for a unit whose message is after the previous one and inside the log."""
    if unit.physical_offset < 0 or unit.physical_offset < last_end or unit.size <= 0:
        return RS_NO_UNIT if rs_is_unwritten(unit) else RS_BAD_UNIT
    if unit.physical_offset > log_end or unit.size > log_end - unit.physical_offset:
        return RS_BAD_UNIT
    return RS_OK


cdef int scan_range(void* argument) noexcept nogil:
    """Move position and last_end unit by unit, so that after a fault they cover the walked
    units."""
    cdef Range* units = <Range*>argument
    cdef rs_unit unit
    cdef int status
    while units.position < units.stop:
        rs_load_unit(units.units + units.position, &unit)
        if rs_is_filler(&unit):
            if units.last_end >= 0:
                return RS_BAD_UNIT
        else:
            status = judge_unit(&unit, units.last_end, units.log_end)
            if status != RS_OK:
                return status
            units.last_end = unit.physical_offset + unit.size
        units.position += RS_CQ_UNIT_NBYTES
        RS_RELEASE_FENCE()
    return RS_END


def scan_units(buffer, int64_t position, int64_t stop, int64_t last_end, int64_t log_end, /):
    """Walk valid units; return where it ended, the end of the last message, and why it ended."""
    cdef Py_buffer view
    cdef Range units
    cdef int status
    rs_get_bytes(buffer, &view, False)
    try:
        units.stop = rs_whole_units(&view, RS_CQ_UNIT_NBYTES, position, stop)
        units.units = <uint8_t*>view.buf
        units.position = position
        units.last_end = last_end
        units.log_end = log_end
        with nogil:
            status = rs_guarded(scan_range, &units)
    finally:
        PyBuffer_Release(&view)
    return units.position, units.last_end, status


cdef int find_in_range(void* argument) noexcept nogil:
    cdef Range* units = <Range*>argument
    cdef int64_t low = 0, high = (units.stop - units.position) // RS_CQ_UNIT_NBYTES, middle
    cdef int64_t probe, offset
    cdef rs_unit unit
    while low < high:
        middle = (low + high) // 2
        offset = -1
        probe = middle
        while probe >= low:
            rs_load_unit(units.units + units.position + probe * RS_CQ_UNIT_NBYTES, &unit)
            if not rs_is_filler(&unit):
                offset = unit.physical_offset
                break
            if units.physical_offset < 0:
                probe = middle  # every pre-blank matches
                break
            # A pre-blank has no offset to compare: use the unit before it.
            probe -= 1
        if offset < units.physical_offset:
            low = middle + 1
        else:
            high = probe
    units.position += low * RS_CQ_UNIT_NBYTES
    return RS_OK


def find_unit(buffer, int64_t position, int64_t stop, int64_t physical_offset, /):
    """Return the position of the first unit at or after ``physical_offset``, or ``stop``."""
    cdef Py_buffer view
    cdef Range units
    rs_get_bytes(buffer, &view, False)
    try:
        units.stop = rs_whole_units(&view, RS_CQ_UNIT_NBYTES, position, stop)
        units.units = <uint8_t*>view.buf
        units.position = position
        units.physical_offset = physical_offset
        rs_run(find_in_range, &units)
    finally:
        PyBuffer_Release(&view)
    return units.position


# --- Tags -------------------------------------------------------------------------------------

cdef struct TagFilter:
    const uint8_t* units
    Py_ssize_t count
    const uint8_t* tags_codes
    Py_ssize_t tags_count
    uint8_t* out
    Py_ssize_t found


cdef Py_ssize_t filter_one(const TagFilter* work, int64_t tags_code) noexcept nogil:
    """Compare raw bytes with the code; every number is written, and a hit keeps its number."""
    cdef const uint8_t* code_at = work.units + RS_CQ_UNIT_TAGS_CODE_AT
    cdef uint8_t[8] raw
    cdef uint64_t wanted
    cdef Py_ssize_t i, found = 0
    rs_store_be64(raw, tags_code)
    wanted = rs_load_u64(raw)
    for i in range(work.count):
        rs_set_i64(work.out, found, i)
        found += rs_load_u64(code_at) == wanted
        code_at += RS_CQ_UNIT_NBYTES
    return found


cdef bint is_wanted(const TagFilter* work, const rs_unit* unit) noexcept nogil:
    cdef Py_ssize_t i
    cdef bint wanted = False
    for i in range(work.tags_count):
        wanted |= rs_get_i64(work.tags_codes, i) == unit.tags_code
    return wanted and not rs_is_filler(unit) and not rs_is_unwritten(unit)


cdef int filter_all(void* argument) noexcept nogil:
    cdef TagFilter* work = <TagFilter*>argument
    cdef rs_unit unit
    cdef Py_ssize_t i
    # Only a pre-blank or an unwritten unit, whose code is 0, cannot be recognized by its code.
    if work.tags_count == 1 and rs_get_i64(work.tags_codes, 0) != 0:
        work.found = filter_one(work, rs_get_i64(work.tags_codes, 0))
        return RS_OK
    for i in range(work.count):
        rs_load_unit(work.units + i * RS_CQ_UNIT_NBYTES, &unit)
        rs_set_i64(work.out, work.found, i)
        work.found += is_wanted(work, &unit)
    return RS_OK


def filter_units(buffer, int64_t position, int64_t stop, tags_codes, out, /):
    """Find the units with one of the tags codes; return how many."""
    cdef Py_buffer[3] views
    cdef TagFilter work
    cdef int i
    memset(views, 0, sizeof(views))
    try:
        rs_get_bytes(buffer, &views[0], False)
        stop = rs_whole_units(&views[0], RS_CQ_UNIT_NBYTES, position, stop)
        rs_get_integers(tags_codes, &views[1], 8, "tags_codes", False)
        rs_get_integers(out, &views[2], 8, "out", True)
        work.count = (stop - position) // RS_CQ_UNIT_NBYTES
        if views[2].len // 8 < work.count:
            raise ValueError(f"out has room for {views[2].len // 8} of {work.count} units")
        work.units = <const uint8_t*>views[0].buf + position
        work.tags_codes = <const uint8_t*>views[1].buf
        work.tags_count = views[1].len // 8
        work.out = <uint8_t*>views[2].buf
        work.found = 0
        rs_run(filter_all, &work)
    finally:
        for i in range(3):
            PyBuffer_Release(&views[i])
    return work.found


# --- Messages ---------------------------------------------------------------------------------

cdef int check_selection(
    Py_ssize_t log_nbytes, int64_t log_stop, int64_t base_offset, int64_t segment_end,
    int64_t queue_offset, int64_t units, int64_t selected_nbytes, int64_t selected_count,
) except -1:
    if not 0 <= log_stop <= log_nbytes:
        raise ValueError(f"log_stop {log_stop} is outside a buffer of {log_nbytes} bytes")
    if base_offset < 0 or not base_offset < segment_end:
        raise ValueError(f"no segment from {base_offset} to {segment_end}")
    if queue_offset < 0 or queue_offset > INT64_MAX - units:
        raise ValueError(f"queue_offset {queue_offset} leaves no queue offsets for {units} units")
    if not 0 <= selected_nbytes <= INT64_MAX // 2 or not 0 <= selected_count <= INT64_MAX // 2:
        raise ValueError(
            f"selected_count {selected_count} or selected_nbytes {selected_nbytes} is out of range")
    return 0


def select_messages(
    units, int64_t position, int64_t stop, int64_t queue_offset,
    log, int64_t log_stop, int64_t base_offset, int64_t segment_end, int64_t min_offset,
    bytes topic not None, int64_t queue_id, tags_codes, filter,
    int64_t max_count, int64_t max_nbytes, int64_t disk_below, int64_t max_disk_count,
    int64_t max_disk_nbytes, int64_t selected_nbytes, int64_t selected_count, int64_t flags, out, /
):
    """Follow units into one log segment, like getMessage's loop."""
    cdef Py_buffer[4] views
    cdef rs_selection work
    cdef int status, i
    memset(views, 0, sizeof(views))
    work.sql = NULL
    try:
        rs_get_bytes(units, &views[0], False)
        work.stop = rs_whole_units(&views[0], RS_CQ_UNIT_NBYTES, position, stop)
        rs_get_bytes(log, &views[1], False)
        rs_get_bytes(out, &views[2], True)
        check_selection(
            views[1].len, log_stop, base_offset, segment_end, queue_offset,
            (work.stop - position) // RS_CQ_UNIT_NBYTES, selected_nbytes, selected_count,
        )
        work.tags_codes = NULL
        work.tags_count = 0
        if tags_codes is not None:
            rs_get_integers(tags_codes, &views[3], 8, "tags_codes", False)
            work.tags_codes = <const uint8_t*>views[3].buf
            work.tags_count = views[3].len // 8
        if filter is not None:
            rs_compile(&work.sql, filter.program)
        work.units = <const uint8_t*>views[0].buf
        work.units_nbytes = views[0].len
        work.log = <const uint8_t*>views[1].buf
        work.log_stop = log_stop
        work.base_offset = base_offset
        work.segment_end = segment_end
        work.min_offset = min_offset
        work.topic = <const uint8_t*>PyBytes_AS_STRING(topic)
        work.topic_nbytes = PyBytes_GET_SIZE(topic)
        work.queue_id = queue_id
        work.flags = <int>flags
        work.limits.max_count = max_count
        work.limits.max_nbytes = max_nbytes
        work.limits.disk_below = disk_below
        work.limits.max_disk_count = max_disk_count
        work.limits.max_disk_nbytes = max_disk_nbytes
        work.limits.selected_count = selected_count
        work.limits.selected_nbytes = selected_nbytes
        work.out = <uint8_t*>views[2].buf
        work.room = views[2].len // <Py_ssize_t>sizeof(rs_selected_message)
        work.skip_below = 0
        work.position = position
        work.queue_offset = queue_offset
        work.rows = 0
        work.nbytes = 0
        work.errors = 0
        work.reason = 0
        with nogil:
            status = rs_guarded(rs_get_message_all, &work)
    finally:
        rs_sql92_free(work.sql)
        for i in range(4):
            PyBuffer_Release(&views[i])
    if work.errors:
        filter.count_errors(work.errors)
    return work.position, work.rows, work.nbytes, status, work.reason
