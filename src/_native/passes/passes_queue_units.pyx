"""Queue units of the log's records, gathered window by window. Contract:
``passes_queue_units.pyi``."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memset

from rs_crc cimport rs_crc_import
from rs_formats cimport RS_CQ_UNIT_NBYTES, RS_MAX_PROPERTIES_NBYTES
from rs_guard cimport rs_guard_import
from rs_pass cimport rs_pass_bounded, rs_pass_call, rs_pass_consume, rs_pass_delays

cdef extern from "rs_pass_queue_units.h" nogil:
    ctypedef struct rs_queue:
        const uint8_t *topic
        int32_t queue_id
        int32_t topic_nbytes

    ctypedef struct rs_queue_table:
        uint64_t seed
        rs_queue **of_handle

    ctypedef struct rs_unit_run:
        uint8_t *units
        int64_t nbytes
        int64_t first_offset
        int64_t first_physical
        int64_t end_physical
        int32_t handle
        int32_t named

    ctypedef struct rs_units_pass:
        rs_pass_call call
        rs_queue_table table
        const int64_t *delay_ms
        int32_t delay_count
        int32_t multi_dispatch
        int32_t selective
        int32_t width
        int64_t max_nbytes
        int64_t max_runs
        int64_t inner_batch_offset
        rs_unit_run *runs
        int64_t run_count

    int32_t rs_pass_queue(rs_queue_table *table, const uint8_t *topic, int32_t n,
                          int32_t queue_id, bint add)
    int rs_units_run(void *argument)
    void rs_units_clear(rs_units_pass *core)
    void rs_units_free(rs_units_pass *core)

rs_guard_import()
rs_crc_import()

cdef object OFFSET_MAX = 0x7fffffffffffffff


@cython.final
cdef class QueueUnitsPass:
    """See ``passes_queue_units.pyi``."""

    cdef rs_units_pass core
    cdef int64_t* levels

    def __cinit__(self, *, delay_ms=(), multi_dispatch=0, queues=None, with_times=False,
                  max_nbytes=16 << 20, max_runs=65536):
        memset(&self.core, 0, sizeof(self.core))
        self.core.inner_batch_offset = -1
        # Keyed by a secret of the process, so that clients cannot choose colliding topic names.
        self.core.table.seed = <uint64_t>hash(b"rocketstore queues")
        self.core.multi_dispatch = <int32_t>rs_pass_bounded("multi_dispatch", multi_dispatch, 0, 15)
        self.core.width = <int32_t>(RS_CQ_UNIT_NBYTES + (8 if with_times else 0))
        self.core.max_nbytes = rs_pass_bounded("max_nbytes", max_nbytes, 1, OFFSET_MAX)
        self.core.max_runs = rs_pass_bounded("max_runs", max_runs, 1, OFFSET_MAX)
        self.levels = rs_pass_delays(delay_ms, &self.core.delay_count)
        self.core.delay_ms = self.levels
        if queues is not None:
            self.core.selective = True
            for topic, queue_id in queues:
                self.know(topic, rs_pass_bounded("queue_id", queue_id, 0, 0x7fffffff))

    def __dealloc__(self):
        rs_units_free(&self.core)
        PyMem_Free(self.levels)

    cdef int know(self, object topic, int32_t queue_id) except -1:
        if not isinstance(topic, bytes):
            raise TypeError(f"topic must be bytes, not {type(topic).__name__}")
        if not 0 < PyBytes_GET_SIZE(topic) <= RS_MAX_PROPERTIES_NBYTES:
            raise ValueError(f"topic of {len(topic)} bytes: no record can hold it")
        if rs_pass_queue(&self.core.table, <const uint8_t*>PyBytes_AS_STRING(topic),
                         <int32_t>PyBytes_GET_SIZE(topic), queue_id, True) < 0:
            raise MemoryError
        return 0

    def consume(self, window, int64_t position, int64_t stop, int64_t base_offset,
                int64_t segment_end, int64_t limit, int64_t flags, /):
        return rs_pass_consume(rs_units_run, &self.core, &self.core.call, window, position, stop,
                               base_offset, segment_end, limit, flags)

    @property
    def inner_batch_offset(self):
        return self.core.inner_batch_offset

    def take(self):
        cdef int64_t number
        cdef rs_unit_run* run
        cdef rs_queue* queue
        cdef list runs = []
        for number in range(self.core.run_count):
            run = self.core.runs + number
            queue = self.core.table.of_handle[run.handle]
            runs.append((
                PyBytes_FromStringAndSize(<const char*>queue.topic, queue.topic_nbytes),
                queue.queue_id,
                run.named,
                run.first_offset,
                run.first_physical,
                run.end_physical,
                PyBytes_FromStringAndSize(<const char*>run.units, run.nbytes),
            ))
        rs_units_clear(&self.core)
        return runs
