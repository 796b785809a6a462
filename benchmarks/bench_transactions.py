"""Transactions: begin and commit beside a put, and rounds of checks over many undecided ones."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore

COUNT = 2_000
UNDECIDED = 100_000
BODY = bytes(100)


@pytest.fixture(params=["ASYNC_FLUSH", "SYNC_FLUSH"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    with rocketstore.open(tmp_path, "a", flush_disk_type=request.param) as opened:
        opened.begin("Orders", BODY, group="g").commit()
        yield opened


def test_put(store: Any, benchmark: Any) -> None:
    put = store.put
    benchmark(lambda: [put("Orders", BODY) for _ in range(COUNT)])


def test_begin_and_commit(store: Any, benchmark: Any) -> None:
    """At most three times ``test_put`` is the aim."""
    begin = store.begin
    benchmark(lambda: [begin("Orders", BODY, group="g").commit() for _ in range(COUNT)])


@pytest.mark.parametrize("force", [False, True], ids=["immune", "copied"])
def test_check_round(force: bool, tmp_path: Path, benchmark: Any) -> None:
    """At most 0.3 s if all are immune, and 3 s if all are asked about and copied."""
    options: dict[str, Any] = {"transaction_check_max": 1 << 30}
    with rocketstore.open(tmp_path, "a", **options) as store:
        for _ in itertools.repeat(None, UNDECIDED):
            store.begin("Orders", BODY, group="g")
        benchmark.pedantic(
            store.transaction_check, args=(lambda message: None,), kwargs={"force": force}, rounds=3
        )
