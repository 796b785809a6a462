"""The undecided transactions of one log, and the appends that begin and decide them.

The half message is made from the arguments, the committed and the op message from its bytes. What
the rules must judge goes through ``transaction_records.RecordMaker``, as in the reference.
"""

cimport cython
from cpython.buffer cimport PyBuffer_Release
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stddef cimport size_t
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset, strlen

from rs_append_call cimport rs_ring, rs_run_call
from rs_appender cimport *
from rs_crc cimport rs_crc_import
from rs_formats cimport *
from rs_guard cimport rs_guard_import
from rs_half_properties cimport *
from rs_half_record cimport *
from rs_half_table cimport *
from rs_put_arguments cimport *
from rs_put_plain cimport rs_encode_given, rs_given_properties, rs_put_values, RS_ENCODED
from rs_put_properties cimport rs_gather_properties
from rs_put_result cimport rs_fill_outcome, rs_put_outcome, rs_put_result_object
from rs_put_rules cimport rs_put_rules, rs_set_lengths, rs_topic_fits
from rs_forks cimport rs_fork_count, rs_watch_forks
from rs_put_text cimport rs_scratch, rs_scratch_free, rs_scratch_init, rs_scratch_room, rs_utf8
from rs_status cimport *

import array as arrays
import os
import time

from rocketstore import formats
from rocketstore._native import message as message_kernel
from rocketstore._native import put_result
from rocketstore.dialect import Dialect
from rocketstore.errors import ReentrantCallError, TransactionError, TransactionStateError
from rocketstore.lock_order import ReentrantLock
from rocketstore.status import PutMessageStatus, TransactionState
from rocketstore.transaction_records import COLUMNS, RecordMaker, immunity_ms, no_wait

cdef extern from "Python.h":
    unsigned long PyThread_get_thread_ident()
    object PyUnicode_DecodeASCII(const char *text, Py_ssize_t n, const char *errors)
    bint PyDict_CheckExact(object thing)

cdef extern from "rs_half_table.h":
    Transaction rs_new(PyObject *kind, object arguments)

cdef extern from "rs_mutex.h" nogil:
    int64_t rs_now_ms()

# The outcomes' C layout, so that filling them in needs no calls.
cdef extern from "rs_put_result.h":
    ctypedef class rocketstore._native.put_result.PutMessageResult [
        object rs_put_result_object, check_size error
    ]:
        cdef rs_put_outcome outcome
        cdef bytes host
        cdef bytes ids
globals()["PutMessageResult"] = put_result.PutMessageResult
rs_guard_import()
rs_watch_forks()
rs_crc_import()
cdef enum:
    UNKNOWN = 0
    COMMIT = 1
    # Attempts to make room for one append, as in the appender.
    ROUND_LIMIT = 1000
    IDLE_ROUND_LIMIT = 3

cdef double PAUSE_S = 0.0005
cdef tuple EMPTY = ()
cdef const char *HALF = RS_TOPIC_HALF

cdef inline int32_t length_of(bytes text) noexcept:
    return <int32_t> PyBytes_GET_SIZE(text)


cdef inline object taken(PyObject *thing):
    """Return an object whose reference becomes the caller's; ``None`` for NULL."""
    if thing == NULL:
        return None
    found = <object> thing
    Py_DECREF(found)
    return found


cdef inline int32_t this_thread() noexcept:
    """Return a number of the calling thread, not 0."""
    return <int32_t> ((PyThread_get_thread_ident() >> 12) & INT32_MAX) or 1


