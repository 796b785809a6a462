"""Index files that a true state file vouches for, but that are not the ones it saw.

They were put back from a backup, or copied from another store. Their number was right, so their
keys were taken to be complete, and those of later records were never found again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.store import dispatch_recovery
from rocketstore.testing import check_invariants

pytestmark = pytest.mark.usefixtures("index_check")

OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": 8 * 1024,
    "max_hash_slot_num": 40,
    "max_index_num": 50,
}
COUNT = 70


def put(store: rocketstore.DefaultMessageStore, start: int, stop: int, prefix: str) -> None:
    for number in range(start, stop):
        store.put("T", b"x" * (number % 7), 0, None, f"{prefix}{number}", properties=unique(number))
    store.wait_dispatched()


def unique(number: int) -> dict[str, str]:
    """Some records have two keys, which may lie in two files."""
    return {"UNIQ_KEY": f"u{number}"} if number % 3 else {}


def check(store: rocketstore.DefaultMessageStore) -> None:
    for number in range(COUNT):
        found = [message.queue_offset for message in store.find(topic="T", key=f"k{number}")]
        assert found == [number]
        for name in unique(number).values():
            found = [message.queue_offset for message in store.find(topic="T", unique_key=name)]
            assert found == [number]


def index_files(root: Path) -> list[Path]:
    return sorted((root / "index").iterdir())


def newest_as_it_was(root: Path, folder: Path) -> None:
    """The newest file lacks its last keys."""
    shutil.copyfile(folder / "earlier" / index_files(root)[-1].name, index_files(root)[-1])


def oldest_as_it_was(root: Path, folder: Path) -> None:
    """A file before the newest lacks its last keys."""
    shutil.copyfile(folder / "early" / index_files(root)[0].name, index_files(root)[0])


def of_another_store(root: Path, folder: Path) -> None:
    theirs = index_files(folder / "other")
    assert len(theirs) == len(index_files(root))
    shutil.rmtree(root / "index")
    shutil.copytree(folder / "other" / "index", root / "index")


def oldest_of_another_store(root: Path, folder: Path) -> None:
    shutil.copyfile(index_files(folder / "other")[0], index_files(root)[0])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that was closed, what its index was at two moments, and another store."""
    folder = tmp_path_factory.mktemp("stores")
    with rocketstore.open(folder / "s", "x", start=False, **OPTIONS) as store:
        put(store, 0, 20, "k")
        store.flush()
        shutil.copytree(folder / "s" / "index", folder / "early")
        put(store, 20, COUNT - 10, "k")
        store.flush()
        shutil.copytree(folder / "s" / "index", folder / "earlier")
        put(store, COUNT - 10, COUNT, "k")
    with rocketstore.open(folder / "other", "x", start=False, **OPTIONS) as store:
        put(store, 0, COUNT, "other")
    assert len(index_files(folder / "s")) == 3
    return folder


@pytest.mark.parametrize("is_long", [False, True], ids=["short", "long"])
@pytest.mark.parametrize(
    "put_back",
    [newest_as_it_was, oldest_as_it_was, of_another_store, oldest_of_another_store],
)
def test_every_key_is_found(
    folder: Path,
    put_back: Callable[[Path, Path], None],
    is_long: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also in a log too long for every entry to be looked at."""
    if is_long:
        monkeypatch.setattr(dispatch_recovery, "COMPARED_NBYTES", 0)
    root = tmp_path / "s"
    shutil.copytree(folder / "s", root)
    put_back(root, folder)
    with rocketstore.open(root, "r+", start=False) as store:
        assert any("key" in note or "index" in note for note in store.recovery_report.notes)
        check(store)
        assert store.verify().ok
    with rocketstore.open(root, "r+", start=False) as store:
        assert not store.recovery_report.notes
        check(store)
    check_invariants(root, reopen=False).require()


def test_the_links_of_every_file_of_a_short_log_are_looked_at(folder: Path, tmp_path: Path) -> None:
    """As all its units are; zeros in place of slots were found in the newest file alone."""
    root = tmp_path / "s"
    shutil.copytree(folder / "s", root)
    content = bytearray(index_files(root)[0].read_bytes())
    slots = memoryview(content)[40 : 40 + 4 * OPTIONS["max_hash_slot_num"]]
    newest = max(bytes(slots[at : at + 4]) for at in range(0, len(slots), 4))
    for at in range(0, len(slots), 4):
        if bytes(slots[at : at + 4]) != newest:
            slots[at : at + 4] = bytes(4)
    index_files(root)[0].write_bytes(content)
    with rocketstore.open(root, "r+", start=False) as store:
        check(store)
        assert store.verify().ok


def test_a_whole_index_is_not_changed(folder: Path, tmp_path: Path) -> None:
    root = tmp_path / "s"
    shutil.copytree(folder / "s", root)
    before = {path: path.read_bytes() for path in index_files(root)}
    with rocketstore.open(root, "r+", start=False) as store:
        assert not store.recovery_report.notes
    assert {path: path.read_bytes() for path in index_files(root)} == before
