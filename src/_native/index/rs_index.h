/* An index file: geometry, header, and the link of one more entry.
 *
 * rs_index_open reads the header into the struct; rs_index_put writes the entry, then the slot;
 * rs_index_store_header writes the header, the count last. A reader beside the writer treats a slot
 * above the header's count as empty. So it may miss entries but never follows half of one. */
#ifndef RS_INDEX_H
#define RS_INDEX_H
#include <stdint.h>

#include "rs_bytes.h"
#include "rs_formats.h"

typedef struct {
    uint8_t *base;     /* the file's first byte */
    uint8_t *slots_at; /* slot 0 */
    uint8_t *entries_at; /* entry 0, which is never used */
    uint64_t reciprocal; /* of the slot count, for rs_index_slot */
    uint32_t slots;
    int32_t entries; /* entry numbers are below this */
    int32_t count;   /* number of the next entry, at least 1 */
    int32_t hash_slot_count;
    int32_t stored_count; /* the count in the header on disk */
    int64_t begin_timestamp;
    int64_t end_timestamp;
    int64_t begin_physical_offset;
    int64_t end_physical_offset;
} rs_index;

/* Bytes of a file of this geometry, -1 if it is impossible. */
static inline int64_t rs_index_file_nbytes(int64_t slots, int64_t entries)
{
    if (slots < 1 || slots > INT32_MAX || entries < 1 || entries > INT32_MAX)
        return -1;
    return RS_INDEX_HEADER_NBYTES + RS_INDEX_SLOT_NBYTES * slots + RS_INDEX_ENTRY_NBYTES * entries;
}

/* Load the count first, as it is stored last: the other fields are at least as new, so the begin
 * time is that of the entries it counts. */
static inline void rs_index_load_header(rs_index *index)
{
    const uint8_t *p = index->base;
    index->stored_count = rs_load_be32_acquire(p + RS_INDEX_HEADER_INDEX_COUNT_AT);
    index->count = index->stored_count > 0 ? index->stored_count : 1;
    index->begin_timestamp = rs_load_be64_shared(p + RS_INDEX_HEADER_BEGIN_TIMESTAMP_AT);
    index->end_timestamp = rs_load_be64_shared(p + RS_INDEX_HEADER_END_TIMESTAMP_AT);
    index->begin_physical_offset =
        rs_load_be64_shared(p + RS_INDEX_HEADER_BEGIN_PHYSICAL_OFFSET_AT);
    index->end_physical_offset = rs_load_be64_shared(p + RS_INDEX_HEADER_END_PHYSICAL_OFFSET_AT);
    index->hash_slot_count = rs_load_be32_shared(p + RS_INDEX_HEADER_HASH_SLOT_COUNT_AT);
}

/* Set the places without reading the file; rs_index_load_header follows (guarded if the file is not
 * ours). Return 1, or 0 if the geometry does not fit into `nbytes`. */
static inline int rs_index_place(rs_index *index, uint8_t *base, int64_t nbytes, int64_t slots,
                                 int64_t entries)
{
    const int64_t needed = rs_index_file_nbytes(slots, entries);
    if (needed < 0 || needed > nbytes)
        return 0;
    index->base = base;
    index->slots_at = base + RS_INDEX_HEADER_NBYTES;
    index->entries_at = index->slots_at + RS_INDEX_SLOT_NBYTES * slots;
    index->reciprocal = UINT64_MAX / (uint64_t)slots + 1;
    index->slots = (uint32_t)slots;
    index->entries = (int32_t)entries;
    return 1;
}

static inline int rs_index_open(rs_index *index, uint8_t *base, int64_t nbytes, int64_t slots,
                                int64_t entries)
{
    if (!rs_index_place(index, base, nbytes, slots, entries))
        return 0;
    rs_index_load_header(index);
    return 1;
}

static inline int rs_index_is_full(const rs_index *index)
{
    return index->count >= index->entries;
}

/* The hash that an entry stores: the absolute value, 0 for -2**31 (which has none). */
static inline int32_t rs_index_key_hash(int32_t hash_code)
{
    if (hash_code == INT32_MIN)
        return 0;
    return hash_code < 0 ? -hash_code : hash_code;
}

/* key_hash % slots by multiplication; exact for all 32-bit operands. Requires key_hash >= 0. */
static inline uint32_t rs_index_slot(const rs_index *index, int32_t key_hash)
{
#ifdef __SIZEOF_INT128__
    const uint64_t fraction = index->reciprocal * (uint32_t)key_hash;
    return (uint32_t)(((unsigned __int128)fraction * index->slots) >> 64);
#else
    return (uint32_t)key_hash % index->slots;
#endif
}

