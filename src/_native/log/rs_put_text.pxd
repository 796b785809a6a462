# Topics, property names and a growing buffer of properties.
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t

cdef extern from "rs_put_text.h" nogil:
    ctypedef struct rs_scratch:
        uint8_t *data
        size_t used
    enum:
        RS_NAME_TAGS
        RS_NAME_KEYS
        RS_NAME_UNIQUE_KEY
        RS_NAME_WAIT
        RS_NAME_DELAY
        RS_NAME_CRC
        RS_NAME_MULTI
        RS_NAME_HOOKS
    const char *rs_utf8(object text, Py_ssize_t *nbytes)  # NULL with an exception
    void rs_scratch_init(rs_scratch *s)
    void rs_scratch_free(rs_scratch *s)
    uint8_t *rs_scratch_room(rs_scratch *s, size_t n)
    int rs_scratch_pair(rs_scratch *s, const uint8_t *name, size_t name_nbytes,
                        const uint8_t *value, size_t value_nbytes)
    int rs_name_kind(const uint8_t *name, size_t n)
    bint rs_is_retry_topic(const uint8_t *topic, size_t n)
    bint rs_has_light_prefix(const uint8_t *topic, size_t n)
    bint rs_is_schedule_topic(const uint8_t *topic, size_t n)
    bint rs_is_timer_topic(const uint8_t *topic, size_t n)
    bint rs_topic_is_allowed(const uint8_t *topic, size_t n)
    size_t rs_utf16_length(const uint8_t *p, size_t n)
