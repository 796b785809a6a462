/* Evaluates programs with any bytes over properties with any bytes: a verdict is one of four, and
 * the same twice. Numbers must be those of the C library where both know the form. */
#include "fuzz.h"

#include "rs_sql92.h"

/* Compare a text that is a double for Java with strtod, which ignores what follows a number. */
static void check_double(const uint8_t *p, int32_t n)
{
    double value, other;
    if (!rs_java_double(p, n, &value)) {
        return;
    }
    char *text = (char *)fuzz_copy(p, (size_t)n);
    text = (char *)realloc(text, (size_t)n + 1);
    DEMAND(text != NULL);
    for (int32_t i = 0; i < n; i++) {
        text[i] = p[i] <= ' ' ? ' ' : (char)p[i];
    }
    text[n] = 0;
    other = strtod(text, NULL);
    DEMAND(memcmp(&value, &other, sizeof value) == 0 || (value != value && other != other));
    free(text);
}

static void check_integer(const uint8_t *p, int32_t n)
{
    int64_t narrow, wide;
    const int fits = rs_java_integer(p, n, 32, &narrow);
    const int is_number = rs_java_integer(p, n, 64, &wide);
    DEMAND(!fits || (is_number && narrow == wide && narrow == (int32_t)narrow));
    DEMAND(fits || !is_number || wide != (int32_t)wide);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input in = {data, size};
    size_t nbytes = (size_t)fuzz_take(&in, 2);
    nbytes = nbytes < in.left ? nbytes : in.left;
    const uint8_t *properties = in.p + nbytes;
    const size_t left = in.left - nbytes;
    const int32_t n = (int32_t)(left < RS_MAX_PROPERTIES_NBYTES ? left : RS_MAX_PROPERTIES_NBYTES);
    uint8_t *copy = fuzz_copy(properties, (size_t)n);
    check_double(copy, n);
    check_integer(copy, n);
    rs_sql92_filter *filter;
    const int status = rs_sql92_new(in.p, (int64_t)nbytes, &filter);
    DEMAND(status == RS_OK ? filter != NULL : status == RS_BAD_ENTRY && filter == NULL);
    if (status == RS_OK) {
        const int verdict = rs_sql92_evaluate(filter, copy, n);
        DEMAND(verdict >= RS_SQL92_VERDICT_FALSE && verdict <= RS_SQL92_VERDICT_ERROR);
        DEMAND(rs_sql92_evaluate(filter, copy, n) == verdict);
        DEMAND(rs_sql92_evaluate(filter, copy, -1) == RS_SQL92_VERDICT_ERROR);
        rs_sql92_free(filter);
    }
    free(copy);
    return 0;
}
