/* Columns of a record batch under construction, and how checked records are added to them.
 *
 * Numbers are in arrays as long as a batch may be; texts, bodies and properties grow. Data after
 * the rows that count may be half done: rs_rewind_columns drops it. */
#ifndef RS_COLUMNS_H
#define RS_COLUMNS_H
#include <stdlib.h>
#include "rs_bytes.h"
#include "rs_formats.h"
#include "rs_property_pairs.h"
#include "rs_record.h"
#include "rs_status.h"
#include "rs_string_column.h"

#define RS_CHUNK_ROWS 64
#define RS_FIRST_GROWING_NBYTES 4096
#define RS_US_PER_MS 1000
/* Value of the column of constants: the time is the log append time. */
#define RS_LOG_APPEND_TIME 1

enum rs_column_kind {
    RS_KIND_INT32,
    RS_KIND_INT64,
    RS_KIND_TIMESTAMP,
    RS_KIND_CONSTANT,
    RS_KIND_TEXT,
    RS_KIND_BINARY,
    RS_KIND_MAP,
    RS_KIND_HEADERS,
};

enum rs_part {
    RS_PART_TOPIC,
    RS_PART_TAGS,
    RS_PART_KEYS,
    RS_PART_UNIQUE_KEY,
    RS_PART_BODY,
    RS_PART_RECORD,
    RS_PART_BORN_HOST,
    RS_PART_STORE_HOST,
    RS_PART_MESSAGE_ID,
    RS_PART_PROPERTIES,
};

typedef struct {
    const char *name;
    const char *format; /* of the Arrow C data interface */
    int32_t kind;
    int32_t part; /* numbers: where in the parsed record; else rs_part */
} rs_column_type;

#define RS_NUMBER(field) ((int32_t)offsetof(rs_parsed_record, field))

static const rs_column_type rs_column_types[] = {
    {"topic", "u", RS_KIND_TEXT, RS_PART_TOPIC},
    {"queueId", "i", RS_KIND_INT32, RS_NUMBER(queue_id)},
    {"queueOffset", "l", RS_KIND_INT64, RS_NUMBER(queue_offset)},
    {"physicalOffset", "l", RS_KIND_INT64, RS_NUMBER(physical_offset)},
    {"tags", "u", RS_KIND_TEXT, RS_PART_TAGS},
    {"keys", "u", RS_KIND_TEXT, RS_PART_KEYS},
    {"body", "z", RS_KIND_BINARY, RS_PART_BODY},
    {"storeTimestamp", "tsu:UTC", RS_KIND_TIMESTAMP, RS_NUMBER(store_timestamp)},
    {"bornTimestamp", "tsu:UTC", RS_KIND_TIMESTAMP, RS_NUMBER(born_timestamp)},
    {"properties", "+m", RS_KIND_MAP, RS_PART_PROPERTIES},
    {"flag", "i", RS_KIND_INT32, RS_NUMBER(flag)},
    {"sysFlag", "i", RS_KIND_INT32, RS_NUMBER(sys_flag)},
    {"reconsumeTimes", "i", RS_KIND_INT32, RS_NUMBER(reconsume_times)},
    {"storeSize", "i", RS_KIND_INT32, RS_NUMBER(total_size)},
    {"bodyCRC", "i", RS_KIND_INT32, RS_NUMBER(body_crc)},
    {"bornHost", "u", RS_KIND_TEXT, RS_PART_BORN_HOST},
    {"storeHost", "u", RS_KIND_TEXT, RS_PART_STORE_HOST},
    {"uniqKey", "u", RS_KIND_TEXT, RS_PART_UNIQUE_KEY},
    {"offsetMsgId", "u", RS_KIND_TEXT, RS_PART_MESSAGE_ID},
    {"preparedTransactionOffset", "l", RS_KIND_INT64, RS_NUMBER(prepared_transaction_offset)},
    {"bodySize", "i", RS_KIND_INT32, RS_NUMBER(body_nbytes)},
    {"raw", "z", RS_KIND_BINARY, RS_PART_RECORD},
    {"key", "z", RS_KIND_BINARY, RS_PART_KEYS},
    {"value", "z", RS_KIND_BINARY, RS_PART_BODY},
    {"partition", "i", RS_KIND_INT32, RS_NUMBER(queue_id)},
    {"offset", "l", RS_KIND_INT64, RS_NUMBER(queue_offset)},
    {"timestamp", "tsu:UTC", RS_KIND_TIMESTAMP, RS_NUMBER(store_timestamp)},
    {"timestampType", "i", RS_KIND_CONSTANT, RS_LOG_APPEND_TIME},
    {"headers", "+l", RS_KIND_HEADERS, RS_PART_PROPERTIES},
};

