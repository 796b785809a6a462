"""Waiting for arrivals in any of several queues."""

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
from rocketstore.consumer.hold import WHOLE_LOG, HeldPull, PullRequestHoldService
from rocketstore.errors import ReentrantCallError, StoreClosedError
from support.syncs import LONG_S
from support.waiting import Call, held, until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="stores are only read there")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Any]:
    """A store whose dispatch is stepped by hand."""
    options: Any = {"enable_lmq": True, "enable_multi_dispatch": True, "broker_version": "5.3.3"}
    with rocketstore.open(tmp_path / "s", "x", start=False, **options) as opened:
        yield opened


def pulls_of(*queues: tuple[str, int], offset: int = 0) -> list[HeldPull]:
    return [HeldPull(topic, queue_id, offset) for topic, queue_id in queues]


def arrived(pulls: list[HeldPull]) -> list[tuple[str, int]]:
    return [pull.key for pull in pulls if pull.arrived]


def test_any_of_several_queues(store: Any) -> None:
    pulls = pulls_of(("T", 0), ("T", 1), ("U", 0))
    call = Call(store.hold.wait, pulls, math.inf)
    held(store, 3)
    store.put("T", b"", 2)
    store.wait_dispatched()
    assert not call.is_over
    store.put_many([Message("U", b""), Message("T", b"", queue_id=1)])
    store.wait_dispatched()
    assert call.result() is True
    assert arrived(pulls) == [("T", 1), ("U", 0)]
    assert store.hold.held == {}


def test_what_is_there_already_ends_the_wait_at_once(store: Any) -> None:
    store.put("T", b"")
    store.wait_dispatched()
    pulls = pulls_of(("T", 0), ("T", 1))
    assert store.hold.wait(pulls, math.inf)
    assert asyncio.run(store.hold.wait_async(pulls, math.inf))
    assert arrived(pulls) == [("T", 0)]


def test_a_pull_is_used_again_with_another_offset(store: Any) -> None:
    (pull,) = pulls_of(("T", 0))
    for offset in range(3):
        pull.offset = offset
        assert not store.hold.wait([pull], 0)
        assert not pull.arrived
        store.put("T", b"")
        store.wait_dispatched()
        assert store.hold.wait([pull], 0)
        assert (pull.arrived, pull.offset) == (True, offset)


def test_a_pull_in_use_is_refused(store: Any) -> None:
    (pull,) = pulls = pulls_of(("T", 0))
    other = HeldPull("T", 1, 0)
    call = Call(store.hold.wait, pulls, math.inf)
    held(store)
    with pytest.raises(ValueError, match="in use by another wait"):
        store.hold.wait([other, pull], 1)
    assert list(store.hold.held) == [("T", 0)]
    store.put("T", b"")
    store.wait_dispatched()
    assert call.result()
    assert pull.arrived


def test_two_pulls_of_one_queue_in_one_wait(store: Any) -> None:
    pulls = [HeldPull("T", 0, 0), HeldPull("T", 0, 0, _reads(store, "A"))]
    call = Call(store.hold.wait, pulls, math.inf)
    held(store, 2)
    store.put("T", b"", tags="B")
    store.wait_dispatched()
    assert call.result()
    assert [pull.arrived for pull in pulls] == [True, False]
    assert pulls[1].offset == 1


def _reads(store: Any, tags: str) -> Any:
    def read(topic: str, queue_id: int, offset: int) -> Any:
        return store.get_message("g", topic, queue_id, offset, 1, filter=TagFilter(tags))

    return read


@pytest.mark.parametrize("count", [1, 40, 400])
@pytest.mark.parametrize("messages", [1, 30])
def test_only_waits_of_queues_with_messages_end(store: Any, count: int, messages: int) -> None:
    """With few records their topics are read, with many all queues are looked up."""
    pulls = pulls_of(*(("T", number) for number in range(count)), ("%LMQ%a", 0))

    async def main() -> list[bool]:
        waits = [asyncio.create_task(store.hold.wait_async([pull], 0.3)) for pull in pulls]
        while len(store.hold) < len(pulls):
            await asyncio.sleep(0)
        for number in range(messages):
            store.put("T", b"", number % 3)
        store.put("Other", b"", properties={"INNER_MULTI_DISPATCH": "%LMQ%a"})
        store.begin("T", b"", group="g", queue_id=4)
        store._writer.reput.step()
        return await asyncio.gather(*waits)

    ended = asyncio.run(main())
    expected = [number < min(messages, 3) for number in range(count)]
    assert ended == [*expected, True]


