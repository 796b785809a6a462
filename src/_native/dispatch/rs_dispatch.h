/* Dispatch in stages over a batch of records: parse, find queues, append units, hash and link keys.
 *
 * The result of a batch equals that of dispatching record by record, each unit before its keys.
 * When the index file might fill up within the batch, the stages therefore run over one record at a
 * time. All progress is kept in the struct, so that a fault within a stage loses nothing. */
#ifndef RS_DISPATCH_H
#define RS_DISPATCH_H
#include "rs_bit_maps.h"
#include "rs_ext_units.h"
#include "rs_guard.h"
#include "rs_index.h"
#include "rs_multi_dispatch.h"
#include "rs_queue_table.h"
#include "rs_record.h"
#include "rs_units.h"

#define RS_DISPATCH_COUNT 256
/* A call begins with a small batch: after a stall, everything parsed is parsed again. */
#define RS_DISPATCH_FIRST_COUNT 32
#define RS_DISPATCH_KEY_COUNT 1024
#define RS_DISPATCH_POWER_COUNT 256
/* How far slots are prefetched ahead of the link, and log bytes ahead of the parse. */
#define RS_DISPATCH_SLOTS_AHEAD 32
#define RS_DISPATCH_BYTES_AHEAD 8192
/* Records with odd names that are kept until they are fetched. */
#define RS_DISPATCH_ODD_COUNT 1024
#define RS_DISPATCH_HEADER_NBYTES (2 * RS_CACHE_LINE_NBYTES)

typedef struct {
    int32_t hash; /* as the entry stores it */
    uint32_t slot;
    int32_t row;
    int32_t number; /* of the key among its record's */
} rs_key;

typedef struct {
    rs_queue_table table;
    rs_index index; /* base NULL: no file */
    rs_ext_queue *ext;       /* of handle; NULL without ext files */
    int64_t ext_file_nbytes; /* 0: no ext files */
    rs_bit_maps bit_maps;    /* for the next ext units */
    int64_t newest_ext_timestamp; /* of the records with an ext unit so far */
    int32_t ext_room;        /* of `ext` */
    int32_t multi_dispatch;  /* RS_MULTI_* */
    int32_t compare;         /* units may exist already */
    int32_t is_plain;        /* no comparing, no ext files */
    int64_t mended_units;    /* of these, units that were written */
    int64_t *delay_ms;
    int32_t delay_count;
    int32_t index_enable, index_tags;
    int32_t infix_hash; /* of the text before a tag key */
    uint32_t infix_length;
    uint32_t powers[RS_DISPATCH_POWER_COUNT]; /* of 31 */

    int64_t position_offset, indexed_offset; /* read by other threads: stored after the bytes */
    int64_t last_store_timestamp, last_record_offset;
    int64_t dispatched_count, skipped_ghosts, skipped_topics, repeated_units;
    int64_t odd_names;       /* records whose names or numbers of other queues are odd */
    int64_t last_odd_offset; /* the last of them */
    int32_t odd_count;       /* of them, stored in odd_offsets */
    int64_t unit_done_offset; /* start of the record whose unit was handled before its keys; -1 */
    int32_t indexed_keys;
    int32_t stalled_queue_id, stalled_topic_nbytes;
    int64_t stalled_queue_offset;

    const uint8_t *log;
    int64_t position, stop, base_offset, segment_end, fetched, window;
    int32_t room;      /* of this batch, in records */
    int32_t row_count; /* parsed */
    int32_t stall;     /* why a unit was not put */
    int32_t key_row, key_number; /* all keys before this one were gathered */
    int32_t key_count, key_linked; /* gathered, and of these linked */
    rs_parsed_record rows[RS_DISPATCH_COUNT];
    uint64_t hashes[RS_DISPATCH_COUNT];
    rs_queue *queues[RS_DISPATCH_COUNT];
    rs_key keys[RS_DISPATCH_KEY_COUNT];
    int64_t odd_offsets[RS_DISPATCH_ODD_COUNT];
    uint8_t stalled_topic[RS_MAX_PROPERTIES_NBYTES];
} rs_dispatcher;

