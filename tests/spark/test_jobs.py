"""Jobs over whole stores as Spark runs them: what they do is tested without Spark elsewhere."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from golden import golden_stores
from rocketstore.errors import CorruptMessageError
from rocketstore.spark import fsck, rebuild_consume_queues, stats
from rocketstore.spark.jobs.fsck.job import check_store
from support.directory import files_below

pytestmark = pytest.mark.xdist_group("spark")


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    """A store that RocketMQ wrote."""
    return golden_stores.unpack("plain-5.3.3", tmp_path)


def test_stats(spark: Any, golden: Path) -> None:
    with rocketstore.open(golden, mode="r") as store:
        wanted = Counter((m.topic, m.tags) for m in store.scan())
        times = [m.store_timestamp for m in store.scan()]
    found = stats(spark, golden, by=("topic", "tags"), measures="count", split_bytes=40000)
    assert found.columns == ["topic", "tags", "count"]
    assert {(row.topic, row.tags): row[2] for row in found.collect()} == wanted
    (row,) = stats(spark, golden, by=(), measures=("count", "minStoreTimestamp")).collect()
    assert row[0] == sum(wanted.values())
    assert row.minStoreTimestamp.timestamp() == pytest.approx(min(times) / 1000, abs=1e-4)


def test_stats_of_an_empty_store(spark: Any, tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "store", "x"):
        pass
    found = stats(spark, tmp_path / "store", by="topic")
    assert found.collect() == []
    (row,) = stats(spark, tmp_path / "store", by=()).collect()
    assert tuple(row) == (0, 0)


def test_queue_files(spark: Any, golden: Path, tmp_path: Path) -> None:
    rows = rebuild_consume_queues(spark, golden, tmp_path / "out", split_bytes=40000)
    assert files_below(tmp_path / "out") == files_below(golden / "consumequeue")
    with rocketstore.open(golden, mode="r") as store:
        for row in rows.collect():
            assert row.maxOffset == store.max_offset_in_queue(row.topic, row.queueId)


def test_fsck(spark: Any, golden: Path) -> None:
    report = fsck(spark, golden, split_bytes=40000)
    assert report.ok
    assert report.findings.count() == 0
    (path,) = sorted((golden / "commitlog").iterdir())[:1]
    content = bytearray(path.read_bytes())
    with rocketstore.open(golden, mode="r") as store:
        content[[m.physical_offset for m in store.scan()][7] + 4] ^= 1
    path.write_bytes(content)
    report = fsck(spark, golden, split_bytes=40000)
    wanted = check_store(None, golden, split_bytes=40000)
    assert not report.ok
    assert sorted(report.rows, key=str) == sorted(wanted.rows, key=str)
    found = report.findings.where("kind = 'record'").collect()
    assert [(row.path, row.severity) for row in found] == [(str(path), "error")]
    with pytest.raises(CorruptMessageError, match=path.name):
        rebuild_consume_queues(spark, golden, golden.parent / "out")
    assert not (golden.parent / "out").exists()
