/* The file that messages.py writes, and the clock of limits.c. */
#ifndef RACE_LIMITS_H
#define RACE_LIMITS_H
#include "rs_bytes.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define QUEUES 4
#define MOST_TOPICS 32
#define PLACES (MOST_TOPICS * QUEUES)
#define MOST_KINDS 4
#define MOST_PAIRS 16
#define MOST_VALUE_NBYTES 128
#define MOST_PROPERTIES_NBYTES 1024
#define ROW_NBYTES 24

typedef struct {
    char name[MOST_VALUE_NBYTES];
    int nbytes;
    int32_t hash_with_hash_sign;
} message_set_topic;

typedef struct {
    int32_t sys_flag;
    int32_t reconsume_times;
    int64_t prepared_transaction_offset;
    int pair_count;
    char names[MOST_PAIRS][MOST_VALUE_NBYTES];
    char values[MOST_PAIRS][MOST_VALUE_NBYTES];
} message_set_kind;

typedef struct {
    int64_t born_timestamp;
    int32_t body_at;
    int32_t body_nbytes;
    int topic;
    int queue;
    int kind;
} message_set_row;

typedef struct {
    int64_t count;
    int topic_count;
    int64_t sample_count;
    int32_t most_body_nbytes;
    message_set_topic topics[MOST_TOPICS];
    message_set_kind kinds[MOST_KINDS];
    const uint8_t *pool;
    const uint8_t *rows;
    const uint8_t *samples;
    uint8_t *file;
} message_set;

static void require(int holds, const char *what)
{
    if (!holds) {
        printf("{\"error\": \"%s\"}\n", what);
        fflush(stdout);
        exit(1);
    }
}

/* --- the set ---------------------------------------------------------------------------------- */

static const uint8_t *message_set_text(const uint8_t *at, char *text)
{
    const int nbytes = rs_load_be16(at);
    require(nbytes >= 0 && nbytes < MOST_VALUE_NBYTES - 1, "a text of the set is too long");
    memcpy(text, at + 2, (size_t)nbytes);
    text[nbytes] = 0;
    return at + 2 + nbytes;
}

static message_set_row message_set_row_at(const message_set *set, int64_t number)
{
    const uint8_t *p = set->rows + ROW_NBYTES * number;
    return (message_set_row){
        .born_timestamp = rs_load_be64(p), .body_at = rs_load_be32(p + 8),
        .body_nbytes = rs_load_be32(p + 12), .topic = rs_load_be16(p + 16),
        .queue = rs_load_be16(p + 18), .kind = rs_load_be16(p + 20),
    };
}

static int64_t message_set_sample(const message_set *set, int64_t number)
{
    return rs_load_be32(set->samples + 4 * (number % set->sample_count));
}

static void message_set_load(message_set *set, const char *path)
{
    FILE *file = fopen(path, "rb");
    require(file != NULL, "the set cannot be opened");
    fseek(file, 0, SEEK_END);
    const size_t nbytes = (size_t)ftell(file);
    rewind(file);
    free(set->file);
    memset(set, 0, sizeof *set);
    set->file = malloc(nbytes);
    require(set->file != NULL && fread(set->file, 1, nbytes, file) == nbytes,
            "the set cannot be read");
    fclose(file);
    const uint8_t *at = set->file + 8;
    require(nbytes > 28 && memcmp(set->file, "RACESET1", 8) == 0, "this is not a message set");
    set->count = rs_load_be32(at);
    set->topic_count = rs_load_be32(at + 4);
    const int kind_count = rs_load_be32(at + 8);
    const int32_t pool_nbytes = rs_load_be32(at + 12);
    set->sample_count = rs_load_be32(at + 16);
    require(set->topic_count <= MOST_TOPICS && kind_count <= MOST_KINDS, "the set is too large");
    at += 20;
    for (int i = 0; i < set->topic_count; i++) {
        at = message_set_text(at, set->topics[i].name);
        set->topics[i].nbytes = (int)strlen(set->topics[i].name);
    }
    for (int i = 0; i < kind_count; i++) {
        message_set_kind *kind = &set->kinds[i];
        kind->sys_flag = rs_load_be32(at);
        kind->reconsume_times = rs_load_be32(at + 4);
        kind->prepared_transaction_offset = rs_load_be64(at + 8);
        kind->pair_count = rs_load_be16(at + 16);
        require(kind->pair_count <= MOST_PAIRS, "a kind has too many properties");
        at += 18;
        for (int k = 0; k < kind->pair_count; k++) {
            at = message_set_text(message_set_text(at, kind->names[k]), kind->values[k]);
        }
    }
    set->pool = at;
    set->rows = at + pool_nbytes;
    set->samples = set->rows + ROW_NBYTES * set->count;
    for (int64_t i = 0; i < set->count; i++) {
        const int32_t body = message_set_row_at(set, i).body_nbytes;
        set->most_body_nbytes = body > set->most_body_nbytes ? body : set->most_body_nbytes;
    }
}

