"""``check_invariants`` passes what RocketMQ and rocketstore wrote, and finds what is planted."""

from __future__ import annotations

import itertools
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from golden import golden_stores
from rocketstore import Message, MessageBatch, MessageStoreConfig, formats
from rocketstore.testing import INVARIANTS, Acknowledged, check_invariants
from rocketstore.testing.plain_log import log_files, read_log

OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": 4096,
    "mapped_file_size_consume_queue": 400,
    "max_hash_slot_num": 7,
    "max_index_num": 40,
    "broker_version": "5.5.0",
}
T0 = 1_700_000_000_000


def fill(root: Path, clock: Callable[[], int]) -> list[Any]:
    """A store of several files of each kind; returns what puts answered."""
    with rocketstore.open(root, "x", clock=clock, start=False, **OPTIONS) as store:
        results = [store.put("T", b"x" * (n * 7 % 90), n % 2, "TagA", f"k{n}") for n in range(60)]
        results.append(store.put("T", b"late", 0, delay_level=3))
        half = Message("T", b"half", sys_flag=formats.SYS_FLAG_TRANSACTION_PREPARED,
                       properties={"KEYS": "half"})  # fmt: skip
        results.append(store.put_message(half))
        drafts = [Message("B", b"b%d" % n) for n in range(5)]
        results.append(store.put_messages(MessageBatch(drafts, topic="B")))
        assert store.wait_dispatched()
    return results


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    root = tmp_path_factory.mktemp("invariants") / "store"
    return root, fill(root, itertools.count(T0, 7).__next__)


