"""``split``: new log offsets, the same queue offsets and bytes, a map, and a source only read."""

from __future__ import annotations

import csv
import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from golden.golden_stores import unpack
from rocketstore.errors import (
    CorruptMessageError,
    MappedFileError,
    SourceChangedError,
    StoreFullError,
    StoreLockedError,
)
from rocketstore.moving import split as module
from rocketstore.moving.rewriting import LogWriter
from rocketstore.moving.split import WORK_SUFFIX, split
from support.file_trees import tree_of
from support.kill_points import run_until_change
from support.looked_stores import HOUR_MS, SEGMENT, START, make_store, open_looked, plain_records

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="stores are only read there")

STRIDE = int(os.environ.get("ROCKETSTORE_MOVING_STRIDE", "0"))
KILLS = range(1, 5000, STRIDE) if STRIDE else (12, 40, 90, 5000)


@pytest.fixture(autouse=True)
def _no_power_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only processes die here: what was written stays, without waiting for a busy disk."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_store(tmp_path / "store")


def log_files(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (root / "commitlog").iterdir()}


def messages(root: Path) -> list[Any]:
    with rocketstore.open(root) as store:
        return list(store.scan(records="log"))


def facts(one: Any) -> tuple[Any, ...]:
    """All of a message but its log offset."""
    properties = {name: text for name, text in one.properties.items() if name != "__CRC32#"}
    return (
        one.topic, one.queue_id, one.queue_offset, one.body, one.flag, one.sys_flag,
        one.born_timestamp, one.store_timestamp, one.born_host, one.store_host,
        one.reconsume_times, properties,
    )  # fmt: skip


def check_split(
    root: Path, made: Path, chosen: Callable[[Any], bool], map_path: Path
) -> list[dict[str, str]]:
    """Check the new store's messages, queues, keys and map; return the map's rows."""
    wanted = [one for one in messages(root) if chosen(one)]
    with rocketstore.open(made) as store:
        assert store.recovery_report.clean
        assert not store.recovery_report.damaged
        found = list(store.scan(records="log"))
        assert [facts(one) for one in found] == [facts(one) for one in wanted]
        assert store.verify().ok
        for one in found:
            if one.keys and one.topic in ("Orders", "Pays", "Logs"):
                hits = store.query_message(one.topic, one.keys.split(" ")[0], 64, 0, 2**62)
                assert one.physical_offset in [hit.physical_offset for hit in hits.messages]
    with map_path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(int(row["oldOffset"]), int(row["newOffset"])) for row in rows] == [
        (old.physical_offset, new.physical_offset) for old, new in zip(wanted, found, strict=True)
    ]
    for row, one in zip(rows, found, strict=True):
        assert row["topic"] == one.topic
        assert int(row["queueId"]) == one.queue_id
        assert int(row["oldQueueOffset"]) == int(row["newQueueOffset"]) == one.queue_offset
    with rocketstore.open(made, "r+") as store:
        assert store.recovery_report.clean
        assert not store.recovery_report.cut
        last = next((one for one in reversed(found) if one.topic == "Orders"), None)
        if last is not None:
            end = store.max_offset_in_queue("Orders", last.queue_id)
            result = store.put("Orders", b"next", last.queue_id)
            assert result.queue_offset == end
    with rocketstore.open(made) as store:
        assert store.verify().ok
    return rows


def test_topics_keep_their_queue_offsets(root: Path, tmp_path: Path) -> None:
    before = tree_of(root)
    report = split(root, tmp_path / "made", topics=["Ord*", "Logs"])
    assert tree_of(root) == before
    assert (report.ok, report.state, report.resumed) == (True, "done", False)
    assert report.topics == ["Logs", "Orders"]
    assert report.messages == 100
    assert report.nbytes < report.log_end
    assert report.map == str(tmp_path / "made.map.csv")
    check_split(root, tmp_path / "made", lambda one: one.topic != "Pays", Path(report.map))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["made", "made.map.csv", "store"]


def test_times_cut_the_log(root: Path, tmp_path: Path) -> None:
    begin, end = START + 5 * HOUR_MS, START + 10 * HOUR_MS
    report = split(root, tmp_path / "made", begin=begin, end=end, map_path=tmp_path / "m.csv")
    assert report.ok
    assert report.log_start == SEGMENT  # as if the messages before had expired
    rows = check_split(
        root, tmp_path / "made", lambda one: begin <= one.store_timestamp < end, tmp_path / "m.csv"
    )
    assert len(rows) == 50
    assert min(int(row["newQueueOffset"]) for row in rows) > 0


