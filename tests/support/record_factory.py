"""Records for tests, built with ``struct`` from ``formats`` apart from the kernels' encoder."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

from rocketstore import formats

V4 = bytes([10, 0, 0, 1]) + (1234).to_bytes(4, "big")
V6 = bytes(range(16)) + (65535).to_bytes(4, "big")


@dataclass
class Fields:
    """What a record is made of; lengths and CRC are worked out unless they are given."""

    topic: bytes = b"TopicA"
    body: bytes = b"hello"
    properties: bytes = b"KEYS\x01k1\x02TAGS\x01TagA\x02"
    queue_id: int = 3
    flag: int = 7
    queue_offset: int = 11
    physical_offset: int = 0
    sys_flag: int = 0
    born_timestamp: int = 1_700_000_000_000
    born_host: bytes = V4
    store_timestamp: int = 1_700_000_000_123
    store_host: bytes = V4
    reconsume_times: int = 2
    prepared_transaction_offset: int = 5
    version: int = 1
    property_crc: bool = False
    total_size: int | None = None
    magic: int | None = None
    body_crc: int | None = None
    body_length: int | None = None
    topic_length: int | None = None
    properties_length: int | None = None


def _given(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value


def make_record(**changes: Any) -> bytes:
    """Return the bytes of one record; ``changes`` are fields of ``Fields``."""
    f = Fields(**changes)
    sys_flag = f.sys_flag
    sys_flag |= formats.SYS_FLAG_BORN_HOST_V6 if f.born_host == V6 else 0
    sys_flag |= formats.SYS_FLAG_STORE_HOST_V6 if f.store_host == V6 else 0
    width = 1 if f.version == 1 else 2
    nbytes = len(f.properties) + (formats.PROPERTY_CRC32_NBYTES if f.property_crc else 0)
    tail = b"".join(
        (
            f.born_host,
            formats.RECORD_STORED.struct.pack(f.store_timestamp),
            f.store_host,
            formats.RECORD_TAIL.struct.pack(
                f.reconsume_times,
                f.prepared_transaction_offset,
                _given(f.body_length, len(f.body)),
            ),
            f.body,
            (_given(f.topic_length, len(f.topic)) % 256**width).to_bytes(width, "big"),
            f.topic,
            (_given(f.properties_length, nbytes) % 65536).to_bytes(2, "big"),
            f.properties,
        )
    )
    total = formats.RECORD_HEAD.nbytes + len(tail) + nbytes - len(f.properties)
    head = formats.RECORD_HEAD.struct.pack(
        _given(f.total_size, total),
        _given(f.magic, formats.MAGIC_V1 if f.version == 1 else formats.MAGIC_V2),
        _given(f.body_crc, zlib.crc32(f.body) & 0x7FFFFFFF),
        f.queue_id,
        f.flag,
        f.queue_offset,
        f.physical_offset,
        sys_flag,
        f.born_timestamp,
    )
    record = head + tail
    return record + property_crc(record) if f.property_crc else record


def property_crc(record: bytes) -> bytes:
    """The 20 bytes of the whole-record CRC, worked out digit by digit."""
    crc = zlib.crc32(record) & 0x7FFFFFFF
    digits = bytearray()
    for _ in range(10):
        digits.append(ord("0") + crc % 10)
        crc //= 10
    return b"__CRC32#\x01" + digits + b"\x02"


def make_log(*records: dict[str, Any], base_offset: int = 0) -> bytes:
    """Return records that follow one another, each at its own offset."""
    log = b""
    for fields in records:
        log += make_record(**{"physical_offset": base_offset + len(log), **fields})
    return log


def rows_of(out: bytes, count: int) -> list[dict[str, int]]:
    """Decode the first rows that scan_records filled."""
    names = [field.name for field in formats.PARSED_RECORD.fields]
    layout = formats.PARSED_RECORD.struct
    return [
        dict(zip(names, layout.unpack_from(out, i * layout.size), strict=True))
        for i in range(count)
    ]
