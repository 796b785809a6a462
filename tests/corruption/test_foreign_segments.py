"""Segments of two stores in one log: named, and never met by advice that goes round in circles."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

import rocketstore
from golden import golden_stores
from rocketstore import MessageStoreConfig, formats
from rocketstore.cli.commands.advice import advice
from rocketstore.store.verifying import verify_files
from rocketstore.verify.report import VerifyReport

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="stores are only read there")
# A segment came from another store's backup. Verify reported hundreds of missing records and
# advised a salvage, which had nothing to do; then verify advised it again.

#: Store whose segment is taken, store that gets it, and which one.
MIXED = [
    ("plain-4.9.8", "plain-5.3.3", 1),
    ("plain-5.3.3", "plain-4.9.8", 1),
    ("lag-4.9.8", "plain-4.9.8", 2),
    ("lag-5.3.3", "crash-5.3.3", 1),
    ("ext-4.9.8", "inner-5.3.3", 1),
    ("plain-5.1.4", "plain-5.3.3", 2),
    ("plain-5.3.3", "plain-5.5.0", 0),
]


def unpacked(name: str, folder: Path) -> Path:
    return golden_stores.unpack(name, folder)


def mixed(tmp_path: Path, source: str, target: str, number: int) -> tuple[Path, Path]:
    """A store with one segment of another one; the segment."""
    other, root = unpacked(source, tmp_path / "other"), unpacked(target, tmp_path / "store")
    segment = sorted((root / "commitlog").iterdir())[number]
    shutil.copyfile(sorted((other / "commitlog").iterdir())[number], segment)
    return root, segment


def verified(root: Path) -> VerifyReport:
    return verify_files(root, MessageStoreConfig())


def commands(report: VerifyReport) -> set[str]:
    return {step.command[1] for step in advice(Path("x"), report.finding_counts) if step.command}


@pytest.mark.parametrize(("source", "target", "number"), MIXED)
def test_the_foreign_segment_is_named(
    tmp_path: Path, source: str, target: str, number: int
) -> None:
    root, segment = mixed(tmp_path, source, target, number)
    report = verified(root)
    (found,) = [one for one in report.findings if one.kind == "foreign-segment"]
    assert found.path == str(segment)
    assert "another store's" in found.reason
    assert commands(report) <= {"scan"}
    (step, *_) = advice(root, report.finding_counts)
    assert "move the segment out" in step.why
    segment.rename(tmp_path / "moved")
    rocketstore.salvage(root)
    assert verified(root).ok


@pytest.mark.parametrize(("source", "target", "number"), [one for one in MIXED if one[2] == 1])
def test_after_recover_too_there_is_no_circle(
    tmp_path: Path, source: str, target: str, number: int
) -> None:
    """Recover makes the units match, so they no longer show which store a segment belongs to."""
    root, segment = mixed(tmp_path, source, target, number)
    rocketstore.salvage(root)
    rocketstore.recover(root)
    report = verified(root)
    assert set(report.finding_counts) <= {"queue-offset", "doubled-offset"}
    assert commands(report) == {"scan"}
    notes = [note for note in report.notes if "have a gap" in note]
    following = segment.with_name(formats.offset_to_file_name(int(segment.name) * 2))
    assert any(str(path) in note for note in notes for path in (segment, following))


@pytest.mark.parametrize(
    ("source", "target"), [("plain-4.9.8", "plain-5.3.3"), ("plain-5.3.3", "plain-4.9.8")]
)
def test_two_records_of_one_queue_offset_are_named(
    tmp_path: Path, source: str, target: str
) -> None:
    root, segment = mixed(tmp_path, source, target, 1)
    start = int(segment.name)
    with rocketstore.open(root) as reader:
        places: dict[tuple[str, int, int], list[int]] = {}
        for message in reader.scan(on_corruption="skip"):
            if message.sys_flag & 0xC not in (4, 12):
                key = (message.topic, message.queue_id, message.queue_offset)
                places.setdefault(key, []).append(message.physical_offset)
    doubled = {key: found for key, found in places.items() if len(found) > 1}
    found = [one for one in verified(root).findings if one.kind == "doubled-offset"]
    assert len(found) >= 3
    for one in found:
        topic, rest = one.reason.removeprefix("two records claim ").split(" queue ", 1)
        queue_id, index = (int(word.strip(",")) for word in rest.split()[:3:2])
        first, second = doubled[topic, queue_id, index][:2]
        assert f"at log offsets {first} and {second}" in one.reason
        assert first < second >= start
        count = sum(
            len(places) - 1 for key, places in doubled.items() if key[:2] == (topic, queue_id)
        )
        assert count == 1 or f"; {count} queue offsets of this queue" in one.reason


@pytest.mark.parametrize("name", ["plain-5.3.3", "lag-4.9.8", "expire-4.9.8", "ext-4.9.8"])
def test_no_store_is_foreign_to_itself(tmp_path: Path, name: str) -> None:
    assert verified(unpacked(name, tmp_path)).ok
