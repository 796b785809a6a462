"""Where a store's log is when its configuration is that of another store."""

from __future__ import annotations

from pathlib import Path

import pytest

import rocketstore
from rocketstore import ConfigError, MessageStoreConfig
from rocketstore.directory.paths import StorePaths


def config(root: Path | str, log: Path | str | None) -> MessageStoreConfig:
    return MessageStoreConfig(
        store_path_root_dir=str(root), store_path_commit_log=None if log is None else str(log)
    )


def test_a_configuration_of_the_store_itself(tmp_path: Path) -> None:
    root, log = tmp_path / "store", tmp_path / "log"
    root.mkdir()
    (tmp_path / "link").symlink_to(root)
    for path in (root, tmp_path / "link", Path(f"{root}/")):
        assert StorePaths.of(path, config(root, log)).commit_log == log
    assert StorePaths.of(root, config(root, None)).commit_log == root / "commitlog"


@pytest.mark.parametrize("name", ["commitlog", "logs/one", "./commitlog"])
def test_a_copy_has_its_own_log(tmp_path: Path, name: str) -> None:
    """The log of the original would be read, and cleaned, with the queues of the copy."""
    root, copy = tmp_path / "store", tmp_path / "copy"
    root.mkdir()
    paths = StorePaths.of(copy, config(root, f"{root}/{name}"))
    assert paths.commit_log == copy / name


def test_the_log_of_another_store_is_not_taken(tmp_path: Path) -> None:
    root, copy, log = tmp_path / "store", tmp_path / "copy", tmp_path / "log"
    root.mkdir()
    for place in (log, root, tmp_path / "store2" / "commitlog"):
        with pytest.raises(ConfigError, match="--commit-log") as caught:
            StorePaths.of(copy, config(root, place))
        assert str(root) in str(caught.value)
        assert str(copy) in str(caught.value)
    root.rmdir()  # the store was moved, or is on another machine
    assert StorePaths.of(copy, config(root, log)).commit_log == log


def test_an_option_wins_over_the_configuration(tmp_path: Path) -> None:
    small = {"mapped_file_size_commit_log": 65536, "max_hash_slot_num": 50, "max_index_num": 400}
    broker = config(tmp_path / "store", tmp_path / "log").replace(**small)
    with rocketstore.open(tmp_path / "store", "x", config=broker) as store:
        store.put("T", b"original")
    assert (tmp_path / "log").is_dir()
    with pytest.raises(ConfigError, match="is of the store"):
        rocketstore.open(tmp_path / "copy", "x", config=broker)
    mine = str(tmp_path / "copy" / "commitlog")
    with rocketstore.open(
        tmp_path / "copy", "x", config=broker, store_path_commit_log=mine
    ) as store:
        store.put("T", b"copy")
    for name, body in (("store", b"original"), ("copy", b"copy")):
        options = {"store_path_commit_log": mine} if name == "copy" else {}
        with rocketstore.open(tmp_path / name, config=broker, **options) as store:
            assert [one.body for one in store.scan()] == [body]
