from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef extern from "rs_index.h" nogil:
    ctypedef struct rs_index:
        uint8_t* base
        uint8_t* slots_at
        uint8_t* entries_at
        uint64_t reciprocal
        uint32_t slots
        int32_t entries
        int32_t count
        int32_t hash_slot_count
        int32_t stored_count
        int64_t begin_timestamp
        int64_t end_timestamp
        int64_t begin_physical_offset
        int64_t end_physical_offset

    int64_t rs_index_file_nbytes(int64_t slots, int64_t entries)
    void rs_index_load_header(rs_index* index)
    bint rs_index_place(rs_index* index, uint8_t* base, int64_t nbytes, int64_t slots,
                        int64_t entries)
    bint rs_index_open(rs_index* index, uint8_t* base, int64_t nbytes, int64_t slots,
                       int64_t entries)
    bint rs_index_is_full(const rs_index* index)
    int32_t rs_index_key_hash(int32_t hash_code)
    uint32_t rs_index_slot(const rs_index* index, int32_t key_hash)
    uint8_t* rs_index_slot_at(const rs_index* index, uint32_t slot)
    uint8_t* rs_index_entry_at(const rs_index* index, int32_t number)
    int32_t rs_index_time_diff(int64_t begin_timestamp, int64_t store_timestamp)
    void rs_index_put_slot(rs_index* index, uint32_t slot, int32_t key_hash,
                           int64_t physical_offset, int64_t store_timestamp)
    void rs_index_put(rs_index* index, int32_t key_hash, int64_t physical_offset,
                      int64_t store_timestamp)
    void rs_index_store_header(rs_index* index)
