"""Other entries of a store are named and not changed; a DLedger log is refused in one sentence."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

import rocketstore
from corruption import crafted
from corruption.crafted import snapshot
from golden import golden_stores
from rocketstore import MappedFileError
from rocketstore.directory.parts import (
    DERIVED,
    LEFT_ALONE,
    READ_ONLY_PART,
    REFUSED,
    StorePart,
    rocksdb_queues,
    store_parts,
)


def kinds(root: Path) -> dict[str, str]:
    return {part.name: part.kind for part in store_parts(root)}


FOREIGN = {
    "timerwheel": "timerWheel",
    "timerwheel.5200": "timerWheel",
    "timerwheel.5252.tmp": "timerWheel",
    "timerlog/00000000000000000000": "timerLog",
    "compaction/compactionLog/T/0/00000000000000000000": "compaction",
    "compaction/position-checkpoint": "compaction",
    "epochFileCheckpoint": "controller",
    "epochFileCheckpoint.bak": "controller",
    "brokerIdentity": "controller",
    "brokerIdentity-temp": "controller",
    "rocksdbstore/CURRENT": "rocksdbStore",
    "kvStore/CURRENT": "popStore",
    "config/topics.json": "config",
    "config/timercheck": "config",
    "transaction/statetable": "transaction",
    "abort.bak": "abort",
    "dledger-n0/index/00000000000000000000": "dledger",
    "notes.txt": "foreign",
    "timerwheel.x": "foreign",
    "checkpoint.old": "foreign",
}


def test_everything_is_named_and_not_changed(tmp_path: Path) -> None:
    root = tmp_path / "store"
    crafted.build(root, 4)
    ours = kinds(root)
    assert set(ours.values()) == {
        *("commitLog", "consumeQueue", "index", "checkpoint", "lock", "state"),
    }
    for name in FOREIGN:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        # Of these only the topics' table is read, and a writer refuses an invalid one.
        path.write_bytes(b"{}" if path.name == "topics.json" else b"not ours")
    wanted = {name.split("/")[0]: kind for name, kind in FOREIGN.items()}
    assert kinds(root) == {**ours, **wanted}
    parts = store_parts(root)
    assert [part.name for part in parts] == sorted(part.name for part in parts)
    for part in parts:
        assert part.what
        if part.name in wanted and part.kind != "config":
            is_read = part.kind in ("timerWheel", "timerLog")
            assert part.treatment == (READ_ONLY_PART if is_read else LEFT_ALONE), part
    before = {name: content for name, content in snapshot(root).items() if name in FOREIGN}
    with rocketstore.open(root) as store:
        assert len(list(store.scan())) == 4
    with rocketstore.open(root, "r+") as store:
        assert store.put("T", b"x").ok
    after = snapshot(root)
    assert {name: after[name] for name in before} == before


def test_leftover_of_a_killed_writer(tmp_path: Path) -> None:
    (tmp_path / ".rocketstore-new-1-ab").touch()
    assert kinds(tmp_path) == {".rocketstore-new-1-ab": "temporary"}


def test_parts_of_what_brokers_left(tmp_path: Path) -> None:
    root = golden_stores.unpack("broker-5.5.0", tmp_path)
    assert kinds(root) == {
        "checkpoint": "checkpoint",
        "commitlog": "commitLog",
        "compaction": "compaction",
        "config": "config",
        "consumequeue": "consumeQueue",
        "index": "index",
        "rocksdbstore": "rocksdbStore",
    }
    assert rocksdb_queues(root) is None


# --- RocksDB ----------------------------------------------------------------------------------


def test_queues_in_rocksdb(tmp_path: Path) -> None:
    root = golden_stores.unpack("rocksdb-5.5.0", tmp_path)
    found = rocksdb_queues(root)
    assert found is not None
    assert (found.directory, found.beside_files) == (root / "consumequeue", False)
    assert StorePart("consumequeue", "rocksdbQueue", "consume queues in RocksDB", DERIVED) in (
        store_parts(root)
    )
    (root / "consumequeue" / "T" / "0").mkdir(parents=True)
    found = rocksdb_queues(root)
    assert found is not None
    assert found.beside_files
    part = next(part for part in store_parts(root) if part.name == "consumequeue")
    assert part.what.endswith("beside queue files")


@pytest.mark.parametrize("lost", ["CURRENT", "MANIFEST-000005", "000010.sst", "000011.sst"])
def test_queues_in_rocksdb_without_one_of_its_files(tmp_path: Path, lost: str) -> None:
    root = golden_stores.unpack("rocksdb-5.5.0", tmp_path)
    (root / "consumequeue" / lost).unlink()
    assert rocksdb_queues(root) is not None


def test_queues_in_rocksdb_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "consumequeue" / "T").mkdir(parents=True)
    other = tmp_path / "consumequeue_rocksdb"
    other.mkdir()
    assert rocksdb_queues(tmp_path) is None
    (other / "CURRENT").write_bytes(b"MANIFEST-000005\n")
    found = rocksdb_queues(tmp_path)
    assert found is not None
    assert (found.directory, found.beside_files) == (other, True)
    assert kinds(tmp_path)["consumequeue_rocksdb"] == "rocksdbQueue"
    assert kinds(tmp_path)["consumequeue"] == "consumeQueue"


@pytest.mark.parametrize("name", ["CURRENT", "MANIFEST", "12.sst", "LOCK", "000004.log"])
def test_other_files_among_queues_are_no_database(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "consumequeue"
    folder.mkdir()
    (folder / name).write_bytes(b"foreign")
    assert rocksdb_queues(tmp_path) is None
    (folder / "MANIFEST-000001").mkdir()
    assert rocksdb_queues(tmp_path) is None


# --- DLedger ----------------------------------------------------------------------------------


def entry(position: int) -> bytes:
    """The beginning of a DLedger segment."""
    body = b"record"
    head = struct.pack(">iiqqqiiii", 1, 48 + len(body), 0, 1, position, 0, 0, 0, len(body))
    return (head + body).ljust(4096, b"\0")


@pytest.mark.parametrize("mode", ["r", "r+", "a"])
@pytest.mark.parametrize("beside", [True, False], ids=["beside_commitlog", "alone"])
def test_dledger_log_is_refused(tmp_path: Path, mode: str, beside: bool) -> None:
    root = tmp_path / "store"
    root.mkdir()
    if beside:
        root.rmdir()
        crafted.build(root, 4)
    data = root / "dledger-n0" / "data"
    data.mkdir(parents=True)
    (data / "00000000000000000000").write_bytes(entry(0))
    before = snapshot(root)
    with pytest.raises(MappedFileError, match=r"dledger-n0/data is a DLedger log .* neither"):
        rocketstore.open(root, mode)
    assert snapshot(root) == before
    part = next(part for part in store_parts(root) if part.kind == "dledger")
    assert part.treatment == REFUSED


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_dledger_directory_itself_is_refused(tmp_path: Path, mode: str) -> None:
    root = tmp_path / "dledger-n0"
    (root / "data").mkdir(parents=True)
    (root / "index").mkdir()
    (root / "data" / "00000000001073741824").write_bytes(entry(1073741824))
    before = snapshot(root)
    with pytest.raises(MappedFileError, match="DLedger"):
        rocketstore.open(root, mode)
    assert snapshot(root) == before


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_dledger_entries_where_the_log_should_be_are_refused(tmp_path: Path, mode: str) -> None:
    root = tmp_path / "store"
    crafted.build(root, 1)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "00000000000000000000").write_bytes(entry(0))
    with pytest.raises(MappedFileError, match="DLedger"):
        rocketstore.open(root, mode, store_path_commit_log=str(elsewhere))
    for path in (root / "commitlog").iterdir():
        path.write_bytes(entry(0))
    with pytest.raises(MappedFileError, match="DLedger"):
        rocketstore.open(root, mode)


def test_what_only_looks_like_dledger_is_opened(tmp_path: Path) -> None:
    root = tmp_path / "store"
    crafted.build(root, 4)
    (root / "dledger-n0" / "data").mkdir(parents=True)
    (root / "dledger-n0" / "data" / "notes").touch()
    (root / "data").mkdir()
    (root / "data" / "00000000000000000000").write_bytes(entry(4096))
    (root / "dledger-file").touch()
    with rocketstore.open(root, "r+") as store:
        assert len(list(store.scan())) == 4
