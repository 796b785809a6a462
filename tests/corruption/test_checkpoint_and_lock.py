"""Checkpoint, state, abort and lock files that are missing, torn, wrong or held."""

from __future__ import annotations

import dataclasses
import gc
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from corruption import crafted
from corruption.crafted import Crafted, Record, snapshot
from golden import golden_stores
from rocketstore import StoreLockedError
from rocketstore.config import MessageStoreConfig
from rocketstore.directory import lock as store_lock
from rocketstore.directory.checkpoint import StoreCheckpoint
from rocketstore.directory.lock import StoreLock
from rocketstore.directory.state import StoreState
from rocketstore.store.verifying import verify_files
from support.own_process import run_python

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="stores are only read there")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of several segments, closed in order."""
    root = tmp_path_factory.mktemp("template") / "store"
    crafted.build(root)
    return root


@pytest.fixture(scope="module")
def rocketmq_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that RocketMQ wrote and left in order."""
    return golden_stores.unpack("plain-5.3.3", tmp_path_factory.mktemp("golden"))


@pytest.fixture(params=["own", "of RocketMQ"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Crafted:
    """A copy to be damaged."""
    name = "template" if request.param == "own" else "rocketmq_template"
    return Crafted(request.getfixturevalue(name), tmp_path / "store")


def tear(store: Crafted) -> Record:
    """Truncate the log after a record of the last segment, and tear that record."""
    target = [r for r in store.records if r.offset >= store.files_end() - store.segment_size][3]
    store.zero_from(target.end)
    store.write(target.offset, target.with_number("magic", 0))
    return target


def check_opens(store: Crafted, torn: Record | None) -> Any:
    """Both modes show what is good; a put continues after it; then the checkpoint is right."""
    good = [r.raw for r in store.records if torn is None or r.offset < torn.offset]
    end = store.records[len(good) - 1].end
    before = snapshot(store.root)
    with rocketstore.open(store.root) as reader:
        assert [bytes(m.raw) for m in reader.scan()] == good
    assert snapshot(store.root) == before
    with rocketstore.open(store.root, "r+") as writer:
        report = writer.recovery_report
        assert [bytes(m.raw) for m in writer.scan()] == good
        assert bool(report.cut) == (torn is not None)
        assert writer.max_physical_offset == end
        messages, errors = crafted.pull_all(writer)
        queued = [r.raw for r in store.records[: len(good)] if r.sys_flag & 0xC in (0, 8)]
        assert (crafted.in_log_order(messages), errors) == (queued, [])
        result = writer.put("Fresh", b"next", 0, None, "next")
        assert result.ok
    with rocketstore.open(store.root, "r+") as writer:
        assert not writer.recovery_report.cut
        assert [bytes(m.raw) for m in writer.scan()][:-1] == good
        assert [m.body for m in writer.find(topic="Fresh", key="next")] == [b"next"]
        assert writer.verify().ok
    checkpoint = StoreCheckpoint.read(store.root / "checkpoint", store.root)
    times = checkpoint.physic_timestamp, checkpoint.logics_timestamp, checkpoint.index_timestamp
    assert all(0 <= time <= result.store_timestamp for time in times)
    assert checkpoint.physic_timestamp == result.store_timestamp
    return report


def check_damaged(store: Crafted, torn: Record) -> Any:
    """Mode "r" shows what is good, reports the rest and truncates nothing; salvage keeps it."""
    good = [r.raw for r in store.records if r.offset < torn.offset]
    before = snapshot(store.root)
    with rocketstore.open(store.root) as reader:
        report = reader.recovery_report
        assert [bytes(m.raw) for m in reader.scan(on_corruption="skip")] == good
        with pytest.raises(rocketstore.CorruptMessageError):
            list(reader.scan())
    assert report.clean
    assert [damage.start for damage in report.damaged] == [torn.offset]
    with pytest.raises(rocketstore.CorruptionError) as caught:
        rocketstore.open(store.root, "r+")
    assert caught.value.position == torn.offset % store.segment_size
    assert snapshot(store.root) == before
    rocketstore.salvage(store.root)
    with rocketstore.open(store.root, "r+") as writer:
        assert [bytes(m.raw) for m in writer.scan()][: len(good)] == good
        assert writer.max_physical_offset > torn.offset
    assert list((store.root / "quarantine").iterdir())
    return report


# --- E01, E02: the checkpoint -----------------------------------------------------------------

CHECKPOINTS: dict[str, bytes | None] = {
    "e01_missing": None,
    "e01_empty": b"",
    "e01_8_bytes": bytes(8),
    "e01_100_bytes": random.Random(1).randbytes(100),
    "e01_random": random.Random(2).randbytes(4096),
    "e01_1_mib": random.Random(3).randbytes(1 << 20),
    "e01_zeros": bytes(4096),
    "e01_all_ones": b"\xff" * 4096,
    "e01_text": b"{}",
    "e02_far_future": (2**62).to_bytes(8, "big") * 3,
    "e02_highest": (2**63 - 1).to_bytes(8, "big") * 6,
    "e02_negative": (-1).to_bytes(8, "big", signed=True) * 3,
    "e02_lowest": (-(2**63)).to_bytes(8, "big", signed=True) * 6,
    "e02_one_in_the_future": (2**61).to_bytes(8, "big") + bytes(16),
    "e02_offsets_beyond_the_log": bytes(24) + (2**40).to_bytes(8, "big") * 3,
}


@pytest.mark.parametrize("content", CHECKPOINTS.values(), ids=CHECKPOINTS.keys())
@pytest.mark.parametrize("torn", [True, False], ids=["torn", "whole"])
@pytest.mark.parametrize("aborted", [True, False], ids=["aborted", "clean"])
def test_checkpoint_that_says_nothing(
    store: Crafted, content: bytes | None, torn: bool, aborted: bool
) -> None:
    target = tear(store) if torn else None
    path = store.root / "checkpoint"
    if target is not None and (store.root / "rocketstore.state").exists():
        store.set_state(target.offset)
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content.ljust(4096, b"\0") if 8 < len(content) < 100 else content)
    if aborted:
        store.crashed()
    with rocketstore.open(store.root) as reader:
        is_marked = reader.facts.valid_state is not None
    if target is not None and not aborted and not is_marked:
        check_damaged(store, target)  # what units name was there when the store was left in order
    else:
        check_opens(store, target)


@pytest.mark.parametrize("name", ["e01_missing", "e01_random", "e02_far_future"])
def test_wrong_checkpoint_does_not_hide_damage(template: Path, tmp_path: Path, name: str) -> None:
    store = Crafted(template, tmp_path / "store")
    target = store.records[30]
    store.write(target.offset, target.with_number("magic", 0))
    content = CHECKPOINTS[name]
    path = store.root / "checkpoint"
    path.unlink()
    if content is not None:
        path.write_bytes(content.ljust(4096, b"\0"))
    before = snapshot(store.root)
    with pytest.raises(rocketstore.CorruptionError) as caught:
        rocketstore.open(store.root, "r+")
    assert caught.value.position == target.offset % store.segment_size
    assert snapshot(store.root) == before


# --- the state file ---------------------------------------------------------------------------

STATES: dict[str, bytes | None] = {
    "missing": None,
    "empty": b"",
    "one_byte": b"R",
    "random": random.Random(4).randbytes(200),
    "1_mib": random.Random(5).randbytes(1 << 20),
    "all_ones": b"\xff" * 256,
}


@pytest.mark.parametrize("content", STATES.values(), ids=STATES.keys())
@pytest.mark.parametrize("torn", [True, False], ids=["torn", "whole"])
def test_state_file_that_says_nothing(
    template: Path, tmp_path: Path, content: bytes | None, torn: bool
) -> None:
    store = Crafted(template, tmp_path / "store")
    target = tear(store) if torn else None
    path = store.root / "rocketstore.state"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    store.crashed()
    notes = verify_files(store.root, MessageStoreConfig()).notes
    said = [note for note in notes if "not a complete state file" in note]
    assert len(said) == (content is not None), "an ignored file is reported"
    check_opens(store, target)


def test_every_flipped_bit_of_the_state_file_voids_it(template: Path, tmp_path: Path) -> None:
    whole = (template / "rocketstore.state").read_bytes()
    root = tmp_path / "store"
    shutil.copytree(template, root)
    for at in range(0, len(whole), 3):
        changed = bytearray(whole)
        changed[at] ^= 1 << at % 8
        (root / "rocketstore.state").write_bytes(changed)
        with rocketstore.open(root) as reader:
            assert reader.facts.valid_state is None
            assert any("not a complete state file" in note for note in reader.recovery_report.notes)


def test_first_open_of_a_rocketmq_store_marks_it_durable(
    rocketmq_template: Path, tmp_path: Path
) -> None:
    """A state file that began with a mark of 0 made later damage look torn: recovery truncated
    everything after it."""
    store = Crafted(rocketmq_template, tmp_path / "store")
    image = tmp_path / "killed"
    with rocketstore.open(store.root, "r+"):
        shutil.copytree(store.root, image)
    killed = Crafted(image, tmp_path / "again")
    target = killed.records[len(killed.records) // 2]
    killed.write(target.offset, target.with_number("magic", 0))
    before = snapshot(killed.root)
    with pytest.raises(rocketstore.CorruptionError):
        rocketstore.open(killed.root, "r+")
    assert snapshot(killed.root) == before


# --- E03, E04: abort --------------------------------------------------------------------------


def test_e03_torn_tail_after_the_mark_without_abort(template: Path, tmp_path: Path) -> None:
    """The power failed before the abort file was synced: the same as with it."""
    ends = []
    for aborted in (True, False):
        store = Crafted(template, tmp_path / f"store-{aborted}")
        target = tear(store)
        store.set_state(target.offset)
        if aborted:
            store.crashed()
        report = check_opens(store, target)
        assert report.clean is not aborted
        ends.append((report.log_end, [(c.start, c.nbytes, c.reason) for c in report.cut]))
    assert ends[0] == ends[1]


def test_e03_broken_record_after_an_orderly_stop(template: Path, tmp_path: Path) -> None:
    """Without a state file, recovery truncated a broken last record after an orderly stop, although
    nothing is torn there."""
    store = Crafted(template, tmp_path / "store")
    target = tear(store)
    store.set_checkpoint(target.offset)
    check_damaged(store, target)


ABORTS = {"empty": b"", "pid": b"12345", "1_mib": bytes(1 << 20), "text": b"\xff\xfe\n\0abort",
          "own_pid": b"1"}  # fmt: skip


@pytest.mark.parametrize("content", ABORTS.values(), ids=ABORTS.keys())
@pytest.mark.parametrize("torn", [True, False], ids=["torn", "whole"])
def test_e04_any_abort_file_means_unclean(store: Crafted, content: bytes, torn: bool) -> None:
    target = tear(store) if torn else None
    (store.root / "abort").write_bytes(content)
    if torn and (store.root / "rocketstore.state").exists():
        store.set_state(target.offset if target is not None else 0)
    report = check_opens(store, target)
    assert not report.clean
    assert not (store.root / "abort").exists()


# --- E05, E06: the lock -----------------------------------------------------------------------

HOLD = """
import fcntl, struct, sys, os
path, kind = sys.argv[1:]
fd = os.open(path, os.O_RDWR | os.O_CREAT)
if kind == "broker":
    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)  # java.nio's FileLock of byte 0
elif kind == "broker whole file":
    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
elif kind == "shared":
    fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, 0)
else:
    import rocketstore
    os.close(fd)
    store = rocketstore.open(os.path.dirname(path), "r+", start=False)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ["broker", "broker whole file", "shared", "rocketstore"])
@pytest.mark.parametrize("mode", ["r+", "a"])
def test_e05_lock_held_by_another_process(
    template: Path, tmp_path: Path, kind: str, mode: str
) -> None:
    store = Crafted(template, tmp_path / "store")
    source = str(Path(rocketstore.__file__).parents[1])
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(store.root / "lock"), kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": source},
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "held\n"
        before = snapshot(store.root)
        for _ in range(2):
            with pytest.raises(StoreLockedError, match="lock"):
                rocketstore.open(store.root, mode)
        assert snapshot(store.root) == before
        with rocketstore.open(store.root, "r") as reader:
            assert len(list(reader.scan())) == len(store.records)
        assert snapshot(store.root) == before
    finally:
        holder.stdin.close()
        holder.wait(20)
        holder.stdout.close()
    with rocketstore.open(store.root, mode) as writer:
        assert writer.put("Orders", b"next").ok


def test_e05_second_open_in_this_process(template: Path, tmp_path: Path) -> None:
    store = Crafted(template, tmp_path / "store")
    link = tmp_path / "link"
    link.symlink_to(store.root)
    with rocketstore.open(store.root, "r+", start=False) as writer:
        before = snapshot(store.root)
        for path in (store.root, link, store.root / "." / ".." / "store"):
            for mode in ("r+", "a"):
                with pytest.raises(StoreLockedError):
                    rocketstore.open(path, mode)
        assert snapshot(store.root) == before
        assert writer.put("Orders", b"next").ok
    with rocketstore.open(link, "r+") as writer:
        assert len(list(writer.scan())) == len(store.records) + 1


def test_e05_lock_is_kept_while_others_are_refused(template: Path, tmp_path: Path) -> None:
    """Closing a descriptor of the lock file must not give the lock away."""
    store = Crafted(template, tmp_path / "store")
    program = """
import sys, rocketstore
try:
    rocketstore.open(sys.argv[1], "r+")
except rocketstore.StoreLockedError:
    print("locked")
"""
    with rocketstore.open(store.root, "r+"):
        with pytest.raises(StoreLockedError):
            rocketstore.open(store.root, "r+")
        with rocketstore.open(store.root, "r"):
            pass
        with (store.root / "lock").open("rb") as file:
            file.read()
        assert run_python(program, str(store.root)).stdout == "locked\n"


def test_e05_refused_open_gives_the_lock_back(template: Path, tmp_path: Path) -> None:
    """After damage was refused, the store can be opened once it is repaired."""
    store = Crafted(template, tmp_path / "store")
    target = store.records[10]
    store.write(target.offset, target.with_number("magic", 0))
    for _ in range(2):
        with pytest.raises(rocketstore.CorruptionError):
            rocketstore.open(store.root, "r+")
    store.write(target.offset, target.raw)
    with rocketstore.open(store.root, "r+") as writer:
        assert len(list(writer.scan())) == len(store.records)


@pytest.mark.parametrize("existed", [True, False])
def test_e05_refused_open_makes_no_lock_file(template: Path, tmp_path: Path, existed: bool) -> None:
    store = Crafted(template, tmp_path / "store")
    if not existed:
        (store.root / "lock").unlink()
    target = store.records[10]
    store.write(target.offset, target.with_number("magic", 0))
    with pytest.raises(rocketstore.CorruptionError):
        rocketstore.open(store.root, "r+")
    assert (store.root / "lock").exists() == existed


@pytest.mark.parametrize("content", [b"lock", b"", b"something else", None])
def test_e06_stale_lock(template: Path, tmp_path: Path, content: bytes | None) -> None:
    store = Crafted(template, tmp_path / "store")
    path = store.root / "lock"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    check_opens(store, None)
    assert path.read_bytes()[:4] == b"lock"


# --- other files in the root ------------------------------------------------------------------


def test_leftovers_of_a_killed_writer_are_removed(template: Path, tmp_path: Path) -> None:
    store = Crafted(template, tmp_path / "store")
    leftover = store.root / ".rocketstore-new-123-abc"
    leftover.write_bytes(bytes(1000))
    mine = store.root / "notes.txt"
    mine.write_bytes(b"keep")
    check_opens(store, None)
    assert not leftover.exists()
    assert mine.read_bytes() == b"keep"


IMPOSSIBLE = (
    {"broker_version": "abc"},
    {"broker_version": "3.2.6"},
    {"commit_log_file_size": 0},
    {"commit_log_file_size": -1},
    {"consume_queue_file_size": 0},
    {"consume_queue_file_size": 401},
    {"hash_slot_num": -5},
    {"index_num": 2**31 - 1},
    {"flushed_offset": -1},
    {"dispatched_offset": 2**62},
)


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_a_state_file_of_impossible_values_says_nothing(
    template: Path, tmp_path: Path, mode: str
) -> None:
    """Its CRC was right and its version none, as a later release or another hand may leave it:
    the store could not be opened at all, although the file is a hint that may be missing."""
    whole = StoreState.from_bytes((template / "rocketstore.state").read_bytes())
    assert whole is not None
    for number, values in enumerate(IMPOSSIBLE):
        store = Crafted(template, tmp_path / str(number))
        dataclasses.replace(whole, **values).write(store.root / "rocketstore.state")
        with rocketstore.open(store.root, mode) as opened:
            assert opened.facts.state is None, values
            assert [bytes(m.raw) for m in opened.scan()] == [r.raw for r in store.records], values


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork is needed")
def test_a_lock_that_was_given_back_is_forgotten(tmp_path: Path) -> None:
    """Each opening for writing registered a hook for forks, which kept its lock's object for the
    life of the process, and ran at every fork."""
    lock = StoreLock(tmp_path)
    lock.release()
    gone = weakref.ref(lock)
    del lock
    gc.collect()
    assert gone() is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork is needed")
def test_a_child_forked_while_another_thread_opens_a_store_may_open_one(tmp_path: Path) -> None:
    """The registry of open stores was locked in the child for ever: its first open hung."""
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with store_lock._registry_lock:
            entered.set()
            leave.wait(60)

    opening = threading.Thread(target=hold)
    opening.start()
    entered.wait(60)
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(60)
            StoreLock(tmp_path).release()
            os._exit(0)
        finally:
            os._exit(1)
    leave.set()
    opening.join()
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
