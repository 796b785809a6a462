/* The rows of rs_scan_records, in a buffer of any alignment, beside the records they describe. */
#ifndef RS_ROWS_H
#define RS_ROWS_H
#include "rs_bytes.h"
#include "rs_record.h"

/* The texts of a record are prefetched so many rows ahead: about as many as one core reads at a
 * time. A topic, the keys and the tags lie within a few lines, past the body. */
#define RS_ROWS_AHEAD 8
#define RS_ROW_TEXT_LINES 4

static inline void rs_load_row(const uint8_t *rows, int64_t number, rs_parsed_record *row)
{
    memcpy(row, rows + number * (int64_t)sizeof *row, sizeof *row);
}

/* Whether the row's record is still in the buffer: another process may have overwritten it.
 * Requires: the row's topic lies in the buffer. */
static inline int rs_is_still_there(const uint8_t *buffer, int64_t nbytes,
                                    const rs_parsed_record *row)
{
    const int64_t at = (int64_t)row->position + RS_RECORD_HEAD_TOTAL_SIZE_AT;
    return at <= nbytes - (int64_t)sizeof(int32_t)
           && rs_load_be32(buffer + at) == row->total_size;
}

/* Prefetch the topic and the properties of a later row. */
static inline void rs_prefetch_row_texts(const uint8_t *buffer, int64_t nbytes,
                                         const uint8_t *rows, int64_t number, int64_t count)
{
    if (number + RS_ROWS_AHEAD < count) {
        rs_parsed_record row;
        rs_load_row(rows, number + RS_ROWS_AHEAD, &row);
        const int64_t at = (int64_t)row.position + row.topic_at;
        for (int64_t line = 0; line < RS_ROW_TEXT_LINES; line++) {
            if (at >= 0 && at + line * RS_CACHE_LINE_NBYTES < nbytes) {
                RS_PREFETCH_READ(buffer + at + line * RS_CACHE_LINE_NBYTES);
            }
        }
    }
}

#endif
