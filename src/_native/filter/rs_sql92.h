/* Evaluation of compiled SQL92 filters: see rocketstore.sql92_program for the program.
 *
 * A loop over records calls rs_sql92_new once, rs_sql92_evaluate for each record and rs_sql92_free
 * at the end. rs_sql92_evaluate allocates nothing, takes no lock and reads only the filter and the
 * properties, so that it may run inside rs_guarded. A filter is for one thread at a time. */
#ifndef RS_SQL92_H
#define RS_SQL92_H
#include <stdlib.h>
#include "rs_sql92_operands.h"

/* A program with the memory that its evaluation needs. */
typedef struct {
    rs_sql92 program;
    rs_sql92_value *values; /* one for each name */
    uint8_t *stack;         /* `depth` verdicts */
    uint8_t *mended;        /* room for a value as Java decodes it, if the program needs it */
    void *bytes;            /* the program's copy */
} rs_sql92_filter;

RS_UNUSED static void rs_sql92_free(rs_sql92_filter *filter)
{
    if (filter != NULL) {
        free(filter->values);
        free(filter->stack);
        free(filter->mended);
        free(filter->bytes);
        free(filter);
    }
}

/* Check and copy a program. Return RS_OK and the filter, RS_BAD_ENTRY for other bytes, RS_LIMIT
 * without memory. */
RS_UNUSED static int rs_sql92_new(const void *program, int64_t nbytes, rs_sql92_filter **made)
{
    rs_sql92_filter *filter = (rs_sql92_filter *)calloc(1, sizeof *filter);
    int status = RS_LIMIT;
    *made = NULL;
    if (filter == NULL) {
        return RS_LIMIT;
    }
    filter->bytes = malloc((size_t)nbytes + 1);
    if (filter->bytes != NULL) {
        memcpy(filter->bytes, program, (size_t)nbytes);
        status = rs_sql92_open(&filter->program, filter->bytes, nbytes);
    }
    if (status == RS_OK) {
        const rs_sql92 *checked = &filter->program;
        const size_t mended_nbytes = RS_MENDED_TIMES * (RS_MAX_PROPERTIES_NBYTES + 1);
        filter->values =
            (rs_sql92_value *)calloc((size_t)checked->name_count + 1, sizeof *filter->values);
        filter->stack = (uint8_t *)malloc((size_t)checked->depth + 1);
        filter->mended = checked->has_replacement ? (uint8_t *)malloc(mended_nbytes) : NULL;
        if (filter->values == NULL || filter->stack == NULL
            || (checked->has_replacement && filter->mended == NULL)) {
            status = RS_LIMIT;
        }
    }
    if (status != RS_OK) {
        rs_sql92_free(filter);
        return status;
    }
    *made = filter;
    return RS_OK;
}

/* --- One evaluation -------------------------------------------------------------------------- */

typedef struct {
    const rs_sql92 *program;
    const rs_sql92_value *values;
    uint8_t *stack;
    uint8_t *mended; /* NULL: no value is malformed, or no text holds U+FFFD */
    int32_t height;
    int32_t at; /* the current instruction */
    int result;
} rs_sql92_run;

static inline int rs_sql92_push(rs_sql92_run *run)
{
    if (run->height == run->program->depth) {
        return 0;
    }
    run->stack[run->height++] = (uint8_t)run->result;
    return 1;
}

static inline int rs_sql92_pop(rs_sql92_run *run, int *verdict)
{
    if (run->height == 0) {
        return 0;
    }
    *verdict = run->stack[--run->height];
    return 1;
}

/* Load an operand; 0 if the stack is empty. */
static inline int rs_sql92_load(rs_sql92_run *run, int kind, int32_t at, rs_sql92_operand *operand)
{
    const rs_sql92 *program = run->program;
    int verdict = run->result;
    operand->kind = kind;
    operand->is_property = 0;
    operand->nbytes = 0;
    operand->p = NULL;
    switch (kind) {
    case RS_SQL92_OPERAND_NAME:
        operand->p = run->values[at].p;
        operand->nbytes = run->values[at].nbytes;
        operand->is_property = 1;
        operand->kind = operand->p == NULL ? RS_SQL92_OPERAND_NULL : RS_SQL92_OPERAND_TEXT;
        return 1;
    case RS_SQL92_OPERAND_TEXT:
        operand->p = program->pool + program->texts[at].at;
        operand->nbytes = program->texts[at].nbytes;
        return 1;
    case RS_SQL92_OPERAND_INTEGER:
    case RS_SQL92_OPERAND_LONG:
        memcpy(&operand->integer, program->numbers + 8 * (size_t)at, 8);
        return 1;
    case RS_SQL92_OPERAND_DOUBLE:
        memcpy(&operand->number, program->numbers + 8 * (size_t)at, 8);
        return 1;
    case RS_SQL92_OPERAND_PUSHED:
        if (!rs_sql92_pop(run, &verdict)) {
            return 0;
        }
        break;
    case RS_SQL92_OPERAND_RESULT:
        break;
    default:
        return 1;
    }
    operand->kind = verdict == RS_SQL92_VERDICT_NULL ? RS_SQL92_OPERAND_NULL
                                                     : RS_SQL92_OPERAND_RESULT;
    operand->integer = verdict;
    return 1;
}

