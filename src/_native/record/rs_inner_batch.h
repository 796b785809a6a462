/* Whether a record is a batch of messages: its flag, INNER_BASE and INNER_NUM must all match. */
#ifndef RS_INNER_BATCH_H
#define RS_INNER_BATCH_H
#include "rs_multi_dispatch.h"

/* Return the number in a property; -1 if it is absent or invalid. The last pair counts. */
RS_UNUSED static int64_t rs_property_number(const uint8_t *record, const rs_parsed_record *row,
                                            const char *name, size_t n)
{
    const uint8_t *pair = record + row->properties_at, *stop = pair + row->properties_nbytes;
    int64_t found = -1;
    while (pair < stop) {
        const uint8_t *end =
            (const uint8_t *)memchr(pair, RS_PROPERTY_SEPARATOR, (size_t)(stop - pair));
        end = end == NULL ? stop : end;
        if ((size_t)(end - pair) > n + 1 && memcmp(pair, name, n) == 0
            && pair[n] == RS_NAME_VALUE_SEPARATOR) {
            found = rs_parse_offset(pair + n + 1, end);
        }
        pair = end + 1;
    }
    return found;
}

/* Requires: the record passed rs_check. */
RS_UNUSED static int rs_is_batch_record(const uint8_t *record, const rs_parsed_record *row)
{
    if (RS_LIKELY(!(row->sys_flag & RS_SYS_FLAG_INNER_BATCH))) {
        return 0;
    }
    const int64_t base = rs_property_number(record, row, RS_PROPERTY_INNER_BASE,
                                            sizeof RS_PROPERTY_INNER_BASE - 1);
    const int64_t count = rs_property_number(record, row, RS_PROPERTY_INNER_NUM,
                                             sizeof RS_PROPERTY_INNER_NUM - 1);
    return base >= 0 && count > 0 && count <= RS_MAX_INNER_BATCH_COUNT
           && base <= INT64_MAX - count;
}

#endif