RS_UNUSED static void rs_dispatch_init(rs_dispatcher *d)
{
    uint32_t units;
    memset(d, 0, sizeof *d);
    d->last_record_offset = d->unit_done_offset = d->last_odd_offset = -1;
    d->infix_hash = rs_string_hash((const uint8_t *)RS_TAG_KEY_INFIX,
                                   sizeof RS_TAG_KEY_INFIX - 1, &units);
    d->infix_length = units;
    for (uint32_t n = 0; n < RS_DISPATCH_POWER_COUNT; n++) {
        d->powers[n] = rs_power_of_31(n);
    }
}

static inline int rs_is_skipped(const rs_parsed_record *row)
{
    return row->status == RS_GHOST || row->status == RS_UNSAFE_TOPIC;
}

static inline int rs_wants_keys(const rs_dispatcher *d, const rs_parsed_record *row)
{
    return d->index_enable && !rs_is_skipped(row) && row->physical_offset >= d->indexed_offset
           && (row->sys_flag & RS_SYS_FLAG_TRANSACTION_MASK) != RS_SYS_FLAG_TRANSACTION_ROLLBACK;
}

/* --- stage 1: parse --------------------------------------------------------------------------- */

static inline void rs_fetch_log(rs_dispatcher *d)
{
    const int64_t left = d->stop - d->position;
    const int64_t end = d->position + (left < d->window ? left : d->window);
    for (; d->fetched < end; d->fetched += RS_CACHE_LINE_NBYTES) {
        RS_PREFETCH_READ(d->log + d->fetched);
    }
}

static inline void rs_prepare_row(rs_dispatcher *d, const uint8_t *p, int32_t i)
{
    rs_parsed_record *row = d->rows + i;
    row->position = (int32_t)d->position;
    if (RS_LIKELY(!rs_is_skipped(row))) {
        rs_parse_properties(p, row, d->delay_ms, d->delay_count);
        d->hashes[i] = rs_queue_hash(d->table.seed, p + row->topic_at, row->topic_nbytes,
                                     row->queue_id);
        if (RS_LIKELY(d->table.places != NULL)) {
            RS_PREFETCH_WRITE(d->table.places + (d->hashes[i] & d->table.mask));
        }
    }
    /* Bodies are not read: for big records only the next header is worth prefetching. */
    d->window = row->total_size > RS_DISPATCH_BYTES_AHEAD ? RS_DISPATCH_HEADER_NBYTES
                                                          : RS_DISPATCH_BYTES_AHEAD;
    d->position += row->total_size;
    d->fetched = d->fetched < d->position ? d->position : d->fetched;
}

/* Fill the batch. Return RS_OK if it is full, else the status of the place at d->position. */
static int rs_dispatch_parse(void *argument)
{
    rs_dispatcher *d = (rs_dispatcher *)argument;
    while (d->row_count < d->room) {
        const uint8_t *p = d->log + d->position;
        rs_fetch_log(d);
        const int status = rs_check(p, d->stop - d->position, d->base_offset + d->position,
                                    d->segment_end, 0, d->rows + d->row_count);
        if (RS_UNLIKELY(status != RS_OK && status != RS_NUL_PROPERTIES && status != RS_GHOST
                        && status != RS_UNSAFE_TOPIC)) {
            return status;
        }
        rs_prepare_row(d, p, d->row_count);
        d->row_count++;
    }
    return RS_OK;
}

/* --- stage 2: find queues --------------------------------------------------------------------- */

static void rs_find_queues(rs_dispatcher *d)
{
    for (int32_t i = 0; i < d->row_count; i++) {
        const rs_parsed_record *row = d->rows + i;
        rs_queue *queue = NULL;
        if (RS_LIKELY(!rs_is_skipped(row) && d->table.places != NULL)) {
            queue = rs_queue_find(&d->table, d->hashes[i], d->log + row->position + row->topic_at,
                                  row->topic_nbytes, row->queue_id);
        }
        d->queues[i] = queue;
        if (RS_LIKELY(queue != NULL && queue->write < queue->limit)) {
            RS_PREFETCH_WRITE(queue->write); /* a unit may span two lines */
            RS_PREFETCH_WRITE(queue->write + RS_CQ_UNIT_NBYTES - 1);
        }
    }
}

