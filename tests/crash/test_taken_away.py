"""Files that another process deletes, moves, replaces or truncates while the store is open."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.errors import ServiceFailedError, StoreLockedError

SEGMENT_NBYTES = 64 * 1024
OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": SEGMENT_NBYTES,
    "mapped_file_size_consume_queue": 2000,
    "flush_interval_consume_queue": 60_000,
    "flush_interval_commit_log": 60_000,
}
FIRST = "0" * 20


def segment(root: Path, number: int = 0) -> Path:
    return root / "commitlog" / f"{number * SEGMENT_NBYTES:020d}"


def fill(store: rocketstore.DefaultMessageStore) -> None:
    for _ in range(100):
        store.put("T", b"x" * 900)


def dispatch_and_flush(store: rocketstore.DefaultMessageStore) -> None:
    store.wait_dispatched()
    store.flush()


def copy_over(path: Path) -> None:
    """What an editor or a restore script does: the name goes to a copy."""
    shutil.copyfile(path, f"{path}.copy")
    os.replace(f"{path}.copy", path)


def copy_folder_over(path: Path) -> None:
    path.rename(f"{path}.former")
    unfinished = shutil.ignore_patterns(".rocketstore-new-*")
    shutil.copytree(f"{path}.former", path, ignore=unfinished)


TAKE: dict[str, Callable[[Path], object]] = {
    "segment replaced by its copy": lambda root: copy_over(segment(root)),
    "segment unlinked": lambda root: segment(root).unlink(),
    "segment renamed": lambda root: segment(root).rename(root / "elsewhere"),
    "segment truncated to nothing": lambda root: os.truncate(segment(root), 0),
    "segment shortened past its end": lambda root: os.truncate(
        segment(root), SEGMENT_NBYTES - 4096
    ),
    "segment replaced by a link to a copy": lambda root: (
        segment(root).rename(root / "elsewhere"),
        shutil.copyfile(root / "elsewhere", root / "copy"),
        segment(root).symlink_to(root / "copy"),
    ),
    "log folder renamed": lambda root: (root / "commitlog").rename(root / "elsewhere"),
    "log folder replaced": lambda root: copy_folder_over(root / "commitlog"),
    "root renamed": lambda root: root.rename(f"{root}.former"),
    "root replaced": copy_folder_over,
    "lock unlinked": lambda root: (root / "lock").unlink(),
    "lock replaced": lambda root: copy_over(root / "lock"),
    "lock renamed": lambda root: (root / "lock").rename(root / "lock.old"),
}


@pytest.mark.parametrize(
    ("what", "flush", "start"),
    [
        pytest.param(what, flush, start, id=f"{what}-{flush}-{'threads' if start else 'by hand'}")
        for number, what in enumerate(TAKE)
        for flush, start in (
            ("SYNC_FLUSH", number % 2 == 0),
            ("ASYNC_FLUSH", number % 2 == 1),
            ("pool", number % 2 == 0),
        )
    ],
)
def test_a_sync_into_what_was_taken_away_is_a_failed_one(
    tmp_path: Path, what: str, flush: str, start: bool
) -> None:
    """The store confirmed puts into a file that had lost its name, ``close`` reported nothing, and
    the messages were lost."""
    root = tmp_path / "s"
    options = dict(OPTIONS, flush_disk_type="ASYNC_FLUSH", transient_store_pool_enable=True)
    if flush != "pool":
        options = dict(OPTIONS, flush_disk_type=flush)
    store = rocketstore.open(root, "x", start=start, **options)
    assert store.put("T", b"one").ok
    store.wait_dispatched()
    TAKE[what](root)
    if flush == "SYNC_FLUSH":
        with pytest.raises(ServiceFailedError, match=r"another process|shortened"):
            store.put("T", b"two")
    with pytest.raises((ServiceFailedError, OSError), match=r"another process|shortened|writing"):
        store.flush()
    with pytest.raises(ServiceFailedError):
        store.put("T", b"three")
    with pytest.raises(ServiceFailedError):
        store.close()
    former = root if root.is_dir() and "root" not in what else Path(f"{root}.former")
    assert (former / "abort").exists()


@pytest.mark.parametrize(
    ("what", "flush"),
    [(what, ("SYNC_FLUSH", "ASYNC_FLUSH")[number % 2]) for number, what in enumerate(TAKE)],
)
def test_closing_alone_reports_it(tmp_path: Path, what: str, flush: str) -> None:
    """Nothing was left to sync, so nothing looked whether the files were there."""
    root = tmp_path / "s"
    store = rocketstore.open(root, "x", flush_disk_type=flush, **OPTIONS)
    assert store.put("T", b"one").ok
    store.wait_dispatched()
    store.flush()
    TAKE[what](root)
    with pytest.raises((ServiceFailedError, OSError), match="another process changed"):
        store.close()
    former = root if root.is_dir() and "root" not in what else Path(f"{root}.former")
    assert (former / "abort").exists()


@pytest.mark.parametrize("take", [copy_over, os.unlink, lambda path: os.truncate(path, 100)])
def test_a_full_segment_counts_as_well(tmp_path: Path, take: Callable[[Path], object]) -> None:
    """It was synced long ago, and is missed only when the store is opened again."""
    root = tmp_path / "s"
    store = rocketstore.open(root, "x", **OPTIONS)
    for _ in range(200):
        assert store.put("T", b"x" * 900).ok
    assert store.wait_dispatched()  # which would miss the file, too
    store.flush()
    take(segment(root, 1))
    with pytest.raises(OSError, match="another process changed"):
        store.flush()
    with pytest.raises(ServiceFailedError):
        store.close()


def test_no_new_log_begins_where_its_folder_was(tmp_path: Path) -> None:
    """The put that needed the next segment made a new folder for it, in which the log's beginning
    was missing."""
    root = tmp_path / "s"
    store = rocketstore.open(root, "x", start=False, **OPTIONS)
    assert store.put("T", b"one").ok
    (root / "commitlog").rename(root / "elsewhere")
    with pytest.raises((ServiceFailedError, OSError), match="another process changed"):
        fill(store)
    assert not (root / "commitlog").exists()
    with pytest.raises(ServiceFailedError):
        store.close()


@pytest.mark.parametrize("take", ["unlink", "replace"])
def test_a_ready_segment_that_disappears_is_created_again(tmp_path: Path, take: str) -> None:
    root = tmp_path / "s"
    store = rocketstore.open(root, "x", start=False, **OPTIONS)
    while segment(root, 1).exists() is False:
        assert store.put("T", b"x" * 900).ok
        store._writer.allocate.step()  # type: ignore[union-attr]
    if take == "unlink":
        segment(root, 1).unlink()
        for _ in range(50):
            assert store.put("T", b"y" * 900).ok
        count = sum(1 for _ in store.scan())
        store.close()
        with rocketstore.open(root) as reader:
            assert sum(1 for _ in reader.scan()) == count
        return
    segment(root, 1).write_bytes(b"a foreign file" * 5000)
    copy_over(segment(root, 1))
    before = segment(root, 1).read_bytes()
    with pytest.raises((FileExistsError, ServiceFailedError)):
        fill(store)
    with pytest.raises(ServiceFailedError):
        store.close()
    assert segment(root, 1).read_bytes() == before


QUEUE = "consumequeue/T/0/" + FIRST
TAKE_DERIVED: dict[str, Callable[[Path], object]] = {
    "queue file replaced": lambda root: copy_over(root / QUEUE),
    "queue file unlinked": lambda root: (root / QUEUE).unlink(),
    "queue file truncated": lambda root: os.truncate(root / QUEUE, 100),
    "queues moved": lambda root: (root / "consumequeue").rename(root / "elsewhere"),
    "index file unlinked": lambda root: next((root / "index").iterdir()).unlink(),
    "index file replaced": lambda root: copy_over(next((root / "index").iterdir())),
    "index moved": lambda root: (root / "index").rename(root / "elsewhere"),
}


@pytest.mark.parametrize("what", TAKE_DERIVED)
def test_queues_and_index_that_were_taken_away_are_rebuilt(tmp_path: Path, what: str) -> None:
    """Units and keys went into files without a name, and the marks said that they were on disk."""
    root = tmp_path / "s"
    options = dict(OPTIONS, max_hash_slot_num=40, max_index_num=1000)
    store = rocketstore.open(root, "x", **options)
    for number in range(40):
        assert store.put("T", b"%d" % number, 0, keys=f"k{number}").ok
    store.wait_dispatched()
    store.flush()
    TAKE_DERIVED[what](root)
    for number in range(40, 60):
        assert store.put("T", b"%d" % number, 0, keys=f"k{number}").ok
    with pytest.raises((ServiceFailedError, OSError), match="another process changed"):
        dispatch_and_flush(store)
    with pytest.raises(ServiceFailedError):
        store.close()
    with rocketstore.open(root, "r+", max_hash_slot_num=40, max_index_num=1000) as again:
        again.wait_dispatched()
        assert again.max_offset_in_queue("T", 0) == 60
        bodies = [
            m.body for at in range(60) for m in again.get_message("G", "T", 0, at, 1).messages
        ]
        assert bodies == [b"%d" % number for number in range(60)]
        for number in range(60):
            assert [m.body for m in again.find(topic="T", key=f"k{number}")] == [b"%d" % number]
        assert again.verify().ok


SECOND = """
import sys, rocketstore
try:
    with rocketstore.open(sys.argv[1], "r+") as store:
        print(store.put("T", b"second").ok)
