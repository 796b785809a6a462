"""Outcomes of puts: ``PutMessageResult`` and ``PutManyResult``; exported by ``commit_log``."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset

from rs_crc cimport rs_crc_import
from rs_guard cimport rs_guard_import
from rs_hosts cimport rs_message_id
from rs_put_result cimport (
    rs_put_many_object,
    rs_put_outcome,
    rs_put_result_object,
    rs_put_row,
    rs_put_rows,
    rs_put_rows_grow,
    rs_set_waited,
)
from rs_status cimport RS_APPEND_PUT_OK, RS_PUT_PUT_OK

import operator
from array import array
from collections.abc import Sequence

from rocketstore.status import AppendMessageStatus, PutMessageStatus

rs_guard_import()
rs_crc_import()

cdef tuple PUT_STATUSES = tuple(PutMessageStatus)
cdef tuple APPEND_STATUSES = tuple(AppendMessageStatus)


@cython.final
@cython.freelist(64)
cdef class PutMessageResult:
    """Outcome of one put (immutable). Offsets are None when nothing was appended."""

    # As in rs_put_result.h. Numbers and bytes only: no work for the garbage collector.
    cdef rs_put_outcome _outcome
    cdef bytes _host
    cdef bytes _ids

    def __init__(self, status, append_status=None, physical_offset=None, nbytes=0,
                 queue_offset=None, store_timestamp=0, msg_ids=()):
        cdef rs_put_outcome *outcome = &self._outcome
        outcome.status = PutMessageStatus(status)
        outcome.append_status = -1 if append_status is None else AppendMessageStatus(append_status)
        outcome.has_physical_offset = physical_offset is not None
        outcome.physical_offset = -1 if physical_offset is None else physical_offset
        outcome.nbytes = nbytes
        outcome.has_queue_offset = queue_offset is not None
        outcome.queue_offset = -1 if queue_offset is None else queue_offset
        outcome.store_timestamp = store_timestamp
        outcome.count = len(msg_ids)
        self._ids = b"".join([pack_id(host, offset) for host, offset in msg_ids])

    @property
    def status(self):
        """Outcome of the put as a whole."""
        return PUT_STATUSES[self._outcome.status]

    @property
    def append_status(self):
        """Outcome of the append, None when it was not tried."""
        cdef int32_t status = self._outcome.append_status
        return None if status < 0 else APPEND_STATUSES[status]

    @property
    def physical_offset(self):
        """Log offset of the (first) record."""
        return self._outcome.physical_offset if self._outcome.has_physical_offset else None

    @property
    def nbytes(self):
        """Bytes appended."""
        return self._outcome.nbytes

    @property
    def queue_offset(self):
        """Queue offset of the (first) record."""
        return self._outcome.queue_offset if self._outcome.has_queue_offset else None

    @property
    def store_timestamp(self):
        """Store time, epoch ms; 0 when nothing was appended."""
        return self._outcome.store_timestamp

    @property
    def message_count(self):
        """Records appended."""
        return self._outcome.count

    @property
    def msg_id(self):
        """The offsetMsgId, comma-joined for a batch."""
        if self._outcome.count == 0:
            return None
        if self._ids is None:
            return id_text(self._host, self._outcome.physical_offset)
        return ",".join(unpack_ids(self._ids))

    @property
    def ok(self):
        """Return whether the status is ``PUT_OK``."""
        return self._outcome.status == RS_PUT_PUT_OK

    @property
    def appended(self):
        """RocketMQ's ``isOk``: the record is in the log, also when its flush timed out."""
        return self._outcome.append_status == RS_APPEND_PUT_OK

    def with_flush_status(self, status):
        """Return this outcome with the flush ``status`` that the put waited for."""
        cdef int32_t flushed = PutMessageStatus(status)
        cdef PutMessageResult result = PutMessageResult.__new__(PutMessageResult)
        result._outcome = self._outcome
        result._host = self._host
        result._ids = self._ids
        if self.appended:
            result._outcome.status = flushed
        return result

    def __eq__(self, other):
        if not isinstance(other, PutMessageResult):
            return NotImplemented
        return key_of(self) == key_of(other)

    def __hash__(self):
        return hash(key_of(self))

    def __reduce__(self):
        ids = () if self._outcome.count == 0 else (
            unpack_pairs(self._ids) if self._ids is not None
            else ((self._host, self._outcome.physical_offset),)
        )
        return PutMessageResult, (
            self._outcome.status, self.append_status, self.physical_offset, self._outcome.nbytes,
            self.queue_offset, self._outcome.store_timestamp, ids,
        )

    def __repr__(self):
        if not self.appended:
            return f"PutMessageResult({self.status.name})"
        return (
            f"PutMessageResult({self.status.name}, physical_offset={self.physical_offset}, "
            f"nbytes={self.nbytes}, queue_offset={self.queue_offset}, "
            f"store_timestamp={self.store_timestamp}, message_count={self.message_count})"
        )


