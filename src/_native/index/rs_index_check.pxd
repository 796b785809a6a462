# Whole index files: check the entries, rebuild everything else from them, check a geometry.
#
# Entry points for rs_guarded: rs_check_header, rs_check_some, rs_check_rest,
# rs_rebuild_all, rs_explain_all.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from rs_bytes cimport (
    RS_PREFETCH_WRITE, rs_load_be32, rs_load_be64, rs_load_u32, rs_load_u64, rs_store_be32,
)
from rs_formats cimport (
    RS_INDEX_ENTRY_KEY_HASH_AT, RS_INDEX_ENTRY_NBYTES, RS_INDEX_ENTRY_PHYSICAL_OFFSET_AT,
    RS_INDEX_ENTRY_PREVIOUS_INDEX_AT, RS_INDEX_ENTRY_TIME_DIFF_AT, RS_INDEX_HEADER_NBYTES,
)
from rs_index cimport (
    rs_index, rs_index_entry_at, rs_index_load_header, rs_index_slot, rs_index_slot_at,
    rs_index_store_header,
)
from rs_index_walk cimport rs_prefetch_entry
from rs_status cimport RS_BAD_ENTRY, RS_LIMIT, RS_OK

cdef enum:
    # How far ahead slots and chains are prefetched.
    RS_INDEX_AHEAD = 32
    # Bytes per step in a search for zeros: whole entries and whole words.
    RS_ZERO_BLOCK_ENTRIES = 16
    RS_ZERO_BLOCK_NBYTES = RS_ZERO_BLOCK_ENTRIES * RS_INDEX_ENTRY_NBYTES
    # A file with so many slots per entry is checked with a table of the slots in use. One head per
    # slot would be as large as all slots, to be zeroed and read for a few entries.
    RS_SLOTS_PER_HEAD = 16
    # Entries that are checked in one call: 20 MiB.
    RS_CHECKED_AT_ONCE = 1 << 20


cdef inline int32_t rs_hash_at(const rs_index* index, int32_t number) noexcept nogil:
    return rs_load_be32(rs_index_entry_at(index, number) + RS_INDEX_ENTRY_KEY_HASH_AT)


cdef inline int64_t rs_offset_at(const rs_index* index, int32_t number) noexcept nogil:
    return rs_load_be64(rs_index_entry_at(index, number) + RS_INDEX_ENTRY_PHYSICAL_OFFSET_AT)


cdef struct rs_head:
    uint32_t slot
    int32_t number # 0: the place is free


cdef struct rs_check_work:
    rs_index index
    int64_t log_end
    int32_t stop # after the last entry that the header counts and the file has
    # Expected slots are gathered in one of the two, initially zero; the other is NULL.
    int32_t* heads # one for each slot
    rs_head* table # for the slots in use, 2**table_bits places
    int table_bits
    int32_t good
    int64_t last_offset # of entry `good`
    bint linked


cdef inline int rs_check_header(void* argument) noexcept nogil:
    """Load the header once: later checks must not depend on changes by another process."""
    cdef rs_check_work* check = <rs_check_work*>argument
    cdef const rs_index* index = &check.index
    rs_index_load_header(&check.index)
    check.stop = index.count if index.count < index.entries else index.entries
    check.heads = NULL
    check.table = NULL
    check.table_bits = 0
    if check.stop <= <int64_t>index.slots // RS_SLOTS_PER_HEAD:
        check.table_bits = 1
        while (<int64_t>1 << check.table_bits) < 2 * <int64_t>check.stop:
            check.table_bits += 1
    return RS_OK


cdef inline rs_head* rs_place_in_table(const rs_check_work* check, uint32_t slot) noexcept nogil:
    return &check.table[(slot * <uint32_t>2654435769) >> (32 - check.table_bits)]


