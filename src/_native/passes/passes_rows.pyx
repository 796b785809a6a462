"""Judges the rows of ``scan_records``. Contract: ``passes_rows.pyi``."""

cimport cython
from cpython.buffer cimport PyBuffer_Release
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memset

from rs_arguments cimport rs_get_bytes
from rs_copy cimport rs_raise_fault
from rs_formats cimport rs_parsed_record
from rs_guard cimport rs_guard_import, rs_guarded
from rs_java_text cimport rs_decode_text
from rs_status cimport RS_FAULT, RS_LIMIT, RS_OK

cdef extern from "rs_pass_rows.h" nogil:
    ctypedef struct rs_rows_summary:
        const uint8_t *buffer
        const uint8_t *rows
        int64_t count
        int64_t good
        int64_t newest
        int64_t last
        int64_t previous
        int64_t end
        int64_t before
        int64_t covered_end
        bint odd
        bint special
        bint named
        int32_t property_crcs

    ctypedef struct rs_queue:
        const uint8_t *topic
        int32_t queue_id
        int32_t topic_nbytes

    ctypedef struct rs_queue_table:
        uint64_t seed
        rs_queue **of_handle
        int32_t handle_count

    ctypedef struct rs_queue_offset:
        int64_t end

    ctypedef struct rs_queue_offsets:
        const uint8_t *buffer
        int64_t nbytes
        const uint8_t *rows
        int64_t count
        int64_t call
        rs_queue_table table
        rs_queue_offset *queues

    ctypedef struct rs_queue_numbers:
        const uint8_t *buffer
        int64_t nbytes
        const uint8_t *rows
        int64_t count
        int32_t *numbers
        rs_queue_table table

    ctypedef struct rs_queued_record:
        int64_t queue_offset

    ctypedef struct rs_rows_gathering:
        const uint8_t *rows
        int64_t count
        const uint8_t *numbers
        uint8_t *queued
        uint8_t *sizes
        uint8_t *places
        int64_t queued_count
        int64_t records
        int64_t nbytes
        int64_t newest
        int64_t first
        int64_t last
        int64_t backward
        int64_t ghosts
        int64_t nul_properties
        int64_t unsafe_topics
        int64_t judged_crcs
        int64_t rolled_back
        int64_t short_bodies
        int64_t named

    int64_t rs_find_stray_row(const uint8_t *rows, int64_t count, int64_t nbytes)
    int rs_summarize_rows(void *argument)
    int rs_follow_rows(void *argument)
    int rs_number_rows(void *argument)
    void rs_gather_rows(rs_rows_gathering *gathering)
    void rs_queue_table_free(rs_queue_table *table)
    void rs_offsets_free(rs_queue_offsets *offsets)

rs_guard_import()


cdef int64_t count_rows(const Py_buffer* view, const Py_buffer* rows) except -1:
    """Return the number of rows, after checking that their topics lie in the record buffer."""
    cdef int64_t count, stray
    if rows.len % <Py_ssize_t>sizeof(rs_parsed_record):
        raise ValueError(
            f"rows must be whole rows of {sizeof(rs_parsed_record)} bytes, not {rows.len} bytes"
        )
    count = rows.len // <Py_ssize_t>sizeof(rs_parsed_record)
    stray = rs_find_stray_row(<const uint8_t*>rows.buf, count, view.len)
    if stray >= 0:
        raise ValueError(f"the topic of row {stray} does not lie within {view.len} bytes")
    return count


def summarize(buffer, rows, int64_t before, /):
    """See ``passes_rows.pyi``."""
    cdef Py_buffer view, filled
    cdef rs_rows_summary found
    cdef int status
    memset(&view, 0, sizeof(view))
    memset(&filled, 0, sizeof(filled))
    memset(&found, 0, sizeof(found))
    try:
        rs_get_bytes(buffer, &view, False)
        rs_get_bytes(rows, &filled, False)
        found.count = count_rows(&view, &filled)
        found.buffer = <const uint8_t*>view.buf
        found.rows = <const uint8_t*>filled.buf
        found.before = before
        found.end = found.covered_end = -1
        with nogil:
            status = rs_guarded(rs_summarize_rows, &found)
    finally:
        PyBuffer_Release(&filled)
        PyBuffer_Release(&view)
    if status == RS_FAULT:
        rs_raise_fault()
    return (found.good, found.newest, found.last, found.previous, found.end, found.covered_end,
            found.odd, found.special, found.named, found.property_crcs)


