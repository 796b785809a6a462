/* The rank of the lowest lock that a thread holds. */
#ifndef RS_LOCKS_H
#define RS_LOCKS_H
#include <limits.h>

#if defined(_MSC_VER)
#define RS_THREAD_LOCAL __declspec(thread)
#elif defined(__GLIBC__)
/* At a fixed distance from the thread pointer: no memory is allocated at a thread's first use. */
#define RS_THREAD_LOCAL _Thread_local __attribute__((tls_model("initial-exec")))
#else
#define RS_THREAD_LOCAL _Thread_local
#endif

enum { RS_NO_RANK = INT_MAX };

static RS_THREAD_LOCAL int rs_rank_of_thread = RS_NO_RANK;

static inline int rs_lowest_rank(void) { return rs_rank_of_thread; }
static inline void rs_set_lowest_rank(int rank) { rs_rank_of_thread = rank; }

#endif
