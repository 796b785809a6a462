"""Sums over a store's log by group, without Spark."""

from __future__ import annotations

import datetime
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from golden.golden_stores import names, unpack

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from rocketstore.spark.jobs.stats import MEASURES, stats_table


def messages(root: Path) -> list[Any]:
    """All messages of a store."""
    with rocketstore.open(root, mode="r") as store:
        return [
            (
                m.topic,
                m.queue_id,
                m.tags,
                m.store_timestamp,
                m.store_size,
                len(m.body),
                m.queue_offset,
            )
            for m in store.scan()
        ]


@pytest.mark.parametrize("name", names("plain-", "crash-", "crc-"))
@pytest.mark.parametrize("split_bytes", [1000, 1 << 20])
def test_sums_are_those_of_a_scan(name: str, split_bytes: int, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    wanted: dict[tuple[Any, ...], list[Any]] = {}
    for message in messages(root):
        wanted.setdefault(message[:3], []).append(message[3:])
    table = stats_table(
        root, by=("topic", "queueId", "tags"), measures=tuple(MEASURES), split_bytes=split_bytes
    )
    assert table.num_rows == len(wanted)
    for row in table.to_pylist():
        times, sizes, bodies, offsets = zip(
            *wanted[row["topic"], row["queueId"], row["tags"]], strict=True
        )
        assert row["count"] == len(times)
        assert (row["bytes"], row["bodyBytes"]) == (sum(sizes), sum(bodies))
        assert (row["minQueueOffset"], row["maxQueueOffset"]) == (min(offsets), max(offsets))
        found = [row[f"{which}StoreTimestamp"].timestamp() for which in ("min", "max")]
        assert found == pytest.approx([min(times) / 1000, max(times) / 1000], abs=1e-4)


def test_buckets_of_time_and_size(tmp_path: Path) -> None:
    root = unpack("plain-5.3.3", tmp_path)
    wanted = Counter(
        (time // 500 * 500, 1 << size.bit_length() >> 1)
        for _, _, _, time, _, size, _ in messages(root)
    )
    table = stats_table(root, by="bodySize", bucket=500, measures="count", split_bytes=5000)
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    found = {
        ((row["bucket"] - epoch) // datetime.timedelta(milliseconds=1), row["bodySize"]): row[
            "count"
        ]
        for row in table.to_pylist()
    }
    assert found == wanted
    assert table.column_names == ["bodySize", "bucket", "count"]


def test_one_group(tmp_path: Path) -> None:
    root = unpack("plain-5.3.3", tmp_path)
    (row,) = stats_table(root, by=()).to_pylist()
    found = messages(root)
    assert row == {"count": len(found), "bytes": sum(message[4] for message in found)}


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"by": ["topics"]}, "did you mean 'topic'"),
        ({"by": ["topic", "topic"]}, "once"),
        ({"by": ["bucket"]}, "width"),
        ({"bucket": 0}, "milliseconds"),
        ({"measures": ["counts"]}, "did you mean 'count'"),
        ({"measures": []}, "at least one measure"),
        ({"on_corruption": "ignore"}, "must be one of fail, skip, stop"),
    ],
)
def test_wrong_questions(asked: dict[str, Any], reason: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=reason):
        stats_table(tmp_path, **asked)


def test_damage_is_reported_or_skipped(tmp_path: Path) -> None:
    root = unpack("plain-5.3.3", tmp_path)
    first = sorted((root / "commitlog").iterdir())[0]
    content = bytearray(first.read_bytes())
    with rocketstore.open(root, mode="r") as store:
        content[[m.physical_offset for m in store.scan()][9] + 4] ^= 1
    first.write_bytes(content)
    with pytest.raises(rocketstore.errors.CorruptMessageError, match=first.name):
        stats_table(root, by="topic")
    (row,) = stats_table(root, by=(), on_corruption="skip").to_pylist()
    assert 0 < row["count"] < len(messages(unpack("plain-5.3.3", tmp_path / "whole")))
