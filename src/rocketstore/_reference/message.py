"""``Message``, a message to be put, and ``StoredMessage``, a record in a buffer.

The pure-Python body of ``_native/message.pyi``; it also exports the functions of ``record``.
"""

# Properties of a stored message are read-only, those of a message to be put are writable.
# mypy: disable-error-code="misc,override"

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rocketstore import formats
from rocketstore._reference import java_text
from rocketstore._reference.arguments import Buffer, check_int64, readable
from rocketstore._reference.record import (
    check_record,
    crc32,
    encode_properties,
    encode_record,
    find_record,
    format_host,
    hash_map_order,
    message_id,
    parse_host,
    parse_properties,
    reordered_properties,
    rewritten_properties,
    scan_records,
    string_hash_code,
)
from rocketstore._reference.record_check import (
    Row,
    check_size,
    host_nbytes,
    lengths_status,
    load_numbers,
    pairs,
)
from rocketstore.status import RecordStatus

__all__ = [
    "Message",
    "StoredMessage",
    "check_record",
    "crc32",
    "encode_properties",
    "encode_record",
    "find_record",
    "format_host",
    "hash_map_order",
    "message_id",
    "parse_host",
    "parse_properties",
    "reordered_properties",
    "rewritten_properties",
    "scan_records",
    "string_hash_code",
]


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be str, not {type(value).__name__}")
    return value


def _text_or_none(value: Any, name: str) -> str | None:
    return None if value is None else _text(value, name)


def _joined_keys(keys: str | Iterable[str]) -> str:
    """Return the KEYS property: a text as it is, or several keys without spaces, joined."""
    if isinstance(keys, str):
        return keys
    items = [_text(key, "a key") for key in keys]
    for key in items:
        if not key or formats.KEY_SEPARATOR in key:
            raise ValueError(f"a key {key!r} is empty or holds a space")
    return formats.KEY_SEPARATOR.join(items)


def _integer(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be int, not {type(value).__name__}")
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"{name} does not fit 64 bits")
    return value


def _level(value: Any) -> int:
    level = _integer(value, "delay_level")
    if not 0 <= level < 2**31:
        raise ValueError(f"delay_level {level} is outside 0 .. {2**31 - 1}")
    return level


def _content(value: Any) -> bytes:
    if type(value) is bytes:
        return value
    if isinstance(value, str):
        raise TypeError("body must be bytes-like, not str")
    try:
        return bytes(readable(value))
    except BufferError:
        raise ValueError("body must be a contiguous buffer") from None


