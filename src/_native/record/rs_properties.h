/* Properties of a record: NUL runs, the four values the store needs, the tags code.
 *
 * At least 91 bytes of the record precede the properties' end. So blocks are read backwards from
 * the end instead of past it. */
#ifndef RS_PROPERTIES_H
#define RS_PROPERTIES_H
#include "rs_bytes.h"
#include "rs_formats.h"
#include "rs_hash.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__aarch64__) && !RS_HOST_IS_BIG_ENDIAN
#define RS_PROPERTIES_NEON 1
#include <arm_neon.h>
#endif

#define RS_BLOCK_NBYTES 64

static inline int rs_lowest_bit(uint64_t mask)
{
#if defined(_MSC_VER) && !defined(__clang__)
    int at = 0;
    while (!((mask >> at) & 1)) {
        at++;
    }
    return at;
#else
    return __builtin_ctzll(mask);
#endif
}

/* One bit for each of 64 bytes: whether it is at most `limit`. */
static inline uint64_t rs_block_mask(const uint8_t *p, uint8_t limit)
{
#if defined(__SSE2__)
    const __m128i top = _mm_set1_epi8((char)limit);
    uint64_t mask = 0;
    for (int k = 0; k < 4; k++) {
        const __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(p + 16 * k));
        const unsigned int bits =
            (unsigned int)_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_min_epu8(v, top), v));
        mask |= (uint64_t)bits << (16 * k);
    }
    return mask;
#elif RS_PROPERTIES_NEON
    const uint8x16_t top = vdupq_n_u8(limit);
    const uint8x16_t bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201));
    const uint8x16_t a = vandq_u8(vcleq_u8(vld1q_u8(p), top), bit);
    const uint8x16_t b = vandq_u8(vcleq_u8(vld1q_u8(p + 16), top), bit);
    const uint8x16_t c = vandq_u8(vcleq_u8(vld1q_u8(p + 32), top), bit);
    const uint8x16_t d = vandq_u8(vcleq_u8(vld1q_u8(p + 48), top), bit);
    const uint8x16_t folded = vpaddq_u8(vpaddq_u8(a, b), vpaddq_u8(c, d));
    return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(folded, folded)), 0);
#else
    uint64_t mask = 0;
    for (int k = 0; k < RS_BLOCK_NBYTES; k++) {
        mask |= (uint64_t)(p[k] <= limit) << k;
    }
    return mask;
#endif
}

/* Return the mask of the block at `at` of properties that end at `end`; bit 0 is byte `at`. */
static inline uint64_t rs_properties_mask(const uint8_t *at, const uint8_t *end, uint8_t limit)
{
    const ptrdiff_t left = end - at;
    if (left >= RS_BLOCK_NBYTES) {
        return rs_block_mask(at, limit);
    }
    return rs_block_mask(end - RS_BLOCK_NBYTES, limit) >> (RS_BLOCK_NBYTES - left);
}

enum { RS_NULS_NONE = 0, RS_NULS_SOME = 1, RS_NULS_LOST = 2 };

/* Return whether the last bytes are the room for a CRC that RocketMQ 5.2.0 and 5.3.0 leave
 * unwritten after the light-queue offsets: it holds old buffer contents, often zeros. */
RS_UNUSED static int rs_is_unwritten_crc(const uint8_t *properties, const uint8_t *end)
{
    static const char name[] = RS_PROPERTY_INNER_MULTI_QUEUE_OFFSET "\x01";
    const ptrdiff_t nbytes = (ptrdiff_t)sizeof name - 1;
    const uint8_t *stop = end - RS_PROPERTY_CRC32_NBYTES;
    if (end - properties <= RS_PROPERTY_CRC32_NBYTES || stop[-1] != RS_PROPERTY_SEPARATOR) {
        return 0;
    }
    for (const uint8_t *p = properties; stop - p >= nbytes; p++) {
        if (memcmp(p, name, (size_t)nbytes) == 0) {
            return 1;
        }
    }
    return 0;
}

