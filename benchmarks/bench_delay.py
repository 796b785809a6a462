"""Delayed messages: deliveries per second, lateness, opening and reporting with a million."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import Message, formats

NOW = 1_700_000_000_000
DUE_COUNT = 200_000
WAITING_COUNT = 1_000_000


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="rocketstore-delays-"))
    yield path
    shutil.rmtree(path)


def fill(store: rocketstore.DefaultMessageStore, count: int, level: int) -> None:
    for first in range(0, count, 1000):
        store.put_many(
            [
                Message("T", b"x" * 100, queue_id=number % 4, tags="t", delay_level=level)
                for number in range(first, first + 1000)
            ]
        )
    store.wait_dispatched()


def test_deliveries(benchmark: Any, folder: Path) -> None:
    """200,000 due messages of 100 bytes, dispatch included as the service runs."""
    clock = [NOW]
    with rocketstore.open(folder / "s", "x", clock=lambda: clock[0]) as store:
        store.deliver_due()

        def due() -> None:
            fill(store, DUE_COUNT, 1)
            clock[0] += 1000

        count = benchmark.pedantic(store.deliver_due, setup=due, rounds=5)
        assert count == DUE_COUNT
    benchmark.extra_info["deliveries per second"] = round(DUE_COUNT / benchmark.stats["median"])


def test_lateness(benchmark: Any, folder: Path) -> None:
    """Store time minus due time, in ms, of messages that become due one by one."""

    def deliver() -> list[int]:
        with rocketstore.open(folder / "s", "a", schedule_message_enable=True) as store:
            for _ in range(1000):
                store.put("T", b"x", delay_level=1, unique_key=True)
                time.sleep(0.001)
            while store.delays().pending:
                time.sleep(0.05)
            messages = list(store.scan())
            due = {
                message.unique_key: message.store_timestamp + 1000
                for message in messages
                if message.topic == formats.TOPIC_SCHEDULE
            }
            return sorted(m.store_timestamp - due[m.unique_key] for m in messages if m.topic == "T")

    late = benchmark.pedantic(deliver, rounds=1)
    benchmark.extra_info["lateness ms"] = {"p50": late[500], "p99": late[990], "most": late[-1]}
    assert late[0] >= 0


@pytest.mark.parametrize("enabled", [False, True])
def test_opening_with_a_million_waiting(benchmark: Any, folder: Path, enabled: bool) -> None:
    with rocketstore.open(folder / "s", "x") as store:
        fill(store, WAITING_COUNT, 18)
        store.deliver_due()

    benchmark.pedantic(
        lambda: rocketstore.open(folder / "s", "r+", schedule_message_enable=enabled).close(),
        rounds=7,
        warmup_rounds=1,
    )


def test_a_report_of_a_million_waiting(benchmark: Any, folder: Path) -> None:
    with rocketstore.open(folder / "s", "x") as store:
        fill(store, WAITING_COUNT, 18)
        report = benchmark(store.delays)
        assert report.pending == WAITING_COUNT
