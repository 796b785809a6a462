/* The least that a put or a read of these messages must do, as a bare loop: the contestant "limit".
 *
 * Obeys the lines of contestants.py. A put reads the clock, stores the fields, copies topic, body
 * and properties into the mapped file and computes the body's CRC; there are no checks, no locks
 * and no services. "fresh": the file is new, and the same thread maps each page by its first store.
 * "resident": the pages are mapped before the clock starts. "synced": their blocks are on disk
 * before it starts, and one msync for each step is timed, too. Queues and index are in memory that
 * is mapped before. The log is one that rocketstore can read, which is how it is checked. */
#define _GNU_SOURCE
#include "limits.h"
#include "rs_crc.h"
#include "rs_formats.h"
#include "rs_hash.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#define SEGMENT_NBYTES (1L << 30)
#define SLOTS 5000000
#define UNIT_NBYTES 20
#define ENTRY_NBYTES 20
#define BODY_AT RS_RECORD_HEADER_V4_NBYTES
#define STORE_TIMESTAMP_AT 56
#define TAIL_AT 72
#define PAGE_NBYTES 4096
/* Topic and properties of a message that is synced take no more. */
#define MOST_SYNCED_NBYTES 512

/* A message before it is put. */
typedef struct {
    const uint8_t *body;
    const uint8_t *properties;
    const message_set_topic *topic;
    int64_t born_timestamp;
    int64_t prepared_transaction_offset;
    int32_t body_nbytes;
    int32_t properties_nbytes;
    int32_t place; /* topic and queue */
    int32_t queue;
    int32_t sys_flag;
    int32_t reconsume_times;
} message;

typedef struct {
    uint8_t *units;
    int64_t count;
    int64_t capacity;
} queue_units;

static message_set set;
static uint8_t *base;
static int64_t position, put_count;
static int64_t queue_offsets[PLACES];
static queue_units queues[PLACES];
static uint8_t *slots, *entries;
static int64_t entry_count;
static uint8_t topic_codes[256];
static uint8_t template[RS_RECORD_HEADER_V4_NBYTES];
static uint64_t used; /* so that what was read is used */

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static uint8_t topic_code(const uint8_t *name, int nbytes)
{
    return (uint8_t)(name[nbytes - 1] + 10 * name[nbytes - 2] + 3 * nbytes);
}

