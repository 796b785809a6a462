"""Slots that take no more messages."""

from __future__ import annotations

import threading

import rocketstore
from rocketstore import PutMessageStatus
from rocketstore.timer.congestion import SlotCongestion
from support.timer_files import NOW, TimedStore, after


def test_up_to_the_limit_all_are_taken() -> None:
    asked: list[int] = []
    congestion = SlotCongestion(3, lambda: asked.append(1) or {9: 2}, lambda: 999)
    assert [congestion(9) for _ in range(4)] == [False, False, True, True]
    assert [congestion(8) for _ in range(5)] == [False] * 4 + [True]
    assert asked == [1]


def test_by_chance_up_to_twice_as_many() -> None:
    numbers = iter([0] * 3 + [999, 0, 999, 0, 0, 0])
    congestion = SlotCongestion(3, dict, lambda: next(numbers))
    assert [congestion(9) for _ in range(9)] == [False] * 4 + [False, True, False, True, True]


def test_many_threads_count_together() -> None:
    congestion = SlotCongestion(1000, dict, lambda: 0)
    refused: list[bool] = []

    def ask() -> None:
        refused.extend([congestion(9) for _ in range(500)])

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refused.count(False) == 2000


def test_a_store_with_a_limit(timed: TimedStore) -> None:
    """It counts what waits in wheel and queue."""
    timed.files.enqueue_all(timed.put(after(5_000), after(5_000)), NOW)
    timed.put(after(5_000))
    timed.files.write()
    with rocketstore.open(
        timed.root, "r+", timer_wheel_enable=True, timer_congest_num_each_slot=2,
        clock=lambda: NOW,
    ) as store:  # fmt: skip
        found = {store.put("T", b"x", properties=after(5_000)).status for _ in range(200)}
        assert PutMessageStatus.WHEEL_TIMER_FLOW_CONTROL in found
        last = store.put("T", b"x", properties=after(5_000)).status
        assert last == PutMessageStatus.WHEEL_TIMER_FLOW_CONTROL
        assert store.put("T", b"x", properties=after(9_000)).status == PutMessageStatus.PUT_OK
        assert store.wait_dispatched(10)
        assert len(store.timers()) <= 5
