"""How far a job is: what a caller is told."""

from __future__ import annotations

from rocketstore.spark.jobs.progress import Told


def test_parts_and_results_never_go_back() -> None:
    heard: list[tuple[int, int]] = []
    told = Told(lambda *both: heard.append(both), 100)
    first = told.part(60)
    assert first is not None
    first(0, 3)
    first(2, 3)
    told.add(20)  # the tasks have ended, and their results are counted one by one
    told.add(20)
    told.add(20)
    second = told.part(40)
    assert second is not None
    second(1, 2)
    first(3, 3)  # late
    told.add(40)
    told.end()
    assert heard == [(n, 100) for n in (0, 40, 40, 60, 80, 100, 100)]


def test_nobody_listens() -> None:
    told = Told(None, 10)
    assert told.part(10) is None
    told.add(4)
    told.end()