def test_any_record_of_the_log(store: Any) -> None:
    store.put("T", b"")
    store.wait_dispatched()
    pull = HeldPull(*WHOLE_LOG, store.max_physical_offset)
    assert not store.hold.wait([pull], 0)
    call = Call(store.hold.wait, [pull, *pulls_of(("T", 5))], math.inf)
    held(store, 2)
    store.put("U", b"")
    store.wait_dispatched()
    assert call.result()
    assert pull.arrived
    # The log holds records that are not dispatched yet: they were read before.
    pull.offset = store.put("U", b"").physical_offset + 1000
    assert not store.hold.wait([pull], 0)


def test_a_filter_that_is_slow_does_not_move_a_pull_used_again(store: Any) -> None:
    """A wait ended while its filter ran. What that found must not be taken for the next wait's."""
    begun, go_on = threading.Event(), threading.Event()

    def read(topic: str, queue_id: int, offset: int) -> Any:
        begun.set()
        assert go_on.wait(LONG_S)
        return store.get_message("g", topic, queue_id, offset, 1, filter=TagFilter("B"))

    pull = HeldPull("T", 0, 0, read)
    wait = Call(store.hold.wait, [pull], 0.2)
    held(store)
    store.put_many([Message("T", b"", tags="A")] * 50)
    dispatch = Call(store.wait_dispatched)
    assert begun.wait(LONG_S)
    assert wait.result() is False
    assert pull.offset == 0
    pull.read = None
    pull.offset = 7
    go_on.set()
    dispatch.result()
    assert (pull.offset, pull.arrived) == (7, False)


def test_waits_end_while_a_filter_is_slow(store: Any) -> None:
    """Filters are called without a lock: other reads begin and end their waits meanwhile."""
    begun, go_on = threading.Event(), threading.Event()

    def read(topic: str, queue_id: int, offset: int) -> Any:
        begun.set()
        assert go_on.wait(LONG_S)
        return store.get_message("g", topic, queue_id, offset, 1)

    slow = Call(store.hold.wait, [HeldPull("T", 0, 0, read)], LONG_S)
    held(store)
    store.put("T", b"")
    dispatch = Call(store.wait_dispatched)
    assert begun.wait(LONG_S)
    assert store.hold.wait(pulls_of(("T", 0)), LONG_S)
    assert not store.hold.wait(pulls_of(("U", 0)), 0.01)
    go_on.set()
    assert slow.result()
    dispatch.result()


def test_waits_inside_a_step_of_the_store_are_refused(store: Any) -> None:
    with store._hold_lock, pytest.raises(ReentrantCallError):
        store.hold.wait(pulls_of(("T", 0)), math.inf)


def test_a_closed_hold_refuses_waits(store: Any) -> None:
    hold = PullRequestHoldService(dict, lambda: 0, lambda: store.reader.log)
    pulls = pulls_of(("T", 0))
    call = Call(hold.wait, pulls, math.inf)
    until(lambda: len(hold) == 1)
    hold.close(lambda: StoreClosedError("closed"))
    hold.close(lambda: ValueError("a later reason does not count"))
    for result in (call.result, lambda: hold.wait(pulls, 1)):
        with pytest.raises(StoreClosedError, match="closed"):
            result()
    assert len(hold) == 0


def test_whether_there_are_waits_is_known_to_dispatch(store: Any) -> None:
    changes: list[bool] = []
    hold = PullRequestHoldService(
        dict, lambda: 0, lambda: store.reader.log, on_change=changes.append
    )
    assert not hold.lags(10)
    call = Call(hold.wait, pulls_of(("T", 0), ("T", 1)), math.inf)
    until(lambda: len(hold) == 2)
    assert hold.lags(10)
    assert not hold.lags(0)
    hold.announce(10)
    assert not hold.lags(10)
    assert changes == [True]
    assert not call.is_over
    hold.close(lambda: StoreClosedError("closed"))
    with pytest.raises(StoreClosedError):
        call.result()
    assert changes == [True, False]


def test_a_wait_takes_its_time_exactly(store: Any) -> None:
    for timeout_s in (0.0, 0.02, 0.1):
        begun = time.monotonic()
        assert not store.hold.wait(pulls_of(("T", 0)), timeout_s)
        assert time.monotonic() - begun >= timeout_s
