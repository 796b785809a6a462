"""Catching up with a long log: in steps that release pages, with the same queues and index."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import rocketstore
from rocketstore import Message
from rocketstore.dispatch import catching_up
from rocketstore.files.mapped_file import MappedFile
from rocketstore.mending.reindex import reindex

OPTIONS = {"mapped_file_size_commit_log": 16384, "mapped_file_size_consume_queue": 2000}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    with rocketstore.open(path, "x", **OPTIONS) as made:
        for number in range(600):
            body = b"x" * (number % 400)
            made.put_message(
                Message("T", body, queue_id=number % 3, properties={"KEYS": f"k{number}"})
            )
        assert made.wait_dispatched()
    return path


@pytest.fixture
def released(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Make steps short; collect the folders of the files whose pages are released."""
    found: list[str] = []
    release = catching_up.release_pages

    def noted(file: MappedFile, *bounds: int) -> None:
        found.append(file.path.parent.name)
        release(file, *bounds)

    monkeypatch.setattr(catching_up, "release_pages", noted)
    monkeypatch.setattr(catching_up, "_STEP_NBYTES", 5000)
    monkeypatch.setattr(catching_up, "_KEPT_NBYTES", 20_000)
    monkeypatch.setattr(catching_up, "_FIRST_COUNT", 3)
    return found


def test_a_sound_store_is_rebuilt_in_steps(store: Path, released: list[str]) -> None:
    done = []
    report = reindex(store, what_if=True, progress=lambda what, at, total: done.append((at, total)))
    assert not report.files
    assert report.units == 600
    assert {"commitlog", "0", "1", "2", "index"} <= set(released)
    assert done == sorted(done)
    assert done[-1][0] == done[-1][1]
    assert len(done) > 10


def test_lost_queues_come_back_in_steps(store: Path, released: list[str]) -> None:
    before = {path: path.read_bytes() for path in (store / "consumequeue").rglob("0000*")}
    shutil.rmtree(store / "consumequeue")
    with rocketstore.open(store, "r+", start=False) as opened:
        assert sum(opened.max_offset_in_queue("T", queue_id) for queue_id in range(3)) == 600
    assert released
    assert {path: path.read_bytes() for path in (store / "consumequeue").rglob("0000*")} == before


def test_damage_ends_the_steps(store: Path, released: list[str]) -> None:
    with open(store / "commitlog/00000000000000016384", "r+b") as file:
        file.seek(6000)
        file.write(b"\xff" * 2000)
    with pytest.raises(rocketstore.CorruptionError):
        reindex(store, what_if=True)
