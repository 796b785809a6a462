/* Numbers as Java reads them from UTF-8 text: Integer.valueOf, Long.valueOf, Double.valueOf.
 *
 * Each function returns 1, or 0 where Java throws a NumberFormatException. They use no locale and
 * allocate nothing. Doubles are rounded correctly, half to even. */
#ifndef RS_JAVA_NUMBER_H
#define RS_JAVA_NUMBER_H
#include <float.h>
#include "rs_bytes.h"
#include "rs_hash.h"
#include "rs_sql92_program.h"

/* Character.digit of a character that a char can hold; -1 for none. */
RS_UNUSED static int rs_java_digit(uint32_t point)
{
    int low = 0, high = (int)(sizeof rs_digit_zeros / sizeof rs_digit_zeros[0]) - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (rs_digit_zeros[middle] <= point) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    const uint32_t digit = point - rs_digit_zeros[low];
    return digit <= 9 ? (int)digit : -1;
}

/* Integer.valueOf (32 bits) or Long.valueOf (64 bits). */
static inline int rs_java_integer(const uint8_t *p, int32_t n, int bits, int64_t *value)
{
    const uint8_t *end = p + n;
    const int negative = n > 0 && *p == '-';
    const uint64_t most = bits == 32 ? INT32_MAX : INT64_MAX, limit = negative ? most + 1 : most;
    uint64_t sum = 0;
    int malformed = 0;
    p += n > 0 && (*p == '-' || *p == '+');
    if (p == end) {
        return 0;
    }
    while (p < end) {
        uint32_t digit = (uint32_t)*p - '0';
        if (RS_LIKELY(digit <= 9)) {
            p++;
        } else {
            const int other = *p < 0x80 ? -1 : rs_java_digit(rs_utf8_next(&p, end, &malformed));
            if (other < 0) {
                return 0;
            }
            digit = (uint32_t)other;
        }
        if (sum > limit / 10) {
            return 0;
        }
        sum = 10 * sum + digit;
        if (sum > limit) {
            return 0;
        }
    }
    *value = (int64_t)(negative ? 0 - sum : sum);
    return 1;
}