RS_UNUSED static const rs_column_type *rs_find_column_type(const char *name)
{
    for (size_t i = 0; i < sizeof rs_column_types / sizeof rs_column_types[0]; i++) {
        if (strcmp(rs_column_types[i].name, name) == 0) {
            return &rs_column_types[i];
        }
    }
    return NULL;
}

typedef struct {
    uint8_t *data;
    int64_t nbytes;
    int64_t capacity;
} rs_growing;

typedef struct {
    const rs_column_type *type;
    uint8_t *values;   /* numbers; else 32-bit offsets, one more than rows */
    uint8_t *validity; /* one bit a row, for columns that have nulls */
    rs_growing bytes;  /* texts and bodies; names of properties */
    rs_growing name_offsets;
    rs_growing content_offsets;
    rs_growing contents; /* values of properties */
} rs_column;

static inline int rs_has_offsets(const rs_column *column)
{
    return column->type->kind >= RS_KIND_TEXT;
}

static inline int rs_has_pairs(const rs_column *column)
{
    return column->type->kind >= RS_KIND_MAP;
}

static inline int rs_has_nulls(const rs_column *column)
{
    return rs_has_offsets(column)
           && (column->type->part == RS_PART_TAGS || column->type->part == RS_PART_KEYS
               || column->type->part == RS_PART_UNIQUE_KEY);
}

static inline int32_t rs_get_int32(const uint8_t *array, int64_t number)
{
    int32_t value;
    memcpy(&value, array + 4 * number, sizeof value);
    return value;
}

static inline void rs_put_int32(uint8_t *array, int64_t number, int64_t value)
{
    const int32_t narrow = (int32_t)value;
    memcpy(array + 4 * number, &narrow, sizeof narrow);
}

RS_UNUSED RS_NOINLINE static int rs_grow(rs_growing *growing, int64_t nbytes)
{
    int64_t capacity = growing->capacity * 2;
    capacity = capacity < growing->nbytes + nbytes ? growing->nbytes + nbytes : capacity;
    uint8_t *data = (uint8_t *)realloc(growing->data, (size_t)capacity);
    if (data == NULL) {
        return RS_LIMIT;
    }
    growing->data = data;
    growing->capacity = capacity;
    return RS_OK;
}

static inline int rs_reserve(rs_growing *growing, int64_t nbytes)
{
    return RS_LIKELY(growing->nbytes + nbytes <= growing->capacity) ? RS_OK
                                                                    : rs_grow(growing, nbytes);
}

static inline int rs_append_bytes(rs_growing *growing, const uint8_t *p, int32_t n)
{
    if (RS_UNLIKELY(rs_reserve(growing, n) != RS_OK)) {
        return RS_LIMIT;
    }
    memcpy(growing->data + growing->nbytes, p, (size_t)n);
    growing->nbytes += n;
    return RS_OK;
}

/* This many bytes are copied at once if they can be read and written: a constant length needs no
 * call. */
#define RS_SHORT_NBYTES 32

static inline int rs_copy_short(rs_growing *growing, const uint8_t *p, int32_t n,
                                const uint8_t *end)
{
    if (RS_UNLIKELY(n > RS_SHORT_NBYTES || end - p < RS_SHORT_NBYTES
                    || growing->capacity - growing->nbytes < RS_SHORT_NBYTES)) {
        return 0;
    }
    memcpy(growing->data + growing->nbytes, p, RS_SHORT_NBYTES);
    return 1;
}

