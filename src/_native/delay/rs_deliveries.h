/* Staged records of delayed messages: what a broker would put when they are due.
 *
 * The loop runs through rs_guarded: it reads queue and log files that another process may shorten,
 * and writes memory of the caller. */
#ifndef RS_DELIVERIES_H
#define RS_DELIVERIES_H
#include "rs_put_text.h"
#include "rs_encode.h"
#include "rs_java_order.h"
#include "rs_record.h"
#include "rs_status.h"

/* Records with more properties are left to the caller. */
#define RS_MOST_PAIRS 64
#define RS_MOST_PORT 65535

typedef struct {
    uint32_t buckets;
    int32_t trailing_separator;
    int32_t record_version_2;
    int32_t long_retry_topics;
    int32_t property_crc;
    int32_t gives_offsets; /* records that name other queues are left to the caller */
    int64_t max_message_size;
    int64_t max_record_nbytes; /* its limit and that of a segment */
    uint8_t half_topic[RS_MAX_TOPIC_LENGTH];
    int32_t half_topic_nbytes;
} rs_delivery_rules;

typedef struct {
    const rs_delivery_rules *rules;
    const uint8_t *units;
    int64_t position; /* in: the first unit; out: the first one that was not taken */
    int64_t stop;
    int64_t queue_offset; /* of the first unit */
    int64_t now;
    int64_t latest; /* a later due time is due now */
    const uint8_t *log;
    int64_t log_stop;
    int64_t base_offset;
    int64_t segment_end;
    uint8_t *out;
    int64_t capacity;
    int64_t used;
    int64_t needed; /* out: room that the next record needs */
    int64_t count;  /* out: records staged by this call */
    int32_t queue_id;
    int32_t flags;
} rs_deliveries;

typedef struct {
    rs_java_pair pairs[RS_MOST_PAIRS];
    int32_t count;
    const uint8_t *topic;
    int32_t topic_nbytes;
    int32_t queue_id;
} rs_delivery;

/* Return the queue id, -1 for anything but digits of an int. */
static inline int32_t rs_real_queue_id(const rs_java_pair *pair)
{
    int64_t value = 0;
    if (pair->value_nbytes < 1 || pair->value_nbytes > 10) {
        return -1;
    }
    for (int32_t i = 0; i < pair->value_nbytes; i++) {
        const uint8_t c = pair->value[i];
        if (c < '0' || c > '9') {
            return -1;
        }
        value = value * 10 + (c - '0');
    }
    return value > INT32_MAX ? -1 : (int32_t)value;
}

static inline int rs_real_topic_fits(const rs_delivery_rules *rules, const uint8_t *topic,
                                     int32_t n)
{
    int32_t most = RS_MAX_TOPIC_LENGTH;
    if (rules->long_retry_topics && rs_is_retry_topic(topic, (size_t)n)) {
        most = RS_MAX_RETRY_TOPIC_NBYTES;
    }
    return n >= 1 && n <= most && rs_topic_is_allowed(topic, (size_t)n)
           && !rs_is_schedule_topic(topic, (size_t)n)
           && !(n == rules->half_topic_nbytes
                && memcmp(topic, rules->half_topic, (size_t)n) == 0);
}

/* Find topic and queue, and order the properties; return whether it is an ordinary message. */
static inline int rs_take_delivery(const rs_delivery_rules *rules, const uint8_t *record,
                                   const rs_parsed_record *row, rs_delivery *delivery)
{
    rs_java_pair *pairs = delivery->pairs;
    int32_t kept = 0;
    delivery->topic = NULL;
    delivery->queue_id = -1;
    delivery->count = rs_java_parse(record + row->properties_at, row->properties_nbytes, pairs,
                                    RS_MOST_PAIRS);
    if (delivery->count < 0) {
        return 0;
    }
    rs_java_order(pairs, delivery->count, rules->buckets);
    for (int32_t i = 0; i < delivery->count; i++) {
        const int kind = rs_name_kind(pairs[i].name, (size_t)pairs[i].name_nbytes);
        if (kind == RS_NAME_REAL_TOPIC) {
            delivery->topic = pairs[i].value;
            delivery->topic_nbytes = pairs[i].value_nbytes;
        } else if (kind == RS_NAME_REAL_QUEUE_ID) {
            delivery->queue_id = rs_real_queue_id(&pairs[i]);
        } else if (kind == RS_NAME_MULTI && rules->gives_offsets) {
            return 0;
        } else if (kind == RS_NAME_CRC && rules->property_crc) {
            continue; /* it gets its own */
        }
        pairs[kept++] = pairs[i];
    }
    delivery->count = kept;
    return delivery->topic != NULL && delivery->queue_id >= 0
           && rs_real_topic_fits(rules, delivery->topic, delivery->topic_nbytes);
}

static inline int rs_delivery_ports(const rs_record_fields *f)
{
    const int32_t born = rs_load_be32(f->born_host + f->born_host_nbytes - 4);
    const int32_t store = rs_load_be32(f->store_host + f->store_host_nbytes - 4);
    return born >= 0 && born <= RS_MOST_PORT && store >= 0 && store <= RS_MOST_PORT;
}

