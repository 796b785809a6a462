"""Staged records of delayed messages that are due. Contract: ``deliveries.pyi``."""

cimport cython
from cpython.buffer cimport PyBuffer_Release
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, memset

from rs_arguments cimport rs_check_range, rs_get_bytes
from rs_copy cimport rs_raise_fault
from rs_crc cimport rs_crc_import
from rs_formats cimport RS_BLANK_NBYTES, RS_RECORD_EXTRA_NBYTES
from rs_guard cimport rs_guard_import, rs_guarded
from rs_put_arguments cimport rs_to_integer
from rs_status cimport RS_FAULT, RS_LIMIT

from rocketstore import formats
from rocketstore.dialect import Dialect

cdef extern from "rs_deliveries.h" nogil:
    ctypedef struct rs_delivery_rules:
        uint32_t buckets
        int32_t trailing_separator
        int32_t record_version_2
        int32_t long_retry_topics
        int32_t property_crc
        int32_t gives_offsets
        int64_t max_message_size
        int64_t max_record_nbytes
        uint8_t *half_topic
        int32_t half_topic_nbytes

    ctypedef struct rs_deliveries:
        const rs_delivery_rules *rules
        const uint8_t *units
        int64_t position
        int64_t stop
        int64_t queue_offset
        int64_t now
        int64_t latest
        const uint8_t *log
        int64_t log_stop
        int64_t base_offset
        int64_t segment_end
        uint8_t *out
        int64_t capacity
        int64_t used
        int64_t needed
        int64_t count
        int32_t queue_id
        int32_t flags

    int rs_stage_deliveries(void *argument)

rs_guard_import()
rs_crc_import()


@cython.final
cdef class DeliveryEncoder:
    """See ``deliveries.pyi``."""

    cdef rs_delivery_rules _rules
    cdef rs_deliveries _call
    cdef bint _busy
    cdef readonly int64_t rows

    def __cinit__(self, *, broker_version="5.5.0", max_message_size=4194304,
                  segment_nbytes=1073741824, append_property_crc=False, gives_offsets=False,
                  capacity=1048576):
        dialect = Dialect.for_version(broker_version, allow_newer=True)
        cdef bytes half = formats.TOPIC_HALF.encode()
        cdef int64_t most = rs_to_integer("max_message_size", max_message_size, 0, INT32_MAX)
        cdef int64_t segment = rs_to_integer(
            "segment_nbytes", segment_nbytes, formats.MIN_COMMIT_LOG_FILE_NBYTES,
            formats.MAX_COMMIT_LOG_FILE_NBYTES)
        self._rules.buckets = dialect.property_buckets
        self._rules.trailing_separator = dialect.trailing_separator
        self._rules.record_version_2 = dialect.record_version_2
        self._rules.long_retry_topics = dialect.long_retry_topics
        self._rules.property_crc = bool(append_property_crc)
        self._rules.gives_offsets = bool(gives_offsets)
        self._rules.max_message_size = most
        if dialect.record_extra:
            most += RS_RECORD_EXTRA_NBYTES
        self._rules.max_record_nbytes = min(most, segment - RS_BLANK_NBYTES)
        memcpy(self._rules.half_topic, <const uint8_t*>half, <size_t>len(half))
        self._rules.half_topic_nbytes = <int32_t>len(half)
        self._call.rules = &self._rules
        self._grow(rs_to_integer("capacity", capacity, 1, INT32_MAX))

    def __dealloc__(self):
        PyMem_Free(self._call.out)

    cdef int _grow(self, int64_t capacity) except -1:
        """Make room while nothing is staged."""
        cdef uint8_t* out = <uint8_t*>PyMem_Malloc(<size_t>capacity)
        if out == NULL:
            raise MemoryError
        PyMem_Free(self._call.out)
        self._call.out = out
        self._call.capacity = capacity
        return 0

    @property
    def nbytes(self):
        """Bytes staged and not yet taken."""
        return self._call.used

    def take(self):
        """Return what was staged since the last ``take``."""
        if self._busy:
            raise RuntimeError("a DeliveryEncoder serves one thread at a time")
        staged = PyBytes_FromStringAndSize(<char*>self._call.out, <Py_ssize_t>self._call.used)
        self._call.used = self.rows = 0
        return staged

    def stage(self, units, int64_t position, int64_t stop, int64_t queue_offset, int64_t queue_id,
              int64_t now, int64_t delay, log, int64_t log_stop, int64_t base_offset,
              int64_t segment_end, int64_t flags, /):
        """Stage due messages; return (position, status)."""
        cdef Py_buffer unit_view, log_view
        cdef rs_deliveries* call = &self._call
        cdef int status
        if self._busy:
            raise RuntimeError("a DeliveryEncoder serves one thread at a time")
        if not 0 <= queue_id <= INT32_MAX:
            raise ValueError(f"queue_id {queue_id} is out of range")
        memset(&log_view, 0, sizeof(log_view))
        rs_get_bytes(units, &unit_view, False)
        try:
            rs_get_bytes(log, &log_view, False)
            rs_check_range(&unit_view, position, stop, 0, 0)
            rs_check_range(&log_view, 0, log_stop, base_offset, segment_end)
            call.units = <const uint8_t*>unit_view.buf
            call.position = position
            call.stop = stop
            call.queue_offset = queue_offset
            call.queue_id = <int32_t>queue_id
            call.now = now
            call.latest = INT64_MAX if delay < 0 or now > INT64_MAX - delay else now + delay
            call.log = <const uint8_t*>log_view.buf
            call.log_stop = log_stop
            call.base_offset = base_offset
            call.segment_end = segment_end
            call.flags = <int32_t>(flags & INT32_MAX)
            call.count = 0
            self._busy = True
            try:
                with nogil:
                    status = rs_guarded(rs_stage_deliveries, call)
                if status == RS_LIMIT and call.used == 0:
                    self._grow(call.needed)
                    with nogil:
                        status = rs_guarded(rs_stage_deliveries, call)
            finally:
                self._busy = False
                self.rows += call.count
        finally:
            PyBuffer_Release(&log_view)
            PyBuffer_Release(&unit_view)
        if status == RS_FAULT:
            rs_raise_fault()
        return call.position, status
