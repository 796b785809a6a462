"""Ext files of a store of our own: bit maps, filters that are given them, numbering, finding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import TagFilter, formats
from rocketstore.queues.consume_queue_ext import CqExtUnit

OPTIONS: dict[str, Any] = {
    "enable_consume_queue_ext": True,
    "mapped_file_size_consume_queue_ext": 300,
    "mapped_file_size_consume_queue": 400,
    "bit_map_length_consume_queue_ext": 24,
}


def write(root: Path, *, count: int = 50) -> None:
    """Messages whose bit map is their number."""
    with rocketstore.open(root, "x", start=False, **OPTIONS) as store:
        assert store._writer is not None
        numbers = iter(range(count))
        store._writer.dispatcher.bit_map_of = lambda message: bytes([next(numbers), 7])
        for number in range(count):
            store.put("Topic", b"%d" % number, 0, f"Tag{number % 3}")
        store.wait_dispatched()


class Recorder:
    """A filter that passes even bit maps and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[int | None, CqExtUnit | None]] = []

    def is_matched_by_consume_queue(self, tags_code: int | None, ext: CqExtUnit | None) -> bool:
        self.asked.append((tags_code, ext))
        return ext is not None and ext.bit_map[0] % 2 == 0

    def is_matched_by_commit_log(self, message: Any) -> bool:
        return True


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_filters_are_given_the_ext_unit(tmp_path: Path, mode: str) -> None:
    write(tmp_path / "store")
    with rocketstore.open(tmp_path / "store", mode) as store:
        recorder = Recorder()
        result = store.get_message("g", "Topic", 0, 0, 8, filter=recorder)
        assert [message.body for message in result.messages] == [b"%d" % n for n in range(0, 16, 2)]
        code, ext = recorder.asked[3]
        assert ext == CqExtUnit(code, result.messages[1].store_timestamp, b"\x03\x07") or (
            ext is not None and ext.bit_map == b"\x03\x07"
        )
        tagged = store.get_message("g", "Topic", 0, 0, 32, filter=TagFilter("Tag1"))
        assert [int(m.body) % 3 for m in tagged.messages] == [1] * len(tagged.messages)
        assert tagged.messages
        assert store.verify().ok


def test_bit_maps_survive_a_lost_queue(tmp_path: Path) -> None:
    """The queue's units are rebuilt; the ext units, whose content cannot be derived, stay where
    they are."""
    root = tmp_path / "store"
    write(root)
    files = {path: path.read_bytes() for path in root.glob("consumequeue*/Topic/0/*")}
    for path in files:
        if path.parts[-4] == "consumequeue":
            path.unlink()
    with rocketstore.open(root, "r+"):
        pass
    assert {path: path.read_bytes() for path in files} == files


def test_numbering_goes_on_after_reopening(tmp_path: Path) -> None:
    root = tmp_path / "store"
    write(root)
    with rocketstore.open(root, "r+") as store:
        store.put("Topic", b"more", 0, "Tag1")
        store.wait_dispatched()
        assert store.verify().ok
    with rocketstore.open(root, "r") as store:
        found = store.get_message("g", "Topic", 0, 50, filter=TagFilter("Tag1")).messages
        assert [message.body for message in found] == [b"more"]
        assert store.verify().ok


def test_switched_off_ext_files_are_not_continued(tmp_path: Path) -> None:
    root = tmp_path / "store"
    write(root, count=3)
    with rocketstore.open(root, "r+", enable_consume_queue_ext=False) as store:
        store.put("Topic", b"more", 0, "Tag1")
        store.wait_dispatched()
        units = store.queue_view("Topic", 0)
        assert (units["tags_code"] > formats.MAX_EXT_ADDRESS).all()


def test_too_long_a_bit_map_is_refused(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "store", "x", start=False, **OPTIONS) as store:
        assert store._writer is not None
        dispatcher = store._writer.dispatcher
        dispatcher.bit_map_of = lambda message: bytes(4)
        store.put("Topic", b"body", 0)
        with pytest.raises(ValueError, match="bit_map_length_consume_queue_ext"):
            dispatcher.dispatch_until(store.max_physical_offset)
        dispatcher.bit_map_of = lambda message: bytes(3)
        store.wait_dispatched()


@pytest.mark.parametrize("size", [0, 23, 2**31])
def test_sizes_that_cannot_be(size: int) -> None:
    with pytest.raises(rocketstore.ConfigError, match="mapped_file_size_consume_queue_ext"):
        rocketstore.MessageStoreConfig(mapped_file_size_consume_queue_ext=size)
