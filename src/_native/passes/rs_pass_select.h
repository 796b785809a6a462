/* The positions of the records that a filter takes. */
#ifndef RS_PASS_SELECT_H
#define RS_PASS_SELECT_H
#include "rs_pass.h"
#include "rs_record_filter.h"

typedef struct {
    rs_pass_call call;
    rs_record_filter filter;
    int64_t *positions; /* of the records that were taken */
    int64_t capacity;
    int64_t count;
    int64_t last;   /* position of the last record that was judged, -1 before the first */
    int64_t errors; /* evaluations of the SQL92 filter that raised */
} rs_select_pass;

static inline int rs_select_takes(rs_select_pass *pass, const uint8_t *record,
                                  rs_parsed_record *row)
{
    rs_record_filter *filter = &pass->filter;
    if (!rs_takes_place(filter, record, row)) {
        return 0;
    }
    if (filter->tags.slots != NULL || filter->keys.slots != NULL) {
        rs_find_row_properties(record, row);
        if (!rs_takes_properties(filter, record, row)) {
            return 0;
        }
    }
    return rs_takes_sql(filter, record, row, &pass->errors);
}

static inline int rs_select_take(void *argument, const uint8_t *record, rs_parsed_record *row)
{
    rs_select_pass *pass = (rs_select_pass *)argument;
    if (RS_UNLIKELY(row->status == RS_GHOST)) {
        return RS_OK;
    }
    if (RS_UNLIKELY(pass->count == pass->capacity)) {
        return RS_FULL;
    }
    const int64_t position = record - pass->call.buffer;
    if (rs_select_takes(pass, record, row)) {
        pass->positions[pass->count++] = position;
    }
    pass->last = position;
    return RS_OK;
}

/* Runs through rs_guarded. */
RS_UNUSED static int rs_select_run(void *argument)
{
    rs_select_pass *pass = (rs_select_pass *)argument;
    return rs_pass_run(&pass->call, pass, rs_select_take);
}

#endif