/* --- stage 3: append units -------------------------------------------------------------------- */

/* Put the record's ext unit, and its address instead of the tags code. RS_OK or RS_NEED_EXT. */
RS_NOINLINE static int rs_put_record_ext(rs_dispatcher *d, const rs_parsed_record *row,
                                         const rs_queue *queue, int64_t *tags_code)
{
    rs_ext_queue *ext = d->ext + queue->handle;
    if (d->compare && rs_keep_ext(ext, row->tags_code, row->store_timestamp, tags_code)) {
        return RS_OK;
    }
    const uint8_t *bit_map = NULL;
    int64_t errors = 0;
    int32_t bit_map_nbytes = 0;
    if (ext->filters_from < ext->filters_to) {
        const uint8_t *properties = d->log + row->position + row->properties_at;
        bit_map_nbytes = rs_make_bit_map(&d->bit_maps, ext->filters_from, ext->filters_to,
                                         properties, row->properties_nbytes, row->store_timestamp,
                                         &bit_map, &errors);
    }
    const int status = rs_put_ext(ext, d->ext_file_nbytes, row->tags_code, row->store_timestamp,
                                  bit_map, bit_map_nbytes, tags_code);
    if (status == RS_EXT_NEEDS_FILE) {
        return RS_NEED_EXT;
    }
    d->bit_maps.errors += errors;
    if (row->store_timestamp > d->newest_ext_timestamp) {
        d->newest_ext_timestamp = row->store_timestamp;
    }
    return RS_OK;
}

static int rs_holds(const uint8_t *p, const rs_parsed_record *row, int64_t tags_code)
{
    rs_unit unit;
    rs_load_unit(p, &unit);
    return unit.physical_offset == row->physical_offset && unit.size == row->total_size
           && unit.tags_code == tags_code;
}

/* Return whether the record's unit already exists, with its tags code or a trusted ext address. */
RS_NOINLINE static int rs_has_unit(const rs_dispatcher *d, const rs_queue *queue,
                                   const rs_parsed_record *row)
{
    rs_unit unit;
    rs_load_unit(queue->write, &unit);
    if (unit.physical_offset != row->physical_offset || unit.size != row->total_size) {
        return 0;
    }
    return unit.tags_code == row->tags_code
           || (d->ext != NULL && rs_is_ext_address(unit.tags_code)
               && queue->next_index < d->ext[queue->handle].trusted_index);
}

/* Reset the ext offset after a wrong trusted unit: continue after the previous unit's. */
static void rs_distrust_ext(rs_dispatcher *d, const rs_queue *queue)
{
    rs_ext_queue *ext = d->ext == NULL ? NULL : d->ext + queue->handle;
    if (ext != NULL && queue->next_index < ext->trusted_index) {
        ext->trusted_index = 0;
        ext->write = ext->limit = NULL;
        ext->offset = -1;
    }
}

static inline void rs_move_on(rs_queue *queue, const rs_parsed_record *row)
{
    queue->write += RS_CQ_UNIT_NBYTES;
    rs_store_release64(&queue->max_physical_offset, row->physical_offset + row->total_size);
    rs_store_release64(&queue->next_index, queue->next_index + 1);
}

static inline void rs_append_unit(rs_dispatcher *d, rs_queue *queue, const rs_parsed_record *row,
                                  int64_t tags_code)
{
    if (RS_UNLIKELY(d->compare)) {
        if (rs_holds(queue->write, row, tags_code)) {
            rs_move_on(queue, row);
            return;
        }
        d->mended_units++;
    }
    rs_store_unit(queue->write, row->physical_offset, row->total_size, tags_code);
    rs_move_on(queue, row);
}

/* Put one record's unit. Return RS_OK (put, or repeated), RS_NEED_QUEUE, RS_QUEUE_GAP or
 * RS_NEED_EXT. */
