"""The strict check of commit-log records; parsing them into rows; searching for them."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rocketstore import formats
from rocketstore._reference import java_text
from rocketstore._reference.arguments import Buffer, check_int64, readable, wrap64, writable
from rocketstore.status import RecordFlags, RecordStatus

_COMPLETE = (
    RecordStatus.OK,
    RecordStatus.GHOST,
    RecordStatus.NUL_PROPERTIES,
    RecordStatus.UNSAFE_TOPIC,
)
_PROPERTY_CRC_FLAGS = (
    RecordFlags.CHECK_PROPERTY_CRC
    | RecordFlags.REQUIRE_PROPERTY_CRC
    | RecordFlags.REPORT_PROPERTY_CRC
)
_TOPIC_LENGTH_NBYTES = {
    formats.MAGIC_V1: formats.TOPIC_LENGTH_NBYTES_V1,
    formats.MAGIC_V2: formats.TOPIC_LENGTH_NBYTES_V2,
}
_CRC_MASK = 0x7FFFFFFF
_NAME_VALUE = bytes([formats.NAME_VALUE_SEPARATOR])
_PAIR = bytes([formats.PROPERTY_SEPARATOR])
_PROPERTY_CRC = re.compile(
    re.escape(formats.PROPERTY_CRC32.encode()) + _NAME_VALUE + rb"([0-9]{10})" + _PAIR
)
_LIGHT_OFFSETS = formats.PROPERTY_INNER_MULTI_QUEUE_OFFSET.encode() + _NAME_VALUE
_LOST = re.compile(rb"\x00{%d}|\x00{%d}\Z" % (formats.LOST_SECTOR_NBYTES, formats.LOST_TAIL_NBYTES))
_UNSAFE = re.compile("[\x00-\x1f\x7f/]")
_MAGIC = re.compile(
    b"|".join(
        re.escape(magic.to_bytes(4, "big", signed=True))
        for magic in (formats.MAGIC_V1, formats.MAGIC_V2)
    )
)


class _BadError(Exception):
    """A check failed; carries the status."""

    def __init__(self, status: RecordStatus) -> None:
        super().__init__(status)
        self.status = status


def _require(condition: bool, otherwise: RecordStatus) -> None:
    if not condition:
        raise _BadError(otherwise)


@dataclass
class Row:
    """One row of ``formats.PARSED_RECORD``, field for field."""

    physical_offset: int
    queue_offset: int = 0
    born_timestamp: int = 0
    store_timestamp: int = 0
    prepared_transaction_offset: int = 0
    tags_code: int = 0
    position: int = 0
    total_size: int = 0
    status: int = 0
    magic: int = 0
    body_crc: int = 0
    queue_id: int = 0
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    property_crc: int = 0
    delay_level: int = 0
    body_at: int = 0
    body_nbytes: int = 0
    topic_at: int = 0
    topic_nbytes: int = 0
    properties_at: int = 0
    properties_nbytes: int = 0
    tags_at: int = -1
    tags_nbytes: int = 0
    keys_at: int = -1
    keys_nbytes: int = 0
    unique_key_at: int = -1
    unique_key_nbytes: int = 0
    multi_dispatch_at: int = 0

    def pack(self) -> bytes:
        """Return the row's bytes."""
        names = (field.name for field in formats.PARSED_RECORD.fields)
        return formats.PARSED_RECORD.struct.pack(*(getattr(self, name) for name in names))


def header_nbytes(sys_flag: int) -> int:
    """Return the length of the header before the body."""
    extra = formats.HOST_V6.nbytes - formats.HOST_V4.nbytes
    hosts = bool(sys_flag & formats.SYS_FLAG_BORN_HOST_V6) + bool(
        sys_flag & formats.SYS_FLAG_STORE_HOST_V6
    )
    return formats.RECORD_HEADER_V4_NBYTES + extra * hosts


def host_nbytes(sys_flag: int, bit: int) -> int:
    """Return the length of the host whose IPv6 bit in ``sys_flag`` is ``bit``."""
    return formats.HOST_V6.nbytes if sys_flag & bit else formats.HOST_V4.nbytes


def _integer(view: memoryview, at: int, nbytes: int) -> int:
    return int.from_bytes(view[at : at + nbytes], "big", signed=True)


