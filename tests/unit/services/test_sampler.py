"""Samples of totals, and rates over windows."""

from __future__ import annotations

import threading
from itertools import pairwise

import pytest

from rocketstore.services.sampler import Sampler


class Clock:
    """A clock that tests move, and the totals at that time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.totals: tuple[int, ...] = (0, 0)

    def __call__(self) -> float:
        return self.now

    def sampler(self) -> Sampler:
        return Sampler(lambda: self.totals, lambda: self.now, self)


def test_a_window_begins_at_the_newest_old_enough_sample() -> None:
    clock = Clock()
    sampler = clock.sampler()
    clock.now, clock.totals = 9.0, (90, 9)
    assert sampler.rates() == [(None, None, None)] * 2
    sampler.step()
    clock.now, clock.totals = 20.0, (200, 9)
    assert sampler.rates() == [(10.0, None, None), (0.0, None, None)]
    sampler.step()
    clock.now, clock.totals = 60.0, (600, 60)
    ten, minute, longest = sampler.rates()[1]
    assert ten == pytest.approx(51 / 40)
    assert minute == 1.0
    assert longest is None


def test_rates_are_right_whenever_they_are_asked_for() -> None:
    clock = Clock()
    sampler = clock.sampler()
    for second in range(1, 5000):
        clock.now = second * 1.01
        clock.totals = (second * 5, 0 if second < 4990 else 7)
        sampler.step()
        sampler.step()  # too early: it takes none
    assert sampler.rates()[0] == pytest.approx((5 / 1.01,) * 3)
    assert sampler.rates()[1] == pytest.approx((7 / 10.1, 7 / 60.6, 7 / 600.95), rel=1e-3)
    assert len(sampler._seconds) <= 596


def test_the_last_minute_is_complete() -> None:
    clock = Clock()
    sampler = clock.sampler()
    for second in range(59):
        clock.now = float(second)
        sampler.step()
    assert sampler.last_minute() is None
    for second in range(60, 130):
        clock.now = float(second)
        sampler.step()
    assert sampler.last_minute() == (60.0, 120.0)


def test_samples_begin_when_they_are_said_to() -> None:
    clock = Clock()
    clock.now, clock.totals = 100.0, (50, 0)
    sampler = Sampler(lambda: clock.totals, lambda: None, clock, began_at=50.0)
    assert sampler.rates()[0] == (1.0, None, None)


def test_threads_may_sample_at_once() -> None:
    clock = Clock()
    sampler = clock.sampler()

    def run() -> None:
        for _ in range(300):
            sampler.step()
            sampler.rates()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for second in range(300):
        clock.now = float(second)
    for thread in threads:
        thread.join()
    times = [at for at, _ in sampler._seconds]
    assert times == sorted(times)
    assert all(later - one >= 0.9 for one, later in pairwise(times))