@pytest.fixture
def root(made: tuple[Path, list[Any]], tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    shutil.copytree(made[0], tmp_path / "store")
    return tmp_path / "store"


def test_a_good_store_passes_every_invariant(made: tuple[Path, list[Any]]) -> None:
    root, results = made
    with rocketstore.open(root) as store:
        messages = list(store.scan())
        report = check_invariants(root, acknowledged=[*results, *messages]).require()
    assert report.ok
    assert report.checked == set(INVARIANTS)
    assert report.records == len(messages) == 67
    assert report.units == 66
    assert report.entries == 60 * 2 + 1  # keys and tags; the half message's key
    assert (report.log_start, report.log_end) == (
        0,
        messages[-1].physical_offset + messages[-1].store_size,
    )
    assert report.notes == []


@pytest.mark.parametrize(
    "name", golden_stores.names("plain", "crash", "lag", "ext", "lmq", "crc", "expire", "broker")
)
def test_what_rocketmq_wrote_passes(name: str, tmp_path: Path) -> None:
    root = golden_stores.unpack(name, tmp_path)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    report = check_invariants(root, dispatched=not name.startswith("lag"), reopen=False).require()
    assert report.records > 5
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


# --- planting ---------------------------------------------------------------------------------


def patch(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def log_place(root: Path, offset: int) -> tuple[Path, int]:
    size = OPTIONS["mapped_file_size_commit_log"]
    return root / "commitlog" / formats.offset_to_file_name(offset - offset % size), offset % size


def patch_log(root: Path, offset: int, data: bytes) -> None:
    patch(*log_place(root, offset), data)


def another_place(root: Path) -> None:
    """A record that names another offset than its own."""
    record = read_log(root / "commitlog").records[5]
    at = record.physical_offset + formats.RECORD_HEAD.at("physical_offset")
    patch_log(root, at, struct.pack(">q", record.physical_offset + 1))


def damaged_body(root: Path) -> None:
    record = read_log(root / "commitlog").records[7]
    assert record.body
    path, position = log_place(root, record.physical_offset)
    data = path.read_bytes()
    patch(path, data.index(record.body, position), b"y")


def wrong_blank(root: Path) -> None:
    log = read_log(root / "commitlog")
    base = log_files(root / "commitlog")[1][0]
    last = max(r.end for r in log.records if r.end <= base)
    patch_log(root, last, struct.pack(">i", base - last - 1))


def lost_segment(root: Path) -> None:
    log_files(root / "commitlog")[1][1].unlink()


def garbage_after(root: Path) -> None:
    patch_log(root, read_log(root / "commitlog").end, b"garbage!")


def hidden_record(root: Path) -> None:
    """The last but one record's magic is gone, the last one is whole."""
    records = read_log(root / "commitlog").records
    patch_log(root, records[-2].physical_offset, bytes(8))


def time_goes_back(root: Path) -> None:
    shutil.rmtree(root)
    fill(root, itertools.chain([T0 + 50] * 5, itertools.count(T0, 7)).__next__)


def first_queue_file(root: Path) -> Path:
    return root / "consumequeue" / "T" / "0" / formats.offset_to_file_name(0)


def wrong_size(root: Path) -> None:
    patch(first_queue_file(root), 20 * 3 + 8, struct.pack(">i", 77))


def wrong_tags_code(root: Path) -> None:
    patch(first_queue_file(root), 20 * 3 + 12, struct.pack(">q", 77))


def missing_unit(root: Path) -> None:
    files = log_files(root / "consumequeue" / "T" / "1")
    data = files[-1][1].read_bytes()
    count = next(n for n in range(len(data) // 20) if not any(data[20 * n : 20 * n + 12]))
    patch(files[-1][1], 20 * (count - 1), bytes(20))


def missing_queue(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / "B" / "0")


def wrong_queue_offset(root: Path) -> None:
    record = read_log(root / "commitlog").records[4]
    at = record.physical_offset + formats.RECORD_HEAD.at("queue_offset")
    patch_log(root, at, struct.pack(">q", record.queue_offset + 1))


def unit_past_the_end(root: Path) -> None:
    end = read_log(root / "commitlog").end
    path = root / "consumequeue" / "B" / "0" / formats.offset_to_file_name(0)
    patch(path, 20 * 5, struct.pack(">qiq", end, 100, 0))


def index_files(root: Path) -> list[Path]:
    return sorted((root / "index").iterdir())


def lost_index_file(root: Path) -> None:
    index_files(root)[1].unlink()


def lost_chain(root: Path) -> None:
    patch(index_files(root)[0], formats.INDEX_HEADER.nbytes, bytes(4 * 3))


def wrong_entry(root: Path) -> None:
    at = formats.index_file_nbytes(OPTIONS["max_hash_slot_num"], 3)
    patch(index_files(root)[0], at + formats.INDEX_ENTRY.at("physical_offset"), bytes(7) + b"\x09")


def checkpoint_ahead(root: Path) -> None:
    patch(root / "checkpoint", 0, struct.pack(">q", T0 + 10**9))


def checkpoint_between_records(root: Path) -> None:
    at = formats.CHECKPOINT.at("logics_physical_offset")
    patch(root / "checkpoint", at, struct.pack(">q", 1))


@pytest.mark.parametrize(
    ("plant", "invariant", "reported"),
    [
        (another_place, 1, "has the physical offset"),
        (damaged_body, 1, "a good record is past the end"),
        (wrong_blank, 1, "bytes are left"),
        (lost_segment, 1, "the log before it ends"),
        (garbage_after, 1, "neither a record nor a blank nor zeros"),
        (hidden_record, 1, "a good record is past the end"),
        (time_goes_back, 2, "store time"),
        (wrong_size, 3, "its record"),
        (wrong_tags_code, 3, "its record"),
        (missing_unit, 3, "is missing"),
        (missing_queue, 3, "the queue has no files"),
        (wrong_queue_offset, 3, "queue offset 3, not 2"),
        (unit_past_the_end, 4, "points past the log's end"),
        (lost_index_file, 5, "is in no index file"),
        (lost_chain, 5, "chains reach"),
        (wrong_entry, 5, "is in no index file"),
        (checkpoint_ahead, 8, "physic_timestamp"),
        (checkpoint_between_records, 8, "not a record's start"),
    ],
)
def test_what_is_planted_is_found(
    plant: Callable[[Path], None], invariant: int, reported: str, root: Path
) -> None:
    plant(root)
    report = check_invariants(root, reopen=False)
    found = [violation for violation in report.violations if violation.invariant == invariant]
    assert reported in "\n".join(map(str, found)), report.violations
    with pytest.raises(AssertionError, match="invariant"):
        report.require()


@pytest.mark.parametrize("piece_nbytes", [1, 2, 3, 5, 64, 4096])
def test_a_hidden_record_is_found_wherever_a_piece_ends(
    piece_nbytes: int, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is searched piece by piece, and a magic may lie across two of them."""
    monkeypatch.setattr("rocketstore.testing.plain_log._PIECE_NBYTES", piece_nbytes)
    last = read_log(root / "commitlog").records[-1]
    hidden_record(root)
    faults = read_log(root / "commitlog").faults
    reported = [fault.physical_offset for fault in faults if "good record is past" in fault.what]
    assert reported == [last.physical_offset]


@pytest.mark.parametrize("bound", ["min_offset_in_queue", "max_offset_in_queue"])
def test_wrong_bounds_are_found(bound: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = getattr(rocketstore.DefaultMessageStore, bound)
    monkeypatch.setattr(
        rocketstore.DefaultMessageStore, bound, lambda *arguments: right(*arguments) + 1
    )
    report = check_invariants(root, reopen=False)
    assert {violation.invariant for violation in report.violations} == {4}


def test_what_is_not_as_acknowledged_is_found(made: tuple[Path, list[Any]]) -> None:
    root, _ = made
    record = read_log(root / "commitlog").records[3]
    reported = Acknowledged(record.physical_offset, "T", 1, 1, record.body, ("k3",))
    assert check_invariants(root, acknowledged=[reported], reopen=False).ok
    wrong: dict[str, Any] = {
        "physical_offset": record.physical_offset + 1,
        "topic": "U",
        "queue_id": 0,
        "queue_offset": 2,
        "body": b"other",
        "keys": (),
    }
    for name, value in wrong.items():
        report = check_invariants(
            root, acknowledged=[reported._replace(**{name: value})], reopen=False
        )
        assert [violation.invariant for violation in report.violations] == [6], name
    with pytest.raises(TypeError, match="not int"):
        check_invariants(root, acknowledged=[3], reopen=False)


def test_results_of_another_store_are_missed(made: tuple[Path, list[Any]], tmp_path: Path) -> None:
    other = fill(tmp_path / "other", itertools.count(T0 + 5, 7).__next__)
    report = check_invariants(made[0], acknowledged=other, reopen=False)
    assert {violation.invariant for violation in report.violations} == {6}
    assert len(report.violations) == 67


@pytest.mark.parametrize("plant", [lost_index_file, missing_queue, missing_unit])
def test_a_store_that_opening_changes_is_found(plant: Callable[[Path], None], root: Path) -> None:
    plant(root)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    assert 7 in {violation.invariant for violation in check_invariants(root).violations}
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def test_what_is_unreadable_is_reported(root: Path) -> None:
    (root / "abort").touch()
    report = check_invariants(root).require()
    assert 7 not in report.checked
    assert report.notes == ["not closed cleanly: invariant 7 was not checked"]
    shutil.rmtree(root / "index")
    assert not check_invariants(root).ok
    assert check_invariants(root, config=MessageStoreConfig(message_index_enable=False)).ok
    with pytest.raises(FileNotFoundError, match="no store"):
        check_invariants(root / "nowhere")
