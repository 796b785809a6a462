"""``merge``: both stores' messages in the order of time, numbered, mapped; sources only read."""

from __future__ import annotations

import csv
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from golden.golden_stores import unpack
from rocketstore.errors import (
    ConfigError,
    CorruptMessageError,
    RepairRefusedError,
    StoreFullError,
    StoreLockedError,
)
from rocketstore.moving.merge import WORK_SUFFIX, merge
from rocketstore.moving.rewriting import LogWriter
from support.file_trees import tree_of
from support.kill_points import run_until_change
from support.looked_stores import HOUR_MS, SEGMENT, START, open_looked, plain_records

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="stores are only read there")

STRIDE = int(os.environ.get("ROCKETSTORE_MOVING_STRIDE", "0"))
KILLS = range(1, 5000, STRIDE) if STRIDE else (15, 45, 100, 5000)


@pytest.fixture(autouse=True)
def _no_power_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only processes die here: what was written stays, without waiting for a busy disk."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)


def fill(root: Path, topics: tuple[str, ...], first: int, step: int, count: int = 80) -> Path:
    """Make a store with two queues of each topic; times ascend from ``first`` by ``step`` hours."""
    now = [START + first * HOUR_MS]
    with open_looked(root, clock=lambda: now[0]) as store:
        for number in range(count):
            store.put(
                topics[number % len(topics)], b"%s-%d" % (root.name.encode(), number), number % 2,
                "tag", f"{root.name}{number}",
            )  # fmt: skip
            now[0] += step * HOUR_MS
    return root


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """Two stores that share the topic Orders, with times that interleave."""
    return (
        fill(tmp_path / "a", ("Orders", "Only", "Orders"), 0, 2),
        fill(tmp_path / "b", ("Orders", "Other", "Other"), 31, 3, 60),
    )


def scanned(root: Path) -> list[Any]:
    with rocketstore.open(root) as store:
        return list(store.scan(records="log"))


def check_merged(a: Path, b: Path, made: Path, map_path: Path) -> list[dict[str, str]]:
    """Check order, numbers, keys and the map; return the map's rows."""
    both = [(one.store_timestamp, store, one) for store, root in enumerate((a, b))
            for one in scanned(root)]  # fmt: skip
    wanted = [(store, one) for _, store, one in sorted(both, key=lambda row: row[:2])]
    queues = [{(one.topic, one.queue_id) for _, store, one in both if store == s} for s in (0, 1)]
    shared = queues[0] & queues[1]
    with rocketstore.open(made) as store:
        assert store.recovery_report.clean
        assert store.verify().ok
        found = list(store.scan(records="log"))
        for one in found:
            if one.keys and not one.topic.startswith("%"):
                hits = store.query_message(one.topic, one.keys.split(" ")[0], 64, 0, 2**62)
                assert one.physical_offset in [hit.physical_offset for hit in hits.messages]
    numbers: dict[Any, int] = {}
    with map_path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(found) == len(wanted)
    for row, new, (which, old) in zip(rows, found, wanted, strict=True):
        queue = old.topic, old.queue_id
        number = old.queue_offset
        if queue in shared:
            number = numbers[queue] = numbers.get(queue, -1) + 1
        assert (new.topic, new.queue_id, new.queue_offset) == (*queue, number)
        assert (new.body, new.store_timestamp, new.born_timestamp, new.sys_flag) == (
            old.body, old.store_timestamp, old.born_timestamp, old.sys_flag,
        )  # fmt: skip
        assert new.properties.keys() == old.properties.keys()
        assert [row[name] for name in ("store", "topic", "queueId")] == [
            str((a, b)[which]), old.topic, str(old.queue_id),
        ]  # fmt: skip
        assert [int(row[name]) for name in
                ("oldOffset", "newOffset", "oldQueueOffset", "newQueueOffset")] == [
            old.physical_offset, new.physical_offset, old.queue_offset, new.queue_offset,
        ]  # fmt: skip
    return rows


def test_two_stores_become_one(pair: tuple[Path, Path], tmp_path: Path) -> None:
    before = [tree_of(root) for root in pair]
    report = merge(*pair, tmp_path / "made")
    assert [tree_of(root) for root in pair] == before
    assert report.ok
    assert (report.messages, report.messages_a, report.messages_b) == (140, 80, 60)
    assert report.shared_queues == 2
    check_merged(*pair, tmp_path / "made", Path(report.map))
    with rocketstore.open(tmp_path / "made", "r+") as store:
        assert store.recovery_report.clean
        end = store.max_offset_in_queue("Orders", 0)
        assert store.put("Orders", b"next", 0).queue_offset == end
    with rocketstore.open(tmp_path / "made") as store:
        assert store.verify().ok
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["a", "b", "made", "made.map.csv"]


