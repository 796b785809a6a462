"""Commit-log records: check, parse, encode, search; hosts and properties as stored.

The pure-Python body of ``_native/record.pyi``. It cannot be guarded against a mapping whose file
is shortened: use it for tests, comparisons and debugging.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping

from rocketstore import formats
from rocketstore._reference import java_text
from rocketstore._reference.arguments import Buffer, check_int64, readable
from rocketstore._reference.hosts import format_host, message_id, parse_host
from rocketstore._reference.record_check import (
    check_record,
    find_record,
    pairs,
    scan_records,
)

__all__ = [
    "check_record",
    "crc32",
    "encode_properties",
    "encode_record",
    "find_record",
    "format_host",
    "message_id",
    "parse_host",
    "parse_properties",
    "scan_records",
    "string_hash_code",
]

#: A Java HashMap does not grow further.
_MOST_BUCKETS = 1 << 30
_CRC_MASK = 0x7FFFFFFF
#: Magic, width of the topic's length, and longest topic, by record version.
_VERSIONS = {
    1: (formats.MAGIC_V1, formats.TOPIC_LENGTH_NBYTES_V1, formats.MAX_TOPIC_LENGTH),
    2: (formats.MAGIC_V2, formats.TOPIC_LENGTH_NBYTES_V2, formats.MAX_PROPERTIES_NBYTES),
}
_NAME_VALUE = chr(formats.NAME_VALUE_SEPARATOR)
_PAIR = chr(formats.PROPERTY_SEPARATOR)
_RESERVED = ("\x00", _NAME_VALUE, _PAIR)


def crc32(data: Buffer, value: int = 0, /) -> int:
    """Return the CRC-32 of ``data``, continuing from ``value``."""
    check_int64(value)
    return zlib.crc32(readable(data), value & 0xFFFFFFFF)


def string_hash_code(text: Buffer, /) -> int:
    """Return Java's ``String.hashCode`` of UTF-8 bytes."""
    return java_text.hash_code(bytes(readable(text)))


def parse_properties(data: Buffer, /) -> dict[str, str]:
    """Return the properties that RocketMQ reads from their stored bytes."""
    stored = bytes(readable(data))
    return {
        java_text.decode(name): java_text.decode(stored[start:stop])
        for name, start, stop in pairs(stored)
    }


def encode_properties(properties: Mapping[str, str], trailing_separator: bool, /) -> bytes:
    """Return the stored bytes of properties; those that are ``None`` are left out."""
    items = []
    for name, value in properties.items():
        if value is None:
            continue
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError("property names and values must be str")
        if not name or any(c in name or c in value for c in _RESERVED):
            raise ValueError(f"property {name!r} is empty or holds \\x00, \\x01 or \\x02")
        items.append(name + _NAME_VALUE + value)
    text = _PAIR.join(items) + (_PAIR if items and trailing_separator else "")
    return java_text.encode(text)


def hash_map_order(names: Iterable[str], buckets: int, /) -> list[str]:
    """Return names in the order of a Java ``HashMap`` into which they are put in turn."""
    check_int64(buckets)
    kept = list(names)
    if not 0 < buckets <= _MOST_BUCKETS or buckets & (buckets - 1):
        raise ValueError(f"buckets must be a power of two, not {buckets}")
    while 4 * len(kept) > 3 * buckets and buckets < _MOST_BUCKETS:
        buckets *= 2
    return sorted(kept, key=lambda name: _bucket(name, buckets))


def _bucket(name: str, buckets: int) -> int:
    if not isinstance(name, str):
        raise TypeError(f"a property's name must be str, not {type(name).__name__}")
    return _spread(java_text.encode(name)) & buckets - 1


def reordered_properties(data: Buffer, buckets: int, trailing_separator: bool, /) -> bytes:
    """Return stored properties as a broker writes them again; the bytes stay as they are."""
    check_int64(buckets)
    if not 0 < buckets <= _MOST_BUCKETS or buckets & (buckets - 1):
        raise ValueError(f"buckets must be a power of two, not {buckets}")
    stored = bytes(readable(data))
    if len(stored) > formats.MAX_PROPERTIES_NBYTES:
        raise ValueError(
            f"properties of {len(stored)} bytes are longer than {formats.MAX_PROPERTIES_NBYTES}"
        )
    kept: dict[bytes, bytes] = {}
    for pair in stored.split(_PAIR.encode()):
        name, separator, value = pair.partition(_NAME_VALUE.encode())
        if name and separator and (value or name not in kept):
            kept[name] = value
    while 4 * len(kept) > 3 * buckets and buckets < _MOST_BUCKETS:
        buckets *= 2
    order = sorted(kept, key=lambda name: _spread(name) & buckets - 1)
    text = _PAIR.encode().join(name + _NAME_VALUE.encode() + kept[name] for name in order)
    return text + _PAIR.encode() if order and trailing_separator else text


