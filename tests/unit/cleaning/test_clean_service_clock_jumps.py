"""A clock that jumps while a store is open makes no message old."""

from __future__ import annotations

import datetime
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.cleaning.clean_service import AgingClock

MINUTE, HOUR, DAY = 60, 3_600, 86_400
START_MS = 1_763_000_000_000


class Clocks:
    """A clock of the day and a monotonic one, both moved by hand."""

    def __init__(self) -> None:
        self.wall_ms: Any = START_MS
        self.mono_s = 1000.0
        self.aging = AgingClock(self.wall, lambda: self.mono_s)

    def wall(self) -> int:
        if isinstance(self.wall_ms, Exception):
            raise self.wall_ms
        return self.wall_ms  # type: ignore[no-any-return]

    def run(self, seconds: float, looks: int = 10) -> int:
        """Let both go on, with some looks; what messages are aged by, ms since the start."""
        for _ in range(looks):
            self.mono_s += seconds / looks
            if type(self.wall_ms) is int:
                self.wall_ms += round(seconds / looks * 1000)
            now = self.aging.now()
        return now - START_MS


def test_without_a_jump_time_is_time() -> None:
    assert Clocks().run(10 * DAY) == 10 * DAY * 1000


@pytest.mark.parametrize(
    "jump_s", [1, 59, HOUR, 2 * HOUR, 400 * DAY, 100 * 365 * DAY], ids=lambda s: f"{s} s"
)
def test_a_jump_forward_ages_nothing_for_a_day(
    jump_s: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A dead battery, a bad answer of a time server, a machine that slept."""
    clocks = Clocks()
    clocks.run(HOUR)
    clocks.wall_ms += jump_s * 1000
    with caplog.at_level(logging.WARNING):
        assert clocks.run(23 * HOUR) == DAY * 1000
    assert len(caplog.records) == (jump_s >= MINUTE)
    assert "ahead" in caplog.text or jump_s < MINUTE
    # It has said so for a day: that is what the time is.
    assert clocks.run(5 * HOUR) == (29 * HOUR + jump_s) * 1000


@pytest.mark.parametrize("jump_s", [1, HOUR, 400 * DAY])
def test_a_jump_forward_and_back_again_leaves_no_trace(jump_s: int) -> None:
    clocks = Clocks()
    for _ in range(5):
        clocks.wall_ms += jump_s * 1000
        clocks.run(20 * HOUR)
        clocks.wall_ms -= jump_s * 1000
        clocks.run(HOUR)
    assert clocks.run(3 * DAY) == (5 * 21 * HOUR + 3 * DAY) * 1000


def test_small_jumps_add_up_to_no_large_one() -> None:
    """A clock that runs twice as fast, and one that hops ever further: each step looks small."""
    clocks = Clocks()
    for _ in range(12 * 60):
        clocks.wall_ms += 50_000
        clocks.run(MINUTE, 1)
    assert clocks.run(0, 1) == 12 * HOUR * 1000


@pytest.mark.parametrize("jump_s", [-1, -HOUR, -400 * DAY, -50 * 365 * DAY])
def test_a_jump_back_makes_messages_younger_at_the_most(jump_s: int) -> None:
    clocks = Clocks()
    clocks.run(HOUR)
    clocks.wall_ms += jump_s * 1000
    assert clocks.run(HOUR) == (2 * HOUR + jump_s) * 1000
    clocks.wall_ms -= jump_s * 1000  # and forward again, which may be wrong
    assert clocks.run(HOUR) == (3 * HOUR + jump_s) * 1000


@pytest.mark.parametrize(
    "broken",
    ["12:00", None, 1.5, True, b"", [], OSError("no clock"), ZeroDivisionError()],
    ids=repr,
)
def test_a_clock_without_a_time(broken: Any, caplog: pytest.LogCaptureFixture) -> None:
    """It ended all cleaning, and with it all writing."""
    clocks = Clocks()
    clocks.run(HOUR)
    right, clocks.wall_ms = clocks.wall_ms, broken
    with caplog.at_level(logging.WARNING):
        assert clocks.run(HOUR) == 2 * HOUR * 1000
    assert len(caplog.records) == 1
    clocks.wall_ms = right + HOUR * 1000
    assert clocks.run(HOUR) == 3 * HOUR * 1000


# --- a running store ------------------------------------------------------------------------------


def wait_for(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not done() and time.monotonic() < end:
        time.sleep(0.005)
    assert done()


class Running:
    """A store whose cleaning services look every few milliseconds, under a clock set by hand."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
        monkeypatch.setattr("rocketstore.cleaning.clean_service.FIRST_LOOK_S", 0.01)
        self.root = root
        self.jump_ms: Any = 0
        hours: dict[str, Any] = {"delete_when": ";".join(f"{h:02}" for h in range(24))}
        self.store = rocketstore.open(
            root,
            "a",
            mapped_file_size_commit_log=16384,
            clean_resource_enable=True,
            clean_resource_interval=10,
            delete_commit_log_files_interval=0,
            timezone="UTC",
            clock=self.clock,
            **(hours | options),
        )
        writer = self.store._writer
        assert writer is not None
        self.service = writer.cleaning.log_service
        self.looks = 0
        look = self.service._look

        def counted() -> None:
            look()
            self.looks += 1

        monkeypatch.setattr(self.service, "_look", counted)

    def clock(self) -> int:
        if not isinstance(self.jump_ms, int):
            return self.jump_ms  # type: ignore[no-any-return]
        return time.time_ns() // 1_000_000 + self.jump_ms

    def fill(self) -> int:
        for _ in range(150):
            assert self.store.put("T", b"x" * 700).ok
        self.store.wait_dispatched()
        self.store.flush()
        return self.segments()

    def segments(self) -> int:
        return len(list((self.root / "commitlog").iterdir()))

    def look(self) -> int:
        """Let it look three times more; the segments that are there then."""
        seen = self.looks
        wait_for(lambda: self.looks >= seen + 3)
        return self.segments()


@pytest.mark.parametrize("jump_s", [80 * HOUR, 400 * DAY, 3 * 365 * DAY])
def test_a_running_store_keeps_what_a_jump_alone_makes_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump_s: int
) -> None:
    """One segment was left seconds after the clock was wrong."""
    running = Running(tmp_path / "s", monkeypatch)
    count = running.fill()
    assert count > 5
    running.jump_ms = jump_s * 1000
    assert running.look() >= count
    running.store.execute_delete_files_manually()
    assert running.look() >= count
    # A person's call takes the clock as it is.
    report = running.store.clean_expired(what_if=True)
    assert len(report.files) >= count - 2
    running.store.clean_expired()
    assert running.segments() <= 2
    running.store.close()


