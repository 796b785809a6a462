# Text as Java decodes it, and properties as a dict.
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.unicode cimport (
    PyUnicode_4BYTE_KIND, PyUnicode_DecodeUTF8, PyUnicode_FromKindAndData,
)
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memchr

from rs_formats cimport RS_NAME_VALUE_SEPARATOR, RS_PROPERTY_SEPARATOR
from rs_hash cimport rs_utf8_next


cdef inline object rs_decode_malformed(const uint8_t* p, Py_ssize_t nbytes):
    """Decode malformed text: groups become U+FFFD; an encoded surrogate is one group."""
    cdef const uint8_t* end = p + nbytes
    cdef Py_ssize_t count = 0
    cdef int malformed = 0
    cdef uint32_t* points = <uint32_t*>PyMem_Malloc(<size_t>nbytes * sizeof(uint32_t))
    if points == NULL:
        raise MemoryError
    try:
        while p < end:
            points[count] = rs_utf8_next(&p, end, &malformed)
            count += 1
        return PyUnicode_FromKindAndData(PyUnicode_4BYTE_KIND, points, count)
    finally:
        PyMem_Free(points)


cdef inline object rs_decode_text(const uint8_t* p, Py_ssize_t nbytes):
    """Return ``new String(bytes, UTF_8)``."""
    try:
        return PyUnicode_DecodeUTF8(<const char*>p, nbytes, NULL)
    except UnicodeDecodeError:
        return rs_decode_malformed(p, nbytes)


cdef inline dict rs_decode_properties(const uint8_t* p, Py_ssize_t nbytes):
    """Return pairs with a name and a value; the first separator splits, a name's last pair wins."""
    cdef dict properties = {}
    cdef const uint8_t* end = p + nbytes
    cdef const uint8_t* stop
    cdef const uint8_t* separator
    while p < end:
        stop = <const uint8_t*>memchr(p, RS_PROPERTY_SEPARATOR, <size_t>(end - p))
        if stop == NULL:
            stop = end
        separator = <const uint8_t*>memchr(p, RS_NAME_VALUE_SEPARATOR, <size_t>(stop - p))
        if separator != NULL and separator > p and stop - separator > 1:
            name = rs_decode_text(p, separator - p)
            properties[name] = rs_decode_text(separator + 1, stop - separator - 1)
        p = stop + 1
    return properties