def _spread(name: bytes) -> int:
    code = java_text.hash_code(name) & 0xFFFFFFFF
    return code ^ code >> 16


def rewritten_properties(
    properties: Mapping[str, str], buckets: int, trailing_separator: bool, /
) -> bytes:
    """Return the bytes that a broker stores when it writes these properties again."""
    order = hash_map_order(properties, buckets)
    return encode_properties({name: properties[name] for name in order}, trailing_separator)


def _check_record_lengths(topic: bytes, limit: int, properties_nbytes: int, total: int) -> None:
    if not 0 < len(topic) <= limit:
        raise ValueError(f"the topic has {len(topic)} bytes, not 1 to {limit}")
    if properties_nbytes > formats.MAX_PROPERTIES_NBYTES:
        raise ValueError(
            f"the properties have {properties_nbytes} bytes, "
            f"more than {formats.MAX_PROPERTIES_NBYTES}"
        )
    if total > 2**31 - 1:
        raise ValueError(f"a record of {total} bytes is too long")


def _check_int32(**values: int) -> None:
    for name, value in values.items():
        check_int64(value)
        if not -(2**31) <= value < 2**31:
            raise ValueError(f"{name} {value} does not fit 32 bits")


def _property_crc(record: bytes) -> bytes:
    """Return the 20 bytes that end a record whose other bytes are ``record``."""
    digits = f"{zlib.crc32(record) & _CRC_MASK:010d}"[::-1]
    return (formats.PROPERTY_CRC32 + _NAME_VALUE + digits + _PAIR).encode()


def _with_host_flags(sys_flag: int, born: bytes, store: bytes) -> int:
    sys_flag &= ~(formats.SYS_FLAG_BORN_HOST_V6 | formats.SYS_FLAG_STORE_HOST_V6)
    if len(born) == formats.HOST_V6.nbytes:
        sys_flag |= formats.SYS_FLAG_BORN_HOST_V6
    if len(store) == formats.HOST_V6.nbytes:
        sys_flag |= formats.SYS_FLAG_STORE_HOST_V6
    return sys_flag


def encode_record(
    topic: str,
    body: Buffer,
    queue_id: int,
    queue_offset: int,
    physical_offset: int,
    flag: int,
    sys_flag: int,
    born_timestamp: int,
    born_host: str,
    store_timestamp: int,
    store_host: str,
    reconsume_times: int,
    prepared_transaction_offset: int,
    properties: bytes,
    version: int = 1,
    property_crc: bool = False,
    /,
) -> bytes:
    """Return one whole record."""
    if not isinstance(topic, str):
        raise TypeError(f"topic must be str, not {type(topic).__name__}")
    _check_int32(queue_id=queue_id, flag=flag, sys_flag=sys_flag, reconsume_times=reconsume_times)
    check_int64(queue_offset, physical_offset, born_timestamp, store_timestamp)
    check_int64(prepared_transaction_offset)
    if version not in _VERSIONS:
        raise ValueError(f"version must be 1 or 2, not {version}")
    magic, topic_width, topic_limit = _VERSIONS[version]
    name, content, stored = (
        java_text.encode(topic),
        bytes(readable(body)),
        bytes(readable(properties)),
    )
    born, store = parse_host(born_host), parse_host(store_host)
    if property_crc and stored and not stored.endswith(_PAIR.encode()):
        stored += _PAIR.encode()
    crc_nbytes = formats.PROPERTY_CRC32_NBYTES if property_crc else 0
    nbytes = len(stored) + crc_nbytes
    total = (
        formats.RECORD_HEAD.nbytes
        + len(born)
        + formats.RECORD_STORED.nbytes
        + len(store)
        + formats.RECORD_TAIL.nbytes
        + len(content)
        + topic_width
        + len(name)
        + formats.PROPERTIES_LENGTH_NBYTES
        + nbytes
    )
    _check_record_lengths(name, topic_limit, nbytes, total)
    head = formats.RECORD_HEAD.struct.pack(
        total,
        magic,
        zlib.crc32(content) & _CRC_MASK,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        _with_host_flags(sys_flag, born, store),
        born_timestamp,
    )
    tail = formats.RECORD_TAIL.struct.pack(
        reconsume_times, prepared_transaction_offset, len(content)
    )
    record = b"".join(
        (
            head,
            born,
            formats.RECORD_STORED.struct.pack(store_timestamp),
            store,
            tail,
            content,
            len(name).to_bytes(topic_width, "big"),
            name,
            nbytes.to_bytes(formats.PROPERTIES_LENGTH_NBYTES, "big"),
            stored,
        )
    )
    return record + _property_crc(record) if property_crc else record
