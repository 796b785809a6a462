/* Hosts as text and as stored: address bytes, then the port in four bytes. */
#ifndef RS_HOSTS_H
#define RS_HOSTS_H
#include "rs_bytes.h"
#include "rs_formats.h"

#define RS_MAX_PORT 65535

/* Parse a decimal number of at most `digits` digits and at most `limit`; leading zeros only if
 * allowed. Return the place after it, or NULL. */
static inline const char *rs_parse_decimal(const char *p, int digits, int32_t limit,
                                           int leading_zeros, int32_t *value)
{
    const char *start = p;
    *value = 0;
    for (; *p >= '0' && *p <= '9'; p++) {
        if (p - start == digits) {
            return NULL;
        }
        *value = *value * 10 + (*p - '0');
    }
    const int zeros = !leading_zeros && p - start > 1 && *start == '0';
    return p == start || zeros || *value > limit ? NULL : p;
}

/* Parse ":1234" up to the end of the text. */
static inline int rs_parse_port(const char *p, uint8_t *stored)
{
    int32_t port;
    if (*p != ':') {
        return 0;
    }
    p = rs_parse_decimal(p + 1, 5, RS_MAX_PORT, 1, &port);
    if (p == NULL || *p != '\0') {
        return 0;
    }
    rs_store_be32(stored, port);
    return 1;
}

/* Parse "10.0.0.1:1234" into RS_HOST_V4_NBYTES bytes; return 0 for any other text. */
static inline int rs_parse_host_v4(const char *text, uint8_t *host)
{
    const char *p = text;
    for (int i = 0; i < 4; i++) {
        int32_t part;
        if (i > 0 && *p++ != '.') {
            return 0;
        }
        p = rs_parse_decimal(p, 3, 255, 0, &part);
        if (p == NULL) {
            return 0;
        }
        host[i] = (uint8_t)part;
    }
    return rs_parse_port(p, host + RS_HOST_V4_PORT_AT);
}

#endif