def test_a_store_that_was_closed_for_long_expires_as_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = Running(tmp_path / "s", monkeypatch)
    running.fill()
    running.store.close()
    with monkeypatch.context() as patch:
        later = time.time_ns() // 1_000_000 + 10 * DAY * 1000
        real = Running.clock
        patch.setattr(Running, "clock", lambda self: later if self.jump_ms == 0 else real(self))
        again = Running(tmp_path / "s", patch)
        wait_for(lambda: again.segments() <= 2)
        again.store.close()


@pytest.mark.parametrize("broken", ["text", None, -5, 2**62, -(2**62)], ids=repr)
def test_an_odd_clock_deletes_nothing_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: Any
) -> None:
    running = Running(tmp_path / "s", monkeypatch)
    count = running.fill()
    if isinstance(broken, int):
        monkeypatch.setattr(Running, "clock", lambda self: broken)
        running.service._aging._clock = lambda: broken
        running.service._clock = lambda: broken
    else:
        running.jump_ms = broken
    assert running.look() >= count
    running.service._aging._clock = running.service._clock = lambda: time.time_ns() // 1_000_000
    running.jump_ms = 0
    assert running.service.failure is None
    monkeypatch.undo()
    running.store.close()


def test_the_hour_of_the_day_is_the_clock_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which hour it is decides when files go, not which."""
    hour = datetime.datetime.now(datetime.UTC).hour
    running = Running(tmp_path / "s", monkeypatch, delete_when=f"{(hour + 12) % 24:02}")
    count = running.fill()
    running.jump_ms = 12 * HOUR * 1000  # 12 hours: none is old enough
    assert running.look() >= count
    assert running.service._is_hour() or datetime.datetime.now(datetime.UTC).minute == 59
    running.store.close()
