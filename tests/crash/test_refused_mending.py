"""What opening for writing refuses, a repair refuses before its first change.

``salvage`` rewrote the log and moved ``index`` away, and only then detected that the store could
not be opened: a FIFO in place of ``checkpoint``, a folder in place of ``abort``, a link to nothing
among the queues.
"""

from __future__ import annotations

import atexit
import errno
import functools
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from golden import golden_stores
from rocketstore.config import MessageStoreConfig
from rocketstore.directory.paths import StorePaths
from rocketstore.store import fit_for_writing
from rocketstore.store.closed_cleaning import clean_closed_store

Damage = Callable[[Path], dict[str, Any]]


def found(root: Path) -> dict[str, Any]:
    """Files with content and times, folders, links and what else is there."""
    rows: dict[str, Any] = {}
    for path in sorted(root.rglob("*")):
        about = path.lstat()
        is_file = path.is_file() and not path.is_symlink()
        content = path.read_bytes() if is_file else b""
        rows[str(path.relative_to(root))] = (about.st_mode, about.st_ino, content)
    return rows


def _fifo(name: str) -> Damage:
    def make(root: Path) -> dict[str, Any]:
        (root / name).unlink(missing_ok=True)
        os.mkfifo(root / name)
        return {}

    return make


def _folder(name: str) -> Damage:
    def make(root: Path) -> dict[str, Any]:
        path = root / name
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
        path.mkdir()
        return {}

    return make


def _loop(name: str) -> Damage:
    def make(root: Path) -> dict[str, Any]:
        path = root / name
        path.unlink(missing_ok=True)
        path.symlink_to(path.name)
        return {}

    return make


def _link_for_a_topic(root: Path) -> dict[str, Any]:
    (root / "consumequeue" / "Gone").symlink_to("nothing")
    return {}


def _link_for_a_queue(root: Path) -> dict[str, Any]:
    (root / "consumequeue" / "TopicA" / "9").symlink_to("nothing")
    return {}


def _link_for_a_queue_file(root: Path) -> dict[str, Any]:
    queue = next((root / "consumequeue" / "TopicA").iterdir())
    (queue / "00000000000000900000").symlink_to("nothing")
    return {}


def _fifo_for_a_queue_file(root: Path) -> dict[str, Any]:
    queue = next((root / "consumequeue" / "TopicA").iterdir())
    os.mkfifo(queue / "00000000000000900000")
    return {}


def _link_out_of_the_store(root: Path) -> dict[str, Any]:
    (root / "consumequeue" / "Out").symlink_to(root.parent)
    return {}


def _index_is_a_file(root: Path) -> dict[str, Any]:
    shutil.rmtree(root / "index", ignore_errors=True)
    (root / "index").write_bytes(b"kept")
    return {}


def _consumequeue_is_a_file(root: Path) -> dict[str, Any]:
    (root / "consumequeue").rename(root / "aside")
    (root / "consumequeue").write_bytes(b"kept")
    return {}


def _table_is_a_fifo(root: Path) -> dict[str, Any]:
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "topics.json").unlink(missing_ok=True)
    os.mkfifo(root / "config" / "topics.json")
    return {}


def _both_types(root: Path) -> dict[str, Any]:
    return {"topic_attributes": {"TopicA": {"queue.type": "BatchCQ"}}}


def _another_size(root: Path) -> dict[str, Any]:
    return {"mapped_file_size_commit_log": 131072}


def _unknown_switch(root: Path) -> dict[str, Any]:
    return {"broker_version": "4.9.8", "enabled_append_prop_crc": True}


