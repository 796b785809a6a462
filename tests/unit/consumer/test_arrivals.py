"""How consumers wait: arrivals in this process, and files that another process writes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

import rocketstore
from rocketstore.consumer.arrivals import Arrivals, DispatchFeed, Patience, WatchedFeed
from rocketstore.consumer.growth import WatchedHold
from rocketstore.consumer.hold import HeldPull
from support.command_line import ENVIRONMENT
from support.waiting import Call, until

PATIENCE_S = 60.0
#: Small files, so that the log rolls and its first files are deleted.
OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": 32 * 1024,
    "mapped_file_size_consume_queue": 2000,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
}
WRITER = """
import sys, time, rocketstore
root, count = sys.argv[1], int(sys.argv[2])
options = dict(mapped_file_size_commit_log=32 * 1024, mapped_file_size_consume_queue=2000,
               max_hash_slot_num=100, max_index_num=400)
with rocketstore.open(root, "a", **options) as store:
    print("open", flush=True)
    for number in range(count):
        store.put("T", b"%d:" % number + bytes(100), number % 3)
        if number % 50 == 0:
            time.sleep(0.01)
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Any]:
    with rocketstore.open(tmp_path / "s", "a") as opened:
        yield opened


def test_what_comes_before_a_wait_ends_it(store: Any) -> None:
    arrivals = Arrivals(store.hold)
    count = arrivals.count
    arrivals.ring()
    began = time.monotonic()
    arrivals.wait([HeldPull("T", 0, 0)], count, PATIENCE_S)
    assert time.monotonic() - began < PATIENCE_S / 2
    assert not store.hold.held


def test_all_who_wait_are_woken(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketstore.consumer.arrivals._LOOK_S", PATIENCE_S)
    arrivals, ended = Arrivals(store.hold), []

    def wait() -> None:
        arrivals.wait([HeldPull("T", 0, 0)], arrivals.count, PATIENCE_S)
        ended.append(1)

    async def wait_on_a_loop() -> None:
        await arrivals.wait_async([HeldPull("T", 0, 0)], arrivals.count, PATIENCE_S)
        ended.append(1)

    threads = [threading.Thread(target=wait) for _ in range(5)]
    threads.append(threading.Thread(target=lambda: asyncio.run(wait_on_a_loop())))
    for thread in threads:
        thread.start()
    until(lambda: len(store.hold) == 6)
    arrivals.ring()
    for thread in threads:
        thread.join(PATIENCE_S / 2)
    assert len(ended) == 6
    assert not store.hold.held


def test_a_ring_within_a_step_of_the_store_takes_no_lock(store: Any) -> None:
    arrivals = Arrivals(store.hold)
    arrivals._waiting.add(HeldPull("T", 0, 0))
    with store.hold._lock:
        arrivals.ring()
    assert arrivals.count == 1


class Slow:
    """A feed that always has something for others."""

    def __init__(self) -> None:
        self.looks: list[bool] = []

    def catch_up(self, *, surely: bool = False) -> bool:
        self.looks.append(surely)
        return True


def test_patience_ends_with_one_last_look() -> None:
    feed = Slow()
    patience = Patience(feed, 0, surely=True)
    assert (patience.pause(), patience.pause(), feed.looks) == (0, None, [True])
    patience = Patience(feed, PATIENCE_S, surely=True)
    assert (patience.pause(), patience.pause()) == (0, 0)


def test_what_was_put_is_dispatched_by_a_look(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "s", "a", start=False) as store:
        writer: Any = store._writer
        feed = DispatchFeed(writer.reput, writer.visible_end)
        assert not feed.catch_up()
        store.put("T", b"x")
        assert feed.catch_up()
        assert store.max_offset_in_queue("T", 0) == 1
        with store.consumer("g", "T") as consumer:
            store.put("T", b"y")
            assert [m.body for m in consumer.poll()] == [b"x"]
            assert [m.body for m in consumer.poll()] == [b"y"]  # nothing else was there


def test_a_log_is_looked_at_and_not_refreshed_for_records_in_open_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        rocketstore.open(tmp_path / "s", "a") as store,
        rocketstore.open(tmp_path / "s", "r") as reading,
    ):
        store.put("T", b"w")
        feed, times = WatchedFeed(cast("WatchedHold", reading.hold)), []
        assert feed.catch_up(surely=True)
        refresh = reading.refresh
        monkeypatch.setattr(reading, "refresh", lambda: (times.append(1), refresh()))
        for _ in range(20):
            assert not feed.catch_up(surely=True)
        store.put("T", b"x")
        assert feed.catch_up(surely=True)
        assert not times
        assert reading.max_offset_in_queue("T", 0) == 2


def test_a_message_of_another_process_ends_the_wait_of_a_consumer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No look of the consumer's own is needed: what watches the log wakes it."""
    monkeypatch.setattr("rocketstore.consumer.arrivals._LOOK_S", PATIENCE_S)
    with (
        rocketstore.open(tmp_path / "s", "a") as store,
        rocketstore.open(tmp_path / "s", "r") as reading,
        reading.consumer("g", ["T", "New"], ack="manual") as consumer,
    ):
        for topic in ("T", "T", "New"):  # a new queue, a queue that is known, a new topic
            call = Call(consumer.poll, 1, PATIENCE_S)
            until(lambda: len(reading.hold) > 0)
            began = time.monotonic()
            store.put(topic, b"x")
            assert len(call.result()) == 1
            assert time.monotonic() - began < PATIENCE_S / 2


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, tmp_path / "s", "3000"],
        stdout=subprocess.PIPE, text=True,
        env={**ENVIRONMENT, "PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_consumer_follows_another_process(writer: subprocess.Popen[str], tmp_path: Path) -> None:
    found: dict[int, list[int]] = {0: [], 1: [], 2: []}
    with (
        rocketstore.open(tmp_path / "s", "r", **OPTIONS) as store,
        store.consumer("g", "T", idle_timeout_s=PATIENCE_S) as consumer,
    ):
        for message in consumer:
            number = int(message.body.partition(b":")[0])
            found[message.queue_id].append(number)
            if sum(map(len, found.values())) == 3000:
                break
    for queue_id, numbers in found.items():
        assert numbers == list(range(queue_id, 3000, 3))
    assert writer.wait(PATIENCE_S) == 0