cdef class Transaction:
    """A transaction; the store's class adds what reads the log."""

    cdef object _ledger
    cdef int64_t _key, _offset, _end
    cdef int32_t _state
    cdef bint _was_begun
    cdef rs_put_outcome _begun
    cdef bytes _host
    cdef object _outcome

    def __init__(self, ledger, int64_t key, int64_t offset):
        self._ledger, self._key, self._offset = ledger, key, offset
        self._state = UNKNOWN

    @property
    def ledger(self):
        """The ledger that decides it."""
        return self._ledger

    @property
    def key(self):
        """Queue offset of the half message."""
        return self._key

    @property
    def offset(self):
        """Log offset of the half message."""
        return self._offset

    @property
    def result(self):
        """Outcome of storing the half message; ``None`` if another object began it."""
        cdef PutMessageResult result
        if not self._was_begun:
            return None
        result = PutMessageResult.__new__(PutMessageResult)
        result.outcome = self._begun
        result.host = self._host
        return result

    @property
    def known(self):
        """State and outcome of the commit, as this object knows them."""
        return self._state, self._outcome

    def settle(self, int32_t state, outcome, int64_t end=0):
        """Take a decision that was made through another object."""
        self._outcome, self._end, self._state = outcome, end, state

    def commit(self, *, _wait=None):
        """Commit; return the outcome of storing the message."""
        return self._decide(COMMIT, _wait)

    def rollback(self, *, _wait=None):
        """Roll back."""
        self._decide(COMMIT + 1, _wait)

    cdef object _decide(self, int32_t wanted, object wait):
        cdef PyObject *refusal = NULL
        if self._state == UNKNOWN:
            if type(self._ledger) is Ledger:
                found = (<Ledger> self._ledger)._decide(self, wanted, wait, &refusal)
                refused = taken(refusal)
            else:
                found, refused = self._ledger.decide(self, wanted, wait)
            if refused is not None:
                return refused
            if found:
                return self._outcome
            if self._state == UNKNOWN:
                self._resolve()
        if self._state != wanted:
            raise TransactionStateError(
                f"the transaction was decided before: {TransactionState(self._state)}")
        if self._end:
            status = self._ledger.wait_for(self._end, wait)
            if self._outcome is not None and status != self._outcome.status:
                self._outcome = self._outcome.with_flush_status(status)
        return self._outcome

    def _resolve(self):
        """Find a decision that another object made."""
        raise TransactionError("the transaction is not known here")


