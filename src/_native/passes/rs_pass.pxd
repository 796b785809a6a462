# The walk of a pass over a window of the log: arguments and outcome of ``consume``.
from cpython.buffer cimport PyBuffer_Release
from cpython.mem cimport PyMem_Malloc
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memset

from rs_arguments cimport rs_check_range, rs_get_bytes
from rs_copy cimport rs_raise_fault
from rs_guard cimport rs_guarded, rs_guarded_function
from rs_status cimport RS_FAULT, RS_LIMIT

cdef extern from "rs_pass.h" nogil:
    ctypedef struct rs_pass_call:
        const uint8_t *buffer
        int64_t position
        int64_t stop
        int64_t base_offset
        int64_t segment_end
        int64_t limit
        int32_t flags


cdef inline int rs_pass_begin(
    rs_pass_call* call, const Py_buffer* view, int64_t position, int64_t stop,
    int64_t base_offset, int64_t segment_end, int64_t limit, int64_t flags,
) except -1:
    """Check the arguments of ``consume`` and store them for the pass."""
    rs_check_range(view, position, stop, base_offset, segment_end)
    call.buffer = <const uint8_t*>view.buf
    call.position = position
    call.stop = stop
    call.base_offset = base_offset
    call.segment_end = segment_end
    call.limit = limit
    call.flags = <int32_t>(flags & INT32_MAX)
    return 0


cdef inline tuple rs_pass_consume(
    rs_guarded_function run, void* pass_, rs_pass_call* call, object window, int64_t position,
    int64_t stop, int64_t base_offset, int64_t segment_end, int64_t limit, int64_t flags,
):
    """Run a pass whose struct begins with ``call`` over a window; return (status, position)."""
    cdef Py_buffer view
    cdef int status
    memset(&view, 0, sizeof(view))
    rs_get_bytes(window, &view, False)
    try:
        rs_pass_begin(call, &view, position, stop, base_offset, segment_end, limit, flags)
        with nogil:
            status = rs_guarded(run, pass_)
    finally:
        call.buffer = NULL
        PyBuffer_Release(&view)
    if status == RS_FAULT:
        rs_raise_fault()
    if status == RS_LIMIT:
        raise MemoryError
    return status, call.position


cdef inline int64_t* rs_pass_delays(object delay_ms, int32_t* count) except? NULL:
    """Return the delay levels as a C array (PyMem) that the caller frees, never NULL."""
    cdef Py_ssize_t number = len(delay_ms), i
    if number > INT32_MAX:
        raise ValueError(f"delay_ms has {number} levels")
    cdef object highest = 0x7fffffffffffffff
    cdef list values = [rs_pass_bounded("delay", delay, 0, highest) for delay in delay_ms]
    cdef int64_t* levels = <int64_t*>PyMem_Malloc(<size_t>(number + 1) * sizeof(int64_t))
    if levels == NULL:
        raise MemoryError
    for i in range(number):
        levels[i] = values[i]
    count[0] = <int32_t>number
    return levels


cdef inline object rs_pass_bounded(str name, object value, object low, object high):
    """Return a numeric argument, checked."""
    import operator

    number = operator.index(value)
    if not low <= number <= high:
        raise ValueError(f"{name} {number} is outside {low} .. {high}")
    return number
