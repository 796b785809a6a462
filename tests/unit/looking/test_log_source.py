"""What may be a log: stores, folders, segments, and what is refused."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from rocketstore import MessageStoreConfig
from rocketstore.errors import MappedFileError, UnsafePathError
from rocketstore.looking.log_source import open_log, stored_text, whole_segments
from support.looked_stores import SEGMENT, make_store


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_store(tmp_path / "store")


def test_places(root: Path, tmp_path: Path) -> None:
    log = open_log(root)
    assert open_log(root / "commitlog").segments == log.segments
    one = open_log(root / "commitlog" / f"{SEGMENT:020d}")
    assert [segment.base_offset for segment in one.segments] == [SEGMENT]
    assert [split.start for split in whole_segments(log)] == [0] * len(log.segments)
    shutil.copy(root / "commitlog" / f"{SEGMENT:020d}", tmp_path / "copy.bin")
    (copied,) = open_log(tmp_path / "copy.bin").segments
    assert (copied.base_offset, copied.file_size) == (SEGMENT, SEGMENT)


def test_a_log_elsewhere(root: Path, tmp_path: Path) -> None:
    shutil.move(root / "commitlog", tmp_path / "log")
    config = MessageStoreConfig(store_path_commit_log=str(tmp_path / "log"))
    assert open_log(root, config).segments[0].base_offset == 0
    with pytest.raises(MappedFileError, match="there is no folder"):
        open_log(root, config.replace(store_path_commit_log=str(tmp_path / "absent")))


def test_what_is_refused(root: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for place in (tmp_path / "fifo", Path("/dev/null"), tmp_path):
        with pytest.raises((OSError, MappedFileError)):
            open_log(place)
    outside = tmp_path / "outside"
    shutil.move(root / "commitlog" / f"{0:020d}", outside)
    (root / "commitlog" / f"{0:020d}").symlink_to(outside)
    with pytest.raises(UnsafePathError):
        open_log(root / "commitlog" / f"{0:020d}")


def test_texts() -> None:
    assert stored_text("Tä".encode()) == "Tä"
    assert stored_text(b"T\xff") == "T\ufffd"
