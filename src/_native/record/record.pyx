"""Commit-log records: check, parse, encode, search; hosts and properties as stored.

Contract: ``record.pyi``. Every read of a caller's buffer runs inside ``rs_guarded``, because the
buffer may be a mapping whose file gets shorter.
"""

from cpython.buffer cimport PyBuffer_Release
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.unicode cimport PyUnicode_Check
from libc.stdint cimport INT32_MAX, UINT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from rs_arguments cimport rs_check_range, rs_get_bytes
from rs_copy cimport rs_copied_buffer, rs_raise_fault, rs_run_crc, rs_run_hash, rs_run_over
from rs_crc cimport rs_crc32, rs_crc_import
from rs_encode cimport (
    rs_encode_record, rs_needs_separator, rs_record_fields, rs_record_nbytes,
    rs_stored_properties_nbytes,
)
from rs_formats cimport (
    RS_MAX_PROPERTIES_NBYTES, RS_MAX_TOPIC_LENGTH, RS_NAME_VALUE_SEPARATOR, RS_PROPERTY_SEPARATOR,
    rs_parsed_record,
)
from rs_guard cimport rs_guard_import, rs_guarded
from rs_hash cimport rs_string_hash
from rs_java_order cimport (
    rs_java_nbytes, rs_java_order, rs_java_pair, rs_java_parse, rs_java_room, rs_java_write,
)
from rs_hosts cimport rs_format_host, rs_message_id, rs_parse_host, rs_stored_host
from rs_record cimport RS_CRC_MASK
from rs_scan cimport (
    rs_check_one, rs_crc_mark_count, rs_find_record, rs_scan, rs_scan_records,
)
from rs_status cimport RS_CHECK_BODY_CRC, RS_FAULT, RS_LIMIT, RS_OK
from rs_java_text cimport rs_decode_properties

rs_guard_import()
rs_crc_import()

cdef str NAME_VALUE = chr(RS_NAME_VALUE_SEPARATOR)
cdef str PAIR = chr(RS_PROPERTY_SEPARATOR)
#: A Java HashMap does not grow further.
cdef int64_t MOST_BUCKETS = 1 << 30


# --- Pure functions ---------------------------------------------------------------------------

def crc32(data, int64_t value=0, /):
    """Return the CRC-32 of ``data``, continuing from ``value``."""
    return rs_run_over(data, rs_run_crc, <uint32_t>value)


def string_hash_code(text, /):
    """Return Java's ``String.hashCode`` of UTF-8 bytes."""
    return <int32_t>rs_run_over(text, rs_run_hash, 0)


# --- Records ----------------------------------------------------------------------------------

cdef int scan_range(buffer, Py_buffer* view, rs_scan* scan, int64_t position, int64_t stop,
                    int64_t base_offset, int64_t segment_end, int64_t flags) except -1:
    """Take the record buffer into ``view`` (the caller releases it) and prepare ``scan``."""
    rs_get_bytes(buffer, view, False)
    rs_check_range(view, position, stop, base_offset, segment_end)
    memset(scan, 0, sizeof(rs_scan))
    scan.buffer = <const uint8_t*>view.buf
    scan.position = position
    scan.stop = stop
    scan.base_offset = base_offset
    scan.segment_end = segment_end
    scan.flags = <int32_t>(flags & INT32_MAX)
    return 0


def check_record(buffer, int64_t position, int64_t stop, int64_t base_offset, int64_t segment_end,
                 int64_t flags=RS_CHECK_BODY_CRC, /):
    """Check one record strictly; return (status, bytes to skip)."""
    cdef Py_buffer view
    cdef rs_scan scan
    cdef int status
    memset(&view, 0, sizeof(view))
    try:
        scan_range(buffer, &view, &scan, position, stop, base_offset, segment_end, flags)
        with nogil:
            status = rs_guarded(rs_check_one, &scan)
        return status, scan.position - position
    finally:
        PyBuffer_Release(&view)


