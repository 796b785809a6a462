"""Thousands of reads that wait: none is forgotten, and none is woken without a message."""

from __future__ import annotations

import asyncio
import math
import os
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import TagFilter
from rocketstore.errors import StoreClosedError
from support.syncs import LONG_S
from support.waiting import Call, bodies

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="stores are only read there")

#: ``ROCKETSTORE_WAITING`` is how many reads wait at once.
WAITING = int(os.environ.get("ROCKETSTORE_WAITING", "10000"))
QUEUES = 40
TAGS = ("A", "B", "C")


class Reads:
    """Reads of a few queues, each for itself until it has seen everything that is for it."""

    def __init__(self, store: Any, seed: int) -> None:
        self.store, self.random = store, random.Random(seed)
        self.put: list[list[tuple[bytes, str]]] = [[] for _ in range(QUEUES)]
        self.ended = False
        self.time_outs = self.cancelled = self.closed = 0

    def expected(self, queue_id: int, wanted: str | None) -> list[bytes]:
        return [body for body, tag in self.put[queue_id] if wanted in (None, tag)]

    def keep(self, found: list[bytes], result: Any, wanted: str | None) -> None:
        assert all(wanted in (None, message.tags) for message in result.messages)
        found += bodies(result)

    def read_here(self, queue_id: int, wanted: str | None) -> list[bytes]:
        """Read on this thread, with time-outs, until the store is closed."""
        found: list[bytes] = []
        offset = 0
        given = None if wanted is None else TagFilter(wanted)
        times = random.Random(queue_id)
        while True:
            wait_s = times.choice((0.01, 0.1, math.inf))
            try:
                result = self.store.get_message(
                    "g", "T", queue_id, offset, filter=given, wait_s=wait_s
                )
            except StoreClosedError:
                return found
            assert result.messages or wait_s < math.inf
            self.keep(found, result, wanted)
            offset = result.next_begin_offset

    async def read(self, queue_id: int, wanted: str | None, found: list[bytes]) -> None:
        """Read on a loop; tasks that are cancelled go on where they were."""
        offset = 0
        given = None if wanted is None else TagFilter(wanted)
        while True:
            wait_s = self.random.choice((0.5, 1.0, math.inf))
            call = self.store.aget_message("g", "T", queue_id, offset, filter=given, wait_s=wait_s)
            try:
                if self.random.random() < 0.1 and not self.ended:
                    result = await asyncio.wait_for(call, self.random.random())
                else:
                    result = await call
            except StoreClosedError:
                self.closed += 1
                return
            except TimeoutError:
                self.cancelled += 1
                continue
            assert result.messages or wait_s < math.inf
            self.time_outs += not result.messages
            self.keep(found, result, wanted)
            offset = result.next_begin_offset

    def put_some(self, count: int) -> None:
        for number in range(count):
            queue_id, tag = self.random.randrange(QUEUES), self.random.choice(TAGS)
            body = b"%d" % number
            self.put[queue_id].append((body, tag))
            assert self.store.put("T", body, queue_id, tag).ok
            if number % 10 == 0:
                time.sleep(0.002)


def test_none_is_forgotten_and_none_is_woken_for_nothing(tmp_path: Path) -> None:
    store: Any = rocketstore.open(tmp_path / "s", "x")
    reads = Reads(store, 7)
    wanted = [None, *TAGS, "never"]
    places = [(n % QUEUES, wanted[n // QUEUES % len(wanted)]) for n in range(WAITING)]
    threads = [Call(reads.read_here, n, wanted[n % len(wanted)]) for n in range(10)]
    found: list[list[bytes]] = [[] for _ in range(WAITING)]

    async def main() -> None:
        tasks = [
            asyncio.create_task(reads.read(*place, bodies))
            for place, bodies in zip(places, found, strict=True)
        ]
        while len(store.hold) < WAITING // 2:
            await asyncio.sleep(0.01)
        before = threading.active_count()
        put = asyncio.create_task(asyncio.to_thread(reads.put_some, 200))
        while not put.done():
            await asyncio.sleep(0.01)
        assert threading.active_count() <= before + 1
        await put
        deadline = time.monotonic() + LONG_S
        ends = [len(reads.expected(*place)) for place in places]
        while any(len(one) < end for one, end in zip(found, ends, strict=True)):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
        reads.ended = True
        store.close()
        await asyncio.gather(*tasks)

    asyncio.run(main())
    for place, one in zip(places, found, strict=True):
        assert one == reads.expected(*place)
    for number, call in enumerate(threads):
        assert call.result() == reads.expected(number, wanted[number % len(wanted)])
    assert reads.closed == WAITING
    assert reads.cancelled > 0
    assert (store.hold.held, store.hold._unrung, store.hold._loops) == ({}, {}, set())


@pytest.mark.parametrize("seed", range(5))
def test_loops_come_and_go(tmp_path: Path, seed: int) -> None:
    """Loops of several threads end while their reads wait, with messages coming all the time."""
    with rocketstore.open(tmp_path / "s", "x") as store:
        stop = threading.Event()

        def put() -> None:
            while not stop.is_set():
                store.put("T", b"x", 0)
                time.sleep(0.0005)

        def loops(seed: int) -> int:
            times, count = random.Random(seed), 0

            async def once() -> int:
                result = await store.aget_message("g", "T", 0, 0, wait_s=LONG_S)
                offset = result.max_offset
                tasks = [
                    asyncio.create_task(
                        store.aget_message("g", "T", 0, offset + late, wait_s=math.inf)
                    )
                    for late in (0, 0, 0)
                ]
                await asyncio.sleep(times.random() * 0.003)
                for task in tasks[: times.randrange(3)]:
                    task.cancel()
                return len(await asyncio.gather(*tasks, return_exceptions=True))

            for _ in range(20):
                count += asyncio.run(once())
            return count

        putting = Call(put)
        calls = [Call(loops, seed * 10 + number) for number in range(4)]
        assert [call.result() for call in calls] == [60] * 4
        stop.set()
        putting.result()
        assert store.hold.held == {}
