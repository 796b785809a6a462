# Chains of an index file: walk one like RocketMQ or exactly, or many side by side.
#
# Entry points for rs_guarded: rs_walk_first, rs_walk_next, rs_lookup_all.
from libc.stdint cimport INT64_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from rs_arguments cimport rs_get_i32, rs_set_i64
from rs_bytes cimport (
    RS_PREFETCH_READ, rs_load_be32, rs_load_be32_acquire, rs_load_be32_shared, rs_load_be64,
)
from rs_formats cimport (
    RS_INDEX_ENTRY_KEY_HASH_AT, RS_INDEX_ENTRY_NBYTES, RS_INDEX_ENTRY_PHYSICAL_OFFSET_AT,
    RS_INDEX_ENTRY_PREVIOUS_INDEX_AT, RS_INDEX_ENTRY_TIME_DIFF_AT, RS_INDEX_HEADER_INDEX_COUNT_AT,
)
from rs_index cimport (
    rs_index, rs_index_entry_at, rs_index_load_header, rs_index_slot, rs_index_slot_at,
)
from rs_status cimport RS_BAD_CHAIN, RS_LIMIT, RS_OK

cdef enum:
    # Entries hold seconds, rounded down: a message may be this much younger than its entry's time.
    RS_ROUNDED_MS = 1000
    # Keys whose chains are walked side by side, and hits kept before they are sorted.
    RS_BLOCK_KEYS = 64
    RS_BLOCK_HITS = 512
    # Hits of one key collected between two calls into Python.
    RS_WALK_HITS = 64

# --- One chain ----------------------------------------------------------------------------------

cdef struct rs_walk:
    rs_index index
    int64_t begin
    int64_t end
    int64_t max_count # select_offsets only
    int64_t found
    int32_t wanted
    int32_t number # next entry of the chain, 0 at its end
    bint faithful # with RocketMQ's own bounds and stops
    int kept
    int64_t[RS_WALK_HITS] offsets


cdef inline int64_t rs_entry_time(const rs_index* index, int32_t time_diff) noexcept nogil:
    """Return begin time plus whole seconds; wraps as Java's long."""
    return <int64_t>(<uint64_t>index.begin_timestamp + <uint64_t>time_diff * 1000)


cdef inline bint rs_may_match(
    const rs_index* index, int32_t number, int32_t time_diff, int64_t begin, int64_t end
) noexcept nogil:
    """Return whether an exact query must read the message. Requires: begin is widened (rs_widened).

    The first entry's difference is not relative to its own file's begin time. A difference of 0 may
    mean any time up to the begin (a clock set back)."""
    if number == 1:
        return begin <= index.begin_timestamp <= end
    if time_diff == 0:
        return begin <= index.begin_timestamp or index.begin_timestamp <= 0
    return begin <= rs_entry_time(index, time_diff) <= end


cdef inline int32_t rs_chain_head(const rs_index* index, uint32_t slot) noexcept nogil:
    """Return the newest entry of the slot's chain, 0 if none. A writer may have put entries since
    the header was read, so a larger entry number reloads the header's count."""
    cdef int32_t head = rs_load_be32_acquire(rs_index_slot_at(index, slot))
    cdef int32_t count = index.count
    if head > count:
        count = rs_load_be32_shared(index.base + RS_INDEX_HEADER_INDEX_COUNT_AT)
    return head if count > 1 and 0 < head <= count else 0


cdef inline int32_t rs_older(const uint8_t* entry, int32_t number) noexcept nogil:
    """Return the next older entry, 0 at the end, -1 if the chain turns back. Numbers fall along a
    chain, which bounds every walk; an entry that links to itself ends it."""
    cdef int32_t previous = rs_load_be32(entry + RS_INDEX_ENTRY_PREVIOUS_INDEX_AT)
    if previous > number:
        return -1
    return previous if 0 < previous < number else 0