static inline int rs_put_unit(rs_dispatcher *d, const rs_parsed_record *row, rs_queue *queue)
{
    const int64_t end = row->physical_offset + row->total_size;
    if (RS_UNLIKELY(queue == NULL)) {
        return RS_NEED_QUEUE;
    }
    if (RS_UNLIKELY(end <= queue->max_physical_offset || row->queue_offset < queue->next_index)) {
        /* A record whose keys had to wait is dispatched a second time; that is not a repetition. */
        d->repeated_units += row->physical_offset != d->unit_done_offset;
        return RS_OK;
    }
    if (RS_UNLIKELY(row->queue_offset > queue->next_index)) {
        return RS_QUEUE_GAP;
    }
    if (RS_UNLIKELY(queue->write == queue->limit)) {
        return RS_NEED_QUEUE;
    }
    int64_t tags_code = row->tags_code;
    if (RS_LIKELY(d->is_plain)) {
        rs_store_unit(queue->write, row->physical_offset, row->total_size, tags_code);
        rs_move_on(queue, row);
    } else if (d->compare && rs_has_unit(d, queue, row)) {
        rs_move_on(queue, row);
    } else {
        if (d->compare) {
            rs_distrust_ext(d, queue);
        }
        if (d->ext != NULL && rs_put_record_ext(d, row, queue, &tags_code) == RS_NEED_EXT) {
            return RS_NEED_EXT;
        }
        rs_append_unit(d, queue, row, tags_code);
    }
    d->last_store_timestamp = row->store_timestamp;
    d->last_record_offset = row->physical_offset;
    return RS_OK;
}

static void rs_note_stall(rs_dispatcher *d, int status, const rs_multi_place *place)
{
    d->stall = status;
    d->stalled_queue_id = place->queue_id;
    d->stalled_queue_offset = place->queue_offset;
    memcpy(d->stalled_topic, place->name, (size_t)place->name_nbytes);
    d->stalled_topic_nbytes = place->name_nbytes;
}

/* Put a record's unit in one of the queues it names. A light queue's number may be ahead of its
 * units, since PREPARED and ROLLBACK records also take numbers. Returns as rs_put_unit. */
static int rs_put_named_unit(rs_dispatcher *d, const rs_parsed_record *row,
                             const rs_multi_place *place)
{
    rs_queue *queue = NULL;
    if (d->table.places != NULL) {
        const uint64_t hash =
            rs_queue_hash(d->table.seed, place->name, place->name_nbytes, place->queue_id);
        queue = rs_queue_find(&d->table, hash, place->name, place->name_nbytes, place->queue_id);
    }
    if (queue == NULL) {
        return RS_NEED_QUEUE;
    }
    if (row->physical_offset + row->total_size <= queue->max_physical_offset
        || place->queue_offset < queue->next_index) {
        d->repeated_units += row->physical_offset != d->unit_done_offset;
        return RS_OK;
    }
    if (place->queue_offset > queue->next_index && !queue->shifted) {
        return RS_QUEUE_GAP;
    }
    if (queue->write == queue->limit) {
        return RS_NEED_QUEUE;
    }
    if (d->compare && rs_has_unit(d, queue, row)) {
        rs_move_on(queue, row);
    } else {
        rs_append_unit(d, queue, row, row->tags_code);
    }
    return RS_OK;
}

/* Record once that some names of a record are skipped. */
static void rs_note_odd_names(rs_dispatcher *d, int64_t physical_offset)
{
    if (physical_offset <= d->last_odd_offset) {
        return;
    }
    d->last_odd_offset = physical_offset;
    d->odd_names++;
    if (d->odd_count < RS_DISPATCH_ODD_COUNT) {
        d->odd_offsets[d->odd_count++] = physical_offset;
    }
}

