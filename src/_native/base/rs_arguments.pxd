# Array arguments of kernels: the checks of _reference/arguments.py, with its messages.
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyObject_GetBuffer
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

cdef inline int rs_get_bytes(object source, Py_buffer* view, bint writes) except -1:
    PyObject_GetBuffer(source, view, PyBUF_WRITABLE if writes else PyBUF_SIMPLE)
    return 0

cdef inline int rs_get_integers(
    object source, Py_buffer* view, Py_ssize_t nbytes, str name, bint writes
) except -1:
    """Take a buffer of native integers of `nbytes`, or of their bytes."""
    rs_get_bytes(source, view, writes)
    if view.itemsize not in (1, nbytes) or view.len % nbytes:
        raise ValueError(f"{name} must hold integers of {nbytes} bytes")
    return 0

cdef inline int rs_check_range(
    const Py_buffer* view, int64_t position, int64_t stop, int64_t base_offset, int64_t segment_end
) except -1:
    """Check a range of a record buffer and its place in the log."""
    if not 0 <= position <= stop <= view.len:
        raise ValueError(
            f"position {position} and stop {stop} do not lie in order within {view.len} bytes"
        )
    if base_offset < 0 or segment_end < 0 or base_offset > INT64_MAX - view.len:
        raise ValueError(f"base_offset {base_offset} or segment_end {segment_end} is out of range")
    return 0

# Arrays may be at any address, such as a slice of a bytearray.
cdef inline int32_t rs_get_i32(const uint8_t* array, Py_ssize_t number) noexcept nogil:
    cdef int32_t value
    memcpy(&value, array + 4 * number, 4)
    return value

cdef inline int64_t rs_get_i64(const uint8_t* array, Py_ssize_t number) noexcept nogil:
    cdef int64_t value
    memcpy(&value, array + 8 * number, 8)
    return value

cdef inline void rs_set_i32(uint8_t* array, Py_ssize_t number, int32_t value) noexcept nogil:
    memcpy(array + 4 * number, &value, 4)

cdef inline void rs_set_i64(uint8_t* array, Py_ssize_t number, int64_t value) noexcept nogil:
    memcpy(array + 8 * number, &value, 8)
