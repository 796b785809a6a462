"""Iterators on threads: the order of their items, errors in their places, and an early end."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Iterator

import pytest

from rocketstore.looking.running_ahead import in_order


def numbers(start: int, count: int, log: list[int] | None = None) -> Iterator[int]:
    for number in range(start, start + count):
        if log is not None:
            log.append(number)
        yield number


def failing(start: int) -> Iterator[int]:
    yield start
    raise OSError(f"at {start}")


@pytest.mark.parametrize("jobs", [1, 2, 3, 50])
@pytest.mark.parametrize("counts", [[], [0], [5], [0, 7, 0, 1], [3] * 20])
def test_items_are_in_order(jobs: int, counts: list[int]) -> None:
    sources = [functools.partial(numbers, place * 100, n) for place, n in enumerate(counts)]
    expected = [place * 100 + i for place, n in enumerate(counts) for i in range(n)]
    assert list(in_order(sources, jobs)) == expected


@pytest.mark.parametrize("jobs", [1, 4])
def test_an_error_comes_in_its_place(jobs: int) -> None:
    sources = [
        functools.partial(numbers, 0, 3), functools.partial(failing, 50),
        functools.partial(numbers, 100, 3),
    ]  # fmt: skip
    items = in_order(sources, jobs)
    assert [next(items) for _ in range(4)] == [0, 1, 2, 50]
    with pytest.raises(OSError, match="at 50"):
        next(items)


def test_two_run_at_a_time_and_wait_for_the_taker() -> None:
    logs: list[list[int]] = [[], [], []]
    items = in_order([functools.partial(numbers, 0, 100, log) for log in logs], 2)
    assert next(items) == 0
    deadline = time.monotonic() + 30
    while not logs[1] and time.monotonic() < deadline:
        time.sleep(0.001)
    assert logs[1]
    assert not logs[2]
    assert max(len(log) for log in logs) < 10
    assert len(list(items)) == 299


def test_threads_end_if_the_taker_stops() -> None:
    items = in_order([functools.partial(numbers, 0, 10**9)] * 3, 3)
    next(items)
    items.close()
    assert not [one for one in threading.enumerate() if one.name.startswith("rocketstore-ahead")]
