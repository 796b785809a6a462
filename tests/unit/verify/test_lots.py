"""Reading lots on threads: order, damage, errors, closing; the same report for any jobs."""

from __future__ import annotations

import contextlib
import dataclasses
import random
import threading
from collections import deque
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from golden.golden_stores import NAMES, unpack
from rocketstore import MessageStoreConfig
from rocketstore.diagnosis.examination import doctor
from rocketstore.log.commit_log import CommitLog
from rocketstore.log.scan import LogScan, RecordBatch, find_near_record
from rocketstore.store.verifying import verify_files
from rocketstore.verify import lots
from rocketstore.verify.lots import LogReader


class Places:
    """A preparer: the offsets of a batch's records, and on which thread they were read."""

    def __init__(self) -> None:
        self.begun_anew = 0

    def prepare(self, batch: RecordBatch) -> tuple[list[int], str]:
        return batch.columns["physical_offset"].tolist(), threading.current_thread().name

    def begin_anew(self) -> None:
        self.begun_anew += 1


def opened(store: Path) -> CommitLog:
    return log_of(rocketstore.open(store, "r"))


def log_of(store: Any) -> CommitLog:
    log: CommitLog = store._reader.log
    return log


def reader_of(log: CommitLog, jobs: int, capacity: int = 7) -> LogReader[tuple[list[int], str]]:
    def scan(start: int, stop: int) -> LogScan:
        return LogScan(log, start, stop, 0, (), capacity)

    return LogReader(log, scan, Places, None, jobs)


def read(log: CommitLog, jobs: int, start: int | None = None) -> dict[str, Any]:
    """Everything that a reader yields, and where it ended."""
    reader = reader_of(log, jobs)
    offsets, threads = [], set()
    first = log.min_offset if start is None else start
    for batch, (places, thread) in reader.read(first, log.max_offset):
        assert batch.columns["physical_offset"].tolist() == places
        offsets += places
        threads.add(thread)
    return {"offsets": offsets, "end": (reader.offset, reader.status), "threads": threads}


@pytest.fixture
def small_lots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lots, "_FIRST_NBYTES", 512)
    monkeypatch.setattr(lots, "_MOST_NBYTES", 4096)


@pytest.mark.usefixtures("small_lots")
@pytest.mark.parametrize("jobs", [2, 3, 100])
@pytest.mark.parametrize("name", NAMES)
def test_the_batches_are_those_of_one_thread(name: str, jobs: int, tmp_path: Path) -> None:
    log = opened(unpack(name, tmp_path))
    one, many = read(log, 1), read(log, jobs)
    assert many["offsets"] == one["offsets"]
    assert many["end"] == one["end"]
    assert one["threads"] == {threading.current_thread().name}
    if len(one["offsets"]) > 100:
        assert len(many["threads"] - one["threads"]) >= 1


@pytest.mark.usefixtures("small_lots")
@pytest.mark.parametrize("seed", range(40))
def test_damage_ends_the_batches_where_it_ends_those_of_one_thread(
    seed: int, tmp_path: Path
) -> None:
    choose = random.Random(seed)
    store = unpack(choose.choice(("plain-5.3.3", "plain-4.9.8", "crc-5.3.3")), tmp_path)
    for _ in range(choose.randrange(1, 4)):
        file = choose.choice(sorted((store / "commitlog").iterdir()))
        if choose.random() < 0.15:
            file.unlink()
            continue
        with open(file, "r+b") as changed:
            changed.seek(choose.randrange(file.stat().st_size - 100))
            changed.write(choose.choice((bytes(90), b"\xff" * 4, choose.randbytes(40))))
    log = opened(store)
    size = log.segment_size
    for start in {log.min_offset, *range(0, log.max_offset, size)}:
        assert without_threads(read(log, 2, start)) == without_threads(read(log, 1, start))


def without_threads(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name != "threads"}


