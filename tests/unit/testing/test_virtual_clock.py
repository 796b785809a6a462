"""The clock that only the test moves."""

from __future__ import annotations

from pathlib import Path

import rocketstore
from rocketstore.testing import VirtualClock
from rocketstore.testing.fixtures import SMALL_FILES


def test_it_stands_until_it_is_moved() -> None:
    clock = VirtualClock(1000)
    assert (clock(), clock.advance(5), clock(), clock.advance(-10), clock()) == (
        1000, 1005, 1005, 995, 995,
    )  # fmt: skip
    clock.set(7)
    assert repr(clock) == "VirtualClock(7)"


def test_a_store_dates_and_delivers_by_it(tmp_path: Path) -> None:
    clock = VirtualClock()
    with rocketstore.open(tmp_path / "s", "x", clock=clock, **SMALL_FILES) as store:
        assert store.put("T", b"soon", delay_level=5).store_timestamp == clock()
        store.wait_dispatched()
        assert store.deliver_due() == 0
        clock.advance(60_000)
        assert store.deliver_due() == 1
        store.wait_dispatched()
        (message,) = store.find(topic="T")
        assert message.store_timestamp == clock()
