"""``bulk_load`` in a Spark session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F  # noqa: N812

import rocketstore
from rocketstore.spark import bulk_load
from support import staging

pytestmark = pytest.mark.xdist_group("spark")
CONFIG = rocketstore.MessageStoreConfig(
    **staging.OPTIONS | {"mapped_file_size_commit_log": 1 << 20}
)


def table(spark: Any, count: int) -> Any:
    """Rows in three partitions."""
    return spark.range(0, count, 1, 3).select(
        F.col("id").cast("string").alias("body"),
        F.concat(F.lit("T"), F.col("id") % 2).alias("topic"),
        F.concat(F.lit("k"), F.col("id")).alias("keys"),
        F.lit("A").alias("tags"),
    )


def test_a_table_becomes_a_store_of_many_segments(spark: Any, tmp_path: Path) -> None:
    root = tmp_path / "store"
    report = bulk_load(table(spark, 20_000), root, queues=3, config=CONFIG)
    assert (report.path, report.rows) == (root, 20_000)
    assert report.segments == len(list((root / "commitlog").iterdir())) > 2
    assert sum(report.queues.values()) == 20_000
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    with rocketstore.open(root, "r+") as store:
        assert not store.verify().findings
        assert [int(bytes(m.body)) for m in store.scan()] == list(range(20_000))
        assert [m.body for m in store.find(topic="T1", key="k19999")] == [b"19999"]
        assert store.put("T0", b"more").ok
    assert spark.read.format("rocketstore").load(str(root)).count() == 20_001


def test_what_makes_no_store_leaves_nothing(spark: Any, tmp_path: Path) -> None:
    root = tmp_path / "store"
    with pytest.raises(Exception, match="partition 2, row 0: column body is null"):
        bulk_load(
            table(spark, 30).withColumn("body", F.when(F.col("keys") != "k20", F.col("body"))),
            root,
            config=CONFIG,
        )
    with pytest.raises(ValueError, match="no column body"):
        bulk_load(table(spark, 1).drop("body"), root)
    with pytest.raises(FileNotFoundError):
        bulk_load(table(spark, 1), tmp_path / "none" / "store")
    assert list(tmp_path.iterdir()) == []
    (root / "mine").mkdir(parents=True)
    with pytest.raises(FileExistsError):
        bulk_load(table(spark, 1), root)
    assert (root / "mine").exists()
