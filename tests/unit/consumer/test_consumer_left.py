"""Loops that are left, nested or interrupted, and consumers that are copied or forked: no message
is skipped."""

from __future__ import annotations

import asyncio
import copy
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.consumer.progress import GroupProgress
from support.consumed_stores import PATIENCE_S, Store, everything, fill, numbers
from support.waiting import Call, until


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with rocketstore.open(tmp_path / "s", "a") as opened:
        yield opened


def test_a_nested_loop_skips_nothing(store: Store) -> None:
    """What the outer loop had not settled is handed out again, to whichever loop asks first."""
    fill(store, 10)
    with store.consumer("g", "T", idle_timeout_s=0) as consumer:
        outer = iter(consumer)
        assert numbers([next(outer), next(outer)]) == [0, 1]
        inner = iter(consumer)
        assert numbers(outer) == list(range(1, 10))
        assert numbers(inner) == []
        assert consumer.positions == {("T", 0): 10}


def test_a_nested_loop_by_hand_skips_nothing(store: Store) -> None:
    fill(store, 10)
    with store.consumer("g", "T", idle_timeout_s=0, ack="manual") as consumer:
        outer = iter(consumer)
        first = [next(outer), next(outer)]
        iter(consumer)
        rest = list(outer)
        assert numbers(first + rest) == list(range(10))
        for message in first + rest:
            consumer.ack(message)
        assert consumer.positions == {("T", 0): 10}


def test_a_nested_loop_of_events_skips_nothing(store: Store) -> None:
    fill(store, 10)

    async def consume() -> list[int]:
        with store.consumer("g", "T", idle_timeout_s=0) as consumer:
            outer = aiter(consumer)
            found = [await anext(outer), await anext(outer)]
            aiter(consumer)
            return numbers(found + [message async for message in outer])

    assert asyncio.run(consume()) == [0, 1, *range(1, 10)]


def interrupt_after(monkeypatch: pytest.MonkeyPatch, name: str, times: int = 1) -> None:
    """Let a step of ``GroupProgress`` be interrupted when it is done, so many times."""
    step: Callable[..., Any] = getattr(GroupProgress, name)
    left = [times]

    def interrupted(*arguments: Any, **options: Any) -> Any:
        result = step(*arguments, **options)
        if left[0]:
            left[0] -= 1
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(GroupProgress, name, interrupted)


@pytest.mark.parametrize("step", ["_pull", "_fill", "lease", "extend"])
@pytest.mark.parametrize("ack", ["next", "manual"])
def test_an_interrupted_poll_has_handed_out_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch, step: str, ack: Any
) -> None:
    fill(store, 20, queues=2)
    with store.consumer("g", "T", ack=ack, max_reconsume_times=0) as consumer:
        interrupt_after(monkeypatch, step)
        with pytest.raises(KeyboardInterrupt):
            consumer.poll(20)
        assert set(consumer.positions.values()) == {0}
        found = consumer.poll(20)
        assert sorted(numbers(found)) == list(range(20))
        if ack == "manual":
            for message in found:
                consumer.ack(message)
        consumer.commit()
        assert set(consumer.positions.values()) == {10}


@pytest.mark.parametrize("step", ["_pull", "_fill", "lease"])
@pytest.mark.parametrize("ack", ["next", "manual"])
def test_an_interrupted_loop_has_handed_out_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch, step: str, ack: Any
) -> None:
    fill(store, 20, queues=2)
    with store.consumer("g", "T", ack=ack, max_reconsume_times=0, idle_timeout_s=0) as consumer:
        interrupt_after(monkeypatch, step)
        with pytest.raises(KeyboardInterrupt):
            next(iter(consumer))
        assert set(consumer.positions.values()) == {0}
        assert sorted(numbers(consumer)) == list(range(20))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_consumer_that_a_forked_child_closes_writes_nothing(store: Store) -> None:
    fill(store, 5)
    consumer = store.consumer("g", "T")
    assert numbers([next(iter(consumer))]) == [0]
    table = store.path / "config" / "consumerOffset.json"
    child = os.fork()
    if child == 0:  # pragma: no cover - in the child
        status = 1
        try:
            consumer.close()
            status = 0 if consumer.closed and not table.exists() else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert numbers(consumer.poll()) == [0, 1, 2, 3, 4]
    consumer.close()
    assert table.exists()


