"""Staged records: encoded from Arrow rows outside the store, appended later by its only writer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rocketstore import formats
from rocketstore._reference import put_arguments as arguments
from rocketstore._reference.hosts import format_host
from rocketstore._reference.message import encode_record, parse_host
from rocketstore._reference.offset_properties import LightSwitches
from rocketstore._reference.put_record import Record, RecordRules
from rocketstore._reference.record_check import Row, check, host_nbytes
from rocketstore.dialect import Dialect
from rocketstore.errors import DecodeError
from rocketstore.status import PutMessageStatus, RecordStatus

COLUMNS = (
    *("body", "topic", "tags", "keys", "queueId", "properties", "flag", "bornTimestamp"),
    "delayLevel",
)
_COMPLETE = (
    *(RecordStatus.OK, RecordStatus.GHOST),
    *(RecordStatus.NUL_PROPERTIES, RecordStatus.UNSAFE_TOPIC),
)
_MAX_PORT = 65535
_I31 = (0, 2**31 - 1)
_I63 = (0, 2**63 - 1)


class StageEncoder:
    """Encodes Arrow rows as staged records; see the native stub."""

    def __init__(
        self,
        *,
        topic: str | None = None,
        queues: int = 4,
        store_host: str = "127.0.0.1:10911",
        broker_version: str = "5.3.3",
        max_message_size: int = 4194304,
        segment_nbytes: int = 1073741824,
        delay_ms: Sequence[int] = (),
        append_property_crc: bool = False,
        capacity: int = 4194304,
    ) -> None:
        dialect = Dialect.for_version(broker_version, allow_newer=True)
        parse_host(store_host)
        self._rules = RecordRules(
            dialect,
            store_host,
            arguments.check_integer("max_message_size", max_message_size, _I31),
            arguments.check_integer(
                "segment_nbytes",
                segment_nbytes,
                (formats.MIN_COMMIT_LOG_FILE_NBYTES, formats.MAX_COMMIT_LOG_FILE_NBYTES),
            ),
            len(delay_ms),
            bool(append_property_crc),
            LightSwitches(False, False, 0, False),
        )
        self._queue_count = arguments.check_integer("queues", queues, (1, 2**31 - 1))
        self._capacity = arguments.check_integer("capacity", capacity, (1, 2**31 - 1))
        self._topic = None if topic is None else arguments.check_topic(topic)
        self._waiting: list[bytes] = []
        self._taken = 0
        self.waiting_nbytes = 0
        self.rows = 0

    @property
    def position(self) -> int:
        """Bytes of the stage so far, including those not yet taken."""
        return self._taken + self.waiting_nbytes

    def take(self) -> bytes:
        """Return the records encoded since the last ``take``."""
        content = b"".join(self._waiting)
        self._waiting = []
        self._taken += len(content)
        self.waiting_nbytes = 0
        return content

    def encode(self, batch: Any, row: int = 0) -> int:
        """Encode the batch's rows from ``row`` on; return the row to continue from."""
        import pyarrow

        at = arguments.check_integer("row", row, _I63)
        table = pyarrow.record_batch(batch)
        columns = {name: _values(name, table.column(name)) for name in table.schema.names}
        if "body" not in columns:
            raise ValueError("there is no column body")
        while at < table.num_rows and self.waiting_nbytes < self._capacity:
            try:
                record = self._finish({name: values[at] for name, values in columns.items()})
            except TypeError as error:
                raise TypeError(f"row {self.rows}: {error}") from None
            except ValueError as error:
                raise ValueError(f"row {self.rows}: {error}") from None
            self._write(record)
            self.rows += 1
            at += 1
        return at

    def _finish(self, values: dict[str, Any]) -> Record:
        """Check and transform a row; raise if it is refused."""
        if values["body"] is None:
            raise ValueError("column body is null")
        topic = self._topic
        if topic is None:
            if values.get("topic") is None:
                raise ValueError("column topic is null, and no topic was given for all rows")
            topic = _text("topic", values["topic"])
        arguments.check_topic(topic)
        number = values.get("queueId")
        queue_id = self.rows % self._queue_count if number is None else number
        arguments.check_integer("queueId", queue_id, _I31)
        level = arguments.check_integer("delayLevel", values.get("delayLevel") or 0, _I31)
        record = self._rules.make(
            topic, queue_id, values.get("flag") or 0, 0, values.get("bornTimestamp"),
            None, None, 0, 0,
        )  # fmt: skip
        tags, keys = (
            None if values.get(name) is None else _text(name, values[name])
            for name in ("tags", "keys")
        )
        given = _properties(values.get("properties"))
        if given is not None:  # as a source gives them: in a column and among the properties
            tags = None if given.get(formats.PROPERTY_TAGS) == tags else tags
            keys = None if given.get(formats.PROPERTY_KEYS) == keys else keys
        pairs = arguments.gather_properties(given, None, tags, keys, True, level, None)
        self._rules.finish(record, values["body"], pairs)
        if record.status is not None:
            name = PutMessageStatus(record.status).name
            raise ValueError(f"the store refuses the message: {name}")
        return record

    def _write(self, record: Record) -> None:
        born = record.born_timestamp
        content = encode_record(
            record.topic, record.body, record.queue_id, 0, self.position, record.flag,
            record.sys_flag, 0 if born is None else born, record.born_host, int(born is None),
            record.store_host, 0, 0, record.properties, record.version,
        )  # fmt: skip
        self._waiting.append(content)
        self.waiting_nbytes += len(content)


