# The C layout of the outcomes of puts.
from libc.stdint cimport int32_t, int64_t, uint8_t

from rs_appender cimport rs_put_record

cdef extern from "rs_put_result.h":
    ctypedef struct rs_put_outcome:
        int64_t physical_offset
        int64_t queue_offset
        int64_t store_timestamp
        int64_t nbytes
        int64_t count
        int32_t status
        int32_t append_status
        int32_t has_physical_offset
        int32_t has_queue_offset

    ctypedef struct rs_put_result_object:
        rs_put_outcome outcome

    ctypedef struct rs_put_row:
        int64_t physical_offset
        int64_t queue_offset
        int64_t store_timestamp
        int32_t nbytes
        int32_t status
        int32_t append_status
        int32_t waits
        int32_t host_nbytes
        uint8_t host[20]

    ctypedef struct rs_put_rows:
        rs_put_row *rows
        Py_ssize_t count
        Py_ssize_t capacity

    ctypedef struct rs_put_many_object:
        rs_put_rows table

    rs_put_row *rs_put_rows_grow(rs_put_rows *table, Py_ssize_t count)
    void rs_fill_outcome(rs_put_outcome *out, const rs_put_record *record, int32_t waited)
    void rs_fill_row(rs_put_row *row, const rs_put_record *record)
    Py_ssize_t rs_last_waiting(const rs_put_rows *table)
    void rs_set_waited(rs_put_rows *table, int32_t status)
