/* Whether bytes are well-formed UTF-8, as defined by Python and Java; replacing what is not. */
#ifndef RS_UTF8_H
#define RS_UTF8_H
#include "rs_bytes.h"
#include "rs_hash.h"

#define RS_MENDED_TIMES 3

static inline int rs_is_ascii(const uint8_t *p, int32_t n)
{
    uint64_t seen = 0;
    int32_t at = 0;
    for (; at + 8 <= n; at += 8) {
        seen |= rs_load_u64(p + at);
    }
    for (; at < n; at++) {
        seen |= p[at];
    }
    return (seen & 0x8080808080808080u) == 0;
}

RS_UNUSED RS_NOINLINE static int rs_is_utf8(const uint8_t *p, int32_t n)
{
    const uint8_t *end = p + n;
    int malformed = 0;
    while (p < end && !malformed) {
        rs_utf8_next(&p, end, &malformed);
    }
    return !malformed;
}

static inline int rs_is_plain(const uint8_t *p, int32_t n)
{
    return RS_LIKELY(rs_is_ascii(p, n)) || rs_is_utf8(p, n);
}

static inline uint8_t *rs_put_point(uint8_t *to, uint32_t point)
{
    if (point < 0x80) {
        *to++ = (uint8_t)point;
        return to;
    }
    if (point < 0x800) {
        *to++ = (uint8_t)(0xc0 | point >> 6);
    } else if (point < 0x10000) {
        *to++ = (uint8_t)(0xe0 | point >> 12);
        *to++ = (uint8_t)(0x80 | (point >> 6 & 0x3f));
    } else {
        *to++ = (uint8_t)(0xf0 | point >> 18);
        *to++ = (uint8_t)(0x80 | (point >> 12 & 0x3f));
        *to++ = (uint8_t)(0x80 | (point >> 6 & 0x3f));
    }
    *to++ = (uint8_t)(0x80 | (point & 0x3f));
    return to;
}

/* Write the text that Java reads from n bytes; `to` has room for RS_MENDED_TIMES * n. Return the
 * length. */
RS_UNUSED RS_NOINLINE static int32_t rs_mend(uint8_t *to, const uint8_t *p, int32_t n)
{
    const uint8_t *end = p + n;
    uint8_t *at = to;
    int malformed = 0;
    while (p < end) {
        at = rs_put_point(at, rs_utf8_next(&p, end, &malformed));
    }
    return (int32_t)(at - to);
}

#endif
