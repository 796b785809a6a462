"""How much of a log is checked, and synced, when it is opened."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from crash.abandoning import abandon
from rocketstore.recovery import durable_mark
from rocketstore.recovery import truncate as log_cut

SMALL: dict[str, Any] = {"mapped_file_size_commit_log": 16 * 1024, "start": False}


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_less_is_checked_after_an_orderly_close(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable_mark, "CHECKED_NBYTES", 100 * 1024)
    monkeypatch.setattr(durable_mark, "CLEAN_CHECKED_NBYTES", 40 * 1024)
    root = tmp_path / "s"
    with rocketstore.open(root, "x", **SMALL) as store:
        for _ in range(300):
            store.put("T", bytes(1000))
        store.flush()
        end = store.max_physical_offset
    with rocketstore.open(root, mode, start=False) as store:
        clean = store.recovery_report.scanned_from
        assert end - 40 * 1024 - SMALL["mapped_file_size_commit_log"] < clean <= end - 40 * 1024
    (root / "abort").touch()
    with rocketstore.open(root, mode, start=False) as store:
        checked = store.recovery_report.scanned_from
        assert end - 100 * 1024 - SMALL["mapped_file_size_commit_log"] < checked
        assert checked <= end - 100 * 1024


@pytest.mark.parametrize("clean", [True, False])
def test_a_long_log_without_keys_is_not_dispatched_again(
    clean: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an index file keys were put from the log's beginning on: messages without any were
    all dispatched once more at each open, which fails where an old part of the log is damaged."""
    monkeypatch.setattr("rocketstore.store.dispatch_recovery.COMPARED_NBYTES", 0)
    root = tmp_path / "s"
    with rocketstore.open(root, "x", **SMALL) as store:
        for _ in range(100):
            assert store.put("T", b"x").ok
    if not clean:
        (root / "abort").touch()
    with rocketstore.open(root, "r+", **SMALL) as store:
        assert store.recovery_report.rebuilt_units == 0
        assert store.put("T", b"x", keys="k").ok
        assert store.wait_dispatched()
        assert len(list(store.find(topic="T", key="k"))) == 1
    with rocketstore.open(root, "r+", **SMALL) as store:
        assert store.recovery_report.rebuilt_units == 0
        assert len(list(store.find(topic="T", key="k"))) == 1
        assert store.verify().findings == []


@pytest.mark.parametrize("unsynced", [0, 1, 40], ids=["none", "one record", "three segments"])
def test_what_is_past_the_durable_offset_is_synced(
    unsynced: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing else: after an orderly stop, the pages prepared for the next records, zeros,
    would be written first."""
    root = tmp_path / "s"
    store = rocketstore.open(root, "x", **SMALL)
    store.put("T", bytes(1000))
    store.wait_dispatched()
    store.flush()
    for _ in range(unsynced):
        store.put("T", bytes(1000))
    abandon(store)
    synced: list[int] = []
    sync = log_cut.sync_descriptor

    def watched(fd: int) -> None:
        synced.append(os.fstat(fd).st_ino)
        sync(fd)

    monkeypatch.setattr(log_cut, "sync_descriptor", watched)
    rocketstore.open(root, "r+", **SMALL).close()
    segments = [path.stat().st_ino for path in sorted((root / "commitlog").iterdir())]
    assert len(segments) == 1 + unsynced // 15
    assert synced == (segments if unsynced else [])
