"""Consumers: messages per second of loops, acknowledgements and polls; commits; retries."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import Message

COUNT = 400_000
GROUPS = itertools.count()
Store = rocketstore.DefaultMessageStore


@pytest.fixture(scope="module", params=[1, 8], ids=["one queue", "eight queues"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    path = Path(tempfile.mkdtemp(prefix="rocketstore-consumers-"))
    with rocketstore.open(path / "s", "x") as opened:
        for first in range(0, COUNT, 1000):
            opened.put_many(
                [
                    Message("T", b"x" * 100, queue_id=number % request.param, tags="t")
                    for number in range(first, first + 1000)
                ]
            )
        opened.wait_dispatched()
        yield opened
    shutil.rmtree(path)


def report(benchmark: Any) -> None:
    benchmark.extra_info["messages per second"] = round(COUNT / benchmark.stats["median"])


def consumer(store: Store, **options: Any) -> rocketstore.Consumer:
    return store.consumer(f"g{next(GROUPS)}", "T", idle_timeout_s=0, **options)


def test_loop(benchmark: Any, store: Store) -> None:
    """``for message in consumer`` over messages of 100 bytes."""

    def loop() -> int:
        count = 0
        with consumer(store) as one:
            for _ in one:
                count += 1
        return count

    assert benchmark.pedantic(loop, rounds=7) == COUNT
    report(benchmark)


def test_loop_by_hand(benchmark: Any, store: Store) -> None:
    """The same with ``ack`` for each message."""

    def loop() -> int:
        count = 0
        with consumer(store, ack="manual", max_reconsume_times=0) as one:
            for message in one:
                one.ack(message)
                count += 1
        return count

    assert benchmark.pedantic(loop, rounds=5) == COUNT
    report(benchmark)


def test_poll(benchmark: Any, store: Store) -> None:
    """``poll`` of 32 messages at a time."""

    def poll() -> int:
        count = 0
        with consumer(store) as one:
            while messages := one.poll(32):
                count += len(messages)
        return count

    assert benchmark.pedantic(poll, rounds=5) == COUNT
    report(benchmark)


def test_loop_of_events(benchmark: Any, store: Store) -> None:
    """``async for message in consumer``."""

    async def loop() -> int:
        count = 0
        with consumer(store) as one:
            async for _ in one:
                count += 1
        return count

    assert benchmark.pedantic(lambda: asyncio.run(loop()), rounds=5) == COUNT
    report(benchmark)


def test_durable_commits(benchmark: Any, store: Store) -> None:
    """Seconds of one ``commit(sync=True)`` after a batch."""
    with consumer(store) as one:
        benchmark.pedantic(
            lambda: one.commit(sync=True), setup=lambda: one.poll(32) and None, rounds=100
        )


def test_retries(benchmark: Any, tmp_path: Path) -> None:
    """``retry`` of 10,000 messages of 100 bytes."""
    rounds = itertools.count()

    def fill() -> tuple[tuple[Any, ...], dict[str, Any]]:
        store = rocketstore.open(tmp_path / str(next(rounds)), "x", start=False)
        store.put_many([Message("T", b"x" * 100) for _ in range(10_000)])
        store.wait_dispatched()
        one = store.consumer("g", "T", ack="manual")
        return (one, one.poll(10_000)), {}

    def retry(one: rocketstore.Consumer, messages: list[Any]) -> None:
        for message in messages:
            one.retry(message)

    benchmark.pedantic(retry, setup=fill, rounds=5)
    benchmark.extra_info["retries per second"] = round(10_000 / benchmark.stats["median"])


def test_wake_up(benchmark: Any, tmp_path: Path) -> None:
    """Milliseconds from ``put`` until a waiting loop has the message."""

    async def run() -> float:
        late: list[float] = []
        loop = asyncio.get_running_loop()
        with rocketstore.open(tmp_path / "s", "x") as store, store.consumer("g", "T") as one:

            def put() -> None:
                store.put("T", b"%r" % time.perf_counter())

            loop.call_later(0.005, put)
            async for message in one:
                late.append(time.perf_counter() - float(message.body))
                if len(late) == 300:
                    break
                loop.call_later(0.005, put)
        return sorted(late)[len(late) // 2] * 1000

    median = benchmark.pedantic(lambda: asyncio.run(run()), rounds=1)
    benchmark.extra_info["median ms"] = round(median, 2)
