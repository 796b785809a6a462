# Following queue units into one log segment: the loop of getMessage.
#
# Entry point for rs_guarded: rs_get_message_all.
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memcmp

from rs_arguments cimport rs_get_i64
from rs_bytes cimport RS_PREFETCH_READ, RS_RELEASE_FENCE
from rs_formats cimport RS_CQ_UNIT_NBYTES, rs_parsed_record, rs_selected_message
from rs_multi_dispatch cimport rs_multi_names
from rs_record cimport rs_check, rs_is_transient
from rs_sql92 cimport rs_sql92_evaluate, rs_sql92_filter
from rs_sql92_program cimport RS_SQL92_VERDICT_ERROR, RS_SQL92_VERDICT_TRUE
from rs_status cimport (
    RS_BAD_UNIT, RS_BLANK, RS_END, RS_GET_MESSAGE_WAS_REMOVING, RS_GET_NO_MATCHED_MESSAGE,
    RS_INCOMPLETE, RS_LIMIT, RS_MISMATCH, RS_NO_UNIT, RS_NUL_PROPERTIES, RS_OK, RS_OTHER_SEGMENT,
    RS_UNSAFE_TOPIC,
)
from rs_units cimport (
    rs_is_ext_address, rs_is_filler, rs_is_unit_there, rs_is_unwritten, rs_load_unit,
    rs_store_selected, rs_unit,
)

cdef enum:
    # How many units ahead records are fetched, and how much of each.
    RS_SELECT_AHEAD = 4
    RS_FETCHED_NBYTES = 1536

cdef struct rs_batch_limits:
    int64_t max_count
    int64_t max_nbytes
    int64_t disk_below
    int64_t max_disk_count
    int64_t max_disk_nbytes
    int64_t selected_count
    int64_t selected_nbytes

cdef struct rs_selection:
    const uint8_t* units
    Py_ssize_t units_nbytes
    Py_ssize_t stop
    const uint8_t* log
    int64_t log_stop
    int64_t base_offset
    int64_t segment_end
    int64_t min_offset
    const uint8_t* topic
    Py_ssize_t topic_nbytes
    int64_t queue_id
    const uint8_t* tags_codes # NULL: all
    Py_ssize_t tags_count
    rs_sql92_filter* sql # NULL: all
    int flags
    rs_batch_limits limits
    uint8_t* out
    Py_ssize_t room
    int64_t skip_below # end of an expired log file
    # Moved unit by unit, so that they stay valid after a fault.
    Py_ssize_t position
    int64_t queue_offset
    Py_ssize_t rows
    int64_t nbytes
    int64_t errors # of the SQL92 filter
    int reason


cdef inline int rs_unit_status(const rs_unit* unit) noexcept nogil:
    """Return RS_OK, or why the unit cannot refer to a message."""
    if rs_is_unwritten(unit):
        return RS_NO_UNIT
    if unit.physical_offset < 0 or unit.size <= 0 or unit.physical_offset > INT64_MAX - unit.size:
        return RS_BAD_UNIT
    return RS_OK


cdef inline bint rs_batch_is_full(const rs_selection* work, const rs_unit* unit) noexcept nogil:
    cdef const rs_batch_limits* limits = &work.limits
    cdef int64_t count = limits.selected_count + work.rows
    cdef int64_t nbytes = limits.selected_nbytes + work.nbytes + unit.size
    if count == 0:
        return False
    if unit.physical_offset < limits.disk_below:
        return count >= limits.max_disk_count or nbytes > limits.max_disk_nbytes
    return count >= limits.max_count or nbytes > limits.max_nbytes


cdef inline bint rs_tag_matches(const rs_selection* work, int64_t tags_code) noexcept nogil:
    cdef Py_ssize_t i
    if work.tags_codes == NULL or rs_is_ext_address(tags_code):
        return True
    for i in range(work.tags_count):
        if rs_get_i64(work.tags_codes, i) == tags_code:
            return True
    return False


cdef inline int64_t rs_end_of_log_file(
    const rs_selection* work, int64_t physical_offset
) noexcept nogil:
    """Return the end of the expired log file with the offset. Requires: offset < min_offset."""
    cdef int64_t file_nbytes = work.segment_end - work.base_offset
    cdef int64_t left = file_nbytes - physical_offset % file_nbytes
    if left > work.min_offset - physical_offset:
        return work.min_offset
    return physical_offset + left


cdef inline bint rs_belongs(
    const rs_selection* work, const uint8_t* p, const rs_parsed_record* record
) noexcept nogil:
    """Return whether the record is this message of this queue, or names the queue."""
    if (
        record.topic_nbytes == work.topic_nbytes
        and record.queue_id == work.queue_id
        and record.queue_offset == work.queue_offset
        and memcmp(p + record.topic_at, work.topic, <size_t>work.topic_nbytes) == 0
    ):
        return True
    return rs_multi_names(p, record, work.topic, <int32_t>work.topic_nbytes, work.queue_id)


