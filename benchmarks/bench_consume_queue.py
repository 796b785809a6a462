"""Queue units: columns in and out, scan, search, filter, and getMessage's loop; all pages resident.

``unit_ns`` in a result's extra information is the time of one unit. The file has
RocketMQ's default size, 300,000 units; the reference works on its first 3,000.
"""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from rocketstore import formats
from rocketstore.status import RecordFlags, RecordStatus
from support.kernel_bodies import REFERENCE, Bodies

UNIT_NBYTES = formats.CONSUME_QUEUE_UNIT.nbytes
COUNTS = {"native": 300_000, "reference": 3_000}
BODIES = pytest.mark.parametrize("body", COUNTS)
MESSAGE_COUNT = 32
TOPIC = "TopicTest"


def columns(count: int) -> tuple[array, array, array]:
    """Units of 200-byte messages with 10 different tags."""
    offsets = array("q", range(0, 200 * count, 200))
    return offsets, array("i", [200] * count), array("q", [n * n % 10 + 1 for n in range(count)])


def filled(count: int) -> bytearray:
    file = bytearray(UNIT_NBYTES * count)
    for number, unit in enumerate(zip(*columns(count), strict=True)):
        formats.CONSUME_QUEUE_UNIT.struct.pack_into(file, number * UNIT_NBYTES, *unit)
    return file


def measure(benchmark: Any, body: str, count: int, function: Any, *arguments: Any) -> Any:
    rounds = 50 if body == "native" else 3
    result = benchmark.pedantic(function, arguments, rounds=rounds, warmup_rounds=1)
    benchmark.extra_info["units"] = count
    benchmark.extra_info["unit_ns"] = benchmark.stats.stats.median / count * 1e9
    return result


@BODIES
def test_put_units(benchmark: Any, body: str) -> None:
    count, kernels = COUNTS[body], Bodies(body).consume_queue
    file = bytearray(UNIT_NBYTES * count)
    arguments = (file, 0, *columns(count))
    assert measure(benchmark, body, count, kernels.put_units, *arguments) == count
    assert file == filled(count)


@BODIES
def test_read_units(benchmark: Any, body: str) -> None:
    count, kernels = COUNTS[body], Bodies(body).consume_queue
    room = array("q", bytes(8 * count)), array("i", bytes(4 * count)), array("q", bytes(8 * count))
    arguments = (filled(count), 0, UNIT_NBYTES * count, *room)
    assert measure(benchmark, body, count, kernels.read_units, *arguments) == count
    assert room == columns(count)


@BODIES
def test_scan_units(benchmark: Any, body: str) -> None:
    count, kernels = COUNTS[body], Bodies(body).consume_queue
    stop = UNIT_NBYTES * count
    result = measure(benchmark, body, count, kernels.scan_units, filled(count), 0, stop, -1, 2**62)
    assert result == (stop, 200 * count, RecordStatus.END)


@BODIES
@pytest.mark.parametrize("codes", [(5,), (2, 5, 7)], ids=["one-tag", "three-tags"])
def test_filter_units(benchmark: Any, body: str, codes: tuple[int, ...]) -> None:
    count, kernels = COUNTS[body], Bodies(body).consume_queue
    out = array("q", bytes(8 * count))
    arguments = (filled(count), 0, UNIT_NBYTES * count, array("q", codes), out)
    hits = measure(benchmark, body, count, kernels.filter_units, *arguments)
    assert out[:hits].tolist() == [n for n in range(count) if n * n % 10 + 1 in codes]


@BODIES
def test_find_unit(benchmark: Any, body: str) -> None:
    """One call over a whole file: the cost is the call and 18 steps (12 in the reference)."""
    count, kernels = COUNTS[body], Bodies(body).consume_queue
    file, stop = filled(count), UNIT_NBYTES * count
    found = benchmark(kernels.find_unit, file, 0, stop, 200 * (count // 3) + 1)
    assert found == UNIT_NBYTES * (count // 3 + 1)


def queue_of_messages() -> tuple[bytes, bytes]:
    """Log and units of 32 messages with 100-byte bodies and three properties."""
    log, units = b"", b""
    properties = b"KEYS\x01order-1\x02TAGS\x01TagA\x02UNIQ_KEY\x01" + b"0" * 32 + b"\x02"
    for number in range(MESSAGE_COUNT):
        record = REFERENCE.message.encode_record(
            TOPIC,
            bytes(range(100)),
            0,
            number,
            len(log),
            0,
            0,
            1,
            "10.0.0.1:1",
            2,
            "10.0.0.2:2",
            0,
            0,
            properties,
        )
        units += formats.CONSUME_QUEUE_UNIT.struct.pack(len(log), len(record), 1)
        log += record
    return log, units


@BODIES
@pytest.mark.parametrize("flags", [0, int(RecordFlags.CHECK_BODY_CRC)], ids=["no-crc", "crc"])
def test_select_messages(benchmark: Any, body: str, flags: int) -> None:
    """One call that follows 32 units to 32 records of about 300 bytes."""
    log, units = queue_of_messages()
    out = bytearray(MESSAGE_COUNT * formats.SELECTED_MESSAGE.nbytes)
    segment = (log, len(log), 0, len(log) + 8, 0)
    limits = (MESSAGE_COUNT, 262144, 0, 8, 65536, 0, 0)
    arguments = (
        units,
        0,
        len(units),
        0,
        *segment,
        TOPIC.encode(),
        0,
        None,
        None,
        *limits,
        flags,
        out,
    )
    selected = benchmark(Bodies(body).consume_queue.select_messages, *arguments)
    assert selected == (len(units), MESSAGE_COUNT, len(log), RecordStatus.END, 0)
    benchmark.extra_info["message_ns"] = benchmark.stats.stats.median / MESSAGE_COUNT * 1e9
