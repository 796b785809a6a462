"""``verify`` finds nothing in sound stores and every changed byte in others, by its place."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rocketstore
from golden import golden_stores
from rocketstore import MessageStoreConfig, formats
from rocketstore.store.verifying import verify_files
from rocketstore.verify.report import VerifyReport

SLOTS, ENTRIES = 20, 60
SEGMENT_NBYTES, QUEUE_NBYTES = 8192, 400
CONFIG = MessageStoreConfig()
UNIT = formats.CONSUME_QUEUE_UNIT
ENTRY = formats.INDEX_ENTRY
LONG_TOPIC = "%RETRY%" + "t" * 190


def make(root: Path) -> Path:
    """Write a store of several segments, queue files and index files, with all sorts of records."""
    ticks = iter(range(1_700_000_000_000, 1_800_000_000_000, 700))
    with rocketstore.open(
        root,
        "x",
        clock=lambda: next(ticks),
        mapped_file_size_commit_log=SEGMENT_NBYTES,
        mapped_file_size_consume_queue=QUEUE_NBYTES,
        max_hash_slot_num=SLOTS,
        max_index_num=ENTRIES,
        broker_version="5.3.3",
    ) as store:
        for number in range(120):
            topic = ("TopicA", "TopicB", LONG_TOPIC)[number % 3]
            host = "[2001:db8::1]:1234" if number % 5 == 0 else "10.0.0.1:1234"
            result = store.put(
                topic,
                b"body %d" % number * (number % 7),
                number % 2,
                f"Tag{number % 4}" if number % 4 else None,
                f"key-{number} shared",
                born_host=host,
                delay_level=3 if number % 11 == 0 else 0,
                sys_flag=formats.SYS_FLAG_TRANSACTION_PREPARED if number % 13 == 0 else 0,
            )
            assert result.ok
        assert store.wait_dispatched(20)
    return root


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("verify") / "store")


@pytest.fixture
def store_root(pristine: Path, tmp_path: Path) -> Path:
    shutil.copytree(pristine, tmp_path / "store")
    return tmp_path / "store"


def check(root: Path, **options: str) -> VerifyReport:
    return verify_files(root, CONFIG, **options)  # type: ignore[arg-type]


def poke(path: Path, position: int, content: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(position)
        file.write(content)


def flip(path: Path, position: int, mask: int = 0xFF) -> None:
    with open(path, "r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ mask]))


def queue_file(root: Path, topic: str = "TopicA", queue_id: int = 0) -> Path:
    return sorted((root / "consumequeue" / topic / str(queue_id)).iterdir())[0]


def index_file(root: Path, number: int = 0) -> Path:
    return sorted((root / "index").iterdir())[number]


def the_kinds(report: VerifyReport) -> set[str]:
    return set(report.finding_counts)


def all_bytes(root: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


# --- sound stores -----------------------------------------------------------------------------


def test_a_sound_store_has_no_finding(pristine: Path) -> None:
    before = all_bytes(pristine)
    report = check(pristine)
    assert report.findings == []
    assert report.ok
    assert report.records == 120
    assert report.units == 120 - 10  # PREPARED records have none
    assert report.keys == 240
    assert report.index_files == 5
    assert report.log_end > 3 * SEGMENT_NBYTES
    assert all_bytes(pristine) == before


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_an_open_store_verifies_itself(store_root: Path, mode: str) -> None:
    with rocketstore.open(store_root, mode) as store:
        seen: list[tuple[str, int, int]] = []
        report = store.verify(progress=lambda *row: seen.append(row))
    assert report.ok, report.findings
    assert (report.records, report.keys) == (120, 240)
    assert any(done == total for what, done, total in seen if what == "check log")


def test_another_level_is_refused(pristine: Path) -> None:
    with pytest.raises(ValueError, match=r"level must be one of .*'everything'"):
        check(pristine, level="everything")


def test_a_directory_without_a_log_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="store: it has no folder"):
        check(tmp_path)


@pytest.mark.parametrize("name", golden_stores.NAMES)
def test_what_rocketmq_wrote_has_no_finding(name: str, tmp_path: Path) -> None:
    report = check(golden_stores.unpack(name, tmp_path))
    assert report.findings == []
    # Of expire-4.9.8 one segment is left; RocksDB holds the queues of rocksdb-5.5.0.
    assert report.records > (7 if name.startswith("expire-") else 100)
    assert report.units > (7 if name.startswith("expire-") else 100) or name.startswith("rocksdb-")
    if name.startswith("lag-"):
        assert any("dispatch lags" in note for note in report.notes)


def test_both_kernel_bodies_report_the_same(pristine: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(pristine, damaged)
    flip(sorted((damaged / "commitlog").iterdir())[1], 700)
    flip(queue_file(damaged), 3 * UNIT.nbytes + UNIT.at("tags_code"))
    flip(index_file(damaged), formats.index_file_nbytes(SLOTS, 9))
    script = (
        "import sys, json, dataclasses, pathlib\n"
        "from rocketstore import MessageStoreConfig\n"
        "from rocketstore.store.verifying import verify_files\n"
        "report = verify_files(pathlib.Path(sys.argv[1]), MessageStoreConfig())\n"
        "report = dataclasses.asdict(report)\n"
        "del report['duration_s']\n"
        "print(json.dumps(report))\n"
    )
    reports = []
    for body in ("native", "reference"):
        environment = {
            **os.environ,
            "ROCKETSTORE_KERNELS": body,
            "PYTHONPATH": str(Path(rocketstore.__file__).parent.parent),
        }
        done = subprocess.run(
            [sys.executable, "-c", script, str(damaged)],
            env=environment,
            capture_output=True,
            check=True,
            text=True,
        )
        reports.append(json.loads(done.stdout))
    assert reports[0] == reports[1]
    assert len(reports[0]["findings"]) >= 3


# --- the log ----------------------------------------------------------------------------------


def test_a_changed_body_is_found_at_its_place(store_root: Path) -> None:
    segment = sorted((store_root / "commitlog").iterdir())[0]
    with rocketstore.open(store_root) as store:
        message = next(m for m in store.scan() if len(m.body) > 20)
        at = bytes(message.raw).index(message.body)
    flip(segment, message.physical_offset + at)
    report = check(store_root)
    assert the_kinds(report) == {"record"}
    (finding,) = report.findings
    assert (finding.path, finding.position) == (str(segment), message.physical_offset)
    assert finding.offset == message.physical_offset
    assert "CRC" in finding.reason
    assert report.records == 119
    assert check(store_root, level="structure").ok


def test_records_after_damage_are_checked_too(store_root: Path) -> None:
    segments = sorted((store_root / "commitlog").iterdir())
    for segment in segments[:3]:
        poke(segment, 300, b"\xff" * 64)
    report = check(store_root)
    assert report.finding_counts["record"] == 3
    assert {Path(one.path) for one in report.findings if one.kind == "record"} == set(segments[:3])
    assert report.records > 100
    assert any("corrupt ranges" in note for note in report.notes)
    assert "missing-key" not in the_kinds(report)
    assert "unit" not in the_kinds(report)


def test_a_missing_segment_is_named_and_the_rest_is_checked(store_root: Path) -> None:
    segment = sorted((store_root / "commitlog").iterdir())[1]
    segment.unlink()
    report = check(store_root)
    finding = next(one for one in report.findings if one.kind == "record")
    assert finding.path == str(segment)
    assert f"segment {segment.name} is missing" in finding.reason
    assert report.records > 60


def test_a_short_segment_is_named(store_root: Path) -> None:
    segment = sorted((store_root / "commitlog").iterdir())[1]
    os.truncate(segment, 5000)
    report = check(store_root)
    finding = next(one for one in report.findings if one.kind == "log-file")
    assert (finding.path, finding.position) == (str(segment), 5000)
    assert f"5000 bytes instead of {SEGMENT_NBYTES}" in finding.reason


@pytest.mark.parametrize(("change", "word"), [(1, "records are missing"), (2**40, "is impossible")])
def test_a_wrong_queue_offset_is_found(store_root: Path, change: int, word: str) -> None:
    with rocketstore.open(store_root) as store:
        message = list(store.scan(topics=["TopicB"]))[10]
    path = (
        store_root
        / "commitlog"
        / formats.offset_to_file_name(
            message.physical_offset - message.physical_offset % SEGMENT_NBYTES
        )
    )
    position = message.physical_offset % SEGMENT_NBYTES
    poke(
        path,
        position + formats.RECORD_HEAD.at("queue_offset"),
        (message.queue_offset + change).to_bytes(8, "big"),
    )
    report = check(store_root)
    finding = next(one for one in report.findings if one.kind == "queue-offset")
    assert (finding.path, finding.position) == (str(path), position)
    assert word in finding.reason


# --- queues -----------------------------------------------------------------------------------


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_every_byte_of_every_unit_counts(pristine: Path, data: st.DataObject) -> None:
    paths = sorted((pristine / "consumequeue").rglob("0" * 20))
    path = data.draw(st.sampled_from(paths))
    content = path.read_bytes()
    used = len(content.rstrip(b"\0"))
    position = data.draw(st.integers(0, used - 1))
    mask = data.draw(st.integers(1, 255))
    flip(path, position, mask)
    try:
        report = check(pristine)
    finally:
        flip(path, position, mask)
    assert not report.ok
    unit = position - position % UNIT.nbytes
    assert (str(path), unit) in {(one.path, one.position) for one in report.findings}


def test_a_zeroed_stretch_of_a_queue_is_missing_units(store_root: Path) -> None:
    path = queue_file(store_root)
    poke(path, 2 * UNIT.nbytes, bytes(5 * UNIT.nbytes))
    report = check(store_root)
    assert the_kinds(report) == {"missing-unit"}
    (finding,) = report.findings
    assert (finding.path, finding.position) == (str(path), 2 * UNIT.nbytes)
    assert "queue offset 2 to 6" in finding.reason


def test_a_lost_queue_is_missing_units(store_root: Path) -> None:
    shutil.rmtree(store_root / "consumequeue" / "TopicB")
    report = check(store_root)
    assert the_kinds(report) == {"missing-unit"}
    assert {Path(one.path).parent.parent.name for one in report.findings} == {"TopicB"}


def test_units_past_the_end_are_found(store_root: Path) -> None:
    path = sorted((store_root / "consumequeue" / "TopicA" / "0").iterdir())[-1]
    used = len(path.read_bytes().rstrip(b"\0"))
    end = -(-used // UNIT.nbytes) * UNIT.nbytes
    poke(path, end, UNIT.struct.pack(2**40, 120, 7))
    report = check(store_root)
    (finding,) = report.findings
    assert (finding.kind, finding.path, finding.position) == ("unit", str(path), end)
    assert f"unit 17 names log offset {2**40}, past the log's end" in finding.reason


def test_a_unit_of_another_topic_is_found(store_root: Path) -> None:
    other = queue_file(store_root, "TopicB").read_bytes()[: UNIT.nbytes]
    path = queue_file(store_root, "TopicA")
    poke(path, UNIT.nbytes, other)
    report = check(store_root)
    assert [(one.kind, one.position) for one in report.findings] == [("unit", UNIT.nbytes)]
    assert "log offset" in report.findings[0].reason


def test_a_queue_file_of_another_size_is_found(store_root: Path) -> None:
    path = queue_file(store_root)
    os.truncate(path, QUEUE_NBYTES - 7)
    report = check(store_root)
    assert {"queue-file", "missing-unit"} <= the_kinds(report)
    finding = next(one for one in report.findings if one.kind == "queue-file")
    assert finding.path == str(path)


def test_findings_beyond_the_limit_are_counted(store_root: Path) -> None:
    for path in (store_root / "consumequeue").rglob("0" * 20):
        content = path.read_bytes()
        used = len(content.rstrip(b"\0"))
        for position in range(0, used, UNIT.nbytes):
            flip(path, position + UNIT.at("size") + 3, 1)
    whole = check(store_root)
    part = verify_files(store_root, CONFIG, max_findings=3)
    assert len(part.findings) == 3
    assert part.finding_counts == whole.finding_counts
    assert part.finding_count == len(whole.findings) > 50


# --- index ------------------------------------------------------------------------------------


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_every_byte_of_the_index_counts(pristine: Path, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted((pristine / "index").iterdir())))
    header = formats.INDEX_HEADER
    first = formats.index_file_nbytes(SLOTS, 1)
    used = len(path.read_bytes().rstrip(b"\0"))
    places = [*range(first), *range(first + ENTRY.nbytes, used)]
    position = data.draw(st.sampled_from(places))
    mask = data.draw(st.integers(1, 255))
    before = path.read_bytes()
    flip(path, position, mask)
    content = path.read_bytes()
    try:
        report = check(pristine)
    finally:
        flip(path, position, mask)
    harmless = formats.index_file_nbytes(SLOTS, 0) <= position < first  # entry 0 is never used
    if header.nbytes <= position < formats.index_file_nbytes(SLOTS, 0):
        # A slot that names the entry after the last one is what a killed writer leaves; one that
        # names a later entry of the file reads as the empty one that it was.
        at = position - (position - header.nbytes) % formats.INDEX_SLOT.nbytes
        count = int.from_bytes(content[header.at("index_count") :][:4], "big")
        slot = int.from_bytes(content[at : at + 4], "big")
        is_empty = not any(before[at : at + 4])
        harmless = slot == count or (is_empty and count < slot < ENTRIES)
    assert report.ok == harmless
    if harmless:
        assert any("bytes outside their entries" in note for note in report.notes)
    elif position >= header.nbytes:
        assert str(path) in {one.path for one in report.findings}


def test_an_entry_for_a_wrong_place_and_a_missing_key(store_root: Path) -> None:
    path = index_file(store_root)
    position = formats.index_file_nbytes(SLOTS, 5)
    flip(path, position + ENTRY.at("physical_offset") + 7, 1)
    report = check(store_root)
    kinds = the_kinds(report)
    assert "index-entry" in kinds
    assert "missing-key" in kinds
    entry = next(one for one in report.findings if "no record starts" in one.reason)
    assert (entry.path, entry.position) == (str(path), position)


def test_a_lost_slot_hides_its_entries(store_root: Path) -> None:
    path = index_file(store_root)
    content = path.read_bytes()
    slot = next(
        at
        for at in range(formats.INDEX_HEADER.nbytes, formats.index_file_nbytes(SLOTS, 0), 4)
        if any(content[at : at + 4])
    )
    poke(path, slot, bytes(4))
    report = check(store_root)
    assert the_kinds(report) == {"index-chain", "index-header"}
    chain = next(one for one in report.findings if one.kind == "index-chain")
    assert (chain.path, chain.position) == (str(path), slot)


@pytest.mark.parametrize("place", ["none", "slot", "previous", "hash", "tail", "count", "entry 0"])
def test_a_long_index_file_is_judged_as_a_short_one(
    store_root: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of long files, chunks are read instead of the whole mapping."""
    path = index_file(store_root, 4 if place == "tail" else 0)
    entry = formats.index_file_nbytes(SLOTS, 9)
    at = {
        "slot": formats.INDEX_HEADER.nbytes + 3,
        "previous": entry + ENTRY.at("previous_index") + 3,
        "hash": entry + ENTRY.at("key_hash") + 3,
        "tail": path.stat().st_size - 3,
        "count": formats.INDEX_HEADER.at("index_count") + 3,
        "entry 0": formats.index_file_nbytes(SLOTS, 0) + 1,
    }.get(place)
    if at is not None:
        flip(path, at, 1)
    short = check(store_root)
    monkeypatch.setattr("rocketstore.verify.index._MOST_MAPPED_NBYTES", 0)
    for module in ("index", "index_entries"):
        monkeypatch.setattr(f"rocketstore.verify.{module}.CHUNK_ENTRIES", 7)
    long = check(store_root)
    assert long.findings == short.findings
    assert long.notes == short.notes
    assert long.ok == short.ok == (place in ("none", "tail", "entry 0"))


def test_a_lost_index_file_is_missing_keys(store_root: Path) -> None:
    index_file(store_root, 1).unlink()
    report = check(store_root)
    assert the_kinds(report) == {"missing-key"}
    assert "records from log offset" in report.findings[0].reason


def test_an_index_that_is_not_kept_is_not_missed(store_root: Path) -> None:
    shutil.rmtree(store_root / "index")
    assert check(store_root).finding_counts == {"missing-folder": 1}
    config = MessageStoreConfig(message_index_enable=False)
    assert verify_files(store_root, config).ok


def test_entries_out_of_order_are_all_judged(store_root: Path) -> None:
    path = index_file(store_root)
    at = formats.index_file_nbytes(SLOTS, 3)
    content = path.read_bytes()
    pair = content[at : at + 3 * ENTRY.nbytes]
    poke(path, at, pair[2 * ENTRY.nbytes :] + pair[: 2 * ENTRY.nbytes])
    report = check(store_root)
    assert "index-entry" in the_kinds(report)
    assert any("lower than the previous entry's" in one.reason for one in report.findings)
    assert "missing-key" not in the_kinds(report)
    assert report.keys == 240
