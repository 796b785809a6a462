# The limits and transforms of a put, in RocketMQ's order: the native twin of
# _reference/put_record.py. The rules use a dict of properties; rs_put_plain.pxd is for messages
# that need none.
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.object cimport PyObject
from libc.stddef cimport size_t
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t
from libc.string cimport strlen

from rs_appender cimport rs_appender, rs_put_record, rs_topic_hash
from rs_encode cimport rs_needs_separator, rs_record_nbytes, rs_stored_properties_nbytes
from rs_formats cimport *
from rs_put_offset_properties cimport (
    rs_offset_rules,
    rs_make_places,
    rs_named_queues,
    rs_on_batch_topic,
    rs_pack_offset_properties,
    rs_place_of,
    rs_set_limits,
    rs_size_offset_properties,
)
from rs_put_arguments cimport rs_to_integer
from rs_put_properties cimport (
    rs_delay_level,
    rs_encode_pairs,
    rs_java_utf8,
    rs_wants_wait,
)
from rs_properties cimport rs_parse_int
from rs_put_text cimport (
    RS_NAME_CRC,
    RS_NAME_HOOKS,
    RS_NAME_MULTI,
    rs_is_retry_topic,
    rs_is_schedule_topic,
    rs_is_timer_topic,
    rs_scratch,
    rs_utf16_length,
)
from rs_status cimport (
    RS_APPEND_MESSAGE_SIZE_EXCEEDED,
    RS_PUT_MESSAGE_ILLEGAL,
    RS_PUT_PROPERTIES_SIZE_EXCEEDED,
    RS_PUT_WHEEL_TIMER_NOT_ENABLE,
)

ctypedef struct rs_put_rules:
    # Behavior of the version, see Dialect.
    bint limits_in_characters
    bint long_retry_topics
    bint record_version_2
    bint hooks  # the broker's checks of 5.x
    bint record_extra
    bint trailing_separator
    bint joins_batch_properties
    bint drops_batch_properties
    # Settings of the store.
    bint property_crc
    int32_t delay_level_count
    int64_t max_message_size
    int64_t segment_nbytes
    rs_offset_rules late
    int names  # the kinds of property names that need these rules
    # The timer's rules and the appender's clock (or None); NULL: timer messages are refused.
    PyObject *timer
    PyObject *clock


cdef inline int rs_take_dialect(rs_put_rules *rules, object dialect) except -1:
    from rocketstore.dialect import BatchProperties
    rules.limits_in_characters = dialect.limits_in_characters
    rules.long_retry_topics = dialect.long_retry_topics
    rules.record_version_2 = dialect.record_version_2
    rules.hooks = dialect.version >= (5, 0, 0)
    rules.record_extra = dialect.record_extra
    rules.trailing_separator = dialect.trailing_separator
    rules.joins_batch_properties = dialect.batch_properties == BatchProperties.JOINED
    rules.drops_batch_properties = dialect.batch_properties == BatchProperties.DROPPED
    rules.names = RS_NAME_HOOKS if rules.hooks else 0
    if rules.property_crc:
        rules.names |= RS_NAME_CRC
    if rules.late.gives_offsets:
        rules.names |= RS_NAME_MULTI
    return 0


cdef inline int rs_take_timer_rules(rs_put_rules *rules, object timer, object clock) except -1:
    """Refer to both, which the appender keeps."""
    rules.timer = NULL if timer is None else <PyObject *> timer
    rules.clock = <PyObject *> clock
    return 0


cdef inline int rs_refuse(rs_put_record *record, int32_t status, int32_t append_status) noexcept:
    record.status = status
    record.append_status = append_status
    record.nbytes = 0
    return 0


cdef inline bint rs_is_queued(const rs_put_record *record) noexcept nogil:
    """Return whether the record takes a queue offset."""
    return not record.fields.sys_flag & RS_SYS_FLAG_TRANSACTION_PREPARED


# --- Limits and transforms ----------------------------------------------------------------------


