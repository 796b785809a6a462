# A query by key over the index files of a store, as RocketMQ does it: the newest file first.
#
# Entry points for rs_guarded: rs_query_index, rs_find_index.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from rs_formats cimport RS_INDEX_KEY_SEPARATOR
from rs_hash cimport rs_hash_extend, rs_string_hash
from rs_index cimport rs_index_key_hash
from rs_index_walk cimport RS_WALK_HITS, rs_chain_head, rs_walk, rs_walk_on, rs_walk_first
from rs_index cimport rs_index_load_header, rs_index_slot
from rs_status cimport RS_OK

cdef extern from *:
    """
    /* Point at the text of an exact, compact str that is ASCII; return 0 for any other. */
    static inline int rs_take_ascii(PyObject *text, const uint8_t **p, size_t *n)
    {
        if (!PyUnicode_CheckExact(text) || !PyUnicode_IS_COMPACT_ASCII(text)) {
            return 0;
        }
        *p = (const uint8_t *)PyUnicode_1BYTE_DATA(text);
        *n = (size_t)PyUnicode_GET_LENGTH(text);
        return 1;
    }
    """
    bint rs_take_ascii(object text, const uint8_t** p, size_t* n)

cdef struct rs_key_query:
    rs_walk walk  # of the current file
    int64_t max_count
    int count
    int64_t[RS_WALK_HITS] hits
    # Where the index ends: in the newest file.
    bint has_end
    int64_t end_timestamp
    int64_t end_physical_offset


cdef inline bint rs_hash_key(object topic, object key, int32_t* key_hash) except -1:
    """Hash ``topic#key``; return False if that is not plain ASCII."""
    cdef const uint8_t* p
    cdef size_t n
    cdef uint32_t units
    cdef int32_t value
    if not rs_take_ascii(topic, &p, &n):
        return False
    value = rs_hash_extend(rs_string_hash(p, n, &units), RS_INDEX_KEY_SEPARATOR[0], 1)
    if not rs_take_ascii(key, &p, &n):
        return False
    key_hash[0] = rs_index_key_hash(
        rs_hash_extend(value, rs_string_hash(p, n, &units), <uint32_t>n))
    return True


cdef inline bint rs_overlaps(const rs_key_query* query) noexcept nogil:
    """Return whether the file's times overlap the query's: RocketMQ's test."""
    cdef int64_t first = query.walk.index.begin_timestamp
    cdef int64_t last = query.walk.index.end_timestamp
    cdef int64_t begin = query.walk.begin
    cdef int64_t end = query.walk.end
    return (begin < first and end > last) or first <= begin <= last or first <= end <= last


cdef inline int rs_query_index(void* argument) noexcept nogil:
    """Collect the hits of one file."""
    cdef rs_key_query* query = <rs_key_query*>argument
    cdef rs_walk* walk = &query.walk
    walk.kept = 0
    walk.found = 0
    walk.max_count = query.max_count - query.count
    rs_index_load_header(&walk.index)
    if not query.has_end:
        query.has_end = True
        query.end_timestamp = walk.index.end_timestamp
        query.end_physical_offset = walk.index.end_physical_offset
    if not rs_overlaps(query):
        return RS_OK
    walk.number = rs_chain_head(&walk.index, rs_index_slot(&walk.index, walk.wanted))
    return rs_walk_on(walk)


cdef inline bint rs_keep_hits(rs_key_query* query) noexcept nogil:
    """Add the hits of a file, all hits ascending. Return False if there is no room."""
    cdef int i, at
    cdef int64_t offset
    if query.walk.kept > RS_WALK_HITS - query.count:
        return False
    for i in range(query.walk.kept):
        offset = query.walk.offsets[i]
        at = query.count
        while at > 0 and query.hits[at - 1] > offset:
            query.hits[at] = query.hits[at - 1]
            at -= 1
        query.hits[at] = offset
        query.count += 1
    return True


cdef inline int rs_find_index(void* argument) noexcept nogil:
    """Collect all hits of one file, for an exact search."""
    return rs_walk_first(&(<rs_key_query*>argument).walk)
