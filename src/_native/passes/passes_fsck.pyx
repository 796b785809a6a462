"""Sums over records and queue files, to compare both for the same queues. Contract:
``passes_fsck.pyi``."""

cimport cython
from cpython.buffer cimport PyBuffer_Release
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memset

from rs_arguments cimport rs_get_bytes
from rs_copy cimport rs_raise_fault
from rs_crc cimport rs_crc_import
from rs_formats cimport RS_CQ_UNIT_NBYTES
from rs_guard cimport rs_guard_import, rs_guarded
from rs_pass cimport rs_pass_bounded, rs_pass_call, rs_pass_consume, rs_pass_delays
from rs_status cimport RS_FAULT, RS_REPORT_PROPERTY_CRC

cdef extern from "rs_pass_fsck.h" nogil:
    ctypedef struct rs_queue:
        const uint8_t *topic
        int32_t queue_id
        int32_t topic_nbytes

    ctypedef struct rs_queue_table:
        uint64_t seed
        rs_queue **of_handle
        int32_t handle_count

    ctypedef struct rs_fsck_queue:
        int64_t count
        int64_t first_offset
        int64_t next_offset
        int64_t first_physical
        int64_t end_physical
        int64_t breaks
        uint64_t sum

    enum:
        RS_MAX_RECORD_KEYS

    ctypedef struct rs_key_pass:
        int32_t index_tags
        int32_t mark_tags
        int64_t capacity
        int64_t count
        uint8_t *hashes
        uint8_t *offsets
        uint8_t *timestamps

    ctypedef struct rs_fsck_pass:
        rs_pass_call call
        rs_queue_table table
        const int64_t *delay_ms
        int32_t delay_count
        int32_t extra_flags
        int64_t max_queues
        int64_t max_wrong
        rs_fsck_queue *queues
        int64_t *wrong
        int64_t wrong_count
        int64_t records
        int64_t nbytes
        int64_t ghosts
        int64_t nul_properties
        int64_t unsafe_topics
        int64_t backward_times
        int64_t first_timestamp
        int64_t last_timestamp
        int64_t named
        int64_t inner_batches
        int64_t valid_crcs
        rs_key_pass *keys

    ctypedef struct rs_unit_sums:
        const uint8_t *units
        int64_t unit_count
        int64_t index
        int64_t log_start
        int64_t count
        int64_t first_index
        int64_t last_index
        int64_t fillers
        int64_t expired
        int64_t last_passed
        uint64_t sum

    void rs_key_pass_init(rs_key_pass *keys)
    int rs_fsck_run(void *argument)
    void rs_fsck_clear(rs_fsck_pass *core)
    void rs_fsck_free(rs_fsck_pass *core)
    int rs_sum_units(void *argument)

rs_guard_import()
rs_crc_import()

cdef object OFFSET_MAX = 0x7fffffffffffffff


