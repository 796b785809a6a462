"""Locks that a thread enters in one order only. Contract: ``locks.pyi``.

Entering and leaving are one call each, which no interrupt can split.
"""

cimport cython
from libc.stdint cimport int64_t

from rs_forks cimport rs_fork_count, rs_watch_forks

from _thread import allocate_lock

from rocketstore.errors import ReentrantCallError

cdef extern from "rs_locks.h" nogil:
    enum:
        RS_NO_RANK
    int rs_lowest_rank()
    void rs_set_lowest_rank(int rank)

rs_watch_forks()


def holds_any():
    """Return whether this thread holds an ``OrderedLock``."""
    return rs_lowest_rank() != RS_NO_RANK


@cython.final
cdef class OrderedLock:
    """See ``locks.pyi``."""

    cdef object _lock
    cdef int _rank, _outer
    cdef int64_t _forks

    def __init__(self, int rank):
        if not 0 <= rank < RS_NO_RANK:
            raise ValueError(f"a lock's rank is 0 or more, not {rank}")
        self._rank = rank
        self._outer = RS_NO_RANK
        self._renew()

    cdef int _renew(self) except -1:
        """Replace the lock in a forked child, where its owner may not exist."""
        self._lock = allocate_lock()
        self._forks = rs_fork_count
        return 0

    def __enter__(self):
        cdef int outer = rs_lowest_rank()
        if self._rank >= outer:
            raise ReentrantCallError()
        if self._forks != rs_fork_count:
            self._renew()
        self._lock.acquire()
        self._outer = outer
        rs_set_lowest_rank(self._rank)

    def __exit__(self, kind, error, traceback):
        rs_set_lowest_rank(self._outer)
        if self._forks == rs_fork_count:
            self._lock.release()
        else:
            self._renew()
