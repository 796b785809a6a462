"""Index files: put keys, walk chains, check and rebuild (``index_file.pyi``)."""

from cpython.buffer cimport PyBuffer_Release
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memset

from rs_arguments cimport rs_get_bytes, rs_get_i32, rs_get_i64, rs_get_integers
from rs_bytes cimport RS_PREFETCH_WRITE, rs_store_be64
from rs_copy cimport rs_raise_fault
from rs_formats cimport (
    RS_INDEX_HEADER_BEGIN_PHYSICAL_OFFSET_AT, RS_INDEX_HEADER_BEGIN_TIMESTAMP_AT,
    RS_INDEX_HEADER_END_PHYSICAL_OFFSET_AT, RS_INDEX_HEADER_END_TIMESTAMP_AT,
    RS_INDEX_HEADER_NBYTES,
)
from rs_guard cimport rs_guard_import, rs_guarded
from rs_hash cimport rs_string_hash
from rs_index cimport (
    rs_index, rs_index_is_full, rs_index_key_hash, rs_index_load_header, rs_index_place,
    rs_index_put, rs_index_slot, rs_index_slot_at, rs_index_store_header,
)
from rs_index_check cimport (
    RS_INDEX_AHEAD, rs_check_header, rs_check_rest, rs_check_some, rs_check_work, rs_explain_all,
    rs_explain_work,
    rs_head, rs_rebuild_all, rs_rebuild_work,
)
from rs_index_walk cimport (
    rs_lookup, rs_lookup_all, rs_walk, rs_walk_first, rs_walk_next, rs_widened,
)
from rs_status cimport RS_BAD_ENTRY, RS_FAULT, RS_LIMIT, RS_OK

rs_guard_import()


cdef int place(rs_index* index, Py_buffer* view, int64_t slots, int64_t entries) except -1:
    if not rs_index_place(index, <uint8_t*>view.buf, view.len, slots, entries):
        raise ValueError(
            f"an index of {slots} slots and {entries} entries does not fit {view.len} bytes"
        )
    return 0


cdef int need_header(Py_buffer* view) except -1:
    if view.len < RS_INDEX_HEADER_NBYTES:
        raise ValueError(
            f"{view.len} bytes cannot hold an index header of {RS_INDEX_HEADER_NBYTES}"
        )
    return 0


# --- Hashes -----------------------------------------------------------------------------------

cdef struct Text:
    const uint8_t* start
    Py_ssize_t nbytes
    int32_t key_hash


cdef int hash_text(void* argument) noexcept nogil:
    cdef Text* text = <Text*>argument
    cdef uint32_t utf16_length
    cdef int32_t hash_code = rs_string_hash(text.start, <size_t>text.nbytes, &utf16_length)
    text.key_hash = rs_index_key_hash(hash_code)
    return RS_OK


cdef int32_t hash_of(object key) except -1:
    """Return the key's hash; only a buffer that may be a mapped file needs the guard."""
    cdef Text text
    cdef Py_buffer view
    cdef int status
    if PyBytes_CheckExact(key):
        text.start = <const uint8_t*>PyBytes_AS_STRING(key)
        text.nbytes = PyBytes_GET_SIZE(key)
        hash_text(&text)
        return text.key_hash
    rs_get_bytes(key, &view, False)
    text.start = <const uint8_t*>view.buf
    text.nbytes = view.len
    status = rs_guarded(hash_text, &text)
    PyBuffer_Release(&view)
    if status == RS_FAULT:
        rs_raise_fault()
    return text.key_hash


def key_hash(text, /):
    """Return ``abs`` of Java's ``String.hashCode``, 0 for -2**31."""
    return hash_of(text)