/* Walk the NULs of the properties; `lost` is a run that no writer leaves. */
RS_UNUSED static int rs_walk_nuls(const uint8_t *properties, const uint8_t *end)
{
    int found = RS_NULS_NONE;
    const uint8_t *p = properties;
    while (p < end) {
        const uint8_t *nul = (const uint8_t *)memchr(p, 0, (size_t)(end - p));
        if (nul == NULL) {
            break;
        }
        p = nul;
        while (p < end && *p == 0) {
            p++;
        }
        if (p - nul >= RS_LOST_SECTOR_NBYTES
            || (p == end && p - nul >= RS_LOST_TAIL_NBYTES
                && !rs_is_unwritten_crc(properties, end))) {
            return RS_NULS_LOST;
        }
        found = RS_NULS_SOME;
    }
    return found;
}

/* Requires: 64 bytes before `end` are readable, and n >= 1. */
static inline int rs_find_nuls(const uint8_t *properties, int32_t n)
{
    const uint8_t *end = properties + n;
    for (const uint8_t *p = properties; p < end; p += RS_BLOCK_NBYTES) {
        if (RS_UNLIKELY(rs_properties_mask(p, end, 0) != 0)) {
            return rs_walk_nuls(properties, end);
        }
    }
    return RS_NULS_NONE;
}

/* Java's Integer.parseInt of ASCII digits; 0 if it would throw. */
RS_UNUSED static int32_t rs_parse_int(const uint8_t *p, int32_t n)
{
    const int negative = n > 0 && p[0] == '-';
    const int64_t limit = negative ? 2147483648LL : 2147483647LL;
    int64_t value = 0;
    int32_t at = n > 0 && (p[0] == '-' || p[0] == '+');
    if (at == n) {
        return 0;
    }
    for (; at < n; at++) {
        if (p[at] < '0' || p[at] > '9') {
            return 0;
        }
        value = value * 10 + (p[at] - '0');
        if (value > limit) {
            return 0;
        }
    }
    return (int32_t)(negative ? -value : value);
}

typedef struct {
    int32_t tags_at, tags_nbytes;
    int32_t keys_at, keys_nbytes;
    int32_t unique_key_at, unique_key_nbytes;
    int32_t delay_at, delay_nbytes;
    int32_t multi_names_at, multi_names_nbytes;
    int32_t multi_offsets_at, multi_offsets_nbytes;
} rs_property_values;

/* Keep the value if its name is one of ours; positions count from `record`. */
static inline void rs_take_property(const uint8_t *record, const uint8_t *name,
                                    const uint8_t *separator, const uint8_t *end,
                                    rs_property_values *values)
{
    const ptrdiff_t name_nbytes = separator - name;
    const int32_t at = (int32_t)(separator + 1 - record), nbytes = (int32_t)(end - separator - 1);
    if (name_nbytes == 4) {
        if (memcmp(name, RS_PROPERTY_TAGS, 4) == 0) {
            values->tags_at = at;
            values->tags_nbytes = nbytes;
        } else if (memcmp(name, RS_PROPERTY_KEYS, 4) == 0) {
            values->keys_at = at;
            values->keys_nbytes = nbytes;
        }
    } else if (name_nbytes == 8) {
        if (memcmp(name, RS_PROPERTY_UNIQUE_KEY, 8) == 0) {
            values->unique_key_at = at;
            values->unique_key_nbytes = nbytes;
        }
    } else if (name_nbytes == 5 && memcmp(name, RS_PROPERTY_DELAY, 5) == 0) {
        values->delay_at = at;
        values->delay_nbytes = nbytes;
    } else if (name_nbytes == sizeof RS_PROPERTY_INNER_MULTI_DISPATCH - 1) {
        if (memcmp(name, RS_PROPERTY_INNER_MULTI_DISPATCH, (size_t)name_nbytes) == 0) {
            values->multi_names_at = at;
            values->multi_names_nbytes = nbytes;
        }
    } else if (name_nbytes == sizeof RS_PROPERTY_INNER_MULTI_QUEUE_OFFSET - 1
               && memcmp(name, RS_PROPERTY_INNER_MULTI_QUEUE_OFFSET, (size_t)name_nbytes) == 0) {
        values->multi_offsets_at = at;
        values->multi_offsets_nbytes = nbytes;
    }
}

