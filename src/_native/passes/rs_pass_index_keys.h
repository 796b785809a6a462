/* The index keys of the log's records, from which entries are made.
 *
 * A pass over windows of the log; all keys of a record are gathered, or none. */
#ifndef RS_PASS_INDEX_KEYS_H
#define RS_PASS_INDEX_KEYS_H
#include "rs_dispatch.h"
#include "rs_pass.h"
#include "rs_rows.h"

/* Maximum keys of a record: its unique key, its tags, every second byte of its properties. */
#define RS_MAX_RECORD_KEYS (2 + (RS_MAX_PROPERTIES_NBYTES + 1) / 2)
/* Marks the hash of a tag key, if requested; hashes are not negative. */
#define RS_TAG_KEY_MARK 0x80000000u

typedef struct {
    rs_pass_call call;
    int32_t index_tags, mark_tags, counts_only;
    int32_t infix_hash;
    uint32_t infix_length;
    int64_t capacity;
    int64_t count;       /* keys gathered */
    int64_t records;     /* taken, with keys or without */
    uint8_t *hashes;     /* int32 each; NULL when only counting */
    uint8_t *offsets;    /* int64 each: of the record */
    uint8_t *timestamps; /* int64 each: the record's store time */
    uint32_t powers[RS_DISPATCH_POWER_COUNT]; /* of 31 */
} rs_key_pass;

RS_UNUSED static void rs_key_pass_init(rs_key_pass *pass)
{
    uint32_t units;
    memset(pass, 0, sizeof *pass);
    pass->infix_hash = rs_string_hash((const uint8_t *)RS_TAG_KEY_INFIX,
                                      sizeof RS_TAG_KEY_INFIX - 1, &units);
    pass->infix_length = units;
    for (uint32_t n = 0; n < RS_DISPATCH_POWER_COUNT; n++) {
        pass->powers[n] = rs_power_of_31(n);
    }
}

/* Hash of two joined texts, by the table of powers. */
static inline int32_t rs_key_pass_join(const rs_key_pass *pass, int32_t prefix, int32_t hash,
                                       uint32_t length)
{
    if (RS_LIKELY(length < RS_DISPATCH_POWER_COUNT)) {
        return (int32_t)((uint32_t)prefix * pass->powers[length] + (uint32_t)hash);
    }
    return rs_hash_extend(prefix, hash, length);
}

static inline void rs_key_pass_put(rs_key_pass *pass, const rs_parsed_record *row, int32_t prefix,
                                   const uint8_t *text, int32_t n, uint32_t mark)
{
    uint32_t units;
    const int32_t hash = rs_string_hash(text, (size_t)n, &units);
    const uint32_t stored =
        (uint32_t)rs_index_key_hash(rs_key_pass_join(pass, prefix, hash, units)) | mark;
    memcpy(pass->hashes + 4 * pass->count, &stored, 4);
    memcpy(pass->offsets + 8 * pass->count, &row->physical_offset, 8);
    memcpy(pass->timestamps + 8 * pass->count, &row->store_timestamp, 8);
    pass->count++;
}

/* Count the keys of KEYS; also gather them unless only counting. */
static inline void rs_key_pass_texts(rs_key_pass *pass, const uint8_t *record,
                                     const rs_parsed_record *row, int32_t prefix)
{
    const uint8_t *end = record + row->keys_at + row->keys_nbytes;
    for (const uint8_t *key = record + row->keys_at; key < end;) {
        const uint8_t *key_end = rs_find_key_end(key, end);
        if (key_end > key) {
            if (pass->counts_only) {
                pass->count++;
            } else {
                rs_key_pass_put(pass, row, prefix, key, (int32_t)(key_end - key), 0);
            }
        }
        key = key_end + 1;
    }
}

static inline void rs_key_pass_take(rs_key_pass *pass, const uint8_t *record,
                                    const rs_parsed_record *row)
{
    const int with_tags = pass->index_tags && row->tags_at >= 0;
    if (pass->counts_only) {
        pass->count += (row->unique_key_at >= 0) + with_tags;
        if (row->keys_at >= 0) {
            rs_key_pass_texts(pass, record, row, 0);
        }
        return;
    }
    const int32_t prefix = rs_prefix_hash(record + row->topic_at, row->topic_nbytes);
    if (row->unique_key_at >= 0) {
        rs_key_pass_put(pass, row, prefix, record + row->unique_key_at, row->unique_key_nbytes, 0);
    }
    if (row->keys_at >= 0) {
        rs_key_pass_texts(pass, record, row, prefix);
    }
    if (with_tags) {
        rs_key_pass_put(pass, row,
                        rs_key_pass_join(pass, prefix, pass->infix_hash, pass->infix_length),
                        record + row->tags_at, row->tags_nbytes,
                        pass->mark_tags ? RS_TAG_KEY_MARK : 0);
    }
}

/* The values of the properties with keys. Requires: `record` passed rs_check. */
static inline void rs_key_pass_parse(const uint8_t *record, rs_parsed_record *row)
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

static inline int rs_key_pass_has_room(const rs_key_pass *pass, const rs_parsed_record *row)
{
    const int64_t room = pass->capacity - pass->count;
    if (pass->counts_only) {
        return room > 0;
    }
    return RS_LIKELY(room >= RS_MAX_RECORD_KEYS)
           || room >= 2 + ((int64_t)row->keys_nbytes + 1) / 2;
}