static inline uint8_t *rs_index_slot_at(const rs_index *index, uint32_t slot)
{
    return index->slots_at + (uint64_t)slot * RS_INDEX_SLOT_NBYTES;
}

/* Requires 0 <= number < entries. */
static inline uint8_t *rs_index_entry_at(const rs_index *index, int32_t number)
{
    return index->entries_at + (uint64_t)(uint32_t)number * RS_INDEX_ENTRY_NBYTES;
}

/* Whole seconds from the file's begin, as an entry stores them. The difference wraps as Java's. */
static inline int32_t rs_index_time_diff(int64_t begin_timestamp, int64_t store_timestamp)
{
    const int64_t seconds = (int64_t)((uint64_t)store_timestamp - (uint64_t)begin_timestamp) / 1000;
    if (begin_timestamp <= 0 || seconds < 0)
        return 0;
    return seconds > INT32_MAX ? INT32_MAX : (int32_t)seconds;
}

/* Link one more entry into `slot` (rs_index_slot of key_hash). Requires !rs_index_is_full and
 * key_hash >= 0. The first entry's time is relative to the preset begin time, and only then becomes
 * the begin time: these are the bytes that RocketMQ writes. */
static inline void rs_index_put_slot(rs_index *index, uint32_t slot, int32_t key_hash,
                                     int64_t physical_offset, int64_t store_timestamp)
{
    uint8_t *slot_at = rs_index_slot_at(index, slot);
    uint8_t *entry = rs_index_entry_at(index, index->count);
    const int32_t head = rs_load_be32(slot_at);
    const int linked = (uint32_t)head - 1u < (uint32_t)index->count; /* 0 < head <= count */
    const int first = index->count <= 1;

    rs_store_be32(entry + RS_INDEX_ENTRY_KEY_HASH_AT, key_hash);
    rs_store_be64(entry + RS_INDEX_ENTRY_PHYSICAL_OFFSET_AT, physical_offset);
    rs_store_be32(entry + RS_INDEX_ENTRY_TIME_DIFF_AT,
                  rs_index_time_diff(index->begin_timestamp, store_timestamp));
    rs_store_be32(entry + RS_INDEX_ENTRY_PREVIOUS_INDEX_AT, linked ? head : 0);
    rs_store_be32_release(slot_at, index->count);

    index->begin_physical_offset = first ? physical_offset : index->begin_physical_offset;
    index->begin_timestamp = first ? store_timestamp : index->begin_timestamp;
    /* Unsigned: a damaged header may hold any count of slots, and Java's wraps. */
    index->hash_slot_count = (int32_t)((uint32_t)index->hash_slot_count + (uint32_t)!linked);
    index->count += 1;
    index->end_physical_offset = physical_offset;
    index->end_timestamp = store_timestamp;
}

/* Like rs_index_put_slot, but computes the slot. */
static inline void rs_index_put(rs_index *index, int32_t key_hash, int64_t physical_offset,
                                int64_t store_timestamp)
{
    const uint32_t slot = rs_index_slot(index, key_hash);
    rs_index_put_slot(index, slot, key_hash, physical_offset, store_timestamp);
}

/* Write the header if anything was put. The count goes last. */
static inline void rs_index_store_header(rs_index *index)
{
    uint8_t *p = index->base;
    if (index->count == index->stored_count || index->count <= 1)
        return;
    rs_store_be64_shared(p + RS_INDEX_HEADER_BEGIN_TIMESTAMP_AT, index->begin_timestamp);
    rs_store_be64_shared(p + RS_INDEX_HEADER_END_TIMESTAMP_AT, index->end_timestamp);
    rs_store_be64_shared(p + RS_INDEX_HEADER_BEGIN_PHYSICAL_OFFSET_AT,
                         index->begin_physical_offset);
    rs_store_be64_shared(p + RS_INDEX_HEADER_END_PHYSICAL_OFFSET_AT, index->end_physical_offset);
    rs_store_be32_shared(p + RS_INDEX_HEADER_HASH_SLOT_COUNT_AT, index->hash_slot_count);
    rs_store_be32_release(p + RS_INDEX_HEADER_INDEX_COUNT_AT, index->count);
    index->stored_count = index->count;
}

#endif
