"""Reading by ``mapInArrow``, and jobs that run on it: what works with PySpark 3.5, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest

import rocketstore
from golden import golden_stores
from rocketstore.spark import export_parquet, replay, scan, stats

pytestmark = pytest.mark.xdist_group("spark")

NAMES = ["physicalOffset", "topic", "queueId", "queueOffset", "tags", "keys", "body"]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return golden_stores.unpack("plain-5.3.3", tmp_path_factory.mktemp("golden"))


@pytest.fixture(scope="module")
def expected(store: Path) -> list[tuple[Any, ...]]:
    with rocketstore.open(store) as opened:
        return [
            (
                *(one.physical_offset, one.topic, one.queue_id, one.queue_offset),
                *(one.tags, one.keys, one.body),
            )
            for one in opened.scan()
        ]


def test_scan_yields_every_message_in_log_order(
    spark: Any, store: Path, expected: list[tuple[Any, ...]]
) -> None:
    """Splits of 10 kB begin in the midst of records."""
    frame = scan(spark, store, columns=NAMES, split_bytes=10_000)
    rows = [(*row[:-1], bytes(row[-1])) for row in frame.collect()]
    assert rows == expected


def test_scan_with_filters(spark: Any, store: Path, expected: list[tuple[Any, ...]]) -> None:
    frame = scan(spark, str(store), topics="TopicA", tags=["TagA"], columns="physicalOffset")
    wanted = [row[0] for row in expected if row[1] == "TopicA" and row[4] == "TagA"]
    assert sorted(row[0] for row in frame.collect()) == wanted
    assert wanted


def test_stats(spark: Any, store: Path, expected: list[tuple[Any, ...]]) -> None:
    rows = stats(spark, store, by="topic", measures="count").collect()
    topics = {row[1] for row in expected}
    counts = {topic: sum(row[1] == topic for row in expected) for topic in topics}
    assert {row["topic"]: row["count"] for row in rows} == counts


def test_export(spark: Any, store: Path, expected: list[tuple[Any, ...]], tmp_path: Path) -> None:
    files = export_parquet(spark, str(store), str(tmp_path / "out"), partition_by=()).collect()
    paths = [str(tmp_path / "out" / file["path"]) for file in files]
    table = pyarrow.dataset.dataset(paths).to_table()
    bodies = dict(zip(table["physicalOffset"].to_pylist(), table["body"].to_pylist(), strict=True))
    assert bodies == {row[0]: row[-1] for row in expected}
    again = spark.read.parquet(str(tmp_path / "out"))
    assert again.count() == len(expected)


def test_replay_gives_the_sinks_columns(spark: Any, store: Path) -> None:
    frame = replay(spark, store, topics="TopicA", unpack=False, where="queueOffset < 3")
    rows = frame.collect()
    with rocketstore.open(store) as opened:
        wanted = [
            one
            for one in opened.scan(topics=["TopicA"])
            if one.queue_offset < 3 and one.sys_flag & 0xC in (0, 8)
        ]
    assert [bytes(row["body"]) for row in rows] == [one.body for one in wanted]
    own = {"TAGS", "KEYS", "DELAY", "__CRC32#"}
    assert [row["properties"] for row in rows] == [
        {name: value for name, value in one.properties.items() if name not in own} for one in wanted
    ]
