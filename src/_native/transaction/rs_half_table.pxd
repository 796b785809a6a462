# The table of undecided transactions, and copies of records of the segment that is being written.
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t

from rs_appender cimport rs_appender

cdef extern from "rs_half_table.h":
    ctypedef struct rs_half_row:
        int64_t key
        int64_t queue_offset
        int64_t offset
        int64_t store_timestamp
        int64_t born_timestamp
        int32_t nbytes
        int32_t checks
        int32_t immunity_s
        int32_t group
        int16_t is_asked
        int16_t is_own
        int32_t owner
    ctypedef struct rs_half_table:
        rs_half_row *rows
        int64_t count
        int64_t dead
    void rs_hex(char *out, int count, uint64_t number)
    int32_t rs_decimal(char *out, int64_t number)
    void rs_halves_free(rs_half_table *table)
    rs_half_row *rs_halves_find(const rs_half_table *table, int64_t key)
    rs_half_row *rs_halves_add(rs_half_table *table, int64_t key)
    void rs_halves_remove(rs_half_table *table, rs_half_row *row)
    int64_t rs_immunity_ms(const rs_half_row *row)
    void rs_halves_columns(const rs_half_table *table, int64_t **out)
    int64_t rs_halves_key_of(const rs_half_table *table, int64_t queue_offset)
    int64_t rs_halves_least(const rs_half_table *table)
    bint rs_half_take(rs_appender *a, int64_t offset, int64_t nbytes, uint8_t *out)
