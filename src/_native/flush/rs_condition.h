/* A condition variable that waits by the monotonic clock. */
#ifndef RS_CONDITION_H
#define RS_CONDITION_H
#include <stdint.h>

#include "rs_mutex.h"

#ifdef _WIN32
typedef CONDITION_VARIABLE rs_condition;
static inline int rs_condition_init(rs_condition *c) { InitializeConditionVariable(c); return 0; }
static inline void rs_condition_destroy(rs_condition *c) { (void)c; }
static inline void rs_condition_signal(rs_condition *c) { WakeConditionVariable(c); }
/* Wait for a signal, at most until `deadline_ns`; it may return earlier. The mutex is held. */
static inline void rs_condition_wait(rs_condition *c, rs_mutex *m, int64_t deadline_ns)
{
    int64_t left_ns = deadline_ns - rs_monotonic_ns();
    if (left_ns > 0)
        SleepConditionVariableSRW(c, m, (DWORD)(left_ns / 1000000 + 1), 0);
}
#else
typedef pthread_cond_t rs_condition;
static inline int rs_condition_init(rs_condition *c)
{
#ifdef __APPLE__
    return pthread_cond_init(c, NULL);
#else
    pthread_condattr_t attributes;
    int status = pthread_condattr_init(&attributes);
    if (status != 0)
        return status;
    status = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    if (status == 0)
        status = pthread_cond_init(c, &attributes);
    pthread_condattr_destroy(&attributes);
    return status;
#endif
}
static inline void rs_condition_destroy(rs_condition *c) { pthread_cond_destroy(c); }
static inline void rs_condition_signal(rs_condition *c) { pthread_cond_signal(c); }
/* Wait for a signal, at most until `deadline_ns`; it may return earlier. The mutex is held. */
static inline void rs_condition_wait(rs_condition *c, rs_mutex *m, int64_t deadline_ns)
{
#ifdef __APPLE__
    int64_t left_ns = deadline_ns - rs_monotonic_ns();
    if (left_ns <= 0)
        return;
    struct timespec left = {(time_t)(left_ns / 1000000000), (long)(left_ns % 1000000000)};
    pthread_cond_timedwait_relative_np(c, m, &left);
#else
    struct timespec deadline = {(time_t)(deadline_ns / 1000000000),
                                (long)(deadline_ns % 1000000000)};
    pthread_cond_timedwait(c, m, &deadline);
#endif
}
#endif

#endif
