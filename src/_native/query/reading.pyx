"""Log segments as readers see them, and the messages that they select from them.

Contract: ``reading.pyi``. The calls of ``Windows`` answer only what is plain. They return None for
anything else (damage, an expired record, another segment ...), and the caller looks closer.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport (
    PyByteArray_AS_STRING, PyByteArray_FromStringAndSize,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy, memset

from rs_arguments cimport rs_check_range, rs_get_bytes
from rs_crc cimport rs_crc_import
from rs_formats cimport RS_CQ_UNIT_NBYTES, rs_parsed_record, rs_selected_message
from rs_get_message cimport rs_get_message_all, rs_selection
from rs_guard cimport rs_guard_import, rs_guarded
from rs_index cimport rs_index_place
from rs_index_walk cimport RS_WALK_HITS
from rs_key_query cimport rs_hash_key, rs_keep_hits, rs_key_query, rs_query_index
from rs_record cimport rs_check
from rs_status cimport RS_END, RS_LIMIT, RS_NUL_PROPERTIES, RS_OK, RS_UNSAFE_TOPIC
from rs_units cimport rs_load_unit, rs_unit
from rs_stored_message cimport rs_make_stored_message, rs_stored_message_import

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object number, int *overflow) except? -1

cdef extern from *:
    """
    /* Return the items as an object of a subclass of tuple that adds no fields, such as a named
     * tuple: as tuple.__new__, without the calls. */
    static PyObject *rs_named_tuple(PyObject *type, PyObject *items)
    {
        PyTypeObject *wanted = (PyTypeObject *)type;
        const Py_ssize_t count = PyTuple_GET_SIZE(items);
        if (!PyType_Check(type) || !PyType_IsSubtype(wanted, &PyTuple_Type)
            || wanted->tp_basicsize != PyTuple_Type.tp_basicsize) {
            PyErr_SetString(PyExc_TypeError, "answer must be a subclass of tuple without fields");
            return NULL;
        }
        PyObject *made = wanted->tp_alloc(wanted, count);
        for (Py_ssize_t i = 0; made != NULL && i < count; i++) {
            PyTuple_SET_ITEM(made, i, Py_NewRef(PyTuple_GET_ITEM(items, i)));
        }
        return made;
    }
    """
    object rs_named_tuple(object type, tuple items)

from collections.abc import Sequence

rs_guard_import()
rs_crc_import()
rs_stored_message_import()


# --- Queues -------------------------------------------------------------------------------------

cdef class QueuePlace:
    """Where the units of a queue are: its bounds and the file that was read last.

    Parameters
    ----------
    topic : bytes
    queue_id : int

    Attributes
    ----------
    min_index : int
        Queue offset of the first unit whose message is still in the log.
    recovered_index : int
        Queue offset after the last unit, while nothing is dispatched.
    next_index : callable or None
        Returns that offset while messages are dispatched.
    recent : (file, first, stop) or None
        The file that was read last, and the queue offsets of its first unit and after its last.
    """

    cdef readonly bytes topic_bytes
    cdef readonly int64_t queue_id
    cdef public int64_t min_index
    cdef public int64_t recovered_index
    cdef public object next_index
    # guarded by: the GIL
    cdef object _file
    cdef int64_t _first
    cdef int64_t _stop

    def __init__(self, bytes topic not None, int64_t queue_id):
        self.topic_bytes = topic
        self.queue_id = queue_id

    @property
    def recent(self):
        """The file that was read last; None for none."""
        return None if self._file is None else (self._file, self._first, self._stop)

    @recent.setter
    def recent(self, value):
        # Its last reference may run code, which must not see one file with another's offsets.
        former = self._file
        if value is None:
            self._file = None
        else:
            self._file, self._first, self._stop = value

    @property
    def max_index(self):
        """Queue offset of the next message."""
        return self._end()

    cdef int64_t _end(self) except? -1:
        return self.recovered_index if self.next_index is None else self.next_index()


cdef class IndexPlace:
    """Where an index file is: ``file`` (any object with ``mapped``) and its geometry."""

    cdef readonly object file
    cdef readonly int64_t slots
    cdef readonly int64_t entries

    def __init__(self, file, int64_t slots, int64_t entries):
        self.file = file
        self.slots = slots
        self.entries = entries


# --- A segment ----------------------------------------------------------------------------------

cdef bint to_int64(object number, int64_t* out) except -1:
    """Convert an int; return False if it does not fit."""
    cdef int overflow = 0
    out[0] = PyLong_AsLongLongAndOverflow(number, &overflow)
    return overflow == 0


cdef struct Check:
    const uint8_t* p
    int64_t available
    int64_t physical_offset
    int64_t segment_end
    int flags
    rs_parsed_record row


cdef int check_one(void* argument) noexcept nogil:
    cdef Check* call = <Check*>argument
    return rs_check(
        call.p, call.available, call.physical_offset, call.segment_end, call.flags, &call.row)


# Hidden from the garbage collector: it would clear a memoryview that this window still exports,
# which ends the process when the view is freed.
@cython.no_gc
cdef class Window:
    """A segment's readable bytes, pinned.

    Parameters
    ----------
    buffer : bytes-like
    base_offset : int
        Physical offset of its first byte.
    segment_end : int
        Physical offset after the segment.
    stop : int
        Position after the last readable byte.
    flags : int
        ``RecordFlags`` of the strict check.
    min_offset : int
        Where the log begins.
    """

    cdef readonly object buffer
    cdef readonly int64_t base_offset
    cdef readonly int64_t segment_end
    cdef readonly int64_t stop
    cdef readonly int flags
    cdef readonly int64_t min_offset
    cdef Py_buffer _view

    def __cinit__(self, *_, **__):
        memset(&self._view, 0, sizeof(self._view))

    def __init__(self, buffer, int64_t base_offset, int64_t segment_end, int64_t stop, int flags,
                 int64_t min_offset):
        if self.buffer is not None:
            raise RuntimeError("a Window cannot be set up twice")
        rs_get_bytes(buffer, &self._view, False)
        self.buffer = buffer
        rs_check_range(&self._view, 0, stop, base_offset, segment_end)
        self.base_offset = base_offset
        self.segment_end = segment_end
        self.stop = stop
        self.flags = flags
        self.min_offset = min_offset

    def __dealloc__(self):
        PyBuffer_Release(&self._view)

    def gone(self, position):
        """Build the error for a record that was checked and no longer exists."""
        return ValueError(f"the record at position {position} was overwritten")

    def message(self, int64_t position):
        """Return the record at a position, which the caller has checked. Raises as ``gone``."""
        return self._message(position)

    cdef object _message(self, int64_t position):
        try:
            return rs_make_stored_message(
                self.buffer, position, self.base_offset, self.segment_end)
        except ValueError as error:
            raise self.gone(position) from error

    cdef object _record(self, int64_t physical_offset):
        """Return the record at a readable offset; None if it is not whole and good."""
        cdef Check call
        cdef int64_t position = physical_offset - self.base_offset
        cdef int status
        call.p = <const uint8_t*>self._view.buf + position
        call.available = self.stop - position
        call.physical_offset = physical_offset
        call.segment_end = self.segment_end
        call.flags = self.flags
        with nogil:
            status = rs_guarded(check_one, &call)
        if status != RS_OK and status != RS_NUL_PROPERTIES and status != RS_UNSAFE_TOPIC:
            return None
        try:
            return rs_make_stored_message(
                self.buffer, position, self.base_offset, self.segment_end)
        except ValueError:
            return None  # another process has overwritten it since

    cdef void _set_log(self, rs_selection* work) noexcept:
        work.log = <const uint8_t*>self._view.buf
        work.log_stop = self.stop
        work.base_offset = self.base_offset
        work.segment_end = self.segment_end
        work.min_offset = self.min_offset
        work.flags = self.flags


cdef class Windows:
    """The segments that were read, by physical offset.

    Parameters
    ----------
    segment_nbytes : int
        Bytes of a segment.
    """

    cdef readonly int64_t segment_nbytes
    # guarded by: the GIL
    cdef dict _by_offset
    cdef Window _last

    def __init__(self, int64_t segment_nbytes):
        if segment_nbytes <= 0:
            raise ValueError(f"a segment cannot have {segment_nbytes} bytes")
        self.segment_nbytes = segment_nbytes
        self._by_offset = {}

    def add(self, Window window not None):
        """Keep a window instead of the segment's former one."""
        self._by_offset[window.base_offset] = window
        self._last = window

    def discard(self, base_offset):
        """Forget the segment that begins at an offset."""
        self._by_offset.pop(base_offset, None)
        self._last = None

    def clear(self):
        """Forget all segments."""
        self._by_offset.clear()
        self._last = None

    def get(self, physical_offset):
        """Return the window in which an offset can be read; None if none is known."""
        cdef int64_t offset
        return self._at(offset) if to_int64(physical_offset, &offset) else None

    cdef Window _at(self, int64_t physical_offset):
        cdef Window window = self._last
        if physical_offset < 0:
            return None
        if window is None or not (
            window.base_offset <= physical_offset < window.base_offset + window.stop
        ):
            window = self._by_offset.get(physical_offset - physical_offset % self.segment_nbytes)
            if window is None or physical_offset >= window.base_offset + window.stop:
                return None
            self._last = window
        return window

    def record(self, physical_offset):
        """Return the record at an offset; None if it is not plain."""
        cdef int64_t offset
        cdef Window window
        if not to_int64(physical_offset, &offset):
            return None
        window = self._at(offset)
        return None if window is None else window._record(offset)

    def get_message(self, answer, status, QueuePlace queue not None, offset, int64_t max_count,
                    int64_t max_nbytes, int64_t disk_below, int64_t max_disk_count,
                    int64_t max_disk_nbytes):
        """Return offsets and messages of a pull; None if it is not plain."""
        cdef rs_selection work
        cdef Py_buffer units
        cdef int64_t start, stop
        cdef int64_t end = queue._end()  # may let another thread run: the file comes after it
        cdef int64_t first = queue._first
        file = queue._file
        if file is None or not to_int64(offset, &start):
            return None
        stop = min(end, queue._stop)
        if not queue.min_index <= start < end or not first <= start < stop or max_count <= 0:
            return None
        mapping = file.mapped
        if mapping is None:
            return None
        file.was_used = True
        work.limits.max_count = max_count
        work.limits.max_nbytes = max_nbytes
        work.limits.disk_below = disk_below
        work.limits.max_disk_count = max_disk_count
        work.limits.max_disk_nbytes = max_disk_nbytes
        work.room = min(max_count, stop - start)
        work.position = (start - first) * RS_CQ_UNIT_NBYTES
        work.stop = (stop - first) * RS_CQ_UNIT_NBYTES
        work.queue_offset = start
        memset(&units, 0, sizeof(units))
        PyObject_GetBuffer(mapping, &units, PyBUF_SIMPLE)
        try:
            if work.stop > units.len:
                return None
            work.units = <const uint8_t*>units.buf
            messages = self._select(&work, queue)
        finally:
            PyBuffer_Release(&units)
        if messages is None:
            return None
        return rs_named_tuple(
            answer, (status, work.queue_offset, queue.min_index, end, messages))

    def query_message(self, answer, tuple files not None, topic, key, int64_t max_count,
                      int64_t begin, int64_t end):
        """Return messages and the index's end for a key; None if that is not plain."""
        cdef rs_key_query query
        cdef Py_ssize_t number
        if not 0 < max_count <= RS_WALK_HITS or not rs_hash_key(topic, key, &query.walk.wanted):
            return None
        query.walk.begin = begin
        query.walk.end = end
        query.walk.faithful = True
        query.max_count = max_count
        query.count = 0
        query.has_end = False
        query.end_timestamp = query.end_physical_offset = 0
        for number in range(<Py_ssize_t>len(files) - 1, -1, -1):
            if not query_file(&query, files[number]):
                return None
            if query.walk.index.begin_timestamp < begin or query.count >= max_count:
                break
        messages = self._all(query.hits, query.count)
        if messages is None:
            return None
        if query.count == 0:
            query.end_timestamp = query.end_physical_offset = 0
        return rs_named_tuple(
            answer, (messages, query.end_timestamp, query.end_physical_offset))

    cdef list _all(self, const int64_t* offsets, int count):
        """Return the records at all offsets; None if one is not plain."""
        cdef list messages = []
        cdef Window window
        cdef int i
        for i in range(count):
            window = self._at(offsets[i])
            if window is None:
                return None
            message = window._record(offsets[i])
            if message is None:
                return None
            messages.append(message)
        return messages

    cdef MessageList _select(self, rs_selection* work, QueuePlace queue):
        """Run the loop of getMessage in the segment of the first unit."""
        cdef Window window
        cdef MessageList messages
        cdef bytearray rows
        cdef int status
        # The unit is not judged here, so its offset may be any number.
        if rs_guarded(load_first, work) != RS_OK:
            return None
        window = self._at(work.base_offset)
        if window is None:
            return None
        window._set_log(work)
        set_plain(work, queue)
        rows = PyByteArray_FromStringAndSize(
            NULL, work.room * <Py_ssize_t>sizeof(rs_selected_message))
        work.out = <uint8_t*>PyByteArray_AS_STRING(rows)
        with nogil:
            status = rs_guarded(rs_get_message_all, work)
        if work.rows == 0 or (status != RS_OK and status != RS_END and status != RS_LIMIT):
            return None
        messages = MessageList.__new__(MessageList)
        messages._add(window, rows, work.rows)
        return messages


