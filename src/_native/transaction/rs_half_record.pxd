# Half messages from the arguments of a begin, and committed and op messages from the bytes of half
# messages. Whatever the rules must judge is left to transaction_records.py: a function returns
# False then.
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, strlen

from rs_appender cimport rs_appender, rs_put_record, rs_topic_hash
from rs_encode cimport rs_record_fields
from rs_formats cimport *
from rs_half_properties cimport *
from rs_half_table cimport rs_decimal
from rs_put_rules cimport rs_put_rules, rs_set_lengths, rs_set_version, rs_topic_fits
from rs_put_text cimport RS_NAME_CRC, rs_name_kind, rs_scratch, rs_topic_is_allowed
from rs_record cimport rs_check, rs_store_timestamp_at
from rs_status cimport RS_CHECK_BODY_CRC, RS_OK

cdef enum:
    RS_NUMBER_TEXT_NBYTES = 24
    # What a half message has besides what is given: names, numbers, separators.
    RS_HALF_EXTRA_NBYTES = 256

# What stays the same for a log.
ctypedef struct rs_half_rules:
    rs_appender *state
    const rs_put_rules *rules
    const rs_put_record *start  # every record begins as a copy of it
    uint64_t half_hash
    uint64_t op_hash
    const uint8_t *own_topics  # a NUL after each
    int32_t own_topics_nbytes
    const uint8_t *op_properties
    int32_t op_properties_nbytes
    int32_t buckets
    # Behavior of the version, see Dialect.
    bint transaction_id
    bint commit_keeps_real_topic
    bint op_lists
    bint trailing_separator
    bint limits_in_characters
    bint stores_wait_last

# A half message's bytes, in the scratch, and the records made from them.
ctypedef struct rs_decision:
    rs_scratch scratch
    rs_parsed_record half
    rs_put_record records[2]
    rs_pairs pairs
    uint8_t order[RS_MOST_PAIRS]
    char body[RS_NUMBER_TEXT_NBYTES]
    int32_t count


cdef inline int rs_take_half_dialect(rs_half_rules *rules, object dialect,
                                     bytes op_properties, bytes own_topics) except -1:
    """Set what depends on the version; the bytes must stay. Requires: ``state``."""
    cdef const char *half = RS_TOPIC_HALF
    cdef const char *op = RS_TOPIC_OP
    rules.buckets = dialect.property_buckets
    rules.transaction_id = dialect.transaction_id
    rules.op_lists = dialect.op_lists
    rules.commit_keeps_real_topic = dialect.commit_keeps_real_topic
    rules.trailing_separator = dialect.trailing_separator
    rules.limits_in_characters = dialect.limits_in_characters
    rules.stores_wait_last = dialect.stores_wait_last
    rules.op_properties = <const uint8_t *> PyBytes_AS_STRING(op_properties)
    rules.op_properties_nbytes = <int32_t> PyBytes_GET_SIZE(op_properties)
    rules.own_topics = <const uint8_t *> PyBytes_AS_STRING(own_topics)
    rules.own_topics_nbytes = <int32_t> PyBytes_GET_SIZE(own_topics)
    rules.half_hash = rs_topic_hash(
        &rules.state.queues, <const uint8_t *> half, <int32_t> strlen(half))
    rules.op_hash = rs_topic_hash(&rules.state.queues, <const uint8_t *> op, <int32_t> strlen(op))
    return 0


cdef inline int rs_set_pair(rs_pairs *pairs, const char *name, const uint8_t *value,
                            int32_t n) noexcept:
    return rs_pairs_set(pairs, <const uint8_t *> name, <int32_t> strlen(name), value, n)


cdef inline rs_pair *rs_find_pair(rs_pairs *pairs, const char *name) noexcept:
    return rs_pairs_find(pairs, <const uint8_t *> name, <int32_t> strlen(name))


cdef inline void rs_remove_pair(rs_pairs *pairs, const char *name) noexcept:
    rs_pairs_remove(pairs, <const uint8_t *> name, <int32_t> strlen(name))


cdef inline void rs_move_last(rs_pairs *pairs, const char *name) noexcept:
    """Put a pair, if there is one, after the others."""
    cdef rs_pair *pair = rs_find_pair(pairs, name)
    cdef rs_pair moved
    if pair != NULL:
        moved = pair[0]
        rs_remove_pair(pairs, name)
        rs_set_pair(pairs, name, moved.value, moved.value_nbytes)


