/* Shared by the fuzz targets: bytes taken from an input, and checks that are in every build. */
#ifndef FUZZ_H
#define FUZZ_H
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A promise of the code under test. If it is broken, the process aborts, as with a sanitizer. */
#define DEMAND(condition)                                                      \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                           \
        }                                                                      \
    } while (0)

typedef struct {
    const uint8_t *p;
    size_t left;
} fuzz_input;

/* The next n bytes as a number; zeros past the input's end. */
static inline uint64_t fuzz_take(fuzz_input *in, size_t n)
{
    uint64_t value = 0;
    for (size_t i = 0; i < n; i++) {
        value = value << 8 | (in->left > 0 ? *in->p : 0);
        in->p += in->left > 0;
        in->left -= in->left > 0;
    }
    return value;
}

/* A copy of n bytes in memory of that size, so that reading past its end is detected. */
static inline uint8_t *fuzz_copy(const uint8_t *from, size_t n)
{
    uint8_t *copy = (uint8_t *)malloc(n > 0 ? n : 1);
    DEMAND(copy != NULL);
    if (n > 0) {
        memcpy(copy, from, n);
    }
    return copy;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
