"""``plan`` and ``repair`` on damaged stores: what is intact is served, what is lost was named."""

from __future__ import annotations

from pathlib import Path

import pytest

import rocketstore
from golden.test_ward import played
from rocketstore.config import MessageStoreConfig
from support.seeded_ward import SeededStore, snapshot
from support.ward import CASES, case, damaged


@pytest.mark.parametrize("name", CASES)
def test_a_damaged_store_is_well_afterwards(name: str, tmp_path: Path) -> None:
    recipe = case(name)
    root = damaged(name, tmp_path)
    before = snapshot(root)
    config = MessageStoreConfig.from_properties(recipe["config"])
    plan = rocketstore.plan(root, config=config)
    assert snapshot(root) == before
    assert not plan.empty
    report = rocketstore.repair(root, plan)
    assert report.verdict is not None
    assert report.verdict.state == "well"
    ranges = [one["log"] for one in plan.already]
    for lost in recipe["lost"]:
        assert any(start <= lost["offset"] < stop for start, stop in ranges), lost
    with rocketstore.open(root, "r", config=config) as store:
        assert not store.verify().finding_counts
    forecast = played(root, recipe).forecast()
    assert forecast.starts
    assert forecast.truncates is not None
    assert forecast.truncates["messages"] == 0
    # An empty next segment, created ahead, is deleted by every start.
    assert all(not any((root / name).read_bytes()) for name in forecast.deletes)
    assert forecast.keys_not_found == 0
    assert forecast.hangs_at is None
    assert rocketstore.plan(root, config=config).empty
    assert rocketstore.repair(root, plan).state == "already"
    assert report.undo is not None
    assert rocketstore.undo_repair(root, report.undo).state == "undone"
    assert snapshot(root) == before


@pytest.mark.parametrize("seed", range(8))
def test_a_store_damaged_by_seed_is_repaired_and_given_back(seed: int, tmp_path: Path) -> None:
    store = SeededStore(seed, tmp_path)
    assert store.judge() in ("well", "left", "nothing to do"), str(store)
