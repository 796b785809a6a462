/* Java's String.hashCode of UTF-8 bytes, without decoding them: h = 31 h + unit over UTF-16 units.
 *
 * ASCII bytes are their own units: sixteen are hashed per step, the ragged part first, since
 * leading zero units do not change the hash. Other bytes take the slow path. It replaces malformed
 * bytes by U+FFFD in the groups of Java's decoder: the longest well-formed beginning of a character
 * is one group, and a whole encoded surrogate is one (other decoders see three). */
#ifndef RS_HASH_H
#define RS_HASH_H
#include "rs_bytes.h"

#if defined(__SSE4_1__)
#define RS_HASH_SSE 1
#include <smmintrin.h>
#endif

#define RS_REPLACEMENT_UNIT 0xfffdu

/* 31^n modulo 2^32. */
static inline uint32_t rs_power_of_31(uint32_t n)
{
    uint32_t power = 1, square = 31;
    for (; n > 0; n >>= 1) {
        power *= (n & 1u) ? square : 1u;
        square *= square;
    }
    return power;
}

/* The hash of two joined strings, from their hashes and the second one's length in UTF-16 units. */
static inline int32_t rs_hash_extend(int32_t prefix_hash, int32_t suffix_hash,
                                     uint32_t suffix_length)
{
    return (int32_t)((uint32_t)prefix_hash * rs_power_of_31(suffix_length) + (uint32_t)suffix_hash);
}

/* Number of continuation bytes after a lead byte, and the bounds of the first; 0 for none. */
static inline int rs_utf8_follow(uint8_t lead, uint8_t *low, uint8_t *high)
{
    *low = 0x80;
    *high = 0xbf;
    if (lead >= 0xc2 && lead <= 0xdf) {
        return 1;
    }
    if (lead >= 0xe0 && lead <= 0xef) {
        *low = lead == 0xe0 ? 0xa0 : 0x80;
        return 2;
    }
    if (lead >= 0xf0 && lead <= 0xf4) {
        *low = lead == 0xf0 ? 0x90 : 0x80;
        *high = lead == 0xf4 ? 0x8f : 0xbf;
        return 3;
    }
    return 0;
}

/* Decode the character at *p (< end) and move *p past it. Return the code point; malformed input
 * gives U+FFFD and sets *malformed. */
static inline uint32_t rs_utf8_next(const uint8_t **p, const uint8_t *end, int *malformed)
{
    const uint8_t lead = *(*p)++;
    if (lead < 0x80) {
        return lead;
    }
    uint8_t low, high;
    const int follow = rs_utf8_follow(lead, &low, &high);
    uint32_t point = follow == 1 ? lead & 0x1fu : follow == 2 ? lead & 0x0fu : lead & 0x07u;
    for (int i = 0; i < follow; i++) {
        if (*p == end || **p < low || **p > high) {
            *malformed = 1;
            return RS_REPLACEMENT_UNIT;
        }
        point = (point << 6) | (*(*p)++ & 0x3fu);
        low = 0x80;
        high = 0xbf;
    }
    if (follow == 0 || (point >= 0xd800 && point <= 0xdfff)) {
        *malformed = 1;
        return RS_REPLACEMENT_UNIT;
    }
    return point;
}

RS_UNUSED static int32_t rs_string_hash_slow(const uint8_t *p, size_t n, uint32_t *utf16_length)
{
    const uint8_t *end = p + n;
    uint32_t hash = 0, length = 0;
    int malformed = 0;
    while (p < end) {
        uint32_t point = rs_utf8_next(&p, end, &malformed);
        if (point >= 0x10000) {
            hash = 31 * hash + (0xd800 + ((point - 0x10000) >> 10));
            point = 0xdc00 + ((point - 0x10000) & 0x3ff);
            length++;
        }
        hash = 31 * hash + point;
        length++;
    }
    *utf16_length = length;
    return (int32_t)hash;
}