static inline double rs_double_of_bits(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Round q * 2^(exponent - 63) to a double. Requires: the top bit of q is set; `sticky` is whether
 * the exact value is greater. */
RS_UNUSED static double rs_round_double(uint64_t q, int64_t exponent, int sticky)
{
    if (exponent > 1023) {
        return rs_double_of_bits(0x7ff0000000000000u);
    }
    if (exponent < -1075) {
        return 0.0;
    }
    const int drop = exponent >= -1022 ? 11 : 11 + (int)(-1022 - exponent);
    const uint64_t half = 1ull << (drop - 1);
    const uint64_t rest = drop == 64 ? q : q & (2 * half - 1);
    uint64_t mantissa = drop == 64 ? 0 : q >> drop;
    mantissa += rest > half || (rest == half && (sticky || (mantissa & 1)));
    if (exponent >= -1022) {
        mantissa += (uint64_t)(exponent + 1022) << 52;
    }
    return rs_double_of_bits(mantissa);
}

#ifndef FLT_EVAL_METHOD
#define FLT_EVAL_METHOD 0
#endif

/* --- Decimal ------------------------------------------------------------------------------- */

/* More digits cannot change a rounding, except that one of them is not zero. */
#define RS_MOST_DIGITS 800
/* 10^1124 has 3,734 bits; one more word takes what a shift moves out. */
#define RS_BIG_WORDS 128

typedef struct {
    int count;
    uint32_t words[RS_BIG_WORDS]; /* the lowest first; the highest is not zero */
} rs_big;

RS_UNUSED static void rs_big_times(rs_big *big, uint32_t factor, uint32_t plus)
{
    uint64_t carry = plus;
    for (int i = 0; i < big->count; i++) {
        carry += (uint64_t)big->words[i] * factor;
        big->words[i] = (uint32_t)carry;
        carry >>= 32;
    }
    if (carry != 0) {
        big->words[big->count++] = (uint32_t)carry;
    }
}

RS_UNUSED static void rs_big_times_ten(rs_big *big, int64_t power)
{
    for (; power >= 9; power -= 9) {
        rs_big_times(big, 1000000000u, 0);
    }
    for (; power > 0; power--) {
        rs_big_times(big, 10, 0);
    }
}

RS_UNUSED static int rs_big_bits(const rs_big *big)
{
    int bits = 32 * big->count;
    for (uint32_t top = big->words[big->count - 1]; !(top & 0x80000000u); top <<= 1) {
        bits--;
    }
    return bits;
}

RS_UNUSED static void rs_big_shift(rs_big *big, int bits)
{
    const int words = bits / 32, rest = bits % 32;
    if (rest != 0) {
        rs_big_times(big, 1u << rest, 0);
    }
    if (words != 0) {
        memmove(big->words + words, big->words, (size_t)big->count * sizeof(uint32_t));
        memset(big->words, 0, (size_t)words * sizeof(uint32_t));
        big->count += words;
    }
}

RS_UNUSED static int rs_big_is_less(const rs_big *a, const rs_big *b)
{
    if (a->count != b->count) {
        return a->count < b->count;
    }
    for (int i = a->count - 1; i >= 0; i--) {
        if (a->words[i] != b->words[i]) {
            return a->words[i] < b->words[i];
        }
    }
    return 0;
}

/* a -= b. Requires: b is not greater. */
RS_UNUSED static void rs_big_subtract(rs_big *a, const rs_big *b)
{
    uint64_t borrow = 0;
    for (int i = 0; i < a->count; i++) {
        const uint64_t take = (i < b->count ? b->words[i] : 0) + borrow;
        borrow = a->words[i] < take;
        a->words[i] = (uint32_t)(a->words[i] - take);
    }
    while (a->count > 0 && a->words[a->count - 1] == 0) {
        a->count--;
    }
}

/* Return a / b. Requires: both are positive. */
RS_UNUSED static double rs_big_quotient(rs_big *a, rs_big *b, int sticky)
{
    int64_t exponent = rs_big_bits(a) - rs_big_bits(b);
    uint64_t quotient = 0;
    if (exponent >= 0) {
        rs_big_shift(b, (int)exponent);
    } else {
        rs_big_shift(a, (int)-exponent);
    }
    if (rs_big_is_less(a, b)) {
        rs_big_shift(a, 1);
        exponent--;
    }
    for (int i = 0; i < 64; i++) {
        const int fits = !rs_big_is_less(a, b);
        if (fits) {
            rs_big_subtract(a, b);
        }
        quotient = quotient << 1 | (uint64_t)fits;
        rs_big_times(a, 2, 0);
    }
    return rs_round_double(quotient, exponent, sticky || a->count > 0);
}

/* A decimal in scientific notation, checked. */
typedef struct {
    const uint8_t *first; /* first digit that is not zero; NULL: there is none */
    const uint8_t *end;   /* after the last digit */
    int64_t point;        /* the value is 0.(digits from `first`) * 10^point */
} rs_decimal;

/* The general way: digits as one big number, divided by or multiplied with a power of ten. */
RS_UNUSED RS_NOINLINE static double rs_decimal_slow(const rs_decimal *decimal)
{
    rs_big a = {0, {0}}, b = {1, {1}};
    int64_t count = 0;
    int sticky = 0;
    for (const uint8_t *p = decimal->first; p < decimal->end; p++) {
        if (*p == '.') {
            continue;
        }
        if (count < RS_MOST_DIGITS) {
            rs_big_times(&a, 10, (uint32_t)(*p - '0'));
            count++;
        } else {
            sticky |= *p != '0';
        }
    }
    if (a.count == 0) {
        return 0.0; /* a writer changed the digits in the meantime */
    }
    const int64_t power = decimal->point - count;
    rs_big_times_ten(power >= 0 ? &a : &b, power >= 0 ? power : -power);
    return rs_big_quotient(&a, &b, sticky);
}

RS_UNUSED static double rs_decimal_value(const rs_decimal *decimal)
{
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                    1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    if (decimal->first == NULL || decimal->point < -323) {
        return 0.0;
    }
    if (decimal->point > 309) {
        return rs_double_of_bits(0x7ff0000000000000u);
    }
    uint64_t digits = 0;
    int count = 0;
    const uint8_t *p = decimal->first;
    for (; p < decimal->end && count < 19; p++) {
        if (*p != '.') {
            digits = 10 * digits + (uint64_t)(*p - '0');
            count++;
        }
    }
    const int64_t power = decimal->point - count;
    /* Both factors are exact, so one rounding is right, unless the processor keeps more bits. */
    if (FLT_EVAL_METHOD == 0 && p == decimal->end && digits <= 1ull << 53 && power >= -22
        && power <= 22) {
        return power >= 0 ? (double)digits * powers[power] : (double)digits / powers[-power];
    }
    return rs_decimal_slow(decimal);
}

/* Read an exponent's digits, limited; return 0 if there are none. */
static inline int rs_take_exponent(const uint8_t **p, const uint8_t *end, int64_t *exponent)
{
    const uint8_t *at = *p;
    const int negative = at < end && *at == '-';
    int64_t value = 0;
    at += at < end && (*at == '-' || *at == '+');
    const uint8_t *first = at;
    for (; at < end && *at >= '0' && *at <= '9'; at++) {
        value = value < 1000000000000000 ? 10 * value + (*at - '0') : value;
    }
    *p = at;
    *exponent = negative ? -value : value;
    return at > first;
}

static inline int rs_is_suffix(const uint8_t *p, const uint8_t *end)
{
    return p == end
           || (p + 1 == end && (*p == 'f' || *p == 'F' || *p == 'd' || *p == 'D'));
}

RS_UNUSED static int rs_take_decimal(const uint8_t *p, const uint8_t *end, double *value)
{
    rs_decimal decimal = {NULL, NULL, 0};
    const uint8_t *point = NULL;
    int64_t exponent = 0, digits = 0;
    for (; p < end; p++) {
        if (*p == '.') {
            if (point != NULL) {
                return 0;
            }
            point = p;
        } else if (*p >= '0' && *p <= '9') {
            digits++;
            if (decimal.first == NULL && *p != '0') {
                decimal.first = p;
            }
        } else {
            break;
        }
    }
    decimal.end = p;
    if (digits == 0) {
        return 0;
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
        p++;
        if (!rs_take_exponent(&p, end, &exponent)) {
            return 0;
        }
    }
    if (!rs_is_suffix(p, end)) {
        return 0;
    }
    if (decimal.first != NULL) {
        const uint8_t *whole = point == NULL ? decimal.end : point;
        decimal.point = whole - decimal.first + (decimal.first > whole) + exponent;
    }
    *value = rs_decimal_value(&decimal);
    return 1;
}

/* --- Hexadecimal ----------------------------------------------------------------------------- */

static inline int rs_hex_digit(uint8_t c)
{
    const uint8_t lower = (uint8_t)(c | 0x20);
    return c >= '0' && c <= '9' ? c - '0' : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

/* The text after 0x. */
RS_UNUSED static int rs_take_hexadecimal(const uint8_t *p, const uint8_t *end, double *value)
{
    uint64_t q = 0;
    int64_t exponent, shift = 0, digits = 0, fraction = 0;
    int sticky = 0, has_point = 0;
    for (; p < end; p++) {
        if (*p == '.' && !has_point) {
            has_point = 1;
            continue;
        }
        const int digit = rs_hex_digit(*p);
        if (digit < 0) {
            break;
        }
        digits++;
        fraction += has_point;
        if (q >> 60 == 0) {
            q = q << 4 | (uint64_t)digit;
        } else {
            sticky |= digit != 0;
            shift += 4;
        }
    }
    if (digits == 0 || p == end || (*p != 'p' && *p != 'P')) {
        return 0;
    }
    p++;
    if (!rs_take_exponent(&p, end, &exponent) || !rs_is_suffix(p, end)) {
        return 0;
    }
    if (q == 0) {
        *value = 0.0;
        return 1;
    }
    exponent += shift - 4 * fraction + 63;
    for (; !(q >> 63); q <<= 1) {
        exponent--;
    }
    *value = rs_round_double(q, exponent, sticky);
    return 1;
}

/* --- Double.valueOf -------------------------------------------------------------------------- */

static inline int rs_is_word(const uint8_t *p, const uint8_t *end, const char *word, size_t n)
{
    return (size_t)(end - p) == n && memcmp(p, word, n) == 0;
}

RS_UNUSED static int rs_java_double(const uint8_t *p, int32_t n, double *value)
{
    const uint8_t *end = p + n;
    int found;
    *value = 0.0;
    while (p < end && *p <= ' ') {
        p++;
    }
    while (p < end && end[-1] <= ' ') {
        end--;
    }
    if (p == end) {
        return 0;
    }
    const int negative = *p == '-';
    p += *p == '-' || *p == '+';
    if (rs_is_word(p, end, "NaN", 3)) {
        *value = rs_double_of_bits(0x7ff8000000000000u);
        return 1;
    }
    if (rs_is_word(p, end, "Infinity", 8)) {
        *value = rs_double_of_bits(0x7ff0000000000000u);
        found = 1;
    } else if (end - p > 2 && p[0] == '0' && (p[1] | 0x20) == 'x') {
        found = rs_take_hexadecimal(p + 2, end, value);
    } else {
        found = rs_take_decimal(p, end, value);
    }
    *value = negative && found ? -*value : *value;
    return found;
}

/* Double.compare: NaN is the greatest and equal to itself, -0.0 is before 0.0. */
static inline int rs_compare_doubles(double a, double b)
{
    if (a < b) {
        return -1;
    }
    if (a > b) {
        return 1;
    }
    int64_t x, y;
    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    x = a != a ? INT64_MAX : x;
    y = b != b ? INT64_MAX : y;
    return (x > y) - (x < y);
}

#endif
