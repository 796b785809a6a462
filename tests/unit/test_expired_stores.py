"""Stores whose oldest files RocketMQ has deleted: nothing below is answered, no offset comes
again."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import rocketstore
from directory import files_below
from golden import golden_stores
from rocketstore import formats

INNER = formats.SYS_FLAG_INNER_BATCH | formats.SYS_FLAG_NEED_UNWRAP
SEGMENT = 4096
BATCH_TOPICS = {"BCQ": {"queue.type": "BatchCQ"}}
Key = tuple[str, int]


class Was(NamedTuple):
    """What a store held before its oldest files went."""

    version: str
    ends: dict[Key, int]
    #: (queue offset, log offset) of every message.
    messages: dict[Key, list[tuple[int, int]]]
    #: (topic, key, log offset)
    keys: list[tuple[str, str, int]]
    options: dict[str, Any]


def queue_keys(store: rocketstore.DefaultMessageStore) -> list[Key]:
    return [(topic, queue) for topic in store.topics() for queue in store.queues(topic)]


def messages_of(store: rocketstore.DefaultMessageStore, key: Key) -> list[tuple[int, int]]:
    offset, found = store.min_offset_in_queue(*key), []
    while offset < store.max_offset_in_queue(*key):
        result = store.get_message("g", *key, offset)
        found += [(m.queue_offset, m.physical_offset) for m in result.messages]
        assert result.next_begin_offset > offset
        offset = result.next_begin_offset
    return found


def look(root: Path, version: str, options: dict[str, Any]) -> Was:
    with rocketstore.open(root, broker_version=version, **options) as store:
        keys = queue_keys(store)
        return Was(
            version,
            {key: store.max_offset_in_queue(*key) for key in keys},
            {key: messages_of(store, key) for key in keys},
            [
                (message.topic, key, message.physical_offset)
                for message in store.scan()
                for key in (message.keys or "").split()
                if message.sys_flag & formats.SYS_FLAG_TRANSACTION_MASK
                != formats.SYS_FLAG_TRANSACTION_ROLLBACK
            ],
            options,
        )


def make(root: Path, version: str) -> None:
    """Queues that end early, that go on to the end, that have expired messages only, or a few."""
    options: dict[str, Any] = {
        "broker_version": version,
        "mapped_file_size_commit_log": SEGMENT,
        "mapped_file_size_consume_queue": 100,
        "mapper_file_size_batch_consume_queue": 138,
        "max_hash_slot_num": 5,
        "max_index_num": 40,
        "topic_attributes": BATCH_TOPICS if version >= "5" else {},
    }
    batch = {"sys_flag": INNER, "properties": {"INNER_NUM": "3"}}
    with rocketstore.open(root, "x", **options) as store:
        for number in range(150):
            store.put("Long", b"x" * 20, number % 2, "t", f"k{number}")
            if number < 13:
                store.put("Early", b"x", 0, None, f"e{number}")
            if number == 1:
                store.put("Single", b"x")
            if number % 40 == 0:
                store.put("Rare", b"x", 3, "t", f"r{number}")
            if version >= "5" and number % 5 == 0:
                assert store.put("BCQ", b"x" * 9, 0, "t", f"b{number}", **batch).ok
            if version >= "5" and number < 20 and number % 4 == 0:
                assert store.put("BCQ", b"x" * 9, 1, "t", f"c{number}", **batch).ok


def expire(root: Path, segments: int) -> int:
    """Delete what RocketMQ's cleaners delete once the first log segments have gone; return the
    log's first offset."""
    files = sorted((root / "commitlog").iterdir())
    for path in files[:segments]:
        path.unlink()
    minimum = int(files[segments].name)
    for folder, unit in (("consumequeue", 20), ("batchconsumequeue", 46)):
        for queue in (root / folder).glob("*/*"):
            for path in sorted(queue.iterdir())[:-1]:
                content = path.read_bytes()
                last_unit = content[: len(content) // unit * unit][-unit:]
                if struct.unpack_from(">q", last_unit)[0] < minimum:
                    path.unlink()
    for path in sorted((root / "index").iterdir())[:-1]:
        header = formats.INDEX_HEADER.struct.unpack_from(path.read_bytes())
        if header[3] < minimum:
            path.unlink()
    return minimum


def assert_is_what_is_left(
    store: rocketstore.DefaultMessageStore, was: Was, minimum: int, *, lost: tuple[Key, ...] = ()
) -> None:
    assert store.min_physical_offset == minimum
    keys = [key for key in was.ends if key not in lost]
    assert sorted(queue_keys(store)) == sorted(keys)
    for key in keys:
        left = [(offset, at) for offset, at in was.messages[key] if at >= minimum]
        first = store.min_offset_in_queue(*key)
        assert store.max_offset_in_queue(*key) == was.ends[key], key
        assert messages_of(store, key) == left, key
        if left:
            assert first == left[0][0]
        else:
            # 4.9 leaves it where it was; from 5.0 on the queue is empty at its end.
            assert first == (0 if was.version < "5" else was.ends[key])
        for offset in (0, first - 1):
            if 0 <= offset < first:
                result = store.get_message("g", *key, offset)
                assert (result.status.name, result.next_begin_offset) == ("OFFSET_TOO_SMALL", first)
                assert len(result.messages) == 0
        by_time = store.get_offset_in_queue_by_time(*key, 0, boundary="lower")
        assert by_time == (left[0][0] if left else was.ends[key])
    assert min(message.physical_offset for message in store.scan()) >= minimum
    assert store.dispatch_behind_nbytes == 0
    for topic, text, at in was.keys:
        found = [message.physical_offset for message in store.find(topic=topic, key=text)]
        assert (at in found) == (at >= minimum)
        asked = store.query_message(topic, text).messages
        assert min([m.physical_offset for m in asked], default=minimum) >= minimum
    first_message = store.look_message_by_offset(0)
    assert first_message is not None
    assert first_message.physical_offset == minimum
    assert store.look_message_by_offset(minimum - 1) is None


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
def test_writing_goes_on_behind_what_expired(made: Made, harm: Callable[[Path], None]) -> None:
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
