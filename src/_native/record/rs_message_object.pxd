# The C layout of Message (exact type only: see the header).
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t

cdef extern from "rs_message_object.h":
    ctypedef struct rs_message_object:
        PyObject *topic
        PyObject *body
        PyObject *born_host
        PyObject *store_host
        PyObject *properties
        int64_t queue_id
        int64_t flag
        int64_t sys_flag
        int64_t reconsume_times
        int64_t prepared_transaction_offset
        int64_t born_timestamp
        int has_born_timestamp
