"""Queue files that a kill left empty: opening for writing moves them aside and goes on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstore

OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": 16 * 1024,
    "mapped_file_size_consume_queue": 400,
    "enable_consume_queue_ext": True,
    "mapped_file_size_consume_queue_ext": 2048,
}


@pytest.mark.parametrize("part", ["consumequeue", "consumequeue_ext"])
def test_an_empty_file_of_a_queue_without_others(part: str, tmp_path: Path) -> None:
    """RocketMQ, killed while it created a queue's first files, left an empty one. Opening for
    writing failed with "File exists" when it rebuilt the queue. An empty ext file caused the same
    if the queue had no folder of its own yet, because the check of files did not know the queue."""
    root = tmp_path / "store"
    with rocketstore.open(root, "x", **OPTIONS) as store:
        assert store.put("T", b"one", 3, "tag").ok
        assert store.wait_dispatched(120)
    for folder in ("consumequeue", "consumequeue_ext"):
        for path in sorted((root / folder / "T").rglob("*"), reverse=True):
            if path.is_file():
                path.unlink()
            else:
                path.rmdir()
    (root / "rocketstore.state").unlink()
    (root / "abort").touch()
    empty = root / part / "T" / "3" / ("0" * 20)
    empty.parent.mkdir(parents=True)
    empty.touch()
    with rocketstore.open(root, "r+", **OPTIONS) as store:
        (message,) = store.get_message("g", "T", 3, 0).messages
        assert message.body == b"one"
        assert store.put("T", b"two", 3).queue_offset == 1
    assert empty.stat().st_size in (400, 2048)


def write_note(path: Path) -> None:
    path.write_bytes(b"a note")


NO_FOLDERS = pytest.mark.parametrize("make", [write_note, os.mkfifo], ids=["file", "fifo"])


@NO_FOLDERS
@pytest.mark.parametrize("below", ["", "3"])
@pytest.mark.parametrize("part", ["consumequeue", "consumequeue_ext"])
@pytest.mark.timeout(120)
def test_no_folder_where_a_queue_belongs(
    part: str, below: str, make: Callable[[Path], None], tmp_path: Path
) -> None:
    """Rebuilding the queue raised a bare FileExistsError. By then the log's tail was truncated and
    the abort file existed, and the store could never be opened for writing."""
    root = tmp_path / "store"
    with rocketstore.open(root, "x", **OPTIONS) as store:
        assert store.put("T", b"one", 3, "tag").ok
    place = root / part / "T" / below
    shutil.rmtree(place)
    make(place)
    with rocketstore.open(root) as store:
        assert [m.body for m in store.get_message("g", "T", 3, 0).messages] == [b"one"]
    with rocketstore.open(root, "r+", **OPTIONS) as store:
        assert store.put("T", b"two", 3, "tag").queue_offset == 1
        assert store.wait_dispatched(120)
        assert [m.body for m in store.get_message("g", "T", 3, 0).messages] == [b"one", b"two"]
        (kept,) = (root / "quarantine").iterdir()
        assert any(str(kept) in note for note in store.recovery_report.notes)
    assert kept.name == "-".join([part, "T", below]).rstrip("-")
    assert kept.is_fifo() or kept.read_bytes() == b"a note"


@NO_FOLDERS
@pytest.mark.parametrize("name", ["consumequeue/New", "consumequeue_ext/New"])
@pytest.mark.timeout(120)
def test_a_note_is_moved_only_when_a_topic_takes_its_name(
    name: str, make: Callable[[Path], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Dispatch failed for good on such an entry, and with it the store, long after its opening."""
    root = tmp_path / "store"
    with rocketstore.open(root, "x", **OPTIONS) as store:
        assert store.put("T", b"one").ok
    make(root / name)
    with rocketstore.open(root, "r+", **OPTIONS) as store:
        assert store.put("T", b"two").ok
        assert store.wait_dispatched(120)
        assert not (root / "quarantine").exists()
        assert store.put("New", b"three").ok
        assert store.wait_dispatched(120)
        assert [m.body for m in store.get_message("g", "New", 0, 0).messages] == [b"three"]
    (kept,) = (root / "quarantine").iterdir()
    assert str(kept) in caplog.text
