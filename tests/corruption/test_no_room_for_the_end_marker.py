"""A log that ends fewer than eight bytes before its segment does, where no end marker fits.

Opening it for writing raised a bare ``ValueError`` of the kernel.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import rocketstore
from corruption.crafted import snapshot
from record_factory import make_record
from rocketstore import CorruptionError, formats

SEGMENT = 4096


def write_log(root: Path, left: int) -> None:
    """A segment of two records, behind which ``left`` bytes are left."""
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
