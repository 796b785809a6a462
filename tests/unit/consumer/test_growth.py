"""Reads that wait in mode ``"r"``, beside a store that writes."""

from __future__ import annotations

import asyncio
import math
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import Message, TagFilter
from rocketstore.consumer import growth
from rocketstore.errors import ServiceFailedError, StoreClosedError
from rocketstore.status import GetMessageStatus
from support.syncs import LONG_S
from support.waiting import Call, bodies, held, until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="stores are only read there")

SMALL: dict[str, Any] = {
    "mapped_file_size_commit_log": 64 * 1024,
    "mapped_file_size_consume_queue": 20 * 300,
    "max_hash_slot_num": 20,
    "max_index_num": 60,
}


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Any]:
    with rocketstore.open(tmp_path / "s", "x", **SMALL) as opened:
        yield opened


@pytest.fixture(params=["tail", "full", "none"])
def reader(writer: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    with rocketstore.open(writer.path, derive=request.param) as opened:
        yield opened


def read(reader: Any, count: int, **options: Any) -> list[bytes]:
    """Read a queue by waiting reads until so many messages have come."""
    found: list[bytes] = []
    offset = 0
    while len(found) < count:
        result = reader.get_message("g", "T", 0, offset, wait_s=LONG_S, **options)
        assert result.messages
        found += bodies(result)
        offset = result.next_begin_offset
    return found


def test_what_another_store_writes_ends_the_wait(writer: Any, reader: Any) -> None:
    call = Call(reader.get_message, "g", "T", 0, 0, wait_s=LONG_S)
    held(reader)
    writer.put("U", b"other")
    writer.put("T", b"first")
    assert bodies(call.result()) == [b"first"]
    writer.put("T", b"second")
    assert bodies(reader.get_message("g", "T", 0, 1, wait_s=LONG_S)) == [b"second"]


def test_messages_across_segments_and_queue_files(writer: Any, reader: Any) -> None:
    expected = [b"%d" % number * 20 for number in range(1500)]
    call = Call(read, reader, len(expected))
    held(reader)
    for start in range(0, len(expected), 100):
        writer.put_many([Message("T", body) for body in expected[start : start + 100]])
        time.sleep(0.005)
    assert call.result() == expected


def test_a_filter_of_a_read(writer: Any, reader: Any) -> None:
    call = Call(reader.get_message, "g", "T", 0, 0, filter=TagFilter("B"), wait_s=LONG_S)
    held(reader)
    for _ in range(5):
        writer.put("T", b"miss", tags="A")
    writer.put("T", b"hit", tags="B")
    assert bodies(call.result()) == [b"hit"]


def test_a_wait_without_growth_is_over_in_time(writer: Any, reader: Any) -> None:
    result = reader.get_message("g", "T", 0, 0, wait_s=0.1)
    assert result.status == GetMessageStatus.NO_MESSAGE_IN_QUEUE
    assert asyncio.run(reader.aget_message("g", "T", 0, 0, wait_s=0.01)) == result


def test_closing_ends_the_wait_and_the_watch(writer: Any, reader: Any) -> None:
    call = Call(reader.get_message, "g", "T", 0, 0, wait_s=math.inf)
    until(lambda: reader.hold._watch is not None)
    watch = reader.hold._watch
    reader.close()
    with pytest.raises(StoreClosedError):
        call.result()
    assert not watch.is_running


def test_the_watch_ends_when_no_read_waits(
    writer: Any, reader: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growth, "_LINGER_S", 0.01)
    reader.get_message("g", "T", 0, 0, wait_s=0.01)
    until(lambda: reader.hold._watch is None)
    call = Call(reader.get_message, "g", "T", 0, 0, wait_s=LONG_S)
    held(reader)
    writer.put("T", b"x")
    assert bodies(call.result()) == [b"x"]


def test_a_vanished_store_ends_the_wait_with_the_reason(writer: Any, reader: Any) -> None:
    call = Call(reader.get_message, "g", "T", 0, 0, wait_s=LONG_S)
    held(reader)
    path = writer.path
    writer.close()
    path.rename(path.with_name("moved"))
    with pytest.raises(ServiceFailedError, match="the log cannot be followed"):
        call.result()
    path.with_name("moved").rename(path)
    with rocketstore.open(path, "a") as again:
        again.put("T", b"back")
        assert bodies(reader.get_message("g", "T", 0, 0, wait_s=LONG_S)) == [b"back"]


def test_a_log_that_was_cut_and_written_again(tmp_path: Path) -> None:
    """A reader saw records that a power failure took away: it reads the new ones in their place."""
    path = tmp_path / "s"
    with rocketstore.open(path, "x", **SMALL) as writer:
        writer.put("T", b"kept")
    shutil.copytree(path, tmp_path / "before")
    with rocketstore.open(path, "a") as writer:
        writer.put_many([Message("T", b"lost")] * 3)
        reader = rocketstore.open(path)
    with reader:
        assert bodies(reader.get_message("g", "T", 0, 1, wait_s=LONG_S)) == [b"lost"] * 3
        call = Call(reader.get_message, "g", "T", 0, 4, wait_s=LONG_S)
        held(reader)
        shutil.copytree(tmp_path / "before", path, dirs_exist_ok=True)
        (path / "rocketstore.state").unlink()
        result = call.result()
        assert result.status == GetMessageStatus.OFFSET_OVERFLOW_BADLY
        assert result.next_begin_offset == 1
        with rocketstore.open(path, "a") as writer:
            writer.put("T", b"new")
            assert bodies(reader.get_message("g", "T", 0, 1, wait_s=LONG_S)) == [b"new"]


def test_reads_and_refreshes_of_other_threads(writer: Any, reader: Any) -> None:
    """The user's own ``refresh`` and tails move the log's end under the watch."""
    expected = [b"%d" % number for number in range(300)]
    call = Call(read, reader, len(expected))
    tail = Call(lambda: [m.body for m in reader.tail(start=0, interval_s=0.001, timeout_s=0.5)])
    for body in expected:
        writer.put("T", body)
        if len(body) == 2:
            reader.refresh()
    assert call.result() == expected
    assert tail.result() == expected


def test_a_look_is_cheap_while_nothing_is_written(writer: Any, reader: Any) -> None:
    reader.hold.look()
    before = reader.reader
    assert not reader.hold.look()
    assert reader.reader is before
