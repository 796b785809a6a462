"""What cleaning up must keep: files that cannot be judged now, and all but a few on a full disk."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from rocketstore.cleaning.plan import CleanReason
from rocketstore.files.mapped_file import MappedFile
from support.expired_stores import assert_is_what_is_left
from unit.cleaning.test_cleaner import (
    HOUR_MS,
    Clock,
    Disk,
    made,
    opened,
    segment_count,
    segment_times,
)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENOMEM])
def test_what_cannot_be_read_for_the_moment_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Too many open files, once: the segment's own time was taken for that of its messages, for as
    long as the store was open, and a segment went that was copied with an old time."""
    root = tmp_path / "store"
    was, end = made(root, "5.5.0")
    for path in (root / "commitlog").iterdir():
        os.utime(path, (1, 1))
    map_now = MappedFile._map

    def map_never(file: MappedFile) -> Any:
        if "commitlog" in file.path.parts:
            raise OSError(code, os.strerror(code), str(file.path))
        return map_now(file)

    with opened(root, was, Clock(end), start=False) as store:
        log = store.reader.log
        log.recent = None
        for file in log.queue.files[:-1]:
            file.release_mapping()
        with monkeypatch.context() as patched:
            patched.setattr(MappedFile, "_map", map_never)
            report = store.clean_expired()
        assert report.files == []
        assert report.kept.endswith(f"cannot be read now: {os.strerror(code)}")
        assert "another 7" in store.clean_expired().kept
        assert_is_what_is_left(store, was, 0)


def test_no_more_goes_by_force_than_at_one_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a disk just above the level ``clean_expired`` deleted the whole log but for its newest
    segment, where RocketMQ looks at the disk again after each ten."""
    root = tmp_path / "store"
    was, end = made(root, "5.5.0")
    count, old = segment_count(root), sorted(segment_times(root).values())[0][1]
    disk = Disk(86)
    monkeypatch.setattr("rocketstore.files.disk_space.disk_space", disk)
    clock = Clock(old + 72 * HOUR_MS)  # one segment is old enough
    with opened(root, was, clock, mode="r", delete_file_batch_max=2) as store:
        planned = store.clean_expired(what_if=True)
    with opened(root, was, clock, delete_file_batch_max=2) as store:
        done = store.clean_expired()
        assert done.files == planned.files
        reasons = [file.reason for file in done.files if file.kind == "commitlog"]
        assert reasons == [CleanReason.EXPIRED, *[CleanReason.FORCED] * 2]
        assert segment_count(root) == count - 3
        assert done.kept == planned.kept
        assert "checked again" in done.kept
        store.clean_expired()
        assert segment_count(root) == count - 5
        disk.used = 85
        assert store.clean_expired().files == []
        assert store.verify().findings == []
    assert end
