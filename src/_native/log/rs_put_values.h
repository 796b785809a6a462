/* Properties of a put, encoded straight from their dict, and what the store reads from their values
 * on the way: whether the producer waits for the flush, and the delay level. A message that needs
 * more than that is *odd*: the rules for dicts decide (rs_put_rules.pxd). Requires the GIL. */
#ifndef RS_PUT_VALUES_H
#define RS_PUT_VALUES_H
#include <stdio.h>
#include "rs_properties.h"
#include "rs_put_text.h"

#define RS_NUMBER_NBYTES 12 /* the text of an int32 and its NUL */

/* A delayed message goes to the schedule topic: these values replace or follow its own. */
typedef struct {
    const uint8_t *topic;
    size_t topic_nbytes;
    size_t queue_id_nbytes;
    size_t level_nbytes; /* 0: the level stays as it is */
    uint8_t queue_id[RS_NUMBER_NBYTES];
    uint8_t level[RS_NUMBER_NBYTES];
} rs_put_move;

typedef struct {
    int names;                /* the kinds of names that were met */
    int32_t waits;            /* WAIT is absent or "true" */
    int32_t delay_level;      /* of DELAY; 0 if it is absent or no number */
    int32_t real_is_schedule; /* REAL_TOPIC is the schedule topic */
    const rs_put_move *move;  /* NULL: values are stored as they are */
} rs_put_values;

/* The arguments of a put that become properties. References are borrowed; NULL: not given. */
typedef struct {
    PyObject *properties;
    PyObject *unique_key;
    PyObject *tags;
    PyObject *keys;
    int32_t delay_level; /* 0: not given */
    int32_t waits;
} rs_given_properties;

/* What an encoding function returns. */
enum { RS_ENCODED = 0, RS_ENCODED_ODD = 1, RS_ENCODED_NO_MEMORY = -1 };

static inline void rs_values_init(rs_put_values *values, const rs_put_move *move)
{
    values->names = 0;
    values->waits = 1;
    values->delay_level = 0;
    values->real_is_schedule = 0;
    values->move = move;
}

/* Return whether the text is "true" in any case, as Java's equalsIgnoreCase sees it. */
static inline int rs_is_true(const uint8_t *text, size_t n)
{
    return n == 4 && (text[0] | 0x20) == 't' && (text[1] | 0x20) == 'r' && (text[2] | 0x20) == 'u'
           && (text[3] | 0x20) == 'e';
}

static inline size_t rs_number_text(uint8_t *out, int32_t number)
{
    return (size_t)snprintf((char *)out, RS_NUMBER_NBYTES, "%d", (int)number);
}

static inline int32_t rs_level_of(const uint8_t *text, size_t n)
{
    return n > INT32_MAX ? 0 : rs_parse_int(text, (int32_t)n);
}

/* Read a value whose name has a meaning; replace it if the message is moved. */
static inline void rs_read_value(rs_put_values *values, int kind, const uint8_t **text, size_t *n)
{
    const rs_put_move *move = values->move;
    values->names |= kind;
    if (kind == RS_NAME_WAIT) {
        values->waits = rs_is_true(*text, *n);
    } else if (kind == RS_NAME_DELAY) {
        values->delay_level = rs_level_of(*text, *n);
        if (move != NULL && move->level_nbytes != 0) {
            *text = move->level;
            *n = move->level_nbytes;
        }
    } else if (kind == RS_NAME_REAL_TOPIC) {
        values->real_is_schedule = rs_is_schedule_topic(*text, *n);
        if (move != NULL) {
            *text = move->topic;
            *n = move->topic_nbytes;
        }
    } else if (kind == RS_NAME_REAL_QUEUE_ID && move != NULL) {
        *text = move->queue_id;
        *n = move->queue_id_nbytes;
    }
}

/* Point at the UTF-8 of an exact str; return 0 for any other object. */
static inline int rs_take_str(PyObject *object, const uint8_t **text, size_t *n)
{
    Py_ssize_t nbytes = 0;
    if (!PyUnicode_CheckExact(object)) {
        return 0;
    }
    *text = (const uint8_t *)rs_utf8(object, &nbytes);
    if (*text == NULL) {
        PyErr_Clear();
        return 0;
    }
    *n = (size_t)nbytes;
    return 1;
}

/* Append one pair with a value from the caller. */
static inline int rs_encode_pair(rs_scratch *s, const char *name, size_t name_nbytes,
                                 PyObject *value)
{
    const uint8_t *text;
    size_t n;
    if (!rs_take_str(value, &text, &n)) {
        return RS_ENCODED_ODD;
    }
    return rs_scratch_pair(s, (const uint8_t *)name, name_nbytes, text, n);
}

/* Append a key of a list and the separator that follows it. */
static inline int rs_encode_key(rs_scratch *s, PyObject *key)
{
    const uint8_t *text;
    size_t n;
    if (!rs_take_str(key, &text, &n) || n == 0 || memchr(text, RS_KEY_SEPARATOR[0], n) != NULL) {
        return RS_ENCODED_ODD;
    }
    uint8_t *p = rs_scratch_room(s, n + 1);
    if (p == NULL) {
        return RS_ENCODED_NO_MEMORY;
    }
    p[n] = (uint8_t)RS_KEY_SEPARATOR[0];
    s->used += n + 1;
    return rs_copy_text(p, text, n);
}
_Static_assert(sizeof RS_KEY_SEPARATOR == 2, "rs_encode_key");

