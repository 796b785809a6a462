/* The appender's state and its append loop. Nothing here touches a Python object. The loop runs
 * with or without the GIL, always under the appender's mutex, and inside rs_guarded. */
#ifndef RS_APPENDER_H
#define RS_APPENDER_H
#include "rs_encode.h"
#include "rs_guard.h"
#include "rs_offset_properties.h"
#include "rs_mutex.h"
#include "rs_times.h"
#include "rs_topic_table.h"

/* Why rs_append_run returned. */
enum {
    RS_RUN_DONE,
    RS_RUN_ROLL,    /* a segment is needed */
    RS_RUN_EXTEND,  /* the record ends past the allocated frontier */
    RS_RUN_STOPPED, /* closed or failed */
    RS_RUN_REFUSED, /* with the status in refusal */
    RS_RUN_NO_MEMORY,
};

enum { RS_STOP_CLOSED = 1, RS_STOP_FAILED = 2 };

/* One record to be appended, and its outcome. */
typedef struct {
    rs_record_fields fields;
    int64_t nbytes;
    uint64_t topic_hash;
    rs_offset_properties *late; /* NULL: the properties are already as stored */
    int32_t width; /* queue offsets that it takes: the messages of an inner batch, else 1 */
    int32_t status; /* -1 until it is refused: a PutMessageStatus */
    int32_t append_status; /* -1: the append was not tried */
    int32_t waits;
    int32_t born_at_store;       /* the born timestamp is the store timestamp */
    int32_t crc_from_log;        /* the body may change: compute the CRC from the stored bytes */
    int32_t crc_known;           /* body_crc was computed before taking the mutex */
    uint8_t born_host[RS_HOST_V6_NBYTES];
    uint8_t store_host[RS_HOST_V6_NBYTES];
} rs_put_record;

typedef struct {
    rs_mutex mutex;
    /* guarded by: mutex */
    uint8_t *buffer; /* NULL without a segment */
    int64_t segment_nbytes;
    int64_t frontier;
    int64_t populated;
    int32_t stop; /* also read without the mutex, so stored atomically */
    int32_t refusal; /* -1: none */
    rs_topic_table queues;
    rs_topic_entry *last_entry; /* saves most lookups */
    void *view; /* pins the buffer; managed by the owner */
    /* guarded by: mutex; read by any thread */
    int64_t generation; /* counts every event that may have made room */
    int64_t base_offset;
    int64_t position;
    int64_t write_offset;
    int64_t last_store_timestamp;
    int64_t put_times;
    int64_t put_nbytes;
} rs_appender;

/* A call of rs_append_run; records[done] is the first one not appended. */
typedef struct {
    rs_appender *appender;
    rs_put_record *records;
    int64_t count;
    int64_t done;
    int64_t refused;    /* records refused by the append; the caller counts and resets them */
    int64_t needed;     /* argument of the callback that makes room; the refusal's status */
    int64_t generation; /* its value when the call returned */
    int64_t now;
    int32_t has_now; /* else the system's clock is read under the mutex */
    int32_t atomic;  /* all in one segment and one queue, visible at once or not at all */
    rs_timed timed;
} rs_append_call;

/* Compute the body's CRC before the copy if nothing can change the body meanwhile. */
static inline void rs_take_body_crc(rs_put_record *record)
{
    const rs_record_fields *f = &record->fields;
    if (!record->crc_known && !record->crc_from_log) {
        record->fields.body_crc =
            (int32_t)(rs_crc32(0, f->body, (size_t)f->body_nbytes) & RS_CRC_MASK);
        record->crc_known = 1;
    }
}

static inline void rs_write_record(rs_appender *a, rs_put_record *record, int64_t position,
                                   int64_t now)
{
    rs_record_fields *f = &record->fields;
    uint8_t *at = a->buffer + position;
    f->physical_offset = a->base_offset + position;
    f->store_timestamp = now;
    if (record->born_at_store) {
        f->born_timestamp = now;
    }
    rs_take_body_crc(record);
    uint8_t *p = rs_encode_start(at, f);
    if (RS_UNLIKELY(record->crc_from_log)) {
        const uint8_t *body = at + rs_header_nbytes(rs_host_flags(f));
        const uint32_t crc = rs_crc32(0, body, (size_t)f->body_nbytes) & RS_CRC_MASK;
        rs_store_be32(at + RS_RECORD_HEAD_BODY_CRC_AT, (int32_t)crc);
    }
    memcpy(p, f->properties, (size_t)f->properties_nbytes);
    rs_encode_finish(at, p + f->properties_nbytes, (int32_t)record->nbytes, f);
}

