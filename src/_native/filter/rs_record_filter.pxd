# Which records a pass takes, filled from a ``RecordFilters``.
#
# The tables point into bytes objects: the caller keeps them in a list as long as the filter.
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc

from rs_sql92 cimport rs_compile, rs_sql92_filter
from rs_status cimport RS_OK

cdef extern from "rs_record_filter.h" nogil:
    ctypedef struct rs_text_table:
        void *slots

    ctypedef struct rs_queue_range:
        int64_t first
        int64_t last
        int32_t queue_id

    ctypedef struct rs_topic_rule:
        int64_t id_count
        int64_t range_count
        int32_t *ids
        rs_queue_range *ranges
        int32_t wanted

    ctypedef struct rs_record_filter:
        rs_text_table topics
        rs_text_table tags
        rs_text_table keys
        rs_topic_rule *rules
        int64_t rule_count
        int64_t first_time
        int64_t last_time
        int32_t other_topics
        rs_sql92_filter *sql

    int rs_begin_text_table(rs_text_table *table, int64_t count)
    void rs_add_text(rs_text_table *table, const uint8_t *p, int32_t n, int32_t value)
    void rs_free_filter(rs_record_filter *filter)


cdef inline int rs_fill_table(rs_text_table* table, texts, list kept) except -1:
    """Map texts to their numbers; the table points into the bytes objects, which are kept."""
    cdef int32_t number
    if rs_begin_text_table(table, len(texts)) != RS_OK:
        raise MemoryError
    for number, text in enumerate(texts):
        if len(text) > INT32_MAX:
            continue  # no record contains it
        kept.append(text)
        rs_add_text(
            table, <const uint8_t*>PyBytes_AS_STRING(text), <int32_t>len(text), number
        )
    return 0


cdef inline void* rs_zeros(Py_ssize_t count, size_t nbytes) except NULL:
    cdef void* memory = calloc(<size_t>max(count, 1), nbytes)
    if memory == NULL:
        raise MemoryError
    return memory


cdef inline int rs_fill_rule(rs_topic_rule* rule, bint wanted, ids, ranges) except -1:
    cdef Py_ssize_t i
    rule.wanted = wanted
    rule.id_count = -1
    if ids is not None:
        rule.ids = <int32_t*>rs_zeros(len(ids), sizeof(int32_t))
        for i in range(len(ids)):
            rule.ids[i] = ids[i]
        rule.id_count = len(ids)
    rule.ranges = <rs_queue_range*>rs_zeros(len(ranges), sizeof(rs_queue_range))
    for i in range(len(ranges)):
        rule.ranges[i].queue_id, rule.ranges[i].first, rule.ranges[i].last = ranges[i]
    rule.range_count = len(ranges)
    return 0


cdef inline int rs_fill_filter(rs_record_filter* target, filters, list kept) except -1:
    cdef Py_ssize_t i
    cdef list topics
    target.first_time = filters.first_time
    target.last_time = filters.last_time
    target.other_topics = filters.topics is None and filters.queue_ids is None
    if filters.filter is not None:
        rs_compile(&target.sql, filters.filter.program)
    if filters.tags is not None:
        rs_fill_table(&target.tags, filters.tags, kept)
    if filters.keys is not None:
        rs_fill_table(&target.keys, filters.keys, kept)
    if target.other_topics and not filters.ranges:
        return 0
    topics = list({*(filters.topics or ()), *(filters.queue_ids or ()), *filters.ranges})
    rs_fill_table(&target.topics, topics, kept)
    target.rules = <rs_topic_rule*>rs_zeros(len(topics), sizeof(rs_topic_rule))
    target.rule_count = len(topics)
    for i, topic in enumerate(topics):
        wanted = filters.topics is None or topic in filters.topics
        ids = None if filters.queue_ids is None else filters.queue_ids.get(topic, ())
        rs_fill_rule(&target.rules[i], wanted, ids, filters.ranges.get(topic, ()))
    return 0