cdef inline bint rs_passes_sql(
    rs_selection* work, const uint8_t* p, const rs_parsed_record* record
) noexcept nogil:
    """Return whether the record passes the SQL92 filter; set the reason if not."""
    cdef int verdict = rs_sql92_evaluate(
        work.sql, p + record.properties_at, record.properties_nbytes)
    if verdict == RS_SQL92_VERDICT_TRUE:
        return True
    work.errors += verdict == RS_SQL92_VERDICT_ERROR
    work.reason = RS_GET_NO_MATCHED_MESSAGE
    return False


cdef inline int rs_select_record(rs_selection* work, const rs_unit* unit) noexcept nogil:
    """Check the record strictly and against its unit, and add the row if it passes."""
    cdef rs_parsed_record record
    cdef int64_t position = unit.physical_offset - work.base_offset
    cdef int status
    if position >= work.log_stop:
        return RS_INCOMPLETE
    status = rs_check(
        work.log + position, work.log_stop - position, unit.physical_offset, work.segment_end,
        work.flags, &record,
    )
    if status != RS_OK and status != RS_NUL_PROPERTIES and status != RS_UNSAFE_TOPIC:
        return RS_MISMATCH if status == RS_BLANK else status
    if record.total_size != unit.size:
        return RS_MISMATCH
    if work.topic_nbytes > 0 and (
        rs_is_transient(record.sys_flag)
        or not rs_belongs(work, work.log + position, &record)
    ):
        return RS_MISMATCH
    if work.sql != NULL and not rs_passes_sql(work, work.log + position, &record):
        return RS_OK
    rs_store_selected(
        work.out + work.rows * <Py_ssize_t>sizeof(rs_selected_message), position, work.queue_offset,
        unit.tags_code, unit.size,
    )
    work.rows += 1
    work.nbytes += unit.size
    return RS_OK


cdef inline int rs_select_unit(rs_selection* work, const rs_unit* unit) noexcept nogil:
    """Process one unit; return RS_OK if it was consumed, with or without a row."""
    cdef int status = rs_unit_status(unit)
    if status != RS_OK or unit.physical_offset < work.skip_below:
        return status
    if rs_batch_is_full(work, unit):
        return RS_LIMIT
    if not rs_tag_matches(work, unit.tags_code):
        work.reason = RS_GET_NO_MATCHED_MESSAGE
        return RS_OK
    if rs_is_filler(unit):
        work.reason = RS_GET_MESSAGE_WAS_REMOVING
        return RS_OK
    if unit.physical_offset < work.min_offset:
        work.reason = RS_GET_MESSAGE_WAS_REMOVING
        work.skip_below = rs_end_of_log_file(work, unit.physical_offset)
        return RS_OK
    if unit.physical_offset < work.base_offset or unit.physical_offset >= work.segment_end:
        return RS_OTHER_SEGMENT
    return rs_select_record(work, unit)


cdef inline void rs_prefetch_record(const rs_selection* work, Py_ssize_t position) noexcept nogil:
    """Prefetch the start of the record of the unit at `position`, if both exist."""
    cdef rs_unit unit
    cdef int64_t at, stop
    if position > work.units_nbytes - RS_CQ_UNIT_NBYTES:
        return
    if not rs_is_unit_there(work.units + position):
        return
    rs_load_unit(work.units + position, &unit)
    if unit.physical_offset < work.base_offset:
        return
    at = unit.physical_offset - work.base_offset
    if at < work.log_stop:
        stop = at + min(<int64_t>unit.size, RS_FETCHED_NBYTES)
        while at < stop:
            RS_PREFETCH_READ(work.log + at)
            at += 64


cdef inline int rs_get_message_all(void* argument) noexcept nogil:
    cdef rs_selection* work = <rs_selection*>argument
    cdef rs_unit unit
    cdef int status, i
    for i in range(<int>min(work.room, RS_SELECT_AHEAD)):
        rs_prefetch_record(work, work.position + i * RS_CQ_UNIT_NBYTES)
    while work.position < work.stop:
        if work.rows == work.room:
            return RS_OK
        rs_prefetch_record(work, work.position + RS_SELECT_AHEAD * RS_CQ_UNIT_NBYTES)
        rs_load_unit(work.units + work.position, &unit)
        status = rs_select_unit(work, &unit)
        if status != RS_OK:
            return status
        work.position += RS_CQ_UNIT_NBYTES
        work.queue_offset += 1
        RS_RELEASE_FENCE()
    return RS_END