except (rocketstore.RocketStoreError, OSError) as error:
    print(type(error).__name__)
"""
TAKE_LOCK = {
    "nothing": lambda root: None,
    "deleted": lambda root: (root / "lock").unlink(),
    "replaced": lambda root: ((root / "lock").unlink(), (root / "lock").write_bytes(b"lock")),
    "replaced by its copy": lambda root: copy_over(root / "lock"),
    "renamed": lambda root: (root / "lock").rename(root / "lock.stale"),
    "deleted with the log's folder moved and back": lambda root: (
        (root / "lock").unlink(),
        (root / "commitlog").rename(root / "x"),
        (root / "x").rename(root / "commitlog"),
    ),
}


def second_writer(root: Path) -> str:
    """What became of another process's put; a fork is one, and need not start an interpreter."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        reported = "nothing"
        try:
            with rocketstore.open(root, "r+") as store:
                reported = str(store.put("T", b"second").ok)
        except BaseException as error:  # noqa: BLE001 - sent to the parent
            reported = type(error).__name__
        finally:
            os.write(writing, reported.encode())
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as file:
        return file.read().decode()


def second_program(root: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", SECOND, str(root)], capture_output=True, text=True, timeout=60
    )
    return done.stdout.strip() or done.stderr


@pytest.mark.parametrize("way", ["itself", "link", "here"])
@pytest.mark.parametrize("what", TAKE_LOCK)
def test_a_second_writer_is_refused_whatever_became_of_the_lock_file(
    tmp_path: Path, what: str, way: str
) -> None:
    """A user deleted ``lock`` as stale: both writers confirmed puts, one over the other."""
    root = tmp_path / "s"
    (tmp_path / "link").symlink_to(root)
    path = tmp_path / "link" if way == "link" else root
    first = rocketstore.open(root, "x", flush_disk_type="SYNC_FLUSH", **OPTIONS)
    assert first.put("T", b"first").ok
    TAKE_LOCK[what](root)
    if way == "here":
        with pytest.raises(StoreLockedError):
            rocketstore.open(path, "r+")
    else:
        assert second_writer(path) == "StoreLockedError"
    with pytest.raises(StoreLockedError):
        rocketstore.salvage(path)
    if what == "nothing":
        assert first.put("T", b"more").ok
        first.close()
    else:
        with pytest.raises(ServiceFailedError, match="lock"):
            first.put("T", b"more")
        with pytest.raises(ServiceFailedError):
            first.close()
    assert second_writer(path) == "True"
    with rocketstore.open(root) as reader:
        bodies = [m.body for m in reader.scan()]
    assert bodies[0] == b"first"
    assert bodies[-1] == b"second"