@pytest.mark.usefixtures("small_lots")
def test_a_body_that_holds_records_is_no_end_of_a_lot(tmp_path: Path) -> None:
    """Complete records that carry their own offsets, in the body of another record."""
    with rocketstore.open(tmp_path / "store", "x", mapped_file_size_commit_log=1 << 20) as store:
        place = store.put("T", b"first").physical_offset
        file = tmp_path / "store" / "commitlog" / "00000000000000000000"
        plain = file.read_bytes()[place : log_of(store).max_offset]
        for _ in range(20):
            body_at = log_of(store).max_offset + plain.index(b"first")
            copies = [
                plain[:28] + (body_at + at).to_bytes(8, "big") + plain[36:]
                for at in range(0, 20_000, len(plain))
            ]
            store.put("T", b"".join(copies))
            store.put("T", b"between")
    with rocketstore.open(tmp_path / "store", "r") as reopened:
        log = log_of(reopened)
        assert find_near_record(log, body_at + 1) == body_at + len(plain)
        one, two = read(log, 1), read(log, 2)
    assert without_threads(one) == without_threads(two)
    assert len(one["offsets"]) == 41


def test_a_lot_of_too_many_records_ends_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lots, "_MOST_RECORDS", 10)
    log = opened(unpack("plain-5.3.3", tmp_path))
    assert without_threads(read(log, 2)) == without_threads(read(log, 1))


@pytest.mark.usefixtures("small_lots")
def test_an_error_comes_after_the_batches_before_it(tmp_path: Path) -> None:
    log = opened(unpack("plain-5.3.3", tmp_path))

    class Failing(Places):
        def prepare(self, batch: RecordBatch) -> tuple[list[int], str]:
            places, thread = super().prepare(batch)
            if places[0] > 70_000:
                raise OSError("the disk failed")
            return places, thread

    reader = reader_of(log, 2)
    reader._preparers = deque([Failing(), Failing()])
    reader._own = Failing()
    offsets: list[int] = []

    def take_all() -> None:
        for _, (places, _) in reader.read(0, log.max_offset):
            offsets.extend(places)

    with pytest.raises(OSError, match="the disk failed"):
        take_all()
    everything = read(log, 1)["offsets"]
    assert offsets == everything[: len(offsets)]
    assert 60_000 < offsets[-1] <= 71_000


@pytest.mark.usefixtures("small_lots")
def test_closing_ends_the_threads(tmp_path: Path) -> None:
    log = opened(unpack("plain-5.3.3", tmp_path))
    with contextlib.closing(reader_of(log, 4).read(0, log.max_offset)) as batches:
        next(batches)
    assert not [one for one in threading.enumerate() if "rocketstore-ahead" in one.name]


def report_of(store: Path, jobs: int) -> dict[str, Any]:
    found = dataclasses.asdict(verify_files(store, MessageStoreConfig(), jobs=jobs))
    del found["duration_s"]
    return found


@pytest.mark.parametrize("name", NAMES)
def test_verify_reports_the_same_for_any_jobs(name: str, tmp_path: Path) -> None:
    store = unpack(name, tmp_path)
    assert report_of(store, 1) == report_of(store, 2) == report_of(store, 7)


def verdict_of(store: Path, jobs: int) -> dict[str, Any]:
    found = doctor(store, jobs=jobs).to_json()
    for name in ("durationSeconds", "takenAt"):
        found.pop(name, None)
    return found


@pytest.mark.parametrize(
    ("file", "position", "content"),
    [
        ("commitlog/00000000000000000000", 700, bytes(300)),
        ("commitlog/00000000000000000000", 100, b"\xff" * 20),
        ("consumequeue/T/0/00000000000000000000", 20, bytes(40)),
    ],
)
def test_damage_is_found_the_same_for_any_jobs(
    tmp_path: Path, file: str, position: int, content: bytes
) -> None:
    store = unpack("plain-5.3.3", tmp_path)
    with open(store / file, "r+b") as changed:
        changed.seek(position)
        changed.write(content)
    one, two = report_of(store, 1), report_of(store, 2)
    assert one == two
    assert one["findings"]
    assert verdict_of(store, 1) == verdict_of(store, 2)


def test_jobs_below_one_are_refused(tmp_path: Path) -> None:
    store = unpack("plain-5.3.3", tmp_path)
    with pytest.raises(ValueError, match="jobs is 0"):
        rocketstore.doctor(store, jobs=0)
    with pytest.raises(ValueError, match="jobs is -1"):
        verify_files(store, MessageStoreConfig(), jobs=-1)
