"""Queues and index files rebuilt by the kernels from the log alone equal what RocketMQ wrote."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from golden import golden_stores
from rocketstore import formats
from rocketstore.dialect import Dialect
from rocketstore.status import RecordStatus
from support.kernel_bodies import Bodies
from support.reput_store import UNIT_NBYTES, MemoryStore

WHOLE_STORES = golden_stores.names("plain-", "crash-", "crc-")
LAGGING_STORES = golden_stores.names("lag-")
#: RocketMQ's default ``messageDelayLevel``: 1 s 5 s 10 s 30 s 1 m … 10 m 20 m 30 m 1 h 2 h.
DELAY_MINUTES = (*range(1, 11), 20, 30, 60, 120)
DELAY_MS = [1000, 5000, 10_000, 30_000, *(60_000 * minutes for minutes in DELAY_MINUTES)]


def read_queue_files(root: Path, queue_nbytes: int) -> dict[tuple[bytes, int, int], bytes]:
    """The queue files of a store, by topic, queue id and first unit."""
    found = {}
    for path in (root / formats.CONSUME_QUEUE_DIR).glob("*/*/*"):
        start = formats.file_name_to_offset(path.name)
        data = path.read_bytes()
        assert start is not None
        assert len(data) == queue_nbytes
        key = (path.parts[-3].encode(), int(path.parts[-2]), start // UNIT_NBYTES)
        found[key] = data
    assert found
    return found


def read_index_files(root: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((root / formats.INDEX_DIR).iterdir())]


def log_segments(root: Path) -> Iterator[tuple[int, bytes]]:
    for path in sorted((root / formats.COMMIT_LOG_DIR).iterdir()):
        start = formats.file_name_to_offset(path.name)
        assert start is not None
        yield start, path.read_bytes()


def rebuild(kernels: Bodies, name: str, root: Path, **options: Any) -> MemoryStore:
    geometry = golden_stores.geometry(name)
    dialect = Dialect.for_version(golden_stores.about(name)["rocketmq"])
    store = MemoryStore(
        kernels,
        units_per_file=geometry.consume_queue_nbytes // UNIT_NBYTES,
        slots=geometry.slots,
        entries=geometry.entries,
        index_tags=dialect.index_tags,
        delay_ms=DELAY_MS,
        **options,
    )
    dispatch_log(store, root)
    return store


def dispatch_log(store: MemoryStore, root: Path) -> None:
    """Dispatch every segment; after the end of the log there may be one prepared in advance."""
    status = int(RecordStatus.BLANK)
    for start, data in log_segments(root):
        if status == RecordStatus.EMPTY:
            assert not any(data)
            continue
        assert status in (RecordStatus.BLANK, RecordStatus.END)
        position, status = store.dispatch(data, start)
        assert store.dispatcher.position_offset == start + position
    assert status in (RecordStatus.EMPTY, RecordStatus.END)


@pytest.mark.parametrize("name", WHOLE_STORES)
def test_rebuilt_queue_files_equal_those_of_rocketmq(
    kernels: Bodies, name: str, tmp_path: Path
) -> None:
    root = golden_stores.unpack(name, tmp_path)
    store = rebuild(kernels, name, root)
    expected = read_queue_files(root, golden_stores.geometry(name).consume_queue_nbytes)
    assert store.queue_files == expected
    assert store.dispatcher.repeated_units == 0
    assert store.gaps == []


@pytest.mark.parametrize("name", WHOLE_STORES)
def test_rebuilt_index_files_equal_those_of_rocketmq(
    kernels: Bodies, name: str, tmp_path: Path
) -> None:
    root = golden_stores.unpack(name, tmp_path)
    store = rebuild(kernels, name, root)
    assert store.index_files == read_index_files(root)


@pytest.mark.parametrize("name", LAGGING_STORES)
def test_lagging_files_are_the_beginning_of_the_rebuilt_ones(
    kernels: Bodies, name: str, tmp_path: Path
) -> None:
    root = golden_stores.unpack(name, tmp_path)
    store = rebuild(kernels, name, root)
    geometry = golden_stores.geometry(name)
    files = read_queue_files(root, geometry.consume_queue_nbytes)
    assert len(files) < len(store.queue_files)
    for key, data in files.items():
        written = data.rstrip(b"\0")
        assert store.queue_files[key][: len(written)] == written
    rebuilt = iter(store.entries_put())
    for data in read_index_files(root):
        count = kernels.index_file.read_header(data)[5]
        first = formats.INDEX_HEADER.nbytes + formats.INDEX_SLOT.nbytes * geometry.slots
        stop = first + count * formats.INDEX_ENTRY.nbytes
        entries = list(formats.INDEX_ENTRY.struct.iter_unpack(data[first:stop]))[1:]
        assert entries == list(itertools.islice(rebuilt, len(entries)))


@pytest.mark.parametrize("name", WHOLE_STORES)
def test_dispatching_the_whole_log_again_changes_no_byte(
    kernels: Bodies, name: str, tmp_path: Path
) -> None:
    root = golden_stores.unpack(name, tmp_path)
    store = rebuild(kernels, name, root)
    before = store.state()
    dispatch_log(store, root)
    after = store.state()
    assert after["queue_files"] == before["queue_files"]
    assert after["index_files"] == before["index_files"]
    assert after["repeated_units"] == sum(
        len([u for u in store.units(topic, queue_id) if u[1] != formats.FILLER_UNIT_SIZE])
        for topic, queue_id in {key[:2] for key in store.queue_files}
    )
