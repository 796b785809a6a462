"""``doctor``: levels, states, limits, odd paths; it only reads."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from golden.golden_stores import NAMES, unpack
from rocketstore import formats
from rocketstore.diagnosis.examination import doctor


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return unpack("plain-5.3.3", tmp_path)


def spoil(path: Path, position: int, content: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(position)
        file.write(content)


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith(("crash", "lag"))])
def test_sound_stores_are_well(name: str, tmp_path: Path) -> None:
    verdict = doctor(unpack(name, tmp_path), level="deep")
    assert verdict.ok, verdict.to_json()["findings"]
    assert verdict.state == "well"
    assert all(one.starts for one in verdict.broker)


@pytest.mark.parametrize("name", ["crash-4.9.8", "crash-5.3.3", "lag-4.9.8", "lag-5.3.3"])
def test_a_crashed_store_recovers(name: str, tmp_path: Path) -> None:
    verdict = doctor(unpack(name, tmp_path))
    assert verdict.state == "recovers"
    lags = {"queue.behind", "index.behind"} if name.startswith("lag") else set()
    other = {"log.torn", "transaction.undecided"}
    assert set(verdict.counts) - other <= {"store.unclean", "index.file.crashed", *lags}
    assert verdict.next[0].command[:2] == ["rocketstore", "plan"]
    assert verdict.next[0].safe


def test_the_document_has_its_schema(store: Path) -> None:
    (store / "consumequeue/T/0/00000000000000000320").unlink()
    verdict = rocketstore.doctor(store)
    document = json.loads(json.dumps(verdict.to_json()))
    assert document["schema"] == "rocketstore.doctor/1"
    (finding,) = [one for one in document["findings"] if one["severity"] != "note"]
    assert set(finding) == {
        *("code", "severity", "what", "where", "more", "data", "broker", "action"),
    }
    assert finding["code"] == "queue.file.missing"
    assert finding["data"]["topics"][0]["queueOffsets"] == [[16, 32]]
    assert {one["version"] for one in document["broker"]} == {"5.3.3", "4.9.8", "5.5.0"}


def test_quick_reads_neither_log_nor_queues(store: Path) -> None:
    spoil(store / "commitlog/00000000000000065536", 8192, bytes(4096))
    verdict = doctor(store, level="quick")
    assert verdict.state == "well"
    assert not verdict.broker
    verdict = doctor(store)
    assert "log.record.zeros" in verdict.counts
    assert verdict.data.messages > 0


def test_full_compares_the_checksums_that_recovery_compares(tmp_path: Path) -> None:
    root = tmp_path / "long"
    small = {"mapped_file_size_commit_log": 65536, "max_hash_slot_num": 50, "max_index_num": 200}
    with rocketstore.open(root, "x", **small) as opened:
        for number in range(500):
            opened.put("T", bytes(range(250)) * 2, 0, None, f"key-{number}")
    files = sorted((root / "commitlog").iterdir())
    assert len(files) > 4
    spoil(files[0], 300, b"\xff")
    assert "log.record.crc" not in doctor(root).counts
    assert "log.record.crc" in doctor(root, level="deep").counts
    spoil(files[-2], 300, b"\xff")
    verdict = doctor(root)
    assert "log.record.crc" in verdict.counts
    old = next(one for one in verdict.broker if one.version == "4.9.8")
    assert old.truncates is not None
    assert old.truncates["messages"] > 0


def test_missing_segment_at_the_end(store: Path) -> None:
    (store / "commitlog/00000000000000131072").unlink()
    verdict = doctor(store)
    assert verdict.counts.get("log.end-missing") == 1
    assert verdict.worst == "critical"
    assert verdict.data.messages > 20


def test_a_lost_log(store: Path) -> None:
    shutil.rmtree(store / "commitlog")
    for level in ("quick", "full"):
        verdict = doctor(store, level=level)
        assert "store.log-missing" in verdict.counts
        assert not verdict.ok
        assert verdict.state == "loses"
        assert "do not start a broker" in verdict.sentence


@pytest.mark.parametrize("level", ["quick", "full"])
def test_a_fifo_in_the_place_of_the_log(store: Path, level: str) -> None:
    shutil.rmtree(store / "commitlog")
    os.mkfifo(store / "commitlog")
    verdict = doctor(store, level=level)
    assert verdict.state == "unreadable"
    assert "nothing is known of its messages" in verdict.sentence
    assert "store.odd-file" in verdict.counts
    assert "store.log-missing" not in verdict.counts


@pytest.mark.parametrize("level", ["quick", "full"])
def test_a_log_behind_a_link_is_read(store: Path, tmp_path: Path, level: str) -> None:
    (store / "commitlog").rename(tmp_path / "disk")
    (store / "commitlog").symlink_to(tmp_path / "disk")
    assert doctor(store, level=level).state != "unreadable"


def test_a_bare_log_and_one_segment(store: Path) -> None:
    spoil(store / "commitlog/00000000000000065536", 8192, bytes(4096))
    for path in (store / "commitlog", store / "commitlog/00000000000000065536"):
        verdict = doctor(path)
        assert set(verdict.counts) == {"log.record.zeros"}, path
    assert not doctor(store / "commitlog/00000000000000000000").counts


def test_no_store(tmp_path: Path) -> None:
    verdict = doctor(tmp_path)
    assert verdict.state == "unreadable"
    assert set(verdict.counts) == {"store.none"}
    with pytest.raises(FileNotFoundError):
        doctor(tmp_path / "none")


def test_arguments(store: Path) -> None:
    with pytest.raises(ValueError, match="level"):
        doctor(store, level="thorough")
    with pytest.raises(rocketstore.ConfigError, match="messageIndexSafe"):
        doctor(store, broker_options={"flushDiskType": "SYNC_FLUSH"})
    with pytest.raises(rocketstore.ConfigError, match="number"):
        doctor(store, broker_options={"commitLogRecoverMaxNum": "many"})
    with pytest.raises(rocketstore.ConfigError):
        doctor(store, broker_versions=["three"])


def test_the_limit_counts_what_it_does_not_list(store: Path) -> None:
    for name in ("T/0/00000000000000000320", "TopicA/0/00000000000000000000"):
        os.truncate(store / "consumequeue" / name, 100)
    shutil.rmtree(store / "index")
    verdict = doctor(store, limit=1)
    assert len(verdict.findings) == 1
    assert verdict.truncated
    assert len(verdict.counts) > 1
    assert verdict.worst == "critical"


def test_pipes_and_links_are_not_opened(store: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(bytes(65536))
    segment = store / "commitlog/00000000000000065536"
    segment.unlink()
    os.mkfifo(segment)
    queue = store / "consumequeue/T/0/00000000000000000000"
    queue.unlink()
    queue.symlink_to(outside)
    verdict = doctor(store)
    assert {"store.odd-file", "store.link"} <= set(verdict.counts)
    assert stat.S_ISFIFO(os.lstat(segment).st_mode)


def test_options_of_the_broker_decide(tmp_path: Path) -> None:
    root = unpack("crash-5.3.3", tmp_path)
    usual = doctor(root, broker_versions=["5.5.0"]).broker[0]
    safe = doctor(
        root, broker_versions=["5.5.0"], broker_options={"messageIndexSafe": "true"}
    ).broker[0]
    assert usual.rescan is not None
    assert safe.rescan is not None
    assert safe.rescan["from"] <= usual.rescan["from"]


def test_damage_that_was_not_put_before_a_broker_is_no_tested_forecast(store: Path) -> None:
    os.truncate(store / "commitlog/00000000000000000000", 70000)
    verdict = doctor(store)
    assert "log.segment.long" in verdict.counts
    assert verdict.broker[0].confidence != "tested"


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("inner-5.3.3", "batchconsumequeue/BCQ/0/core"),
        ("ext-4.9.8", "consumequeue_ext/TopicA/0/core"),
        ("plain-5.3.3", "index/7/core"),
        ("plain-5.3.3", "consumequeue/T/0/core"),
        ("plain-5.3.3", "commitlog/core"),
    ],
)
def test_foreign_entries_of_every_part(name: str, place: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    path = root / place
    if not path.parent.exists() and "index" not in place:
        path = next((root / path.parts[-4]).glob("*/*")) / path.name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"x")
    verdict = doctor(root)
    found = {one.code for one in verdict.findings if one.severity != "note"}
    assert found == {"store.foreign"}, verdict.to_json()["findings"]
    assert verdict.counts["store.foreign"] == 1


def rewind(path: Path, positions: list[int], offset_ms: int) -> None:
    """Move the store times of the records at these positions of a segment."""
    content = bytearray(path.read_bytes())
    for position in positions:
        at = position + 56
        time = int.from_bytes(content[at : at + 8], "big") + offset_ms
        content[at : at + 8] = time.to_bytes(8, "big")
    path.write_bytes(content)


@pytest.mark.parametrize("offset_ms", [-3_600_000, 0])
def test_old_records_after_a_torn_one(tmp_path: Path, offset_ms: int) -> None:
    root = tmp_path / "stale"
    with rocketstore.open(root, "x", mapped_file_size_commit_log=65536) as opened:
        places = [opened.put("T", b"\1" * 100).physical_offset for _ in range(20)]
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index", ignore_errors=True)
    (root / "rocketstore.state").unlink()
    (root / "abort").touch()
    path = root / "commitlog/00000000000000000000"
    rewind(path, places[11:], offset_ms)
    spoil(path, places[10], b"\xff" * 8)
    verdict = doctor(root)
    assert ("log.stale-tail" in verdict.counts) == (offset_ms < 0)
    assert "log.torn" not in verdict.counts
    assert ("log.record.shape" in verdict.counts) == (offset_ms == 0)
    if offset_ms < 0:
        (finding,) = [one for one in verdict.findings if one.code == "log.stale-tail"]
        assert (finding.severity, finding.data.effect) == ("warning", "none")
        assert finding.where[0].offset == places[10]
        rocketstore.repair(root, rocketstore.plan(root))
        assert doctor(root).state == "well"
        with rocketstore.open(root, "r") as opened:
            assert opened.max_physical_offset == places[10]


def _replace(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("name", "spoiled"),
    [
        ("plain-5.3.3", lambda root: os.truncate(min((root / "index").iterdir()), 2120)),
        ("plain-5.3.3", lambda root: os.truncate(max((root / "index").iterdir()), 0)),
        ("plain-5.3.3", lambda root: _replace(min((root / "index").iterdir()))),
        ("plain-5.3.3", lambda root: _replace(root / "index")),
        ("plain-5.3.3", lambda root: _replace(root / "checkpoint")),
        ("plain-5.3.3", lambda root: os.truncate(max((root / "commitlog").iterdir()), 0)),
        ("lag-4.9.8", lambda root: shutil.rmtree(root / "index")),
        ("lag-5.3.3", lambda root: shutil.rmtree(root / "index")),
    ],
)
def test_a_file_has_one_finding_of_a_code(name: str, spoiled: Any, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    spoiled(root)
    findings = doctor(root).findings
    places = [(one.code, one.where[0].file) for one in findings if one.where]
    assert places
    assert len(places) == len(set(places)), places


@pytest.mark.parametrize("level", ["full", "deep"])
def test_a_record_that_only_its_whole_crc_shows_to_be_wrong(tmp_path: Path, level: str) -> None:
    # The parsed records looked well, and what verify had found was left out beside them.
    store = unpack("crc-5.3.3", tmp_path)
    with rocketstore.open(store) as opened:
        message = list(opened.scan())[20]
    name = f"{message.physical_offset // 65536 * 65536:020d}"
    place = message.physical_offset % 65536 + formats.RECORD_HEAD.at("born_timestamp")
    path = store / "commitlog" / name
    spoil(path, place, bytes([path.read_bytes()[place] ^ 1]))
    verdict = doctor(store, level=level)
    (finding,) = [one for one in verdict.findings if one.code.startswith("log.")]
    assert finding.code == "log.record.crc"
    assert finding.where[0].offset == message.physical_offset
    plan = rocketstore.plan(store)
    assert "log.fill" in {step.kind for step in plan.steps}
    rocketstore.repair(store, plan)
    with rocketstore.open(store) as opened:
        assert sum(1 for _ in opened.scan()) > 100
