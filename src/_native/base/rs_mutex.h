/* A plain mutex, ordered loads and stores of positions, and the clocks. */
#ifndef RS_MUTEX_H
#define RS_MUTEX_H
#include <stdint.h>
#include <time.h>

#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

typedef SRWLOCK rs_mutex;
static inline int rs_mutex_init(rs_mutex *m) { InitializeSRWLock(m); return 0; }
static inline void rs_mutex_destroy(rs_mutex *m) { (void)m; }
static inline int rs_mutex_try(rs_mutex *m) { return TryAcquireSRWLockExclusive(m) != 0; }
static inline void rs_mutex_lock(rs_mutex *m) { AcquireSRWLockExclusive(m); }
static inline void rs_mutex_unlock(rs_mutex *m) { ReleaseSRWLockExclusive(m); }
static inline int64_t rs_load_acquire64(const int64_t *p)
{
    return InterlockedCompareExchange64((volatile LONG64 *)p, 0, 0);
}
static inline void rs_store_release64(int64_t *p, int64_t value)
{
    InterlockedExchange64((volatile LONG64 *)p, value);
}
static inline int32_t rs_load_acquire32(const int32_t *p)
{
    return (int32_t)InterlockedCompareExchange((volatile LONG *)p, 0, 0);
}
static inline void rs_store_release32(int32_t *p, int32_t value)
{
    InterlockedExchange((volatile LONG *)p, value);
}
static inline int64_t rs_now_ms(void)
{
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}
static inline int64_t rs_monotonic_ns(void)
{
    return (int64_t)GetTickCount64() * 1000000;
}
#else
#include <pthread.h>

typedef pthread_mutex_t rs_mutex;
static inline int rs_mutex_init(rs_mutex *m) { return pthread_mutex_init(m, NULL); }
static inline void rs_mutex_destroy(rs_mutex *m) { pthread_mutex_destroy(m); }
static inline int rs_mutex_try(rs_mutex *m) { return pthread_mutex_trylock(m) == 0; }
static inline void rs_mutex_lock(rs_mutex *m) { pthread_mutex_lock(m); }
static inline void rs_mutex_unlock(rs_mutex *m) { pthread_mutex_unlock(m); }
static inline int64_t rs_load_acquire64(const int64_t *p)
{
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}
static inline void rs_store_release64(int64_t *p, int64_t value)
{
    __atomic_store_n(p, value, __ATOMIC_RELEASE);
}
static inline int32_t rs_load_acquire32(const int32_t *p)
{
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}
static inline void rs_store_release32(int32_t *p, int32_t value)
{
    __atomic_store_n(p, value, __ATOMIC_RELEASE);
}
static inline int64_t rs_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}
static inline int64_t rs_monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
#endif

#endif
