/* Properties of half messages: parsed, changed, and written in the order of a broker's hash map. */
#ifndef RS_HALF_PROPERTIES_H
#define RS_HALF_PROPERTIES_H
#include "rs_bytes.h"
#include "rs_formats.h"
#include "rs_hash.h"

/* Messages with more properties are rare; they take the way of the rules. */
#define RS_MOST_PAIRS 64

typedef struct {
    const uint8_t *name;
    const uint8_t *value;
    int32_t name_nbytes;
    int32_t value_nbytes;
    uint32_t bucket;
} rs_pair;

typedef struct {
    rs_pair items[RS_MOST_PAIRS];
    int32_t count;
} rs_pairs;

/* Return the pair of this name, NULL without one. */
static inline rs_pair *rs_pairs_find(rs_pairs *pairs, const uint8_t *name, int32_t n)
{
    for (int32_t i = 0; i < pairs->count; i++) {
        rs_pair *pair = &pairs->items[i];
        if (pair->name_nbytes == n && memcmp(pair->name, name, (size_t)n) == 0) {
            return pair;
        }
    }
    return NULL;
}

/* Set a value: a known name keeps its place. Return 0, or 1 if there are too many names. */
static inline int rs_pairs_set(rs_pairs *pairs, const uint8_t *name, int32_t name_nbytes,
                               const uint8_t *value, int32_t value_nbytes)
{
    rs_pair *pair = rs_pairs_find(pairs, name, name_nbytes);
    if (pair == NULL) {
        if (pairs->count == RS_MOST_PAIRS) {
            return 1;
        }
        pair = &pairs->items[pairs->count++];
        pair->name = name;
        pair->name_nbytes = name_nbytes;
    }
    pair->value = value;
    pair->value_nbytes = value_nbytes;
    return 0;
}

static inline void rs_pairs_remove(rs_pairs *pairs, const uint8_t *name, int32_t n)
{
    rs_pair *pair = rs_pairs_find(pairs, name, n);
    if (pair != NULL) {
        const rs_pair *end = pairs->items + pairs->count;
        memmove(pair, pair + 1, (size_t)((const char *)end - (const char *)(pair + 1)));
        pairs->count--;
    }
}

/* Return whether the text is well-formed UTF-8 without NUL. */
static inline int rs_is_plain_text(const uint8_t *text, int32_t n)
{
    const uint8_t *p = text, *end = text + n;
    int malformed = 0;
    uint8_t seen = 0;
    if (memchr(text, 0, (size_t)n) != NULL) {
        return 0;
    }
    for (int32_t i = 0; i < n; i++) {
        seen |= text[i];
    }
    for (; seen >= 0x80 && p < end && !malformed;) {
        (void)rs_utf8_next(&p, end, &malformed);
    }
    return !malformed;
}

static inline int rs_pairs_append(rs_pairs *pairs, const uint8_t *name, int32_t name_nbytes,
                                  const uint8_t *value, int32_t value_nbytes)
{
    if (pairs->count == RS_MOST_PAIRS) {
        return 1;
    }
    rs_pair *pair = &pairs->items[pairs->count++];
    pair->name = name;
    pair->name_nbytes = name_nbytes;
    pair->value = value;
    pair->value_nbytes = value_nbytes;
    return 0;
}

/* Parse stored properties, those with empty values too; with `unique` no name is given twice.
 * Return 0, or 1 if there are too many. */
static inline int rs_pairs_parse(rs_pairs *pairs, const uint8_t *text, int32_t n, int unique)
{
    const uint8_t *end = text + n;
    pairs->count = 0;
    while (text < end) {
        const uint8_t *stop =
            (const uint8_t *)memchr(text, RS_PROPERTY_SEPARATOR, (size_t)(end - text));
        if (stop == NULL) {
            stop = end;
        }
        const uint8_t *separator =
            (const uint8_t *)memchr(text, RS_NAME_VALUE_SEPARATOR, (size_t)(stop - text));
        if (separator != NULL && separator > text) {
            const int32_t name_nbytes = (int32_t)(separator - text);
            const int32_t value_nbytes = (int32_t)(stop - separator - 1);
            if (unique ? rs_pairs_append(pairs, text, name_nbytes, separator + 1, value_nbytes)
                       : rs_pairs_set(pairs, text, name_nbytes, separator + 1, value_nbytes)) {
                return 1;
            }
        }
        text = stop + 1;
    }
    return 0;
}

/* Order the pairs as a hash map of `buckets` lists them; `order` gets their numbers. */
static inline void rs_pairs_order(rs_pairs *pairs, int32_t buckets, uint8_t *order)
{
    uint32_t units, mask = (uint32_t)buckets;
    while (4 * (uint32_t)pairs->count > 3 * mask) {
        mask *= 2;
    }
    mask -= 1;
    for (int32_t i = 0; i < pairs->count; i++) {
        rs_pair *pair = &pairs->items[i];
        const uint32_t hash =
            (uint32_t)rs_string_hash(pair->name, (size_t)pair->name_nbytes, &units);
        pair->bucket = (hash ^ hash >> 16) & mask;
        int32_t at = i;
        while (at > 0 && pairs->items[order[at - 1]].bucket > pair->bucket) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = (uint8_t)i;
    }
}

static inline int64_t rs_pairs_nbytes(const rs_pairs *pairs)
{
    int64_t nbytes = 0;
    for (int32_t i = 0; i < pairs->count; i++) {
        nbytes += (int64_t)pairs->items[i].name_nbytes + pairs->items[i].value_nbytes + 2;
    }
    return nbytes;
}

/* Write the pairs in order; return the bytes written. Requires: rs_pairs_nbytes bytes at `out`. */
static inline int64_t rs_pairs_write(const rs_pairs *pairs, const uint8_t *order, int trailing,
                                     uint8_t *out)
{
    uint8_t *p = out;
    for (int32_t i = 0; i < pairs->count; i++) {
        const rs_pair *pair = &pairs->items[order[i]];
        memcpy(p, pair->name, (size_t)pair->name_nbytes);
        p += pair->name_nbytes;
        *p++ = RS_NAME_VALUE_SEPARATOR;
        memcpy(p, pair->value, (size_t)pair->value_nbytes);
        p += pair->value_nbytes;
        *p++ = RS_PROPERTY_SEPARATOR;
    }
    return p - out - (pairs->count > 0 && !trailing);
}

#endif