/* Return the queue of a record; NULL if out of memory. */
static inline rs_topic_entry *rs_record_queue(rs_appender *a, const rs_put_record *record)
{
    const rs_record_fields *f = &record->fields;
    const uint64_t hash = rs_topic_queue_hash(record->topic_hash, f->queue_id);
    rs_topic_entry *entry = a->last_entry;
    if (entry == NULL || entry->hash != hash || entry->queue_id != f->queue_id
        || entry->topic_nbytes != f->topic_nbytes
        || memcmp(entry->topic, f->topic, (size_t)f->topic_nbytes) != 0) {
        entry = rs_topic_put(&a->queues, hash, f->topic, f->topic_nbytes, f->queue_id);
        a->last_entry = entry;
    }
    return entry;
}

static inline void rs_count_generation(rs_appender *a)
{
    rs_store_release64(&a->generation, a->generation + 1);
}

static inline void rs_publish(rs_appender *a, int64_t position)
{
    rs_store_release64(&a->position, position);
    rs_store_release64(&a->write_offset, a->base_offset + position);
}

/* Append `count` adjacent records of `nbytes` bytes in total. They become visible from the last to
 * the first, so a reader of the log sees none of them or all. */
static inline int rs_write_group(rs_appender *a, rs_put_record *records, int64_t count,
                                 int64_t nbytes, int64_t now)
{
    int64_t end = a->position + nbytes;
    rs_topic_entry *entry = NULL;
    if (!rs_is_transient(records->fields.sys_flag)) {
        entry = rs_record_queue(a, records);
        if (entry == NULL) {
            return RS_RUN_NO_MEMORY;
        }
    }
    rs_offset_properties *late = records->late;
    if (RS_UNLIKELY(late != NULL) && rs_offset_reserve(late, &a->queues) != 0) {
        return RS_RUN_NO_MEMORY;
    }
    for (int64_t i = count - 1; i >= 0; i--) {
        end -= records[i].nbytes;
        records[i].fields.queue_offset = entry == NULL ? 0 : entry->next_offset + i;
        rs_write_record(a, &records[i], end, now);
    }
    if (entry != NULL) {
        entry->next_offset += count == 1 ? records->width : count;
    }
    if (RS_UNLIKELY(late != NULL)) {
        rs_offset_take(late, &a->queues, entry);
    }
    rs_publish(a, a->position + nbytes);
    /* After the position: a thread that reads this time and then syncs has synced the record. */
    rs_store_release64(&a->last_store_timestamp, now);
    a->put_times += count;
    a->put_nbytes += nbytes;
    return RS_RUN_DONE;
}

static inline void rs_refuse_offset_properties(rs_put_record *record, rs_refusal refusal)
{
    record->status = refusal.status;
    record->append_status = refusal.append_status;
    record->nbytes = 0;
}

/* Fill in the properties of the log's next record; it may turn out to be too long. Out of line,
 * since few records have any: the calling loop keeps its registers. */
RS_UNUSED RS_NOINLINE static void rs_settle_offset_properties(rs_appender *a, rs_put_record *record)
{
    static const rs_refusal too_many = {RS_PUT_LMQ_CONSUME_QUEUE_NUM_EXCEEDED, -1};
    static const rs_refusal no_segment = {RS_PUT_MESSAGE_ILLEGAL, RS_APPEND_MESSAGE_SIZE_EXCEEDED};
    rs_record_fields *f = &record->fields;
    rs_offset_properties *late = record->late;
    const uint64_t hash = rs_topic_queue_hash(record->topic_hash, f->queue_id);
    const rs_topic_entry *own =
        rs_topic_find(&a->queues, hash, f->topic, f->topic_nbytes, f->queue_id);
    const int exceeded = rs_offset_report(late, &a->queues);
    f->properties_nbytes = rs_offset_compose(late, own == NULL ? 0 : own->next_offset);
    f->properties = late->out;
    f->separator = rs_needs_separator(f->properties, f->properties_nbytes);
    record->nbytes = rs_record_nbytes(f);
    if (exceeded) {
        rs_refuse_offset_properties(record, too_many);
    } else if (rs_stored_properties_nbytes(f) > RS_MAX_PROPERTIES_NBYTES) {
        rs_refuse_offset_properties(record, late->properties);
    } else if (record->nbytes > late->max_record_nbytes) {
        rs_refuse_offset_properties(record, late->size);
    } else if (record->nbytes + RS_BLANK_NBYTES > a->segment_nbytes) {
        rs_refuse_offset_properties(record, no_segment);
    }
}