@pytest.mark.parametrize(
    ("first", "second"),
    [("crc-5.3.3", "ext-4.9.8"), ("expire-4.9.8", "rocksdb-5.5.0"), ("inner-5.3.3", "plain-5.5.0")],
)
def test_stores_of_brokers(first: str, second: str, tmp_path: Path) -> None:
    roots = []
    for name in (first, second):
        (tmp_path / name).mkdir()
        roots.append(unpack(name, tmp_path / name))
    before = [tree_of(root) for root in roots]
    report = merge(*roots, tmp_path / "made")
    assert [tree_of(root) for root in roots] == before
    assert report.ok, report.verify
    with rocketstore.open(tmp_path / "made") as store:
        assert store.recovery_report.clean
    assert report.messages == len(scanned(roots[0])) + len(scanned(roots[1]))
    assert len(scanned(tmp_path / "made")) == report.messages


def test_consumers_miss_nothing(pair: tuple[Path, Path], tmp_path: Path) -> None:
    a, b = pair
    ends = []
    for root in pair:
        with rocketstore.open(root) as store:
            ends.append(store.max_offset_in_queue("Orders", 0))
    tables = {
        "a": {"Orders@both": {"0": 5}, "Orders@first": {"0": 7}, "Only@both": {"1": 3},
              "Orders@done": {"0": ends[0]}, "Orders@half": {"0": ends[0]}},
        "b": {"Orders@both": {"0": 9}, "Orders@done": {"0": ends[1]}, "Orders@half": {"0": 4},
              "Other@second": {"0": 2}},
    }  # fmt: skip
    for root in pair:
        (root / "config").mkdir(exist_ok=True)
        path = root / "config/consumerOffset.json"
        path.write_text(json.dumps({"offsetTable": tables[root.name]}))
        topics = {"Orders": {"perm": 6, "n": root.name}, f"T{root.name}": {"perm": 6}}
        (root / "config/topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    report = merge(a, b, tmp_path / "made")
    assert report.ok, report.verify
    rows = check_merged(a, b, tmp_path / "made", Path(report.map))
    new = {
        (Path(row["store"]).name, row["topic"], int(row["queueId"]), int(row["oldQueueOffset"])):
            int(row["newQueueOffset"])
        for row in rows
    }  # fmt: skip
    made = json.loads((tmp_path / "made/config/consumerOffset.json").read_text())["offsetTable"]
    assert made == {
        "Orders@both": {"0": min(new["a", "Orders", 0, 5], new["b", "Orders", 0, 9])},
        "Orders@first": {"0": min(new["a", "Orders", 0, 7], new["b", "Orders", 0, 0])},
        "Orders@done": {"0": sum(ends)},
        "Orders@half": {"0": new["b", "Orders", 0, 4]},
        "Only@both": {"1": 3},
        "Other@second": {"0": 2},
    }
    # Every message that a group had not consumed lies at its offset or after it.
    for (store, topic, queue_id, old), number in new.items():
        for key, offsets in made.items():
            if key.partition("@")[0] == topic and str(queue_id) in offsets:
                had = tables[store].get(key, {}).get(str(queue_id), 0)
                assert old < had or number >= offsets[str(queue_id)]
    table = json.loads((tmp_path / "made/config/topics.json").read_text())["topicConfigTable"]
    assert table == {"Orders": {"perm": 6, "n": "a"}, "Ta": {"perm": 6}, "Tb": {"perm": 6}}
    assert any("1 entries differ" in note for note in report.notes)


def test_other_segment_sizes_and_logs_that_expired(tmp_path: Path) -> None:
    a = fill(tmp_path / "a", ("Orders",), 0, 2, 250)
    (a / "commitlog" / "0".zfill(20)).unlink()
    with rocketstore.open(
        tmp_path / "b", "a", mapped_file_size_commit_log=4 * SEGMENT, clock=lambda: START
    ) as store:
        store.put("Big", b"x" * 3 * SEGMENT, 0)
    report = merge(a, tmp_path / "b", tmp_path / "made")
    assert report.ok, report.verify
    assert report.log_start == 4 * SEGMENT
    rows = check_merged(a, tmp_path / "b", tmp_path / "made", Path(report.map))
    assert int(rows[1]["oldQueueOffset"]) > 0
    assert next(one.topic for one in plain_records(tmp_path / "made")) == "Big"


def test_a_kill_at_any_change_is_resumed(pair: tuple[Path, Path], tmp_path: Path) -> None:
    made = tmp_path / "made"
    (pair[0] / "config").mkdir(exist_ok=True)
    offsets = {"offsetTable": {"Orders@g": {"0": 5, "1": 30}}}
    (pair[0] / "config/consumerOffset.json").write_text(json.dumps(offsets))
    before = [tree_of(root) for root in pair]

    def content(root: Path, map_path: Path) -> dict[str, bytes]:
        paths = [*(root / "commitlog").iterdir(), root / "config/consumerOffset.json", map_path]
        return {path.name.replace("whole", "made"): path.read_bytes() for path in paths}

    whole = merge(*pair, tmp_path / "whole")
    wanted = content(tmp_path / "whole", Path(whole.map))
    was_resumed = False
    for number in KILLS:
        was_killed = run_until_change(lambda: merge(*pair, made), number)
        if was_killed:
            report = merge(*pair, made)
            was_resumed |= report.resumed
            if report.state == "done":
                assert (report.messages, report.messages_a, report.nbytes) == (
                    whole.messages, whole.messages_a, whole.nbytes,
                )  # fmt: skip
        assert content(made, tmp_path / "made.map.csv") == wanted
        with rocketstore.open(made) as store:
            assert store.recovery_report.clean
            assert store.verify().ok
        assert not (tmp_path / f"made{WORK_SUFFIX}").exists()
        shutil.rmtree(made)
        (tmp_path / "made.map.csv").unlink()
        if not was_killed:
            assert was_resumed
            assert [tree_of(root) for root in pair] == before
            return
    raise AssertionError("it never ended")


@pytest.mark.parametrize("left", [30, 75, 130])
def test_a_full_disk_stops_it_and_the_same_call_goes_on(
    pair: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    append, count = LogWriter.append, [left]

    def fail_later(self: LogWriter, record: bytearray) -> None:
        count[0] -= 1
        if count[0] < 0:
            raise StoreFullError(28, "no space")
        append(self, record)

    with monkeypatch.context() as patch:
        patch.setattr(LogWriter, "append", fail_later)
        with pytest.raises(StoreFullError):
            merge(*pair, tmp_path / "made")
    report = merge(*pair, tmp_path / "made")
    assert report.resumed
    check_merged(*pair, tmp_path / "made", Path(report.map))


def test_records_that_name_queue_offsets_are_refused(tmp_path: Path) -> None:
    roots = []
    for name in ("plain-4.9.8", "plain-5.3.3"):
        (tmp_path / name).mkdir()
        roots.append(unpack(name, tmp_path / name))
    with pytest.raises(RepairRefusedError, match="both stores have transactions"):
        merge(*roots, tmp_path / "made")
    # One has only half messages, the other only what ended some that are gone.
    for name, topic in (("half", "RMQ_SYS_TRANS_HALF_TOPIC"),
                        ("ends", "RMQ_SYS_TRANS_OP_HALF_TOPIC")):  # fmt: skip
        with rocketstore.open(tmp_path / name, "x") as store:
            store.put(topic, b"0,", 0, "d")
    with pytest.raises(RepairRefusedError, match=r"split it by --topic .* RMQ_SYS_TRANS_OP"):
        merge(tmp_path / "half", tmp_path / "ends", tmp_path / "made")
    (tmp_path / "i").mkdir()
    (tmp_path / "j").mkdir()
    inner = [unpack("inner-5.3.3", tmp_path / name) for name in ("i", "j")]
    with pytest.raises(RepairRefusedError, match="batch records"):
        merge(*inner, tmp_path / "made")
    assert not any("made" in path.name for path in tmp_path.iterdir())


def test_what_is_refused_changes_nothing(pair: tuple[Path, Path], tmp_path: Path) -> None:
    a, b = pair
    with pytest.raises(ConfigError, match="both stores have the log"):
        merge(a, a, tmp_path / "made")
    with pytest.raises(FileNotFoundError):
        merge(a, tmp_path / "missing", tmp_path / "made")
    with open_looked(b, "r+"), pytest.raises(StoreLockedError):
        merge(a, b, tmp_path / "made")
    one = list(plain_records(b))[5]
    with (b / "commitlog" / "0".zfill(20)).open("r+b") as file:
        file.seek(one.offset + 88)
        file.write(b"\xff\xff")
    with pytest.raises(CorruptMessageError):
        merge(a, b, tmp_path / "made")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
