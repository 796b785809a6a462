/* Operands of a program and how they are compared: ComparisonExpression.__compare of RocketMQ. */
#ifndef RS_SQL92_OPERANDS_H
#define RS_SQL92_OPERANDS_H
#include "rs_java_number.h"
#include "rs_sql92_checked.h"

/* kind: NULL, TEXT, RESULT or that of a number. */
typedef struct {
    int kind;
    int is_property; /* a TEXT that may be malformed UTF-8 */
    int32_t nbytes;
    const uint8_t *p;
    int64_t integer; /* of a RESULT 0 or 1 */
    double number;
} rs_sql92_operand;

/* Java's Boolean.valueOf. */
static inline int rs_java_boolean(const uint8_t *p, int32_t n)
{
    return n == 4 && (p[0] | 0x20) == 't' && (p[1] | 0x20) == 'r' && (p[2] | 0x20) == 'u'
           && (p[3] | 0x20) == 'e';
}

/* Turn a text into a value of another kind; 0 where Java throws. */
static inline int rs_sql92_convert(rs_sql92_operand *text, int kind)
{
    text->kind = kind;
    switch (kind) {
    case RS_SQL92_OPERAND_INTEGER:
        return rs_java_integer(text->p, text->nbytes, 32, &text->integer);
    case RS_SQL92_OPERAND_LONG:
        return rs_java_integer(text->p, text->nbytes, 64, &text->integer);
    case RS_SQL92_OPERAND_DOUBLE:
        return rs_java_double(text->p, text->nbytes, &text->number);
    default:
        text->integer = rs_java_boolean(text->p, text->nbytes);
        return 1;
    }
}

static inline double rs_sql92_as_double(const rs_sql92_operand *operand)
{
    return operand->kind == RS_SQL92_OPERAND_DOUBLE ? operand->number : (double)operand->integer;
}

/* Compare two values that are not NULL and not both texts; 0 where RocketMQ's evaluator raises. */
static inline int rs_sql92_order(rs_sql92_operand *left, rs_sql92_operand *right, int *order)
{
    if (left->kind == RS_SQL92_OPERAND_TEXT) {
        if (!rs_sql92_convert(left, right->kind)) {
            return 0;
        }
    } else if (right->kind == RS_SQL92_OPERAND_TEXT) {
        if (left->kind == RS_SQL92_OPERAND_RESULT || !rs_sql92_convert(right, left->kind)) {
            return 0;
        }
    }
    if ((left->kind == RS_SQL92_OPERAND_RESULT) != (right->kind == RS_SQL92_OPERAND_RESULT)) {
        *order = -1;
    } else if (left->kind == RS_SQL92_OPERAND_DOUBLE || right->kind == RS_SQL92_OPERAND_DOUBLE) {
        *order = rs_compare_doubles(rs_sql92_as_double(left), rs_sql92_as_double(right));
    } else {
        *order = (left->integer > right->integer) - (left->integer < right->integer);
    }
    return 1;
}

/* Whether two texts are equal once Java has decoded them. */
RS_UNUSED RS_NOINLINE static int rs_is_same_decoded(const uint8_t *p, int32_t n, const uint8_t *q,
                                                    int32_t m)
{
    const uint8_t *p_end = p + n, *q_end = q + m;
    int malformed = 0;
    while (p < p_end && q < q_end) {
        if (rs_utf8_next(&p, p_end, &malformed) != rs_utf8_next(&q, q_end, &malformed)) {
            return 0;
        }
    }
    return p == p_end && q == q_end;
}

static inline int rs_sql92_is_same(const rs_sql92 *program, const rs_sql92_operand *left,
                                   const rs_sql92_operand *right)
{
    if (left->nbytes == right->nbytes && memcmp(left->p, right->p, (size_t)left->nbytes) == 0) {
        return 1;
    }
    /* A malformed text equals no text without U+FFFD. */
    return (program->has_replacement || (left->is_property && right->is_property))
           && rs_is_same_decoded(left->p, left->nbytes, right->p, right->nbytes);
}

/* Whether a text is one of `count` texts, which ascend. */
static inline int rs_sql92_is_in(const rs_sql92 *program, const uint8_t *p, int32_t n,
                                 int32_t first, int32_t count)
{
    int32_t low = first, high = first + count - 1;
    while (low <= high) {
        const int32_t middle = low + (high - low) / 2;
        const rs_sql92_text *text = &program->texts[middle];
        const int order = rs_sql92_compare(p, n, program->pool + text->at, text->nbytes);
        if (order == 0) {
            return 1;
        }
        low = order > 0 ? middle + 1 : low;
        high = order > 0 ? high : middle - 1;
    }
    return 0;
}

#define RS_SHORT_NEEDLE_NBYTES 32

/* A rolling hash bounds the time for long needles, whatever the texts are. */
RS_UNUSED RS_NOINLINE static int rs_contains_long(const uint8_t *p, int32_t n, const uint8_t *q,
                                                  int32_t m)
{
    const uint64_t base = 0x9e3779b97f4a7c15u;
    uint64_t wanted = 0, hash = 0, power = 1;
    for (int32_t i = 0; i < m; i++) {
        wanted = wanted * base + q[i] + 1;
        hash = hash * base + p[i] + 1;
        power = i == 0 ? 1 : power * base;
    }
    for (int32_t at = 0;; at++) {
        if (hash == wanted && memcmp(p + at, q, (size_t)m) == 0) {
            return 1;
        }
        if (at == n - m) {
            return 0;
        }
        hash = (hash - (uint64_t)(p[at] + 1) * power) * base + p[at + m] + 1;
    }
}

/* Whether n bytes contain m bytes. Requires: m > 0. */
static inline int rs_contains(const uint8_t *p, int32_t n, const uint8_t *q, int32_t m)
{
    if (m > n) {
        return 0;
    }
    if (m > RS_SHORT_NEEDLE_NBYTES) {
        return rs_contains_long(p, n, q, m);
    }
    const uint8_t *last = p + (n - m);
    while (p <= last) {
        p = (const uint8_t *)memchr(p, q[0], (size_t)(last - p) + 1);
        if (p == NULL) {
            return 0;
        }
        if (memcmp(p, q, (size_t)m) == 0) {
            return 1;
        }
        p++;
    }
    return 0;
}

#endif
