/* (topic, queue id) -> next queue offset: open addressing over entries that never move. */
#ifndef RS_TOPIC_TABLE_H
#define RS_TOPIC_TABLE_H
#include <stdlib.h>
#include "rs_bytes.h"
#include "rs_formats.h"

typedef struct {
    uint64_t hash;
    int64_t next_offset;
    int32_t queue_id;
    int32_t topic_nbytes;
    uint8_t topic[];
} rs_topic_entry;

typedef struct {
    rs_topic_entry **slots; /* a power of two of them, NULL where free */
    size_t mask;
    size_t count;
    size_t light_count; /* number of light queues among them */
    uint64_t seed; /* from the operating system, so that clients cannot choose colliding topics */
} rs_topic_table;

#define RS_TOPIC_TABLE_FIRST_SLOTS 64
#define RS_MIX_1 0x9e3779b97f4a7c15ULL
#define RS_MIX_2 0xbf58476d1ce4e5b9ULL

static inline int rs_is_light_topic(const uint8_t *topic, int32_t n)
{
    const int32_t prefix_nbytes = (int32_t)sizeof RS_TOPIC_LMQ_PREFIX - 1;
    return n >= prefix_nbytes && memcmp(topic, RS_TOPIC_LMQ_PREFIX, (size_t)prefix_nbytes) == 0;
}

static inline uint64_t rs_mix(uint64_t h)
{
    h = (h ^ (h >> 32)) * RS_MIX_1;
    h = (h ^ (h >> 29)) * RS_MIX_2;
    return h ^ (h >> 32);
}

static inline uint64_t rs_topic_hash(const rs_topic_table *table, const uint8_t *topic, int32_t n)
{
    uint64_t h = table->seed ^ (uint64_t)(uint32_t)n;
    int32_t at = 0;
    for (; n - at >= 8; at += 8) {
        h = rs_mix(h ^ rs_load_u64(topic + at));
    }
    uint64_t rest = 0;
    for (; at < n; at++) {
        rest = rest << 8 | topic[at];
    }
    return rs_mix(h ^ rest);
}

static inline uint64_t rs_topic_queue_hash(uint64_t topic_hash, int32_t queue_id)
{
    return rs_mix(topic_hash + (uint64_t)(uint32_t)queue_id);
}

/* Return 0, or -1 if out of memory. */
RS_UNUSED static int rs_topic_table_init(rs_topic_table *table, uint64_t seed)
{
    table->seed = seed;
    table->count = table->light_count = 0;
    table->mask = RS_TOPIC_TABLE_FIRST_SLOTS - 1;
    table->slots = (rs_topic_entry **)calloc(table->mask + 1, sizeof *table->slots);
    return table->slots == NULL ? -1 : 0;
}

RS_UNUSED static void rs_topic_table_free(rs_topic_table *table)
{
    for (size_t i = 0; table->slots != NULL && i <= table->mask; i++) {
        free(table->slots[i]);
    }
    free(table->slots);
    table->slots = NULL;
}

/* Return the slot of the key, or the free one for it. At least half of the slots are free. */
static inline size_t rs_topic_slot(const rs_topic_table *table, uint64_t hash, const uint8_t *topic,
                                   int32_t topic_nbytes, int32_t queue_id)
{
    size_t slot = (size_t)hash & table->mask;
    for (;;) {
        const rs_topic_entry *entry = table->slots[slot];
        if (entry == NULL
            || (entry->hash == hash && entry->queue_id == queue_id
                && entry->topic_nbytes == topic_nbytes
                && memcmp(entry->topic, topic, (size_t)topic_nbytes) == 0)) {
            return slot;
        }
        slot = (slot + 1) & table->mask;
    }
}

/* Return NULL if unknown. */
static inline rs_topic_entry *rs_topic_find(const rs_topic_table *table, uint64_t hash,
                                            const uint8_t *topic, int32_t topic_nbytes,
                                            int32_t queue_id)
{
    return table->slots[rs_topic_slot(table, hash, topic, topic_nbytes, queue_id)];
}

RS_UNUSED static int rs_topic_table_grow(rs_topic_table *table)
{
    const size_t mask = table->mask * 2 + 1;
    rs_topic_entry **slots = (rs_topic_entry **)calloc(mask + 1, sizeof *slots);
    if (slots == NULL) {
        return -1;
    }
    for (size_t i = 0; i <= table->mask; i++) {
        rs_topic_entry *entry = table->slots[i];
        if (entry != NULL) {
            size_t slot = (size_t)entry->hash & mask;
            while (slots[slot] != NULL) {
                slot = (slot + 1) & mask;
            }
            slots[slot] = entry;
        }
    }
    free(table->slots);
    table->slots = slots;
    table->mask = mask;
    return 0;
}

/* Return the entry, created with offset 0 if unknown; NULL if out of memory. */
RS_UNUSED static rs_topic_entry *rs_topic_put(rs_topic_table *table, uint64_t hash,
                                              const uint8_t *topic, int32_t topic_nbytes,
                                              int32_t queue_id)
{
    size_t slot = rs_topic_slot(table, hash, topic, topic_nbytes, queue_id);
    if (table->slots[slot] != NULL) {
        return table->slots[slot];
    }
    if (table->count * 2 >= table->mask) {
        if (rs_topic_table_grow(table) != 0) {
            return NULL;
        }
        slot = rs_topic_slot(table, hash, topic, topic_nbytes, queue_id);
    }
    rs_topic_entry *entry = (rs_topic_entry *)malloc(sizeof *entry + (size_t)topic_nbytes);
    if (entry == NULL) {
        return NULL;
    }
    entry->hash = hash;
    entry->next_offset = 0;
    entry->queue_id = queue_id;
    entry->topic_nbytes = topic_nbytes;
    memcpy(entry->topic, topic, (size_t)topic_nbytes);
    table->slots[slot] = entry;
    table->count++;
    table->light_count += (size_t)rs_is_light_topic(topic, topic_nbytes);
    return entry;
}

/* Remove the entry and close the gap, so that no probe chain breaks. */
RS_UNUSED static void rs_topic_remove(rs_topic_table *table, uint64_t hash, const uint8_t *topic,
                                      int32_t topic_nbytes, int32_t queue_id)
{
    size_t hole = rs_topic_slot(table, hash, topic, topic_nbytes, queue_id);
    if (table->slots[hole] == NULL) {
        return;
    }
    free(table->slots[hole]);
    table->slots[hole] = NULL;
    table->count--;
    table->light_count -= (size_t)rs_is_light_topic(topic, topic_nbytes);
    for (size_t slot = (hole + 1) & table->mask; table->slots[slot] != NULL;
         slot = (slot + 1) & table->mask) {
        const size_t home = (size_t)table->slots[slot]->hash & table->mask;
        if (((slot - home) & table->mask) >= ((slot - hole) & table->mask)) {
            table->slots[hole] = table->slots[slot];
            table->slots[slot] = NULL;
            hole = slot;
        }
    }
}

#endif
