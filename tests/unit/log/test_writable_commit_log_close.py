"""What a log that is closed gives back: blocks that were reserved for records to come."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import formats
from support.syncs import LONG_S

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="only Linux makes holes of mapped pages"
)
OPTIONS: dict[str, Any] = {"mapped_file_size_commit_log": 32 << 20}
FIRST = formats.offset_to_file_name(0)


def wait_until_populated(store: rocketstore.DefaultMessageStore) -> None:
    log = store._writing().log
    deadline = time.monotonic() + LONG_S
    while log._populated < 4 << 20:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def data_nbytes(path: Path) -> int:
    """Bytes that the file system holds as data, from the start."""
    with path.open("rb") as file:
        return file.seek(0, 4) if path.stat().st_size else 0  # SEEK_HOLE


@pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_blocks_without_records_are_freed(tmp_path: Path, flush_disk_type: str) -> None:
    root = tmp_path / "s"
    with rocketstore.open(root, "x", flush_disk_type=flush_disk_type, **OPTIONS) as store:
        for number in range(20):
            assert store.put("T", b"%d" % number * 3000).ok
        wait_until_populated(store)
        end = store.max_physical_offset
    path = root / "commitlog" / FIRST
    assert end <= data_nbytes(path) <= end + 4096
    assert path.stat().st_blocks * 512 <= end + 64 * 1024
    assert path.stat().st_size == 32 << 20
    with rocketstore.open(root, "r+", **OPTIONS) as store:
        assert store.recovery_report.clean
        assert [message.body for message in store.scan()] == [
            b"%d" % number * 3000 for number in range(20)
        ]
        assert store.put("T", b"y" * 100_000).ok
        assert store.verify().ok


def test_a_log_that_failed_keeps_its_bytes(tmp_path: Path) -> None:
    store = rocketstore.open(tmp_path / "s", "x", **OPTIONS)
    assert store.put("T", b"x").ok
    wait_until_populated(store)
    store._writing().fail(OSError(5, "the disk is gone"))
    with pytest.raises(rocketstore.ServiceFailedError):
        store.close()
    assert data_nbytes(tmp_path / "s/commitlog" / FIRST) >= 4 << 20