cdef inline int rs_finish_record(const rs_put_rules *rules, const rs_appender *state,
                                 rs_put_record *record, rs_scratch *scratch, size_t *start,
                                 int64_t body_nbytes, dict pairs, list holds) except -1:
    """Check and transform a single message; its properties go to ``scratch`` from ``start``.

    ``holds`` keeps what the record points at besides.
    """
    cdef int refusal
    cdef size_t nbytes
    cdef bint has_base
    cdef list names
    record.waits = rs_wants_wait(pairs)
    if not rs_topic_fits(rules, record):
        return rs_refuse(record, RS_PUT_MESSAGE_ILLEGAL, -1)
    refusal = rs_hook_status(rules, record, pairs)
    if refusal < 0:
        refusal = rs_time_record(rules, state, record, pairs)
    if refusal >= 0:
        return rs_refuse(record, refusal, -1)
    start[0] = scratch.used
    if rules.limits_in_characters:
        rs_encode_pairs(scratch, pairs, rules.trailing_separator)
        nbytes = rs_utf16_length(scratch.data + start[0], scratch.used - start[0])
        scratch.used = start[0]
        if nbytes > RS_MAX_PROPERTIES_NBYTES:
            return rs_refuse(record, RS_PUT_MESSAGE_ILLEGAL, -1)
    rs_delay_record(rules, state, record, pairs)
    if rules.property_crc:
        pairs.pop(RS_PROPERTY_CRC32.decode(), None)
    rs_set_version(rules, record)
    has_base = rs_is_inner_batch(rules, record) and rs_is_queued(record)
    names = rs_named_queues(&rules.late, record, rs_is_queued(record), pairs)
    if has_base or names is not None:
        rs_make_places(&rules.late, has_base, names is not None, pairs)
    rs_encode_pairs(scratch, pairs, rules.trailing_separator)
    nbytes = scratch.used - start[0]
    if has_base or names is not None:
        return rs_finish_offset_properties(rules, state, record, scratch.data + start[0], nbytes,
                                           body_nbytes, pairs, has_base, names, holds)
    if nbytes > RS_MAX_PROPERTIES_NBYTES:
        return rs_refuse(record, RS_PUT_PROPERTIES_SIZE_EXCEEDED, -1)
    return rs_set_lengths(
        rules, record, scratch.data + start[0], <int32_t> nbytes, body_nbytes)


cdef inline int rs_finish_offset_properties(const rs_put_rules *rules, const rs_appender *state,
                               rs_put_record *record, const uint8_t *fixed, size_t fixed_nbytes,
                               int64_t body_nbytes, dict pairs, bint has_base, list names,
                               list holds) except -1:
    """The same for a message with properties that only the append can fill in."""
    cdef int64_t extra = RS_RECORD_EXTRA_NBYTES if rules.record_extra else 0
    # Properties above the limit cannot be stored; one byte too many is enough to refuse them.
    cdef size_t kept = min(fixed_nbytes, <size_t> RS_MAX_PROPERTIES_NBYTES + 1)
    cdef bint fits = rs_pack_offset_properties(&rules.late, state, record, fixed, kept,
                                               rs_is_queued(record), pairs, names, holds)
    if has_base:
        record.late.base_at = rs_place_of(RS_PROPERTY_INNER_BASE, pairs)
    rs_set_limits(&rules.late, record.late, names is not None, rules.max_message_size, extra)
    if not fits:
        return rs_refuse(record, RS_PUT_MESSAGE_ILLEGAL, -1)
    return rs_size_offset_properties(record, rules.property_crc, body_nbytes,
                                     rules.max_message_size)


cdef inline int rs_set_lengths(const rs_put_rules *rules, rs_put_record *record,
                               const uint8_t *properties, int32_t properties_nbytes,
                               int64_t body_nbytes) noexcept:
    """Set the lengths; refuse a record that is too long for a limit or for any segment."""
    cdef int64_t most = rules.max_message_size
    record.fields.properties = properties
    record.fields.properties_nbytes = properties_nbytes
    if rules.property_crc:
        record.fields.separator = rs_needs_separator(properties, properties_nbytes)
    if rs_stored_properties_nbytes(&record.fields) > RS_MAX_PROPERTIES_NBYTES:
        return rs_refuse(record, RS_PUT_PROPERTIES_SIZE_EXCEEDED, -1)
    if body_nbytes > most:
        return rs_refuse(record, RS_PUT_MESSAGE_ILLEGAL, -1)
    record.fields.body_nbytes = <int32_t> body_nbytes
    record.nbytes = rs_record_nbytes(&record.fields)
    if rules.record_extra:
        most += RS_RECORD_EXTRA_NBYTES
    if record.nbytes > most:
        return rs_refuse(record, RS_PUT_MESSAGE_ILLEGAL, -1)
    if record.nbytes + RS_BLANK_NBYTES > rules.segment_nbytes:
        return rs_refuse(record, RS_PUT_MESSAGE_ILLEGAL, RS_APPEND_MESSAGE_SIZE_EXCEEDED)
    return 0


