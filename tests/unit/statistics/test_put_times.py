"""Classes and buckets of put times."""

from __future__ import annotations

import pytest

from rocketstore.statistics.put_times import (
    BOUNDS,
    Times,
    distribution,
    percentile,
    times_between,
)


def test_the_buckets_are_those_of_rocketmq() -> None:
    assert BOUNDS[:21] == (*range(1, 21), 22)
    assert BOUNDS[-12:-1] == (900, 1000, *range(2000, 10_001, 1000))
    assert len(BOUNDS) == len(set(BOUNDS)) == 20 + 15 + 10 + 10 + 6 + 5 + 9 + 1


@pytest.mark.parametrize(
    ("times", "share", "expected"),
    [
        ({}, 0.99, 0.0),
        ({0: 100}, 0.99, 0.99),
        ({0: 100}, 0.999, 0.99),
        ({0: 50, 30: 50}, 0.99, 28 + 2 * 49 / 50),
        ({30: 100}, 0.5, 29.0),
    ],
)
def test_a_percentile_lies_inside_its_bucket(
    times: dict[int, int], share: float, expected: float
) -> None:
    assert percentile(times, share) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("elapsed", "label"),
    [
        (0, "[<=0ms]"), (1, "[0~10ms]"), (9, "[0~10ms]"), (10, "[10~50ms]"), (999, "[500ms~1s]"),
        (1000, "[1~2s]"), (9999, "[5~10s]"), (10_000, "[10s~]"), (10**7, "[10s~]"),
    ],
)  # fmt: skip
def test_a_time_counts_in_one_class(elapsed: int, label: str) -> None:
    found = distribution({elapsed: 3})
    assert len(found) == 13
    assert {name: count for name, count in found.items() if count} == {label: 3}


NONE: Times = (0, 0, {}, {})


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (NONE, NONE, {}),
        (NONE, (640, 0, {0: 10}, {}), {0: 640}),
        (NONE, (640, 9, {0: 9, 9: 1}, {}), {0: 576, 9: 64}),
        (NONE, (3, 0, {}, {}), {0: 3}),  # none of the sample: they count as 0 ms
        (NONE, (10, 25, {0: 1}, {25: 4}), {25: 4, 0: 6}),
        ((640, 9, {0: 9, 9: 1}, {25: 2}), (740, 9, {0: 11, 9: 1}, {25: 3, 2: 1}), {
            25: 1, 2: 1, 0: 98,
        }),
        (NONE, (100, 3, {0: 1, 1: 1, 3: 1}, {}), {3: 33, 1: 33, 0: 34}),
    ],
)  # fmt: skip
def test_the_sample_stands_for_all_puts_that_never_waited(
    before: Times, after: Times, expected: dict[int, int]
) -> None:
    found = times_between(before, after)
    assert {ms: count for ms, count in found.items() if count} == expected
    assert sum(found.values()) == after[0] - before[0]
