"""Filters as bounds of what is read: never too narrow. No session is needed."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from rocketstore.spark.base.options import ReadOptions
from rocketstore.spark.reading.filters import narrowed
from rocketstore.spark.source import RocketStoreSourceWithFilters
from support import random_stores

pytestmark = pytest.mark.xdist_group("spark")

PLAIN = ReadOptions("s")
TIME = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
MS = 1_767_225_600_000


@pytest.mark.parametrize(
    ("item", "changed"),
    [
        (EqualTo(("topic",), "A"), {"topics": ("A",)}),
        (In(("topic",), ("A", None, "B", "A")), {"topics": ("A", "B")}),
        (EqualTo(("tags",), "x"), {"tags": ("x",)}),
        (EqualTo(("keys",), "k"), {"keys": ("k",)}),
        (EqualTo(("keys",), "k l"), {}),
        (In(("keys",), ("k", "")), {}),
        (EqualTo(("physicalOffset",), 7), {"start": 7, "stop": 8}),
        (GreaterThan(("physicalOffset",), 7), {"start": 7}),
        (LessThan(("physicalOffset",), 7), {"stop": 8}),
        (LessThanOrEqual(("physicalOffset",), -5), {"stop": 0}),
        (GreaterThan(("physicalOffset",), -5), {}),
        (LessThan(("physicalOffset",), 2**63 - 1), {}),
        (GreaterThanOrEqual(("storeTimestamp",), TIME), {"begin": MS}),
        (LessThan(("timestamp",), TIME), {"end": MS + 1}),
        (LessThan(("storeTimestamp",), TIME.replace(tzinfo=None)), {}),
        (LessThan(("storeTimestamp",), TIME.replace(year=1960)), {}),
        (EqualTo(("queueId",), 1), {}),
        (EqualTo(("topic", "inner"), "A"), {}),
        (EqualTo(("topic",), 5), {}),
        (EqualNullSafe(("topic",), "A"), {}),
        (IsNotNull(("topic",)), {}),
        (Not(EqualTo(("topic",), "A")), {}),
        (StringStartsWith(("topic",), "A"), {}),
    ],
)
def test_bounds(item: Any, changed: dict[str, Any]) -> None:
    short = {
        "start": "starting_physical_offset",
        "stop": "ending_physical_offset",
        "begin": "starting_timestamp",
        "end": "ending_timestamp",
    }
    found = narrowed(PLAIN, [item])
    assert found == ReadOptions("s", **{short.get(k, k): v for k, v in changed.items()})


def test_bounds_meet_those_of_the_options() -> None:
    given = ReadOptions(
        "s", topics=("A", "B"), keys=("k",), starting_physical_offset=10, ending_physical_offset=20
    )
    filters = [
        EqualTo(("topic",), "B"),
        EqualTo(("keys",), "l"),
        GreaterThan(("physicalOffset",), 5),
        LessThan(("physicalOffset",), 15),
    ]
    found = narrowed(given, filters)
    assert (found.topics, found.keys) == (("B",), ("k",))
    assert (found.starting_physical_offset, found.ending_physical_offset) == (10, 16)
    assert narrowed(given, [EqualTo(("topic",), "C")]).topics == ()


def test_bounds_of_a_filter_lose_no_data(tmp_path: Path) -> None:
    root = tmp_path / "store"
    random_stores.make(root, 6000, segment_nbytes=1 << 18)
    first, second = sorted((root / "commitlog").iterdir())[:2]
    first.unlink()
    source = RocketStoreSourceWithFilters({"path": str(root)})
    reader = source.reader(source.schema())
    whole = len(reader.partitions())
    reader.pushFilters([GreaterThan(("physicalOffset",), 5)])
    assert len(reader.partitions()) == whole > 0
    reader.pushFilters([GreaterThanOrEqual(("physicalOffset",), int(second.name) * 2)])
    assert 0 < len(reader.partitions()) < whole
    reader.pushFilters([EqualTo(("topic",), "A"), EqualTo(("topic",), "B")])
    assert reader.partitions() == []


def test_spark_checks_every_filter_again() -> None:
    source = RocketStoreSourceWithFilters({"path": "s"})
    filters = [EqualTo(("topic",), "A"), IsNotNull(("body",))]
    assert list(source.reader(source.schema()).pushFilters(filters)) == filters
