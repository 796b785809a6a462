"""The index keys of the log's records, compared with entries (``passes_index_keys.pyi``)."""

cimport cython
from cpython.buffer cimport PyBuffer_Release
from cpython.bytearray cimport PyByteArray_AS_STRING
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memset

from rs_arguments cimport rs_get_bytes, rs_get_integers
from rs_copy cimport rs_raise_fault
from rs_crc cimport rs_crc_import
from rs_formats cimport RS_INDEX_ENTRY_NBYTES, rs_parsed_record
from rs_guard cimport rs_guard_import, rs_guarded
from rs_pass cimport rs_pass_call, rs_pass_consume
from rs_status cimport RS_FAULT, RS_MISMATCH

cdef extern from "rs_pass_index_keys.h" nogil:
    enum:
        RS_MAX_RECORD_KEYS

    ctypedef struct rs_key_pass:
        rs_pass_call call
        int32_t index_tags
        int32_t mark_tags
        int32_t counts_only
        int64_t capacity
        int64_t count
        int64_t records
        uint8_t *hashes
        uint8_t *offsets
        uint8_t *timestamps

    ctypedef struct rs_key_match:
        const uint8_t *entries
        const uint8_t *hashes
        const uint8_t *offsets
        const uint8_t *timestamps
        int64_t entry
        int64_t entry_count
        int64_t key
        int64_t key_count
        int64_t begin_timestamp

    ctypedef struct rs_key_rows:
        rs_key_pass *keys
        const uint8_t *buffer
        int64_t nbytes
        const uint8_t *rows
        int64_t row
        int64_t count

    void rs_key_pass_init(rs_key_pass *keys)
    int rs_key_pass_run(void *argument)
    int rs_key_rows_run(void *argument)
    int rs_key_match_run(void *argument)

rs_guard_import()
rs_crc_import()

MAX_RECORD_KEYS = RS_MAX_RECORD_KEYS


