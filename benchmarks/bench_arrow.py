"""Record batches: the decoder over a log in memory, by columns, filters and CRC; a whole scan.

``million_rows_per_s`` in a result's extra information are the records looked at, by the time of the
processor that this thread used, which other work on the machine disturbs less than the clock. The
log is made from a fixed seed: 304 bytes a record on average, bodies of 64 to 190 bytes, 4 topics of
8 queues, properties KEYS, UNIQ_KEY, WAIT and TAGS. The decoder reads it through one window of 1 MiB
that is filled again and again, as the readers of files do; filling it is in the time.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rocketstore
from rocketstore.display.columns import CORE, FULL, KAFKA
from rocketstore.status import RecordFlags, RecordStatus
from support.kernel_bodies import Bodies
from support.record_factory import make_record

BODIES = pytest.mark.parametrize("body", ["native", "reference"])
COLUMNS: dict[str, list[str]] = {
    "8 core columns": [name for name in CORE if name != "bornTimestamp"],
    "core": list(CORE),
    "full": list(FULL),
    "kafka": list(KAFKA),
    "one int": ["queueId"],
    "body": ["body"],
    "properties": ["properties"],
}
LOG_ROWS = 150_000
REFERENCE_ROWS = 2_000
WINDOW_NBYTES = 1 << 20
_NO_LIMIT = 2**63 - 1


@cache
def log_of(rows: int) -> bytes:
    """The log's first records."""
    chance = random.Random(20261123)
    records: list[bytes] = []
    offset = 0
    for number in range(rows):
        properties = (
            f"UNIQ_KEY\x017F000001{number:024X}\x02KEYS\x01order-{number:08}\x02"
            f"WAIT\x01true\x02TAGS\x01Tag{number % 5}\x02"
        )
        records.append(
            make_record(
                physical_offset=offset,
                queue_offset=number // 32,
                queue_id=number % 8,
                topic=b"TopicTest%d" % (number % 4),
                body=chance.randbytes(chance.randrange(64, 191)),
                properties=properties.encode(),
                store_timestamp=1_700_000_000_000 + number,
            )
        )
        offset += len(records[-1])
    return b"".join(records)


def decode(decoder: Any, log: bytes, flags: int, window: bytearray) -> int:
    """Decode the whole log through the window; return the rows taken."""
    source, rows, at = memoryview(log), 0, 0
    while at < len(log):
        filled = min(len(window), len(log) - at)
        window[:filled] = source[at : at + filled]
        position, status = 0, int(RecordStatus.FULL)
        while status == RecordStatus.FULL:
            status, position = decoder.consume(
                window, position, filled, at, len(log), _NO_LIMIT, flags
            )
            if status == RecordStatus.FULL:
                rows += decoder.rows
                decoder.take()
        at += position
    rows += decoder.rows
    decoder.take()
    return rows


def _measure(benchmark: Any, rows: int, run: Callable[[], int], expected: int) -> None:
    fastest = float("inf")

    def timed() -> None:
        nonlocal fastest
        start = time.process_time()
        found = run()
        fastest = min(fastest, time.process_time() - start)
        assert found == expected

    benchmark.pedantic(timed, rounds=7, warmup_rounds=1)
    benchmark.extra_info["million_rows_per_s"] = round(rows / fastest / 1e6, 3)


@BODIES
@pytest.mark.parametrize("crc", [False, True], ids=["unchecked", "crc"])
@pytest.mark.parametrize("columns", COLUMNS)
def test_decoder(benchmark: Any, columns: str, crc: bool, body: str) -> None:
    rows = LOG_ROWS if body == "native" else REFERENCE_ROWS
    log, window = log_of(rows), bytearray(WINDOW_NBYTES)
    decoder = Bodies(body).arrow.BatchDecoder(COLUMNS[columns])
    flags = int(RecordFlags.CHECK_BODY_CRC) if crc else 0
    _measure(benchmark, rows, lambda: decode(decoder, log, flags, window), rows)


@BODIES
@pytest.mark.parametrize(
    ("name", "limits", "part"),
    [
        ("topics", {"topics": ["TopicTest1"]}, 4),
        ("tags", {"tags": ["Tag1"]}, 5),
        ("queues", {"queue_ids": {"TopicTest1": [1]}}, 8),
        ("times", {"end": 1_700_000_001_000}, None),
    ],
)
def test_filters(
    benchmark: Any, name: str, limits: dict[str, Any], part: int | None, body: str
) -> None:
    rows = LOG_ROWS if body == "native" else REFERENCE_ROWS
    log, window = log_of(rows), bytearray(WINDOW_NBYTES)
    decoder = Bodies(body).arrow.BatchDecoder(COLUMNS["8 core columns"], **limits)
    expected = 1000 if part is None else rows // part
    _measure(benchmark, rows, lambda: decode(decoder, log, 0, window), expected)


@pytest.mark.parametrize("crc", [False, True], ids=["unchecked", "crc"])
def test_scan_of_a_store(benchmark: Any, crc: bool, tmp_path: Path) -> None:
    """A store's segments, mapped; pyarrow record batches."""
    rows = LOG_ROWS
    data = random.Random(5).randbytes(4096)
    with rocketstore.open(tmp_path / "store", "x", mapped_file_size_commit_log=16 << 20) as store:
        messages = (
            rocketstore.Message(
                f"TopicTest{number % 4}", data[number % 3900 :][: 64 + number % 127]
            )
            for number in range(rows)
        )
        assert len(store.put_many(messages)) == rows

        def run() -> int:
            scan = store.scan_arrow("core", check_crc=crc)
            return sum(batch.num_rows for batch in scan if isinstance(batch, pa.RecordBatch))

        _measure(benchmark, rows, run, rows)