/* Return whether the bytes that rs_copy_short copied are ASCII. */
static inline int rs_is_short_ascii(const uint8_t *copied, int32_t n)
{
#if defined(__SSE2__)
    const __m128i *at = (const __m128i *)(const void *)copied;
    const uint32_t low = (uint32_t)_mm_movemask_epi8(_mm_loadu_si128(at));
    const uint32_t high = (uint32_t)_mm_movemask_epi8(_mm_loadu_si128(at + 1));
    const uint64_t mask = (uint64_t)(low | high << 16);
    return (mask & (((uint64_t)1 << n) - 1)) == 0;
#else
    return rs_is_ascii(copied, n);
#endif
}

static inline int rs_append_text(rs_growing *growing, const uint8_t *p, int32_t n)
{
    if (RS_LIKELY(rs_is_plain(p, n))) {
        return rs_append_bytes(growing, p, n);
    }
    if (rs_reserve(growing, (int64_t)RS_MENDED_TIMES * n) != RS_OK) {
        return RS_LIMIT;
    }
    growing->nbytes += rs_mend(growing->data + growing->nbytes, p, n);
    return RS_OK;
}

static inline int rs_append_offset(rs_growing *offsets, int64_t value)
{
    if (RS_UNLIKELY(rs_reserve(offsets, 4) != RS_OK)) {
        return RS_LIMIT;
    }
    rs_put_int32(offsets->data, offsets->nbytes / 4, value);
    offsets->nbytes += 4;
    return RS_OK;
}

RS_UNUSED static void rs_free_column(rs_column *column)
{
    free(column->values);
    free(column->validity);
    free(column->bytes.data);
    free(column->name_offsets.data);
    free(column->content_offsets.data);
    free(column->contents.data);
    memset(column, 0, sizeof *column);
}

static inline int rs_begin_growing(rs_growing *growing, int64_t expected)
{
    growing->nbytes = 0;
    growing->capacity = expected > RS_FIRST_GROWING_NBYTES ? expected : RS_FIRST_GROWING_NBYTES;
    growing->data = (uint8_t *)malloc((size_t)growing->capacity);
    return growing->data == NULL ? RS_LIMIT : RS_OK;
}

/* The size that the last batch needed, and some more. */
static inline int64_t rs_expected(const rs_growing *last)
{
    return last->nbytes + last->nbytes / 8;
}

/* Allocate room for a batch; `last` is the column of the previous batch, or of zeros. After
 * RS_LIMIT the column can be freed. */
RS_UNUSED static int rs_begin_column(rs_column *column, const rs_column_type *type,
                                     int64_t batch_rows, const rs_column *last)
{
    memset(column, 0, sizeof *column);
    column->type = type;
    const int64_t width = type->kind == RS_KIND_INT64 || type->kind == RS_KIND_TIMESTAMP ? 8 : 4;
    column->values = (uint8_t *)malloc((size_t)(width * (batch_rows + 1)));
    if (column->values == NULL) {
        return RS_LIMIT;
    }
    rs_put_int32(column->values, 0, 0);
    if (rs_has_nulls(column)) {
        column->validity = (uint8_t *)calloc((size_t)(batch_rows / 8 + 1), 1);
        if (column->validity == NULL) {
            return RS_LIMIT;
        }
    }
    if (!rs_has_offsets(column)) {
        return RS_OK;
    }
    int status = rs_begin_growing(&column->bytes, rs_expected(&last->bytes));
    if (rs_has_pairs(column)) {
        status |= rs_begin_growing(&column->name_offsets, rs_expected(&last->name_offsets));
        status |= rs_begin_growing(&column->content_offsets, rs_expected(&last->content_offsets));
        status |= rs_begin_growing(&column->contents, rs_expected(&last->contents));
        if (status == RS_OK) {
            status |= rs_append_offset(&column->name_offsets, 0);
            status |= rs_append_offset(&column->content_offsets, 0);
        }
    }
    return status == RS_OK ? RS_OK : RS_LIMIT;
}

