# The path of most puts: properties go from their dict to the record, and on the way the store reads
# the few values that mean something to it. Whatever the rules must judge (a name given twice, a
# limit, a property of the broker's hooks ...) is left to rs_put_rules.pxd, with nothing changed.
from cpython.object cimport PyObject
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport strlen

from rs_appender cimport rs_appender, rs_put_record, rs_topic_hash
from rs_formats cimport (
    RS_MAX_PROPERTIES_NBYTES,
    RS_MAX_TOPIC_LENGTH,
    RS_SYS_FLAG_INNER_BATCH,
    RS_TOPIC_SCHEDULE,
)
from rs_put_rules cimport rs_is_queued, rs_put_rules, rs_set_lengths
from rs_put_text cimport rs_is_schedule_topic, rs_scratch

cdef extern from "rs_put_values.h":
    ctypedef struct rs_put_move:
        const uint8_t *topic
        size_t topic_nbytes
        size_t queue_id_nbytes
        size_t level_nbytes
        uint8_t queue_id[12]
        uint8_t level[12]
    ctypedef struct rs_put_values:
        int names
        int32_t waits
        int32_t delay_level
        bint real_is_schedule
    ctypedef struct rs_given_properties:
        PyObject *properties
        PyObject *unique_key
        PyObject *tags
        PyObject *keys
        int32_t delay_level
        int32_t waits
    enum:
        RS_ENCODED
        RS_ENCODED_NO_MEMORY
    void rs_values_init(rs_put_values *values, const rs_put_move *move) nogil
    int32_t rs_level_of(const uint8_t *text, size_t n) nogil
    size_t rs_number_text(uint8_t *out, int32_t number) nogil
    int rs_encode_dict(rs_scratch *s, PyObject *properties, rs_put_values *values)
    int rs_encode_given(rs_scratch *s, const rs_given_properties *given, rs_put_values *values,
                        const rs_put_move *move)


cdef inline bint rs_make_plain(const rs_put_rules *rules, const rs_appender *state,
                               rs_put_record *record, rs_scratch *scratch,
                               const rs_given_properties *given,
                               int64_t body_nbytes) except -1:
    """Encode the properties and set the lengths; return False if the rules must do it."""
    cdef rs_put_values values
    cdef size_t start = scratch.used
    cdef bint made = record.fields.topic_nbytes <= RS_MAX_TOPIC_LENGTH
    if rules.hooks and record.fields.sys_flag & RS_SYS_FLAG_INNER_BATCH:
        made = False
    made = made and rs_encode_plain(rules, scratch, start, given, &values, NULL)
    if made:
        record.waits = values.waits
        if values.delay_level > 0 and rules.delay_level_count > 0 and rs_is_queued(record):
            made = rs_move_plain(rules, state, record, scratch, start, given, &values, body_nbytes)
        else:
            made = rs_set_plain_lengths(rules, record, scratch, start, body_nbytes)
    if not made:
        scratch.used = start
        record.waits = True
    return made


cdef inline bint rs_encode_plain(const rs_put_rules *rules, rs_scratch *scratch, size_t start,
                                 const rs_given_properties *given, rs_put_values *values,
                                 const rs_put_move *move) except -1:
    cdef int result
    scratch.used = start
    result = rs_encode_given(scratch, given, values, move)
    if result == RS_ENCODED_NO_MEMORY:
        raise MemoryError()
    if result != RS_ENCODED or values.names & rules.names:
        return False
    if not rules.trailing_separator and scratch.used > start:
        scratch.used -= 1
    return scratch.used - start <= RS_MAX_PROPERTIES_NBYTES


cdef inline bint rs_set_plain_lengths(const rs_put_rules *rules, rs_put_record *record,
                                      const rs_scratch *scratch, size_t start,
                                      int64_t body_nbytes) noexcept:
    """Set the lengths; return False if the record is too long for one of the limits."""
    rs_set_lengths(rules, record, scratch.data + start, <int32_t> (scratch.used - start),
                   body_nbytes)
    if record.status >= 0:
        record.status = record.append_status = -1
        return False
    return True


cdef inline bint rs_move_plain(const rs_put_rules *rules, const rs_appender *state,
                               rs_put_record *record, rs_scratch *scratch, size_t start,
                               const rs_given_properties *given, rs_put_values *values,
                               int64_t body_nbytes) except -1:
    """Move a delayed message to the schedule topic: see ``rs_delay_record``."""
    cdef rs_put_move move
    cdef int32_t level = min(values.delay_level, rules.delay_level_count)
    cdef int32_t queue_id = record.fields.queue_id
    cdef uint64_t topic_hash = record.topic_hash
    cdef const char *topic = RS_TOPIC_SCHEDULE
    move.topic = record.fields.topic
    move.topic_nbytes = <size_t> record.fields.topic_nbytes
    # A message that was moved before is for the rules.
    if values.real_is_schedule or rs_is_schedule_topic(move.topic, move.topic_nbytes):
        return False
    move.queue_id_nbytes = rs_number_text(move.queue_id, queue_id)
    move.level_nbytes = 0
    if level != values.delay_level:
        move.level_nbytes = rs_number_text(move.level, level)
    if not rs_encode_plain(rules, scratch, start, given, values, &move):
        return False
    record.fields.topic = <const uint8_t *> topic
    record.fields.topic_nbytes = <int32_t> strlen(topic)
    record.fields.queue_id = level - 1
    record.topic_hash = rs_topic_hash(
        &state.queues, record.fields.topic, record.fields.topic_nbytes)
    if rs_set_plain_lengths(rules, record, scratch, start, body_nbytes):
        return True
    record.fields.topic = move.topic
    record.fields.topic_nbytes = <int32_t> move.topic_nbytes
    record.fields.queue_id = queue_id
    record.topic_hash = topic_hash
    return False
