"""Offsets before and after the messages that a store has: reported, not skipped."""

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


def asked_for(root: Path, first: int, **options: str) -> list[Any]:
    offsets = f'{{"T": {{"0": {first}}}}}'
    return plan(
        parse_read(
            {"path": str(root), "assign": '{"T": [0]}', "startingOffsets": offsets, **options}
        )
    )


def test_offsets_past_the_end_of_a_queue(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with rocketstore.open(root, "x", mapped_file_size_commit_log=1 << 20) as store:
        for number in range(5):
            store.put("T", b"%d" % number, 0)
    assert asked_for(root, 4)
    assert asked_for(root, 5)  # the next message
    with pytest.raises(MappedFileError, match="asks for 6 of queue 0 of 'T', which ends at 5: "):
        asked_for(root, 6)
    assert asked_for(root, 6, failOnDataLoss="false")


def test_messages_without_units_are_not_past_the_end(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with rocketstore.open(root, "x", mapped_file_size_commit_log=1 << 20) as store:
        store.put("T", b"0", 0)
        store.wait_dispatched()
        before = {file: file.read_bytes() for file in (root / "consumequeue" / "T" / "0").iterdir()}
        for number in range(1, 5):
            store.put("T", b"%d" % number, 0)
    for file, content in before.items():
        file.write_bytes(content)
    assert asked_for(root, 5)
    with pytest.raises(MappedFileError, match="which ends at 5: "):
        asked_for(root, 6)