static void message_set_key(int64_t number, char *text)
{
    snprintf(text, MOST_VALUE_NBYTES, "order-%08lld", (long long)number);
}

static void message_set_value(const char *form, int64_t number, char *text)
{
    if (strcmp(form, "{key}") == 0) {
        message_set_key(number, text);
    } else if (strcmp(form, "{unique}") == 0) {
        snprintf(text, MOST_VALUE_NBYTES, "C0A801171F2A5FFD2B27%012llX", (long long)number);
    } else if (strcmp(form, "{origin}") == 0) {
        snprintf(text, MOST_VALUE_NBYTES, "7F00000100002A9F%016llX", (long long)number);
    } else if (strcmp(form, "{tag}") == 0) {
        snprintf(text, MOST_VALUE_NBYTES, "Tag%c", (char)('A' + number % 8));
    } else {
        snprintf(text, MOST_VALUE_NBYTES, "%s", form);
    }
}

/* Write the properties as the 5.x line stores them, with a separator at the end; return how many
 * bytes they have. */
static int32_t message_set_properties(const message_set_kind *kind, int64_t number, uint8_t *into)
{
    char value[MOST_VALUE_NBYTES];
    uint8_t *at = into;
    for (int i = 0; i < kind->pair_count; i++) {
        const size_t name_nbytes = strlen(kind->names[i]);
        message_set_value(kind->values[i], number, value);
        memcpy(at, kind->names[i], name_nbytes);
        at += name_nbytes;
        *at++ = 1;
        memcpy(at, value, strlen(value));
        at += strlen(value);
        *at++ = 2;
    }
    require(at - into <= MOST_PROPERTIES_NBYTES, "the properties are too long");
    return (int32_t)(at - into);
}

/* --- the clock -------------------------------------------------------------------------------- */

typedef struct {
    int64_t wall;
    int64_t cpu;
    int64_t process;
} race_clock;

static int64_t clock_ns(clockid_t id)
{
    struct timespec now;
    clock_gettime(id, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void clock_begin(race_clock *clock)
{
    clock->process -= clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    clock->cpu -= clock_ns(CLOCK_THREAD_CPUTIME_ID);
    clock->wall -= clock_ns(CLOCK_MONOTONIC);
}

static void clock_end(race_clock *clock)
{
    clock->wall += clock_ns(CLOCK_MONOTONIC);
    clock->cpu += clock_ns(CLOCK_THREAD_CPUTIME_ID);
    clock->process += clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}

static void clock_answer(const race_clock *clock, int64_t count, int64_t end)
{
    printf("{\"wall\": %lld, \"cpu\": %lld, \"process\": %lld, \"count\": %lld, \"end\": %lld}\n",
           (long long)clock->wall, (long long)clock->cpu, (long long)clock->process,
           (long long)count, (long long)end);
}

#endif