if sizeof(PutMessageResult) != sizeof(rs_put_result_object):
    raise ImportError("rs_put_result.h does not describe PutMessageResult")


cdef tuple key_of(PutMessageResult result):
    return (
        result._outcome.status, result._outcome.append_status, result.physical_offset,
        result._outcome.nbytes, result.queue_offset, result._outcome.store_timestamp,
        result._outcome.count, result.msg_id,
    )


cdef str id_text(bytes host, int64_t physical_offset):
    return rs_message_id(<const uint8_t *> PyBytes_AS_STRING(host), len(host), physical_offset)


cdef bytes pack_id(bytes host, object offset):
    if len(host) not in (8, 20):
        raise ValueError(f"a stored host has 8 or 20 bytes, not {len(host)}")
    return bytes((len(host),)) + host + int(offset).to_bytes(8, "big", signed=True)


cdef list unpack_ids(bytes ids):
    return [id_text(host, offset) for host, offset in unpack_pairs(ids)]


cdef tuple unpack_pairs(bytes ids):
    """Return the (stored host, log offset) pairs that ``pack_id`` packed."""
    cdef list pairs = []
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t size
    while at < len(ids):
        size = ids[at]
        host = ids[at + 1 : at + 1 + size]
        at += 1 + size
        pairs.append((host, int.from_bytes(ids[at : at + 8], "big", signed=True)))
        at += 8
    return tuple(pairs)


cdef enum Column:
    STATUS
    PHYSICAL_OFFSET
    QUEUE_OFFSET
    NBYTES
    STORE_TIMESTAMP


@cython.final
cdef class PutManyResult:
    """Outcomes of many puts, in their order; offsets are -1 where nothing was appended."""

    # As in rs_put_result.h.
    cdef rs_put_rows _table

    def __init__(self, results=()):
        for result in results:
            add_row(&self._table, result)

    def __dealloc__(self):
        PyMem_Free(self._table.rows)

    def __len__(self):
        return self._table.count

    def __getitem__(self, index):
        cdef Py_ssize_t i
        if isinstance(index, slice):
            return [result_at(&self._table, i) for i in range(*index.indices(self._table.count))]
        i = operator.index(index)
        if i < 0:
            i += self._table.count
        if i < 0 or i >= self._table.count:
            raise IndexError("list index out of range")
        return result_at(&self._table, i)

    def __iter__(self):
        cdef Py_ssize_t i
        for i in range(self._table.count):
            yield result_at(&self._table, i)

    def __reversed__(self):
        cdef Py_ssize_t i
        for i in range(self._table.count - 1, -1, -1):
            yield result_at(&self._table, i)

    def __contains__(self, value):
        return any(value == mine for mine in self)

    def index(self, value, start=0, stop=None):
        """Return the place of the first equal result; raise ``ValueError`` if there is none."""
        for i in range(*slice(start, stop).indices(self._table.count)):
            if result_at(&self._table, i) == value:
                return i
        raise ValueError

    def count(self, value):
        """Return the number of equal results."""
        return sum(value == mine for mine in self)

    @property
    def ok(self):
        """Return whether every status is ``PUT_OK``."""
        cdef Py_ssize_t i
        for i in range(self._table.count):
            if self._table.rows[i].status != RS_PUT_PUT_OK:
                return False
        return True

    @property
    def statuses(self):
        """``PutMessageStatus`` values."""
        return array("b", column(&self._table, STATUS))

    @property
    def physical_offsets(self):
        """Log offset of each record."""
        return column(&self._table, PHYSICAL_OFFSET)

    @property
    def queue_offsets(self):
        """Queue offset of each record."""
        return column(&self._table, QUEUE_OFFSET)

    @property
    def nbytes(self):
        """Length of each record; 0 where nothing was appended."""
        return column(&self._table, NBYTES)

    @property
    def store_timestamps(self):
        """Store time of each record; 0 where nothing was appended."""
        return column(&self._table, STORE_TIMESTAMP)

    def __reduce__(self):
        return PutManyResult, (list(self),)

    def with_flush_status(self, status):
        """Return these outcomes with the flush ``status`` for those that waited for it."""
        cdef int32_t flushed = PutMessageStatus(status)
        cdef PutManyResult result = PutManyResult.__new__(PutManyResult)
        if self._table.count > 0:
            if rs_put_rows_grow(&result._table, self._table.count) == NULL:
                raise MemoryError()
            memcpy(result._table.rows, self._table.rows,
                   <size_t> self._table.count * sizeof(rs_put_row))
        rs_set_waited(&result._table, flushed)
        return result

    def __eq__(self, other):
        if not isinstance(other, PutManyResult):
            return NotImplemented
        return list(self) == list(other)

    __hash__ = None

    def __repr__(self):
        cdef Py_ssize_t i
        cdef Py_ssize_t appended = 0
        for i in range(self._table.count):
            appended += self._table.rows[i].append_status == RS_APPEND_PUT_OK
        return f"PutManyResult({self._table.count} messages, {appended} appended)"