def _text(name: str, value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"column {name} is not UTF-8") from None


def _properties(pairs: list[tuple[bytes | None, bytes | None]] | None) -> dict[Any, Any] | None:
    if pairs is None:
        return None
    return {_pair_text(name): _pair_text(value) for name, value in pairs}


def _pair_text(value: bytes | None) -> str | None:
    return None if value is None else _text("properties", value)


def _values(name: str, column: Any) -> Any:
    """Return a column's values: bytes for text, epoch ms for times, lists of pairs for maps."""
    import pyarrow
    from pyarrow import types

    if name not in COLUMNS:
        raise ValueError(f"a sink takes no column {name!r}")
    kind = column.type
    if name in ("queueId", "flag", "delayLevel"):
        if types.is_int32(kind):
            return column.to_pylist()
    elif name == "bornTimestamp":
        if types.is_int64(kind):
            return column.to_pylist()
        if types.is_timestamp(kind) and kind.unit == "us":
            return [t if t is None else t // 1000 for t in column.cast(pyarrow.int64()).to_pylist()]
    elif name == "properties":
        if types.is_map(kind):
            return _maps(column)
    elif _is_text(kind):
        return column.cast(pyarrow.large_binary()).to_pylist()
    raise TypeError(f"column {name} has the wrong Arrow type")


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    return any(
        test(kind)
        for test in (types.is_string, types.is_binary, types.is_large_string, types.is_large_binary)
    )


def _maps(column: Any) -> list[list[tuple[bytes | None, bytes | None]] | None]:
    import pyarrow

    if not (_is_text(column.type.key_type) and _is_text(column.type.item_type)):
        raise TypeError("column properties must be a map of string to string")
    names = column.keys.cast(pyarrow.large_binary()).to_pylist()
    values = column.items.cast(pyarrow.large_binary()).to_pylist()
    bounds = column.offsets.to_pylist()
    return [
        list(zip(names[bounds[i] : bounds[i + 1]], values[bounds[i] : bounds[i + 1]], strict=True))
        if is_valid
        else None
        for i, is_valid in enumerate(column.is_valid().to_pylist())
    ]


# --- Contents of a stage --------------------------------------------------------------------------


def staged_rows(
    view: memoryview, position: int, stop: int, base_offset: int, flags: int
) -> Iterator[tuple[int, Row]]:
    """Yield position and parsed row of each staged record."""
    while position < stop:
        row = check(view[position:stop], base_offset + position, base_offset + stop, flags)
        if row.status != RecordStatus.OK:
            raise DecodeError(
                f"the stage holds no record at position {base_offset + position}: "
                f"{RecordStatus(row.status).name}"
            )
        yield position, row
        position += row.total_size


def staged_record(view: memoryview, position: int, row: Row, rules: RecordRules) -> Record:
    """Return the record to be appended from ``position``."""
    content = bytes(view[position : position + row.total_size])
    topic = content[row.topic_at : row.topic_at + row.topic_nbytes]
    try:
        name = arguments.check_topic(topic.decode("ascii"))
    except ValueError:
        raise DecodeError(
            f"the stage holds no record at position {row.physical_offset}: "
            f"{RecordStatus.UNSAFE_TOPIC.name}"
        ) from None
    born_at = formats.RECORD_HEAD.nbytes
    store_at = born_at + host_nbytes(row.sys_flag, formats.SYS_FLAG_BORN_HOST_V6)
    store_at += formats.RECORD_STORED.nbytes
    store_end = store_at + host_nbytes(row.sys_flag, formats.SYS_FLAG_STORE_HOST_V6)
    hosts = content[born_at : store_at - formats.RECORD_STORED.nbytes], content[store_at:store_end]
    if any(int.from_bytes(host[-4:], "big") > _MAX_PORT for host in hosts):
        raise DecodeError(
            f"the stage holds no record at position {row.physical_offset}: a host's port"
        )
    record = Record(
        name,
        row.queue_id,
        row.flag,
        row.sys_flag,
        None if row.store_timestamp else row.born_timestamp,
        format_host(hosts[0]),
        format_host(hosts[1]),
        row.reconsume_times,
        row.prepared_transaction_offset,
        content[row.body_at : row.body_at + row.body_nbytes],
        content[row.properties_at :],
        2 if row.magic == formats.MAGIC_V2 else 1,
        rules.property_crc,
    )
    if record.properties_nbytes > formats.MAX_PROPERTIES_NBYTES:
        return record.refuse(PutMessageStatus.PROPERTIES_SIZE_EXCEEDED)
    if row.body_nbytes > rules.max_message_size:
        return record.refuse(PutMessageStatus.MESSAGE_ILLEGAL)
    return rules.fits(record)


def tally(
    data: Any, position: int, stop: int, base_offset: int, room: int
) -> tuple[int, int, dict[tuple[str, int], int]]:
    """Count the records that fit a segment, by queue."""
    at = arguments.check_integer("position", position, _I63)
    end = arguments.check_integer("stop", stop, (at, _I63[1]))
    base = arguments.check_integer("base_offset", base_offset, (0, _I63[1] - end))
    left = arguments.check_integer("room", room, _I63)
    rows = 0
    counts: dict[tuple[str, int], int] = {}
    with memoryview(data) as view:
        if end > len(view):
            raise ValueError(f"stop {end} is past the {len(view)} bytes of data")
        for place, row in staged_rows(view, at, end, base, 0):
            if row.total_size + formats.BLANK.nbytes > left:
                return place, rows, counts
            start = place + row.topic_at
            topic = bytes(view[start : start + row.topic_nbytes]).decode("utf-8", "replace")
            key = (topic, row.queue_id)
            counts[key] = counts.get(key, 0) + 1
            left -= row.total_size
            rows += 1
    return end, rows, counts


def _parse_whole(content: bytes) -> Row | None:
    """Parse exactly one record, whatever its offset."""
    if len(content) < formats.RECORD_MIN_NBYTES:
        return None
    at = formats.RECORD_HEAD.at("physical_offset")
    offset = int.from_bytes(content[at : at + 8], "big", signed=True)
    if not 0 <= offset <= _I63[1] - len(content):
        return None
    row = check(memoryview(content), offset, offset + len(content), 0)
    return row if row.status in _COMPLETE and row.total_size == len(content) else None


def _same_properties(staged: bytes, stored: bytes) -> bool:
    """Return whether the store wrote these properties; it may append the whole-record CRC."""
    if not stored.startswith(staged):
        return False
    rest = stored[len(staged) :]
    separator = b"\x02" if staged and not staged.endswith(b"\x02") else b""
    if not rest:
        return True
    return len(rest) == formats.PROPERTY_CRC32_NBYTES + len(separator) and rest[
        len(separator) :
    ].startswith(formats.PROPERTY_CRC32.encode())


def matches(staged: Any, stored: Any) -> bool:
    """Return whether a record of the log is this staged one."""
    ours, theirs = bytes(staged), bytes(stored)
    a, b = _parse_whole(ours), _parse_whole(theirs)
    if a is None or b is None:
        return False
    names = (
        *("magic", "body_crc", "queue_id", "flag", "sys_flag", "reconsume_times"),
        *("prepared_transaction_offset", "body_nbytes", "topic_nbytes"),
    )
    if any(getattr(a, name) != getattr(b, name) for name in names):
        return False
    if b.born_timestamp != (b.store_timestamp if a.store_timestamp else a.born_timestamp):
        return False
    head = formats.RECORD_HEAD.nbytes
    stored_at = head + host_nbytes(a.sys_flag, formats.SYS_FLAG_BORN_HOST_V6)
    store_host_at = stored_at + formats.RECORD_STORED.nbytes
    return (
        ours[head:stored_at] == theirs[head:stored_at]
        and ours[store_host_at : a.properties_at - formats.PROPERTIES_LENGTH_NBYTES]
        == theirs[store_host_at : b.properties_at - formats.PROPERTIES_LENGTH_NBYTES]
        and _same_properties(ours[a.properties_at :], theirs[b.properties_at :])
    )
