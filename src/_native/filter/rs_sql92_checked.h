/* A checked program of an SQL92 filter, and finding the properties that it asks for. */
#ifndef RS_SQL92_CHECKED_H
#define RS_SQL92_CHECKED_H
#include "rs_formats.h"
#include "rs_properties.h"
#include "rs_sql92_program.h"
#include "rs_status.h"
#include "rs_utf8.h"

/* A property's value; p is NULL if it is missing. */
typedef struct {
    const uint8_t *p;
    int32_t nbytes;
} rs_sql92_value;

/* A checked program. Everything it points to lies in the program's bytes. */
typedef struct {
    const rs_sql92_instruction *code;
    const uint8_t *numbers;
    const rs_sql92_text *names;
    const rs_sql92_text *texts;
    const uint8_t *pool;
    uint64_t name_lengths; /* bit n: a name has n bytes, or 63 and more */
    int32_t number_count, code_count, name_count, text_count, pool_nbytes, depth;
    int has_replacement; /* whether a text holds U+FFFD */
} rs_sql92;

/* --- Checking a program ---------------------------------------------------------------------- */

/* By length, then bytes. */
static inline int rs_sql92_compare(const uint8_t *p, int32_t n, const uint8_t *q, int32_t m)
{
    return n != m ? (n > m) - (n < m) : memcmp(p, q, (size_t)n);
}

static inline int rs_sql92_ascend(const rs_sql92 *program, const rs_sql92_text *texts, int32_t n)
{
    for (int32_t i = 1; i < n; i++) {
        if (rs_sql92_compare(program->pool + texts[i - 1].at, texts[i - 1].nbytes,
                             program->pool + texts[i].at, texts[i].nbytes) >= 0) {
            return 0;
        }
    }
    return 1;
}

static inline int rs_sql92_is_number(int kind)
{
    return kind >= RS_SQL92_OPERAND_INTEGER && kind <= RS_SQL92_OPERAND_DOUBLE;
}

static inline int rs_sql92_check_operand(const rs_sql92 *program, int kind, int32_t at)
{
    if (kind < 0 || kind > RS_SQL92_OPERAND_PUSHED) {
        return 0;
    }
    if (kind == RS_SQL92_OPERAND_NAME) {
        return at >= 0 && at < program->name_count;
    }
    if (kind == RS_SQL92_OPERAND_TEXT) {
        return at >= 0 && at < program->text_count;
    }
    return !rs_sql92_is_number(kind) || (at >= 0 && at < program->number_count);
}

RS_UNUSED static int rs_sql92_check_instruction(const rs_sql92 *program, int32_t number)
{
    const rs_sql92_instruction *one = &program->code[number];
    if ((one->negated & ~1) != 0 || !rs_sql92_check_operand(program, one->left, one->left_at)
        || !rs_sql92_check_operand(program, one->right, one->right_at)) {
        return 0;
    }
    switch (one->op) {
    case RS_SQL92_OP_SET:
        return one->left_at >= 0 && one->left_at <= RS_SQL92_VERDICT_NULL;
    case RS_SQL92_OP_CAST:
        return one->left == RS_SQL92_OPERAND_NAME;
    case RS_SQL92_OP_AND_LEFT:
    case RS_SQL92_OP_OR_LEFT:
    case RS_SQL92_OP_SKIP_NULL:
        return one->target > number && one->target <= program->code_count;
    case RS_SQL92_OP_IN:
        return one->left == RS_SQL92_OPERAND_NAME && one->right_at >= 0 && one->target > 0
               && one->target <= program->text_count - one->right_at
               && rs_sql92_ascend(program, program->texts + one->right_at, one->target);
    case RS_SQL92_OP_CONTAINS:
    case RS_SQL92_OP_STARTS_WITH:
    case RS_SQL92_OP_ENDS_WITH:
        return one->right == RS_SQL92_OPERAND_TEXT;
    default:
        return one->op >= 0 && one->op <= RS_SQL92_OP_ENDS_WITH;
    }
}

RS_UNUSED static int rs_sql92_check_texts(rs_sql92 *program)
{
    static const uint8_t replacement[3] = {0xef, 0xbf, 0xbd};
    const int64_t count = (int64_t)program->name_count + program->text_count;
    for (int64_t i = 0; i < count; i++) {
        const rs_sql92_text *text = &program->names[i];
        if (text->at < 0 || text->nbytes < (i < program->name_count)
            || text->at > program->pool_nbytes || text->nbytes > program->pool_nbytes - text->at
            || !rs_is_plain(program->pool + text->at, text->nbytes)) {
            return 0;
        }
        for (int32_t at = 0; i >= program->name_count && at + 3 <= text->nbytes; at++) {
            program->has_replacement |=
                memcmp(program->pool + text->at + at, replacement, sizeof replacement) == 0;
        }
    }
    return rs_sql92_ascend(program, program->names, program->name_count);
}

/* Check a program and point into it. Return RS_OK, or RS_BAD_ENTRY for other bytes. Requires: its
 * address is a multiple of eight. */
