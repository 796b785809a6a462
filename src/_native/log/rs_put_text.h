/* Texts of a put: topics, property names, and a buffer that collects properties. */
#ifndef RS_PUT_TEXT_H
#define RS_PUT_TEXT_H
#include <Python.h>
#include <stdlib.h>
#include "rs_bytes.h"
#include "rs_formats.h"

#define RS_SCRATCH_INLINE_NBYTES 1024

/* Return a str's UTF-8; NULL with an exception for unpaired surrogates. */
static inline const char *rs_utf8(PyObject *text, Py_ssize_t *nbytes)
{
    if (RS_LIKELY(PyUnicode_IS_COMPACT_ASCII(text))) {
        *nbytes = PyUnicode_GET_LENGTH(text);
        return (const char *)PyUnicode_1BYTE_DATA(text);
    }
    return PyUnicode_AsUTF8AndSize(text, nbytes);
}

/* Grows by doubling; small contents are on the stack. */
typedef struct {
    uint8_t *data;
    size_t used;
    size_t capacity;
    uint8_t first[RS_SCRATCH_INLINE_NBYTES];
} rs_scratch;

static inline void rs_scratch_init(rs_scratch *s)
{
    s->data = s->first;
    s->used = 0;
    s->capacity = sizeof s->first;
}

static inline void rs_scratch_free(rs_scratch *s)
{
    if (s->data != s->first) {
        free(s->data);
    }
}

RS_UNUSED static int rs_scratch_grow(rs_scratch *s, size_t nbytes)
{
    size_t capacity = s->capacity;
    while (capacity - s->used < nbytes) {
        if (capacity > SIZE_MAX / 2) {
            return -1;
        }
        capacity *= 2;
    }
    void *place = s->data == s->first ? NULL : s->data;
    uint8_t *data = (uint8_t *)realloc(place, capacity);
    if (data == NULL) {
        return -1;
    }
    if (s->data == s->first) {
        memcpy(data, s->first, s->used);
    }
    s->data = data;
    s->capacity = capacity;
    return 0;
}

/* Return room for n bytes at the end, NULL if out of memory. The caller adds to `used`. */
static inline uint8_t *rs_scratch_room(rs_scratch *s, size_t n)
{
    if (RS_UNLIKELY(s->capacity - s->used < n) && rs_scratch_grow(s, n) != 0) {
        return NULL;
    }
    return s->data + s->used;
}

/* Return nonzero if a byte of the word is NUL or a separator, all of which are below 3. */
static inline uint64_t rs_low_bytes(uint64_t word)
{
    return (word - 0x0303030303030303ULL) & ~word & 0x8080808080808080ULL;
}
_Static_assert(RS_NAME_VALUE_SEPARATOR < 3 && RS_PROPERTY_SEPARATOR < 3, "rs_low_bytes");

/* Copy text; return nonzero if it contains a byte that is not allowed in properties. Most texts are
 * short: overlapping words replace a loop over the last bytes. */
static inline int rs_copy_text(uint8_t *to, const uint8_t *from, size_t n)
{
    uint64_t word, bad = 0;
    uint32_t half[2];
    if (n >= sizeof word) {
        for (size_t at = 0; at + sizeof word <= n; at += sizeof word) {
            word = rs_load_u64(from + at);
            bad |= rs_low_bytes(word);
            memcpy(to + at, &word, sizeof word);
        }
        word = rs_load_u64(from + n - sizeof word);
        bad |= rs_low_bytes(word);
        memcpy(to + n - sizeof word, &word, sizeof word);
    } else if (n >= sizeof half[0]) {
        half[0] = rs_load_u32(from);
        half[1] = rs_load_u32(from + n - sizeof half[1]);
        memcpy(to, &half[0], sizeof half[0]);
        memcpy(to + n - sizeof half[1], &half[1], sizeof half[1]);
        bad = rs_low_bytes((uint64_t)half[0] << 32 | half[1]);
    } else {
        for (size_t at = 0; at < n; at++) {
            to[at] = from[at];
            bad |= from[at] < 3;
        }
    }
    return bad != 0;
}

/* Append `name SEP1 value SEP2`. Return 0; 1 for an invalid byte; -1 if out of memory. */
static inline int rs_scratch_pair(rs_scratch *s, const uint8_t *name, size_t name_nbytes,
                                  const uint8_t *value, size_t value_nbytes)
{
    uint8_t *p = rs_scratch_room(s, name_nbytes + value_nbytes + 2);
    if (p == NULL) {
        return -1;
    }
    int bad = rs_copy_text(p, name, name_nbytes);
    p[name_nbytes] = RS_NAME_VALUE_SEPARATOR;
    bad |= rs_copy_text(p + name_nbytes + 1, value, value_nbytes);
    p[name_nbytes + 1 + value_nbytes] = RS_PROPERTY_SEPARATOR;
    s->used += name_nbytes + value_nbytes + 2;
    return bad;
}