cdef inline int32_t* rs_head_of(const rs_check_work* check, uint32_t slot) noexcept nogil:
    """Return the place of a slot's head. There are at least twice as many places as entries."""
    cdef rs_head* place
    cdef const rs_head* end
    if check.heads != NULL:
        return &check.heads[slot]
    place = rs_place_in_table(check, slot)
    end = check.table + (<int64_t>1 << check.table_bits)
    while place.number != 0 and place.slot != slot:
        place += 1
        if place == end:
            place = check.table
    place.slot = slot
    return &place.number


cdef inline void rs_prefetch_head(const rs_check_work* check, uint32_t slot) noexcept nogil:
    if check.heads != NULL:
        RS_PREFETCH_WRITE(&check.heads[slot])
    else:
        RS_PREFETCH_WRITE(rs_place_in_table(check, slot))


cdef inline bint rs_follows(
    const rs_check_work* check, const uint8_t* entry, int32_t number, int64_t last_offset
) noexcept nogil:
    """Return whether an entry is valid after the previous one."""
    cdef int64_t offset = rs_load_be64(entry + RS_INDEX_ENTRY_PHYSICAL_OFFSET_AT)
    cdef int32_t previous = rs_load_be32(entry + RS_INDEX_ENTRY_PREVIOUS_INDEX_AT)
    return (
        rs_load_be32(entry + RS_INDEX_ENTRY_KEY_HASH_AT) >= 0
        and last_offset <= offset < check.log_end
        and rs_load_be32(entry + RS_INDEX_ENTRY_TIME_DIFF_AT) >= 0
        and 0 <= previous < number
    )


cdef inline void rs_check_link(
    rs_check_work* check, const rs_index* index, const uint8_t* entry, int32_t number
) noexcept nogil:
    """Link the entry as a put would; its own link must be equal."""
    cdef int32_t* head = rs_head_of(
        check, rs_index_slot(index, rs_load_be32(entry + RS_INDEX_ENTRY_KEY_HASH_AT))
    )
    check.linked &= rs_load_be32(entry + RS_INDEX_ENTRY_PREVIOUS_INDEX_AT) == head[0]
    head[0] = number


cdef inline bint rs_slots_hold(const rs_check_work* check, const rs_index* index) noexcept nogil:
    """Return whether the slots equal the heads, and all others are empty."""
    cdef int32_t differences = 0
    cdef int64_t used = 0
    cdef int64_t at
    cdef uint32_t slot
    if check.heads != NULL:
        for slot in range(index.slots):
            differences |= check.heads[slot] ^ rs_load_be32(rs_index_slot_at(index, slot))
        return differences == 0
    for slot in range(index.slots):
        used += rs_load_u32(rs_index_slot_at(index, slot)) != 0
    for at in range(<int64_t>1 << check.table_bits):
        if check.table[at].number != 0:
            slot = check.table[at].slot
            differences |= check.table[at].number ^ rs_load_be32(rs_index_slot_at(index, slot))
            used -= 1
    return differences == 0 and used == 0


cdef inline int rs_check_some(void* argument) noexcept nogil:
    """Check the next entries. Return RS_LIMIT if there are more."""
    cdef rs_check_work* check = <rs_check_work*>argument
    cdef rs_index index = check.index
    cdef const uint8_t* entry
    cdef int32_t number, first = check.good + 1
    cdef int32_t stop = check.stop
    if stop - first > RS_CHECKED_AT_ONCE:
        stop = first + RS_CHECKED_AT_ONCE
    for number in range(first, stop):
        entry = rs_index_entry_at(&index, number)
        if stop - number > RS_INDEX_AHEAD:
            rs_prefetch_head(
                check, rs_index_slot(&index, rs_hash_at(&index, number + RS_INDEX_AHEAD))
            )
        if not rs_follows(check, entry, number, check.last_offset):
            return RS_BAD_ENTRY
        rs_check_link(check, &index, entry, number)
        check.good = number
        check.last_offset = rs_load_be64(entry + RS_INDEX_ENTRY_PHYSICAL_OFFSET_AT)
    return RS_OK if stop >= check.stop else RS_LIMIT