class Message:
    """A message to be put."""

    __slots__ = (
        "_body",
        "_born_host",
        "_born_timestamp",
        "_flag",
        "_prepared_transaction_offset",
        "_properties",
        "_queue_id",
        "_reconsume_times",
        "_store_host",
        "_sys_flag",
        "_topic",
    )
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self,
        topic: str,
        body: Buffer = b"",
        *,
        queue_id: int = 0,
        flag: int = 0,
        sys_flag: int = 0,
        born_timestamp: int | None = None,
        born_host: str | None = None,
        store_host: str | None = None,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
        properties: Mapping[str, str] | None = None,
        unique_key: str | None = None,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        delay_level: int | None = 0,
    ) -> None:
        self.topic = topic
        self.body = body
        self.queue_id = queue_id
        self.flag = flag
        self.sys_flag = sys_flag
        self.born_timestamp = born_timestamp
        self.born_host = born_host
        self.store_host = store_host
        self.reconsume_times = reconsume_times
        self.prepared_transaction_offset = prepared_transaction_offset
        self.properties = {} if properties is None else properties
        given = {
            formats.PROPERTY_UNIQUE_KEY: _text_or_none(unique_key, "unique_key"),
            formats.PROPERTY_TAGS: _text_or_none(tags, "tags"),
            formats.PROPERTY_KEYS: None if keys is None else _joined_keys(keys),
            formats.PROPERTY_DELAY: None,
        }
        if delay_level is not None and _level(delay_level) > 0:
            given[formats.PROPERTY_DELAY] = str(delay_level)
        for name, value in given.items():
            if value is None:
                continue
            if name in self._properties:
                raise ValueError(f"property {name} is given twice")
            self._properties[name] = value

    @property
    def topic(self) -> str:
        """Topic."""
        return self._topic

    @topic.setter
    def topic(self, value: str) -> None:
        self._topic = _text(value, "topic")

    @property
    def body(self) -> bytes:
        """Body; another bytes-like object is copied when it is set."""
        return self._body

    @body.setter
    def body(self, value: Buffer) -> None:
        self._body = _content(value)

    @property
    def queue_id(self) -> int:
        """Queue of the topic."""
        return self._queue_id

    @queue_id.setter
    def queue_id(self, value: int) -> None:
        self._queue_id = _integer(value, "queue_id")

    @property
    def flag(self) -> int:
        """The producer's own flag."""
        return self._flag

    @flag.setter
    def flag(self, value: int) -> None:
        self._flag = _integer(value, "flag")

    @property
    def sys_flag(self) -> int:
        """System flag; its host bits are derived from the hosts when the message is stored."""
        return self._sys_flag

    @sys_flag.setter
    def sys_flag(self, value: int) -> None:
        self._sys_flag = _integer(value, "sys_flag")

    @property
    def born_timestamp(self) -> int | None:
        """When the client sent it, epoch ms; ``None``: the store time."""
        return self._born_timestamp

    @born_timestamp.setter
    def born_timestamp(self, value: int | None) -> None:
        self._born_timestamp = None if value is None else _integer(value, "born_timestamp")

    @property
    def born_host(self) -> str | None:
        """Host of the client; ``None``: the store's."""
        return self._born_host

    @born_host.setter
    def born_host(self, value: str | None) -> None:
        self._born_host = _text_or_none(value, "born_host")

    @property
    def store_host(self) -> str | None:
        """Host of the broker; ``None``: the store's."""
        return self._store_host

    @store_host.setter
    def store_host(self, value: str | None) -> None:
        self._store_host = _text_or_none(value, "store_host")

    @property
    def reconsume_times(self) -> int:
        """How often consumers sent it back."""
        return self._reconsume_times

    @reconsume_times.setter
    def reconsume_times(self, value: int) -> None:
        self._reconsume_times = _integer(value, "reconsume_times")

    @property
    def prepared_transaction_offset(self) -> int:
        """Commit-log offset of the half message, or 0."""
        return self._prepared_transaction_offset

    @prepared_transaction_offset.setter
    def prepared_transaction_offset(self, value: int) -> None:
        self._prepared_transaction_offset = _integer(value, "prepared_transaction_offset")

    @property
    def properties(self) -> dict[str, str]:
        """Properties in the order in which they are stored."""
        return self._properties

    @properties.setter
    def properties(self, value: Mapping[str, str]) -> None:
        self._properties = dict(value)

    def _set_property(self, name: str, value: str | None) -> None:
        if value is None:
            self.properties.pop(name, None)
        else:
            self.properties[name] = value

    @property
    def tags(self) -> str | None:
        """The property ``TAGS``."""
        return self.properties.get(formats.PROPERTY_TAGS)

    @tags.setter
    def tags(self, value: str | None) -> None:
        self._set_property(formats.PROPERTY_TAGS, _text_or_none(value, "tags"))

    @property
    def keys(self) -> str | None:
        """The property ``KEYS``: keys joined by spaces."""
        return self.properties.get(formats.PROPERTY_KEYS)

    @keys.setter
    def keys(self, value: str | None) -> None:
        self._set_property(formats.PROPERTY_KEYS, _text_or_none(value, "keys"))

    @property
    def unique_key(self) -> str | None:
        """The property ``UNIQ_KEY``."""
        return self.properties.get(formats.PROPERTY_UNIQUE_KEY)

    @unique_key.setter
    def unique_key(self, value: str | None) -> None:
        self._set_property(formats.PROPERTY_UNIQUE_KEY, _text_or_none(value, "unique_key"))

    @property
    def delay_level(self) -> int:
        """The property ``DELAY`` as a number; 0 if it is missing or not a number."""
        value = self.properties.get(formats.PROPERTY_DELAY)
        return java_text.parse_int(java_text.encode(value)) if isinstance(value, str) else 0

    @delay_level.setter
    def delay_level(self, value: int | None) -> None:
        text = None if value is None else str(_level(value))
        self._set_property(formats.PROPERTY_DELAY, text)

    @property
    def user_properties(self) -> dict[str, str]:
        """``properties`` without those of a former delay, delivery time or transaction."""
        from rocketstore.message_copy import user_properties

        return user_properties(self.properties)

    def copy(self) -> Message:
        """Return a new message with the same content, to be put again."""
        from rocketstore.message_copy import copied

        message: Message = copied(self, Message)
        return message

    def _fields(self) -> tuple[Any, ...]:
        return (
            self.topic,
            self.body,
            self.queue_id,
            self.flag,
            self.sys_flag,
            self.born_timestamp,
            self.born_host,
            self.store_host,
            self.reconsume_times,
            self.prepared_transaction_offset,
            self.properties,
        )

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._fields() == other._fields()

    def __reduce__(self) -> tuple[Any, ...]:
        return _message, (type(self), *self._fields())

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.topic!r}, <{len(self.body)} bytes>, "
            f"queue_id={self.queue_id}, properties={self.properties!r})"
        )

    def _repr_html_(self) -> str:
        from rocketstore.display.html import message_html

        return message_html(self)


