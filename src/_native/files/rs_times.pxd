# How long calls take, by ms. Counts are kept in a dict: few calls are timed.
from libc.stdint cimport int32_t, int64_t

cdef extern from "rs_times.h" nogil:
    enum:
        RS_TIMES_LONGEST_MS
    ctypedef struct rs_times:
        int64_t left
        int64_t until
        int64_t longest_ms
    ctypedef struct rs_timed:
        int64_t begin_ns
        int32_t waits
    int64_t rs_sampled_ns(int64_t number)
    void rs_times_begin(rs_times *times, rs_timed *call, bint waits)
    void rs_times_wait(rs_timed *call)
    int64_t rs_elapsed_ms(int64_t begin_ns, int64_t *longest_ms)


cdef inline int rs_count_time(dict counts, int64_t elapsed_ms, bint waits) except -1:
    """Count one time; waits have the odd keys."""
    cdef object key = min(elapsed_ms, RS_TIMES_LONGEST_MS) * 2 + waits
    counts[key] = counts.get(key, 0) + 1
    return 0


cdef inline int rs_times_end(rs_times *times, dict counts, const rs_timed *call) except -1:
    """Count the time of a call, if it is timed."""
    if call.begin_ns == 0:
        return 0
    return rs_count_time(counts, rs_elapsed_ms(call.begin_ns, &times.longest_ms), call.waits)


cdef inline int rs_times_add(rs_times *times, dict counts, int64_t elapsed_ms) except -1:
    """Count the time of a call that waited."""
    times.until += 1
    times.longest_ms = max(times.longest_ms, elapsed_ms)
    return rs_count_time(counts, elapsed_ms, True)


cdef inline tuple rs_times_read(const rs_times *times, dict counts):
    """Return the calls, the longest in ms, and by ms how many of the sample, and of waits."""
    sampled = {key >> 1: count for key, count in counts.items() if not key & 1}
    waited = {key >> 1: count for key, count in counts.items() if key & 1}
    return times.until - times.left, times.longest_ms, sampled, waited
