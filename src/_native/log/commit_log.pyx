"""The appender: encodes records in place into the current log segment.

Code that needs Python objects is here and in ``rs_put_*.pxd``; the append loop is in
``rs_appender.h``. Most puts take the plain path (``rs_put_plain.pxd``). Any special case (a name
given twice, an exceeded limit, a timer's property ...) goes through the rules, which use a dict.
"""

cimport cython
from cpython.buffer cimport PyBuffer_Release
from cpython.bytes cimport *
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.pycapsule cimport PyCapsule_New
from cpython.object cimport PyObject
from libc.stddef cimport size_t
from libc.stdint cimport *
from libc.string cimport memcpy, memset

from rs_append_call cimport *
from rs_appender cimport *
from rs_crc cimport rs_crc_import
from rs_forks cimport rs_fork_count, rs_watch_forks
from rs_formats cimport RS_BLANK_NBYTES
from rs_guard cimport rs_guard_import
from rs_hosts cimport rs_parse_host
from rs_message_object cimport rs_message_object
from rs_known_topics cimport *
from rs_put_arguments cimport *
from rs_put_batch cimport rs_pack_ids, rs_take_batch
from rs_put_offset_properties cimport rs_take_offset_rules
from rs_put_plain cimport rs_given_properties, rs_make_plain
from rs_put_properties cimport *
from rs_put_result cimport *
from rs_put_rules cimport *
from rs_put_staged cimport *
from rs_put_text cimport *
from rs_status cimport *
from rs_times cimport *

import os
import threading
from itertools import islice

from rocketstore import formats
from rocketstore._native import put_result
from rocketstore._native.message import Message, StoredMessage
from rocketstore.dialect import Dialect
from rocketstore.errors import ForkedStoreError, MappedFileError
from rocketstore.errors import ServiceFailedError, StoreClosedError, error_text
from rocketstore.status import PutMessageStatus

# A class known only by its layout is not a name of the module.
globals().update({n: getattr(put_result, n) for n in ("PutMessageResult", "PutManyResult")})
rs_guard_import()
rs_crc_import()
rs_watch_forks()

cdef enum:
    # Records of one mutex hold of put_many and put_columns.
    CHUNK_COUNT = 512
    CHUNK_NBYTES = 4 * 1024 * 1024
    # Attempts to make room for one record; and of these, those in which nothing changed.
    ROUND_LIMIT = 1000
    IDLE_ROUND_LIMIT = 3