/* Append the keys of a message: one str, or a list or tuple of them. */
static inline int rs_encode_keys(rs_scratch *s, PyObject *keys)
{
    const size_t name_nbytes = sizeof RS_PROPERTY_KEYS - 1;
    if (!PyList_CheckExact(keys) && !PyTuple_CheckExact(keys)) {
        return rs_encode_pair(s, RS_PROPERTY_KEYS, name_nbytes, keys);
    }
    const Py_ssize_t count = PySequence_Fast_GET_SIZE(keys);
    uint8_t *p = rs_scratch_room(s, name_nbytes + 2);
    if (p == NULL) {
        return RS_ENCODED_NO_MEMORY;
    }
    memcpy(p, RS_PROPERTY_KEYS, name_nbytes);
    p[name_nbytes] = RS_NAME_VALUE_SEPARATOR;
    /* Also room for the separator of a message without keys. */
    p[name_nbytes + 1] = RS_PROPERTY_SEPARATOR;
    s->used += name_nbytes + 1 + (count == 0);
    for (Py_ssize_t i = 0; i < count; i++) {
        const int result = rs_encode_key(s, PySequence_Fast_GET_ITEM(keys, i));
        if (result != RS_ENCODED) {
            return result;
        }
    }
    s->data[s->used - 1] = RS_PROPERTY_SEPARATOR; /* instead of the last key's */
    return RS_ENCODED;
}

/* Append the pairs of a dict, in its order. No Python code runs in the loop, so the dict stays as
 * it is while the loop holds the GIL. */
static inline int rs_encode_dict(rs_scratch *s, PyObject *dict, rs_put_values *values)
{
    PyObject *key, *value;
    Py_ssize_t position = 0;
    const uint8_t *name, *text;
    size_t name_nbytes, n;
    if (!PyDict_CheckExact(dict)) {
        return RS_ENCODED_ODD;
    }
    while (PyDict_Next(dict, &position, &key, &value)) {
        if (!rs_take_str(key, &name, &name_nbytes) || name_nbytes == 0
            || !rs_take_str(value, &text, &n)) {
            return RS_ENCODED_ODD;
        }
        const int kind = rs_name_kind(name, name_nbytes);
        if (kind != 0) {
            rs_read_value(values, kind, &text, &n);
        }
        const int result = rs_scratch_pair(s, name, name_nbytes, text, n);
        if (RS_UNLIKELY(result != RS_ENCODED)) {
            return result;
        }
    }
    return RS_ENCODED;
}

static inline int rs_encode_text(rs_scratch *s, const char *name, size_t name_nbytes,
                                 const uint8_t *text, size_t n)
{
    return rs_scratch_pair(s, (const uint8_t *)name, name_nbytes, text, n);
}
#define RS_ENCODE_TEXT(s, name, text, n) rs_encode_text((s), (name), sizeof(name) - 1, (text), (n))
#define RS_ENCODE_PAIR(s, name, value) rs_encode_pair((s), (name), sizeof(name) - 1, (value))

/* Append the arguments that are not in the dict; a name that is in it, too, is odd. */
static inline int rs_encode_arguments(rs_scratch *s, const rs_given_properties *given,
                                      rs_put_values *values)
{
    const int names = (given->unique_key != NULL ? RS_NAME_UNIQUE_KEY : 0)
                      | (given->tags != NULL ? RS_NAME_TAGS : 0)
                      | (given->keys != NULL ? RS_NAME_KEYS : 0)
                      | (given->waits ? 0 : RS_NAME_WAIT)
                      | (given->delay_level > 0 ? RS_NAME_DELAY : 0);
    int result = values->names & names ? RS_ENCODED_ODD : RS_ENCODED;
    if (result == RS_ENCODED && given->unique_key != NULL) {
        result = RS_ENCODE_PAIR(s, RS_PROPERTY_UNIQUE_KEY, given->unique_key);
    }
    if (result == RS_ENCODED && given->tags != NULL) {
        result = RS_ENCODE_PAIR(s, RS_PROPERTY_TAGS, given->tags);
    }
    if (result == RS_ENCODED && given->keys != NULL) {
        result = rs_encode_keys(s, given->keys);
    }
    if (result == RS_ENCODED && !given->waits) {
        values->waits = 0;
        result = RS_ENCODE_TEXT(s, RS_PROPERTY_WAIT, (const uint8_t *)"false", 5);
    }
    if (result == RS_ENCODED && given->delay_level > 0) {
        uint8_t own[RS_NUMBER_NBYTES];
        const uint8_t *text = own;
        size_t n = rs_number_text(own, given->delay_level);
        rs_read_value(values, RS_NAME_DELAY, &text, &n);
        result = RS_ENCODE_TEXT(s, RS_PROPERTY_DELAY, text, n);
    }
    return result;
}

/* Append the values of a move that no pair of the message had a place for. */
static inline int rs_encode_move(rs_scratch *s, const rs_put_values *values)
{
    const rs_put_move *move = values->move;
    int result = RS_ENCODED;
    if (!(values->names & RS_NAME_REAL_TOPIC)) {
        result = RS_ENCODE_TEXT(s, RS_PROPERTY_REAL_TOPIC, move->topic, move->topic_nbytes);
    }
    if (result == RS_ENCODED && !(values->names & RS_NAME_REAL_QUEUE_ID)) {
        result =
            RS_ENCODE_TEXT(s, RS_PROPERTY_REAL_QUEUE_ID, move->queue_id, move->queue_id_nbytes);
    }
    return result;
}

/* Append all properties of a message, in stored order. */
static inline int rs_encode_given(rs_scratch *s, const rs_given_properties *given,
                                  rs_put_values *values, const rs_put_move *move)
{
    int result = RS_ENCODED;
    rs_values_init(values, move);
    if (given->properties != NULL) {
        result = rs_encode_dict(s, given->properties, values);
    }
    if (result == RS_ENCODED) {
        result = rs_encode_arguments(s, given, values);
    }
    if (result == RS_ENCODED && move != NULL) {
        result = rs_encode_move(s, values);
    }
    return result;
}

#endif
