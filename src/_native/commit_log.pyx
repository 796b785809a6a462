"""The appender: encodes records in place into the current log segment; ``store.put`` is its method.

What needs Python objects (checks, properties, results) is here; the append loop is ``rs_appender.h``.
A put with ordinary arguments takes the plain path; whatever is out of the ordinary (a delay level, a
name given twice, a limit exceeded ...) goes through the rules, which work on a dict of properties.
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_FORMAT,
    PyBUF_ND,
    PyBUF_SIMPLE,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_CheckBuffer,
    PyObject_GetBuffer,
)
from cpython.bytes cimport (
    PyBytes_AS_STRING,
    PyBytes_CheckExact,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cpython.dict cimport PyDict_CheckExact, PyDict_Next
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.object cimport PyObject
from libc.limits cimport INT_MAX
from libc.stddef cimport size_t
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from rs_appender cimport *
from rs_bytes cimport rs_store_be64
from rs_crc cimport rs_crc_import
from rs_encode cimport rs_needs_separator, rs_record_nbytes, rs_stored_properties_nbytes
from rs_formats cimport *
from rs_guard cimport rs_guard_import
from rs_properties cimport rs_parse_int
from rs_status cimport *

import operator
import os
import threading
from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from rocketstore import formats
from rocketstore._native.message import message_id, parse_host
from rocketstore.dialect import BatchProperties, Dialect
from rocketstore.errors import (
    ConfigError,
    ForkedStoreError,
    MappedFileError,
    ServiceFailedError,
    StoreClosedError,
)
from rocketstore.status import AppendMessageStatus, PutMessageStatus

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size)  # NULL with an exception
    void PyErr_Clear()
    bint PyUnicode_CheckExact(object thing)
    bint PyLong_CheckExact(object thing)
    long long PyLong_AsLongLongAndOverflow(object number, int *overflow) except? -1

cdef extern from "rs_put_text.h" nogil:
    ctypedef struct rs_scratch:
        uint8_t *data
        size_t used
    enum:
        RS_NAME_TAGS
        RS_NAME_KEYS
        RS_NAME_UNIQUE_KEY
        RS_NAME_CRC
        RS_NAME_RULES
    void rs_scratch_init(rs_scratch *s)
    void rs_scratch_free(rs_scratch *s)
    uint8_t *rs_scratch_room(rs_scratch *s, size_t n)
    int rs_scratch_pair(rs_scratch *s, const uint8_t *name, size_t name_nbytes,
                        const uint8_t *value, size_t value_nbytes)
    int rs_name_kind(const uint8_t *name, size_t n)
    bint rs_is_retry_topic(const uint8_t *topic, size_t n)
    bint rs_is_schedule_topic(const uint8_t *topic, size_t n)
    bint rs_is_timer_topic(const uint8_t *topic, size_t n)
    bint rs_topic_is_allowed(const uint8_t *topic, size_t n)
    size_t rs_utf16_length(const uint8_t *p, size_t n)

rs_guard_import()
rs_crc_import()

cdef enum:
    # Records of one mutex hold of put_many and put_columns.
    CHUNK_COUNT = 512
    CHUNK_NBYTES = 4 * 1024 * 1024
    # A body beyond this, or this many records, are worth releasing the GIL.
    LARGE_BODY_NBYTES = 64 * 1024
    MANY_COUNT = 16
    # Rounds of making room for one record; each is progress of this or of another thread.
    ROUND_LIMIT = 1000
    # Of these, rounds in which nothing changed at all.
    IDLE_ROUND_LIMIT = 3
    # Hosts whose parsed form is kept.
    HOST_CACHE_COUNT = 1024

cdef object _ZERO = 0
cdef tuple _PUT_STATUSES = tuple(PutMessageStatus)
cdef tuple _APPEND_STATUSES = tuple(AppendMessageStatus)
cdef str _TAGS = formats.PROPERTY_TAGS
cdef str _KEYS = formats.PROPERTY_KEYS
cdef str _WAIT = formats.PROPERTY_WAIT
cdef str _DELAY = formats.PROPERTY_DELAY
cdef str _UNIQUE_KEY = formats.PROPERTY_UNIQUE_KEY
cdef str _REAL_TOPIC = formats.PROPERTY_REAL_TOPIC
cdef str _REAL_QUEUE_ID = formats.PROPERTY_REAL_QUEUE_ID
cdef str _CRC32 = formats.PROPERTY_CRC32
cdef str _INNER_NUM = formats.PROPERTY_INNER_NUM
cdef str _TIMER_OUT_MS = formats.PROPERTY_TIMER_OUT_MS
cdef tuple _TIMER_PROPERTIES = (
    formats.PROPERTY_TIMER_DELIVER_MS,
    formats.PROPERTY_TIMER_DELAY_SEC,
    formats.PROPERTY_TIMER_DELAY_MS,
)
cdef str _TOPIC_SCHEDULE = formats.TOPIC_SCHEDULE
cdef int _DROPPED = BatchProperties.DROPPED
cdef int _JOINED = BatchProperties.JOINED

# Forks since this module was imported in the first process of the line.
cdef int64_t _fork_count = 0


def _count_fork():
    global _fork_count
    _fork_count += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


# --- Outcomes ----------------------------------------------------------------------------------


@cython.final
@cython.freelist(64)
cdef class PutMessageResult:
    """Outcome of one put (immutable). Offsets are None when nothing was appended."""

    # Only numbers and bytes, so that results are no work for the garbage collector.
    cdef int32_t _status, _append
    cdef int64_t _physical, _nbytes, _queue, _timestamp, _count
    cdef bint _has_physical, _has_queue
    cdef bytes _host  # store host of a single record
    cdef bytes _ids  # of a batch: 1 byte length, host, 8 bytes offset, for each record

    def __init__(self, status, append_status=None, physical_offset=None, nbytes=0,
                 queue_offset=None, store_timestamp=0, msg_ids=()):
        self._status = PutMessageStatus(status)
        self._append = -1 if append_status is None else AppendMessageStatus(append_status)
        self._has_physical = physical_offset is not None
        self._physical = physical_offset if self._has_physical else -1
        self._nbytes = nbytes
        self._has_queue = queue_offset is not None
        self._queue = queue_offset if self._has_queue else -1
        self._timestamp = store_timestamp
        self._count = len(msg_ids)
        self._ids = b"".join([_pack_id(host, offset) for host, offset in msg_ids])

    @property
    def status(self):
        """Outcome of the put as a whole."""
        return _PUT_STATUSES[self._status]

    @property
    def append_status(self):
        """Outcome of the append, None when it was not tried."""
        return None if self._append < 0 else _APPEND_STATUSES[self._append]

    @property
    def physical_offset(self):
        """Log offset of the (first) record."""
        return self._physical if self._has_physical else None

    @property
    def nbytes(self):
        """Bytes appended."""
        return self._nbytes

    @property
    def queue_offset(self):
        """Queue offset of the (first) record."""
        return self._queue if self._has_queue else None

    @property
    def store_timestamp(self):
        """Store time, epoch ms; 0 when nothing was appended."""
        return self._timestamp

    @property
    def message_count(self):
        """Records appended."""
        return self._count

    @property
    def msg_id(self):
        """The offsetMsgId, comma-joined for a batch."""
        if self._count == 0:
            return None
        if self._ids is None:
            return message_id(self._host, self._physical)
        return ",".join(_unpack_ids(self._ids))

    @property
    def ok(self):
        """Whether the status is ``PUT_OK``."""
        return self._status == RS_PUT_PUT_OK

    @property
    def appended(self):
        """RocketMQ's ``isOk``: the record is in the log, also when its flush timed out."""
        return self._append == RS_APPEND_PUT_OK

    cdef tuple _key(self):
        return (self._status, self._append, self.physical_offset, self._nbytes,
                self.queue_offset, self._timestamp, self._count, self.msg_id)

    def __eq__(self, other):
        if not isinstance(other, PutMessageResult):
            return NotImplemented
        return self._key() == (<PutMessageResult> other)._key()

    def __hash__(self):
        return hash(self._key())

    def __repr__(self):
        if not self.appended:
            return f"PutMessageResult({self.status.name})"
        return (
            f"PutMessageResult({self.status.name}, physical_offset={self.physical_offset}, "
            f"nbytes={self._nbytes}, queue_offset={self.queue_offset}, "
            f"store_timestamp={self._timestamp}, message_count={self._count})"
        )


cdef bytes _pack_id(bytes host, object offset):
    if len(host) > 255:
        raise ValueError("a host has 8 or 20 bytes")
    return bytes((len(host),)) + host + (<object> offset).to_bytes(8, "big", signed=True)


cdef list _unpack_ids(bytes ids):
    cdef list texts = []
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t host_nbytes
    while at < len(ids):
        host_nbytes = ids[at]
        host = ids[at + 1 : at + 1 + host_nbytes]
        at += 1 + host_nbytes
        texts.append(message_id(host, int.from_bytes(ids[at : at + 8], "big", signed=True)))
        at += 8
    return texts


