"""Appending: put, put_many and put_columns of both bodies, on resident and on fresh pages.

The clock stops when the record is published in the mapped log; nothing is synced. ``message_ns`` in
a result's extra information is the time of one message. Resident rounds write the same 64 MiB of a
file again, fresh ones a new sparse file each, so that the page faults are in the figure. The body
of 1 KiB varies in length (512 to 1536 bytes). Messages carry one tag and one key.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketstore.status import RecordFlags, RecordStatus
from support.kernel_bodies import NATIVE, REFERENCE, Bodies

SEGMENT_NBYTES = 64 * 1024 * 1024
VERSION = "5.3.3"
COUNTS = {"native": 10_000, "reference": 500}
BODIES = pytest.mark.parametrize("body", COUNTS)
PAGES = pytest.mark.parametrize("pages", ["resident", "fresh"])
SIZES = pytest.mark.parametrize("size", [100, 1024, 4096])


def contents(size: int, count: int) -> list[bytes]:
    """Bodies of a fixed seed; 1 KiB stands for lengths around it."""
    source = random.Random(size)
    spread = size // 2 if size == 1024 else 0
    lengths = [size + source.randint(-spread, spread) for _ in range(count)]
    return [source.randbytes(length) for length in lengths]


class Bench:
    """An appender over a mapped file that starts over with every round."""

    def __init__(self, kernels: Bodies, directory: Path, pages: str) -> None:
        self.kernels = kernels
        self.directory = directory
        self.pages = pages
        self.mapping: Any = None
        self.files = 0
        self.appender = kernels.commit_log.Appender(
            roll=lambda needed: None,
            extend=lambda end: None,
            segment_nbytes=SEGMENT_NBYTES,
            broker_version=VERSION,
        )

    def start_over(self) -> None:
        """Attach the segment at its beginning; a new one when pages are to be fresh."""
        if self.mapping is None or self.pages == "fresh":
            self.release()
            path = self.directory / f"segment-{self.files}"
            self.files += 1
            with path.open("w+b") as file:
                file.truncate(SEGMENT_NBYTES)
                self.mapping = self.kernels.mapping.Mapping(file.fileno(), SEGMENT_NBYTES, True)
            path.unlink()
            if self.pages == "resident":
                memoryview(self.mapping)[:] = bytes(SEGMENT_NBYTES)
        self.appender.attach(self.mapping, 0, 0, SEGMENT_NBYTES)
        if self.pages == "resident":
            self.appender.set_populated(SEGMENT_NBYTES)

    def release(self) -> None:
        """Let go of the segment."""
        self.appender.detach()
        if self.mapping is not None:
            self.mapping.close()
            self.mapping = None

    def measure(self, benchmark: Any, count: int, call: Callable[[], Any]) -> None:
        """Time ``call``, which puts ``count`` messages, and check the records of the last round."""
        rounds = 21 if self.kernels is NATIVE else 3
        benchmark.pedantic(call, setup=self.start_over, rounds=rounds, warmup_rounds=1)
        position = records = 0
        while position < self.appender.write_position:
            status, size = NATIVE.message.check_record(
                self.mapping,
                position,
                SEGMENT_NBYTES,
                0,
                SEGMENT_NBYTES,
                RecordFlags.CHECK_BODY_CRC,
            )
            assert status == RecordStatus.OK
            position += size
            records += 1
        assert records == count
        benchmark.extra_info.update(
            pages=self.pages,
            broker_version=VERSION,
            clock_stops="published, not synced",
            record_nbytes=position // count,
            message_ns=benchmark.stats.stats.median / count * 1e9,
        )


@pytest.fixture
def bench(tmp_path: Path, body: str, pages: str) -> Iterator[Bench]:
    kernels = NATIVE if body == "native" else REFERENCE
    made = Bench(kernels, tmp_path, pages)
    yield made
    made.release()


@BODIES
@PAGES
@SIZES
def test_put(benchmark: Any, bench: Bench, body: str, size: int) -> None:
    bodies, put = contents(size, COUNTS[body]), bench.appender.put

    def call() -> None:
        for content in bodies:
            put("TopicTest", content, 0, "TagA", "key-1")

    bench.measure(benchmark, len(bodies), call)


@BODIES
@PAGES
@SIZES
def test_put_many(benchmark: Any, bench: Bench, body: str, size: int) -> None:
    properties = {"TAGS": "TagA", "KEYS": "key-1"}
    messages = [
        bench.kernels.message.Message("TopicTest", content, properties=properties)
        for content in contents(size, COUNTS[body])
    ]
    bench.measure(benchmark, len(messages), lambda: bench.appender.put_many(messages))


@BODIES
@PAGES
@SIZES
def test_put_columns(benchmark: Any, bench: Bench, body: str, size: int) -> None:
    bodies = contents(size, COUNTS[body])
    offsets, data = array("q", [0]), b"".join(bodies)
    for content in bodies:
        offsets.append(offsets[-1] + len(content))

    def call() -> None:
        bench.appender.put_columns("TopicTest", offsets, data, tags="TagA", keys="key-1")

    bench.measure(benchmark, len(bodies), call)
