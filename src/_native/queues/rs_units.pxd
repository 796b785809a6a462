# Units of consume queues, and what the kernels of every queue type share.
from libc.stdint cimport int32_t, int64_t, uint8_t

from rs_copy cimport rs_raise_fault
from rs_guard cimport rs_guarded, rs_guarded_function
from rs_status cimport RS_FAULT

cdef extern from "rs_units.h" nogil:
    ctypedef struct rs_unit:
        int64_t physical_offset
        int64_t tags_code
        int32_t size

    void rs_store_unit(uint8_t* p, int64_t physical_offset, int32_t size, int64_t tags_code)
    bint rs_is_unit_there(const uint8_t* p)
    void rs_load_unit(const uint8_t* p, rs_unit* unit)
    bint rs_is_filler(const rs_unit* unit)
    bint rs_is_unwritten(const rs_unit* unit)
    bint rs_is_ext_address(int64_t tags_code)
    void rs_store_selected(uint8_t* p, int64_t position, int64_t queue_offset, int64_t tags_code,
                           int32_t total_size)


cdef inline int64_t rs_whole_units(
    const Py_buffer* view, int64_t unit_nbytes, int64_t position, int64_t stop
) except -1:
    """Check a range of the file; return ``stop`` rounded down to whole units."""
    if not 0 <= position <= stop <= view.len or position % unit_nbytes:
        raise ValueError(
            f"units from position {position} to {stop}: not within a file of {view.len} bytes, "
            f"or the position is not a multiple of {unit_nbytes}"
        )
    return position + (stop - position) // unit_nbytes * unit_nbytes


cdef inline int rs_run(rs_guarded_function function, void* argument) except -1:
    """Run a kernel that returns no status."""
    cdef int status
    with nogil:
        status = rs_guarded(function, argument)
    if status == RS_FAULT:
        rs_raise_fault()
    return 0
