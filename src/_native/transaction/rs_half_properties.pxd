# Properties of half messages: parsed, changed, and written in the order of a broker's hash map.
from libc.stdint cimport int32_t, int64_t, uint8_t

cdef extern from "rs_half_properties.h" nogil:
    enum:
        RS_MOST_PAIRS
    ctypedef struct rs_pair:
        const uint8_t *name
        const uint8_t *value
        int32_t name_nbytes
        int32_t value_nbytes
    ctypedef struct rs_pairs:
        rs_pair items[1]
        int32_t count
    rs_pair *rs_pairs_find(rs_pairs *pairs, const uint8_t *name, int32_t n)
    int rs_pairs_set(rs_pairs *pairs, const uint8_t *name, int32_t name_nbytes,
                     const uint8_t *value, int32_t value_nbytes)
    void rs_pairs_remove(rs_pairs *pairs, const uint8_t *name, int32_t n)
    bint rs_is_plain_text(const uint8_t *text, int32_t n)
    int rs_pairs_parse(rs_pairs *pairs, const uint8_t *text, int32_t n, bint unique)
    void rs_pairs_order(rs_pairs *pairs, int32_t buckets, uint8_t *order)
    int64_t rs_pairs_nbytes(const rs_pairs *pairs)
    int64_t rs_pairs_write(const rs_pairs *pairs, const uint8_t *order, bint trailing,
                           uint8_t *out)
