/* Text for columns: malformed UTF-8 replaced as in Java, hosts and message ids formatted. */
#ifndef RS_STRING_COLUMN_H
#define RS_STRING_COLUMN_H
#include "rs_bytes.h"
#include "rs_formats.h"
#include "rs_hash.h"
#include "rs_utf8.h"

/* The longest host is [ffff:...:ffff]:-2147483648, the longest id 28 bytes in hexadecimal. */
#define RS_SHOWN_NBYTES 64

static inline uint8_t *rs_put_decimal(uint8_t *to, int32_t signed_value)
{
    uint8_t digits[10];
    int count = 0;
    uint32_t value = (uint32_t)signed_value;
    if (signed_value < 0) {
        *to++ = '-';
        value = 0 - value;
    }
    do {
        digits[count++] = (uint8_t)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    while (count > 0) {
        *to++ = digits[--count];
    }
    return to;
}

static inline uint8_t *rs_put_group(uint8_t *to, uint32_t group)
{
    static const char digits[] = "0123456789abcdef";
    int shift = 12;
    while (shift > 0 && group >> shift == 0) {
        shift -= 4;
    }
    for (; shift >= 0; shift -= 4) {
        *to++ = (uint8_t)digits[group >> shift & 15];
    }
    return to;
}

/* Hexadecimal groups; the first longest run of two or more zero groups is `::`. */
RS_UNUSED static uint8_t *rs_put_address_v6(uint8_t *to, const uint8_t *address)
{
    const int count = RS_HOST_V6_PORT_AT / 2;
    int run = 0, longest = 1, longest_end = -1;
    for (int at = 0; at < count; at++) {
        run = rs_load_be16(address + 2 * at) == 0 ? run + 1 : 0;
        if (run > longest) {
            longest = run;
            longest_end = at + 1;
        }
    }
    const int zeros_at = longest_end - longest;
    for (int at = 0; at < count; at++) {
        if (longest_end >= 0 && at == zeros_at) {
            *to++ = ':';
            *to++ = ':';
            at = longest_end - 1;
            continue;
        }
        if (at > 0 && at != longest_end) {
            *to++ = ':';
        }
        to = rs_put_group(to, (uint16_t)rs_load_be16(address + 2 * at));
    }
    return to;
}

/* The text of a stored host, at most RS_SHOWN_NBYTES bytes; the port is shown as stored. */
RS_UNUSED static int32_t rs_put_host(uint8_t *to, const uint8_t *host, int32_t nbytes)
{
    uint8_t *at = to;
    if (nbytes == RS_HOST_V4_NBYTES) {
        for (int i = 0; i < 4; i++) {
            at = rs_put_decimal(at, host[i]);
            *at++ = i < 3 ? '.' : ':';
        }
    } else {
        *at++ = '[';
        at = rs_put_address_v6(at, host);
        *at++ = ']';
        *at++ = ':';
    }
    return (int32_t)(rs_put_decimal(at, rs_load_be32(host + nbytes - 4)) - to);
}

/* The offsetMsgId: upper-case hex of the stored host and the offset. */
RS_UNUSED static int32_t rs_put_message_id(uint8_t *to, const uint8_t *host, int32_t nbytes,
                                           int64_t physical_offset)
{
    static const char digits[] = "0123456789ABCDEF";
    uint8_t identifier[RS_HOST_V6_NBYTES + 8];
    memcpy(identifier, host, (size_t)nbytes);
    rs_store_be64(identifier + nbytes, physical_offset);
    for (int32_t at = 0; at < nbytes + 8; at++) {
        to[2 * at] = (uint8_t)digits[identifier[at] >> 4];
        to[2 * at + 1] = (uint8_t)digits[identifier[at] & 15];
    }
    return 2 * (nbytes + 8);
}

#endif
