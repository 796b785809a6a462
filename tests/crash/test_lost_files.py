"""Every file of queues and index may be lost, one by one or all: it is rebuilt from the log."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from crash.test_failures import check_all, put_some
from rocketstore import MappedFileError
from support.directory import files_below

OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": 8 * 1024,
    "mapped_file_size_consume_queue": 200,
    "max_hash_slot_num": 40,
    "max_index_num": 50,
}
COUNT = 110


@pytest.fixture(scope="module", params=["closed", "killed"])
def store_root(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of several files of each kind, stopped in good order or not."""
    folder = tmp_path_factory.mktemp(request.param)
    with rocketstore.open(folder / "s", "x", start=False, **OPTIONS) as store:
        put_some(store, COUNT - 20)
        store.wait_dispatched()
        store.flush()
        put_some(store, 20, COUNT - 20)
        store.wait_dispatched()
        shutil.copytree(folder / "s", folder / "killed")
    return folder / ("s" if request.param == "closed" else "killed")


def lost_one_by_one(root: Path) -> list[Path]:
    """Every derived file, and every folder that holds some."""
    return [path for name in ("consumequeue", "index") for path in [root / name,
            *sorted((root / name).rglob("*"))]]  # fmt: skip


def test_every_lost_file_is_rebuilt(store_root: Path, tmp_path: Path) -> None:
    lost = [path.relative_to(store_root) for path in lost_one_by_one(store_root)]
    assert len(lost) > 15
    for number, path in enumerate(lost):
        root = tmp_path / str(number)
        shutil.copytree(store_root, root)
        if (root / path).is_dir():
            shutil.rmtree(root / path)
        else:
            (root / path).unlink()
        with rocketstore.open(root, "r+", start=False) as store:
            check_all(store, COUNT)
            put_some(store, 3, COUNT)
            store.wait_dispatched()
            check_all(store, COUNT + 3)
        with rocketstore.open(root, "r+", start=False) as store:
            assert store.recovery_report.clean
            check_all(store, COUNT + 3)
        shutil.rmtree(root)


@pytest.mark.parametrize("folder_is_there", [True, False])
def test_a_lost_log_is_no_new_store(
    store_root: Path, tmp_path: Path, folder_is_there: bool
) -> None:
    """The log's disk was not mounted: the store began a new log at offset 0 in its place and
    deleted all queues and keys, also without the state file."""
    root = tmp_path / "s"
    shutil.copytree(store_root, root)
    (root / "commitlog").rename(tmp_path / "elsewhere")
    if folder_is_there:
        (root / "commitlog").mkdir()
    before = files_below(root)
    for mode in ("r", "r+", "a"):
        with pytest.raises(MappedFileError, match="the log is missing"):
            rocketstore.open(root, mode)
    with pytest.raises(MappedFileError, match="Mount its disk"):
        rocketstore.salvage(root)
    assert files_below(root) == before
    if folder_is_there:
        (root / "commitlog").rmdir()
    (tmp_path / "elsewhere").rename(root / "commitlog")
    with rocketstore.open(root, "r+", start=False) as store:
        check_all(store, COUNT)
    shutil.rmtree(root / "commitlog")
    (root / "rocketstore.state").unlink()
    with pytest.raises(MappedFileError, match="the log is missing"):
        rocketstore.open(root, "r+")
    for name in ("consumequeue", "index"):
        shutil.rmtree(root / name)
    (root / "checkpoint").unlink()
    with rocketstore.open(root, "r+", start=False) as store:
        put_some(store, 3)
        store.wait_dispatched()
        check_all(store, 3)
