"""Group commit: one sync for all that wait; no put returns before the disk has its message."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import PutMessageStatus
from support.syncs import LONG_S, HeldSyncs

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="stores are only read there")


def open_sync(
    root: Path, sync_flush_timeout: int = 1000 * int(LONG_S)
) -> rocketstore.DefaultMessageStore:
    return rocketstore.open(
        root,
        "x",
        flush_disk_type="SYNC_FLUSH",
        mapped_file_size_commit_log=1 << 20,
        sync_flush_timeout=sync_flush_timeout,
    )


class Putters:
    """Threads that put one message each, and what they were answered."""

    def __init__(self, store: rocketstore.DefaultMessageStore, count: int) -> None:
        self.results: list[Any] = []
        self._store = store
        self._threads = [threading.Thread(target=self._put) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def _put(self) -> None:
        result = self._store.put("T", b"x")
        self.results.append((result, self._store.flushed_offset))

    def join(self) -> list[Any]:
        for thread in self._threads:
            thread.join(LONG_S)
            assert not thread.is_alive()
        return self.results


def wait_for_waiters(store: rocketstore.DefaultMessageStore, count: int) -> None:
    waiting = store._writing().flushed.waiting
    pause = threading.Event()
    for _ in range(int(LONG_S / 0.001)):
        if len(waiting) == count:
            return
        pause.wait(0.001)
    raise AssertionError(f"{len(waiting)} wait instead of {count}")


def test_one_sync_for_all_that_came_during_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = HeldSyncs(monkeypatch)
    with open_sync(tmp_path / "s") as store:
        with syncs.held():
            first = Putters(store, 1)
            assert syncs.begun.wait(LONG_S)
            others = Putters(store, 40)
            wait_for_waiters(store, 41)
            assert first.results == others.results == []
        for result, flushed in first.join() + others.join():
            assert result.ok
            assert flushed >= result.physical_offset + result.nbytes
        assert syncs.count == 2
        assert len(store._writing().flushed.waiting) == 0


def test_no_put_keeps_waiting_if_a_flush_is_interrupted_after_its_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_sync(tmp_path / "s") as store:
        flushed = store._writing().flushed
        interrupts: list[int] = []
        let_go = flushed.let_go

        def interrupt_once() -> None:
            if not interrupts:
                interrupts.append(1)
                raise KeyboardInterrupt
            let_go()

        with store._writing().group_commit.paused():  # type: ignore[union-attr]
            last = Putters(store, 3)
            wait_for_waiters(store, 3)
            monkeypatch.setattr(flushed, "let_go", interrupt_once)
            with pytest.raises(KeyboardInterrupt):
                store.flush()
            assert last.results == []
        assert all(result.ok for result, _ in last.join())


def test_a_sync_that_takes_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs = HeldSyncs(monkeypatch)
    with open_sync(tmp_path / "s", sync_flush_timeout=20) as store:
        with syncs.held():
            results = [result for result, _ in Putters(store, 5).join()]
            assert {r.status for r in results} == {PutMessageStatus.FLUSH_DISK_TIMEOUT}
            assert all(result.appended for result in results)
            assert len(store._writing().flushed.waiting) == 0
            assert store.put("T", b"patient", wait_store_msg_ok=False).ok
        store.flush()
        assert sum(1 for _ in store.scan()) == 6