cdef inline int rs_walk_on(rs_walk* walk) noexcept nogil:
    """Collect offsets from walk.number on. Return RS_OK at the end, RS_LIMIT if there is no
    room."""
    cdef const uint8_t* entry
    cdef int32_t time_diff
    cdef int64_t time
    cdef bint matches, wanted
    walk.kept = 0
    while walk.number > 0:
        if walk.kept == RS_WALK_HITS:
            return RS_LIMIT
        if walk.number >= walk.index.entries:
            return RS_BAD_CHAIN
        entry = rs_index_entry_at(&walk.index, walk.number)
        time_diff = rs_load_be32(entry + RS_INDEX_ENTRY_TIME_DIFF_AT)
        if time_diff < 0:
            return RS_BAD_CHAIN
        time = rs_entry_time(&walk.index, time_diff)
        wanted = rs_load_be32(entry + RS_INDEX_ENTRY_KEY_HASH_AT) == walk.wanted
        if walk.faithful:
            matches = walk.begin <= time <= walk.end
        else:
            matches = rs_may_match(&walk.index, walk.number, time_diff, walk.begin, walk.end)
        if wanted and matches:
            walk.offsets[walk.kept] = rs_load_be64(entry + RS_INDEX_ENTRY_PHYSICAL_OFFSET_AT)
            walk.kept += 1
            walk.found += 1
        if walk.faithful and (walk.found >= walk.max_count or time < walk.begin):
            return RS_OK
        walk.number = rs_older(entry, walk.number)
    return RS_OK if walk.number == 0 else RS_BAD_CHAIN


cdef inline int rs_walk_first(void* argument) noexcept nogil:
    cdef rs_walk* walk = <rs_walk*>argument
    rs_index_load_header(&walk.index)
    walk.number = rs_chain_head(&walk.index, rs_index_slot(&walk.index, walk.wanted))
    return rs_walk_on(walk)


cdef inline int rs_walk_next(void* argument) noexcept nogil:
    return rs_walk_on(<rs_walk*>argument)


cdef inline int64_t rs_widened(int64_t begin) noexcept nogil:
    return begin - RS_ROUNDED_MS if begin > INT64_MIN + RS_ROUNDED_MS else INT64_MIN


# --- Many chains --------------------------------------------------------------------------------

cdef struct rs_lookup:
    rs_index index
    int64_t begin
    int64_t end
    const uint8_t* hashes
    Py_ssize_t count
    uint8_t* out_keys
    uint8_t* out_offsets
    Py_ssize_t room
    Py_ssize_t hits
    Py_ssize_t next
    int status


cdef struct rs_block:
    # The chains still walked: key within the block, hash, and next entry.
    int active
    int hits
    bint bad
    uint8_t[RS_BLOCK_KEYS] keys
    int32_t[RS_BLOCK_KEYS] wanted
    int32_t[RS_BLOCK_KEYS] numbers
    # Hits in the order of the rounds.
    uint8_t[RS_BLOCK_HITS] hit_keys
    int64_t[RS_BLOCK_HITS] hit_offsets


cdef inline void rs_prefetch_entry(const rs_index* index, int32_t number) noexcept nogil:
    """Prefetch an entry, which may span two cache lines. Requires 0 < number < entries."""
    cdef const uint8_t* entry = rs_index_entry_at(index, number)
    RS_PREFETCH_READ(entry)
    RS_PREFETCH_READ(entry + RS_INDEX_ENTRY_NBYTES - 1)


cdef inline void rs_keep_active(
    rs_block* block, const rs_index* index, int from_, int32_t number
) noexcept nogil:
    """Continue the chain in place `from_` at `number`; drop a broken one."""
    if number == 0:
        return
    if number < 0 or number >= index.entries:
        block.bad = True
        return
    rs_prefetch_entry(index, number)
    block.keys[block.active] = block.keys[from_]
    block.wanted[block.active] = block.wanted[from_]
    block.numbers[block.active] = number
    block.active += 1


cdef inline void rs_open_block(rs_lookup* lookup, rs_block* block, int keys) noexcept nogil:
    """Find the heads of the block's chains."""
    cdef uint32_t[RS_BLOCK_KEYS] slots
    cdef int i
    block.hits = 0
    block.bad = False
    block.active = 0
    for i in range(keys):
        block.keys[i] = <uint8_t>i
        block.wanted[i] = rs_get_i32(lookup.hashes, lookup.next + i)
        slots[i] = rs_index_slot(&lookup.index, block.wanted[i])
        RS_PREFETCH_READ(rs_index_slot_at(&lookup.index, slots[i]))
    for i in range(keys):
        rs_keep_active(block, &lookup.index, i, rs_chain_head(&lookup.index, slots[i]))


