"""Calls on threads: the order of their answers, the first error, and what then does not begin."""

from __future__ import annotations

import threading
import time

import pytest

from rocketstore.mending.rebuilding import each


@pytest.mark.parametrize("jobs", [1, 2, 9])
@pytest.mark.parametrize("count", [0, 1, 2, 50])
def test_answers_are_in_order(jobs: int, count: int) -> None:
    assert each(lambda number: number * 2, range(count), jobs) == [2 * n for n in range(count)]


@pytest.mark.parametrize("jobs", [1, 3])
def test_the_first_error_is_raised(jobs: int) -> None:
    begun = []
    failed = threading.Event()

    def call(number: int) -> None:
        begun.append(number)
        if number == 1:
            failed.set()
            raise OSError("the second")
        if number > 1:
            assert failed.wait(30)
            time.sleep(0.005)  # the others would need seconds

    with pytest.raises(OSError, match="the second"):
        each(call, range(1000), jobs)
    assert len(begun) < 1000
