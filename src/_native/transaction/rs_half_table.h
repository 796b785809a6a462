/* The table of undecided transactions: rows ascending by key, 64 bytes each. Requires the GIL. */
#ifndef RS_HALF_TABLE_H
#define RS_HALF_TABLE_H
#include <Python.h>
#include <stdlib.h>
#include "rs_appender.h"

typedef struct {
    int64_t key; /* queue offset of the half message that was known first */
    int64_t queue_offset; /* these and the following: of the newest copy */
    int64_t offset;
    int64_t store_timestamp;
    int64_t born_timestamp;
    int32_t nbytes; /* 0: decided, the row waits to be dropped */
    int32_t checks;
    int32_t immunity_s; /* -1: none of its own */
    int32_t group;
    int16_t is_asked;
    int16_t is_own; /* the newest half message was made by the plain way of this ledger */
    int32_t owner;  /* the thread that decides it, else 0 */
} rs_half_row;

/* Write a number in upper-case hex digits. */
static inline void rs_hex(char *out, int count, uint64_t number)
{
    static const char digits[] = "0123456789ABCDEF";
    for (; count > 0; number >>= 4) {
        out[--count] = digits[number & 15];
    }
}

/* Write a number that is not negative; return its digits. */
static inline int32_t rs_decimal(char *out, int64_t number)
{
    char reversed[20];
    int32_t n = 0;
    do {
        reversed[n++] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    for (int32_t i = 0; i < n; i++) {
        out[i] = reversed[n - 1 - i];
    }
    return n;
}

typedef struct {
    rs_half_row *rows;
    int64_t count; /* rows in use, decided ones included */
    int64_t dead;  /* decided ones */
    int64_t capacity;
} rs_half_table;

static inline void rs_halves_free(rs_half_table *table)
{
    free(table->rows);
    table->rows = NULL;
    table->count = table->dead = table->capacity = 0;
}

/* Return the position of the first row whose key is at least `key`. */
static inline int64_t rs_halves_place(const rs_half_table *table, int64_t key)
{
    int64_t low = 0, high = table->count;
    if (high > 0 && table->rows[high - 1].key < key) {
        return high;
    }
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (table->rows[middle].key < key) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Return the row of an undecided transaction, NULL without one. */
static inline rs_half_row *rs_halves_find(const rs_half_table *table, int64_t key)
{
    const int64_t at = rs_halves_place(table, key);
    if (at == table->count || table->rows[at].key != key || table->rows[at].nbytes == 0) {
        return NULL;
    }
    return &table->rows[at];
}

/* Return a new row in its place, its key set; NULL if out of memory. A row of the same key is
 * replaced. */
static inline rs_half_row *rs_halves_add(rs_half_table *table, int64_t key)
{
    const int64_t at = rs_halves_place(table, key);
    const int is_known = at < table->count && table->rows[at].key == key;
    if (!is_known && table->count == table->capacity) {
        const int64_t capacity = table->capacity < 64 ? 64 : table->capacity + table->capacity / 4;
        rs_half_row *rows =
            (rs_half_row *)realloc(table->rows, (size_t)capacity * sizeof *rows);
        if (rows == NULL) {
            return NULL;
        }
        table->rows = rows;
        table->capacity = capacity;
    }
    rs_half_row *row = &table->rows[at];
    if (is_known) {
        table->dead -= row->nbytes == 0;
    } else {
        memmove(row + 1, row, (size_t)(table->count - at) * sizeof *row);
        table->count++;
    }
    memset(row, 0, sizeof *row);
    row->key = key;
    return row;
}

/* Forget a row; drop decided rows at the end, and all of them once they are the most. */
static inline void rs_halves_remove(rs_half_table *table, rs_half_row *row)
{
    row->nbytes = 0;
    table->dead++;
    while (table->count > 0 && table->rows[table->count - 1].nbytes == 0) {
        table->count--;
        table->dead--;
    }
    if (table->dead > 64 && table->dead > table->count / 2) {
        int64_t kept = 0;
        for (int64_t i = 0; i < table->count; i++) {
            if (table->rows[i].nbytes != 0) {
                table->rows[kept++] = table->rows[i];
            }
        }
        table->count = kept;
        table->dead = 0;
    }
}

static inline int64_t rs_immunity_ms(const rs_half_row *row)
{
    return row->immunity_s < 0 ? -1 : 1000 * (int64_t)row->immunity_s;
}

/* Fill ten columns with the undecided rows. */
static inline void rs_halves_columns(const rs_half_table *table, int64_t **out)
{
    int64_t at = 0;
    for (int64_t i = 0; i < table->count; i++) {
        const rs_half_row *row = &table->rows[i];
        if (row->nbytes == 0) {
            continue;
        }
        const int64_t values[] = {
            row->key, row->queue_offset, row->offset, row->nbytes, row->store_timestamp,
            row->born_timestamp, row->checks, rs_immunity_ms(row), row->group, row->is_asked,
        };
        for (int k = 0; k < 10; k++) {
            out[k][at] = values[k];
        }
        at++;
    }
}

/* Return the key of the row whose first or newest half message has this queue offset, else -1. */
static inline int64_t rs_halves_key_of(const rs_half_table *table, int64_t queue_offset)
{
    if (rs_halves_find(table, queue_offset) != NULL) {
        return queue_offset;
    }
    for (int64_t i = 0; i < table->count; i++) {
        if (table->rows[i].nbytes != 0 && table->rows[i].queue_offset == queue_offset) {
            return table->rows[i].key;
        }
    }
    return -1;
}

/* Return the least queue offset of a newest half message; -1 without undecided rows. */
static inline int64_t rs_halves_least(const rs_half_table *table)
{
    int64_t least = -1;
    for (int64_t i = 0; i < table->count; i++) {
        const rs_half_row *row = &table->rows[i];
        if (row->nbytes != 0 && (least < 0 || row->queue_offset < least)) {
            least = row->queue_offset;
        }
    }
    return least;
}

/* Return a new object of a subclass of Transaction without a call of its __init__. */
static inline PyObject *rs_new(PyObject *kind, PyObject *arguments)
{
    return ((PyTypeObject *)kind)->tp_new((PyTypeObject *)kind, arguments, NULL);
}

/* A copy of bytes of the segment that is being written. */
typedef struct {
    rs_appender *appender;
    int64_t position;
    int64_t nbytes;
    uint8_t *out;
} rs_half_copy;

static int rs_half_copy_guarded(void *argument)
{
    const rs_half_copy *copy = (const rs_half_copy *)argument;
    memcpy(copy->out, copy->appender->buffer + copy->position, (size_t)copy->nbytes);
    return 0;
}

/* Copy a record from the segment that is being written; return whether it was there. The mutex is
 * not waited for. */
static inline int rs_half_take(rs_appender *a, int64_t offset, int64_t nbytes, uint8_t *out)
{
    int found = 0;
    if (rs_mutex_try(&a->mutex)) {
        const int64_t position = offset - a->base_offset;
        if (a->buffer != NULL && position >= 0 && position + nbytes <= a->position) {
            rs_half_copy copy = {a, position, nbytes, out};
            found = rs_guarded(rs_half_copy_guarded, &copy) == 0;
        }
        rs_mutex_unlock(&a->mutex);
    }
    return found;
}

#endif
