# Reads a caller's bytes inside rs_guarded: copies, CRC, hash. A fault raises OSError.
from cpython.buffer cimport PyBuffer_Release
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcpy

from rs_arguments cimport rs_get_bytes
from rs_crc cimport rs_crc32
from rs_guard cimport rs_guarded, rs_guarded_function
from rs_hash cimport rs_string_hash
from rs_status cimport RS_FAULT, RS_OK

cdef struct rs_bytes_call:
    void* to
    const uint8_t* p
    size_t nbytes
    uint32_t value


# Above this many bytes releasing the GIL is worth its cost.
cdef enum:
    RS_GIL_FREE_NBYTES = 65536


cdef inline int rs_run_copy(void* argument) noexcept nogil:
    cdef rs_bytes_call* call = <rs_bytes_call*>argument
    memcpy(call.to, call.p, call.nbytes)
    return RS_OK


cdef inline int rs_run_crc(void* argument) noexcept nogil:
    cdef rs_bytes_call* call = <rs_bytes_call*>argument
    call.value = rs_crc32(call.value, call.p, call.nbytes)
    return RS_OK


cdef inline int rs_run_hash(void* argument) noexcept nogil:
    cdef rs_bytes_call* call = <rs_bytes_call*>argument
    cdef uint32_t length = 0
    call.value = <uint32_t>rs_string_hash(call.p, call.nbytes, &length)
    return RS_OK


cdef inline int rs_raise_fault() except -1:
    import errno

    raise OSError(errno.EFAULT, "the mapped file was shortened")


cdef inline int rs_run_bytes(rs_guarded_function function, rs_bytes_call* call) except -1:
    cdef int status
    if call.nbytes > RS_GIL_FREE_NBYTES:
        with nogil:
            status = rs_guarded(function, call)
    else:
        status = rs_guarded(function, call)
    if status == RS_FAULT:
        rs_raise_fault()
    return 0


cdef inline int rs_copy_out(void* to, const uint8_t* p, size_t nbytes) except -1:
    cdef rs_bytes_call call
    call.to = to
    call.p = p
    call.nbytes = nbytes
    return rs_run_bytes(rs_run_copy, &call)


cdef inline bytes rs_copied(const uint8_t* p, Py_ssize_t nbytes):
    """Return the bytes as an object."""
    cdef bytes result = PyBytes_FromStringAndSize(NULL, nbytes)
    rs_copy_out(PyBytes_AS_STRING(result), p, <size_t>nbytes)
    return result


cdef inline bytes rs_copied_buffer(object source):
    """Return all bytes of a buffer as an object; ``bytes`` are returned as they are."""
    cdef Py_buffer view
    if type(source) is bytes:
        return source
    rs_get_bytes(source, &view, False)
    try:
        return rs_copied(<const uint8_t*>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


cdef inline uint32_t rs_run_over(
    object data, rs_guarded_function function, uint32_t value
) except? 0:
    """Run over all bytes of a buffer and return the resulting value."""
    cdef Py_buffer view
    cdef rs_bytes_call call
    rs_get_bytes(data, &view, False)
    try:
        call.p = <const uint8_t*>view.buf
        call.nbytes = <size_t>view.len
        call.value = value
        rs_run_bytes(function, &call)
        return call.value
    finally:
        PyBuffer_Release(&view)