@cython.final
cdef class Appender:
    """Appends to one log; any number of threads may put. Callbacks run without its mutex."""

    cdef rs_appender _state
    cdef bint _ready  # the mutex and the table exist
    cdef int64_t _forks
    # The rules; never change.
    cdef object _roll, _extend, _wait, _clock, _unique_key_maker, _room_lock, _dialect
    cdef object _before_roll, _timer_rules
    cdef rs_put_rules _rules
    cdef bytes _store_host
    # guarded by: the GIL
    cdef public object bell
    cdef object _failure
    cdef readonly int64_t failed_times
    cdef rs_times _times
    cdef dict _hosts, _counts
    cdef frozenset _batch_topics
    cdef rs_known_topics _topics
    # Values that are the same in every record.
    cdef rs_put_record _template

    def __cinit__(self, *args, **kwargs):
        seed = int.from_bytes(os.urandom(8), "little")
        self._state.refusal = -1
        self._state.stop = RS_STOP_CLOSED  # until it is set up
        if rs_topic_table_init(&self._state.queues, seed) != 0:
            raise MemoryError()
        if rs_mutex_init(&self._state.mutex) != 0:
            rs_topic_table_free(&self._state.queues)
            raise MemoryError()
        self._forks = rs_fork_count
        self._counts = {}
        self._ready = True

    def __init__(self, *, roll, extend, wait=None, clock=None, store_host="127.0.0.1:10911",
                 broker_version="5.3.3", max_message_size=4194304, segment_nbytes=1073741824,
                 delay_ms=(), append_property_crc=False, unique_key_maker=None,
                 enable_lmq=False, enable_multi_dispatch=False, max_lmq_consume_queue_num=20000,
                 enable_lmq_quota=False, before_roll=None, timer_rules=None):
        if self._hosts is not None:
            raise RuntimeError("an Appender cannot be set up twice")
        self._dialect = dialect = Dialect.for_version(broker_version, allow_newer=True)
        dialect.check_put(append_property_crc=bool(append_property_crc),
                          light_queues=bool(enable_lmq or enable_multi_dispatch))
        self._store_host = rs_parse_host(store_host)
        self._rules.property_crc = bool(append_property_crc)
        self._rules.max_message_size = rs_to_integer(
            "max_message_size", max_message_size, 0, INT32_MAX)
        self._rules.segment_nbytes = rs_to_integer(
            "segment_nbytes", segment_nbytes, formats.MIN_COMMIT_LOG_FILE_NBYTES,
            formats.MAX_COMMIT_LOG_FILE_NBYTES)
        self._rules.delay_level_count = <int32_t> min(<Py_ssize_t> len(delay_ms), INT32_MAX)
        rs_take_offset_rules(
            &self._rules.late, dialect, enable_lmq, enable_multi_dispatch,
            rs_to_integer("max_lmq_consume_queue_num", max_lmq_consume_queue_num, 0, INT32_MAX),
            enable_lmq_quota)
        rs_take_dialect(&self._rules, dialect)
        self._keep_batch_topics(frozenset())
        self._state.segment_nbytes = self._rules.segment_nbytes
        self._roll, self._extend, self._before_roll = roll, extend, before_roll
        self._wait, self._clock, self._timer_rules = wait, clock, timer_rules
        rs_take_timer_rules(&self._rules, timer_rules, clock)
        self._unique_key_maker = unique_key_maker
        self._room_lock = threading.RLock()
        self._hosts = {}
        rs_set_template(&self._template, self._rules.property_crc, self._store_host)
        self._state.stop = 0

    def __dealloc__(self):
        rs_forget_topics(&self._topics)
        if self._ready:
            rs_unpin_segment(self._state.view)
            rs_topic_table_free(&self._state.queues)
            if self._forks == rs_fork_count:
                rs_mutex_destroy(&self._state.mutex)

    # --- the log ---

    def attach(self, buffer, base_offset, position, frontier):
        """Append to this (writable, segment-long) buffer from ``position``; release the old one."""
        cdef Py_buffer *view
        cdef void *unwanted
        cdef int64_t size = self._rules.segment_nbytes
        cdef int64_t base, place, blocks
        self._check_usable()
        view = rs_pin_segment(buffer)
        unwanted = view
        try:
            if view.len != size:
                raise ValueError(f"the segment's buffer has {view.len} bytes instead of {size}")
            base = rs_to_integer("base_offset", base_offset, 0, INT64_MAX - size)
            place = rs_to_integer("position", position, 0, size)
            if place > size - RS_BLANK_NBYTES and place != size:
                raise ValueError(f"position {place} leaves no room for the end-of-segment marker")
            blocks = rs_to_integer("frontier", frontier, 0, size)
            with nogil:
                unwanted = rs_appender_replace(
                    &self._state, view, <uint8_t *> view.buf, base, place, blocks, 0, True)
        finally:
            rs_unpin_segment(unwanted)
        if unwanted == view:
            self._raise_unusable()

    def detach(self):
        """Release the buffer; the next put requests a segment."""
        self._detach(0)

    cdef int _detach(self, int32_t stop) except -1:
        cdef void *former
        # In a forked child the mutex may be held by a thread that does not exist there.
        cdef bint locks = self._forks == rs_fork_count
        with nogil:
            former = rs_appender_replace(&self._state, NULL, NULL, 0, 0, 0, stop, locks)
        return rs_unpin_segment(former)

    def set_frontier(self, position, base_offset=None):
        """Set the end of the allocated disk blocks; it never moves back within a segment."""
        self._raise_limit(&self._state.frontier, position, base_offset)

    def set_populated(self, position, base_offset=None):
        """Set the end of the present pages: a put before it keeps the GIL."""
        self._raise_limit(&self._state.populated, position, base_offset)

    cdef int _raise_limit(self, int64_t *limit, object position, object base_offset) except -1:
        cdef int64_t place
        cdef int64_t base = -1
        self._check_forked()
        place = rs_to_integer("position", position, 0, self._rules.segment_nbytes)
        if base_offset is not None:
            base = rs_to_integer("base_offset", base_offset, 0, INT64_MAX)
        with nogil:
            rs_appender_raise(&self._state, limit, place, base)
        return 0

    @property
    def write_offset(self):
        """Physical offset after the last published record."""
        return rs_load_acquire64(&self._state.write_offset)

    def has_room(self, int64_t nbytes):
        """Return whether ``nbytes`` fit the allocated blocks of the segment at this moment."""
        self._check_forked()
        return rs_fits(&self._state, nbytes)

    @property
    def _capsule(self):
        return PyCapsule_New(&self._state, "rocketstore.appender", NULL)  # not to outlive this
    @property
    def _inside(self):
        """What a kernel needs that appends beside this one; not to outlive this."""
        self._check_forked()
        return (self._capsule, PyCapsule_New(&self._rules, "rocketstore.rules", NULL),
                PyCapsule_New(&self._template, "rocketstore.template", NULL), self._clock,
                self._hosts, self._store_host)

    @property
    def write_position(self):
        """The same offset, as a position in the current segment."""
        return rs_load_acquire64(&self._state.position)

    @property
    def base_offset(self):
        """Physical offset of the current segment's first byte."""
        return rs_load_acquire64(&self._state.base_offset)

    @property
    def is_attached(self):
        """Return whether there is a segment to append to."""
        return self._state.view != NULL

    @property
    def last_store_timestamp(self):
        """Store time of the last record; 0 before the first."""
        return rs_load_acquire64(&self._state.last_store_timestamp)

    # --- the topic-queue table ---

    def next_queue_offset(self, topic, queue_id):
        """Return the queue offset of the next message; 0 if unknown."""
        cdef rs_queue_key key
        cdef bytes holds = rs_take_queue_key(&key, topic, queue_id)
        cdef int64_t offset
        self._check_forked()
        with nogil:
            offset = rs_appender_next_offset(&self._state, key.topic, key.nbytes, key.queue_id)
        return offset

    def set_next_queue_offset(self, topic, queue_id, queue_offset):
        """Set the queue offset of the next message."""
        cdef rs_queue_key key
        cdef bytes holds = rs_take_queue_key(&key, topic, queue_id)
        cdef int64_t offset = rs_to_integer("queue_offset", queue_offset, 0, <int64_t> 1 << 62)
        cdef int failed
        self._check_forked()
        with nogil:
            failed = rs_appender_set_next_offset(
                &self._state, key.topic, key.nbytes, key.queue_id, offset)
        if failed:
            raise MemoryError()

    def set_batch_topics(self, topics):
        """Set the topics that take inner batches."""
        names = set()
        for topic in topics:
            if not isinstance(topic, str):
                raise TypeError(f"topic must be str, not {type(topic).__name__}")
            names.add(topic)
        self._check_forked()
        self._keep_batch_topics(frozenset(names))

    cdef int _keep_batch_topics(self, frozenset topics) except -1:
        former = self._batch_topics  # lives until the last pointer to it is replaced
        self._batch_topics = topics
        self._rules.late.batch_topics = <PyObject *> topics
        return 0

    def remove_queue(self, topic, queue_id):
        """Remove a queue; its numbering restarts at 0."""
        cdef rs_queue_key key
        cdef bytes holds = rs_take_queue_key(&key, topic, queue_id)
        self._check_forked()
        with nogil:
            rs_appender_remove_queue(&self._state, key.topic, key.nbytes, key.queue_id)

    # --- switching off ---

    def refuse(self, status):
        """Return this status from every put until ``refuse(None)``."""
        cdef int32_t refusal
        self._check_forked()
        refusal = -1 if status is None else PutMessageStatus(status)
        with nogil:
            rs_appender_refuse(&self._state, refusal)

    def fail(self, error):
        """Make every later put raise ``ServiceFailedError``; the first cause stays."""
        self._check_forked()
        if self._failure is None:
            self._failure = error
        with nogil:
            rs_appender_stop(&self._state, RS_STOP_FAILED)

    def close(self):
        """Release the buffer; later puts raise ``StoreClosedError``. Idempotent."""
        self._detach(RS_STOP_CLOSED)

    cdef int _check_forked(self) except -1:
        if self._forks != rs_fork_count:
            raise ForkedStoreError(
                "this store was opened by the parent process; open it by path in the child")
        return 0

    cdef inline int _check_usable(self) except -1:
        if self._forks != rs_fork_count or rs_load_acquire32(&self._state.stop) != 0:
            self._raise_unusable()
        return 0

    cdef int _raise_unusable(self) except -1:
        self._check_forked()
        if rs_load_acquire32(&self._state.stop) & RS_STOP_CLOSED:
            raise StoreClosedError("the store is closed")
        if self._failure is None:
            self._failure = MappedFileError(
                "writing the log faulted: its file was shortened, or its disk failed")
        raise ServiceFailedError(
            f"the store accepts no puts until it is reopened: {error_text(self._failure)}"
        ) from self._failure

    @property
    def put_times(self):
        """Messages appended."""
        return rs_load_acquire64(&self._state.put_times)

    @property
    def put_nbytes(self):
        """Bytes of the records appended."""
        return rs_load_acquire64(&self._state.put_nbytes)

    @property
    def times(self):
        """How long calls took."""
        return rs_times_read(&self._times, self._counts)

    def add_wait(self, int64_t elapsed_ms):
        """Count the time of a put whose wait was left to its caller."""
        rs_times_add(&self._times, self._counts, elapsed_ms)

    # --- from arguments to records ---

    cdef int _make(self, rs_put_record *record, object topic, object queue_id, object flag,
                   object sys_flag, object born_timestamp, object born_host, object store_host,
                   object reconsume_times, object prepared_transaction_offset) except -1:
        """Check the arguments common to messages and batches; record and topic must stay."""
        self._start(record, topic)
        rs_check_numbers(record, queue_id, flag, sys_flag, born_timestamp, reconsume_times,
                         prepared_transaction_offset)
        return rs_take_hosts(record, born_host, store_host, self._hosts)

    cdef int _start(self, rs_put_record *record, object topic) except -1:
        """Set the values common to all records, and the topic, which is usually known."""
        record[0] = self._template
        return rs_start_record(record, topic, &self._topics, &self._state)

    cdef int _append(self, rs_append_call *call) except -1:
        """Append the call's records, or set their status; make room as often as needed."""
        cdef int64_t idle = 0
        cdef int result, _
        if self._clock is not None:
            call.now = rs_to_integer("clock()", self._clock(), INT64_MIN, INT64_MAX)
            call.has_now = True
        for _ in range(ROUND_LIMIT):
            result = rs_run_call(call)
            self.failed_times += call.refused
            call.refused = 0
            if result == RS_RUN_DONE:
                rs_ring(self.bell)
                return 0
            if result == RS_RUN_REFUSED:
                self._refuse_rest(call, <int32_t> call.needed)
                return 0
            if result != RS_RUN_ROLL and result != RS_RUN_EXTEND:
                self.failed_times += rs_rest_count(call)
                if result == RS_RUN_NO_MEMORY:
                    raise MemoryError()
                self._raise_unusable()
            answer = self._make_room(call, result)
            idle = 0 if rs_load_acquire64(&self._state.generation) != call.generation else idle + 1
            if answer is not None or idle == IDLE_ROUND_LIMIT:
                break
        return self._refuse_rest(
            call, RS_PUT_UNKNOWN_ERROR if answer is None else PutMessageStatus(answer))

    cdef object _make_room(self, rs_append_call *call, int action):
        """Return the result of ``roll`` or ``extend``; skip it if another thread made room."""
        callback = self._roll if action == RS_RUN_ROLL else self._extend
        rs_times_wait(&call.timed)
        try:
            if action == RS_RUN_ROLL and self._before_roll is not None:
                self._before_roll()  # may wait for a putting thread that needs the lock
            with self._room_lock:
                if rs_load_acquire64(&self._state.generation) == call.generation:
                    return callback(call.needed)
        except BaseException:
            self.failed_times += rs_rest_count(call)
            raise

    def _room(self, int result, int64_t needed, int64_t generation):
        """Make room after a round of such a kernel, or raise why there is none."""
        cdef rs_append_call call
        if result == RS_RUN_NO_MEMORY:
            raise MemoryError()
        if result != RS_RUN_ROLL and result != RS_RUN_EXTEND:
            self._raise_unusable()
        memset(&call, 0, sizeof(call))
        call.needed, call.generation = needed, generation
        return self._make_room(&call, result)

    cdef int _refuse_rest(self, rs_append_call *call, int32_t status) except -1:
        self.failed_times += rs_rest_count(call)
        rs_refuse_rest(
            call, status, RS_APPEND_UNKNOWN_ERROR if status == RS_PUT_UNKNOWN_ERROR else -1)
        return 0

    cdef int32_t _wait_until(self, int64_t end_offset, object wait) except -1:
        """Wait with ``wait``, or as all puts do; return a ``PutMessageStatus`` value."""
        wait = self._wait if wait is None else wait
        return RS_PUT_PUT_OK if wait is None else PutMessageStatus(wait(end_offset))

    def put(self, topic, body, queue_id=0, tags=None, keys=None, *, properties=None, flag=0,
            sys_flag=0, born_timestamp=None, born_host=None, store_host=None, reconsume_times=0,
            prepared_transaction_offset=0, delay_level=0, wait_store_msg_ok=True, unique_key=None,
            _wait=None):
        """Append one message."""
        cdef rs_put_record record
        cdef rs_scratch scratch
        cdef Py_buffer view
        cdef rs_given_properties given
        cdef int64_t body_nbytes, level
        cdef bint waits
        cdef size_t start = 0
        self._check_usable()
        self._make(&record, topic, queue_id, flag, sys_flag, born_timestamp, born_host,
                   store_host, reconsume_times, prepared_transaction_offset)
        memset(&view, 0, sizeof(view))
        rs_scratch_init(&scratch)
        try:
            body_nbytes = rs_take_body(&record, body, &view)
            level = rs_to_integer("delay_level", delay_level, 0, INT32_MAX)
            given.properties = rs_pointer(properties)
            given.unique_key = rs_pointer(unique_key)
            given.tags = rs_pointer(tags)
            given.keys = rs_pointer(keys)
            given.delay_level = <int32_t> level
            given.waits = waits = wait_store_msg_ok
            if not rs_make_plain(&self._rules, &self._state, &record, &scratch, &given,
                                 body_nbytes):
                holds = []
                pairs = rs_gather_properties(
                    properties, unique_key, tags, keys, waits, level, self._unique_key_maker)
                self._finish(&record, &scratch, &start, body_nbytes, pairs, holds)
            return self._put_one(&record, store_host is None, _wait)
        finally:
            rs_scratch_free(&scratch)
            PyBuffer_Release(&view)

    cdef int _finish(self, rs_put_record *record, rs_scratch *scratch, size_t *start,
                     int64_t nbytes, dict pairs, list holds) except -1:
        """Apply all rules to a record. Out of line, since most records are plain."""
        return rs_finish_record(
            &self._rules, &self._state, record, scratch, start, nbytes, pairs, holds)

    cdef PutMessageResult _put_one(self, rs_put_record *record, bint default_host, object wait):
        cdef rs_append_call call
        cdef int32_t waited = RS_PUT_PUT_OK
        cdef bytes host
        if record.status >= 0:
            self.failed_times += 1
            return outcome_of(record, waited, None)
        memset(&call, 0, sizeof(call))
        call.appender = &self._state
        call.records = record
        call.count = 1
        if wait is None:
            rs_times_begin(&self._times, &call.timed, record.waits and self._wait is not None)
        self._append(&call)
        if record.status < 0 and record.waits:
            waited = self._wait_until(record.fields.physical_offset + record.nbytes, wait)
        if wait is None:
            rs_times_end(&self._times, self._counts, &call.timed)
        if record.status >= 0:
            return outcome_of(record, waited, None)
        host = self._store_host if default_host else PyBytes_FromStringAndSize(
            <char *> record.store_host, record.fields.store_host_nbytes)
        return outcome_of(record, waited, host)

    def put_message(self, message):
        """Append one message, given as an object with ``Message``'s attributes."""
        cdef rs_put_record record
        cdef rs_scratch scratch
        cdef Py_buffer view
        cdef size_t start = 0
        topic = body = None
        self._check_usable()
        memset(&view, 0, sizeof(view))
        rs_scratch_init(&scratch)
        try:
            if type(message) is Message:
                topic = <object> (<rs_message_object *> <PyObject *> message).topic
                body = <object> (<rs_message_object *> <PyObject *> message).body
            if topic is None or not self._take_plain(
                    &record, &scratch, &start, message, topic, body):
                holds = []  # until the record is in the log
                self._take_by_rules(&record, &scratch, &start, message, &view, holds)
            record.fields.properties = scratch.data + start
            return self._put_one(&record, False, None)
        finally:
            rs_scratch_free(&scratch)
            PyBuffer_Release(&view)

    cdef int _take_message(self, rs_put_record *record, rs_scratch *scratch, size_t *start,
                           object message, list holds) except -1:
        """Make the record of one of many messages; ``holds`` keeps its parts and a body copy."""
        if type(message) is Message:
            topic = <object> (<rs_message_object *> <PyObject *> message).topic
            body = <object> (<rs_message_object *> <PyObject *> message).body
            if self._take_plain(record, scratch, start, message, topic, body):
                holds.append(topic)
                holds.append(body)
                return 0
        return self._take_by_rules(record, scratch, start, message, NULL, holds)

    cdef int _take_by_rules(self, rs_put_record *record, rs_scratch *scratch, size_t *start,
                            object message, Py_buffer *view, list holds) except -1:
        """The same for any message, by its attributes; with ``view`` the body is not copied."""
        cdef rs_given_properties given
        cdef int64_t body_nbytes
        if isinstance(message, StoredMessage):
            rs_check_relayed([message])
        topic = rs_attribute(message, "topic")
        queue_id, flag = rs_attribute(message, "queue_id"), rs_attribute(message, "flag")
        sys_flag = rs_attribute(message, "sys_flag")
        born_timestamp = rs_attribute(message, "born_timestamp")
        born_host = rs_attribute(message, "born_host")
        store_host = rs_attribute(message, "store_host")
        reconsume_times = rs_attribute(message, "reconsume_times")
        prepared_offset = rs_attribute(message, "prepared_transaction_offset")
        body, properties = rs_attribute(message, "body"), rs_attribute(message, "properties")
        self._make(record, topic, queue_id, flag, sys_flag, born_timestamp, born_host,
                   store_host, reconsume_times, prepared_offset)
        holds.append(topic)
        if view == NULL and not PyBytes_CheckExact(body):
            body = rs_copy_body(body)
        body_nbytes = rs_take_body(record, body, view)
        holds.append(body)
        memset(&given, 0, sizeof(given))
        given.properties = <PyObject *> properties
        given.waits = True
        start[0] = scratch.used
        if rs_make_plain(&self._rules, &self._state, record, scratch, &given, body_nbytes):
            return 0
        pairs = rs_check_properties(properties)
        return self._finish(record, scratch, start, body_nbytes, pairs, holds)

    cdef bint _take_plain(self, rs_put_record *record, rs_scratch *scratch, size_t *start,
                          object message, object topic, object body) except -1:
        """The same for a ``Message`` of a kept topic and body; return False for the rules."""
        cdef const rs_message_object *given = <rs_message_object *> <PyObject *> message
        cdef rs_given_properties properties
        self._start(record, topic)
        if not rs_take_numbers(record, given) or not PyBytes_CheckExact(body):
            return False
        rs_take_hosts(record, <object> given.born_host, <object> given.store_host, self._hosts)
        memset(&properties, 0, sizeof(properties))
        properties.properties = given.properties
        properties.waits = True
        start[0] = scratch.used
        return rs_make_plain(&self._rules, &self._state, record, scratch, &properties,
                             rs_take_body(record, body, NULL))

    def put_messages(self, batch):
        """Append a batch to one queue: consecutive, in one segment, all or nothing."""
        cdef rs_put_record head
        cdef rs_put_record *records
        cdef rs_scratch scratch
        cdef rs_append_call call
        cdef list holds = []
        self._check_usable()
        topic = rs_attribute(batch, "topic")
        self._make(&head, topic, rs_attribute(batch, "queue_id"), 0,
                   rs_attribute(batch, "sys_flag"), rs_attribute(batch, "born_timestamp"),
                   rs_attribute(batch, "born_host"), rs_attribute(batch, "store_host"), 0, 0)
        pairs = rs_check_properties(rs_attribute(batch, "properties"))
        head.waits = rs_wants_wait(pairs)
        rs_set_version(&self._rules, &head)
        messages = list(rs_attribute(batch, "messages"))
        rs_check_relayed([one for one in messages if isinstance(one, StoredMessage)])
        records = <rs_put_record *> PyMem_Malloc(
            <size_t> max(1, len(messages)) * sizeof(rs_put_record))
        if records == NULL:
            raise MemoryError()
        memset(&call, 0, sizeof(call))
        call.appender = &self._state
        call.records = records
        call.atomic = True
        rs_scratch_init(&scratch)
        try:
            rs_take_batch(&self._rules, &head, &call, &scratch, messages, pairs, holds)
            if head.status >= 0:
                self.failed_times += 1
                return outcome_of(&head, RS_PUT_PUT_OK, None)
            rs_times_begin(&self._times, &call.timed, head.waits and self._wait is not None)
            self._append(&call)
            result = self._batch_result(&call)
            rs_times_end(&self._times, self._counts, &call.timed)
            return result
        finally:
            PyMem_Free(records)
            rs_scratch_free(&scratch)

    cdef PutMessageResult _batch_result(self, const rs_append_call *call):
        cdef const rs_put_record *first = call.records
        cdef PutMessageResult result
        cdef int32_t waited = RS_PUT_PUT_OK
        cdef int64_t i, nbytes = 0
        if first.status >= 0:
            return outcome_of(first, waited, None)
        for i in range(call.count):
            nbytes += call.records[i].nbytes
        if first.waits:
            waited = self._wait_until(first.fields.physical_offset + nbytes, None)
        result = outcome_of(first, waited, None)
        result.outcome.nbytes = nbytes
        result.outcome.count = call.count
        result.ids = rs_pack_ids(call)
        return result

    def put_many(self, messages, *, _wait=None):
        """Append messages, one mutex hold per chunk."""
        cdef PutManyResult result = PutManyResult.__new__(PutManyResult)
        cdef rs_put_record *records
        cdef rs_scratch scratch
        cdef Py_ssize_t count
        cdef rs_timed timed = rs_timed(0, 0)
        self._check_usable()
        if _wait is None:
            rs_times_begin(&self._times, &timed, self._wait is not None)
        source = iter(messages)
        records = <rs_put_record *> PyMem_Malloc(CHUNK_COUNT * sizeof(rs_put_record))
        if records == NULL:
            raise MemoryError()
        rs_scratch_init(&scratch)
        try:
            while True:
                holds = []
                scratch.used = 0
                count = self._take_chunk(records, &scratch, source, holds)
                if count == 0:
                    break
                self._append_chunk(result, records, count)
        finally:
            PyMem_Free(records)
            rs_scratch_free(&scratch)
        self._await_many(result, _wait, &timed)
        return result

    cdef Py_ssize_t _take_chunk(self, rs_put_record *records, rs_scratch *scratch, object source,
                                list holds) except -1:
        """Make records of the next messages, within the limits of one mutex hold."""
        cdef size_t starts[CHUNK_COUNT]
        cdef Py_ssize_t count = 0
        cdef Py_ssize_t i
        cdef int64_t nbytes = 0
        for message in islice(source, CHUNK_COUNT):
            self._take_message(records + count, scratch, &starts[count], message, holds)
            nbytes += records[count].nbytes
            count += 1
            if nbytes >= CHUNK_NBYTES:
                break
        for i in range(count):
            records[i].fields.properties = scratch.data + starts[i]
        return count

    cdef int _append_chunk(self, PutManyResult result, rs_put_record *records,
                           Py_ssize_t count) except -1:
        """Append the records that are not refused; add all outcomes to the result."""
        cdef rs_append_call call
        cdef Py_ssize_t i
        cdef rs_put_row *rows = rs_put_rows_grow(&result.table, count)
        cdef int64_t good
        if rows == NULL:
            raise MemoryError()
        memset(&call, 0, sizeof(call))
        call.appender = &self._state
        call.records = records
        call.count = count
        good = rs_rest_count(&call)
        self.failed_times += count - good
        if good > 0:
            self._append(&call)
        for i in range(count):
            rs_fill_row(rows + i, records + i)
        return 0

    cdef int _await_many(self, PutManyResult result, object wait,
                         const rs_timed *timed) except -1:
        """Wait once, for the last record that wants it."""
        cdef const rs_put_row *row
        cdef Py_ssize_t last = rs_last_waiting(&result.table)
        if last >= 0:
            row = result.table.rows + last
            rs_set_waited(&result.table, self._wait_until(row.physical_offset + row.nbytes, wait))
        return rs_times_end(&self._times, self._counts, timed)

    def put_staged(self, data, base_offset):
        """Append staged records, see ``staged_records.StageEncoder``."""
        cdef PutManyResult result = PutManyResult.__new__(PutManyResult)
        cdef rs_staged staged
        cdef rs_timed timed = rs_timed(0, 0)
        self._check_usable()
        rs_times_begin(&self._times, &timed, self._wait is not None)
        rs_staged_open(&staged, data, base_offset, CHUNK_COUNT)
        try:
            while rs_staged_take(&staged, &self._rules, &self._state, &self._template,
                                 CHUNK_NBYTES):
                self._append_chunk(result, staged.records, staged.count)
        finally:
            rs_staged_close(&staged)
        self._await_many(result, None, &timed)
        return result

    def put_columns(self, topic, offsets, data, *, queue_id=0, tags=None, keys=None,
                    properties=None, flag=0, sys_flag=0, born_timestamp=None, born_host=None,
                    store_host=None, wait_store_msg_ok=True):
        """Append the bodies ``data[offsets[i]:offsets[i + 1]]`` (int32 or int64 offsets)."""
        cdef PutManyResult result = PutManyResult.__new__(PutManyResult)
        cdef rs_put_record head
        cdef rs_scratch scratch
        cdef Py_buffer view
        cdef int64_t *bounds = NULL
        cdef rs_put_record *records = NULL
        cdef Py_ssize_t count = 0
        cdef int64_t nbytes
        cdef rs_timed timed = rs_timed(0, 0)
        self._check_usable()
        rs_times_begin(&self._times, &timed, self._wait is not None)
        self._make(&head, topic, queue_id, flag, sys_flag, born_timestamp, born_host,
                   store_host, 0, 0)
        memset(&view, 0, sizeof(view))
        rs_scratch_init(&scratch)
        try:
            bounds = rs_copy_offsets(offsets, &count)
            nbytes = rs_take_body(&head, data, &view)
            rs_check_column(bounds, count, nbytes)
            records = <rs_put_record *> PyMem_Malloc(CHUNK_COUNT * sizeof(rs_put_record))
            if records == NULL:
                raise MemoryError()
            pairs = rs_gather_properties(
                properties, None, tags, keys, wait_store_msg_ok, 0, None)
            self._put_rows(result, &head, records, &scratch, bounds, count - 1, pairs)
        finally:
            PyMem_Free(bounds)
            PyMem_Free(records)
            rs_scratch_free(&scratch)
            PyBuffer_Release(&view)
        self._await_many(result, None, &timed)
        return result

    cdef int _put_rows(self, PutManyResult result, const rs_put_record *head,
                       rs_put_record *records, rs_scratch *scratch, const int64_t *bounds,
                       Py_ssize_t row_count, dict pairs) except -1:
        """Append all rows, in chunks; compute their common values once."""
        cdef rs_put_record common = head[0]
        cdef rs_put_record *record
        cdef size_t start = 0
        cdef int64_t nbytes
        cdef Py_ssize_t count, row = 0
        cdef list holds, common_holds = []
        self._finish(&common, scratch, &start, 0, dict(pairs), common_holds)
        while row < row_count:
            count = nbytes = 0
            holds = []
            while row < row_count and count < CHUNK_COUNT and nbytes < CHUNK_NBYTES:
                record = records + count
                rs_finish_row(&self._rules, &self._state, record, head, &common, scratch,
                              bounds[row + 1] - bounds[row], pairs, holds)
                record.fields.body = head.fields.body + bounds[row]
                nbytes += record.nbytes
                count += 1
                row += 1
            self._append_chunk(result, records, count)
        return 0
