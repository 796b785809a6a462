"""Disks that are full, syncs that fail, recoveries that are killed: nothing is lost or believed
twice."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from crash.killing import Acknowledged, KillMoment, check_store, run_and_kill
from rocketstore import kernels
from rocketstore.directory.checkpoint import signed_crc
from rocketstore.directory.state import StoreState
from rocketstore.errors import ServiceFailedError, StoreFullError
from rocketstore.files import durable as durable_file
from rocketstore.files.mapped_file import MappedFile
from rocketstore.services.service_thread import ServiceThread
from rocketstore.testing import check_invariants
from support.own_process import run_python
from support.syncs import LONG_S, HeldSyncs, sync_by_calls

OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": 16 * 1024,
    "mapped_file_size_consume_queue": 400,
    "max_hash_slot_num": 40,
    "max_index_num": 50,
}


def put_some(store: rocketstore.DefaultMessageStore, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        assert store.put("T", b"body %d" % number, number % 3, "Tag", f"k{number}").ok


def put_until_refused(store: rocketstore.DefaultMessageStore, stored: int) -> tuple[int, OSError]:
    """Put from message number ``stored`` on; return how many are stored, and the error."""
    while True:
        try:
            put_some(store, 1, stored)
        except OSError as error:
            return stored, error
        stored += 1


def check_all(store: rocketstore.DefaultMessageStore, count: int) -> None:
    """Exactly the messages 0 .. count - 1, in the log, in their queues and under their keys."""
    assert [m.body for m in store.scan()] == [b"body %d" % number for number in range(count)]
    for queue_id in range(3):
        wanted = list(range(queue_id, count, 3))
        assert store.max_offset_in_queue("T", queue_id) == len(wanted)
        offset, bodies = 0, []
        while offset < len(wanted):
            result = store.get_message("g", "T", queue_id, offset)
            assert result.next_begin_offset > offset
            offset = result.next_begin_offset
            bodies += [m.body for m in result.messages]
        assert bodies == [b"body %d" % number for number in wanted]
    for number in range(count):
        assert len(list(store.find(topic="T", key=f"k{number}"))) == 1
    verified = store.verify()
    assert verified.ok, verified.findings[:5]
    check_invariants(store.path, clock_steps=True, reopen=False).require()


@contextmanager
def full_disk(applies: Callable[[Path], bool]) -> Iterator[list[Path]]:
    """No blocks for files to which it ``applies``; yields those that asked."""
    asked: list[Path] = []
    reserve = durable_file.reserve_blocks

    def refuse(fd: int, position: int, length: int, path: Path, *, used: int) -> None:
        if applies(path):
            asked.append(path)
            raise StoreFullError(errno.ENOSPC, f"no room for {path}")
        reserve(fd, position, length, path, used=used)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(durable_file, "reserve_blocks", refuse)
        patch.setattr("rocketstore.files.mapped_file.reserve_blocks", refuse)
        yield asked


def no_room_for(folder: str) -> Callable[[Path], bool]:
    return lambda path: folder in path.parts


# --- full disks -------------------------------------------------------------------------------


@pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
@pytest.mark.parametrize("start", [True, False])
def test_g01_no_room_for_a_segment(flush_disk_type: str, start: bool, tmp_path: Path) -> None:
    with rocketstore.open(
        tmp_path / "s", "x", flush_disk_type=flush_disk_type, start=start, **OPTIONS
    ) as store:
        with full_disk(no_room_for("commitlog")), pytest.raises(StoreFullError):
            put_some(store, 1)
        put_some(store, 100)
        with full_disk(no_room_for("commitlog")):
            stored, error = put_until_refused(store, 100)
            assert isinstance(error, StoreFullError)
            with pytest.raises(StoreFullError):
                put_some(store, 1, stored)
        put_some(store, 200, stored)
        assert store.wait_dispatched(LONG_S)
        check_all(store, stored + 200)
    with rocketstore.open(tmp_path / "s", "r+") as store:
        assert store.recovery_report.clean
        check_all(store, stored + 200)


@pytest.mark.parametrize("folder", ["consumequeue", "index"])
@pytest.mark.parametrize("start", [True, False])
def test_no_room_for_queues_or_index(folder: str, start: bool, tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "s", "x", start=start, **OPTIONS) as store:
        put_some(store, 70)
        assert store.wait_dispatched(LONG_S)
        with full_disk(no_room_for(folder)) as asked:
            put_some(store, 100, 70)
            assert not store.wait_dispatched(0.4)
            with pytest.raises(StoreFullError):
                store.wait_dispatched()
            assert asked
            store.flush()
        assert store.wait_dispatched(LONG_S)
        check_all(store, 170)
        put_some(store, 30, 170)
    with rocketstore.open(tmp_path / "s", "r+") as store:
        assert store.recovery_report.clean
        check_all(store, 200)


def test_closing_while_there_is_no_room_for_queues(tmp_path: Path) -> None:
    store = rocketstore.open(tmp_path / "s", "x", **OPTIONS)
    put_some(store, 10)
    assert store.wait_dispatched(LONG_S)
    with full_disk(no_room_for("consumequeue")):
        put_some(store, 100, 10)
        store.close()
    assert (tmp_path / "s" / "abort").exists()
    with full_disk(no_room_for("consumequeue")), pytest.raises(StoreFullError):
        rocketstore.open(tmp_path / "s", "r+")
    with rocketstore.open(tmp_path / "s", "r+") as store:
        check_all(store, 110)


def test_no_room_for_the_marks_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with rocketstore.open(tmp_path / "s", "x", start=False, **OPTIONS) as store:
        put_some(store, 10)

        def refuse(path: Path, content: bytes) -> None:
            raise StoreFullError(errno.ENOSPC, f"no room for {path}")

        with monkeypatch.context() as patch:
            patch.setattr("rocketstore.directory.state.write_file", refuse)
            with pytest.raises(StoreFullError):
                store.flush()
        put_some(store, 10, 10)
        store.flush()
        store.wait_dispatched()
        check_all(store, 20)


@pytest.mark.parametrize("missed", ["directory.state", "directory.checkpoint"])
def test_the_state_file_names_the_checkpoint_before_it(
    missed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A state file or checkpoint found no space. The next state file then named a checkpoint that
    had never been written as the one before it, and a kill right after it made it void."""
    root = tmp_path / "s"
    written: list[Path] = []

    def refuse(path: Path, content: bytes) -> None:
        written.append(path)
        raise StoreFullError(errno.ENOSPC, f"no room for {path}")

    with rocketstore.open(root, "x", start=False, **OPTIONS) as store:
        for count, module in enumerate((missed, "directory.checkpoint")):
            put_some(store, 10, 10 * count)
            store.wait_dispatched()
            with monkeypatch.context() as patch:
                patch.setattr(f"rocketstore.{module}.write_file", refuse)
                with pytest.raises(StoreFullError):
                    store.flush()
        assert written[-1].name == "checkpoint"
        state = StoreState.read(root / "rocketstore.state", root)
        assert state is not None
        assert state.flushed_offset == store.flushed_offset
        assert state.belongs_to(signed_crc((root / "checkpoint").read_bytes()))


