"""What closing leaves of a log: no data follows the last record, and the blocks are kept."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import formats, kernels
from support.syncs import LONG_S

OPTIONS: dict[str, Any] = {"mapped_file_size_commit_log": 32 << 20}
FIRST = formats.offset_to_file_name(0)


@pytest.fixture(autouse=True)
def _skip_where_unsupported(tmp_path: Path) -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("impossible on this machine: only Linux empties ranges of files")
    with (tmp_path / "try").open("w+b") as file:
        file.truncate(1 << 20)
        try:
            supported = kernels.mapping.zero_range(file.fileno(), 0, 1 << 20)
        except OSError:
            supported = False
    if not supported:
        pytest.skip("impossible on this machine: the kernels or the file system empty no ranges")


def wait_until_populated(store: rocketstore.DefaultMessageStore) -> None:
    log = store._writing().log
    deadline = time.monotonic() + LONG_S
    while log._populated < 4 << 20:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def data_nbytes(path: Path) -> int:
    """Bytes that the file system holds as data, from the start."""
    with path.open("rb") as file:
        return os.lseek(file.fileno(), 0, os.SEEK_HOLE)


@pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_no_data_follows_and_blocks_are_kept(tmp_path: Path, flush_disk_type: str) -> None:
    root = tmp_path / "s"
    path = root / "commitlog" / FIRST
    with rocketstore.open(root, "x", flush_disk_type=flush_disk_type, **OPTIONS) as store:
        for number in range(20):
            assert store.put("T", b"%d" % number * 3000).ok
        wait_until_populated(store)
        end = store.max_physical_offset
        blocks = path.stat().st_blocks
    assert end <= data_nbytes(path) <= end + 4096
    assert path.stat().st_blocks >= blocks
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


def test_bytes_that_another_process_wrote_after_the_end_stay(tmp_path: Path) -> None:
    store = rocketstore.open(tmp_path / "s", "x", **OPTIONS)
    assert store.put("T", b"x").ok
    wait_until_populated(store)
    end, path = store.max_physical_offset, tmp_path / "s/commitlog" / FIRST
    with path.open("r+b") as file:
        os.pwrite(file.fileno(), b"foreign" * 1000, end)
    store.close()
    assert path.read_bytes()[end : end + 7000] == b"foreign" * 1000
