/* Sums over the log's records by queue, for the comparison with queue files. */
#ifndef RS_PASS_FSCK_H
#define RS_PASS_FSCK_H
#include "rs_pass.h"
#include "rs_pass_index_keys.h"
#include "rs_pass_queues.h"
#include "rs_units.h"

typedef struct {
    int64_t count;
    int64_t first_offset, next_offset; /* queue offsets */
    int64_t first_physical, end_physical;
    int64_t breaks; /* records whose queue offset does not follow the previous one */
    uint64_t sum;   /* of rs_pass_unit_sum */
} rs_fsck_queue;

typedef struct {
    rs_pass_call call;
    rs_queue_table table;
    const int64_t *delay_ms;
    int32_t delay_count;
    int32_t extra_flags;
    int64_t max_queues, max_wrong;
    rs_fsck_queue *queues; /* by handle */
    int64_t queue_room;
    int64_t *wrong; /* physical offsets of records whose whole-record CRC is wrong */
    int64_t wrong_room, wrong_count;
    int64_t records, nbytes, ghosts, nul_properties, unsafe_topics, backward_times;
    int64_t first_timestamp, last_timestamp;
    int64_t named;         /* records that name other queues, with offsets there */
    int64_t inner_batches; /* of the records with a unit */
    int64_t valid_crcs;
    rs_key_pass *keys; /* also gathers the records' keys; NULL: not requested */
} rs_fsck_pass;

/* Count one more record of the log, with a unit or without. */
static inline void rs_fsck_count(rs_fsck_pass *pass, const rs_parsed_record *row)
{
    pass->nul_properties += row->status == RS_NUL_PROPERTIES;
    pass->unsafe_topics += row->status == RS_UNSAFE_TOPIC;
    if (RS_UNLIKELY(pass->records == 0)) {
        pass->first_timestamp = pass->last_timestamp = row->store_timestamp;
    }
    pass->backward_times += row->store_timestamp < pass->last_timestamp;
    pass->last_timestamp = row->store_timestamp;
    pass->records++;
    pass->nbytes += row->total_size;
    pass->valid_crcs += row->property_crc == 1;
}

/* Add a record with a unit to the sums of its queue. Requires: its properties are parsed. */
static inline int rs_fsck_take_unit(rs_fsck_pass *pass, const uint8_t *record,
                                    const rs_parsed_record *row)
{
    pass->named += row->multi_dispatch_at > 0;
    pass->inner_batches += (row->sys_flag & RS_SYS_FLAG_INNER_BATCH) != 0;
    const int32_t known = pass->table.handle_count;
    const int32_t handle =
        rs_pass_queue(&pass->table, record + row->topic_at, row->topic_nbytes, row->queue_id, 1);
    if (RS_UNLIKELY(handle < 0
                    || rs_pass_reserve((void **)&pass->queues, &pass->queue_room, handle + 1,
                                       sizeof *pass->queues) != 0)) {
        return RS_LIMIT;
    }
    rs_fsck_queue *queue = pass->queues + handle;
    if (RS_UNLIKELY(handle == known)) {
        memset(queue, 0, sizeof *queue);
        queue->first_offset = queue->next_offset = row->queue_offset;
        queue->first_physical = row->physical_offset;
    }
    queue->count++;
    queue->breaks += row->queue_offset != queue->next_offset;
    queue->next_offset = (int64_t)((uint64_t)row->queue_offset + 1);
    queue->end_physical = row->physical_offset + row->total_size;
    queue->sum += rs_pass_unit_sum(row->queue_offset, row->physical_offset, row->total_size,
                                   row->tags_code);
    return RS_OK;
}

/* A record's keys are not split. */
static inline int rs_fsck_has_room_for_keys(const rs_key_pass *keys)
{
    return keys == NULL || keys->capacity - keys->count >= RS_MAX_RECORD_KEYS;
}

