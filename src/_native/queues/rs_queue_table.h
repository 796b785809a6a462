/* The dispatcher's table of queues: (topic, queue id) to the place of the queue's next unit.
 *
 * Open addressing, at most two thirds full, one cache line per entry: a record finds its queue with
 * one cache miss. The 64-bit hash is keyed by a seed of the process; a hit is compared in full.
 * Entries move when the table grows or one is removed: then pointers must be looked up again. */
#ifndef RS_QUEUE_TABLE_H
#define RS_QUEUE_TABLE_H
#include <stdlib.h>

#include "rs_bytes.h"
#include "rs_formats.h"
#include "rs_hash.h"
#include "rs_mutex.h"

#define RS_QUEUE_TABLE_FIRST_COUNT 64
#define RS_MIX_FACTOR 0x9e3779b97f4a7c15u

typedef struct {
    uint64_t hash;
    const uint8_t *topic; /* in the table's texts; NULL: this place is free */
    uint8_t *write;       /* where the next unit goes; NULL without a file */
    uint8_t *limit;       /* end of the last whole unit of the file */
    int64_t next_index;   /* read by other threads: stored after the unit's bytes */
    int64_t max_physical_offset; /* also read by other threads */
    int32_t queue_id;
    uint16_t topic_nbytes;
    uint16_t shifted;    /* a light queue whose units are not at their records' queue offsets */
    int32_t prefix_hash; /* of the topic and the separator, the beginning of index keys */
    int32_t handle;
} rs_queue;

_Static_assert(sizeof(rs_queue) == RS_CACHE_LINE_NBYTES, "an entry fills one cache line");

typedef struct {
    void *memory;
    rs_queue *places; /* aligned to the cache line */
    uint64_t mask;    /* places - 1 */
    uint64_t used;
    uint64_t seed;
    uint8_t *texts; /* the topics, side by side; those of removed queues go with the next rebuild */
    int64_t text_room, text_used, text_live;
    rs_queue **of_handle; /* NULL for a removed queue's handle */
    int32_t handle_count, handle_room;
} rs_queue_table;

static inline uint64_t rs_mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * RS_MIX_FACTOR;
    return hash ^ (hash >> 32);
}

/* Hashes whole words; the last one overlaps, so no byte past the text is read. The high bytes of a
 * word reach the low bits of the hash only by the second mix. */
static inline uint64_t rs_queue_hash(uint64_t seed, const uint8_t *topic, int32_t n,
                                     int32_t queue_id)
{
    uint64_t hash = rs_mix(seed, ((uint64_t)(uint32_t)n << 32) | (uint32_t)queue_id);
    uint64_t word = 0;
    if (n >= 8) {
        for (int32_t at = 0; at < n - 8; at += 8) {
            hash = rs_mix(hash, rs_load_u64(topic + at));
        }
        word = rs_load_u64(topic + n - 8);
    } else if (n >= 4) {
        word = ((uint64_t)rs_load_u32(topic) << 32) | rs_load_u32(topic + n - 4);
    } else {
        for (int32_t at = 0; at < n; at++) {
            word = (word << 8) | topic[at];
        }
    }
    return rs_mix(rs_mix(hash, word), 0);
}

static inline int rs_same_text(const uint8_t *a, const uint8_t *b, int32_t n)
{
    if (n < 8) {
        return memcmp(a, b, (size_t)n) == 0;
    }
    uint64_t differs = 0;
    for (int32_t at = 0; at < n - 8; at += 8) {
        differs |= rs_load_u64(a + at) ^ rs_load_u64(b + at);
    }
    return (differs | (rs_load_u64(a + n - 8) ^ rs_load_u64(b + n - 8))) == 0;
}

static inline rs_queue *rs_queue_find(const rs_queue_table *table, uint64_t hash,
                                      const uint8_t *topic, int32_t n, int32_t queue_id)
{
    for (uint64_t at = hash & table->mask;; at = (at + 1) & table->mask) {
        rs_queue *queue = table->places + at; /* this ends: a third of the places is free */
        if (queue->topic == NULL) {
            return NULL;
        }
        if (queue->hash == hash && queue->queue_id == queue_id && queue->topic_nbytes == n
            && rs_same_text(queue->topic, topic, n)) {
            return queue;
        }
    }
}

/* H(topic#): the hash of the beginning of this topic's index keys. */
static inline int32_t rs_prefix_hash(const uint8_t *topic, int32_t n)
{
    uint32_t units;
    const int32_t hash = rs_string_hash(topic, (size_t)n, &units);
    return rs_hash_extend(hash, RS_INDEX_KEY_SEPARATOR[0], 1);
}

static inline rs_queue *rs_queue_free_place(rs_queue_table *table, uint64_t hash)
{
    uint64_t at = hash & table->mask;
    while (table->places[at].topic != NULL) {
        at = (at + 1) & table->mask;
    }
    return table->places + at;
}

