"""Deleted messages of batch queues, where a store has no other queues: reported, not skipped."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import formats
from rocketstore.errors import MappedFileError
from rocketstore.spark.base.options import parse_read
from rocketstore.spark.reading.reader import plan
from rocketstore.spark.stream.plan import StreamPlan
from support import expired_stores
from support.stream_store import segments

ASKED = {"assign": '{"BCQ": [0]}', "startingOffsets": '{"BCQ": {"0": 1}}'}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with batch queues alone, whose first segment was deleted."""
    root = tmp_path / "store"
    options: dict[str, Any] = {
        "broker_version": "5.3.3",
        "mapped_file_size_commit_log": 4096,
        "topic_attributes": expired_stores.BATCH_TOPICS,
    }
    batch = {"sys_flag": expired_stores.INNER, "properties": {"INNER_NUM": "3", "WAIT": "true"}}
    with rocketstore.open(root, "x", **options) as store:
        for number in range(60):
            assert store.put("BCQ", b"x" * 100, 0, keys=f"k{number}", **batch).ok
    assert not (root / formats.CONSUME_QUEUE_DIR).exists()
    segments(root)[0].unlink()
    return root


@pytest.mark.parametrize("place", [".", "commitlog"])
def test_a_batch_query_reports_deleted_messages(root: Path, place: str) -> None:
    with pytest.raises(MappedFileError, match=r"asks for 1 of queue 0 of 'BCQ', which begins at"):
        plan(parse_read({"path": str(root / place), **ASKED}))


@pytest.mark.parametrize("place", [".", "commitlog"])
def test_a_stream_reports_deleted_messages(root: Path, place: str) -> None:
    with pytest.raises(MappedFileError, match=r"asks for 1 of queue 0 of 'BCQ', which begins at"):
        StreamPlan(parse_read({"path": str(root / place), **ASKED})).initial()


def test_the_remaining_messages_can_be_read(root: Path) -> None:
    assert plan(parse_read({"path": str(root), "failOnDataLoss": "false", **ASKED}))


def test_without_queue_folders_nothing_is_compared(root: Path) -> None:
    shutil.rmtree(root / formats.BATCH_QUEUE_DIR)
    assert plan(parse_read({"path": str(root), **ASKED}))
