"""The staged dispatcher: records to queue units and index entries. Contract: ``reput.pyi``."""

cimport cython
from cpython.buffer cimport PyObject_CheckBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_NoMemory
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport malloc
from libc.string cimport memset

from rs_crc cimport rs_crc_import
from rs_dispatch cimport (
    rs_bit_maps, rs_bit_maps_add, rs_bit_maps_free, rs_bit_maps_reserve, rs_dispatch,
    rs_dispatch_free, rs_dispatch_init, rs_dispatch_reserve_ext, rs_dispatcher, rs_ext_queue,
    rs_load_acquire64, rs_queue, rs_queue_add, rs_queue_find, rs_queue_hash, rs_queue_remove,
)
from rs_formats cimport RS_CQ_UNIT_NBYTES, RS_MAX_PROPERTIES_NBYTES
from rs_guard cimport rs_guard_import
from rs_index cimport rs_index_place
from rs_status cimport RS_LIMIT, RS_OK

import operator
from operator import itemgetter

from rocketstore import formats

cdef extern from "Python.h":
    Py_buffer* PyMemoryView_GET_BUFFER(object view)

rs_guard_import()
rs_crc_import()

cdef int64_t OFFSET_MAX = 0x7fffffffffffffff
cdef int64_t INT32_LIMIT = 0x7fffffff
# A queue's positions are 64-bit too.
cdef int64_t INDEX_MAX = OFFSET_MAX // RS_CQ_UNIT_NBYTES
cdef int64_t LOG_MAX = formats.MAX_COMMIT_LOG_FILE_NBYTES


cdef int64_t bounded(str name, object value, int64_t low, int64_t high) except? -1:
    number = operator.index(value)
    if not low <= number <= high:
        raise ValueError(f"{name} {number} is outside {low} .. {high}")
    return number


cdef object bytes_view(object buffer, bint writes):
    """Return a contiguous view of the buffer's bytes; the caller releases it."""
    if not PyObject_CheckBuffer(buffer):
        raise TypeError(f"a bytes-like object is required, not '{type(buffer).__name__}'")
    view = memoryview(buffer)
    if not view.c_contiguous:
        raise BufferError("memoryview: underlying buffer is not C-contiguous")
    view = view.cast("B")
    if writes and view.readonly:
        raise BufferError("Object is not writable.")
    return view


cdef inline uint8_t* start_of(object view) noexcept:
    return <uint8_t*>PyMemoryView_GET_BUFFER(view).buf


cdef tuple checked_filter(object row, int32_t nbytes):
    """Return (topic, program, bits, born_time) of a filter."""
    topic, program, bits, born_time = row
    if type(topic) is not bytes or type(bits) is not bytes:
        raise TypeError("topic and bits must be bytes")
    if program is not None and type(program) is not bytes:
        raise TypeError("program must be bytes or None")
    if len(bits) != nbytes:
        raise ValueError(f"bits has {len(bits)} bytes, a bit map {nbytes}")
    return topic, program, bits, bounded("born_time", born_time, -OFFSET_MAX, OFFSET_MAX)


cdef int add_filter(rs_bit_maps* maps, bytes program, bytes bits, int64_t born_time) except -1:
    cdef const uint8_t* code = NULL
    cdef int64_t nbytes = 0
    if program is not None:
        code = <const uint8_t*>PyBytes_AS_STRING(program)
        nbytes = PyBytes_GET_SIZE(program)
    cdef int status = rs_bit_maps_add(
        maps, code, nbytes, born_time, <const uint8_t*>PyBytes_AS_STRING(bits))
    if status == RS_LIMIT:
        PyErr_NoMemory()
    if status != RS_OK:
        raise ValueError("these bytes are no program of an SQL92 filter")
    return 0


