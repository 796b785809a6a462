/* Which records a pass takes: tables of texts, rules of topics, bounds. Built once, then read. */
#ifndef RS_RECORD_FILTER_H
#define RS_RECORD_FILTER_H
#include <stdlib.h>
#include "rs_bytes.h"
#include "rs_formats.h"
#include "rs_hash.h"
#include "rs_properties.h"
#include "rs_sql92.h"
#include "rs_status.h"
#include "rs_utf8.h"

typedef struct {
    const uint8_t *p; /* NULL: free */
    int32_t nbytes;
    uint32_t hash;
    int32_t value;
} rs_text_slot;

/* Open addressing, at most half full. The texts belong to the caller. */
typedef struct {
    rs_text_slot *slots;
    uint32_t mask;
} rs_text_table;

static inline uint32_t rs_text_hash(const uint8_t *p, int32_t n)
{
    uint32_t units;
    const uint32_t hash = (uint32_t)rs_string_hash(p, (size_t)n, &units) * 0x9e3779b1u;
    return hash ^ hash >> 15;
}

RS_UNUSED static int rs_begin_text_table(rs_text_table *table, int64_t count)
{
    uint32_t capacity = 4;
    while ((int64_t)capacity < 2 * count) {
        capacity *= 2;
    }
    table->mask = capacity - 1;
    table->slots = (rs_text_slot *)calloc(capacity, sizeof *table->slots);
    return table->slots == NULL ? RS_LIMIT : RS_OK;
}

RS_UNUSED static void rs_add_text(rs_text_table *table, const uint8_t *p, int32_t n,
                                  int32_t value)
{
    const uint32_t hash = rs_text_hash(p, n);
    uint32_t at = hash & table->mask;
    while (table->slots[at].p != NULL) {
        at = (at + 1) & table->mask;
    }
    table->slots[at].p = p;
    table->slots[at].nbytes = n;
    table->slots[at].hash = hash;
    table->slots[at].value = value;
}

/* The text's value, -1 if it is absent. */
static inline int32_t rs_find_text(const rs_text_table *table, const uint8_t *p, int32_t n)
{
    const uint32_t hash = rs_text_hash(p, n);
    for (uint32_t at = hash & table->mask;; at = (at + 1) & table->mask) {
        const rs_text_slot *slot = &table->slots[at];
        if (slot->p == NULL) {
            return -1;
        }
        if (slot->hash == hash && slot->nbytes == n && memcmp(slot->p, p, (size_t)n) == 0) {
            return slot->value;
        }
    }
}

typedef struct {
    int64_t first;
    int64_t last; /* inclusive */
    int32_t queue_id;
} rs_queue_range;

typedef struct {
    int64_t id_count; /* -1: every queue */
    int64_t range_count;
    int32_t *ids;           /* ascending */
    rs_queue_range *ranges; /* ascending by queue */
    int32_t wanted;
} rs_topic_rule;

typedef struct {
    rs_text_table topics; /* value: number of the rule; slots NULL: no table */
    rs_text_table tags;
    rs_text_table keys;
    rs_topic_rule *rules;
    int64_t rule_count;
    int64_t first_time;
    int64_t last_time; /* inclusive */
    int32_t other_topics; /* whether topics without a rule are taken */
    rs_sql92_filter *sql; /* NULL: none; belongs to the filter */
    /* Buffer for malformed text, repaired for comparing. */
    uint8_t mended[RS_MENDED_TIMES * (RS_MAX_PROPERTIES_NBYTES + 1)];
} rs_record_filter;

RS_UNUSED static void rs_free_filter(rs_record_filter *filter)
{
    for (int64_t i = 0; i < filter->rule_count; i++) {
        free(filter->rules[i].ids);
        free(filter->rules[i].ranges);
    }
    free(filter->rules);
    free(filter->topics.slots);
    free(filter->tags.slots);
    free(filter->keys.slots);
    rs_sql92_free(filter->sql);
    memset(filter, 0, sizeof *filter);
}

