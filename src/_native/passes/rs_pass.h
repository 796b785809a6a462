/* The walk of a pass: checks and processes the records of a window one by one.
 *
 * A pass owns a call and runs through rs_guarded. `position` is always current, so the place of a
 * fault or of a full buffer is known. */
#ifndef RS_PASS_H
#define RS_PASS_H
#include "rs_bytes.h"
#include "rs_formats.h"
#include "rs_record.h"
#include "rs_scan.h"
#include "rs_status.h"

typedef struct {
    const uint8_t *buffer;
    int64_t position; /* in: where to start; out: where to continue */
    int64_t stop;
    int64_t base_offset;
    int64_t segment_end;
    int64_t limit; /* physical; records that begin here or later belong to another split */
    int32_t flags;
} rs_pass_call;

/* Return RS_OK if the record was processed (or skipped), RS_FULL if not, RS_LIMIT if out of memory.
 * Also called for ghosts. */
typedef int (*rs_pass_take)(void *pass, const uint8_t *record, rs_parsed_record *row);

static RS_ALWAYS_INLINE int rs_pass_run(rs_pass_call *call, void *pass, rs_pass_take take)
{
    const uint8_t *end = call->buffer + call->stop, *fetched = call->buffer;
    const int unread = !(call->flags & RS_CHECK_BODY_CRC);
    int64_t position = call->position;
    rs_parsed_record row;
    memset(&row, 0, sizeof row);
    while (position < call->stop && call->base_offset + position < call->limit) {
        const uint8_t *p = call->buffer + position;
        fetched = rs_prefetch_ahead(fetched, p, end,
                                    unread && row.total_size > RS_PREFETCH_WINDOW_NBYTES);
        int status = rs_check(p, end - p, call->base_offset + position, call->segment_end,
                              call->flags, &row);
        if (RS_UNLIKELY(!rs_is_complete(status))) {
            return status;
        }
        const int32_t total_size = row.total_size;
        status = take(pass, p, &row);
        if (RS_UNLIKELY(status != RS_OK)) {
            return status;
        }
        position += total_size;
        call->position = position;
        RS_COMPILER_BARRIER();
    }
    return RS_END;
}

#endif
