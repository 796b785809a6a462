"""Files as ``doctor`` reads them: a few pieces in memory, whatever their size."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rocketstore.diagnosis.image import Entry, SparseFile, entries, read_segment
from rocketstore.files.forward_pages import STEP_NBYTES
from support.record_factory import make_record

PIECE = 65_520


def _entry(folder: Path, name: str, content: bytes) -> Entry:
    (folder / name).write_bytes(content)
    return next(one for one in entries(folder, folder) if one.name == name)


def test_a_file_of_many_pieces_is_read_at_once(tmp_path: Path) -> None:
    """An index file of 63 MB ended doctor with a RecursionError."""
    content = random.Random(1).randbytes(PIECE) * 1100
    entry = _entry(tmp_path, "20261121114951749", content)
    read = SparseFile(entry, tmp_path, [1 << 30]).read
    assert read(0, len(content)) == content
    assert read(PIECE - 3, 2 * PIECE) == content[PIECE - 3 : 3 * PIECE - 3]
    assert read(len(content) - 2, 5) == content[-2:] + bytes(3)
    assert read(5, 0) == b""


def test_zeros_are_not_kept(tmp_path: Path) -> None:
    content = bytes(3 * PIECE) + b"x" + bytes(3 * PIECE)
    room = [1 << 20]
    file = SparseFile(_entry(tmp_path, "1", content), tmp_path, room)
    assert file.read(3 * PIECE - 1, 3) == b"\0x\0"
    assert [position for position, _ in file.pieces()] == [3 * PIECE]
    assert room == [(1 << 20) - PIECE]


@pytest.mark.parametrize("distance", [-40, 0, 40, STEP_NBYTES + 1])
def test_a_record_is_found_wherever_a_step_ends(tmp_path: Path, distance: int) -> None:
    """After damage a segment is searched a step at a time."""
    first = make_record(physical_offset=0)
    damaged = b"\x01" * 500
    at = len(first) + 1 + STEP_NBYTES + distance
    later = make_record(physical_offset=at)
    content = first + damaged
    content += b"\x02" * (at - len(content)) + later
    entry = _entry(tmp_path, "00000000000000000000", content)
    segment = read_segment(entry, tmp_path, ())
    assert [one.position for one in segment.records] == [0]
    assert [one.position for one in segment.later] == [at]
