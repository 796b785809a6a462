/* Property values known only at the append: offsets in light queues, an inner batch's base.
 *
 * A record with such values has its properties in `fixed`, with empty values; under the appender's
 * mutex they are filled in, into `out`. The rows of a column share this memory, since nothing else
 * happens between filling in and writing. */
#ifndef RS_OFFSET_PROPERTIES_H
#define RS_OFFSET_PROPERTIES_H
#include "rs_formats.h"
#include "rs_topic_table.h"

/* Maximum digits of a queue offset, and the separator after it. */
#define RS_LATE_VALUE_NBYTES 20

/* A queue that a message names besides its own. */
typedef struct {
    const uint8_t *topic; /* NULL if the version assigns no offset */
    uint64_t hash;        /* of topic and queue */
    int64_t assigned;     /* the offset that the message stores */
    int32_t topic_nbytes;
    int32_t queue_id;
    int32_t earlier; /* how often the message named it before, if the version counts that */
} rs_light_queue;

/* The status of a put and of its append (-1: none) for an exceeded limit. */
typedef struct {
    int32_t status;
    int32_t append_status;
} rs_refusal;

typedef struct {
    const uint8_t *fixed;
    uint8_t *out; /* has room for `fixed` and all values */
    rs_light_queue *lights;
    int64_t max_record_nbytes;
    int64_t max_light_count; /* -1: no limit */
    int32_t fixed_nbytes;
    int32_t light_count;
    int32_t lights_at; /* position of the offsets' value in `fixed`; -1: none */
    int32_t base_at;   /* the same for the base */
    int32_t body_first; /* the limit of the body is checked before that of the properties */
    int32_t takes;      /* the record uses up the offsets that it stores */
    int32_t absolute; /* the next offset follows the stored one, not the table's */
    int32_t quota;    /* the limit is for queues that do not exist yet */
    rs_refusal properties;
    rs_refusal size;
} rs_offset_properties;

static inline uint8_t *rs_put_decimal(uint8_t *p, int64_t value)
{
    uint8_t digits[RS_LATE_VALUE_NBYTES];
    int count = 0;
    do {
        digits[count++] = (uint8_t)('0' + value % 10);
        value /= 10;
    } while (value != 0);
    while (count > 0) {
        *p++ = digits[--count];
    }
    return p;
}

/* Look up the offsets to store; return nonzero if there are too many light queues already. */
static inline int rs_offset_report(rs_offset_properties *late, const rs_topic_table *queues)
{
    int new_count = 0;
    for (int32_t i = 0; i < late->light_count; i++) {
        rs_light_queue *light = late->lights + i;
        if (light->topic != NULL) {
            const rs_topic_entry *entry = rs_topic_find(
                queues, light->hash, light->topic, light->topic_nbytes, light->queue_id);
            light->assigned = (entry == NULL ? 0 : entry->next_offset) + light->earlier;
            new_count += entry == NULL && rs_is_light_topic(light->topic, light->topic_nbytes);
        }
    }
    if (late->max_light_count < 0) {
        return 0;
    }
    const int64_t count = (int64_t)queues->light_count;
    return late->quota ? count >= late->max_light_count && new_count > 0
                       : count > late->max_light_count;
}

static inline uint8_t *rs_put_listed(const rs_offset_properties *late, uint8_t *p)
{
    for (int32_t i = 0; i < late->light_count; i++) {
        if (i > 0) {
            *p++ = (uint8_t)RS_MULTI_DISPATCH_SEPARATOR[0];
        }
        if (late->lights[i].topic != NULL) {
            p = rs_put_decimal(p, late->lights[i].assigned);
        }
    }
    return p;
}

/* Fill in the values; return the length of the properties. */
static inline int32_t rs_offset_compose(rs_offset_properties *late, int64_t queue_offset)
{
    uint8_t *p = late->out;
    int32_t from = 0;
    for (int turn = 0; turn < 2; turn++) {
        const int is_base = (late->base_at < late->lights_at) == (turn == 0);
        const int32_t at = is_base ? late->base_at : late->lights_at;
        if (at >= 0) {
            memcpy(p, late->fixed + from, (size_t)(at - from));
            p += at - from;
            p = is_base ? rs_put_decimal(p, queue_offset) : rs_put_listed(late, p);
            from = at;
        }
    }
    memcpy(p, late->fixed + from, (size_t)(late->fixed_nbytes - from));
    return (int32_t)(p - late->out) + late->fixed_nbytes - from;
}

static inline rs_topic_entry *rs_light_entry(const rs_light_queue *light, rs_topic_table *queues)
{
    return rs_topic_put(queues, light->hash, light->topic, light->topic_nbytes, light->queue_id);
}

/* Create all entries, so that rs_offset_take cannot fail; return 0, or -1 if out of memory. */
RS_UNUSED RS_NOINLINE static int rs_offset_reserve(const rs_offset_properties *late,
                                                   rs_topic_table *queues)
{
    for (int32_t i = 0; i < late->light_count; i++) {
        if (late->lights[i].topic != NULL && rs_light_entry(late->lights + i, queues) == NULL) {
            return -1;
        }
    }
    return 0;
}

/* Advance the light queues, except the record's own one. Requires: rs_offset_reserve. */
RS_UNUSED RS_NOINLINE static void rs_offset_take(const rs_offset_properties *late,
                                                 rs_topic_table *queues, const rs_topic_entry *own)
{
    for (int32_t i = 0; late->takes && i < late->light_count; i++) {
        const rs_light_queue *light = late->lights + i;
        if (light->topic != NULL) {
            rs_topic_entry *entry = rs_light_entry(light, queues);
            if (late->absolute) {
                entry->next_offset = light->assigned + 1;
            } else if (entry != own) {
                entry->next_offset++;
            }
        }
    }
}

#endif
