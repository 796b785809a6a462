/* CRC-32 of many ranges of one buffer, each at the cost of a few kilobytes whatever its length.
 *
 * From the CRCs of the buffer's prefixes, crc(AB) and crc(A) give
 * crc(B) = crc(AB) xor crc(A) * x^(8 |B|) modulo the polynomial. */
#ifndef RS_CRC_RANGES_H
#define RS_CRC_RANGES_H
#include "rs_crc.h"

#define RS_CRC_MARK_NBYTES 4096

/* Polynomials are reflected: the top bit is x^0. */
static inline uint32_t rs_multiply_modulo(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (uint32_t bit = 1u << 31; bit != 0; bit >>= 1) {
        product ^= (a & bit) ? b : 0;
        b = (b >> 1) ^ (RS_CRC_TABLE_POLYNOMIAL & (0u - (b & 1u)));
    }
    return product;
}

/* crc * x^(8 n) modulo the polynomial: a raw remainder after n more zero bytes. */
static inline uint32_t rs_crc_shift(uint32_t crc, uint64_t n)
{
    uint32_t square = 1u << 23; /* x^8 */
    for (; n != 0 && crc != 0; n >>= 1) {
        if (n & 1) {
            crc = rs_multiply_modulo(square, crc);
        }
        square = rs_multiply_modulo(square, square);
    }
    return crc;
}

/* Marks needed for n bytes: one before every RS_CRC_MARK_NBYTES, the first at 0. */
static inline size_t rs_crc_mark_count(uint64_t n)
{
    return (size_t)(n / RS_CRC_MARK_NBYTES + 1);
}

static inline void rs_crc_fill_marks(const uint8_t *p, uint64_t n, uint32_t *marks)
{
    marks[0] = 0;
    for (size_t k = 1; k < rs_crc_mark_count(n); k++) {
        marks[k] = rs_crc32(marks[k - 1], p + (k - 1) * RS_CRC_MARK_NBYTES, RS_CRC_MARK_NBYTES);
    }
}

/* CRC of the first n bytes. */
static inline uint32_t rs_crc_of_beginning(const uint8_t *p, uint64_t n, const uint32_t *marks)
{
    const uint64_t k = n / RS_CRC_MARK_NBYTES;
    return rs_crc32(marks[k], p + k * RS_CRC_MARK_NBYTES, (size_t)(n % RS_CRC_MARK_NBYTES));
}

/* CRC of n bytes from `at`, both within the bytes the marks were filled for. */
static inline uint32_t rs_crc_of_range(const uint8_t *p, uint64_t at, uint64_t n,
                                       const uint32_t *marks)
{
    return rs_crc_of_beginning(p, at + n, marks)
           ^ rs_crc_shift(rs_crc_of_beginning(p, at, marks), n);
}

#endif
