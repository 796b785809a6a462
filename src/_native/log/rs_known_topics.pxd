# Topics that were checked, by the identity of their str: producers put to a few topics in turn.
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport int32_t, uint8_t, uint64_t

from rs_appender cimport rs_appender, rs_put_record, rs_topic_hash
from rs_formats cimport RS_MAX_RETRY_TOPIC_NBYTES
from rs_put_arguments cimport rs_take_topic
from rs_put_properties cimport PyUnicode_CheckExact

cdef enum:
    RS_KNOWN_TOPICS = 64  # a power of two

ctypedef struct rs_known_topic:
    PyObject *topic  # owned, so that its identity stays; NULL in a free place
    const uint8_t *text
    int32_t nbytes
    uint64_t hash

ctypedef struct rs_known_topics:
    rs_known_topic places[RS_KNOWN_TOPICS]


cdef inline int rs_start_record(rs_put_record *record, object topic, rs_known_topics *topics,
                                const rs_appender *state) except -1:
    """Set the record's topic, checked. The topic must live until the record is appended."""
    cdef uint64_t address = <uint64_t> <PyObject *> topic >> 4
    cdef rs_known_topic *known = &topics.places[(address ^ address >> 6) % RS_KNOWN_TOPICS]
    if known.topic != <PyObject *> topic:
        return rs_check_topic(record, topic, known, state)
    record.fields.topic = known.text
    record.fields.topic_nbytes = known.nbytes
    record.topic_hash = known.hash
    return 0


cdef inline int rs_check_topic(rs_put_record *record, object topic, rs_known_topic *known,
                               const rs_appender *state) except -1:
    """Check a topic, and remember it. Only an exact str: another object's last reference may run
    code when it goes."""
    rs_take_topic(topic, &record.fields.topic, &record.fields.topic_nbytes)
    record.topic_hash = rs_topic_hash(
        &state.queues, record.fields.topic, record.fields.topic_nbytes)
    if PyUnicode_CheckExact(topic) and record.fields.topic_nbytes <= RS_MAX_RETRY_TOPIC_NBYTES:
        Py_INCREF(topic)
        Py_XDECREF(known.topic)
        known.topic = <PyObject *> topic
        known.text = record.fields.topic
        known.nbytes = record.fields.topic_nbytes
        known.hash = record.topic_hash
    return 0


cdef inline void rs_forget_topics(rs_known_topics *topics):
    cdef int i
    for i in range(RS_KNOWN_TOPICS):
        Py_XDECREF(topics.places[i].topic)
