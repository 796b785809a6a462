"""Codes of tables, waiting messages, checkpoint and holes: on a store made to have each, only."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

import rocketstore
from golden.golden_stores import unpack
from rocketstore import formats
from rocketstore.config_managers.managers import (
    ConsumerOffsetManager,
    SubscriptionGroupManager,
    TopicConfigManager,
)
from rocketstore.config_managers.tables import SubscriptionGroupConfig, TopicConfig
from rocketstore.diagnosis.examination import doctor

SIZES = {
    "mapped_file_size_commit_log": 65536,
    "mapped_file_size_consume_queue": 1000,
    "max_hash_slot_num": 50,
    "max_index_num": 200,
}
HOUR_MS = 3_600_000


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A healthy store with its tables: topics T and U, group g."""
    root = tmp_path / "store"
    with rocketstore.open(root, "x", **SIZES) as opened:
        for number in range(60):
            opened.put("TU"[number % 2], bytes(200), 0, None, f"key-{number}")
    topics, groups = TopicConfigManager(root), SubscriptionGroupManager(root)
    for name in ("T", "U"):
        topics.update_topic_config(TopicConfig(topic_name=name))
    groups.update_subscription_group_config(SubscriptionGroupConfig(group_name="g"))
    offsets = ConsumerOffsetManager(root)
    offsets.offset_table["T@g"] = {0: 5}
    for table in (topics, groups, offsets):
        table.persist()
    return root


def add_topic(root: Path, *names: str, perm: int = 6) -> None:
    topics = TopicConfigManager(root)
    topics.load()
    for name in names:
        topics.update_topic_config(TopicConfig(topic_name=name, perm=perm))
    topics.persist()


def make_queue(root: Path, topic: str, unit: tuple[int, int, int] | None = None) -> None:
    folder = root / "consumequeue" / topic / "0"
    folder.mkdir(parents=True)
    content = formats.CONSUME_QUEUE_UNIT.struct.pack(*unit) if unit else b""
    (folder / "00000000000000000000").write_bytes(content.ljust(1000, b"\0"))


def rewrite_checkpoint(root: Path, age_ms: int) -> None:
    path = root / "checkpoint"
    content = path.read_bytes()
    times = [int.from_bytes(content[at : at + 8], "big") for at in (0, 8, 16)]
    path.write_bytes(
        b"".join(max(0, one - age_ms).to_bytes(8, "big") for one in times) + content[24:]
    )


def put_delayed(root: Path, level: int) -> None:
    with rocketstore.open(root, "a") as opened:
        opened.put("T", b"x", delay_level=level)
    add_topic(root, formats.TOPIC_SCHEDULE)


def put_timed(root: Path) -> None:
    with rocketstore.open(root, "a", timer_wheel_enable=True) as opened:
        opened.put("T", b"x", properties={"TIMER_DELAY_SEC": "3600"})


def codes(root: Path, level: str = "full") -> dict[str, int]:
    return doctor(root, level=level).counts


def test_a_healthy_store_has_no_finding(store: Path) -> None:
    assert not codes(store)
    assert not codes(store, "quick")


def test_topics_without_queues_and_queues_without_topics(store: Path) -> None:
    add_topic(store, "Unused", "AlsoUnused")
    add_topic(store, "broker-a", perm=7)
    make_queue(store, "Gone")
    make_queue(store, "Left")
    # A broker counts a first unit of zeros as a message.
    found = {"config.topic-extra": 2, "queue.orphan": 2, "queue.file.empty": 2}
    assert codes(store) == found
    shutil.copytree(store / "consumequeue/T", store / "consumequeue/New")
    shutil.copytree(store / "consumequeue/T", store / "consumequeue/Newer")
    found = codes(store, "quick")
    assert found == {"config.topic-extra": 2, "queue.orphan": 2, "config.topic-missing": 2}


def test_a_queue_whose_messages_expired_is_an_orphan(store: Path, tmp_path: Path) -> None:
    first = store / "commitlog/00000000000000000000"
    first.rename(store / "commitlog/00000000000000065536")
    make_queue(store, "Gone", (100, 100, 0))
    assert "queue.orphan" in codes(store, "quick")
    make_queue(store, "Known", (65536, 100, 0))
    found = codes(store, "quick")
    assert (found["queue.orphan"], found["config.topic-missing"]) == (1, 1)


def test_groups_in_no_table(store: Path) -> None:
    offsets = ConsumerOffsetManager(store)
    offsets.load()
    for group in ("lost", "other", "CID_RMQ_SYS_TRANS"):
        offsets.offset_table[f"T@{group}"] = {0: 1}
    offsets.persist()
    verdict = doctor(store)
    assert verdict.counts == {"config.group-missing": 1}
    assert verdict.findings[0].data.groups == ["lost", "other"]
    (store / "config/subscriptionGroup.json").unlink()
    assert not codes(store)  # without a table nothing is known


def test_delayed_messages_that_are_due(store: Path, tmp_path: Path) -> None:
    put_delayed(store, 18)  # two hours
    assert "delay.overdue" not in codes(store)
    verdict = doctor(unpack("plain-5.3.3", tmp_path / "old"))
    (finding,) = [one for one in verdict.findings if one.code == "delay.overdue"]
    assert (finding.severity, finding.data.effect) == ("note", "late")
    assert finding.data.messages == 10
    assert verdict.ok


def test_timed_messages_that_are_not_in_the_wheel(store: Path) -> None:
    put_timed(store)
    verdict = doctor(store)
    assert verdict.counts.get("timer.behind") == 1
    assert verdict.state == "recovers"
    assert verdict.next[0].command == ["rocketstore", "timer", str(store)]
    assert rocketstore.plan(store).empty


@pytest.mark.parametrize(("age_ms", "is_found"), [(0, False), (60_000, False), (HOUR_MS, True)])
def test_an_old_checkpoint(store: Path, age_ms: int, is_found: bool) -> None:
    rewrite_checkpoint(store, age_ms)
    assert ("checkpoint.past" in codes(store)) == is_found
    assert doctor(store).ok


def statvfs(free: int) -> Callable[[object], SimpleNamespace]:
    def answer(_: object) -> SimpleNamespace:
        return SimpleNamespace(
            f_blocks=1 << 40, f_bavail=free, f_frsize=1, f_files=0, f_favail=0
        )  # fmt: skip

    return answer


def test_holes_that_the_disk_has_no_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index file of the usual size has 400 MB, most of it holes."""
    root = tmp_path / "sparse"
    with rocketstore.open(root, "x", mapped_file_size_commit_log=65536) as opened:
        opened.put("T", b"x", 0, None, "key")
    monkeypatch.setattr(os, "statvfs", statvfs(1 << 30))
    assert "store.sparse" not in codes(root, "quick")
    monkeypatch.setattr(os, "statvfs", statvfs(1 << 20))
    assert codes(root, "quick").get("store.sparse") == 1


def test_undecided_half_messages_are_counted_by_age(store: Path) -> None:
    with rocketstore.open(store, "a") as opened:
        for number in range(3):
            opened.begin("T", b"%d" % number, group="producers")
    found = [one for one in doctor(store).findings if one.code == "transaction.undecided"]
    assert [one.what for one in found] == ["3 half messages are undecided: 3 for less than an hour"]
    assert (found[0].data.messages, found[0].data.groups) == (3, ["producers"])
    assert found[0].severity == "note"
