/* How long calls take: of each call that is known to wait, and of a sample of the others.
 * guarded by: the GIL. */
#ifndef RS_TIMES_H
#define RS_TIMES_H
#include <stdint.h>

#include "rs_bytes.h"
#include "rs_mutex.h"

enum {
    RS_TIMES_SHARE = 256,        /* of so many calls, one is timed on average */
    RS_TIMES_LONGEST_MS = 10001, /* longer times count as this one */
};

/* Counting down to the next call of the sample also counts the calls: `until - left` began. */
typedef struct {
    int64_t left;
    int64_t until;
    int64_t longest_ms;
} rs_times;

/* One call, zeroed before it begins; `begin_ns` stays 0 if it is not timed. */
typedef struct {
    int64_t begin_ns;
    int32_t waits;
} rs_timed;

/* Return the time in ns if the call of this number is in the sample, else 0: for calls whose number
 * is at hand. */
static inline int64_t rs_sampled_ns(int64_t number)
{
    const uint32_t spread = (uint32_t)number * UINT32_C(2654435769);
    return RS_UNLIKELY(spread < UINT32_MAX / RS_TIMES_SHARE) ? rs_monotonic_ns() : 0;
}

/* Choose the next call of the sample; return whether the one that begins belongs to it, which the
 * first never does. The steps differ: each 256th call may be a special one. */
static inline int rs_next_sampled(rs_times *times)
{
    const int chosen = times->until != 0;
    uint32_t spread = (uint32_t)times->until * UINT32_C(2654435769);
    spread = (spread ^ spread >> 16) * UINT32_C(2246822507);
    times->left = (int64_t)((spread >> 16) * (2 * RS_TIMES_SHARE - 1) >> 16);
    times->until += times->left + 1;
    return chosen;
}

/* Begin a call. */
static inline void rs_times_begin(rs_times *times, rs_timed *call, int waits)
{
    const int chosen = RS_UNLIKELY(--times->left < 0) && rs_next_sampled(times);
    if (RS_UNLIKELY(chosen | waits)) {
        call->waits = waits;
        call->begin_ns = rs_monotonic_ns();
    }
}

/* Time a call from here on if it was not timed yet, since now it waits. */
static inline void rs_times_wait(rs_timed *call)
{
    call->waits = 1;
    if (call->begin_ns == 0) {
        call->begin_ns = rs_monotonic_ns();
    }
}

/* Return the ms since `begin_ns`; keep the longest. */
static inline int64_t rs_elapsed_ms(int64_t begin_ns, int64_t *longest_ms)
{
    const int64_t elapsed_ms = (rs_monotonic_ns() - begin_ns) / 1000000;
    if (elapsed_ms > *longest_ms) {
        *longest_ms = elapsed_ms;
    }
    return elapsed_ms;
}

#endif
