"""``capacity``: growth, expiry and the levels of the disk."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from rocketstore import MessageStoreConfig
from rocketstore.files.disk_space import DiskSpace
from rocketstore.looking import disk_forecast
from rocketstore.looking.disk_forecast import Capacity, capacity
from support.looked_stores import HOUR_MS, START, make_store

DAY_MS = 24 * HOUR_MS
COUNT = 1000  # of a tenth of an hour: over four days


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("looked") / "store", COUNT)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """A disk of 100 MB, of which the test decides what is used."""
    sizes = {"used": 10_000_000}

    def ask(path: Path) -> DiskSpace:
        return DiskSpace(100_000_000, sizes["used"], 100_000_000 - sizes["used"])

    monkeypatch.setattr(disk_forecast, "disk_space", ask)
    return sizes


def asked(root: Path, hours: int = 72, **options: Any) -> Capacity:
    config = MessageStoreConfig(file_reserved_time=hours)
    return capacity(root, config=config, at=START + COUNT * HOUR_MS // 10, **options)


def test_growth(root: Path, disk: dict[str, int]) -> None:
    answer = asked(root)
    # Three days of the four were measured.
    assert answer.measured_days == 3.0
    mean = answer.log_nbytes / (COUNT / 240)
    assert answer.day_nbytes == pytest.approx(mean, rel=0.1)
    followers = sum(
        os.lstat(path).st_blocks * 512
        for name in ("consumequeue", "index")
        for path in (root / name).rglob("*")
        if path.is_file()
    )
    assert answer.factor == pytest.approx(1 + followers / answer.log_nbytes)
    assert answer.steady_nbytes == pytest.approx(
        answer.day_nbytes * (3 + 1 / 24) * answer.factor, rel=0.001
    )


def test_what_expires_makes_room(root: Path, disk: dict[str, int]) -> None:
    assert asked(root, 72).days is None  # as much expires as comes
    disk["used"] = 89_990_000
    answer = asked(root, 1000)  # nothing expires for a long time
    left = 90_000_000 - disk["used"]
    expected = left / (answer.day_nbytes * answer.factor)
    assert answer.days == pytest.approx(expected, rel=0.02)
    by_name = {level.name: level for level in answer.levels}
    assert by_name["expired files go at once"].days == 0.0
    assert by_name["files of any age go"].days == 0.0
    assert by_name["puts are refused"].left_nbytes == left
    assert by_name["puts are refused"].time == answer.at + round(answer.days * DAY_MS)


def test_a_level_may_never_be_reached(root: Path, disk: dict[str, int]) -> None:
    disk["used"] = 89_000_000
    growth = asked(root).day_nbytes
    assert growth is not None
    refused = asked(root, 24 * 5)  # another day comes until expiry holds the size
    assert (refused.days is None) == (growth * refused.factor < 1_000_000)


def test_a_short_log_and_a_bare_one(tmp_path: Path, root: Path, disk: dict[str, int]) -> None:
    small = make_store(tmp_path / "small", 1)
    answer = capacity(small, at=START + 1)
    assert (answer.day_nbytes, answer.days) == (None, None)
    assert "too short" in answer.notes[0]
    bare = asked(root / "commitlog")
    assert bare.factor == 1.0
    assert bare.day_nbytes == asked(root).day_nbytes
    young = capacity(root, at=START + 10 * HOUR_MS)
    assert any("younger than a day" in note for note in young.notes)
    assert any("in the future" in note for note in young.notes)


def test_a_disk_that_does_not_answer(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(path: Path) -> DiskSpace:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(disk_forecast, "disk_space", ask)
    answer = asked(root)
    assert answer.levels == []
    assert "Input/output error" in answer.notes[-1]