def gather(rows, numbers, queued, sizes, places, /):
    """See ``passes_rows.pyi``."""
    cdef Py_buffer views[5]
    cdef rs_rows_gathering sums
    cdef int i
    cdef int64_t nbytes[5]
    memset(views, 0, sizeof(views))
    memset(&sums, 0, sizeof(sums))
    try:
        rs_get_bytes(rows, &views[0], False)
        rs_get_bytes(numbers, &views[1], False)
        rs_get_bytes(queued, &views[2], True)
        rs_get_bytes(sizes, &views[3], True)
        rs_get_bytes(places, &views[4], True)
        nbytes = [sizeof(rs_parsed_record), 4, sizeof(rs_queued_record), 4, 4]
        sums.count = views[0].len // nbytes[0]
        for i in range(5):
            if views[i].len != sums.count * nbytes[i]:
                raise ValueError(
                    f"argument {i + 1} must have {nbytes[i]} bytes for each of {sums.count} rows, "
                    f"not {views[i].len}"
                )
        sums.rows = <const uint8_t*>views[0].buf
        sums.numbers = <const uint8_t*>views[1].buf
        sums.queued = <uint8_t*>views[2].buf
        sums.sizes = <uint8_t*>views[3].buf
        sums.places = <uint8_t*>views[4].buf
        with nogil:
            rs_gather_rows(&sums)
    finally:
        for i in range(5):
            PyBuffer_Release(&views[i])
    return (sums.queued_count, sums.records, sums.nbytes, sums.newest, sums.first, sums.last,
            sums.backward, sums.ghosts, sums.nul_properties, sums.unsafe_topics, sums.judged_crcs,
            sums.rolled_back, sums.short_bodies, sums.named)


@cython.final
cdef class QueueOffsets:
    """See ``passes_rows.pyi``."""

    cdef rs_queue_offsets core

    def __cinit__(self):
        memset(&self.core, 0, sizeof(self.core))
        # Keyed by a secret of the process, so that clients cannot choose colliding topic names.
        self.core.table.seed = <uint64_t>hash(b"rocketstore queues")

    def __dealloc__(self):
        rs_offsets_free(&self.core)

    def follow(self, buffer, rows, /):
        cdef Py_buffer view, filled
        cdef int status
        memset(&view, 0, sizeof(view))
        memset(&filled, 0, sizeof(filled))
        try:
            rs_get_bytes(buffer, &view, False)
            rs_get_bytes(rows, &filled, False)
            self.core.count = count_rows(&view, &filled)
            self.core.buffer = <const uint8_t*>view.buf
            self.core.nbytes = view.len
            self.core.rows = <const uint8_t*>filled.buf
            self.core.call += 1
            with nogil:
                status = rs_guarded(rs_follow_rows, &self.core)
        finally:
            self.core.buffer = self.core.rows = NULL
            PyBuffer_Release(&filled)
            PyBuffer_Release(&view)
        if status == RS_FAULT:
            rs_raise_fault()
        if status == RS_LIMIT:
            raise MemoryError
        return status == RS_OK

    def ends(self):
        cdef int32_t handle
        cdef rs_queue* queue
        cdef dict ends = {}
        for handle in range(self.core.table.handle_count):
            queue = self.core.table.of_handle[handle]
            if self.core.queues[handle].end >= 0:
                topic = rs_decode_text(queue.topic, queue.topic_nbytes)
                ends[topic, queue.queue_id] = self.core.queues[handle].end
        return ends


@cython.final
cdef class QueueNumbers:
    """See ``passes_rows.pyi``."""

    cdef rs_queue_numbers core

    def __cinit__(self):
        memset(&self.core, 0, sizeof(self.core))
        self.core.table.seed = <uint64_t>hash(b"rocketstore queues")

    def __dealloc__(self):
        rs_queue_table_free(&self.core.table)

    def number(self, buffer, rows, numbers, /):
        cdef Py_buffer view, filled, room
        cdef int status
        memset(&view, 0, sizeof(view))
        memset(&filled, 0, sizeof(filled))
        memset(&room, 0, sizeof(room))
        try:
            rs_get_bytes(buffer, &view, False)
            rs_get_bytes(rows, &filled, False)
            rs_get_bytes(numbers, &room, True)
            self.core.count = count_rows(&view, &filled)
            if room.len != self.core.count * 4:
                raise ValueError(
                    f"numbers must have 4 bytes for each of {self.core.count} rows, not {room.len}"
                )
            self.core.buffer = <const uint8_t*>view.buf
            self.core.nbytes = view.len
            self.core.rows = <const uint8_t*>filled.buf
            self.core.numbers = <int32_t*>room.buf
            with nogil:
                status = rs_guarded(rs_number_rows, &self.core)
        finally:
            self.core.buffer = self.core.rows = NULL
            self.core.numbers = NULL
            PyBuffer_Release(&room)
            PyBuffer_Release(&filled)
            PyBuffer_Release(&view)
        if status == RS_FAULT:
            rs_raise_fault()
        if status == RS_LIMIT:
            raise MemoryError

    def queues(self, int32_t first=0, /):
        cdef int32_t handle
        cdef rs_queue* queue
        cdef list queues = []
        if first < 0:
            raise ValueError(f"first must not be negative, not {first}")
        for handle in range(first, self.core.table.handle_count):
            queue = self.core.table.of_handle[handle]
            queues.append((queue.topic[:queue.topic_nbytes], queue.queue_id))
        return queues
