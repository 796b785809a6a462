"""``Message``, a message to be put, and ``StoredMessage``, a record in a buffer.

Contract: ``message.pyi``; it also exports the functions of ``record``. Stored bytes are read
inside ``rs_guarded``, because the buffer may be a mapping whose file gets shorter.
"""

cimport cython
from cpython.buffer cimport PyBuffer_Release
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.long cimport PyLong_Check
from cpython.object cimport PyObject, PyTypeObject
from cpython.pycapsule cimport PyCapsule_New
from cpython.unicode cimport PyUnicode_Check
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t

from rs_arguments cimport rs_check_range, rs_get_bytes
from rs_bytes cimport rs_load_be32, rs_load_be64
from rs_copy cimport rs_copied, rs_copied_buffer, rs_copy_out, rs_raise_fault
from rs_formats cimport (
    RS_HOST_V4_NBYTES, RS_HOST_V6_NBYTES, RS_MAX_PROPERTIES_NBYTES, RS_PROPERTY_DELAY,
    RS_PROPERTY_KEYS, RS_PROPERTY_TAGS, RS_PROPERTY_UNIQUE_KEY, RS_RECORD_HEAD_BODY_CRC_AT,
    RS_RECORD_HEAD_BORN_TIMESTAMP_AT, RS_RECORD_HEAD_FLAG_AT, RS_RECORD_HEAD_NBYTES,
    RS_RECORD_TAIL_NBYTES, RS_RECORD_TAIL_PREPARED_TRANSACTION_OFFSET_AT,
    RS_RECORD_TAIL_RECONSUME_TIMES_AT, RS_SYS_FLAG_BORN_HOST_V6, RS_SYS_FLAG_STORE_HOST_V6,
    rs_parsed_record,
)
from rs_guard cimport rs_guard_import, rs_guarded
from rs_hosts cimport rs_format_host, rs_message_id
from rs_message_object cimport rs_message_object
from rs_properties cimport (
    RS_BLOCK_NBYTES, rs_find_properties, rs_parse_int, rs_property_values,
)
from rs_record cimport rs_check_lengths, rs_check_size, rs_store_timestamp_at
from rs_status cimport RS_FAULT, RS_OK
from rs_stored_message cimport RS_STORED_MESSAGE_CAPSULE
from rs_java_text cimport rs_decode_properties, rs_decode_text

from rocketstore._native.record import (
    check_record,
    crc32,
    encode_properties,
    encode_record,
    find_record,
    format_host,
    hash_map_order,
    message_id,
    parse_host,
    parse_properties,
    reordered_properties,
    rewritten_properties,
    scan_records,
    string_hash_code,
)

rs_guard_import()

cdef str TAGS = RS_PROPERTY_TAGS.decode()
cdef str KEYS = RS_PROPERTY_KEYS.decode()
cdef str UNIQUE_KEY = RS_PROPERTY_UNIQUE_KEY.decode()
cdef str DELAY = RS_PROPERTY_DELAY.decode()


# --- Message ----------------------------------------------------------------------------------

cdef object to_text(value, str name):
    if not PyUnicode_Check(value):
        raise TypeError(f"{name} must be str, not {type(value).__name__}")
    return value


cdef object text_or_none(value, str name):
    return None if value is None else to_text(value, name)


cdef int64_t to_int64(value, str name) except? -1:
    if not PyLong_Check(value) or value is True or value is False:
        raise TypeError(f"{name} must be int, not {type(value).__name__}")
    try:
        return value
    except OverflowError:
        raise ValueError(f"{name} does not fit 64 bits") from None


cdef int64_t to_level(value) except? -1:
    cdef int64_t level = to_int64(value, "delay_level")
    if not 0 <= level <= INT32_MAX:
        raise ValueError(f"delay_level {level} is outside 0 .. {INT32_MAX}")
    return level


cdef bytes to_body(value):
    if PyUnicode_Check(value):
        raise TypeError("body must be bytes-like, not str")
    try:
        return rs_copied_buffer(value)
    except BufferError:
        raise ValueError("body must be a contiguous buffer") from None


