"""The records of a log that a filter takes. Contract: ``passes_select.pyi``."""

cimport cython
from cpython.buffer cimport PyBuffer_Release
from libc.stdint cimport int64_t
from libc.stdlib cimport free
from libc.string cimport memset

from rs_arguments cimport rs_get_bytes
from rs_crc cimport rs_crc_import
from rs_guard cimport rs_guard_import, rs_guarded
from rs_pass cimport rs_pass_begin, rs_pass_call
from rs_record_filter cimport rs_fill_filter, rs_free_filter, rs_record_filter, rs_zeros

from rocketstore.record_filters import check_batch_limits, record_filters

cdef extern from "rs_pass_select.h" nogil:
    ctypedef struct rs_select_pass:
        rs_pass_call call
        rs_record_filter filter
        int64_t *positions
        int64_t capacity
        int64_t count
        int64_t last
        int64_t errors

    int rs_select_run(void *argument)

rs_guard_import()
rs_crc_import()

cdef str ONE_THREAD = "a SelectPass serves one thread at a time"


@cython.final
cdef class SelectPass:
    """See ``passes_select.pyi``."""

    cdef rs_select_pass* _pass
    cdef list _texts
    cdef object _filter
    cdef bint _busy

    def __cinit__(self, *, topics=None, tags=None, keys=None, queue_ids=None, begin=None,
                  end=None, start_offsets=None, filter=None, capacity=1024):
        cdef rs_select_pass* made
        check_batch_limits(capacity, 1)
        filters = record_filters(topics, tags, keys, queue_ids, begin, end, start_offsets, filter)
        made = self._pass = <rs_select_pass*>rs_zeros(1, sizeof(rs_select_pass))
        self._filter = filters.filter
        self._texts = []
        rs_fill_filter(&made.filter, filters, self._texts)
        made.capacity = capacity
        made.positions = <int64_t*>rs_zeros(<Py_ssize_t>made.capacity, sizeof(int64_t))
        made.last = -1

    def __dealloc__(self):
        if self._pass != NULL:
            rs_free_filter(&self._pass.filter)
            free(self._pass.positions)
            free(self._pass)

    def consume(self, window, int64_t position, int64_t stop, int64_t base_offset,
                int64_t segment_end, int64_t limit, int64_t flags, /):
        """Judge the records from ``position`` on; return (status, position to continue from)."""
        cdef Py_buffer view
        cdef int64_t errors = 0
        cdef int status
        memset(&view, 0, sizeof(view))
        rs_get_bytes(window, &view, False)
        if self._busy:
            PyBuffer_Release(&view)
            raise RuntimeError(ONE_THREAD)
        self._busy = True
        try:
            rs_pass_begin(&self._pass.call, &view, position, stop, base_offset, segment_end,
                          limit, flags)
            self._pass.last = -1
            with nogil:
                status = rs_guarded(rs_select_run, self._pass)
            position = self._pass.call.position
            errors, self._pass.errors = self._pass.errors, 0
        finally:
            self._busy = False
            PyBuffer_Release(&view)
        if errors:
            self._filter.count_errors(errors)
        return status, position

    @property
    def rows(self):
        """Positions not yet taken."""
        return self._pass.count

    @property
    def last(self):
        """Position of the last record that ``consume`` judged, -1 for none."""
        return self._pass.last

    def take(self):
        """Return the positions not yet taken, and forget them."""
        cdef int64_t number
        if self._busy:
            raise RuntimeError(ONE_THREAD)
        found = [self._pass.positions[number] for number in range(self._pass.count)]
        self._pass.count = 0
        return found