cdef int64_t* delays(delay_ms) except? NULL:
    """Return the delay levels as a C array that the caller frees; NULL if there are none."""
    cdef Py_ssize_t count = len(delay_ms), i
    cdef int64_t* values
    if count == 0:
        return NULL
    if count > INT32_MAX:
        raise ValueError(f"delay_ms has {count} levels")
    values = <int64_t*>PyMem_Malloc(<size_t>count * sizeof(int64_t))
    if values == NULL:
        raise MemoryError
    try:
        for i in range(count):
            values[i] = delay_ms[i]
    except BaseException:
        PyMem_Free(values)
        raise
    return values


def scan_records(buffer, int64_t position, int64_t stop, int64_t base_offset, int64_t segment_end,
                 int64_t flags, out, delay_ms=(), /):
    """Parse consecutive records into the rows of ``out``; return (rows, next position, status)."""
    cdef Py_buffer view, rows
    cdef rs_scan scan
    cdef int64_t* levels = NULL
    cdef int status
    memset(&view, 0, sizeof(view))
    memset(&rows, 0, sizeof(rows))
    try:
        scan_range(buffer, &view, &scan, position, stop, base_offset, segment_end, flags)
        levels = delays(delay_ms)
        scan.delay_ms = levels
        scan.delay_count = <int32_t>len(delay_ms)
        rs_get_bytes(out, &rows, True)
        if rows.len % <Py_ssize_t>sizeof(rs_parsed_record):
            raise ValueError(
                f"out must hold whole rows of {sizeof(rs_parsed_record)} bytes, "
                f"not {rows.len} bytes"
            )
        if stop > INT32_MAX:
            raise ValueError(f"stop {stop} is too large for a row's position")
        scan.rows = <uint8_t*>rows.buf
        scan.capacity = rows.len // <Py_ssize_t>sizeof(rs_parsed_record)
        with nogil:
            status = rs_guarded(rs_scan_records, &scan)
        return scan.count, scan.position, status
    finally:
        PyMem_Free(levels)
        PyBuffer_Release(&rows)
        PyBuffer_Release(&view)


cdef int find(rs_scan* scan) except -1:
    """Search; with CRC marks if too many bodies had to be read."""
    cdef int status
    with nogil:
        status = rs_guarded(rs_find_record, scan)
    if status == RS_LIMIT:
        scan.marks = <uint32_t*>PyMem_Malloc(
            rs_crc_mark_count(<uint64_t>(scan.stop - scan.position)) * sizeof(uint32_t)
        )
        if scan.marks == NULL:
            raise MemoryError
        with nogil:
            status = rs_guarded(rs_find_record, scan)
    if status == RS_FAULT:
        rs_raise_fault()
    return status


def find_record(buffer, int64_t position, int64_t stop, int64_t base_offset,
                int64_t segment_end, /):
    """Return the position of the first valid record at its own offset, or -1."""
    cdef Py_buffer view
    cdef rs_scan scan
    memset(&view, 0, sizeof(view))
    memset(&scan, 0, sizeof(scan))
    try:
        scan_range(buffer, &view, &scan, position, stop, base_offset, segment_end, 0)
        return scan.count if find(&scan) == RS_OK else -1
    finally:
        PyMem_Free(scan.marks)
        PyBuffer_Release(&view)


# --- Text and properties ----------------------------------------------------------------------

def parse_properties(data, /):
    """Return the properties that RocketMQ reads from their stored bytes."""
    cdef bytes stored = rs_copied_buffer(data)
    return rs_decode_properties(<const uint8_t*>PyBytes_AS_STRING(stored), len(stored))


def encode_properties(properties, bint trailing_separator, /):
    """Return the stored bytes of properties; those that are ``None`` are left out."""
    cdef list items = []
    for name, value in properties.items():
        if value is None:
            continue
        if not PyUnicode_Check(name) or not PyUnicode_Check(value):
            raise TypeError("property names and values must be str")
        item = name + NAME_VALUE + value
        if not name or "\0" in item or PAIR in item or item.count(NAME_VALUE) != 1:
            raise ValueError(f"property {name!r} is empty or holds \\x00, \\x01 or \\x02")
        items.append(item)
    text = PAIR.join(items)
    if items and trailing_separator:
        text += PAIR
    return text.encode("utf-8", "replace")


