"""Stores whose oldest files RocketMQ has deleted: nothing below is answered, no offset comes
again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from golden import golden_stores
from rocketstore import formats
from rocketstore.directory.state import StoreState
from support.directory import files_below
from support.expired_stores import Was, assert_is_what_is_left, expire, look, make, messages_of

Made = tuple[Path, Was, int]
GOLDEN = {"plain-4.9.8": 2, "plain-5.3.3": 1}


@pytest.fixture(scope="module", params=[*GOLDEN, "4.9.8", "5.1.4", "5.5.0"])
def pristine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    directory, name = tmp_path_factory.mktemp("expired"), request.param
    if name in GOLDEN:
        root = golden_stores.unpack(name, directory)
        geometry = golden_stores.geometry(name)
        sizes = {"max_hash_slot_num": geometry.slots, "max_index_num": geometry.entries}
        was = look(root, name.split("-")[1], sizes)
        return root, was, expire(root, GOLDEN[name])
    root = directory / "store"
    make(root, name)
    (root / "rocketstore.state").unlink()
    was = look(root, name, {"max_hash_slot_num": 5, "max_index_num": 40})
    return root, was, expire(root, 4)


@pytest.fixture
def made(pristine: Made, tmp_path: Path) -> Made:
    root = tmp_path / "store"
    shutil.copytree(pristine[0], root)
    return root, *pristine[1:]


def opened(root: Path, was: Was, **options: Any) -> rocketstore.DefaultMessageStore:
    return rocketstore.open(root, broker_version=was.version, **{**was.options, **options})


@pytest.mark.parametrize("derive", ["tail", "none", "full"])
def test_reading_a_store_without_its_head(pristine: Made, derive: str) -> None:
    root, was, minimum = pristine
    before = files_below(root)
    with opened(root, was, derive=derive) as store:
        assert_is_what_is_left(store, was, minimum)
        store.refresh()
        assert_is_what_is_left(store, was, minimum)
        assert store.verify().findings == []
    assert files_below(root) == before


def clean(root: Path) -> None:
    """As RocketMQ left it."""


def lose_abort(root: Path) -> None:
    (root / "abort").touch()


def lose_index(root: Path) -> None:
    shutil.rmtree(root / "index")


def lose_long_queue(root: Path) -> None:
    name = "Long" if (root / "consumequeue" / "Long").exists() else "T"
    shutil.rmtree(root / "consumequeue" / name)


@pytest.mark.parametrize("harm", [clean, lose_abort, lose_index, lose_long_queue])
def test_writing_continues_after_what_expired(made: Made, harm: Callable[[Path], None]) -> None:
    root, was, minimum = made
    harm(root)
    with opened(root, was, mode="r+") as store:
        assert_is_what_is_left(store, was, minimum)
        for topic, queue_id in was.ends:
            if not topic.startswith("SCHEDULE"):
                result = store.put(topic, b"new", queue_id)
                assert result.queue_offset == was.ends[topic, queue_id]
        assert store.wait_dispatched(120)
    # A second time with the state file, and a queue lost under it.
    harm(root)
    for mode in ("r+", "r"):
        with opened(root, was, mode=mode) as store:
            for key, end in was.ends.items():
                now = 0 if key[0].startswith("SCHEDULE") else 1
                assert store.max_offset_in_queue(*key) == end + now
                left = [at for _, at in was.messages[key] if at >= minimum]
                assert [at for _, at in messages_of(store, key)][: len(left)] == left
            assert store.verify().findings == []


@pytest.mark.parametrize("compared_nbytes", [1 << 24, 0])
@pytest.mark.parametrize("version", ["4.9.8", "5.5.0"])
@pytest.mark.parametrize("harm", ["damage", "old state"])
def test_a_state_file_from_before_the_logs_beginning_costs_no_queue_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: str, version: str, compared_nbytes: int
) -> None:
    """Salvage has all units rebuilt by a state file that says that none is on disk, and a state
    file older than a deletion may be written late. Queues whose messages had all expired then lost
    their units, which alone show where they end. They began at queue offset 0 again, and consumers
    at a later offset got none of the new messages."""
    monkeypatch.setattr("rocketstore.store.dispatch_recovery.COMPARED_NBYTES", compared_nbytes)
    root = tmp_path / "store"
    make(root, version)
    was = look(root, version, {})
    minimum = expire(root, 4)
    state = StoreState.read(root / formats.STATE_FILE, root)
    assert state is not None
    if harm == "damage":
        log = sorted((root / "commitlog").iterdir())
        with log[1].open("r+b") as file:
            file.seek(1000)
            file.write(b"\xff" * 200)
        report = rocketstore.salvage(root)
        assert report.segments
    else:
        older = replace(state, dispatched_offset=500, indexed_offset=500, clean=False)
        older.write(root / formats.STATE_FILE)
        with opened(root, was, mode="r+") as store:
            assert_is_what_is_left(store, was, minimum)
    with opened(root, was, mode="r+") as store:
        for topic, queue_id in was.ends:
            result = store.put(topic, b"new", queue_id)
            assert result.queue_offset == was.ends[topic, queue_id]


def test_a_queue_that_lost_its_files_begins_at_its_first_record(made: Made) -> None:
    """Queues of which no message is left, and no file, are gone; all others keep their offsets."""
    root, was, minimum = made
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "batchconsumequeue", ignore_errors=True)
    lost = tuple(key for key in was.ends if not any(at >= minimum for _, at in was.messages[key]))
    with opened(root, was, mode="r+") as store:
        assert_is_what_is_left(store, was, minimum, lost=lost)
        assert store.recovery_report.gaps == []
    with opened(root, was) as store:
        assert_is_what_is_left(store, was, minimum, lost=lost)


def test_a_log_that_ends_with_its_beginning(made: Made) -> None:
    """All that is left of the log is one segment without a message yet."""
    root, was, _ = made
    files = sorted((root / "commitlog").iterdir())
    size = files[0].stat().st_size
    start = int(files[-1].name) + size
    for path in files:
        path.unlink()
    (root / "commitlog" / formats.offset_to_file_name(start)).write_bytes(bytes(size))
    for mode in ("r", "r+", "r"):
        with opened(root, was, mode=mode) as store:
            assert (store.min_physical_offset, store.max_physical_offset) == (start, start)
            assert list(store.scan()) == []
            for key, end in was.ends.items():
                assert store.max_offset_in_queue(*key) == end
                assert messages_of(store, key) == []
    with opened(root, was, mode="r+") as store:
        for key in [key for key in was.ends if not key[0].startswith("SCHEDULE")]:
            assert store.put(key[0], b"new", key[1]).queue_offset == was.ends[key]
        assert store.wait_dispatched(120)
        assert store.verify().findings == []
