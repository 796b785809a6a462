"""Cleaning up: what is deleted and why, in which order, and that readers are not disturbed."""

from __future__ import annotations

import contextlib
import datetime
import errno
import io
import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import ConfigError, GetMessageStatus, PutMessageStatus, formats
from rocketstore.cleaning.plan import CleanReason
from rocketstore.files.disk_space import DiskSpace, disk_space
from rocketstore.files.durable import sync_directory
from rocketstore.testing import check_invariants
from support.directory import files_below
from support.expired_stores import (
    SEGMENT,
    Was,
    assert_is_what_is_left,
    expire,
    look,
    make,
    messages_of,
    options_of,
)

HOUR_MS = 3_600_000
#: 2024-03-01 12:00:00 UTC
START = 1_709_294_400_000
VERSIONS = ("4.9.8", "5.1.4", "5.5.0")


class Clock:
    """Epoch ms that stand still until they are moved."""

    def __init__(self, now: int = START) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now

    def ticking(self) -> Iterator[int]:
        """One more second at every look."""
        while True:
            self.now += 1000
            yield self.now


def made(root: Path, version: str) -> tuple[Was, int]:
    """A store whose records are one second apart; what it holds, and its last time."""
    clock = Clock()
    ticks = clock.ticking()
    make(root, version, clock=lambda: next(ticks))
    was = look(root, version, {"max_hash_slot_num": 5, "max_index_num": 40})
    return was, clock.now


