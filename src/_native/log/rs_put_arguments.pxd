# Checked arguments of a put: numbers, buffers, columns. The messages are those of
# _reference/put_arguments.py.
from cpython.buffer cimport (
    PyBUF_FORMAT,
    PyBUF_ND,
    PyBUF_SIMPLE,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_CheckBuffer,
    PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact
from cpython.bytes cimport PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.ref cimport PyObject
from libc.stddef cimport size_t
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset

from rs_appender cimport rs_put_record
from rs_formats cimport RS_MAX_PROPERTIES_NBYTES
from rs_hosts cimport rs_parse_host
from rs_message_object cimport rs_message_object
from rs_put_properties cimport PyErr_Clear, PyUnicode_CheckExact
from rs_put_properties cimport rs_java_utf8
from rs_put_text cimport rs_topic_is_allowed, rs_utf8

cdef extern from "Python.h":
    bint PyLong_CheckExact(object thing)
    long long PyLong_AsLongLongAndOverflow(object number, int *overflow) except? -1


cdef enum:
    RS_HOST_CACHE_COUNT = 1024  # cached stored forms of hosts


cdef inline PyObject *rs_pointer(object thing) noexcept:
    """Return a borrowed reference; NULL for None."""
    return NULL if thing is None else <PyObject *> thing


cdef inline int64_t rs_to_integer(str name, object value, int64_t low, int64_t high) except? -1:
    """Return ``value`` if it is an int within the bounds; raise for a bool."""
    cdef int overflow = 0
    cdef int64_t number
    if PyLong_CheckExact(value):
        number = PyLong_AsLongLongAndOverflow(value, &overflow)
        if overflow == 0 and low <= number <= high:
            return number
    return rs_to_integer_otherwise(name, value, low, high)


cdef inline int64_t rs_to_integer_otherwise(str name, object value, int64_t low,
                                            int64_t high) except? -1:
    from operator import index
    if isinstance(value, bool):
        raise TypeError(f"{name} must be int, not bool")
    try:
        whole = index(value)
    except TypeError:
        raise TypeError(f"{name} must be int, not {type(value).__name__}") from None
    if not low <= whole <= high:
        raise ValueError(f"{name} {whole} is outside {low} .. {high}")
    return whole


cdef inline object rs_attribute(object thing, str name):
    try:
        return getattr(thing, name)
    except AttributeError:
        raise TypeError(
            f"{type(thing).__name__} has no attribute {name!r}; give a Message, or an object with "
            "its attributes") from None


cdef inline int64_t rs_take_bytes(bytes body, const uint8_t **out) noexcept:
    out[0] = <const uint8_t *> PyBytes_AS_STRING(body)
    return PyBytes_GET_SIZE(body)


cdef inline int rs_pin_body(object body, Py_buffer *view) except -1:
    """Pin a buffer that is not a ``bytes`` object."""
    cdef bint pinned = False
    if not PyObject_CheckBuffer(body):
        raise TypeError(f"body must be bytes-like, not {type(body).__name__}")
    try:
        PyObject_GetBuffer(body, view, PyBUF_SIMPLE)
        pinned = True
    except (BufferError, ValueError):
        pass
    if not pinned:
        memset(view, 0, sizeof(Py_buffer))
        raise ValueError("body must be a contiguous buffer")
    return 0


cdef inline bytes rs_copy_body(object body):
    cdef Py_buffer view
    rs_pin_body(body, &view)
    try:
        return PyBytes_FromStringAndSize(<char *> view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


cdef inline Py_buffer *rs_pin_segment(object buffer) except NULL:
    """Pin a writable, contiguous buffer; ``rs_unpin_segment`` undoes it."""
    cdef Py_buffer *view
    cdef bint pinned = False
    if not PyObject_CheckBuffer(buffer):
        raise TypeError(f"the segment's buffer must be bytes-like, not {type(buffer).__name__}")
    view = <Py_buffer *> PyMem_Malloc(sizeof(Py_buffer))
    if view == NULL:
        raise MemoryError()
    try:
        PyObject_GetBuffer(buffer, view, PyBUF_WRITABLE)
        pinned = True
    except (BufferError, ValueError):
        pass
    finally:
        if not pinned:
            PyMem_Free(view)
    if not pinned:
        raise ValueError("the segment's buffer must be writable and contiguous")
    return view


cdef inline int rs_unpin_segment(void *view) except -1:
    if view != NULL:
        PyBuffer_Release(<Py_buffer *> view)
        PyMem_Free(view)
    return 0


cdef inline int64_t *rs_copy_offsets(object offsets, Py_ssize_t *count) except NULL:
    """Return a private copy of a column's int32 or int64 offsets; the caller frees it."""
    cdef Py_buffer view
    cdef int64_t *copy
    cdef Py_ssize_t i
    cdef int32_t narrow
    cdef bint pinned = False
    if not PyObject_CheckBuffer(offsets):
        raise TypeError(
            f"offsets must be an int32 or int64 buffer, not {type(offsets).__name__}")
    try:
        PyObject_GetBuffer(offsets, &view, PyBUF_ND | PyBUF_FORMAT)
        pinned = True
    except (BufferError, ValueError):
        pass
    if not pinned:
        raise ValueError("offsets must be a contiguous int32 or int64 buffer")
    try:
        if view.ndim != 1 or view.format == NULL or view.itemsize not in (4, 8) or (
                <bytes> view.format not in (b"i", b"l", b"q")):
            raise ValueError("offsets must be a contiguous int32 or int64 buffer")
        count[0] = view.len // view.itemsize
        if count[0] == 0:
            raise ValueError("offsets must have one entry more than there are messages")
        copy = <int64_t *> PyMem_Malloc(<size_t> count[0] * sizeof(int64_t))
        if copy == NULL:
            raise MemoryError()
        if view.itemsize == 8:
            memcpy(copy, view.buf, <size_t> view.len)
        else:
            for i in range(count[0]):
                memcpy(&narrow, <char *> view.buf + 4 * i, 4)
                copy[i] = narrow
        return copy
    finally:
        PyBuffer_Release(&view)


cdef inline int rs_check_column(const int64_t *offsets, Py_ssize_t count,
                                Py_ssize_t nbytes) except -1:
    cdef Py_ssize_t i
    cdef bint good = offsets[0] >= 0 and offsets[count - 1] <= nbytes
    for i in range(count - 1):
        good = good and offsets[i] <= offsets[i + 1]
    if not good:
        raise ValueError(f"offsets must not decrease and must be in 0 .. {nbytes}")
    return 0


cdef inline int rs_take_topic(object topic, const uint8_t **text, int32_t *nbytes) except -1:
    """Point at a topic with valid characters; its length is checked elsewhere."""
    cdef Py_ssize_t size = 0
    cdef const char *utf8
    if not isinstance(topic, str):
        raise TypeError(f"topic must be str, not {type(topic).__name__}")
    utf8 = rs_utf8(topic, &size)
    if utf8 == NULL:
        PyErr_Clear()
    elif size == 0:
        raise ValueError("topic is empty")
    if utf8 == NULL or not rs_topic_is_allowed(<const uint8_t *> utf8, <size_t> size):
        raise ValueError(f"topic {topic!r} holds a character that RocketMQ does not allow")
    if size > INT32_MAX:
        raise ValueError("topic is longer than 2147483647 bytes")
    text[0] = <const uint8_t *> utf8
    nbytes[0] = <int32_t> size
    return 0


cdef inline int32_t rs_take_host(object host, dict known, uint8_t *out) except -1:
    """Copy the stored form of a host; return its length. ``known`` caches parsed hosts."""
    cdef bytes parsed = known.get(host) if PyUnicode_CheckExact(host) else rs_parse_host(host)
    if parsed is None:
        parsed = rs_parse_host(host)
        if len(known) >= RS_HOST_CACHE_COUNT:
            known.clear()
        known[host] = parsed
    memcpy(out, PyBytes_AS_STRING(parsed), <size_t> PyBytes_GET_SIZE(parsed))
    return <int32_t> PyBytes_GET_SIZE(parsed)


cdef inline int rs_take_hosts(rs_put_record *record, object born_host, object store_host,
                              dict known) except -1:
    """Set both hosts; the record's store host is the default for both."""
    if store_host is not None:
        record.fields.store_host_nbytes = rs_take_host(store_host, known, record.store_host)
    record.fields.store_host = record.store_host
    if born_host is None:
        record.fields.born_host = record.store_host
        record.fields.born_host_nbytes = record.fields.store_host_nbytes
    else:
        record.fields.born_host = record.born_host
        record.fields.born_host_nbytes = rs_take_host(born_host, known, record.born_host)
    return 0


cdef inline int64_t rs_take_body(rs_put_record *record, object body, Py_buffer *view) except -1:
    """Point the record at the body; return its length. ``view`` may be NULL for ``bytes``."""
    if PyBytes_CheckExact(body):
        return rs_take_bytes(body, &record.fields.body)
    rs_pin_body(body, view)
    # The buffer's owner may write to it meanwhile: the stored bytes count.
    record.crc_from_log = True
    record.fields.body = <const uint8_t *> view.buf
    if view.len == 0:
        record.fields.body = <const uint8_t *> record
    return view.len


cdef inline bint rs_take_numbers(rs_put_record *record, const rs_message_object *m) noexcept:
    """Take a ``Message``'s numbers; return False if one is out of range."""
    if not (0 <= m.queue_id <= INT32_MAX and INT32_MIN <= m.flag <= INT32_MAX
            and INT32_MIN <= m.sys_flag <= INT32_MAX
            and INT32_MIN <= m.reconsume_times <= INT32_MAX):
        return False
    record.fields.queue_id = <int32_t> m.queue_id
    record.fields.flag = <int32_t> m.flag
    record.fields.sys_flag = <int32_t> m.sys_flag
    record.fields.reconsume_times = <int32_t> m.reconsume_times
    record.fields.prepared_transaction_offset = m.prepared_transaction_offset
    record.fields.born_timestamp = m.born_timestamp
    record.born_at_store = not m.has_born_timestamp
    return True


cdef inline int rs_check_numbers(rs_put_record *record, object queue_id, object flag,
                                 object sys_flag, object born_timestamp, object reconsume_times,
                                 object prepared_transaction_offset) except -1:
    """Set the numbers given to a put."""
    record.fields.queue_id = <int32_t> rs_to_integer("queue_id", queue_id, 0, INT32_MAX)
    record.fields.flag = <int32_t> rs_to_integer("flag", flag, INT32_MIN, INT32_MAX)
    record.fields.sys_flag = <int32_t> rs_to_integer("sys_flag", sys_flag, INT32_MIN, INT32_MAX)
    if born_timestamp is None:
        record.born_at_store = True
    else:
        record.fields.born_timestamp = rs_to_integer(
            "born_timestamp", born_timestamp, INT64_MIN, INT64_MAX)
    record.fields.reconsume_times = <int32_t> rs_to_integer(
        "reconsume_times", reconsume_times, INT32_MIN, INT32_MAX)
    record.fields.prepared_transaction_offset = rs_to_integer(
        "prepared_transaction_offset", prepared_transaction_offset, INT64_MIN, INT64_MAX)
    return 0


# A key of the topic-queue table.
ctypedef struct rs_queue_key:
    const uint8_t *topic
    int32_t nbytes
    int32_t queue_id


cdef inline bytes rs_take_queue_key(rs_queue_key *key, object topic, object queue_id):
    """Point at a key; return the object that holds its topic."""
    cdef bytes encoded = rs_queue_topic(topic)
    key.nbytes = <int32_t> rs_take_bytes(encoded, &key.topic)
    key.queue_id = <int32_t> rs_to_integer("queue_id", queue_id, 0, INT32_MAX)
    return encoded


cdef inline bytes rs_queue_topic(object topic):
    """Return a topic of the topic-queue table; a recovered topic may be anything in a record."""
    cdef bytes encoded
    if not isinstance(topic, str):
        raise TypeError(f"topic must be str, not {type(topic).__name__}")
    encoded = rs_java_utf8(topic)
    if len(encoded) > RS_MAX_PROPERTIES_NBYTES:
        raise ValueError(f"topic of {len(encoded)} bytes is longer than any record can hold")
    return encoded
