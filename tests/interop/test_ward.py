"""The ward: stores damaged by seed are planned and repaired, and the real RocketMQ reads them.

It serves every record that was whole, at its queue offset and by its keys, and nothing else than
those and the placeholders that the plan names.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from golden.golden_stores import about
from interop import maven
from interop.case_damage import Dump, dump, our_dump
from interop.cases import copy
from interop.harness import Driver, DriverError
from rocketstore import formats
from rocketstore.config import MessageStoreConfig
from rocketstore.errors import RepairRefusedError, RocketStoreError
from support.seeded_ward import SeededStore, snapshot

maven.require_java()

STORES = int(os.environ.get("ROCKETSTORE_WARD_STORES", "60"))
#: Stores of one test, so that tests share the processors.
PART = 20
FIRST = int(os.environ.get("ROCKETSTORE_WARD_FIRST", "0"))
#: Stores of one Java process; each is opened once.
BATCH = 12
KEYS = 20
#: A key of more messages may be given in part.
MOST = 60
#: Queues of each store that get another message, and topics that get none.
PUTS = 3
NOT_PUT = ("%LMQ%", "SCHEDULE_TOPIC", "RMQ_SYS_", "rmq_sys_", "TopicM")
#: Nothing is delivered and nothing expires while RocketMQ is asked.
BASE = {
    "messageDelayLevel": "2h",
    "timerWheelEnable": "false",
    "diskMaxUsedSpaceRatio": "99",
    "fileReservedTime": "876000",
}


def look(root: Path) -> tuple[Dump, dict[int, list[tuple[str, str]]]]:
    """What a store shows before it is damaged: its queues, and topics and keys by offset."""
    counts: Counter[tuple[str, str]] = Counter()
    with rocketstore.open(root, "r") as store:
        keys = {}
        for message in store.scan():
            names = [message.properties.get("UNIQ_KEY"), *(message.keys or "").split(" ")]
            kind = message.sys_flag & formats.SYS_FLAG_TRANSACTION_MASK
            # What was rolled back gets no index entries.
            if kind != formats.SYS_FLAG_TRANSACTION_ROLLBACK:
                found = [(message.topic, name) for name in names if name]
                keys[message.physical_offset] = found
                counts.update(found)
        # A query gives 64 at most.
        kept = {at: [one for one in found if counts[one] < MOST] for at, found in keys.items()}
        return our_dump(store), kept


class Patient:
    """A store that was damaged and repaired, and what RocketMQ is asked about it."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.store = SeededStore(seed, folder, look)
        known = about(self.store.base)
        self.version = str(known["rocketmq"])
        self._topics = known["topics"]
        # Files that are gone say nothing about their size; a broker's configuration does.
        config = MessageStoreConfig.from_properties(known["config"])
        self.name = f"{seed}: {self.store}"
        self.store.remember()
        before = snapshot(self.store.root)
        self._original, self._keys = self.store.seen
        self.plan = rocketstore.plan(self.store.root, config=config)
        assert snapshot(self.store.root) == before, "the plan changed the store"
        undo = rocketstore.repair(self.store.root, self.plan).undo
        if undo is not None:
            rocketstore.undo_repair(self.store.root, undo)
            assert snapshot(self.store.root) == before, "the undo does not give all back"
            rocketstore.repair(self.store.root, self.plan)
        self.store.check_records(self.plan)
        assert rocketstore.plan(self.store.root, config=config).empty, "a second plan has steps"
        with rocketstore.open(self.store.root, "r") as store:
            self._ours = our_dump(store)
        places = sorted(self.store.intact & self._keys.keys())
        keyed = [(at, key) for at in places for key in self._keys[at]]
        self.asked = random.Random(seed).sample(keyed, min(KEYS, len(keyed)))

    def open(self, driver: Driver) -> None:
        """Let RocketMQ open a copy."""
        known = about(self.store.base)
        root = copy(self.store.root, "java")
        loaded = driver.open(self.name, root, {**known["config"], **BASE}, known["topics"])
        assert loaded.result()["load"], "RocketMQ does not load it"

    def judge(self, driver: Driver) -> None:
        """Raise ``AssertionError`` with what RocketMQ serves wrongly."""
        queries = [
            {"op": "query", "topic": topic, "key": key, "max": 64} for _, (topic, key) in self.asked
        ]
        answers = driver.ask(self.name, [{"op": "wait"}, {"op": "dumpall"}, *queries]).result()
        _, everything, *found = answers["answers"]
        assert "raised" not in everything, f"RocketMQ cannot read it: {everything['raised']}"
        theirs = dump(everything)
        assert theirs == self._ours, f"{differences(theirs, self._ours)}"
        lost = {
            place: shown
            for place, shown in self._original.items()
            if shown[0] in self.store.intact and theirs.get(place) != shown
        }
        assert not lost, f"whole, and not served: {sorted(lost.items())[:3]}"
        kept = {one["log"] for one in self.plan.placeholders}
        foreign = {shown[0] for shown in theirs.values()} - self.store.records.keys() - kept
        assert not foreign, f"served, and never put: {sorted(foreign)[:3]}"
        for (offset, key), answer in zip(self.asked, found, strict=True):
            hits = {row["offset"] for row in answer.get("messages", ())}
            assert offset in hits, f"{key} finds not {offset}"
        self._check_next_put(driver, everything)

    def _check_next_put(self, driver: Driver, everything: dict[str, Any]) -> None:
        """A put goes to the end of its queue and of the log, and is served."""
        ends = {
            (row["topic"], row["queueId"]): row["max"]
            for row in everything["queues"]
            if row["max"] and not row["topic"].startswith(NOT_PUT)
            and not self._topics.get(row["topic"])
        }  # fmt: skip
        chosen = sorted(ends)[:PUTS]
        writes = [
            {"op": "put", "topic": topic, "queueId": queue_id, "body": "bmV4dA=="}
            for topic, queue_id in chosen
        ]
        done = driver.script(self.name, writes).result()["answers"]
        gets = [
            {"op": "get", "topic": topic, "queueId": queue_id, "offset": ends[topic, queue_id],
             "max": 1} for topic, queue_id in chosen
        ]  # fmt: skip
        _, *got = driver.ask(self.name, [{"op": "wait"}, *gets]).result()["answers"]
        for key, answer, served in zip(chosen, done, got, strict=True):
            assert answer.get("queueOffset") == ends[key], f"{key} goes on at {answer}"
            assert answer["offset"] >= everything["maxPhy"], f"{key} is put at {answer}"
            rows = served["messages"]
            assert [row["offset"] for row in rows] == [answer["offset"]], f"{key}: {served}"


