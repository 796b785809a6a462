"""A scan that begins after the last byte of a segment's file, which is shorter than the others."""

from __future__ import annotations

import os
from pathlib import Path

import rocketstore
from rocketstore.log.scan import LogScan
from rocketstore.status import RecordStatus


def test_it_ends_there(tmp_path: Path) -> None:
    # It was a ValueError of the kernel, and ended a plan of a store with such a segment.
    root = tmp_path / "store"
    with rocketstore.open(root, "x", mapped_file_size_commit_log=65536) as store:
        for _ in range(200):
            store.put("T", b"x" * 500)
    os.truncate(root / "commitlog" / ("0" * 20), 15_952)
    with rocketstore.open(root) as store:
        log = store.reader.log
        for start in (15_952, 15_953, 26_136, 65_535):
            scan = LogScan(log, start, log.max_offset, 0)
            assert list(scan) == []
            assert scan.status == RecordStatus.INCOMPLETE
            assert scan.offset == start
