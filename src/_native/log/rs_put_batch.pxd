# A client batch: its messages become records of one queue, all or none of them.
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from libc.stddef cimport size_t
from libc.stdint cimport INT32_MAX, INT32_MIN, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from rs_appender cimport rs_append_call, rs_put_record
from rs_bytes cimport rs_store_be64
from rs_encode cimport rs_needs_separator, rs_record_nbytes, rs_stored_properties_nbytes
from rs_formats cimport (
    RS_BATCH_ITEM_HEAD_NBYTES,
    RS_BLANK_NBYTES,
    RS_MAX_PROPERTIES_NBYTES,
    RS_PROPERTIES_LENGTH_NBYTES,
    RS_PROPERTY_SEPARATOR,
    RS_SYS_FLAG_TRANSACTION_MASK,
)
from rs_put_arguments cimport rs_attribute, rs_copy_body, rs_take_bytes, rs_to_integer
from rs_put_plain cimport (
    RS_ENCODED,
    RS_ENCODED_NO_MEMORY,
    rs_encode_dict,
    rs_put_values,
    rs_values_init,
)
from rs_put_properties cimport (
    rs_check_properties,
    rs_delay_level,
    rs_encode_pairs,
)
from rs_put_rules cimport (
    rs_hook_status,
    rs_is_inner_batch,
    rs_put_rules,
    rs_refuse,
    rs_timer_place,
    rs_topic_fits,
)
from rs_put_text cimport (
    rs_is_retry_topic,
    rs_scratch,
    rs_scratch_free,
    rs_scratch_init,
    rs_scratch_room,
)
from rs_status cimport (
    RS_APPEND_MESSAGE_SIZE_EXCEEDED,
    RS_PUT_MESSAGE_ILLEGAL,
    RS_PUT_PROPERTIES_SIZE_EXCEEDED,
    RS_PUT_WHEEL_TIMER_MSG_ILLEGAL,
)


cdef inline int rs_take_batch(const rs_put_rules *rules, rs_put_record *head,
                              rs_append_call *call, rs_scratch *scratch, list messages,
                              dict pairs, list holds) except -1:
    """Make the records of a batch; ``head`` gets the status if the batch is refused.

    ``pairs`` are the properties of the whole batch; ``holds`` keeps what the records point at.
    """
    cdef rs_put_record *record
    cdef rs_scratch common
    cdef int64_t client_nbytes = 0
    cdef int64_t i
    cdef size_t at = 0
    rs_scratch_init(&common)
    try:
        rs_encode_pairs(&common, pairs, rules.trailing_separator)
        for message in messages:
            record = call.records + call.count
            record[0] = head[0]
            client_nbytes += rs_take_item(rules, record, scratch, &common, message, holds)
            call.count += 1
        if call.count == 0:
            raise ValueError("a batch needs at least one message")
        for i in range(call.count):
            record = call.records + i
            record.fields.properties = scratch.data + at
            at += <size_t> record.fields.properties_nbytes
            if rules.property_crc:
                record.fields.separator = rs_needs_separator(
                    record.fields.properties, record.fields.properties_nbytes)
            record.nbytes = rs_record_nbytes(&record.fields)
        rs_judge_batch(rules, head, call, client_nbytes, common.used, pairs)
    finally:
        rs_scratch_free(&common)
    return 0


cdef inline int64_t rs_take_item(const rs_put_rules *rules, rs_put_record *record,
                                 rs_scratch *scratch, const rs_scratch *common, object message,
                                 list holds) except -1:
    """Make the record of one message of a batch; return its length in a client's encoding."""
    cdef int64_t body_nbytes
    cdef size_t start = scratch.used
    cdef int64_t client_nbytes = RS_BATCH_ITEM_HEAD_NBYTES + RS_PROPERTIES_LENGTH_NBYTES
    record.fields.flag = <int32_t> rs_to_integer(
        "flag", rs_attribute(message, "flag"), INT32_MIN, INT32_MAX)
    body = rs_attribute(message, "body")
    if not PyBytes_CheckExact(body):
        body = rs_copy_body(body)
    holds.append(body)
    body_nbytes = rs_take_bytes(body, &record.fields.body)
    # A longer one is refused, so a truncated length is never used.
    record.fields.body_nbytes = <int32_t> min(body_nbytes, <int64_t> INT32_MAX)
    rs_encode_item(rules, scratch, rs_attribute(message, "properties"))
    client_nbytes += body_nbytes + <int64_t> (scratch.used - start)
    rs_join_batch_properties(rules, scratch, start, common)
    record.fields.properties_nbytes = <int32_t> min(
        scratch.used - start, <size_t> (INT32_MAX - RS_MAX_PROPERTIES_NBYTES))
    return client_nbytes