cdef bint query_file(rs_key_query* query, IndexPlace place) except -1:
    """Collect the hits of a file; return False if they are not plain."""
    cdef Py_buffer view
    cdef int status
    mapping = place.file.mapped
    if mapping is None:
        return False
    rs_get_bytes(mapping, &view, False)
    try:
        if not rs_index_place(&query.walk.index, <uint8_t*>view.buf, view.len, place.slots,
                              place.entries):
            return False
        with nogil:
            status = rs_guarded(rs_query_index, query)
    finally:
        PyBuffer_Release(&view)
    if status != RS_OK:
        return False
    rs_keep_hits(query)
    return True


cdef int load_first(void* argument) noexcept nogil:
    """Load the offset in the first unit into ``base_offset``."""
    cdef rs_selection* work = <rs_selection*>argument
    cdef rs_unit unit
    rs_load_unit(work.units + work.position, &unit)
    work.base_offset = unit.physical_offset
    return RS_OK


cdef void set_plain(rs_selection* work, QueuePlace queue) noexcept:
    """Set what is the same in every pull of a queue without a filter."""
    work.tags_codes = NULL
    work.tags_count = 0
    work.topic = <const uint8_t*>PyBytes_AS_STRING(queue.topic_bytes)
    work.topic_nbytes = PyBytes_GET_SIZE(queue.topic_bytes)
    work.queue_id = queue.queue_id
    work.limits.selected_count = 0
    work.limits.selected_nbytes = 0
    work.skip_below = 0
    work.rows = 0
    work.nbytes = 0
    work.reason = 0


