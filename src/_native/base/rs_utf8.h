/* Whether bytes are well-formed UTF-8, as defined by Python and Java. */
#ifndef RS_UTF8_H
#define RS_UTF8_H
#include "rs_bytes.h"
#include "rs_hash.h"

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

#endif