def hash_map_order(names, int64_t buckets, /):
    """Return names in the order of a Java ``HashMap`` into which they are put in turn."""
    cdef list kept = list(names)
    cdef uint32_t size, spread, length = 0
    cdef bytes data
    cdef Py_ssize_t number
    if not 0 < buckets <= MOST_BUCKETS or buckets & (buckets - 1):
        raise ValueError(f"buckets must be a power of two, not {buckets}")
    size = <uint32_t>buckets
    while 4 * <uint64_t>len(kept) > 3 * <uint64_t>size and size < MOST_BUCKETS:
        size *= 2
    cdef list places = []
    for number in range(len(kept)):
        name = kept[number]
        if not PyUnicode_Check(name):
            raise TypeError(f"a property's name must be str, not {type(name).__name__}")
        data = name.encode("utf-8", "replace")
        spread = <uint32_t>rs_string_hash(
            <const uint8_t*>PyBytes_AS_STRING(data), <size_t>len(data), &length)
        places.append(<uint64_t>((spread ^ spread >> 16) & (size - 1)) << 32 | <uint64_t>number)
    places.sort()
    return [kept[<uint64_t>place & UINT32_MAX] for place in places]


def rewritten_properties(properties, int64_t buckets, bint trailing_separator, /):
    """Return the bytes that a broker stores when it writes these properties again."""
    order = hash_map_order(properties, buckets)
    return encode_properties({name: properties[name] for name in order}, trailing_separator)


def reordered_properties(data, int64_t buckets, bint trailing_separator, /):
    """Return stored properties as a broker writes them again; the bytes stay as they are."""
    cdef bytes stored = rs_copied_buffer(data)
    cdef const uint8_t* p = <const uint8_t*>PyBytes_AS_STRING(stored)
    cdef rs_java_pair* pairs
    cdef int32_t nbytes, count, room
    cdef bytes result
    if not 0 < buckets <= MOST_BUCKETS or buckets & (buckets - 1):
        raise ValueError(f"buckets must be a power of two, not {buckets}")
    if len(stored) > RS_MAX_PROPERTIES_NBYTES:
        raise ValueError(
            f"properties of {len(stored)} bytes are longer than {RS_MAX_PROPERTIES_NBYTES}")
    nbytes = <int32_t>len(stored)
    room = rs_java_room(p, nbytes)
    pairs = <rs_java_pair*>PyMem_Malloc(<size_t>room * sizeof(rs_java_pair))
    if pairs == NULL:
        raise MemoryError
    try:
        count = rs_java_parse(p, nbytes, pairs, room)
        rs_java_order(pairs, count, <uint32_t>buckets)
        result = PyBytes_FromStringAndSize(
            NULL, <Py_ssize_t>rs_java_nbytes(pairs, count, trailing_separator))
        rs_java_write(<uint8_t*>PyBytes_AS_STRING(result), pairs, count, trailing_separator)
    finally:
        PyMem_Free(pairs)
    return result


# --- Hosts ------------------------------------------------------------------------------------

def parse_host(host, /):
    """Return the 8 or 20 stored bytes of ``"10.0.0.1:1234"`` or ``"[2001:db8::1]:1234"``."""
    return rs_parse_host(host)


def format_host(data, /):
    """Return the text of a stored host; the port is shown as it is stored."""
    cdef bytes host = rs_stored_host(data)
    return rs_format_host(<const uint8_t*>PyBytes_AS_STRING(host), len(host))


def message_id(store_host, int64_t physical_offset, /):
    """Return the offsetMsgId: upper-case hex of the stored host and the offset."""
    cdef bytes host = rs_stored_host(store_host)
    return rs_message_id(<const uint8_t*>PyBytes_AS_STRING(host), len(host), physical_offset)


# --- Encoding ---------------------------------------------------------------------------------

cdef struct Encoding:
    rs_record_fields fields
    uint8_t* record
    int32_t total_size


cdef int encode(void* argument) noexcept nogil:
    cdef Encoding* call = <Encoding*>argument
    call.fields.body_crc = <int32_t>(
        rs_crc32(0, call.fields.body, <size_t>call.fields.body_nbytes) & RS_CRC_MASK
    )
    rs_encode_record(call.record, call.total_size, &call.fields)
    return RS_OK


cdef int32_t to_int32(int64_t value, str name) except? -1:
    if value != <int32_t>value:
        raise ValueError(f"{name} {value} does not fit 32 bits")
    return <int32_t>value