/* Find the values as RocketMQ's string2messageProperties does: a pair needs a name and a value, the
 * first separator splits it, the last pair of a name wins. */
static RS_ALWAYS_INLINE void rs_find_properties(const uint8_t *record, int32_t properties_at,
                                      int32_t properties_nbytes, rs_property_values *values)
{
    const uint8_t *end = record + properties_at + properties_nbytes;
    const uint8_t *name = record + properties_at, *separator = NULL;
    values->tags_at = values->keys_at = values->unique_key_at = values->delay_at = -1;
    values->tags_nbytes = values->keys_nbytes = 0;
    values->unique_key_nbytes = values->delay_nbytes = 0;
    values->multi_names_at = values->multi_offsets_at = 0;
    for (const uint8_t *block = name; block < end; block += RS_BLOCK_NBYTES) {
        uint64_t mask = rs_properties_mask(block, end, RS_PROPERTY_SEPARATOR);
        for (; mask != 0; mask &= mask - 1) {
            const uint8_t *p = block + rs_lowest_bit(mask);
            if (*p == RS_NAME_VALUE_SEPARATOR) {
                separator = separator == NULL ? p : separator;
            } else if (*p == RS_PROPERTY_SEPARATOR) {
                if (separator != NULL && separator > name && p - separator > 1) {
                    rs_take_property(record, name, separator, p, values);
                }
                name = p + 1;
                separator = NULL;
            }
        }
    }
    if (separator != NULL && separator > name && end - separator > 1) {
        rs_take_property(record, name, separator, end, values);
    }
}

/* Due time of a delayed message: store time plus its level's delay, wrapping as a Java long. */
static inline int64_t rs_deliver_timestamp(int64_t store_timestamp, int32_t level,
                                           const int64_t *delay_ms, int32_t delay_count)
{
    int64_t delay = RS_UNKNOWN_DELAY_MS;
    if (delay_count > 0) {
        delay = delay_ms[(level < delay_count ? level : delay_count) - 1];
    }
    return (int64_t)((uint64_t)store_timestamp + (uint64_t)delay);
}

/* Fill the property columns. Requires: `record` passed rs_check with this `out`. */
RS_UNUSED static void rs_parse_properties(const uint8_t *record, rs_parsed_record *out,
                                          const int64_t *delay_ms, int32_t delay_count)
{
    static const char schedule[] = RS_TOPIC_SCHEDULE;
    rs_property_values values;
    uint32_t units;
    rs_find_properties(record, out->properties_at, out->properties_nbytes, &values);
    out->tags_at = values.tags_at;
    out->tags_nbytes = values.tags_nbytes;
    out->keys_at = values.keys_at;
    out->keys_nbytes = values.keys_nbytes;
    out->unique_key_at = values.unique_key_at;
    out->unique_key_nbytes = values.unique_key_nbytes;
    out->multi_dispatch_at = values.multi_offsets_at > 0 ? values.multi_names_at : 0;
    out->delay_level =
        values.delay_at < 0 ? 0 : rs_parse_int(record + values.delay_at, values.delay_nbytes);
    out->tags_code = values.tags_at < 0 ? 0
        : rs_string_hash(record + values.tags_at, (size_t)values.tags_nbytes, &units);
    if (RS_UNLIKELY(out->delay_level > 0) && out->topic_nbytes == (int32_t)sizeof schedule - 1
        && memcmp(record + out->topic_at, schedule, sizeof schedule - 1) == 0) {
        out->tags_code = rs_deliver_timestamp(out->store_timestamp, out->delay_level, delay_ms,
                                              delay_count);
    }
}

#endif
