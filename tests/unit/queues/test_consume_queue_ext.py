"""Ext files of a store of our own: bit maps, filters that are given them, numbering, finding."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import Sql92Filter, TagFilter, formats
from rocketstore.dispatch.dispatcher import BitMapFilters
from rocketstore.files.mapped_file_queue import MappedFileQueue, list_directory
from rocketstore.filter.bloom_filter import GroupBits
from rocketstore.queues.consume_queue_ext import ConsumeQueueExt, CqExtUnit

UNIT = formats.CONSUME_QUEUE_EXT_UNIT

OPTIONS: dict[str, Any] = {
    "enable_consume_queue_ext": True,
    "mapped_file_size_consume_queue_ext": 300,
    "mapped_file_size_consume_queue": 400,
}


def write(root: Path, *, count: int = 50) -> None:
    """Messages whose bit map says whether their number is odd."""
    with rocketstore.open(root, "x", start=False, **OPTIONS) as store:
        assert store._writer is not None
        odd, always = Sql92Filter("odd = '1'").program, Sql92Filter("TRUE").program
        rows = [(b"Topic", odd, b"\x01\x00", 0), (b"Topic", always, b"\x00\x07", 0)]
        store._writer.dispatcher.set_filters(BitMapFilters(2, rows))
        for number in range(count):
            properties = {"odd": str(number % 2)}
            store.put("Topic", b"%d" % number, 0, f"Tag{number % 3}", properties=properties)
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
        assert ext == CqExtUnit(code, result.messages[1].store_timestamp, b"\x01\x07") or (
            ext is not None and ext.bit_map == b"\x01\x07"
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


GOOD = CqExtUnit(5, 1000, b"\x00\x01")
BITS = GroupBits((0, 9), 16, 999)


@pytest.mark.parametrize(
    ("unit", "bits", "excluded"),
    [
        (GOOD, BITS, True),
        (GOOD, GroupBits((8,), 16, 999), False),
        (GOOD, GroupBits((8, 0), 16, 999), True),
        (GOOD, GroupBits((), 16, 999), False),
        (GOOD, GroupBits((0, 9), 16, 1000), False),
        (GOOD, GroupBits((0, 9), 16, 999, 1000), True),
        (GOOD, GroupBits((0, 9), 16, 999, 999), False),
        (GOOD, GroupBits((0, 9), 24, 999), False),
        (GOOD, GroupBits((0, 9), 8, 999), False),
        (GOOD, GroupBits((0, 9), 0, 999), False),
        # Positions outside the bit map: RocketMQ raises, and then reads the message.
        (GOOD, GroupBits((0, 16), 16, 999), False),
        (GOOD, GroupBits((0, -1), 16, 999), False),
        (GOOD, GroupBits((0,), 15, 999), False),
        (CqExtUnit(5, 1000, b""), BITS, False),
        (CqExtUnit(5, 1000, b"\x00"), BITS, False),
        (CqExtUnit(5, 1000, b"\x00\x00\x00"), BITS, False),
        (CqExtUnit(5, 999, b"\x00\x00"), BITS, False),
        (CqExtUnit(5, -5, b"\x00\x00"), GroupBits((0,), 16, -9), True),
    ],
)
def test_what_a_bit_map_excludes(
    tmp_path: Path, unit: CqExtUnit, bits: GroupBits, excluded: bool
) -> None:
    """Said of one unit, and of a whole queue file at once."""
    assert bits.excludes(unit) is excluded
    head = UNIT.struct.pack(unit.nbytes, unit.tags_code, unit.store_timestamp, len(unit.bit_map))
    with ext_of(tmp_path, head + unit.bit_map + bytes(40)) as (ext, units):
        assert excluded_units(ext, units([formats.EXT_ADDRESS_BASE]), bits) == [excluded]
        # Plain tags codes, and addresses without a unit.
        others = [7, formats.EXT_ADDRESS_BASE + 1, formats.EXT_ADDRESS_BASE + 2**40, -(2**33)]
        assert excluded_units(ext, units(others), bits) == [False] * 4


def excluded_units(
    ext: ConsumeQueueExt, units: bytearray, bits: GroupBits, first: int = 0, stop: int | None = None
) -> list[bool]:
    """Whether each unit is one that no tags code may match."""
    last = len(units) if stop is None else 20 * stop
    copy = ext.without_excluded(units, 20 * first, last, bits)
    found = list(formats.CONSUME_QUEUE_UNIT.struct.iter_unpack(copy))
    before = list(formats.CONSUME_QUEUE_UNIT.struct.iter_unpack(units[20 * first : last]))
    assert [unit[:2] for unit in found] == [unit[:2] for unit in before]
    return [unit[2] > formats.MAX_EXT_ADDRESS for unit in found]


def test_fillers_and_missing_units_stay_what_they_are(tmp_path: Path) -> None:
    filler = formats.CONSUME_QUEUE_UNIT.struct.pack(0, formats.FILLER_UNIT_SIZE, 0)
    with ext_of(tmp_path, bytes(40)) as (ext, units):
        content = filler + bytes(20) + units([7])
        copy = ext.without_excluded(bytearray(content), 0, 60, BITS)
        assert copy[:40] == content[:40]
        assert copy[40:] == units([formats.EXT_ADDRESS_BASE])


@contextmanager
def ext_of(root: Path, content: bytes) -> Iterator[tuple[ConsumeQueueExt, Any]]:
    """Ext files of 300 bytes with this content, and how to make a queue's units for addresses."""
    for start in range(0, len(content), 300):
        part = content[start : start + 300]
        (root / formats.offset_to_file_name(start)).write_bytes(part.ljust(300, b"\0"))
    queue = MappedFileQueue(root, 300, root, writable=False)
    queue.load(list_directory(root, root))
    ext = ConsumeQueueExt(queue)
    try:
        yield (
            ext,
            lambda codes: bytearray(
                b"".join(formats.CONSUME_QUEUE_UNIT.struct.pack(0, 91, code) for code in codes)
            ),
        )
    finally:
        ext.close()