cdef PutMessageResult _result(const rs_put_record *record, int32_t waited, bytes host):
    """The outcome of one record; ``waited`` is the status of the flush that was awaited."""
    cdef PutMessageResult result = PutMessageResult.__new__(PutMessageResult)
    if record.status >= 0:
        result._status = record.status
        result._append = record.append_status
        return result
    result._status = waited if record.waits else RS_PUT_PUT_OK
    result._append = RS_APPEND_PUT_OK
    result._has_physical = True
    result._physical = record.fields.physical_offset
    result._nbytes = record.nbytes
    result._has_queue = True
    result._queue = record.fields.queue_offset
    result._timestamp = record.fields.store_timestamp
    result._count = 1
    result._host = host
    return result


cdef struct Row:
    # One record's outcome in a PutManyResult.
    int64_t physical_offset
    int64_t queue_offset
    int64_t store_timestamp
    int32_t nbytes
    int32_t status
    int32_t append_status
    int32_t waits
    int32_t host_nbytes
    uint8_t host[20]


cdef enum Column:
    COLUMN_STATUS
    COLUMN_PHYSICAL_OFFSET
    COLUMN_QUEUE_OFFSET
    COLUMN_NBYTES
    COLUMN_STORE_TIMESTAMP


@cython.final
cdef class PutManyResult:
    """Outcomes of many puts, in their order; offsets are -1 where nothing was appended."""

    cdef Row *_rows
    cdef Py_ssize_t _count, _capacity

    def __init__(self, results=()):
        cdef PutMessageResult result
        cdef Row *row
        cdef bytes ids
        for item in results:
            result = item
            if result._count > 1:
                raise ValueError("a PutManyResult holds outcomes of single messages")
            row = self._grow(1)
            memset(row, 0, sizeof(Row))
            row.physical_offset = result._physical if result._count else -1
            row.queue_offset = result._queue if result._count else -1
            row.store_timestamp = result._timestamp
            row.nbytes = <int32_t> result._nbytes
            row.status = result._status
            row.append_status = result._append
            if result._count:
                ids = result._ids
                host = result._host if ids is None else ids[1 : 1 + ids[0]]
                row.host_nbytes = <int32_t> min(len(host), 20)
                memcpy(row.host, <const char *> host, <size_t> row.host_nbytes)

    def __dealloc__(self):
        PyMem_Free(self._rows)

    cdef Row *_grow(self, Py_ssize_t count) except NULL:
        """Make ``count`` more rows and return the first of them, not yet filled."""
        cdef Py_ssize_t capacity
        cdef Row *rows
        if self._count + count > self._capacity:
            capacity = max(2 * self._capacity, self._count + count)
            rows = <Row *> PyMem_Realloc(self._rows, <size_t> capacity * sizeof(Row))
            if rows == NULL:
                raise MemoryError()
            self._rows = rows
            self._capacity = capacity
        self._count += count
        return self._rows + self._count - count

    cdef PutMessageResult _at(self, Py_ssize_t index):
        cdef PutMessageResult result = PutMessageResult.__new__(PutMessageResult)
        cdef Row *row = self._rows + index
        result._status = row.status
        result._append = row.append_status
        if row.append_status != RS_APPEND_PUT_OK:
            return result
        result._has_physical = result._has_queue = True
        result._physical = row.physical_offset
        result._nbytes = row.nbytes
        result._queue = row.queue_offset
        result._timestamp = row.store_timestamp
        result._count = 1
        result._host = PyBytes_FromStringAndSize(<char *> row.host, row.host_nbytes)
        return result

    cdef object _column(self, Column column):
        cdef Py_ssize_t i
        cdef Row *row
        cdef int64_t value
        cdef bytes raw = PyBytes_FromStringAndSize(NULL, self._count * <Py_ssize_t> sizeof(int64_t))
        cdef char *out = PyBytes_AS_STRING(raw)
        for i in range(self._count):
            row = self._rows + i
            if column == COLUMN_STATUS:
                value = row.status
            elif column == COLUMN_PHYSICAL_OFFSET:
                value = row.physical_offset
            elif column == COLUMN_QUEUE_OFFSET:
                value = row.queue_offset
            elif column == COLUMN_NBYTES:
                value = row.nbytes
            else:
                value = row.store_timestamp
            memcpy(out + i * <Py_ssize_t> sizeof(int64_t), &value, sizeof(int64_t))
        values = array("q")
        values.frombytes(raw)
        return values

    def __len__(self):
        return self._count

    def __getitem__(self, index):
        cdef Py_ssize_t i
        if isinstance(index, slice):
            return [self._at(i) for i in range(*index.indices(self._count))]
        i = operator.index(index)
        if i < 0:
            i += self._count
        if i < 0 or i >= self._count:
            raise IndexError("list index out of range")
        return self._at(i)

    def __iter__(self):
        cdef Py_ssize_t i
        for i in range(self._count):
            yield self._at(i)

    def __reversed__(self):
        cdef Py_ssize_t i
        for i in range(self._count - 1, -1, -1):
            yield self._at(i)

    def __contains__(self, result):
        return any(result == mine for mine in self)

    def index(self, result, start=0, stop=None):
        """Return the place of the first equal result; ``ValueError`` when there is none."""
        for i in range(*slice(start, stop).indices(self._count)):
            if self._at(i) == result:
                return i
        raise ValueError

    def count(self, result):
        """Return how many results are equal."""
        return sum(result == mine for mine in self)

    @property
    def ok(self):
        """Whether every status is ``PUT_OK``."""
        cdef Py_ssize_t i
        for i in range(self._count):
            if self._rows[i].status != RS_PUT_PUT_OK:
                return False
        return True

    @property
    def statuses(self):
        """``PutMessageStatus`` values."""
        return array("b", self._column(COLUMN_STATUS))

    @property
    def physical_offsets(self):
        """Log offset of each record."""
        return self._column(COLUMN_PHYSICAL_OFFSET)

    @property
    def queue_offsets(self):
        """Queue offset of each record."""
        return self._column(COLUMN_QUEUE_OFFSET)

    @property
    def nbytes(self):
        """Length of each record."""
        return self._column(COLUMN_NBYTES)

    @property
    def store_timestamps(self):
        """Store time of each record; 0 where nothing was appended."""
        return self._column(COLUMN_STORE_TIMESTAMP)

    def __eq__(self, other):
        if not isinstance(other, PutManyResult):
            return NotImplemented
        return list(self) == list(other)

    __hash__ = None

    def __repr__(self):
        cdef Py_ssize_t i
        cdef Py_ssize_t appended = 0
        for i in range(self._count):
            appended += self._rows[i].append_status == RS_APPEND_PUT_OK
        return f"PutManyResult({self._count} messages, {appended} appended)"


Sequence.register(PutManyResult)


cdef int _refuse(rs_put_record *record, int32_t status, int32_t append_status) except -1:
    record.status = status
    record.append_status = append_status
    record.nbytes = 0
    return 0


cdef inline bint _is_queued(const rs_put_record *record) noexcept nogil:
    """Whether the record takes a queue offset."""
    return not record.fields.sys_flag & RS_SYS_FLAG_TRANSACTION_PREPARED


cdef int64_t _rest_count(const rs_append_call *call) noexcept:
    """Puts that the call has not appended."""
    cdef int64_t i
    cdef int64_t count = 0
    if call.atomic:
        return call.done == 0
    for i in range(call.done, call.count):
        count += call.records[i].status < 0
    return count


cdef void _fill_row(Row *row, const rs_put_record *record) noexcept nogil:
    cdef bint appended = record.status < 0
    row.status = RS_PUT_PUT_OK if appended else record.status
    row.append_status = RS_APPEND_PUT_OK if appended else record.append_status
    row.physical_offset = record.fields.physical_offset if appended else -1
    row.queue_offset = record.fields.queue_offset if appended else -1
    row.store_timestamp = record.fields.store_timestamp if appended else 0
    row.nbytes = <int32_t> record.nbytes if appended else 0
    row.waits = appended and record.waits
    row.host_nbytes = record.fields.store_host_nbytes
    memcpy(row.host, record.store_host, sizeof(row.host))


# --- Arguments ---------------------------------------------------------------------------------


cdef int64_t _integer(str name, object value, int64_t low, int64_t high) except? -1:
    """``value`` within the bounds, a bool is refused."""
    cdef int overflow = 0
    cdef int64_t number
    if value is _ZERO and low <= 0 <= high:
        return 0
    if PyLong_CheckExact(value):
        number = PyLong_AsLongLongAndOverflow(value, &overflow)
        if overflow == 0 and low <= number <= high:
            return number
    return _integer_otherwise(name, value, low, high)


cdef int64_t _integer_otherwise(str name, object value, int64_t low, int64_t high) except? -1:
    if isinstance(value, bool):
        raise TypeError(f"{name} must be int, not bool")
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be int, not {type(value).__name__}") from None
    if not low <= number <= high:
        raise ValueError(f"{name} {number} is outside {low} .. {high}")
    return number


cdef object _attribute(object thing, str name):
    try:
        return getattr(thing, name)
    except AttributeError:
        raise TypeError(f"{type(thing).__name__} has no attribute {name!r}") from None