def check_size(view: memoryview, left: int) -> tuple[RecordStatus, int, int]:
    """Check size and magic of the bytes at ``view``; return (status, size, magic).

    ``left`` is the number of bytes from here to the segment's end.
    """
    if len(view) < formats.BLANK.nbytes:
        if len(view) == 0:
            return RecordStatus.END, 0, 0
        fits = left >= formats.BLANK.nbytes
        return (RecordStatus.INCOMPLETE if fits else RecordStatus.BAD_SIZE), 0, 0
    size, magic = formats.BLANK.struct.unpack_from(view)
    if magic == formats.BLANK_MAGIC:
        whole = size == left and size >= formats.BLANK.nbytes
        return (RecordStatus.BLANK if whole else RecordStatus.BAD_BLANK), size, magic
    if magic not in _TOPIC_LENGTH_NBYTES:
        empty = size == 0 and magic == 0
        return (RecordStatus.EMPTY if empty else RecordStatus.BAD_MAGIC), size, magic
    shortest = formats.RECORD_MIN_NBYTES + (magic == formats.MAGIC_V2)
    if not shortest <= size <= left:
        return RecordStatus.BAD_SIZE, size, magic
    if size > len(view):
        return RecordStatus.INCOMPLETE, size, magic
    return RecordStatus.OK, size, magic


def check_lengths(view: memoryview, row: Row) -> None:
    """Read the header's checked numbers and the three lengths; raise if they are invalid.

    ``view`` is exactly the record.
    """
    head = dict(
        zip(
            (field.name for field in formats.RECORD_HEAD.fields),
            formats.RECORD_HEAD.struct.unpack_from(view),
            strict=True,
        )
    )
    row.sys_flag = head["sys_flag"]
    topic_length_nbytes = _TOPIC_LENGTH_NBYTES[row.magic]
    row.body_at = header_nbytes(row.sys_flag)
    rest = len(view) - row.body_at - topic_length_nbytes - formats.PROPERTIES_LENGTH_NBYTES
    _require(rest >= 0, RecordStatus.BAD_SIZE)
    row.queue_id, row.queue_offset = head["queue_id"], head["queue_offset"]
    _require(row.queue_id >= 0, RecordStatus.BAD_QUEUE_ID)
    _require(row.queue_offset >= 0, RecordStatus.BAD_QUEUE_OFFSET)

    row.body_nbytes = _integer(view, row.body_at - 4, 4)
    _require(0 <= row.body_nbytes <= rest, RecordStatus.BAD_BODY_LENGTH)
    rest -= row.body_nbytes
    row.topic_at = row.body_at + row.body_nbytes + topic_length_nbytes
    row.topic_nbytes = _integer(view, row.topic_at - topic_length_nbytes, topic_length_nbytes)
    _require(0 < row.topic_nbytes <= rest, RecordStatus.BAD_TOPIC_LENGTH)
    rest -= row.topic_nbytes
    row.properties_at = row.topic_at + row.topic_nbytes + formats.PROPERTIES_LENGTH_NBYTES
    row.properties_nbytes = _integer(
        view,
        row.properties_at - formats.PROPERTIES_LENGTH_NBYTES,
        formats.PROPERTIES_LENGTH_NBYTES,
    )
    _require(0 <= row.properties_nbytes <= rest, RecordStatus.BAD_PROPERTIES_LENGTH)
    _require(row.properties_nbytes == rest, RecordStatus.BAD_LENGTH_SUM)


def lengths_status(view: memoryview, row: Row) -> RecordStatus:
    """Return the status of the lengths alone. ``view`` is exactly the record."""
    try:
        check_lengths(view, row)
    except _BadError as bad:
        return bad.status
    return RecordStatus.OK


def load_numbers(view: memoryview, row: Row) -> None:
    """Read the numbers that are not checked."""
    at = formats.RECORD_HEAD.at
    row.flag = _integer(view, at("flag"), 4)
    row.body_crc = _integer(view, at("body_crc"), 4)
    row.born_timestamp = _integer(view, at("born_timestamp"), 8)
    stored_at = formats.RECORD_HEAD.nbytes + host_nbytes(
        row.sys_flag, formats.SYS_FLAG_BORN_HOST_V6
    )
    (row.store_timestamp,) = formats.RECORD_STORED.struct.unpack_from(view, stored_at)
    row.reconsume_times, row.prepared_transaction_offset, _ = (
        formats.RECORD_TAIL.struct.unpack_from(view, row.body_at - formats.RECORD_TAIL.nbytes)
    )


def _body_crc_matches(view: memoryview, row: Row) -> bool:
    if row.body_nbytes == 0:
        return True
    body = view[row.body_at : row.body_at + row.body_nbytes]
    return zlib.crc32(body) & _CRC_MASK == _integer(view, formats.RECORD_HEAD.at("body_crc"), 4)