static void rs_queue_move(rs_queue_table *to, const rs_queue *from)
{
    rs_queue *queue = rs_queue_free_place(to, from->hash);
    *queue = *from;
    queue->topic = to->texts + to->text_used;
    memcpy(to->texts + to->text_used, from->topic, (size_t)from->topic_nbytes);
    to->text_used += from->topic_nbytes;
    to->of_handle[queue->handle] = queue;
}

/* Move to `count` places and `text_room` bytes; -1 if out of memory (the table is unchanged). */
RS_UNUSED static int rs_queue_table_rebuild(rs_queue_table *table, uint64_t count,
                                            int64_t text_room)
{
    rs_queue_table fresh = *table;
    fresh.memory = calloc((size_t)count + 1, sizeof(rs_queue));
    fresh.texts = (uint8_t *)malloc((size_t)text_room + 1);
    if (fresh.memory == NULL || fresh.texts == NULL) {
        free(fresh.memory);
        free(fresh.texts);
        return -1;
    }
    const uintptr_t start = ((uintptr_t)fresh.memory + RS_CACHE_LINE_NBYTES - 1)
                            & ~(uintptr_t)(RS_CACHE_LINE_NBYTES - 1);
    fresh.places = (rs_queue *)start;
    fresh.mask = count - 1;
    fresh.text_room = text_room;
    fresh.text_used = 0;
    for (int32_t handle = 0; handle < table->handle_count; handle++) {
        if (table->of_handle[handle] != NULL) {
            rs_queue_move(&fresh, table->of_handle[handle]);
        }
    }
    free(table->memory);
    free(table->texts);
    *table = fresh;
    return 0;
}

/* Reserve room for one more queue with a topic of n bytes; 0, or -1 if out of memory. */
RS_UNUSED static int rs_queue_table_reserve(rs_queue_table *table, int32_t n)
{
    uint64_t count = table->places == NULL ? RS_QUEUE_TABLE_FIRST_COUNT : table->mask + 1;
    int64_t text_room = table->text_room;
    count *= 3 * (table->used + 1) > 2 * count ? 2 : 1;
    if (table->text_used + n > text_room) {
        text_room = 2 * (table->text_live + n) + RS_QUEUE_TABLE_FIRST_COUNT;
    }
    if (count == table->mask + 1 && text_room == table->text_room) {
        return 0;
    }
    return rs_queue_table_rebuild(table, count, text_room);
}

RS_UNUSED static int rs_queue_table_reserve_handle(rs_queue_table *table)
{
    if (table->handle_count < table->handle_room) {
        return 0;
    }
    if (table->handle_room > INT32_MAX / 2) {
        return -1;
    }
    const int32_t room =
        table->handle_room == 0 ? RS_QUEUE_TABLE_FIRST_COUNT : 2 * table->handle_room;
    rs_queue **grown = (rs_queue **)realloc(table->of_handle, (size_t)room * sizeof *grown);
    if (grown == NULL) {
        return -1;
    }
    table->of_handle = grown;
    table->handle_room = room;
    return 0;
}

/* Add a queue with the next handle and no file; NULL if out of memory. Requires: it is new. */
RS_UNUSED static rs_queue *rs_queue_add(rs_queue_table *table, uint64_t hash, const uint8_t *topic,
                                        int32_t n, int32_t queue_id)
{
    if (rs_queue_table_reserve_handle(table) != 0 || rs_queue_table_reserve(table, n) != 0) {
        return NULL;
    }
    rs_queue *queue = rs_queue_free_place(table, hash);
    memset(queue, 0, sizeof *queue);
    queue->hash = hash;
    queue->topic = table->texts + table->text_used;
    memcpy(table->texts + table->text_used, topic, (size_t)n);
    table->text_used += n;
    table->text_live += n;
    queue->topic_nbytes = (uint16_t)n; /* at most RS_MAX_PROPERTIES_NBYTES */
    queue->queue_id = queue_id;
    queue->prefix_hash = rs_prefix_hash(topic, n);
    queue->max_physical_offset = -1;
    queue->handle = table->handle_count;
    table->of_handle[table->handle_count++] = queue;
    table->used++;
    return queue;
}

/* Close the hole of a removed entry, so that lookups still find every other entry. */
RS_UNUSED static void rs_queue_remove(rs_queue_table *table, rs_queue *queue)
{
    uint64_t hole = (uint64_t)(queue - table->places);
    table->of_handle[queue->handle] = NULL;
    table->text_live -= queue->topic_nbytes;
    for (uint64_t at = (hole + 1) & table->mask; table->places[at].topic != NULL;
         at = (at + 1) & table->mask) {
        const uint64_t home = table->places[at].hash & table->mask;
        if (((at - home) & table->mask) >= ((at - hole) & table->mask)) {
            table->places[hole] = table->places[at];
            table->of_handle[table->places[hole].handle] = table->places + hole;
            hole = at;
        }
    }
    memset(table->places + hole, 0, sizeof *table->places);
    table->used--;
}

RS_UNUSED static void rs_queue_table_free(rs_queue_table *table)
{
    free(table->memory);
    free(table->texts);
    free(table->of_handle);
    memset(table, 0, sizeof *table);
}

#endif