cdef int _get_body(object body, Py_buffer *view) except -1:
    """Pin a buffer that is no ``bytes`` object."""
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


cdef int64_t _take_body(rs_put_record *record, object body, Py_buffer *view) except -1:
    """Point the record at the body; returns its length. ``view`` may be NULL for ``bytes``."""
    if PyBytes_CheckExact(body):
        record.fields.body = <const uint8_t *> PyBytes_AS_STRING(body)
        return PyBytes_GET_SIZE(body)
    _get_body(body, view)
    # Others may write to the buffer meanwhile: what counts is what was stored.
    record.crc_from_log = True
    record.fields.body = <const uint8_t *> view.buf
    if view.len == 0:
        record.fields.body = <const uint8_t *> record
    return view.len


cdef bytes _copy_body(object body):
    cdef Py_buffer view
    _get_body(body, &view)
    try:
        return PyBytes_FromStringAndSize(<char *> view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


cdef bytes _java_utf8(str text):
    """Encode as Java does: surrogates in pairs are one character, a single one becomes ``?``."""
    units = text.encode("utf-16-le", "surrogatepass")
    return units.decode("utf-16-le", "surrogatepass").encode("utf-8", "replace")


cdef str _check_text(str what, object value):
    if not isinstance(value, str):
        raise TypeError(f"{what} must be str, not {type(value).__name__}")
    if "\x00" in value or "\x01" in value or "\x02" in value:
        raise ValueError(f"{what} {value!r} holds \\x00, \\x01 or \\x02")
    return str.__str__(value)


cdef str _join_keys(object keys):
    if isinstance(keys, str):
        return _check_text("keys", keys)
    if not isinstance(keys, Iterable):
        raise TypeError(f"keys must be str or an iterable of str, not {type(keys).__name__}")
    cdef list items = []
    for key in keys:
        items.append(_check_text("a key", key))
        if not key or formats.KEY_SEPARATOR in key:
            raise ValueError(f"a key {key!r} is empty or holds a space")
    return formats.KEY_SEPARATOR.join(items)


cdef dict _check_properties(object properties):
    """A dict of the pairs whose value is not None, in their order."""
    cdef dict pairs = {}
    if properties is None:
        return pairs
    if not isinstance(properties, Mapping):
        raise TypeError(f"properties must be a mapping, not {type(properties).__name__}")
    for name, value in list(properties.items()):
        text = _check_text("a property name", name)
        if not text:
            raise ValueError("a property name is empty")
        if value is not None:
            pairs[text] = _check_text(f"property {name}", value)
    return pairs


cdef int _add(dict pairs, str name, str value) except -1:
    if name in pairs:
        raise ValueError(f"property {name} is given twice")
    pairs[name] = value
    return 0


cdef dict _gather(object properties, object unique_key, object tags, object keys, bint waits,
                  int64_t delay_level, object unique_key_maker):
    """Put what the arguments say behind ``properties``, in the order it is stored."""
    cdef dict pairs = _check_properties(properties)
    if unique_key is True:
        if unique_key_maker is None:
            raise ValueError("unique_key=True needs a unique_key_maker")
        if _UNIQUE_KEY not in pairs:
            _add(pairs, _UNIQUE_KEY, _check_text("unique_key", unique_key_maker()))
    elif unique_key is not None and unique_key is not False:
        _add(pairs, _UNIQUE_KEY, _check_text("unique_key", unique_key))
    if tags is not None:
        _add(pairs, _TAGS, _check_text("tags", tags))
    if keys is not None:
        _add(pairs, _KEYS, _join_keys(keys))
    if not waits:
        _add(pairs, _WAIT, "false")
    if delay_level > 0:
        _add(pairs, _DELAY, str(delay_level))
    return pairs


cdef int32_t _level(dict pairs) except? -1:
    """The delay level, ``Integer.parseInt`` over ASCII digits; 0 for no number, or absent."""
    cdef bytes text
    value = pairs.get(_DELAY)
    if value is None:
        return 0
    text = _java_utf8(value)
    if len(text) > INT32_MAX:
        return 0
    return rs_parse_int(<const uint8_t *> PyBytes_AS_STRING(text), <int32_t> len(text))


cdef bint _waits(dict pairs):
    """Whether the producer wants the flush awaited (``WAIT`` absent or ``true`` in any case)."""
    value = pairs.get(_WAIT)
    return value is None or (value.isascii() and value.lower() == "true")


cdef int _encode_pairs(rs_scratch *scratch, dict pairs, bint trailing_separator) except -1:
    """Append the properties as stored; an empty value is written, too."""
    cdef bytes name, value
    cdef size_t start = scratch.used
    for key, text in pairs.items():
        name = _java_utf8(key)
        value = _java_utf8(text)
        if rs_scratch_pair(scratch, <const uint8_t *> PyBytes_AS_STRING(name),
                           <size_t> len(name), <const uint8_t *> PyBytes_AS_STRING(value),
                           <size_t> len(value)) < 0:
            raise MemoryError()
    if not trailing_separator and scratch.used > start:
        scratch.used -= 1
    return 0


cdef bint _encode_text_pair(rs_scratch *scratch, const char *name, size_t name_nbytes,
                            object value) except -1:
    """Append one pair; True when the rules must judge it."""
    cdef Py_ssize_t size = 0
    cdef const char *text
    cdef int bad
    if not PyUnicode_CheckExact(value):
        return True
    text = PyUnicode_AsUTF8AndSize(value, &size)
    if text == NULL:
        PyErr_Clear()
        return True
    bad = rs_scratch_pair(scratch, <const uint8_t *> name, name_nbytes,
                          <const uint8_t *> text, <size_t> size)
    if bad < 0:
        raise MemoryError()
    return bad != 0


cdef int _encode_plain_dict(rs_scratch *scratch, object properties, int rule_names) except -1:
    """Append a dict's pairs; 1 when the rules must judge it (a name of ``rule_names``, no str ...)."""
    cdef PyObject *name
    cdef PyObject *value
    cdef Py_ssize_t position = 0
    cdef Py_ssize_t size = 0
    cdef const char *text
    if not PyDict_CheckExact(properties):
        return 1
    while PyDict_Next(properties, &position, &name, &value):
        if not PyUnicode_CheckExact(<object> name) or not PyUnicode_CheckExact(<object> value):
            return 1
        text = PyUnicode_AsUTF8AndSize(<object> name, &size)
        if text == NULL:
            PyErr_Clear()
            return 1
        if size == 0 or rs_name_kind(<const uint8_t *> text, <size_t> size) & rule_names:
            return 1
        if _encode_text_pair(scratch, text, <size_t> size, <object> value):
            return 1
    return 0


cdef Py_buffer *_pin_segment(object buffer) except NULL:
    """Pin a writable, contiguous buffer; ``_release`` undoes it."""
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


cdef int _release(void *view) except -1:
    if view != NULL:
        PyBuffer_Release(<Py_buffer *> view)
        PyMem_Free(view)
    return 0


cdef int64_t *_copy_offsets(object offsets, Py_ssize_t *count) except NULL:
    """A private copy of a column's int32 or int64 offsets, to be freed."""
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


cdef int _check_column(const int64_t *offsets, Py_ssize_t count, Py_ssize_t nbytes) except -1:
    cdef Py_ssize_t i
    cdef bint good = offsets[0] >= 0 and offsets[count - 1] <= nbytes
    for i in range(count - 1):
        good = good and offsets[i] <= offsets[i + 1]
    if not good:
        raise ValueError(f"offsets must not fall, nor leave the {nbytes} bytes of data")
    return 0


# --- The appender ------------------------------------------------------------------------------


@cython.final
cdef class Appender:
    """One per log; any number of threads may put. Callbacks run without the appender's mutex."""

    cdef rs_appender _state
    cdef bint _ready  # the mutex and the table exist
    cdef int64_t _forks
    # The rules; never change.
    cdef object _roll, _extend, _wait, _clock, _unique_key_maker, _room_lock
    cdef bint _limits_in_characters, _long_retry_topics, _record_version_2, _has_hooks
    cdef bint _record_extra, _trailing_separator, _property_crc
    cdef int _batch_properties, _rule_names
    cdef int64_t _max_message_size, _max_record_nbytes, _delay_level_count
    cdef bytes _store_host
    # guarded by: the GIL
    cdef object _failure
    cdef int64_t _failed_times
    cdef dict _hosts
    # The last topic that was found to be allowed; the reference keeps its identity.
    cdef object _topic
    cdef const uint8_t *_topic_text
    cdef int32_t _topic_nbytes
    cdef uint64_t _topic_hash
    # What is the same in every record.
    cdef rs_put_record _template

    def __cinit__(self, *args, **kwargs):
        seed = int.from_bytes(os.urandom(8), "little")
        self._state.refusal = -1
        self._state.stop = RS_STOP_CLOSED  # until it is set up
        if rs_topic_table_init(&self._state.queues, seed) != 0:
            raise MemoryError()
        if rs_mutex_init(&self._state.mutex) != 0:
            rs_topic_table_free(&self._state.queues)
            raise MemoryError()
        self._forks = _fork_count
        self._ready = True

    def __init__(self, *, roll, extend, wait=None, clock=None, store_host="127.0.0.1:10911",
                 broker_version="5.3.3", max_message_size=4194304, segment_nbytes=1073741824,
                 delay_ms=(), append_property_crc=False, unique_key_maker=None):
        if self._hosts is not None:
            raise RuntimeError("an Appender is set up once")
        dialect = Dialect.for_version(broker_version, allow_newer=True)
        if append_property_crc and not dialect.property_crc:
            raise ConfigError(
                f"RocketMQ {dialect.name} knows no property CRC; append_property_crc needs 5.2.0"
            )
        self._property_crc = bool(append_property_crc)
        self._store_host = parse_host(store_host)
        self._max_message_size = _integer("max_message_size", max_message_size, 0, INT32_MAX)
        self._state.segment_nbytes = _integer(
            "segment_nbytes", segment_nbytes, formats.MIN_COMMIT_LOG_FILE_NBYTES,
            formats.MAX_COMMIT_LOG_FILE_NBYTES)
        self._delay_level_count = len(delay_ms)
        self._take_dialect(dialect)
        self._roll = roll
        self._extend = extend
        self._wait = wait
        self._clock = clock
        self._unique_key_maker = unique_key_maker
        self._room_lock = threading.RLock()
        self._hosts = {}
        self._set_template()
        self._state.stop = 0

    cdef int _take_dialect(self, object dialect) except -1:
        self._limits_in_characters = dialect.limits_in_characters
        self._long_retry_topics = dialect.long_retry_topics
        self._record_version_2 = dialect.record_version_2
        self._has_hooks = dialect.version >= (5, 0, 0)
        self._record_extra = dialect.record_extra
        self._trailing_separator = dialect.trailing_separator
        self._batch_properties = dialect.batch_properties
        self._max_record_nbytes = self._max_message_size
        if self._record_extra:
            self._max_record_nbytes += RS_RECORD_EXTRA_NBYTES
        self._rule_names = RS_NAME_RULES
        if self._property_crc:
            self._rule_names |= RS_NAME_CRC
        return 0

    cdef int _set_template(self) except -1:
        cdef rs_put_record *record = &self._template
        record.status = record.append_status = -1
        record.waits = 1
        record.fields.version = 1
        record.fields.property_crc = self._property_crc
        return 0

    def __dealloc__(self):
        if self._ready:
            _release(self._state.view)
            rs_topic_table_free(&self._state.queues)
            if self._forks == _fork_count:
                rs_mutex_destroy(&self._state.mutex)

    # --- the log ---

    def attach(self, buffer, base_offset, position, frontier):
        """Append to this (writable, segment-long) buffer from ``position``; releases the former."""
        cdef Py_buffer *view
        cdef void *former = NULL
        cdef int64_t size = self._state.segment_nbytes
        cdef int64_t base, place, blocks
        cdef bint attached = False
        self._check_usable()
        view = _pin_segment(buffer)
        try:
            if view.len != size:
                raise ValueError(f"the segment's buffer has {view.len} bytes instead of {size}")
            base = _integer("base_offset", base_offset, 0, INT64_MAX - size)
            place = _integer("position", position, 0, size)
            if place > size - RS_BLANK_NBYTES and place != size:
                raise ValueError(
                    f"position {place} leaves no room for the end-of-segment marker")
            blocks = _integer("frontier", frontier, 0, size)
            with nogil:
                rs_mutex_lock(&self._state.mutex)
                if self._state.stop == 0:
                    former = rs_appender_attach(&self._state, view, <uint8_t *> view.buf, base,
                                                place, blocks)
                    attached = True
                rs_mutex_unlock(&self._state.mutex)
        finally:
            if not attached:
                _release(view)
        if not attached:
            self._raise_unusable()
        _release(former)

    def detach(self):
        """Release the buffer; the next put asks for a segment."""
        self._detach(0)

    cdef int _detach(self, int32_t stop) except -1:
        cdef void *former
        if self._forks != _fork_count:
            # The mutex may have been held by a thread that does not exist here.
            former = rs_appender_attach(&self._state, NULL, NULL, 0, 0, 0)
            self._state.stop |= stop
        else:
            with nogil:
                rs_mutex_lock(&self._state.mutex)
                former = rs_appender_attach(&self._state, NULL, NULL, 0, 0, 0)
                self._state.stop |= stop
                rs_mutex_unlock(&self._state.mutex)
        _release(former)
        return 0

    def set_frontier(self, position, base_offset=None):
        """Disk blocks exist up to here; never moves back within a segment."""
        cdef int64_t place
        cdef int64_t base = -1
        self._check_forked()
        place = _integer("position", position, 0, self._state.segment_nbytes)
        if base_offset is not None:
            base = _integer("base_offset", base_offset, 0, INT64_MAX)
        with nogil:
            rs_mutex_lock(&self._state.mutex)
            if (base < 0 or base == self._state.base_offset) and place > self._state.frontier:
                self._state.frontier = place
                self._state.generation += 1
            rs_mutex_unlock(&self._state.mutex)

    def set_populated(self, position, base_offset=None):
        """Pages are present up to here: below it a put keeps the GIL."""
        cdef int64_t place
        cdef int64_t base = -1
        self._check_forked()
        place = _integer("position", position, 0, self._state.segment_nbytes)
        if base_offset is not None:
            base = _integer("base_offset", base_offset, 0, INT64_MAX)
        with nogil:
            rs_mutex_lock(&self._state.mutex)
            if (base < 0 or base == self._state.base_offset) and place > self._state.populated:
                self._state.populated = place
            rs_mutex_unlock(&self._state.mutex)

    @property
    def write_offset(self):
        """Physical offset behind the last published record."""
        return rs_load_acquire64(&self._state.write_offset)

    @property
    def write_position(self):
        """The same, in the current segment."""
        return rs_load_acquire64(&self._state.position)

    @property
    def base_offset(self):
        """Physical offset of the current segment's first byte."""
        return rs_load_acquire64(&self._state.base_offset)

    @property
    def last_store_timestamp(self):
        """Store time of the last record; 0 before the first."""
        return rs_load_acquire64(&self._state.last_store_timestamp)

    # --- the topic-queue table ---

    def next_queue_offset(self, topic, queue_id):
        """Queue offset of the next message; 0 when unknown."""
        cdef int64_t offset = 0
        cdef int32_t number
        cdef rs_topic_entry *entry
        cdef bytes key = self._queue_topic(topic)
        cdef const uint8_t *text = <const uint8_t *> PyBytes_AS_STRING(key)
        cdef int32_t size = <int32_t> len(key)
        cdef uint64_t code
        number = <int32_t> _integer("queue_id", queue_id, 0, INT32_MAX)
        code = rs_topic_queue_hash(rs_topic_hash(&self._state.queues, text, size), number)
        with nogil:
            rs_mutex_lock(&self._state.mutex)
            entry = rs_topic_find(&self._state.queues, code, text, size, number)
            if entry != NULL:
                offset = entry.next_offset
            rs_mutex_unlock(&self._state.mutex)
        return offset

    def set_next_queue_offset(self, topic, queue_id, queue_offset):
        """Set the queue offset of the next message."""
        cdef int64_t offset
        cdef int32_t number
        cdef rs_topic_entry *entry
        cdef bytes key = self._queue_topic(topic)
        cdef const uint8_t *text = <const uint8_t *> PyBytes_AS_STRING(key)
        cdef int32_t size = <int32_t> len(key)
        cdef uint64_t code
        number = <int32_t> _integer("queue_id", queue_id, 0, INT32_MAX)
        offset = _integer("queue_offset", queue_offset, 0, <int64_t> 1 << 62)
        code = rs_topic_queue_hash(rs_topic_hash(&self._state.queues, text, size), number)
        with nogil:
            rs_mutex_lock(&self._state.mutex)
            entry = rs_topic_put(&self._state.queues, code, text, size, number)
            if entry != NULL:
                entry.next_offset = offset
            rs_mutex_unlock(&self._state.mutex)
        if entry == NULL:
            raise MemoryError()

    def remove_queue(self, topic, queue_id):
        """Forget a queue; its numbering restarts at 0."""
        cdef int32_t number
        cdef bytes key = self._queue_topic(topic)
        cdef const uint8_t *text = <const uint8_t *> PyBytes_AS_STRING(key)
        cdef int32_t size = <int32_t> len(key)
        cdef uint64_t code
        number = <int32_t> _integer("queue_id", queue_id, 0, INT32_MAX)
        code = rs_topic_queue_hash(rs_topic_hash(&self._state.queues, text, size), number)
        with nogil:
            rs_mutex_lock(&self._state.mutex)
            self._state.last_entry = NULL
            rs_topic_remove(&self._state.queues, code, text, size, number)
            rs_mutex_unlock(&self._state.mutex)

    cdef bytes _queue_topic(self, object topic):
        cdef bytes encoded
        self._check_forked()
        if not isinstance(topic, str):
            raise TypeError(f"topic must be str, not {type(topic).__name__}")
        encoded = _java_utf8(topic)
        if len(encoded) > RS_MAX_PROPERTIES_NBYTES:
            raise ValueError(f"topic of {len(encoded)} bytes is longer than any record can hold")
        return encoded

    # --- switching off ---

    def refuse(self, status):
        """Answer every put with this status until ``refuse(None)``."""
        cdef int32_t refusal
        self._check_forked()
        refusal = -1 if status is None else PutMessageStatus(status)
        with nogil:
            rs_mutex_lock(&self._state.mutex)
            self._state.refusal = refusal
            rs_mutex_unlock(&self._state.mutex)

    def fail(self, error):
        """Every later put raises ``ServiceFailedError`` from this cause (the first one counts)."""
        self._check_forked()
        if self._failure is None:
            self._failure = error
        with nogil:
            rs_mutex_lock(&self._state.mutex)
            self._state.stop |= RS_STOP_FAILED
            rs_mutex_unlock(&self._state.mutex)

    def close(self):
        """Release the buffer; later puts raise ``StoreClosedError``. Idempotent."""
        self._detach(RS_STOP_CLOSED)

    cdef int _check_forked(self) except -1:
        if self._forks != _fork_count:
            raise ForkedStoreError(
                "this store was opened by the parent process; open it by path in the child"
            )
        return 0

    cdef inline int _check_usable(self) except -1:
        if self._forks != _fork_count or self._state.stop != 0:
            self._raise_unusable()
        return 0

    cdef int _raise_unusable(self) except -1:
        self._check_forked()
        if self._state.stop & RS_STOP_CLOSED:
            raise StoreClosedError("the store is closed")
        if self._failure is None:
            self._failure = MappedFileError(
                "writing the log faulted: its file was shortened, or its disk failed")
        raise ServiceFailedError(
            f"nothing is appended any more, reopen the store: {self._failure}"
        ) from self._failure

    # --- counters ---

    @property
    def put_times(self):
        """Messages appended."""
        return rs_load_acquire64(&self._state.put_times)

    @property
    def put_nbytes(self):
        """Bytes of the records appended."""
        return rs_load_acquire64(&self._state.put_nbytes)

    @property
    def failed_times(self):
        """Puts that were refused, or for which no room could be made."""
        return self._failed_times

    # --- from arguments to records ---

    cdef int _make(self, rs_put_record *record, object topic, object queue_id, object flag,
                   object sys_flag, object born_timestamp, object born_host, object store_host,
                   object reconsume_times, object prepared_transaction_offset) except -1:
        """Check the arguments that a single message and a batch have in common.

        The record must not move afterwards, nor the topic go away, before it is appended.
        """
        record[0] = self._template
        if topic is not self._topic:
            self._check_topic(topic)
        record.fields.topic = self._topic_text
        record.fields.topic_nbytes = self._topic_nbytes
        record.topic_hash = self._topic_hash
        record.fields.queue_id = <int32_t> _integer("queue_id", queue_id, 0, INT32_MAX)
        record.fields.flag = <int32_t> _integer("flag", flag, INT32_MIN, INT32_MAX)
        record.fields.sys_flag = <int32_t> _integer("sys_flag", sys_flag, INT32_MIN, INT32_MAX)
        if born_timestamp is None:
            record.born_at_store = True
        else:
            record.fields.born_timestamp = _integer(
                "born_timestamp", born_timestamp, INT64_MIN, INT64_MAX)
        record.fields.reconsume_times = <int32_t> _integer(
            "reconsume_times", reconsume_times, INT32_MIN, INT32_MAX)
        record.fields.prepared_transaction_offset = _integer(
            "prepared_transaction_offset", prepared_transaction_offset, INT64_MIN, INT64_MAX)
        record.fields.store_host_nbytes = self._take_host(
            store_host, self._store_host, record.store_host)
        record.fields.store_host = record.store_host
        if born_host is None:
            record.fields.born_host = record.store_host
            record.fields.born_host_nbytes = record.fields.store_host_nbytes
        else:
            record.fields.born_host_nbytes = self._take_host(
                born_host, None, record.born_host)
            record.fields.born_host = record.born_host
        return 0

    cdef int _check_topic(self, object topic) except -1:
        """Make this topic the last one, when RocketMQ allows its characters."""
        cdef Py_ssize_t size = 0
        cdef const char *text
        if not isinstance(topic, str):
            raise TypeError(f"topic must be str, not {type(topic).__name__}")
        text = PyUnicode_AsUTF8AndSize(topic, &size)
        if text == NULL:
            PyErr_Clear()
        elif size == 0:
            raise ValueError("topic is empty")
        if text == NULL or not rs_topic_is_allowed(<const uint8_t *> text, <size_t> size):
            raise ValueError(f"topic {topic!r} holds a character that RocketMQ does not allow")
        if size > INT32_MAX:
            raise ValueError("topic is longer than 2147483647 bytes")
        self._topic = topic
        self._topic_text = <const uint8_t *> text
        self._topic_nbytes = <int32_t> size
        self._topic_hash = rs_topic_hash(&self._state.queues, self._topic_text, self._topic_nbytes)
        return 0

    cdef int32_t _take_host(self, object host, bytes default, uint8_t *out) except -1:
        """Copy the stored form of a host; returns its length."""
        cdef bytes parsed
        if host is None and default is not None:
            parsed = default
        elif not PyUnicode_CheckExact(host):
            parsed = parse_host(host)
        else:
            parsed = self._hosts.get(host)
            if parsed is None:
                parsed = parse_host(host)
                if len(self._hosts) >= HOST_CACHE_COUNT:
                    self._hosts.clear()
                self._hosts[host] = parsed
        memcpy(out, PyBytes_AS_STRING(parsed), <size_t> PyBytes_GET_SIZE(parsed))
        return <int32_t> PyBytes_GET_SIZE(parsed)

    cdef bint _plain(self, rs_put_record *record, rs_scratch *scratch, object properties,
                     object unique_key, object tags, object keys, bint waits) except -1:
        """Encode the properties if nothing about them needs the rules; else nothing happened."""
        cdef size_t start = scratch.used
        cdef int names = self._rule_names
        cdef bint odd = False
        if properties is not None:
            if tags is not None:
                names |= RS_NAME_TAGS
            if keys is not None:
                names |= RS_NAME_KEYS
            if unique_key is not None:
                names |= RS_NAME_UNIQUE_KEY
            odd = _encode_plain_dict(scratch, properties, names) != 0
        if not odd and unique_key is not None:
            odd = _encode_text_pair(
                scratch, RS_PROPERTY_UNIQUE_KEY, <size_t> len(_UNIQUE_KEY), unique_key)
        if not odd and tags is not None:
            odd = _encode_text_pair(scratch, RS_PROPERTY_TAGS, <size_t> len(_TAGS), tags)
        if not odd and keys is not None:
            odd = _encode_text_pair(scratch, RS_PROPERTY_KEYS, <size_t> len(_KEYS), keys)
        if not odd and not waits:
            odd = _encode_text_pair(scratch, RS_PROPERTY_WAIT, <size_t> len(_WAIT), "false")
        if not odd:
            if not self._trailing_separator and scratch.used > start:
                scratch.used -= 1
            odd = scratch.used - start > RS_MAX_PROPERTIES_NBYTES
        if odd:
            scratch.used = start
            return False
        record.waits = waits
        return True

    cdef int _finish_plain(self, rs_put_record *record, const uint8_t *properties,
                           size_t properties_nbytes, int64_t body_nbytes) except -1:
        """Set the lengths; 1 when a limit may be exceeded, which the rules judge."""
        record.fields.properties = properties
        record.fields.properties_nbytes = <int32_t> properties_nbytes
        if self._property_crc:
            record.fields.separator = rs_needs_separator(properties, <int32_t> properties_nbytes)
        if body_nbytes > self._max_message_size or record.fields.topic_nbytes > RS_MAX_TOPIC_LENGTH:
            return 1
        if self._has_hooks and record.fields.sys_flag & RS_SYS_FLAG_INNER_BATCH:
            return 1
        record.fields.body_nbytes = <int32_t> body_nbytes
        record.nbytes = rs_record_nbytes(&record.fields)
        return (
            rs_stored_properties_nbytes(&record.fields) > RS_MAX_PROPERTIES_NBYTES
            or record.nbytes > self._max_record_nbytes
            or record.nbytes + RS_BLANK_NBYTES > self._state.segment_nbytes
        )

    # --- the rules: limits and transforms, in RocketMQ's order ---

    cdef int _finish(self, rs_put_record *record, rs_scratch *scratch, size_t *start,
                     int64_t body_nbytes, dict pairs) except -1:
        """Judge and transform a single message; its properties go to ``scratch`` from ``start``."""
        cdef int refusal
        cdef size_t nbytes
        record.waits = _waits(pairs)
        if not self._topic_fits(record):
            return _refuse(record, RS_PUT_MESSAGE_ILLEGAL, -1)
        refusal = self._hook_status(record, pairs)
        if refusal >= 0:
            return _refuse(record, refusal, -1)
        start[0] = scratch.used
        if self._limits_in_characters:
            _encode_pairs(scratch, pairs, self._trailing_separator)
            nbytes = rs_utf16_length(scratch.data + start[0], scratch.used - start[0])
            scratch.used = start[0]
            if nbytes > RS_MAX_PROPERTIES_NBYTES:
                return _refuse(record, RS_PUT_MESSAGE_ILLEGAL, -1)
        self._delay(record, pairs)
        if self._property_crc:
            pairs.pop(_CRC32, None)
        _encode_pairs(scratch, pairs, self._trailing_separator)
        nbytes = scratch.used - start[0]
        if nbytes > RS_MAX_PROPERTIES_NBYTES:
            return _refuse(record, RS_PUT_PROPERTIES_SIZE_EXCEEDED, -1)
        self._set_version(record)
        return self._set_lengths(record, scratch.data + start[0], <int32_t> nbytes, body_nbytes)

    cdef int _set_lengths(self, rs_put_record *record, const uint8_t *properties,
                          int32_t properties_nbytes, int64_t body_nbytes) except -1:
        record.fields.properties = properties
        record.fields.properties_nbytes = properties_nbytes
        if self._property_crc:
            record.fields.separator = rs_needs_separator(properties, properties_nbytes)
        if rs_stored_properties_nbytes(&record.fields) > RS_MAX_PROPERTIES_NBYTES:
            return _refuse(record, RS_PUT_PROPERTIES_SIZE_EXCEEDED, -1)
        if body_nbytes > self._max_message_size:
            return _refuse(record, RS_PUT_MESSAGE_ILLEGAL, -1)
        record.fields.body_nbytes = <int32_t> body_nbytes
        record.nbytes = rs_record_nbytes(&record.fields)
        if record.nbytes > self._max_record_nbytes:
            return _refuse(record, RS_PUT_MESSAGE_ILLEGAL, -1)
        if record.nbytes + RS_BLANK_NBYTES > self._state.segment_nbytes:
            return _refuse(record, RS_PUT_MESSAGE_ILLEGAL, RS_APPEND_MESSAGE_SIZE_EXCEEDED)
        return 0

    cdef bint _topic_fits(self, const rs_put_record *record) noexcept:
        """Whether the topic is short enough (its characters are ASCII, so units are bytes)."""
        cdef int32_t nbytes = record.fields.topic_nbytes
        if self._long_retry_topics and rs_is_retry_topic(record.fields.topic, <size_t> nbytes):
            return nbytes <= RS_MAX_RETRY_TOPIC_NBYTES
        return nbytes <= RS_MAX_TOPIC_LENGTH

    cdef void _set_version(self, rs_put_record *record) noexcept:
        cdef bint is_long = record.fields.topic_nbytes > RS_MAX_TOPIC_LENGTH
        record.fields.version = 2 if self._record_version_2 and is_long else 1

    cdef int _hook_status(self, const rs_put_record *record, dict pairs) except -2:
        """The broker's inner-batch and timer checks (-1: passed); a delay clears timer properties."""
        if not self._has_hooks:
            return -1
        # No topic of this store has a BatchCQ queue, so every inner batch is on the wrong topic.
        if record.fields.sys_flag & RS_SYS_FLAG_INNER_BATCH or _INNER_NUM in pairs:
            return RS_PUT_MESSAGE_ILLEGAL
        if not _is_queued(record):
            return -1
        if rs_is_timer_topic(record.fields.topic, <size_t> record.fields.topic_nbytes):
            return -1
        if _level(pairs) > 0:
            if self._transforms(record, pairs):
                for name in _TIMER_PROPERTIES:
                    pairs.pop(name, None)
            return -1
        if _TIMER_OUT_MS not in pairs:
            for name in _TIMER_PROPERTIES:
                if name in pairs:
                    return RS_PUT_WHEEL_TIMER_NOT_ENABLE
        return -1

    cdef bint _transforms(self, const rs_put_record *record, dict pairs) except -1:
        """Whether a delay level sends the message to the schedule topic."""
        if not _is_queued(record) or self._delay_level_count == 0 or _level(pairs) <= 0:
            return False
        real_topic = pairs.get(_REAL_TOPIC)
        if real_topic is not None and rs_is_schedule_topic(
                record.fields.topic, <size_t> record.fields.topic_nbytes):
            return False
        return not self._has_hooks or real_topic != _TOPIC_SCHEDULE

    cdef int _delay(self, rs_put_record *record, dict pairs) except -1:
        cdef int64_t level
        cdef const char *topic = RS_TOPIC_SCHEDULE
        if not self._transforms(record, pairs):
            return 0
        level = _level(pairs)
        if level > self._delay_level_count:
            level = self._delay_level_count
            pairs[_DELAY] = str(level)
        pairs[_REAL_TOPIC] = record.fields.topic[: record.fields.topic_nbytes].decode("ascii")
        pairs[_REAL_QUEUE_ID] = str(record.fields.queue_id)
        record.fields.topic = <const uint8_t *> topic
        record.fields.topic_nbytes = <int32_t> len(_TOPIC_SCHEDULE)
        record.fields.queue_id = <int32_t> (level - 1)
        record.topic_hash = rs_topic_hash(
            &self._state.queues, record.fields.topic, record.fields.topic_nbytes)
        return 0

    # --- appending ---

    cdef int _append(self, rs_append_call *call) except -1:
        """Append the call's records, asking for room as often as it takes.

        Records that could not be appended have their status set.
        """
        cdef int idle = 0
        cdef int result, _
        if self._clock is not None:
            call.now = _integer("clock()", self._clock(), INT64_MIN, INT64_MAX)
            call.has_now = True
        for _ in range(ROUND_LIMIT):
            result = self._run(call)
            if result == RS_RUN_DONE:
                return 0
            if result == RS_RUN_REFUSED:
                self._refuse_rest(call, <int32_t> call.needed)
                return 0
            if result != RS_RUN_ROLL and result != RS_RUN_EXTEND:
                self._failed_times += _rest_count(call)
                if result == RS_RUN_NO_MEMORY:
                    raise MemoryError()
                self._raise_unusable()
            if self._make_room(call, result):
                idle = 0
            else:
                idle += 1
                if idle == IDLE_ROUND_LIMIT:
                    break
        self._refuse_rest(call, RS_PUT_UNKNOWN_ERROR)
        return 0

    cdef int _run(self, rs_append_call *call) noexcept:
        """One round of appending; keeps the GIL only when that cannot take long."""
        cdef int result
        cdef int64_t i
        cdef bint large = call.count >= MANY_COUNT
        if not large:
            for i in range(call.done, call.count):
                large = large or call.records[i].fields.body_nbytes > LARGE_BODY_NBYTES
        if not large and rs_mutex_try(&self._state.mutex):
            if rs_is_populated(call):
                result = rs_append_run(call)
                rs_mutex_unlock(&self._state.mutex)
            else:
                with nogil:
                    result = rs_append_run(call)
                    rs_mutex_unlock(&self._state.mutex)
            return result
        with nogil:
            for i in range(call.done, call.count):
                if call.records[i].fields.body_nbytes > LARGE_BODY_NBYTES:
                    if call.records[i].status < 0:
                        rs_take_body_crc(&call.records[i])
            result = rs_append_blocking(call)
        return result

    cdef bint _make_room(self, rs_append_call *call, int action) except -1:
        """Call ``roll`` or ``extend`` unless another thread made room; tell whether room changed."""
        callback = self._roll if action == RS_RUN_ROLL else self._extend
        try:
            with self._room_lock:
                if self._generation() == call.generation:
                    callback(call.needed)
                return self._generation() != call.generation
        except BaseException:
            self._failed_times += _rest_count(call)
            raise

    cdef int64_t _generation(self) noexcept:
        cdef int64_t generation
        with nogil:
            rs_mutex_lock(&self._state.mutex)
            generation = self._state.generation
            rs_mutex_unlock(&self._state.mutex)
        return generation

    cdef int _refuse_rest(self, rs_append_call *call, int32_t status) except -1:
        cdef int64_t i
        cdef bint unknown = status == RS_PUT_UNKNOWN_ERROR
        self._failed_times += _rest_count(call)
        for i in range(call.done, call.count):
            if call.records[i].status < 0:
                _refuse(&call.records[i], status, RS_APPEND_UNKNOWN_ERROR if unknown else -1)
        return 0

    cdef int32_t _wait_until(self, int64_t end_offset) except -1:
        """Wait until the log is flushed to ``end_offset``; a ``PutMessageStatus`` value."""
        return PutMessageStatus(self._wait(end_offset))

    # --- putting ---

    def put(self, topic, body, queue_id=0, tags=None, keys=None, *, properties=None, flag=0,
            sys_flag=0, born_timestamp=None, born_host=None, store_host=None, reconsume_times=0,
            prepared_transaction_offset=0, delay_level=0, wait_store_msg_ok=True,
            unique_key=None):
        """Append one message."""
        cdef rs_put_record record
        cdef rs_scratch scratch
        cdef Py_buffer view
        cdef int64_t body_nbytes, level
        cdef bint waits, plain
        cdef size_t start = 0
        self._check_usable()
        self._make(&record, topic, queue_id, flag, sys_flag, born_timestamp, born_host,
                   store_host, reconsume_times, prepared_transaction_offset)
        memset(&view, 0, sizeof(view))
        rs_scratch_init(&scratch)
        try:
            body_nbytes = _take_body(&record, body, &view)
            level = _integer("delay_level", delay_level, 0, INT32_MAX)
            waits = wait_store_msg_ok
            plain = level == 0 and self._plain(
                &record, &scratch, properties, unique_key, tags, keys, waits)
            if plain:
                plain = not self._finish_plain(&record, scratch.data, scratch.used, body_nbytes)
            if not plain:
                scratch.used = 0
                self._finish(&record, &scratch, &start, body_nbytes, _gather(
                    properties, unique_key, tags, keys, waits, level, self._unique_key_maker))
            return self._put_one(&record, store_host is None)
        finally:
            rs_scratch_free(&scratch)
            PyBuffer_Release(&view)

    cdef PutMessageResult _put_one(self, rs_put_record *record, bint default_host):
        cdef rs_append_call call
        cdef int32_t waited = RS_PUT_PUT_OK
        cdef bytes host = None
        if record.status >= 0:
            self._failed_times += 1
            return _result(record, waited, None)
        memset(&call, 0, sizeof(call))
        call.appender = &self._state
        call.records = record
        call.count = 1
        self._append(&call)
        if record.status >= 0:
            return _result(record, waited, None)
        if record.waits and self._wait is not None:
            waited = self._wait_until(record.fields.physical_offset + record.nbytes)
        if default_host:
            host = self._store_host
        else:
            host = PyBytes_FromStringAndSize(
                <char *> record.store_host, record.fields.store_host_nbytes)
        return _result(record, waited, host)

    def put_message(self, message):
        """Append one message, given as an object with ``Message``'s attributes."""
        cdef rs_put_record record
        cdef rs_scratch scratch
        cdef Py_buffer view
        cdef size_t start = 0
        cdef list holds = []
        self._check_usable()
        memset(&view, 0, sizeof(view))
        rs_scratch_init(&scratch)
        try:
            self._take_message(&record, &scratch, &start, message, &view, holds)
            record.fields.properties = scratch.data + start
            return self._put_one(&record, False)
        finally:
            rs_scratch_free(&scratch)
            PyBuffer_Release(&view)

    cdef int _take_message(self, rs_put_record *record, rs_scratch *scratch, size_t *start,
                           object message, Py_buffer *view, list holds) except -1:
        """Make a record of a message. ``holds`` keeps what the record points at; without ``view`` a
        body that is no ``bytes`` object is copied."""
        cdef int64_t body_nbytes
        topic = _attribute(message, "topic")
        queue_id = _attribute(message, "queue_id")
        flag = _attribute(message, "flag")
        sys_flag = _attribute(message, "sys_flag")
        born_timestamp = _attribute(message, "born_timestamp")
        born_host = _attribute(message, "born_host")
        store_host = _attribute(message, "store_host")
        reconsume_times = _attribute(message, "reconsume_times")
        prepared_offset = _attribute(message, "prepared_transaction_offset")
        body = _attribute(message, "body")
        properties = _attribute(message, "properties")
        self._make(record, topic, queue_id, flag, sys_flag, born_timestamp, born_host,
                   store_host, reconsume_times, prepared_offset)
        holds.append(topic)
        if view == NULL and not PyBytes_CheckExact(body):
            body = _copy_body(body)
        body_nbytes = _take_body(record, body, view)
        holds.append(body)
        return self._take_properties(record, scratch, start, body_nbytes, properties)

    cdef int _take_properties(self, rs_put_record *record, rs_scratch *scratch, size_t *start,
                              int64_t body_nbytes, object properties) except -1:
        start[0] = scratch.used
        if self._plain(record, scratch, properties, None, None, None, True):
            if not self._finish_plain(record, scratch.data + start[0], scratch.used - start[0],
                                      body_nbytes):
                return 0
        scratch.used = start[0]
        return self._finish(record, scratch, start, body_nbytes, _check_properties(properties))

    def put_messages(self, batch):
        """Append a batch to one queue: consecutive, in one segment, all or nothing."""
        cdef rs_put_record head
        cdef rs_put_record *records
        cdef rs_scratch scratch
        cdef rs_append_call call
        cdef list holds = []
        cdef dict pairs
        self._check_usable()
        topic = _attribute(batch, "topic")
        self._make(&head, topic, _attribute(batch, "queue_id"), 0,
                   _attribute(batch, "sys_flag"), _attribute(batch, "born_timestamp"),
                   _attribute(batch, "born_host"), _attribute(batch, "store_host"), 0, 0)
        pairs = _check_properties(_attribute(batch, "properties"))
        head.waits = _waits(pairs)
        self._set_version(&head)
        messages = list(_attribute(batch, "messages"))
        records = <rs_put_record *> PyMem_Malloc(
            <size_t> max(1, len(messages)) * sizeof(rs_put_record))
        if records == NULL:
            raise MemoryError()
        memset(&call, 0, sizeof(call))
        call.appender = &self._state
        call.records = records
        call.atomic = True
        rs_scratch_init(&scratch)
        try:
            self._take_batch(&head, &call, &scratch, messages, pairs, holds)
            if not messages:
                raise ValueError("a batch needs at least one message")
            if head.status >= 0:
                self._failed_times += 1
                return _result(&head, RS_PUT_PUT_OK, None)
            self._append(&call)
            if records[0].status >= 0:
                return _result(records, RS_PUT_PUT_OK, None)
            return self._batch_result(&call)
        finally:
            PyMem_Free(records)
            rs_scratch_free(&scratch)

    cdef int _take_batch(self, rs_put_record *head, rs_append_call *call, rs_scratch *scratch,
                         list messages, dict pairs, list holds) except -1:
        """Make the records of a batch; ``head`` gets the status when the batch is refused."""
        cdef rs_put_record *record
        cdef rs_scratch common
        cdef int64_t client_nbytes = 0
        cdef int64_t body_nbytes, i
        cdef size_t at = 0
        cdef size_t start
        rs_scratch_init(&common)
        try:
            _encode_pairs(&common, pairs, self._trailing_separator)
            for message in messages:
                record = call.records + call.count
                record[0] = head[0]
                record.fields.flag = <int32_t> _integer(
                    "flag", _attribute(message, "flag"), INT32_MIN, INT32_MAX)
                body = _attribute(message, "body")
                if not PyBytes_CheckExact(body):
                    body = _copy_body(body)
                holds.append(body)
                body_nbytes = _take_body(record, body, NULL)
                record.fields.body_nbytes = <int32_t> min(body_nbytes, INT32_MAX)
                start = scratch.used
                self._encode_item(scratch, _attribute(message, "properties"))
                client_nbytes += RS_BATCH_ITEM_HEAD_NBYTES + RS_PROPERTIES_LENGTH_NBYTES
                client_nbytes += body_nbytes + <int64_t> (scratch.used - start)
                self._join_batch_properties(scratch, start, &common)
                # A longer text is refused, so that a cut length is never used.
                record.fields.properties_nbytes = <int32_t> min(
                    scratch.used - start, <size_t> INT32_MAX - RS_MAX_PROPERTIES_NBYTES)
                call.count += 1
            if messages:
                for i in range(call.count):
                    self._place_properties(call.records + i, scratch, &at)
                self._judge_batch(head, call, client_nbytes, common.used, pairs)
        finally:
            rs_scratch_free(&common)
        return 0

    cdef int _encode_item(self, rs_scratch *scratch, object properties) except -1:
        """Append the properties of one message of a batch, as its client would."""
        cdef size_t start = scratch.used
        if properties is not None and _encode_plain_dict(scratch, properties, 0):
            scratch.used = start
            return _encode_pairs(scratch, _check_properties(properties), self._trailing_separator)
        if not self._trailing_separator and scratch.used > start:
            scratch.used -= 1
        return 0

    cdef int _join_batch_properties(self, rs_scratch *scratch, size_t start,
                                    const rs_scratch *common) except -1:
        """Append the properties of the batch as a whole, where the version does."""
        cdef size_t size = scratch.used - start
        cdef size_t separator
        cdef uint8_t *out
        if self._batch_properties == _DROPPED or common.used == 0:
            return 0
        separator = self._batch_properties == _JOINED and size > 0 and (
            scratch.data[scratch.used - 1] != RS_PROPERTY_SEPARATOR)
        out = rs_scratch_room(scratch, common.used + 1)
        if out == NULL:
            raise MemoryError()
        if separator:
            out[0] = RS_PROPERTY_SEPARATOR
        memcpy(out + separator, common.data, common.used)
        scratch.used += common.used + separator
        return 0

    cdef int _place_properties(self, rs_put_record *record, const rs_scratch *scratch,
                               size_t *at) except -1:
        """Point the record at its properties, now that they move no more."""
        record.fields.properties = scratch.data + at[0]
        at[0] += <size_t> record.fields.properties_nbytes
        if self._property_crc:
            record.fields.separator = rs_needs_separator(
                record.fields.properties, record.fields.properties_nbytes)
        record.nbytes = rs_record_nbytes(&record.fields)
        return 0

    cdef int _judge_batch(self, rs_put_record *head, const rs_append_call *call,
                          int64_t client_nbytes, size_t common_nbytes, dict pairs) except -1:
        """Refuse a batch as a whole, in RocketMQ's order."""
        cdef int status = self._batch_status(head, dict(pairs))
        cdef int64_t total = 0
        cdef int64_t i
        if status >= 0:
            return _refuse(head, status, -1)
        if client_nbytes > self._max_message_size:
            return _refuse(head, RS_PUT_MESSAGE_ILLEGAL, -1)
        if common_nbytes > RS_MAX_PROPERTIES_NBYTES and self._batch_properties != _DROPPED:
            return _refuse(head, RS_PUT_PROPERTIES_SIZE_EXCEEDED, -1)
        for i in range(call.count):
            if rs_stored_properties_nbytes(&call.records[i].fields) > RS_MAX_PROPERTIES_NBYTES:
                return _refuse(head, RS_PUT_PROPERTIES_SIZE_EXCEEDED, -1)
            total += call.records[i].nbytes
        if not self._record_extra and total > self._max_message_size:
            return _refuse(head, RS_PUT_MESSAGE_ILLEGAL, -1)
        if total + RS_BLANK_NBYTES > self._state.segment_nbytes:
            return _refuse(head, RS_PUT_MESSAGE_ILLEGAL, RS_APPEND_MESSAGE_SIZE_EXCEEDED)
        return 0

    cdef int _batch_status(self, const rs_put_record *head, dict pairs) except -2:
        """What RocketMQ's hooks and the batch rules say of the batch's head; -1: nothing."""
        cdef size_t topic_nbytes = <size_t> head.fields.topic_nbytes
        cdef int status
        if not self._topic_fits(head):
            return RS_PUT_MESSAGE_ILLEGAL
        if self._has_hooks and rs_is_retry_topic(head.fields.topic, topic_nbytes):
            return RS_PUT_MESSAGE_ILLEGAL
        status = self._hook_status(head, pairs)
        if status >= 0:
            return status
        if head.fields.sys_flag & RS_SYS_FLAG_TRANSACTION_MASK or _level(pairs) > 0:
            return RS_PUT_MESSAGE_ILLEGAL
        return -1

    cdef PutMessageResult _batch_result(self, const rs_append_call *call):
        cdef const rs_put_record *first = call.records
        cdef PutMessageResult result
        cdef int32_t waited = RS_PUT_PUT_OK
        cdef Py_ssize_t host_nbytes = first.fields.store_host_nbytes
        cdef Py_ssize_t id_nbytes = 1 + host_nbytes + 8
        cdef int64_t i
        cdef int64_t nbytes = 0
        cdef bytes ids = PyBytes_FromStringAndSize(NULL, call.count * id_nbytes)
        cdef uint8_t *out = <uint8_t *> PyBytes_AS_STRING(ids)
        for i in range(call.count):
            nbytes += call.records[i].nbytes
            out[0] = <uint8_t> host_nbytes
            memcpy(out + 1, first.store_host, <size_t> host_nbytes)
            rs_store_be64(out + 1 + host_nbytes, call.records[i].fields.physical_offset)
            out += id_nbytes
        if first.waits and self._wait is not None:
            waited = self._wait_until(first.fields.physical_offset + nbytes)
        result = _result(first, waited, None)
        result._nbytes = nbytes
        result._count = call.count
        result._ids = ids
        return result

    def put_many(self, messages):
        """Append messages, one mutex hold per chunk.

        A wrong type raises before anything of its chunk is appended; chunks before it stay.
        """
        cdef PutManyResult result = PutManyResult.__new__(PutManyResult)
        cdef rs_put_record *records
        cdef rs_scratch scratch
        cdef Py_ssize_t count
        self._check_usable()
        source = iter(messages)
        records = <rs_put_record *> PyMem_Malloc(CHUNK_COUNT * sizeof(rs_put_record))
        if records == NULL:
            raise MemoryError()
        rs_scratch_init(&scratch)
        try:
            while True:
                holds = []
                scratch.used = 0
                count = self._take_chunk(records, &scratch, source, holds)
                if count == 0:
                    break
                self._append_chunk(result, records, count)
        finally:
            PyMem_Free(records)
            rs_scratch_free(&scratch)
        self._await_many(result)
        return result

    cdef Py_ssize_t _take_chunk(self, rs_put_record *records, rs_scratch *scratch, object source,
                                list holds) except -1:
        """Make the records of the next messages, up to the limits of one mutex hold."""
        cdef size_t starts[CHUNK_COUNT]
        cdef Py_ssize_t count = 0
        cdef Py_ssize_t i
        cdef int64_t nbytes = 0
        for message in islice(source, CHUNK_COUNT):
            self._take_message(records + count, scratch, &starts[count], message, NULL, holds)
            nbytes += records[count].nbytes
            count += 1
            if nbytes >= CHUNK_NBYTES:
                break
        for i in range(count):
            records[i].fields.properties = scratch.data + starts[i]
        return count

    cdef int _append_chunk(self, PutManyResult result, rs_put_record *records,
                           Py_ssize_t count) except -1:
        """Append the records that are not refused, and add all outcomes to the result."""
        cdef rs_append_call call
        cdef Py_ssize_t i
        cdef Row *rows = result._grow(count)
        cdef int64_t good = 0
        memset(&call, 0, sizeof(call))
        call.appender = &self._state
        call.records = records
        call.count = count
        good = _rest_count(&call)
        self._failed_times += count - good
        if good > 0:
            self._append(&call)
        for i in range(count):
            _fill_row(rows + i, records + i)
        return 0

    cdef int _await_many(self, PutManyResult result) except -1:
        """Wait once, for the last record that wants it."""
        cdef int32_t waited
        cdef Py_ssize_t i
        cdef Py_ssize_t last = result._count - 1
        if self._wait is None:
            return 0
        while last >= 0 and not result._rows[last].waits:
            last -= 1
        if last < 0:
            return 0
        waited = self._wait_until(
            result._rows[last].physical_offset + result._rows[last].nbytes)
        for i in range(last + 1):
            if result._rows[i].waits:
                result._rows[i].status = waited
        return 0

    def put_columns(self, topic, offsets, data, *, queue_id=0, tags=None, keys=None,
                    properties=None, flag=0, sys_flag=0, born_timestamp=None, born_host=None,
                    store_host=None, wait_store_msg_ok=True):
        """Append the bodies ``data[offsets[i]:offsets[i + 1]]`` (int32 or int64 offsets)."""
        cdef PutManyResult result = PutManyResult.__new__(PutManyResult)
        cdef rs_put_record head
        cdef rs_scratch scratch
        cdef Py_buffer view
        cdef int64_t *bounds = NULL
        cdef rs_put_record *records = NULL
        cdef Py_ssize_t count = 0
        cdef int64_t nbytes
        self._check_usable()
        self._make(&head, topic, queue_id, flag, sys_flag, born_timestamp, born_host,
                   store_host, 0, 0)
        memset(&view, 0, sizeof(view))
        rs_scratch_init(&scratch)
        try:
            bounds = _copy_offsets(offsets, &count)
            nbytes = _take_body(&head, data, &view)
            _check_column(bounds, count, nbytes)
            records = <rs_put_record *> PyMem_Malloc(CHUNK_COUNT * sizeof(rs_put_record))
            if records == NULL:
                raise MemoryError()
            self._put_rows(result, &head, records, &scratch, bounds, count - 1, _gather(
                properties, None, tags, keys, wait_store_msg_ok, 0, None))
        finally:
            PyMem_Free(bounds)
            PyMem_Free(records)
            rs_scratch_free(&scratch)
            PyBuffer_Release(&view)
        self._await_many(result)
        return result

    cdef int _put_rows(self, PutManyResult result, const rs_put_record *head,
                       rs_put_record *records, rs_scratch *scratch, const int64_t *bounds,
                       Py_ssize_t row_count, dict pairs) except -1:
        """Append all rows, in chunks. What is the same in all of them is worked out once."""
        cdef rs_put_record common = head[0]
        cdef rs_put_record *record
        cdef size_t start = 0
        cdef int64_t body_nbytes, nbytes
        cdef Py_ssize_t count
        cdef Py_ssize_t row = 0
        self._finish(&common, scratch, &start, 0, dict(pairs))
        while row < row_count:
            count = nbytes = 0
            while row < row_count and count < CHUNK_COUNT and nbytes < CHUNK_NBYTES:
                record = records + count
                body_nbytes = bounds[row + 1] - bounds[row]
                if common.status < 0:
                    record[0] = common
                    self._set_lengths(record, common.fields.properties,
                                      common.fields.properties_nbytes, body_nbytes)
                else:
                    # Refused even without a body; by which rule depends on the body, too.
                    record[0] = head[0]
                    scratch.used = 0
                    self._finish(record, scratch, &start, body_nbytes, dict(pairs))
                record.fields.body = head.fields.body + bounds[row]
                nbytes += record.nbytes
                count += 1
                row += 1
            self._append_chunk(result, records, count)
        return 0