static inline int rs_sql92_not(int verdict)
{
    return verdict <= RS_SQL92_VERDICT_TRUE ? 1 - verdict : verdict;
}

static inline int rs_sql92_join(int left, int right, int deciding)
{
    if (left == deciding || right == deciding) {
        return deciding;
    }
    return left == RS_SQL92_VERDICT_NULL || right == RS_SQL92_VERDICT_NULL
               ? RS_SQL92_VERDICT_NULL
               : rs_sql92_not(deciding);
}

static inline int rs_sql92_equal(rs_sql92_run *run, const rs_sql92_instruction *one)
{
    rs_sql92_operand left, right;
    int order;
    if (!rs_sql92_load(run, one->left, one->left_at, &left)
        || !rs_sql92_load(run, one->right, one->right_at, &right)) {
        return RS_SQL92_VERDICT_ERROR;
    }
    if (left.kind == RS_SQL92_OPERAND_NULL) {
        return right.kind == RS_SQL92_OPERAND_NULL ? RS_SQL92_VERDICT_TRUE : RS_SQL92_VERDICT_NULL;
    }
    if (right.kind == RS_SQL92_OPERAND_NULL) {
        return RS_SQL92_VERDICT_FALSE;
    }
    if (left.kind == RS_SQL92_OPERAND_TEXT && right.kind == RS_SQL92_OPERAND_TEXT) {
        return rs_sql92_is_same(run->program, &left, &right);
    }
    return rs_sql92_order(&left, &right, &order) ? order == 0 : RS_SQL92_VERDICT_ERROR;
}

static inline int rs_sql92_ordered(rs_sql92_run *run, const rs_sql92_instruction *one)
{
    rs_sql92_operand left, right;
    int order;
    if (!rs_sql92_load(run, one->left, one->left_at, &left)
        || !rs_sql92_load(run, one->right, one->right_at, &right)) {
        return RS_SQL92_VERDICT_ERROR;
    }
    if (left.kind == RS_SQL92_OPERAND_NULL || right.kind == RS_SQL92_OPERAND_NULL) {
        return RS_SQL92_VERDICT_NULL;
    }
    if (left.kind == RS_SQL92_OPERAND_TEXT && right.kind == RS_SQL92_OPERAND_TEXT
        && (!rs_sql92_convert(&left, RS_SQL92_OPERAND_DOUBLE)
            || !rs_sql92_convert(&right, RS_SQL92_OPERAND_DOUBLE))) {
        return RS_SQL92_VERDICT_ERROR;
    }
    if (!rs_sql92_order(&left, &right, &order)) {
        return RS_SQL92_VERDICT_ERROR;
    }
    switch (one->op) {
    case RS_SQL92_OP_GREATER:
        return order > 0;
    case RS_SQL92_OP_GREATER_OR_EQUAL:
        return order >= 0;
    case RS_SQL92_OP_LESS:
        return order < 0;
    default:
        return order <= 0;
    }
}

/* A property's text as Java decodes it, if that can matter. */
static inline void rs_sql92_mend(rs_sql92_run *run, rs_sql92_operand *operand)
{
    if (run->mended != NULL && operand->is_property && !rs_is_plain(operand->p, operand->nbytes)) {
        operand->nbytes = rs_mend(run->mended, operand->p, operand->nbytes);
        operand->p = run->mended;
    }
}

static inline int rs_sql92_in(rs_sql92_run *run, const rs_sql92_instruction *one)
{
    rs_sql92_operand left;
    if (!rs_sql92_load(run, one->left, one->left_at, &left)) {
        return RS_SQL92_VERDICT_ERROR;
    }
    if (left.kind != RS_SQL92_OPERAND_TEXT) {
        return RS_SQL92_VERDICT_NULL;
    }
    rs_sql92_mend(run, &left);
    return rs_sql92_is_in(run->program, left.p, left.nbytes, one->right_at, one->target);
}

static inline int rs_sql92_search(rs_sql92_run *run, const rs_sql92_instruction *one)
{
    const rs_sql92_text *text = &run->program->texts[one->right_at];
    const uint8_t *wanted = run->program->pool + text->at;
    rs_sql92_operand left;
    if (!rs_sql92_load(run, one->left, one->left_at, &left)) {
        return RS_SQL92_VERDICT_ERROR;
    }
    if (left.kind != RS_SQL92_OPERAND_TEXT || text->nbytes == 0) {
        return one->negated; /* FALSE once it is negated */
    }
    rs_sql92_mend(run, &left);
    if (one->op == RS_SQL92_OP_CONTAINS) {
        return rs_contains(left.p, left.nbytes, wanted, text->nbytes);
    }
    if (text->nbytes > left.nbytes) {
        return RS_SQL92_VERDICT_FALSE;
    }
    left.p += one->op == RS_SQL92_OP_ENDS_WITH ? left.nbytes - text->nbytes : 0;
    return memcmp(left.p, wanted, (size_t)text->nbytes) == 0;
}

