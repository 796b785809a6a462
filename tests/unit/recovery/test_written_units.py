"""Where the check of an opening begins within a long segment, by the units of queues."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import formats
from rocketstore.recovery import durable_mark
from rocketstore.recovery import written_units as unit_search
from rocketstore.recovery.written_units import record_start, written_units
from support.record_factory import make_record

#: Segments much longer than what is checked.
LONG: dict[str, Any] = {"mapped_file_size_commit_log": 1 << 20, "start": False}
SMALL_QUEUES: dict[str, Any] = {"mapped_file_size_consume_queue": 20 * 100}
CHECKED = 100 * 1024
UNIT = formats.CONSUME_QUEUE_UNIT


@pytest.fixture(autouse=True)
def _check_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable_mark, "CHECKED_NBYTES", CHECKED)
    monkeypatch.setattr(durable_mark, "CLEAN_CHECKED_NBYTES", CHECKED)
    monkeypatch.setattr(durable_mark, "_WORTH_NBYTES", 1024)
    monkeypatch.setattr(unit_search, "_NEAR_NBYTES", 0)


def fill(root: Path, count: int = 600) -> tuple[list[int], int]:
    """Put messages of 1 KiB to three queues; return where records start, and the log's end."""
    with rocketstore.open(root, "x", **LONG, **SMALL_QUEUES) as store:
        results = [store.put("T", bytes(1000), number % 3) for number in range(count)]
        store.wait_dispatched()
        return [result.physical_offset for result in results], store.max_physical_offset


def scanned_from(root: Path, mode: str) -> int:
    with rocketstore.open(root, mode, start=False) as store:
        assert store.recovery_report.damaged == []
        return store.recovery_report.scanned_from


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("aborted", [False, True])
def test_the_check_begins_at_the_last_record_before_it_must(
    mode: str, aborted: bool, tmp_path: Path
) -> None:
    """It began at the segment's start: of a segment of 1 GiB, up to a gigabyte more was read."""
    root = tmp_path / "s"
    starts, end = fill(root)
    if aborted:
        (root / "abort").touch()
    assert scanned_from(root, mode) == max(at for at in starts if at <= end - CHECKED)


def change_units(root: Path, change: Any) -> None:
    for path in root.glob("consumequeue/T/*/*"):
        data = bytearray(path.read_bytes())
        for at in range(0, len(data), UNIT.nbytes):
            unit = change(UNIT.struct.unpack_from(data, at))
            UNIT.struct.pack_into(data, at, *unit)
        path.write_bytes(data)


@pytest.mark.parametrize(
    "change",
    [
        lambda unit: (unit[0] + (7 if unit[1] else 0), *unit[1:]),  # within the records
        lambda unit: (unit[0], unit[1] + (1 if unit[1] else 0), unit[2]),  # another length
        lambda unit: (0, 0, 0),
    ],
)
def test_units_that_name_no_record_of_their_queue_are_not_believed(
    change: Any, tmp_path: Path
) -> None:
    root = tmp_path / "s"
    fill(root)
    change_units(root, change)
    assert scanned_from(root, "r") == 0


def test_a_record_within_a_body_is_not_a_place_to_begin_at(tmp_path: Path) -> None:
    """The bytes of a body may be a whole record that carries the right offset. No unit is its."""
    root = tmp_path / "s"
    with rocketstore.open(root, "x", **LONG) as store:
        for number in range(600):
            inside = 64 + store.max_physical_offset + formats.RECORD_HEADER_V4_NBYTES
            forged = make_record(
                physical_offset=inside, topic=b"T", queue_id=0, queue_offset=number, body=b"x"
            )
            assert store.put("T", bytes(64) + forged + bytes(800)).ok
        store.wait_dispatched()
        log = store.reader.log
        starts = [message.physical_offset for message in store.scan()]
        for target in random.Random(1).sample(range(log.max_offset), 50):
            found = record_start(log, store.reader.queues, 0, target)
            assert found == max(at for at in starts if at <= target)


def test_a_record_that_is_near_enough_ends_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "s"
    starts, _ = fill(root)
    monkeypatch.setattr(unit_search, "_NEAR_NBYTES", 4096)
    wanted = starts[400]
    with rocketstore.open(root, "r") as store:
        queues = [store.reader.queues.get("T", queue_id) for queue_id in range(3)]
        found = [record_start(store.reader.log, [one], 0, wanted) for one in queues if one]
        assert sorted(found) == starts[398:401]
        for first in range(3):
            chosen = [one for one in queues[first:] + queues[:first] if one]
            assert record_start(store.reader.log, chosen, 0, wanted) == found[first]


def test_written_units_of_several_files(tmp_path: Path) -> None:
    root = tmp_path / "s"
    fill(root)
    with rocketstore.open(root, "r") as store:
        queues = list(store.reader.queues)
        assert [written_units(queue) for queue in queues] == [(0, 200)] * 3
        # A last file without units: the one before it has the newest.
        assert all(len(queue.queue.files) == 2 for queue in queues)
    with rocketstore.open(root, "r+", **LONG) as store:
        for number in range(3):
            assert store.put("T", b"", number).ok
        store.wait_dispatched()
    with rocketstore.open(root, "r") as store:
        assert [written_units(queue) for queue in store.reader.queues] == [(0, 201)] * 3
    change_units(root, lambda unit: (0, 0, 0))
    with rocketstore.open(root, "r") as store:
        assert [written_units(queue) for queue in store.reader.queues] == [(0, 0)] * 3
