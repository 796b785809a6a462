"""A log that ends fewer than eight bytes before its segment does, where no end marker fits.

Opening it for writing raised a bare ``ValueError`` of the kernel.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import rocketstore
from corruption.crafted import snapshot
from rocketstore import CorruptionError, formats
from support.record_factory import make_record

SEGMENT = 4096


def write_log(root: Path, left: int) -> None:
    """A segment of two records, followed by ``left`` free bytes."""
    first = make_record(topic=b"T", queue_id=0, queue_offset=0)
    rest = SEGMENT - left - len(first) - len(make_record(topic=b"T", body=b""))
    second = make_record(
        topic=b"T", queue_id=0, queue_offset=1, body=b"x" * rest, physical_offset=len(first)
    )
    (root / "commitlog").mkdir(parents=True)
    path = root / "commitlog" / formats.offset_to_file_name(0)
    path.write_bytes((first + second).ljust(SEGMENT, b"\0"))


@pytest.mark.parametrize("left", range(1, 8))
@pytest.mark.parametrize("mode", ["r+", "a"])
def test_refused_by_name_and_readable(tmp_path: Path, left: int, mode: str) -> None:
    root = tmp_path / "s"
    write_log(root, left)
    before = snapshot(root)
    with pytest.raises(CorruptionError, match=f"ends {left} bytes before its segment"):
        rocketstore.open(root, mode, mapped_file_size_commit_log=SEGMENT)
    after = snapshot(root)
    assert {name: after[name] for name in before if name in after} == before
    with rocketstore.open(root, mapped_file_size_commit_log=SEGMENT) as store:
        assert len(list(store.scan())) == 2
        assert store.max_offset_in_queue("T", 0) == 2


@pytest.mark.parametrize("left", [0, 8, 9])
def test_the_next_segment_begins(tmp_path: Path, left: int) -> None:
    root = tmp_path / "s"
    write_log(root, left)
    with rocketstore.open(root, "r+", mapped_file_size_commit_log=SEGMENT) as store:
        assert store.put("T", b"next").physical_offset == SEGMENT
    with rocketstore.open(root, "r+") as store:
        assert len(list(store.scan())) == 3


@pytest.mark.parametrize("aborted", [False, True])
@pytest.mark.parametrize("left", range(1, 8))
def test_salvage_gives_a_store_that_goes_on(tmp_path: Path, left: int, aborted: bool) -> None:
    """It found nothing to do, and its own opening ended in the refusal that had led to it."""
    root = tmp_path / "s"
    write_log(root, left)
    if aborted:
        (root / "abort").write_bytes(b"")
    path = root / "commitlog" / formats.offset_to_file_name(0)
    old = path.read_bytes()
    report = rocketstore.salvage(root, mapped_file_size_commit_log=SEGMENT)
    (segment,) = report.segments
    assert segment.quarantined is not None
    assert Path(segment.quarantined).read_bytes() == old
    (damage,) = report.damaged
    assert f"ends {left} bytes before its segment's end" in damage.reason
    assert damage.stop == SEGMENT
    assert report.lost_count == 1
    assert [place.queue_offset for place in report.placeholders] == [1]
    assert path.read_bytes()[: damage.start] == old[: damage.start]
    with rocketstore.open(root, "r+") as store:
        assert store.put("T", b"next").physical_offset == SEGMENT
        assert [m.body for m in store.scan()][-1] == b"next"
        assert [m.queue_offset for m in store.scan()] == [0, 1, 2]  # none is given out twice
        assert store.verify().ok
    assert not rocketstore.salvage(root, what_if=True).was_needed