@cython.final
cdef class FsckPass:
    """See ``passes_fsck.pyi``."""

    cdef rs_fsck_pass core
    cdef rs_key_pass keys
    cdef int64_t* levels
    cdef bytearray hashes
    cdef bytearray offsets
    cdef bytearray timestamps

    def __cinit__(self, *, delay_ms=(), report_property_crc=False, max_queues=65536,
                  max_wrong=65536, index_keys=False, key_capacity=65536):
        memset(&self.core, 0, sizeof(self.core))
        # Keyed by a secret of the process, so that clients cannot choose colliding topic names.
        self.core.table.seed = <uint64_t>hash(b"rocketstore queues")
        self.core.extra_flags = RS_REPORT_PROPERTY_CRC if report_property_crc else 0
        self.core.max_queues = rs_pass_bounded("max_queues", max_queues, 1, 0x7fffffff)
        self.core.max_wrong = rs_pass_bounded("max_wrong", max_wrong, 1, OFFSET_MAX)
        self.levels = rs_pass_delays(delay_ms, &self.core.delay_count)
        self.core.delay_ms = self.levels
        room = rs_pass_bounded("key_capacity", key_capacity, RS_MAX_RECORD_KEYS, 0x7fffffff)
        if index_keys:
            rs_key_pass_init(&self.keys)
            self.keys.index_tags = self.keys.mark_tags = True
            self.keys.capacity = room
            self.hashes, self.offsets = bytearray(4 * room), bytearray(8 * room)
            self.timestamps = bytearray(8 * room)
            self.core.keys = &self.keys

    def __dealloc__(self):
        rs_fsck_free(&self.core)
        PyMem_Free(self.levels)

    def consume(self, window, int64_t position, int64_t stop, int64_t base_offset,
                int64_t segment_end, int64_t limit, int64_t flags, /):
        if self.core.keys != NULL:
            self.keys.hashes = <uint8_t*>PyByteArray_AS_STRING(self.hashes)
            self.keys.offsets = <uint8_t*>PyByteArray_AS_STRING(self.offsets)
            self.keys.timestamps = <uint8_t*>PyByteArray_AS_STRING(self.timestamps)
        return rs_pass_consume(rs_fsck_run, &self.core, &self.core.call, window, position, stop,
                               base_offset, segment_end, limit, flags)

    def take(self):
        cdef int64_t i
        cdef int32_t handle
        cdef rs_queue* name
        cdef rs_fsck_queue* queue
        cdef list queues = []
        cdef list wrong = []
        for handle in range(self.core.table.handle_count):
            name = self.core.table.of_handle[handle]
            queue = self.core.queues + handle
            queues.append((
                PyBytes_FromStringAndSize(<const char*>name.topic, name.topic_nbytes),
                name.queue_id, queue.count, queue.first_offset, queue.next_offset,
                queue.first_physical, queue.end_physical, queue.breaks, queue.sum,
            ))
        for i in range(self.core.wrong_count):
            wrong.append(self.core.wrong[i])
        sums = {
            "records": self.core.records,
            "nbytes": self.core.nbytes,
            "ghosts": self.core.ghosts,
            "nul_properties": self.core.nul_properties,
            "unsafe_topics": self.core.unsafe_topics,
            "backward_times": self.core.backward_times,
            "first_timestamp": self.core.first_timestamp,
            "last_timestamp": self.core.last_timestamp,
            "named": self.core.named,
            "inner_batches": self.core.inner_batches,
            "valid_crcs": self.core.valid_crcs,
        }
        rs_fsck_clear(&self.core)
        return sums, queues, wrong

    def take_keys(self):
        cdef Py_ssize_t count = self.keys.count
        if self.core.keys == NULL:
            raise ValueError("this pass gathers no keys")
        self.keys.count = 0
        return (
            memoryview(self.hashes)[: 4 * count].cast("i"),
            memoryview(self.offsets)[: 8 * count].cast("q"),
            memoryview(self.timestamps)[: 8 * count].cast("q"),
        )


def sum_units(units, int64_t first_index, int64_t log_start=0, /):
    """Sum up the units of a part of a queue."""
    cdef Py_buffer view
    cdef rs_unit_sums sums
    cdef int status
    memset(&view, 0, sizeof(view))
    memset(&sums, 0, sizeof(sums))
    rs_get_bytes(units, &view, False)
    try:
        sums.unit_count = view.len // RS_CQ_UNIT_NBYTES
        if first_index < 0 or first_index > OFFSET_MAX - sums.unit_count:
            raise ValueError(f"first_index {first_index} is out of range")
        sums.units = <const uint8_t*>view.buf
        sums.index = first_index
        sums.log_start = log_start
        sums.first_index = sums.last_index = sums.last_passed = -1
        with nogil:
            status = rs_guarded(rs_sum_units, &sums)
    finally:
        PyBuffer_Release(&view)
    if status == RS_FAULT:
        rs_raise_fault()
    return (sums.count, sums.first_index, sums.last_index, sums.sum, sums.fillers, sums.expired,
            sums.last_passed)