static inline int rs_fsck_take(void *argument, const uint8_t *record, rs_parsed_record *row)
{
    rs_fsck_pass *pass = (rs_fsck_pass *)argument;
    if (RS_UNLIKELY(pass->wrong_count >= pass->max_wrong
                    || pass->table.handle_count >= pass->max_queues
                    || !rs_fsck_has_room_for_keys(pass->keys))) {
        return RS_FULL;
    }
    if (RS_UNLIKELY(row->property_crc == 2)) {
        if (rs_pass_reserve((void **)&pass->wrong, &pass->wrong_room, pass->wrong_count + 1,
                            sizeof *pass->wrong) != 0) {
            return RS_LIMIT;
        }
        pass->wrong[pass->wrong_count++] = row->physical_offset;
    }
    if (RS_UNLIKELY(row->status == RS_GHOST)) {
        pass->ghosts++;
        pass->valid_crcs += row->property_crc == 1;
        return RS_OK;
    }
    rs_fsck_count(pass, row);
    const int has_unit = rs_pass_has_unit(row);
    const int has_keys = pass->keys != NULL && rs_key_pass_wants(row);
    if (RS_LIKELY(has_unit || has_keys)) {
        rs_parse_properties(record, row, pass->delay_ms, pass->delay_count);
    }
    if (has_keys) {
        rs_key_pass_take(pass->keys, record, row);
    }
    return RS_LIKELY(has_unit) ? rs_fsck_take_unit(pass, record, row) : RS_OK;
}

RS_UNUSED static int rs_fsck_run(void *argument)
{
    rs_fsck_pass *pass = (rs_fsck_pass *)argument;
    pass->call.flags |= pass->extra_flags;
    return rs_pass_run(&pass->call, pass, rs_fsck_take);
}

RS_UNUSED static void rs_fsck_clear(rs_fsck_pass *pass)
{
    rs_pass_queues_clear(&pass->table);
    pass->wrong_count = 0;
    pass->records = pass->nbytes = pass->ghosts = pass->nul_properties = pass->unsafe_topics = 0;
    pass->backward_times = pass->first_timestamp = pass->last_timestamp = 0;
    pass->named = pass->inner_batches = pass->valid_crcs = 0;
}

RS_UNUSED static void rs_fsck_free(rs_fsck_pass *pass)
{
    rs_fsck_clear(pass);
    free(pass->queues);
    free(pass->wrong);
}

/* --- the other side: units of queue files ----------------------------------------------------- */

typedef struct {
    const uint8_t *units;
    int64_t unit_count;
    int64_t index;     /* queue offset of the first */
    int64_t log_start; /* records before it have expired */
    int64_t count, first_index, last_index; /* of the units that count; indexes -1 if none */
    int64_t fillers, expired, last_passed;  /* units that do not count, and their last index */
    uint64_t sum;
} rs_unit_sums;

RS_UNUSED static int rs_sum_units(void *argument)
{
    rs_unit_sums *sums = (rs_unit_sums *)argument;
    for (int64_t i = 0; i < sums->unit_count; i++) {
        rs_unit unit;
        const int64_t index = sums->index + i;
        rs_load_unit(sums->units + i * RS_CQ_UNIT_NBYTES, &unit);
        if (rs_is_unwritten(&unit)) {
            continue;
        }
        const int filler = rs_is_filler(&unit);
        const int expired = !filler && unit.physical_offset >= 0 && unit.size > 0 &&
                            unit.physical_offset < sums->log_start;
        if (filler || expired) {
            sums->fillers += filler;
            sums->expired += expired;
            sums->last_passed = index;
            continue;
        }
        sums->first_index = sums->count == 0 ? index : sums->first_index;
        sums->last_index = index;
        sums->count++;
        sums->sum += rs_pass_unit_sum(index, unit.physical_offset, unit.size, unit.tags_code);
    }
    return RS_OK;
}

#endif