def test_two_stores_do_not_share_a_log(tmp_path: Path) -> None:
    """Their roots, and so their locks, are two."""
    log = tmp_path / "log"
    log.mkdir()
    options = dict(OPTIONS, store_path_commit_log=str(log))
    with rocketstore.open(tmp_path / "a", "x", **options) as first:
        assert first.put("T", b"1").ok
        with pytest.raises(StoreLockedError, match="folder"):
            rocketstore.open(tmp_path / "b", "x", **options)
        assert first.put("T", b"3").ok


def test_the_second_one_s_messages_stay_where_the_root_was_exchanged(tmp_path: Path) -> None:
    """A restore put another folder in the store's place, in which the next writer goes on."""
    root = tmp_path / "s"
    first = rocketstore.open(root, "x", flush_disk_type="SYNC_FLUSH", **OPTIONS)
    assert first.put("T", b"first").ok
    assert first.wait_dispatched(60)
    first.flush()
    copy_folder_over(root)
    assert second_program(root) == "True"
    with pytest.raises(ServiceFailedError, match="another process changed"):
        first.put("T", b"more")
    with pytest.raises(ServiceFailedError):
        first.close()
    with rocketstore.open(root) as reader:
        assert [m.body for m in reader.scan()] == [b"first", b"second"]


