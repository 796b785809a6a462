"""Records as queues show them: without half messages, and with batches split into messages."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

from rocketstore import formats, kernels
from rocketstore.errors import CorruptMessageError
from rocketstore.inner_batch import unit_of
from rocketstore.log.commit_log import CommitLog
from rocketstore.message import StoredMessage
from rocketstore.status import RecordFlags, RecordStatus

RECORD_WORDS = ("log", "queues")
_ROW = formats.PARSED_RECORD
_CAPACITY = 1024
_GOOD = (RecordStatus.OK, RecordStatus.NUL_PROPERTIES)
#: Types of records without a unit in a queue.
_NO_UNIT = (formats.SYS_FLAG_TRANSACTION_PREPARED, formats.SYS_FLAG_TRANSACTION_ROLLBACK)
#: A client splits a batch only if both flags are set.
_PACKED = formats.SYS_FLAG_INNER_BATCH | formats.SYS_FLAG_NEED_UNWRAP
_HEAD = formats.RECORD_HEAD
#: A message in a batch starts with its size, a magic, a CRC, its flag and the body's length.
_INT = 4
_FLAG_AT, _BODY_LENGTH_AT, _BODY_AT = 3 * _INT, 4 * _INT, 5 * _INT
_PROPERTY_CRC_FLAGS = (
    RecordFlags.CHECK_PROPERTY_CRC
    | RecordFlags.REQUIRE_PROPERTY_CRC
    | RecordFlags.REPORT_PROPERTY_CRC
)


def check_record_word(word: str) -> None:
    """Raise ``ValueError`` for a word that is not in ``RECORD_WORDS``."""
    if word not in RECORD_WORDS:
        raise ValueError(f"records must be one of {RECORD_WORDS}, not {word!r}")


def is_packed(sys_flag: int) -> bool:
    """Return whether a record's body is a batch that its reader splits."""
    return sys_flag & _PACKED == _PACKED


def is_in_queue(sys_flag: int) -> bool:
    """Return whether a record of this type is in a queue."""
    return sys_flag & formats.SYS_FLAG_TRANSACTION_MASK not in _NO_UNIT


def unpacked(record: Any, physical_offset: int) -> list[bytes] | None:
    """Return the messages of a batch as separate records.

    Each has the batch's log offset, times, hosts and flags, its own queue offset, and the flag,
    properties and body that it was sent with. ``None`` if the body is not a batch of ``INNER_NUM``
    messages.

    Parameters
    ----------
    record : bytes-like
        The complete record, already checked.
    """
    raw, end = bytes(record), physical_offset + len(record)
    row = bytearray(_ROW.nbytes)
    kernels.message.scan_records(raw, 0, len(raw), physical_offset, end, 0, row)
    names = (field.name for field in _ROW.fields)
    fields = dict(zip(names, _ROW.struct.unpack(row), strict=True))
    unit = unit_of(StoredMessage(raw, 0, physical_offset, end), 0)
    parts = _messages(raw[fields["body_at"] : fields["body_at"] + fields["body_nbytes"]])
    if unit is None or parts is None or len(parts) != unit.batch_size:
        return None
    head = raw[: fields["body_at"] - _INT]
    topic = raw[fields["body_at"] + fields["body_nbytes"] : _properties_length_at(fields)]
    return [
        _record(head, topic, unit.base_offset + number, *part) for number, part in enumerate(parts)
    ]


def _properties_length_at(fields: dict[str, int]) -> int:
    return fields["topic_at"] + fields["topic_nbytes"]


def _messages(body: bytes) -> list[tuple[bytes, bytes, bytes]] | None:
    """Return flag, body and properties of each message; ``None`` if the lengths are invalid."""
    found, at = [], 0
    while at < len(body):
        size = int.from_bytes(body[at : at + _INT], "big", signed=True)
        length = int.from_bytes(body[at + _BODY_LENGTH_AT : at + _BODY_AT], "big", signed=True)
        properties_at = at + _BODY_AT + length
        count = int.from_bytes(body[properties_at : properties_at + 2], "big", signed=True)
        if size < _BODY_AT + 2 or length < 0 or count < 0 or at + size > len(body):
            return None
        if properties_at + 2 + count != at + size:
            return None
        flag = body[at + _FLAG_AT : at + _BODY_LENGTH_AT]
        content = body[at + _BODY_AT : properties_at]
        found.append((flag, content, body[properties_at + 2 : at + size]))
        at += size
    return found


def _record(
    head: bytes, topic: bytes, queue_offset: int, flag: bytes, body: bytes, properties: bytes
) -> bytes:
    made = bytearray(head)

    def put(name: str, value: bytes) -> None:
        at = _HEAD.at(name)
        made[at : at + len(value)] = value

    put("body_crc", (zlib.crc32(body) & 0x7FFFFFFF).to_bytes(4, "big"))
    put("flag", flag)
    put("queue_offset", queue_offset.to_bytes(8, "big"))
    made += len(body).to_bytes(4, "big") + body + topic
    made += len(properties).to_bytes(2, "big") + properties
    put("total_size", len(made).to_bytes(4, "big"))
    return bytes(made)


