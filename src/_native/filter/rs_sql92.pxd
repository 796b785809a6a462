# Evaluation of compiled SQL92 filters, for loops over records.
#
# Make one filter for each thread from ``Sql92Filter.program``, evaluate it for the properties of
# each record, and free it. Add the number of ERROR verdicts with ``Sql92Filter.count_errors``.
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t

from rs_status cimport RS_LIMIT, RS_OK

cdef extern from "rs_sql92.h" nogil:
    ctypedef struct rs_sql92_text:
        int32_t at
        int32_t nbytes
    ctypedef struct rs_sql92_value:
        const uint8_t *p
        int32_t nbytes
    ctypedef struct rs_sql92:
        const rs_sql92_text *names
        const uint8_t *pool
        int32_t name_count
    ctypedef struct rs_sql92_filter:
        rs_sql92 program
        uint8_t *stack
    ctypedef struct rs_sql92_run:
        const rs_sql92 *program
        const rs_sql92_value *values
        uint8_t *stack
        uint8_t *mended
        int32_t at
    # RS_OK, RS_BAD_ENTRY for bytes that are no program, RS_LIMIT without memory.
    int rs_sql92_new(const void *program, int64_t nbytes, rs_sql92_filter **made)
    void rs_sql92_free(rs_sql92_filter *filter)
    # A verdict; allocates nothing and may run inside rs_guarded.
    int rs_sql92_evaluate(rs_sql92_filter *filter, const uint8_t *properties, int32_t n)
    int rs_sql92_judge(rs_sql92_run *run)


cdef inline int rs_compile(rs_sql92_filter** made, program) except -1:
    """Make a filter of a program; the caller frees it. ``ValueError`` for other bytes."""
    cdef int status = rs_sql92_new(
        PyBytes_AS_STRING(<bytes?>program), PyBytes_GET_SIZE(program), made)
    if status == RS_LIMIT:
        raise MemoryError
    if status != RS_OK:
        raise ValueError("these bytes are no program of an SQL92 filter")
    return 0