def differences(theirs: Dump, ours: Dump) -> list[Any]:
    """Return the first places where two dumps differ."""
    places = sorted(theirs.keys() | ours.keys())
    return [
        (place, theirs.get(place), ours.get(place))
        for place in places
        if theirs.get(place) != ours.get(place)
    ][:4]


def patients(
    folder: Path, seeds: range, refused: list[str], failed: list[str]
) -> Iterator[tuple[str, list[Patient]]]:
    """Damage and repair all stores; yield them by version, a batch at a time.

    Stores that first need a person go to ``refused``, those that break a promise to ``failed``.
    """
    waiting: dict[str, list[Patient]] = defaultdict(list)
    for seed in seeds:
        try:
            patient = Patient(seed, folder / f"{seed}")
        except RepairRefusedError as error:
            refused.append(f"{seed}: {error}")
            continue
        except (AssertionError, RocketStoreError, OSError, ValueError, LookupError) as error:
            failed.append(f"{seed}: {type(error).__name__}: {error}")
            continue
        waiting[patient.version].append(patient)
        if len(waiting[patient.version]) == BATCH:
            yield patient.version, waiting.pop(patient.version)
    yield from waiting.items()


@pytest.mark.timeout(900 + 20 * PART)
@pytest.mark.parametrize("first", range(FIRST, FIRST + STORES, PART))
def test_rocketmq_serves_what_was_whole(first: int, tmp_path: Path) -> None:
    seeds = range(first, min(first + PART, FIRST + STORES))
    judged = 0
    refused: list[str] = []
    failed: list[str] = []
    for version, batch in patients(tmp_path, seeds, refused, failed):
        with Driver(version, tmp_path / "java") as driver:
            for step in (Patient.open, Patient.judge):
                for patient in list(batch):
                    try:
                        step(patient, driver)
                    except (AssertionError, DriverError) as error:
                        failed.append(f"{patient.name}: {error}")
                        batch.remove(patient)
        judged += len(batch)
        for patient in batch:
            shutil.rmtree(patient.store.root.parent)
    print(f"{judged} stores served whole, {len(refused)} refused", *refused, sep="\n")
    assert not failed, "\n".join(failed)
    assert judged + len(refused) == len(seeds)
    assert len(refused) <= max(2, len(seeds) // 10), refused
