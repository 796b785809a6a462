"""Mapped files: bytes in memory, without paths. Contract: ``mapping.pyi``."""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.exc cimport PyErr_CheckSignals, PyErr_SetFromErrno
from libc.errno cimport EINTR, EINVAL, ENOSYS, EOPNOTSUPP, errno
from libc.stdint cimport INT64_MAX, int64_t, uint64_t
from libc.string cimport memset, strlen

cdef extern from "rs_mapping.h" nogil:
    enum:
        RS_ADVICE_NORMAL
        RS_ADVICE_RANDOM
        RS_ADVICE_SEQUENTIAL
        RS_ADVICE_WILLNEED
        RS_ADVICE_DONTNEED
    int rs_file_nbytes(int fd, int64_t* nbytes)
    int rs_map(int fd, int64_t nbytes, bint writable, bint private_copy, void** base)
    void rs_unmap(void* base, int64_t nbytes)
    int rs_advise(void* base, int64_t position, int64_t nbytes, int advice)
    int rs_sync(void* base, int64_t position, int64_t nbytes)
    int rs_populate(void* base, int64_t position, int64_t nbytes, bint writes)
    int rs_lock(void* base, int64_t position, int64_t nbytes)
    int rs_unlock(void* base, int64_t position, int64_t nbytes)
    int rs_allocate(int fd, int64_t position, int64_t nbytes)
    int rs_zero(int fd, int64_t position, int64_t nbytes)
    bint rs_is_named(const char *path, uint64_t device, uint64_t inode, int64_t nbytes)

from rocketstore._native.guard import install as install_guard

cdef dict ADVICE = {
    "normal": RS_ADVICE_NORMAL,
    "random": RS_ADVICE_RANDOM,
    "sequential": RS_ADVICE_SEQUENTIAL,
    "willneed": RS_ADVICE_WILLNEED,
    "dontneed": RS_ADVICE_DONTNEED,
}

# guarded by: the GIL
cdef int64_t mapped = 0


cdef int raise_errno(int code) except -1:
    global errno
    errno = code
    PyErr_SetFromErrno(OSError)
    return -1


cdef bint supported(int code) except -1:
    """Return the outcome of an optional call: False if the system does not support it."""
    if code == 0:
        return True
    if code == EINVAL or code == ENOSYS or code == EOPNOTSUPP:
        return False
    raise_errno(code)


def is_named(bytes path not None, uint64_t device, uint64_t inode, int64_t nbytes):
    """Return whether ``path`` names this device and inode, with at least ``nbytes`` bytes."""
    cdef const char *name = path
    cdef bint named
    if strlen(name) != <size_t> len(path):
        raise ValueError("embedded null byte")
    with nogil:
        named = rs_is_named(name, device, inode, nbytes)
    return named


def mapped_nbytes():
    """Return the bytes that are mapped now in this process."""
    return mapped


cdef bint change_blocks(
    int (*change)(int, int64_t, int64_t) noexcept nogil, int fd, int64_t position, int64_t length
) except -1:
    cdef int code = EINTR
    if position < 0 or length <= 0 or position > INT64_MAX - length:
        raise ValueError(f"position {position} and length {length} are not a range")
    while code == EINTR:
        with nogil:
            code = change(fd, position, length)
        if code == EINTR:
            PyErr_CheckSignals()
    if code == EINVAL:
        raise_errno(code)
    return supported(code)


def allocate(int fd, int64_t position, int64_t length):
    """Reserve disk blocks without changing the size; return False if unsupported."""
    return change_blocks(rs_allocate, fd, position, length)


def zero_range(int fd, int64_t position, int64_t length):
    """Make a range zero that keeps its blocks, without data; return False if unsupported."""
    return change_blocks(rs_zero, fd, position, length)


