/* Multi dispatch: a record's queues besides its own, and its queue offsets there.
 *
 * The two properties are lists, split as by Java's split(",") without empty items at the end. Names
 * without a number at the same place, and invalid folder names, are skipped and make the record
 * odd; RocketMQ drops all names of such a record. */
#ifndef RS_MULTI_DISPATCH_H
#define RS_MULTI_DISPATCH_H
#include "rs_bytes.h"
#include "rs_formats.h"
#include "rs_properties.h"
#include "rs_record.h"
#include "rs_status.h"

typedef struct {
    const uint8_t *names, *names_end;
    const uint8_t *offsets, *offsets_end;
    int32_t flags;    /* RS_MULTI_* */
    int32_t queue_id; /* of the record */
    int32_t odd;      /* the lists are not as a broker writes them */
} rs_multi_walk;

typedef struct {
    const uint8_t *name;
    int32_t name_nbytes;
    int32_t queue_id;
    int64_t queue_offset;
} rs_multi_place;

static inline int rs_starts_with(const uint8_t *text, int32_t n, const char *prefix,
                                 int32_t prefix_nbytes)
{
    return n >= prefix_nbytes && memcmp(text, prefix, (size_t)prefix_nbytes) == 0;
}

#define RS_STARTS_WITH(text, n, prefix) \
    rs_starts_with(text, n, prefix, (int32_t)sizeof prefix - 1)

static inline int rs_is_light(const uint8_t *name, int32_t n)
{
    return RS_STARTS_WITH(name, n, RS_TOPIC_LMQ_PREFIX);
}

/* Return whether records of this topic are dispatched to no other queues. */
RS_UNUSED static int rs_multi_is_excluded(const uint8_t *topic, int32_t n, int32_t flags)
{
    static const char schedule[] = RS_TOPIC_SCHEDULE;
    if ((flags & RS_MULTI_NOT_OF_DLQ) && RS_STARTS_WITH(topic, n, RS_TOPIC_DLQ_PREFIX)) {
        return 1;
    }
    return (flags & RS_MULTI_NOT_OF_SYSTEM)
           && (RS_STARTS_WITH(topic, n, RS_TOPIC_RETRY_PREFIX)
               || RS_STARTS_WITH(topic, n, RS_TOPIC_SYSTEM_PREFIX)
               || (n == (int32_t)sizeof schedule - 1
                   && memcmp(topic, schedule, sizeof schedule - 1) == 0));
}

/* Items of a list; its end moves before empty ones. */
static inline int32_t rs_count_items(const uint8_t *start, const uint8_t **end)
{
    int32_t count = 1;
    while (*end > start && (*end)[-1] == RS_MULTI_DISPATCH_SEPARATOR[0]) {
        *end -= 1;
    }
    for (const uint8_t *p = start; p < *end; p++) {
        count += *p == RS_MULTI_DISPATCH_SEPARATOR[0];
    }
    return *end > start ? count : 0;
}

static inline const uint8_t *rs_item_end(const uint8_t *p, const uint8_t *end)
{
    const uint8_t *found =
        (const uint8_t *)memchr(p, RS_MULTI_DISPATCH_SEPARATOR[0], (size_t)(end - p));
    return found == NULL ? end : found;
}

/* Begin with a parsed record; return 0 if it is dispatched to no other queue. */
RS_UNUSED static int rs_multi_begin(rs_multi_walk *walk, const uint8_t *record,
                                    const rs_parsed_record *row, int32_t flags)
{
    rs_property_values values;
    values.multi_names_nbytes = values.multi_offsets_nbytes = 0;
    if (row->multi_dispatch_at == 0
        || rs_multi_is_excluded(record + row->topic_at, row->topic_nbytes, flags)) {
        return 0;
    }
    rs_find_properties(record, row->properties_at, row->properties_nbytes, &values);
    if (values.multi_names_at == 0 || values.multi_offsets_at == 0) {
        return 0;
    }
    walk->names = record + values.multi_names_at;
    walk->names_end = walk->names + values.multi_names_nbytes;
    walk->offsets = record + values.multi_offsets_at;
    walk->offsets_end = walk->offsets + values.multi_offsets_nbytes;
    walk->flags = flags;
    walk->queue_id = row->queue_id;
    const int32_t names = rs_count_items(walk->names, &walk->names_end);
    walk->odd = names != rs_count_items(walk->offsets, &walk->offsets_end);
    return names > 0;
}

/* Java's Long.parseLong of ASCII digits; -1 if it would throw or the number is negative. */
RS_UNUSED static int64_t rs_parse_offset(const uint8_t *p, const uint8_t *end)
{
    int64_t value = 0;
    p += p < end && *p == '+';
    if (p == end) {
        return -1;
    }
    for (; p < end; p++) {
        if (*p < '0' || *p > '9' || value > (INT64_MAX - (*p - '0')) / 10) {
            return -1;
        }
        value = value * 10 + (*p - '0');
    }
    return value;
}

/* Return whether a folder can have this name. The bytes of the record before it are readable. */
static inline int rs_is_folder_name(const uint8_t *name, int32_t n)
{
    return n > 0 && n <= RS_MAX_FOLDER_NAME_NBYTES && rs_check_topic(name, n) == RS_OK;
}

/* Return the number at the next place of the list; -1 if there is none. */
static inline int64_t rs_multi_next_offset(rs_multi_walk *walk)
{
    if (walk->offsets >= walk->offsets_end) {
        return -1;
    }
    const uint8_t *start = walk->offsets, *end = rs_item_end(start, walk->offsets_end);
    walk->offsets = end + 1;
    return rs_parse_offset(start, end);
}

/* Move to the record's next queue; return 0 if there is none. */
RS_UNUSED static int rs_multi_next(rs_multi_walk *walk, rs_multi_place *place)
{
    while (walk->names < walk->names_end) {
        const uint8_t *name = walk->names, *name_end = rs_item_end(name, walk->names_end);
        walk->names = name_end + 1;
        place->queue_offset = rs_multi_next_offset(walk);
        place->name = name;
        place->name_nbytes = (int32_t)(name_end - name);
        const int light = rs_is_light(name, place->name_nbytes);
        place->queue_id = light ? 0 : walk->queue_id;
        if (!(walk->flags & (light ? RS_MULTI_LIGHT : RS_MULTI_PLAIN))) {
            continue;
        }
        if (place->queue_offset >= 0 && rs_is_folder_name(name, place->name_nbytes)) {
            return 1;
        }
        walk->odd = 1;
    }
    return 0;
}

/* Return whether a checked record names this queue besides its own. */
RS_UNUSED static int rs_multi_names(const uint8_t *record, const rs_parsed_record *row,
                                    const uint8_t *topic, int32_t n, int64_t queue_id)
{
    rs_property_values values;
    values.multi_names_nbytes = values.multi_offsets_nbytes = 0;
    if (queue_id != (rs_is_light(topic, n) ? 0 : row->queue_id)) {
        return 0;
    }
    rs_find_properties(record, row->properties_at, row->properties_nbytes, &values);
    const uint8_t *name = record + values.multi_names_at;
    const uint8_t *end = name + values.multi_names_nbytes;
    while (name < end) {
        const uint8_t *name_end = rs_item_end(name, end);
        if (name_end - name == n && memcmp(name, topic, (size_t)n) == 0) {
            return 1;
        }
        name = name_end + 1;
    }
    return 0;
}

#endif
