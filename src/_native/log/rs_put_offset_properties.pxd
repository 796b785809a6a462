# Properties with values known only at the append: native twin of _reference/offset_properties.py.
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.stddef cimport size_t
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset

from rs_appender cimport (
    RS_LATE_VALUE_NBYTES,
    rs_appender,
    rs_offset_properties,
    rs_light_queue,
    rs_put_record,
    rs_topic_hash,
    rs_topic_queue_hash,
)
from rs_encode cimport rs_needs_separator, rs_record_nbytes, rs_stored_properties_nbytes
from rs_formats cimport *
from rs_put_properties cimport rs_java_utf8
from rs_put_text cimport rs_has_light_prefix
from rs_status cimport (
    RS_APPEND_MESSAGE_SIZE_EXCEEDED,
    RS_APPEND_PROPERTIES_SIZE_EXCEEDED,
    RS_APPEND_UNKNOWN_ERROR,
    RS_PUT_MESSAGE_ILLEGAL,
    RS_PUT_PROPERTIES_SIZE_EXCEEDED,
    RS_PUT_UNKNOWN_ERROR,
)

cdef enum:
    # LightOffsets of the dialect.
    RS_LIGHT_ANY_NAME = 1
    RS_LIGHT_QUEUED = 2
    RS_LIGHT_ALL = 3

# Settings of light queues and inner batches; the appender owns the objects they point to.
ctypedef struct rs_offset_rules:
    PyObject *dialect
    PyObject *batch_topics  # a frozenset
    int light_offsets
    bint gives_offsets  # offsets in light queues are enabled
    bint counts_on
    bint enable_lmq
    bint quota
    int64_t max_light_count  # -1: no limit


cdef inline int rs_take_offset_rules(rs_offset_rules *rules, object dialect, bint enable_lmq,
                                   bint enable_multi_dispatch, int64_t max_count,
                                   bint enable_quota) except -1:
    rules.dialect = <PyObject *> dialect
    rules.light_offsets = dialect.light_offsets
    rules.gives_offsets = enable_lmq if dialect.light_offsets_by_lmq else enable_multi_dispatch
    rules.counts_on = dialect.light_offsets_count_on
    rules.enable_lmq = enable_lmq
    rules.quota = dialect.light_limit and rules.light_offsets == RS_LIGHT_ALL
    rules.max_light_count = -1
    if dialect.light_limit and enable_lmq and enable_multi_dispatch and (
            enable_quota or not rules.quota):
        rules.max_light_count = max_count
    return 0


cdef inline str rs_record_topic(const rs_put_record *record):
    return record.fields.topic[: record.fields.topic_nbytes].decode("ascii")


cdef inline bint rs_on_batch_topic(const rs_offset_rules *rules,
                                   const rs_put_record *record) except -1:
    return rs_record_topic(record) in <object> rules.batch_topics


cdef inline bint rs_is_blank(str value) except -1:
    """Return whether Java sees the text as blank."""
    for unit in value:
        if not unit.isspace() or unit in "\x85\xa0\u2007\u202f":
            return False
    return True


cdef inline list rs_light_names(str value):
    """Return the names in INNER_MULTI_DISPATCH, split as in Java; raise for an invalid one."""
    cdef list names = value.split(RS_MULTI_DISPATCH_SEPARATOR.decode())
    while names and not names[len(names) - 1]:
        names.pop()
    for name in names or [""]:
        if rs_is_unsafe_name(name):
            raise ValueError(
                f"{RS_PROPERTY_INNER_MULTI_DISPATCH.decode()} {value!r} names {name!r}, "
                "which cannot be a queue")
    return names


cdef inline bint rs_is_unsafe_name(str name) except -1:
    if name in ("", ".", ".."):
        return True
    for unit in name:
        if unit <= "\x1f" or unit == "\x7f" or unit == "/":
            return True
    return False