REASONS: dict[str, Damage] = {
    "checkpoint is a FIFO": _fifo("checkpoint"),
    "checkpoint is a folder": _folder("checkpoint"),
    "checkpoint links to itself": _loop("checkpoint"),
    "abort is a FIFO": _fifo("abort"),
    "abort is a folder": _folder("abort"),
    "state is a FIFO": _fifo("rocketstore.state"),
    "state is a folder": _folder("rocketstore.state"),
    "lock is a folder": _folder("lock"),
    "a topic links to nothing": _link_for_a_topic,
    "a queue links to nothing": _link_for_a_queue,
    "a queue file links to nothing": _link_for_a_queue_file,
    "a queue file is a FIFO": _fifo_for_a_queue_file,
    "a topic links out": _link_out_of_the_store,
    "an index file is a folder": _folder("index/20260101000000000"),
    "index is a file": _index_is_a_file,
    "consumequeue is a file": _consumequeue_is_a_file,
    "a config table is a FIFO": _table_is_a_fifo,
    "queue types contradict": _both_types,
    "a size contradicts": _another_size,
    "a switch contradicts": _unknown_switch,
}
REFUSALS = (rocketstore.RocketStoreError, OSError)


@functools.cache
def _template() -> Path:
    """A store with a state file: it gives the sizes of queue files, which are then not checked."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    root: Path = golden_stores.unpack("plain-5.3.3", folder)
    rocketstore.open(root, "r+", start=False).close()
    return root


def _own(tmp_path: Path) -> Path:
    return Path(shutil.copytree(_template(), tmp_path / "store"))


def _damaged(tmp_path: Path) -> Path:
    root = _own(tmp_path)
    path = root / "commitlog" / f"{65536:020d}"
    path.rename(root / "commitlog" / "lost")
    return root


def _torn(tmp_path: Path) -> Path:
    root = _own(tmp_path)
    log = max((root / "commitlog").iterdir())
    with log.open("r+b") as file:
        content = file.read().rstrip(b"\0")
        file.seek(len(content))
        file.write(b"\xff" * 60)
    (root / "abort").write_bytes(b"")
    return root


@pytest.mark.parametrize("reason", REASONS)
def test_salvage_refuses_before_its_first_change(reason: str, tmp_path: Path) -> None:
    root = _damaged(tmp_path)
    options = REASONS[reason](root)
    before = found(root)
    for what_if in (True, False):
        with pytest.raises(REFUSALS):
            rocketstore.salvage(root, what_if=what_if, **options)
        assert found(root) == before


@pytest.mark.parametrize("reason", REASONS)
def test_recover_and_opening_refuse_before_their_first_change(reason: str, tmp_path: Path) -> None:
    """The end of the log is torn: it was truncated, then a link among the queues was refused."""
    root = _torn(tmp_path)
    options = REASONS[reason](root)
    before = found(root)
    for attempt in (rocketstore.recover, lambda *a, **o: rocketstore.open(*a, "r+", **o)):
        with pytest.raises(REFUSALS):
            attempt(root, **options)
        assert found(root) == before


@pytest.mark.parametrize("reason", REASONS)
def test_cleaning_a_full_disk_refuses_before_its_first_change(reason: str, tmp_path: Path) -> None:
    root = _own(tmp_path)
    options = REASONS[reason](root)
    before = found(root)
    config = MessageStoreConfig(file_reserved_time=0, **options)
    with pytest.raises(REFUSALS):
        clean_closed_store(StorePaths.of(root, config), config, clock=lambda: 2**42)
    assert found(root) == before


def test_without_such_a_reason_the_end_is_truncated_and_the_log_repaired(tmp_path: Path) -> None:
    root = _torn(tmp_path / "torn")
    assert rocketstore.recover(root).recovery.cut
    assert rocketstore.salvage(_damaged(tmp_path / "damaged")).was_needed


@pytest.mark.parametrize(
    "name",
    [".", "commitlog", "consumequeue", "index", "checkpoint", "consumequeue/TopicA/0/" + "0" * 20],
)
def test_what_may_not_be_written(name: str, tmp_path: Path, monkeypatch: Any) -> None:
    root = _damaged(tmp_path)
    path = root / name
    assert path.exists()
    before = found(root)
    real = os.access

    def access(asked: Any, right: int, **others: Any) -> bool:
        return Path(asked) != path and real(asked, right, **others)

    monkeypatch.setattr(fit_for_writing.os, "access", access)
    with pytest.raises(PermissionError, match="no write permission") as caught:
        rocketstore.salvage(root)
    assert caught.value.errno == errno.EACCES
    assert caught.value.filename == str(path)
    assert found(root) == before