/* Drop what was added after the first `rows` rows. */
static inline void rs_rewind_column(rs_column *column, int64_t rows)
{
    if (!rs_has_offsets(column)) {
        return;
    }
    const int64_t end = rs_get_int32(column->values, rows);
    if (!rs_has_pairs(column)) {
        column->bytes.nbytes = end;
        return;
    }
    column->name_offsets.nbytes = column->content_offsets.nbytes = 4 * (end + 1);
    column->bytes.nbytes = rs_get_int32(column->name_offsets.data, end);
    column->contents.nbytes = rs_get_int32(column->content_offsets.data, end);
}

static inline int64_t rs_null_count(const rs_column *column, int64_t rows)
{
    int64_t count = 0;
    for (int64_t row = 0; column->validity != NULL && row < rows; row++) {
        count += !(column->validity[row >> 3] >> (row & 7) & 1);
    }
    return count;
}

static inline int64_t rs_microseconds(int64_t milliseconds)
{
    if (RS_UNLIKELY(milliseconds > INT64_MAX / RS_US_PER_MS)) {
        return INT64_MAX;
    }
    if (RS_UNLIKELY(milliseconds < INT64_MIN / RS_US_PER_MS)) {
        return INT64_MIN;
    }
    return milliseconds * RS_US_PER_MS;
}

/* Records of a chunk: their places and the results of the check. */
typedef struct {
    const uint8_t *records[RS_CHUNK_ROWS];
    rs_parsed_record rows[RS_CHUNK_ROWS];
    const uint8_t *end; /* of the readable bytes */
    int32_t count;
} rs_chunk;

/* Set the bits of a chunk's rows from `first` on; later bits are ignored. */
static inline void rs_put_bits(uint8_t *bitmap, int64_t first, uint64_t bits, int32_t count)
{
    uint8_t *byte = bitmap + (first >> 3);
    const int shift = (int)(first & 7), room = 8 - shift;
    *byte = (uint8_t)((*byte & ((1u << shift) - 1)) | bits << shift);
    for (bits >>= room, count -= room; count > 0; bits >>= 8, count -= 8) {
        *++byte = (uint8_t)bits;
    }
}

static inline const uint8_t *rs_stored_host_at(const uint8_t *record, const rs_parsed_record *row,
                                               int store, int32_t *nbytes)
{
    const int32_t bit = store ? RS_SYS_FLAG_STORE_HOST_V6 : RS_SYS_FLAG_BORN_HOST_V6;
    *nbytes = (row->sys_flag & bit) ? RS_HOST_V6_NBYTES : RS_HOST_V4_NBYTES;
    return store ? record + row->body_at - RS_RECORD_TAIL_NBYTES - *nbytes
                 : record + RS_RECORD_HEAD_NBYTES;
}

/* One text or body; -1 in `*n` is a null. `shown` has room for RS_SHOWN_NBYTES. The parts here do
 * not include hosts. */
static inline const uint8_t *rs_part_of(const uint8_t *record, const rs_parsed_record *row,
                                        int part, int32_t *n, uint8_t *shown)
{
    int32_t nbytes;
    const uint8_t *host;
    switch (part) {
    case RS_PART_TOPIC:
        *n = row->topic_nbytes;
        return record + row->topic_at;
    case RS_PART_TAGS:
        *n = row->tags_at < 0 ? -1 : row->tags_nbytes;
        return row->tags_at < 0 ? record : record + row->tags_at;
    case RS_PART_KEYS:
        *n = row->keys_at < 0 ? -1 : row->keys_nbytes;
        return row->keys_at < 0 ? record : record + row->keys_at;
    case RS_PART_UNIQUE_KEY:
        *n = row->unique_key_at < 0 ? -1 : row->unique_key_nbytes;
        return row->unique_key_at < 0 ? record : record + row->unique_key_at;
    case RS_PART_BODY:
        *n = row->body_nbytes;
        return record + row->body_at;
    case RS_PART_RECORD:
        *n = row->total_size;
        return record;
    default:
        host = rs_stored_host_at(record, row, 1, &nbytes);
        *n = rs_put_message_id(shown, host, nbytes, row->physical_offset);
        return shown;
    }
}