/* Put the units of all queues that a record names; store what stops it. */
RS_NOINLINE static int rs_put_named_units(rs_dispatcher *d, const rs_parsed_record *row)
{
    rs_multi_walk walk;
    rs_multi_place place;
    if (d->multi_dispatch == 0
        || !rs_multi_begin(&walk, d->log + row->position, row, d->multi_dispatch)) {
        return RS_OK;
    }
    while (rs_multi_next(&walk, &place)) {
        const int status = rs_put_named_unit(d, row, &place);
        if (status != RS_OK) {
            d->unit_done_offset = row->physical_offset;
            rs_note_stall(d, status, &place);
            return status;
        }
    }
    if (RS_UNLIKELY(walk.odd)) {
        rs_note_odd_names(d, row->physical_offset);
    }
    return RS_OK;
}

/* Process rows from..to; return the first one without its unit (d->stall says why), or `to`. */
static int32_t rs_put_units(rs_dispatcher *d, int32_t from, int32_t to)
{
    for (int32_t i = from; i < to; i++) {
        const rs_parsed_record *row = d->rows + i;
        if (RS_UNLIKELY(rs_is_skipped(row) || rs_is_transient(row->sys_flag))) {
            continue;
        }
        const int status = rs_put_unit(d, row, d->queues[i]);
        if (RS_UNLIKELY(status != RS_OK)) {
            const rs_multi_place place = {
                .name = d->log + row->position + row->topic_at,
                .name_nbytes = row->topic_nbytes,
                .queue_id = row->queue_id,
                .queue_offset = row->queue_offset,
            };
            rs_note_stall(d, status, &place);
            return i;
        }
        if (RS_UNLIKELY(row->multi_dispatch_at != 0) && rs_put_named_units(d, row) != RS_OK) {
            return i;
        }
    }
    return to;
}

/* --- stages 4 and 5: hash keys, link them ----------------------------------------------------- */

/* Link the gathered keys; return 0 if the index file has no room for all of them. The header
 * follows every entry: other threads, and readers after a kill, see a slot above the header's count
 * as an empty chain. */
static int rs_link_keys(rs_dispatcher *d)
{
    const int32_t count = d->key_count;
    int32_t fetched = d->key_linked;
    for (int32_t i = d->key_linked; i < count; i++) {
        const rs_key *key = d->keys + i;
        for (; fetched < count && fetched < i + RS_DISPATCH_SLOTS_AHEAD; fetched++) {
            RS_PREFETCH_WRITE(rs_index_slot_at(&d->index, d->keys[fetched].slot));
        }
        if (RS_UNLIKELY(d->index.base == NULL || rs_index_is_full(&d->index))) {
            return 0;
        }
        const rs_parsed_record *row = d->rows + key->row;
        rs_index_put_slot(&d->index, key->slot, key->hash, row->physical_offset,
                          row->store_timestamp);
        d->key_linked = i + 1;
        rs_index_store_header(&d->index);
    }
    d->key_count = d->key_linked = 0;
    return 1;
}

/* Hash of two joined texts, by the table of powers. */
static inline int32_t rs_join_hash(const rs_dispatcher *d, int32_t prefix, int32_t hash,
                                   uint32_t length)
{
    if (RS_LIKELY(length < RS_DISPATCH_POWER_COUNT)) {
        return (int32_t)((uint32_t)prefix * d->powers[length] + (uint32_t)hash);
    }
    return rs_hash_extend(prefix, hash, length);
}

/* Add a key of row d->key_row, unless an earlier file has it; 0 if the index file is full. */
static inline int rs_gather_key(rs_dispatcher *d, int32_t prefix, int32_t skip,
                                const uint8_t *text, int32_t n)
{
    const int32_t number = d->key_number;
    if (RS_UNLIKELY(number < skip)) {
        d->key_number++;
        return 1;
    }
    if (RS_UNLIKELY(d->key_count == RS_DISPATCH_KEY_COUNT) && !rs_link_keys(d)) {
        return 0;
    }
    uint32_t units;
    const int32_t hash = rs_string_hash(text, (size_t)n, &units);
    rs_key *key = d->keys + d->key_count;
    key->hash = rs_index_key_hash(rs_join_hash(d, prefix, hash, units));
    key->slot = d->index.base != NULL ? rs_index_slot(&d->index, key->hash) : 0;
    key->row = d->key_row;
    key->number = number;
    d->key_number++;
    d->key_count++;
    return 1;
}

