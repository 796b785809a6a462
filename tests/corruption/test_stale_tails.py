"""Stale records after a torn record, read without opening the store.

Spark took all records after a damaged one for stale: it judged the damaged record instead of those
after it. With ``fail`` a broken record in a broker's newest segment was no error.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import rocketstore
from rocketstore.errors import CorruptionError
from rocketstore.spark.base.options import parse_read
from rocketstore.spark.reading.reader import plan, read_partition

SEGMENT = 64 * 1024


def make(root: Path, begin_ms: int, count: int, queue_count: int) -> list[int]:
    """A log of ``count`` records that all have one size; their offsets."""
    ticks = iter(range(begin_ms, begin_ms + 10**6))
    with rocketstore.open(
        root, "x", clock=lambda: next(ticks), mapped_file_size_commit_log=SEGMENT
    ) as store:
        for number in range(count):
            assert store.put("T", b"x" * 100, number % queue_count).ok
    with rocketstore.open(root) as store:
        return [message.physical_offset for message in store.scan()]


def by_spark(root: Path, policy: str) -> list[int]:
    reported = parse_read({"path": str(root), "onCorruption": policy})
    return [
        offset
        for split in plan(reported)
        for batch in read_partition(reported, ["physicalOffset"], split)
        for offset in batch.column(0).to_pylist()
    ]


def forget_writer(root: Path) -> None:
    """Turn the store into a broker's, which a power failure ended."""
    (root / "rocketstore.state").unlink()
    (root / "checkpoint").unlink()
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index", ignore_errors=True)
    (root / "abort").touch()


@pytest.mark.parametrize("queue_count", [1, 3])
@pytest.mark.parametrize(("good", "torn"), [(10, 0), (10, 60), (1, 90), (17, 4), (5, 100)])
def test_older_records_after_a_torn_one_are_no_part_of_the_log(
    good: int, torn: int, queue_count: int, tmp_path: Path
) -> None:
    offsets = make(tmp_path / "former", 1_600_000_000_000, 20, queue_count)
    root = tmp_path / "store"
    assert make(root, 1_700_000_000_000, good + 1, queue_count) == offsets[: good + 1]
    former = (tmp_path / "former" / "commitlog" / ("0" * 20)).read_bytes()
    log = root / "commitlog" / ("0" * 20)
    content = log.read_bytes()
    torn_at = offsets[good] + torn
    middle = bytes(offsets[good + 1] - torn_at)
    log.write_bytes(content[:torn_at] + middle + former[offsets[good + 1] :])
    forget_writer(root)
    with rocketstore.open(root) as store:
        assert [message.physical_offset for message in store.scan()] == offsets[:good]
    for policy in ("fail", "skip", "stop"):
        assert by_spark(root, policy) == offsets[:good]


@pytest.mark.parametrize("queue_count", [1, 3])
@pytest.mark.parametrize("broken", [1, 5, 10, 17, 18])
def test_later_records_after_a_broken_one_are(
    broken: int, queue_count: int, tmp_path: Path
) -> None:
    offsets = make(tmp_path / "store", 1_700_000_000_000, 20, queue_count)
    forget_writer(tmp_path / "store")
    with open(tmp_path / "store" / "commitlog" / ("0" * 20), "r+b") as file:
        file.seek(offsets[broken] + 95)
        file.write(b"\xff" * 20)
    rest = [offset for offset in offsets if offset != offsets[broken]]
    assert by_spark(tmp_path / "store", "skip") == rest
    assert by_spark(tmp_path / "store", "stop") == offsets[:broken]
    with pytest.raises(CorruptionError, match="0" * 20):
        by_spark(tmp_path / "store", "fail")
