"""Sums over the log's records, by group. Contract: ``passes_stats.pyi``."""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memset

from rs_crc cimport rs_crc_import
from rs_guard cimport rs_guard_import
from rs_pass cimport rs_pass_bounded, rs_pass_call, rs_pass_consume

cdef extern from "rs_pass_stats.h" nogil:
    enum:
        RS_BY_TOPIC
        RS_BY_QUEUE_ID
        RS_BY_TAGS
        RS_BY_BUCKET
        RS_BY_BODY_SIZE

    ctypedef struct rs_stats_group:
        int64_t text_at
        int64_t bucket
        int64_t count
        int64_t nbytes
        int64_t body_nbytes
        int64_t min_timestamp
        int64_t max_timestamp
        int64_t min_queue_offset
        int64_t max_queue_offset
        int32_t topic_nbytes
        int32_t tags_nbytes
        int32_t queue_id
        int32_t body_size

    ctypedef struct rs_stats_pass:
        rs_pass_call call
        uint64_t seed
        int64_t bucket_ms
        int32_t by
        int64_t max_groups
        rs_stats_group *groups
        int64_t group_count
        uint8_t *texts
        int64_t mask

    int rs_stats_run(void *argument)
    void rs_stats_clear(rs_stats_pass *core)
    void rs_stats_free(rs_stats_pass *core)

rs_guard_import()
rs_crc_import()

cdef object OFFSET_MAX = 0x7fffffffffffffff
cdef dict BITS = {
    "topic": RS_BY_TOPIC, "queueId": RS_BY_QUEUE_ID, "tags": RS_BY_TAGS, "bucket": RS_BY_BUCKET,
    "bodySize": RS_BY_BODY_SIZE,
}


@cython.final
cdef class StatsPass:
    """See ``passes_stats.pyi``."""

    cdef rs_stats_pass core

    def __cinit__(self, by=(), *, bucket_ms=60000, max_groups=65536):
        memset(&self.core, 0, sizeof(self.core))
        self.core.mask = -1
        # Keyed by a secret of the process, so that clients cannot choose colliding texts.
        self.core.seed = <uint64_t>hash(b"rocketstore groups")
        self.core.bucket_ms = rs_pass_bounded("bucket_ms", bucket_ms, 1, OFFSET_MAX)
        self.core.max_groups = rs_pass_bounded("max_groups", max_groups, 1, OFFSET_MAX)
        for name in by:
            if name not in BITS:
                raise ValueError(f"{name!r} must be one of {tuple(BITS)}")
            self.core.by |= BITS[name]

    def __dealloc__(self):
        rs_stats_free(&self.core)

    def consume(self, window, int64_t position, int64_t stop, int64_t base_offset,
                int64_t segment_end, int64_t limit, int64_t flags, /):
        return rs_pass_consume(rs_stats_run, &self.core, &self.core.call, window, position, stop,
                               base_offset, segment_end, limit, flags)

    def take(self):
        cdef int64_t number
        cdef rs_stats_group* group
        cdef const char* text
        cdef int32_t by = self.core.by
        cdef list groups = []
        for number in range(self.core.group_count):
            group = self.core.groups + number
            text = <const char*>self.core.texts + group.text_at
            groups.append((
                PyBytes_FromStringAndSize(text, group.topic_nbytes) if by & RS_BY_TOPIC else None,
                group.queue_id if by & RS_BY_QUEUE_ID else None,
                PyBytes_FromStringAndSize(text + group.topic_nbytes, group.tags_nbytes)
                if group.tags_nbytes >= 0 else None,
                group.bucket if by & RS_BY_BUCKET else None,
                group.body_size if by & RS_BY_BODY_SIZE else None,
                group.count, group.nbytes, group.body_nbytes,
                group.min_timestamp, group.max_timestamp,
                group.min_queue_offset, group.max_queue_offset,
            ))
        rs_stats_clear(&self.core)
        return groups