/* One loop for every part, so that the compiler knows the part. */
static RS_ALWAYS_INLINE int rs_append_part(rs_column *column, int64_t first, const rs_chunk *chunk,
                                           int part, int text, int nulls)
{
    uint8_t shown[RS_SHOWN_NBYTES];
    const uint8_t *end = part == RS_PART_MESSAGE_ID ? shown + sizeof shown : chunk->end;
    uint64_t valid = 0;
    for (int32_t i = 0; i < chunk->count; i++) {
        rs_growing *bytes = &column->bytes;
        int32_t n;
        const uint8_t *p = rs_part_of(chunk->records[i], &chunk->rows[i], part, &n, shown);
        if (nulls) {
            valid |= (uint64_t)(n >= 0) << i;
            n = n < 0 ? 0 : n;
        }
        if (part != RS_PART_BODY && part != RS_PART_RECORD && rs_copy_short(bytes, p, n, end)
            && (!text || rs_is_short_ascii(bytes->data + bytes->nbytes, n))) {
            bytes->nbytes += n;
        } else if (RS_UNLIKELY((text ? rs_append_text(bytes, p, n) : rs_append_bytes(bytes, p, n))
                               != RS_OK)) {
            return RS_LIMIT;
        }
        rs_put_int32(column->values, first + i + 1, bytes->nbytes);
    }
    if (nulls && chunk->count > 0) {
        rs_put_bits(column->validity, first, valid, chunk->count);
    }
    return RS_OK;
}

/* Hosts as text; many consecutive rows have the same host. */
static inline int rs_append_hosts(rs_column *column, int64_t first, const rs_chunk *chunk,
                                  int store)
{
    uint8_t shown[RS_SHOWN_NBYTES];
    const uint8_t *last = NULL;
    int32_t last_nbytes = 0, n = 0;
    for (int32_t i = 0; i < chunk->count; i++) {
        int32_t nbytes;
        const uint8_t *host =
            rs_stored_host_at(chunk->records[i], &chunk->rows[i], store, &nbytes);
        if (last == NULL || nbytes != last_nbytes || memcmp(host, last, (size_t)nbytes) != 0) {
            n = rs_put_host(shown, host, nbytes);
            last = host;
            last_nbytes = nbytes;
        }
        if (RS_UNLIKELY(rs_append_bytes(&column->bytes, shown, n) != RS_OK)) {
            return RS_LIMIT;
        }
        rs_put_int32(column->values, first + i + 1, column->bytes.nbytes);
    }
    return RS_OK;
}

static inline int rs_append_texts(rs_column *column, int64_t first, const rs_chunk *chunk)
{
    switch (column->type->part) {
    case RS_PART_TOPIC:
        return rs_append_part(column, first, chunk, RS_PART_TOPIC, 1, 0);
    case RS_PART_TAGS:
        return rs_append_part(column, first, chunk, RS_PART_TAGS, 1, 1);
    case RS_PART_KEYS:
        return rs_append_part(column, first, chunk, RS_PART_KEYS, 1, 1);
    case RS_PART_UNIQUE_KEY:
        return rs_append_part(column, first, chunk, RS_PART_UNIQUE_KEY, 1, 1);
    case RS_PART_MESSAGE_ID:
        return rs_append_part(column, first, chunk, RS_PART_MESSAGE_ID, 0, 0);
    default:
        return rs_append_hosts(column, first, chunk, column->type->part == RS_PART_STORE_HOST);
    }
}