cdef inline list rs_named_queues(const rs_offset_rules *rules, const rs_put_record *record,
                                 bint queued, dict pairs):
    """Return the names of queues in which the append assigns offsets; None without any."""
    if not rules.gives_offsets:
        return None
    value = pairs.get(RS_PROPERTY_INNER_MULTI_DISPATCH.decode())
    if value is None or rs_is_blank(value):
        return None
    if not (<object> rules.dialect).gives_light_offsets(rs_record_topic(record)):
        return None
    if rules.light_offsets == RS_LIGHT_QUEUED and (
            not queued or rs_on_batch_topic(rules, record)):
        return None
    return rs_light_names(value)


cdef inline int rs_make_places(const rs_offset_rules *rules, bint has_base, bint has_lights,
                               dict pairs) except -1:
    """Add the properties that the append fills in, with empty values."""
    if has_base:
        pairs[RS_PROPERTY_INNER_BASE.decode()] = ""
    if has_lights:
        wait = pairs.pop(RS_PROPERTY_WAIT.decode(), None)
        pairs[RS_PROPERTY_INNER_MULTI_QUEUE_OFFSET.decode()] = ""
        if wait is not None and rules.light_offsets == RS_LIGHT_ALL:
            pairs[RS_PROPERTY_WAIT.decode()] = wait
    return 0


cdef inline int32_t rs_place_of(const char *name, dict pairs) except -2:
    """Return the position of ``name``'s value in the encoded pairs."""
    cdef size_t at = 0
    cdef str wanted = name.decode()
    for key, value in pairs.items():
        at += <size_t> len(rs_java_utf8(key)) + 1
        if key == wanted:
            return <int32_t> min(at, <size_t> INT32_MAX)
        at += <size_t> len(rs_java_utf8(value)) + 1
    return -1


cdef inline rs_offset_properties *rs_offset_block(size_t light_count, size_t text_nbytes,
                                                  size_t fixed_nbytes, list holds) except NULL:
    """Return memory for a record's late properties, kept by ``holds``; zeroed except texts."""
    cdef size_t nbytes = sizeof(rs_offset_properties) + light_count * sizeof(rs_light_queue)
    cdef size_t values_nbytes = (light_count + 1) * <size_t> RS_LATE_VALUE_NBYTES
    cdef bytes block = PyBytes_FromStringAndSize(
        NULL, <Py_ssize_t> (nbytes + text_nbytes + 2 * fixed_nbytes + values_nbytes))
    cdef rs_offset_properties *late = <rs_offset_properties *> PyBytes_AS_STRING(block)
    memset(late, 0, nbytes)
    late.lights = <rs_light_queue *> (late + 1)
    late.fixed = <uint8_t *> (late.lights + light_count) + text_nbytes
    late.out = <uint8_t *> late.fixed + fixed_nbytes
    late.fixed_nbytes = <int32_t> fixed_nbytes
    late.light_count = <int32_t> light_count
    late.lights_at = late.base_at = -1
    holds.append(block)
    return late


cdef inline int rs_set_limits(const rs_offset_rules *rules, rs_offset_properties *late,
                              bint has_lights, int64_t max_nbytes, int64_t extra) noexcept:
    """Set the limits for a record with late properties."""
    late.max_light_count = rules.max_light_count if has_lights else -1
    late.quota = rules.quota
    late.max_record_nbytes = max_nbytes + extra
    late.properties.status = RS_PUT_PROPERTIES_SIZE_EXCEEDED
    late.size.status = RS_PUT_MESSAGE_ILLEGAL
    late.properties.append_status = late.size.append_status = -1
    if has_lights and rules.light_offsets == RS_LIGHT_ALL:
        late.body_first = True
        late.max_record_nbytes = max_nbytes
        late.properties.status = RS_PUT_MESSAGE_ILLEGAL
        late.properties.append_status = RS_APPEND_PROPERTIES_SIZE_EXCEEDED
        late.size.append_status = RS_APPEND_MESSAGE_SIZE_EXCEEDED
    elif has_lights and rules.light_offsets == RS_LIGHT_ANY_NAME:
        late.size.status = RS_PUT_UNKNOWN_ERROR
        late.size.append_status = RS_APPEND_UNKNOWN_ERROR
        late.properties = late.size
    return 0