/* Return RS_RUN_DONE if `nbytes` fit, else the required action, with its argument in `needed`. */
static inline int rs_find_room(rs_appender *a, int64_t nbytes, int64_t *needed)
{
    *needed = nbytes;
    if (a->buffer == NULL || a->position == a->segment_nbytes) {
        return RS_RUN_ROLL;
    }
    if (a->position + nbytes + RS_BLANK_NBYTES > a->segment_nbytes) {
        if (a->position + RS_BLANK_NBYTES > a->frontier) {
            *needed = a->position + RS_BLANK_NBYTES;
            return RS_RUN_EXTEND;
        }
        rs_encode_blank(a->buffer + a->position, (int32_t)(a->segment_nbytes - a->position));
        rs_count_generation(a);
        rs_publish(a, a->segment_nbytes);
        return RS_RUN_ROLL;
    }
    if (a->position + nbytes > a->frontier) {
        *needed = a->position + nbytes + RS_BLANK_NBYTES;
        return RS_RUN_EXTEND;
    }
    return RS_RUN_DONE;
}

static inline int64_t rs_call_nbytes(const rs_append_call *call)
{
    int64_t nbytes = 0;
    for (int64_t i = call->done; i < call->count; i++) {
        nbytes += call->records[i].nbytes;
    }
    return nbytes;
}

/* Append the rest of the call; skip refused records. Requires: the mutex. */
static int rs_append_records(void *argument)
{
    rs_append_call *call = (rs_append_call *)argument;
    rs_appender *a = call->appender;
    const int64_t now = call->has_now ? call->now : rs_now_ms();
    while (call->done < call->count) {
        rs_put_record *record = &call->records[call->done];
        const int64_t count = call->atomic ? call->count : 1;
        if (RS_UNLIKELY(record->late != NULL) && record->status < 0) {
            rs_settle_offset_properties(a, record);
            call->refused += record->status >= 0;
        }
        if (record->status < 0) {
            const int64_t nbytes = call->atomic ? rs_call_nbytes(call) : record->nbytes;
            int result = rs_find_room(a, nbytes, &call->needed);
            if (result == RS_RUN_DONE) {
                result = rs_write_group(a, record, count, nbytes, now);
            }
            if (result != RS_RUN_DONE) {
                return result;
            }
        }
        call->done += count;
    }
    return RS_RUN_DONE;
}

/* The same, guarded against mappings whose file was shortened. On RS_FAULT the appender has failed.
 * Requires: the mutex. */
static inline int rs_append_run(rs_append_call *call)
{
    rs_appender *a = call->appender;
    int result;
    if (RS_UNLIKELY(a->stop)) {
        result = RS_RUN_STOPPED;
    } else if (RS_UNLIKELY(a->refusal >= 0)) {
        result = RS_RUN_REFUSED;
        call->needed = a->refusal;
    } else {
        result = rs_guarded(rs_append_records, call);
        if (RS_UNLIKELY(result == RS_FAULT)) {
            rs_store_release32(&a->stop, a->stop | RS_STOP_FAILED);
        }
    }
    call->generation = a->generation;
    return result;
}

/* Return whether the call needs only present pages. Requires: the mutex. */
static inline int rs_is_populated(const rs_append_call *call)
{
    const rs_appender *a = call->appender;
    int64_t nbytes = rs_call_nbytes(call);
    for (int64_t i = call->done; i < call->count; i++) {
        const rs_offset_properties *late = call->records[i].late;
        nbytes += late == NULL ? 0 : (int64_t)RS_LATE_VALUE_NBYTES * (late->light_count + 1);
    }
    return a->position + nbytes + RS_BLANK_NBYTES <= a->populated;
}

static inline int rs_append_blocking(rs_append_call *call)
{
    rs_mutex_lock(&call->appender->mutex);
    const int result = rs_append_run(call);
    rs_mutex_unlock(&call->appender->mutex);
    return result;
}

/* --- Setters and getters; each takes the mutex itself. --- */

/* Replace the segment (NULL: none); return the old view. Without `locks` if no other thread exists
 * that could hold the mutex. */
