# Staged records: checked, and prepared for the append. They carry their position in the stage as
# physical offset, and queue offset 0. Their store time is 1 if the born time is to be the store
# time, else 0.
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stddef cimport size_t
from libc.stdint cimport INT64_MAX, int64_t, uint8_t
from libc.string cimport memcpy, memset

from rs_appender cimport rs_appender, rs_put_record, rs_topic_hash
from rs_bytes cimport rs_load_be32
from rs_formats cimport (
    RS_HOST_V4_NBYTES,
    RS_HOST_V6_NBYTES,
    RS_MAGIC_V2,
    RS_RECORD_HEAD_NBYTES,
    RS_RECORD_STORED_NBYTES,
    RS_SYS_FLAG_BORN_HOST_V6,
    RS_SYS_FLAG_STORE_HOST_V6,
    rs_parsed_record,
)
from rs_put_arguments cimport rs_to_integer
from rs_put_rules cimport rs_put_rules, rs_set_lengths
from rs_put_text cimport rs_topic_is_allowed
from rs_record cimport rs_check, rs_store_timestamp_at
from rs_status cimport RS_CHECK_BODY_CRC, RS_OK, RS_UNSAFE_TOPIC

ctypedef struct rs_staged:
    Py_buffer view
    rs_put_record *records
    Py_ssize_t capacity
    Py_ssize_t count  # records of this chunk
    int64_t position
    int64_t base_offset  # position in the stage of the first byte


cdef inline int rs_raise_staged(int64_t offset, int status) except -1:
    from rocketstore.errors import DecodeError
    from rocketstore.status import RecordStatus
    # Hosts are checked after everything that the log's own check covers.
    reason = "a host's port" if status == RS_OK else RecordStatus(status).name
    raise DecodeError(f"the stage holds no record at position {offset}: {reason}")


cdef inline bint rs_has_ports(const uint8_t *p, const rs_parsed_record *row) noexcept:
    """Return whether the ports of both hosts are valid."""
    cdef int64_t stored_at = rs_store_timestamp_at(row.sys_flag)
    cdef int64_t hosts_end = stored_at + RS_RECORD_STORED_NBYTES + RS_HOST_V4_NBYTES
    if row.sys_flag & RS_SYS_FLAG_STORE_HOST_V6:
        hosts_end += RS_HOST_V6_NBYTES - RS_HOST_V4_NBYTES
    return (0 <= rs_load_be32(p + stored_at - 4) <= 65535
            and 0 <= rs_load_be32(p + hosts_end - 4) <= 65535)


cdef inline int rs_check_staged(const uint8_t *data, int64_t position, int64_t stop,
                                int64_t base_offset, int flags,
                                rs_parsed_record *row) except -1:
    """Parse the record at ``position``."""
    cdef int status = rs_check(data + position, stop - position, base_offset + position,
                               base_offset + stop, flags, row)
    if status != RS_OK:
        rs_raise_staged(base_offset + position, status)
    return 0


cdef inline int rs_staged_open(rs_staged *staged, object data, object base_offset,
                               Py_ssize_t capacity) except -1:
    memset(staged, 0, sizeof(rs_staged))
    PyObject_GetBuffer(data, &staged.view, PyBUF_SIMPLE)
    try:
        staged.base_offset = rs_to_integer(
            "base_offset", base_offset, 0, INT64_MAX - staged.view.len)
        staged.capacity = capacity
        staged.records = <rs_put_record *> PyMem_Malloc(
            <size_t> capacity * sizeof(rs_put_record))
        if staged.records == NULL:
            raise MemoryError()
    except BaseException:
        PyBuffer_Release(&staged.view)
        raise
    return 0


cdef inline void rs_staged_close(rs_staged *staged):
    PyMem_Free(staged.records)
    PyBuffer_Release(&staged.view)


cdef inline bint rs_staged_take(rs_staged *staged, const rs_put_rules *rules,
                                const rs_appender *state, const rs_put_record *template,
                                int64_t most_nbytes) except -1:
    """Make the records of the next chunk; return False if there is none. Records are checked before
    any of their chunk is appended."""
    cdef rs_parsed_record row
    cdef int64_t nbytes = 0
    cdef const uint8_t *data = <const uint8_t *> staged.view.buf
    staged.count = 0
    memset(&row, 0, sizeof(row))
    while (staged.position < staged.view.len and staged.count < staged.capacity
           and nbytes < most_nbytes):
        rs_check_staged(data, staged.position, staged.view.len, staged.base_offset,
                        RS_CHECK_BODY_CRC, &row)
        if not rs_topic_is_allowed(
                data + staged.position + row.topic_at, <size_t> row.topic_nbytes):
            rs_raise_staged(staged.base_offset + staged.position, RS_UNSAFE_TOPIC)
        if not rs_has_ports(data + staged.position, &row):
            rs_raise_staged(staged.base_offset + staged.position, RS_OK)
        rs_fill_staged(staged.records + staged.count, data + staged.position, &row, rules, state,
                       template)
        staged.position += row.total_size
        nbytes += row.total_size
        staged.count += 1
    return staged.count > 0


cdef inline void rs_fill_staged(rs_put_record *record, const uint8_t *p,
                                const rs_parsed_record *row, const rs_put_rules *rules,
                                const rs_appender *state, const rs_put_record *template) noexcept:
    cdef size_t born_nbytes = RS_HOST_V4_NBYTES
    cdef size_t store_nbytes = RS_HOST_V4_NBYTES
    if row.sys_flag & RS_SYS_FLAG_BORN_HOST_V6:
        born_nbytes = RS_HOST_V6_NBYTES
    if row.sys_flag & RS_SYS_FLAG_STORE_HOST_V6:
        store_nbytes = RS_HOST_V6_NBYTES
    record[0] = template[0]
    record.crc_known = True
    record.born_at_store = row.store_timestamp != 0
    record.fields.body_crc = row.body_crc if row.body_nbytes > 0 else 0  # not compared then
    record.fields.queue_id = row.queue_id
    record.fields.flag = row.flag
    record.fields.sys_flag = row.sys_flag
    record.fields.born_timestamp = row.born_timestamp
    record.fields.reconsume_times = row.reconsume_times
    record.fields.prepared_transaction_offset = row.prepared_transaction_offset
    record.fields.version = 2 if row.magic == RS_MAGIC_V2 else 1
    record.fields.topic = p + row.topic_at
    record.fields.topic_nbytes = row.topic_nbytes
    record.topic_hash = rs_topic_hash(&state.queues, record.fields.topic, row.topic_nbytes)
    memcpy(record.born_host, p + RS_RECORD_HEAD_NBYTES, born_nbytes)
    memcpy(record.store_host, p + RS_RECORD_HEAD_NBYTES + born_nbytes + RS_RECORD_STORED_NBYTES,
           store_nbytes)
    record.fields.born_host = record.born_host
    record.fields.born_host_nbytes = <int> born_nbytes
    record.fields.store_host = record.store_host
    record.fields.store_host_nbytes = <int> store_nbytes
    record.fields.body = p + row.body_at
    rs_set_lengths(rules, record, p + row.properties_at, row.properties_nbytes, row.body_nbytes)
