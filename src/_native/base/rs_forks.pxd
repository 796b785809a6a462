# Forks since the process that imported a module: in a child, objects with locks or threads are of
# no use.
from libc.stdint cimport int64_t

cdef extern from *:
    """
    #include <stdint.h>
    #if !defined(_WIN32)
    #include <pthread.h>
    #endif

    /* Changed in a child alone, before any other code runs there. */
    static int64_t rs_fork_count = 0;

    static void rs_count_fork(void) { rs_fork_count++; }

    /* Begin to count; every module that reads the number calls this at import. Return 0, or -1 with
     * an exception. */
    static int rs_watch_forks(void)
    {
    #if !defined(_WIN32)
        if (pthread_atfork(NULL, NULL, rs_count_fork) != 0) {
            PyErr_NoMemory();
            return -1;
        }
    #else
        (void)rs_count_fork;
    #endif
        return 0;
    }
    """
    const int64_t rs_fork_count
    int rs_watch_forks() except -1