cdef object delay_level_of(value):
    """Return ``Integer.parseInt`` of a property value, 0 if it would throw."""
    if not PyUnicode_Check(value):
        return 0
    cdef bytes text = value.encode("utf-8", "replace")
    return rs_parse_int(
        <const uint8_t*>PyBytes_AS_STRING(text), <int32_t>min(len(text), INT32_MAX)
    )


def _message(cls, topic, body, queue_id, flag, sys_flag, born_timestamp, born_host, store_host,
             reconsume_times, prepared_transaction_offset, properties, /):
    """Rebuild a message from its pickled state."""
    return cls(
        topic, body, queue_id=queue_id, flag=flag, sys_flag=sys_flag,
        born_timestamp=born_timestamp, born_host=born_host, store_host=store_host,
        reconsume_times=reconsume_times, prepared_transaction_offset=prepared_transaction_offset,
        properties=properties,
    )


cdef int add_property(dict properties, object name, object value) except -1:
    if name in properties:
        raise ValueError(f"property {name} is given twice")
    properties[name] = value
    return 0


cdef object joined_keys(object keys):
    """Return the KEYS property: a text as it is, or several keys without spaces, joined."""
    if isinstance(keys, str):
        return keys
    items = [to_text(key, "a key") for key in keys]
    for key in items:
        if not key or " " in key:
            raise ValueError(f"a key {key!r} is empty or holds a space")
    return " ".join(items)


