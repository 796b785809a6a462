/* Sums over the log's records, by group: topic, queue id, tags, time bucket, body size bucket. */
#ifndef RS_PASS_STATS_H
#define RS_PASS_STATS_H
#include "rs_pass.h"
#include "rs_pass_queues.h"

enum {
    RS_BY_TOPIC = 1,
    RS_BY_QUEUE_ID = 2,
    RS_BY_TAGS = 4,
    RS_BY_BUCKET = 8,
    RS_BY_BODY_SIZE = 16,
};

typedef struct {
    uint64_t hash;
    int64_t text_at; /* topic, then tags */
    int64_t bucket;
    int64_t count, nbytes, body_nbytes;
    int64_t min_timestamp, max_timestamp;
    int64_t min_queue_offset, max_queue_offset;
    int32_t topic_nbytes;
    int32_t tags_nbytes; /* -1: no tags */
    int32_t queue_id;
    int32_t body_size;
} rs_stats_group;

typedef struct {
    rs_pass_call call;
    uint64_t seed;
    int64_t bucket_ms;
    int32_t by;
    int64_t max_groups;
    rs_stats_group *groups; /* in order of appearance */
    int64_t group_room, group_count;
    uint8_t *texts;
    int64_t text_room, text_nbytes;
    int64_t *places; /* a power of two of them: a group's number, -1 where free */
    int64_t mask;    /* places - 1; -1 without places */
} rs_stats_pass;

/* The largest multiple of the width that is not above the time; the lowest number if that would be
 * below it. */
static inline int64_t rs_stats_bucket(int64_t time, int64_t width)
{
    int64_t rest = time % width;
    rest += rest < 0 ? width : 0;
    return time < INT64_MIN + rest ? INT64_MIN : time - rest;
}

/* The largest power of two that is not above the size; 0 for 0. */
static inline int32_t rs_stats_body_size(int32_t size)
{
    int32_t power = size > 0;
    while (power > 0 && power <= size / 2) {
        power *= 2;
    }
    return power;
}

static inline uint64_t rs_stats_hash(const rs_stats_pass *pass, const rs_stats_group *key,
                                     const uint8_t *topic, const uint8_t *tags)
{
    uint64_t hash = rs_queue_hash(pass->seed, topic, key->topic_nbytes, key->queue_id);
    if (key->tags_nbytes >= 0) {
        hash = rs_queue_hash(hash, tags, key->tags_nbytes, 0);
    }
    return pass->by & (RS_BY_BUCKET | RS_BY_BODY_SIZE)
               ? rs_pass_mix(hash + (uint64_t)key->bucket * RS_MIX_FACTOR
                             + (uint64_t)(uint32_t)key->body_size)
               : hash;
}

static inline int rs_stats_same(const rs_stats_pass *pass, const rs_stats_group *group,
                                const rs_stats_group *key, const uint8_t *topic,
                                const uint8_t *tags)
{
    const uint8_t *text = pass->texts + group->text_at;
    return group->hash == key->hash && group->bucket == key->bucket
           && group->topic_nbytes == key->topic_nbytes && group->tags_nbytes == key->tags_nbytes
           && group->queue_id == key->queue_id && group->body_size == key->body_size
           && (key->topic_nbytes == 0 || rs_same_text(text, topic, key->topic_nbytes))
           && (key->tags_nbytes <= 0
               || rs_same_text(text + key->topic_nbytes, tags, key->tags_nbytes));
}

RS_UNUSED static int rs_stats_grow(rs_stats_pass *pass)
{
    const int64_t count = pass->mask < 0 ? 256 : 2 * (pass->mask + 1);
    int64_t *places = (int64_t *)malloc((size_t)count * sizeof *places);
    if (places == NULL) {
        return -1;
    }
    memset(places, 0xff, (size_t)count * sizeof *places);
    for (int64_t number = 0; number < pass->group_count; number++) {
        int64_t at = (int64_t)(pass->groups[number].hash & (uint64_t)(count - 1));
        while (places[at] >= 0) {
            at = (at + 1) & (count - 1);
        }
        places[at] = number;
    }
    free(pass->places);
    pass->places = places;
    pass->mask = count - 1;
    return 0;
}

