# One round of appending a call's records, their outcomes, and the common values of all records of
# an appender.
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy

from rs_appender cimport (
    rs_append_blocking,
    rs_append_call,
    rs_append_run,
    rs_appender,
    rs_appender_has_room,
    rs_is_populated,
    rs_mutex_try,
    rs_mutex_unlock,
    rs_put_record,
    rs_take_body_crc,
)
from rs_put_result cimport rs_fill_outcome, rs_put_outcome, rs_put_rows

# The outcomes' C layout, so that filling them in needs no calls.
cdef extern from "rs_put_result.h":
    ctypedef class rocketstore._native.put_result.PutMessageResult [
        object rs_put_result_object, check_size error
    ]:
        cdef rs_put_outcome outcome
        cdef bytes host
        cdef bytes ids

    ctypedef class rocketstore._native.put_result.PutManyResult [
        object rs_put_many_object, check_size error
    ]:
        cdef rs_put_rows table

cdef enum:
    # For a larger body, or this many records, releasing the GIL is worth its cost.
    RS_LARGE_BODY_NBYTES = 64 * 1024
    RS_MANY_COUNT = 16


cdef inline int rs_ring(object bell) except -1:
    """Release a lock if there is one and it is held."""
    if bell is not None and bell.locked():
        try:
            bell.release()
        except RuntimeError:  # another thread rang at the same time
            pass
    return 0


cdef inline int rs_run_call(rs_append_call *call) noexcept:
    """Run one round of appending; keep the GIL only if that cannot take long."""
    cdef int result
    cdef int64_t i
    cdef bint large = call.count >= RS_MANY_COUNT
    if not large:
        for i in range(call.done, call.count):
            large = large or call.records[i].fields.body_nbytes > RS_LARGE_BODY_NBYTES
    if not large and rs_mutex_try(&call.appender.mutex):
        if rs_is_populated(call):
            result = rs_append_run(call)
            rs_mutex_unlock(&call.appender.mutex)
        else:
            with nogil:
                result = rs_append_run(call)
                rs_mutex_unlock(&call.appender.mutex)
        return result
    with nogil:
        for i in range(call.done, call.count):
            if call.records[i].fields.body_nbytes > RS_LARGE_BODY_NBYTES:
                if call.records[i].status < 0:
                    rs_take_body_crc(&call.records[i])
        result = rs_append_blocking(call)
    return result


cdef inline int rs_set_template(rs_put_record *record, bint property_crc,
                                bytes store_host) except -1:
    """Set the values that every record starts from."""
    record.status = record.append_status = -1
    record.waits = record.width = 1
    record.fields.version = 1
    record.fields.property_crc = property_crc
    record.fields.store_host_nbytes = <int32_t> PyBytes_GET_SIZE(store_host)
    memcpy(record.store_host, PyBytes_AS_STRING(store_host),
           <size_t> PyBytes_GET_SIZE(store_host))
    return 0


cdef inline bint rs_fits(rs_appender *appender, int64_t nbytes) noexcept:
    """Return whether so many bytes fit the segment's allocated blocks at this moment."""
    cdef int fits = rs_appender_has_room(appender, nbytes, False)
    if fits < 0:
        with nogil:
            fits = rs_appender_has_room(appender, nbytes, True)
    return fits > 0


cdef inline PutMessageResult outcome_of(const rs_put_record *record, int32_t waited, bytes host):
    """Return the outcome of one record; ``waited`` is the status of the flush."""
    cdef PutMessageResult result = PutMessageResult.__new__(PutMessageResult)
    rs_fill_outcome(&result.outcome, record, waited)
    result.host = host
    return result