@cython.freelist(64)
cdef class Message:
    """A message to be put.

    The constructor checks types only; the put decides whether topic, hosts and sizes can be
    stored. ``properties`` is the message's own dict; ``tags``, ``keys``, ``unique_key`` and
    ``delay_level`` are views of it.
    """

    # In the order of rs_message_object.h.
    cdef object _topic
    cdef object _body
    cdef object _born_host
    cdef object _store_host
    cdef dict _properties
    cdef int64_t _queue_id
    cdef int64_t _flag
    cdef int64_t _sys_flag
    cdef int64_t _reconsume_times
    cdef int64_t _prepared_transaction_offset
    cdef int64_t _born_timestamp
    cdef int _has_born_timestamp

    def __init__(self, topic, body=b"", *, queue_id=0, flag=0, sys_flag=0, born_timestamp=None,
                 born_host=None, store_host=None, reconsume_times=0,
                 prepared_transaction_offset=0, properties=None, unique_key=None, tags=None,
                 keys=None, delay_level=0):
        self._topic = to_text(topic, "topic")
        self._body = to_body(body)
        self._queue_id = to_int64(queue_id, "queue_id")
        self._flag = to_int64(flag, "flag")
        self._sys_flag = to_int64(sys_flag, "sys_flag")
        set_born_timestamp(self, born_timestamp)
        self._born_host = text_or_none(born_host, "born_host")
        self._store_host = text_or_none(store_host, "store_host")
        self._reconsume_times = to_int64(reconsume_times, "reconsume_times")
        self._prepared_transaction_offset = to_int64(
            prepared_transaction_offset, "prepared_transaction_offset"
        )
        self._properties = {} if properties is None else dict(properties)
        if unique_key is not None:
            add_property(self._properties, UNIQUE_KEY, text_or_none(unique_key, "unique_key"))
        if tags is not None:
            add_property(self._properties, TAGS, text_or_none(tags, "tags"))
        if keys is not None:
            add_property(self._properties, KEYS, joined_keys(keys))
        if delay_level is not None and to_level(delay_level) > 0:
            add_property(self._properties, DELAY, str(delay_level))

    @property
    def topic(self):
        """Topic."""
        return self._topic

    @topic.setter
    def topic(self, value):
        self._topic = to_text(value, "topic")

    @property
    def body(self):
        """Body; another bytes-like object is copied when it is set."""
        return self._body

    @body.setter
    def body(self, value):
        self._body = to_body(value)

    @property
    def queue_id(self):
        """Queue of the topic."""
        return self._queue_id

    @queue_id.setter
    def queue_id(self, value):
        self._queue_id = to_int64(value, "queue_id")

    @property
    def flag(self):
        """The producer's own flag."""
        return self._flag

    @flag.setter
    def flag(self, value):
        self._flag = to_int64(value, "flag")

    @property
    def sys_flag(self):
        """System flag; its host bits are derived from the hosts when the message is stored."""
        return self._sys_flag

    @sys_flag.setter
    def sys_flag(self, value):
        self._sys_flag = to_int64(value, "sys_flag")

    @property
    def born_timestamp(self):
        """When the client sent it, epoch ms; ``None``: the store time."""
        return self._born_timestamp if self._has_born_timestamp else None

    @born_timestamp.setter
    def born_timestamp(self, value):
        set_born_timestamp(self, value)

    @property
    def born_host(self):
        """Host of the client; ``None``: the store's."""
        return self._born_host

    @born_host.setter
    def born_host(self, value):
        self._born_host = text_or_none(value, "born_host")

    @property
    def store_host(self):
        """Host of the broker; ``None``: the store's."""
        return self._store_host

    @store_host.setter
    def store_host(self, value):
        self._store_host = text_or_none(value, "store_host")

    @property
    def reconsume_times(self):
        """How often consumers sent it back."""
        return self._reconsume_times

    @reconsume_times.setter
    def reconsume_times(self, value):
        self._reconsume_times = to_int64(value, "reconsume_times")

    @property
    def prepared_transaction_offset(self):
        """Commit-log offset of the half message, or 0."""
        return self._prepared_transaction_offset

    @prepared_transaction_offset.setter
    def prepared_transaction_offset(self, value):
        self._prepared_transaction_offset = to_int64(value, "prepared_transaction_offset")

    @property
    def properties(self):
        """Properties in the order in which they are stored."""
        return self._properties

    @properties.setter
    def properties(self, value):
        self._properties = dict(value)

    @property
    def tags(self):
        """The property ``TAGS``."""
        return self.properties.get(TAGS)

    @tags.setter
    def tags(self, value):
        set_property(self, TAGS, text_or_none(value, "tags"))

    @property
    def keys(self):
        """The property ``KEYS``: keys joined by spaces."""
        return self.properties.get(KEYS)

    @keys.setter
    def keys(self, value):
        set_property(self, KEYS, text_or_none(value, "keys"))

    @property
    def unique_key(self):
        """The property ``UNIQ_KEY``."""
        return self.properties.get(UNIQUE_KEY)

    @unique_key.setter
    def unique_key(self, value):
        set_property(self, UNIQUE_KEY, text_or_none(value, "unique_key"))

    @property
    def delay_level(self):
        """The property ``DELAY`` as a number; 0 if it is missing or not a number."""
        return delay_level_of(self.properties.get(DELAY))

    @delay_level.setter
    def delay_level(self, value):
        set_property(self, DELAY, None if value is None else str(to_level(value)))

    @property
    def user_properties(self):
        """``properties`` without those of a former delay, delivery time or transaction."""
        from rocketstore.message_copy import user_properties
        return user_properties(self.properties)

    def copy(self):
        """Return a new message with the same content, to be put again."""
        from rocketstore.message_copy import copied
        return copied(self, Message)

    def __eq__(self, other):
        if type(other) is not type(self):
            return NotImplemented
        return message_fields(self) == message_fields(other)

    def __reduce__(self):
        return _message, (type(self), *message_fields(self))

    def __repr__(self):
        return (
            f"{type(self).__name__}({self.topic!r}, <{len(self.body)} bytes>, "
            f"queue_id={self.queue_id}, properties={self.properties!r})"
        )

    def _repr_html_(self):
        from rocketstore.display.html import message_html

        return message_html(self)


cdef int set_born_timestamp(Message message, value) except -1:
    if value is None:
        message._has_born_timestamp = 0
    else:
        message._born_timestamp = to_int64(value, "born_timestamp")
        message._has_born_timestamp = 1
    return 0


cdef int set_property(Message message, str name, value) except -1:
    if value is None:
        message._properties.pop(name, None)
    else:
        message._properties[name] = value
    return 0


cdef tuple message_fields(message):
    return (
        message.topic, message.body, message.queue_id, message.flag, message.sys_flag,
        message.born_timestamp, message.born_host, message.store_host, message.reconsume_times,
        message.prepared_transaction_offset, message.properties,
    )


