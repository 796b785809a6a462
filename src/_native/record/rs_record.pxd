# The strict check of one commit-log record.
from libc.stdint cimport int32_t, int64_t, uint8_t

from rs_formats cimport rs_parsed_record

cdef extern from "rs_record.h" nogil:
    enum:
        RS_CRC_MASK
    int32_t rs_header_nbytes(int32_t sys_flag)
    int32_t rs_store_timestamp_at(int32_t sys_flag)
    bint rs_is_transient(int32_t sys_flag)
    int rs_check_size(const uint8_t *p, int64_t available, int64_t left, rs_parsed_record *out)
    int rs_check_lengths(const uint8_t *p, rs_parsed_record *out)
    void rs_load_numbers(const uint8_t *p, rs_parsed_record *out)
    int rs_check(const uint8_t *p, int64_t available, int64_t physical_offset,
                 int64_t segment_end, int flags, rs_parsed_record *out)
