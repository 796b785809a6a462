/* Threads that wait for an offset, and the one that reaches it. None of them needs the GIL here. */
#ifndef RS_OFFSET_WAITERS_H
#define RS_OFFSET_WAITERS_H
#include <stdint.h>

#include "rs_condition.h"

/* One waiting thread; it lies on that thread's stack. */
typedef struct rs_offset_waiter {
    struct rs_offset_waiter *previous, *next;
    int64_t offset;
    int is_woken;
    rs_condition woken;
} rs_offset_waiter;

/* All fields are guarded by `mutex`. */
typedef struct {
    rs_mutex mutex;
    rs_condition rung;
    rs_offset_waiter *first;
    int64_t count, reached, holds;
    int is_rung, is_listening, has_failed;
    int is_asked_back; /* rs_follow returns after the next sync */
} rs_offset_waiters;

/* Forget every thread: in a new object, and in a forked child, which has none of them. Return 0, or
 * an errno. */
static inline int rs_waiters_renew(rs_offset_waiters *all)
{
    int status = rs_mutex_init(&all->mutex);
    if (status != 0)
        return status;
    if ((status = rs_condition_init(&all->rung)) != 0) {
        rs_mutex_destroy(&all->mutex);
        return status;
    }
    all->first = NULL;
    all->count = all->holds = 0;
    all->is_rung = all->is_listening = all->is_asked_back = 0;
    return 0;
}

static inline void rs_waiters_destroy(rs_offset_waiters *all)
{
    rs_condition_destroy(&all->rung);
    rs_mutex_destroy(&all->mutex);
}

/* The mutex is held. */
static inline void rs_waiters_add(rs_offset_waiters *all, rs_offset_waiter *one)
{
    one->previous = NULL;
    one->next = all->first;
    if (one->next != NULL)
        one->next->previous = one;
    all->first = one;
    all->count++;
}

/* The mutex is held. */
static inline void rs_waiters_remove(rs_offset_waiters *all, rs_offset_waiter *one)
{
    if (one->previous != NULL)
        one->previous->next = one->next;
    else
        all->first = one->next;
    if (one->next != NULL)
        one->next->previous = one->previous;
    all->count--;
}

/* The mutex is held. */
static inline void rs_waiters_ring_held(rs_offset_waiters *all)
{
    all->is_rung = 1;
    if (all->is_listening)
        rs_condition_signal(&all->rung);
}

static inline void rs_waiters_ring(rs_offset_waiters *all)
{
    rs_mutex_lock(&all->mutex);
    rs_waiters_ring_held(all);
    rs_mutex_unlock(&all->mutex);
}

/* Wait for a ring, at most until `deadline_ns`; return whether it rang, and reset it. One thread
 * listens. */
static inline int rs_waiters_listen(rs_offset_waiters *all, int64_t deadline_ns)
{
    rs_mutex_lock(&all->mutex);
    all->is_listening = 1;
    while (!all->is_rung && rs_monotonic_ns() < deadline_ns)
        rs_condition_wait(&all->rung, &all->mutex, deadline_ns);
    int rang = all->is_rung;
    all->is_rung = all->is_listening = 0;
    rs_mutex_unlock(&all->mutex);
    return rang;
}

/* Keep rs_follow from syncing again, or no longer. */
static inline void rs_waiters_hold(rs_offset_waiters *all, int64_t change)
{
    rs_mutex_lock(&all->mutex);
    all->holds = all->holds + change > 0 ? all->holds + change : 0; /* 0: a fork in between */
    rs_waiters_ring_held(all);
    rs_mutex_unlock(&all->mutex);
}

static inline int64_t rs_waiters_count(rs_offset_waiters *all)
{
    rs_mutex_lock(&all->mutex);
    int64_t count = all->count;
    rs_mutex_unlock(&all->mutex);
    return count;
}

static inline int rs_waiters_is_held(rs_offset_waiters *all)
{
    rs_mutex_lock(&all->mutex);
    int is_held = all->holds > 0;
    rs_mutex_unlock(&all->mutex);
    return is_held;
}

/* Let rs_follow return after the next sync that ends; return what was reached until now. */
static inline int64_t rs_waiters_ask_back(rs_offset_waiters *all)
{
    rs_mutex_lock(&all->mutex);
    all->is_asked_back = 1;
    int64_t reached = all->reached;
    rs_mutex_unlock(&all->mutex);
    return reached;
}

/* Add this thread and ring. Return 1, 0 if it has nothing to wait for, or -errno. */
static inline int rs_waiters_enter(rs_offset_waiters *all, rs_offset_waiter *one, int64_t offset)
{
    rs_mutex_lock(&all->mutex);
    int status = all->reached < offset && !all->has_failed;
    if (status == 1) {
        int error = rs_condition_init(&one->woken);
        if (error != 0) {
            status = -error;
        } else {
            one->offset = offset;
            one->is_woken = 0;
            rs_waiters_add(all, one);
            rs_waiters_ring_held(all);
        }
    }
    rs_mutex_unlock(&all->mutex);
    return status;
}

/* Wait, at most until `deadline_ns`; return whether the offset was reached or all have failed, and
 * this thread has left. */
static inline int rs_waiters_await(rs_offset_waiters *all, rs_offset_waiter *one,
                                   int64_t deadline_ns)
{
    rs_mutex_lock(&all->mutex);
    while (!one->is_woken && rs_monotonic_ns() < deadline_ns)
        rs_condition_wait(&one->woken, &all->mutex, deadline_ns);
    int is_woken = one->is_woken;
    rs_mutex_unlock(&all->mutex);
    if (is_woken)
        rs_condition_destroy(&one->woken);
    return is_woken;
}

/* Give up waiting. */
static inline void rs_waiters_leave(rs_offset_waiters *all, rs_offset_waiter *one)
{
    rs_mutex_lock(&all->mutex);
    if (!one->is_woken)
        rs_waiters_remove(all, one);
    rs_mutex_unlock(&all->mutex);
    rs_condition_destroy(&one->woken);
}

/* State what was reached, and wake the threads that wait for no more; with `failed` wake all.
 * Return whether rs_waiters_ask_back was called before. */
static inline int rs_waiters_reach(rs_offset_waiters *all, int64_t offset, int failed)
{
    rs_mutex_lock(&all->mutex);
    if (failed)
        all->has_failed = 1;
    else
        rs_store_release64(&all->reached, offset); /* read by any thread */
    for (rs_offset_waiter *one = all->first, *next; one != NULL; one = next) {
        next = one->next;
        if (failed || one->offset <= offset) {
            rs_waiters_remove(all, one);
            one->is_woken = 1;
            rs_condition_signal(&one->woken);
        }
    }
    int is_asked_back = all->is_asked_back;
    all->is_asked_back = 0;
    rs_mutex_unlock(&all->mutex);
    return is_asked_back;
}

#endif
