"""Records of the log as Arrow record batches: the pure-Python body of ``_native/arrow.pyi``.

It builds the batches with pyarrow, from Python objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rocketstore import formats
from rocketstore._reference import java_text
from rocketstore._reference.arguments import Buffer, check_int64
from rocketstore._reference.message import StoredMessage
from rocketstore._reference.record_check import Row, check, pairs, record_buffer
from rocketstore._reference.record_filter import RecordFilter
from rocketstore.display.columns import COLUMNS, LOG_APPEND_TIME, arrow_schema
from rocketstore.record_filters import CompiledFilter, check_batch_limits, record_filters
from rocketstore.status import RecordStatus

if TYPE_CHECKING:
    import pyarrow

_COMPLETE = (RecordStatus.OK, RecordStatus.NUL_PROPERTIES, RecordStatus.UNSAFE_TOPIC)
_SHOWN_NBYTES = 64
_TAGS, _KEYS, _UNIQUE_KEY = (
    name.encode()
    for name in (formats.PROPERTY_TAGS, formats.PROPERTY_KEYS, formats.PROPERTY_UNIQUE_KEY)
)


def _microseconds(milliseconds: int) -> int:
    return max(-(2**63), min(milliseconds * 1000, 2**63 - 1))


class _Record:
    """A checked record: its fields in the form of the columns."""

    def __init__(self, view: memoryview, row: Row) -> None:
        self.message = StoredMessage(view, 0, row.physical_offset, row.physical_offset + len(view))
        self.row = row
        self.stored = self.message.properties_bytes
        self.values = {name: self.stored[start:stop] for name, start, stop in pairs(self.stored)}

    def headers(self) -> list[dict[str, Any]]:
        values = {
            java_text.decode(name): self.stored[start:stop]
            for name, start, stop in pairs(self.stored)
        }
        return [{"key": name, "value": value} for name, value in values.items()]


_FIELDS: dict[str, Callable[[_Record], Any]] = {
    "topic": lambda r: r.message.topic,
    "queueId": lambda r: r.message.queue_id,
    "queueOffset": lambda r: r.message.queue_offset,
    "physicalOffset": lambda r: r.message.physical_offset,
    "tags": lambda r: r.message.tags,
    "keys": lambda r: r.message.keys,
    "body": lambda r: r.message.body,
    "storeTimestamp": lambda r: _microseconds(r.message.store_timestamp),
    "bornTimestamp": lambda r: _microseconds(r.message.born_timestamp),
    "properties": lambda r: list(r.message.properties.items()),
    "flag": lambda r: r.message.flag,
    "sysFlag": lambda r: r.message.sys_flag,
    "reconsumeTimes": lambda r: r.message.reconsume_times,
    "storeSize": lambda r: r.message.store_size,
    "bodyCRC": lambda r: r.message.body_crc,
    "bornHost": lambda r: r.message.born_host,
    "storeHost": lambda r: r.message.store_host,
    "uniqKey": lambda r: r.message.unique_key,
    "offsetMsgId": lambda r: r.message.msg_id,
    "preparedTransactionOffset": lambda r: r.message.prepared_transaction_offset,
    "bodySize": lambda r: r.row.body_nbytes,
    "raw": lambda r: bytes(r.message.raw),
    "key": lambda r: r.values.get(_KEYS),
    "value": lambda r: r.message.body,
    "partition": lambda r: r.message.queue_id,
    "offset": lambda r: r.message.queue_offset,
    "timestamp": lambda r: _microseconds(r.message.store_timestamp),
    "timestampType": lambda r: LOG_APPEND_TIME,
    "headers": lambda r: r.headers(),
}
#: Bytes of a column that count towards a batch's limit.
_NBYTES: dict[str, Callable[[_Record], int]] = {
    "topic": lambda r: r.row.topic_nbytes,
    "tags": lambda r: len(r.values.get(_TAGS, b"")),
    "keys": lambda r: len(r.values.get(_KEYS, b"")),
    "body": lambda r: r.row.body_nbytes,
    "properties": lambda r: r.row.properties_nbytes,
    "bornHost": lambda r: _SHOWN_NBYTES,
    "storeHost": lambda r: _SHOWN_NBYTES,
    "uniqKey": lambda r: len(r.values.get(_UNIQUE_KEY, b"")),
    "offsetMsgId": lambda r: _SHOWN_NBYTES,
    "raw": lambda r: r.row.total_size,
    "key": lambda r: len(r.values.get(_KEYS, b"")),
    "value": lambda r: r.row.body_nbytes,
    "headers": lambda r: r.row.properties_nbytes,
}


class BatchDecoder:
    """Fill record batches with records from windows of the log."""

    def __init__(
        self,
        columns: Sequence[str],
        *,
        topics: Iterable[str] | None = None,
        tags: Iterable[str] | None = None,
        keys: Iterable[str] | None = None,
        queue_ids: Mapping[str, Iterable[int]] | None = None,
        begin: int | None = None,
        end: int | None = None,
        start_offsets: Mapping[tuple[str, int], tuple[int | None, int | None]] | None = None,
        filter: CompiledFilter | None = None,
        batch_rows: int = 8192,
        batch_bytes: int = 4194304,
    ) -> None:
        self._names = list(columns)
        for name in self._names:
            if name not in COLUMNS:
                raise ValueError(f"there is no column {name!r}")
        check_batch_limits(batch_rows, batch_bytes)
        self._filter = RecordFilter(
            record_filters(topics, tags, keys, queue_ids, begin, end, start_offsets, filter)
        )
        self._batch_rows = batch_rows
        self._batch_nbytes = batch_bytes
        self._begin_batch()

    def _begin_batch(self) -> None:
        self._values: list[list[Any]] = [[] for _ in self._names]
        self._rows = 0
        self._nbytes = 0

    def consume(
        self,
        window: Buffer,
        position: int,
        stop: int,
        base_offset: int,
        segment_end: int,
        limit: int,
        flags: int,
        /,
    ) -> tuple[int, int]:
        """Add the records from ``position`` on; return (status, position to continue from)."""
        view = record_buffer(window, position, stop, base_offset, segment_end)
        check_int64(limit, flags)
        while position < stop and base_offset + position < limit:
            if self._rows == self._batch_rows:
                return int(RecordStatus.FULL), position
            row = check(view[position:stop], base_offset + position, segment_end, flags)
            if row.status in _COMPLETE:
                record = _Record(view[position : position + row.total_size], row)
                if self._filter.takes(record.message) and not self._append(record):
                    return int(RecordStatus.FULL), position
            elif row.status != RecordStatus.GHOST:
                return int(row.status), position
            position += row.total_size
        return int(RecordStatus.END), position

    def _append(self, record: _Record) -> bool:
        """Add a row; return False if the batch has no room for its bytes."""
        nbytes = sum(_NBYTES[name](record) for name in self._names if name in _NBYTES)
        if self._rows and self._nbytes + nbytes > self._batch_nbytes:
            return False
        for name, values in zip(self._names, self._values, strict=True):
            values.append(_FIELDS[name](record))
        self._rows += 1
        self._nbytes += nbytes
        return True

    @property
    def rows(self) -> int:
        """Rows not yet taken."""
        return self._rows

    @property
    def schema(self) -> pyarrow.Schema:
        """The schema of the batches."""
        return arrow_schema(self._names)

    def take(self) -> pyarrow.RecordBatch:
        """Return the rows not yet taken as a record batch, and begin a new one."""
        import pyarrow as pa

        schema = self.schema
        arrays = [
            pa.array(values, field.type) for values, field in zip(self._values, schema, strict=True)
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        self._begin_batch()
        return batch


def export_stream(schema: pyarrow.Schema, batches: Iterator[pyarrow.RecordBatch], /) -> object:
    """Return the batches of an iterator as a PyCapsule of a C stream."""
    import pyarrow as pa

    return pa.RecordBatchReader.from_batches(schema, batches).__arrow_c_stream__()
