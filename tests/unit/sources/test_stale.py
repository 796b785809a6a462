"""After a power failure, stale records are past the log's end: readers do not show them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import rocketstore
from rocketstore import CorruptMessageError, formats
from rocketstore.sources import list_log, plan_splits
from rocketstore.sources.walk import log_end
from support.split_walks import read_log

SEGMENT = 16 * 1024
#: Files that only rocketstore writes, or that hold its marks.
MARKS = (formats.STATE_FILE, formats.CHECKPOINT_FILE)


def put(root: Path, mode: str, count: int, start: int, nbytes: int) -> list[int]:
    """Put messages from the time ``start`` on; their offsets."""
    times = iter(range(start, start + 1_000_000))
    with rocketstore.open(
        root, mode, mapped_file_size_commit_log=SEGMENT, clock=lambda: next(times)
    ) as store:
        return [
            store.put("T", bytes([number]) * nbytes, number % 2).physical_offset or 0
            for number in range(count)
        ]


@pytest.fixture
def root(tmp_path: Path) -> tuple[Path, list[int], list[int]]:
    """A store without marks whose messages from the 20th on were lost and rewritten, shorter;
    the offsets of the messages that count, and of the stale ones after them."""
    root = tmp_path / "store"
    former = put(root, "x", 60, 1_700_000_000_000, 100)
    path = root / "commitlog" / formats.offset_to_file_name(0)
    old = path.read_bytes()
    content = bytearray(old)
    content[former[20] :] = bytes(SEGMENT - former[20])
    path.write_bytes(content)
    drop_all_but_the_log(root)
    later = put(root, "r+", 7, 1_700_000_500_000, 37)
    log = list_log(root)
    end = log_end(log)
    content = bytearray(path.read_bytes())
    content[end:] = old[end:]
    path.write_bytes(content)
    drop_all_but_the_log(root)
    good = former[:20] + later
    return root, good, [offset for offset in former if offset > end]


def drop_all_but_the_log(root: Path) -> None:
    """Leave nothing that shows how far the log was written."""
    for entry in os.scandir(root):
        if entry.name == "commitlog":
            continue
        if entry.is_dir():
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)


def test_what_came_back_is_neither_read_nor_the_end(
    root: tuple[Path, list[int], list[int]],
) -> None:
    path, good, came_back = root
    with rocketstore.open(path) as store:
        assert [m.physical_offset for m in store.scan()] == good
        end = store.max_physical_offset
    assert end < came_back[0]
    assert came_back[0] < SEGMENT
    log = list_log(path)
    assert log_end(log) == log_end(log, start=good[3]) == log_end(log, start=end) == end
    reading = read_log(log)
    assert (reading.offsets, reading.damage) == (good, [])


def test_in_several_splits_it_counts_as_damage_unless_the_end_is_given(
    root: tuple[Path, list[int], list[int]],
) -> None:
    path, good, came_back = root
    log = list_log(path)
    assert len(plan_splits(log, split_bytes=2000)) == 9
    with pytest.raises(CorruptMessageError):
        read_log(log, split_bytes=2000)
    reading = read_log(log, split_bytes=2000, on_corruption="skip")
    assert reading.offsets == good + came_back
    assert [following for _, following, _ in reading.damage] == [came_back[0]]
    reading = read_log(log, split_bytes=2000, stop=log_end(log))
    assert (reading.offsets, reading.damage) == (good, [])


def test_damage_before_later_messages_is_damage(tmp_path: Path) -> None:
    root = tmp_path / "store"
    offsets = put(root, "x", 60, 1_700_000_000_000, 100)
    drop_all_but_the_log(root)
    path = root / "commitlog" / formats.offset_to_file_name(0)
    content = bytearray(path.read_bytes())
    content[offsets[30] : offsets[32]] = bytes(offsets[32] - offsets[30])
    path.write_bytes(content)
    log = list_log(root)
    with pytest.raises(CorruptMessageError):
        read_log(log)
    reading = read_log(log, on_corruption="skip")
    assert reading.offsets == offsets[:30] + offsets[32:]
    assert log_end(log) == log_end(log, start=offsets[30]) > offsets[-1]


def test_a_hole_at_the_end_gets_no_splits(tmp_path: Path) -> None:
    root = tmp_path / "store"
    nbytes = 16 << 20
    (root / "commitlog").mkdir(parents=True)
    whole = tmp_path / "whole"
    with rocketstore.open(whole, "x", mapped_file_size_commit_log=SEGMENT) as store:
        store.put("T", bytes(300))
        end = store.max_physical_offset
        raw = bytes(next(iter(store.scan())).raw)
    path = root / "commitlog" / formats.offset_to_file_name(0)
    with open(path, "wb") as file:
        file.write(raw)
        file.truncate(nbytes)
    log = list_log(root)
    has_hole = os.stat(path).st_blocks * 512 < nbytes
    splits = plan_splits(log, split_bytes=1 << 20)
    assert len(splits) == (1 if has_hole else 16)
    assert {split.range_stop for split in splits} == {nbytes}
    for split_bytes in (1 << 20, nbytes):
        reading = read_log(log, split_bytes=split_bytes)
        assert (reading.offsets, reading.damage) == ([0], [])
    assert log_end(log) == log_end(log, start=end) == end
