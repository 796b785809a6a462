# Properties of a put, encoded from their dict without the rules for dicts.
from cpython.object cimport PyObject
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, uint8_t

from rs_put_text cimport rs_scratch

cdef extern from "rs_put_values.h":
    ctypedef struct rs_put_move:
        const uint8_t *topic
        size_t topic_nbytes
        size_t queue_id_nbytes
        size_t level_nbytes
        uint8_t queue_id[12]
        uint8_t level[12]
    ctypedef struct rs_put_values:
        int names
        int32_t waits
        int32_t delay_level
        bint real_is_schedule
    ctypedef struct rs_given_properties:
        PyObject *properties
        PyObject *unique_key
        PyObject *tags
        PyObject *keys
        int32_t delay_level
        int32_t waits
    enum:
        RS_ENCODED
        RS_ENCODED_NO_MEMORY
    void rs_values_init(rs_put_values *values, const rs_put_move *move) nogil
    int32_t rs_level_of(const uint8_t *text, size_t n) nogil
    size_t rs_number_text(uint8_t *out, int32_t number) nogil
    int rs_encode_dict(rs_scratch *s, PyObject *properties, rs_put_values *values)
    int rs_encode_given(rs_scratch *s, const rs_given_properties *given, rs_put_values *values,
                        const rs_put_move *move)