@pytest.mark.parametrize("make", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_consumer_has_no_copies(store: Store, make: Callable[[Any], Any]) -> None:
    with (
        store.consumer("g", "T") as consumer,
        pytest.raises(TypeError, match="cannot be copied or pickled"),
    ):
        make(consumer)


def test_a_loop_that_ends_lets_another_thread_read_on(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue that another thread worked on is not waited for, so that thread gives notice."""
    monkeypatch.setattr("rocketstore.consumer.arrivals._LOOK_S", PATIENCE_S)
    fill(store, 3)
    with store.consumer("g", "T") as consumer:
        assert numbers(consumer.poll(2)) == [0, 1]
        call = Call(consumer.poll, 2, PATIENCE_S)
        until(lambda: len(store.hold) > 0)
        consumer.commit()
        assert numbers(call.result()) == [2]
    assert everything(store) == [2]  # its poll was not settled


@pytest.mark.skipif(sys.platform == "win32", reason="stores are only read there")
def test_a_failed_store_ends_the_wait_of_a_consumer(store: Store) -> None:
    with store.consumer("g", "T") as consumer:
        call = Call(consumer.poll, 1, PATIENCE_S)
        until(lambda: len(store.hold) > 0)
        writer: Any = store._writer
        writer.hold.close(lambda: rocketstore.errors.ServiceFailedError("no disk"))
        with pytest.raises(rocketstore.errors.ServiceFailedError, match="no disk"):
            call.result()


def test_a_wait_on_the_thread_that_dispatches_is_refused(tmp_path: Path) -> None:
    """Nothing would be dispatched, and so nothing would come, as long as it lasts."""
    seen: list[str] = []
    consumers: list[Any] = []

    def listener(topic: str, *others: Any) -> None:
        for consumer in consumers if topic == "Rung" else ():
            for call in (partial(consumer.poll, 1, PATIENCE_S), partial(next, iter(consumer))):
                with pytest.raises(rocketstore.errors.ReentrantCallError) as caught:
                    call()
                seen.append(str(caught.value))
            assert numbers(consumer.poll()) == []

    with rocketstore.open(tmp_path / "s", "a", arriving_listener=listener) as store:
        consumers.append(store.consumer("g", "T"))
        store.put("Rung", b"")
        until(lambda: len(seen) == 2)
        assert all("wait on another thread" in words for words in seen)
        fill(store, 1)
        assert numbers(consumers[0].poll()) == [0]


def test_a_poll_in_a_task_of_its_own_says_that_messages_come_again(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    fill(store, 2)

    async def consume(ack: Any) -> list[int]:
        found = []
        with store.consumer("g", "T", ack=ack, max_reconsume_times=0) as consumer:
            for _ in range(2):
                found += await asyncio.create_task(consumer.apoll(1))
        return numbers(found)

    assert asyncio.run(consume("manual")) == [0, 1]
    assert not caplog.records
    assert asyncio.run(consume("next")) == [0, 0]
    assert [record.message for record in caplog.records] == [
        "apoll() of the group g runs in a task of its own, which ends with it: its messages are "
        'not settled and come again; await it directly, or use ack="manual"'
    ]


def test_a_poll_in_the_task_that_works_says_nothing(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    fill(store, 2)

    async def consume() -> list[int]:
        with store.consumer("g", "T") as consumer:
            return numbers([*await consumer.apoll(1), *await consumer.apoll(1)])

    assert asyncio.run(consume()) == [0, 1]
    assert not caplog.records
