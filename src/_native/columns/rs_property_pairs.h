/* All properties of a record, each name once: the last value at the place of the first. */
#ifndef RS_PROPERTY_PAIRS_H
#define RS_PROPERTY_PAIRS_H
#include "rs_bytes.h"
#include "rs_formats.h"
#include "rs_properties.h"
#include "rs_string_column.h"

/* A pair has at least a name, a value and their separators; the last may lack its separator. */
#define RS_MAX_PAIRS (RS_MAX_PROPERTIES_NBYTES / 4 + 1)
/* Up to this many names are compared in pairs; more are sorted. */
#define RS_FEW_PAIRS 32

typedef struct {
    const uint8_t *name; /* repaired; NULL: a dropped pair */
    const uint8_t *value; /* as stored */
    int32_t name_nbytes;
    int32_t value_nbytes;
    int32_t is_mended;
} rs_pair;

typedef struct {
    rs_pair pairs[RS_MAX_PAIRS];
    int32_t order[RS_MAX_PAIRS];
    uint8_t mended[RS_MENDED_TIMES * RS_MAX_PROPERTIES_NBYTES];
    int32_t count;
    int32_t mended_nbytes;
} rs_pairs;

static inline void rs_add_pair(rs_pairs *all, const uint8_t *name, const uint8_t *separator,
                               const uint8_t *end)
{
    if (separator == NULL || separator == name || end - separator <= 1) {
        return;
    }
    rs_pair *pair = &all->pairs[all->count++];
    pair->name = name;
    pair->name_nbytes = (int32_t)(separator - name);
    pair->is_mended = 0;
    pair->value = separator + 1;
    pair->value_nbytes = (int32_t)(end - separator - 1);
    if (RS_UNLIKELY(!rs_is_plain(name, pair->name_nbytes))) {
        uint8_t *to = all->mended + all->mended_nbytes;
        pair->name_nbytes = rs_mend(to, name, pair->name_nbytes);
        pair->name = to;
        pair->is_mended = 1;
        all->mended_nbytes += pair->name_nbytes;
    }
}

static inline int rs_compare_names(const rs_pair *a, const rs_pair *b)
{
    if (a->name_nbytes != b->name_nbytes) {
        return a->name_nbytes < b->name_nbytes ? -1 : 1;
    }
    return memcmp(a->name, b->name, (size_t)a->name_nbytes);
}

static inline int rs_pair_precedes(const rs_pairs *all, int32_t a, int32_t b)
{
    const int compared = rs_compare_names(&all->pairs[a], &all->pairs[b]);
    return compared < 0 || (compared == 0 && a < b);
}

static inline void rs_sift_pair(rs_pairs *all, int32_t root, int32_t count)
{
    const int32_t moved = all->order[root];
    for (int32_t child = 2 * root + 1; child < count; child = 2 * root + 1) {
        if (child + 1 < count && rs_pair_precedes(all, all->order[child], all->order[child + 1])) {
            child++;
        }
        if (!rs_pair_precedes(all, moved, all->order[child])) {
            break;
        }
        all->order[root] = all->order[child];
        root = child;
    }
    all->order[root] = moved;
}

/* A heap sort: it needs no memory, and forged names do not make it slow. */
RS_UNUSED RS_NOINLINE static void rs_join_many_pairs(rs_pairs *all)
{
    const int32_t count = all->count;
    for (int32_t i = 0; i < count; i++) {
        all->order[i] = i;
    }
    for (int32_t root = count / 2 - 1; root >= 0; root--) {
        rs_sift_pair(all, root, count);
    }
    for (int32_t left = count - 1; left > 0; left--) {
        const int32_t last = all->order[0];
        all->order[0] = all->order[left];
        all->order[left] = last;
        rs_sift_pair(all, 0, left);
    }
    rs_pair *first = &all->pairs[all->order[0]];
    for (int32_t i = 1; i < count; i++) {
        rs_pair *pair = &all->pairs[all->order[i]];
        if (rs_compare_names(first, pair) != 0) {
            first = pair;
            continue;
        }
        first->value = pair->value;
        first->value_nbytes = pair->value_nbytes;
        pair->name = NULL;
        pair->name_nbytes = 0;
    }
}

static inline void rs_join_few_pairs(rs_pairs *all)
{
    for (int32_t i = 1; i < all->count; i++) {
        rs_pair *pair = &all->pairs[i];
        for (int32_t k = 0; k < i; k++) {
            rs_pair *first = &all->pairs[k];
            if (RS_UNLIKELY(first->name != NULL && rs_compare_names(first, pair) == 0)) {
                first->value = pair->value;
                first->value_nbytes = pair->value_nbytes;
                pair->name = NULL;
                break;
            }
        }
    }
}

/* Requires: a whole record, which passed rs_check, ends at `end`. */
static inline void rs_find_pairs(const uint8_t *properties, const uint8_t *end, rs_pairs *all)
{
    const uint8_t *name = properties, *separator = NULL;
    all->count = 0;
    all->mended_nbytes = 0;
    for (const uint8_t *block = name; block < end; block += RS_BLOCK_NBYTES) {
        uint64_t mask = rs_properties_mask(block, end, RS_PROPERTY_SEPARATOR);
        for (; mask != 0; mask &= mask - 1) {
            const uint8_t *p = block + rs_lowest_bit(mask);
            if (*p == RS_NAME_VALUE_SEPARATOR) {
                separator = separator == NULL ? p : separator;
            } else if (*p == RS_PROPERTY_SEPARATOR) {
                rs_add_pair(all, name, separator, p);
                name = p + 1;
                separator = NULL;
            }
        }
    }
    rs_add_pair(all, name, separator, end);
    if (all->count > RS_FEW_PAIRS) {
        rs_join_many_pairs(all);
    } else {
        rs_join_few_pairs(all);
    }
}

#endif
