/* Judging the rows of rs_scan_records: what recovery must know of a batch, and whether the queue
 * offsets increase by one. Both read topics, so they run through rs_guarded. */
#ifndef RS_PASS_ROWS_H
#define RS_PASS_ROWS_H
#include "rs_pass_queues.h"
#include "rs_rows.h"
#include "rs_status.h"

typedef struct {
    const uint8_t *buffer;
    const uint8_t *rows; /* any alignment */
    int64_t count;
    /* of the good rows: those whose record is OK or has an unsafe topic */
    int64_t good;
    int64_t newest, last, previous; /* store times; the last two in order */
    int64_t end;                    /* physical, of the last one; -1 */
    int64_t before, covered_end;    /* the same of the last one stored before the time `before` */
    int32_t odd;                    /* some row is not OK */
    int32_t special;                /* some record is delayed, or has the flag of an inner batch */
    int32_t named;                  /* some record names other queues, if properties were parsed */
    int32_t property_crcs;          /* 1: some row has a valid one, 2: an invalid one, 3: both */
} rs_rows_summary;

/* Return the first row whose topic does not lie within `nbytes`, -1 if all do. */
RS_UNUSED static int64_t rs_find_stray_row(const uint8_t *rows, int64_t count, int64_t nbytes)
{
    for (int64_t i = 0; i < count; i++) {
        rs_parsed_record row;
        rs_load_row(rows, i, &row);
        if (row.position < 0 || row.topic_at < 0 || row.topic_nbytes < 0
            || row.topic_nbytes > RS_MAX_PROPERTIES_NBYTES
            || (int64_t)row.position + row.topic_at + row.topic_nbytes > nbytes) {
            return i;
        }
    }
    return -1;
}

static inline int rs_is_schedule_topic(const uint8_t *topic, int32_t n)
{
    return n == (int32_t)(sizeof RS_TOPIC_SCHEDULE - 1)
           && memcmp(topic, RS_TOPIC_SCHEDULE, sizeof RS_TOPIC_SCHEDULE - 1) == 0;
}

RS_UNUSED static int rs_summarize_rows(void *argument)
{
    rs_rows_summary *sum = (rs_rows_summary *)argument;
    for (int64_t i = 0; i < sum->count; i++) {
        rs_parsed_record row;
        rs_load_row(sum->rows, i, &row);
        sum->odd |= row.status != RS_OK;
        sum->property_crcs |= row.property_crc & 3;
        sum->named |= row.multi_dispatch_at != 0;
        sum->special |= (row.sys_flag & RS_SYS_FLAG_INNER_BATCH) != 0
                        || rs_is_schedule_topic(sum->buffer + row.position + row.topic_at,
                                                row.topic_nbytes);
        if (RS_UNLIKELY(row.status != RS_OK && row.status != RS_UNSAFE_TOPIC)) {
            continue;
        }
        sum->newest = sum->good == 0 || row.store_timestamp > sum->newest ? row.store_timestamp
                                                                          : sum->newest;
        sum->previous = sum->last;
        sum->last = row.store_timestamp;
        sum->end = (int64_t)((uint64_t)row.physical_offset + (uint64_t)row.total_size);
        sum->covered_end = row.store_timestamp < sum->before ? sum->end : sum->covered_end;
        sum->good++;
    }
    return RS_OK;
}

/* --- gathering -------------------------------------------------------------------------------- */

typedef struct {
    int64_t queue_offset, physical_offset, tags_code, store_timestamp;
} rs_queued_record;

typedef struct {
    const uint8_t *rows;
    int64_t count;
    const uint8_t *numbers; /* int32, of the rows' queues; -1: not gathered; any alignment */
    uint8_t *queued;        /* out: rs_queued_record, with room for `count`, as the next two */
    uint8_t *sizes;         /* out: int32 */
    uint8_t *places;        /* out: int32 */
    int64_t queued_count;
    /* of the rows that are no ghosts */
    int64_t records, nbytes, newest, first, last, backward;
    /* of all rows */
    int64_t ghosts, nul_properties, unsafe_topics, judged_crcs, rolled_back, short_bodies;
    int64_t named; /* of the gathered ones */
} rs_rows_gathering;

static inline void rs_count_row(rs_rows_gathering *sum, const rs_parsed_record *row)
{
    sum->nul_properties += row->status == RS_NUL_PROPERTIES;
    sum->unsafe_topics += row->status == RS_UNSAFE_TOPIC;
    sum->judged_crcs += row->property_crc != 0;
    sum->rolled_back +=
        (row->sys_flag & RS_SYS_FLAG_TRANSACTION_MASK) == RS_SYS_FLAG_TRANSACTION_ROLLBACK;
    sum->short_bodies += row->body_nbytes <= 1;
    if (RS_UNLIKELY(row->status == RS_GHOST)) {
        sum->ghosts++;
        return;
    }
    const int64_t time = row->store_timestamp;
    sum->first = sum->records == 0 ? time : sum->first;
    sum->newest = sum->records == 0 || time > sum->newest ? time : sum->newest;
    sum->backward += sum->records != 0 && time < sum->last;
    sum->last = time;
    sum->nbytes += row->total_size;
    sum->records++;
}