cdef inline bint rs_topic_fits(const rs_put_rules *rules, const rs_put_record *record) noexcept:
    """Return whether the topic is short enough (it is ASCII, so units are bytes)."""
    cdef int32_t nbytes = record.fields.topic_nbytes
    if rules.long_retry_topics and rs_is_retry_topic(record.fields.topic, <size_t> nbytes):
        return nbytes <= RS_MAX_RETRY_TOPIC_NBYTES
    return nbytes <= RS_MAX_TOPIC_LENGTH


cdef inline void rs_set_version(const rs_put_rules *rules, rs_put_record *record) noexcept:
    cdef bint is_long = record.fields.topic_nbytes > RS_MAX_TOPIC_LENGTH
    record.fields.version = 2 if rules.record_version_2 and is_long else 1


cdef inline tuple rs_timer_names():
    return (
        RS_PROPERTY_TIMER_DELIVER_MS.decode(),
        RS_PROPERTY_TIMER_DELAY_SEC.decode(),
        RS_PROPERTY_TIMER_DELAY_MS.decode(),
    )


cdef inline bint rs_is_inner_batch(const rs_put_rules *rules,
                                   const rs_put_record *record) noexcept:
    return rules.hooks and record.fields.sys_flag & RS_SYS_FLAG_INNER_BATCH


cdef inline int32_t rs_inner_count(dict pairs) except -1:
    """Return the number of messages of an inner batch from its property; 0 if it is invalid."""
    cdef bytes text
    cdef int32_t count
    value = pairs.get(RS_PROPERTY_INNER_NUM.decode())
    if value is None:
        return 1
    text = rs_java_utf8(value)
    if len(text) > INT32_MAX:
        return 0
    count = rs_parse_int(<const uint8_t *> PyBytes_AS_STRING(text), <int32_t> len(text))
    return count if 1 <= count <= RS_MAX_INNER_BATCH_COUNT else 0


cdef inline bint rs_fits_topic(const rs_put_rules *rules, rs_put_record *record,
                               dict pairs) except -1:
    """Return whether an inner batch is on a batch topic, stays there, and has a valid count.

    RocketMQ raises for a count that is not a short. It counts a number below 1 as 1 but
    dispatches it unchanged; then the queue cannot be recovered.
    """
    if not rs_is_inner_batch(rules, record):
        return RS_PROPERTY_INNER_NUM.decode() not in pairs
    if not rs_on_batch_topic(&rules.late, record) or rs_transforms(rules, record, pairs):
        return False
    record.width = rs_inner_count(pairs)
    return record.width >= 1


cdef inline int rs_hook_status(const rs_put_rules *rules, rs_put_record *record,
                               dict pairs) except -2:
    """Run the broker's inner-batch and timer checks; -1: passed. A delay clears timer
    properties."""
    if not rules.hooks:
        return -1
    if not rs_fits_topic(rules, record, pairs):
        return RS_PUT_MESSAGE_ILLEGAL
    if not rs_is_queued(record):
        return -1
    if rs_is_timer_topic(record.fields.topic, <size_t> record.fields.topic_nbytes):
        return -1
    if rs_delay_level(pairs) > 0:
        if rs_transforms(rules, record, pairs):
            for name in rs_timer_names():
                pairs.pop(name, None)
        return -1
    if rules.timer == NULL and rs_is_timed(rules, record, pairs):
        return RS_PUT_WHEEL_TIMER_NOT_ENABLE
    return -1


cdef inline bint rs_is_timed(const rs_put_rules *rules, const rs_put_record *record,
                             dict pairs) except -1:
    """Return whether a message asks for a delivery time, and was not timed before."""
    if not rules.hooks or not rs_is_queued(record):
        return False
    if rs_is_timer_topic(record.fields.topic, <size_t> record.fields.topic_nbytes):
        return False
    if RS_PROPERTY_TIMER_OUT_MS.decode() in pairs or rs_delay_level(pairs) > 0:
        return False
    for name in rs_timer_names():
        if name in pairs:
            return True
    return False


