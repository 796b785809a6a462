"""Records: check, parse, search, encode, CRC, hash, and messages decoded on access.

``message_ns`` in a result's extra information is the time of one record, ``nbytes_per_ns`` the
speed over bytes. Logs are made from a fixed seed and lie in memory (40 MB, more than the caches
hold; the reference reads their first records); bodies are of 100 bytes, of 200 to 1,848 bytes, or
of 4 KiB.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from rocketstore import formats
from rocketstore.status import RecordFlags, RecordStatus
from support.kernel_bodies import Bodies
from support.record_factory import make_record

BODIES = pytest.mark.parametrize("body", ["native", "reference"])
SIZES: dict[str, Callable[[random.Random], int]] = {
    "100 B": lambda _: 100,
    "1 KiB variable": lambda chance: chance.randrange(200, 1849),
    "4 KiB": lambda _: 4096,
}
LOG_NBYTES = 40_000_000
REFERENCE_COUNT = 500
BATCH = 4096
PROPERTIES = (
    b"UNIQ_KEY\x010A0000010001000000000000000000FF\x02KEYS\x01key-33\x02TAGS\x01TagA\x02"
    b"WAIT\x01true\x02"
)
FLAGS = {
    "lengths": 0,
    "check": RecordFlags.CHECK_BODY_CRC,
    "parse": RecordFlags.PARSE_PROPERTIES,
    "check and parse": RecordFlags.CHECK_BODY_CRC | RecordFlags.PARSE_PROPERTIES,
}


@cache
def log_of(sizes: str) -> tuple[bytes, int, int]:
    """A log, how many records it holds, and the end of the first REFERENCE_COUNT of them."""
    chance = random.Random(20240607)
    records: list[bytes] = []
    offset = end = 0
    while offset < LOG_NBYTES:
        content = chance.randbytes(SIZES[sizes](chance))
        records.append(
            make_record(
                physical_offset=offset, queue_offset=len(records), body=content,
                topic=b"TopicTest%d" % (len(records) % 4), properties=PROPERTIES,
            )
        )  # fmt: skip
        offset += len(records[-1])
        if len(records) == REFERENCE_COUNT:
            end = offset
    return b"".join(records), len(records), end


def scan_all(kernels: Any, log: bytes, stop: int, flags: int, rows: bytearray) -> int:
    """Scan in batches, as dispatch and recovery do."""
    position = count = 0
    status = int(RecordStatus.OK)
    while status == RecordStatus.OK:
        found, position, status = kernels.scan_records(
            log, position, stop, 0, len(log), flags, rows
        )
        count += found
    return count


@BODIES
@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize("sizes", SIZES)
def test_scan(benchmark: Any, sizes: str, flags: str, body: str) -> None:
    log, count, first = log_of(sizes)
    stop = len(log)
    if body == "reference":
        count, stop = REFERENCE_COUNT, first
    rows = bytearray(BATCH * formats.PARSED_RECORD.nbytes)
    arguments = (Bodies(body).message, log, stop, int(FLAGS[flags]), rows)
    found = benchmark.pedantic(scan_all, arguments, rounds=9, warmup_rounds=1)
    assert found == count
    benchmark.extra_info["message_ns"] = benchmark.stats.stats.median / count * 1e9


@BODIES
def test_check_record(benchmark: Any, body: str) -> None:
    record = make_record(body=bytes(100), properties=PROPERTIES)
    kernel = Bodies(body).message.check_record
    found = benchmark(kernel, record, 0, len(record), 0, len(record))
    assert found == (RecordStatus.OK, len(record))


@BODIES
def test_find_record(benchmark: Any, body: str) -> None:
    """Random bytes, then one record."""
    nbytes = LOG_NBYTES if body == "native" else LOG_NBYTES // 10
    log = random.Random(1).randbytes(nbytes)
    log += make_record(physical_offset=nbytes)
    arguments = (log, 0, len(log), 0, len(log))
    found = benchmark.pedantic(Bodies(body).message.find_record, arguments, rounds=5)
    assert found == nbytes
    benchmark.extra_info["nbytes_per_ns"] = nbytes / benchmark.stats.stats.median / 1e9


@pytest.mark.parametrize("nbytes", [100, 1024, 65536])
@pytest.mark.parametrize("body", ["native", "zlib"])
def test_crc32(benchmark: Any, nbytes: int, body: str) -> None:
    data = random.Random(2).randbytes(nbytes)
    kernel = zlib.crc32 if body == "zlib" else Bodies(body).message.crc32
    assert benchmark(kernel, data) == zlib.crc32(data)
    benchmark.extra_info["nbytes_per_ns"] = nbytes / benchmark.stats.stats.median / 1e9


@BODIES
@pytest.mark.parametrize("text", ["TopicTest#key-33", "TopicTest#" + "0" * 32, "\u00e9" * 16])
def test_string_hash_code(benchmark: Any, text: str, body: str) -> None:
    kernel = Bodies(body).message.string_hash_code
    found = benchmark(kernel, text.encode())
    value = 0
    for character in text:
        value = (31 * value + ord(character)) % 2**32
    assert found % 2**32 == value


@BODIES
def test_encode_record(benchmark: Any, body: str) -> None:
    kernel = Bodies(body).message.encode_record
    host = "10.0.0.1:1234"
    expected = make_record(body=bytes(100), properties=PROPERTIES)
    found = benchmark(
        kernel, "TopicA", bytes(100), 3, 11, 0, 7, 0, 1_700_000_000_000, host, 1_700_000_000_123,
        host, 2, 5, PROPERTIES,
    )  # fmt: skip
    assert found == expected


@BODIES
@pytest.mark.parametrize(
    "name", ["queue_offset", "store_timestamp", "topic", "body", "tags", "properties", "msg_id"]
)
def test_attribute_of_a_stored_message(benchmark: Any, name: str, body: str) -> None:
    record = make_record(body=bytes(100), properties=PROPERTIES)
    message = Bodies(body).message.StoredMessage(record, 0, 0, len(record))
    other = Bodies("reference").message.StoredMessage(record, 0, 0, len(record))
    assert benchmark(getattr, message, name) == getattr(other, name)


@BODIES
def test_make_a_stored_message(benchmark: Any, body: str) -> None:
    record = make_record(body=bytes(100), properties=PROPERTIES)
    made = benchmark(Bodies(body).message.StoredMessage, record, 0, 0, len(record))
    assert made.raw == record


@BODIES
def test_make_a_message(benchmark: Any, body: str) -> None:
    content = bytes(100)
    made = benchmark(Bodies(body).message.Message, "TopicA", content)
    assert made.body is content