/* The first separator of keys in p..end, or end. Requires: 16 readable bytes before `end`. */
static inline const uint8_t *rs_find_key_end(const uint8_t *p, const uint8_t *end)
{
#if defined(__SSE2__)
    const __m128i separator = _mm_set1_epi8(RS_KEY_SEPARATOR[0]);
    for (; p < end; p += 16) {
        const ptrdiff_t before = end - p < 16 ? 16 - (end - p) : 0;
        const __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(p - before));
        const __m128i found = _mm_cmpeq_epi8(v, separator);
        const unsigned int mask = (unsigned int)_mm_movemask_epi8(found) >> before;
        if (mask != 0) {
            return p + rs_lowest_bit(mask);
        }
    }
    return end;
#else
    const uint8_t *found = (const uint8_t *)memchr(p, RS_KEY_SEPARATOR[0], (size_t)(end - p));
    return found == NULL ? end : found;
#endif
}

/* Gather the keys of row d->key_row: the unique key, each key, the tags. 0 if the file is full. */
static inline int rs_gather_keys(rs_dispatcher *d)
{
    const rs_parsed_record *row = d->rows + d->key_row;
    const rs_queue *queue = d->queues[d->key_row];
    const uint8_t *record = d->log + row->position;
    const int32_t skip = row->physical_offset == d->indexed_offset ? d->indexed_keys : 0;
    const int32_t prefix = queue != NULL
        ? queue->prefix_hash : rs_prefix_hash(record + row->topic_at, row->topic_nbytes);
    if (row->unique_key_at >= 0
        && !rs_gather_key(d, prefix, skip, record + row->unique_key_at, row->unique_key_nbytes)) {
        return 0;
    }
    if (row->keys_at >= 0) {
        const uint8_t *end = record + row->keys_at + row->keys_nbytes;
        for (const uint8_t *key = record + row->keys_at; key < end;) {
            const uint8_t *key_end = rs_find_key_end(key, end);
            if (key_end > key && !rs_gather_key(d, prefix, skip, key, (int32_t)(key_end - key))) {
                return 0;
            }
            key = key_end + 1;
        }
    }
    if (d->index_tags && row->tags_at >= 0) {
        return rs_gather_key(d, rs_join_hash(d, prefix, d->infix_hash, d->infix_length), skip,
                             record + row->tags_at, row->tags_nbytes);
    }
    return 1;
}

/* Process rows from..to; 0 if the index file is full: the first unlinked key says where. */
static int rs_put_keys(rs_dispatcher *d, int32_t from, int32_t to)
{
    for (int32_t i = from; i < to; i++) {
        d->key_row = i;
        d->key_number = 0;
        if (rs_wants_keys(d, d->rows + i) && !rs_gather_keys(d)) {
            return 0;
        }
    }
    d->key_row = to;
    d->key_number = 0;
    return rs_link_keys(d);
}

/* --- a batch ---------------------------------------------------------------------------------- */

/* Return whether the index file has room for all keys of the batch, by an upper bound. */
static int rs_has_room(const rs_dispatcher *d)
{
    int64_t most = 0;
    for (int32_t i = 0; i < d->row_count; i++) {
        /* Every second byte of KEYS may be a key. */
        if (rs_wants_keys(d, d->rows + i)) {
            most += 2 + ((int64_t)d->rows[i].keys_nbytes + 1) / 2;
        }
    }
    return most == 0
           || (d->index.base != NULL && most <= (int64_t)d->index.entries - d->index.count);
}

/* Run all stages after the parse. Return RS_OK, RS_NEED_QUEUE, RS_QUEUE_GAP, RS_NEED_EXT or
 * RS_NEED_INDEX. */
static int rs_dispatch_apply(void *argument)
{
    rs_dispatcher *d = (rs_dispatcher *)argument;
    rs_find_queues(d);
    const int32_t step = rs_has_room(d) ? d->row_count : 1;
    for (int32_t from = 0; from < d->row_count; from += step) {
        const int32_t to = from + step;
        const int32_t reached = rs_put_units(d, from, to);
        if (!rs_put_keys(d, from, reached)) {
            return RS_NEED_INDEX;
        }
        if (reached < to) {
            return d->stall;
        }
    }
    return RS_OK;
}

