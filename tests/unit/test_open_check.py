"""How much of a log is checked when it is opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import recovery

SMALL: dict[str, Any] = {"mapped_file_size_commit_log": 16 * 1024, "start": False}


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_less_is_checked_after_an_orderly_close(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "CHECKED_NBYTES", 100 * 1024)
    monkeypatch.setattr(recovery, "CLEAN_CHECKED_NBYTES", 40 * 1024)
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
