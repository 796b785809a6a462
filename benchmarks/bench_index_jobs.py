"""Index jobs without Spark: gathering keys, making index files, checking them against the log.

``cpu_us_per_row`` in a result's extra information is the processor's time of this process for each
record of the log, which other work on the machine disturbs less than the clock; as many tasks work
at once as there are cores. Records of 300 bytes with UNIQ_KEY, one key and tags, so three entries.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.sources.segments import list_log
from rocketstore.sources.splits import plan_splits
from rocketstore.sources.walk import log_end, walk
from rocketstore.spark.jobs.index import build_index
from support.index_checking import check_index
from support.kernel_bodies import Bodies

ROWS = {"native": 200_000, "reference": 2_000}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    folder = tmp_path_factory.mktemp("index-jobs")
    yield {body: _make(folder / body, rows) for body, rows in ROWS.items()}
    shutil.rmtree(folder)


def _make(root: Path, rows: int) -> Path:
    data = random.Random(5).randbytes(4096)
    with rocketstore.open(
        root,
        "x",
        mapped_file_size_commit_log=16 << 20,
        max_hash_slot_num=100_000,
        max_index_num=400_000,
    ) as store:
        messages = (
            rocketstore.Message(
                f"TopicTest{number % 4}",
                data[number % 3900 :][: 64 + number % 127],
                properties={
                    "UNIQ_KEY": f"7F000001{number:024X}",
                    "KEYS": f"order-{number:08}",
                    "WAIT": "true",
                    "TAGS": f"Tag{number % 5}",
                },
            )
            for number in range(rows)
        )
        assert len(store.put_many(messages)) == rows
        assert store.wait_dispatched(300)
    return root


def _measure(benchmark: Any, rows: int, run: Callable[[], int], expected: int) -> None:
    fastest = float("inf")

    def timed() -> None:
        nonlocal fastest
        start = time.process_time()
        found = run()
        fastest = min(fastest, time.process_time() - start)
        assert found == expected

    benchmark.pedantic(timed, rounds=5, warmup_rounds=1)
    benchmark.extra_info["cpu_us_per_row"] = round(fastest / rows * 1e6, 3)


@pytest.mark.parametrize("body", list(ROWS))
@pytest.mark.parametrize("what", ["count", "count and crc", "keys"])
def test_pass(benchmark: Any, stores: dict[str, Path], what: str, body: str) -> None:
    splits = plan_splits(list_log(stores[body]))
    counts = what != "keys"

    def run() -> int:
        found = 0
        keys = Bodies(body).passes_index_keys.IndexKeysPass(counts_only=counts)
        for split in splits:
            for _ in walk(split, keys, check_crc=what == "count and crc"):
                found += keys.take_count() if counts else len(keys.take()[0])
        return found

    _measure(benchmark, ROWS[body], run, 3 * ROWS[body])


def test_rebuild_index(benchmark: Any, stores: dict[str, Path], tmp_path: Path) -> None:
    """Read the log twice, and sync the files."""

    def run() -> int:
        rows = build_index(None, stores["native"], tmp_path / "index")
        shutil.rmtree(tmp_path / "index")
        return sum(row.keys for row in rows)

    _measure(benchmark, ROWS["native"], run, 3 * ROWS["native"])


def test_check_index(benchmark: Any, stores: dict[str, Path]) -> None:
    """The index part of fsck: every file by itself, then every split against its entries."""
    log = list_log(stores["native"])
    splits, end = plan_splits(log), log_end(log)

    def run() -> int:
        return check_index(None, log, splits, log_end=end).summary["keys"]

    _measure(benchmark, ROWS["native"], run, 3 * ROWS["native"])
