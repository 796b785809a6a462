"""Stores that lost files and were mended: the real RocketMQ serves what they show, and goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

import rocketstore
from corruption import test_files_gone_after_a_crash as gone
from corruption import test_lost_queues as lost
from interop import maven
from interop.case_damage import dump, our_dump
from interop.harness import Driver

maven.require_java()

ASKED = [{"op": "wait"}, {"op": "dumpall"}]
BASE = {"messageDelayLevel": "2h", "timerWheelEnable": "false", "diskMaxUsedSpaceRatio": "99"}


def config_of(options: dict[str, object]) -> dict[str, str]:
    """The sizes of a store's files, as RocketMQ names them."""
    names = {
        "mapped_file_size_commit_log": "mappedFileSizeCommitLog",
        "mapped_file_size_consume_queue": "mappedFileSizeConsumeQueue",
        "max_hash_slot_num": "maxHashSlotNum",
        "max_index_num": "maxIndexNum",
    }
    return {**BASE, **{names[name]: str(size) for name, size in options.items() if name in names}}


def salvaged(folder: Path) -> Path:
    """Two log files were gone after a crash."""
    root = gone.without_files(gone.killed(folder), 1)
    assert rocketstore.salvage(root).placeholders
    with rocketstore.open(root, "r+") as store:
        assert store.put("A", b"next").ok
    return root


def goes_on(folder: Path) -> Path:
    """Files of queues were gone whose messages have expired; consumers had committed offsets."""
    root = folder / "store"
    lost.build(root, expired=True)
    # Without its batch queue: 4.9 knows none, and the driver of 5.x reads no topic's attributes.
    offsets = lost.TABLES["consumerOffset.json"]["offsetTable"]
    plain = {name: queues for name, queues in offsets.items() if name != "Batch@G"}
    lost.change_table(root, "consumerOffset.json", offsetTable=plain)
    lost.lose(
        root, "config/topics.json", "consumequeue/Old", "consumequeue/%RETRY%G", "batchconsumequeue"
    )
    with rocketstore.open(root, "r+") as store:
        for topic in ("Old", "%RETRY%G"):
            assert store.put(topic, b"next").queue_offset == lost.NEXT[topic]
    return root


@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", ["4.9.8", "5.3.3", "5.5.0"])
@pytest.mark.parametrize("mend", [salvaged, goes_on])
def test_rocketmq_serves_the_same(mend: object, version: str, tmp_path: Path) -> None:
    root = mend(tmp_path)  # type: ignore[operator]
    options = gone.OPTIONS if mend is salvaged else lost.OPTIONS
    with rocketstore.open(root) as store:
        ours = our_dump(store)
    with Driver(version, tmp_path / "java") as driver:
        assert driver.open("s", root, config_of(options)).result()["load"]
        theirs = dump(driver.ask("s", ASKED).result()["answers"][1])
    assert len(ours) > 20
    assert theirs == ours