def test_another_current_folder_is_nothing_to_worry_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store opened by a relative path goes on in its own folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    store = rocketstore.open("s", "x", flush_disk_type="SYNC_FLUSH", **OPTIONS)
    assert store.put("T", b"x" * 900).ok
    monkeypatch.chdir(tmp_path / "other")
    for _ in range(100):
        assert store.put("T", b"x" * 900).ok
    store.close()
    with rocketstore.open(tmp_path / "s") as reader:
        assert sum(1 for _ in reader.scan()) == 101


def test_all_calls_go_on_in_the_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon changes its working directory; another store may have the same name there."""
    (tmp_path / "other").mkdir()
    with rocketstore.open(tmp_path / "other" / "s", "x", **OPTIONS) as other:
        other.put("T", b"other")
    monkeypatch.chdir(tmp_path)
    store = rocketstore.open("s", "x", **OPTIONS)
    store.put("T", b"first")
    store.wait_dispatched()
    reader = rocketstore.open("s", **OPTIONS)
    monkeypatch.chdir(tmp_path / "other")
    store.put("T", b"second")
    store.wait_dispatched()
    reader.refresh()
    assert store.path == reader.path == tmp_path / "s"
    for one in (store, reader):
        assert [message.body for message in one.tail(start=0, timeout_s=0.1)] == [
            b"first",
            b"second",
        ]
        report = one.verify()
        assert (report.records, report.findings) == (2, [])
        assert not any("no checkpoint" in note for note in report.notes)
    with store.consumer("g", "T") as consumer:
        assert [message.body for message in consumer.poll()] == [b"first", b"second"]
        with pytest.raises(rocketstore.ConsumerConflictError):
            reader.consumer("g", "T")
    reader.close()
    store.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork is needed")
def test_a_child_keeps_no_lock_alive(tmp_path: Path) -> None:
    """The folder's lock belongs to an open file, which a fork copies."""
    root = tmp_path / "s"
    store = rocketstore.open(root, "x", **OPTIONS)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.read(reading, 1)  # until the parent has seen what it wanted
        os._exit(0)
    os.close(reading)
    try:
        store.close()
        assert second_writer(root) == "True"
    finally:
        os.close(writing)
        os.waitpid(child, 0)


def test_a_file_system_without_locks_on_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock file alone keeps others away there, as it did."""

    def refuse(fd: int) -> None:
        raise OSError(9, os.strerror(9))

    monkeypatch.setattr("rocketstore.directory.lock._lock_folder", refuse)
    with rocketstore.open(tmp_path / "s", "x", **OPTIONS) as store:
        assert store.put("T", b"one").ok
        assert second_program(tmp_path / "s") == "StoreLockedError"