def test_put_does_not_wait_for_ever_for_dispatch_that_has_no_room(tmp_path: Path) -> None:
    """Under a 5.4 dialect a put waits when dispatch lags more than nine segments."""
    with rocketstore.open(tmp_path / "s", "x", broker_version="5.5.0", **OPTIONS) as store:
        with full_disk(no_room_for("consumequeue")):
            stored, error = put_until_refused(store, 0)
            assert isinstance(error, StoreFullError)
            assert stored < 20 * 16 * 1024 // 91
        put_some(store, 10, stored)
        assert store.wait_dispatched(LONG_S)
        check_all(store, stored + 10)


def test_g06_segment_that_cannot_be_mapped_leaves_no_hole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file was in the list already when mapping it failed: the next put began one more."""
    with rocketstore.open(tmp_path / "s", "x", start=False, **OPTIONS) as store:
        put_some(store, 10)

        def fail(file: MappedFile) -> None:
            raise OSError(errno.EMFILE, "too many open files")

        with monkeypatch.context() as patch:
            patch.setattr(MappedFile, "keep_descriptor", fail)
            stored, error = put_until_refused(store, 10)
            assert error.errno == errno.EMFILE
            with pytest.raises(OSError, match="too many open files"):
                put_some(store, 1, stored)
        put_some(store, 100, stored)
        store.wait_dispatched()
        check_all(store, stored + 100)


def test_g05_file_system_without_reservation_keeps_what_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zeros stand in for reserved blocks; they were written over the records of a log that was
    opened again."""
    monkeypatch.setattr(kernels.mapping, "allocate", lambda fd, position, length: False)
    for count in (0, 40, 80, 120):
        with rocketstore.open(tmp_path / "s", "a", start=False, **OPTIONS) as store:
            check_all(store, count)
            put_some(store, 40, count)
            store.wait_dispatched()
            check_all(store, count + 40)


