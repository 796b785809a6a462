# Writes one commit-log record in place.
from libc.stdint cimport int32_t, int64_t, uint8_t

cdef extern from "rs_encode.h" nogil:
    ctypedef struct rs_record_fields:
        const uint8_t *topic
        const uint8_t *body
        const uint8_t *properties
        const uint8_t *born_host
        const uint8_t *store_host
        int64_t queue_offset
        int64_t physical_offset
        int64_t born_timestamp
        int64_t store_timestamp
        int64_t prepared_transaction_offset
        int32_t topic_nbytes
        int32_t body_nbytes
        int32_t properties_nbytes
        int32_t born_host_nbytes
        int32_t store_host_nbytes
        int32_t queue_id
        int32_t flag
        int32_t sys_flag
        int32_t reconsume_times
        int32_t body_crc
        int32_t version
        int32_t property_crc
        int32_t separator

    int32_t rs_needs_separator(const uint8_t *properties, int32_t nbytes)
    int64_t rs_stored_properties_nbytes(const rs_record_fields *f)
    int64_t rs_record_nbytes(const rs_record_fields *f)
    int32_t rs_host_flags(const rs_record_fields *f)
    uint8_t *rs_encode_start(uint8_t *record, const rs_record_fields *f)
    void rs_encode_finish(uint8_t *record, uint8_t *end, int32_t total_size,
                          const rs_record_fields *f)
    void rs_encode_record(uint8_t *record, int32_t total_size, const rs_record_fields *f)
    void rs_encode_blank(uint8_t *p, int32_t left)
