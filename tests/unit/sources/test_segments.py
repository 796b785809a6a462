"""Listing a log by path: what is one, what is refused, how long its segments are."""

from __future__ import annotations

import os
import random
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import CorruptMessageError, MappedFileError, UnsafePathError, formats
from rocketstore.files import mapped_file_queue
from rocketstore.sources import list_log, plan_splits
from rocketstore.sources.walk import log_end
from support.split_walks import read_log

SEGMENT = 4096


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store of several segments; only to be read."""
    root = tmp_path_factory.mktemp("whole") / "store"
    chance = random.Random(3)
    clock = iter(range(1_700_000_000_000, 1_800_000_000_000, 60_000))
    with rocketstore.open(
        root, "x", mapped_file_size_commit_log=SEGMENT, clock=lambda: next(clock)
    ) as store:
        for number in range(60):
            store.put("T", chance.randbytes(150), number % 4)
    return root


@pytest.fixture
def root(whole: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(whole, tmp_path / "store"))


def segment(root: Path, number: int) -> Path:
    """Path of a segment."""
    return root / "commitlog" / formats.offset_to_file_name(number * SEGMENT)


def test_root_and_log_folder_and_uri_are_one(root: Path) -> None:
    segments = list_log(root).segments
    assert len(segments) == 4
    assert [s.base_offset for s in segments] == [n * SEGMENT for n in range(4)]
    assert {(s.file_size, s.segment_size) for s in segments} == {(SEGMENT, SEGMENT)}
    for form in (str(root), root / "commitlog", root.as_uri(), f"file://{root}/commitlog"):
        log = list_log(form)
        assert log.segments == segments
        assert log.root == os.fspath(form)
    assert list_log(root / "commitlog").segments[0].uri == str(segment(root, 0))


def test_a_log_in_a_folder_of_any_name_is_one(root: Path, tmp_path: Path) -> None:
    expected = read_log(list_log(root)).records
    moved = (root / "commitlog").rename(tmp_path / "log of last year")
    assert read_log(list_log(moved)).records == expected


@pytest.mark.parametrize("name", ["log", "commitlog"])
@pytest.mark.parametrize("place", ["nothing", "empty", "link", "other names", "absent file"])
def test_a_log_elsewhere_is_read_from_its_own_folder(
    place: str, name: str, root: Path, tmp_path: Path
) -> None:
    """What the refusal advises works; no option names a log's folder here."""
    expected = read_log(list_log(root)).records
    log, there = tmp_path / "other" / name, root / "commitlog"
    log.parent.mkdir()
    there.rename(log)
    if place == "link":
        there.symlink_to(log)
    elif place == "absent file":
        there.symlink_to(tmp_path / "not mounted")
    elif place != "nothing":
        there.mkdir()
    if place == "other names":
        (there / "notes.txt").write_text("hello")
    with pytest.raises((MappedFileError, UnsafePathError)) as found:
        list_log(root)
    assert "give the log's folder as the path instead of the store's" in str(found.value)
    assert "commit-log" not in str(found.value)
    assert read_log(list_log(log)).records == expected


def test_something_else_in_the_place_of_the_log(root: Path) -> None:
    (root / "commitlog").rename(root / "aside")
    (root / "commitlog").write_text("hello")
    with pytest.raises(MappedFileError, match="commitlog is a file, not a folder"):
        list_log(root)


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no store .*nowhere$"):
        list_log(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="is not a store"):
        list_log(tmp_path)
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(FileNotFoundError, match="is not a store"):
        list_log(tmp_path)
    with pytest.raises(NotADirectoryError, match="is a file"):
        list_log(tmp_path / "notes.txt")


def test_a_store_without_segments_gives_no_splits(tmp_path: Path) -> None:
    for names in (["commitlog"], ["consumequeue"], ["commitlog", "consumequeue"]):
        root = tmp_path / "-".join(names)
        for name in names:
            (root / name).mkdir(parents=True)
        log = list_log(root)
        assert (log.segments, log.min_offset, log.end_offset, log.nbytes) == ((), 0, 0, 0)
        assert plan_splits(log, begin=0, end=1) == []
        assert log_end(log) == 0


def test_a_missing_segment_is_named(root: Path) -> None:
    segment(root, 1).unlink()
    with pytest.raises(MappedFileError, match=f"has no bytes {SEGMENT} to {2 * SEGMENT}"):
        list_log(root)
    log = list_log(root, allow_holes=True)
    assert log.holes == ((SEGMENT, 2 * SEGMENT),)
    assert len(read_log(log).records) < 60


