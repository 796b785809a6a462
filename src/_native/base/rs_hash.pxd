# Java's String.hashCode of UTF-8 bytes.
from libc.stdint cimport int32_t, uint8_t, uint32_t

cdef extern from "rs_hash.h" nogil:
    uint32_t rs_power_of_31(uint32_t n)
    int32_t rs_string_hash(const uint8_t *p, size_t n, uint32_t *utf16_length)
    int32_t rs_hash_extend(int32_t prefix_hash, int32_t suffix_hash, uint32_t suffix_length)
    uint32_t rs_utf8_next(const uint8_t **p, const uint8_t *end, int *malformed)
