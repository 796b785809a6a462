"""The index jobs as Spark tasks: the same files and findings as without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.errors import CorruptMessageError
from rocketstore.sources.segments import list_log
from rocketstore.sources.splits import plan_splits
from rocketstore.sources.walk import log_end
from rocketstore.spark import rebuild_index
from rocketstore.spark.jobs.fsck.index import IndexFindings
from support.directory import files_below
from support.index_checking import check_index

pytestmark = pytest.mark.xdist_group("spark")


@pytest.fixture(scope="module")
def store_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("jobs-index") / "store"
    ticks = iter(range(1_700_000_000_000, 1_800_000_000_000, 700))
    with rocketstore.open(
        root,
        "x",
        clock=lambda: next(ticks),
        mapped_file_size_commit_log=65536,
        max_hash_slot_num=50,
        max_index_num=700,
    ) as store:
        for number in range(600):
            assert store.put("TopicA", b"x" * (number % 300), 0, "Tag", f"k{number} shared").ok
        assert store.wait_dispatched(60)
    return root


def test_an_index_is_made_in_tasks(spark: Any, store_root: Path, tmp_path: Path) -> None:
    frame = rebuild_index(spark, store_root, tmp_path / "index", split_bytes=40_000)
    rows = frame.orderBy("path").collect()
    made = sorted((tmp_path / "index").iterdir())
    assert [row.path for row in rows] == [str(path) for path in made]
    assert sum(row.keys for row in rows) == 1800
    with rocketstore.open(store_root, "r") as store:
        first = next(iter(store.scan()))
    assert rows[0].beginTimestamp == first.store_timestamp
    assert rows[0].beginPhysicalOffset == 0
    original = files_below(store_root / "index")
    assert list(files_below(tmp_path / "index").values()) == list(original.values())


def check(spark: Any, root: Path) -> IndexFindings:
    log = list_log(root)
    splits = plan_splits(log, split_bytes=100_000)
    return check_index(spark, log, splits, log_end=log_end(log))


def test_the_index_is_checked_in_tasks(spark: Any, store_root: Path, tmp_path: Path) -> None:
    sound = check(spark, store_root)
    assert sound.findings == []
    assert sound.summary["keys"] == 1800
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "commitlog").symlink_to(store_root / "commitlog")
    (tmp_path / "store" / "index").mkdir()
    one, *_, last = sorted((store_root / "index").iterdir())
    (tmp_path / "store" / "index" / one.name).write_bytes(one.read_bytes())
    (tmp_path / "store" / "index" / last.name).write_bytes(last.read_bytes())
    log = list_log(store_root)
    splits = plan_splits(log, split_bytes=100_000)
    index = str(tmp_path / "store" / "index")
    reported = [
        check_index(session, log, splits, log_end=log_end(log), index_uri=index)
        for session in (spark, None)
    ]
    assert reported[0] == reported[1]
    assert set(reported[0].finding_counts) >= {"missing-key"}


def test_what_is_wrong_comes_home_as_itself(spark: Any, store_root: Path, tmp_path: Path) -> None:
    log = tmp_path / "commitlog"
    log.mkdir()
    for path in (store_root / "commitlog").iterdir():
        (log / path.name).write_bytes(path.read_bytes())
    first = log / f"{0:020}"
    content = bytearray(first.read_bytes())
    content[5000:6000] = bytes(1000)
    first.write_bytes(content)
    with pytest.raises(CorruptMessageError, match=first.name) as raised:
        rebuild_index(spark, log, tmp_path / "index", max_hash_slot_num=5, max_index_num=99)
    assert raised.value.path == str(first)
    assert not (tmp_path / "index").exists()
