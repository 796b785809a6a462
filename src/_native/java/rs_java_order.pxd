# The order of properties that were parsed into a Java HashMap and written from it.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

cdef extern from "rs_java_order.h" nogil:
    ctypedef struct rs_java_pair:
        pass

    int32_t rs_java_room(const uint8_t *p, int32_t n)
    int32_t rs_java_parse(const uint8_t *p, int32_t n, rs_java_pair *pairs, int32_t room)
    void rs_java_order(rs_java_pair *pairs, int32_t count, uint32_t buckets)
    int64_t rs_java_nbytes(const rs_java_pair *pairs, int32_t count, int trailing)
    uint8_t *rs_java_write(uint8_t *to, const rs_java_pair *pairs, int32_t count, int trailing)