cdef inline object rs_timer_place(const rs_put_rules *rules, const rs_put_record *record,
                                 dict pairs):
    """Return (status or None, time of its slot) of a message with a delivery time; None for any
    other one."""
    if rules.timer == NULL or not rs_is_timed(rules, record, pairs):
        return None
    from time import time_ns
    clock = <object> rules.clock
    now = time_ns() // 1_000_000 if clock is None else rs_to_integer(
        "clock()", clock(), INT64_MIN, INT64_MAX)
    return (<object> rules.timer).place(pairs, now)


cdef inline int rs_time_record(const rs_put_rules *rules, const rs_appender *state,
                               rs_put_record *record, dict pairs) except -2:
    """Move a message with a delivery time to the timer topic; return its refusal, or -1."""
    cdef const char *topic = RS_TOPIC_TIMER
    place = rs_timer_place(rules, record, pairs)
    if place is None:
        return -1
    status, out = place
    if status is not None:
        return status
    if out < 0:
        return -1  # due already
    pairs[RS_PROPERTY_TIMER_OUT_MS.decode()] = str(out)
    rs_keep_place(state, record, pairs, topic, 0)
    return -1


cdef inline int rs_keep_place(const rs_appender *state, rs_put_record *record, dict pairs,
                              const char *topic, int32_t queue_id) except -1:
    """Move a message to a queue of the store's own; properties keep its topic and queue."""
    real_topic = record.fields.topic[: record.fields.topic_nbytes].decode("ascii")
    pairs[RS_PROPERTY_REAL_TOPIC.decode()] = real_topic
    pairs[RS_PROPERTY_REAL_QUEUE_ID.decode()] = str(record.fields.queue_id)
    record.fields.topic = <const uint8_t *> topic
    record.fields.topic_nbytes = <int32_t> strlen(topic)
    record.fields.queue_id = queue_id
    record.topic_hash = rs_topic_hash(
        &state.queues, record.fields.topic, record.fields.topic_nbytes)
    return 0


cdef inline bint rs_transforms(const rs_put_rules *rules, const rs_put_record *record,
                               dict pairs) except -1:
    """Return whether a delay level moves the message to the schedule topic."""
    if not rs_is_queued(record) or rules.delay_level_count == 0 or rs_delay_level(pairs) <= 0:
        return False
    real_topic = pairs.get(RS_PROPERTY_REAL_TOPIC.decode())
    if real_topic is not None and rs_is_schedule_topic(
            record.fields.topic, <size_t> record.fields.topic_nbytes):
        return False
    return not rules.hooks or real_topic != RS_TOPIC_SCHEDULE.decode()


cdef inline int rs_delay_record(const rs_put_rules *rules, const rs_appender *state,
                                rs_put_record *record, dict pairs) except -1:
    """Move a delayed message to the schedule topic; properties keep its own topic and queue."""
    cdef int32_t level
    cdef const char *topic = RS_TOPIC_SCHEDULE
    if not rs_transforms(rules, record, pairs):
        return 0
    level = rs_delay_level(pairs)
    if level > rules.delay_level_count:
        level = rules.delay_level_count
        pairs[RS_PROPERTY_DELAY.decode()] = str(level)
    return rs_keep_place(state, record, pairs, topic, level - 1)


# --- Columns ------------------------------------------------------------------------------------


cdef inline int rs_finish_row(const rs_put_rules *rules, const rs_appender *state,
                              rs_put_record *record, const rs_put_record *head,
                              const rs_put_record *common, rs_scratch *scratch,
                              int64_t body_nbytes, dict pairs, list holds) except -1:
    """Make one row's record of a column. Rows start from ``head``, finished as ``common``."""
    cdef size_t start = 0
    if common.status < 0:
        record[0] = common[0]
        if record.late != NULL:
            return rs_size_offset_properties(
                record, rules.property_crc, body_nbytes, rules.max_message_size)
        return rs_set_lengths(rules, record, common.fields.properties,
                              common.fields.properties_nbytes, body_nbytes)
    # Refused even without a body; which rule refuses it depends also on the body.
    record[0] = head[0]
    scratch.used = 0
    return rs_finish_record(
        rules, state, record, scratch, &start, body_nbytes, dict(pairs), holds)