/* Return whether a record has index keys at all. */
static inline int rs_key_pass_wants(const rs_parsed_record *row)
{
    return !rs_is_skipped(row)
           && (row->sys_flag & RS_SYS_FLAG_TRANSACTION_MASK)
                  != RS_SYS_FLAG_TRANSACTION_ROLLBACK;
}

static inline int rs_key_pass_record(void *argument, const uint8_t *record, rs_parsed_record *row)
{
    rs_key_pass *pass = (rs_key_pass *)argument;
    if (RS_UNLIKELY(rs_is_skipped(row))) {
        return RS_OK;
    }
    if (RS_LIKELY(rs_key_pass_wants(row))) {
        rs_key_pass_parse(record, row);
        if (RS_UNLIKELY(!rs_key_pass_has_room(pass, row))) {
            return RS_FULL;
        }
        rs_key_pass_take(pass, record, row);
    }
    pass->records++;
    return RS_OK;
}

RS_UNUSED static int rs_key_pass_run(void *argument)
{
    return rs_pass_run(&((rs_key_pass *)argument)->call, argument, rs_key_pass_record);
}

/* --- the keys of rows ------------------------------------------------------------------------- */

typedef struct {
    rs_key_pass *keys;
    const uint8_t *buffer;
    int64_t nbytes; /* of the buffer */
    const uint8_t *rows; /* of rs_scan_records, with RS_PARSE_PROPERTIES */
    int64_t row, count;
} rs_key_rows;

/* Whether a text of a row lies in the buffer, or is missing and may be. */
static inline int rs_key_rows_holds(const rs_key_rows *call, const rs_parsed_record *row,
                                    int32_t at, int32_t n, int optional)
{
    return (optional && at < 0)
           || (at >= 0 && n >= 0 && n <= RS_MAX_PROPERTIES_NBYTES
               && (int64_t)row->position + at + n <= call->nbytes);
}

static inline int rs_key_rows_fits(const rs_key_rows *call, const rs_parsed_record *row)
{
    return row->position >= 0 && rs_key_rows_holds(call, row, row->topic_at, row->topic_nbytes, 0)
           && rs_key_rows_holds(call, row, row->unique_key_at, row->unique_key_nbytes, 1)
           && rs_key_rows_holds(call, row, row->keys_at, row->keys_nbytes, 1)
           && rs_key_rows_holds(call, row, row->tags_at, row->tags_nbytes, 1);
}

/* RS_OK; RS_FULL: no room for the keys of `row`; RS_MISMATCH: its texts are not in the buffer. */
RS_UNUSED static int rs_key_rows_run(void *argument)
{
    rs_key_rows *call = (rs_key_rows *)argument;
    for (; call->row < call->count; call->row++) {
        rs_parsed_record row;
        rs_prefetch_row_texts(call->buffer, call->nbytes, call->rows, call->row, call->count);
        rs_load_row(call->rows, call->row, &row);
        if (RS_UNLIKELY(!rs_key_rows_fits(call, &row))) {
            return RS_MISMATCH;
        }
        if (RS_UNLIKELY(rs_is_skipped(&row)
                        || !rs_is_still_there(call->buffer, call->nbytes, &row))) {
            continue;
        }
        if (RS_LIKELY(rs_key_pass_wants(&row))) {
            if (RS_UNLIKELY(!rs_key_pass_has_room(call->keys, &row))) {
                return RS_FULL;
            }
            rs_key_pass_take(call->keys, call->buffer + row.position, &row);
        }
        call->keys->records++;
        RS_COMPILER_BARRIER();
    }
    return RS_OK;
}

/* --- entries against keys --------------------------------------------------------------------- */

typedef struct {
    const uint8_t *entries; /* as in the file */
    const uint8_t *hashes, *offsets, *timestamps;
    int64_t entry, entry_count;
    int64_t key, key_count;
    int64_t begin_timestamp; /* of the index file */
} rs_key_match;

/* Step through entries and keys while they agree; a marked key may have no entry if the current
 * entry belongs to a later record. */
RS_UNUSED static int rs_key_match_run(void *argument)
{
    rs_key_match *match = (rs_key_match *)argument;
    while (match->entry < match->entry_count && match->key < match->key_count) {
        const uint8_t *entry = match->entries + match->entry * RS_INDEX_ENTRY_NBYTES;
        uint32_t hash;
        int64_t offset, timestamp;
        memcpy(&hash, match->hashes + 4 * match->key, 4);
        memcpy(&offset, match->offsets + 8 * match->key, 8);
        memcpy(&timestamp, match->timestamps + 8 * match->key, 8);
        const int32_t wanted = (int32_t)(hash & ~RS_TAG_KEY_MARK);
        const int64_t found = rs_load_be64(entry + RS_INDEX_ENTRY_PHYSICAL_OFFSET_AT);
        if (RS_LIKELY(found == offset
                      && rs_load_be32(entry + RS_INDEX_ENTRY_KEY_HASH_AT) == wanted)) {
            if (RS_UNLIKELY(rs_load_be32(entry + RS_INDEX_ENTRY_TIME_DIFF_AT)
                            != rs_index_time_diff(match->begin_timestamp, timestamp))) {
                return RS_MISMATCH;
            }
            match->entry++;
        } else if (!(hash & RS_TAG_KEY_MARK) || found <= offset) {
            return RS_MISMATCH;
        }
        match->key++;
        RS_COMPILER_BARRIER();
    }
    return RS_OK;
}

#endif
