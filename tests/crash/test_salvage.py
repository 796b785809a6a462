"""Salvage: stores that refuse to be opened for writing become whole around what they lost."""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from crash import salvaging
from crash.abandoning import abandon
from crash.salvaging import KINDS, LOST, OPTIONS, SEGMENT_NBYTES, Written, tree
from rocketstore import formats
from rocketstore.mending.salvage_plan import LostPlace, Stretch, filler_sizes
from rocketstore.recovery.recover_log import recover_log
from rocketstore.survey.salvage_traces import FILLER_TOPIC

PROGRAM = Path(__file__).with_name("salvage_program.py")
Damage = Callable[[Path, list[Written], random.Random], None]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Written]]:
    root = tmp_path_factory.mktemp("template") / "store"
    return root, salvaging.write(root, 7)


@pytest.fixture
def store(template: tuple[Path, list[Written]], tmp_path: Path) -> tuple[Path, list[Written]]:
    """A copy to be damaged, and what is in it."""
    shutil.copytree(template[0], tmp_path / "store")
    return tmp_path / "store", template[1]


def forget_state(root: Path) -> None:
    (root / "rocketstore.state").unlink()


@pytest.mark.parametrize("with_state", [True, False], ids=["state", "no-state"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("damage", KINDS, ids=lambda kind: kind.__name__)
def test_survivors_stay_where_they_were(
    store: tuple[Path, list[Written]], damage: Damage, seed: int, with_state: bool
) -> None:
    root, rows = store
    damage(root, rows, random.Random(seed))
    if not with_state:
        forget_state(root)
    kept = salvaging.survivors(root, rows)
    old = {path.name: path.read_bytes() for path in salvaging.segments(root)}

    planned = rocketstore.salvage(root, what_if=True)
    report = rocketstore.salvage(root)
    assert (planned.damaged, planned.placeholders) == (report.damaged, report.placeholders)
    assert [s.start for s in planned.segments] == [s.start for s in report.segments]
    for segment in report.segments:
        if segment.quarantined is not None:
            assert Path(segment.quarantined).read_bytes() == old[Path(segment.path).name]
        else:
            assert Path(segment.path).name not in old
    # Without a state file, the loss of the newest messages looks like a torn write.
    if with_state or damage not in (salvaging.last_damaged, salvaging.last_shortened):
        assert report.was_needed
        # A place is kept by a placeholder, or named as a gap; the broker's topics have gaps.
        placed = {place[:3] for place in report.placeholders}
        gaps = {(t, q, n) for t, q, first, stop in report.gaps for n in range(first, stop)}
        assert placed | gaps == set(salvaging.lost_places(rows, kept))
        assert not placed & gaps
        assert {topic for topic, *_ in gaps} <= {"SCHEDULE_TOPIC_XXXX"}
    again = rocketstore.salvage(root)
    assert not again.was_needed
    assert again.recovery.clean
    salvaging.check(root, rows, kept, report.gaps)


def test_a_placeholder_is_empty_and_marked(store: tuple[Path, list[Written]]) -> None:
    root, rows = store
    starts = {row.offset for row in rows if row.offset % SEGMENT_NBYTES}
    long = [row for row in rows if len(row.body) == 700 and row.offset + row.nbytes in starts]
    row = next(row for row in long if row.topic == "Orders")
    path = root / "commitlog" / formats.offset_to_file_name(row.offset // 8192 * 8192)
    salvaging.overwrite(path, row.offset % SEGMENT_NBYTES + 120, b"\xff")
    report = rocketstore.salvage(root)
    assert [place[:3] for place in report.placeholders] == [row[2:5]]
    with rocketstore.open(root) as opened:
        (message,) = opened.get_message("g", *row[2:5], 1).messages
        assert (message.body, message.keys, message.tags) == (b"", None, None)
        assert message.properties == {LOST: "1"}
        fillers = [m for m in opened.scan() if m.topic == FILLER_TOPIC]
        assert len(fillers) == 1
        assert opened.topics() == ["%RETRY%" + "group" * 30, "Orders", "P", formats.TOPIC_SCHEDULE]


def test_without_placeholders_gaps_are_named(store: tuple[Path, list[Written]]) -> None:
    root, rows = store
    salvaging.garbage(root, rows, random.Random(1))
    kept = salvaging.survivors(root, rows)
    report = rocketstore.salvage(root, placeholders=False)
    assert report.placeholders == []
    lost = {(t, q, n) for t, q, first, stop in report.gaps for n in range(first, stop)}
    assert lost == set(salvaging.lost_places(rows, kept))
    salvaging.check(root, rows, kept, report.gaps)


@pytest.mark.parametrize("damage", KINDS, ids=lambda kind: kind.__name__)
def test_what_if_changes_nothing(store: tuple[Path, list[Written]], damage: Damage) -> None:
    root, rows = store
    damage(root, rows, random.Random(5))
    before = tree(root)
    report = rocketstore.salvage(root, what_if=True)
    assert report.was_needed
    assert report.what_if
    assert tree(root) == before


def test_what_would_be_done_is_reported_while_a_writer_deletes_files(
    store: tuple[Path, list[Written]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first file that was gone ended it with FileNotFoundError."""
    root, rows = store
    salvaging.one_record(root, rows, random.Random(1))
    tries = []

    def deleted(*given: Any, **named: Any) -> Any:
        tries.append(given)
        if len(tries) < 4:
            raise FileNotFoundError(2, "No such file or directory", "a queue's file")
        return recover_log(*given, **named)

    monkeypatch.setattr("rocketstore.mending.salvage_damage.recover_log", deleted)
    assert rocketstore.salvage(root, what_if=True).was_needed
    tries.clear()
    with pytest.raises(FileNotFoundError):
        rocketstore.salvage(root)  # no other process deletes now


def test_a_sound_store_stays_as_it_is(store: tuple[Path, list[Written]]) -> None:
    root, rows = store
    log = {name: found for name, found in tree(root).items() if name.startswith("commitlog")}
    report = rocketstore.salvage(root)
    assert not report.was_needed
    assert report.segments == report.moved == []
    after = tree(root)
    assert {name: found for name, found in after.items() if name.startswith("commitlog")} == log
    salvaging.check(root, rows, rows, [])


def test_refused_while_a_writer_has_the_store(store: tuple[Path, list[Written]]) -> None:
    root, _ = store
    with rocketstore.open(root, "r+", **OPTIONS):
        with pytest.raises(rocketstore.StoreLockedError):
            rocketstore.salvage(root)
        assert not rocketstore.salvage(root, what_if=True).was_needed


def test_a_misnamed_segment_is_refused(store: tuple[Path, list[Written]]) -> None:
    root, _ = store
    path = salvaging.segments(root)[-1]
    path.rename(path.with_name(formats.offset_to_file_name(3 * SEGMENT_NBYTES + 5)))
    before = tree(root)
    with pytest.raises(rocketstore.MappedFileError, match="not a multiple of the file size"):
        rocketstore.salvage(root)
    assert tree(root) == before


def test_whole_record_crcs_are_written_where_they_are_demanded(tmp_path: Path) -> None:
    checked = {"enabled_append_prop_crc": True, "force_verify_prop_crc": True}
    root = tmp_path / "store"
    rows = salvaging.write(root, 3, **checked)
    salvaging.garbage(root, rows, random.Random(2))
    kept = salvaging.survivors(root, rows)
    assert rocketstore.salvage(root, **checked).placeholders
    with rocketstore.open(root, "r+", **checked) as opened:
        assert not opened.recovery_report.damaged
        shown = {message.physical_offset for message in opened.scan()}
    assert {row.offset for row in kept} <= shown


@pytest.mark.parametrize(
    "damage",
    [salvaging.many_records, salvaging.missing, salvaging.last_damaged],
    ids=lambda kind: kind.__name__,
)
def test_killed_anywhere_a_rerun_finishes(damage: Damage, tmp_path: Path) -> None:
    """The program kills a salvage before each call that changes the disk, and completes it."""
    root = tmp_path / "store"
    rows = salvaging.write(root, 11)
    damage(root, rows, random.Random(13))
    kept = salvaging.survivors(root, rows)
    gaps = rocketstore.salvage(root, what_if=True).gaps
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(root), str(tmp_path / "kills")],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    copies = sorted((tmp_path / "kills").iterdir())
    assert len(copies) >= 8, done.stderr
    for copy in copies:
        salvaging.check(copy, rows, kept, gaps)


def test_a_log_of_its_own_place_keeps_only_segments(tmp_path: Path) -> None:
    """Old segments and truncated bytes go to the store's own quarantine: a folder among the
    segments prevents RocketMQ 4.9 from starting."""
    elsewhere = {"store_path_commit_log": str(tmp_path / "log")}
    (tmp_path / "log").mkdir()
    root = tmp_path / "store"
    rows = salvaging.write(root, 5, **elsewhere)
    path = sorted((tmp_path / "log").iterdir())[1]
    salvaging.overwrite(path, rows[0].nbytes, b"\xff" * 3000)
    report = rocketstore.salvage(root, **elsewhere)
    assert [Path(one.quarantined or "").parent for one in report.segments] == [root / "quarantine"]
    writer = rocketstore.open(root, "r+", start=False, **elsewhere, **OPTIONS)
    first = writer.put("Orders", b"torn")
    writer.put("Orders", b"complete, but after a torn one")
    abandon(writer)
    last = sorted((tmp_path / "log").iterdir())[-1]
    salvaging.overwrite(last, first.physical_offset % SEGMENT_NBYTES + 4, b"!")
    with rocketstore.open(root, "r+", **elsewhere, **OPTIONS) as store:
        (part,) = store.recovery_report.cut
        assert Path(part.quarantined or "").parent == root / "quarantine"
        assert store.max_physical_offset == first.physical_offset
    assert all(formats.file_name_to_offset(p.name) is not None for p in last.parent.iterdir())


def test_where_no_second_name_can_be_the_old_segment_is_copied(
    store: tuple[Path, list[Written]], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, rows = store
    salvaging.one_record(root, rows, random.Random(2))
    kept = salvaging.survivors(root, rows)
    old = {path.name: path.read_bytes() for path in salvaging.segments(root)}

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", refuse)
        report = rocketstore.salvage(root)
    (segment,) = report.segments
    assert segment.quarantined is not None
    assert Path(segment.quarantined).read_bytes() == old[Path(segment.path).name]
    salvaging.check(root, rows, kept, report.gaps)


# --- stretches ----------------------------------------------------------------------------------


def _stretch(nbytes: int, *, is_end: bool = False, **more: Any) -> Stretch:
    return Stretch(4096, 4096 + nbytes, is_end=is_end, is_last=False, store_timestamp=5, **more)


def _decode(records: list[bytes]) -> list[rocketstore.StoredMessage]:
    log = b"".join(records)
    found, at = [], 0
    while at < len(log):
        message = rocketstore.StoredMessage(log, at, 4096, 1 << 30)
        assert message.physical_offset == 4096 + at
        found.append(message)
        at += message.store_size
    return found


@pytest.mark.parametrize("property_crc", [False, True])
@pytest.mark.parametrize("topics", [(), ("P",), ("P", "Q"), ("T" * 200,)], ids=str)
def test_a_stretch_is_filled_to_its_last_byte(topics: tuple[str, ...], property_crc: bool) -> None:
    least = 92 + 20 * property_crc
    for extra in range(400):
        total = sum(least + len(topic) - 1 + (len(topic) > 127) for topic in topics) + extra
        total += 0 if topics else least
        stretch = _stretch(total, property_crc=property_crc)
        for number, topic in enumerate(topics):
            assert stretch.take(LostPlace(topic, 0, number, 4096, 4096 + total))
        records, listed = stretch.records()
        assert sum(map(len, records)) == total
        messages = _decode(records)
        assert [(m.topic, m.queue_offset) for m in messages[: len(topics)]] == [
            (place.topic, place.queue_offset) for place in listed
        ]
        rest = [m.sys_flag & formats.SYS_FLAG_TRANSACTION_MASK for m in messages[len(topics) :]]
        assert set(rest) <= {formats.SYS_FLAG_TRANSACTION_ROLLBACK}


def test_a_stretch_too_short_for_a_record_is_refused() -> None:
    with pytest.raises(rocketstore.CorruptionError, match="too short for any record"):
        _stretch(91).records()


def test_a_place_that_does_not_fit_is_not_taken() -> None:
    stretch = _stretch(150)
    assert not stretch.take(LostPlace("P", 0, 0, 0, 4096))  # before the stretch
    assert not stretch.take(LostPlace("P", 0, 0, 4246, 5000))  # after the stretch
    assert stretch.take(LostPlace("P", 0, 0, 4096, 4246))
    assert not stretch.take(LostPlace("P", 0, 1, 4096, 4246))


@pytest.mark.parametrize("nbytes", [92, 93, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20])
def test_fillers_are_neither_too_short_nor_too_long(nbytes: int) -> None:
    sizes = list(filler_sizes(nbytes, 92))
    assert sum(sizes) == nbytes
    assert all(92 <= size <= 1 << 20 for size in sizes)
