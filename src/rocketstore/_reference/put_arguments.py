"""The arguments of a put: checks, and the rules for properties."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rocketstore import formats
from rocketstore._reference.message import StoredMessage

_TOPIC = re.compile(formats.TOPIC_PATTERN)
_JAVA_INTEGER = re.compile(r"([+-]?)(?=[0-9])0*([0-9]*)")
_FORBIDDEN = ("\x00", "\x01", "\x02")

I32 = (-(2**31), 2**31 - 1)
I64 = (-(2**63), 2**63 - 1)
QUEUE_ID = (0, 2**31 - 1)


def check_topic(topic: Any) -> str:
    """Return ``topic`` if RocketMQ allows its characters; its length is checked elsewhere."""
    if not isinstance(topic, str):
        raise TypeError(f"topic must be str, not {type(topic).__name__}")
    if not topic:
        raise ValueError("topic is empty")
    if not _TOPIC.fullmatch(topic):
        raise ValueError(f"topic {topic!r} holds a character that RocketMQ does not allow")
    return topic


def check_name(what: str, value: Any) -> str:
    """Return ``value`` if it is a str."""
    if not isinstance(value, str):
        raise TypeError(f"{what} must be str, not {type(value).__name__}")
    return value


def check_body(body: Any) -> bytes:
    """Return the bytes of a contiguous buffer."""
    if isinstance(body, bytes):
        return body
    try:
        view = memoryview(body)
    except TypeError:
        raise TypeError(f"body must be bytes-like, not {type(body).__name__}") from None
    except (BufferError, ValueError):
        raise ValueError("body must be a contiguous buffer") from None
    with view:
        if not view.c_contiguous:
            raise ValueError("body must be a contiguous buffer")
        return view.tobytes()


def check_integer(name: str, value: Any, bounds: tuple[int, int]) -> int:
    """Return ``value`` as an int within ``bounds``; raise for a bool."""
    if isinstance(value, bool):
        raise TypeError(f"{name} must be int, not bool")
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be int, not {type(value).__name__}") from None
    if not bounds[0] <= number <= bounds[1]:
        raise ValueError(f"{name} {number} is outside {bounds[0]} .. {bounds[1]}")
    return number


def java_utf8(text: str) -> bytes:
    """Encode as Java does: surrogate pairs are one character, an unpaired surrogate is ``?``."""
    units = text.encode("utf-16-le", "surrogatepass")
    return units.decode("utf-16-le", "surrogatepass").encode("utf-8", "replace")


def utf16_length(encoded: bytes) -> int:
    """Return the number of UTF-16 units of well-formed UTF-8."""
    return sum((byte & 0xC0) != 0x80 for byte in encoded) + sum(byte >= 0xF0 for byte in encoded)


def parse_level(value: str | None) -> int:
    """Return ``Integer.parseInt`` of ASCII digits; 0 if absent or not a 32-bit number."""
    match = None if value is None else _JAVA_INTEGER.fullmatch(value)
    if match is None or len(match[2]) > 10:
        return 0
    number = int(match[1] + "0" + match[2])
    return number if I32[0] <= number <= I32[1] else 0


def waits(properties: Mapping[str, str]) -> bool:
    """Return whether the producer waits for the flush (``WAIT`` absent or ``true``, any case)."""
    value = properties.get(formats.PROPERTY_WAIT)
    return value is None or (value.isascii() and value.lower() == "true")


def _check_text(what: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{what} must be str, not {type(value).__name__}")
    if any(character in value for character in _FORBIDDEN):
        raise ValueError(f"{what} {value!r} holds \\x00, \\x01 or \\x02")
    try:
        str.encode(value)
    except UnicodeEncodeError:
        raise ValueError(
            f"{what} {value!r} holds half a surrogate pair, which UTF-8 cannot store"
        ) from None
    return value


def check_relayed(message: StoredMessage) -> None:
    """Raise for a record whose properties are not UTF-8: as text they would differ."""
    for item in message.properties_bytes.split(bytes([formats.PROPERTY_SEPARATOR])):
        try:
            item.decode()
        except UnicodeDecodeError:
            name = item.partition(bytes([formats.NAME_VALUE_SEPARATOR]))[0]
            raise ValueError(
                f"property {name!r} of the record at offset {message.physical_offset} is not "
                "UTF-8: a put would store other bytes than were read"
            ) from None


def _join_keys(keys: Any) -> str:
    if isinstance(keys, str):
        return _check_text("keys", keys)
    if not isinstance(keys, Iterable):
        raise TypeError(f"keys must be str or an iterable of str, not {type(keys).__name__}")
    items = []
    for key in keys:
        items.append(_check_text("a key", key))
        if not key or formats.KEY_SEPARATOR in key:
            raise ValueError(f"a key {key!r} is empty or holds a space")
    return formats.KEY_SEPARATOR.join(items)


def check_properties(properties: Any) -> dict[str, str]:
    """Return a dict of the pairs, in their order; names and values are str."""
    if properties is None:
        return {}
    if not isinstance(properties, Mapping):
        raise TypeError(f"properties must be a mapping, not {type(properties).__name__}")
    pairs: dict[str, str] = {}
    for name, value in properties.items():
        _check_text("a property name", name)
        if not name:
            raise ValueError("a property name is empty")
        pairs[name] = _check_text(f"property {name}", value)
    return pairs


def gather_properties(
    properties: Any,
    unique_key: Any,
    tags: Any,
    keys: Any,
    wait_store_msg_ok: Any,
    delay_level: int,
    unique_key_maker: Callable[[], str] | None,
) -> dict[str, str]:
    """Append the arguments to ``properties``, in stored order."""
    pairs = check_properties(properties)

    def add(name: str, value: str) -> None:
        if name in pairs:
            raise ValueError(f"property {name} is given twice")
        pairs[name] = value

    if unique_key is True:
        if unique_key_maker is None:
            raise ValueError("unique_key=True needs a unique_key_maker")
        if formats.PROPERTY_UNIQUE_KEY not in pairs:
            add(formats.PROPERTY_UNIQUE_KEY, _check_text("unique_key", unique_key_maker()))
    elif unique_key is not None and unique_key is not False:
        add(formats.PROPERTY_UNIQUE_KEY, _check_text("unique_key", unique_key))
    if tags is not None:
        add(formats.PROPERTY_TAGS, _check_text("tags", tags))
    if keys is not None:
        add(formats.PROPERTY_KEYS, _join_keys(keys))
    if not wait_store_msg_ok:
        add(formats.PROPERTY_WAIT, "false")
    if delay_level > 0:
        add(formats.PROPERTY_DELAY, str(delay_level))
    return pairs


def encode(pairs: Mapping[str, str], trailing_separator: bool) -> bytes:
    """Return the properties as stored; empty values are also written."""
    items = (
        java_utf8(name) + b"\x01" + java_utf8(value) + b"\x02" for name, value in pairs.items()
    )
    encoded = b"".join(items)
    return encoded if trailing_separator else encoded[:-1]