#if RS_HASH_SSE
/* 16 bytes from position r move a vector's first r bytes to its end, after zeros. */
static const uint8_t rs_hash_slide[32] = {
    0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
    0,    1,    2,    3,    4,    5,    6,    7,    8,    9,    10,   11,   12,   13,   14,   15,
};

/* Fewer than 16 bytes at the end of a vector, read without a step past them. */
static inline __m128i rs_hash_load_short(const uint8_t *p, size_t n)
{
    uint64_t low = 0, high = 0;
    if (n >= 8) {
        high = rs_load_u64(p + n - 8);
        low = n > 8 ? rs_load_u64(p) << (8 * (16 - n)) : 0;
    } else if (n >= 4) {
        high = ((uint64_t)rs_load_u32(p + n - 4) << 32);
        high |= n > 4 ? (uint64_t)(uint32_t)(rs_load_u32(p) << (8 * (8 - n))) : 0;
    } else if (n > 0) {
        high = (uint64_t)p[n - 1] << 56;
        high |= n > 1 ? (uint64_t)p[n - 2] << 48 : 0;
        high |= n > 2 ? (uint64_t)p[0] << 40 : 0;
    }
    return _mm_set_epi64x((long long)high, (long long)low);
}

/* Four partial hashes of four ASCII bytes each. */
static inline __m128i rs_hash_quads(__m128i bytes)
{
    const __m128i pairs = _mm_maddubs_epi16(bytes, _mm_set1_epi16(0x011f));
    return _mm_madd_epi16(pairs, _mm_set1_epi32(0x000103c1));
}

static inline int32_t rs_string_hash(const uint8_t *p, size_t n, uint32_t *utf16_length)
{
    const size_t ragged = n & 15;
    __m128i bytes, seen, sum;
    if (n < 16) {
        bytes = rs_hash_load_short(p, n);
        seen = bytes;
        sum = rs_hash_quads(bytes);
    } else {
        const __m128i slide =
            _mm_loadu_si128((const __m128i *)(const void *)(rs_hash_slide + ragged));
        bytes = _mm_loadu_si128((const __m128i *)(const void *)p);
        seen = bytes;
        sum = rs_hash_quads(_mm_shuffle_epi8(bytes, slide));
        const __m128i power_16 = _mm_set1_epi32(0x50a9de01);
        for (size_t at = ragged; at < n; at += 16) {
            bytes = _mm_loadu_si128((const __m128i *)(const void *)(p + at));
            seen = _mm_or_si128(seen, bytes);
            sum = _mm_add_epi32(_mm_mullo_epi32(sum, power_16), rs_hash_quads(bytes));
        }
    }
    if (RS_UNLIKELY(_mm_movemask_epi8(seen) != 0)) {
        return rs_string_hash_slow(p, n, utf16_length);
    }
    const __m128i weights = _mm_set_epi32(1, 923521, (int)0x94446f01, (int)0xee830681);
    sum = _mm_mullo_epi32(sum, weights);
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
    *utf16_length = (uint32_t)n;
    return _mm_cvtsi128_si32(sum);
}
#else
static inline int32_t rs_string_hash(const uint8_t *p, size_t n, uint32_t *utf16_length)
{
    uint32_t hash = 0;
    uint8_t seen = 0;
    size_t at = 0;
    for (; at + 4 <= n; at += 4) {
        seen |= (uint8_t)(p[at] | p[at + 1] | p[at + 2] | p[at + 3]);
        hash = hash * 923521u + (p[at] * 29791u + p[at + 1] * 961u + p[at + 2] * 31u + p[at + 3]);
    }
    for (; at < n; at++) {
        seen |= p[at];
        hash = 31 * hash + p[at];
    }
    if (seen & 0x80) {
        return rs_string_hash_slow(p, n, utf16_length);
    }
    *utf16_length = (uint32_t)n;
    return (int32_t)hash;
}
#endif

#endif