cdef int check_message_layout() except -1:
    """Compare Message with rs_message_object.h, which other modules use to read it."""
    cdef Message message = Message(
        "topic", b"body", queue_id=1, flag=2, sys_flag=3, born_timestamp=4, born_host="born",
        store_host="store", reconsume_times=5, prepared_transaction_offset=6,
    )
    cdef rs_message_object* fields = <rs_message_object*><PyObject*>message
    if not (
        fields.topic == <PyObject*>message._topic
        and fields.body == <PyObject*>message._body
        and fields.born_host == <PyObject*>message._born_host
        and fields.store_host == <PyObject*>message._store_host
        and fields.properties == <PyObject*>message._properties
        and fields.queue_id == 1
        and fields.flag == 2
        and fields.sys_flag == 3
        and fields.born_timestamp == 4
        and fields.has_born_timestamp == 1
        and fields.reconsume_times == 5
        and fields.prepared_transaction_offset == 6
    ):
        raise ImportError("the layout of Message differs from rs_message_object.h")
    return 0


check_message_layout()


# --- StoredMessage ----------------------------------------------------------------------------

cdef struct Opening:
    const uint8_t* p
    int64_t available
    int64_t left
    rs_parsed_record row


cdef int open_record(void* argument) noexcept nogil:
    """Check size, magic and lengths, without any CRC."""
    cdef Opening* call = <Opening*>argument
    cdef int status = rs_check_size(call.p, call.available, call.left, &call.row)
    return rs_check_lengths(call.p, &call.row) if status == RS_OK else status


# What ``make_stored`` gives the constructor, which then leaves the opening to it. A flag would not
# do: allocation may collect garbage, and with it run finalizers and other threads.
cdef object opened_later = object()
cdef tuple opened_later_arguments = (opened_later,)


cdef object make_stored(object buffer, int64_t position, int64_t base_offset,
                        int64_t segment_end):
    """Return a ``StoredMessage``; for other modules, by rs_stored_message.h."""
    cdef StoredMessage message = <StoredMessage>(<PyTypeObject*>StoredMessage).tp_new(
        StoredMessage, <PyObject*>opened_later_arguments, NULL)
    message._open(buffer, position, base_offset, segment_end)
    return message


_api = PyCapsule_New(<void*>make_stored, RS_STORED_MESSAGE_CAPSULE, NULL)


cdef struct PropertiesCopy:
    # rs_find_properties may read a block of bytes before the properties' end.
    uint8_t[RS_BLOCK_NBYTES + RS_MAX_PROPERTIES_NBYTES] buffer
    rs_property_values values


