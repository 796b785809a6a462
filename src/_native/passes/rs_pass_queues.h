/* Queues of a pass, numbered in order of appearance. */
#ifndef RS_PASS_QUEUES_H
#define RS_PASS_QUEUES_H
#include "rs_queue_table.h"
#include "rs_record.h"

enum { RS_PASS_QUEUE_UNKNOWN = -1, RS_PASS_QUEUE_NO_MEMORY = -2 };

/* Return the number of a queue; add a new one if `add`. */
static inline int32_t rs_pass_queue(rs_queue_table *table, const uint8_t *topic, int32_t n,
                                    int32_t queue_id, int add)
{
    const uint64_t hash = rs_queue_hash(table->seed, topic, n, queue_id);
    const rs_queue *queue =
        table->places == NULL ? NULL : rs_queue_find(table, hash, topic, n, queue_id);
    if (RS_LIKELY(queue != NULL)) {
        return queue->handle;
    }
    if (!add) {
        return RS_PASS_QUEUE_UNKNOWN;
    }
    queue = rs_queue_add(table, hash, topic, n, queue_id);
    return queue == NULL ? RS_PASS_QUEUE_NO_MEMORY : queue->handle;
}

/* Clear all queues. */
RS_UNUSED static void rs_pass_queues_clear(rs_queue_table *table)
{
    const uint64_t seed = table->seed;
    rs_queue_table_free(table);
    table->seed = seed;
}

/* Return whether a record has a unit in its queue. */
static inline int rs_pass_has_unit(const rs_parsed_record *row)
{
    return (row->status == RS_OK || row->status == RS_NUL_PROPERTIES)
           && !rs_is_transient(row->sys_flag);
}

/* Make room for `count` items in an array that grows by doubling; -1 if out of memory. */
RS_UNUSED static int rs_pass_reserve(void **array, int64_t *room, int64_t count, size_t nbytes)
{
    if (count <= *room) {
        return 0;
    }
    int64_t grown = *room < 16 ? 16 : 2 * *room;
    grown = grown < count ? count : grown;
    void *memory = realloc(*array, (size_t)grown * nbytes);
    if (memory == NULL) {
        return -1;
    }
    *array = memory;
    *room = grown;
    return 0;
}

/* Mix two numbers into 64 bits: sums of such numbers over a set do not depend on its order. */
static inline uint64_t rs_pass_mix(uint64_t h)
{
    h = (h ^ (h >> 32)) * 0x9e3779b97f4a7c15ULL;
    h = (h ^ (h >> 29)) * 0xbf58476d1ce4e5b9ULL;
    return h ^ (h >> 32);
}

/* The value that a unit at its place adds to the queue's checksum. */
static inline uint64_t rs_pass_unit_sum(int64_t queue_offset, int64_t physical_offset, int32_t size,
                                        int64_t tags_code)
{
    const uint64_t place = rs_pass_mix((uint64_t)queue_offset * 0xd6e8feb86659fd93ULL
                                       + (uint64_t)physical_offset);
    return rs_pass_mix(place + (uint64_t)tags_code * 0xa0761d6478bd642fULL
                       + (uint64_t)(uint32_t)size);
}

#endif
