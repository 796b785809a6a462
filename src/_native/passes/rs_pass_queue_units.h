/* Queue units of the log's records, as runs: consecutive units of one queue. */
#ifndef RS_PASS_QUEUE_UNITS_H
#define RS_PASS_QUEUE_UNITS_H
#include "rs_inner_batch.h"
#include "rs_multi_dispatch.h"
#include "rs_pass.h"
#include "rs_pass_queues.h"
#include "rs_units.h"

typedef struct {
    uint8_t *units;
    int64_t room, nbytes;
    int64_t first_offset, next_offset; /* queue offsets */
    int64_t first_physical, end_physical;
    int32_t handle;
    int32_t named; /* 0: own records; 1: records of other topics name this queue, 2: of its own */
} rs_unit_run;

typedef struct {
    rs_pass_call call;
    rs_queue_table table;
    const int64_t *delay_ms;
    int32_t delay_count;
    int32_t multi_dispatch;
    int32_t selective;   /* only queues in the table */
    int32_t width;       /* bytes of a row: a unit, and its store time if requested */
    int64_t max_nbytes, max_runs;
    int64_t nbytes;      /* gathered */
    int64_t *open;       /* by 3 * handle + named: its last run, -1 if none */
    int64_t open_room, open_count;
    rs_unit_run *runs;
    int64_t run_room, run_count;
    int64_t inner_batch_offset; /* physical offset of the first inner batch; -1 */
} rs_units_pass;

static inline rs_unit_run *rs_units_open(rs_units_pass *pass, int32_t handle, int32_t named,
                                         const rs_parsed_record *row, int64_t queue_offset)
{
    const int64_t number = 3 * (int64_t)handle + named;
    if (RS_UNLIKELY(number >= pass->open_count)) {
        if (rs_pass_reserve((void **)&pass->open, &pass->open_room, number + 3,
                            sizeof *pass->open) != 0) {
            return NULL;
        }
        for (; pass->open_count < number + 3; pass->open_count++) {
            pass->open[pass->open_count] = -1;
        }
    }
    if (RS_LIKELY(pass->open[number] >= 0)) {
        rs_unit_run *run = pass->runs + pass->open[number];
        /* A record that names a queue twice begins another run. */
        if (RS_LIKELY(run->next_offset == queue_offset
                      && run->end_physical <= row->physical_offset)) {
            return run;
        }
    }
    if (rs_pass_reserve((void **)&pass->runs, &pass->run_room, pass->run_count + 1,
                        sizeof *pass->runs) != 0) {
        return NULL;
    }
    pass->open[number] = pass->run_count;
    rs_unit_run *run = pass->runs + pass->run_count++;
    memset(run, 0, sizeof *run);
    run->handle = handle;
    run->named = named;
    run->first_offset = run->next_offset = queue_offset;
    run->first_physical = row->physical_offset;
    return run;
}

static inline int rs_units_put(rs_units_pass *pass, const uint8_t *topic, int32_t n,
                               int32_t queue_id, int32_t named, int64_t queue_offset,
                               const rs_parsed_record *row)
{
    const int32_t handle = rs_pass_queue(&pass->table, topic, n, queue_id, !pass->selective);
    if (handle < 0) {
        return handle == RS_PASS_QUEUE_UNKNOWN ? RS_OK : RS_LIMIT;
    }
    rs_unit_run *run = rs_units_open(pass, handle, named, row, queue_offset);
    if (run == NULL
        || rs_pass_reserve((void **)&run->units, &run->room, run->nbytes + pass->width, 1) != 0) {
        return RS_LIMIT;
    }
    uint8_t *unit = run->units + run->nbytes;
    rs_store_unit(unit, row->physical_offset, row->total_size, row->tags_code);
    if (pass->width > RS_CQ_UNIT_NBYTES) {
        rs_store_be64(unit + RS_CQ_UNIT_NBYTES, row->store_timestamp);
    }
    run->nbytes += pass->width;
    run->end_physical = row->physical_offset + row->total_size;
    run->next_offset = (int64_t)((uint64_t)queue_offset + 1);
    pass->nbytes += pass->width;
    return RS_OK;
}

static inline int rs_units_take(void *argument, const uint8_t *record, rs_parsed_record *row)
{
    rs_units_pass *pass = (rs_units_pass *)argument;
    if (RS_UNLIKELY(!rs_pass_has_unit(row))) {
        return RS_OK;
    }
    if (RS_UNLIKELY(pass->nbytes >= pass->max_nbytes || pass->run_count >= pass->max_runs)) {
        return RS_FULL;
    }
    rs_parse_properties(record, row, pass->delay_ms, pass->delay_count);
    if (pass->inner_batch_offset < 0 && rs_is_batch_record(record, row)) {
        pass->inner_batch_offset = row->physical_offset;
    }
    int status = rs_units_put(pass, record + row->topic_at, row->topic_nbytes, row->queue_id, 0,
                              row->queue_offset, row);
    rs_multi_walk walk;
    rs_multi_place place;
    if (RS_UNLIKELY(row->multi_dispatch_at != 0) && pass->multi_dispatch != 0
        && rs_multi_begin(&walk, record, row, pass->multi_dispatch)) {
        while (status == RS_OK && rs_multi_next(&walk, &place)) {
            const int same = place.name_nbytes == row->topic_nbytes
                             && memcmp(place.name, record + row->topic_at,
                                       (size_t)place.name_nbytes) == 0;
            status = rs_units_put(pass, place.name, place.name_nbytes, place.queue_id, 1 + same,
                                  place.queue_offset, row);
        }
    }
    return status;
}

RS_UNUSED static int rs_units_run(void *argument)
{
    rs_units_pass *pass = (rs_units_pass *)argument;
    return rs_pass_run(&pass->call, pass, rs_units_take);
}

/* Clear the gathered runs. */
RS_UNUSED static void rs_units_clear(rs_units_pass *pass)
{
    for (int64_t i = 0; i < pass->run_count; i++) {
        free(pass->runs[i].units);
    }
    pass->run_count = pass->open_count = pass->nbytes = 0;
    if (!pass->selective) {
        rs_pass_queues_clear(&pass->table);
    }
}

RS_UNUSED static void rs_units_free(rs_units_pass *pass)
{
    rs_units_clear(pass);
    rs_queue_table_free(&pass->table);
    free(pass->runs);
    free(pass->open);
}

#endif
