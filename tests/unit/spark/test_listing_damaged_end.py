"""What Spark reads of a store whose last record is broken: batches and streams, without Spark.

After an orderly stop there is no torn write, with a state file or without. A walk along the log
alone did not detect that: a stream, and with RocketMQ's stores a batch, too, ended before the
record without an error, where ``scan`` raises one.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import rocketstore
from golden import golden_stores
from rocketstore import formats
from rocketstore.errors import CorruptMessageError
from rocketstore.sources.policy import plan_reading
from rocketstore.spark.base.options import parse_read
from rocketstore.spark.reading.listing import list_to_read
from rocketstore.spark.reading.reader import read_partition
from rocketstore.spark.stream.plan import StreamPlan

STORES = ["plain-4.9.8", "plain-5.1.4", "plain-5.3.3", "plain-5.5.0", "lmq-5.3.3", "own"]


def flip(record: bytearray) -> None:
    record[formats.RECORD_HEAD.at("body_crc") + 3] ^= 0xFF


def zero_the_end(record: bytearray) -> None:
    record[len(record) // 2 :] = bytes(len(record) - len(record) // 2)


def zero(record: bytearray) -> None:
    record[:] = bytes(len(record))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def get(name: str) -> Path:
        if name not in made and name != "own":
            made[name] = golden_stores.unpack(name, tmp_path_factory.mktemp(name))
        elif name not in made:
            made[name] = tmp_path_factory.mktemp(name) / "store"
            with rocketstore.open(made[name], "x", mapped_file_size_commit_log=4096) as store:
                for _ in range(60):
                    store.put("T", b"x" * 200)
        return made[name]

    return get


def break_last(root: Path, harm: Callable[[bytearray], None]) -> int:
    """Break the last record; return how many are before it."""
    with rocketstore.open(root) as store:
        messages = list(store.scan())
        at, nbytes = messages[-1].physical_offset, messages[-1].store_size
    path = [p for p in sorted((root / "commitlog").iterdir()) if int(p.name) <= at][-1]
    content = bytearray(path.read_bytes())
    start = at - int(path.name)
    record = content[start : start + nbytes]
    harm(record)
    content[start : start + nbytes] = record
    path.write_bytes(content)
    return len(messages) - 1


def batch(root: Path, on_corruption: str) -> int:
    options = parse_read({"path": str(root), "onCorruption": on_corruption})
    splits = plan_reading(list_to_read(root, on_corruption), on_corruption, split_bytes=1 << 20)
    return sum(
        table.num_rows
        for split in splits
        for table in read_partition(options, ["physicalOffset"], split)
    )


def stream(root: Path, on_corruption: str) -> int:
    options = {"path": str(root), "onCorruption": on_corruption, "startingOffsets": "earliest"}
    plan = StreamPlan(parse_read(options))
    at, count = plan.initial(), 0
    while (end := plan.advance(at)) != at:
        for split, _ in plan.splits(at, end):
            for table in read_partition(plan.options, ["physicalOffset"], split):
                count += table.num_rows
        at = end
    return count


@pytest.mark.parametrize("read", [batch, stream])
@pytest.mark.parametrize(
    ("name", "harm"),
    [
        *[(name, flip) for name in STORES],
        ("plain-5.3.3", zero_the_end),
        ("own", zero_the_end),
        ("plain-4.9.8", zero),
        ("own", zero),
    ],
)
def test_a_broken_last_record_of_an_orderly_stop_is_damage(
    whole: Callable[[str], Path], tmp_path: Path, name: str,
    harm: Callable[[bytearray], None], read: Callable[[Path, str], int],
) -> None:  # fmt: skip
    root = Path(shutil.copytree(whole(name), tmp_path / "store"))
    count = break_last(root, harm)
    (root / "rocketstore.state").unlink(missing_ok=True)
    with pytest.raises(CorruptMessageError, match=r"commitlog/\d+ at position"):
        read(root, "fail")
    assert read(root, "stop") == count
    assert read(root, "skip") == count
    (root / "abort").touch()  # a broker may be writing it
    assert read(root, "fail") == count


@pytest.mark.parametrize("read", [batch, stream])
@pytest.mark.parametrize("name", STORES)
def test_a_whole_store_is_read_to_its_end(
    whole: Callable[[str], Path], name: str, read: Callable[[Path, str], int]
) -> None:
    with rocketstore.open(whole(name)) as store:
        count = sum(1 for _ in store.scan())
    assert [read(whole(name), word) for word in ("fail", "skip", "stop")] == [count] * 3
