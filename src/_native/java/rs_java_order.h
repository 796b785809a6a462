/* The order of properties that were parsed into a Java HashMap and written from it. */
#ifndef RS_JAVA_ORDER_H
#define RS_JAVA_ORDER_H
#include "rs_bytes.h"
#include "rs_formats.h"
#include "rs_hash.h"

#define RS_JAVA_MOST_BUCKETS (1u << 30)

typedef struct {
    const uint8_t *name;
    const uint8_t *value;
    int32_t name_nbytes;
    int32_t value_nbytes;
    uint32_t hash; /* as the map spreads it */
} rs_java_pair;

/* Return how many pairs there can be at most. */
static inline int32_t rs_java_room(const uint8_t *p, int32_t n)
{
    int32_t count = 1;
    for (int32_t i = 0; i < n; i++) {
        count += p[i] == RS_PROPERTY_SEPARATOR;
    }
    return count;
}

static inline int rs_java_same_name(const rs_java_pair *a, const rs_java_pair *b)
{
    return a->hash == b->hash && a->name_nbytes == b->name_nbytes
           && memcmp(a->name, b->name, (size_t)a->name_nbytes) == 0;
}

/* Parse pairs with a name; the first separator splits. A name given again keeps its place and gets
 * the new value, unless that is empty. Return their number, -1 if there are more than `room`. */
RS_UNUSED static int32_t rs_java_parse(const uint8_t *p, int32_t n, rs_java_pair *pairs,
                                       int32_t room)
{
    const uint8_t *end = p + n;
    int32_t count = 0;
    while (p < end) {
        const uint8_t *stop = (const uint8_t *)memchr(p, RS_PROPERTY_SEPARATOR, (size_t)(end - p));
        stop = stop == NULL ? end : stop;
        const uint8_t *split = (const uint8_t *)memchr(p, RS_NAME_VALUE_SEPARATOR,
                                                       (size_t)(stop - p));
        if (split != NULL && split > p) {
            if (count == room) {
                return -1;
            }
            rs_java_pair *pair = &pairs[count];
            uint32_t length;
            pair->name = p;
            pair->name_nbytes = (int32_t)(split - p);
            pair->value = split + 1;
            pair->value_nbytes = (int32_t)(stop - split - 1);
            const uint32_t hash = (uint32_t)rs_string_hash(p, (size_t)(split - p), &length);
            pair->hash = hash ^ (hash >> 16);
            int32_t known = 0;
            while (known < count && !rs_java_same_name(&pairs[known], pair)) {
                known++;
            }
            if (known == count || pair->value_nbytes > 0) {
                pairs[known].value = pair->value;
                pairs[known].value_nbytes = pair->value_nbytes;
            }
            count += known == count;
        }
        p = stop + 1;
    }
    return count;
}

/* Order pairs of different names as the map's walk does: by bucket, then as they came. */
RS_UNUSED static void rs_java_order(rs_java_pair *pairs, int32_t count, uint32_t buckets)
{
    while (4 * (uint64_t)(uint32_t)count > 3 * (uint64_t)buckets
           && buckets < RS_JAVA_MOST_BUCKETS) {
        buckets *= 2;
    }
    for (int32_t i = 1; i < count; i++) {
        const rs_java_pair pair = pairs[i];
        const uint32_t bucket = pair.hash & (buckets - 1);
        int32_t at = i;
        for (; at > 0 && (pairs[at - 1].hash & (buckets - 1)) > bucket; at--) {
            pairs[at] = pairs[at - 1];
        }
        pairs[at] = pair;
    }
}

/* Return the bytes that rs_java_write writes. */
static inline int64_t rs_java_nbytes(const rs_java_pair *pairs, int32_t count, int trailing)
{
    int64_t nbytes = count > 0 && !trailing ? -1 : 0;
    for (int32_t i = 0; i < count; i++) {
        nbytes += (int64_t)pairs[i].name_nbytes + pairs[i].value_nbytes + 2;
    }
    return nbytes;
}

/* Write the pairs; return the position after them. */
static inline uint8_t *rs_java_write(uint8_t *to, const rs_java_pair *pairs, int32_t count,
                                     int trailing)
{
    for (int32_t i = 0; i < count; i++) {
        memcpy(to, pairs[i].name, (size_t)pairs[i].name_nbytes);
        to += pairs[i].name_nbytes;
        *to++ = RS_NAME_VALUE_SEPARATOR;
        memcpy(to, pairs[i].value, (size_t)pairs[i].value_nbytes);
        to += pairs[i].value_nbytes;
        if (trailing || i + 1 < count) {
            *to++ = RS_PROPERTY_SEPARATOR;
        }
    }
    return to;
}

#endif
