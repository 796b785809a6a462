"""Turns a SIGBUS inside a guarded kernel into an error code (see ``rs_guard.h``)."""

from cpython.exc cimport PyErr_SetFromErrno

cdef extern from "rs_guard_handler.h":
    int rs_guard_install()
    object rs_guard_capsule()


def install():
    """Install the handler, chained to the previous one.

    Harmless if it is installed already; moves it to the top if another was installed since.

    Returns
    -------
    bool
        False if the system has no signals.
    """
    cdef int installed = rs_guard_install()
    if installed < 0:
        PyErr_SetFromErrno(OSError)
    return installed == 1


_api = rs_guard_capsule()
install()