/* Fill in the new record; return whether a put would take it. */
static inline int rs_fill_delivery(const rs_delivery_rules *rules, const uint8_t *record,
                                   const rs_parsed_record *row, const rs_delivery *delivery,
                                   rs_record_fields *f)
{
    const int64_t nbytes =
        rs_java_nbytes(delivery->pairs, delivery->count, rules->trailing_separator);
    const int32_t stored_at = rs_store_timestamp_at(row->sys_flag);
    memset(f, 0, sizeof *f);
    f->topic = delivery->topic;
    f->topic_nbytes = delivery->topic_nbytes;
    f->queue_id = delivery->queue_id;
    f->body = record + row->body_at;
    f->body_nbytes = row->body_nbytes;
    f->body_crc = row->body_nbytes > 0 ? row->body_crc : 0;
    f->flag = row->flag;
    f->sys_flag = row->sys_flag;
    f->born_timestamp = row->born_timestamp;
    f->reconsume_times = row->reconsume_times;
    f->born_host = record + RS_RECORD_HEAD_NBYTES;
    f->born_host_nbytes = stored_at - RS_RECORD_HEAD_NBYTES;
    f->store_host = record + stored_at + RS_RECORD_STORED_NBYTES;
    f->store_host_nbytes = (row->sys_flag & RS_SYS_FLAG_STORE_HOST_V6) ? RS_HOST_V6_NBYTES
                                                                       : RS_HOST_V4_NBYTES;
    f->version = rules->record_version_2 && f->topic_nbytes > RS_MAX_TOPIC_LENGTH ? 2 : 1;
    if (nbytes > RS_MAX_PROPERTIES_NBYTES || f->body_nbytes > rules->max_message_size
        || !rs_delivery_ports(f)) {
        return 0;
    }
    f->properties_nbytes = (int32_t)nbytes;
    f->property_crc = rules->property_crc;
    f->separator = nbytes > 0 && !rules->trailing_separator;
    const int fits = rs_stored_properties_nbytes(f) <= RS_MAX_PROPERTIES_NBYTES
                     && rs_record_nbytes(f) <= rules->max_record_nbytes;
    f->property_crc = f->separator = 0; /* the put appends the CRC */
    return fits;
}

/* Stage the record of one unit. Return RS_OK, RS_MISMATCH for one that is not ordinary, or RS_LIMIT
 * without room for it. */
static inline int rs_stage_delivery(rs_deliveries *call, const uint8_t *unit, int64_t number)
{
    const int64_t offset = rs_load_be64(unit + RS_CQ_UNIT_PHYSICAL_OFFSET_AT);
    const int64_t position = offset - call->base_offset;
    const uint8_t *record = call->log + position;
    rs_parsed_record row;
    rs_delivery delivery;
    rs_record_fields f;
    if (position > call->log_stop) {
        return RS_MISMATCH;
    }
    const int status = rs_check(record, call->log_stop - position, offset, call->segment_end,
                                call->flags, &row);
    if (status != RS_OK || row.total_size != rs_load_be32(unit + RS_CQ_UNIT_SIZE_AT)
        || row.queue_id != call->queue_id || row.queue_offset != call->queue_offset + number
        || !rs_is_schedule_topic(record + row.topic_at, (size_t)row.topic_nbytes)
        || rs_is_transient(row.sys_flag) || (row.sys_flag & RS_SYS_FLAG_INNER_BATCH)
        || !rs_take_delivery(call->rules, record, &row, &delivery)
        || !rs_fill_delivery(call->rules, record, &row, &delivery, &f)) {
        return RS_MISMATCH;
    }
    const int64_t nbytes = rs_record_nbytes(&f);
    if (nbytes > call->capacity - call->used) {
        call->needed = nbytes;
        return RS_LIMIT;
    }
    uint8_t *at = call->out + call->used;
    f.physical_offset = call->used;
    uint8_t *end = rs_java_write(rs_encode_start(at, &f), delivery.pairs, delivery.count,
                                 call->rules->trailing_separator);
    rs_encode_finish(at, end, (int32_t)nbytes, &f);
    call->used += nbytes;
    return RS_OK;
}

/* Stage due units. Return RS_END at `stop`, RS_OK at a unit that is not due, RS_OTHER_SEGMENT at
 * one whose record is elsewhere, or a status of rs_stage_delivery. */
RS_UNUSED static int rs_stage_deliveries(void *argument)
{
    rs_deliveries *call = (rs_deliveries *)argument;
    for (; call->position + RS_CQ_UNIT_NBYTES <= call->stop; call->position += RS_CQ_UNIT_NBYTES) {
        const uint8_t *unit = call->units + call->position;
        const int64_t offset = rs_load_be64(unit + RS_CQ_UNIT_PHYSICAL_OFFSET_AT);
        const int64_t due = rs_load_be64(unit + RS_CQ_UNIT_TAGS_CODE_AT);
        const int32_t size = rs_load_be32(unit + RS_CQ_UNIT_SIZE_AT);
        if (size <= 0 || size == RS_FILLER_UNIT_SIZE || offset < 0 || due <= RS_MAX_EXT_ADDRESS) {
            return RS_MISMATCH;
        }
        if (due > call->now && due <= call->latest) {
            return RS_OK;
        }
        if (offset < call->base_offset || offset >= call->segment_end) {
            return RS_OTHER_SEGMENT;
        }
        const int status = rs_stage_delivery(call, unit, call->count);
        if (status != RS_OK) {
            return status;
        }
        call->count++;
    }
    return RS_END;
}

#endif