static inline int rs_rule_has_queue(const rs_topic_rule *rule, int32_t queue_id)
{
    int64_t low = 0, high = rule->id_count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (rule->ids[middle] == queue_id) {
            return 1;
        }
        if (rule->ids[middle] < queue_id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return rule->id_count < 0;
}

static inline int rs_rule_has_offset(const rs_topic_rule *rule, int32_t queue_id, int64_t offset)
{
    int64_t low = 0, high = rule->range_count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        const rs_queue_range *range = &rule->ranges[middle];
        if (range->queue_id == queue_id) {
            return range->first <= offset && offset <= range->last;
        }
        if (range->queue_id < queue_id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return 1;
}

static inline int32_t rs_find_mended(rs_record_filter *filter, const rs_text_table *table,
                                     const uint8_t *p, int32_t n)
{
    if (RS_UNLIKELY(!rs_is_plain(p, n))) {
        n = rs_mend(filter->mended, p, n);
        p = filter->mended;
    }
    return rs_find_text(table, p, n);
}

static inline int rs_takes_queue(rs_record_filter *filter, const uint8_t *record,
                                 const rs_parsed_record *row)
{
    const int32_t number = rs_find_mended(filter, &filter->topics, record + row->topic_at,
                                          row->topic_nbytes);
    if (number < 0) {
        return filter->other_topics;
    }
    const rs_topic_rule *rule = &filter->rules[number];
    return rule->wanted && rs_rule_has_queue(rule, row->queue_id)
           && rs_rule_has_offset(rule, row->queue_id, row->queue_offset);
}

/* Return whether one of the space-separated keys, or the unique key, is in the table. */
static inline int rs_takes_keys(rs_record_filter *filter, const uint8_t *record,
                                const rs_parsed_record *row)
{
    if (row->unique_key_at >= 0
        && rs_find_mended(filter, &filter->keys, record + row->unique_key_at,
                          row->unique_key_nbytes) >= 0) {
        return 1;
    }
    if (row->keys_at < 0) {
        return 0;
    }
    const uint8_t *p = record + row->keys_at, *end = p + row->keys_nbytes;
    for (;;) {
        const uint8_t *space = (const uint8_t *)memchr(p, RS_KEY_SEPARATOR[0], (size_t)(end - p));
        const uint8_t *stop = space == NULL ? end : space;
        if (rs_find_mended(filter, &filter->keys, p, (int32_t)(stop - p)) >= 0) {
            return 1;
        }
        if (space == NULL) {
            return 0;
        }
        p = space + 1;
    }
}

/* Topic, queue and time. */
static inline int rs_takes_place(rs_record_filter *filter, const uint8_t *record,
                                 const rs_parsed_record *row)
{
    return row->store_timestamp >= filter->first_time && row->store_timestamp <= filter->last_time
           && (filter->topics.slots == NULL || rs_takes_queue(filter, record, row));
}

/* Tags and keys. Requires: they are parsed. */
static inline int rs_takes_properties(rs_record_filter *filter, const uint8_t *record,
                                      const rs_parsed_record *row)
{
    if (filter->tags.slots != NULL
        && (row->tags_at < 0
            || rs_find_mended(filter, &filter->tags, record + row->tags_at, row->tags_nbytes)
                   < 0)) {
        return 0;
    }
    return filter->keys.slots == NULL || rs_takes_keys(filter, record, row);
}

/* Parse what rs_takes_properties needs. */
static inline void rs_find_row_properties(const uint8_t *record, rs_parsed_record *row)
{
    rs_property_values values;
    rs_find_properties(record, row->properties_at, row->properties_nbytes, &values);
    row->tags_at = values.tags_at;
    row->tags_nbytes = values.tags_nbytes;
    row->keys_at = values.keys_at;
    row->keys_nbytes = values.keys_nbytes;
    row->unique_key_at = values.unique_key_at;
    row->unique_key_nbytes = values.unique_key_nbytes;
}

/* The SQL92 filter, the last to be asked; an ERROR is counted. */
static inline int rs_takes_sql(rs_record_filter *filter, const uint8_t *record,
                               const rs_parsed_record *row, int64_t *errors)
{
    if (filter->sql == NULL) {
        return 1;
    }
    const int verdict = rs_sql92_evaluate(filter->sql, record + row->properties_at,
                                          row->properties_nbytes);
    *errors += verdict == RS_SQL92_VERDICT_ERROR;
    return verdict == RS_SQL92_VERDICT_TRUE;
}

#endif
