"""Warming new segments up, and locking them into memory."""

from __future__ import annotations

import errno
import logging
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.config import MessageStoreConfig
from rocketstore.errors import ServiceFailedError, StoreFullError
from rocketstore.files.memory_lock import MemoryLock
from rocketstore.log.warm_up import LogWarmUp

PAGE = 4096


class FakeFile:
    """A new segment that notes what is done to it; ``failures`` are raised by name."""

    file_size = 5 * PAGE

    def __init__(self, failures: dict[str, OSError] | None = None) -> None:
        self.failures = failures or {}
        self.calls: list[Any] = []
        self.allocated_position = PAGE
        self.is_full = False

    @property
    def mapping(self) -> FakeFile:
        return self

    def __len__(self) -> int:
        return self.file_size

    def _note(self, name: str, *arguments: Any) -> None:
        self.calls.append((name, *arguments))
        if name in self.failures:
            raise self.failures[name]

    def allocate(self, position: int, *, used: int) -> None:
        self._note("allocate", position, used)
        self.allocated_position = max(position, self.allocated_position)

    def populate(self, position: int, length: int) -> None:
        self._note("populate", position, length)

    def sync(self, position: int, length: int) -> None:
        self._note("sync", position, length)

    def advise(self, advice: str) -> None:
        self._note("advise", advice)

    def lock(self, position: int, length: int) -> None:
        self._note("lock", position, length)

    def unlock(self, position: int, length: int) -> None:
        self._note("unlock", position, length)


def warm_up(flush_disk_type: str, failures: list[BaseException] | None = None) -> LogWarmUp:
    """Steps of two pages."""
    config = MessageStoreConfig(
        flush_disk_type=flush_disk_type, flush_least_pages_when_warm_maped_file=2
    )
    return LogWarmUp(config, ([] if failures is None else failures).append)


@pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_pages_are_made_in_steps_and_synced_where_that_is_awaited(flush_disk_type: str) -> None:
    file, warming = FakeFile(), warm_up(flush_disk_type)
    warming.add(file)  # type: ignore[arg-type]
    wanted: list[Any] = []
    for start, stop, used in ((0, 2, 1), (2, 4, 2), (4, 5, 4)):
        assert warming.step()
        length = (stop - start) * PAGE
        wanted += [("allocate", stop * PAGE, used * PAGE), ("populate", start * PAGE, length)]
        if flush_disk_type == "SYNC_FLUSH":
            wanted.append(("sync", start * PAGE, length))
        assert file.calls == wanted
    assert not warming.step()
    assert file.calls == [*wanted, ("advise", "willneed"), ("lock", 0, 5 * PAGE)]
    assert not warming.step()
    file.is_full = True
    assert not warming.step()
    assert file.calls[-1] == ("unlock", 0, 5 * PAGE)
    count = len(file.calls)
    assert not warming.step()
    assert len(file.calls) == count


def test_a_segment_that_got_full_meanwhile_is_not_changed() -> None:
    first, second, warming = FakeFile(), FakeFile(), warm_up("ASYNC_FLUSH")
    warming.add(first)  # type: ignore[arg-type]
    warming.add(second)  # type: ignore[arg-type]
    assert warming.step()
    first.is_full = True
    for _ in range(3):
        assert warming.step()
    assert not warming.step()
    assert [name for name, *_ in first.calls] == ["allocate", "populate"]
    assert second.calls[-1][0] == "lock"


def test_a_full_disk_ends_the_warming_of_that_segment_only() -> None:
    reported: list[BaseException] = []
    first = FakeFile({"allocate": StoreFullError(errno.ENOSPC, "no room")})
    second, warming = FakeFile(), warm_up("SYNC_FLUSH", reported)
    warming.add(first)  # type: ignore[arg-type]
    warming.add(second)  # type: ignore[arg-type]
    with pytest.raises(StoreFullError):
        warming.step()
    while warming.step():
        pass
    assert len(first.calls) == 1
    assert second.calls[-1][0] == "lock"
    assert not reported


def test_zeros_that_cannot_be_synced_are_reported(tmp_path: Path) -> None:
    """The system reports a failed write once; were it swallowed here, the sync of a record in the
    same segment would succeed without its being on disk."""
    reported: list[BaseException] = []
    file, warming = FakeFile({"sync": OSError(errno.EIO, "disk")}), warm_up("SYNC_FLUSH", reported)
    warming.add(file)  # type: ignore[arg-type]
    with pytest.raises(OSError, match="disk"):
        warming.step()
    assert [type(error) for error in reported] == [OSError]


def test_a_refused_lock_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    lock, file = MemoryLock(), FakeFile({"lock": PermissionError(errno.EPERM, "not permitted")})
    with caplog.at_level(logging.WARNING):
        assert not lock.lock(file)
        assert not lock.lock(file)
    assert len(caplog.records) == 1
    assert "20480 bytes are not locked into memory" in caplog.text
    assert "ulimit -l" in caplog.text
    file.failures = {}
    assert lock.lock(file)


def locked_nbytes() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmLck")) * 1024


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_a_store_warms_its_segments_up_in_the_background(
    tmp_path: Path, flush_disk_type: str
) -> None:
    size = 64 * 1024
    before = locked_nbytes()
    with rocketstore.open(
        tmp_path / "store", "a", start=False, mapped_file_size_commit_log=size,
        warm_maped_file_enable=True, flush_least_pages_when_warm_maped_file=4,
        flush_disk_type=flush_disk_type,
    ) as store:  # fmt: skip
        writer = store._writer
        assert writer is not None
        for number in range(100):
            assert store.put("T", b"%d" % number + bytes(3000)).ok
            assert locked_nbytes() - before <= 2 * size
            if number % 8 == 0:
                writer.allocate.drain()
                first = tmp_path / "store/commitlog/00000000000000000000"
                assert os.stat(first).st_blocks * 512 >= size
        # That there is a limit of locked memory is no fault; this test shows which case it saw.
        print(f"locked {locked_nbytes() - before} bytes")
        bodies = [message.body for message in store.scan()]
    assert bodies == [b"%d" % number + bytes(3000) for number in range(100)]
    assert locked_nbytes() == before
    with rocketstore.open(tmp_path / "store") as store:
        assert store.verify().ok


def test_a_store_whose_zeros_cannot_be_synced_takes_no_more_puts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = rocketstore.open(
        tmp_path / "store", "a", start=False, flush_disk_type="SYNC_FLUSH",
        mapped_file_size_commit_log=64 * 1024, warm_maped_file_enable=True,
    )  # fmt: skip
    assert store.put("T", b"").ok

    def fail(self: LogWarmUp, file: Any) -> None:
        error = OSError(errno.EIO, "disk")
        self._on_failure(error)
        raise error

    monkeypatch.setattr(LogWarmUp, "_warm", fail)
    assert store._writer is not None
    store._writer.allocate.step()
    with pytest.raises(ServiceFailedError, match="disk"):
        store.put("T", b"")
    with pytest.raises(ServiceFailedError):
        store.close()
