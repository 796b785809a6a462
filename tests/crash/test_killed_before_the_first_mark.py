"""A writer that is killed before its state file says that anything was dispatched."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from crash.abandoning import abandon
from rocketstore import formats

SMALL: dict[str, Any] = {"mapped_file_size_consume_queue": 20 * 50, "start": False}
UNIT_NBYTES = formats.CONSUME_QUEUE_UNIT.nbytes
COUNT = 100


@pytest.fixture(autouse=True)
def _no_log_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a short log all units are compared anyway."""
    monkeypatch.setattr("rocketstore.store.dispatch_recovery.COMPARED_NBYTES", 0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The store of such a writer, two queues of two files each."""
    store = rocketstore.open(tmp_path / "s", "x", **SMALL)
    for number in range(2 * COUNT):
        assert store.put("T", b"%d" % number, number % 2, "tag", f"k{number}").ok
    assert store.wait_dispatched()
    abandon(store)
    return tmp_path / "s"


def queue_files(root: Path) -> dict[Path, int]:
    return {path: path.stat().st_ino for path in sorted(root.glob("consumequeue/T/*/*"))}


def check(root: Path, rebuilt: int) -> None:
    """Open the store for writing: every message is in its queue and has its key."""
    with rocketstore.open(root, "r+", **SMALL) as store:
        assert store.recovery_report.rebuilt_units == rebuilt
        for number in range(2 * COUNT):
            (found,) = store.find(topic="T", key=f"k{number}")
            assert found.body == b"%d" % number
        for queue_id in range(2):
            messages = store.get_message("g", "T", queue_id, 0, COUNT).messages
            assert [message.queue_offset for message in messages] == list(range(len(messages)))
            assert store.max_offset_in_queue("T", queue_id) == COUNT
        assert store.verify().findings == []


def test_queue_files_stay_if_their_units_are_right(root: Path) -> None:
    """They were deleted, created again one by one, and each was synced."""
    before = queue_files(root)
    assert len(before) == 4
    check(root, rebuilt=0)
    assert queue_files(root) == before


@pytest.mark.parametrize(
    ("first", "nbytes", "units"), [(6, 2, 1), (0, 20, 1), (8, 12, 1), (10, 20 * 7, 8)]
)
def test_units_that_did_not_reach_the_disk_are_written(
    first: int, nbytes: int, units: int, root: Path
) -> None:
    path = next(iter(queue_files(root)))
    before = path.read_bytes()
    start = 13 * UNIT_NBYTES + first
    after = before[:start] + bytes(nbytes) + before[start + nbytes :]
    path.write_bytes(after)
    check(root, rebuilt=units)
    assert path.read_bytes() == before


def test_units_past_the_torn_end_of_the_log_are_cleared(root: Path) -> None:
    with rocketstore.open(root, "r") as store:
        last = max(message.physical_offset for message in store.scan())
    log = root / "commitlog" / formats.offset_to_file_name(0)
    fd = os.open(log, os.O_WRONLY)
    os.pwrite(fd, bytes(40), last)
    os.close(fd)
    with rocketstore.open(root, "r+", **SMALL) as store:
        assert store.recovery_report.cut != []
        assert store.max_offset_in_queue("T", 1) == COUNT - 1
    path = sorted(queue_files(root))[-1]
    place = (COUNT - 1) * UNIT_NBYTES % SMALL["mapped_file_size_consume_queue"]
    assert not path.read_bytes()[place:].strip(b"\0")


def test_a_missing_queue_file_is_made_again(root: Path) -> None:
    path = sorted(queue_files(root))[1]
    path.unlink()
    check(root, rebuilt=50)
    assert path in queue_files(root)
