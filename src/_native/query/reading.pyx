"""Log segments as readers see them, the messages that they select from them, and plain calls.

Contract: ``reading.pyi``. A plain call finds whole and good records in segments and files that were
read before. Anything else (damage, an expired record, an unknown segment ...) is left to the method
that the call decorates.
"""

import functools

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport (
    PyByteArray_AS_STRING, PyByteArray_FromStringAndSize,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.ref cimport PyObject
from libc.stdint cimport INT64_MAX, int64_t, uint8_t
from libc.string cimport memcpy, memset

from rs_arguments cimport rs_check_range, rs_get_bytes
from rs_crc cimport rs_crc_import
from rs_forks cimport rs_fork_count, rs_watch_forks
from rs_formats cimport RS_CQ_UNIT_NBYTES, rs_selected_message
from rs_get_message cimport rs_batch_limits, rs_get_message_all, rs_selection
from rs_guard cimport rs_guard_import, rs_guarded, rs_guarded_function
from rs_index cimport rs_index_place
from rs_index_walk cimport RS_WALK_HITS, rs_widened
from rs_key_match cimport rs_want_key, rs_wanted_key
from rs_key_query cimport *
from rs_plain cimport *
from rs_sql92 cimport rs_compile, rs_sql92_filter, rs_sql92_free
from rs_status cimport RS_END, RS_GET_NO_MATCHED_MESSAGE, RS_LIMIT, RS_OK, RS_OTHER_SEGMENT
from rs_stored_message cimport rs_make_stored_message, rs_stored_message_import
from rs_times cimport rs_elapsed_ms, rs_sampled_ns
from rs_wanted_id cimport rs_want_id, rs_wanted_id

from collections.abc import Sequence

rs_guard_import()
rs_crc_import()
rs_stored_message_import()
rs_watch_forks()


# --- Queues -------------------------------------------------------------------------------------

cdef class QueuePlace:
    """Where the units of a queue are: its bounds and the file that was read last."""

    cdef readonly bytes topic_bytes
    cdef readonly int64_t queue_id
    cdef public int64_t min_index, recovered_index
    cdef public object next_index
    # guarded by: the GIL
    cdef object _file
    cdef int64_t _first, _stop

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
    cdef readonly int64_t slots, entries

    def __init__(self, file, int64_t slots, int64_t entries):
        self.file = file
        self.slots = slots
        self.entries = entries


# --- A segment ----------------------------------------------------------------------------------

# Hidden from the garbage collector: it would clear a memoryview that this window still exports,
# which ends the process when the view is freed.
@cython.no_gc
cdef class Window:
    """A segment's readable bytes, pinned."""

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

    cdef bint _check(self, int64_t physical_offset, rs_check_call* call) except -1:
        """Parse the record at a readable offset; return False if it is not whole and good."""
        cdef int64_t position = physical_offset - self.base_offset
        cdef int status
        call.p = <const uint8_t*>self._view.buf + position
        call.available = self.stop - position
        call.physical_offset = physical_offset
        call.segment_end = self.segment_end
        call.flags = self.flags
        with nogil:
            status = rs_guarded(rs_check_one, call)
        return status == RS_OK

    cdef object _made(self, int64_t physical_offset):
        """Return the message at an offset that was checked; None if it has gone since."""
        try:
            return rs_make_stored_message(
                self.buffer, physical_offset - self.base_offset, self.base_offset,
                self.segment_end)
        except ValueError:
            return None  # another process has overwritten it

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
        return self._at(offset) if rs_to_int64(physical_offset, &offset) else None

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

    cdef object _record(self, int64_t physical_offset, const rs_wanted_id* wanted=NULL):
        """Return the message at an offset; None if it is not plain, or has another id."""
        cdef rs_check_call call
        cdef Window window = self._at(physical_offset)
        call.key = NULL
        call.id = wanted
        call.matches = True
        if window is None or not window._check(physical_offset, &call) or not call.matches:
            return None
        return window._made(physical_offset)

    cdef list _all(self, const int64_t* offsets, int count):
        """Return the messages at all offsets; None if one is not plain."""
        cdef list messages = []
        cdef int i
        for i in range(count):
            message = self._record(offsets[i])
            if message is None:
                return None
            messages.append(message)
        return messages

    cdef list _carriers(self, const int64_t* offsets, int count, const rs_wanted_key* wanted):
        """Return the messages that carry the key; None if a record is not plain."""
        cdef list messages = []
        cdef rs_check_call call
        cdef Window window
        cdef int i
        call.key = wanted
        call.id = NULL
        for i in range(count):
            if i > 0 and offsets[i] == offsets[i - 1]:
                continue
            window = self._at(offsets[i])
            if window is None or not window._check(offsets[i], &call):
                return None
            if call.matches:
                message = window._made(offsets[i])
                if message is None:
                    return None
                messages.append(message)
        return messages

    cdef int64_t _store_timestamp(self, int64_t physical_offset) except? -1:
        """Return the store time of the record at an offset, -1 if it is not plain."""
        cdef rs_check_call call
        cdef Window window = self._at(physical_offset)
        call.key = NULL
        call.id = NULL
        if window is None or not window._check(physical_offset, &call):
            return -1
        return call.row.store_timestamp

    cdef MessageList _select(self, rs_selection* work):
        """Run the loop of getMessage through the segments; None if that is not plain."""
        cdef MessageList messages = MessageList.__new__(MessageList)
        cdef Window window = self._last
        cdef bint is_guess = window is not None
        cdef bytearray rows
        cdef Py_ssize_t before
        cdef int status = RS_OTHER_SEGMENT
        while status == RS_OTHER_SEGMENT:
            if not is_guess:
                # The unit is not judged here, so its offset may be any number.
                if rs_guarded(rs_load_first, work) != RS_OK:
                    return None
                window = self._at(work.base_offset)
                if window is None:
                    return None
            window._set_log(work)
            rows = PyByteArray_FromStringAndSize(
                NULL, work.room * <Py_ssize_t>sizeof(rs_selected_message))
            work.out = <uint8_t*>PyByteArray_AS_STRING(rows)
            work.rows = 0
            work.nbytes = 0
            before = work.position
            with nogil:
                status = rs_guarded(rs_get_message_all, work)
            if is_guess:
                is_guess = False
                if work.rows == 0 and status == RS_OTHER_SEGMENT:
                    continue
            if work.rows == 0:
                if work.sql == NULL and (messages._count == 0 or status != RS_LIMIT):
                    return None
                if status == RS_OTHER_SEGMENT and work.position == before:
                    return None  # the unit was changed meanwhile
            else:
                messages._add(window, rows, work.rows)
            work.room -= work.rows
            work.limits.selected_count += work.rows
            work.limits.selected_nbytes += work.nbytes
        if status != RS_OK and status != RS_END and status != RS_LIMIT:
            return None
        # Without a message the reason is the answer's status.
        unmatched = messages._count > 0 or work.reason == RS_GET_NO_MATCHED_MESSAGE
        return messages if unmatched else None


cdef bint query_file(rs_key_query* query, IndexPlace place, rs_guarded_function walk) except -1:
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
            status = rs_guarded(walk, query)
    finally:
        PyBuffer_Release(&view)
    return status == RS_OK and rs_keep_hits(query)


# --- Plain calls of a store ---------------------------------------------------------------------

cdef class ReaderPlace:
    """Where a store's reader finds what plain calls need: the log, its queues and its index."""

    cdef public object sql_filter
    # guarded by: the GIL
    cdef public int64_t found_times, missed_times, transferred_times, longest_ms

    cdef readonly object log, index
    cdef Windows _windows
    cdef dict _queues, _damage
    cdef object _log_files, _tag_filter
    cdef object _found, _unmatched, _pull_answer, _query_answer
    # guarded by: the GIL
    cdef object _last_topic, _last_queue_id
    cdef QueuePlace _last_queue
    cdef int64_t _max_hits
    cdef rs_batch_limits _limits
    cdef int64_t _filter_nbytes
    cdef int64_t _memory_window_nbytes
    cdef int64_t _forks
    # The filter that was made last, unless a pull uses it. guarded by: the GIL
    cdef rs_sql92_filter* _idle
    cdef object _idle_program

    def __dealloc__(self):
        rs_sql92_free(self._idle)

    def __init__(self, *, log, dict queues not None, index, limits, int64_t max_hits, tag_filter,
                 found, unmatched, answers):
        self.log, self.index = log, index
        self._windows, self._damage, self._log_files = log.windows, log.damage, log.queue
        self._queues = queues
        self._max_hits = max_hits
        self._tag_filter = tag_filter
        self._found, self._unmatched = found, unmatched
        self._pull_answer, self._query_answer = answers
        if not (rs_is_named_tuple(self._pull_answer) and rs_is_named_tuple(self._query_answer)):
            raise TypeError("answers must be subclasses of tuple without fields")
        (self._limits.max_nbytes, self._limits.max_count, self._limits.max_disk_nbytes,
         self._limits.max_disk_count, self._filter_nbytes, self._memory_window_nbytes) = limits
        self._forks = rs_fork_count

    cdef object _get_message(self, topic, queue_id, offset, max_count, filter):
        """Answer a pull; None if it is not plain."""
        cdef rs_selection work
        cdef QueuePlace queue
        cdef int64_t start, count
        if not (type(topic) is str and type(queue_id) is int and type(offset) is int
                and type(max_count) is int):
            return None
        if not rs_to_int64(offset, &start) or not rs_to_int64(max_count, &count):
            return None
        if self._damage or not 0 < count <= min(self._limits.max_count, RS_PLAIN_ROWS):
            return None
        queue = self._queue(topic, queue_id)
        if queue is None:
            return None
        rs_set_plain(&work, queue.topic_bytes, queue.queue_id)
        codes = None
        if filter is not None and type(filter) is self.sql_filter:
            if queue.ext is not None:
                return None  # its bit maps may apply
            self._set_limits(&work.limits, count)
            work.room = <Py_ssize_t>count
            return self._pull_sql(&work, queue, start, filter)
        if filter is not None:
            if type(filter) is not self._tag_filter or filter.exact:
                return None
            codes = filter.tags_codes
            if codes is not None:
                if queue.ext is not None or queue.pull_looks_no_further:
                    return None
                work.tags_codes = <const uint8_t*>PyBytes_AS_STRING(<bytes?>codes)
                work.tags_count = PyBytes_GET_SIZE(codes) // <Py_ssize_t>sizeof(int64_t)
        self._set_limits(&work.limits, count)
        work.room = <Py_ssize_t>count
        return self._pull(&work, queue, start, self._most_units(count))

    cdef QueuePlace _queue(self, topic, queue_id):
        """Return a queue of the table, None for none."""
        cdef QueuePlace queue = self._last_queue
        if topic is not self._last_topic or queue_id is not self._last_queue_id:
            queue = self._queues.get((topic, queue_id))
            if queue is not None:  # the table keeps it
                self._last_topic, self._last_queue_id = topic, queue_id
                self._last_queue = queue
        return queue

    cdef int _set_limits(self, rs_batch_limits* limits, int64_t count) except -1:
        limits[0] = self._limits
        limits.selected_count = 0
        limits.selected_nbytes = 0
        limits.max_count = count
        limits.max_disk_count = min(count, limits.max_disk_count)
        limits.disk_below = 0
        # The first message is always selected.
        if count > 1 and self._log_files.files_end > self._memory_window_nbytes:
            limits.disk_below = self.log.max_offset - self._memory_window_nbytes
        return 0

    cdef int64_t _most_units(self, int64_t count) noexcept:
        """Return how many units a pull examines: a limit in bytes, rounded up."""
        return max((self._filter_nbytes + RS_CQ_UNIT_NBYTES - 1) // RS_CQ_UNIT_NBYTES, count)

    cdef object _pull_sql(self, rs_selection* work, QueuePlace queue, int64_t start, filter):
        """Answer a pull with an SQL92 filter; None if it is not plain."""
        program = filter.program
        if queue.pull_looks_no_further:
            return None
        if program is self._idle_program and self._idle != NULL:
            work.sql, self._idle = self._idle, NULL
        else:
            rs_compile(&work.sql, program)
        try:
            found = self._pull(work, queue, start, self._most_units(work.limits.max_count))
        finally:
            rs_sql92_free(self._idle)
            self._idle, self._idle_program = work.sql, program
        if found is not None and work.errors:
            filter.count_errors(work.errors)
        return found

    cdef object _pull(self, rs_selection* work, QueuePlace queue, int64_t start, int64_t most):
        """Answer a pull from a queue offset; None if it is not plain."""
        cdef Py_buffer units
        cdef MessageList messages
        cdef int64_t end = queue._end()  # may let another thread run: the file comes after it
        cdef int64_t first = queue._first
        cdef int64_t stop = min(end, queue._stop)
        file = queue._file
        if file is None or not queue.min_index <= start < end or not first <= start < stop:
            return None
        mapping = file.mapped
        if mapping is None:
            return None
        file.was_used = True
        stop = min(stop, start + most)
        work.room = <Py_ssize_t>min(work.room, stop - start)
        work.position = (start - first) * RS_CQ_UNIT_NBYTES
        work.stop = (stop - first) * RS_CQ_UNIT_NBYTES
        work.queue_offset = start
        memset(&units, 0, sizeof(units))
        PyObject_GetBuffer(mapping, &units, PyBUF_SIMPLE)
        try:
            if work.stop > units.len:
                return None
            work.units = <const uint8_t*>units.buf
            work.units_nbytes = units.len
            messages = self._windows._select(work)
        finally:
            PyBuffer_Release(&units)
        if messages is None:
            return None
        cdef object next_offset = work.queue_offset, min_offset = queue.min_index, max_offset = end
        cdef object pulled = self._found if messages._count else self._unmatched
        self.found_times += messages._count > 0
        self.missed_times += messages._count == 0
        self.transferred_times += messages._count
        return rs_named_tuple(
            self._pull_answer, 5, <PyObject*>pulled, <PyObject*>next_offset,
            <PyObject*>min_offset, <PyObject*>max_offset, <PyObject*>messages)

    cdef object _query_message(self, topic, key, max_count, begin, end):
        """Answer a query by key; None if it is not plain."""
        cdef rs_key_query query
        cdef list messages
        if self._damage or not rs_set_times(&query, max_count, begin, end):
            return None
        query.max_count = min(query.max_count, self._max_hits)
        if not 0 < query.max_count <= RS_WALK_HITS:
            return None
        if not rs_hash_key(topic, key, &query.walk.wanted):
            return None
        query.walk.faithful = True
        for place in reversed(<tuple?>self.index.files):
            if not query_file(&query, place, rs_query_index):
                return None
            if query.walk.index.begin_timestamp < query.walk.begin:
                break
            if query.count >= query.max_count:
                break
        messages = self._windows._all(query.hits, query.count)
        if messages is None:
            return None
        if query.count == 0:
            query.end_timestamp = query.end_physical_offset = 0
        cdef object last_timestamp = query.end_timestamp
        cdef object last_offset = query.end_physical_offset
        return rs_named_tuple(
            self._query_answer, 3, <PyObject*>messages, <PyObject*>last_timestamp,
            <PyObject*>last_offset)

    cdef list _find(self, topic, key, bint unique):
        """Return all messages with a key; None if that is not plain."""
        cdef rs_key_query query
        cdef rs_wanted_key wanted
        if self._damage or self.index.gaps or not rs_want_key(topic, key, unique, &wanted):
            return None
        if not rs_hash_key(topic, key, &query.walk.wanted):
            return None
        query.count = 0
        query.walk.begin = rs_widened(0)
        query.walk.end = INT64_MAX
        query.walk.faithful = False
        for place in <tuple?>self.index.files:
            if not query_file(&query, place, rs_find_index):
                return None
        return self._windows._carriers(query.hits, query.count, &wanted)

    cdef object _look(self, int64_t offset, const rs_wanted_id* wanted=NULL):
        """Return the message at an offset; None if it is not plain, or has another id."""
        # For 0 RocketMQ returns the first record, which may begin later.
        return None if offset <= 0 or self._damage else self._windows._record(offset, wanted)

    def narrow(self, QueuePlace queue not None, int64_t low, int64_t high, timestamp, bint upper):
        """Return bounds (low, high) of the first queue offset with a store time of at least, if
        ``upper`` later than, ``timestamp``: as near as can be found with plain steps."""
        cdef int64_t middle, time, wanted
        if not rs_to_int64(timestamp, &wanted):
            return low, high
        while low < high and not self._damage:
            middle = low + (high - low) // 2
            time = self._time_at(queue, middle)
            if time < 0:
                break
            if time < wanted or (upper and time == wanted):
                low = middle + 1
            else:
                high = middle
        return low, high

    cdef int64_t _time_at(self, QueuePlace queue, int64_t index) except? -1:
        """Return the store time of the message at a queue offset, -1 if it is not plain."""
        cdef Py_buffer units
        cdef rs_selection work
        file = queue._file
        if file is None or not queue._first <= index < queue._stop:
            return -1
        mapping = file.mapped
        if mapping is None:
            return -1
        work.position = (index - queue._first) * RS_CQ_UNIT_NBYTES
        memset(&units, 0, sizeof(units))
        PyObject_GetBuffer(mapping, &units, PyBUF_SIMPLE)
        try:
            work.units = <const uint8_t*>units.buf
            if work.position + RS_CQ_UNIT_NBYTES > units.len:
                return -1
            if rs_guarded(rs_load_first, &work) != RS_OK:
                return -1
        finally:
            PyBuffer_Release(&units)
        return self._windows._store_timestamp(work.base_offset)


cdef ReaderPlace reader_of(store):
    """Return the reader of an open store; None for a closed one and in a forked child."""
    cdef ReaderPlace reader
    if store._closed is not False:
        return None
    reader = store._reader
    return reader if reader._forks == rs_fork_count else None


def get_message(method):
    """Answer plain calls of ``method``."""
    def get_message(self, group, topic, queue_id, offset, max_count=32, *, filter=None,
                    wait_s=None):
        cdef ReaderPlace reader = reader_of(self) if wait_s is None else None
        cdef int64_t begin_ns
        if type(filter) is str:
            filter = self.filter(filter)
        if reader is not None:
            begin_ns = rs_sampled_ns(reader.found_times + reader.missed_times)
            found = reader._get_message(topic, queue_id, offset, max_count, filter)
            if found is None:
                found = method(self, group, topic, queue_id, offset, max_count, filter=filter)
                rs_count_pull(found, reader._found, &reader.found_times, &reader.missed_times,
                              &reader.transferred_times)
            if begin_ns != 0:
                rs_elapsed_ms(begin_ns, &reader.longest_ms)
            return found
        return method(self, group, topic, queue_id, offset, max_count, filter=filter, wait_s=wait_s)
    return functools.update_wrapper(get_message, method)


def query_message(method):
    """Answer plain calls of ``method``."""
    def query_message(self, topic, key, max_count=32, begin=0, end=INT64_MAX):
        cdef ReaderPlace reader = reader_of(self)
        if reader is not None:
            found = reader._query_message(topic, key, max_count, begin, end)
            if found is not None:
                return found
        return method(self, topic, key, max_count, begin, end)
    return functools.update_wrapper(query_message, method)


def find(method):
    """Answer plain calls of ``method``."""
    def find(self, *, topic=None, key=None, unique_key=None, tags=None, body_contains=None,
             begin=None, end=None, filter=None, on_corruption="fail"):
        cdef ReaderPlace reader
        if (tags is None and body_contains is None and begin is None and end is None
                and filter is None and (key is None) != (unique_key is None)
                and on_corruption == "fail"):
            reader = reader_of(self)
            if reader is not None:
                messages = reader._find(topic, key if unique_key is None else unique_key,
                                        key is None)
                if messages is not None:
                    return iter(messages)
        return method(
            self, topic=topic, key=key, unique_key=unique_key, tags=tags,
            body_contains=body_contains, begin=begin, end=end, filter=filter,
            on_corruption=on_corruption)
    return functools.update_wrapper(find, method)


def look_message_by_offset(method):
    """Answer plain calls of ``method``."""
    def look_message_by_offset(self, physical_offset):
        cdef ReaderPlace reader = reader_of(self)
        cdef int64_t offset
        if reader is not None and type(physical_offset) is int and rs_to_int64(
            physical_offset, &offset
        ):
            message = reader._look(offset)
            if message is not None:
                return message
        return method(self, physical_offset)
    return functools.update_wrapper(look_message_by_offset, method)


def look_message_by_id(method):
    """Answer plain calls of ``method``."""
    def look_message_by_id(self, msg_id):
        cdef ReaderPlace reader
        cdef rs_wanted_id wanted
        if rs_want_id(msg_id, &wanted):
            reader = reader_of(self)
            if reader is not None:
                message = reader._look(wanted.offset, &wanted)
                if message is not None:
                    return message
        return method(self, msg_id)
    return functools.update_wrapper(look_message_by_id, method)


# --- Messages -----------------------------------------------------------------------------------

cdef object message_in(Window window, bytearray rows, Py_ssize_t number):
    """Return the message of a row."""
    cdef rs_selected_message row
    memcpy(&row, PyByteArray_AS_STRING(rows) + number * <Py_ssize_t>sizeof(row), sizeof(row))
    return window._message(row.position)


@cython.final
cdef class MessageList:
    """Selected messages; each ``StoredMessage`` is created on access.

    Access raises the window's ``gone`` if another process has overwritten the message since.
    """

    # The first part, which is most often the only one.
    cdef Window _window
    cdef bytearray _rows
    cdef Py_ssize_t _first_count
    cdef list _parts  # further ones: (window, rows, count)
    cdef Py_ssize_t _count

    def add(self, Window window not None, bytearray rows not None, Py_ssize_t count):
        """Append ``count`` rows of ``formats.SELECTED_MESSAGE`` whose records lie in ``window``."""
        if not 0 <= count <= len(rows) // <Py_ssize_t>sizeof(rs_selected_message):
            raise ValueError(f"{count} rows are not within {len(rows)} bytes")
        self._add(window, rows, count)

    cdef int _add(self, Window window, bytearray rows, Py_ssize_t count) except -1:
        if self._count == 0:
            self._window, self._rows, self._first_count = window, rows, count
        elif self._parts is None:
            self._parts = [(window, rows, count)]
        else:
            self._parts.append((window, rows, count))
        self._count += count
        return 0

    def extend(self, MessageList other not None):
        """Append the messages of another list."""
        cdef list further = [] if other._parts is None else list(other._parts)
        if other._count:
            self._add(other._window, other._rows, other._first_count)
        for window, rows, count in further:
            self._add(window, rows, count)

    def __len__(self):
        return self._count

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self._at(number) for number in range(*index.indices(self._count))]
        return self._at(index)

    cdef object _at(self, Py_ssize_t index):
        cdef Py_ssize_t count
        if index < 0:
            index += self._count
        if not 0 <= index < self._count:
            raise IndexError("message index out of range")
        if index < self._first_count:
            return message_in(self._window, self._rows, index)
        index -= self._first_count
        for window, rows, part_count in self._parts:
            count = part_count
            if index < count:
                return message_in(window, rows, index)
            index -= count

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
