"""The core of the suite where workers are processes of their own, and through Spark Connect."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pytest

import rocketstore
from rocketstore.arrow.columns import resolve
from rocketstore.spark.jobs.fsck.job import check_store
from rocketstore.spark.jobs.index import build_index
from rocketstore.spark.jobs.stats import stats_table
from support import random_stores
from support.directory import files_below
from support.message_table import scanned

pytestmark = pytest.mark.xdist_group("spark-apart")

PROGRAM = Path(__file__).with_name("core_program.py")
ROWS = 10_000
ARTICLES = 20


def make_store(root: Path) -> None:
    """Messages of all sorts, and several prices of each article."""
    random_stores.make(root, ROWS, segment_nbytes=1 << 20)
    with rocketstore.open(root, "a") as store:
        for number in range(200):
            article = number * 7 % ARTICLES
            body = b"" if number > 180 and article % 5 == 0 else b"price %d" % number
            assert store.put("Prices", body, article % 4, keys=f"article {article}").ok


def damage(root: Path, copy: Path) -> Path:
    """A copy of the store in which one record's topic and one queue unit are spoilt."""
    shutil.copytree(root, copy)
    with rocketstore.open(root, "r") as store:
        place = [message.physical_offset for message in store.scan()][ROWS // 3]
    for path, position in (
        (copy / "commitlog" / f"{place >> 20 << 20:020}", (place & (1 << 20) - 1) + 4),
        (copy / "consumequeue" / "TopicD" / "2" / f"{0:020}", 20 * 30 + 15),
    ):
        content = bytearray(path.read_bytes())
        content[position] ^= 0x55
        path.write_bytes(content)
    return copy


def latest_prices(root: Path) -> dict[str, bytes]:
    """Article to its last price, without those whose last price is empty."""
    with rocketstore.open(root, "r") as store:
        last = {message.keys: message.body for message in store.scan(topics=["Prices"])}
    return {str(key): body for key, body in last.items() if body}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", ["cluster", "connect"])
def test_the_core(mode: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_store(root)
    damaged = damage(root, tmp_path / "damaged")
    expected = scanned(root, resolve("core"))
    with pa.ipc.new_file(tmp_path / "expected.arrow", expected.schema) as file:
        file.write_table(expected)
    paths = [str(Path(rocketstore.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, PROGRAM, mode, root, damaged, tmp_path / "expected.arrow", tmp_path],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found.pop("executors", 2) == 2
    check_jobs(found.pop("jobs"), root, damaged, expected, tmp_path)
    assert found == {
        "source": True,
        "scan": True,
        "topics": ["Prices", *(f"Topic{letter}" for letter in "ABCD")],
        "sql": pc.sum(pc.equal(expected["tags"], "red")).as_py(),
        "suggested": True,
        "written": pc.sum(pc.equal(expected["topic"], "TopicC")).as_py(),
        "watched": True,
    }


def check_jobs(
    found: dict[str, Any], root: Path, damaged: Path, expected: pa.Table, folder: Path
) -> None:
    """Compare what the jobs answered and wrote with what one process makes of the store."""
    sums = stats_table(root, by=("topic", "queueId"))
    assert found.pop("stats") == sorted([*row.values()] for row in sums.to_pylist())
    report = check_store(None, damaged, split_bytes=500_000)
    assert len(report.rows) >= 2
    counts = sorted([kind, count] for kind, count in report.finding_counts.items())
    assert found.pop("fsck") == [report.summary["records"], counts]
    assert found.pop("findings") == sorted(row[-1] for row in report.rows)
    assert files_below(folder / "queues") == files_below(root / "consumequeue")
    assert found.pop("queues") == sums.num_rows
    rows = build_index(
        None, root, folder / "wanted", max_hash_slot_num=500, max_index_num=4000, split_bytes=10**6
    )
    assert len(rows) > 1
    assert found.pop("index") == len(rows)
    assert files_below(folder / "index") == files_below(folder / "wanted")
    parts = sorted((folder / "parquet").rglob("*.parquet"))
    dataset = pyarrow.dataset.dataset([str(part) for part in parts])
    exported = dataset.to_table(columns=["physicalOffset", "body"])
    wanted = expected.select(["physicalOffset", "body"])
    assert exported.sort_by("physicalOffset").cast(wanted.schema).equals(wanted)
    assert found.pop("exported") == expected.num_rows
    chosen = pc.and_(pc.equal(expected["topic"], "TopicB"), pc.equal(expected["queueId"], 1))
    assert bodies(folder / "again", "Again") == expected.filter(chosen)["body"].to_pylist()
    prices = latest_prices(root)
    assert sorted(bodies(folder / "compact", "Prices")) == sorted(prices.values())
    (row,) = found.pop("compact")
    assert (row["keys"], row["kept"]) == (ARTICLES, len(prices))
    assert row["tombstones"] == ARTICLES - len(prices) > 0
    assert found == {"progress": True}


def bodies(root: Path, topic: str) -> list[bytes]:
    """The bodies of a topic, all that a store holds, in the order of the log."""
    with rocketstore.open(root, "r") as store:
        found = [message.detach() for message in store.scan()]
    assert {message.topic for message in found} == {topic}
    return [message.body for message in found]
