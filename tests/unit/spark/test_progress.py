"""Report the progress of a job to its caller."""

from __future__ import annotations

from rocketstore.spark.jobs.progress import ProgressBar


def test_parts_and_results_never_go_back() -> None:
    heard: list[tuple[int, int]] = []
    bar = ProgressBar(lambda *both: heard.append(both), 100)
    first = bar.part(60)
    assert first is not None
    first(0, 3)
    first(2, 3)
    bar.add(20)  # the tasks have ended, and their results are counted one by one
    bar.add(20)
    bar.add(20)
    second = bar.part(40)
    assert second is not None
    second(1, 2)
    first(3, 3)  # late
    bar.add(40)
    bar.end()
    assert heard == [(n, 100) for n in (0, 40, 40, 60, 80, 100, 100)]


def test_without_a_listener() -> None:
    bar = ProgressBar(None, 10)
    assert bar.part(10) is None
    bar.add(4)
    bar.end()
