/* Decodes windows of the log into record batches: the loop, and a finished batch. */
#ifndef RS_BATCH_H
#define RS_BATCH_H
#include <stdlib.h>
#include "rs_columns.h"
#include "rs_pass.h"
#include "rs_record_filter.h"

/* What counts of a record towards a batch's limit: which lengths, how often. */
typedef struct {
    int32_t topic, tags, keys, unique_key, body, record, properties;
    int32_t constant;
} rs_weights;

typedef struct {
    rs_pass_call call; /* first member: rs_pass_consume fills it */
    rs_record_filter filter;
    rs_chunk chunk;
    rs_weights weights;
    rs_column *columns;
    rs_pairs *pairs; /* if a column of properties is wanted */
    int64_t batch_rows;
    int64_t batch_nbytes;
    int64_t rows;
    int64_t nbytes;
    int64_t errors; /* evaluations of the SQL92 filter that raised */
    int32_t column_count;
    int32_t chunk_capacity; /* 1 to find the record that faults */
    int32_t wants_properties;
} rs_decoder;

RS_UNUSED static void rs_weigh_column(rs_weights *weights, const rs_column_type *type)
{
    if (type->kind < RS_KIND_TEXT) {
        return;
    }
    switch (type->part) {
    case RS_PART_TOPIC:
        weights->topic++;
        break;
    case RS_PART_TAGS:
        weights->tags++;
        break;
    case RS_PART_KEYS:
        weights->keys++;
        break;
    case RS_PART_UNIQUE_KEY:
        weights->unique_key++;
        break;
    case RS_PART_BODY:
        weights->body++;
        break;
    case RS_PART_RECORD:
        weights->record++;
        break;
    case RS_PART_PROPERTIES:
        weights->properties++;
        break;
    default:
        weights->constant += RS_SHOWN_NBYTES;
    }
}

static inline int64_t rs_weight_of(const rs_weights *weights, const rs_parsed_record *row)
{
    return weights->constant + (int64_t)weights->topic * row->topic_nbytes
           + (int64_t)weights->tags * row->tags_nbytes + (int64_t)weights->keys * row->keys_nbytes
           + (int64_t)weights->unique_key * row->unique_key_nbytes
           + (int64_t)weights->body * row->body_nbytes
           + (int64_t)weights->record * row->total_size
           + (int64_t)weights->properties * row->properties_nbytes;
}

/* Fill the chunk from `*position` on. Return RS_OK if it is full, else why it ends earlier. */
static inline int rs_fill_chunk(rs_decoder *decoder, int64_t *position, int64_t *nbytes,
                                int64_t *errors)
{
    rs_pass_call *call = &decoder->call;
    rs_chunk *chunk = &decoder->chunk;
    const uint8_t *end = call->buffer + call->stop, *fetched = call->buffer;
    const int unread = !(call->flags & RS_CHECK_BODY_CRC);
    int only_ends = 0;
    chunk->count = 0;
    while (chunk->count < decoder->chunk_capacity) {
        const uint8_t *p = call->buffer + *position;
        rs_parsed_record *row = &chunk->rows[chunk->count];
        if (*position >= call->stop || call->base_offset + *position >= call->limit) {
            return RS_END;
        }
        const int64_t rows = decoder->rows + chunk->count;
        if (rows == decoder->batch_rows) {
            return RS_FULL;
        }
        fetched = rs_prefetch_ahead(fetched, p, end, only_ends);
        const int status = rs_check(p, end - p, call->base_offset + *position, call->segment_end,
                                    call->flags, row);
        if (RS_UNLIKELY(!rs_is_complete(status))) {
            return status;
        }
        only_ends = unread && row->total_size > RS_PREFETCH_WINDOW_NBYTES;
        int taken = status != RS_GHOST && rs_takes_place(&decoder->filter, p, row);
        if (taken && decoder->wants_properties) {
            rs_find_row_properties(p, row);
            taken = rs_takes_properties(&decoder->filter, p, row);
        }
        if (taken && rs_takes_sql(&decoder->filter, p, row, errors)) {
            const int64_t weight = rs_weight_of(&decoder->weights, row);
            if (RS_UNLIKELY(*nbytes + weight > decoder->batch_nbytes) && rows > 0) {
                return RS_FULL;
            }
            *nbytes += weight;
            /* While searching the fault, nothing after the record is read. */
            chunk->end = decoder->chunk_capacity == 1 ? p + row->total_size : end;
            chunk->records[chunk->count++] = p;
        }
        *position += row->total_size;
        if (chunk->count == 0) {
            call->position = *position;
            decoder->errors = *errors;
            RS_COMPILER_BARRIER();
        }
    }
    return RS_OK;
}

/* Process records until the window or the batch ends; runs through rs_guarded. RS_LIMIT: out of
 * memory. `rows`, `errors` and `call.position` are always current. */
RS_UNUSED static int rs_decode(void *argument)
{
    rs_decoder *decoder = (rs_decoder *)argument;
    int status = RS_OK;
    for (int32_t i = 0; i < decoder->column_count; i++) {
        rs_rewind_column(&decoder->columns[i], decoder->rows);
    }
    while (status == RS_OK) {
        int64_t position = decoder->call.position, nbytes = decoder->nbytes;
        int64_t errors = decoder->errors;
        status = rs_fill_chunk(decoder, &position, &nbytes, &errors);
        for (int32_t i = 0; i < decoder->column_count; i++) {
            if (RS_UNLIKELY(rs_append_chunk(&decoder->columns[i], decoder->rows, &decoder->chunk,
                                            decoder->pairs)
                            != RS_OK)) {
                return RS_LIMIT;
            }
        }
        RS_COMPILER_BARRIER();
        decoder->rows += decoder->chunk.count;
        decoder->nbytes = nbytes;
        decoder->errors = errors;
        decoder->call.position = position;
        RS_COMPILER_BARRIER();
    }
    return status;
}

RS_UNUSED static void rs_free_columns(rs_column *columns, int32_t count)
{
    for (int32_t i = 0; columns != NULL && i < count; i++) {
        rs_free_column(&columns[i]);
    }
    free(columns);
}

/* New columns for the next batch, NULL if out of memory; `last` may be NULL. */
RS_UNUSED static rs_column *rs_begin_columns(const rs_column_type *const *types, int32_t count,
                                             int64_t batch_rows, const rs_column *last)
{
    static const rs_column none;
    rs_column *columns = (rs_column *)calloc((size_t)(count > 0 ? count : 1), sizeof *columns);
    for (int32_t i = 0; columns != NULL && i < count; i++) {
        if (rs_begin_column(&columns[i], types[i], batch_rows, last == NULL ? &none : &last[i])
            != RS_OK) {
            rs_free_columns(columns, i + 1);
            return NULL;
        }
    }
    return columns;
}

#endif