/* The meaning of a property's name for a put. */
enum {
    RS_NAME_TAGS = 1,
    RS_NAME_KEYS = 2,
    RS_NAME_UNIQUE_KEY = 4,
    RS_NAME_WAIT = 8,
    RS_NAME_DELAY = 16,
    RS_NAME_REAL_TOPIC = 32,
    RS_NAME_REAL_QUEUE_ID = 64,
    RS_NAME_CRC = 128,
    RS_NAME_MULTI = 256, /* INNER_MULTI_DISPATCH */
    RS_NAME_HOOKS = 512, /* INNER_NUM, the timer's: the broker's hooks of 5.x check them */
};

static inline int rs_name_is(const uint8_t *name, size_t n, const char *literal, size_t length)
{
    return n == length && memcmp(name, literal, length) == 0;
}
#define RS_NAME_IS(name, n, literal) rs_name_is((name), (n), (literal), sizeof(literal) - 1)
#define RS_NAME_KIND(name, n, literal, kind) (RS_NAME_IS(name, n, literal) ? (kind) : 0)

static inline int rs_name_kind(const uint8_t *name, size_t n)
{
    switch (n) {
    case 4:
        return RS_NAME_KIND(name, n, RS_PROPERTY_TAGS, RS_NAME_TAGS)
               | RS_NAME_KIND(name, n, RS_PROPERTY_KEYS, RS_NAME_KEYS)
               | RS_NAME_KIND(name, n, RS_PROPERTY_WAIT, RS_NAME_WAIT);
    case 5:
        return RS_NAME_KIND(name, n, RS_PROPERTY_DELAY, RS_NAME_DELAY);
    case 8:
        return RS_NAME_KIND(name, n, RS_PROPERTY_UNIQUE_KEY, RS_NAME_UNIQUE_KEY)
               | RS_NAME_KIND(name, n, RS_PROPERTY_CRC32, RS_NAME_CRC)
               | RS_NAME_KIND(name, n, RS_PROPERTY_REAL_QUEUE_ID, RS_NAME_REAL_QUEUE_ID);
    case 9:
        return RS_NAME_KIND(name, n, RS_PROPERTY_INNER_NUM, RS_NAME_HOOKS);
    case 10:
        return RS_NAME_KIND(name, n, RS_PROPERTY_REAL_TOPIC, RS_NAME_REAL_TOPIC);
    case 14: case 15: case 16:
        return RS_NAME_KIND(name, n, RS_PROPERTY_TIMER_DELAY_MS, RS_NAME_HOOKS)
               | RS_NAME_KIND(name, n, RS_PROPERTY_TIMER_DELAY_SEC, RS_NAME_HOOKS)
               | RS_NAME_KIND(name, n, RS_PROPERTY_TIMER_DELIVER_MS, RS_NAME_HOOKS);
    case 20:
        return RS_NAME_KIND(name, n, RS_PROPERTY_INNER_MULTI_DISPATCH, RS_NAME_MULTI);
    default:
        return 0;
    }
}

static inline int rs_has_prefix(const uint8_t *text, size_t n, const char *prefix, size_t length)
{
    return n >= length && memcmp(text, prefix, length) == 0;
}
#define RS_HAS_PREFIX(text, n, prefix) rs_has_prefix((text), (n), (prefix), sizeof(prefix) - 1)

static inline int rs_is_retry_topic(const uint8_t *topic, size_t n)
{
    return RS_HAS_PREFIX(topic, n, RS_TOPIC_RETRY_PREFIX);
}

static inline int rs_has_light_prefix(const uint8_t *topic, size_t n)
{
    return RS_HAS_PREFIX(topic, n, RS_TOPIC_LMQ_PREFIX);
}

static inline int rs_is_schedule_topic(const uint8_t *topic, size_t n)
{
    return RS_NAME_IS(topic, n, RS_TOPIC_SCHEDULE);
}

static inline int rs_is_timer_topic(const uint8_t *topic, size_t n)
{
    return RS_NAME_IS(topic, n, RS_TOPIC_TIMER);
}

/* Return whether RocketMQ allows all characters; retry and LMQ topics may have one more. */
static inline int rs_topic_is_allowed(const uint8_t *topic, size_t n)
{
    const uint8_t extra = rs_is_retry_topic(topic, n)                       ? '+'
                          : rs_has_light_prefix(topic, n) ? '$'
                                                                      : '_';
    for (size_t i = 0; i < n; i++) {
        const uint8_t c = topic[i];
        const uint8_t letter = (uint8_t)(c | 0x20);
        if (!((letter >= 'a' && letter <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-'
              || c == '%' || c == '|' || c == extra)) {
            return 0;
        }
    }
    return 1;
}

/* Return the number of UTF-16 units of well-formed UTF-8. */
static inline size_t rs_utf16_length(const uint8_t *p, size_t n)
{
    size_t units = 0;
    for (size_t i = 0; i < n; i++) {
        units += (size_t)((p[i] & 0xc0) != 0x80) + (size_t)(p[i] >= 0xf0);
    }
    return units;
}

#endif
