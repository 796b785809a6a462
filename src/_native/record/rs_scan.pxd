# Loops over many records, to be run through rs_guarded.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef extern from "rs_scan.h" nogil:
    ctypedef struct rs_scan:
        const uint8_t *buffer
        int64_t position
        int64_t stop
        int64_t base_offset
        int64_t segment_end
        const int64_t *delay_ms
        uint8_t *rows
        uint32_t *marks
        int64_t capacity
        int64_t count
        int32_t delay_count
        int32_t flags

    size_t rs_crc_mark_count(uint64_t n)
    int rs_check_one(void *argument)
    int rs_scan_records(void *argument)
    int rs_find_record(void *argument)
