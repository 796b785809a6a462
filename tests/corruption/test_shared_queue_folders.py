"""Links below ``consumequeue`` that let two queues share a folder: their units would mix."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import rocketstore
from corruption.crafted import snapshot
from rocketstore import MappedFileError
from support.command_line import run

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="stores are only read there")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Topics A and B with two queues each."""
    with rocketstore.open(tmp_path / "s", "x") as store:
        for number in range(8):
            assert store.put("AB"[number % 2], b"x", number // 2 % 2).ok
    return tmp_path / "s"


def link(path: Path, target: str) -> None:
    if path.exists():
        path.rename(path.parents[-3] / f"{path.parent.name}-{path.name}")
    path.symlink_to(target)


def topic_to_topic(queues: Path) -> None:
    link(queues / "C", "A")


def topic_for_topic(queues: Path) -> None:
    (queues / "B").rename(queues.parent / "B")
    link(queues / "B", "A")


def queue_to_queue(queues: Path) -> None:
    link(queues / "A" / "7", "1")


def queue_to_other_topic(queues: Path) -> None:
    link(queues / "A" / "7", "../B/0")


def two_to_one_elsewhere(queues: Path) -> None:
    (queues / "B").rename(queues.parent / "elsewhere")
    link(queues / "B", "../elsewhere")
    link(queues / "C", "../elsewhere")


@pytest.mark.parametrize(
    "share",
    [topic_to_topic, topic_for_topic, queue_to_queue, queue_to_other_topic, two_to_one_elsewhere],
)
def test_writing_is_refused_and_changes_nothing(root: Path, share: Callable[[Path], None]) -> None:
    share(root / "consumequeue")
    before = snapshot(root)
    for mode in ("r+", "a"):
        with pytest.raises(MappedFileError, match="are one folder"):
            rocketstore.open(root, mode)
    for command in (["put", root, "A", "x"], ["recover", root], ["salvage", root]):
        run(*command, code=3)
    assert snapshot(root) == before
    with rocketstore.open(root) as store:
        assert sum(1 for _ in store.scan()) == 8


def test_a_link_to_a_folder_of_its_own_is_fine(root: Path) -> None:
    (root / "consumequeue" / "B").rename(root / "elsewhere")
    os.symlink("../elsewhere", root / "consumequeue" / "B")
    with rocketstore.open(root, "r+") as store:
        assert store.put("B", b"x", 0).ok
    with rocketstore.open(root) as store:
        assert store.verify().ok
