"""The transient store pool: what is seen before and after a commit, buffers, full and failing
disks."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.config import MessageStoreConfig
from rocketstore.dialect import Dialect
from rocketstore.errors import ConfigError, ServiceFailedError, StoreFullError
from rocketstore.files import mapped_file
from rocketstore.flush.commit_real_time import CommitRealTimeService
from rocketstore.log.transient_store_pool import is_pool_effective
from rocketstore.status import PutMessageStatus
from rocketstore.testing import check_invariants
from support.directory import files_below
from support.own_process import run_python

OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": 16 * 1024,
    "mapped_file_size_consume_queue": 400,
    "max_hash_slot_num": 40,
    "max_index_num": 200,
    "timezone": "UTC",
}


def open_pooled(root: Path, **options: Any) -> rocketstore.DefaultMessageStore:
    """A store with a pool whose services are stepped by hand unless ``start`` is given."""
    settings = {**OPTIONS, "transient_store_pool_enable": True, "start": False, **options}
    return rocketstore.open(root, "a", **settings)


def put_some(
    store: rocketstore.DefaultMessageStore, count: int, first: int = 0
) -> list[tuple[int, bytes]]:
    """Put messages of mixed lengths; their physical offsets and bodies."""
    rows = []
    for number in range(first, first + count):
        body = b"%d:" % number + b"x" * (number * 37 % 900)
        result = store.put("T", body, number % 3, keys=f"k{number}")
        assert result.ok
        rows.append((result.physical_offset, body))
    return rows


def put_until_refused(
    store: rocketstore.DefaultMessageStore, rows: list[tuple[int, bytes]]
) -> list[tuple[int, bytes]]:
    """Put on until the disk is said to be full; all that was stored."""
    with contextlib.suppress(StoreFullError):
        for _ in range(10_000):
            rows = rows + put_some(store, 1, len(rows))
        raise AssertionError("no put was refused")
    return rows


def check_all(root: Path, rows: list[tuple[int, bytes]]) -> None:
    """Exactly these messages are in the log, in queues and under keys."""
    with rocketstore.open(root) as store:
        assert [(m.physical_offset, m.body) for m in store.scan()] == rows
        for number in range(len(rows)):
            assert len(list(store.find(topic="T", key=f"k{number}"))) == 1
        verified = store.verify()
        assert verified.ok, verified.findings[:5]
    check_invariants(root, clock_steps=True, reopen=False).require()


# --- When there is a pool -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "flush_disk_type", "role", "effective"),
    [
        ("4.9.8", "ASYNC_FLUSH", "ASYNC_MASTER", True),
        ("4.9.8", "SYNC_FLUSH", "ASYNC_MASTER", False),
        ("5.0.0", "SYNC_FLUSH", "SYNC_MASTER", True),
        ("5.5.0", "ASYNC_FLUSH", "ASYNC_MASTER", True),
        ("5.5.0", "ASYNC_FLUSH", "SLAVE", False),
        ("4.9.8", "ASYNC_FLUSH", "SLAVE", False),
    ],
)
def test_the_version_decides_when_the_pool_is_used(
    version: str, flush_disk_type: str, role: str, effective: bool
) -> None:
    config = MessageStoreConfig(
        transient_store_pool_enable=True, flush_disk_type=flush_disk_type, broker_role=role
    )
    dialect = Dialect.for_version(version)
    assert is_pool_effective(config, dialect) == effective
    assert not is_pool_effective(config.replace(transient_store_pool_enable=False), dialect)


def test_options_of_a_broker_file() -> None:
    config = MessageStoreConfig.from_properties(
        {
            "transientStorePoolEnable": "true",
            "transientStorePoolSize": "3",
            "fastFailIfNoBufferInStorePool": "true",
            "commitIntervalCommitLog": "50",
            "commitCommitLogLeastPages": "2",
            "commitCommitLogThoroughInterval": "70",
            "warmMapedFileEnable": "true",
            "flushLeastPagesWhenWarmMapedFile": "16",
        }
    )
    assert (config.transient_store_pool_enable, config.transient_store_pool_size) == (True, 3)
    assert config.fast_fail_if_no_buffer_in_store_pool
    assert (config.commit_interval_commit_log, config.commit_commit_log_least_pages) == (50, 2)
    assert config.commit_commit_log_thorough_interval == 70
    assert config.warm_maped_file_enable
    assert config.flush_least_pages_when_warm_maped_file == 16
    with pytest.raises(ConfigError, match="transient_store_pool_size is 0"):
        config.replace(transient_store_pool_size=0)


# --- What is seen ---------------------------------------------------------------------------------


def test_a_message_is_invisible_before_it_is_committed(tmp_path: Path) -> None:
    with open_pooled(tmp_path / "store") as store:
        writer = store._writer
        assert writer is not None
        result = store.put("T", b"body", keys="k")
        assert (result.status, result.physical_offset) == (PutMessageStatus.PUT_OK, 0)
        assert writer.log.wrote_offset == result.nbytes
        writer.reput.drain()
        writer.flush_log.step()
        assert (store.max_physical_offset, store.flushed_offset) == (0, 0)
        assert store.look_message_by_offset(0) is None
        assert list(store.scan()) == []
        assert store.topics() == []
        assert (tmp_path / "store/commitlog/00000000000000000000").read_bytes().strip(b"\0") == b""
        assert writer.log.commit() == store.max_physical_offset == result.nbytes
        writer.reput.drain()
        assert [m.body for m in store.get_message("g", "T", 0, 0).messages] == [b"body"]
        assert [m.body for m in store.find(topic="T", key="k")] == [b"body"]


def test_flush_commits(tmp_path: Path) -> None:
    with open_pooled(tmp_path / "store") as store:
        rows = put_some(store, 100)
        assert store.flush() == store.max_physical_offset > rows[-1][0]


def test_waiting_for_dispatch_commits(tmp_path: Path) -> None:
    with open_pooled(tmp_path / "store", start=True, commit_interval_commit_log=60_000) as store:
        put_some(store, 100)
        assert store.wait_dispatched(120)
        assert store.max_offset_in_queue("T", 0) == 34


def test_closing_commits(tmp_path: Path) -> None:
    with open_pooled(tmp_path / "store", start=True, commit_interval_commit_log=60_000) as store:
        rows = put_some(store, 100)
    check_all(tmp_path / "store", rows)
    assert not (tmp_path / "store/abort").exists()


def test_a_synchronous_put_is_committed_and_synced(tmp_path: Path) -> None:
    with open_pooled(tmp_path / "store", start=True, flush_disk_type="SYNC_FLUSH") as store:
        for offset, body in put_some(store, 50):
            assert store.flushed_offset > offset
            message = store.look_message_by_offset(offset)
            assert message is not None
            assert message.body == body


def test_the_service_commits_pages_at_once_and_the_rest_in_time(tmp_path: Path) -> None:
    with open_pooled(
        tmp_path / "store",
        mapped_file_size_commit_log=1024 * 1024,
        commit_commit_log_thorough_interval=10**9,
    ) as store:
        writer = store._writer
        assert writer is not None
        service = next(s for s in writer.services if isinstance(s, CommitRealTimeService))
        store.put("T", bytes(3 * 4096))
        assert not service.run_once()
        assert store.max_physical_offset == 0
        store.put("T", bytes(4096))
        assert service.run_once()
        assert store.max_physical_offset == writer.log.wrote_offset
        assert not service.run_once()
        store.put("T", b"")
        assert not service.run_once()
        service._thorough_s = 0
        assert service.run_once()
        assert store.max_physical_offset == writer.log.wrote_offset


# --- The same bytes -------------------------------------------------------------------------------

PROGRAM = """
import random, sys
import rocketstore

