# A record's queues besides its own.
from libc.stdint cimport int32_t, int64_t, uint8_t

from rs_formats cimport rs_parsed_record

cdef extern from "rs_multi_dispatch.h" nogil:
    bint rs_multi_names(const uint8_t *record, const rs_parsed_record *row, const uint8_t *topic,
                        int32_t n, int64_t queue_id)
