"""Queues and index rebuilt, put in place, and taken back."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import rocketstore
from rocketstore import formats
from rocketstore.errors import CorruptionError, MappedFileError, StoreLockedError
from rocketstore.mending.reindex import reindex
from rocketstore.planning.undoing import undo_repair
from rocketstore.testing.fixtures import SMALL_FILES
from support.file_trees import tree_of
from support.kill_points import run_until_change

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="stores are only read there")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A closed store of three topics; queues and index have several files."""
    root = tmp_path / "s"
    with rocketstore.open(root, "x", **SMALL_FILES) as store:
        for number in range(300):
            store.put(f"T{number % 3}", b"%d" % number, number % 2, "tag", f"key-{number}")
    return root


def spoil(root: Path) -> None:
    """Zero a unit, shorten no file, lose a queue, add units past an end, break an index file."""
    with next((root / "consumequeue/T0/0").iterdir()).open("r+b") as file:
        file.write(bytes(20))
    shutil.rmtree(root / "consumequeue/T1/1")
    extra = root / "consumequeue/T2/0/00000000000000002000"
    extra.write_bytes(b"\1" * 2000)
    index = sorted((root / "index").iterdir())
    with index[0].open("r+b") as file:
        file.seek(40)
        file.write(b"\xff" * 40)


def test_a_sound_store_is_left_alone(root: Path) -> None:
    before = tree_of(root)
    report = reindex(root)
    assert (report.queues, report.units, report.keys) == (6, 300, 300 * 2)
    assert (report.files, report.undo) == ([], None)
    assert tree_of(root) == before


def test_what_differs_is_replaced_and_taken_back(root: Path) -> None:
    sound = tree_of(root, times=False)
    spoil(root)
    broken = tree_of(root)
    planned = reindex(root, what_if=True)
    assert tree_of(root) == broken
    report = reindex(root)
    assert report.undo is not None
    names = [name for name in report.files if not name.startswith("index/")]
    assert names == [
        "consumequeue/T0/0/00000000000000000000",
        "consumequeue/T1/1/00000000000000000000",
        "consumequeue/T2/0/00000000000000002000",
    ]
    assert [name for name in planned.files if not name.startswith("index/")] == names
    mended = tree_of(root, times=False)
    for name, facts in sound.items():
        if name.startswith("consumequeue"):
            assert mended[name] == facts
    with rocketstore.open(root) as store:
        assert store.verify().ok
    undo_repair(root, report.undo)
    assert tree_of(root) == broken


def test_units_of_lost_messages_are_no_expired_ones(tmp_path: Path) -> None:
    """The first three records of a topic are another's now: its units of them go."""
    root = tmp_path / "s"
    with rocketstore.open(root, "x", **SMALL_FILES) as store:
        lost = [store.put("A", b"x").physical_offset for _ in range(3)]
        kept = store.put("A", b"x").physical_offset
    segment = root / "commitlog" / formats.offset_to_file_name(0)
    content = bytearray(segment.read_bytes())
    for offset in lost:
        content[content.index(b"\x01A", offset) + 1] = ord("B")
    segment.write_bytes(content)
    reindex(root)
    with open(root / "consumequeue/A/0" / formats.offset_to_file_name(0), "rb") as file:
        units = [formats.CONSUME_QUEUE_UNIT.struct.unpack(file.read(20)) for _ in range(5)]
    assert not {0, *lost} & {offset for offset, size, _ in units if 0 < size < 1 << 20}
    assert units[3][0] == kept
    with rocketstore.open(root) as store:
        assert store.min_offset_in_queue("A", 0) == 3
        assert (store.min_offset_in_queue("B", 0), store.max_offset_in_queue("B", 0)) == (0, 3)
        assert [m.topic for m in store.scan()] == [*"BBBA"]


def test_due_times_of_another_level_table_stay(tmp_path: Path) -> None:
    """Who does not know the broker's table neither finds its units wrong nor changes them."""
    root = tmp_path / "s"
    with rocketstore.open(root, "x", message_delay_level="7s 1h", **SMALL_FILES) as store:
        for number in range(8):
            assert store.put("A", b"x", delay_level=1 + number % 2).ok
    before = tree_of(root)
    with rocketstore.open(root) as store:
        report = store.verify()
    assert report.ok
    assert any("messageDelayLevel" in note for note in report.notes)
    assert reindex(root).files == []
    assert tree_of(root) == before
    path = root / "consumequeue" / formats.TOPIC_SCHEDULE / "1" / formats.offset_to_file_name(0)
    with path.open("r+b") as file:
        content = bytearray(file.read(40))
        content[39] ^= 1  # no table has delays of milliseconds
        file.seek(0)
        file.write(content)
    with rocketstore.open(root) as store:
        assert [finding.code for finding in store.verify().findings] == ["queue.unit.wrong"]
    assert len(reindex(root).files) == 1
    with rocketstore.open(root) as store:
        assert store.verify().ok


