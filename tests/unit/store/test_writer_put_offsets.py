"""Queue offsets that a put gives go on where the log ends, however the store was left."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from corruption import crafted

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="stores are only read there")
OPTIONS: dict[str, Any] = {
    **crafted.OPTIONS,
    "mapper_file_size_batch_consume_queue": 460,
    "enable_lmq": True,
    "enable_multi_dispatch": True,
    "topic_attributes": {"BCQ": {"queue.type": "BatchCQ"}},
}
NAMES = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"}


def put_some(store: Any, count: int) -> None:
    for number in range(count):
        assert store.put("T", b"x" * number, number % 2, properties=NAMES).ok
        assert store.put("BCQ", b"", sys_flag=0x80, properties={"INNER_NUM": "3"}).ok


def answers(store: Any) -> tuple[str, str]:
    """Return the offsets that one more message of each kind gets."""
    light = store.put("T", b"", properties=NAMES)
    inner = store.put("BCQ", b"", sys_flag=0x80, properties={"INNER_NUM": "3"})
    offsets = light.physical_offset, inner.physical_offset
    found = [store.look_message_by_offset(offset).properties for offset in offsets]
    return found[0]["INNER_MULTI_QUEUE_OFFSET"], found[1]["INNER_BASE"]


@pytest.mark.parametrize(
    ("version", "left"),
    [
        ("5.3.3", "closed"),
        ("5.3.3", "killed"),
        ("5.3.3", "killed before dispatch"),
        ("5.3.3", "queues lost"),
        ("5.5.0", "killed before dispatch"),
    ],
)
def test_offsets_go_on(tmp_path: Path, version: str, left: str) -> None:
    root, copy = tmp_path / "store", tmp_path / "copy"
    start = left != "killed before dispatch"
    with rocketstore.open(root, "x", broker_version=version, start=start, **OPTIONS) as store:
        put_some(store, 20)
        if start:
            assert store.wait_dispatched(120)
        if left.startswith("killed"):
            shutil.copytree(root, copy)
    if not left.startswith("killed"):
        shutil.copytree(root, copy)
    if left == "queues lost":
        shutil.rmtree(copy / "consumequeue")
        shutil.rmtree(copy / "batchconsumequeue")
    with rocketstore.open(copy, "r+", **OPTIONS) as store:
        assert answers(store) == ("20,20", "60")
        assert store.wait_dispatched(120)
        assert store.max_offset_in_queue("%LMQ%a", 0) == 21
        assert store.max_offset_in_queue("BCQ", 0) == 63
        assert store.verify().findings == []
