/* One consume-queue unit: load, store, classify. */
#ifndef RS_UNITS_H
#define RS_UNITS_H
#include <stdint.h>

#include "rs_bytes.h"
#include "rs_formats.h"

typedef struct {
    int64_t physical_offset;
    int64_t tags_code;
    int32_t size;
} rs_unit;

/* Requires RS_CQ_UNIT_NBYTES writable bytes at `p`. The size goes last: a reader in another process
 * that sees it sees the whole unit; if it sees zero, there is no unit. */
static inline void rs_store_unit(uint8_t *p, int64_t physical_offset, int32_t size,
                                 int64_t tags_code)
{
    rs_store_be64(p + RS_CQ_UNIT_PHYSICAL_OFFSET_AT, physical_offset);
    rs_store_be64(p + RS_CQ_UNIT_TAGS_CODE_AT, tags_code);
    rs_store_be32_release(p + RS_CQ_UNIT_SIZE_AT, size);
}

/* Return whether a unit was written at `p`. Ask this first where one may just be being written. */
static inline int rs_is_unit_there(const uint8_t *p)
{
    return rs_load_be32_acquire(p + RS_CQ_UNIT_SIZE_AT) != 0;
}

/* Requires RS_CQ_UNIT_NBYTES readable bytes at `p`. */
static inline void rs_load_unit(const uint8_t *p, rs_unit *unit)
{
    unit->size = rs_load_be32_acquire(p + RS_CQ_UNIT_SIZE_AT);
    unit->physical_offset = rs_load_be64(p + RS_CQ_UNIT_PHYSICAL_OFFSET_AT);
    unit->tags_code = rs_load_be64(p + RS_CQ_UNIT_TAGS_CODE_AT);
}

/* A pre-blank takes the place of a unit whose message does not exist or no longer exists. */
static inline int rs_is_filler(const rs_unit *unit)
{
    return unit->physical_offset == 0 && unit->size == RS_FILLER_UNIT_SIZE && unit->tags_code == 0;
}

/* Nothing was written here yet. */
static inline int rs_is_unwritten(const rs_unit *unit)
{
    return unit->physical_offset == 0 && unit->size == 0 && unit->tags_code == 0;
}

/* The code is the address of a consume-queue-ext record, not a tag's hash. */
static inline int rs_is_ext_address(int64_t tags_code)
{
    return tags_code <= RS_MAX_EXT_ADDRESS;
}

/* One row of select_messages, stored field by field: copying a struct built on the stack would wait
 * for its parts. */
static inline void rs_store_selected(uint8_t *p, int64_t position, int64_t queue_offset,
                                     int64_t tags_code, int32_t total_size)
{
    const int32_t reserved = 0;
    memcpy(p + offsetof(rs_selected_message, position), &position, sizeof position);
    memcpy(p + offsetof(rs_selected_message, queue_offset), &queue_offset, sizeof queue_offset);
    memcpy(p + offsetof(rs_selected_message, tags_code), &tags_code, sizeof tags_code);
    memcpy(p + offsetof(rs_selected_message, total_size), &total_size, sizeof total_size);
    memcpy(p + offsetof(rs_selected_message, reserved), &reserved, sizeof reserved);
}

#endif