@cython.final
cdef class Ledger:
    """The undecided transactions of one log."""

    cdef rs_half_table _table
    cdef rs_half_rules _rules
    cdef object _appender, _kind, _read, _wait, _maker, _clock, _records, _ops
    cdef dict _hosts, _groups
    cdef str _last_group
    cdef int32_t _last_number
    cdef bytes _op_properties, _own_topics, _store_host
    cdef list _owed
    cdef int64_t _forks
    cdef int64_t _op_nbytes, _waiting, _beginning
    # Of unique keys.
    cdef bytes _prefix
    cdef uint64_t _number
    cdef int64_t _month_start, _month_end
    cdef public object batch, book

    def __init__(self, appender, *, kind, read, wait=None, unique_key_maker=None,
                 broker_version="5.3.3", op_nbytes=4096):
        dialect = Dialect.for_version(broker_version, allow_newer=True)
        state, rules, start, self._clock, self._hosts, self._store_host = appender._inside
        self._appender, self._kind, self._read, self._wait = appender, kind, read, wait
        self._maker = unique_key_maker
        self._prefix = getattr(unique_key_maker, "prefix", None)
        self._number = int.from_bytes(os.urandom(2), "little")
        self._records = RecordMaker(appender, dialect, message_kernel)
        self._op_nbytes = op_nbytes
        self._groups, self._owed, self._ops = {}, [], ReentrantLock()
        self._forks = rs_fork_count
        self._op_properties = self._records.op_properties()
        self._rules.state = <rs_appender *> PyCapsule_GetPointer(state, "rocketstore.appender")
        self._rules.rules = <const rs_put_rules *> PyCapsule_GetPointer(rules, "rocketstore.rules")
        self._rules.start = <const rs_put_record *> PyCapsule_GetPointer(
            start, "rocketstore.template")
        self._own_topics = self._records.own_topics()
        rs_take_half_dialect(&self._rules, dialect, self._op_properties, self._own_topics)

    def __dealloc__(self):
        rs_halves_free(&self._table)

    # --- the table ---

    def __len__(self):
        return self._table.count - self._table.dead

    @property
    def groups(self):
        """Producer groups by the number in the column ``group``."""
        return list(self._groups)

    def group_number(self, str group):
        """Return the number of a producer group."""
        return self._groups.setdefault(group, len(self._groups))

    def add(self, int64_t key, int64_t queue_offset, int64_t offset, int32_t nbytes,
            int64_t store_timestamp, int64_t born_timestamp, int32_t checks, int64_t immunity_ms,
            int32_t group, /):
        """Add a transaction by its columns."""
        cdef rs_half_row *row = self._enter(key, offset, nbytes, group, immunity_ms)
        row.queue_offset, row.checks = queue_offset, checks
        row.store_timestamp, row.born_timestamp = store_timestamp, born_timestamp

    cdef rs_half_row *_enter(self, int64_t key, int64_t offset, int32_t nbytes, int32_t group,
                             int64_t immunity_ms) except NULL:
        cdef rs_half_row *row = rs_halves_add(&self._table, key)
        if row == NULL:
            raise MemoryError()
        row.queue_offset, row.offset, row.nbytes = key, offset, nbytes
        row.group = group
        row.immunity_s = -1 if immunity_ms < 0 else <int32_t> (immunity_ms // 1000)
        return row

    cdef int32_t _group(self, str group) except -1:
        """Return the number of a producer group; most often that of the call before."""
        if group is not self._last_group:
            self._last_number = self.group_number(group)
            self._last_group = group
        return self._last_number

    @property
    def beginning(self):
        """Calls of ``begin`` whose half message may not be in the table yet."""
        return self._beginning

    def has(self, int64_t key):
        """Return whether the transaction is undecided."""
        return rs_halves_find(&self._table, key) != NULL

    cdef tuple _values(self, const rs_half_row *row):
        return (row.key, row.queue_offset, row.offset, row.nbytes, row.store_timestamp,
                row.born_timestamp, row.checks, rs_immunity_ms(row), row.group, row.is_asked)

    def row(self, int64_t key):
        """Return the columns of one transaction."""
        cdef const rs_half_row *row = rs_halves_find(&self._table, key)
        return None if row == NULL else self._values(row)

    def columns(self):
        """Return a copy of the table by columns."""
        cdef Py_ssize_t n = self._table.count - self._table.dead
        cdef int64_t *out[10]
        made = {name: PyBytes_FromStringAndSize(NULL, 8 * n) for name in COLUMNS}
        for at, column in enumerate(made.values()):
            out[at] = <int64_t *> PyBytes_AS_STRING(column)
        rs_halves_columns(&self._table, out)
        return {name: arrays.array("q", content) for name, content in made.items()}

    def key_of(self, int64_t queue_offset):
        """Return the key of the transaction whose first or newest half message it is."""
        key = rs_halves_key_of(&self._table, queue_offset)
        return None if key < 0 else key

    def note_asked(self, int64_t key):
        """Note that the transaction's producer was asked."""
        cdef rs_half_row *row = rs_halves_find(&self._table, key)
        if row != NULL:
            row.is_asked = 1

    def remove(self, int64_t key):
        """Remove a transaction; return whether it was there."""
        cdef rs_half_row *row = rs_halves_find(&self._table, key)
        if row != NULL:
            rs_halves_remove(&self._table, row)
        return row != NULL

    def forget(self, int64_t key):
        """Remove a transaction that no thread decides; wait for one that does."""
        return self._claim(key) and self.remove(key)

    @property
    def min_queue_offset(self):
        """Least queue offset of a newest half message."""
        return rs_halves_least(&self._table)

    # --- op messages ---

    def owe(self, queue_offsets):
        """Name these half messages in the next op message."""
        self._owed += queue_offsets

    def disown(self, queue_offset):
        """Take one of them back; return whether no op message names it yet."""
        with self._ops:
            is_owed = queue_offset in self._owed
            if is_owed:
                self._owed.remove(queue_offset)
            return is_owed

    @property
    def owed(self):
        """Queue offsets of decided half messages that no op message names yet."""
        return list(self._owed)

    def write_ops(self, wait):
        """Append op messages for what is owed."""
        with self._ops:
            return self._write_ops(wait)

    cdef object _write_ops(self, object wait):
        end = 0
        while self._owed:
            offsets, self._owed = self._owed, []
            part, rest = self._records.split(offsets, self._op_nbytes)
            try:
                result = self._records.put_op(part, wait)
            except BaseException:
                self.owe(offsets)
                raise
            if not result.appended:
                self.owe(offsets)
                return end
            self.owe(rest)
            end = result.physical_offset + result.nbytes
        return end

    @property
    def waiting(self):
        """Threads that wait for the disk after a decision."""
        return self._waiting

    # --- appending ---

    cdef int _append(self, rs_append_call *call) except -1:
        """Append the call's records, making room as often as needed; see the appender."""
        cdef int64_t idle = 0
        cdef int result, _
        if self._forks != rs_fork_count:
            self._appender.has_room(0)  # raises ForkedStoreError
        call.appender = self._rules.state
        if self._clock is not None:
            call.now = rs_to_integer("clock()", self._clock(), INT64_MIN, INT64_MAX)
            call.has_now = True
        for _ in range(ROUND_LIMIT):
            result = rs_run_call(call)
            if result == RS_RUN_DONE:
                rs_ring(self._appender.bell)
                return 0
            if result == RS_RUN_REFUSED:
                rs_refuse_rest(call, <int32_t> call.needed, -1)
                return 0
            answer = self._appender._room(result, call.needed, call.generation)
            moved = rs_load_acquire64(&self._rules.state.generation) != call.generation
            idle = 0 if moved else idle + 1
            if answer is not None or idle == IDLE_ROUND_LIMIT:
                break
        rs_refuse_rest(call, RS_PUT_UNKNOWN_ERROR if answer is None else PutMessageStatus(answer),
                       RS_APPEND_UNKNOWN_ERROR if answer is None else -1)
        return 0

    def wait_for(self, end, wait):
        """Wait until the log is on disk up to ``end``."""
        if wait is not None:
            return wait(end)
        if self._wait is None:
            return RS_PUT_PUT_OK
        self._waiting += 1
        try:
            return self._wait(end)
        finally:
            self._waiting -= 1
            if self.batch is not None and self.batch.offsets:
                self.batch.write()

    # --- beginning ---

    cdef object _make_key(self):
        """Return a new unique key."""
        cdef char whole[128]
        cdef int64_t now
        cdef int32_t n
        if self._prefix is None or length_of(self._prefix) > 100:
            if self._maker is None:
                raise ValueError("unique_key=True needs a unique_key_maker")
            return self._maker()
        now = rs_now_ms() if self._clock is None else self._clock()
        if not self._month_start <= now < self._month_end:
            self._month_start, self._month_end = self._maker.month_of(now)
        n = length_of(self._prefix)
        memcpy(whole, PyBytes_AS_STRING(self._prefix), <size_t> n)
        self._number += 1
        rs_hex(whole + n, 8, <uint64_t> ((now - self._month_start) & 0x7FFFFFFF))
        rs_hex(whole + n + 8, 4, self._number & 0xFFFF)
        return PyUnicode_DecodeASCII(whole, n + 12, NULL)

    def begin(self, topic, body, *, group, queue_id=0, tags=None, keys=None, properties=None,
              flag=0, sys_flag=0, born_timestamp=None, born_host=None, store_host=None,
              delay_level=0, wait_store_msg_ok=True, unique_key=True, _wait=None):
        """Store the half message of a new transaction."""
        cdef rs_put_record record
        cdef rs_scratch scratch
        cdef Py_buffer view
        cdef rs_given_properties given
        cdef rs_append_call call
        cdef const uint8_t *real = NULL
        cdef int32_t real_nbytes = 0
        cdef int64_t body_nbytes, immunity, level
        cdef int32_t queue
        cdef int32_t flags
        cdef bint waits = wait_store_msg_ok
        rs_take_topic(topic, &real, &real_nbytes)
        queue = <int32_t> rs_to_integer("queue_id", queue_id, 0, INT32_MAX)
        flags = <int32_t> rs_to_integer("sys_flag", sys_flag, INT32_MIN, INT32_MAX)
        flags &= ~RS_SYS_FLAG_TRANSACTION_MASK
        level = rs_to_integer("delay_level", delay_level, 0, INT32_MAX)
        if not isinstance(group, str):
            raise TypeError(f"group must be str, not {type(group).__name__}")
        if not group:
            raise ValueError("group is empty")
        memset(&view, 0, sizeof(view))
        rs_scratch_init(&scratch)
        self._beginning += 1
        try:
            if level == 0 and rs_load_acquire32(&self._rules.state.stop) == 0 and (
                    properties is None or PyDict_CheckExact(properties)):
                made_key = None
                if unique_key is True:
                    if properties is None or formats.PROPERTY_UNIQUE_KEY not in <dict> properties:
                        made_key = self._make_key()
                elif unique_key is not False:
                    made_key = unique_key
                record = self._rules.start[0]
                rs_check_numbers(&record, 0, flag, flags, born_timestamp, 0, 0)
                rs_take_hosts(&record, born_host, store_host, self._hosts)
                body_nbytes = rs_take_body(&record, body, &view)
                given.properties = rs_pointer(properties)
                given.unique_key = rs_pointer(made_key)
                given.tags = rs_pointer(tags)
                given.keys = rs_pointer(keys)
                given.delay_level = 0
                given.waits = waits
                if self._make_half(&record, &scratch, &given, group, real, real_nbytes, queue,
                                   body_nbytes, &immunity):
                    memset(&call, 0, sizeof(call))
                    call.records = &record
                    call.count = 1
                    self._append(&call)
                    return self._begun(&record, group, immunity, store_host is None, _wait)
        finally:
            self._beginning -= 1
            rs_scratch_free(&scratch)
            PyBuffer_Release(&view)
        return self._begin_by_rules(
            topic, body, group, queue, level,
            rs_gather_properties(properties, unique_key, tags, keys, waits, 0, self._maker),
            {"flag": flag, "sys_flag": flags, "born_timestamp": born_timestamp,
             "born_host": born_host, "store_host": store_host, "_wait": _wait})

    cdef bint _make_half(self, rs_put_record *record, rs_scratch *scratch,
                         const rs_given_properties *given, str group, const uint8_t *real,
                         int32_t real_nbytes, int32_t queue, int64_t body_nbytes,
                         int64_t *immunity) except -1:
        """Fill in topic, properties and lengths; return False if the rules must do it."""
        cdef rs_put_values values
        cdef rs_pairs pairs
        cdef rs_pair *pair
        cdef uint8_t order[RS_MOST_PAIRS]
        cdef char number[RS_NUMBER_TEXT_NBYTES]
        cdef Py_ssize_t group_nbytes = 0
        cdef const uint8_t *group_text
        cdef int64_t nbytes
        cdef uint8_t *out
        if rs_encode_given(scratch, given, &values, NULL) != RS_ENCODED:
            return False
        if values.names & self._rules.rules.names or values.delay_level > 0:
            return False
        if record.fields.sys_flag & RS_SYS_FLAG_INNER_BATCH:
            return False
        group_text = <const uint8_t *> rs_utf8(group, &group_nbytes)
        if scratch.used > RS_MAX_PROPERTIES_NBYTES or not rs_is_value(group_text, group_nbytes):
            return False
        record.fields.topic = real
        record.fields.topic_nbytes = real_nbytes
        if not rs_topic_fits(self._rules.rules, record):
            return False
        if rs_is_own_topic(&self._rules, real, real_nbytes):
            return False
        # Room for all of it first: the pairs point into the scratch.
        nbytes = 2 * <int64_t> scratch.used + group_nbytes + real_nbytes + RS_HALF_EXTRA_NBYTES
        if rs_scratch_room(scratch, <size_t> nbytes) == NULL:
            raise MemoryError()
        if rs_pairs_parse(&pairs, scratch.data, <int32_t> scratch.used, True):
            return False
        if not rs_add_half_pairs(&self._rules, &pairs, group_text, <int32_t> group_nbytes, real,
                                 real_nbytes, number, rs_decimal(number, queue)):
            return False
        nbytes = rs_pairs_nbytes(&pairs)
        if nbytes > RS_MAX_PROPERTIES_NBYTES:
            return False
        rs_pairs_order(&pairs, self._rules.buckets, order)
        out = scratch.data + scratch.used
        nbytes = rs_pairs_write(&pairs, order, self._rules.trailing_separator, out)
        immunity[0] = -1
        pair = rs_find_pair(&pairs, RS_PROPERTY_CHECK_IMMUNITY_SEC)
        if pair != NULL:
            immunity[0] = immunity_ms(
                PyBytes_FromStringAndSize(<const char *> pair.value, pair.value_nbytes).decode())
        record.fields.topic = <const uint8_t *> HALF
        record.fields.topic_nbytes = <int32_t> strlen(HALF)
        record.topic_hash = self._rules.half_hash
        record.waits = values.waits
        rs_set_lengths(self._rules.rules, record, out, <int32_t> nbytes, body_nbytes)
        return record.status < 0

    cdef object _begun(self, const rs_put_record *record, str group, int64_t immunity,
                       bint default_host, object wait):
        """Enter an appended half message into the table; return its transaction."""
        cdef Transaction begun
        cdef rs_half_row *row
        cdef int64_t offset = record.fields.queue_offset
        cdef int32_t waited = RS_PUT_PUT_OK
        if record.status >= 0:
            raise TransactionError(
                f"the half message was refused: {PutMessageStatus(record.status)}")
        row = self._enter(offset, record.fields.physical_offset, <int32_t> record.nbytes,
                          self._group(group), immunity)
        row.store_timestamp = record.fields.store_timestamp
        row.born_timestamp = record.fields.born_timestamp
        row.is_own = 1
        begun = rs_new(<PyObject *> self._kind, EMPTY)
        begun._ledger = self
        begun._key = offset
        begun._offset = record.fields.physical_offset
        begun._host = self._store_host if default_host else PyBytes_FromStringAndSize(
            <const char *> record.store_host, record.fields.store_host_nbytes)
        begun._was_begun = True
        if record.waits:
            wait = self._wait if wait is None else wait
            if wait is not None:
                waited = PutMessageStatus(wait(record.fields.physical_offset + record.nbytes))
        rs_fill_outcome(&begun._begun, record, waited)
        return begun

    def _begin_by_rules(self, topic, body, group, queue_id, level, pairs, options):
        """Begin by the appender's own rules, as the reference does."""
        self._beginning += 1
        try:
            made = self._records.put_half(topic, queue_id, body, group, pairs, level, options)
            return self._enter_put(made, group, pairs, options["born_timestamp"])
        finally:
            self._beginning -= 1

    def _enter_put(self, made, group, pairs, born):
        """Enter a half message that was put into the table; return its transaction."""
        cdef Transaction begun
        cdef PutMessageResult result = made
        if not made.appended:
            raise TransactionError(f"the half message was refused: {made.status}")
        stored = made.store_timestamp
        self.add(
            made.queue_offset, made.queue_offset, made.physical_offset, made.nbytes, stored,
            stored if born is None else born, 0,
            immunity_ms(pairs.get(formats.PROPERTY_CHECK_IMMUNITY_SEC)), self.group_number(group))
        begun = self._kind(self, made.queue_offset, made.physical_offset)
        begun._begun, begun._host, begun._was_begun = result.outcome, result.host, True
        return begun

    # --- deciding ---

    def decide(self, transaction, int32_t wanted, wait):
        """Decide a transaction, and settle it."""
        cdef PyObject *refusal = NULL
        found = self._decide(transaction, wanted, wait, &refusal)
        return found, taken(refusal)

    cdef bint _decide(self, Transaction transaction, int32_t wanted, object wait,
                      PyObject **refusal) except -1:
        """Decide; ``refusal`` gets a new reference to the outcome of a commit that was refused."""
        cdef int64_t key = transaction._key
        cdef rs_half_row *row
        cdef int64_t end = -1
        if not self._claim(key):
            return False
        outcome = None
        try:
            if not self._owed and (self.batch is None or wait is not None or not self._waiting):
                outcome = self._append_decision(key, wanted, &end)
            if end < 0:
                outcome, end = self._decide_by_rules(key, wanted, wait)
            if end == 0:
                Py_INCREF(outcome)
                refusal[0] = <PyObject *> outcome
                return True
            row = rs_halves_find(&self._table, key)
            if row != NULL:
                rs_halves_remove(&self._table, row)
        finally:
            self._release(key)
        transaction._outcome, transaction._end, transaction._state = outcome, end, wanted
        if wait is not None or self._wait is not None:
            status = self.wait_for(end, wait)
            if outcome is not None and status != RS_PUT_PUT_OK:
                transaction._outcome = outcome.with_flush_status(status)
        return True

    cdef bint _claim(self, int64_t key) except -1:
        """Let this thread decide a transaction, after others; return False if it is decided."""
        cdef int32_t me = this_thread()
        cdef rs_half_row *row
        while True:
            row = rs_halves_find(&self._table, key)
            if row == NULL:
                return False
            if row.owner == 0:
                row.owner = me
                return True
            if row.owner == me:
                raise ReentrantCallError()
            time.sleep(PAUSE_S)

    cdef rs_half_row *_claimed(self, int64_t key) except NULL:
        """Return the row of a transaction that this thread decides."""
        cdef rs_half_row *row = rs_halves_find(&self._table, key)
        if row == NULL:
            raise TransactionError("the transaction was removed while it was decided")
        return row

    cdef object _half(self, int64_t key):
        cdef const rs_half_row *row = self._claimed(key)
        cdef int64_t offset = row.offset
        raw = self._read(offset, row.nbytes)
        self._claimed(key)  # others may have run meanwhile
        return self._records.half(raw, offset)

    cdef tuple _decide_by_rules(self, int64_t key, int32_t wanted, object wait):
        """Decide as the reference does; return outcome and end as ``_append_decision``."""
        queue_offset = self._claimed(key).queue_offset
        outcome, end = None, 0
        if wanted == COMMIT:
            outcome = self._records.put_final(self._half(key))
            if not outcome.appended:
                return outcome, 0
            end = outcome.physical_offset + outcome.nbytes
        try:
            if self.batch is not None and wait is None and self._waiting:
                written = self.batch.join(queue_offset)
            else:
                self._owed.insert(0, queue_offset)
                written = self.write_ops(no_wait)
        except BaseException as error:
            if outcome is None and self.disown(queue_offset):
                raise
            if not isinstance(error, Exception):
                self.remove(key)
                raise
            return outcome, end or self._appender.write_offset
        if outcome is None and self.disown(queue_offset):
            raise TransactionError("the op message was refused; the transaction is undecided")
        return outcome, written or end or self._appender.write_offset

    cdef object _append_decision(self, int64_t key, int32_t wanted, int64_t *end):
        """Append committed message and op message in one call; return the outcome. ``end``: of what
        must be on disk, 0 if the commit was refused, -1 if the rules must do it."""
        cdef rs_append_call call
        cdef rs_decision made
        cdef const rs_put_record *op
        cdef PutMessageResult result = None
        cdef int64_t queue_offset
        rs_scratch_init(&made.scratch)
        made.count = 0
        try:
            if wanted == COMMIT and not self._make_final(&made, key):
                return None
            queue_offset = self._claimed(key).queue_offset
            rs_make_op(&self._rules, &made, queue_offset)
            memset(&call, 0, sizeof(call))
            call.records = made.records
            call.count = made.count
            try:
                self._append(&call)
            except BaseException as error:
                if wanted != COMMIT or call.done == 0:
                    raise
                made.records[1].status = RS_PUT_UNKNOWN_ERROR  # the op message only
                if not isinstance(error, Exception):
                    self._owed.append(queue_offset)
                    self.remove(key)
                    raise
            op = &made.records[made.count - 1]
            if wanted == COMMIT:
                result = PutMessageResult.__new__(PutMessageResult)
                rs_fill_outcome(&result.outcome, &made.records[0], RS_PUT_PUT_OK)
                if made.records[0].status >= 0:
                    end[0] = 0
                    return result
                result.host = PyBytes_FromStringAndSize(
                    <const char *> made.records[0].fields.store_host,
                    made.records[0].fields.store_host_nbytes)
            if op.status < 0:
                end[0] = op.fields.physical_offset + op.nbytes
                return result
            if result is None:
                raise TransactionError(
                    "the op message was refused; the transaction is undecided")
            self._owed.append(queue_offset)
            end[0] = made.records[0].fields.physical_offset + made.records[0].nbytes
            return result
        finally:
            rs_scratch_free(&made.scratch)

    cdef bint _make_final(self, rs_decision *made, int64_t key) except -1:
        """Make the committed message; return False if the rules must do it."""
        cdef rs_half_row *row = self._claimed(key)
        cdef int64_t offset = row.offset
        cdef int32_t nbytes = row.nbytes
        cdef bint is_own = row.is_own
        if rs_scratch_room(&made.scratch, 2 * <size_t> nbytes + 8) == NULL:
            raise MemoryError()
        if not rs_half_take(self._rules.state, offset, nbytes, made.scratch.data):
            content = bytes(self._read(offset, nbytes))
            self._claimed(key)
            if PyBytes_GET_SIZE(content) != nbytes:
                return False
            memcpy(made.scratch.data, PyBytes_AS_STRING(content), <size_t> nbytes)
        return rs_make_final(&self._rules, made, offset, nbytes, is_own)

    # --- copies ---

    def put_copy(self, int64_t key, int32_t checks, wait):
        """Append a copy of the half message that counts one more check."""
        cdef rs_half_row *row
        if not self._claim(key):
            return None
        try:
            result = self._records.put_copy(self._half(key), checks, key, wait)
            row = rs_halves_find(&self._table, key)
            if result.appended and row != NULL:
                row.queue_offset, row.offset = result.queue_offset, result.physical_offset
                row.nbytes, row.store_timestamp = result.nbytes, result.store_timestamp
                row.checks = checks
                row.is_own = 0
            return result
        finally:
            self._release(key)

    def put_discarded(self, int64_t key, wait):
        """Append the half message to the topic of discarded ones; forget the transaction."""
        if not self._claim(key):
            return None
        try:
            result = self._records.put_discarded(self._half(key), wait)
            if result.appended:
                self.remove(key)
            return result
        finally:
            self._release(key)

    cdef int _release(self, int64_t key) except -1:
        cdef rs_half_row *row = rs_halves_find(&self._table, key)
        if row != NULL:
            row.owner = 0
        return 0
