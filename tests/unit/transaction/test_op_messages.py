"""Op messages: both forms read, and one for decisions that wait for the same sync."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import PutMessageStatus, TransactionError, TransactionState, formats
from rocketstore.transaction.op_messages import OpBatch, offsets_in


@pytest.mark.parametrize(
    ("body", "offsets"),
    [
        (b"80", [80]),
        (b"1,0,7,6,", [1, 0, 7, 6]),
        (b"", []),
        (b",,", []),
        (b"a,3, 4,5x,-1", [3, -1]),
        (b"9" * 30, []),
    ],
)
def test_offsets_in(body: bytes, offsets: list[int]) -> None:
    assert offsets_in(body) == offsets


class Slow:
    """A wait for the disk that the test ends."""

    def __init__(self) -> None:
        self.waiting = 0
        self.written: list[list[int]] = []
        self.batch = OpBatch(self.append, lambda: self.waiting)

    def append(self, offsets: list[int]) -> int:
        self.written.append(offsets)
        return 100 * len(self.written)


def test_a_batch_is_written_by_the_thread_whose_wait_ends() -> None:
    slow = Slow()
    slow.waiting = 1
    ends: list[int] = []
    threads = [
        threading.Thread(target=lambda at=at: ends.append(slow.batch.join(at))) for at in range(4)
    ]
    for thread in threads:
        thread.start()
    while len(slow.batch.offsets) < 4:
        time.sleep(0.001)
    slow.waiting = 0
    slow.batch.write()
    for thread in threads:
        thread.join()
    assert [sorted(one) for one in slow.written] == [[0, 1, 2, 3]]
    assert ends == [100] * 4
    slow.batch.write()
    assert len(slow.written) == 1


def test_a_thread_left_alone_writes_itself() -> None:
    slow = Slow()
    assert slow.batch.join(5) == 100
    slow.waiting = 1  # this very thread, which a handler interrupted
    assert slow.batch.join(6) == 200
    assert slow.written == [[5], [6]]


def test_a_failure_reaches_all_of_a_batch() -> None:
    def fail(offsets: list[int]) -> int:
        raise OSError("full")

    batch = OpBatch(fail, lambda: 0)
    with pytest.raises(OSError, match="full"):
        batch.join(1)
    assert batch.offsets == []


class InterruptedLock:
    """A lock whose first ``acquire`` of the main thread is interrupted, before or after it."""

    def __init__(self, lock: Any, *, after: bool) -> None:
        self.lock, self.after, self.left = lock, after, 1

    def acquire(self, timeout: float = -1) -> bool:
        is_hit = threading.current_thread() is threading.main_thread() and self.left
        if is_hit and not self.after:
            self.left = 0
            raise KeyboardInterrupt
        found = bool(self.lock.acquire(timeout=timeout))
        if is_hit:
            self.left = 0
            raise KeyboardInterrupt
        return found

    def release(self) -> None:
        self.lock.release()


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("waiting", [0, 1])
def test_an_interrupted_thread_leaves_its_offset_written(waiting: int, after: bool) -> None:
    """Else it would be written later, although its rollback seems not to be made."""
    slow = Slow()
    slow.waiting = waiting
    batch = slow.batch._current
    batch.written = InterruptedLock(batch.written, after=after)  # type: ignore[assignment]
    other = threading.Thread(target=slow.batch.join, args=(6,))
    if waiting:
        other.start()
        while not slow.batch.offsets:
            time.sleep(0.001)
    if waiting:
        with pytest.raises(KeyboardInterrupt):
            slow.batch.join(5)
        other.join(20)
        assert not other.is_alive()
    else:
        assert slow.batch.join(5) == 100
    assert sorted(offset for one in slow.written for offset in one) == [5, 6][: 1 + waiting]


@pytest.mark.parametrize(("interval", "batched"), [(3000, True), (0, False)])
def test_concurrent_commits_share_op_messages(interval: int, batched: bool, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "flush_disk_type": "SYNC_FLUSH",
        "transaction_op_batch_interval": interval,
        "mapped_file_size_commit_log": 1 << 20,
        "broker_version": "5.3.3",
    }
    with rocketstore.open(tmp_path, "a", **options) as store:
        writer: Any = store._writer
        real = writer.put_wait

        def wait(end: int) -> int:
            time.sleep(0.002)  # as on a disk: in memory a sync is over before another thread comes
            return int(real(end))

        writer.put_wait = wait
        begun = [store.begin("Orders", b"%d" % at, group="g") for at in range(80)]

        def decide(part: list[Any]) -> None:
            for one in part:
                assert one.commit().ok

        threads = [threading.Thread(target=decide, args=(begun[at::8],)) for at in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        store.wait_dispatched()
        named = [offsets_in(one.body) for one in store.scan() if one.topic == formats.TOPIC_OP]
        assert sorted(offset for one in named for offset in one) == list(range(80))
        assert not list(store.transactions())
        assert (len(named) < 80) == batched


def test_an_op_message_of_a_batch_that_is_refused(tmp_path: Path) -> None:
    """A commit stays one commit; a rollback that did not reach the log raises."""
    options: dict[str, Any] = {"flush_disk_type": "SYNC_FLUSH", "broker_version": "5.3.3"}
    waits, goes_on = threading.Event(), threading.Event()
    with rocketstore.open(tmp_path, "a", **options) as store:
        real = store._writer.put_wait

        def wait(end: int) -> int:
            if threading.current_thread().name == "slow":
                waits.set()
                goes_on.wait()
            return real(end)

        store._writer.put_wait = wait
        first, second, third = (store.begin("T", b"%d" % at, group="g") for at in range(3))
        batch, appender = store._transactions.book.ledger.batch, store._writer.log.appender
        append = batch._append

        def refused(offsets: list[int]) -> int:
            appender.refuse(PutMessageStatus.CREATE_MAPPED_FILE_FAILED)
            try:
                return int(append(offsets))
            finally:
                appender.refuse(None)

        slow = threading.Thread(target=first.commit, name="slow")
        slow.start()
        waits.wait()
        batch._append = refused
        outcome = second.commit()
        with pytest.raises(TransactionError, match="undecided"):
            third.rollback()
        batch._append = append
        goes_on.set()
        slow.join()
        assert (second.state, third.state) == (TransactionState.COMMIT, TransactionState.UNKNOWN)
        assert second.commit() == outcome
        third.rollback()
        store.wait_dispatched()
        assert sorted(one.body for one in store.scan() if one.topic == "T") == [b"0", b"1"]
        assert not list(store.transactions())
