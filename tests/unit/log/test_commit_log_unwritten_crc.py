"""Records of RocketMQ 5.2.0 and 5.3.0 with light queues: 20 unwritten bytes after the properties.

Those versions reserve the space of a whole-record CRC there but do not write it, so the record ends
with old buffer content. If that was zeros, the strict check treated every such record as damaged by
a lost sector.
"""

from __future__ import annotations

import pytest

from rocketstore.status import RecordStatus
from support.kernel_bodies import NATIVE, REFERENCE, both

OFFSETS = b"INNER_MULTI_DISPATCH\x01%LMQ%a\x02INNER_MULTI_QUEUE_OFFSET\x010\x02"


def record(properties: bytes) -> bytes:
    host = "10.0.0.1:1"
    fields = ("T", b"body", 0, 0, 0, 0, 0, 1, host, 2, host, 0, 0, properties)
    encoded = NATIVE.message.encode_record(*fields)
    assert encoded == REFERENCE.message.encode_record(*fields)
    return bytes(encoded)


def status(properties: bytes) -> RecordStatus:
    stored = record(properties)
    found, size = both("message", "check_record", stored, 0, len(stored), 0, len(stored), 1)
    complete = found in (RecordStatus.OK, RecordStatus.NUL_PROPERTIES)
    assert size == (len(stored) if complete else 0)
    return RecordStatus(found)


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        (OFFSETS, RecordStatus.OK),
        (OFFSETS + bytes(20), RecordStatus.NUL_PROPERTIES),
        (OFFSETS + b"WAIT\x01false\x02" + bytes(20), RecordStatus.NUL_PROPERTIES),
        (b"K\x01k\x02" + OFFSETS + b"\x00\x07stale" + bytes(13), RecordStatus.NUL_PROPERTIES),
        (OFFSETS + b"stale words of before", RecordStatus.OK),
        # Nothing else is excused: another length, no separator before it, no light queues.
        (OFFSETS + bytes(19), RecordStatus.BAD_PROPERTIES),
        (OFFSETS + bytes(21), RecordStatus.BAD_PROPERTIES),
        (OFFSETS + bytes(40), RecordStatus.BAD_PROPERTIES),
        (OFFSETS[:-1] + bytes(20), RecordStatus.BAD_PROPERTIES),
        (b"INNER_MULTI_DISPATCH\x01%LMQ%a\x02" + bytes(20), RecordStatus.BAD_PROPERTIES),
        (b"K\x01k\x02" + bytes(20), RecordStatus.BAD_PROPERTIES),
        (bytes(20), RecordStatus.BAD_PROPERTIES),
        (b"\x02" + bytes(20), RecordStatus.BAD_PROPERTIES),
        (b"a\x01" + bytes(512) + b"\x02" + OFFSETS + bytes(20), RecordStatus.BAD_PROPERTIES),
    ],
)
def test_what_the_strict_check_says(properties: bytes, expected: RecordStatus) -> None:
    assert status(properties) == expected


def test_the_properties_are_those_that_were_written() -> None:
    assert both("message", "parse_properties", OFFSETS + bytes(20)) == {
        "INNER_MULTI_DISPATCH": "%LMQ%a",
        "INNER_MULTI_QUEUE_OFFSET": "0",
    }