def segment_times(root: Path) -> dict[str, tuple[int, int]]:
    """Store times of each segment's first and last record, read from the log."""
    times: dict[str, tuple[int, int]] = {}
    with rocketstore.open(root) as store:
        for message in store.scan():
            name = formats.offset_to_file_name(message.physical_offset // SEGMENT * SEGMENT)
            first, _ = times.get(name, (message.store_timestamp, 0))
            times[name] = first, message.store_timestamp
    return times


def opened(root: Path, was: Was, clock: Clock, **others: Any) -> rocketstore.DefaultMessageStore:
    options: dict[str, Any] = {"mode": "r+", "broker_version": was.version, **was.options, **others}
    return rocketstore.open(root, clock=clock, **options)


def names_below(root: Path) -> set[str]:
    """Store files but for marks, which differ."""
    own = {"rocketstore.state", "checkpoint", "abort", "lock"}
    return {name for name in files_below(root) if name not in own}


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_older_than_the_reserved_time_goes(tmp_path: Path, version: str) -> None:
    """The same files go as RocketMQ's cleaners delete, and the answers are those of what is
    left."""
    root, copy = tmp_path / "store", tmp_path / "copy"
    was, _ = made(root, version)
    shutil.copytree(root, copy)
    times = sorted(segment_times(root).items())
    minimum = expire(copy, 4)
    newest_that_goes = times[3][1][1]
    clock = Clock(newest_that_goes + 72 * HOUR_MS)
    for name, _ in times:  # D-32: the files' own times say nothing
        os.utime(root / "commitlog" / name, (1, 1))
    with opened(root, was, clock) as store:
        before = files_below(root)
        planned = store.clean_expired(what_if=True)
        assert files_below(root) == before
        report = store.clean_expired()
        assert_is_what_is_left(store, was, minimum)
    assert names_below(root) == names_below(copy)
    assert (planned.what_if, report.what_if) == (True, False)
    assert [file.path for file in report.files] == [file.path for file in planned.files]
    gone = {str(Path(file.path).relative_to(root)) for file in report.files}
    assert gone == set(before) - names_below(root) - {"rocketstore.state", "checkpoint", *OWN}
    assert report.min_offset == planned.min_offset == minimum
    assert planned.nbytes == report.nbytes > 0
    for file, (name, (first, last)) in zip(report.files, times, strict=False):
        if file.kind != "commitlog":
            break
        assert (Path(file.path).name, file.reason) == (name, CleanReason.EXPIRED)
        assert (file.oldest_store_timestamp, file.newest_store_timestamp) == (first, last)
        assert "was stored 72." in file.explanation
    assert "another" in planned.kept
    check_invariants(root).require()
    with opened(root, was, clock, mode="r") as store:
        assert_is_what_is_left(store, was, minimum)
    with opened(root, was, clock) as store:
        assert store.recovery_report.notes == []
        assert_is_what_is_left(store, was, minimum)
        assert store.put("Long", b"new").queue_offset == was.ends["Long", 0]


OWN = ("abort", "lock")


def test_times_in_the_report_are_those_of_the_messages(tmp_path: Path) -> None:
    root = tmp_path / "store"
    was, end = made(root, "5.5.0")
    with opened(root, was, Clock(end + 100 * HOUR_MS)) as store:
        stored = {m.physical_offset: m.store_timestamp for m in store.scan()}
        report = store.clean_expired(what_if=True)
        seen = {file.kind for file in report.files}
        assert seen == {"commitlog", "consumequeue", "batchconsumequeue", "index"}
        for file in report.files:
            assert file.nbytes == os.path.getsize(file.path)
            assert file.newest_store_timestamp in stored.values(), file
            assert file.oldest_store_timestamp in stored.values(), file
            if file.kind != "commitlog":
                assert file.reason == CleanReason.FOLLOWS
        assert report.kept == "the newest segment is always kept"


def test_one_millisecond_decides(tmp_path: Path) -> None:
    root = tmp_path / "store"
    was, _ = made(root, "5.5.0")
    _, (_, last) = sorted(segment_times(root).items())[1]
    for now, count in ((last - 1, 1), (last, 2)):
        with opened(root, was, Clock(now + 7 * HOUR_MS), file_reserved_time=7) as store:
            files = store.clean_expired(what_if=True).files
            assert sum(file.kind == "commitlog" for file in files) == count


def test_the_newest_segment_and_the_last_files_always_stay(tmp_path: Path) -> None:
    root = tmp_path / "store"
    was, end = made(root, "5.5.0")
    last = sorted((root / "commitlog").iterdir())[-1]
    with opened(root, was, Clock(end + 10_000 * HOUR_MS), file_reserved_time=0) as store:
        store.clean_expired()
        assert store.clean_expired().files == []
        assert_is_what_is_left(store, was, int(last.name))
    assert list((root / "commitlog").iterdir()) == [last]
    for folder in ("consumequeue", "batchconsumequeue"):
        assert all(list(queue.iterdir()) for queue in (root / folder).glob("*/*"))
    assert list((root / "index").iterdir())


def test_reading_mode_says_what_would_go(tmp_path: Path) -> None:
    root = tmp_path / "store"
    was, end = made(root, "5.3.3")
    clock = Clock(end + 73 * HOUR_MS)
    with opened(root, was, clock, mode="r") as store:
        before = files_below(root)
        planned = store.clean_expired(what_if=True)
        with pytest.raises(io.UnsupportedOperation):
            store.clean_expired()
        with pytest.raises(io.UnsupportedOperation):
            store.execute_delete_files_manually()
    assert files_below(root) == before
    with opened(root, was, clock) as store:
        assert store.clean_expired().files == planned.files


@pytest.mark.parametrize("mapped", [True, False])
def test_what_would_go_is_reported_while_a_writer_deletes_it(tmp_path: Path, mapped: bool) -> None:
    """It raised FileNotFoundError for the first file that was gone."""
    root = tmp_path / "store"
    was, end = made(root, "5.5.0")
    clock = Clock(end + 73 * HOUR_MS)
    with opened(root, was, clock, mode="r") as reader:
        if mapped:
            assert reader.clean_expired(what_if=True).files
        with opened(root, was, clock) as store:
            assert store.clean_expired().files
            assert reader.clean_expired(what_if=True).files == []
        reader.refresh()
        assert reader.clean_expired(what_if=True).files == []


def test_a_clock_that_once_ran_ahead_keeps_nothing_for_years(tmp_path: Path) -> None:
    """A segment's newest time was ten years ahead: it stayed, and so did all later ones."""
    root = tmp_path / "store"
    clock = Clock()
    with rocketstore.open(root, "x", clock=clock, **options_of("5.5.0")) as store:
        while store.max_physical_offset < 5 * SEGMENT:
            ahead = SEGMENT < store.max_physical_offset < 3 * SEGMENT
            clock.now = START + (87_600 * HOUR_MS if ahead else 0)
            store.put("T", bytes(100))
        assert store.wait_dispatched()
        store.flush()
        for path in (root / "commitlog").iterdir():
            os.utime(path, (START / 1000, START / 1000))
        clock.now = START + 71 * HOUR_MS
        assert store.clean_expired().files == []
        clock.now = START + 73 * HOUR_MS
        gone = [file for file in store.clean_expired().files if file.kind == "commitlog"]
        assert len(gone) == 5
        assert {file.newest_store_timestamp for file in gone} == {START}
        assert "it was modified" in gone[2].explanation
    check_invariants(root, clock_steps=True).require()


def test_a_segment_without_a_record_goes_by_its_own_time(tmp_path: Path) -> None:
    root = tmp_path / "store"
    was, end = made(root, "5.3.3")
    first = min((root / "commitlog").iterdir())
    with opened(root, was, Clock(end), mode="r") as store:
        first.write_bytes(b"\1" * SEGMENT)
        os.utime(first, (START // 1000 - 3600, START // 1000 - 3600))
        times = store.clean_expired(what_if=True).files
        assert times == []
    with opened(root, was, Clock(START + 71 * HOUR_MS), mode="r") as store:
        file = store.clean_expired(what_if=True).files[0]
        assert file.newest_store_timestamp == START - HOUR_MS
        assert file.explanation == "it was modified 72.0 hours ago"


def test_what_a_body_imitates_does_not_decide(tmp_path: Path) -> None:
    """A body may hold a whole record with the right offset and any time in it: the ages found stay
    between those of records whose places are certain."""
    root = tmp_path / "store"
    clock = Clock()
    for stamp, expected in ((1, 0), (START * 2, 0)):
        shutil.rmtree(root, ignore_errors=True)
        imitated = _imitation(tmp_path, stamp)
        with rocketstore.open(root, "x", clock=clock, **options_of("5.5.0")) as store:
            while store.max_physical_offset < SEGMENT:
                before = store.max_physical_offset
                room = SEGMENT - before
                body = b"x" * 100
                if room < 1200:
                    body = imitated(before)
                store.put("T", body)
            clock.now = START
            assert store.wait_dispatched(120)
            store.flush()
            report = store.clean_expired(what_if=True)
            assert len(report.files) == expected
            clock.now = START + 72 * HOUR_MS
            assert store.clean_expired(what_if=True).files[0].newest_store_timestamp == START
            clock.now = START


def _imitation(tmp_path: Path, stamp: int) -> Any:
    """Makes bodies of records that begin at a log offset, at which they say they are, too."""
    other = tmp_path / f"other-{stamp}"
    with rocketstore.open(other, "x", clock=Clock(stamp), **options_of("5.5.0")) as store:
        store.put("T", b"y")
        record = bytearray(store.look_message_by_offset(0).raw)  # type: ignore[union-attr]
    at = formats.RECORD_HEAD.at("physical_offset")

    def body(offset: int) -> bytes:
        copy = bytearray(record)
        place = offset + formats.RECORD_HEAD.nbytes + 20  # about where the body begins
        for shift in range(-40, 60):
            copy[at : at + 8] = (place + shift).to_bytes(8, "big")
        return bytes(copy)

    return body


# --- readers ------------------------------------------------------------------------------------


def test_what_readers_hold_stays_readable(tmp_path: Path) -> None:
    root = tmp_path / "store"
    was, end = made(root, "5.5.0")
    with (
        opened(root, was, Clock(end + 100 * HOUR_MS)) as store,
        opened(root, was, Clock(end), mode="r") as reader,
    ):
        first = store.look_message_by_offset(0)
        assert first is not None
        result = store.get_message("g", "Long", 0, 0, 5)
        kept, view = bytes(first.raw), first.raw
        scan, tail = store.scan(), store.tail(start=0, timeout_s=0)
        next(scan)
        arrow = iter(store.scan_arrow("core", batch_rows=1))
        next(arrow)
        seen_by_reader = messages_of(reader, ("Long", 0))
        reported: list[str] = []
        late = store.tail(start=0, timeout_s=0, on_event=reported.append)
        minimum = store.clean_expired().min_offset
        assert minimum > 0
        assert bytes(view) == kept
        assert [m.queue_offset for m in result.messages] == [0, 1, 2, 3, 4]
        # What is on its way goes on with what it holds, then where the log begins now.
        assert [m.physical_offset for m in scan][-1] < store.max_physical_offset
        assert next(tail).physical_offset == minimum
        assert next(late).physical_offset == minimum
        assert reported == [
            f"the log's offsets 0 to {minimum - 1} were deleted before they were read"
        ]
        assert sum(batch.num_rows for batch in arrow) > 0
        assert next(store.scan()).physical_offset == minimum
        # A reader of its own has a snapshot, then the new beginning.
        assert messages_of(reader, ("Long", 0)) == seen_by_reader
        reader.refresh()
        assert reader.min_physical_offset == minimum
        asked = store.get_message("g", "Long", 0, 0)
        assert asked.status == GetMessageStatus.OFFSET_TOO_SMALL
        assert asked.next_begin_offset == store.min_offset_in_queue("Long", 0)


def test_nothing_goes_that_is_not_in_the_queues(tmp_path: Path) -> None:
    root = tmp_path / "store"
    clock = Clock()
    with rocketstore.open(root, "x", clock=clock, start=False, **options_of("5.5.0")) as store:
        for number in range(200):
            store.put("T", b"x" * 50, 0, None, f"k{number}")
        clock.now += 100 * HOUR_MS
        report = store.clean_expired()
        assert report.files == []
        assert "not in all queues and on disk yet" in report.kept
        store.flush()
        assert store.clean_expired().files == []
        assert store.wait_dispatched(120)
        assert store.clean_expired().files != []


@pytest.mark.parametrize("version", VERSIONS)
def test_marks_name_nothing_that_is_gone(tmp_path: Path, version: str) -> None:
    """Byte 40 of the checkpoint is zeroed before the record goes that it names."""
    root = tmp_path / "store"
    clock = Clock()
    with rocketstore.open(root, "x", clock=clock, **options_of(version)) as store:
        while store.max_physical_offset < SEGMENT - 200:
            store.put("T", b"x" * 50)
        store.wait_dispatched(120)
        store.flush()
        named = rocketstore.directory.checkpoint.StoreCheckpoint.read(root / "checkpoint", root)
        assert (named.logics_physical_offset > 0) == (version == "5.5.0")
        # The next segment has a record without a queue: the place named stays where it is.
        store.put("T", b"y" * 500, sys_flag=formats.SYS_FLAG_TRANSACTION_PREPARED)
        assert store.max_physical_offset > SEGMENT
        store.wait_dispatched(120)
        store.flush()
        clock.now += 100 * HOUR_MS
        gone = store.clean_expired().files
        assert sum(file.kind == "commitlog" for file in gone) == 1
        named = rocketstore.directory.checkpoint.StoreCheckpoint.read(root / "checkpoint", root)
        assert named.logics_physical_offset == 0
    check_invariants(root).require()


# --- when -----------------------------------------------------------------------------------------


class Disk:
    """A disk of 100 blocks of which so many are in use."""

    def __init__(self, used: int) -> None:
        self.used = used
        self.queues_used: int | None = None

    def __call__(self, path: Path) -> DiskSpace:
        is_queue = path.name == "consumequeue" and self.queues_used is not None
        used = self.queues_used if is_queue else self.used
        assert used is not None
        return DiskSpace(100, used, 100 - used)


def stepped(root: Path, was: Was, clock: Clock, disk: Disk, **others: Any) -> Any:
    """A store whose cleaners are stepped by hand, on a disk of our own."""
    store = opened(root, was, clock, start=False, clean_resource_enable=True, **others)
    assert store._writer is not None
    cleaning = store._writer.cleaning
    cleaning.log_service.watch._ask = disk
    return store, cleaning


def segment_count(root: Path) -> int:
    return len(list((root / "commitlog").iterdir()))


def test_at_the_hours_of_delete_when(tmp_path: Path) -> None:
    root = tmp_path / "store"
    was, end = made(root, "5.5.0")
    zone = datetime.timezone(datetime.timedelta(hours=5, minutes=45))  # Asia/Kathmandu
    day = datetime.datetime(2024, 6, 1, tzinfo=zone)
    clock = Clock()
    options = {"delete_when": "04; 16", "timezone": "Asia/Kathmandu", "delete_file_batch_max": 2}
    store, cleaning = stepped(root, was, clock, Disk(10), **options)
    with store:
        count = segment_count(root)
        for minute, deletes in ((239, 0), (240, 2), (299, 2), (300, 0), (959, 0), (960, 2)):
            moment = day + datetime.timedelta(minutes=minute)
            clock.now = int(moment.timestamp() * 1000)
            assert clock.now > end + 72 * HOUR_MS
            assert cleaning.log_service.run_once() is False
            count -= deletes
            assert segment_count(root) == count, moment
        assert store.min_offset_in_queue("Long", 0) == 0  # the queues follow on their own
        assert cleaning.queue_service.run_once() is False
        assert store.min_offset_in_queue("Long", 0) > 0
        assert store.verify().findings == []


def test_by_the_space_in_use(tmp_path: Path) -> None:
    """75 %: what is old enough goes at any hour; 85 %: whatever its age; 90 %: puts are refused,
    and accepted again when there is room."""
    root = tmp_path / "store"
    was, end = made(root, "5.5.0")
    old = sorted(segment_times(root).values())[1][1]
    clock, disk = Clock(old + 72 * HOUR_MS), Disk(75)
    store, cleaning = stepped(root, was, clock, disk, timezone="UTC", delete_when="")
    with store:
        count = segment_count(root)
        cleaning.log_service.run_once()
        assert segment_count(root) == count
        disk.used = 76
        cleaning.log_service.run_once()
        assert segment_count(root) == count - 2
        cleaning.log_service.run_once()  # nothing else is old enough
        assert segment_count(root) == count - 2
        disk.used = 86
        assert {file.reason for file in store.clean_expired(what_if=True).files} == {
            CleanReason.FORCED,
            CleanReason.FOLLOWS,
        }
        assert store.put("Long", b"x").ok
        disk.used = 91
        cleaning.log_service.run_once()
        assert segment_count(root) <= max(1, count - 12)
        refused = store.put("Long", b"x")
        assert refused.status == PutMessageStatus.SERVICE_NOT_AVAILABLE
        disk.used = 90
        cleaning.log_service.run_once()
        assert store.put("Long", b"x").ok
        assert store.wait_dispatched(120)
    assert end


@pytest.mark.parametrize(
    ("version", "options", "log", "queues", "expected"),
    [
        # is_disk_full, cleans_at_once, is_short
        ("5.5.0", {}, 75, 75, (False, False, False)),
        ("5.5.0", {}, 75, 76, (False, False, True)),
        ("5.5.0", {}, 10, 91, (True, True, True)),
        ("5.5.0", {"disk_space_warning_level_ratio": 99}, 91, 0, (True, True, True)),
        ("5.5.0", {"disk_space_clean_forcibly_ratio": 1}, 30, 0, (False, False, False)),
        ("5.5.0", {"disk_space_clean_forcibly_ratio": 1}, 31, 0, (False, True, True)),
        ("4.9.8", {"disk_space_warning_level_ratio": 99}, 91, 0, (False, True, True)),
        # D-33: the log's disk is full, the queues' is not.
        ("4.9.8", {"disk_max_used_space_ratio": 94}, 92, 10, (True, True, False)),
        ("5.5.0", {"disk_max_used_space_ratio": 94}, 92, 10, (True, True, True)),
        ("4.9.8", {"disk_max_used_space_ratio": 99}, 95, 10, (True, True, False)),
        ("4.9.8", {"disk_max_used_space_ratio": 1}, 11, 10, (False, False, True)),
        ("5.5.0", {"replicas_per_disk_partition": 2}, 80, 10, (False, True, True)),
        ("4.9.8", {"replicas_per_disk_partition": 2}, 70, 10, (False, False, False)),
    ],
)
def test_what_levels_of_disk_use_demand(
    tmp_path: Path,
    version: str,
    options: dict[str, Any],
    log: int,
    queues: int,
    expected: tuple[bool, bool, bool],
) -> None:
    root = tmp_path / "store"
    disk = Disk(log)
    disk.queues_used = queues
    with rocketstore.open(root, "x", start=False, **options_of(version), **options) as store:
        store.put("T", b"x")
        assert store.wait_dispatched(120)
        watch = store._writer.cleaning.log_service.watch  # type: ignore[union-attr]
        watch._ask = disk
        assert tuple(watch.judge())[2:] == expected


def test_on_demand_at_the_next_twenty_looks(tmp_path: Path) -> None:
    root = tmp_path / "store"
    was, end = made(root, "5.5.0")
    clock = Clock(end + 100 * HOUR_MS)
    store, cleaning = stepped(root, was, clock, Disk(10), delete_when="", delete_file_batch_max=1)
    with store:
        count = segment_count(root)
        cleaning.log_service.run_once()
        assert segment_count(root) == count
        store.execute_delete_files_manually()
        for number in range(1, 25):
            cleaning.log_service.run_once()
            assert segment_count(root) == max(1, count - min(number, 20))
    with opened(root, was, clock) as store, pytest.raises(ConfigError, match="clean_resource"):
        store.execute_delete_files_manually()


def test_a_store_asks_the_disk_it_is_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``disk_space`` returns what the system reports; a store uses it."""
    there = shutil.disk_usage(tmp_path)
    asked = disk_space(tmp_path)
    assert asked.total_nbytes == there.total
    assert asked.usable_nbytes == pytest.approx(there.free, abs=there.total // 100)
    monkeypatch.setattr("rocketstore.files.disk_space.disk_space", Disk(97))
    with rocketstore.open(tmp_path / "store", "x", **options_of("5.5.0")) as store:
        store.put("T", b"x")
        assert store.clean_expired(what_if=True).used_ratio == 0.97


def test_a_small_disk_takes_more_than_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the services on their threads: puts are refused while the disk is nearly full, and
    accepted again once the oldest segments have gone."""
    monkeypatch.setattr("rocketstore.cleaning.clean_service.FIRST_LOOK_S", 0.0)
    root, disk_nbytes = tmp_path / "store", 1_000_000

    def ask(_: Path) -> DiskSpace:
        segments = len(list(root.glob("commitlog/*")))
        used = min(segments * 32_768, disk_nbytes)
        return DiskSpace(disk_nbytes, used, disk_nbytes - used)

    options = {**options_of("5.5.0"), "mapped_file_size_commit_log": 32_768}
    with rocketstore.open(
        root, "x", clean_resource_enable=True, clean_resource_interval=5,
        delete_commit_log_files_interval=1, start=False, **options,
    ) as store:  # fmt: skip
        assert store._writer is not None
        store._writer.cleaning.log_service.watch._ask = ask
        for service in store._writer.services:
            service.start()
        deadline = time.monotonic() + 240
        while store.max_physical_offset < 5 * disk_nbytes and time.monotonic() < deadline:
            while ask(root).usable_nbytes == 0 and time.monotonic() < deadline:
                time.sleep(0.001)
            if not store.put("T", b"x" * 1000, 0, None, "k").ok:
                time.sleep(0.001)
        assert store.max_physical_offset >= 5 * disk_nbytes
        assert store.min_physical_offset >= 4 * disk_nbytes - 65_536
        assert store.wait_dispatched(120)
        assert store.verify().findings == []
    check_invariants(root).require()


def test_services_run_only_where_they_are_wanted(tmp_path: Path) -> None:
    config = rocketstore.MessageStoreConfig.from_properties({"fileReservedTime": "48"})
    with rocketstore.open(tmp_path / "a", "x", config=config) as store:
        assert store._writer is not None
        names = [service.name for service in store._writer.services if service.is_running]
        assert {"clean-log", "clean-queues"} <= set(names)
    with rocketstore.open(tmp_path / "b", "x") as store:
        assert store._writer is not None
        assert not store._writer.cleaning.log_service.is_running
        assert not {s.name for s in store._writer.services} & {"clean-log", "clean-queues"}


def test_an_arriving_listener_is_not_waited_for_by_what_it_waits_for(tmp_path: Path) -> None:
    """Cleaning in a listener waited for another thread's, which waited for dispatch, for ever."""
    root = tmp_path / "store"
    was, end = made(root, "5.5.0")
    deleting, arrived, reported = threading.Event(), threading.Event(), threading.Event()
    seen: list[Any] = []

    def listener(*_: Any) -> None:
        arrived.set()
        assert deleting.wait(120)
        for call in (store.clean_expired, store.verify):
            try:
                seen.append(call())
            except BlockingIOError as error:
                seen.append(error.errno)
        if len(seen) == 4:
            reported.set()

    def delete() -> None:
        with store._writer.cleaning.cleaner.lock:
            assert arrived.wait(120)
            deleting.set()
            with store._writer.cleaning.dispatch_paused():
                pass

    clock = Clock(end + 100 * HOUR_MS)
    with opened(root, was, clock, arriving_listener=listener) as store:
        thread = threading.Thread(target=delete, daemon=True)
        thread.start()
        assert store.put("Long", b"x").ok
        thread.join(120)
        assert not thread.is_alive()
        assert seen == [errno.EAGAIN, errno.EAGAIN]
        assert store.put("Long", b"x").ok
        assert reported.wait(120)
        report, verified = seen[2:]
        assert report.files
        assert verified.ok


# --- failures -------------------------------------------------------------------------------------


def test_a_file_that_cannot_be_deleted_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    was, end = made(root, "5.5.0")
    stubborn = sorted((root / "commitlog").iterdir())[2]
    unlink = Path.unlink

    def refuse(path: Path, missing_ok: bool = False) -> None:
        if path == stubborn:
            raise PermissionError(1, "Operation not permitted", str(path))
        unlink(path, missing_ok=missing_ok)

    clock = Clock(end + 100 * HOUR_MS)
    store, cleaning = stepped(
        root, was, clock, Disk(10), delete_when="", redelete_hanged_file_interval=0
    )
    with store:
        with monkeypatch.context() as patched:
            patched.setattr(Path, "unlink", refuse)
            report = store.clean_expired()
            assert len(report.failures) == 1
            assert str(stubborn) in report.failures[0]
            assert report.min_offset == int(stubborn.name)
            assert report.kept == f"{stubborn.name} could not be deleted"
            assert stubborn.exists()
            assert_is_what_is_left(store, was, int(stubborn.name))
            cleaning.log_service.run_once()
            assert stubborn.exists()
        cleaning.log_service.run_once()  # at no hour that was named
        assert not stubborn.exists()
        assert cleaning.cleaner.failures == {}


def test_a_full_disk_does_not_keep_what_would_make_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """State and checkpoint cannot be written: what they allowed to go before goes all the same."""
    root = tmp_path / "store"
    was, end = made(root, "5.5.0")
    with opened(root, was, Clock(end + 100 * HOUR_MS)) as store:

        def full(*_: Any, **__: Any) -> None:
            raise rocketstore.StoreFullError(28, "no room")

        with monkeypatch.context() as patched:
            patched.setattr("rocketstore.directory.state.write_file", full)
            report = store.clean_expired()
            assert sum(file.kind == "commitlog" for file in report.files) > 3
        assert store.put("Long", b"x").ok
    check_invariants(root).require()


@pytest.mark.parametrize("code", [errno.EIO, errno.EMFILE])
@pytest.mark.parametrize("folder", ["commitlog", "index"])
def test_a_folder_that_cannot_be_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, folder: str
) -> None:
    """Then it is unknown which names are on disk: the store's writing ends. Too many open files say
    nothing about the disk."""
    root = tmp_path / "store"
    was, end = made(root, "5.5.0")
    clock = Clock(end + 100 * HOUR_MS)
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(opened(root, was, clock))

        def refuse(path: Path) -> None:
            if path.name == folder:
                raise OSError(code, os.strerror(code), str(path))
            sync_directory(path)

        for module in ("files.mapped_file_queue", "cleaning.cleaner"):
            monkeypatch.setattr(f"rocketstore.{module}.sync_directory", refuse)
        if code == errno.EIO:
            stack.pop_all()
            with pytest.raises(OSError, match="Input/output"):
                store.clean_expired()
            with pytest.raises(rocketstore.ServiceFailedError):
                store.put("Long", b"x")
            with pytest.raises(rocketstore.ServiceFailedError):
                store.close()
        else:
            assert store.clean_expired().min_offset > 0
            monkeypatch.undo()
            store.clean_expired()
            assert store.put("Long", b"x").ok
    monkeypatch.undo()
    with opened(root, was, clock) as store:
        assert store.recovery_report.damaged == []
        assert store.verify().findings == []
    check_invariants(root).require()


def test_ext_files_follow_their_queue(tmp_path: Path) -> None:
    """Cleaning deletes files to which no unit in the queue's files refers, expired units included:
    opening a store reads these, too."""
    root, clock = tmp_path / "store", Clock()
    options = {
        **options_of("5.5.0"),
        "enable_consume_queue_ext": True,
        "mapped_file_size_consume_queue_ext": 200,
    }
    with rocketstore.open(root, "x", clock=clock, **options) as store:
        for number in range(150):
            store.put("T", b"x" * 50, 0, f"tag{number % 2}", f"k{number}")
            clock.now += 1000
        assert store.wait_dispatched(120)
        store.flush()
        clock.now += 100 * HOUR_MS
        planned = store.clean_expired(what_if=True)
        done = store.clean_expired()
        assert done.files == planned.files
        gone = {Path(file.path) for file in done.files if file.kind == "consumequeue_ext"}
        assert len(gone) > 5
        assert not any(path.exists() for path in gone)
    for mode in ("r", "r+", "r"):
        with rocketstore.open(root, mode, clock=clock, **options) as store:
            assert store.recovery_report.notes == []
            first = store.min_offset_in_queue("T", 0)
            assert store.max_offset_in_queue("T", 0) == 150
            assert first == 150 - len(list(store.scan()))
            found = store.get_message("g", "T", 0, first, filter=rocketstore.TagFilter("tag1"))
            assert [m.tags for m in found.messages] == ["tag1"] * len(found.messages)
            assert found.messages
            assert store.verify().findings == []
    check_invariants(root).require()