cdef inline bint rs_is_value(const uint8_t *text, int64_t n) noexcept:
    """Return whether a text can be a property's value."""
    cdef int64_t i
    if text == NULL or n > RS_MAX_PROPERTIES_NBYTES:
        return False
    for i in range(n):
        if text[i] < 3:
            return False
    return True


cdef inline bint rs_is_own_topic(const rs_half_rules *rules, const uint8_t *topic,
                                 int32_t n) noexcept:
    """Return whether the topic is one that no transaction may put its message to."""
    cdef int32_t at = 0
    cdef int32_t nbytes
    while at < rules.own_topics_nbytes:
        nbytes = <int32_t> strlen(<const char *> rules.own_topics + at)
        if nbytes == n and memcmp(topic, rules.own_topics + at, <size_t> n) == 0:
            return True
        at += nbytes + 1
    return False


cdef inline bint rs_add_half_pairs(const rs_half_rules *rules, rs_pairs *pairs,
                                   const uint8_t *group, int32_t group_nbytes,
                                   const uint8_t *topic, int32_t topic_nbytes,
                                   const char *queue_id, int32_t queue_id_nbytes) noexcept:
    """Add what makes a message a half message; return False if there are too many names."""
    cdef const char *yes = "true"
    cdef rs_pair *key
    cdef int failed = 0
    rs_remove_pair(pairs, RS_PROPERTY_TRANSACTION_CHECK_TIMES)
    rs_remove_pair(pairs, RS_PROPERTY_TRANSACTION_FIRST_OFFSET)
    failed |= rs_set_pair(pairs, RS_PROPERTY_TRANSACTION, <const uint8_t *> yes, 4)
    failed |= rs_set_pair(pairs, RS_PROPERTY_PRODUCER_GROUP, group, group_nbytes)
    if rules.stores_wait_last:
        rs_move_last(pairs, RS_PROPERTY_WAIT)
    key = rs_find_pair(pairs, RS_PROPERTY_UNIQUE_KEY)
    if rules.transaction_id and key != NULL:
        failed |= rs_set_pair(pairs, RS_PROPERTY_TRANSACTION_ID, key.value, key.value_nbytes)
    failed |= rs_set_pair(pairs, RS_PROPERTY_REAL_TOPIC, topic, topic_nbytes)
    failed |= rs_set_pair(
        pairs, RS_PROPERTY_REAL_QUEUE_ID, <const uint8_t *> queue_id, queue_id_nbytes)
    return not failed


cdef inline int rs_make_op(const rs_half_rules *rules, rs_decision *made,
                           int64_t queue_offset) noexcept:
    """Make the op message that names one half message."""
    cdef rs_put_record *op = &made.records[made.count]
    cdef const char *topic = RS_TOPIC_OP
    cdef int32_t n = rs_decimal(made.body, queue_offset)
    op[0] = rules.start[0]
    op.fields.topic = <const uint8_t *> topic
    op.fields.topic_nbytes = <int32_t> strlen(RS_TOPIC_OP)
    op.topic_hash = rules.op_hash
    op.fields.body = <const uint8_t *> made.body
    op.born_at_store = True
    op.fields.born_host = op.fields.store_host = op.store_host
    op.fields.born_host_nbytes = op.fields.store_host_nbytes
    if rules.op_lists:
        made.body[n] = 44  # a comma, formats.OP_SEPARATOR
        n += 1
    rs_set_lengths(rules.rules, op, rules.op_properties, rules.op_properties_nbytes, n)
    made.count += 1
    return 0


cdef inline bint rs_take_queue_id(const rs_pair *pair, int32_t *out) noexcept:
    """Take a queue id of up to nine digits; return False for any other text."""
    cdef int64_t number = 0
    cdef int32_t i
    if not 0 < pair.value_nbytes < 10:
        return False
    for i in range(pair.value_nbytes):
        if not 48 <= pair.value[i] <= 57:
            return False
        number = 10 * number + pair.value[i] - 48
    out[0] = <int32_t> number
    return True


