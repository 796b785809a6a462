"""``doctor``'s forecast of damaged stores, and what the real RocketMQ does with their copies."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from golden.golden_stores import about
from interop import maven
from interop.cases import copy
from interop.forecasting import FIELDS, Wanted, said_of, seen_of
from interop.harness import Driver
from rocketstore.config import MessageStoreConfig
from support.seeded_ward import SeededStore

maven.require_java()

STORES = int(os.environ.get("ROCKETSTORE_WARD_STORES", "12"))
FIRST = int(os.environ.get("ROCKETSTORE_WARD_FIRST", "0"))
#: Share of right fields.
LEAST = 0.98
#: Nothing is delivered and nothing expires while RocketMQ is asked.
BASE = {
    "timerWheelEnable": "false",
    "diskMaxUsedSpaceRatio": "99",
    "fileReservedTime": "876000",
    "brokerRole": "SLAVE",
    "offsetCheckInSlave": "true",
}


class Score:
    """Right and wrong fields, by name."""

    def __init__(self) -> None:
        self.right: Counter[str] = Counter()
        self.wrong: dict[str, list[str]] = {name: [] for name in FIELDS}

    def take(self, store: str, said: dict[str, Any], seen: dict[str, Any]) -> None:
        """Compare the fields that both have."""
        for name in FIELDS:
            if name not in said or name not in seen:
                continue
            if said[name] == seen[name]:
                self.right[name] += 1
            else:
                self.wrong[name].append(f"{store}: {_difference(said[name], seen[name])}")

    def table(self) -> str:
        """Return the rates by field."""
        rows = []
        for name in FIELDS:
            total = self.right[name] + len(self.wrong[name])
            rows.append(f"{name:13} {self.right[name]:5} of {total:5} right")
        return "\n".join(rows)

    @property
    def rate(self) -> float:
        """The share of right fields."""
        wrong = sum(map(len, self.wrong.values()))
        return self.right.total() / max(1, self.right.total() + wrong)


def _difference(said: Any, seen: Any) -> str:
    if isinstance(said, dict) and isinstance(seen, dict):
        keys = [key for key in {*said, *seen} if said.get(key) != seen.get(key)]
        rows = [f"{key}: {said.get(key)} said, {seen.get(key)} seen" for key in keys[:3]]
        return "; ".join(rows)
    return f"{said} said, {seen} seen"


@pytest.mark.timeout(900 + 30 * STORES)
def test_a_forecast_is_what_rocketmq_does(tmp_path: Path) -> None:
    score, drivers = Score(), dict[str, Driver]()
    try:
        for seed in range(FIRST, FIRST + STORES):
            store = SeededStore(seed, tmp_path / f"{seed}")
            known = about(store.base)
            known = {**known, "config": {**known["config"], **BASE}}
            version = str(known["rocketmq"])
            config = MessageStoreConfig.from_properties(known["config"])
            verdict = rocketstore.doctor(store.root, config=config, broker_versions=[version])
            (forecast,) = verdict.broker
            if forecast.by == "config":
                continue  # the broker around the store reads its tables
            wanted = Wanted(store.root, known["config"])
            if version not in drivers:
                drivers[version] = Driver(version, tmp_path / "java")
            seen = seen_of(drivers[version], f"{seed}", copy(store.root, "java"), known, wanted)
            if seen["hung"]:
                drivers.pop(version).halt()
            score.take(f"{seed} {store}", said_of(forecast), seen)
            shutil.rmtree(store.root.parent, ignore_errors=True)
    finally:
        for driver in drivers.values():
            driver.halt()
    print(score.table())
    misses = [f"{name}: {one}" for name, rows in score.wrong.items() for one in rows]
    print(*misses, sep="\n")
    assert score.rate >= LEAST, "\n".join(misses)
