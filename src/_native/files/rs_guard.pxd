# Calls that survive a SIGBUS (RS_FAULT).
cdef extern from "rs_guard.h":
    ctypedef int (*rs_guarded_function)(void *argument) noexcept nogil
    int rs_guard_import() except -1
    int rs_guarded(rs_guarded_function function, void *argument) noexcept nogil
