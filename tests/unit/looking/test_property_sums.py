"""Sums by property: limits of a call, repeated and empty properties, against ``StatsPass``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rocketstore import kernels
from rocketstore.looking.property_sums import PropertySums
from rocketstore.status import RecordStatus
from support.looked_stores import SEGMENT, make_store, plain_records


def fed(consumer: Any, content: bytes, limit: int, step: int) -> list[tuple[Any, ...]]:
    position = 0
    while True:
        upto = min(limit, position + step)
        status, position = consumer.consume(content, position, len(content), 0, SEGMENT, upto, 0)
        if status != RecordStatus.END or position >= limit:
            return sorted(consumer.take(), key=repr)


@pytest.mark.parametrize("step", [1, 700, SEGMENT])
@pytest.mark.parametrize("limit", [1, 3000, SEGMENT])
def test_fields_are_those_of_the_kernel(tmp_path: Path, step: int, limit: int) -> None:
    content = (make_store(tmp_path / "store") / "commitlog" / f"{0:020d}").read_bytes()
    fields = ("topic", "queueId", "tags")
    mine = fed(PropertySums(fields, (), 60_000), content, limit, step)
    others = kernels.passes_stats.StatsPass((*fields, "bucket"), bucket_ms=60_000)
    kernel = fed(others, content, limit, step)
    assert [(*one[:4], *one[5:]) for one in mine] == [(*one[:4], *one[5:]) for one in kernel]


def test_values(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store")
    content = (root / "commitlog" / f"{0:020d}").read_bytes()
    groups = fed(PropertySums((), ("region", "TAGS"), None), content, SEGMENT, SEGMENT)
    counts: dict[tuple[str | None, str | None], int] = {}
    for one in plain_records(root):
        if one.offset < SEGMENT and one.topic is not None:
            key = (one.properties.get("region"), one.properties.get("TAGS"))
            counts[key] = counts.get(key, 0) + 1
    assert {one[4]: one[5] for one in groups} == counts