def test_a_pattern_names_the_topics(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")
    report = reindex(root, topics=["T[01]"])
    assert {name.split("/")[1] for name in report.files} == {"T0", "T1"}
    assert not (root / "consumequeue/T2").exists()
    assert reindex(root, index=False).files == [
        f"consumequeue/T2/{number}/00000000000000000000" for number in (0, 1)
    ]


#: Every how many changes of the file system a process is killed; 1 is every one.
STRIDE = int(os.environ.get("ROCKETSTORE_REPAIR_STRIDE", "19"))


def test_a_kill_at_any_change_is_resumed(root: Path, tmp_path: Path) -> None:
    spoil(root)
    broken = tree_of(root)
    for number in range(1, 1000, STRIDE):
        place = tmp_path / f"killed-{number}"
        shutil.copytree(root, place, copy_function=shutil.copy2)
        was_killed = run_until_change(lambda at=place: reindex(at), number)
        report = reindex(place)
        with rocketstore.open(place) as store:
            assert store.verify().ok
        folders = sorted((place / "quarantine").iterdir())
        assert len(folders) == 1
        assert report.undo is None or report.undo == str(folders[0])
        undo_repair(place, folders[0])
        after = tree_of(place)
        assert {name: after[name][:-1] for name in after} == {
            name: broken[name][:-1] for name in broken
        }
        shutil.rmtree(place)
        if not was_killed:
            assert number > 20
            return
    raise AssertionError("it never ended")


def test_a_kill_after_the_last_step_is_made_good(root: Path, tmp_path: Path) -> None:
    """The same call with a folder for the old files finds it full, and everything done."""
    spoil(root)
    first = reindex(root, undo=tmp_path / "undo")
    before = tree_of(root)
    again = reindex(root, undo=tmp_path / "undo")
    assert (again.undo, again.resumed, again.files) == (first.undo, True, [])
    assert tree_of(root) == before
    shutil.rmtree(root / "consumequeue/T1")
    with pytest.raises(MappedFileError, match="is not empty"):
        reindex(root, undo=tmp_path / "undo")


def test_a_kill_while_it_is_taken_back_is_resumed(root: Path, tmp_path: Path) -> None:
    spoil(root)
    broken = tree_of(root, times=False)
    undo = reindex(root, undo=tmp_path / "kept").undo
    assert undo is not None
    for number in range(1, 1000, 1 + STRIDE // 4):
        place, kept = tmp_path / f"killed-{number}", tmp_path / f"kept-{number}"
        shutil.copytree(root, place)
        shutil.copytree(undo, kept)
        was_killed = run_until_change(lambda a=place, b=kept: undo_repair(a, b), number)
        undo_repair(place, kept)
        assert tree_of(place, times=False) == broken
        shutil.rmtree(place)
        if not was_killed:
            return
    raise AssertionError("it never ended")


def test_a_store_written_since_is_not_taken_back(root: Path) -> None:
    spoil(root)
    undo = reindex(root).undo
    assert undo is not None
    with rocketstore.open(root, "r+") as store:
        store.put("T0", b"later", 0)
    before = tree_of(root)
    with pytest.raises(MappedFileError, match="was written since the repair"):
        undo_repair(root, undo)
    assert tree_of(root) == before


def test_a_damaged_log_is_refused(root: Path) -> None:
    with (root / "commitlog/00000000000000000000").open("r+b") as file:
        file.seek(300)
        file.write(b"\xff" * 50)
    before = tree_of(root)
    with pytest.raises(CorruptionError, match="BAD_BODY_LENGTH"):
        reindex(root)
    assert tree_of(root) == before


def test_a_store_in_use_is_refused(root: Path) -> None:
    with rocketstore.open(root, "r+"), pytest.raises(StoreLockedError):
        reindex(root)


def test_a_folder_that_holds_something_is_refused(root: Path, tmp_path: Path) -> None:
    spoil(root)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine").write_text("keep")
    with pytest.raises(MappedFileError, match="full is not empty"):
        reindex(root, undo=tmp_path / "full")
    with pytest.raises(FileNotFoundError, match="no folder of a repair"):
        undo_repair(root, tmp_path / "full")
    assert (tmp_path / "full/mine").read_text() == "keep"


def test_assumed_sizes_are_said(root: Path) -> None:
    """No file is left that shows them, and a broker of other sizes would not load what is built."""
    for name in ("consumequeue", "index"):
        shutil.rmtree(root / name)
    (root / "rocketstore.state").unlink()
    notes = reindex(root, what_if=True).notes
    assert len([note for note in notes if "mappedFileSizeConsumeQueue" in note]) == 1
    assert len([note for note in notes if "maxHashSlotNum" in note]) == 1
    assert not reindex(root, what_if=True, **SMALL_FILES).notes
    assert "mappedFileSizeConsumeQueue" in str(reindex(root, what_if=True, index=False).notes)
