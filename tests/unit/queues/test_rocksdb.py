"""Stores whose consume queues are in RocksDB: read from the log, and never written."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from golden import golden_stores
from golden.test_answers import wrong_answers
from rocketstore import MappedFileError, MessageStoreConfig
from rocketstore.store.verifying import verify_files
from support.directory import files_below

NAME = "rocksdb-5.5.0"
DERIVE = ("tail", "full", "none")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return golden_stores.unpack(NAME, tmp_path)


def queue_ends(store: rocketstore.DefaultMessageStore) -> dict[tuple[str, int], int]:
    return {
        (topic, queue_id): store.max_offset_in_queue(topic, queue_id)
        for topic in store.topics()
        for queue_id in store.queues(topic)
    }


def make_rocksdb(directory: Path) -> None:
    """Only the files by which a database is recognized."""
    directory.mkdir(exist_ok=True)
    (directory / "CURRENT").write_bytes(b"MANIFEST-000005\n")
    (directory / "MANIFEST-000005").write_bytes(b"")


def rewrite(path: Path, position: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content)


@pytest.mark.parametrize("derive", DERIVE)
@pytest.mark.parametrize("folder", ["consumequeue", "consumequeue_rocksdb"])
def test_the_queues_are_made_from_the_log(root: Path, derive: str, folder: str) -> None:
    (root / "consumequeue").rename(root / folder)
    before = files_below(root)
    options: dict[str, Any] = {}
    if derive == "full":
        options = {"max_hash_slot_num": 50, "max_index_num": 200}
    with rocketstore.open(root, derive=derive, **options) as store:
        _, wrong = wrong_answers(store, NAME)
        assert len(store.topics()) == 7
        assert sum(queue_ends(store).values()) == 117
        assert store.dispatch_behind_nbytes == 0
        assert store.wait_dispatched()
        (note,) = store.recovery_report.notes
        assert f"{folder} holds consume queues in RocksDB" in note
        assert store.recovery_report.skipped == []
    assert wrong == []
    assert files_below(root) == before


@pytest.mark.parametrize("size", [20, 40, 320])
def test_a_queue_has_no_file_ends(root: Path, size: int) -> None:
    """Pulls run past any number of units, as the recorded ones do."""
    with rocketstore.open(root, mapped_file_size_consume_queue=size) as store:
        asked, wrong = wrong_answers(store, NAME)
        for (topic, queue_id), end in queue_ends(store).items():
            for offset in range(end):
                result = store.get_message("g", topic, queue_id, offset, 2)
                assert result.next_begin_offset == min(offset + 2, end)
    assert asked > 600
    assert wrong == []


@pytest.mark.parametrize("mode", ["r+", "a"])
def test_writing_is_refused_by_name(root: Path, mode: str) -> None:
    before = files_below(root)
    with pytest.raises(MappedFileError, match="consumequeue is a RocksDB database") as caught:
        rocketstore.open(root, mode)
    assert 'mode "r"' in str(caught.value)
    assert files_below(root) == before


def test_an_empty_database_is_refused_too(tmp_path: Path) -> None:
    make_rocksdb(tmp_path / "consumequeue")
    with pytest.raises(MappedFileError, match="RocksDB"):
        rocketstore.open(tmp_path, "a")
    with rocketstore.open(tmp_path) as store:
        assert store.topics() == []


def test_files_beside_the_database_are_read(tmp_path: Path) -> None:
    """With double writes RocketMQ answers from the files."""
    root = golden_stores.unpack("plain-5.5.0", tmp_path)
    make_rocksdb(root / "consumequeue")
    with rocketstore.open(root) as store:
        asked, wrong = wrong_answers(store, "plain-5.5.0")
        assert store.recovery_report.skipped == []
    assert asked > 300
    assert wrong == []
    with pytest.raises(MappedFileError, match="RocksDB"):
        rocketstore.open(root, "r+")


def test_queues_that_only_the_database_has_are_found(tmp_path: Path) -> None:
    """So light queues may be, beside plain queues in files."""
    root = golden_stores.unpack("plain-5.5.0", tmp_path)
    with rocketstore.open(root) as store:
        ends = queue_ends(store)
    shutil.rmtree(root / "consumequeue" / "TopicA")
    make_rocksdb(root / "consumequeue")
    for derive in DERIVE:
        with rocketstore.open(root, derive=derive) as store:
            assert queue_ends(store) == ends


def test_refresh_shows_what_a_broker_wrote_since(tmp_path: Path) -> None:
    root = golden_stores.unpack(NAME, tmp_path)
    segment = root / "commitlog" / "00000000000000000000"
    content = segment.read_bytes()
    with rocketstore.open(root) as store:
        offsets = [message.physical_offset for message in store.scan()]
        whole = queue_ends(store)
    half = offsets[len(offsets) // 2]
    rewrite(segment, half, bytes(len(content) - half))
    with rocketstore.open(root) as store:
        assert store.max_physical_offset == half
        early = queue_ends(store)
        assert sum(early.values()) < sum(whole.values())
        rewrite(segment, half, content[half:])
        assert queue_ends(store) == early
        store.refresh()
        assert queue_ends(store) == whole
        assert [message.physical_offset for message in store.scan()] == offsets


def test_verify_says_what_it_did_not_check(root: Path) -> None:
    report = verify_files(root, MessageStoreConfig())
    assert report.findings == []
    assert (report.queues, report.units) == (0, 0)
    assert report.records == 118
    assert report.keys > 100
    assert any("RocksDB" in note for note in report.notes)
    assert not any("dispatch lags" in note for note in report.notes)


def test_nothing_stays_open(root: Path) -> None:
    def descriptors() -> list[str]:
        return sorted(os.listdir("/proc/self/fd"))

    with rocketstore.open(root):
        pass
    before = descriptors()
    for derive in DERIVE:
        with rocketstore.open(root, derive=derive) as store:
            store.refresh()
        with pytest.raises(MappedFileError):
            rocketstore.open(root, "r+")
    assert descriptors() == before


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("count", [1, 2, 5, 16, 32])
def test_a_filtered_pull_looks_at_no_more_units_than_are_asked_for(
    root: Path, count: int, exact: bool
) -> None:
    """RocketMQ 5.4 asks the database for so many units as messages are wanted: with 36 units and
    none that matches its next offset is 32, and ours was 36. 5.3.3 does so too, 5.5.0 does not: the
    interop runs compared them."""
    chosen = rocketstore.TagFilter("nothing has this tag", exact=exact)
    with rocketstore.open(root, broker_version="5.4.0") as store:
        for (topic, queue_id), end in queue_ends(store).items():
            for offset in range(0, end, 3):
                result = store.get_message("g", topic, queue_id, offset, count, filter=chosen)
                assert result.status.name == "NO_MATCHED_MESSAGE"
                assert result.next_begin_offset == min(offset + count, end)
                assert len(result.messages) == 0
        matching = rocketstore.TagFilter("*")
        for (topic, queue_id), end in queue_ends(store).items():
            result = store.get_message("g", topic, queue_id, 0, count, filter=matching)
            assert len(result.messages) == result.next_begin_offset == min(count, end)
    with rocketstore.open(root) as store:
        assert store.broker_version == "5.5.0"
        for (topic, queue_id), end in queue_ends(store).items():
            result = store.get_message("g", topic, queue_id, 0, count, filter=chosen)
            assert result.next_begin_offset == end