static inline void rs_count_row(rs_dispatcher *d, const rs_parsed_record *row)
{
    d->skipped_ghosts += row->status == RS_GHOST;
    d->skipped_topics += row->status == RS_UNSAFE_TOPIC;
    d->dispatched_count += !rs_is_skipped(row);
    if (RS_UNLIKELY(row->physical_offset == d->unit_done_offset)) {
        d->unit_done_offset = -1;
    }
    if (d->index_enable && row->physical_offset + row->total_size > d->indexed_offset) {
        rs_store_release64(&d->indexed_offset, row->physical_offset + row->total_size);
        d->indexed_keys = 0;
    }
}

/* Account for the work of rs_dispatch_apply, wherever it ended; return the number of rows done. */
static int32_t rs_dispatch_settle(rs_dispatcher *d, int status)
{
    int32_t done = d->key_row, number = d->key_number;
    if (d->key_linked < d->key_count) {
        done = d->keys[d->key_linked].row;
        number = d->keys[d->key_linked].number;
    }
    for (int32_t i = 0; i < done; i++) {
        rs_count_row(d, d->rows + i);
    }
    if (status == RS_NEED_INDEX || number > 0) {
        d->unit_done_offset = d->rows[done].physical_offset;
        rs_store_release64(&d->indexed_offset, d->unit_done_offset);
        d->indexed_keys = number;
    }
    d->key_count = d->key_linked = d->key_row = d->key_number = 0;
    return done;
}

static int rs_dispatch_read_header(void *argument)
{
    rs_dispatcher *d = (rs_dispatcher *)argument;
    if (d->index.base != NULL) {
        rs_index_load_header(&d->index);
    }
    return RS_OK;
}

/* Allocate room for the ext files of all handles; -1 if out of memory. */
RS_UNUSED static int rs_dispatch_reserve_ext(rs_dispatcher *d)
{
    const int32_t room = d->table.handle_room;
    if (d->ext_file_nbytes == 0 || room <= d->ext_room) {
        return 0;
    }
    rs_ext_queue *grown = (rs_ext_queue *)realloc(d->ext, (size_t)room * sizeof *grown);
    if (grown == NULL) {
        return -1;
    }
    memset(grown + d->ext_room, 0, (size_t)(room - d->ext_room) * sizeof *grown);
    for (int32_t handle = d->ext_room; handle < room; handle++) {
        grown[handle].offset = -1;
    }
    d->ext = grown;
    d->ext_room = room;
    return 0;
}

RS_UNUSED static void rs_dispatch_free(rs_dispatcher *d)
{
    rs_queue_table_free(&d->table);
    rs_bit_maps_free(&d->bit_maps);
    free(d->delay_ms);
    free(d->ext);
    free(d);
}

/* Dispatch at most `left` records from d->position, which moves. Return the status. */
RS_UNUSED static int rs_dispatch(rs_dispatcher *d, int64_t left)
{
    int status = rs_guarded(rs_dispatch_read_header, d);
    int32_t count = RS_DISPATCH_FIRST_COUNT;
    d->is_plain = !d->compare && d->ext == NULL;
    d->fetched = d->position;
    d->window = RS_DISPATCH_BYTES_AHEAD;
    d->stalled_topic_nbytes = 0;
    while (status == RS_OK && left > 0) {
        d->room = left < count ? (int32_t)left : count;
        count = count < RS_DISPATCH_COUNT ? 2 * count : count;
        d->row_count = 0;
        status = rs_guarded(rs_dispatch_parse, d);
        left -= d->row_count;
        if (d->row_count > 0) {
            const int applied = rs_guarded(rs_dispatch_apply, d);
            const int32_t done = rs_dispatch_settle(d, applied);
            if (applied != RS_OK) {
                d->position = done < d->row_count ? d->rows[done].position : d->position;
                status = applied;
            }
        }
        rs_store_release64(&d->position_offset, d->base_offset + d->position);
    }
    return status;
}

#endif
