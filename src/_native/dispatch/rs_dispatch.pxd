# Staged dispatch over a batch of records, and its table of queues.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint64_t

from rs_index cimport rs_index

cdef extern from "rs_mutex.h" nogil:
    int64_t rs_load_acquire64(const int64_t *p)

cdef extern from "rs_queue_table.h" nogil:
    ctypedef struct rs_queue:
        const uint8_t *topic
        uint16_t topic_nbytes
        uint8_t *write
        uint8_t *limit
        int64_t next_index
        int64_t max_physical_offset
        uint16_t shifted
        int32_t handle

    ctypedef struct rs_queue_table:
        rs_queue *places
        uint64_t seed
        rs_queue **of_handle
        int32_t handle_count

    uint64_t rs_queue_hash(uint64_t seed, const uint8_t *topic, int32_t n, int32_t queue_id)
    rs_queue *rs_queue_find(const rs_queue_table *table, uint64_t hash, const uint8_t *topic,
                            int32_t n, int32_t queue_id)
    rs_queue *rs_queue_add(rs_queue_table *table, uint64_t hash, const uint8_t *topic, int32_t n,
                           int32_t queue_id)
    void rs_queue_remove(rs_queue_table *table, rs_queue *queue)

cdef extern from "rs_ext_units.h" nogil:
    ctypedef struct rs_ext_queue:
        uint8_t *write
        uint8_t *limit
        int64_t offset
        int64_t file_end
        int64_t trusted_index
        int32_t filters_from
        int32_t filters_to

cdef extern from "rs_bit_maps.h" nogil:
    ctypedef struct rs_bit_maps:
        int32_t count
        int64_t errors

    void rs_bit_maps_free(rs_bit_maps *maps)
    int rs_bit_maps_reserve(rs_bit_maps *maps, int32_t room, int32_t nbytes)
    int rs_bit_maps_add(rs_bit_maps *maps, const uint8_t *program, int64_t program_nbytes,
                        int64_t born_time, const uint8_t *bits)

cdef extern from "rs_dispatch.h" nogil:
    ctypedef struct rs_dispatcher:
        rs_queue_table table
        rs_index index
        rs_ext_queue *ext
        int64_t ext_file_nbytes
        rs_bit_maps bit_maps
        int64_t newest_ext_timestamp
        int32_t multi_dispatch
        int32_t compare
        int64_t mended_units
        int64_t *delay_ms
        int32_t delay_count
        int32_t index_enable
        int32_t index_tags
        int64_t position_offset
        int64_t indexed_offset
        int64_t last_store_timestamp
        int64_t last_record_offset
        int64_t dispatched_count
        int64_t skipped_ghosts
        int64_t skipped_topics
        int64_t repeated_units
        int64_t odd_names
        int32_t odd_count
        int64_t *odd_offsets
        int32_t indexed_keys
        int32_t stalled_queue_id
        int32_t stalled_topic_nbytes
        int64_t stalled_queue_offset
        uint8_t *stalled_topic
        const uint8_t *log
        int64_t position
        int64_t stop
        int64_t base_offset
        int64_t segment_end

    void rs_dispatch_init(rs_dispatcher *dispatcher)
    int rs_dispatch_reserve_ext(rs_dispatcher *dispatcher)
    void rs_dispatch_free(rs_dispatcher *dispatcher)
    int rs_dispatch(rs_dispatcher *dispatcher, int64_t left)
