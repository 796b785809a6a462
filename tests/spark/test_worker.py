"""What tasks leave in the Python workers that Spark uses again."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext

from golden import golden_stores
from rocketstore.spark import scan, stats
from rocketstore.spark.base import worker
from rocketstore.spark.base.options import ReadOptions
from rocketstore.spark.base.worker import begin_task
from rocketstore.spark.reading.reader import plan, read_partition

pytestmark = pytest.mark.xdist_group("spark")

_TASKS = 8


def _frozen_counts(spark: Any) -> list[int]:
    """How many objects the collector skips, in the workers of some tasks."""

    def count(batches: Iterator[Any]) -> Iterator[Any]:
        import gc

        import pyarrow as pa

        for batch in batches:
            counts = [gc.get_freeze_count()] * batch.num_rows
            yield pa.RecordBatch.from_pydict({"id": pa.array(counts, pa.int64())})

    frame = spark.range(0, _TASKS, 1, _TASKS).mapInArrow(count, "id bigint")
    return [row.id for row in frame.collect()]


@pytest.mark.parametrize("way", ["scan", "job"])
def test_a_worker_skips_what_is_loaded(spark: Any, tmp_path: Path, way: str) -> None:
    """A reused worker collects garbage after each task; it need not scan what is loaded."""
    store = str(golden_stores.unpack("plain-5.3.3", tmp_path))
    jobs = {
        "scan": lambda: scan(spark, store, split_bytes=4096).count(),
        "job": lambda: stats(spark, store, split_bytes=4096).count(),
    }
    assert jobs[way]() > 0
    assert max(_frozen_counts(spark)) > 0


def test_each_worker_does_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The source does not use the workers of ``mapInArrow``, so this test simulates them."""
    calls = []
    monkeypatch.setattr(TaskContext, "get", lambda: "a task")
    monkeypatch.setattr(worker, "_is_settled", False)
    monkeypatch.setattr(gc, "freeze", lambda: calls.append("freeze"))
    options = ReadOptions(str(golden_stores.unpack("plain-5.3.3", tmp_path)))
    for split in plan(options) * 2:
        assert sum(batch.num_rows for batch in read_partition(options, ["queueId"], split))
    assert calls == ["freeze"]


def test_a_process_that_is_no_worker_is_left_as_it_is() -> None:
    before = gc.get_freeze_count()
    begin_task()
    assert gc.get_freeze_count() == before
