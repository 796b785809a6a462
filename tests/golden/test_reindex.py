"""Queues and index of real brokers, rebuilt from their logs and put in place."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import rocketstore
from golden import golden_stores
from rocketstore.mending.reindex import reindex
from rocketstore.planning.undoing import undo_repair
from support.file_trees import tree_of

STORES = golden_stores.names("plain-", "crash-", "crc-", "inner-", "ext-", "lmq-")


@pytest.mark.parametrize("name", STORES)
def test_a_broker_s_files_are_left_alone(name: str, tmp_path: Path) -> None:
    root = golden_stores.unpack(name, tmp_path)
    before = tree_of(root)
    report = reindex(root, broker_version=golden_stores.about(name)["rocketmq"])
    assert (report.files, report.undo) == ([], None)
    assert report.units > 100
    assert tree_of(root) == before


@pytest.mark.parametrize("name", ["plain-5.5.0", "expire-4.9.8"])
def test_lost_queues_and_index_come_and_go(name: str, tmp_path: Path) -> None:
    root = golden_stores.unpack(name, tmp_path)
    for folder in ("consumequeue", "index"):
        shutil.rmtree(root / folder)
    broken = tree_of(root)
    undo = reindex(root).undo
    assert undo is not None
    with rocketstore.open(root) as store:
        assert store.verify().ok
    assert reindex(root).files == []
    undo_repair(root, undo)
    assert tree_of(root) == broken
