/* Searches bytes for places where a record may start. */
#ifndef RS_SEARCH_H
#define RS_SEARCH_H
#include "rs_bytes.h"
#include "rs_formats.h"
#include "rs_properties.h"

/* Return whether magic and own offset fit this place. Requires: RS_RECORD_HEAD_NBYTES readable. */
static inline int rs_may_be_record(const uint8_t *p, int64_t physical_offset)
{
    const int32_t magic = rs_load_be32(p + RS_RECORD_HEAD_MAGIC_AT);
    return (magic == RS_MAGIC_V1 || magic == RS_MAGIC_V2)
           && rs_load_be64(p + RS_RECORD_HEAD_PHYSICAL_OFFSET_AT) == physical_offset;
}

#if defined(__SSE2__)
/* One bit for each of 64 places: whether `first` is there and `second` follows. */
static inline uint64_t rs_pair_mask(const uint8_t *p, uint8_t first, uint8_t second)
{
    const __m128i firsts = _mm_set1_epi8((char)first), seconds = _mm_set1_epi8((char)second);
    __m128i pairs[4], any = _mm_setzero_si128();
    uint64_t mask = 0;
    for (int k = 0; k < 4; k++, p += 16) {
        const __m128i a = _mm_loadu_si128((const __m128i *)(const void *)p);
        const __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(p + 1));
        pairs[k] = _mm_and_si128(_mm_cmpeq_epi8(a, firsts), _mm_cmpeq_epi8(b, seconds));
        any = _mm_or_si128(any, pairs[k]);
    }
    if (RS_LIKELY(_mm_movemask_epi8(any) == 0)) {
        return 0;
    }
    for (int k = 0; k < 4; k++) {
        mask |= (uint64_t)(unsigned int)_mm_movemask_epi8(pairs[k]) << (16 * k);
    }
    return mask;
}
#endif

/* Return the first place in [p, end) whose magic begins as a record's does, or `end`. Both magics
 * begin with the same two bytes, which are compared 64 places at a time. Requires:
 * RS_RECORD_HEAD_NBYTES bytes from every place before `end` are readable. */
static inline const uint8_t *rs_find_magic(const uint8_t *p, const uint8_t *end)
{
    const uint8_t first = (uint8_t)((uint32_t)RS_MAGIC_V1 >> 24);
    const uint8_t second = (uint8_t)((uint32_t)RS_MAGIC_V1 >> 16);
#if defined(__SSE2__)
    while (end - p >= RS_BLOCK_NBYTES) {
        uint64_t found = rs_pair_mask(p + RS_RECORD_HEAD_MAGIC_AT, first, second);
        if (RS_UNLIKELY(found != 0)) {
            return p + rs_lowest_bit(found);
        }
        p += RS_BLOCK_NBYTES;
    }
#endif
    for (; p < end; p++) {
        if (p[RS_RECORD_HEAD_MAGIC_AT] == first && p[RS_RECORD_HEAD_MAGIC_AT + 1] == second) {
            return p;
        }
    }
    return end;
}

#endif
