"""Segments under wrong names and of other stores: the job ``fsck`` finds what ``verify`` finds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

import rocketstore
from corruption import crafted, test_foreign_segments, test_misnamed_segments
from corruption.crafted import Crafted
from corruption.test_misnamed_segments import templates
from golden import golden_stores
from rocketstore import MessageStoreConfig
from rocketstore.spark.jobs.fsck.job import FsckReport, check_store
from rocketstore.store.verifying import verify_files

__all__ = ["templates"]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="stores are only read there")
# fsck skipped the records of a misnamed segment as if a broker had left them, and reported no
# fault. For a segment of another store it had findings, but did not report what the segment is.

#: What both report with the same words; they check the index in different ways.
KINDS = (
    *("misnamed-segment", "foreign-segment", "doubled-offset", "queue-offset"),
    *("record", "unit", "missing-unit"),
)


def compared(root: Path) -> FsckReport:
    """Check a store in both ways; both find the same."""
    wanted = verify_files(root, MessageStoreConfig(), max_findings=10_000)
    for split_bytes in (4000, 1 << 28):
        found = check_store(None, root, split_bytes=split_bytes)
        assert sorted(
            (r[0], r[2], r[3], r[4], r[8]) for r in found.rows if r[0] in KINDS
        ) == sorted(
            (one.kind, one.path, one.position, one.offset, one.reason)
            for one in wanted.findings
            if one.kind in KINDS
        )
        assert found.ok == wanted.ok
        # Batch and light queues are compared on the driver, whose notes stay there.
        if not any("on the driver" in note for note in found.notes):
            assert [note for note in found.notes if "have a gap" in note] == [
                note for note in wanted.notes if "have a gap" in note
            ]
    return found


@pytest.mark.parametrize(("kind", "way"), test_misnamed_segments.WAYS)
def test_a_misnamed_segment(
    templates: dict[str, Path], tmp_path: Path, kind: str, way: Callable[[Crafted], dict[str, int]]
) -> None:
    store = Crafted(templates[kind], tmp_path / "store")
    wrong = way(store)
    report = compared(store.root)
    assert report.finding_counts["misnamed-segment"] <= len(wrong)
    assert not report.ok


@pytest.mark.parametrize(("source", "target", "number"), test_foreign_segments.MIXED)
def test_a_segment_of_another_store(tmp_path: Path, source: str, target: str, number: int) -> None:
    root, segment = test_foreign_segments.mixed(tmp_path, source, target, number)
    report = compared(root)
    (row,) = [row for row in report.rows if row[0] == "foreign-segment"]
    assert row[2] == str(segment)
    if number == 1:
        rocketstore.salvage(root)
        rocketstore.recover(root)
        compared(root)


def test_a_segment_with_records_of_sound_queues_is_no_other_store_s(tmp_path: Path) -> None:
    """Queues that agree are not looked at unit by unit, and speak for their segments all the
    same."""
    crafted.build(tmp_path / "template")
    store = Crafted(tmp_path / "template", tmp_path / "store")
    queue = min((store.root / "consumequeue").glob("*/*"))
    for path in queue.iterdir():
        content = bytearray(path.read_bytes())
        for at in range(8, len(content), 20):
            content[at + 3] ^= 1 if any(content[at : at + 4]) else 0
        path.write_bytes(content)
    report = compared(store.root)
    assert set(report.finding_counts) == {"unit"}


@pytest.mark.parametrize(
    "name", ["plain-4.9.8", "plain-5.3.3", "inner-5.3.3", "ext-4.9.8", "expire-4.9.8"]
)
def test_what_names_places_before_the_log_is_counted(name: str, tmp_path: Path) -> None:
    root = golden_stores.unpack(name, tmp_path)
    if name != "expire-4.9.8":
        min((root / "commitlog").iterdir()).unlink()
    report = compared(root)
    assert report.ok
    (note,) = [note for note in report.notes if note.startswith("index entries of records before")]
    assert "or their segment was removed" in note
