"""What ``--config`` of a Spark command makes it read."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketstore.cli.spark.options import configured_log


def test_the_log_is_read_where_the_file_places_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, file = tmp_path / "store", tmp_path / "broker.conf"
    (root / "commitlog").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    file.write_text(f"storePathRootDir={root}\nstorePathCommitLog={root}/commitlog\n")
    for path in ("store", str(root), "./store/"):
        assert configured_log(path, file)[0] == path
    file.write_text(f"storePathRootDir={root}\nstorePathCommitLog={tmp_path}/log\n")
    for path in ("store", str(root)):
        assert configured_log(path, file)[0] == str(tmp_path / "log")
    assert configured_log("s3://bucket/store", file)[0] == "s3://bucket/store"
    assert configured_log("store", None)[0] == "store"


def test_the_settings_are_those_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("maxHashSlotNum=50\nmaxIndexNum=400\n")
    _, settings = configured_log("store", file)
    assert (settings.max_hash_slot_num, settings.max_index_num) == (50, 400)
