"""Syncing without Python: puts go to one segment, and the thread that syncs follows them."""

from __future__ import annotations

import errno
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import kernels
from rocketstore.errors import ServiceFailedError
from rocketstore.files.mapped_file import MappedFile
from rocketstore.log.writable_commit_log import SyncTarget
from support.kernel_bodies import Bodies
from support.syncs import LONG_S

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="stores are only read there")
NATIVE_ONLY = pytest.mark.skipif(
    kernels.name == "reference", reason="the reference body syncs by calls of MappedFile.flush"
)
SEGMENT_NBYTES = 1 << 20


@pytest.fixture
def store(tmp_path: Path) -> Iterator[rocketstore.DefaultMessageStore]:
    """A log whose services are stepped by hand."""
    with rocketstore.open(
        tmp_path / "s",
        "x",
        flush_disk_type="SYNC_FLUSH",
        mapped_file_size_commit_log=SEGMENT_NBYTES,
        start=False,
    ) as store:
        store.put("T", b"first")
        yield store


@pytest.fixture
def waiters(kernels: Bodies) -> Any:
    return kernels.waiting.OffsetWaiters()


def put_later(store: rocketstore.DefaultMessageStore, nbytes: int = 4) -> int:
    """Put without a wait; return where the log ends."""
    result = store.put("T", b"x" * nbytes, wait_store_msg_ok=False)
    return result.physical_offset + result.nbytes


def target_of(store: rocketstore.DefaultMessageStore) -> SyncTarget:
    target = store._writing().log.sync_target()
    assert target is not None
    return target


def is_native(waiters: Any) -> bool:
    return "native" in type(waiters).__module__


def test_what_was_put_is_synced_and_stated(
    store: rocketstore.DefaultMessageStore, waiters: Any
) -> None:
    target, end = target_of(store), put_later(store)
    waiters.ask_back()
    waiters.ring()
    rang, flushed, timestamp, error = target.follow(waiters, LONG_S)
    assert (rang, error) == (True, 0)
    if is_native(waiters):
        newest = max(message.store_timestamp for message in store.scan())
        assert (flushed, timestamp, waiters.reached) == (end, newest, end)
    else:
        assert (flushed, timestamp, waiters.reached) == (target.flushed, 0, 0)


def test_nothing_is_stated_without_a_put(
    store: rocketstore.DefaultMessageStore, waiters: Any
) -> None:
    target = target_of(store)
    assert target.follow(waiters, 0.001) == (False, target.flushed, 0, 0)
    waiters.ring()
    assert target.follow(waiters, LONG_S) == (True, target.flushed, 0, 0)
    assert waiters.reached == 0


def test_another_thread_that_wants_to_sync_ends_it(
    store: rocketstore.DefaultMessageStore, waiters: Any
) -> None:
    target = target_of(store)
    put_later(store)
    later = threading.Timer(0.02, waiters.__enter__)
    later.start()
    answers = []
    while not waiters.is_held:
        answers.append(target.follow(waiters, LONG_S))
        target = target._replace(flushed=answers[-1][1])
    later.join()
    assert answers[-1][0] is True
    assert target.follow(waiters, LONG_S)[:2] == (True, target.flushed)
    waiters.__exit__(None, None, None)
    assert not waiters.is_held


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("change", ["inode", "device", "nbytes", "path"])
def test_a_lost_name_is_not_stated(
    store: rocketstore.DefaultMessageStore, waiters: Any, number: int, change: str
) -> None:
    target = target_of(store)
    assert target.lock is not None
    names = [target.named_file, target.lock.named_file]
    value: Any = (
        b"/nowhere" if change == "path" else getattr(names[number], change) + SEGMENT_NBYTES
    )
    names[number] = names[number]._replace(**{change: value})
    put_later(store)
    waiters.ask_back()
    waiters.ring()
    answer = waiters.follow(
        target.appender, target.file.mapping, 0, target.flushed, -1, tuple(names), LONG_S
    )
    assert answer == (True, target.flushed, 0, 0)
    assert waiters.reached == 0


def test_a_sync_that_fails_is_not_stated(
    store: rocketstore.DefaultMessageStore, waiters: Any
) -> None:
    target = target_of(store)
    put_later(store)
    waiters.ask_back()
    waiters.ring()
    answer = waiters.follow(
        target.appender, target.file.mapping, 0, target.flushed, 1 << 30, (), LONG_S
    )
    assert answer == (True, target.flushed, 0, errno.EBADF if is_native(waiters) else 0)
    assert waiters.reached == 0


