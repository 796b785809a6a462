"""Next steps: a plan where a plan mends it, by hand where it refuses, and nothing that harms."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import rocketstore
from golden.golden_stores import unpack
from rocketstore.diagnosis.examination import doctor
from support.ward import CASES, config_file, damaged


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return unpack("plain-5.3.3", tmp_path)


def spoil(store: Path) -> None:
    with open(store / "commitlog/00000000000000065536", "r+b") as file:
        file.seek(8192)
        file.write(bytes(4096))


def plans(verdict: rocketstore.Verdict) -> bool:
    return any("plan" in one.command for one in verdict.next)


@pytest.mark.parametrize("name", CASES)
def test_a_plan_is_named_for_every_store_of_the_ward(name: str, tmp_path: Path) -> None:
    config = config_file(name, tmp_path)
    for level in ("quick", "full"):
        verdict = doctor(damaged(name, tmp_path / level), level=level, config=config)
        if level == "quick" and not verdict.findings:
            continue
        root = str(tmp_path / level / "store")
        command = ["rocketstore", "plan", root, "-o", "plan.json", "--config", str(config)]
        assert command in [one.command for one in verdict.next]
        assert all(one.safe for one in verdict.next)


def test_no_plan_is_named_where_a_person_must_act_first(store: Path) -> None:
    spoil(store)
    segment = store / "commitlog/00000000000000131072"
    segment.unlink()
    os.mkfifo(segment)
    verdict = doctor(store)
    assert not plans(verdict)
    assert verdict.next[0].command == []
    assert "move away" in verdict.next[0].why
    assert verdict.next[-1].command == ["rocketstore", "doctor", str(store)]
    with pytest.raises(rocketstore.RepairRefusedError):
        rocketstore.plan(store)
    segment.unlink()
    assert plans(doctor(store))
    assert not rocketstore.plan(store).empty


def test_a_foreign_folder_stops_a_plan_and_a_foreign_file_does_not(store: Path) -> None:
    (store / "consumequeue/T/0/core").write_bytes(b"x")
    assert plans(doctor(store))
    (store / "consumequeue/T/0/aside").mkdir()
    verdict = doctor(store)
    assert not plans(verdict)
    assert any("move the foreign" in one.why for one in verdict.next)


def test_a_store_in_use_is_left_alone(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "store", "x") as opened:
        opened.put("T", b"x")
        verdict = doctor(tmp_path / "store")
    assert "store.in-use" in verdict.counts
    assert not plans(verdict)
    assert "has stopped" in verdict.next[0].why


def test_a_copy_of_the_missing_segment_comes_first(store: Path) -> None:
    (store / "commitlog/00000000000000065536").unlink()
    first, second = doctor(store).next
    assert "copy of the missing segment" in first.why
    assert "plan" in second.command


def test_a_part_of_a_store_names_the_store(store: Path, tmp_path: Path) -> None:
    spoil(store)
    for path in (store / "commitlog", store / "commitlog/00000000000000065536"):
        assert doctor(path).next[0].command[:3] == ["rocketstore", "plan", str(store)]
    alone = shutil.copytree(store / "commitlog", tmp_path / "alone")
    (step,) = doctor(alone).next
    assert not step.command
    assert "directory of the store" in step.why


def test_a_log_elsewhere_is_for_salvage(store: Path, tmp_path: Path) -> None:
    spoil(store)
    log = tmp_path / "log"
    (store / "commitlog").rename(log)
    verdict = doctor(store, store_path_commit_log=str(log))
    (step,) = verdict.next
    expected = ["rocketstore", "salvage", str(store), "--what-if", "--commit-log", str(log)]
    assert step.command == expected
    assert rocketstore.salvage(store, what_if=True, store_path_commit_log=str(log)).damaged
