"""Programs that are killed at a named point, and what they leave."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.testing import CRASH_POINTS, VirtualClock, check_invariants, crash
from rocketstore.testing.crashing import Acknowledge
from rocketstore.testing.fixtures import SMALL_FILES

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")


def taking_orders(root: Path) -> Any:
    """A program that does all that has a point: puts, delays, rolls, closes."""

    def program(acknowledge: Acknowledge) -> None:
        clock = VirtualClock()
        with rocketstore.open(root, "a", clock=clock, start=False, **SMALL_FILES) as store:
            for number in range(3):
                acknowledge(store.put("Orders", b"%d" % number, keys=f"key-{number}"))
            acknowledge(store.put("Orders", b"later", delay_level=1))
            store.wait_dispatched()
            clock.advance(2000)
            store.deliver_due()

    return program


@pytest.mark.parametrize("point", CRASH_POINTS)
def test_what_was_acknowledged_is_there_after_every_point(point: str, tmp_path: Path) -> None:
    root = tmp_path / "s"
    confirmed = crash(taking_orders(root), point)
    assert (root / "abort").exists() or point == "file-created"
    bodies: list[bytes] = []
    if root.exists():
        with rocketstore.open(root, "a", **SMALL_FILES) as store:
            bodies = [message.body for message in store.scan()]
    check_invariants(root, acknowledged=confirmed, clock_steps=True).require()
    if point == "stored":
        assert (confirmed, bodies) == ([], [b"0"])
    elif point == "before-clean-mark":
        assert len(confirmed) == 4
        assert bodies == [b"0", b"1", b"2", b"later", b"later"]


def test_the_count_chooses_the_time(tmp_path: Path) -> None:
    confirmed = crash(taking_orders(tmp_path / "s"), "stored", count=3)
    assert [result.queue_offset for result in confirmed] == [0, 1]


def test_a_delivery_that_no_table_names_is_not_repeated(tmp_path: Path) -> None:
    crash(taking_orders(tmp_path / "s"), "delivered")
    with rocketstore.open(tmp_path / "s", "r+", start=False) as store:
        assert store.deliver_due() == 0
        assert [message.body for message in store.find(topic="Orders")][3:] == [b"later"]


def test_many_puts_at_once_have_the_point_too(tmp_path: Path) -> None:
    def program(acknowledge: Acknowledge) -> None:
        with rocketstore.open(tmp_path / "s", "x", **SMALL_FILES) as store:
            acknowledge(store.put_many([rocketstore.Message("T", b"x")] * 5))

    assert crash(program, "stored") == []
    with rocketstore.open(tmp_path / "s", "r+") as store:
        assert sum(1 for _ in store.scan()) == 5


def test_a_program_that_never_comes_there(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="without passing 'stored' 9 times"):
        crash(taking_orders(tmp_path / "s"), "stored", count=9)


def test_a_program_that_raises(tmp_path: Path) -> None:
    def program(_: Acknowledge) -> None:
        raise LookupError("no such order")

    with pytest.raises(AssertionError, match="LookupError: no such order"):
        crash(program, "stored")


def test_a_program_that_hangs(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError, match=r"after 0\.2 s"):
        crash(lambda _: time.sleep(60), "stored", timeout_s=0.2)


def test_a_program_that_acknowledges_more_than_a_pipe_holds() -> None:
    def program(acknowledge: Acknowledge) -> None:
        for _ in range(20):
            acknowledge(bytes(100_000))
        raise SystemExit(3)

    with pytest.raises(AssertionError, match="SystemExit: 3"):
        crash(program, "stored")


def test_arguments_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="there is no point 'lunch'; the points are stored, "):
        crash(lambda _: None, "lunch")
    with pytest.raises(ValueError, match="count is 0"):
        crash(lambda _: None, "stored", count=0)
