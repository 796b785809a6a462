/* Runs a fuzz target if the compiler has no fuzzing engine: inputs of a corpus, changed at random,
 * without regard to coverage.
 *
 * Usage: driver CORPUS COUNT SEED [FILE...]. With files it runs only these. The current input is in
 * `last-input` of the working directory, so that it is available after a crash. */
#include "fuzz.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST_NBYTES = 65536, MOST_INPUTS = 4096 };

typedef struct {
    uint8_t *bytes;
    size_t nbytes;
} seed_input;

static seed_input corpus[MOST_INPUTS];
static size_t corpus_count;
static uint64_t state;

static uint64_t draw(uint64_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (state * 0x2545f4914f6cdd1dULL >> 11) % below;
}

static int load(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL || corpus_count == MOST_INPUTS) {
        return -1;
    }
    uint8_t *bytes = (uint8_t *)malloc(MOST_NBYTES);
    DEMAND(bytes != NULL);
    corpus[corpus_count].bytes = bytes;
    corpus[corpus_count].nbytes = fread(bytes, 1, MOST_NBYTES, file);
    corpus_count++;
    return fclose(file);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void load_all(const char *directory)
{
    struct dirent **names;
    const int count = scandir(directory, &names, NULL, by_name);
    for (int i = 0; i < count; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", directory, names[i]->d_name);
        if (names[i]->d_name[0] != '.') {
            load(path);
        }
        free(names[i]);
    }
    free(count >= 0 ? names : NULL);
}

static const uint64_t NUMBERS[] = {
    0, 1, 7, 8, 127, 128, 255, 256, 32767, 32768, 65535, INT32_MAX, 1ULL << 31, UINT32_MAX,
    INT64_MAX, 1ULL << 63, UINT64_MAX,
};

/* One change; returns the new length. */
static size_t change(uint8_t *bytes, size_t n)
{
    const size_t at = n > 0 ? (size_t)draw(draw(2) ? n : n < 100 ? n : 100) : 0;
    const size_t left = n - at;
    const size_t length = left > 0 ? 1 + (size_t)draw(left < 64 ? left : 64) : 0;
    const seed_input *other = corpus + draw(corpus_count);
    const size_t from = other->nbytes > 0 ? (size_t)draw(other->nbytes) : 0;
    const uint64_t number = NUMBERS[draw(sizeof NUMBERS / sizeof *NUMBERS)];
    const size_t width = (size_t)1 << draw(4);
    switch (draw(9)) {
    case 0:
        if (left > 0) {
            bytes[at] ^= (uint8_t)(1u << draw(8));
        }
        return n;
    case 1:
        if (left > 0) {
            bytes[at] = (uint8_t)draw(256);
        }
        return n;
    case 2:
        for (size_t i = 0; i < width && i < left; i++) {
            bytes[at + i] = (uint8_t)(number >> 8 * (width - 1 - i));
        }
        return n;
    case 3:
        memset(bytes + at, draw(2) ? 0 : 255, length);
        return n;
    case 4:
        return at;
    case 5:
        memmove(bytes + at, bytes + at + length, left - length);
        return n - length;
    case 6:
        if (n + length > MOST_NBYTES) {
            return n;
        }
        memmove(bytes + at + length, bytes + at, left);
        return n + length;
    case 7:
        if (from < other->nbytes && left > 0) {
            const size_t most = other->nbytes - from < left ? other->nbytes - from : left;
            memcpy(bytes + at, other->bytes + from, most < length ? most : length);
        }
        return n;
    default:
        if (left > 0) {
            bytes[at] = (uint8_t)(bytes[at] + 1 - 2 * draw(2));
        }
        return n;
    }
}

/* A page-backed copy of the current input in a file, cheap to update. */
static uint8_t *open_last_input(void)
{
    const int fd = open("last-input", O_RDWR | O_CREAT | O_TRUNC, 0666);
    DEMAND(fd >= 0 && ftruncate(fd, MOST_NBYTES + 8) == 0);
    void *place = mmap(NULL, MOST_NBYTES + 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    DEMAND(place != MAP_FAILED);
    close(fd);
    return (uint8_t *)place;
}

int main(int count, char **arguments)
{
    if (count < 4) {
        fprintf(stderr, "usage: driver CORPUS COUNT SEED [FILE...]\n");
        return 2;
    }
    for (int i = 4; i < count; i++) {
        DEMAND(load(arguments[i]) == 0);
        const seed_input *input = corpus + corpus_count - 1;
        uint8_t *copy = fuzz_copy(input->bytes, input->nbytes);
        LLVMFuzzerTestOneInput(copy, input->nbytes);
        free(copy);
    }
    if (count > 4) {
        return 0;
    }
    load_all(arguments[1]);
    DEMAND(corpus_count > 0);
    const uint64_t wanted = strtoull(arguments[2], NULL, 10);
    state = strtoull(arguments[3], NULL, 10) * 0x9e3779b97f4a7c15ULL + 1;
    uint8_t *last = open_last_input();
    for (uint64_t i = 0; i < wanted; i++) {
        const seed_input *input = corpus + draw(corpus_count);
        size_t n = input->nbytes;
        memcpy(last + 8, input->bytes, n);
        for (uint64_t changes = draw(6); changes > 0; changes--) {
            n = change(last + 8, n);
        }
        const uint64_t stored = n;
        memcpy(last, &stored, sizeof stored);
        uint8_t *copy = fuzz_copy(last + 8, n);
        LLVMFuzzerTestOneInput(copy, n);
        free(copy);
        if ((i + 1) % 1000000 == 0) {
            fprintf(stderr, "#%llu\n", (unsigned long long)(i + 1));
        }
    }
    fprintf(stderr, "done: %llu executions, nothing found\n", (unsigned long long)wanted);
    return 0;
}