cdef inline int rs_encode_item(const rs_put_rules *rules, rs_scratch *scratch,
                               object properties) except -1:
    """Append the properties of one message of a batch, as its client does."""
    cdef rs_put_values values  # of one message they mean nothing
    cdef size_t start = scratch.used
    cdef int result = RS_ENCODED
    if properties is not None:
        rs_values_init(&values, NULL)
        result = rs_encode_dict(scratch, <PyObject *> properties, &values)
    if result == RS_ENCODED_NO_MEMORY:
        raise MemoryError()
    if result != RS_ENCODED:
        scratch.used = start
        return rs_encode_pairs(
            scratch, rs_check_properties(properties), rules.trailing_separator)
    if not rules.trailing_separator and scratch.used > start:
        scratch.used -= 1
    return 0


cdef inline int rs_join_batch_properties(const rs_put_rules *rules, rs_scratch *scratch,
                                         size_t start, const rs_scratch *common) except -1:
    """Append the properties of the whole batch, if the version does so."""
    cdef uint8_t *out
    if rules.drops_batch_properties or common.used == 0:
        return 0
    out = rs_scratch_room(scratch, common.used + 1)
    if out == NULL:
        raise MemoryError()
    if rules.joins_batch_properties and scratch.used > start:
        if scratch.data[scratch.used - 1] != RS_PROPERTY_SEPARATOR:
            out[0] = RS_PROPERTY_SEPARATOR
            scratch.used += 1
    memcpy(scratch.data + scratch.used, common.data, common.used)
    scratch.used += common.used
    return 0


cdef inline int rs_judge_batch(const rs_put_rules *rules, rs_put_record *head,
                               const rs_append_call *call, int64_t client_nbytes,
                               size_t common_nbytes, dict pairs) except -1:
    """Refuse a whole batch, in RocketMQ's order."""
    cdef int status = rs_batch_status(rules, head, dict(pairs))
    cdef int64_t total = 0
    cdef int64_t i
    if status >= 0:
        return rs_refuse(head, status, -1)
    if client_nbytes > rules.max_message_size:
        return rs_refuse(head, RS_PUT_MESSAGE_ILLEGAL, -1)
    if common_nbytes > RS_MAX_PROPERTIES_NBYTES and not rules.drops_batch_properties:
        return rs_refuse(head, RS_PUT_PROPERTIES_SIZE_EXCEEDED, -1)
    for i in range(call.count):
        if rs_stored_properties_nbytes(&call.records[i].fields) > RS_MAX_PROPERTIES_NBYTES:
            return rs_refuse(head, RS_PUT_PROPERTIES_SIZE_EXCEEDED, -1)
        total += call.records[i].nbytes
    if not rules.record_extra and total > rules.max_message_size:
        return rs_refuse(head, RS_PUT_MESSAGE_ILLEGAL, -1)
    if total + RS_BLANK_NBYTES > rules.segment_nbytes:
        return rs_refuse(head, RS_PUT_MESSAGE_ILLEGAL, RS_APPEND_MESSAGE_SIZE_EXCEEDED)
    return 0


cdef inline int rs_batch_status(const rs_put_rules *rules, rs_put_record *head,
                                dict pairs) except -2:
    """Return the status from the broker's hooks and the batch rules for the head; -1: none."""
    cdef int status
    if not rs_topic_fits(rules, head):
        return RS_PUT_MESSAGE_ILLEGAL
    if rules.hooks and rs_is_retry_topic(head.fields.topic, <size_t> head.fields.topic_nbytes):
        return RS_PUT_MESSAGE_ILLEGAL
    if rs_is_inner_batch(rules, head):
        return RS_PUT_MESSAGE_ILLEGAL  # it is one record, not a client batch to be split
    status = rs_hook_status(rules, head, pairs)
    if status >= 0:
        return status
    place = rs_timer_place(rules, head, pairs)
    if place is not None and (place[0] is not None or place[1] >= 0):
        return RS_PUT_WHEEL_TIMER_MSG_ILLEGAL if place[0] is None else place[0]
    if head.fields.sys_flag & RS_SYS_FLAG_TRANSACTION_MASK or rs_delay_level(pairs) > 0:
        return RS_PUT_MESSAGE_ILLEGAL
    return -1


cdef inline bytes rs_pack_ids(const rs_append_call *call):
    """Return the bytes from which a batch's message ids are made: see rs_put_result_object."""
    cdef const rs_put_record *record
    cdef Py_ssize_t host_nbytes = call.records.fields.store_host_nbytes
    cdef Py_ssize_t id_nbytes = 1 + host_nbytes + <Py_ssize_t> sizeof(int64_t)
    cdef bytes ids = PyBytes_FromStringAndSize(NULL, call.count * id_nbytes)
    cdef uint8_t *out = <uint8_t *> PyBytes_AS_STRING(ids)
    cdef int64_t i
    for i in range(call.count):
        record = call.records + i
        out[0] = <uint8_t> host_nbytes
        memcpy(out + 1, record.store_host, <size_t> host_nbytes)
        rs_store_be64(out + 1 + host_nbytes, record.fields.physical_offset)
        out += id_nbytes
    return ids
