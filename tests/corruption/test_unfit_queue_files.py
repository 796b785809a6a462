"""Queue files that a kill left empty: opening for writing moves them aside and goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rocketstore

OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": 16 * 1024,
    "mapped_file_size_consume_queue": 400,
    "enable_consume_queue_ext": True,
    "mapped_file_size_consume_queue_ext": 2048,
}


@pytest.mark.parametrize("part", ["consumequeue", "consumequeue_ext"])
def test_an_empty_file_of_a_queue_without_others(part: str, tmp_path: Path) -> None:
    """RocketMQ, killed while it made a queue's first files, left an empty one. Opening for writing
    failed with "File exists" when the queue was made again: of an ext file also where the queue
    had no folder of its own yet, so that it was not known when files were looked through."""
    root = tmp_path / "store"
    with rocketstore.open(root, "x", **OPTIONS) as store:
        assert store.put("T", b"one", 3, "tag").ok
        assert store.wait_dispatched(120)
    for folder in ("consumequeue", "consumequeue_ext"):
        for path in sorted((root / folder / "T").rglob("*"), reverse=True):
            if path.is_file():
                path.unlink()
            else:
                path.rmdir()
    (root / "rocketstore.state").unlink()
    (root / "abort").touch()
    empty = root / part / "T" / "3" / ("0" * 20)
    empty.parent.mkdir(parents=True)
    empty.touch()
    with rocketstore.open(root, "r+", **OPTIONS) as store:
        (message,) = store.get_message("g", "T", 3, 0).messages
        assert message.body == b"one"
        assert store.put("T", b"two", 3).queue_offset == 1
    assert empty.stat().st_size in (400, 2048)