/* The result of an instruction that does not jump, before `negated` is applied. */
static inline int rs_sql92_compute(rs_sql92_run *run, const rs_sql92_instruction *one)
{
    int left;
    switch (one->op) {
    case RS_SQL92_OP_EQUAL:
        return rs_sql92_equal(run, one);
    case RS_SQL92_OP_IN:
        return rs_sql92_in(run, one);
    case RS_SQL92_OP_AND:
    case RS_SQL92_OP_OR:
        if (!rs_sql92_pop(run, &left)) {
            return RS_SQL92_VERDICT_ERROR;
        }
        return rs_sql92_join(left, run->result, one->op == RS_SQL92_OP_AND
                                                    ? RS_SQL92_VERDICT_FALSE
                                                    : RS_SQL92_VERDICT_TRUE);
    case RS_SQL92_OP_NOT:
        return rs_sql92_not(run->result);
    case RS_SQL92_OP_SET:
        return one->left_at;
    case RS_SQL92_OP_CAST:
        return run->values[one->left_at].p == NULL ? RS_SQL92_VERDICT_NULL
                                                   : RS_SQL92_VERDICT_FALSE;
    case RS_SQL92_OP_PUSH:
        return rs_sql92_push(run) ? run->result : RS_SQL92_VERDICT_ERROR;
    case RS_SQL92_OP_CONTAINS:
    case RS_SQL92_OP_STARTS_WITH:
    case RS_SQL92_OP_ENDS_WITH:
        return rs_sql92_search(run, one);
    default:
        return rs_sql92_ordered(run, one);
    }
}

/* Carry out the jump of an instruction, or put the result on the stack; 0 if that is full. */
static inline int rs_sql92_branch(rs_sql92_run *run, const rs_sql92_instruction *one)
{
    rs_sql92_operand left;
    if (one->op == RS_SQL92_OP_SKIP_NULL) {
        if (!rs_sql92_load(run, one->left, one->left_at, &left)) {
            return 0;
        }
        run->result = left.kind == RS_SQL92_OPERAND_NULL ? RS_SQL92_VERDICT_NULL : run->result;
        run->at = left.kind == RS_SQL92_OPERAND_NULL ? one->target : run->at + 1;
        return 1;
    }
    if (run->result
        == (one->op == RS_SQL92_OP_AND_LEFT ? RS_SQL92_VERDICT_FALSE : RS_SQL92_VERDICT_TRUE)) {
        run->at = one->target;
        return 1;
    }
    if (!rs_sql92_push(run)) {
        return 0;
    }
    run->at++;
    return 1;
}

/* Return the verdict for the values of the names; after an ERROR, `at` is its instruction. */
RS_UNUSED static int rs_sql92_judge(rs_sql92_run *run)
{
    const rs_sql92 *program = run->program;
    run->height = run->at = 0;
    run->result = RS_SQL92_VERDICT_NULL;
    while (run->at < program->code_count) {
        const rs_sql92_instruction *one = &program->code[run->at];
        if (one->op == RS_SQL92_OP_AND_LEFT || one->op == RS_SQL92_OP_OR_LEFT
            || one->op == RS_SQL92_OP_SKIP_NULL) {
            if (!rs_sql92_branch(run, one)) {
                return RS_SQL92_VERDICT_ERROR;
            }
            continue;
        }
        const int result = rs_sql92_compute(run, one);
        if (result == RS_SQL92_VERDICT_ERROR) {
            return RS_SQL92_VERDICT_ERROR;
        }
        run->result = one->negated ? rs_sql92_not(result) : result;
        run->at++;
    }
    return run->result;
}

/* Return the verdict for the properties of a record as stored: FALSE, TRUE, NULL, or ERROR where
 * RocketMQ's evaluator raises. More than RS_MAX_PROPERTIES_NBYTES bytes are an ERROR. Not inlined,
 * so that loops keep their registers where there is no filter. */
RS_UNUSED RS_NOINLINE static int rs_sql92_evaluate(rs_sql92_filter *filter,
                                                   const uint8_t *properties, int32_t n)
{
    rs_sql92_run run = {&filter->program, filter->values, filter->stack, filter->mended, 0, 0, 0};
    if (n < 0 || n > RS_MAX_PROPERTIES_NBYTES) {
        return RS_SQL92_VERDICT_ERROR;
    }
    rs_sql92_find(&filter->program, properties, n, filter->values);
    return rs_sql92_judge(&run);
}

#endif
