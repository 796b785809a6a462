# Properties of a record: NUL runs, the values the store needs, the tags code.
from libc.stdint cimport int32_t, int64_t, uint8_t

from rs_formats cimport rs_parsed_record

cdef extern from "rs_properties.h" nogil:
    enum:
        RS_BLOCK_NBYTES

    ctypedef struct rs_property_values:
        int32_t tags_at
        int32_t tags_nbytes
        int32_t keys_at
        int32_t keys_nbytes
        int32_t unique_key_at
        int32_t unique_key_nbytes
        int32_t delay_at
        int32_t delay_nbytes

    int32_t rs_parse_int(const uint8_t *p, int32_t n)
    void rs_find_properties(const uint8_t *record, int32_t properties_at,
                            int32_t properties_nbytes, rs_property_values *values)
    int64_t rs_deliver_timestamp(int64_t store_timestamp, int32_t level,
                                 const int64_t *delay_ms, int32_t delay_count)
    void rs_parse_properties(const uint8_t *record, rs_parsed_record *out,
                             const int64_t *delay_ms, int32_t delay_count)
