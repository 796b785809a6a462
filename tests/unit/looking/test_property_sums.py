"""Sums by property: limits of a call, repeated and empty properties, against ``StatsPass``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import kernels
from rocketstore.looking import property_sums
from rocketstore.looking.log_source import open_log, whole_segments
from rocketstore.looking.property_sums import PropertySums
from rocketstore.sources.walk import walk
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


def test_it_is_full_at_the_end_of_a_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Only full rows were looked at, so that the groups of a whole segment were kept.
    monkeypatch.setattr(property_sums, "_MAX_GROUPS", 100)
    root = tmp_path / "store"
    messages = [
        rocketstore.Message("T", b"x" * 2000, properties={"n": str(number)})
        for number in range(5000)
    ]
    with rocketstore.open(root, "x", mapped_file_size_commit_log=32 << 20) as store:
        store.put_many(messages)
    sums = PropertySums([], ["n"], None)
    (split,) = whole_segments(open_log(root))
    counts = [len(sums.take()) for _ in walk(split, sums)]
    assert sum(counts) == 5000
    assert max(counts) < 1000
