# The log offset in an offsetMsgId.
from libc.stdint cimport int64_t, uint8_t, uint64_t

from rs_formats cimport RS_HOST_V4_NBYTES, RS_HOST_V6_NBYTES
from rs_key_query cimport rs_take_ascii

cdef enum:
    OFFSET_DIGITS = 16


cdef inline int rs_upper_digit(uint8_t byte) noexcept nogil:
    """Return the value of an upper-case hexadecimal digit, -1 for any other byte."""
    if c'0' <= byte <= c'9':
        return <int>byte - c'0'
    return <int>byte - c'A' + <int>10 if c'A' <= byte <= c'F' else -1


cdef inline bint rs_offset_of_id(object msg_id, int64_t* offset) noexcept:
    """Set the offset; return False if the id is not plain: of a wrong length, in lower case ..."""
    cdef const uint8_t* p
    cdef size_t n, i
    cdef uint64_t value = 0
    cdef int digit
    if not rs_take_ascii(msg_id, &p, &n):
        return False
    if n != 2 * RS_HOST_V4_NBYTES + OFFSET_DIGITS and n != 2 * RS_HOST_V6_NBYTES + OFFSET_DIGITS:
        return False
    for i in range(n - OFFSET_DIGITS, n):
        digit = rs_upper_digit(p[i])
        if digit < 0:
            return False
        value = value << 4 | <uint64_t>digit
    offset[0] = <int64_t>value
    return True
