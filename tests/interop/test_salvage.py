"""Damaged stores that were salvaged: the real RocketMQ opens them and serves all that survived.

Before, it does not load some of them, and in the others it deletes everything after the damage.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

import rocketstore
from crash import salvaging
from interop import maven
from interop.case_damage import dump
from interop.harness import VERSIONS, Driver

maven.require_java()

CONFIG = {
    "mappedFileSizeCommitLog": str(salvaging.SEGMENT_NBYTES),
    "mappedFileSizeConsumeQueue": "400",
    "maxHashSlotNum": "40",
    "maxIndexNum": "160",
    "messageDelayLevel": "2h",
    "timerWheelEnable": "false",
    "diskMaxUsedSpaceRatio": "99",
}
ASKED = [{"op": "wait"}, {"op": "dumpall"}]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", VERSIONS)
def test_salvaged_stores_are_served_by_rocketmq(version: str, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    rows = salvaging.write(whole, 29, broker_version=version)
    kept = {}
    for damage in salvaging.KINDS:
        root = tmp_path / damage.__name__
        shutil.copytree(whole, root)
        damage(root, rows, random.Random(3))
        kept[root.name] = [*salvaging.survivors(root, rows)]
        report = rocketstore.salvage(root)
        # Where the broker's own topic lacks room for a placeholder, a gap is named.
        assert {topic for topic, *_ in report.gaps} <= {"SCHEDULE_TOPIC_XXXX"}
        missing = sum(stop - first for _, _, first, stop in report.gaps)
        assert len(report.placeholders) + missing >= len(rows) - len(kept[root.name])
        if version >= "5.4":
            continue  # it makes queues from the last ten files only, see test_repair.py
        # Once more with queues that RocketMQ makes from the log by itself, as after a crash.
        again = tmp_path / f"{root.name}-queues-lost"
        shutil.copytree(root, again)
        shutil.rmtree(again / "consumequeue")
        (again / "abort").touch()
        (again / "checkpoint").unlink()
        kept[again.name] = kept[root.name]
    with Driver(version, tmp_path / "java") as driver:
        opened = {name: driver.open(name, tmp_path / name, CONFIG) for name in kept}
        assert all(pending.result()["load"] for pending in opened.values())
        asked = {name: driver.ask(name, ASKED) for name in kept}
        for name, good in kept.items():
            shown = dump(asked[name].result()["answers"][1])
            for row in good:
                place = shown.get((row.topic, row.queue_id, row.queue_offset))
                assert place is not None, (name, row)
                assert place[0] == row.offset, (name, place, row)