cdef inline bint rs_take_half_pairs(const rs_half_rules *rules, rs_decision *made,
                                    bint is_own) noexcept:
    """Parse the half message's properties; set topic and queue of the committed message."""
    cdef rs_pairs *pairs = &made.pairs
    cdef rs_put_record *record = &made.records[0]
    cdef const uint8_t *text = made.scratch.data + made.half.properties_at
    cdef int32_t n = made.half.properties_nbytes
    cdef int32_t i
    cdef rs_pair *topic
    cdef rs_pair *queue
    if rs_pairs_parse(pairs, text, n, is_own):
        return False
    rs_remove_pair(pairs, RS_PROPERTY_CRC32)
    if not is_own:
        if not rs_is_plain_text(text, n) or rs_find_pair(pairs, RS_PROPERTY_DELAY) != NULL:
            return False
        for i in range(pairs.count):
            if rs_name_kind(pairs.items[i].name, <size_t> pairs.items[i].name_nbytes) & (
                    rules.rules.names & ~RS_NAME_CRC):
                return False
    topic = rs_find_pair(pairs, RS_PROPERTY_REAL_TOPIC)
    queue = rs_find_pair(pairs, RS_PROPERTY_REAL_QUEUE_ID)
    if topic == NULL or queue == NULL or topic.value_nbytes == 0:
        return False
    if not is_own and (not rs_topic_is_allowed(topic.value, <size_t> topic.value_nbytes)
                       or rs_is_own_topic(rules, topic.value, topic.value_nbytes)):
        return False
    record.fields.topic = topic.value
    record.fields.topic_nbytes = topic.value_nbytes
    if not rs_take_queue_id(queue, &record.fields.queue_id):
        return False
    if not rs_topic_fits(rules.rules, record):
        return False
    if not rules.commit_keeps_real_topic:
        rs_remove_pair(pairs, RS_PROPERTY_REAL_TOPIC)
        rs_remove_pair(pairs, RS_PROPERTY_REAL_QUEUE_ID)
    return not rules.limits_in_characters or n <= RS_MAX_PROPERTIES_NBYTES // 2


cdef inline int rs_take_half_fields(rs_decision *made) noexcept:
    """Take what a committed message has in common with its half message."""
    cdef const rs_parsed_record *half = &made.half
    cdef const uint8_t *raw = made.scratch.data
    cdef rs_put_record *record = &made.records[0]
    cdef int32_t flags = half.sys_flag
    record.fields.flag = half.flag
    record.fields.sys_flag = (
        flags & ~RS_SYS_FLAG_TRANSACTION_MASK) | RS_SYS_FLAG_TRANSACTION_COMMIT
    record.fields.born_timestamp = half.born_timestamp
    record.fields.reconsume_times = half.reconsume_times
    record.fields.body = raw + half.body_at
    record.fields.body_crc = half.body_crc
    record.crc_known = True
    record.fields.born_host = raw + RS_RECORD_HEAD_NBYTES
    record.fields.born_host_nbytes = (
        RS_HOST_V6_NBYTES if flags & RS_SYS_FLAG_BORN_HOST_V6 else RS_HOST_V4_NBYTES)
    record.fields.store_host = raw + rs_store_timestamp_at(flags) + RS_RECORD_STORED_NBYTES
    record.fields.store_host_nbytes = (
        RS_HOST_V6_NBYTES if flags & RS_SYS_FLAG_STORE_HOST_V6 else RS_HOST_V4_NBYTES)
    return 0


cdef inline bint rs_make_final(const rs_half_rules *rules, rs_decision *made, int64_t offset,
                               int32_t nbytes, bint is_own) noexcept:
    """Make the committed message from the half message's bytes at the start of the scratch, which
    has room for as many again."""
    cdef rs_put_record *record = &made.records[0]
    cdef rs_record_fields *f = &record.fields
    cdef const uint8_t *properties = made.scratch.data + nbytes
    cdef int64_t n
    if rs_check(made.scratch.data, nbytes, offset, offset + nbytes, RS_CHECK_BODY_CRC,
                &made.half) != RS_OK or made.half.total_size != nbytes:
        return False
    record[0] = rules.start[0]
    if not rs_take_half_pairs(rules, made, is_own):
        return False
    if is_own and rules.commit_keeps_real_topic and not f.property_crc:
        # As they were made here: in order.
        properties = made.scratch.data + made.half.properties_at
        n = made.half.properties_nbytes
    else:
        rs_pairs_order(&made.pairs, rules.buckets, made.order)
        n = rs_pairs_write(&made.pairs, made.order, rules.trailing_separator,
                           made.scratch.data + nbytes)
    rs_take_half_fields(made)
    f.prepared_transaction_offset = offset
    rs_set_version(rules.rules, record)
    record.topic_hash = rs_topic_hash(&rules.state.queues, f.topic, f.topic_nbytes)
    rs_set_lengths(rules.rules, record, properties, <int32_t> n, made.half.body_nbytes)
    made.count = 1
    return record.status < 0