cdef int check_hashes(Py_buffer* view) except -1:
    cdef Py_ssize_t i
    for i in range(view.len // 4):
        if rs_get_i32(<const uint8_t*>view.buf, i) < 0:
            raise ValueError(f"hash {rs_get_i32(<const uint8_t*>view.buf, i)} at {i} is negative")
    return 0


# --- Header -----------------------------------------------------------------------------------

cdef struct Preset:
    uint8_t* base
    int64_t end_timestamp
    int64_t end_physical_offset


cdef int preset_header(void* argument) noexcept nogil:
    cdef Preset* preset = <Preset*>argument
    cdef uint8_t* header = preset.base
    if preset.end_physical_offset > 0:
        rs_store_be64(header + RS_INDEX_HEADER_BEGIN_PHYSICAL_OFFSET_AT, preset.end_physical_offset)
        rs_store_be64(header + RS_INDEX_HEADER_END_PHYSICAL_OFFSET_AT, preset.end_physical_offset)
    if preset.end_timestamp > 0:
        rs_store_be64(header + RS_INDEX_HEADER_BEGIN_TIMESTAMP_AT, preset.end_timestamp)
        rs_store_be64(header + RS_INDEX_HEADER_END_TIMESTAMP_AT, preset.end_timestamp)
    return RS_OK


def init_header(buffer, int64_t end_timestamp, int64_t end_physical_offset, /):
    """Preset a new file's header from the end of the previous file."""
    cdef Py_buffer view
    cdef Preset preset
    rs_get_bytes(buffer, &view, True)
    try:
        need_header(&view)
        preset.base = <uint8_t*>view.buf
        preset.end_timestamp = end_timestamp
        preset.end_physical_offset = end_physical_offset
        if rs_guarded(preset_header, &preset) == RS_FAULT:
            rs_raise_fault()
    finally:
        PyBuffer_Release(&view)


cdef int load_header(void* argument) noexcept nogil:
    rs_index_load_header(<rs_index*>argument)
    return RS_OK


def read_header(buffer, /):
    """Return the header's six fields; a count below 1 is read as 1."""
    cdef Py_buffer view
    cdef rs_index index
    rs_get_bytes(buffer, &view, False)
    try:
        need_header(&view)
        index.base = <uint8_t*>view.buf
        if rs_guarded(load_header, &index) == RS_FAULT:
            rs_raise_fault()
    finally:
        PyBuffer_Release(&view)
    return (
        index.begin_timestamp, index.end_timestamp, index.begin_physical_offset,
        index.end_physical_offset, index.hash_slot_count, index.count,
    )


# --- Put --------------------------------------------------------------------------------------

cdef struct Puts:
    rs_index index
    const uint8_t* hashes
    const uint8_t* physical_offsets
    const uint8_t* store_timestamps
    Py_ssize_t count
    Py_ssize_t put


cdef int put_all(void* argument) noexcept nogil:
    cdef Puts* puts = <Puts*>argument
    cdef rs_index index = puts.index
    cdef Py_ssize_t i
    cdef int32_t ahead
    rs_index_load_header(&index)
    for i in range(puts.count):
        if rs_index_is_full(&index):
            break
        if i + RS_INDEX_AHEAD < puts.count:
            ahead = rs_get_i32(puts.hashes, i + RS_INDEX_AHEAD)
            RS_PREFETCH_WRITE(rs_index_slot_at(&index, rs_index_slot(&index, ahead)))
        rs_index_put(
            &index, rs_get_i32(puts.hashes, i), rs_get_i64(puts.physical_offsets, i),
            rs_get_i64(puts.store_timestamps, i),
        )
        puts.put = i + 1
    rs_index_store_header(&index)
    return RS_OK


cdef int run_puts(Puts* puts) except -1:
    cdef int status
    puts.put = 0
    with nogil:
        status = rs_guarded(put_all, puts)
    if status == RS_FAULT:
        rs_raise_fault()
    return 0


def put_key(
    buffer, int64_t slots, int64_t entries, key, int64_t physical_offset, int64_t store_timestamp, /
):
    """Put one key (UTF-8 bytes of ``topic#key``); return ``False`` if the file is full."""
    cdef Py_buffer view
    cdef Puts puts
    cdef int32_t wanted
    rs_get_bytes(buffer, &view, True)
    try:
        place(&puts.index, &view, slots, entries)
        wanted = hash_of(key)
        puts.hashes = <const uint8_t*>&wanted
        puts.physical_offsets = <const uint8_t*>&physical_offset
        puts.store_timestamps = <const uint8_t*>&store_timestamp
        puts.count = 1
        run_puts(&puts)
    finally:
        PyBuffer_Release(&view)
    return puts.put == 1


def put_hashes(
    buffer, int64_t slots, int64_t entries, hashes, physical_offsets, store_timestamps, /
):
    """Put many keys by hash; return how many were put before the file was full."""
    cdef Py_buffer[4] views
    cdef Puts puts
    cdef int i
    memset(views, 0, sizeof(views))
    try:
        rs_get_bytes(buffer, &views[0], True)
        place(&puts.index, &views[0], slots, entries)
        rs_get_integers(hashes, &views[1], 4, "hashes", False)
        check_hashes(&views[1])
        rs_get_integers(physical_offsets, &views[2], 8, "physical_offsets", False)
        rs_get_integers(store_timestamps, &views[3], 8, "store_timestamps", False)
        puts.count = views[1].len // 4
        if views[2].len != 8 * puts.count or views[3].len != 8 * puts.count:
            raise ValueError(
                f"arrays differ in length: {puts.count}, {views[2].len // 8}, {views[3].len // 8}"
            )
        puts.hashes = <const uint8_t*>views[1].buf
        puts.physical_offsets = <const uint8_t*>views[2].buf
        puts.store_timestamps = <const uint8_t*>views[3].buf
        run_puts(&puts)
    finally:
        for i in range(4):
            PyBuffer_Release(&views[i])
    return puts.put


# --- Walk one chain ---------------------------------------------------------------------------

cdef tuple run_walk(rs_walk* walk):
    cdef list found = []
    cdef int status, i
    walk.found = 0
    walk.kept = 0
    with nogil:
        status = rs_guarded(rs_walk_first, walk)
    while True:
        if status == RS_FAULT:
            rs_raise_fault()
        for i in range(walk.kept):
            found.append(walk.offsets[i])
        if status != RS_LIMIT:
            return found, status
        with nogil:
            status = rs_guarded(rs_walk_next, walk)


def select_offsets(
    buffer, int64_t slots, int64_t entries, key, int64_t max_count, int64_t begin, int64_t end, /
):
    """Return the offsets of a key's hash that RocketMQ's ``selectPhyOffset`` finds."""
    cdef Py_buffer view
    cdef rs_walk walk
    rs_get_bytes(buffer, &view, False)
    try:
        place(&walk.index, &view, slots, entries)
        walk.wanted = hash_of(key)
        if max_count <= 0:
            return [], RS_OK
        walk.begin = begin
        walk.end = end
        walk.max_count = max_count
        walk.faithful = True
        return run_walk(&walk)
    finally:
        PyBuffer_Release(&view)


def walk_key(buffer, int64_t slots, int64_t entries, key, int64_t begin, int64_t end, /):
    """Return all offsets of the key's hash, newest first, for exact queries."""
    cdef Py_buffer view
    cdef rs_walk walk
    rs_get_bytes(buffer, &view, False)
    try:
        place(&walk.index, &view, slots, entries)
        walk.wanted = hash_of(key)
        walk.begin = rs_widened(begin)
        walk.end = end
        walk.faithful = False
        return run_walk(&walk)
    finally:
        PyBuffer_Release(&view)


# --- Walk many chains -------------------------------------------------------------------------

def lookup(
    buffer, int64_t slots, int64_t entries, hashes, int64_t begin, int64_t end,
    out_keys, out_offsets, int64_t start, /
):
    """Run ``walk_key`` for many hashes while the arrays have room for all hits of a hash."""
    cdef Py_buffer[4] views
    cdef rs_lookup state
    cdef int status, i
    memset(views, 0, sizeof(views))
    try:
        rs_get_bytes(buffer, &views[0], False)
        place(&state.index, &views[0], slots, entries)
        rs_get_integers(hashes, &views[1], 4, "hashes", False)
        check_hashes(&views[1])
        rs_get_integers(out_keys, &views[2], 8, "out_keys", True)
        rs_get_integers(out_offsets, &views[3], 8, "out_offsets", True)
        if views[2].len != views[3].len:
            raise ValueError(f"arrays differ in length: {views[2].len // 8}, {views[3].len // 8}")
        state.hashes = <const uint8_t*>views[1].buf
        state.count = views[1].len // 4
        if not 0 <= start <= state.count:
            raise ValueError(f"start {start} is outside {state.count} hashes")
        state.begin = rs_widened(begin)
        state.end = end
        state.out_keys = <uint8_t*>views[2].buf
        state.out_offsets = <uint8_t*>views[3].buf
        state.room = views[2].len // 8
        state.hits = 0
        state.next = <Py_ssize_t>start
        state.status = RS_OK
        with nogil:
            status = rs_guarded(rs_lookup_all, &state)
    finally:
        for i in range(4):
            PyBuffer_Release(&views[i])
    if status == RS_FAULT:
        return 0, start, RS_FAULT
    return state.hits, state.next, status


# --- Check and rebuild ------------------------------------------------------------------------

def check_entries(buffer, int64_t slots, int64_t entries, int64_t log_end, passed=None, /):
    """Count the valid leading entries; return ``BAD_ENTRY`` if anything is invalid."""
    cdef Py_buffer view
    cdef rs_check_work check
    cdef int status
    rs_get_bytes(buffer, &view, False)
    try:
        place(&check.index, &view, slots, entries)
        check.log_end = log_end
        check.good = 0
        check.last_offset = 0
        check.linked = True
        status = rs_guarded(rs_check_header, &check)
        if status == RS_OK:
            reserve_heads(&check)
            try:
                status = run_check(&check, passed)
            finally:
                PyMem_RawFree(check.heads)
                PyMem_RawFree(check.table)
    finally:
        PyBuffer_Release(&view)
    return check.good, status


cdef int run_check(rs_check_work* check, passed) except -1:
    """Check all entries, then the rest of the file."""
    cdef int status = RS_LIMIT
    while status == RS_LIMIT:
        with nogil:
            status = rs_guarded(rs_check_some, check)
        if status == RS_LIMIT and passed is not None:
            passed(check.good)
    if status == RS_OK:
        with nogil:
            status = rs_guarded(rs_check_rest, check)
    return status


cdef int reserve_heads(rs_check_work* check) except -1:
    cdef size_t slots = check.index.slots
    if check.table_bits:
        check.table = <rs_head*>PyMem_RawCalloc(<size_t>1 << check.table_bits, sizeof(rs_head))
    else:
        check.heads = <int32_t*>PyMem_RawCalloc(slots, sizeof(int32_t))
    if check.heads == NULL and check.table == NULL:
        raise MemoryError(f"no memory for {slots} slots")
    return 0


def rebuild(buffer, int64_t slots, int64_t entries, int64_t count, store_timestamps,
            content_end=None, /):
    """Keep the entries 1 to ``count`` and rebuild everything else from them."""
    cdef Py_buffer view
    cdef rs_rebuild_work work
    cdef int status
    work.first_timestamp, work.last_timestamp = store_timestamps
    rs_get_bytes(buffer, &view, True)
    try:
        place(&work.index, &view, slots, entries)
        if not 0 <= count < entries:
            raise ValueError(f"an index for {entries} entries cannot keep {count}")
        work.content_end = view.len if content_end is None else content_end
        if not 0 <= work.content_end <= view.len:
            raise ValueError(f"content that ends at {content_end} is outside {view.len} bytes")
        work.keep = <int32_t>count
        with nogil:
            status = rs_guarded(rs_rebuild_all, &work)
    finally:
        PyBuffer_Release(&view)
    if status == RS_BAD_ENTRY:
        raise ValueError(f"entry {work.bad} has a negative hash")
    if status == RS_FAULT:
        rs_raise_fault()


# --- Geometry ---------------------------------------------------------------------------------

def contradictions(buffer, int64_t slots, int64_t entries, /):
    """Return the number of facts in the file that contradict the geometry."""
    cdef Py_buffer view
    cdef rs_explain_work explain
    cdef int status
    rs_get_bytes(buffer, &view, False)
    try:
        place(&explain.index, &view, slots, entries)
        explain.nbytes = view.len
        explain.found = 0
        with nogil:
            status = rs_guarded(rs_explain_all, &explain)
    finally:
        PyBuffer_Release(&view)
    if status == RS_FAULT:
        rs_raise_fault()
    return explain.found
