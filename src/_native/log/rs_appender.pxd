# The appender's state, its append loop, its topic-queue table, its mutex.
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from rs_encode cimport rs_record_fields
from rs_times cimport rs_timed

cdef extern from "rs_appender.h" nogil:
    enum:
        RS_RUN_DONE
        RS_RUN_ROLL
        RS_RUN_EXTEND
        RS_RUN_STOPPED
        RS_RUN_REFUSED
        RS_RUN_NO_MEMORY
        RS_STOP_CLOSED
        RS_STOP_FAILED

    ctypedef struct rs_mutex:
        pass
    int rs_mutex_init(rs_mutex *m)
    void rs_mutex_destroy(rs_mutex *m)
    bint rs_mutex_try(rs_mutex *m)
    void rs_mutex_unlock(rs_mutex *m)
    int64_t rs_load_acquire64(const int64_t *p)
    int32_t rs_load_acquire32(const int32_t *p)

    ctypedef struct rs_topic_entry:
        pass
    ctypedef struct rs_topic_table:
        pass
    uint64_t rs_topic_hash(const rs_topic_table *table, const uint8_t *topic, int32_t n)
    int rs_topic_table_init(rs_topic_table *table, uint64_t seed)
    void rs_topic_table_free(rs_topic_table *table)
    uint64_t rs_topic_queue_hash(uint64_t topic_hash, int32_t queue_id)

    ctypedef struct rs_light_queue:
        const uint8_t *topic
        uint64_t hash
        int32_t topic_nbytes
        int32_t queue_id
        int32_t earlier

    ctypedef struct rs_refusal:
        int32_t status
        int32_t append_status

    enum:
        RS_LATE_VALUE_NBYTES
    ctypedef struct rs_offset_properties:
        const uint8_t *fixed
        uint8_t *out
        rs_light_queue *lights
        int64_t max_record_nbytes
        int64_t max_light_count
        int32_t fixed_nbytes
        int32_t light_count
        int32_t lights_at
        int32_t base_at
        int32_t body_first
        int32_t takes
        int32_t absolute
        int32_t quota
        rs_refusal properties
        rs_refusal size

    ctypedef struct rs_put_record:
        rs_record_fields fields
        int64_t nbytes
        uint64_t topic_hash
        rs_offset_properties *late
        int32_t width
        int32_t status
        int32_t append_status
        int32_t waits
        int32_t born_at_store
        int32_t crc_from_log
        int32_t crc_known
        uint8_t born_host[20]
        uint8_t store_host[20]

    ctypedef struct rs_appender:
        rs_mutex mutex
        uint8_t *buffer
        int64_t segment_nbytes
        int64_t frontier
        int64_t populated
        int64_t generation
        int32_t stop
        int32_t refusal
        rs_topic_table queues
        rs_topic_entry *last_entry
        void *view
        int64_t base_offset
        int64_t position
        int64_t write_offset
        int64_t last_store_timestamp
        int64_t put_times
        int64_t put_nbytes

    ctypedef struct rs_append_call:
        rs_appender *appender
        rs_put_record *records
        int64_t count
        int64_t done
        int64_t needed
        int64_t generation
        int64_t refused
        int64_t now
        int32_t has_now
        int32_t atomic
        rs_timed timed

    void rs_take_body_crc(rs_put_record *record)
    bint rs_is_populated(const rs_append_call *call)
    int rs_append_run(rs_append_call *call)
    int rs_append_blocking(rs_append_call *call)
    void *rs_appender_replace(rs_appender *a, void *view, uint8_t *buffer, int64_t base_offset,
                              int64_t position, int64_t frontier, int32_t stop, bint locks)
    int rs_appender_has_room(rs_appender *a, int64_t nbytes, int waits)
    void rs_appender_raise(rs_appender *a, int64_t *limit, int64_t position, int64_t base_offset)
    int64_t rs_appender_next_offset(rs_appender *a, const uint8_t *topic, int32_t n,
                                    int32_t queue_id)
    int rs_appender_set_next_offset(rs_appender *a, const uint8_t *topic, int32_t n,
                                    int32_t queue_id, int64_t offset)
    void rs_appender_remove_queue(rs_appender *a, const uint8_t *topic, int32_t n,
                                  int32_t queue_id)
    void rs_appender_refuse(rs_appender *a, int32_t status)
    void rs_appender_stop(rs_appender *a, int32_t stop)
    int64_t rs_rest_count(const rs_append_call *call)
    void rs_refuse_rest(rs_append_call *call, int32_t status, int32_t append_status)
