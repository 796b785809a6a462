"""Reads that wait: from the put to the answer, and what 10,000 of them cost while nothing comes."""

from __future__ import annotations

import asyncio
import math
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import Message

ROUNDS = 500
WAITING = 10_000
#: Puts every 20 ms, with the time of each as its body.
WRITER = """
import sys, time, rocketstore
with rocketstore.open(sys.argv[1], "a") as store:
    print("open", flush=True)
    for _ in range(int(sys.argv[2])):
        time.sleep(0.02)
        store.put("T", repr(time.time()).encode())
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="rocketstore-waiting-"))
    yield path
    shutil.rmtree(path)


def figures(times_s: list[float]) -> dict[str, float]:
    """Median, p99 and most of some times, in ms."""
    ordered = sorted(times_s)
    chosen = {"p50": len(ordered) // 2, "p99": len(ordered) * 99 // 100, "most": len(ordered) - 1}
    return {f"{name} ms": round(ordered[at] * 1000, 2) for name, at in chosen.items()}


class Putter(threading.Thread):
    """Puts one message every 5 ms, and notes when."""

    def __init__(self, store: Any, load: bool = False) -> None:
        super().__init__(daemon=True)
        self.store, self.load, self.at = store, load, [0.0] * ROUNDS

    def run(self) -> None:
        others = [Message("Other", bytes(100), queue_id=n % 8) for n in range(200)]
        for number in range(ROUNDS):
            if self.load:
                self.store.put_many(others)
            time.sleep(0.005)
            self.at[number] = time.perf_counter()
            self.store.put("T", b"x")


def test_three_threads_without_a_store(benchmark: Any) -> None:
    """What the machine takes to pass something through three threads, as a message is passed."""

    def run() -> list[float]:
        first: queue.SimpleQueue[float] = queue.SimpleQueue()
        second: queue.SimpleQueue[float] = queue.SimpleQueue()

        def put() -> None:
            for _ in range(ROUNDS):
                time.sleep(0.005)
                first.put(time.perf_counter())

        def dispatch() -> None:
            for _ in range(ROUNDS):
                second.put(first.get())

        threads = [threading.Thread(target=one, daemon=True) for one in (put, dispatch)]
        for thread in threads:
            thread.start()
        times = []
        for _ in range(ROUNDS):
            begun = second.get()
            times.append(time.perf_counter() - begun)
        for thread in threads:
            thread.join()
        return times

    benchmark.extra_info.update(figures(benchmark.pedantic(run, rounds=1)))


@pytest.mark.parametrize("load", [False, True])
def test_a_thread_that_waits(benchmark: Any, folder: Path, load: bool) -> None:
    """``load``: 40,000 other messages a second."""

    def run() -> list[float]:
        with rocketstore.open(folder / "s", "x") as store:
            putter, ends = Putter(store, load), []
            putter.start()
            while len(ends) < ROUNDS:
                result = store.get_message("g", "T", 0, len(ends), 1, wait_s=math.inf)
                assert result.messages
                ends.append(time.perf_counter())
            putter.join()
            return [end - begun for begun, end in zip(putter.at, ends, strict=True)]

    benchmark.extra_info.update(figures(benchmark.pedantic(run, rounds=1)))


@pytest.mark.parametrize("load", [False, True])
def test_a_task_that_waits(benchmark: Any, folder: Path, load: bool) -> None:
    async def read(store: Any) -> list[float]:
        ends: list[float] = []
        while len(ends) < ROUNDS:
            await store.aget_message("g", "T", 0, len(ends), 1, wait_s=math.inf)
            ends.append(time.perf_counter())
        return ends

    def run() -> list[float]:
        with rocketstore.open(folder / "s", "x") as store:
            putter = Putter(store, load)
            putter.start()
            ends = asyncio.run(read(store))
            putter.join()
            return [end - begun for begun, end in zip(putter.at, ends, strict=True)]

    benchmark.extra_info.update(figures(benchmark.pedantic(run, rounds=1)))


@pytest.mark.parametrize("kind", ["put", "commit", "delivery"])
def test_a_consumer_that_waits(benchmark: Any, folder: Path, kind: str) -> None:
    """From the put, the call of ``commit``, or the delivery of a delayed message, to the loop."""
    count = ROUNDS // 5

    def put_some(store: Any, at: list[float]) -> None:
        for _ in range(count):
            time.sleep(0.02)
            if kind == "commit":
                transaction = store.begin("T", b"x", group="g")
                time.sleep(0.02)  # dispatch of the half message is over
            at.append(time.time())
            if kind == "commit":
                transaction.commit()
            else:
                store.put("T", b"x", delay_level=1 if kind == "delivery" else 0)

    def run() -> list[float]:
        options = {"schedule_message_enable": True, "message_delay_level": "1s"}
        with (
            rocketstore.open(folder / "s", "x", **options) as store,
            store.consumer("g", "T") as consumer,
        ):
            at: list[float] = []
            ends: list[float] = []
            stored: list[float] = []
            putter = threading.Thread(target=put_some, args=(store, at), daemon=True)
            putter.start()
            for message in consumer:
                ends.append(time.time())
                stored.append(message.store_timestamp / 1000)  # in whole ms
                if len(ends) == count:
                    break
            putter.join()
            begins = stored if kind == "delivery" else at
            return [end - begun for begun, end in zip(begins, ends, strict=True)]

    benchmark.extra_info.update(figures(benchmark.pedantic(run, rounds=1)))


def test_ten_thousand_that_wait(benchmark: Any, folder: Path) -> None:
    """Memory and processor time while nothing comes, and the wake-up of one among them."""
    found: dict[str, Any] = {}

    async def main(store: Any) -> None:
        topics = [f"Topic{number}" for number in range(WAITING)]
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        tasks = [
            asyncio.create_task(store.aget_message("g", topic, 0, 0, wait_s=3600))
            for topic in topics
        ]
        while len(store.hold.held) < WAITING:
            await asyncio.sleep(0.01)
        found["bytes each"] = (tracemalloc.get_traced_memory()[0] - before) // WAITING
        tracemalloc.stop()
        begun, busy = time.perf_counter(), time.process_time()
        await asyncio.sleep(5)
        idle = (time.process_time() - busy) / (time.perf_counter() - begun)
        found["idle percent of a core"] = round(100 * idle, 2)
        times = []
        for offset in range(ROUNDS):  # in a queue that exists: a new one costs its files
            task = asyncio.create_task(store.aget_message("g", "Old", 0, offset, wait_s=3600))
            await asyncio.sleep(0.005)
            begun = time.perf_counter()
            store.put("Old", b"x")
            await task
            times.append(time.perf_counter() - begun)
        found.update(figures(times))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert store.hold.held == {}

    def run() -> None:
        with rocketstore.open(folder / "s", "x") as store:
            begun, busy = time.perf_counter(), time.process_time()
            time.sleep(5)
            idle = (time.process_time() - busy) / (time.perf_counter() - begun)
            found["the same without reads that wait"] = round(100 * idle, 2)
            asyncio.run(main(store))

    benchmark.pedantic(run, rounds=1)
    benchmark.extra_info.update(found)


def test_dispatch_beside_ten_thousand_that_wait(benchmark: Any, folder: Path) -> None:
    """200,000 messages of other queues are dispatched, 1,000 with each put."""
    messages = [Message("Other", bytes(100), queue_id=number % 8) for number in range(1000)]

    async def main(store: Any) -> None:
        tasks = [
            asyncio.create_task(store.aget_message("g", f"T{n}", 0, 0, wait_s=3600))
            for n in range(WAITING)
        ]
        while len(store.hold.held) < WAITING:
            await asyncio.sleep(0.01)
        benchmark.extra_info["beside s"] = dispatch(store)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def dispatch(store: Any) -> float:
        begun = time.perf_counter()
        for _ in range(200):
            store.put_many(messages)
        store.wait_dispatched()
        return round(time.perf_counter() - begun, 3)

    def run() -> None:
        with rocketstore.open(folder / "s", "x") as store:
            benchmark.extra_info["alone s"] = dispatch(store)
            asyncio.run(main(store))

    benchmark.pedantic(run, rounds=1)


def test_beside_a_process_that_writes(benchmark: Any, folder: Path) -> None:
    path = folder / "s"
    with rocketstore.open(path, "x") as store:
        store.put("T", b"0")
    command = [sys.executable, "-c", WRITER, str(path), str(ROUNDS)]

    def run() -> list[float]:
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            times = []
            with rocketstore.open(path) as reader:
                while len(times) < ROUNDS:
                    result = reader.get_message("g", "T", 0, len(times) + 1, 1, wait_s=60)
                    times.append(time.time() - float(result.messages[0].body))
            return times

    benchmark.extra_info.update(figures(benchmark.pedantic(run, rounds=1)))
