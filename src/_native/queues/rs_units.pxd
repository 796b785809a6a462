from libc.stdint cimport int32_t, int64_t, uint8_t

cdef extern from "rs_units.h" nogil:
    ctypedef struct rs_unit:
        int64_t physical_offset
        int64_t tags_code
        int32_t size

    void rs_store_unit(uint8_t* p, int64_t physical_offset, int32_t size, int64_t tags_code)
    void rs_load_unit(const uint8_t* p, rs_unit* unit)
    bint rs_is_filler(const rs_unit* unit)
    bint rs_is_unwritten(const rs_unit* unit)
    bint rs_is_ext_address(int64_t tags_code)
    void rs_store_selected(uint8_t* p, int64_t position, int64_t queue_offset, int64_t tags_code,
                           int32_t total_size)