@cython.final
cdef class IndexKeysPass:
    """See ``passes_index_keys.pyi``."""

    cdef rs_key_pass core
    cdef bytearray hashes
    cdef bytearray offsets
    cdef bytearray timestamps
    cdef int64_t next
    cdef bint busy             # guarded by: the GIL

    cdef int enter(self) except -1:
        """Enter the pass; raise if another thread is inside. The caller clears ``busy``."""
        if self.busy:
            raise RuntimeError("another thread is inside this pass")
        if not self.core.counts_only:
            self.core.hashes = <uint8_t*>PyByteArray_AS_STRING(self.hashes)
            self.core.offsets = <uint8_t*>PyByteArray_AS_STRING(self.offsets)
            self.core.timestamps = <uint8_t*>PyByteArray_AS_STRING(self.timestamps)
        self.busy = True
        return 0

    def __cinit__(self, *, index_tags=True, mark_tags=False, counts_only=False,
                  int64_t capacity=65536):
        rs_key_pass_init(&self.core)
        self.next = -1
        self.core.index_tags = bool(index_tags)
        self.core.mark_tags = bool(mark_tags)
        self.core.counts_only = bool(counts_only)
        if capacity < 1 or (capacity < RS_MAX_RECORD_KEYS and not counts_only):
            lowest = 1 if counts_only else RS_MAX_RECORD_KEYS
            raise ValueError(f"capacity {capacity} is below {lowest}")
        self.core.capacity = capacity
        if not counts_only:
            self.hashes = bytearray(4 * capacity)
            self.offsets = bytearray(8 * capacity)
            self.timestamps = bytearray(8 * capacity)

    def consume(self, window, int64_t position, int64_t stop, int64_t base_offset,
                int64_t segment_end, int64_t limit, int64_t flags, /):
        self.enter()
        try:
            status, position = rs_pass_consume(
                rs_key_pass_run, &self.core, &self.core.call, window, position, stop, base_offset,
                segment_end, limit, flags,
            )
        finally:
            self.busy = False
        self.next = base_offset + position
        return status, position

    def consume_rows(self, buffer, rows, int64_t first=0, /):
        cdef Py_buffer view, filled
        cdef rs_key_rows call
        cdef int status
        memset(&view, 0, sizeof(view))
        memset(&filled, 0, sizeof(filled))
        self.enter()
        try:
            rs_get_bytes(buffer, &view, False)
            rs_get_bytes(rows, &filled, False)
            if filled.len % <Py_ssize_t>sizeof(rs_parsed_record):
                raise ValueError(
                    f"rows must be whole rows of {sizeof(rs_parsed_record)} bytes, not "
                    f"{filled.len} bytes"
                )
            call.count = filled.len // <Py_ssize_t>sizeof(rs_parsed_record)
            if not 0 <= first <= call.count:
                raise ValueError(f"first must be within {call.count} rows, not {first}")
            call.keys = &self.core
            call.buffer = <const uint8_t*>view.buf
            call.nbytes = view.len
            call.rows = <const uint8_t*>filled.buf
            call.row = first
            with nogil:
                status = rs_guarded(rs_key_rows_run, &call)
        finally:
            self.busy = False
            PyBuffer_Release(&filled)
            PyBuffer_Release(&view)
        if status == RS_FAULT:
            rs_raise_fault()
        if status == RS_MISMATCH:
            raise ValueError(f"the texts of row {call.row} do not lie within {call.nbytes} bytes")
        return call.row

    def take(self):
        cdef Py_ssize_t count = self.core.count
        if self.busy:
            raise RuntimeError("another thread is inside this pass")
        if self.core.counts_only:
            raise ValueError("this pass only counts")
        self.core.count = 0
        return (
            memoryview(self.hashes)[: 4 * count].cast("i"),
            memoryview(self.offsets)[: 8 * count].cast("q"),
            memoryview(self.timestamps)[: 8 * count].cast("q"),
        )

    def take_count(self):
        cdef Py_ssize_t count = self.core.count
        if self.busy:
            raise RuntimeError("another thread is inside this pass")
        self.core.count = 0
        return count

    @property
    def count(self):
        return self.core.count

    @property
    def records(self):
        return self.core.records

    @property
    def next_offset(self):
        return self.next


def match_entries(entries, int64_t entry, hashes, offsets, timestamps, int64_t key,
                  int64_t begin_timestamp, /):
    """Step through entries and keys while they agree; return the (entry, key) where it stopped."""
    cdef Py_buffer views[4]
    cdef rs_key_match match
    cdef int i, status
    memset(views, 0, sizeof(views))
    try:
        rs_get_bytes(entries, &views[0], False)
        rs_get_integers(hashes, &views[1], 4, "hashes", False)
        rs_get_integers(offsets, &views[2], 8, "offsets", False)
        rs_get_integers(timestamps, &views[3], 8, "timestamps", False)
        match.entry_count = views[0].len // RS_INDEX_ENTRY_NBYTES
        match.key_count = views[1].len // 4
        if views[2].len // 8 != match.key_count or views[3].len // 8 != match.key_count:
            raise ValueError(
                f"arrays differ in length: {match.key_count}, {views[2].len // 8}, "
                f"{views[3].len // 8}"
            )
        if not 0 <= entry <= match.entry_count or not 0 <= key <= match.key_count:
            raise ValueError(
                f"entry {entry} or key {key} is outside {match.entry_count} entries and "
                f"{match.key_count} keys"
            )
        match.entries = <const uint8_t*>views[0].buf
        match.hashes = <const uint8_t*>views[1].buf
        match.offsets = <const uint8_t*>views[2].buf
        match.timestamps = <const uint8_t*>views[3].buf
        match.entry = entry
        match.key = key
        match.begin_timestamp = begin_timestamp
        with nogil:
            status = rs_guarded(rs_key_match_run, &match)
    finally:
        for i in range(4):
            PyBuffer_Release(&views[i])
    if status == RS_FAULT:
        rs_raise_fault()
    return match.entry, match.key
