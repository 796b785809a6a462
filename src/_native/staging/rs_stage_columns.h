/* Reads columns of an Arrow record batch: values of the few types that a sink takes. The creator of
 * the batch guarantees its offsets. */
#ifndef RS_STAGE_COLUMNS_H
#define RS_STAGE_COLUMNS_H
#include "rs_arrow_interface.h"
#include "rs_bytes.h"

enum { RS_COLUMN_NONE, RS_COLUMN_TEXT, RS_COLUMN_INT32, RS_COLUMN_INT64, RS_COLUMN_MAP };

typedef struct rs_given_column {
    int kind;  /* RS_COLUMN_NONE: there is no such column */
    int wide;  /* offsets of text have 64 bits */
    int micro; /* a time in microseconds, else in milliseconds */
    int64_t first; /* row 0 of the batch is this row of the buffers */
    const uint8_t *validity; /* NULL: nothing is null */
    const uint8_t *offsets;
    const uint8_t *values;
} rs_given_column;

static inline int rs_column_is_null(const rs_given_column *column, int64_t row)
{
    const int64_t at = column->first + row;
    return column->kind == RS_COLUMN_NONE
           || (column->validity != NULL && !((column->validity[at >> 3] >> (at & 7)) & 1));
}

static inline int64_t rs_column_offset(const rs_given_column *column, int64_t at)
{
    int32_t narrow;
    int64_t wide;
    if (column->wide) {
        memcpy(&wide, column->offsets + 8 * at, sizeof wide);
        return wide;
    }
    memcpy(&narrow, column->offsets + 4 * at, sizeof narrow);
    return narrow;
}

/* The bytes of a text that is not null; for a map, the numbers of its pairs. */
static inline int64_t rs_column_span(const rs_given_column *column, int64_t row, int64_t *start)
{
    *start = rs_column_offset(column, column->first + row);
    return rs_column_offset(column, column->first + row + 1) - *start;
}

static inline const uint8_t *rs_column_text(const rs_given_column *column, int64_t row,
                                            int64_t *nbytes)
{
    int64_t start;
    *nbytes = rs_column_span(column, row, &start);
    return column->values + start;
}

static inline int64_t rs_column_number(const rs_given_column *column, int64_t row)
{
    int32_t narrow;
    int64_t wide;
    if (column->kind == RS_COLUMN_INT32) {
        memcpy(&narrow, column->values + 4 * (column->first + row), sizeof narrow);
        return narrow;
    }
    memcpy(&wide, column->values + 8 * (column->first + row), sizeof wide);
    if (column->micro) {
        return wide / 1000 - (wide % 1000 < 0); /* rounded down, also before 1970 */
    }
    return wide;
}

/* Take over a column; return 0 if a sink does not support its type. The caller takes over the
 * children of a map. */
static inline int rs_column_take(rs_given_column *column, const struct ArrowSchema *schema,
                                 const struct ArrowArray *array, int64_t first)
{
    const char *format = schema->format;
    static const uint8_t nothing[16] = {0};
    memset(column, 0, sizeof *column);
    column->first = first + array->offset;
    column->validity =
        array->null_count == 0 ? NULL : (const uint8_t *)array->buffers[0];
    if (schema->dictionary != NULL) {
        return 0;
    }
    if (format[0] == 't' && format[1] == 's' && format[2] == 'u') {
        column->kind = RS_COLUMN_INT64;
        column->micro = 1;
    } else if (format[0] == 0 || format[1] != 0) {
        if (format[0] != '+' || format[1] != 'm' || format[2] != 0) {
            return 0;
        }
        column->kind = RS_COLUMN_MAP;
        column->offsets = (const uint8_t *)array->buffers[1];
        return 1;
    } else if (format[0] == 'i') {
        column->kind = RS_COLUMN_INT32;
    } else if (format[0] == 'l') {
        column->kind = RS_COLUMN_INT64;
    } else if (format[0] == 'u' || format[0] == 'z' || format[0] == 'U' || format[0] == 'Z') {
        column->kind = RS_COLUMN_TEXT;
        column->wide = format[0] == 'U' || format[0] == 'Z';
        column->offsets = (const uint8_t *)array->buffers[1];
        column->values = (const uint8_t *)array->buffers[2];
        /* A column without bytes may have no buffer. */
        column->values = column->values == NULL ? nothing : column->values;
        return 1;
    } else {
        return 0;
    }
    column->values = (const uint8_t *)array->buffers[1];
    return 1;
}

#endif