# --- Messages -----------------------------------------------------------------------------------

@cython.final
cdef class MessageList:
    """Selected messages; each ``StoredMessage`` is created on access.

    Access raises the window's ``gone`` if another process has overwritten the message since.
    """

    cdef list _parts  # (window, rows, count)
    cdef Py_ssize_t _count

    def __cinit__(self):
        self._parts = []

    def add(self, Window window not None, bytearray rows not None, Py_ssize_t count):
        """Append ``count`` rows of ``formats.SELECTED_MESSAGE`` whose records lie in ``window``."""
        if not 0 <= count <= len(rows) // <Py_ssize_t>sizeof(rs_selected_message):
            raise ValueError(f"{count} rows are not within {len(rows)} bytes")
        self._add(window, rows, count)

    cdef int _add(self, Window window, bytearray rows, Py_ssize_t count) except -1:
        self._parts.append((window, rows, count))
        self._count += count
        return 0

    def extend(self, MessageList other not None):
        """Append the messages of another list."""
        self._parts += other._parts
        self._count += other._count

    def __len__(self):
        return self._count

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self._at(number) for number in range(*index.indices(self._count))]
        return self._at(index)

    cdef object _at(self, Py_ssize_t index):
        cdef rs_selected_message row
        cdef Py_ssize_t count
        if index < 0:
            index += self._count
        if index >= 0:
            for window, rows, part_count in self._parts:
                count = part_count
                if index < count:
                    memcpy(&row, PyByteArray_AS_STRING(<bytearray>rows)
                           + index * <Py_ssize_t>sizeof(row), sizeof(row))
                    return (<Window>window)._message(row.position)
                index -= count
        raise IndexError("message index out of range")

    def __iter__(self):
        cdef MessageIterator iterator = MessageIterator.__new__(MessageIterator)
        iterator._messages = self
        return iterator

    def __repr__(self):
        return f"<{self._count} messages>"

    index = Sequence.index
    count = Sequence.count


@cython.final
cdef class MessageIterator:
    """Iterates over a MessageList."""

    cdef MessageList _messages
    cdef Py_ssize_t _next

    def __iter__(self):
        return self

    def __next__(self):
        if self._next >= self._messages._count:
            raise StopIteration
        self._next += 1
        return self._messages._at(self._next - 1)


Sequence.register(MessageList)
