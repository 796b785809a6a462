# Text as Java decodes it, and properties as a dict.
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.ref cimport Py_DECREF, PyObject
from cpython.unicode cimport (
    PyUnicode_4BYTE_KIND, PyUnicode_DecodeUTF8, PyUnicode_FromKindAndData,
)
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memchr

from rs_formats cimport RS_NAME_VALUE_SEPARATOR, RS_PROPERTY_SEPARATOR
from rs_hash cimport rs_utf8_next

cdef extern from *:
    """
    #include <string.h>
    #include "rs_bytes.h"

    #define RS_NAME_PLACES 128
    #define RS_MOST_KNOWN_NAME_NBYTES 48

    /* Names as str objects that are made once, since nearly all messages have the same few.
     * Guarded by the GIL; one name for each place, the last that was asked for. */
    static PyObject *rs_known_names[RS_NAME_PLACES];

    /* Set `text` to a new str of ASCII bytes and return 1; return 0 for other bytes, -1 with an
     * exception. */
    static inline int rs_ascii_text(const uint8_t *p, Py_ssize_t n, PyObject **text)
    {
        uint8_t all = 0;
        for (Py_ssize_t i = 0; i < n; i++) {
            all |= p[i];
        }
        if (all & 0x80) {
            return 0;
        }
        *text = PyUnicode_New(n, 127);
        if (*text == NULL) {
            return -1;
        }
        if (n > 0) {
            memcpy(PyUnicode_1BYTE_DATA(*text), p, (size_t)n);
        }
        return 1;
    }

    /* The same for a name. */
    RS_UNUSED static int rs_name_text(const uint8_t *p, Py_ssize_t n, PyObject **text)
    {
        if (n <= 0 || n > RS_MOST_KNOWN_NAME_NBYTES) {
            return rs_ascii_text(p, n, text);
        }
        const size_t place =
            (size_t)(p[0] + 7 * p[n - 1] + 13 * p[n / 2] + 31 * n) % RS_NAME_PLACES;
        PyObject *known = rs_known_names[place];
        if (known != NULL && PyUnicode_GET_LENGTH(known) == n
            && memcmp(PyUnicode_1BYTE_DATA(known), p, (size_t)n) == 0) {
            *text = Py_NewRef(known);
            return 1;
        }
        const int made = rs_ascii_text(p, n, text);
        if (made == 1) {
            rs_known_names[place] = Py_NewRef(*text);
            Py_XDECREF(known);
        }
        return made;
    }
    """
    int rs_ascii_text(const uint8_t* p, Py_ssize_t n, PyObject** text) except -1
    int rs_name_text(const uint8_t* p, Py_ssize_t n, PyObject** text) except -1


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


cdef inline object rs_taken(PyObject* text):
    """Return a new reference as an object."""
    made = <object>text
    Py_DECREF(made)
    return made


cdef inline object rs_decode_text(const uint8_t* p, Py_ssize_t nbytes):
    """Return ``new String(bytes, UTF_8)``."""
    cdef PyObject* text = NULL
    if rs_ascii_text(p, nbytes, &text):
        return rs_taken(text)
    try:
        return PyUnicode_DecodeUTF8(<const char*>p, nbytes, NULL)
    except UnicodeDecodeError:
        return rs_decode_malformed(p, nbytes)


cdef inline object rs_decode_name(const uint8_t* p, Py_ssize_t nbytes):
    """Return the same for the name of a property; the few common ones are made once."""
    cdef PyObject* text = NULL
    return rs_taken(text) if rs_name_text(p, nbytes, &text) else rs_decode_text(p, nbytes)


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
            name = rs_decode_name(p, separator - p)
            properties[name] = rs_decode_text(separator + 1, stop - separator - 1)
        p = stop + 1
    return properties
