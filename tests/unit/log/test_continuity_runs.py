"""``QueueRuns``: the records of a batch by queue, as ``queue_places`` has them one by one."""

from __future__ import annotations

from pathlib import Path

import pytest

import rocketstore
from golden.golden_stores import unpack
from rocketstore.log.continuity import QueueRun, QueueRuns, good_batches, queue_places
from rocketstore.log.scan import RecordBatch


def _one_by_one(batch: RecordBatch) -> dict[tuple[str, int], list[tuple[int, int, int]]]:
    found: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
    for place in queue_places(batch):
        values = (place.queue_offset, place.physical_offset, place.width)
        found.setdefault((place.topic, place.queue_id), []).append(values)
    return found


def _check(batch: RecordBatch, runs: list[QueueRun] | None) -> bool:
    """Compare the runs of a batch; return whether it has some."""
    places = _one_by_one(batch)
    is_orderly = (
        sum(map(len, places.values())) == batch.count
        and all(width == 1 for rows in places.values() for _, _, width in rows)
        and all(
            [number for number, _, _ in rows] == list(range(rows[0][0], rows[0][0] + len(rows)))
            for rows in places.values()
        )
    )
    if not is_orderly:
        assert runs is None
        return False
    assert runs is not None
    assert {run.queue: (run.first, run.following, run.place) for run in runs} == {
        key: (rows[0][0], rows[-1][0] + 1, rows[-1][1]) for key, rows in places.items()
    }
    return True


@pytest.mark.parametrize(
    "base", ["plain-5.3.3", "crash-5.3.3", "broker-5.3.3", "inner-5.3.3", "lmq-5.3.3"]
)
@pytest.mark.parametrize("capacity", [1, 7, 1024])
def test_runs_are_what_the_records_say(tmp_path: Path, base: str, capacity: int) -> None:
    root = unpack(base, tmp_path)
    with rocketstore.open(root, "r") as store:
        log, runs = store.reader.log, QueueRuns()
        batches = good_batches(log, max(log.min_offset, 0), log.max_offset, capacity)
        found = [_check(batch, runs.of(batch)) for batch in batches]
    assert any(found) or capacity > 1


def test_a_gap_inside_a_batch_has_no_runs(tmp_path: Path) -> None:
    """Two records of one queue that do not follow each other, and records of another one."""
    with rocketstore.open(tmp_path / "store", "x") as store:
        for topic in ("A", "B", "A", "A"):
            assert store.put(topic, b"x").ok
    path = next((tmp_path / "store" / "commitlog").iterdir())
    content = bytearray(path.read_bytes())
    with rocketstore.open(tmp_path / "store", "r") as store:
        last = [one.physical_offset for one in store.scan()][-1]
    assert last is not None
    content[last + 27] = 9  # the queue offset
    path.write_bytes(content)
    with rocketstore.open(tmp_path / "store", "r") as store:
        (batch,) = good_batches(store.reader.log, 0, store.reader.log.max_offset)
        assert QueueRuns().of(batch) is None
