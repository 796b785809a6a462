/* Loops over many records: parse consecutive records, find the next one after damage. Both run
 * through rs_guarded: they store their progress in the call's structure before they continue. */
#ifndef RS_SCAN_H
#define RS_SCAN_H
#include "rs_bytes.h"
#include "rs_crc_ranges.h"
#include "rs_formats.h"
#include "rs_properties.h"
#include "rs_record.h"
#include "rs_search.h"
#include "rs_status.h"

/* Memory is prefetched this far ahead of the parsed record. Of a longer record whose body is not
 * read, only the ends are prefetched: its last two lines and the next record's first two. */
#define RS_PREFETCH_WINDOW_NBYTES 8192

typedef struct {
    const uint8_t *buffer;
    int64_t position; /* in: where to start; out: where it stopped */
    int64_t stop;
    int64_t base_offset;
    int64_t segment_end;
    const int64_t *delay_ms;
    uint8_t *rows;   /* any alignment */
    uint32_t *marks; /* rs_find_record: see there */
    int64_t capacity;
    int64_t count; /* out: rows filled */
    int32_t delay_count;
    int32_t flags;
} rs_scan;

/* Not inlined: it would make the loop for short records three times slower. */
RS_UNUSED RS_NOINLINE static void rs_prefetch_ends(const uint8_t *p, const uint8_t *end)
{
    const int64_t size = rs_load_be32(p + RS_RECORD_HEAD_TOTAL_SIZE_AT);
    for (int64_t at = size - 2 * RS_CACHE_LINE_NBYTES; at <= size + RS_CACHE_LINE_NBYTES;
         at += RS_CACHE_LINE_NBYTES) {
        if (at >= 0 && at < end - p) {
            RS_PREFETCH_READ(p + at);
        }
    }
}

/* Prefetch for the record at p; return up to where memory was prefetched. The previous record
 * predicts whether records are long: reading this one's size here would wait for memory first. */
static inline const uint8_t *rs_prefetch_ahead(const uint8_t *next, const uint8_t *p,
                                               const uint8_t *end, int only_ends)
{
    next = next < p ? p : next;
    const uint8_t *to = end - p > RS_PREFETCH_WINDOW_NBYTES ? p + RS_PREFETCH_WINDOW_NBYTES : end;
    if (RS_UNLIKELY(only_ends) && end - p > RS_PREFETCH_WINDOW_NBYTES) {
        rs_prefetch_ends(p, end);
        return next;
    }
    for (; next < to; next += RS_CACHE_LINE_NBYTES) {
        RS_PREFETCH_READ(next);
    }
    return next;
}

static inline int rs_is_complete(int status)
{
    return status == RS_OK || status == RS_GHOST || status == RS_NUL_PROPERTIES
           || status == RS_UNSAFE_TOPIC;
}

/* Check one record; add the bytes that may be skipped to the position. */
RS_UNUSED static int rs_check_one(void *argument)
{
    rs_scan *scan = (rs_scan *)argument;
    rs_parsed_record row;
    const int status = rs_check(scan->buffer + scan->position, scan->stop - scan->position,
                                scan->base_offset + scan->position, scan->segment_end,
                                scan->flags, &row);
    scan->position += row.total_size;
    return status;
}

RS_UNUSED static int rs_scan_records(void *argument)
{
    rs_scan *scan = (rs_scan *)argument;
    const uint8_t *end = scan->buffer + scan->stop, *fetched = scan->buffer;
    const int unread = !(scan->flags & RS_CHECK_BODY_CRC);
    int64_t position = scan->position;
    rs_parsed_record row;
    memset(&row, 0, sizeof row);
    row.tags_at = row.keys_at = row.unique_key_at = -1;
    while (position < scan->stop) {
        const uint8_t *p = scan->buffer + position;
        if (scan->count == scan->capacity) {
            return RS_OK;
        }
        fetched = rs_prefetch_ahead(fetched, p, end,
                                    unread && row.total_size > RS_PREFETCH_WINDOW_NBYTES);
        const int status = rs_check(p, end - p, scan->base_offset + position, scan->segment_end,
                                    scan->flags, &row);
        if (RS_UNLIKELY(!rs_is_complete(status))) {
            return status;
        }
        if (scan->flags & RS_PARSE_PROPERTIES) {
            rs_parse_properties(p, &row, scan->delay_ms, scan->delay_count);
        }
        row.position = (int32_t)position;
        memcpy(scan->rows + scan->count * (int64_t)sizeof row, &row, sizeof row);
        position += row.total_size;
        scan->count++;
        scan->position = position;
        RS_COMPILER_BARRIER();
    }
    return RS_END;
}

/* Return whether the body's CRC matches. Without marks it reads the body, counted in `*budget`. */
static inline int rs_candidate_matches(const rs_scan *scan, const uint8_t *p,
                                       const rs_parsed_record *row, int64_t *budget)
{
    if (scan->marks == NULL) {
        *budget -= row->body_nbytes;
        return rs_body_crc_matches(p, row);
    }
    const uint8_t *start = scan->buffer + scan->position;
    const uint32_t crc = rs_crc_of_range(start, (uint64_t)(p + row->body_at - start),
                                         (uint64_t)row->body_nbytes, scan->marks);
    return row->body_nbytes == 0
           || (int32_t)(crc & RS_CRC_MASK) == rs_load_be32(p + RS_RECORD_HEAD_BODY_CRC_AT);
}

/* Find the first valid record at its own offset: RS_OK with its place in `count`, or RS_END.
 *
 * Forged bytes may contain thousands of headers that claim one long body each. When the bodies read
 * exceed a few times the range, the result is RS_LIMIT: call again with room for
 * rs_crc_mark_count(stop - position) words in `marks`, and every body costs a few kilobytes. */
RS_UNUSED static int rs_find_record(void *argument)
{
    rs_scan *scan = (rs_scan *)argument;
    rs_parsed_record row;
    const uint8_t *stop = scan->buffer + scan->stop;
    const uint8_t *p = scan->buffer + scan->position;
    const uint8_t *end = stop - p < RS_RECORD_MIN_NBYTES ? p : stop - RS_RECORD_MIN_NBYTES + 1;
    int64_t budget = 4 * (stop - p);
    if (scan->marks != NULL) {
        rs_crc_fill_marks(p, (uint64_t)(stop - p), scan->marks);
    }
    while ((p = rs_find_magic(p, end)) < end) {
        const int64_t offset = scan->base_offset + (p - scan->buffer);
        if (RS_UNLIKELY(rs_may_be_record(p, offset))
            && rs_is_complete(rs_check(p, stop - p, offset, scan->segment_end, 0, &row))) {
            if (rs_candidate_matches(scan, p, &row, &budget)) {
                scan->count = p - scan->buffer;
                return RS_OK;
            }
            if (budget < 0) {
                return RS_LIMIT;
            }
        }
        p++;
    }
    return RS_END;
}

#endif
