"""The index part of fsck finds what ``verify`` finds, in whatever splits the log is read."""

from __future__ import annotations

import shutil
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rocketstore
from golden import golden_stores
from rocketstore import MessageStoreConfig, formats
from rocketstore.errors import MappedFileError
from rocketstore.sources.segments import list_log
from rocketstore.sources.splits import plan_splits
from rocketstore.sources.walk import log_end
from rocketstore.spark.jobs.fsck.index import IndexCheck, IndexFindings
from rocketstore.spark.jobs.fsck.index_files import judge_file
from rocketstore.spark.jobs.fsck.log import Reading
from rocketstore.spark.jobs.fsck.split import look_at
from rocketstore.store.verifying import verify_files
from rocketstore.verify.report import VerifyReport
from support.index_checking import check_index

SLOTS, ENTRIES = 20, 60
SEGMENT_NBYTES = 8192
ENTRY, HEADER = formats.INDEX_ENTRY, formats.INDEX_HEADER
INDEX_KINDS = ("index-file", "index-header", "index-chain", "index-entry", "missing-key")
COUNTS = ("expired_keys", "damaged_keys", "newer_keys", "behind_keys", "doubled_keys")


def make(root: Path, version: str = "5.5.0") -> Path:
    """Write a store of several segments and index files, with all sorts of records."""
    ticks = iter(range(1_700_000_000_000, 1_800_000_000_000, 700))
    with rocketstore.open(
        root,
        "x",
        clock=lambda: next(ticks),
        mapped_file_size_commit_log=SEGMENT_NBYTES,
        mapped_file_size_consume_queue=400,
        max_hash_slot_num=SLOTS,
        max_index_num=ENTRIES,
        broker_version=version,
    ) as store:
        for number in range(120):
            result = store.put(
                "TopicA" if number % 3 else "%RETRY%" + "t" * 190,
                b"body %d" % number * (number % 7),
                number % 2,
                f"Tag{number % 4}" if number % 4 else None,
                f"key-{number} shared" if number % 5 else None,
                delay_level=3 if number % 11 == 0 else 0,
            )
            assert result.ok
        assert store.wait_dispatched(20)
    return root


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("fsck-index") / "store")


@pytest.fixture
def store_root(pristine: Path, tmp_path: Path) -> Path:
    shutil.copytree(pristine, tmp_path / "store")
    return tmp_path / "store"


def check(root: Path, split_bytes: int = 3000, **options: Any) -> IndexFindings:
    log = list_log(root, allow_holes=True)
    splits = plan_splits(log, split_bytes=split_bytes)
    return check_index(None, log, splits, log_end=log_end(log), **options)


def verify(root: Path) -> VerifyReport:
    return verify_files(root, MessageStoreConfig())


def kinds_of(report: VerifyReport) -> dict[str, int]:
    return {k: n for k, n in report.finding_counts.items() if k in INDEX_KINDS}


def assert_as_verify(root: Path, split_bytes: int = 3000) -> IndexFindings:
    """The same findings as ``verify``; runs of missing keys may be divided at other places."""
    ours, report = check(root, split_bytes), verify(root)
    assert set(ours.finding_counts) - {k for k, n in ours.finding_counts.items() if not n} == set(
        kinds_of(report)
    )
    for kind in INDEX_KINDS[:-1]:
        mine = sorted((row[2], row[3], row[4], row[8]) for row in ours.findings if row[0] == kind)
        theirs = sorted(
            (one.path, one.position, one.offset, one.reason)
            for one in report.findings
            if one.kind == kind
        )
        assert mine == theirs
    assert ours.finding_counts == Counter(row[0] for row in ours.findings)
    assert ours.summary["keys"] == report.keys
    return ours


def index_file(root: Path, number: int = 0) -> Path:
    return sorted((root / "index").iterdir())[number]