@cython.final
cdef class Dispatcher:
    """See ``reput.pyi``."""

    cdef rs_dispatcher* core
    cdef list views            # of handle: what the queue's unit pointers point into, or None
    cdef list ext_views        # of handle: the same for its ext file
    cdef dict filters          # of topic: numbers of its first filter and after its last
    cdef object index_view
    cdef bint busy             # guarded by: the GIL
    cdef bint closed

    def __cinit__(
        self, *, index_enable=True, index_tags=True, delay_ms=(), multi_dispatch=0,
        ext_file_nbytes=0,
    ):
        cdef Py_ssize_t i, count
        self.core = <rs_dispatcher*>malloc(sizeof(rs_dispatcher))
        if self.core == NULL:
            PyErr_NoMemory()
        rs_dispatch_init(self.core)
        self.views = []
        self.ext_views = []
        self.filters = {}
        self.core.multi_dispatch = <int32_t>bounded("multi_dispatch", multi_dispatch, 0, 15)
        self.core.ext_file_nbytes = bounded("ext_file_nbytes", ext_file_nbytes, 0, LOG_MAX)
        self.core.index_enable = bool(index_enable)
        self.core.index_tags = bool(index_tags)
        # Keyed by a secret of the process, so that clients cannot choose colliding topic names.
        self.core.table.seed = <uint64_t>hash(b"rocketstore queues")
        delays = [bounded("delay", delay, 0, OFFSET_MAX) for delay in delay_ms]
        count = len(delays)
        self.core.delay_ms = <int64_t*>malloc(<size_t>(count + 1) * sizeof(int64_t))
        if self.core.delay_ms == NULL:
            PyErr_NoMemory()
        for i in range(count):
            self.core.delay_ms[i] = delays[i]
        self.core.delay_count = <int32_t>count

    def __dealloc__(self):
        if self.core != NULL:
            rs_dispatch_free(self.core)

    # --- one thread inside ------------------------------------------------------------------

    cdef int enter(self, bint closing=False) except -1:
        if self.busy:
            raise RuntimeError("another thread is inside this dispatcher")
        if self.closed and not closing:
            raise ValueError("the dispatcher is closed")
        self.busy = True
        return 0

    # --- queues -----------------------------------------------------------------------------

    cdef rs_queue* find(
        self, object topic, object queue_id, uint64_t* key, int32_t* number
    ) except? NULL:
        """Return the queue, or NULL; its hash and id go to `key` and `number`."""
        if not isinstance(topic, bytes):
            raise TypeError(f"topic must be bytes, not {type(topic).__name__}")
        if PyBytes_GET_SIZE(topic) > RS_MAX_PROPERTIES_NBYTES:
            raise ValueError(f"topic of {len(topic)} bytes is longer than any record can hold")
        cdef const uint8_t* text = <const uint8_t*>PyBytes_AS_STRING(topic)
        cdef int32_t nbytes = <int32_t>PyBytes_GET_SIZE(topic)
        number[0] = <int32_t>bounded("queue_id", queue_id, 0, INT32_LIMIT)
        key[0] = rs_queue_hash(self.core.table.seed, text, nbytes, number[0])
        if self.core.table.places == NULL:
            return NULL
        return rs_queue_find(&self.core.table, key[0], text, nbytes, number[0])

    def set_queue(self, topic, queue_id, buffer, first_index, next_index, max_physical_offset):
        self.enter()
        try:
            return self._set_queue(
                topic, queue_id, buffer, first_index, next_index, max_physical_offset
            )
        finally:
            self.busy = False

    cdef int32_t _set_queue(self, object topic, object queue_id, object buffer, object first_index,
                            object next_index, object max_physical_offset) except -1:
        cdef uint64_t key = 0
        cdef int32_t number = 0
        cdef rs_queue* queue = self.find(topic, queue_id, &key, &number)
        cdef int64_t first = bounded("first_index", first_index, 0, INDEX_MAX)
        cdef int64_t following = bounded("next_index", next_index, first, INDEX_MAX)
        cdef int64_t end = bounded("max_physical_offset", max_physical_offset, -1, OFFSET_MAX)
        cdef int64_t capacity = 0
        view = None
        if buffer is not None:
            view = bytes_view(buffer, True)
            capacity = PyMemoryView_GET_BUFFER(view).len // RS_CQ_UNIT_NBYTES
            if following - first > capacity:
                raise ValueError(
                    f"next_index {following} is past the {capacity} units of a file that "
                    f"begins at {first}"
                )
        if queue == NULL:
            queue = rs_queue_add(&self.core.table, key, <const uint8_t*>PyBytes_AS_STRING(topic),
                                 <int32_t>PyBytes_GET_SIZE(topic), number)
            if queue == NULL:
                PyErr_NoMemory()
            self.views.append(None)
            self.ext_views.append(None)
            if rs_dispatch_reserve_ext(self.core) != 0:
                rs_queue_remove(&self.core.table, queue)
                PyErr_NoMemory()
            self.find_filters(queue.handle, topic)
        self.release_view(queue)
        self.views[queue.handle] = view
        if view is not None:
            queue.write = start_of(view) + (following - first) * RS_CQ_UNIT_NBYTES
            queue.limit = start_of(view) + capacity * RS_CQ_UNIT_NBYTES
        else:
            self.release_ext(queue.handle)
        queue.next_index = following
        queue.max_physical_offset = end
        return queue.handle

    cdef int release_view(self, rs_queue* queue) except -1:
        queue.write = queue.limit = NULL
        view = self.views[queue.handle]
        if view is not None:
            self.views[queue.handle] = None
            view.release()
        return 0

    def remove_queue(self, topic, queue_id):
        cdef uint64_t key = 0
        cdef int32_t number = 0
        self.enter()
        try:
            queue = self.find(topic, queue_id, &key, &number)
            if queue != NULL:
                self.release_view(queue)
                self.release_ext(queue.handle)
                rs_queue_remove(&self.core.table, queue)
        finally:
            self.busy = False

    def handle(self, topic, queue_id):
        cdef uint64_t key = 0
        cdef int32_t number = 0
        queue = self.find(topic, queue_id, &key, &number)
        return -1 if queue == NULL else queue.handle

    cdef rs_queue* by_handle(self, object handle) except NULL:
        number = operator.index(handle)
        if not 0 <= number < self.core.table.handle_count:
            raise ValueError(f"no queue has the handle {number}")
        return self.by_number(number)

    cdef rs_queue* by_number(self, int32_t handle) except NULL:
        cdef rs_queue* queue = NULL
        if 0 <= handle < self.core.table.handle_count:
            queue = self.core.table.of_handle[handle]
        if queue == NULL:
            raise ValueError(f"no queue has the handle {handle}")
        return queue

    def next_index(self, handle):
        return rs_load_acquire64(&self.by_handle(handle).next_index)

    def next_index_of(self, handle):
        cdef int32_t number = self.by_handle(handle).handle

        def next_index():
            return rs_load_acquire64(&self.by_number(number).next_index)

        return next_index

    def max_physical_offset(self, handle):
        return rs_load_acquire64(&self.by_handle(handle).max_physical_offset)

    def set_shifted(self, handle):
        self.enter()
        try:
            self.by_handle(handle).shifted = 1
        finally:
            self.busy = False

    # --- ext files --------------------------------------------------------------------------

    def set_ext(self, handle, buffer, file_offset, offset):
        self.enter()
        try:
            self._set_ext(handle, buffer, file_offset, offset)
        finally:
            self.busy = False

    cdef int _set_ext(
        self, object handle, object buffer, object file_offset, object offset
    ) except -1:
        cdef rs_queue* queue = self.by_handle(handle)
        cdef int64_t file_nbytes = self.core.ext_file_nbytes
        if file_nbytes == 0:
            raise ValueError("this dispatcher has no ext files")
        cdef int64_t start = bounded("file_offset", file_offset, 0, OFFSET_MAX - file_nbytes)
        view = bytes_view(buffer, True)
        cdef int64_t nbytes = PyMemoryView_GET_BUFFER(view).len
        cdef int64_t limit = nbytes if nbytes < file_nbytes else file_nbytes
        cdef int64_t place = bounded("offset", offset, start, start + limit)
        self.release_ext(queue.handle)
        self.ext_views[queue.handle] = view
        cdef rs_ext_queue* ext = self.core.ext + queue.handle
        ext.write = start_of(view) + (place - start)
        ext.limit = start_of(view) + limit
        ext.offset = place
        ext.file_end = start + file_nbytes
        return 0

    cdef int release_ext(self, int32_t handle) except -1:
        view = self.ext_views[handle]
        if view is not None:
            self.core.ext[handle].write = self.core.ext[handle].limit = NULL
            self.ext_views[handle] = None
            view.release()
        return 0

    def ext_offset(self, handle):
        cdef rs_queue* queue = self.by_handle(handle)
        return -1 if self.core.ext == NULL else self.core.ext[queue.handle].offset

    def trust_ext(self, handle, index):
        cdef rs_queue* queue
        self.enter()
        try:
            queue = self.by_handle(handle)
            if self.core.ext != NULL:
                self.core.ext[queue.handle].trusted_index = bounded("index", index, 0, INDEX_MAX)
        finally:
            self.busy = False

    def set_compare(self, compare):
        self.enter()
        try:
            self.core.compare = bool(compare)
        finally:
            self.busy = False

    # --- bit maps ---------------------------------------------------------------------------

    cdef int find_filters(self, int32_t handle, bytes topic) except -1:
        """Note where the filters of a queue's topic are."""
        if self.core.ext != NULL:
            first, last = self.filters.get(topic, (0, 0))
            self.core.ext[handle].filters_from = first
            self.core.ext[handle].filters_to = last
        return 0

    def set_filters(self, bit_map_nbytes, filters):
        self.enter()
        try:
            self._set_filters(bit_map_nbytes, filters)
        finally:
            self.busy = False

    cdef int _set_filters(self, object bit_map_nbytes, object filters) except -1:
        cdef rs_bit_maps made
        cdef int32_t nbytes = <int32_t>bounded("bit_map_nbytes", bit_map_nbytes, 0, INT32_LIMIT)
        cdef int32_t handle
        cdef rs_queue* queue
        # By topic; the filters of a topic keep their order.
        rows = sorted([checked_filter(row, nbytes) for row in filters], key=itemgetter(0))
        memset(&made, 0, sizeof(made))
        found = {}
        try:
            if rs_bit_maps_reserve(&made, <int32_t>len(rows), nbytes) != 0:
                PyErr_NoMemory()
            for topic, program, bits, born_time in rows:
                add_filter(&made, program, bits, born_time)
                found[topic] = (found.get(topic, (made.count - 1,))[0], made.count)
        except BaseException:
            rs_bit_maps_free(&made)
            raise
        made.errors = self.core.bit_maps.errors
        rs_bit_maps_free(&self.core.bit_maps)
        self.core.bit_maps = made
        self.filters = found
        for handle in range(self.core.table.handle_count):
            queue = self.core.table.of_handle[handle]
            if queue != NULL:
                topic = PyBytes_FromStringAndSize(<const char*>queue.topic, queue.topic_nbytes)
                self.find_filters(handle, topic)
        return 0

    @property
    def filter_errors(self):
        return self.core.bit_maps.errors

    @property
    def newest_ext_timestamp(self):
        return self.core.newest_ext_timestamp

    # --- index ------------------------------------------------------------------------------

    def set_index(self, buffer, slots, entries, indexed_offset, indexed_keys=None):
        self.enter()
        try:
            self._set_index(buffer, slots, entries, indexed_offset, indexed_keys)
        finally:
            self.busy = False

    cdef int _set_index(self, object buffer, object slots, object entries, object indexed_offset,
                        object indexed_keys) except -1:
        cdef int64_t offset = bounded("indexed_offset", indexed_offset, 0, OFFSET_MAX)
        cdef int32_t keys = self.core.indexed_keys if offset == self.core.indexed_offset else 0
        cdef int64_t slot_count, entry_count
        if indexed_keys is not None:
            keys = <int32_t>bounded("indexed_keys", indexed_keys, 0, INT32_LIMIT)
        view = None
        if buffer is not None:
            slot_count = bounded("slots", slots, 1, INT32_LIMIT)
            entry_count = bounded("entries", entries, 1, INT32_LIMIT)
            view = bytes_view(buffer, True)
            # Nothing changes if it does not fit.
            if not rs_index_place(&self.core.index, start_of(view),
                                  PyMemoryView_GET_BUFFER(view).len, slot_count, entry_count):
                raise ValueError(
                    f"an index of {slot_count} slots and {entry_count} entries does not fit "
                    f"{view.nbytes} bytes"
                )
        else:
            self.core.index.base = NULL
        former, self.index_view = self.index_view, view
        if former is not None:
            former.release()
        self.core.indexed_offset = offset
        self.core.indexed_keys = keys
        return 0

    # --- dispatch ---------------------------------------------------------------------------

    def dispatch(self, buffer, position, stop, base_offset, segment_end, max_count=4096):
        self.enter()
        try:
            view = bytes_view(buffer, False)
            try:
                return self._dispatch(view, position, stop, base_offset, segment_end, max_count)
            finally:
                view.release()
        finally:
            self.busy = False

    cdef tuple _dispatch(self, object view, object position, object stop, object base_offset,
                         object segment_end, object max_count):
        cdef rs_dispatcher* core = self.core
        cdef int64_t left
        cdef int status
        core.stop = bounded("stop", stop, 0, min(PyMemoryView_GET_BUFFER(view).len, LOG_MAX))
        core.position = bounded("position", position, 0, core.stop)
        core.base_offset = bounded("base_offset", base_offset, 0, OFFSET_MAX - core.stop)
        core.segment_end = bounded("segment_end", segment_end, core.base_offset + core.stop,
                                   OFFSET_MAX)
        left = bounded("max_count", max_count, 1, INT32_LIMIT)
        core.log = start_of(view)
        with nogil:
            status = rs_dispatch(core, left)
        return core.position, status

    def close(self):
        cdef int32_t handle
        self.enter(closing=True)
        try:
            self.closed = True
            for handle in range(self.core.table.handle_count):
                if self.core.table.of_handle[handle] != NULL:
                    self.release_view(self.core.table.of_handle[handle])
                    self.release_ext(handle)
            self.core.index.base = NULL
            former, self.index_view = self.index_view, None
            if former is not None:
                former.release()
        finally:
            self.busy = False

    # --- progress ---------------------------------------------------------------------------

    @property
    def position_offset(self):
        return rs_load_acquire64(&self.core.position_offset)

    @property
    def indexed_offset(self):
        return rs_load_acquire64(&self.core.indexed_offset)

    @property
    def indexed_keys(self):
        return self.core.indexed_keys

    @property
    def last_store_timestamp(self):
        return self.core.last_store_timestamp

    @property
    def last_record_offset(self):
        return self.core.last_record_offset

    @property
    def dispatched_count(self):
        return self.core.dispatched_count

    @property
    def skipped_ghosts(self):
        return self.core.skipped_ghosts

    @property
    def skipped_topics(self):
        return self.core.skipped_topics

    @property
    def repeated_units(self):
        return self.core.repeated_units

    @property
    def odd_names(self):
        return self.core.odd_names

    def take_odd_names(self):
        self.enter()
        try:
            taken = [self.core.odd_offsets[at] for at in range(self.core.odd_count)]
            self.core.odd_count = 0
            return taken
        finally:
            self.busy = False

    @property
    def mended_units(self):
        return self.core.mended_units

    @property
    def stalled(self):
        cdef rs_dispatcher* core = self.core
        if core.stalled_topic_nbytes == 0:
            return None
        topic = PyBytes_FromStringAndSize(<const char*>core.stalled_topic,
                                          core.stalled_topic_nbytes)
        return topic, core.stalled_queue_id, core.stalled_queue_offset