def is_unsafe_topic(topic: bytes) -> bool:
    """Return whether no folder can have this name, apart from its length."""
    try:
        text = topic.decode()
    except UnicodeDecodeError:
        return True
    return text in (".", "..") or _UNSAFE.search(text) is not None


def _judge_property_crc(view: memoryview) -> int:
    covered = len(view) - formats.PROPERTY_CRC32_NBYTES
    match = _PROPERTY_CRC.fullmatch(bytes(view[covered:]))
    if match is None:
        return 0
    crc = zlib.crc32(view[:covered]) & _CRC_MASK
    return 1 if int(match.group(1)[::-1]) == crc else 2


def _is_lost(properties: bytes) -> bool:
    """Return whether there are NULs that no writer leaves.

    RocketMQ 5.2.0 and 5.3.0 leave the room for a CRC unwritten after the light-queue offsets: it
    holds old buffer contents, often zeros.
    """
    written = properties[: -formats.PROPERTY_CRC32_NBYTES]
    if _LIGHT_OFFSETS in written and written.endswith(_PAIR):
        properties = written
    return _LOST.search(properties) is not None


def _check_content(view: memoryview, flags: int, row: Row) -> RecordStatus:
    if flags & RecordFlags.CHECK_BODY_CRC:
        _require(_body_crc_matches(view, row), RecordStatus.BAD_BODY_CRC)
    topic = bytes(view[row.topic_at : row.topic_at + row.topic_nbytes])
    _require(topic[0] != 0 and topic[-1] != 0, RecordStatus.BAD_TOPIC)
    properties = bytes(view[row.properties_at :])
    _require(not _is_lost(properties), RecordStatus.BAD_PROPERTIES)
    if flags & _PROPERTY_CRC_FLAGS and row.properties_nbytes >= formats.PROPERTY_CRC32_NBYTES:
        row.property_crc = _judge_property_crc(view)
    if flags & RecordFlags.REQUIRE_PROPERTY_CRC:
        _require(row.property_crc == 1, RecordStatus.BAD_PROPERTY_CRC)
    if flags & RecordFlags.CHECK_PROPERTY_CRC:
        _require(row.property_crc != 2, RecordStatus.BAD_PROPERTY_CRC)

    own_offset = _integer(view, formats.RECORD_HEAD.at("physical_offset"), 8)
    if own_offset != row.physical_offset:
        _require(0 <= own_offset < row.physical_offset, RecordStatus.BAD_PHYSICAL_OFFSET)
        _require(_body_crc_matches(view, row), RecordStatus.BAD_PHYSICAL_OFFSET)
        return RecordStatus.GHOST
    if is_unsafe_topic(topic):
        return RecordStatus.UNSAFE_TOPIC
    return RecordStatus.NUL_PROPERTIES if 0 in properties else RecordStatus.OK


def check(view: memoryview, physical_offset: int, segment_end: int, flags: int) -> Row:
    """Check the bytes at ``view``, which is at ``physical_offset``; return a row with the status.

    ``total_size`` stays 0 unless a complete item can be skipped.
    """
    row = Row(physical_offset)
    status, size, row.magic = check_size(view, segment_end - physical_offset)
    if status == RecordStatus.OK:
        view = view[:size]
        try:
            check_lengths(view, row)
            status = _check_content(view, flags, row)
            load_numbers(view, row)
        except _BadError as bad:
            status = bad.status
    row.status = status
    if status in _COMPLETE or status == RecordStatus.BLANK:
        row.total_size = size
    return row


def pairs(properties: bytes) -> list[tuple[bytes, int, int]]:
    """Return name, and start and stop of the value, of each valid pair in stored order.

    A pair needs a name and a value; the first separator splits it.
    """
    found = []
    start = 0
    for pair in properties.split(_PAIR):
        name, _, value = pair.partition(_NAME_VALUE)
        if name and value:
            value_at = start + len(name) + 1
            found.append((name, value_at, value_at + len(value)))
        start += len(pair) + 1
    return found


def deliver_timestamp(store_timestamp: int, level: int, delay_ms: Sequence[int]) -> int:
    """Return the due time of a delayed message with a positive level."""
    delay = delay_ms[min(level, len(delay_ms)) - 1] if delay_ms else formats.UNKNOWN_DELAY_MS
    return wrap64(store_timestamp + delay)


