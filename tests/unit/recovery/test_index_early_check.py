"""The newest index file of a store that was closed in good order is checked beside the log."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rocketstore
from crash.abandoning import abandon
from rocketstore import formats
from rocketstore.index.index_file import IndexFile
from rocketstore.recovery import index as index_recovery
from rocketstore.store import read_only as reader
from support.syncs import LONG_S

OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": 8 * 1024,
    "max_hash_slot_num": 40,
    "max_index_num": 500,
}
COUNT = 60


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store that was closed; its index file is large enough for a thread of its own."""
    monkeypatch.setattr(index_recovery, "WORTH_A_THREAD", COUNT)
    with rocketstore.open(tmp_path / "s", "x", start=False, **OPTIONS) as store:
        for number in range(COUNT):
            store.put("T", b"body", 0, None, f"k{number}")
    return tmp_path / "s"


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The thread and the limit of each check that was done."""
    done = []
    check_file = index_recovery.check_file

    def watched(file: IndexFile, limit: int) -> tuple[int, int]:
        done.append((threading.current_thread().name, limit))
        return check_file(file, limit)

    monkeypatch.setattr(index_recovery, "check_file", watched)
    return done


EARLY = "rocketstore-index-check"


def open_and_look(root: Path, mode: str = "r+") -> list[str]:
    """Notes of an opening; every key is found."""
    with rocketstore.open(root, mode, start=False) as store:
        for number in range(COUNT):
            found = [message.queue_offset for message in store.find(topic="T", key=f"k{number}")]
            assert found == [number]
        return store.recovery_report.notes


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_the_check_is_done_once_on_its_own_thread(
    mode: str, root: Path, checks: list[tuple[str, int]]
) -> None:
    assert not open_and_look(root, mode)
    assert [name for name, _ in checks] == [EARLY]


def test_a_reader_beside_a_writer_checks_in_turn(root: Path, checks: list[tuple[str, int]]) -> None:
    (root / "abort").touch()
    assert not open_and_look(root, "r")
    assert [name for name, _ in checks] == ["MainThread"]


@pytest.mark.parametrize("derive", ["full", "none"])
def test_nothing_is_checked_that_is_not_read(
    derive: str, root: Path, checks: list[tuple[str, int]]
) -> None:
    rocketstore.open(root, derive=derive).close()
    assert [name for name, _ in checks if name == EARLY] == []


def test_a_file_that_grew_meanwhile_is_checked_again(
    root: Path, checks: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer came when the reader had begun."""
    of_newest = index_recovery.EarlyIndexCheck.of_newest

    def put_then(*arguments: Any) -> Any:
        begun = of_newest(*arguments)
        assert begun is not None
        begun._thread.join()
        with rocketstore.open(root, "r+", start=False) as store:
            store.put("T", b"body", 0, None, "another")
        return begun

    monkeypatch.setattr(reader, "EarlyIndexCheck", SimpleNamespace(of_newest=put_then))
    checks.clear()
    with rocketstore.open(root, "r") as store:
        assert len(list(store.find(topic="T", key="another"))) == 1
    assert checks[-1][0] == "MainThread"


def test_few_entries_are_checked_in_their_turn(
    root: Path, checks: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_recovery, "WORTH_A_THREAD", COUNT + 1)
    assert not open_and_look(root)
    assert [name for name, _ in checks] == ["MainThread"]


def test_what_the_thread_finds_is_mended(root: Path, checks: list[tuple[str, int]]) -> None:
    path = next((root / "index").iterdir())
    content = bytearray(path.read_bytes())
    entry = formats.index_file_nbytes(OPTIONS["max_hash_slot_num"], 30)
    content[entry : entry + 20] = bytes(20)
    path.write_bytes(content)
    assert any("entries from 30 on are invalid" in note for note in open_and_look(root))
    assert checks[0][0] == EARLY
    assert not open_and_look(root)


def test_a_log_that_lost_its_end_is_checked_again_by_that_end(
    root: Path, checks: list[tuple[str, int]]
) -> None:
    """The state file gave the early check another end; it is void, and so is what was checked."""
    (root / "rocketstore.state").rename(root / "kept")
    store = rocketstore.open(root, "r+", start=False)
    end = store.max_physical_offset
    offsets = [message.physical_offset for message in store.scan()]
    abandon(store)
    (root / "kept").replace(root / "rocketstore.state")
    segment = max((root / "commitlog").iterdir())
    start = offsets[len(offsets) // 2] - int(segment.name)
    assert start > 0
    content = segment.read_bytes()
    segment.write_bytes(content[:start].ljust(len(content), b"\0"))
    checks.clear()
    with rocketstore.open(root, "r+", start=False) as store:
        left = store.max_physical_offset
        assert left < end
    assert (EARLY, end) in checks
    assert ("MainThread", left) in checks


@pytest.mark.parametrize("error", [MemoryError, OSError])
def test_a_failed_check_is_done_again_in_its_turn(
    root: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    names, check_file = [], index_recovery.check_file

    def failing(file: IndexFile, limit: int) -> tuple[int, int]:
        names.append(threading.current_thread().name)
        if names[-1] == EARLY:
            raise error("not now")
        return check_file(file, limit)

    monkeypatch.setattr(index_recovery, "check_file", failing)
    assert not open_and_look(root)
    assert names == [EARLY, "MainThread"]


def test_a_store_that_is_refused_meanwhile(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its index file is closed under the check, which cannot report it."""
    segment = min((root / "commitlog").iterdir())
    content = bytearray(segment.read_bytes())
    content[4] ^= 0xFF
    segment.write_bytes(content)
    refused, reported = threading.Event(), []
    threads: list[threading.Thread] = []
    check_file = index_recovery.check_file

    def check_late(file: IndexFile, limit: int) -> tuple[int, int]:
        threads.append(threading.current_thread())
        assert refused.wait(LONG_S)
        return check_file(file, limit)

    monkeypatch.setattr(index_recovery, "check_file", check_late)
    monkeypatch.setattr(threading, "excepthook", reported.append)
    with pytest.raises(rocketstore.CorruptMessageError):
        rocketstore.open(root, "r+", start=False)
    refused.set()
    for thread in threads:
        thread.join()
    assert [thread.name for thread in threads] == [EARLY]
    assert reported == []


def test_without_a_thread_it_is_done_in_its_turn(
    root: Path, checks: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_thread)
    assert not open_and_look(root)
    assert [name for name, _ in checks] == ["MainThread"]