/* Add a new group; NULL if out of memory. */
RS_NOINLINE static rs_stats_group *rs_stats_add(rs_stats_pass *pass, const rs_stats_group *key,
                                                const uint8_t *topic, const uint8_t *tags)
{
    const int64_t tags_nbytes = key->tags_nbytes > 0 ? key->tags_nbytes : 0;
    const int64_t nbytes = pass->text_nbytes + key->topic_nbytes + tags_nbytes;
    /* One byte more, so that there is an array even without texts. */
    if ((2 * (pass->group_count + 1) > pass->mask && rs_stats_grow(pass) != 0)
        || rs_pass_reserve((void **)&pass->texts, &pass->text_room, nbytes + 1, 1) != 0
        || rs_pass_reserve((void **)&pass->groups, &pass->group_room, pass->group_count + 1,
                           sizeof *pass->groups) != 0) {
        return NULL;
    }
    int64_t at = (int64_t)key->hash & pass->mask;
    while (pass->places[at] >= 0) {
        at = (at + 1) & pass->mask;
    }
    pass->places[at] = pass->group_count;
    rs_stats_group *group = pass->groups + pass->group_count++;
    *group = *key;
    group->text_at = pass->text_nbytes;
    if (key->topic_nbytes > 0) {
        memcpy(pass->texts + pass->text_nbytes, topic, (size_t)key->topic_nbytes);
    }
    if (tags_nbytes > 0) {
        memcpy(pass->texts + pass->text_nbytes + key->topic_nbytes, tags, (size_t)tags_nbytes);
    }
    pass->text_nbytes = nbytes;
    group->min_timestamp = group->min_queue_offset = INT64_MAX;
    group->max_timestamp = group->max_queue_offset = INT64_MIN;
    return group;
}

static inline rs_stats_group *rs_stats_find(const rs_stats_pass *pass, const rs_stats_group *key,
                                            const uint8_t *topic, const uint8_t *tags)
{
    if (RS_UNLIKELY(pass->mask < 0)) {
        return NULL;
    }
    for (int64_t at = (int64_t)key->hash & pass->mask;; at = (at + 1) & pass->mask) {
        const int64_t number = pass->places[at]; /* this ends: half of the places are free */
        if (number < 0) {
            return NULL;
        }
        if (rs_stats_same(pass, pass->groups + number, key, topic, tags)) {
            return pass->groups + number;
        }
    }
}

static inline void rs_stats_sum(rs_stats_group *group, const rs_parsed_record *row)
{
    group->count++;
    group->nbytes += row->total_size;
    group->body_nbytes += row->body_nbytes;
    if (row->store_timestamp < group->min_timestamp) {
        group->min_timestamp = row->store_timestamp;
    }
    if (row->store_timestamp > group->max_timestamp) {
        group->max_timestamp = row->store_timestamp;
    }
    if (row->queue_offset < group->min_queue_offset) {
        group->min_queue_offset = row->queue_offset;
    }
    if (row->queue_offset > group->max_queue_offset) {
        group->max_queue_offset = row->queue_offset;
    }
}

static inline int rs_stats_take(void *argument, const uint8_t *record, rs_parsed_record *row)
{
    rs_stats_pass *pass = (rs_stats_pass *)argument;
    rs_stats_group key;
    const uint8_t *tags = NULL;
    if (RS_UNLIKELY(row->status == RS_GHOST)) {
        return RS_OK;
    }
    memset(&key, 0, sizeof key);
    key.topic_nbytes = pass->by & RS_BY_TOPIC ? row->topic_nbytes : 0;
    key.queue_id = pass->by & RS_BY_QUEUE_ID ? row->queue_id : 0;
    key.tags_nbytes = -1;
    if (pass->by & RS_BY_TAGS) {
        rs_property_values values;
        rs_find_properties(record, row->properties_at, row->properties_nbytes, &values);
        if (values.tags_at >= 0) {
            tags = record + values.tags_at;
            key.tags_nbytes = values.tags_nbytes;
        }
    }
    if (pass->by & RS_BY_BUCKET) {
        key.bucket = rs_stats_bucket(row->store_timestamp, pass->bucket_ms);
    }
    if (pass->by & RS_BY_BODY_SIZE) {
        key.body_size = rs_stats_body_size(row->body_nbytes);
    }
    const uint8_t *topic = record + row->topic_at;
    key.hash = rs_stats_hash(pass, &key, topic, tags);
    rs_stats_group *group = rs_stats_find(pass, &key, topic, tags);
    if (RS_UNLIKELY(group == NULL)) {
        if (pass->group_count >= pass->max_groups) {
            return RS_FULL;
        }
        group = rs_stats_add(pass, &key, topic, tags);
        if (group == NULL) {
            return RS_LIMIT;
        }
    }
    rs_stats_sum(group, row);
    return RS_OK;
}

RS_UNUSED static int rs_stats_run(void *argument)
{
    rs_stats_pass *pass = (rs_stats_pass *)argument;
    return rs_pass_run(&pass->call, pass, rs_stats_take);
}

/* Clear all groups. */
RS_UNUSED static void rs_stats_clear(rs_stats_pass *pass)
{
    pass->group_count = pass->text_nbytes = 0;
    free(pass->places);
    pass->places = NULL;
    pass->mask = -1;
}

RS_UNUSED static void rs_stats_free(rs_stats_pass *pass)
{
    rs_stats_clear(pass);
    free(pass->groups);
    free(pass->texts);
}

#endif