if sizeof(PutManyResult) != sizeof(rs_put_many_object):
    raise ImportError("rs_put_result.h does not describe PutManyResult")

Sequence.register(PutManyResult)


cdef int add_row(rs_put_rows *table, PutMessageResult result) except -1:
    cdef rs_put_outcome *outcome = &result._outcome
    cdef rs_put_row *row
    cdef bytes host
    if outcome.count > 1:
        raise ValueError("a PutManyResult can hold only outcomes of single messages")
    row = rs_put_rows_grow(table, 1)
    if row == NULL:
        raise MemoryError()
    memset(row, 0, sizeof(rs_put_row))
    row.physical_offset = outcome.physical_offset if outcome.count else -1
    row.queue_offset = outcome.queue_offset if outcome.count else -1
    row.store_timestamp = outcome.store_timestamp
    row.nbytes = <int32_t> outcome.nbytes
    row.status = outcome.status
    row.append_status = outcome.append_status
    if outcome.count:
        host = result._host if result._ids is None else result._ids[1 : 1 + result._ids[0]]
        row.host_nbytes = <int32_t> len(host)
        memcpy(row.host, PyBytes_AS_STRING(host), <size_t> row.host_nbytes)
    return 0


cdef PutMessageResult result_at(const rs_put_rows *table, Py_ssize_t index):
    cdef PutMessageResult result = PutMessageResult.__new__(PutMessageResult)
    cdef rs_put_outcome *outcome = &result._outcome
    cdef const rs_put_row *row = table.rows + index
    outcome.status = row.status
    outcome.append_status = row.append_status
    if row.append_status != RS_APPEND_PUT_OK:
        return result
    outcome.has_physical_offset = outcome.has_queue_offset = True
    outcome.physical_offset = row.physical_offset
    outcome.nbytes = row.nbytes
    outcome.queue_offset = row.queue_offset
    outcome.store_timestamp = row.store_timestamp
    outcome.count = 1
    result._host = PyBytes_FromStringAndSize(<const char *> row.host, row.host_nbytes)
    return result


cdef object column(const rs_put_rows *table, Column which):
    cdef Py_ssize_t i
    cdef const rs_put_row *row
    cdef int64_t value
    cdef Py_ssize_t width = sizeof(int64_t)
    cdef bytes raw = PyBytes_FromStringAndSize(NULL, table.count * width)
    cdef char *out = PyBytes_AS_STRING(raw)
    for i in range(table.count):
        row = table.rows + i
        if which == STATUS:
            value = row.status
        elif which == PHYSICAL_OFFSET:
            value = row.physical_offset
        elif which == QUEUE_OFFSET:
            value = row.queue_offset
        elif which == NBYTES:
            value = row.nbytes
        else:
            value = row.store_timestamp
        memcpy(out + i * width, &value, sizeof(int64_t))
    values = array("q")
    values.frombytes(raw)
    return values