def test_records_are_byte_for_byte_the_same_but_for_their_place(root: Path, tmp_path: Path) -> None:
    split(root, tmp_path / "made", topics=["Pays"])
    old = [one for one in plain_records(root) if one.topic == "Pays"]
    new = [one for one in plain_records(tmp_path / "made") if one.topic == "Pays"]

    def content(root: Path, one: Any) -> bytes:
        path = root / "commitlog" / str(one.offset // SEGMENT * SEGMENT).zfill(20)
        at = one.offset % SEGMENT
        record = bytearray(path.read_bytes()[at : at + one.nbytes])
        assert struct.unpack_from(">q", record, 28) == (one.offset,)
        record[28:36] = bytes(8)
        return bytes(record)

    assert len(new) == 50
    assert [content(root, one) for one in old] == [content(tmp_path / "made", one) for one in new]


@pytest.mark.parametrize("name", ["broker-5.3.3", "crc-5.3.3", "expire-4.9.8", "inner-5.3.3",
                                  "ext-4.9.8", "rocksdb-5.5.0"])  # fmt: skip
def test_stores_of_brokers(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    before = tree_of(root)
    report = split(root, tmp_path / "made", topics=["*"])
    assert tree_of(root) == before
    assert report.ok, report.verify
    check_split(root, tmp_path / "made", lambda one: True, Path(report.map))


def test_half_messages_of_old_transactions_are_named_at_their_new_place(tmp_path: Path) -> None:
    with open_looked(tmp_path / "store") as store:
        store.put("Other", b"x" * 500, 0)
        half = store.put("T", b"half", 0, sys_flag=4)
        store.put("T", b"whole", 0, sys_flag=8, prepared_transaction_offset=half.physical_offset)
    report = split(tmp_path / "store", tmp_path / "made", topics=["T"])
    assert report.ok
    first, second = messages(tmp_path / "made")
    assert first.physical_offset == 0
    assert second.prepared_transaction_offset == 0
    report = split(tmp_path / "store", tmp_path / "all", topics=["*"], begin=0)
    first, second = messages(tmp_path / "all")[1:]
    assert second.prepared_transaction_offset == first.physical_offset > SEGMENT


def test_tables_have_the_topics_entries(root: Path, tmp_path: Path) -> None:
    (root / "config").mkdir(exist_ok=True)
    offsets = {"Orders@g": {"0": 3, "1": 99}, "Pays@g": {"0": 1}}
    tables = {
        "topics.json": {"topicConfigTable": {"Orders": {"perm": 6}, "Pays": {"perm": 6}}},
        "consumerOffset.json": {"offsetTable": offsets},
        "subscriptionGroup.json": {"subscriptionGroupTable": {"g": {"groupName": "g"}}},
        "delayOffset.json": {"offsetTable": {"1": 5}},
    }
    for name, table in tables.items():
        (root / "config" / name).write_text(json.dumps(table))
    (root / "config/brokerName").write_text("a")
    report = split(root, tmp_path / "made", topics=["Orders"])
    assert report.ok, report.verify
    assert any("lowered" in note for note in report.notes)
    made = {
        path.name: path.read_text()
        for path in (tmp_path / "made/config").iterdir()
        if path.suffix != ".bak"
    }
    assert list(json.loads(made["topics.json"])["topicConfigTable"]) == ["Orders"]
    table = json.loads(made["consumerOffset.json"])["offsetTable"]
    with rocketstore.open(tmp_path / "made") as store:
        assert table == {"Orders@g": {"0": 3, "1": store.max_offset_in_queue("Orders", 1)}}
    assert json.loads(made["subscriptionGroup.json"]) == tables["subscriptionGroup.json"]
    assert json.loads(made["delayOffset.json"])["offsetTable"] == {}
    assert made["brokerName"] == "a"


def test_queues_without_a_message_are_named(root: Path, tmp_path: Path) -> None:
    with open_looked(root, "r+", clock=lambda: START + 100 * HOUR_MS) as store:
        store.put("Orders", b"", 0)
    report = split(root, tmp_path / "made", begin=START + 90 * HOUR_MS)
    assert report.messages == 1
    assert any("Logs/0" in note and "6 more" in note for note in report.notes)


def test_a_kill_at_any_change_is_resumed(root: Path, tmp_path: Path) -> None:
    before, made = tree_of(root), tmp_path / "made"
    whole = split(root, tmp_path / "whole", topics=["Orders", "Pays"])
    log, content = log_files(tmp_path / "whole"), Path(whole.map).read_bytes()
    was_resumed = False
    for number in KILLS:
        was_killed = run_until_change(lambda: split(root, made, topics=["Orders", "Pays"]), number)
        if was_killed:
            report = split(root, made, topics=["Orders", "Pays"])
            was_resumed |= report.resumed
            if report.state == "done":
                assert (report.messages, report.nbytes, report.log_end) == (
                    whole.messages, whole.nbytes, whole.log_end,
                )  # fmt: skip
        assert log_files(made) == log
        assert (tmp_path / "made.map.csv").read_bytes() == content
        with rocketstore.open(made) as store:
            assert store.recovery_report.clean
            assert store.verify().ok
        assert not (tmp_path / f"made{WORK_SUFFIX}").exists()
        shutil.rmtree(made)
        (tmp_path / "made.map.csv").unlink()
        if not was_killed:
            assert was_resumed
            assert tree_of(root) == before
            return
    raise AssertionError("it never ended")


def test_a_full_disk_stops_it_and_the_same_call_goes_on(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, left = LogWriter.append, [100]

    def fail_later(self: LogWriter, record: bytearray) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise StoreFullError(28, "no space")
        append(self, record)

    with monkeypatch.context() as patch:
        patch.setattr(LogWriter, "append", fail_later)
        with pytest.raises(StoreFullError):
            split(root, tmp_path / "made", topics=["*"])
    report = split(root, tmp_path / "made", topics=["*"])
    assert report.resumed
    assert report.messages == 150
    check_split(root, tmp_path / "made", lambda one: True, Path(report.map))


def test_damage_stops_it_and_leaves_nothing(root: Path, tmp_path: Path) -> None:
    one = list(plain_records(root))[5]
    with (root / "commitlog" / "0".zfill(20)).open("r+b") as file:
        file.seek(one.offset + 88)
        file.write(b"\xff\xff")
    with pytest.raises(CorruptMessageError):
        split(root, tmp_path / "made", topics=["*"])
    (root / "commitlog" / str(SEGMENT).zfill(20)).unlink()
    with pytest.raises((CorruptMessageError, MappedFileError)):
        split(root, tmp_path / "made", begin=START + 14 * HOUR_MS)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]


def test_what_is_refused_changes_nothing(root: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing is selected"):
        split(root, tmp_path / "made")
    with pytest.raises(ValueError, match="no record"):
        split(root, tmp_path / "made", topics=["Nothing"])
    with pytest.raises(ValueError, match="topics must be"):
        split(root, tmp_path / "made", topics="Orders")
    with pytest.raises(FileNotFoundError):
        split(tmp_path / "missing", tmp_path / "made", topics=["*"])
    with pytest.raises(MappedFileError):
        split(root, root / "inside", topics=["*"])
    with open_looked(root, "r+"), pytest.raises(StoreLockedError, match="clone --live"):
        split(root, tmp_path / "made", topics=["*"])
    (tmp_path / "made.map.csv").touch()
    with pytest.raises(FileExistsError, match="the map"):
        split(root, tmp_path / "made", topics=["*"])
    (tmp_path / "made.map.csv").unlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]
    (tmp_path / "made").mkdir()
    (tmp_path / "made/file").touch()
    with pytest.raises(FileExistsError):
        split(root, tmp_path / "made", topics=["*"])


def test_a_source_that_changes_is_refused(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = module._Split.copy_records

    def change(self: module._Split, *arguments: Any) -> None:
        copy(self, *arguments)
        with open_looked(root, "r+") as store:
            store.put("Orders", b"meanwhile", 0)

    with monkeypatch.context() as patch:
        patch.setattr(module._Split, "copy_records", change)
        with pytest.raises(SourceChangedError):
            split(root, tmp_path / "made", topics=["Orders"])
    assert not (tmp_path / "made").exists()
    with pytest.raises(FileExistsError, match="another call"):
        split(root, tmp_path / "made", topics=["Pays"])
    report = split(root, tmp_path / "made", topics=["Orders"])
    assert "begun again" in report.notes[0]
    check_split(root, tmp_path / "made", lambda one: one.topic == "Orders", Path(report.map))