def test_bit_maps_of_many_files_in_any_order(tmp_path: Path) -> None:
    bits, content, codes, expected = GroupBits((3, 11), 16, 0), bytearray(), [], []
    pick = random.Random(5)
    while len(content) < 4000:
        bit_map = pick.choice((b"", b"\x08\x08", b"\x08\x00", b"\xff", b"\x00\x08"))
        if len(content) % 300 + 20 + len(bit_map) + 4 > 300:
            content += b"\xff\xff" + bytes(298 - len(content) % 300)
        codes.append(formats.EXT_ADDRESS_BASE + len(content))
        expected.append(len(bit_map) == 2 and bit_map != b"\x08\x08")
        content += UNIT.struct.pack(20 + len(bit_map), 1, 50, len(bit_map)) + bit_map
    order = list(range(len(codes)))
    pick.shuffle(order)
    with ext_of(tmp_path, bytes(content)) as (ext, units):
        queue = units([codes[n] for n in order])
        found = excluded_units(ext, queue, bits)
        assert found == [expected[n] for n in order]
        assert 20 < sum(found) < len(order) - 20
        assert excluded_units(ext, queue, bits, 3, 5) == found[3:5]
        # A deleted file excludes nothing.
        (tmp_path / formats.offset_to_file_name(300)).unlink()
        left = excluded_units(ext, queue, bits)
        assert sum(left) <= sum(found)
        assert all(a <= b for a, b in zip(left, found, strict=True))


@pytest.mark.parametrize("size", [0, 23, 2**31])
def test_sizes_that_cannot_be(size: int) -> None:
    with pytest.raises(rocketstore.ConfigError, match="mapped_file_size_consume_queue_ext"):
        rocketstore.MessageStoreConfig(mapped_file_size_consume_queue_ext=size)