FILL_DISK = """
import sys
import rocketstore
from rocketstore import StoreFullError

with rocketstore.open(sys.argv[1], "x", mapped_file_size_commit_log=1 << 20) as store:
    count = full = 0
    while full < 3:
        try:
            count += store.put("T", b"x" * 10, count % 2, "Tag", f"k{count}").ok
        except StoreFullError:
            full += 1
    print(count)
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 40 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=40m", "none", str(place)],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip("no right to mount a small file system")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mounts a tmpfs")
def test_g02_full_disk_kills_no_process(small_disk: Path) -> None:
    """Stores into a hole of a sparse file on a full disk are SIGBUS."""
    done = run_python(FILL_DISK, str(small_disk / "s"))
    assert done.returncode in (0, 1), done.stderr
    assert done.returncode == 0 or "StoreFullError" in done.stderr
    with rocketstore.open(small_disk / "s") as store:
        assert sum(1 for _ in store.scan()) == int(done.stdout)


@pytest.mark.parametrize("count", range(4))
def test_no_thread_for_a_service(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store could not be opened then, and not once more in the same process: the lock was
    kept, and the services that had started."""
    root = tmp_path / "s"
    start, started = ServiceThread.start, []

    def refuse(service: ServiceThread) -> None:
        if len(started) == count:
            raise RuntimeError("can't start new thread")
        start(service)
        started.append(service)

    with monkeypatch.context() as patch:
        patch.setattr(ServiceThread, "start", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            rocketstore.open(root, "x", **OPTIONS)
    assert len(started) == count
    assert not any(service.is_running for service in started)
    with rocketstore.open(root, "r+") as store:
        assert store.recovery_report.clean
        put_some(store, 10)
        assert store.wait_dispatched(120)
        check_all(store, 10)


# --- syncs that fail --------------------------------------------------------------------------


class FailingSync:
    """Lets one sync of a file fail with EIO, and all later ones succeed, as systems do."""

    def __init__(self, patch: pytest.MonkeyPatch, applies: Callable[[Path], bool]) -> None:
        self.count = 0
        self.armed = False
        flush = MappedFile.flush

        def fail_once(file: MappedFile, position: int) -> None:
            if self.armed and applies(file.path) and position > file.flushed_position:
                self.count += 1
                self.armed = False
                raise OSError(errno.EIO, "input/output error")
            flush(file, position)

        sync_by_calls(patch)
        patch.setattr(MappedFile, "flush", fail_once)


@pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
@pytest.mark.parametrize("folder", ["commitlog", "consumequeue", "index"])
@pytest.mark.parametrize("start", [True, False])
def test_g03_first_failed_sync_is_final(
    flush_disk_type: str,
    folder: str,
    start: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sync = FailingSync(monkeypatch, no_room_for(folder))
    root = tmp_path / "s"
    store = rocketstore.open(root, "x", flush_disk_type=flush_disk_type, start=start, **OPTIONS)
    put_some(store, 30)
    assert store.wait_dispatched(LONG_S)
    store.flush()
    state, flushed = (root / "rocketstore.state").read_bytes(), store.flushed_offset
    sync.armed = True

    def write_more() -> None:
        put_some(store, 10, 30)
        store.wait_dispatched(LONG_S)
        store.flush()

    with pytest.raises((ServiceFailedError, OSError)):
        write_more()
    assert sync.count == 1
    for _ in range(2):
        with pytest.raises(ServiceFailedError):
            store.put("T", b"late")
        with pytest.raises(ServiceFailedError):
            store.flush()
    if folder == "commitlog":
        assert store.flushed_offset == flushed
    assert (root / "rocketstore.state").read_bytes() == state
    assert store.look_message_by_offset(0) is not None
    assert len(store.get_message("g", "T", 0, 0).messages) >= 10
    with pytest.raises(ServiceFailedError):
        store.close()
    assert (root / "abort").exists()
    assert (root / "rocketstore.state").read_bytes() == state
    with rocketstore.open(root, "r+") as store:
        assert not store.recovery_report.clean
        count = sum(1 for _ in store.scan())
        assert 30 <= count <= 40
        check_all(store, count)


def test_all_waiting_puts_hear_of_a_failed_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = FailingSync(monkeypatch, no_room_for("commitlog"))
    held = HeldSyncs(monkeypatch)
    store = rocketstore.open(
        tmp_path / "s",
        "x",
        flush_disk_type="SYNC_FLUSH",
        sync_flush_timeout=1000 * int(LONG_S),
        **OPTIONS,
    )
    put_some(store, 5)
    outcomes: list[object] = []

    def put_until_it_fails() -> None:
        try:
            while True:
                assert store.put("T", b"x").ok
        except Exception as error:  # noqa: BLE001 - compared below
            outcomes.append(type(error))

    putters = [threading.Thread(target=put_until_it_fails) for _ in range(6)]
    with held.held():
        for putter in putters:
            putter.start()
        deadline = time.monotonic() + LONG_S
        while len(store._writing().flushed.waiting) < len(putters):
            assert time.monotonic() < deadline
            time.sleep(0.001)
        sync.armed = True
    for putter in putters:
        putter.join(LONG_S)
        assert not putter.is_alive()
    assert outcomes == [ServiceFailedError] * 6
    with pytest.raises(ServiceFailedError):
        store.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("rocketstore-")]


@pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_a_sync_after_which_nothing_is_readable_has_failed(
    flush_disk_type: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ext4 and xfs that are shut down meanwhile may report the success of a sync whose journal they
    never wrote, and fail all reads from then on."""
    sync_by_calls(monkeypatch)
    store = rocketstore.open(tmp_path / "s", "x", flush_disk_type=flush_disk_type, **OPTIONS)
    put_some(store, 5)
    store.flush()
    flushed = store.flushed_offset

    pread = os.pread

    def refuse(fd: int, nbytes: int, position: int) -> bytes:
        if "/commitlog/" in os.readlink(f"/proc/self/fd/{fd}"):
            raise OSError(errno.EIO, "input/output error")
        return pread(fd, nbytes, position)

    def put_and_flush() -> None:
        put_some(store, 1, 5)
        store.flush()

    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", refuse)
        with pytest.raises((ServiceFailedError, OSError)):
            put_and_flush()
    assert store.flushed_offset == flushed
    with pytest.raises(ServiceFailedError):
        store.put("T", b"late")
    with pytest.raises(ServiceFailedError):
        store.close()


@pytest.mark.parametrize("start", [True, False])
def test_g04_failed_directory_sync_of_a_new_segment_is_final(
    start: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "s"
    store = rocketstore.open(root, "x", start=start, **OPTIONS)
    put_some(store, 10)
    sync_directory = durable_file.sync_directory
    failed = []

    def fail(path: Path) -> None:
        if path.name == "commitlog" and not failed:
            failed.append(path)
            raise OSError(errno.EIO, "input/output error")
        sync_directory(path)

    monkeypatch.setattr(durable_file, "sync_directory", fail)
    stored = 10
    with contextlib.suppress(OSError, ServiceFailedError):
        for stored in range(10, 1000):
            put_some(store, 1, stored)
    assert failed
    for _ in range(2):
        with pytest.raises(ServiceFailedError):
            store.put("T", b"late")
    with pytest.raises(ServiceFailedError):
        store.close()
    with rocketstore.open(root, "r+") as store:
        check_all(store, stored)
        put_some(store, 300, stored)
        assert store.wait_dispatched(LONG_S)
        check_all(store, stored + 300)


# --- kills ------------------------------------------------------------------------------------


def test_g10_recovery_killed_again_and_again(tmp_path: Path) -> None:
    choose = random.Random(8)
    root, acknowledged = tmp_path / "store", Acknowledged()
    for round_number in range(4):
        moment = KillMoment(True, 0.05)
        output = run_and_kill(root, "ASYNC_FLUSH", round_number, moment, least_rows=1)
        acknowledged.take(output)
        for number in range(5):
            moment = KillMoment(False, 0.05 + choose.random() * 0.25)
            seed = 100 + 5 * round_number + number
            acknowledged.take(run_and_kill(root, "ASYNC_FLUSH", seed, moment))
    assert acknowledged.rows
    check_store(root, acknowledged)