RS_UNUSED static void rs_gather_rows(rs_rows_gathering *sum)
{
    for (int64_t i = 0; i < sum->count; i++) {
        rs_parsed_record row;
        rs_load_row(sum->rows, i, &row);
        int32_t number;
        memcpy(&number, sum->numbers + i * (int64_t)sizeof number, sizeof number);
        rs_count_row(sum, &row);
        if (RS_LIKELY(number >= 0)) {
            const int64_t at = sum->queued_count++;
            const rs_queued_record queued = {row.queue_offset, row.physical_offset, row.tags_code,
                                             row.store_timestamp};
            memcpy(sum->queued + at * (int64_t)sizeof queued, &queued, sizeof queued);
            memcpy(sum->sizes + at * (int64_t)sizeof number, &row.total_size, sizeof number);
            memcpy(sum->places + at * (int64_t)sizeof number, &number, sizeof number);
            sum->named += row.multi_dispatch_at > 0;
        }
    }
}

/* --- queue offsets ---------------------------------------------------------------------------- */

typedef struct {
    int64_t end;  /* next queue offset; -1: not known */
    int64_t next; /* the same, if all of call `call` is taken */
    int64_t call;
} rs_queue_offset;

typedef struct {
    const uint8_t *buffer;
    int64_t nbytes; /* of the buffer */
    const uint8_t *rows;
    int64_t count;
    int64_t call; /* number of the current call */
    rs_queue_table table;
    rs_queue_offset *queues; /* by handle */
    int64_t room;
} rs_queue_offsets;

/* The queue of a row; NULL if out of memory. */
static inline rs_queue_offset *rs_offsets_queue(rs_queue_offsets *offsets,
                                                const rs_parsed_record *row)
{
    const int32_t known = offsets->table.handle_count;
    const int32_t handle =
        rs_pass_queue(&offsets->table, offsets->buffer + row->position + row->topic_at,
                      row->topic_nbytes, row->queue_id, 1);
    if (RS_UNLIKELY(handle < 0
                    || rs_pass_reserve((void **)&offsets->queues, &offsets->room, handle + 1,
                                       sizeof *offsets->queues) != 0)) {
        return NULL;
    }
    rs_queue_offset *queue = offsets->queues + handle;
    if (RS_UNLIKELY(handle == known)) {
        queue->end = -1;
        queue->call = -1;
    }
    if (queue->call != offsets->call) {
        queue->call = offsets->call;
        queue->next = queue->end;
    }
    return queue;
}

/* RS_OK: each row continues its queue, and the queues' ends are moved. RS_END: some row does not,
 * is an inner batch, or its record is gone; the ends are those of before. RS_LIMIT: out of memory.
 */
RS_UNUSED static int rs_follow_rows(void *argument)
{
    rs_queue_offsets *offsets = (rs_queue_offsets *)argument;
    for (int64_t i = 0; i < offsets->count; i++) {
        rs_parsed_record row;
        rs_load_row(offsets->rows, i, &row);
        if (!rs_pass_has_unit(&row)) {
            continue;
        }
        if (RS_UNLIKELY(row.sys_flag & RS_SYS_FLAG_INNER_BATCH || row.queue_offset < 0
                        || row.queue_offset == INT64_MAX
                        || !rs_is_still_there(offsets->buffer, offsets->nbytes, &row))) {
            return RS_END;
        }
        rs_queue_offset *queue = rs_offsets_queue(offsets, &row);
        if (RS_UNLIKELY(queue == NULL)) {
            return RS_LIMIT;
        }
        if (RS_UNLIKELY(queue->next >= 0 && queue->next != row.queue_offset)) {
            return RS_END;
        }
        queue->next = row.queue_offset + 1;
    }
    for (int32_t handle = 0; handle < offsets->table.handle_count; handle++) {
        rs_queue_offset *queue = offsets->queues + handle;
        queue->end = queue->call == offsets->call ? queue->next : queue->end;
    }
    return RS_OK;
}

/* --- queue numbers ---------------------------------------------------------------------------- */

typedef struct {
    const uint8_t *buffer;
    int64_t nbytes; /* of the buffer */
    const uint8_t *rows;
    int64_t count;
    int32_t *numbers; /* by row; -1: the record has no unit, or was overwritten */
    rs_queue_table table;
} rs_queue_numbers;

/* RS_OK, or RS_LIMIT: out of memory. */
RS_UNUSED static int rs_number_rows(void *argument)
{
    rs_queue_numbers *found = (rs_queue_numbers *)argument;
    for (int64_t i = 0; i < found->count; i++) {
        rs_parsed_record row;
        rs_prefetch_row_texts(found->buffer, found->nbytes, found->rows, i, found->count);
        rs_load_row(found->rows, i, &row);
        found->numbers[i] = -1;
        if (!rs_pass_has_unit(&row) || !rs_is_still_there(found->buffer, found->nbytes, &row)) {
            continue;
        }
        found->numbers[i] = rs_pass_queue(&found->table,
                                          found->buffer + row.position + row.topic_at,
                                          row.topic_nbytes, row.queue_id, 1);
        if (RS_UNLIKELY(found->numbers[i] < 0)) {
            return RS_LIMIT;
        }
    }
    return RS_OK;
}

RS_UNUSED static void rs_offsets_free(rs_queue_offsets *offsets)
{
    rs_queue_table_free(&offsets->table);
    free(offsets->queues);
}

#endif