cdef int check_encoding(rs_record_fields* fields, int64_t topic_nbytes, int64_t body_nbytes,
                        int64_t properties_nbytes) except -1:
    """Set the lengths; raise if they do not fit the record's fields."""
    cdef int64_t limit = RS_MAX_TOPIC_LENGTH if fields.version == 1 else RS_MAX_PROPERTIES_NBYTES
    cdef int64_t stored_nbytes, total
    if not 0 < topic_nbytes <= limit:
        raise ValueError(f"the topic has {topic_nbytes} bytes, not 1 to {limit}")
    fields.topic_nbytes = <int32_t>topic_nbytes
    fields.properties_nbytes = fields.body_nbytes = 0
    stored_nbytes = rs_stored_properties_nbytes(fields) + properties_nbytes
    if stored_nbytes > RS_MAX_PROPERTIES_NBYTES:
        raise ValueError(
            f"the properties have {stored_nbytes} bytes, more than {RS_MAX_PROPERTIES_NBYTES}"
        )
    total = rs_record_nbytes(fields) + properties_nbytes + body_nbytes
    if total > INT32_MAX:
        raise ValueError(f"a record of {total} bytes is too long")
    fields.properties_nbytes = <int32_t>properties_nbytes
    fields.body_nbytes = <int32_t>body_nbytes
    return 0


cdef bytes encode_fields(rs_record_fields* fields):
    cdef Encoding call
    cdef int status
    cdef bytes record = PyBytes_FromStringAndSize(NULL, rs_record_nbytes(fields))
    call.fields = fields[0]
    call.record = <uint8_t*>PyBytes_AS_STRING(record)
    call.total_size = <int32_t>rs_record_nbytes(fields)
    with nogil:
        status = rs_guarded(encode, &call)
    if status == RS_FAULT:
        rs_raise_fault()
    return record


def encode_record(topic, body, int64_t queue_id, int64_t queue_offset, int64_t physical_offset,
                  int64_t flag, int64_t sys_flag, int64_t born_timestamp, born_host,
                  int64_t store_timestamp, store_host, int64_t reconsume_times,
                  int64_t prepared_transaction_offset, properties, int64_t version=1,
                  bint property_crc=False, /):
    """Return one whole record."""
    cdef rs_record_fields fields
    cdef Py_buffer content
    cdef bytes name, stored, born, store
    memset(&content, 0, sizeof(content))
    memset(&fields, 0, sizeof(fields))
    if not PyUnicode_Check(topic):
        raise TypeError(f"topic must be str, not {type(topic).__name__}")
    fields.queue_id = to_int32(queue_id, "queue_id")
    fields.flag = to_int32(flag, "flag")
    fields.sys_flag = to_int32(sys_flag, "sys_flag")
    fields.reconsume_times = to_int32(reconsume_times, "reconsume_times")
    fields.queue_offset = queue_offset
    fields.physical_offset = physical_offset
    fields.born_timestamp = born_timestamp
    fields.store_timestamp = store_timestamp
    fields.prepared_transaction_offset = prepared_transaction_offset
    if version not in (1, 2):
        raise ValueError(f"version must be 1 or 2, not {version}")
    fields.version = <int32_t>version
    name = topic.encode("utf-8", "replace")
    fields.topic = <const uint8_t*>PyBytes_AS_STRING(name)
    try:
        rs_get_bytes(body, &content, False)
        stored = rs_copied_buffer(properties)
        born, store = rs_parse_host(born_host), rs_parse_host(store_host)
        fields.body = <const uint8_t*>content.buf
        fields.properties = <const uint8_t*>PyBytes_AS_STRING(stored)
        fields.born_host = <const uint8_t*>PyBytes_AS_STRING(born)
        fields.born_host_nbytes = <int32_t>len(born)
        fields.store_host = <const uint8_t*>PyBytes_AS_STRING(store)
        fields.store_host_nbytes = <int32_t>len(store)
        fields.property_crc = property_crc
        fields.separator = rs_needs_separator(
            fields.properties, <int32_t>min(len(stored), RS_MAX_PROPERTIES_NBYTES)
        )
        check_encoding(&fields, len(name), content.len, len(stored))
        return encode_fields(&fields)
    finally:
        PyBuffer_Release(&content)
