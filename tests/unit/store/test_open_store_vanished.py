"""A store, or a part of it, that vanishes below an open reader."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import MappedFileError, RocketStoreError

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="open files cannot be moved there")
# After the root was moved or unmounted ``refresh()`` returned and showed an empty store: no topic,
# no message, NO_MESSAGE_IN_QUEUE for every queue.
COUNT = 120
SMALL: dict[str, Any] = {
    "mapped_file_size_commit_log": 16384,
    "mapped_file_size_consume_queue": 200,
    "max_hash_slot_num": 50,
    "max_index_num": 200,
}


def make(root: Path, word: bytes = b"x") -> Path:
    ticks = iter(range(1_700_000_000_000, 1_800_000_000_000))
    with rocketstore.open(root, "x", clock=lambda: next(ticks), **SMALL) as store:
        for number in range(COUNT):
            assert store.put("AB"[number % 2], word * 60, number // 2 % 2, None, f"k{number}").ok
    return root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make(tmp_path / "store")


def moved(root: Path) -> None:
    root.rename(root.with_name("moved"))


def deleted(root: Path) -> None:
    shutil.rmtree(root)


def unmounted(root: Path) -> None:
    """Its folder stays, with nothing in it."""
    moved(root)
    root.mkdir()


def unmounted_with_a_leftover(root: Path) -> None:
    unmounted(root)
    (root / "lost+found").mkdir()


def a_file_in_its_place(root: Path) -> None:
    moved(root)
    root.write_bytes(b"")


def log_moved(root: Path) -> None:
    (root / "commitlog").rename(root.with_name("log"))


def log_emptied(root: Path) -> None:
    log_moved(root)
    (root / "commitlog").mkdir()


def another_store(root: Path) -> None:
    moved(root)
    make(root, b"y")


def a_new_store(root: Path) -> None:
    moved(root)
    with rocketstore.open(root, "x", **SMALL) as store:
        store.put("C", b"first")


def another_log(root: Path) -> None:
    other = make(root.with_name("other"), b"y")
    log_moved(root)
    (other / "commitlog").rename(root / "commitlog")


def an_empty_store(root: Path) -> None:
    moved(root)
    rocketstore.open(root, "x", **SMALL).close()


WAYS = [
    moved, deleted, unmounted, unmounted_with_a_leftover, a_file_in_its_place, log_moved,
    log_emptied, another_store, a_new_store, another_log, an_empty_store,
]  # fmt: skip


def check_readable(store: rocketstore.DefaultMessageStore) -> None:
    assert sum(1 for _ in store.scan()) == COUNT
    assert sorted(store.topics()) == ["A", "B"]
    assert store.max_offset_in_queue("A", 0) == 30
    assert len(store.get_message("g", "A", 0, 20).messages) == 10
    assert [message.keys for message in store.find(topic="A", key="k4")] == ["k4"]


@pytest.mark.parametrize("derive", ["tail", "full", "none"])
@pytest.mark.parametrize("way", WAYS)
def test_refresh_raises_and_what_was_open_stays(
    root: Path, way: Callable[[Path], None], derive: str
) -> None:
    with rocketstore.open(root, derive=derive) as store:
        way(root)
        for _ in range(2):
            with pytest.raises((OSError, RocketStoreError)):
                store.refresh()
            if derive != "none" or way is not deleted:
                check_readable(store)


def test_a_store_that_comes_back_is_read_on(root: Path) -> None:
    with rocketstore.open(root) as store:
        log_moved(root)
        with pytest.raises(MappedFileError, match="the log is missing"):
            store.refresh()
        (root.with_name("log")).rename(root / "commitlog")
        with rocketstore.open(root, "r+") as writer:
            assert writer.put("A", b"more", 0).ok
        store.refresh()
        assert sum(1 for _ in store.scan()) == COUNT + 1


@pytest.mark.parametrize("folder", ["consumequeue", "index"])
def test_derived_folders_are_rebuilt_in_memory(root: Path, folder: str) -> None:
    with rocketstore.open(root) as store:
        (root / folder).rename(root.with_name(folder))
        store.refresh()
        check_readable(store)


def expired(root: Path) -> None:
    with rocketstore.open(root, "r+", file_reserved_time=0) as writer:
        assert writer.clean_expired()


def salvaged(root: Path) -> None:
    with (root / "commitlog" / f"{0:020}").open("r+b") as file:
        file.write(b"!!")
    rocketstore.salvage(root)


def truncated(root: Path) -> None:
    """As a broker does after a crash."""
    (root / "abort").touch()
    (root / "rocketstore.state").unlink()
    last = max((root / "commitlog").iterdir())
    last.write_bytes(bytes(last.stat().st_size))
    with rocketstore.open(root, "r+") as writer:
        assert writer.put("A", b"other", 0).ok


@pytest.mark.parametrize("way", [expired, salvaged, truncated])
def test_what_a_writer_does_is_shown(root: Path, way: Callable[[Path], None]) -> None:
    with rocketstore.open(root) as store:
        way(root)
        store.refresh()
        assert 0 < sum(1 for _ in store.scan()) <= COUNT


@pytest.mark.parametrize("way", [moved, unmounted, log_moved, log_emptied, another_store])
def test_tail_raises(root: Path, way: Callable[[Path], None]) -> None:
    with rocketstore.open(root) as store:
        tail = iter(store.tail(start=0, interval_s=0.01, timeout_s=20))
        for _ in range(COUNT):
            next(tail)
        way(root)
        with pytest.raises((OSError, RocketStoreError)):
            next(tail)
