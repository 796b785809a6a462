# What plain calls judge: one record, the first unit of a pull, and their arguments and answers.
#
# Entry points for rs_guarded: rs_check_one, rs_load_first.
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t

from rs_formats cimport rs_parsed_record
from rs_get_message cimport rs_selection
from rs_key_match cimport rs_carries, rs_wanted_key
from rs_key_query cimport rs_key_query
from rs_record cimport rs_check
from rs_status cimport RS_NUL_PROPERTIES, RS_OK, RS_UNSAFE_TOPIC
from rs_units cimport rs_load_unit, rs_unit
from rs_wanted_id cimport rs_is_stored_at, rs_wanted_id

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object number, int *overflow) except? -1

cdef extern from *:
    """
    #include <stdarg.h>

    /* Whether instances of a class are tuples without fields of their own: named tuples. */
    static int rs_is_named_tuple(PyObject *type)
    {
        return PyType_Check(type) && PyType_IsSubtype((PyTypeObject *)type, &PyTuple_Type)
               && ((PyTypeObject *)type)->tp_basicsize == PyTuple_Type.tp_basicsize;
    }

    /* Return an instance with `count` items, as tuple.__new__ without the calls. The items are
     * borrowed. Requires: rs_is_named_tuple(type). */
    static PyObject *rs_named_tuple(PyObject *type, int count, ...)
    {
        PyObject *made = ((PyTypeObject *)type)->tp_alloc((PyTypeObject *)type, count);
        va_list items;
        va_start(items, count);
        for (int i = 0; made != NULL && i < count; i++) {
            PyTuple_SET_ITEM(made, i, Py_NewRef(va_arg(items, PyObject *)));
        }
        va_end(items);
        return made;
    }
    """
    bint rs_is_named_tuple(object type)
    object rs_named_tuple(object type, int count, ...)


cdef inline bint rs_to_int64(object number, int64_t* out) except -1:
    """Convert an int; return False if it does not fit."""
    cdef int overflow = 0
    out[0] = PyLong_AsLongLongAndOverflow(number, &overflow)
    return overflow == 0


cdef enum:
    # Most messages of a plain pull.
    RS_PLAIN_ROWS = 1024


cdef struct rs_check_call:
    const uint8_t* p
    int64_t available
    int64_t physical_offset
    int64_t segment_end
    int flags
    const rs_wanted_key* key  # NULL for none
    const rs_wanted_id* id  # NULL for none
    bint matches  # the wanted key or id
    rs_parsed_record row


cdef inline int rs_check_one(void* argument) noexcept nogil:
    """Return RS_OK for every record that is whole and good."""
    cdef rs_check_call* call = <rs_check_call*>argument
    cdef int status = rs_check(
        call.p, call.available, call.physical_offset, call.segment_end, call.flags, &call.row)
    if status == RS_NUL_PROPERTIES or status == RS_UNSAFE_TOPIC:
        status = RS_OK
    if status == RS_OK and call.key != NULL:
        call.matches = rs_carries(call.p, &call.row, call.key)
    if status == RS_OK and call.id != NULL:
        call.matches = rs_is_stored_at(call.p, call.row.sys_flag, call.id)
    return status


cdef inline int rs_load_first(void* argument) noexcept nogil:
    """Load the offset in the first unit into ``base_offset``."""
    cdef rs_selection* work = <rs_selection*>argument
    cdef rs_unit unit
    rs_load_unit(work.units + work.position, &unit)
    work.base_offset = unit.physical_offset
    return RS_OK


cdef inline void rs_set_plain(rs_selection* work, bytes topic, int64_t queue_id) noexcept:
    """Set what is the same in every pull of a queue without a filter."""
    work.tags_codes = NULL
    work.tags_count = 0
    work.topic = <const uint8_t*>PyBytes_AS_STRING(topic)
    work.topic_nbytes = PyBytes_GET_SIZE(topic)
    work.queue_id = queue_id
    work.sql = NULL
    work.errors = 0
    work.skip_below = 0
    work.reason = 0


cdef inline bint rs_set_times(rs_key_query* query, max_count, begin, end) except -1:
    """Begin a query; return False for arguments that are not plain."""
    if not (type(max_count) is int and type(begin) is int and type(end) is int):
        return False
    if not (rs_to_int64(max_count, &query.max_count) and rs_to_int64(begin, &query.walk.begin)
            and rs_to_int64(end, &query.walk.end)):
        return False
    query.count = 0
    query.has_end = False
    query.end_timestamp = query.end_physical_offset = 0
    return query.walk.begin >= 0 and query.walk.end >= 0


cdef inline int rs_count_pull(object answer, object found, int64_t* found_times,
                              int64_t* missed_times, int64_t* transferred_times) except -1:
    """Count a pull by its answer: a named tuple of the status, three offsets and the messages."""
    if answer[0] is found:
        found_times[0] += 1
        transferred_times[0] += len(answer[4])
    else:
        missed_times[0] += 1
    return 0