RS_UNUSED static int rs_sql92_open(rs_sql92 *program, const void *bytes, int64_t nbytes)
{
    const rs_sql92_header *header = (const rs_sql92_header *)bytes;
    const uint8_t *at = (const uint8_t *)bytes + sizeof *header;
    memset(program, 0, sizeof *program);
    if (nbytes < (int64_t)sizeof *header || header->magic != RS_SQL92_MAGIC || header->zero != 0
        || header->number_count < 0 || header->code_count < 1 || header->name_count < 0
        || header->text_count < 0 || header->pool_nbytes < 0 || header->pool_nbytes % 8 != 0
        || header->depth < 0 || header->depth > header->code_count) {
        return RS_BAD_ENTRY;
    }
    const int64_t texts = (int64_t)header->name_count + header->text_count;
    if (nbytes != (int64_t)sizeof *header + 8 * (int64_t)header->number_count
                      + (int64_t)sizeof(rs_sql92_instruction) * header->code_count
                      + (int64_t)sizeof(rs_sql92_text) * texts + header->pool_nbytes) {
        return RS_BAD_ENTRY;
    }
    program->number_count = header->number_count;
    program->code_count = header->code_count;
    program->name_count = header->name_count;
    program->text_count = header->text_count;
    program->pool_nbytes = header->pool_nbytes;
    program->depth = header->depth;
    program->numbers = at;
    at += 8 * (int64_t)header->number_count;
    program->code = (const rs_sql92_instruction *)(const void *)at;
    at += (int64_t)sizeof(rs_sql92_instruction) * header->code_count;
    program->names = (const rs_sql92_text *)(const void *)at;
    program->texts = program->names + header->name_count;
    program->pool = at + (int64_t)sizeof(rs_sql92_text) * texts;
    if (!rs_sql92_check_texts(program)) {
        return RS_BAD_ENTRY;
    }
    for (int32_t i = 0; i < program->name_count; i++) {
        const int32_t n = program->names[i].nbytes;
        program->name_lengths |= 1ull << (n < 63 ? n : 63);
    }
    for (int32_t i = 0; i < program->code_count; i++) {
        if (!rs_sql92_check_instruction(program, i)) {
            return RS_BAD_ENTRY;
        }
    }
    return RS_OK;
}

/* --- Finding properties ---------------------------------------------------------------------- */

#define RS_SQL92_FEW_NAMES 8

static inline int rs_sql92_is_name(const rs_sql92 *program, int32_t number, const uint8_t *p,
                                   int32_t n)
{
    const rs_sql92_text *name = &program->names[number];
    const uint8_t *q = program->pool + name->at;
    return name->nbytes == n && q[0] == p[0] && memcmp(p, q, (size_t)n) == 0;
}

/* The number of a name, -1 if it is not asked for. */
static inline int32_t rs_sql92_find_name(const rs_sql92 *program, const uint8_t *p, int32_t n)
{
    if (!(program->name_lengths >> (n < 63 ? n : 63) & 1)) {
        return -1;
    }
    if (RS_LIKELY(program->name_count <= RS_SQL92_FEW_NAMES)) {
        for (int32_t i = 0; i < program->name_count; i++) {
            if (rs_sql92_is_name(program, i, p, n)) {
                return i;
            }
        }
        return -1;
    }
    int32_t low = 0, high = program->name_count - 1;
    while (low <= high) {
        const int32_t middle = low + (high - low) / 2;
        const rs_sql92_text *name = &program->names[middle];
        const int order = rs_sql92_compare(p, n, program->pool + name->at, name->nbytes);
        if (order == 0) {
            return middle;
        }
        low = order > 0 ? middle + 1 : low;
        high = order > 0 ? high : middle - 1;
    }
    return -1;
}

/* Keep a pair with a name and a value; the last of a name wins. */
static inline void rs_sql92_take(const rs_sql92 *program, const uint8_t *name,
                                 const uint8_t *separator, const uint8_t *end,
                                 rs_sql92_value *values)
{
    if (separator != NULL && separator > name && end - separator > 1) {
        const int32_t number = rs_sql92_find_name(program, name, (int32_t)(separator - name));
        if (number >= 0) {
            values[number].p = separator + 1;
            values[number].nbytes = (int32_t)(end - separator - 1);
        }
    }
}

/* Like rs_properties_mask, for properties with fewer than 64 bytes: nothing else is read. */
static inline uint64_t rs_sql92_short_mask(const uint8_t *p, int32_t n)
{
    uint8_t block[RS_BLOCK_NBYTES];
    memset(block, 0xff, sizeof block);
    memcpy(block, p, (size_t)n);
    return rs_block_mask(block, RS_PROPERTY_SEPARATOR);
}

RS_UNUSED static void rs_sql92_find(const rs_sql92 *program, const uint8_t *properties, int32_t n,
                                    rs_sql92_value *values)
{
    const uint8_t *end = properties + n, *name = properties, *separator = NULL;
    if (program->name_count == 0) {
        return;
    }
    for (int32_t i = 0; i < program->name_count; i++) {
        values[i].p = NULL;
        values[i].nbytes = 0;
    }
    for (const uint8_t *block = name; block < end; block += RS_BLOCK_NBYTES) {
        uint64_t mask = n < RS_BLOCK_NBYTES ? rs_sql92_short_mask(block, n)
                                            : rs_properties_mask(block, end, RS_PROPERTY_SEPARATOR);
        for (; mask != 0; mask &= mask - 1) {
            const uint8_t *p = block + rs_lowest_bit(mask);
            if (*p == RS_NAME_VALUE_SEPARATOR) {
                separator = separator == NULL ? p : separator;
            } else if (*p == RS_PROPERTY_SEPARATOR) {
                rs_sql92_take(program, name, separator, p, values);
                name = p + 1;
                separator = NULL;
            }
        }
    }
    rs_sql92_take(program, name, separator, end, values);
}

#endif