def queue_messages(
    messages: Iterator[StoredMessage], log: CommitLog, on_corruption: str
) -> Iterator[StoredMessage]:
    """Yield the messages that queues show of records in log order.

    A batch that cannot be split is damage: ``on_corruption`` as in ``scan``.
    """
    for message in messages:
        flags = message.sys_flag
        if not is_in_queue(flags):
            continue
        if not is_packed(flags):
            yield message
            continue
        offset, size = message.physical_offset, message.store_size
        parts = unpacked(message.raw, offset)
        if parts is not None:
            for part in parts:
                yield StoredMessage(part, 0, offset, offset + size)
        elif on_corruption == "fail":
            path, position, _ = log.place(offset)
            reason = f"log offset {offset}: the body is not a batch of INNER_NUM messages"
            raise CorruptMessageError(path, position, reason)
        elif on_corruption == "stop":
            return


class QueueRecords:
    """A pass that hands on what queues show; see ``rocketstore.sources.walk.Pass``.

    Parameters
    ----------
    consumer
        The pass that gets the records.
    """

    def __init__(self, consumer: Any) -> None:
        self._give = consumer.consume
        self._rows = bytearray(_CAPACITY * _ROW.nbytes)
        #: A batch's offset and its messages that were not handed on yet.
        self._parts: tuple[int, list[bytes]] | None = None

    def consume(
        self,
        window: Any,
        position: int,
        stop: int,
        base_offset: int,
        segment_end: int,
        limit: int,
        flags: int,
        /,
    ) -> tuple[int, int]:
        """See ``Pass``."""
        where = (stop, base_offset, segment_end)
        while True:
            special, upto = self._next_special(window, position, *where, limit)
            status, position = self._give(
                window, position, stop, base_offset, segment_end, upto, flags
            )
            if status != RecordStatus.END or base_offset + position < upto or upto >= limit:
                return status, position
            if not special:
                continue
            status, size = kernels.message.check_record(window, position, *where, flags)
            if status not in (*_GOOD, RecordStatus.UNSAFE_TOPIC):
                return status, position
            offset = base_offset + position
            if status != RecordStatus.UNSAFE_TOPIC:
                record = memoryview(window)[position : position + size]
                status = self._give_parts(record, offset, segment_end, flags)
                if status != RecordStatus.OK:
                    return status, position
            position += size

    def _next_special(
        self, window: Any, position: int, stop: int, base_offset: int, segment_end: int, limit: int
    ) -> tuple[bool, int]:
        """Return whether a record to be split or dropped follows, and the offset before it."""
        import numpy

        count, reached, status = kernels.message.scan_records(
            window, position, stop, base_offset, segment_end, 0, self._rows
        )
        rows = numpy.frombuffer(self._rows, _ROW.dtype, count)
        sys_flags = rows["sys_flag"]
        kinds = sys_flags & formats.SYS_FLAG_TRANSACTION_MASK
        special = numpy.isin(kinds, _NO_UNIT) | ((sys_flags & _PACKED) == _PACKED)
        special &= numpy.isin(rows["status"], _GOOD)
        special |= rows["status"] == RecordStatus.UNSAFE_TOPIC
        found = numpy.flatnonzero(special)
        if len(found):
            offset = base_offset + int(rows["position"][found[0]])
            return True, min(offset, limit)
        is_whole = status == RecordStatus.OK and count > 0
        return False, min(base_offset + int(reached), limit) if is_whole else limit

    def _give_parts(self, record: memoryview, offset: int, segment_end: int, flags: int) -> int:
        """Hand on the messages of a batch, drop a half message; return OK when done."""
        sys_flag_at = _HEAD.at("sys_flag")
        sys_flag = int.from_bytes(record[sys_flag_at : sys_flag_at + _INT], "big", signed=True)
        if not is_in_queue(sys_flag):
            return RecordStatus.OK
        if self._parts is None or self._parts[0] != offset:
            parts = unpacked(record, offset)
            if parts is None:
                return RecordStatus.BAD_BODY_LENGTH
            self._parts = offset, parts
        left = self._parts[1]
        while left:
            part = left[0]
            status, reached = self._give(
                part, 0, len(part), offset, segment_end, offset + 1, flags & ~_PROPERTY_CRC_FLAGS
            )
            if reached:
                left.pop(0)
            if status == RecordStatus.FULL:
                return RecordStatus.FULL
            if status != RecordStatus.END or not reached:
                return int(status)
        self._parts = None
        return RecordStatus.OK