cdef inline bint rs_walk_round(rs_lookup* lookup, rs_block* block) noexcept nogil:
    """Follow every active chain by one entry. Return False if there is no room for the hits."""
    cdef const uint8_t* entry
    cdef int32_t number, time_diff
    cdef int i, walked = block.active
    if block.hits + walked > RS_BLOCK_HITS:
        return False
    block.active = 0
    for i in range(walked):
        number = block.numbers[i]
        entry = rs_index_entry_at(&lookup.index, number)
        time_diff = rs_load_be32(entry + RS_INDEX_ENTRY_TIME_DIFF_AT)
        if time_diff < 0:
            block.bad = True
            continue
        if rs_load_be32(entry + RS_INDEX_ENTRY_KEY_HASH_AT) == block.wanted[i] and rs_may_match(
            &lookup.index, number, time_diff, lookup.begin, lookup.end
        ):
            block.hit_keys[block.hits] = block.keys[i]
            block.hit_offsets[block.hits] = rs_load_be64(entry + RS_INDEX_ENTRY_PHYSICAL_OFFSET_AT)
            block.hits += 1
        rs_keep_active(block, &lookup.index, i, rs_older(entry, number))
    return True


cdef inline void rs_emit_block(rs_lookup* lookup, rs_block* block, int keys) noexcept nogil:
    """Write the hits ordered by key, each key's in the order found (newest first)."""
    cdef Py_ssize_t[RS_BLOCK_KEYS + 1] places
    cdef Py_ssize_t at
    cdef int i
    for i in range(keys + 1):
        places[i] = 0
    for i in range(block.hits):
        places[block.hit_keys[i] + 1] += 1
    places[0] = lookup.hits
    for i in range(keys):
        places[i + 1] += places[i]
    for i in range(block.hits):
        at = places[block.hit_keys[i]]
        places[block.hit_keys[i]] = at + 1
        rs_set_i64(lookup.out_keys, at, lookup.next + block.hit_keys[i])
        rs_set_i64(lookup.out_offsets, at, block.hit_offsets[i])
    lookup.hits += block.hits


cdef inline bint rs_lookup_block(rs_lookup* lookup, rs_block* block, int keys) noexcept nogil:
    """Walk the next chains side by side. Return False, with nothing done, on too many hits."""
    rs_open_block(lookup, block, keys)
    while block.active > 0:
        if not rs_walk_round(lookup, block):
            return False
    if block.hits > lookup.room - lookup.hits:
        return False
    rs_emit_block(lookup, block, keys)
    if block.bad:
        lookup.status = RS_BAD_CHAIN
    lookup.next += keys
    return True


cdef inline bint rs_lookup_one(rs_lookup* lookup) noexcept nogil:
    """Walk the next chain directly into the arrays. Return False if its hits do not all fit."""
    cdef const uint8_t* entry
    cdef Py_ssize_t hits = lookup.hits
    cdef int64_t offset
    cdef int32_t wanted = rs_get_i32(lookup.hashes, lookup.next)
    cdef int32_t number = rs_chain_head(&lookup.index, rs_index_slot(&lookup.index, wanted))
    cdef int32_t time_diff
    while number > 0:
        entry = rs_index_entry_at(&lookup.index, number)
        time_diff = -1
        if number < lookup.index.entries:
            time_diff = rs_load_be32(entry + RS_INDEX_ENTRY_TIME_DIFF_AT)
        if time_diff < 0:
            number = -1
            break
        if rs_load_be32(entry + RS_INDEX_ENTRY_KEY_HASH_AT) == wanted and rs_may_match(
            &lookup.index, number, time_diff, lookup.begin, lookup.end
        ):
            if hits == lookup.room:
                return False
            rs_set_i64(lookup.out_keys, hits, lookup.next)
            offset = rs_load_be64(entry + RS_INDEX_ENTRY_PHYSICAL_OFFSET_AT)
            rs_set_i64(lookup.out_offsets, hits, offset)
            hits += 1
        number = rs_older(entry, number)
    if number < 0:
        lookup.status = RS_BAD_CHAIN
    lookup.hits = hits
    lookup.next += 1
    return True


cdef inline int rs_lookup_all(void* argument) noexcept nogil:
    cdef rs_lookup* lookup = <rs_lookup*>argument
    cdef rs_block block
    cdef Py_ssize_t left
    cdef int keys, i
    rs_index_load_header(&lookup.index)
    while lookup.next < lookup.count:
        left = lookup.count - lookup.next
        keys = RS_BLOCK_KEYS if left > RS_BLOCK_KEYS else <int>left
        if rs_lookup_block(lookup, &block, keys):
            continue
        for i in range(keys):
            if not rs_lookup_one(lookup):
                return lookup.status
    return lookup.status