cdef inline int rs_check_rest(void* argument) noexcept nogil:
    """Check header and slots after all entries. After a kill slots may point past the count, where
    the next puts would see them as empty and lose their chains."""
    cdef rs_check_work* check = <rs_check_work*>argument
    cdef rs_index index = check.index
    if index.count > index.entries or not check.linked:
        return RS_BAD_ENTRY
    if check.good > 0 and (
        index.begin_physical_offset != rs_offset_at(&index, 1)
        or index.end_physical_offset != check.last_offset
    ):
        return RS_BAD_ENTRY
    return RS_OK if rs_slots_hold(check, &index) else RS_BAD_ENTRY


cdef inline bint rs_is_zero(const uint8_t* p, Py_ssize_t nbytes) noexcept nogil:
    """Return whether the bytes are zero. Requires: nbytes is a multiple of 4."""
    cdef uint64_t seen = 0
    cdef Py_ssize_t at = 0
    while at + 8 <= nbytes:
        seen |= rs_load_u64(p + at)
        at += 8
    if at < nbytes:
        seen |= rs_load_u32(p + at)
    return seen == 0


cdef inline void rs_clear(uint8_t* p, int64_t nbytes) noexcept nogil:
    """Write zeros only over other bytes: a sparse file stays sparse."""
    if nbytes <= 0:
        return
    while nbytes >= RS_ZERO_BLOCK_NBYTES:
        if not rs_is_zero(p, RS_ZERO_BLOCK_NBYTES):
            memset(p, 0, RS_ZERO_BLOCK_NBYTES)
        p += RS_ZERO_BLOCK_NBYTES
        nbytes -= RS_ZERO_BLOCK_NBYTES
    memset(p, 0, <size_t>nbytes)


cdef struct rs_rebuild_work:
    rs_index index
    int64_t content_end # only zeros follow it
    int64_t first_timestamp
    int64_t last_timestamp
    int32_t keep
    int32_t bad


cdef inline uint8_t* rs_slot_of_entry(const rs_index* index, int32_t number) noexcept nogil:
    return rs_index_slot_at(index, rs_index_slot(index, rs_hash_at(index, number)))


cdef inline void rs_link_again(rs_index* index, int32_t keep) noexcept nogil:
    """Link the entries 1 .. keep in order into empty slots, and count those."""
    cdef uint8_t* slot_at
    cdef int32_t number, previous
    index.hash_slot_count = 0
    for number in range(1, keep + 1):
        if keep - number >= RS_INDEX_AHEAD:
            RS_PREFETCH_WRITE(rs_slot_of_entry(index, number + RS_INDEX_AHEAD))
        slot_at = rs_slot_of_entry(index, number)
        previous = rs_load_be32(slot_at)
        index.hash_slot_count += previous == 0
        rs_store_be32(rs_index_entry_at(index, number) + RS_INDEX_ENTRY_PREVIOUS_INDEX_AT, previous)
        rs_store_be32(slot_at, number)


cdef inline int rs_rebuild_all(void* argument) noexcept nogil:
    cdef rs_rebuild_work* work = <rs_rebuild_work*>argument
    cdef rs_index index = work.index
    cdef int32_t number
    cdef uint8_t* rest
    for number in range(1, work.keep + 1):
        if rs_hash_at(&index, number) < 0:
            work.bad = number
            return RS_BAD_ENTRY
    rest = rs_index_entry_at(&index, work.keep) + RS_INDEX_ENTRY_NBYTES
    rs_clear(index.slots_at, rs_index_entry_at(&index, 0) + RS_INDEX_ENTRY_NBYTES - index.slots_at)
    rs_clear(rest, work.content_end - (rest - index.base))
    rs_link_again(&index, work.keep)
    if work.keep == 0:
        memset(index.base, 0, RS_INDEX_HEADER_NBYTES)
        return RS_OK
    index.begin_timestamp = work.first_timestamp
    index.end_timestamp = work.last_timestamp
    index.begin_physical_offset = rs_offset_at(&index, 1)
    index.end_physical_offset = rs_offset_at(&index, work.keep)
    index.count = work.keep + 1
    index.stored_count = 0
    rs_index_store_header(&index)
    return RS_OK