def test_a_segment_that_is_full_is_left_alone(
    store: rocketstore.DefaultMessageStore, waiters: Any
) -> None:
    target = target_of(store)
    while put_later(store, 100_000) < SEGMENT_NBYTES:
        pass
    waiters.ring()
    assert target.follow(waiters, LONG_S) == (True, target.flushed, 0, 0)
    assert waiters.reached == 0


@pytest.mark.parametrize(
    ("base_offset", "flushed", "names"),
    [(-1, 0, 0), (0, -1, 0), (5, 4, 0), (0, SEGMENT_NBYTES + 1, 0), (0, 0, 3)],
)
def test_arguments_that_cannot_be(
    store: rocketstore.DefaultMessageStore,
    waiters: Any,
    base_offset: int,
    flushed: int,
    names: int,
) -> None:
    target = target_of(store)
    with pytest.raises(ValueError, match=r"segment|names"):
        waiters.follow(
            target.appender,
            target.file.mapping,
            base_offset,
            flushed,
            -1,
            (target.named_file,) * names,
            0.0,
        )


def open_running(root: Path) -> rocketstore.DefaultMessageStore:
    return rocketstore.open(
        root, "x", flush_disk_type="SYNC_FLUSH", mapped_file_size_commit_log=SEGMENT_NBYTES
    )


def put_until_refused(store: rocketstore.DefaultMessageStore) -> None:
    """The thread that syncs keeps the good descriptor until it looks at the file again."""
    deadline = time.monotonic() + LONG_S
    while time.monotonic() < deadline:
        store.put("T", b"x")
        time.sleep(0.01)


@NATIVE_ONLY
def test_a_put_needs_no_python_to_be_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But the first and the last of a segment: those are synced by calls."""
    calls: list[int] = []
    flush = MappedFile.flush

    def count_and_flush(file: MappedFile, position: int) -> None:
        if "commitlog" in file.path.parts and position > file.flushed_position:
            calls.append(position)
        flush(file, position)

    with open_running(tmp_path / "s") as store:
        assert store.put("T", b"x").ok
        monkeypatch.setattr(MappedFile, "flush", count_and_flush)
        for _ in range(200):
            result = store.put("T", b"x")
            assert store.flushed_offset >= result.physical_offset + result.nbytes
        assert len(calls) < 20
        while store.put("T", b"x" * 50_000).physical_offset < 3 * SEGMENT_NBYTES:
            pass
        writer = store._writing()
        files = writer.log.queue.files
        assert [file.descriptor >= 0 for file in files] == [False] * (len(files) - 1) + [True]
        assert writer.flushed.mark() == (
            store.flushed_offset,
            max(message.store_timestamp for message in store.scan()),
        )


@NATIVE_ONLY
def test_a_sync_that_fails_without_python_is_final(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_running(tmp_path / "s")
    assert store.put("T", b"good").ok
    (file,) = store._writing().log.queue.files
    monkeypatch.setattr(MappedFile, "descriptor", property(lambda _: 1 << 30))
    with pytest.raises(ServiceFailedError, match=os.strerror(errno.EBADF)):
        put_until_refused(store)
    monkeypatch.undo()
    with pytest.raises(ServiceFailedError):
        store.put("T", b"late")
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        file.mapping.sync(0, 1)
    with pytest.raises(ServiceFailedError):
        store.close()


def test_a_flush_by_another_thread_does_not_wait_for_puts_to_end(tmp_path: Path) -> None:
    with open_running(tmp_path / "s") as store:
        stopping = threading.Event()

        def put_until_told() -> None:
            while not stopping.is_set():
                assert store.put("T", b"x").ok

        putters = [threading.Thread(target=put_until_told) for _ in range(3)]
        for putter in putters:
            putter.start()
        try:
            for _ in range(50):
                began = time.monotonic()
                store.flush()
                assert time.monotonic() - began < LONG_S / 4
        finally:
            stopping.set()
            for putter in putters:
                putter.join(LONG_S)


def test_a_flush_while_nobody_puts_does_not_wait_for_the_pause(tmp_path: Path) -> None:
    with open_running(tmp_path / "s") as store:
        service = store._writing().group_commit
        assert service is not None
        service.interval_s = service._pause_s = LONG_S
        assert store.put("T", b"x").ok
        began = time.monotonic()
        store.flush()
        with service.paused():
            pass
        assert time.monotonic() - began < LONG_S / 2


def test_a_log_that_is_committed_first_is_not_followed(tmp_path: Path) -> None:
    with rocketstore.open(
        tmp_path / "s", "x", mapped_file_size_commit_log=SEGMENT_NBYTES,
        transient_store_pool_enable=True, start=False,
    ) as store:  # fmt: skip
        store.put("T", b"x")
        assert store._writing().log.sync_target() is None
