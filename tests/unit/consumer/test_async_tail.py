"""``async for`` over the new records of a log."""

from __future__ import annotations

import asyncio
import math
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import Message, TagFilter
from rocketstore.errors import StoreClosedError
from support.syncs import LONG_S

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="stores are only read there")


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Any]:
    with rocketstore.open(tmp_path / "s", "x", mapped_file_size_commit_log=64 * 1024) as opened:
        yield opened


@pytest.fixture(params=["same", "other"])
def store(writer: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The store that writes, or another one of its directory in mode ``"r"``."""
    if request.param == "same":
        yield writer
        return
    with rocketstore.open(writer.path) as opened:
        yield opened


async def take(tail: Any, count: int) -> list[bytes]:
    found = []
    async for message in tail:
        found.append(message.body)
        if len(found) == count:
            break
    await tail.aclose()
    return found


def test_only_what_comes_later_unless_a_start_is_given(writer: Any, store: Any) -> None:
    writer.put("T", b"old")
    writer.wait_dispatched()
    if store is not writer:
        store.refresh()

    async def main() -> list[list[bytes]]:
        later, all_of_them = store.atail(interval_s=60), store.atail(start=0, interval_s=60)
        tasks = [asyncio.create_task(take(later, 1)), asyncio.create_task(take(all_of_them, 2))]
        await asyncio.sleep(0.01)
        writer.put("T", b"new")
        return await asyncio.gather(*tasks)

    assert asyncio.run(main()) == [[b"new"], [b"old", b"new"]]
    assert store.hold.held == {}


def test_what_was_put_between_the_call_and_the_first_step_is_delivered(writer: Any) -> None:
    async def main() -> list[bytes]:
        tail = writer.atail(interval_s=60)
        writer.put("T", b"x")
        return await take(tail, 1)

    assert asyncio.run(main()) == [b"x"]


def test_it_ends_after_a_time_without_records(store: Any) -> None:
    async def main() -> float:
        begun = time.monotonic()
        assert [message async for message in store.atail(timeout_s=0.1)] == []
        return time.monotonic() - begun

    assert 0.1 <= asyncio.run(main()) < LONG_S
    assert asyncio.run(take(store.atail(timeout_s=0, interval_s=0), 1)) == []


def test_filters_and_topics(writer: Any, store: Any) -> None:
    class Odd:
        def is_matched_by_consume_queue(self, tags_code: int | None, ext: Any) -> bool:
            return True

        def is_matched_by_commit_log(self, message: Any) -> bool:
            return int(message.body) % 2 == 1

    wanted: list[dict[str, Any]] = [
        {"topics": ["T"]},
        {"filter": TagFilter("A")},
        {"topics": ["T"], "filter": "n > 6"},
        {"topics": ["U"], "filter": Odd()},
    ]

    async def one(options: dict[str, Any]) -> list[int]:
        tail = store.atail(**options, timeout_s=0.5)
        return [int(message.body) async for message in tail]

    async def main() -> list[list[int]]:
        tasks = [asyncio.create_task(one(options)) for options in wanted]
        await asyncio.sleep(0.02)
        for n in range(10):
            tags, properties = "AB"[n % 2], {"n": str(n)}
            for topic in "TU":
                writer.put(topic, b"%d" % n, tags=tags, properties=properties)
            await asyncio.sleep(0.001)
        return await asyncio.gather(*tasks)

    evens = [n for n in range(0, 10, 2) for _ in "TU"]
    assert asyncio.run(main()) == [list(range(10)), evens, [7, 8, 9], [1, 3, 5, 7, 9]]


def test_many_tails_need_no_threads(writer: Any, store: Any) -> None:
    """Across segments, at which mode ``"r"`` refreshes."""
    expected = [b"%d" % number * 50 for number in range(700)]

    async def main() -> tuple[list[list[bytes]], int]:
        tails = [store.atail(interval_s=60) for _ in range(40)]
        tasks = [asyncio.create_task(take(tail, len(expected))) for tail in tails]
        before = threading.active_count()
        for start in range(0, len(expected), 100):
            writer.put_many([Message("T", body) for body in expected[start : start + 100]])
            await asyncio.sleep(0.01)
        most = threading.active_count()
        return await asyncio.gather(*tasks), most - before

    found, threads = asyncio.run(main())
    assert found == [expected] * 40
    assert threads == 0 if store is writer else threads < 40


def test_a_long_run_lets_other_tasks_run(writer: Any) -> None:
    writer.put_many([Message("T", b"x")] * 8_000)

    async def main() -> int:
        task = asyncio.create_task(take(writer.atail(start=0), 8_000))
        turns = 0
        while not task.done():
            turns += 1
            await asyncio.sleep(0)
        return turns

    assert asyncio.run(main()) > 1


@pytest.mark.parametrize("end", ["cancel", "aclose", "break"])
def test_an_ended_tail_leaves_nothing(writer: Any, end: str) -> None:
    async def main() -> None:
        tail = writer.atail(interval_s=60)
        task = asyncio.create_task(anext(tail))
        while not len(writer.hold):
            await asyncio.sleep(0)
        if end == "cancel":
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            writer.put("T", b"x")
            assert (await task).body == b"x"
        if end == "aclose":
            await tail.aclose()
        assert writer.hold.held == {}

    asyncio.run(main())


def test_a_cancelled_step_loses_no_record(writer: Any) -> None:
    """A task that is cancelled while it has a record to give: a new tail from there gives it."""

    async def main() -> list[bytes]:
        tail = writer.atail(start=0, interval_s=60)
        writer.put_many([Message("T", b"%d" % n) for n in range(3)])
        first = (await anext(tail)).body
        position = (await anext(tail)).physical_offset
        await tail.aclose()
        return [first, *await take(writer.atail(start=position, interval_s=60), 2)]

    assert asyncio.run(main()) == [b"0", b"1", b"2"]


def test_closing_the_store_ends_it(tmp_path: Path) -> None:
    store = rocketstore.open(tmp_path / "s", "x")

    async def main() -> None:
        task = asyncio.create_task(take(store.atail(interval_s=math.inf), 1))
        while not len(store.hold):
            await asyncio.sleep(0)
        store.close()
        with pytest.raises(StoreClosedError):
            await task
        with pytest.raises(StoreClosedError):
            store.atail()

    asyncio.run(main())


def test_wrong_arguments_are_refused_by_the_call(writer: Any) -> None:
    for options in ({"start": 5}, {"on_corruption": "never"}, {"filter": "a >"}):
        with pytest.raises(ValueError, match=r"offset|on_corruption|a >"):
            writer.atail(**options)
    with pytest.raises(TypeError):
        writer.atail(topics="T")