static void *fresh_memory(int64_t nbytes)
{
    void *found = mmap(NULL, (size_t)nbytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    require(found != MAP_FAILED, "no memory");
    return found;
}

/* --- puts ------------------------------------------------------------------------------------ */

static void open_log(const char *folder)
{
    static const uint8_t born[] = {10, 1, 2, 3, 0, 0, 0x9d, 0x81};
    static const uint8_t stored[] = {127, 0, 0, 1, 0, 0, 0x2a, 0x9f};
    char path[4096];
    mkdir(folder, 0777);
    snprintf(path, sizeof path, "%s/commitlog", folder);
    mkdir(path, 0777);
    snprintf(path, sizeof path, "%s/commitlog/%020d", folder, 0);
    int file = open(path, O_RDWR | O_CREAT, 0666);
    require(file >= 0 && ftruncate(file, SEGMENT_NBYTES) == 0, path);
    base = mmap(NULL, SEGMENT_NBYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    require(base != MAP_FAILED, "the log cannot be mapped");
    close(file);
    position = put_count = entry_count = 0;
    memset(queue_offsets, 0, sizeof queue_offsets);
    memset(template, 0, sizeof template);
    rs_store_be32(template + RS_RECORD_HEAD_MAGIC_AT, RS_MAGIC_V1);
    memcpy(template + RS_RECORD_HEAD_NBYTES, born, sizeof born);
    memcpy(template + STORE_TIMESTAMP_AT + RS_RECORD_STORED_NBYTES, stored, sizeof stored);
}

static void make_messages(message *made, uint8_t *bytes, int64_t first, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const message_set_row row = message_set_row_at(&set, first + i);
        const message_set_kind *kind = &set.kinds[row.kind];
        made[i] = (message){
            .body = memcpy(bytes, set.pool + row.body_at, (size_t)row.body_nbytes),
            .properties = bytes + row.body_nbytes, .topic = &set.topics[row.topic],
            .born_timestamp = row.born_timestamp,
            .prepared_transaction_offset = kind->prepared_transaction_offset,
            .body_nbytes = row.body_nbytes, .place = row.topic * QUEUES + row.queue,
            .queue = row.queue, .sys_flag = kind->sys_flag,
            .reconsume_times = kind->reconsume_times,
        };
        bytes += row.body_nbytes;
        made[i].properties_nbytes = message_set_properties(kind, first + i, bytes);
        bytes += made[i].properties_nbytes;
    }
}

static inline void put_record(const message *m, int64_t timestamp)
{
    uint8_t *p = base + position;
    const int32_t total = RS_RECORD_MIN_NBYTES + m->body_nbytes + m->topic->nbytes
                          + m->properties_nbytes;
    const uint32_t crc = rs_crc32(0, m->body, (size_t)m->body_nbytes);
    memcpy(p, template, sizeof template);
    rs_store_be32(p + RS_RECORD_HEAD_BODY_CRC_AT, (int32_t)(crc & 0x7fffffffu));
    rs_store_be32(p + RS_RECORD_HEAD_QUEUE_ID_AT, m->queue);
    rs_store_be64(p + RS_RECORD_HEAD_QUEUE_OFFSET_AT, queue_offsets[m->place]++);
    rs_store_be64(p + RS_RECORD_HEAD_PHYSICAL_OFFSET_AT, position);
    rs_store_be32(p + RS_RECORD_HEAD_SYS_FLAG_AT, m->sys_flag);
    rs_store_be64(p + RS_RECORD_HEAD_BORN_TIMESTAMP_AT, m->born_timestamp);
    rs_store_be64(p + STORE_TIMESTAMP_AT, timestamp);
    rs_store_be32(p + TAIL_AT + RS_RECORD_TAIL_RECONSUME_TIMES_AT, m->reconsume_times);
    rs_store_be64(p + TAIL_AT + RS_RECORD_TAIL_PREPARED_TRANSACTION_OFFSET_AT,
                  m->prepared_transaction_offset);
    rs_store_be32(p + TAIL_AT + RS_RECORD_TAIL_BODY_LENGTH_AT, m->body_nbytes);
    uint8_t *q = p + BODY_AT;
    memcpy(q, m->body, (size_t)m->body_nbytes);
    q += m->body_nbytes;
    *q++ = (uint8_t)m->topic->nbytes;
    memcpy(q, m->topic->name, (size_t)m->topic->nbytes);
    q += m->topic->nbytes;
    rs_store_be16(q, (int16_t)m->properties_nbytes);
    memcpy(q + 2, m->properties, (size_t)m->properties_nbytes);
    rs_store_be32_release(p, total);
    position += total;
}

/* Map the pages of the next messages before the clock starts. */
static void make_resident(int64_t nbytes)
{
    const int64_t first = position & ~(int64_t)(PAGE_NBYTES - 1);
    int64_t last = position + nbytes < SEGMENT_NBYTES ? position + nbytes : SEGMENT_NBYTES;
    if (madvise(base + first, (size_t)(last - first), MADV_POPULATE_WRITE) != 0) {
        for (int64_t at = position + PAGE_NBYTES; at < last; at += PAGE_NBYTES) {
            *(volatile uint8_t *)(base + at) = 0;
        }
    }
}

static void sync_log(int64_t first, int64_t end)
{
    first &= ~(int64_t)(PAGE_NBYTES - 1);
    require(msync(base + first, (size_t)(end - first), MS_SYNC) == 0, "msync failed");
}

/* Write the blocks of the next messages before the clock starts, so that a sync writes no more. */
static void write_blocks(int64_t count)
{
    const int64_t most = RS_RECORD_MIN_NBYTES + set.most_body_nbytes + MOST_SYNCED_NBYTES;
    const int64_t left = SEGMENT_NBYTES - position;
    const int64_t nbytes = count * most < left ? count * most : left;
    make_resident(nbytes);
    sync_log(position, position + nbytes);
}

static void put(const char *call, int64_t first, int64_t count, int64_t step)
{
    const int resident = strcmp(call, "resident") == 0, synced = strcmp(call, "synced") == 0;
    const int64_t room = step * (set.most_body_nbytes + MOST_PROPERTIES_NBYTES);
    message *made = malloc((size_t)step * sizeof *made);
    uint8_t *bytes = malloc((size_t)room);
    race_clock clock = {0};
    require(made != NULL && bytes != NULL, "no memory");
    if (synced) {
        write_blocks(count);
    }
    for (int64_t done = 0; done < count; done += step) {
        const int64_t size = count - done < step ? count - done : step;
        make_messages(made, bytes, first + done, size);
        int64_t nbytes = 0;
        for (int64_t i = 0; i < size; i++) {
            nbytes += RS_RECORD_MIN_NBYTES + made[i].body_nbytes + made[i].topic->nbytes
                      + made[i].properties_nbytes;
        }
        require(position + nbytes <= SEGMENT_NBYTES, "the messages fill more than one segment");
        const int64_t began = position;
        if (resident) {
            make_resident(nbytes);
        }
        clock_begin(&clock);
        for (int64_t i = 0; i < size; i++) {
            put_record(&made[i], now_ms());
        }
        if (synced) {
            sync_log(began, position);
        }
        clock_end(&clock);
    }
    free(made);
    free(bytes);
    put_count += count;
    clock_answer(&clock, count, position);
}

/* --- walks over the log ---------------------------------------------------------------------- */

static int32_t index_hash(const message_set_topic *topic, const uint8_t *key, size_t nbytes)
{
    uint32_t length;
    const int32_t own = rs_string_hash(key, nbytes, &length);
    const int32_t hash = rs_hash_extend(topic->hash_with_hash_sign, own, length);
    return hash < 0 ? -hash : hash;
}

static void store_entry(const uint8_t *key, size_t nbytes, const message_set_topic *topic,
                        int64_t offset, int32_t seconds)
{
    const int32_t hash = index_hash(topic, key, nbytes);
    uint8_t *slot = slots + 4L * (hash % SLOTS), *entry = entries + ENTRY_NBYTES * ++entry_count;
    rs_store_be32(entry + RS_INDEX_ENTRY_KEY_HASH_AT, hash);
    rs_store_be64(entry + RS_INDEX_ENTRY_PHYSICAL_OFFSET_AT, offset);
    rs_store_be32(entry + RS_INDEX_ENTRY_TIME_DIFF_AT, seconds);
    memcpy(entry + RS_INDEX_ENTRY_PREVIOUS_INDEX_AT, slot, 4);
    rs_store_be32(slot, (int32_t)entry_count);
}

static int is_name(const uint8_t *p, size_t nbytes, const char *name)
{
    return nbytes == strlen(name) && memcmp(p, name, nbytes) == 0;
}

static void dispatch_record(const uint8_t *p, int64_t offset, int32_t total)
{
    const int32_t body = rs_load_be32(p + TAIL_AT + RS_RECORD_TAIL_BODY_LENGTH_AT);
    const uint8_t *name = p + BODY_AT + body + 1;
    const int topic_nbytes = name[-1];
    const int number = topic_codes[topic_code(name, topic_nbytes)];
    const message_set_topic *topic = &set.topics[number];
    const uint8_t *at = name + topic_nbytes + 2;
    const uint8_t *end = at + rs_load_be16(at - 2);
    int64_t tags_code = 0;
    while (at < end) {
        const uint8_t *equals = memchr(at, 1, (size_t)(end - at));
        const uint8_t *last = memchr(equals, 2, (size_t)(end - equals));
        const size_t name_nbytes = (size_t)(equals - at), nbytes = (size_t)(last - equals - 1);
        uint32_t length;
        if (is_name(at, name_nbytes, "TAGS")) {
            tags_code = rs_string_hash(equals + 1, nbytes, &length);
        } else if (is_name(at, name_nbytes, "KEYS") || is_name(at, name_nbytes, "UNIQ_KEY")) {
            store_entry(equals + 1, nbytes, topic, offset, 0);
        }
        at = last + 1;
    }
    const int place = number * QUEUES + rs_load_be32(p + RS_RECORD_HEAD_QUEUE_ID_AT);
    uint8_t *unit = queues[place].units + UNIT_NBYTES * queues[place].count++;
    rs_store_be64(unit + RS_CQ_UNIT_PHYSICAL_OFFSET_AT, offset);
    rs_store_be32(unit + RS_CQ_UNIT_SIZE_AT, total);
    rs_store_be64(unit + RS_CQ_UNIT_TAGS_CODE_AT, tags_code);
}

static void rebuild(int answer)
{
    race_clock clock = {0};
    for (int i = 0; i < PLACES; i++) {
        if (queues[i].capacity) {
            munmap(queues[i].units, (size_t)queues[i].capacity);
        }
        queues[i] = (queue_units){.capacity = UNIT_NBYTES * queue_offsets[i]};
        if (queues[i].capacity) {
            queues[i].units = fresh_memory(queues[i].capacity);
        }
    }
    if (slots != NULL) {
        munmap(slots, 4L * SLOTS);
        munmap(entries, (size_t)(ENTRY_NBYTES * (2L * set.count + 1)));
    }
    slots = fresh_memory(4L * SLOTS);
    entries = fresh_memory(ENTRY_NBYTES * (2L * set.count + 1));
    entry_count = 0;
    int64_t count = 0;
    clock_begin(&clock);
    for (int64_t at = 0; at < position; count++) {
        const int32_t total = rs_load_be32(base + at);
        dispatch_record(base + at, at, total);
        at += total;
    }
    clock_end(&clock);
    if (answer) {
        clock_answer(&clock, count, position);
    }
}

/* Compare a body with its CRC; return its length. */
static int32_t compare_crc(const uint8_t *p)
{
    const int32_t nbytes = rs_load_be32(p + TAIL_AT + RS_RECORD_TAIL_BODY_LENGTH_AT);
    const uint32_t crc = rs_crc32(0, p + BODY_AT, (size_t)nbytes) & 0x7fffffffu;
    require((int32_t)crc == rs_load_be32(p + RS_RECORD_HEAD_BODY_CRC_AT), "a CRC differs");
    return nbytes;
}

/* What recovery must do: map the log and compare each body with its CRC. */
static void recover(const char *folder)
{
    char path[4096];
    race_clock clock = {0};
    int64_t count = 0, at = 0;
    clock_begin(&clock);
    snprintf(path, sizeof path, "%s/commitlog/%020d", folder, 0);
    int file = open(path, O_RDONLY);
    require(file >= 0, path);
    const uint8_t *log = mmap(NULL, SEGMENT_NBYTES, PROT_READ, MAP_SHARED, file, 0);
    require(log != MAP_FAILED, "the log cannot be mapped");
    close(file);
    madvise((void *)log, SEGMENT_NBYTES, MADV_SEQUENTIAL);
    while (rs_load_be32(log + at + RS_RECORD_HEAD_MAGIC_AT) == RS_MAGIC_V1) {
        const uint8_t *p = log + at;
        compare_crc(p);
        at += rs_load_be32(p);
        count++;
    }
    munmap((void *)log, SEGMENT_NBYTES);
    clock_end(&clock);
    clock_answer(&clock, count, at);
}

/* --- reads ----------------------------------------------------------------------------------- */

/* What a pull must do that compares each body with its CRC, and copies the body if asked. */
static void get(int body, int64_t limit)
{
    race_clock clock = {0};
    int64_t count = 0;
    uint8_t *copy = malloc((size_t)set.most_body_nbytes + 1);
    require(copy != NULL, "no memory");
    clock_begin(&clock);
    for (int place = 0; place < PLACES && count < limit; place++) {
        const uint8_t *unit = queues[place].units;
        for (int64_t i = 0; i < queues[place].count && count < limit; i++) {
            const uint8_t *p = base + rs_load_be64(unit + RS_CQ_UNIT_PHYSICAL_OFFSET_AT);
            used += (uint64_t)rs_load_be32(unit + RS_CQ_UNIT_SIZE_AT) + (uint64_t)rs_load_be32(p);
            const int32_t n = compare_crc(p);
            if (body) {
                memcpy(copy, p + BODY_AT, (size_t)n);
                used += copy[n - 1];
            }
            unit += UNIT_NBYTES;
            count++;
        }
    }
    clock_end(&clock);
    free(copy);
    clock_answer(&clock, count, position);
}

/* Note the queue offsets of the units of one tag. */
static void filter_units(void)
{
    race_clock clock = {0};
    int64_t count = 0, most = 0;
    uint32_t length;
    const int64_t code = rs_string_hash((const uint8_t *)"TagA", 4, &length);
    for (int place = 0; place < PLACES; place++) {
        most = queues[place].count > most ? queues[place].count : most;
    }
    int64_t *found = malloc(sizeof *found * (size_t)(most + 1));
    require(found != NULL, "no memory");
    clock_begin(&clock);
    for (int place = 0; place < PLACES; place++) {
        const uint8_t *unit = queues[place].units;
        int64_t hits = 0;
        for (int64_t i = 0; i < queues[place].count; i++) {
            found[hits] = i;
            hits += rs_load_be64(unit + RS_CQ_UNIT_TAGS_CODE_AT) == code;
            unit += UNIT_NBYTES;
        }
        used += (uint64_t)hits;
        count += queues[place].count;
    }
    clock_end(&clock);
    free(found);
    clock_answer(&clock, count, position);
}

static void query(int64_t count)
{
    race_clock clock = {0};
    int64_t hits = 0;
    char (*keys)[MOST_VALUE_NBYTES] = malloc((size_t)count * sizeof *keys);
    const message_set_topic **topics = malloc((size_t)count * sizeof *topics);
    require(keys != NULL && topics != NULL, "no memory");
    for (int64_t i = 0; i < count; i++) {
        const int64_t number = message_set_sample(&set, i) % put_count;
        message_set_key(number, keys[i]);
        topics[i] = &set.topics[message_set_row_at(&set, number).topic];
    }
    clock_begin(&clock);
    for (int64_t i = 0; i < count; i++) {
        const int32_t hash =
            index_hash(topics[i], (const uint8_t *)keys[i], strlen(keys[i]));
        int64_t index = rs_load_be32(slots + 4L * (hash % SLOTS));
        while (index > 0) {
            const uint8_t *entry = entries + ENTRY_NBYTES * index;
            if (rs_load_be32(entry + RS_INDEX_ENTRY_KEY_HASH_AT) == hash) {
                used += (uint64_t)rs_load_be32(
                    base + rs_load_be64(entry + RS_INDEX_ENTRY_PHYSICAL_OFFSET_AT));
                hits++;
                break;
            }
            index = rs_load_be32(entry + RS_INDEX_ENTRY_PREVIOUS_INDEX_AT);
        }
    }
    clock_end(&clock);
    free(keys);
    free(topics);
    clock_answer(&clock, hits, position);
}

/* --- lines ----------------------------------------------------------------------------------- */

static void load_set(const char *path)
{
    race_clock clock = {0};
    message_set_load(&set, path);
    for (int i = 0; i < set.topic_count; i++) {
        uint8_t name[MOST_VALUE_NBYTES];
        const int nbytes = set.topics[i].nbytes;
        uint32_t length;
        memcpy(name, set.topics[i].name, (size_t)nbytes);
        name[nbytes] = '#';
        set.topics[i].hash_with_hash_sign = rs_string_hash(name, (size_t)nbytes + 1, &length);
        topic_codes[topic_code(name, nbytes)] = (uint8_t)i;
    }
    clock_answer(&clock, set.count, 0);
}

static void handle(int count, char **words)
{
    const char *name = words[0];
    race_clock none = {0};
    if (strcmp(name, "set") == 0 && count == 2) {
        load_set(words[1]);
    } else if (strcmp(name, "open") == 0 && (count == 2 || count == 3)) {
        open_log(words[1]);
        clock_answer(&none, 1, 0);
    } else if (strcmp(name, "put") == 0 && count == 5) {
        put(words[1], atol(words[2]), atol(words[3]), atol(words[4]));
    } else if (strcmp(name, "rebuild") == 0) {
        rebuild(1);
    } else if (strcmp(name, "reopen") == 0 && count == 2) {
        recover(words[1]);
    } else if (strcmp(name, "get") == 0 && count == 5) {
        get(strcmp(words[2], "body") == 0, atol(words[4]));
    } else if (strcmp(name, "filter_units") == 0) {
        filter_units();
    } else if (strcmp(name, "query") == 0 && count == 2) {
        query(atol(words[1]));
    } else if (strcmp(name, "dispatched") == 0) {
        rebuild(0);
        clock_answer(&none, 1, position);
    } else if (strcmp(name, "end") == 0) {
        clock_answer(&none, put_count, position);
    } else if (strcmp(name, "close") == 0) {
        munmap(base, SEGMENT_NBYTES);
        clock_answer(&none, 1, position);
    } else {
        printf("{\"error\": \"no such line: %s\"}\n", name);
    }
}

int main(void)
{
    char line[8192];
    require(rs_crc_init() == 0, "ROCKETSTORE_CPU names what this machine cannot run");
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("{\"ready\": true}\n");
    while (fgets(line, sizeof line, stdin) != NULL) {
        char *words[8], *rest = NULL;
        int count = 0;
        for (char *word = strtok_r(line, " \n", &rest); word != NULL && count < 8;
             word = strtok_r(NULL, " \n", &rest)) {
            words[count++] = word;
        }
        if (count > 0) {
            handle(count, words);
        }
    }
    return used == 1; /* never in practice: the compiler must keep the reads */
}