static inline int rs_append_binary(rs_column *column, int64_t first, const rs_chunk *chunk)
{
    switch (column->type->part) {
    case RS_PART_KEYS:
        return rs_append_part(column, first, chunk, RS_PART_KEYS, 0, 1);
    case RS_PART_BODY:
        return rs_append_part(column, first, chunk, RS_PART_BODY, 0, 0);
    default:
        return rs_append_part(column, first, chunk, RS_PART_RECORD, 0, 0);
    }
}

/* Add bytes that may be text, and the offset of their end. */
static RS_ALWAYS_INLINE int rs_append_item(rs_growing *bytes, rs_growing *offsets,
                                           const uint8_t *p, int32_t n, const uint8_t *end,
                                           int text)
{
    if (RS_LIKELY(rs_copy_short(bytes, p, n, end))
        && (!text || rs_is_short_ascii(bytes->data + bytes->nbytes, n))) {
        bytes->nbytes += n;
    } else if ((text ? rs_append_text(bytes, p, n) : rs_append_bytes(bytes, p, n)) != RS_OK) {
        return RS_LIMIT;
    }
    return rs_append_offset(offsets, bytes->nbytes);
}

static inline int rs_append_pair(rs_column *column, const rs_pair *pair, const uint8_t *end,
                                 int text)
{
    /* A repaired name is not in the window; the bytes after its buffer are unknown. */
    const uint8_t *name_end = pair->is_mended ? pair->name + pair->name_nbytes : end;
    return rs_append_item(&column->bytes, &column->name_offsets, pair->name, pair->name_nbytes,
                          name_end, 0)
           | rs_append_item(&column->contents, &column->content_offsets, pair->value,
                            pair->value_nbytes, end, text);
}

static inline int rs_append_maps(rs_column *column, int64_t first, const rs_chunk *chunk,
                                 rs_pairs *pairs)
{
    const int text = column->type->kind == RS_KIND_MAP;
    for (int32_t i = 0; i < chunk->count; i++) {
        const rs_parsed_record *row = &chunk->rows[i];
        const uint8_t *properties = chunk->records[i] + row->properties_at;
        rs_find_pairs(properties, properties + row->properties_nbytes, pairs);
        for (int32_t k = 0; k < pairs->count; k++) {
            if (RS_LIKELY(pairs->pairs[k].name != NULL)
                && RS_UNLIKELY(rs_append_pair(column, &pairs->pairs[k], chunk->end, text)
                               != RS_OK)) {
                return RS_LIMIT;
            }
        }
        rs_put_int32(column->values, first + i + 1, column->name_offsets.nbytes / 4 - 1);
    }
    return RS_OK;
}

/* Add a chunk after row `first`; RS_LIMIT if out of memory. */
static inline int rs_append_chunk(rs_column *column, int64_t first, const rs_chunk *chunk,
                                  rs_pairs *pairs)
{
    const int32_t part = column->type->part;
    uint8_t *to = column->values;
    switch (column->type->kind) {
    case RS_KIND_INT32:
        for (int32_t i = 0; i < chunk->count; i++) {
            memcpy(to + 4 * (first + i), (const uint8_t *)&chunk->rows[i] + part, 4);
        }
        return RS_OK;
    case RS_KIND_INT64:
        for (int32_t i = 0; i < chunk->count; i++) {
            memcpy(to + 8 * (first + i), (const uint8_t *)&chunk->rows[i] + part, 8);
        }
        return RS_OK;
    case RS_KIND_TIMESTAMP:
        for (int32_t i = 0; i < chunk->count; i++) {
            int64_t time;
            memcpy(&time, (const uint8_t *)&chunk->rows[i] + part, 8);
            time = rs_microseconds(time);
            memcpy(to + 8 * (first + i), &time, 8);
        }
        return RS_OK;
    case RS_KIND_CONSTANT:
        for (int32_t i = 0; i < chunk->count; i++) {
            rs_put_int32(to, first + i, part);
        }
        return RS_OK;
    case RS_KIND_TEXT:
        return rs_append_texts(column, first, chunk);
    case RS_KIND_BINARY:
        return rs_append_binary(column, first, chunk);
    default:
        return rs_append_maps(column, first, chunk, pairs);
    }
}

#endif
