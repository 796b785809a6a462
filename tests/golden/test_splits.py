"""Splits of the golden stores give what scanning the store gives, wherever they begin and end."""

from __future__ import annotations

from pathlib import Path

import pytest

import rocketstore
from golden.golden_stores import NAMES, geometry, unpack
from rocketstore.sources import list_log
from rocketstore.sources.walk import log_end
from support.split_walks import read_log


@pytest.mark.parametrize("name", NAMES)
def test_splits_are_read_as_scan_reads_the_store(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    with rocketstore.open(root) as store:
        expected = [(m.physical_offset, bytes(m.raw)) for m in store.scan()]
        end = store.max_physical_offset
    log = list_log(root)
    assert log.segment_size == geometry(name).commit_log_nbytes
    assert log_end(log) == log_end(log, start=log.min_offset) == end
    for split_bytes in (1 << 28, 10_000, 700):
        reading = read_log(log, split_bytes=split_bytes)
        assert reading.records == expected
        assert reading.damage == []