static inline void *rs_appender_replace(rs_appender *a, void *view, uint8_t *buffer,
                                        int64_t base_offset, int64_t position, int64_t frontier,
                                        int32_t stop, int locks)
{
    if (locks) {
        rs_mutex_lock(&a->mutex);
    }
    void *former = view; /* stays with the caller if it is not used */
    if (buffer == NULL || a->stop == 0) {
        former = a->view;
        a->view = view;
        a->buffer = buffer;
        rs_count_generation(a);
    }
    if (former != view && buffer != NULL) {
        rs_store_release64(&a->base_offset, base_offset);
        a->frontier = frontier;
        a->populated = 0;
        rs_publish(a, position);
    }
    rs_store_release32(&a->stop, a->stop | stop);
    if (locks) {
        rs_mutex_unlock(&a->mutex);
    }
    return former;
}

/* Return whether a record of `nbytes` would fit the segment's allocated blocks; -1 if another
 * thread has the mutex and this one shall not wait. */
static inline int rs_appender_has_room(rs_appender *a, int64_t nbytes, int waits)
{
    if (waits) {
        rs_mutex_lock(&a->mutex);
    } else if (!rs_mutex_try(&a->mutex)) {
        return -1;
    }
    const int fits = a->buffer != NULL && nbytes <= a->frontier - a->position;
    rs_mutex_unlock(&a->mutex);
    return fits;
}

/* Raise a limit of the segment at `base_offset` (negative: of any segment). */
static inline void rs_appender_raise(rs_appender *a, int64_t *limit, int64_t position,
                                     int64_t base_offset)
{
    rs_mutex_lock(&a->mutex);
    if ((base_offset < 0 || base_offset == a->base_offset) && position > *limit) {
        *limit = position;
        if (limit == &a->frontier) {
            rs_count_generation(a);
        }
    }
    rs_mutex_unlock(&a->mutex);
}

static inline int64_t rs_appender_next_offset(rs_appender *a, const uint8_t *topic, int32_t n,
                                              int32_t queue_id)
{
    const uint64_t hash = rs_topic_queue_hash(rs_topic_hash(&a->queues, topic, n), queue_id);
    rs_mutex_lock(&a->mutex);
    const rs_topic_entry *entry = rs_topic_find(&a->queues, hash, topic, n, queue_id);
    const int64_t offset = entry == NULL ? 0 : entry->next_offset;
    rs_mutex_unlock(&a->mutex);
    return offset;
}

/* Return 0, or -1 if out of memory. */
static inline int rs_appender_set_next_offset(rs_appender *a, const uint8_t *topic, int32_t n,
                                              int32_t queue_id, int64_t offset)
{
    const uint64_t hash = rs_topic_queue_hash(rs_topic_hash(&a->queues, topic, n), queue_id);
    rs_mutex_lock(&a->mutex);
    rs_topic_entry *entry = rs_topic_put(&a->queues, hash, topic, n, queue_id);
    if (entry != NULL) {
        entry->next_offset = offset;
    }
    rs_mutex_unlock(&a->mutex);
    return entry == NULL ? -1 : 0;
}

static inline void rs_appender_remove_queue(rs_appender *a, const uint8_t *topic, int32_t n,
                                            int32_t queue_id)
{
    const uint64_t hash = rs_topic_queue_hash(rs_topic_hash(&a->queues, topic, n), queue_id);
    rs_mutex_lock(&a->mutex);
    a->last_entry = NULL;
    rs_topic_remove(&a->queues, hash, topic, n, queue_id);
    rs_mutex_unlock(&a->mutex);
}

static inline void rs_appender_refuse(rs_appender *a, int32_t status)
{
    rs_mutex_lock(&a->mutex);
    a->refusal = status;
    rs_mutex_unlock(&a->mutex);
}

static inline void rs_appender_stop(rs_appender *a, int32_t stop)
{
    rs_mutex_lock(&a->mutex);
    rs_store_release32(&a->stop, a->stop | stop);
    rs_mutex_unlock(&a->mutex);
}

/* The call's puts that are not appended. */
static inline int64_t rs_rest_count(const rs_append_call *call)
{
    int64_t count = 0;
    if (call->atomic) {
        return call->done == 0;
    }
    for (int64_t i = call->done; i < call->count; i++) {
        count += call->records[i].status < 0;
    }
    return count;
}

/* Their outcome. */
static inline void rs_refuse_rest(rs_append_call *call, int32_t status, int32_t append_status)
{
    for (int64_t i = call->done; i < call->count; i++) {
        if (call->records[i].status < 0) {
            call->records[i].status = status;
            call->records[i].append_status = append_status;
        }
    }
}

#endif