def test_missing_first_segments_are_expired_ones(root: Path) -> None:
    every = read_log(list_log(root)).offsets
    segment(root, 0).unlink()
    log = list_log(root)
    assert log.min_offset == SEGMENT
    assert read_log(log).offsets == [offset for offset in every if offset >= SEGMENT]


@pytest.mark.parametrize("gone", [1, 3])
def test_segments_that_expire_while_they_are_listed(
    gone: int, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A segment that its broker deleted between the listing of the folder and the look at the file
    was an error without a word of why, for a stream that had long read it, too.
    """
    look = mapped_file_queue.look_at_file
    left = list(range(gone))

    def late(path: Path, *arguments: Any) -> Any:
        if path == segment(root, gone - 1):
            while left:
                segment(root, left.pop(0)).unlink()
        return look(path, *arguments)

    monkeypatch.setattr(mapped_file_queue, "look_at_file", late)
    log = list_log(root)
    assert log.min_offset == gone * SEGMENT
    assert log.holes == ()
    segment(root, gone).unlink()
    segment(root, gone).symlink_to(root / "commitlog" / "nowhere")
    with pytest.raises(FileNotFoundError):
        list_log(root)


def test_other_files_in_the_folder_are_not_changed(root: Path) -> None:
    expected = list_log(root)
    for name in ("notes", "0" * 19, "0" * 19 + "x", formats.offset_to_file_name(0) + ".bak"):
        (root / "commitlog" / name).write_bytes(b"x" * 100)
    assert list_log(root) == expected


def test_odd_segments_are_refused(root: Path) -> None:
    path = segment(root, 4)
    path.mkdir()
    with pytest.raises(MappedFileError, match="directory"):
        list_log(root)
    path.rmdir()
    os.mkfifo(path)
    with pytest.raises(MappedFileError, match="FIFO"):
        list_log(root)
    path.unlink()
    path.symlink_to("/etc/hostname")
    with pytest.raises(UnsafePathError):
        list_log(root)
    path.unlink()
    (root / "commitlog" / formats.offset_to_file_name(4 * SEGMENT + 1)).write_bytes(bytes(SEGMENT))
    with pytest.raises(MappedFileError, match="multiple"):
        list_log(root)


@pytest.mark.parametrize("place", ["dledger-n0/data", "commitlog", "data"])
def test_a_dledger_log_is_refused(tmp_path: Path, place: str) -> None:
    folder = tmp_path / "store" / place
    folder.mkdir(parents=True)
    (tmp_path / "store" / "consumequeue").mkdir()
    head = struct.pack(">iiqqq", 1, 300, 0, 1, 0)
    (folder / formats.offset_to_file_name(0)).write_bytes(head + bytes(1000))
    with pytest.raises(MappedFileError, match="DLedger"):
        list_log(tmp_path / "store")
    with pytest.raises(MappedFileError, match="DLedger"):
        list_log(folder)


def test_a_truncated_last_segment_is_read_to_its_end(root: Path) -> None:
    every = read_log(list_log(root)).offsets
    path = segment(root, 2)
    segment(root, 3).unlink()
    (root / formats.STATE_FILE).unlink()
    os.truncate(path, 1000)
    log = list_log(root)
    assert log.segment_size == SEGMENT
    assert log.segments[-1].file_size == 1000
    reading = read_log(log, split_bytes=300)
    assert reading.offsets == [o for o in every if o < 2 * SEGMENT + 1000][:-1]
    assert log_end(log) == [o for o in every if o < 2 * SEGMENT + 1000][-1]
    assert reading.damage == []


def test_a_truncated_middle_segment_is_damaged(root: Path) -> None:
    every = read_log(list_log(root)).offsets
    os.truncate(segment(root, 1), 1000)
    log = list_log(root)
    reading = read_log(log, split_bytes=300, on_corruption="skip")
    lost = [o for o in every if SEGMENT + 1000 <= o < 2 * SEGMENT]
    cut_off = max(o for o in every if o < SEGMENT + 1000)
    assert reading.offsets == [o for o in every if o not in (*lost, cut_off)]
    assert [first for first, _, _ in reading.damage] == [cut_off]
    with pytest.raises(CorruptMessageError):
        read_log(log)


def test_the_only_segment_is_as_long_as_the_state_file_says(root: Path) -> None:
    for number in range(1, 4):
        segment(root, number).unlink()
    os.truncate(segment(root, 0), 1000)
    assert list_log(root).segment_size == SEGMENT
    (root / formats.STATE_FILE).unlink()
    assert list_log(root).segment_size == 1000


def test_the_last_record_of_a_closed_store_is_no_torn_one(root: Path) -> None:
    """Nothing follows it, but the marks of the writer say that it was whole."""
    log = list_log(root)
    every = read_log(log).offsets
    assert log.durable_offset == log_end(log)
    with open(segment(root, every[-1] // SEGMENT), "r+b") as file:
        file.seek(every[-1] % SEGMENT + 95)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))
    for split_bytes in (1 << 20, 200):
        with pytest.raises(CorruptMessageError, match=str(every[-1])):
            read_log(list_log(root), split_bytes=split_bytes)
        reading = read_log(list_log(root), split_bytes=split_bytes, on_corruption="skip")
        assert reading.offsets == every[:-1]
        assert [(first, following) for first, following, _ in reading.damage] == [(every[-1], None)]
    with rocketstore.open(root) as store:
        assert [damaged.start for damaged in store.recovery_report.damaged] == [every[-1]]
    (root / "checkpoint").write_bytes(b"\1" * 4096)  # another program wrote the store since
    assert list_log(root).durable_offset == 0
    assert read_log(list_log(root)).offsets == every[:-1]


def test_zeros_show_that_a_mark_is_wrong(root: Path) -> None:
    every = read_log(list_log(root)).offsets
    path = segment(root, every[-1] // SEGMENT)
    content = path.read_bytes()[: every[-1] % SEGMENT]
    path.write_bytes(content.ljust(SEGMENT, b"\0"))
    reading = read_log(list_log(root))
    assert (reading.offsets, reading.damage) == (every[:-1], [])


# --- plans --------------------------------------------------------------------------------------


def test_splits_cover_the_log_in_order(root: Path) -> None:
    log = list_log(root)
    for split_bytes in (7, 1000, SEGMENT, 1 << 30):
        splits = plan_splits(log, split_bytes=split_bytes)
        place = 0
        for split in splits:
            assert split.base_offset + split.start == place
            assert 0 < split.nbytes <= split_bytes
            place = split.base_offset + split.stop
        assert place == log.end_offset
        assert [s.aligned for s in splits] == [s.start == 0 for s in splits]


def test_min_partitions_makes_splits_smaller_within_bounds(root: Path) -> None:
    log = list_log(root)
    assert len(plan_splits(log)) == 4
    assert len(plan_splits(log, split_bytes=2000, min_partitions=100)) == 12
    assert len(plan_splits(log, min_partitions=100)) == 4  # 64 MiB are not undercut
    for wrong in ({"split_bytes": 0}, {"min_partitions": 0}):
        with pytest.raises(ValueError, match="positive"):
            plan_splits(log, **wrong)


def test_segments_outside_the_time_are_left_out(root: Path) -> None:
    log = list_log(root)
    with rocketstore.open(root) as store:
        messages = [(m.physical_offset, m.store_timestamp) for m in store.scan()]
    first = [next(t for o, t in messages if o // SEGMENT == number) for number in range(4)]
    bases = [s.base_offset // SEGMENT for s in plan_splits(log, begin=first[2], end=first[3])]
    assert bases == [1, 2, 3]  # as far as a clock may have gone back
    minutes = 20 * 60_000
    assert [s.base_offset for s in plan_splits(log, end=first[1] - minutes)] == [0]
    begin = first[3] + minutes
    assert [s.base_offset // SEGMENT for s in plan_splits(log, begin=begin)] == [3]
    for begin in range(first[0], messages[-1][1], 7 * 60_000):
        end = begin + 11 * 60_000
        offsets = set(read_log(log, begin=begin, end=end).offsets)
        assert offsets.issuperset(o for o, t in messages if begin <= t < end)


def test_a_segment_without_a_readable_time_is_kept(root: Path) -> None:
    with open(segment(root, 1), "r+b") as file:
        file.write(b"\xff" * 100)
    splits = plan_splits(list_log(root), end=1)
    assert [s.base_offset for s in splits] == [SEGMENT]