# Hidden from the garbage collector: it would clear a memoryview that this message still exports,
# which ends the process when the view is freed.
@cython.no_gc
@cython.final
cdef class StoredMessage(Message):
    """A record in a buffer, decoded on access; read-only.

    Parameters
    ----------
    buffer : bytes-like
        Referenced, with an export, as long as the message lives.
    position : int
        Of the record in the buffer.
    base_offset : int
        Physical offset of the buffer's first byte.
    segment_end : int
        Physical offset after the record's segment.

    Raises
    ------
    ValueError
        If there can be no record: its lengths do not fit. No CRC is checked.
    """

    cdef Py_buffer _view
    cdef const uint8_t* _p
    cdef int64_t _position
    cdef int64_t _physical_offset
    cdef int64_t _queue_offset
    cdef int32_t _size
    cdef int32_t _magic
    cdef int32_t _queue
    cdef int32_t _record_sys_flag
    cdef int32_t _body_at
    cdef int32_t _body_nbytes
    cdef int32_t _topic_at
    cdef int32_t _topic_nbytes
    cdef int32_t _properties_at
    cdef int32_t _properties_nbytes

    def __cinit__(self, buffer=None, position=None, base_offset=None, segment_end=None):
        if buffer is opened_later:
            return
        if buffer is None or position is None or base_offset is None or segment_end is None:
            raise TypeError(
                "StoredMessage needs buffer, position, base_offset and segment_end")
        self._open(buffer, position, base_offset, segment_end)

    cdef int _open(self, object buffer, int64_t position, int64_t base_offset,
                   int64_t segment_end) except -1:
        cdef Opening call
        cdef int status
        rs_get_bytes(buffer, &self._view, False)
        if not 0 <= position <= self._view.len:
            raise ValueError(f"position {position} is outside {self._view.len} bytes")
        rs_check_range(&self._view, position, self._view.len, base_offset, segment_end)
        self._p = call.p = <const uint8_t*>self._view.buf + position
        call.available = self._view.len - position
        call.left = segment_end - base_offset - position
        status = rs_guarded(open_record, &call)
        if status == RS_FAULT:
            rs_raise_fault()
        if status != RS_OK:
            raise ValueError(
                f"there is no record at position {position} (physical offset "
                f"{base_offset + position}): status {status}"
            )
        self._position = position
        self._physical_offset = base_offset + position
        self._size = call.row.total_size
        self._magic = call.row.magic
        self._queue = call.row.queue_id
        self._queue_offset = call.row.queue_offset
        self._record_sys_flag = call.row.sys_flag
        self._body_at = call.row.body_at
        self._body_nbytes = call.row.body_nbytes
        self._topic_at = call.row.topic_at
        self._topic_nbytes = call.row.topic_nbytes
        self._properties_at = call.row.properties_at
        self._properties_nbytes = call.row.properties_nbytes
        return 0

    def __init__(self, buffer, position, base_offset, segment_end):
        """Do nothing: the record was opened when the object was created."""

    def __dealloc__(self):
        PyBuffer_Release(&self._view)

    cdef int32_t _load32(self, int32_t at) except? -1:
        cdef uint8_t[4] value
        rs_copy_out(value, self._p + at, sizeof(value))
        return rs_load_be32(value)

    cdef int64_t _load64(self, int32_t at) except? -1:
        cdef uint8_t[8] value
        rs_copy_out(value, self._p + at, sizeof(value))
        return rs_load_be64(value)

    cdef int32_t _tail_at(self) noexcept:
        return self._body_at - RS_RECORD_TAIL_NBYTES

    @property
    def topic(self):
        """Topic."""
        cdef uint8_t[RS_MAX_PROPERTIES_NBYTES] text
        rs_copy_out(text, self._p + self._topic_at, <size_t>self._topic_nbytes)
        return rs_decode_text(text, self._topic_nbytes)

    @property
    def body(self):
        """Body as stored, a copy."""
        return rs_copied(self._p + self._body_at, self._body_nbytes)

    @property
    def queue_id(self):
        """Queue of the topic."""
        return self._queue

    @property
    def flag(self):
        """The producer's own flag."""
        return self._load32(RS_RECORD_HEAD_FLAG_AT)

    @property
    def sys_flag(self):
        """System flag."""
        return self._record_sys_flag

    @property
    def born_timestamp(self):
        """When the client sent it, epoch ms."""
        return self._load64(RS_RECORD_HEAD_BORN_TIMESTAMP_AT)

    @property
    def reconsume_times(self):
        """How often consumers sent it back."""
        return self._load32(self._tail_at() + RS_RECORD_TAIL_RECONSUME_TIMES_AT)

    @property
    def prepared_transaction_offset(self):
        """Commit-log offset of the half message, or 0."""
        return self._load64(self._tail_at() + RS_RECORD_TAIL_PREPARED_TRANSACTION_OFFSET_AT)

    @property
    def queue_offset(self):
        """Number in the queue."""
        return self._queue_offset

    @property
    def physical_offset(self):
        """Offset of the record in the log."""
        return self._physical_offset

    @property
    def store_timestamp(self):
        """When it was stored, epoch ms."""
        return self._load64(rs_store_timestamp_at(self._record_sys_flag))

    @property
    def body_crc(self):
        """CRC-32 of the body as stored, top bit cleared."""
        return self._load32(RS_RECORD_HEAD_BODY_CRC_AT)

    @property
    def store_size(self):
        """Length of the record in bytes."""
        return self._size

    @property
    def magic_code(self):
        """Magic of the record's version."""
        return self._magic

    cdef Py_ssize_t _copy_host(self, uint8_t* host, bint store) except -1:
        """Copy a stored host; return its length."""
        cdef int32_t bit = RS_SYS_FLAG_STORE_HOST_V6 if store else RS_SYS_FLAG_BORN_HOST_V6
        cdef int32_t nbytes = RS_HOST_V4_NBYTES
        cdef int32_t at = RS_RECORD_HEAD_NBYTES
        if self._record_sys_flag & bit:
            nbytes = RS_HOST_V6_NBYTES
        if store:
            at = self._tail_at() - nbytes
        rs_copy_out(host, self._p + at, <size_t>nbytes)
        return nbytes

    @property
    def born_host(self):
        """Host of the client."""
        cdef uint8_t[RS_HOST_V6_NBYTES] host
        return rs_format_host(host, self._copy_host(host, False))

    @property
    def store_host(self):
        """Host of the broker."""
        cdef uint8_t[RS_HOST_V6_NBYTES] host
        return rs_format_host(host, self._copy_host(host, True))

    @property
    def msg_id(self):
        """The offsetMsgId."""
        cdef uint8_t[RS_HOST_V6_NBYTES] host
        return rs_message_id(host, self._copy_host(host, True), self._physical_offset)

    @property
    def properties_bytes(self):
        """Properties as stored."""
        return rs_copied(self._p + self._properties_at, self._properties_nbytes)

    @property
    def properties(self):
        """Properties as RocketMQ reads them, a new dict each time."""
        cdef uint8_t[RS_MAX_PROPERTIES_NBYTES] stored
        rs_copy_out(stored, self._p + self._properties_at, <size_t>self._properties_nbytes)
        return rs_decode_properties(stored, self._properties_nbytes)

    cdef int _find(self, PropertiesCopy* found) except -1:
        rs_copy_out(
            found.buffer + RS_BLOCK_NBYTES, self._p + self._properties_at,
            <size_t>self._properties_nbytes,
        )
        rs_find_properties(found.buffer, RS_BLOCK_NBYTES, self._properties_nbytes, &found.values)
        return 0

    @property
    def tags(self):
        """The property ``TAGS``."""
        cdef PropertiesCopy found
        self._find(&found)
        return found_text(&found, found.values.tags_at, found.values.tags_nbytes)

    @property
    def keys(self):
        """The property ``KEYS``."""
        cdef PropertiesCopy found
        self._find(&found)
        return found_text(&found, found.values.keys_at, found.values.keys_nbytes)

    @property
    def unique_key(self):
        """The property ``UNIQ_KEY``."""
        cdef PropertiesCopy found
        self._find(&found)
        return found_text(&found, found.values.unique_key_at, found.values.unique_key_nbytes)

    @property
    def delay_level(self):
        """The property ``DELAY`` as a number; 0 if it is missing or not a number."""
        cdef PropertiesCopy found
        self._find(&found)
        if found.values.delay_at < 0:
            return 0
        return rs_parse_int(found.buffer + found.values.delay_at, found.values.delay_nbytes)

    @property
    def raw(self):
        """The whole record, a read-only view that pins the buffer."""
        owner = memoryview(<object>self._view.obj).cast("B").toreadonly()
        return owner[self._position:self._position + self._size]

    @property
    def body_view(self):
        """The body, a read-only view that pins the buffer."""
        return self.raw[self._body_at:self._body_at + self._body_nbytes]

    cdef bytes _bytes(self):
        return rs_copied(self._p, self._size)

    def detach(self):
        """Return an equal message over its own copy of the bytes."""
        return StoredMessage(
            self._bytes(), 0, self._physical_offset, self._physical_offset + self._size
        )

    def __reduce__(self):
        end = self._physical_offset + self._size
        return StoredMessage, (self._bytes(), 0, self._physical_offset, end)

    def __richcmp__(self, other, int operation):
        if not isinstance(other, StoredMessage):
            return NotImplemented
        return compare(self, <StoredMessage>other, operation)

    def __hash__(self):
        return hash((self._physical_offset, self._size))

    def __repr__(self):
        return (
            f"StoredMessage({self.topic!r}, <{self._body_nbytes} bytes>, "
            f"queue_id={self._queue}, queue_offset={self._queue_offset}, "
            f"physical_offset={self._physical_offset}, store_size={self._size})"
        )


cdef object found_text(PropertiesCopy* found, int32_t at, int32_t nbytes):
    return None if at < 0 else rs_decode_text(found.buffer + at, nbytes)


cdef object compare(StoredMessage a, StoredMessage b, int operation):
    """Order by physical offset, then by bytes."""
    left = (a._physical_offset, a._bytes())
    right = (b._physical_offset, b._bytes())
    if operation == 0:
        return left < right
    if operation == 1:
        return left <= right
    if operation == 2:
        return left == right
    if operation == 3:
        return left != right
    return left > right if operation == 4 else left >= right
