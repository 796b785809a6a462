"""Threads that wait for an offset of the log to be on disk. Contract: ``waiting.pyi``."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AsString
from cpython.exc cimport PyErr_CheckSignals, PyErr_SetFromErrno
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc cimport errno
from libc.stdint cimport int64_t, uint64_t

from rs_forks cimport rs_fork_count, rs_watch_forks

cdef extern from "rs_offset_waiters.h" nogil:
    ctypedef struct rs_offset_waiter:
        pass
    ctypedef struct rs_offset_waiters:
        int64_t reached
        int has_failed
    int64_t rs_monotonic_ns()
    int rs_waiters_renew(rs_offset_waiters *all)
    void rs_waiters_destroy(rs_offset_waiters *all)
    void rs_waiters_ring(rs_offset_waiters *all)
    bint rs_waiters_listen(rs_offset_waiters *all, int64_t deadline_ns)
    void rs_waiters_hold(rs_offset_waiters *all, int64_t change)
    int64_t rs_waiters_count(rs_offset_waiters *all)
    bint rs_waiters_is_held(rs_offset_waiters *all)
    int64_t rs_waiters_ask_back(rs_offset_waiters *all)
    int64_t rs_load_acquire64(const int64_t *p)
    int rs_waiters_enter(rs_offset_waiters *all, rs_offset_waiter *one, int64_t offset)
    bint rs_waiters_await(rs_offset_waiters *all, rs_offset_waiter *one, int64_t deadline_ns)
    void rs_waiters_leave(rs_offset_waiters *all, rs_offset_waiter *one)
    int rs_waiters_reach(rs_offset_waiters *all, int64_t offset, bint failed)

cdef extern from "rs_follow.h" nogil:
    enum:
        RS_FOLLOW_IDLE
    ctypedef struct rs_appender:
        pass
    ctypedef struct rs_named_file:
        const char *path
        uint64_t device, inode
        int64_t nbytes
    ctypedef struct rs_followed:
        void *base
        int64_t base_offset, nbytes
        int fd
        const rs_named_file *names
        int64_t name_count
        int64_t flushed, timestamp
        int error
    int rs_follow(
        rs_offset_waiters *all, const rs_appender *appender, rs_followed *log, int64_t pause_ns
    )

rs_watch_forks()

#: How long a wait goes on without a look for interrupts.
cdef int64_t SLICE_NS = 20_000_000
cdef enum:
    MOST_NAMES = 2

#: Longer waits would overflow a clock's nanoseconds.
cdef double LONGEST_S = 1e9


cdef int64_t deadline_of(int64_t now_ns, double timeout_s) noexcept:
    return now_ns + <int64_t>(min(max(timeout_s, 0.0), LONGEST_S) * 1e9)


cdef int raise_errno(int status) except -1:
    errno.errno = status
    PyErr_SetFromErrno(OSError)


@cython.final
cdef class OffsetWaiters:
    """See ``waiting.pyi``."""

    cdef rs_offset_waiters _all
    cdef int64_t _forks
    cdef bint _is_made

    def __cinit__(self):
        self._all.reached = 0
        self._all.has_failed = 0
        self._renew()
        self._is_made = True

    def __dealloc__(self):
        if self._is_made and self._forks == rs_fork_count:
            rs_waiters_destroy(&self._all)

    cdef int _renew(self) except -1:
        cdef int status = rs_waiters_renew(&self._all)
        if status != 0:
            raise_errno(status)
        self._forks = rs_fork_count
        return 0

    cdef inline int _check_forks(self) except -1:
        return 0 if self._forks == rs_fork_count else self._renew()

    def __len__(self):
        self._check_forks()
        return rs_waiters_count(&self._all)

    def wait(self, int64_t offset, double timeout_s):
        cdef rs_offset_waiter one
        cdef int64_t now_ns = rs_monotonic_ns()
        cdef int64_t deadline_ns = deadline_of(now_ns, timeout_s)
        cdef int64_t forks = rs_fork_count
        cdef bint is_over = False
        cdef int status
        self._check_forks()
        # One stretch without the GIL: threads that return queue for it.
        with nogil:
            status = rs_waiters_enter(&self._all, &one, offset)
            if status > 0:
                is_over = rs_waiters_await(&self._all, &one, min(deadline_ns, now_ns + SLICE_NS))
        if status < 0:
            raise_errno(-status)
        if status == 0 or is_over:
            return True
        try:
            while now_ns < deadline_ns:
                PyErr_CheckSignals()
                with nogil:
                    now_ns = rs_monotonic_ns()
                    is_over = rs_waiters_await(
                        &self._all, &one, min(deadline_ns, now_ns + SLICE_NS)
                    )
                if is_over:
                    return True
            return False
        finally:
            if not is_over and forks == rs_fork_count:  # a handler may have forked
                with nogil:
                    rs_waiters_leave(&self._all, &one)

    def reach(self, int64_t offset):
        self._check_forks()
        with nogil:
            rs_waiters_reach(&self._all, offset, False)

    def fail(self):
        self._check_forks()
        with nogil:
            rs_waiters_reach(&self._all, 0, True)

    def ring(self):
        self._check_forks()
        with nogil:
            rs_waiters_ring(&self._all)

    def listen(self, double timeout_s):
        cdef int64_t deadline_ns
        cdef bint rang
        self._check_forks()
        deadline_ns = deadline_of(rs_monotonic_ns(), timeout_s)
        with nogil:
            rang = rs_waiters_listen(&self._all, deadline_ns)
        return rang

    @property
    def reached(self):
        self._check_forks()
        return rs_load_acquire64(&self._all.reached)

    def __enter__(self):
        self._check_forks()
        with nogil:
            rs_waiters_hold(&self._all, 1)

    def __exit__(self, kind, error, traceback):
        self._check_forks()
        with nogil:
            rs_waiters_hold(&self._all, -1)

    def ask_back(self):
        self._check_forks()
        return rs_waiters_ask_back(&self._all)

    @property
    def is_held(self):
        self._check_forks()
        return rs_waiters_is_held(&self._all)

    def follow(self, appender, segment, int64_t base_offset, int64_t flushed, int fd, tuple names,
               double timeout_s):
        cdef rs_named_file files[MOST_NAMES]
        cdef rs_followed log
        cdef Py_buffer view
        cdef const rs_appender *state
        cdef int64_t pause_ns = deadline_of(0, timeout_s)
        cdef int reason
        self._check_forks()
        state = <const rs_appender *> PyCapsule_GetPointer(
            appender._capsule, "rocketstore.appender"
        )
        if len(names) > MOST_NAMES:
            raise ValueError(f"{len(names)} names, at most {MOST_NAMES}")
        for i, (path, device, inode, nbytes) in enumerate(names):
            files[i].path = PyBytes_AsString(path)  # `names` keeps it
            files[i].device, files[i].inode, files[i].nbytes = device, inode, nbytes
        log.fd, log.names, log.name_count = fd, files, len(names)
        log.base_offset, log.flushed, log.timestamp, log.error = base_offset, flushed, 0, 0
        PyObject_GetBuffer(segment, &view, PyBUF_SIMPLE)
        try:
            log.base, log.nbytes = view.buf, view.len
            if not 0 <= base_offset <= flushed <= base_offset + view.len:
                raise ValueError(f"offset {flushed} is not in the segment at {base_offset}")
            with nogil:
                reason = rs_follow(&self._all, state, &log, pause_ns)
        finally:
            PyBuffer_Release(&view)
        return reason != RS_FOLLOW_IDLE, log.flushed, log.timestamp, log.error