@cython.final
cdef class Mapping:
    """A mapping of the first ``nbytes`` bytes of an open file.

    Supports the buffer protocol (bytes, one dimension); read-only unless ``writable``. Every
    buffer taken from it counts as an export. The descriptor is not kept.

    Parameters
    ----------
    fd : int
        The file; -1 for anonymous memory, which must be writable and private.
    nbytes : int
        At most the file's size.
    writable : bool
    private : bool
        Writes stay in this process's memory.

    Raises
    ------
    OSError
        From the system.
    ValueError
        If ``nbytes`` is not positive or exceeds the file.

    Notes
    -----
    Threading: all methods may run in parallel; those that may take long release the GIL.
    """

    # guarded by: the GIL
    cdef void* _base
    cdef int64_t _nbytes
    cdef int64_t _exports
    cdef int64_t _pins
    cdef bint _writable
    cdef bint _private
    cdef bint _closed
    cdef int _sync_error

    def __cinit__(self, int fd, int64_t nbytes, bint writable=False, bint private=False):
        global mapped
        cdef int64_t file_nbytes = nbytes
        cdef int code
        self._closed = True
        if nbytes <= 0:
            raise ValueError(f"a mapping must have at least one byte, not {nbytes}")
        if fd < 0 and not (fd == -1 and writable and private):
            raise ValueError(f"descriptor {fd}: memory without a file must be writable and private")
        if fd >= 0:
            code = rs_file_nbytes(fd, &file_nbytes)
            if code:
                raise_errno(code)
        if nbytes > file_nbytes:
            raise ValueError(f"{nbytes} bytes to map, but the file has {file_nbytes}")
        install_guard()  # another handler may have been installed since the import
        code = rs_map(fd, nbytes, writable, private, &self._base)
        if code:
            raise_errno(code)
        self._nbytes = nbytes
        self._writable = writable
        self._private = private
        self._closed = False
        mapped += nbytes

    def __dealloc__(self):
        self._unmap()

    cdef int _unmap(self) noexcept:
        global mapped
        if self._base != NULL:
            rs_unmap(self._base, self._nbytes)
            self._base = NULL
            mapped -= self._nbytes
        return 0

    cdef int _unmap_if_unused(self) noexcept:
        if self._closed and self._exports == 0 and self._pins == 0:
            self._unmap()
        return 0

    cdef int _pin(self, int64_t position, int64_t length) except -1:
        """Check a range and keep the pages until ``_unpin``."""
        if self._closed:
            raise ValueError("the mapping is closed")
        if not 0 <= position <= self._nbytes or not 0 <= length <= self._nbytes - position:
            raise ValueError(
                f"position {position} and length {length} are outside {self._nbytes} bytes"
            )
        self._pins += 1
        return 0

    cdef int _pin_for_writing(self, int64_t position, int64_t length, str what) except -1:
        self._pin(position, length)
        if not self._writable:
            self._unpin()
            raise ValueError(f"a read-only mapping cannot be {what}")
        return 0

    cdef int _unpin(self) noexcept:
        self._pins -= 1
        return self._unmap_if_unused()

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        if self._closed:
            raise ValueError("the mapping is closed")
        PyBuffer_FillInfo(buffer, self, self._base, self._nbytes, not self._writable, flags)
        self._exports += 1

    def __releasebuffer__(self, Py_buffer* buffer):
        self._exports -= 1
        self._unmap_if_unused()

    @property
    def nbytes(self):
        """Length in bytes."""
        return self._nbytes

    @property
    def writable(self):
        """Return whether its buffers are writable."""
        return self._writable

    @property
    def closed(self):
        """Return whether ``close`` was called."""
        return self._closed

    @property
    def exports(self):
        """Buffers taken and not yet released."""
        return self._exports

    def __len__(self):
        return self._nbytes

    def view(self):
        """Return a memoryview of all bytes; an export like any other."""
        return memoryview(self)

    def advise(self, str advice, int64_t position=0, length=None):
        """Advise the system how a range will be used.

        Parameters
        ----------
        advice : str
            ``normal``, ``random``, ``sequential``, ``willneed`` or ``dontneed``.
        position, length : int
            The range, by default everything, rounded to pages.

        Returns
        -------
        bool
            False if unsupported, and for ``dontneed`` on private memory, which would be lost.
        """
        cdef int word
        cdef int64_t nbytes
        if advice not in ADVICE:
            raise ValueError(f"advice {advice!r} must be one of {', '.join(ADVICE)}")
        word = ADVICE[advice]
        nbytes = self._nbytes - position if length is None else length
        self._pin(position, nbytes)
        try:
            if self._private and word == RS_ADVICE_DONTNEED:
                return False
            return supported(rs_advise(self._base, position, nbytes, word))
        finally:
            self._unpin()

    def sync(self, int64_t position, int64_t length):
        """Write the pages of the range to disk and wait for it.

        Raises ``OSError``, the same one at every later call: after a failure the system may
        consider unwritten pages clean. It is recorded here, before an interrupt can reach any
        caller.
        """
        cdef int code = EINTR
        self._pin(position, length)
        try:
            while code == EINTR and not self._sync_error:
                with nogil:
                    code = rs_sync(self._base, position, length)
                if code == EINTR:
                    PyErr_CheckSignals()
                elif code:
                    self._sync_error = code
            if self._sync_error:
                raise_errno(self._sync_error)
        finally:
            self._unpin()

    def refuse_syncs(self, int error):
        """Let every later ``sync`` raise this errno: the pages were synced elsewhere, and that
        failed."""
        if not self._sync_error:
            self._sync_error = error

    def populate(self, int64_t position, int64_t length):
        """Make the range's pages present and writable; return False if unsupported."""
        cdef int code
        self._pin_for_writing(position, length, "populated for writing")
        try:
            with nogil:
                code = rs_populate(self._base, position, length, True)
            return supported(code)
        finally:
            self._unpin()

    def populate_for_reading(self, int64_t position, int64_t length):
        """Make the range's pages present; return False if unsupported or a page cannot be read."""
        cdef int code
        self._pin(position, length)
        try:
            with nogil:
                code = rs_populate(self._base, position, length, False)
            return code == 0
        finally:
            self._unpin()

    def lock(self, int64_t position, int64_t length):
        """Keep the range's pages in memory once they are present.

        Raises
        ------
        OSError
            ``ENOMEM``, ``EPERM`` or ``EAGAIN`` if the limit for locked memory is exceeded.
        """
        cdef int code
        self._pin_for_writing(position, length, "locked")
        try:
            with nogil:
                code = rs_lock(self._base, position, length)
            if code:
                raise_errno(code)
        finally:
            self._unpin()

    def unlock(self, int64_t position, int64_t length):
        """Undo ``lock``. Raises ``OSError``."""
        cdef int code
        self._pin_for_writing(position, length, "unlocked")
        try:
            with nogil:
                code = rs_unlock(self._base, position, length)
            if code:
                raise_errno(code)
        finally:
            self._unpin()

    def clear(self, int64_t position, int64_t length):
        """Write zeros over the range."""
        self._pin_for_writing(position, length, "cleared")
        try:
            with nogil:
                memset(<char*> self._base + position, 0, <size_t> length)
        finally:
            self._unpin()

    def close(self):
        """Allow no more exports; the last export unmaps the pages. Idempotent."""
        self._closed = True
        self._unmap_if_unused()

    def __repr__(self):
        state = "closed" if self._closed else "writable" if self._writable else "read-only"
        return f"<Mapping of {self._nbytes} bytes, {state}>"