def poke(path: Path, position: int, content: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(position)
        file.write(content)


def peek(path: Path, position: int, nbytes: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(position)
        return file.read(nbytes)


@pytest.mark.parametrize("split_bytes", [300, 1000, 5000, 1 << 20])
def test_a_sound_store_has_no_finding(pristine: Path, split_bytes: int) -> None:
    report = assert_as_verify(pristine, split_bytes)
    assert report.findings == []
    assert report.summary["index_files"] > 4
    assert not any(report.summary[name] for name in COUNTS)
    assert check(pristine / "commitlog").summary == report.summary


def test_tags_need_no_entries(tmp_path: Path) -> None:
    """A store that was written before 5.4, and by 5.4 from some place on."""
    root = make(tmp_path / "store", "5.3.3")
    before = assert_as_verify(root).summary["keys"]
    with rocketstore.open(root, "r+", broker_version="5.4.0") as store:
        for number in range(30):
            assert store.put("TopicA", b"x", 0, "Tag", f"later-{number}").ok
        assert store.wait_dispatched(20)
    report = assert_as_verify(root)
    assert report.findings == []
    assert report.summary["keys"] == before + 60


@pytest.mark.parametrize("name", golden_stores.NAMES)
def test_what_rocketmq_wrote_has_no_finding(name: str, tmp_path: Path) -> None:
    root = golden_stores.unpack(name, tmp_path)
    report = assert_as_verify(root, 2000)
    assert report.findings == []


Damage = Callable[[Path], None]


def entry_at(number: int) -> int:
    return formats.index_file_nbytes(SLOTS, number)


def wrong_offset(root: Path) -> None:
    path = index_file(root)
    (offset,) = struct.unpack(">q", peek(path, entry_at(5) + ENTRY.at("physical_offset"), 8))
    poke(path, entry_at(5) + ENTRY.at("physical_offset"), struct.pack(">q", offset + 3))


def wrong_hash(root: Path) -> None:
    path = index_file(root, 1)
    (value,) = struct.unpack(">i", peek(path, entry_at(7), 4))
    poke(path, entry_at(7), struct.pack(">i", value ^ 1))


def wrong_time(root: Path) -> None:
    poke(index_file(root, 2), entry_at(9) + ENTRY.at("time_diff"), struct.pack(">i", 12345))


def wrong_first_time(root: Path) -> None:
    poke(index_file(root, 2), entry_at(1) + ENTRY.at("time_diff"), struct.pack(">i", -1))


def wrong_header_times(root: Path) -> None:
    poke(index_file(root, 1), HEADER.at("end_timestamp"), struct.pack(">q", 5))
    poke(index_file(root, 1), HEADER.at("begin_physical_offset"), struct.pack(">q", 5))


def lost_slots(root: Path) -> None:
    poke(index_file(root), HEADER.nbytes, bytes(SLOTS * 4))


def lost_file(root: Path) -> None:
    index_file(root, 1).unlink()


def lost_last_file(root: Path) -> None:
    index_file(root, -1).unlink()


def all_files_lost(root: Path) -> None:
    for path in (root / "index").iterdir():
        path.unlink()


def out_of_order(root: Path) -> None:
    path = index_file(root, 1)
    first, second = peek(path, entry_at(3), 20), peek(path, entry_at(40), 20)
    poke(path, entry_at(3), second)
    poke(path, entry_at(40), first)


def doubled_file(root: Path) -> None:
    path = index_file(root, 1)
    shutil.copy(path, path.with_name(str(int(path.name) + 1)))


def foreign_file(root: Path) -> None:
    (root / "index" / "20200101000000000").write_bytes(b"x" * 333)


def negative_and_far_offsets(root: Path) -> None:
    poke(index_file(root), entry_at(1) + ENTRY.at("physical_offset"), struct.pack(">q", -5))
    path = index_file(root, -1)
    (count,) = struct.unpack(">i", peek(path, HEADER.at("index_count"), 4))
    place = entry_at(count - 1) + ENTRY.at("physical_offset")
    poke(path, place, struct.pack(">q", 10**12))


DAMAGES = [
    *(wrong_offset, wrong_hash, wrong_time, wrong_first_time, wrong_header_times, lost_slots),
    *(lost_file, lost_last_file, all_files_lost, out_of_order, doubled_file, foreign_file),
    negative_and_far_offsets,
]


def test_a_stretch_that_was_guessed_wrong_is_looked_at_again(store_root: Path) -> None:
    """If entries are out of order, fsck must not use the guess, and must detect that it was
    wrong."""
    out_of_order(store_root)
    log = list_log(store_root)
    end = log_end(log)
    splits = plan_splits(log, split_bytes=3000, stop=end)
    index = IndexCheck(None, log, splits, log_end=end)
    guessed = list(index.items)
    assert all(item is not None and item.is_guess for item in guessed)
    how = Reading((), False, None)
    found = [look_at((split, how, item)) for split, item in zip(splits, guessed, strict=True)]
    wrong = [number for number, one in enumerate(found) if one.keys is None]
    assert wrong
    item = guessed[wrong[0]]
    assert item is not None
    with pytest.raises(MappedFileError, match="entries are not in the log's order"):
        look_at((splits[wrong[0]], how, item._replace(is_guess=False)))
    judged = [judge_file(file) for file in index.files]
    again = index.judged(judged, [one.keys for one in found])
    assert set(wrong) <= set(again) < set(range(len(splits)))
    assert not any(item.is_guess for item in index.items if item is not None)


@pytest.mark.parametrize("split_bytes", [300, 1 << 20])
@pytest.mark.parametrize("damage", DAMAGES)
def test_planted_damage_is_found_as_by_verify(
    store_root: Path, damage: Damage, split_bytes: int
) -> None:
    damage(store_root)
    report = assert_as_verify(store_root, split_bytes)
    if damage is doubled_file:
        assert report.findings == []
        assert report.summary["doubled_keys"] == ENTRIES - 1
    else:
        assert report.findings


def test_missing_keys_are_reported_by_run(store_root: Path) -> None:
    index_file(store_root, 1).unlink()
    report = check(store_root, 1 << 20)
    rows = [row for row in report.findings if row[0] == "missing-key"]
    theirs = [one for one in verify(store_root).findings if one.kind == "missing-key"]
    assert {row[4] for row in rows} <= {one.offset for one in theirs} | {SEGMENT_NBYTES}
    assert "keys of" in rows[0][8]
    assert rows[0][4] == min(one.offset or 0 for one in theirs)


@pytest.mark.parametrize("split_bytes", [300, 2500, 1 << 20])
def test_entries_of_damaged_records_are_not_judged(store_root: Path, split_bytes: int) -> None:
    """A zeroed stretch over several splits, a lost segment and a short one."""
    log = sorted((store_root / "commitlog").iterdir())
    poke(log[0], 3000, bytes(2000))
    report = assert_as_verify(store_root, split_bytes)
    assert report.findings == []
    zeroed = report.summary["damaged_keys"]
    assert zeroed > 10
    with open(log[2], "r+b") as file:
        file.truncate(4000)
    assert check(store_root, split_bytes).summary["damaged_keys"] > zeroed
    log[1].unlink()
    report = check(store_root, split_bytes)
    assert report.findings == []
    assert report.summary["damaged_keys"] > 2 * zeroed


def test_damage_that_only_a_crc_shows_is_given(store_root: Path) -> None:
    with rocketstore.open(store_root, "r") as store:
        message = next(one for one in store.scan() if len(one.body) > 30)
        at, end = message.physical_offset, message.physical_offset + message.store_size
        place = at + bytes(message.raw).index(message.body)
    path = store_root / "commitlog" / formats.offset_to_file_name(at - at % SEGMENT_NBYTES)
    poke(path, place % SEGMENT_NBYTES, b"#")
    assert check(store_root).findings == []
    assert check(store_root).summary["damaged_keys"] == 0
    by_crc = check(store_root, check_crc=True)
    assert by_crc.findings == []
    assert by_crc.summary["damaged_keys"] > 0
    names = sorted((store_root / "index").iterdir())
    for name in names:
        name.unlink()
    lost = check(store_root, damaged=[(at, end)])
    assert at not in {row[4] for row in lost.findings}


def test_expired_and_newer_entries_are_counted(store_root: Path) -> None:
    log = sorted((store_root / "commitlog").iterdir())
    log[0].unlink()
    report = assert_as_verify(store_root)
    assert report.summary["expired_keys"] > 10
    listed = list_log(store_root)
    splits = plan_splits(listed, stop=3 * SEGMENT_NBYTES)
    report = check_index(None, listed, splits, log_end=3 * SEGMENT_NBYTES)
    assert report.findings == []
    assert report.summary["newer_keys"] > 10


def test_what_is_written_meanwhile_is_newer(store_root: Path) -> None:
    """The log is listed, then a writer adds records and their keys."""
    log = list_log(store_root)
    splits, end = plan_splits(log, split_bytes=1 << 20), log_end(log)
    with rocketstore.open(store_root, "r+") as store:
        for number in range(8):
            assert store.put("TopicA", b"x", 0, "Tag", f"later-{number}").ok
        assert store.wait_dispatched(20)
    report = check_index(None, log, splits, log_end=end)
    assert report.findings == []
    assert report.summary["newer_keys"] == 16


def test_what_is_not_dispatched_yet_is_not_missed(store_root: Path) -> None:
    index_file(store_root, -1).unlink()
    assert check(store_root).finding_counts["missing-key"]
    (store_root / "abort").touch()
    report = check(store_root)
    assert report.findings == []
    assert report.summary["behind_keys"] > 0
    assert check(store_root, dispatched=0).summary["behind_keys"] >= report.summary["behind_keys"]


def test_without_a_folder_nothing_is_looked_for(store_root: Path) -> None:
    shutil.rmtree(store_root / "index")
    report = check(store_root)
    assert report.findings == []
    assert report.notes == ["the store has no index folder: its keys were not checked"]


def test_relative_paths_are_the_drivers(store_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong_hash(store_root)
    monkeypatch.chdir(store_root.parent)
    paths = {row[2] for row in check(Path(store_root.name)).findings}
    assert str(index_file(store_root, 1)) in paths
    assert all(Path(path).is_absolute() for path in paths)


def test_an_index_elsewhere(store_root: Path, tmp_path: Path) -> None:
    shutil.move(store_root / "index", tmp_path / "other")
    assert check(store_root, index_uri=str(tmp_path / "other")).findings == []


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_every_byte_of_the_index_counts_as_it_does_for_verify(
    pristine: Path, data: st.DataObject
) -> None:
    path = data.draw(st.sampled_from(sorted((pristine / "index").iterdir())))
    position = data.draw(st.integers(0, path.stat().st_size - 1))
    former = peek(path, position, 1)
    poke(path, position, bytes([former[0] ^ data.draw(st.integers(1, 255))]))
    try:
        assert_as_verify(pristine, data.draw(st.sampled_from([400, 1 << 20])))
    finally:
        poke(path, position, former)


def test_a_remote_store(store_root: Path) -> None:
    """Files that are read whole and in ranges through fsspec, with a geometry that no file
    shows."""
    import fsspec

    wrong_hash(store_root)
    lost_slots(store_root)
    memory = fsspec.filesystem("memory")
    memory.put(str(store_root), "/fsck-index/store", recursive=True)
    try:
        log = list_log("memory://fsck-index/store")
        splits = plan_splits(log, split_bytes=3000)
        remote = check_index(None, log, splits, log_end=log_end(log))
        local = check(store_root)
        assert remote.summary == local.summary
        assert [row[0] + row[8] for row in remote.findings] == [
            row[0] + row[8] for row in local.findings
        ]
        assert remote.findings[0][2].startswith("memory://fsck-index/store/index/2")
        memory.rm("/fsck-index/store/index", recursive=True)
        assert check_index(None, log, splits, log_end=log_end(log)).notes
    finally:
        memory.rm("/fsck-index", recursive=True)


def test_both_bodies_find_the_same(store_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rocketstore import kernels
    from rocketstore._reference import index_file, passes_index_keys

    wrong_hash(store_root)
    wrong_time(store_root)
    native = check(store_root)
    monkeypatch.setattr(kernels, "passes_index_keys", passes_index_keys, raising=False)
    monkeypatch.setattr(kernels, "index_file", index_file)
    assert check(store_root) == native
    assert native.finding_counts["index-entry"] >= 2
