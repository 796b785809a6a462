"""Mode ``"r"``: how much of the log queues and index lack, where batch queues are the only ones."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import formats
from support import expired_stores

BATCH: dict[str, Any] = {"sys_flag": expired_stores.INNER, "properties": {"INNER_NUM": "3"}}
OPTIONS: dict[str, Any] = {
    "broker_version": "5.1.4",
    "mapped_file_size_commit_log": 4096,
    "topic_attributes": expired_stores.BATCH_TOPICS,
}


def put_batches(store: rocketstore.DefaultMessageStore) -> None:
    for number in range(5):
        assert store.put("BCQ", b"x", number % 2, **BATCH).ok


def put_single(store: rocketstore.DefaultMessageStore) -> None:
    """A message that is no batch goes to the batch queue of its topic too."""
    put_batches(store)
    assert store.put("BCQ", b"y", 0).ok


def put_plain(store: rocketstore.DefaultMessageStore) -> None:
    put_batches(store)
    assert store.put("Plain", b"z", 0).ok
    put_batches(store)


def put_light(store: rocketstore.DefaultMessageStore) -> None:
    put_batches(store)
    light = {"INNER_MULTI_DISPATCH": "%LMQ%a"}
    assert store.put("BCQ", b"y", 0, properties=light).ok


def make(root: Path, put: Callable[[rocketstore.DefaultMessageStore], None]) -> int:
    """Return the log's end in a store that was closed in order."""
    with rocketstore.open(root, "x", **OPTIONS, enable_multi_dispatch=True) as store:
        put(store)
        end = store.max_physical_offset
    shutil.rmtree(root / formats.CONSUME_QUEUE_DIR, ignore_errors=True)
    return end


@pytest.mark.parametrize("put", [put_batches, put_single])
def test_batch_queues_alone_may_have_all_units(
    tmp_path: Path, put: Callable[[rocketstore.DefaultMessageStore], None]
) -> None:
    root = tmp_path / "s"
    make(root, put)
    with rocketstore.open(root, derive="none", topic_attributes=OPTIONS["topic_attributes"]) as s:
        assert s.dispatch_behind_nbytes == 0
        assert s.wait_dispatched()
        assert s.verify().ok


@pytest.mark.parametrize("put", [put_plain, put_light])
def test_a_message_of_a_lost_plain_queue_counts_as_missing(
    tmp_path: Path, put: Callable[[rocketstore.DefaultMessageStore], None]
) -> None:
    root = tmp_path / "s"
    end = make(root, put)
    with rocketstore.open(root, derive="none", topic_attributes=OPTIONS["topic_attributes"]) as s:
        missing = next(
            message.physical_offset
            for message in s.scan()
            if message.topic == "Plain" or "INNER_MULTI_DISPATCH" in message.properties
        )
        assert s.dispatch_behind_nbytes == end - missing > 0


def test_units_that_batch_queues_lost_count_as_missing(tmp_path: Path) -> None:
    root = tmp_path / "s"
    end = make(root, put_batches)
    for file in (root / formats.BATCH_QUEUE_DIR / "BCQ").rglob("0*0"):
        if file.is_file():
            content = file.read_bytes()
            used = len(content.rstrip(b"\0"))
            last = used // formats.BATCH_QUEUE_UNIT.nbytes
            start = last * formats.BATCH_QUEUE_UNIT.nbytes
            file.write_bytes(content[:start] + bytes(len(content) - start))
    with rocketstore.open(root, derive="none", topic_attributes=OPTIONS["topic_attributes"]) as s:
        assert 0 < s.dispatch_behind_nbytes < end
        assert not s.wait_dispatched()
