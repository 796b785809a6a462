/* Consume-queue-ext units: the place of a queue's next one, and appending it. */
#ifndef RS_EXT_UNITS_H
#define RS_EXT_UNITS_H
#include "rs_bytes.h"
#include "rs_formats.h"

typedef struct {
    uint8_t *write;     /* where the next unit goes; NULL without a file */
    uint8_t *limit;     /* end of the writable part of the file */
    int64_t offset;     /* of the next unit in the queue's ext files; -1: not known yet */
    int64_t file_end;   /* offset of the file's end */
    int64_t trusted_index; /* addresses in the queue's units below it are trusted */
    int32_t filters_from, filters_to; /* the filters of the queue's topic */
} rs_ext_queue;

static inline int64_t rs_ext_address(int64_t offset)
{
    return (int64_t)((uint64_t)offset ^ ((uint64_t)1 << 63));
}

enum { RS_EXT_PUT = 0, RS_EXT_NEEDS_FILE = 1, RS_EXT_TOO_LONG = 2 };

/* Append a unit; its address goes to `address`. RS_EXT_TOO_LONG: the unit fits no file; nothing was
 * done. RS_EXT_NEEDS_FILE: a new file, or more of this one, is needed from `offset` on. */
RS_UNUSED static int rs_put_ext(rs_ext_queue *ext, int64_t file_nbytes, int64_t tags_code,
                                int64_t store_timestamp, const uint8_t *bit_map,
                                int32_t bit_map_nbytes, int64_t *address)
{
    const int64_t nbytes = RS_CQ_EXT_UNIT_NBYTES + (int64_t)bit_map_nbytes;
    if (nbytes > RS_MAX_EXT_UNIT_NBYTES || nbytes > file_nbytes - RS_EXT_END_NBYTES) {
        return RS_EXT_TOO_LONG;
    }
    if (ext->write == NULL) {
        return RS_EXT_NEEDS_FILE;
    }
    if (nbytes > ext->file_end - ext->offset - RS_EXT_END_NBYTES) {
        if (ext->limit - ext->write < RS_EXT_END_NBYTES && ext->offset < ext->file_end) {
            return RS_EXT_NEEDS_FILE;
        }
        if (ext->offset < ext->file_end) {
            rs_store_be16(ext->write, RS_EXT_END);
        }
        ext->write = ext->limit = NULL;
        ext->offset = ext->file_end;
        return RS_EXT_NEEDS_FILE;
    }
    if (nbytes + RS_EXT_END_NBYTES > ext->limit - ext->write) {
        return RS_EXT_NEEDS_FILE;
    }
    uint8_t *p = ext->write;
    rs_store_be64(p + RS_CQ_EXT_UNIT_TAGS_CODE_AT, tags_code);
    rs_store_be64(p + RS_CQ_EXT_UNIT_STORE_TIMESTAMP_AT, store_timestamp);
    rs_store_be16(p + RS_CQ_EXT_UNIT_BIT_MAP_SIZE_AT, (int16_t)bit_map_nbytes);
    if (bit_map_nbytes > 0) {
        memcpy(p + RS_CQ_EXT_UNIT_NBYTES, bit_map, (size_t)bit_map_nbytes);
    }
    rs_store_be16(p + RS_CQ_EXT_UNIT_SIZE_AT, (int16_t)nbytes);
    *address = rs_ext_address(ext->offset);
    ext->write += nbytes;
    ext->offset += nbytes;
    return RS_EXT_PUT;
}

/* Keep an existing unit, with its bit map, if it matches. */
RS_UNUSED static int rs_keep_ext(rs_ext_queue *ext, int64_t tags_code, int64_t store_timestamp,
                                 int64_t *address)
{
    const uint8_t *p = ext->write;
    if (p == NULL || ext->limit - p < RS_CQ_EXT_UNIT_NBYTES + RS_EXT_END_NBYTES) {
        return 0;
    }
    const int32_t nbytes = rs_load_be16(p + RS_CQ_EXT_UNIT_SIZE_AT);
    const int32_t bit_map_nbytes = rs_load_be16(p + RS_CQ_EXT_UNIT_BIT_MAP_SIZE_AT);
    if (bit_map_nbytes < 0 || nbytes != RS_CQ_EXT_UNIT_NBYTES + bit_map_nbytes
        || nbytes + RS_EXT_END_NBYTES > ext->limit - p
        || rs_load_be64(p + RS_CQ_EXT_UNIT_TAGS_CODE_AT) != tags_code
        || rs_load_be64(p + RS_CQ_EXT_UNIT_STORE_TIMESTAMP_AT) != store_timestamp) {
        return 0;
    }
    *address = rs_ext_address(ext->offset);
    ext->write += nbytes;
    ext->offset += nbytes;
    return 1;
}

#endif
