/* The C layout of the outcomes of puts; put_result.pyx defines the types, commit_log.pyx fills
 * them. */
#ifndef RS_PUT_RESULT_H
#define RS_PUT_RESULT_H
#include <Python.h>
#include "rs_appender.h"

typedef struct {
    int64_t physical_offset;
    int64_t queue_offset;
    int64_t store_timestamp;
    int64_t nbytes;
    int64_t count;
    int32_t status;
    int32_t append_status; /* -1: the append was not tried */
    int32_t has_physical_offset;
    int32_t has_queue_offset;
} rs_put_outcome;

typedef struct {
    PyObject_HEAD
    rs_put_outcome outcome;
    PyObject *host; /* bytes or None: the store host of a single record */
    PyObject *ids;  /* bytes or None: of each record 1 byte length, host, 8 bytes offset */
} rs_put_result_object;

/* One record's outcome in a PutManyResult. */
typedef struct {
    int64_t physical_offset;
    int64_t queue_offset;
    int64_t store_timestamp;
    int32_t nbytes;
    int32_t status;
    int32_t append_status;
    int32_t waits;
    int32_t host_nbytes;
    uint8_t host[RS_HOST_V6_NBYTES];
} rs_put_row;

typedef struct {
    rs_put_row *rows;
    Py_ssize_t count;
    Py_ssize_t capacity;
} rs_put_rows;

typedef struct {
    PyObject_HEAD
    rs_put_rows table;
} rs_put_many_object;

/* Add `count` rows; return the first of them, not yet filled, or NULL if out of memory. */
static inline rs_put_row *rs_put_rows_grow(rs_put_rows *table, Py_ssize_t count)
{
    if (table->count + count > table->capacity) {
        const Py_ssize_t twice = 2 * table->capacity;
        const Py_ssize_t capacity = twice > table->count + count ? twice : table->count + count;
        rs_put_row *rows =
            (rs_put_row *)PyMem_Realloc(table->rows, (size_t)capacity * sizeof *rows);
        if (rows == NULL) {
            return NULL;
        }
        table->rows = rows;
        table->capacity = capacity;
    }
    table->count += count;
    return table->rows + table->count - count;
}

/* `waited` is the status of the flush that was awaited. */
static inline void rs_fill_outcome(rs_put_outcome *out, const rs_put_record *record, int32_t waited)
{
    const int appended = record->status < 0;
    memset(out, 0, sizeof *out);
    out->status = !appended ? record->status : record->waits ? waited : RS_PUT_PUT_OK;
    out->append_status = appended ? RS_APPEND_PUT_OK : record->append_status;
    if (appended) {
        out->has_physical_offset = out->has_queue_offset = 1;
        out->physical_offset = record->fields.physical_offset;
        out->queue_offset = record->fields.queue_offset;
        out->store_timestamp = record->fields.store_timestamp;
        out->nbytes = record->nbytes;
        out->count = 1;
    }
}

static inline void rs_fill_row(rs_put_row *row, const rs_put_record *record)
{
    const int appended = record->status < 0;
    row->status = appended ? RS_PUT_PUT_OK : record->status;
    row->append_status = appended ? RS_APPEND_PUT_OK : record->append_status;
    row->physical_offset = appended ? record->fields.physical_offset : -1;
    row->queue_offset = appended ? record->fields.queue_offset : -1;
    row->store_timestamp = appended ? record->fields.store_timestamp : 0;
    row->nbytes = appended ? (int32_t)record->nbytes : 0;
    row->waits = appended && record->waits;
    row->host_nbytes = record->fields.store_host_nbytes;
    memcpy(row->host, record->store_host, sizeof row->host);
}

/* Return the last row that waits for the flush, -1 if none. */
static inline Py_ssize_t rs_last_waiting(const rs_put_rows *table)
{
    Py_ssize_t last = table->count - 1;
    while (last >= 0 && !table->rows[last].waits) {
        last--;
    }
    return last;
}

static inline void rs_set_waited(rs_put_rows *table, int32_t status)
{
    for (Py_ssize_t i = 0; i < table->count; i++) {
        if (table->rows[i].waits) {
            table->rows[i].status = status;
        }
    }
}

#endif