cdef inline bint rs_set_lights(const rs_offset_rules *rules, const rs_appender *state,
                               rs_offset_properties *late, list names, list texts,
                               int32_t queue_id) except -1:
    """Set the light queues; return False if a name is too long for a folder."""
    cdef rs_light_queue *light = late.lights
    cdef uint8_t *out = <uint8_t *> (late.lights + late.light_count)
    cdef dict seen = {}
    cdef bytes text
    cdef bint is_light
    cdef bint fits = True
    for name, encoded in zip(names, texts):
        text = encoded
        is_light = rules.enable_lmq and rs_has_light_prefix(
            <const uint8_t *> PyBytes_AS_STRING(text), <size_t> len(text))
        if is_light or rules.light_offsets == RS_LIGHT_ANY_NAME:
            light.topic = out
            light.topic_nbytes = <int32_t> len(text)
            light.queue_id = 0 if is_light else queue_id
            memcpy(out, PyBytes_AS_STRING(text), <size_t> len(text))
            out += len(text)
            light.hash = rs_topic_queue_hash(
                rs_topic_hash(&state.queues, light.topic, light.topic_nbytes), light.queue_id)
            light.earlier = seen.get(name, 0) if rules.counts_on else 0
            seen[name] = seen.get(name, 0) + 1
            fits = fits and light.topic_nbytes <= RS_MAX_FOLDER_NAME_NBYTES
        light += 1
    return fits


cdef inline bint rs_pack_offset_properties(const rs_offset_rules *rules, const rs_appender *state,
                              rs_put_record *record, const uint8_t *fixed, size_t fixed_nbytes,
                              bint queued, dict pairs, list names, list holds) except -1:
    """Make the late properties of a record from its encoded pairs; False as ``rs_set_lights``."""
    cdef list texts = [rs_java_utf8(name) for name in names or ()]
    cdef size_t text_nbytes = sum(map(len, texts))
    cdef rs_offset_properties *late = rs_offset_block(<size_t> len(texts), text_nbytes,
                                                      fixed_nbytes, holds)
    memcpy(<uint8_t *> late.fixed, fixed, fixed_nbytes)
    late.takes = queued or rules.light_offsets == RS_LIGHT_ALL
    late.absolute = rules.light_offsets == RS_LIGHT_ANY_NAME
    record.late = late
    if names is None:
        return True
    late.lights_at = rs_place_of(RS_PROPERTY_INNER_MULTI_QUEUE_OFFSET, pairs)
    return rs_set_lights(rules, state, late, names, texts, record.fields.queue_id)


cdef inline int rs_size_offset_properties(rs_put_record *record, bint property_crc,
                                          int64_t body_nbytes, int64_t max_body_nbytes) noexcept:
    """Set the lengths, with empty values; refuse a record that is too long already."""
    cdef const rs_offset_properties *late = record.late
    cdef bint long_body = body_nbytes > max_body_nbytes
    record.nbytes = 0
    record.fields.properties = late.fixed
    record.fields.properties_nbytes = late.fixed_nbytes
    if property_crc:
        record.fields.separator = rs_needs_separator(late.fixed, late.fixed_nbytes)
    if late.body_first and long_body:
        record.status = RS_PUT_MESSAGE_ILLEGAL
    elif rs_stored_properties_nbytes(&record.fields) > RS_MAX_PROPERTIES_NBYTES:
        record.status = late.properties.status
        record.append_status = late.properties.append_status
    elif long_body:
        record.status = late.size.status
        record.append_status = late.size.append_status
    else:
        record.fields.body_nbytes = <int32_t> body_nbytes
        record.nbytes = rs_record_nbytes(&record.fields)
    return 0
