# The parts of an offsetMsgId: a store's host and a log offset.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcmp

from rs_formats cimport (
    RS_HOST_V4_NBYTES, RS_HOST_V6_NBYTES, RS_RECORD_STORED_NBYTES,
    RS_RECORD_STORED_STORE_TIMESTAMP_AT, RS_SYS_FLAG_STORE_HOST_V6,
)
from rs_key_query cimport rs_take_ascii
from rs_record cimport rs_store_timestamp_at

cdef enum:
    OFFSET_DIGITS = 16


cdef inline int rs_upper_digit(uint8_t byte) noexcept nogil:
    """Return the value of an upper-case hexadecimal digit, -1 for any other byte."""
    if c'0' <= byte <= c'9':
        return <int>byte - c'0'
    return <int>byte - c'A' + <int>10 if c'A' <= byte <= c'F' else -1


cdef struct rs_wanted_id:
    int64_t offset
    int32_t host_nbytes
    uint8_t[RS_HOST_V6_NBYTES] host


cdef inline bint rs_want_id(object msg_id, rs_wanted_id* wanted) noexcept:
    """Take an id apart; return False if it is not plain: of a wrong length, in lower case ..."""
    cdef const uint8_t* p
    cdef size_t n, i
    cdef uint64_t value = 0
    cdef int high, low
    if not rs_take_ascii(msg_id, &p, &n):
        return False
    if n != 2 * RS_HOST_V4_NBYTES + OFFSET_DIGITS and n != 2 * RS_HOST_V6_NBYTES + OFFSET_DIGITS:
        return False
    wanted.host_nbytes = <int32_t>(n - OFFSET_DIGITS) // 2
    for i in range(n // 2):
        high = rs_upper_digit(p[2 * i])
        low = rs_upper_digit(p[2 * i + 1])
        if high < 0 or low < 0:
            return False
        if i < <size_t>wanted.host_nbytes:
            wanted.host[i] = <uint8_t>(high << 4 | low)
        else:
            value = value << 8 | <uint64_t>(high << 4 | low)
    wanted.offset = <int64_t>value
    return True


cdef inline bint rs_is_stored_at(
    const uint8_t* record, int32_t sys_flag, const rs_wanted_id* wanted
) noexcept nogil:
    """Return whether a record that passed rs_check has the id's store host."""
    cdef int32_t nbytes = (
        RS_HOST_V6_NBYTES if sys_flag & RS_SYS_FLAG_STORE_HOST_V6 else RS_HOST_V4_NBYTES)
    cdef const uint8_t* host = (
        record + rs_store_timestamp_at(sys_flag) - RS_RECORD_STORED_STORE_TIMESTAMP_AT
        + RS_RECORD_STORED_NBYTES)
    return nbytes == wanted.host_nbytes and memcmp(host, wanted.host, <size_t>nbytes) == 0