cdef struct rs_explain_work:
    rs_index index
    int64_t nbytes
    int64_t found


cdef inline int64_t rs_chain_contradictions(
    const rs_index* index, uint32_t slot, int32_t last, int64_t* reached
) noexcept nogil:
    """Return 1 if the chain is broken; add the entries it reached. An entry belongs to one slot and
    numbers fall, so all chains together take no more steps than there are entries and slots."""
    cdef int32_t number = rs_load_be32(rs_index_slot_at(index, slot))
    cdef int32_t below = last + 1
    cdef int32_t key
    while number != 0:
        if not 0 < number < below:
            return 1
        key = rs_hash_at(index, number)
        if key < 0 or rs_index_slot(index, key) != slot:
            return 1
        below = number
        number = rs_load_be32(rs_index_entry_at(index, number) + RS_INDEX_ENTRY_PREVIOUS_INDEX_AT)
        reached[0] += 1
    return 0


cdef inline int64_t rs_all_chains(const rs_index* index, int32_t last) noexcept nogil:
    cdef int64_t found = 0, reached = 0
    cdef uint32_t slot
    cdef int32_t head
    for slot in range(index.slots):
        if slot + RS_INDEX_AHEAD < index.slots:
            head = rs_load_be32(rs_index_slot_at(index, slot + RS_INDEX_AHEAD))
            if 0 < head <= last:
                rs_prefetch_entry(index, head)
        found += rs_chain_contradictions(index, slot, last, &reached)
    return found + last - reached


cdef inline int64_t rs_written_pieces(const uint8_t* p, int64_t nbytes) noexcept nogil:
    """Count the entry-sized pieces that are not zero; the last one may be shorter."""
    cdef int64_t found = 0
    cdef Py_ssize_t at
    while nbytes >= RS_ZERO_BLOCK_NBYTES:
        if not rs_is_zero(p, RS_ZERO_BLOCK_NBYTES):
            for at in range(RS_ZERO_BLOCK_ENTRIES):
                found += not rs_is_zero(p + at * RS_INDEX_ENTRY_NBYTES, RS_INDEX_ENTRY_NBYTES)
        p += RS_ZERO_BLOCK_NBYTES
        nbytes -= RS_ZERO_BLOCK_NBYTES
    while nbytes >= RS_INDEX_ENTRY_NBYTES:
        found += not rs_is_zero(p, RS_INDEX_ENTRY_NBYTES)
        p += RS_INDEX_ENTRY_NBYTES
        nbytes -= RS_INDEX_ENTRY_NBYTES
    for at in range(nbytes):
        if p[at] != 0:
            return found + 1
    return found


cdef inline int rs_explain_all(void* argument) noexcept nogil:
    cdef rs_explain_work* explain = <rs_explain_work*>argument
    cdef rs_index index = explain.index
    cdef int32_t last
    cdef const uint8_t* rest
    rs_index_load_header(&index)
    if index.count <= 1:
        return RS_OK
    last = (index.count if index.count < index.entries else index.entries) - 1
    explain.found = index.count > index.entries
    explain.found += rs_all_chains(&index, last)
    explain.found += not rs_is_zero(rs_index_entry_at(&index, 0), RS_INDEX_ENTRY_NBYTES)
    rest = rs_index_entry_at(&index, last) + RS_INDEX_ENTRY_NBYTES
    explain.found += rs_written_pieces(rest, explain.nbytes - (rest - index.base))
    if last > 0:
        explain.found += rs_offset_at(&index, 1) != index.begin_physical_offset
        explain.found += rs_offset_at(&index, last) != index.end_physical_offset
    return RS_OK