def _message(
    cls: type[Message],
    topic: str,
    body: bytes,
    queue_id: int,
    flag: int,
    sys_flag: int,
    born_timestamp: int | None,
    born_host: str | None,
    store_host: str | None,
    reconsume_times: int,
    prepared_transaction_offset: int,
    properties: dict[str, str],
    /,
) -> Message:
    """Rebuild a message from its pickled state."""
    return cls(
        topic,
        body,
        queue_id=queue_id,
        flag=flag,
        sys_flag=sys_flag,
        born_timestamp=born_timestamp,
        born_host=born_host,
        store_host=store_host,
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared_transaction_offset,
        properties=properties,
    )


class StoredMessage(Message):
    """A record in a buffer, decoded on access; read-only."""

    __slots__ = ("_physical_offset", "_row", "_view")
    _physical_offset: int
    _row: Row
    _view: memoryview

    def __init__(self, buffer: Buffer, position: int, base_offset: int, segment_end: int) -> None:
        check_int64(position, base_offset, segment_end)
        view = readable(buffer)
        if not 0 <= position <= len(view):
            raise ValueError(f"position {position} is outside {len(view)} bytes")
        if base_offset < 0 or segment_end < 0 or base_offset > 2**63 - 1 - len(view):
            raise ValueError(
                f"base_offset {base_offset} or segment_end {segment_end} is out of range"
            )
        row = Row(base_offset + position)
        status, size, row.magic = check_size(view[position:], segment_end - row.physical_offset)
        if status == RecordStatus.OK:
            view = view[position : position + size].toreadonly()
            status = lengths_status(view, row)
        if status != RecordStatus.OK:
            raise ValueError(
                f"there is no record at position {position} (physical offset "
                f"{row.physical_offset}): status {int(status)}"
            )
        set_own = object.__setattr__
        set_own(self, "_view", view)
        set_own(self, "_physical_offset", base_offset + position)
        set_own(self, "_row", row)
        row.total_size = size

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"attribute {name!r} of a stored message is not writable")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"attribute {name!r} of a stored message cannot be deleted")

    def _part(self, at: int, nbytes: int) -> bytes:
        return bytes(self._view[at : at + nbytes])

    def _numbers(self) -> Row:
        """Return the row with its current numbers."""
        load_numbers(self._view, self._row)
        return self._row

    @property
    def topic(self) -> str:
        """Topic."""
        return java_text.decode(self._part(self._row.topic_at, self._row.topic_nbytes))

    @property
    def body(self) -> bytes:
        """Body as stored, a copy."""
        return self._part(self._row.body_at, self._row.body_nbytes)

    @property
    def queue_id(self) -> int:
        """Queue of the topic."""
        return self._row.queue_id

    @property
    def flag(self) -> int:
        """The producer's own flag."""
        return self._numbers().flag

    @property
    def sys_flag(self) -> int:
        """System flag."""
        return self._row.sys_flag

    @property
    def born_timestamp(self) -> int:
        """When the client sent it, epoch ms."""
        return self._numbers().born_timestamp

    @property
    def reconsume_times(self) -> int:
        """How often consumers sent it back."""
        return self._numbers().reconsume_times

    @property
    def prepared_transaction_offset(self) -> int:
        """Commit-log offset of the half message, or 0."""
        return self._numbers().prepared_transaction_offset

    @property
    def queue_offset(self) -> int:
        """Number in the queue."""
        return self._row.queue_offset

    @property
    def physical_offset(self) -> int:
        """Offset of the record in the log."""
        return self._physical_offset

    @property
    def store_timestamp(self) -> int:
        """When it was stored, epoch ms."""
        return self._numbers().store_timestamp

    @property
    def body_crc(self) -> int:
        """CRC-32 of the body as stored, top bit cleared."""
        return self._numbers().body_crc

    @property
    def store_size(self) -> int:
        """Length of the record in bytes."""
        return self._row.total_size

    @property
    def magic_code(self) -> int:
        """Magic of the record's version."""
        return self._row.magic

    def _host(self, at: int, bit: int) -> bytes:
        return self._part(at, host_nbytes(self._row.sys_flag, bit))

    def _stored_born_host(self) -> bytes:
        return self._host(formats.RECORD_HEAD.nbytes, formats.SYS_FLAG_BORN_HOST_V6)

    def _stored_store_host(self) -> bytes:
        bit = formats.SYS_FLAG_STORE_HOST_V6
        tail_at = self._row.body_at - formats.RECORD_TAIL.nbytes
        return self._host(tail_at - host_nbytes(self._row.sys_flag, bit), bit)

    @property
    def born_host(self) -> str:
        """Host of the client."""
        return format_host(self._stored_born_host())

    @property
    def store_host(self) -> str:
        """Host of the broker."""
        return format_host(self._stored_store_host())

    @property
    def msg_id(self) -> str:
        """The offsetMsgId."""
        return message_id(self._stored_store_host(), self._physical_offset)

    @property
    def properties_bytes(self) -> bytes:
        """Properties as stored."""
        return self._part(self._row.properties_at, self._row.properties_nbytes)

    @property
    def properties(self) -> dict[str, str]:
        """Properties as RocketMQ reads them, a new dict each time."""
        stored = self.properties_bytes
        return {
            java_text.decode(name): java_text.decode(stored[start:stop])
            for name, start, stop in pairs(stored)
        }

    @property
    def tags(self) -> str | None:
        """The property ``TAGS``."""
        return self.properties.get(formats.PROPERTY_TAGS)

    @property
    def keys(self) -> str | None:
        """The property ``KEYS``."""
        return self.properties.get(formats.PROPERTY_KEYS)

    @property
    def unique_key(self) -> str | None:
        """The property ``UNIQ_KEY``."""
        return self.properties.get(formats.PROPERTY_UNIQUE_KEY)

    @property
    def delay_level(self) -> int:
        """The property ``DELAY`` as a number; 0 if it is missing or not a number."""
        return java_text.parse_int(
            java_text.encode(self.properties.get(formats.PROPERTY_DELAY, ""))
        )

    @property
    def raw(self) -> memoryview:
        """The whole record, a read-only view that pins the buffer."""
        return self._view

    @property
    def body_view(self) -> memoryview:
        """The body, a read-only view that pins the buffer."""
        return self._view[self._row.body_at : self._row.body_at + self._row.body_nbytes]

    def detach(self) -> StoredMessage:
        """Return an equal message over its own copy of the bytes."""
        return StoredMessage(*self._copied())

    def _copied(self) -> tuple[bytes, int, int, int]:
        end = self._physical_offset + self._row.total_size
        return bytes(self._view), 0, self._physical_offset, end

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredMessage, self._copied()

    def _order(self) -> tuple[int, bytes]:
        return self._physical_offset, bytes(self._view)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StoredMessage):
            return NotImplemented
        return self._order() == other._order()

    def __lt__(self, other: StoredMessage) -> bool:
        return self._order() < other._order() if self._comparable(other) else NotImplemented

    def __le__(self, other: StoredMessage) -> bool:
        return self._order() <= other._order() if self._comparable(other) else NotImplemented

    def __gt__(self, other: StoredMessage) -> bool:
        return self._order() > other._order() if self._comparable(other) else NotImplemented

    def __ge__(self, other: StoredMessage) -> bool:
        return self._order() >= other._order() if self._comparable(other) else NotImplemented

    @staticmethod
    def _comparable(other: object) -> bool:
        return isinstance(other, StoredMessage)

    def __hash__(self) -> int:
        return hash((self._physical_offset, self._row.total_size))

    def __repr__(self) -> str:
        return (
            f"StoredMessage({self.topic!r}, <{self._row.body_nbytes} bytes>, "
            f"queue_id={self.queue_id}, queue_offset={self.queue_offset}, "
            f"physical_offset={self._physical_offset}, store_size={self.store_size})"
        )