def parse_row(view: memoryview, row: Row, delay_ms: Sequence[int]) -> None:
    """Fill the property columns. ``view`` is exactly the record, checked."""
    values = {
        name: (row.properties_at + start, stop - start)
        for name, start, stop in pairs(bytes(view[row.properties_at : row.total_size]))
    }
    absent = (-1, 0)
    row.tags_at, row.tags_nbytes = values.get(formats.PROPERTY_TAGS.encode(), absent)
    row.keys_at, row.keys_nbytes = values.get(formats.PROPERTY_KEYS.encode(), absent)
    row.unique_key_at, row.unique_key_nbytes = values.get(
        formats.PROPERTY_UNIQUE_KEY.encode(), absent
    )
    if formats.PROPERTY_INNER_MULTI_QUEUE_OFFSET.encode() in values:
        names = formats.PROPERTY_INNER_MULTI_DISPATCH.encode()
        row.multi_dispatch_at, _ = values.get(names, (0, 0))
    delay_at, delay_nbytes = values.get(formats.PROPERTY_DELAY.encode(), absent)
    if delay_at >= 0:
        row.delay_level = java_text.parse_int(bytes(view[delay_at : delay_at + delay_nbytes]))
    if row.tags_at >= 0:
        tags = view[row.tags_at : row.tags_at + row.tags_nbytes]
        row.tags_code = java_text.hash_code(bytes(tags))
    topic = view[row.topic_at : row.topic_at + row.topic_nbytes]
    if row.delay_level > 0 and topic == formats.TOPIC_SCHEDULE.encode():
        row.tags_code = deliver_timestamp(row.store_timestamp, row.delay_level, delay_ms)


def record_buffer(
    buffer: Buffer, position: int, stop: int, base_offset: int, segment_end: int
) -> memoryview:
    """Return the bytes of a record buffer after checking its range."""
    check_int64(position, stop, base_offset, segment_end)
    view = readable(buffer)
    if not 0 <= position <= stop <= len(view):
        raise ValueError(
            f"position {position} and stop {stop} do not lie in order within {len(view)} bytes"
        )
    if base_offset < 0 or segment_end < 0 or base_offset > 2**63 - 1 - len(view):
        raise ValueError(f"base_offset {base_offset} or segment_end {segment_end} is out of range")
    return view


def check_record(
    buffer: Buffer,
    position: int,
    stop: int,
    base_offset: int,
    segment_end: int,
    flags: int = RecordFlags.CHECK_BODY_CRC,
    /,
) -> tuple[int, int]:
    """Check one record strictly; return (status, bytes to skip)."""
    view = record_buffer(buffer, position, stop, base_offset, segment_end)
    row = check(view[position:stop], base_offset + position, segment_end, flags)
    return int(row.status), row.total_size


def scan_records(
    buffer: Buffer,
    position: int,
    stop: int,
    base_offset: int,
    segment_end: int,
    flags: int,
    out: Any,
    delay_ms: Sequence[int] = (),
    /,
) -> tuple[int, int, int]:
    """Parse consecutive records into the rows of ``out``; return (rows, next position, status)."""
    view = record_buffer(buffer, position, stop, base_offset, segment_end)
    check_int64(*delay_ms)
    rows = writable(out)
    nbytes = formats.PARSED_RECORD.nbytes
    if len(rows) % nbytes:
        raise ValueError(f"out must hold whole rows of {nbytes} bytes, not {len(rows)} bytes")
    if stop > 2**31 - 1:
        raise ValueError(f"stop {stop} is too large for a row's position")
    count = 0
    while position < stop:
        if (count + 1) * nbytes > len(rows):
            return count, position, int(RecordStatus.OK)
        row = check(view[position:stop], base_offset + position, segment_end, flags)
        if row.status not in _COMPLETE:
            return count, position, int(row.status)
        if flags & RecordFlags.PARSE_PROPERTIES:
            parse_row(view[position : position + row.total_size], row, delay_ms)
        row.position = position
        rows[count * nbytes : (count + 1) * nbytes] = row.pack()
        count += 1
        position += row.total_size
    return count, position, int(RecordStatus.END)


def find_record(
    buffer: Buffer, position: int, stop: int, base_offset: int, segment_end: int, /
) -> int:
    """Return the position of the first valid record at its own offset, or -1."""
    view = record_buffer(buffer, position, stop, base_offset, segment_end)
    magic_at = formats.RECORD_HEAD.at("magic")
    at = position + magic_at
    while match := _MAGIC.search(view, at, stop):
        start = match.start() - magic_at
        row = check(view[start:stop], base_offset + start, segment_end, RecordFlags.CHECK_BODY_CRC)
        if row.status in _COMPLETE and row.status != RecordStatus.GHOST:
            return start
        at = match.start() + 1
    return -1