root, pooled, kind, version = sys.argv[1:]
chance, ticks = random.Random(7), iter(range(1_700_000_000_000, 1_800_000_000_000))
with rocketstore.open(
    root, "a", clock=lambda: next(ticks), start=False, broker_version=version,
    mapped_file_size_commit_log=16 * 1024, mapped_file_size_consume_queue=400,
    max_hash_slot_num=40, max_index_num=200, timezone="UTC", flush_disk_type=kind,
    transient_store_pool_enable=pooled == "pool", transient_store_pool_size=2,
) as store:
    for number in range(400):
        body = chance.randbytes(chance.choice((0, 10, 300, 3000)))
        assert store.put("T", body, number % 4, "Tag", f"k{number}").ok
        if chance.random() < 0.1:
            store._writer.log.commit()
        if chance.random() < 0.05:
            store.flush()
"""


@pytest.mark.parametrize("body", ["native", "reference"])
@pytest.mark.parametrize(
    ("version", "kind"),
    [("4.9.8", "ASYNC_FLUSH"), ("5.5.0", "ASYNC_FLUSH"), ("5.5.0", "SYNC_FLUSH")],
)
def test_the_bytes_are_those_of_a_store_without_a_pool(
    tmp_path: Path, version: str, kind: str, body: str
) -> None:
    """Buffers are used again and again here: nothing of their former use gets into a file."""
    files = []
    for name in ("pool", "none"):
        root = tmp_path / name
        done = run_python(PROGRAM, str(root), name, kind, version, ROCKETSTORE_KERNELS=body)
        assert (done.stderr, done.returncode) == ("", 0)
        files.append(
            {p: c for p, c in files_below(root).items() if p.startswith(("commitlog", "consumeq"))}
        )
    assert files[0] == files[1]
    assert len(files[0]) > 20


# --- Buffers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_put_commits_when_no_buffer_is_left(tmp_path: Path, size: int) -> None:
    root = tmp_path / "store"
    with open_pooled(root, transient_store_pool_size=size) as store:
        rows = put_some(store, 300)
        writer = store._writer
        assert writer is not None
        assert writer.log.pool is not None
        assert len(writer.log.queue.files) > size + 3
        assert len(writer.log.pool._buffers) == size
    check_all(root, rows)


def test_a_store_goes_on_in_the_middle_of_a_segment(tmp_path: Path) -> None:
    root, rows = tmp_path / "store", []
    for step in range(6):
        with open_pooled(root, transient_store_pool_enable=step % 2 == 0) as store:
            rows += put_some(store, 17, len(rows))
    check_all(root, rows)


def test_failing_fast_without_a_buffer(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_pooled(
        root, transient_store_pool_size=2, fast_fail_if_no_buffer_in_store_pool=True
    ) as store:
        rows = []
        while True:
            body = b"%d:" % len(rows) + bytes(500)
            result = store.put("T", body, keys=f"k{len(rows)}")
            if not result.ok:
                break
            rows.append((result.physical_offset, body))
        assert result.status == PutMessageStatus.CREATE_MAPPED_FILE_FAILED
        assert (result.appended, result.append_status) == (False, None)
        writer = store._writer
        assert writer is not None
        assert writer.log.pool is not None
        assert writer.log.pool.available_buffer_nums == 0
        assert writer.log.appender.failed_times == 1
        many = store.put_many([rocketstore.Message("T", b"")] * 3)
        assert {one.status for one in many} == {PutMessageStatus.CREATE_MAPPED_FILE_FAILED}
        writer.log.commit()
        assert writer.log.pool.available_buffer_nums == 2
        rows.append((store.put("T", b"last", keys=f"k{len(rows)}").physical_offset, b"last"))
    check_all(root, rows)


def test_a_clean_buffer_is_made_ready_ahead(tmp_path: Path) -> None:
    with open_pooled(tmp_path / "store", transient_store_pool_size=2) as store:
        writer = store._writer
        assert writer is not None
        log = writer.log
        assert log.pool is not None
        put_some(store, 1)
        while log.appender.write_position < log.segment_size * 3 // 4:
            assert len(log.pool._buffers) == 1
            store.put("T", bytes(300))
        assert log.prepare_next()  # the segment
        assert log.prepare_next()
        assert not log.prepare_next()
        assert [buffer.used for buffer in log.pool._buffers] == [0, 0]
        while len(log.queue.files) < 2:
            store.put("T", bytes(300))
        log.commit()
        # The first segment's buffer has its bytes until it is needed.
        assert [buffer.used for buffer in log.pool._buffers] == [log.segment_size, 0]
        while log.appender.write_position < log.segment_size * 3 // 4:
            store.put("T", bytes(300))
        assert log.prepare_next()
        assert log.prepare_next()
        assert not log.prepare_next()
        assert [buffer.used for buffer in log.pool._buffers] == [0, 0]


@pytest.mark.parametrize("fast_fail", [False, True])
def test_many_threads_roll_and_commit_at_once(tmp_path: Path, fast_fail: bool) -> None:
    root = tmp_path / "store"
    stored: list[tuple[int, bytes]] = []
    failures: list[BaseException] = []

    def run(store: rocketstore.DefaultMessageStore, number: int) -> None:
        chance = random.Random(number)
        try:
            for count in range(150):
                body = b"%d-%d:" % (number, count) + bytes(chance.randrange(2000))
                while not (result := store.put("T", body, number)).ok:
                    assert result.status == PutMessageStatus.CREATE_MAPPED_FILE_FAILED
                stored.append((result.physical_offset, body))
        except BaseException as error:  # reported below
            failures.append(error)
            raise

    with open_pooled(
        root, start=True, transient_store_pool_size=2, commit_interval_commit_log=1,
        fast_fail_if_no_buffer_in_store_pool=fast_fail,
    ) as store:  # fmt: skip
        threads = [threading.Thread(target=run, args=(store, number)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert not failures
    with rocketstore.open(root) as store:
        assert [(m.physical_offset, m.body) for m in store.scan()] == sorted(stored)
        assert store.verify().ok


# --- Disks that are full or fail ------------------------------------------------------------------


class FailingDisk:
    """``os.pwrite`` that writes half of what it is given, then fails with ``code``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
        self._pwrite: Callable[..., int] = os.pwrite
        self._code = code
        self.fails = False
        monkeypatch.setattr(mapped_file.os, "pwrite", self)

    def __call__(self, fd: int, content: memoryview, position: int) -> int:
        if not self.fails:
            return self._pwrite(fd, content, position)
        if len(content) > 1:
            return self._pwrite(fd, content[: len(content) // 2], position)
        raise OSError(self._code, os.strerror(self._code))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
@pytest.mark.parametrize("size", [1, 3])
def test_a_commit_without_room_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, size: int
) -> None:
    root, disk = tmp_path / "store", FailingDisk(monkeypatch, code)
    with open_pooled(root, transient_store_pool_size=size) as store:
        writer = store._writer
        assert writer is not None
        rows = put_some(store, 5)
        store.flush()
        end = store.max_physical_offset
        rows += put_some(store, 5, 5)
        disk.fails = True
        with pytest.raises(StoreFullError, match="commitlog"):
            store.flush()
        for service in writer.services:
            service.step()
        # Readers see what was committed before, and nothing of the half that was copied since.
        assert (store.max_physical_offset, store.flushed_offset) == (end, end)
        assert [m.body for m in store.scan()] == [body for _, body in rows[:5]]
        rows = put_until_refused(store, rows)  # once all buffers are full, puts are refused
        assert writer.failure is None
        disk.fails = False
        rows += put_some(store, 40, len(rows))
    check_all(root, rows)


def test_a_synchronous_put_is_no_success_while_its_commit_has_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, disk = tmp_path / "store", FailingDisk(monkeypatch, errno.ENOSPC)
    with open_pooled(
        root, start=True, flush_disk_type="SYNC_FLUSH", sync_flush_timeout=50
    ) as store:
        disk.fails = True
        result = store.put("T", b"body")
        assert (result.status, result.ok) == (PutMessageStatus.FLUSH_DISK_TIMEOUT, False)
        assert store.max_physical_offset == 0
        disk.fails = False
        assert store.put("T", b"next").physical_offset == result.nbytes
        assert store.flush() == store.max_physical_offset == 2 * result.nbytes


def test_a_commit_that_fails_otherwise_is_final(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, disk = tmp_path / "store", FailingDisk(monkeypatch, errno.EIO)
    store = open_pooled(root)
    rows = put_some(store, 5)
    store.flush()
    put_some(store, 5, 5)
    disk.fails = True
    with pytest.raises(OSError, match="Input/output error"):
        store.flush()
    disk.fails = False
    with pytest.raises(ServiceFailedError, match="Input/output error"):
        store.put("T", b"")
    with pytest.raises(ServiceFailedError):
        store.flush()
    with pytest.raises(ServiceFailedError):
        store.close()
    assert (root / "abort").exists()
    with rocketstore.open(root, "r+") as store:
        assert [m.body for m in store.scan()][: len(rows)] == [body for _, body in rows]
