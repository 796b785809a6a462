"""Bit maps of a broker's ext files: read for its groups, and written by its filters again."""

from __future__ import annotations

import functools
import json
import lzma
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from golden.golden_stores import HERE
from rocketstore import Sql92Filter
from support.directory import files_below
from support.own_process import run_python

FILTERED = HERE / "engine" / "filter-4.9.8"
TOPIC = "Sql51"
OPTIONS: dict[str, Any] = {
    "broker_version": "4.9.8",
    "mapped_file_size_consume_queue": 4000,
    "max_hash_slot_num": 200,
    "max_index_num": 800,
    "enable_consume_queue_ext": True,
    "mapped_file_size_consume_queue_ext": 65536,
}
DERIVED = ("consumequeue", "consumequeue_ext")
FILTERS = "config/consumerFilter.json"


def unpack(directory: Path) -> Path:
    """Unpack the store, modification times too; return its root."""
    with tarfile.open(FILTERED / "store.tar.xz", "r:xz") as archive:
        # Python before 3.11.4 has no filters.
        archive.extractall(
            directory, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {})
        )
    return directory / "store"


def groups() -> dict[str, str]:
    """The groups' expressions, by group."""
    return {row["group"]: row["expression"] for row in events("subscribed")}


@functools.cache
def events(kind: str) -> list[dict[str, Any]]:
    with lzma.open(FILTERED / "client.ndjson.xz", "rt", encoding="utf-8") as lines:
        return [row for row in map(json.loads, lines) if row.get("event") == kind]


def received() -> dict[str, list[int]]:
    """Log offsets of the messages that the broker's client got, by group."""
    found: dict[str, set[int]] = {group: set() for group in groups()}
    for row in events("received"):
        found[row["group"]].add(row["physicalOffset"])
    return {group: sorted(offsets) for group, offsets in found.items()}


def read(store: rocketstore.DefaultMessageStore, group: str, expression: str) -> list[int]:
    """Log offsets of the messages that a group gets, by pulls of all queues."""
    made, found = Sql92Filter(expression, broker_version="4.9.8"), []
    for queue_id in store.queues(TOPIC):
        offset = 0
        while offset < store.max_offset_in_queue(TOPIC, queue_id):
            result = store.get_message(group, TOPIC, queue_id, offset, filter=made)
            found += [message.physical_offset for message in result.messages]
            assert result.next_begin_offset > offset
            offset = result.next_begin_offset
    return sorted(found)


def read_all(store: rocketstore.DefaultMessageStore) -> dict[str, list[int]]:
    return {group: read(store, group, expression) for group, expression in groups().items()}


#: Delete queues and ext files, rebuild them, and read what every group gets.
PROGRAM = """
import json, shutil, sys
import rocketstore
sys.path.insert(0, sys.argv[2])
from golden.test_bit_maps import DERIVED, OPTIONS, read_all
root, calculates = sys.argv[1], sys.argv[3] == "1"
for name in DERIVED:
    shutil.rmtree(f"{root}/{name}")
with rocketstore.open(root, "r+", **OPTIONS, enable_calc_filter_bit_map=calculates) as store:
    print(json.dumps([store.recovery_report.refused, read_all(store), store.verify().ok]))
"""


@pytest.mark.parametrize("body", ["native", "reference"])
@pytest.mark.parametrize("calculates", [True, False])
def test_rebuilt_ext_files(tmp_path: Path, body: str, calculates: bool) -> None:
    """The bit maps are the broker's, byte for byte; groups get the same messages without them."""
    root = unpack(tmp_path)
    before = {name: files_below(root / name) for name in DERIVED}
    tests = str(Path(__file__).resolve().parents[1])
    done = run_python(PROGRAM, str(root), tests, str(int(calculates)), ROCKETSTORE_KERNELS=body)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[], received(), True]
    after = {name: files_below(root / name) for name in DERIVED}
    assert (after == before) is calculates
    assert all(before.values())


@pytest.mark.parametrize("filters", ["the broker's", "none"])
def test_groups_get_what_the_brokers_client_got(tmp_path: Path, filters: str) -> None:
    root = unpack(tmp_path)
    if filters == "none":
        (root / FILTERS).unlink()
    with rocketstore.open(root, "r") as store:
        assert read_all(store) == received()


def spoil(root: Path, offsets: set[int]) -> None:
    """Change the first byte of the bodies of records."""
    path = root / "commitlog" / "0".zfill(20)
    content = bytearray(path.read_bytes())
    for offset in offsets:
        content[offset + 88] ^= 0xFF
    path.write_bytes(content)


@pytest.mark.parametrize("group", ["gs0", "gs4"])
def test_messages_that_a_bit_map_excludes_are_not_read(tmp_path: Path, group: str) -> None:
    """Not even when they are corrupt. What a group's bits let through by chance is read."""
    root = unpack(tmp_path)
    wanted = received()[group]
    born = json.loads((root / FILTERS).read_text())["filterDataByTopic"][TOPIC]
    born_time = born["groupFilterData"][group]["bornTime"]
    with rocketstore.open(root, "r") as store:
        later = {m.physical_offset for m in store.scan() if m.store_timestamp > born_time}
        maps = ext_bit_maps(store)
        positions = born["groupFilterData"][group]["bloomFilterData"]["bitPos"]
    hits = {at for at in later if all(maps[at][p // 8] >> p % 8 & 1 for p in positions)}
    excluded = later - hits
    assert set(wanted) & later <= hits
    assert len(excluded) > 40
    spoil(root, excluded)
    with rocketstore.open(root, "r", derive="none") as store:
        assert read(store, group, groups()[group]) == wanted
        with pytest.raises(rocketstore.CorruptMessageError):
            read(store, "another", groups()[group])
        # The group has another filter than this one in the table.
        with pytest.raises(rocketstore.CorruptMessageError):
            read(store, group, groups()[group] + " ")
    shutil.copy(root / FILTERS, tmp_path / "kept")
    (root / FILTERS).write_text("{}")
    with (
        rocketstore.open(root, "r", derive="none") as store,
        pytest.raises(rocketstore.CorruptMessageError),
    ):
        read(store, group, groups()[group])


def ext_bit_maps(store: rocketstore.DefaultMessageStore) -> dict[int, bytes]:
    """The bit map of each message, by log offset."""
    found = {}
    for queue_id in store.queues(TOPIC):
        queue = store.reader.queues.get(TOPIC, queue_id)
        assert queue is not None
        assert queue.ext is not None
        for index in range(queue.max_index):
            place, _, code = queue.unit(index) or (0, 0, 0)
            unit = queue.ext.unit(code)
            assert unit is not None
            found[place] = unit.bit_map
    return found


def test_salvage_and_verify_take_such_a_store(tmp_path: Path) -> None:
    """Only the corrupt message is lost; bit maps and filters stay in use."""
    root = unpack(tmp_path)
    lost = received()["gs0"][3]
    spoil(root, {lost})
    with rocketstore.open(root, "r") as store:
        assert not store.verify().ok
    rocketstore.salvage(root)
    with rocketstore.open(root, "r+", **OPTIONS, enable_calc_filter_bit_map=True) as store:
        assert store.verify().ok
        left = {group: set(offsets) - {lost} for group, offsets in received().items()}
        # The message in its place has no color.
        left["gs2"].add(lost)
        assert read_all(store) == {group: sorted(offsets) for group, offsets in left.items()}
        assert sum(map(len, ext_bit_maps(store).values())) > 100 * 14
