"""``lag``: committed offsets against queues."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from golden.golden_stores import unpack
from rocketstore.errors import CorruptionError
from rocketstore.looking.consumer_lag import LagReport, LagState, QueueLag, lag
from support.looked_stores import HOUR_MS, SEGMENT, START, make_store, open_looked, plain_records


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_store(tmp_path / "store")


def commit(root: Path, table: dict[str, dict[str, int]], name: str = "consumerOffset.json") -> None:
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / name).write_text(json.dumps({"offsetTable": table}))


def asked(root: Path, **options: Any) -> LagReport:
    with rocketstore.open(root) as store:
        return lag(store, **options)


def one_of(report: LagReport, queue_id: int) -> QueueLag:
    (found,) = (one for one in report.queues if one.queue_id == queue_id)
    return found


def test_lag_is_that_of_a_plain_reader(root: Path) -> None:
    commit(root, {"Orders@g": {"0": 5, "1": 13, "2": 99}, "Pays@h": {"1": 0}})
    now = START + 1000 * HOUR_MS
    report = asked(root, at=now)
    queues: dict[int, list[Any]] = {}
    for one in plain_records(root):
        if one.topic == "Orders":
            queues.setdefault(one.queue_id, []).append(one)
    unread = queues[0][5:]
    assert one_of(asked(root, group="g", at=now), 0) == QueueLag(
        "g", "Orders", 0, 5, 0, len(queues[0]), len(unread), sum(one.nbytes for one in unread),
        now - unread[0].stored, 0, LagState.OK,
    )  # fmt: skip
    assert {one.queue_id: one.state for one in report.queues if one.group == "g"} == {
        0: LagState.OK, 1: LagState.BEYOND if len(queues[1]) < 13 else LagState.OK,
        2: LagState.BEYOND, 3: LagState.NEVER,
    }  # fmt: skip
    never = next(one for one in report.queues if one.group == "g" and one.queue_id == 3)
    assert (never.committed, never.messages) == (None, len(queues[3]))
    assert not report.ok
    assert report.messages == sum(one.messages for one in report.queues)
    assert asked(root, group="absent").queues == []


def test_a_time_in_the_past(root: Path) -> None:
    commit(root, {"Logs@g": {"0": 0}})
    moment = START + 6 * HOUR_MS
    found = one_of(asked(root, at=moment), 0)
    before = [
        one for one in plain_records(root)
        if (one.topic, one.queue_id) == ("Logs", 0) and one.stored < moment
    ]  # fmt: skip
    assert (found.messages, found.max_offset) == (len(before), len(before))
    assert found.age_ms == moment - before[0].stored
    assert one_of(asked(root, at=START - 1), 0).messages == 0


def test_unread_messages_that_expired(root: Path) -> None:
    commit(root, {"Orders@g": {"0": 2}})
    (root / "commitlog" / f"{0:020d}").unlink()
    found = one_of(asked(root), 0)
    left = [
        one for one in plain_records(root) if (one.topic, one.queue_id) == ("Orders", 0)
    ]  # fmt: skip
    assert found.state == LagState.BELOW
    assert found.lost_unread == found.min_offset - 2 > 0
    assert found.messages == len(left)
    assert min(one.offset for one in left) >= SEGMENT


def test_tables_that_are_odd(root: Path) -> None:
    assert asked(root).notes == ["there is no config/consumerOffset.json"]
    commit(root, {"Orders@g": {"0": 0}, "Gone@g": {"0": 7}, "a@b@c": {"0": 1}, "none": {"0": 1}})
    report = asked(root)
    assert next((one.topic, one.state) for one in report.queues) == ("Gone", LagState.BEYOND)
    assert len(report.notes) == 2
    commit(root, {"Pays@g": {"0": 0}}, "consumerOffset.json.bak")
    (root / "config" / "consumerOffset.json").write_text("{")
    report = asked(root)
    assert {one.topic for one in report.queues} == {"Pays"}
    assert "was read instead" in report.notes[0]
    (root / "config" / "consumerOffset.json.bak").write_text("[")
    with pytest.raises(CorruptionError):
        asked(root)


def test_offsets_in_rocksdb_are_named(root: Path) -> None:
    (root / "config" / "consumerOffsets").mkdir(parents=True)
    assert "RocksDB" in asked(root).notes[0]


def test_light_groups(root: Path) -> None:
    with open_looked(root) as store:
        for number in range(3):
            store.put("Orders", b"x", properties={"INNER_MULTI_DISPATCH": "%LMQ%one"})
            assert number < 3
    (root / "config").mkdir(exist_ok=True)
    document = {"offsetTable": {}, "lmqOffsetTable": {"%LMQ%one@%LMQ%g": 1}}
    (root / "config" / "lmqConsumerOffset.json").write_text(json.dumps(document))
    (found,) = asked(root).queues
    assert (found.topic, found.committed, found.queue_id) == ("%LMQ%one", 1, 0)


@pytest.mark.parametrize("name", ["engine/retry-4.9.8", "engine/retry-5.3.3", "broker-5.3.3"])
def test_golden_stores(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    report = asked(root)
    assert report.queues
    assert report.ok
    with rocketstore.open(root) as store:
        for one in report.queues:
            read = list(store.scan(topics=[one.topic]))
            start = one.committed or 0
            unread = [m for m in read if m.queue_id == one.queue_id and m.queue_offset >= start]
            assert one.messages == len(unread)
            assert one.nbytes == sum(m.store_size for m in unread)


def test_queues_in_rocksdb(tmp_path: Path) -> None:
    root = unpack("rocksdb-5.5.0", tmp_path)
    with rocketstore.open(root) as store:
        topic = store.topics()[0]
        queue_id = store.queues(topic)[0]
    commit(root, {f"{topic}@g": {str(queue_id): 0}})
    found = one_of(asked(root), queue_id)
    assert found.messages == found.max_offset > 0
