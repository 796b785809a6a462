"""Stores whose oldest files are gone: making them, and what must be answered then."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, NamedTuple

import rocketstore
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
    """Every (topic, queue id)."""
    return [(topic, queue) for topic in store.topics() for queue in store.queues(topic)]


def messages_of(store: rocketstore.DefaultMessageStore, key: Key) -> list[tuple[int, int]]:
    """(queue offset, log offset) of a queue's messages, as pulls give them."""
    offset, found = store.min_offset_in_queue(*key), []
    while offset < store.max_offset_in_queue(*key):
        result = store.get_message("g", *key, offset)
        found += [(m.queue_offset, m.physical_offset) for m in result.messages]
        assert result.next_begin_offset > offset
        offset = result.next_begin_offset
    return found


def look(root: Path, version: str, options: dict[str, Any]) -> Was:
    """Note what a store holds."""
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


def options_of(version: str) -> dict[str, Any]:
    """Small files of every kind."""
    return {
        "broker_version": version,
        "mapped_file_size_commit_log": SEGMENT,
        "mapped_file_size_consume_queue": 100,
        "mapper_file_size_batch_consume_queue": 138,
        "max_hash_slot_num": 5,
        "max_index_num": 40,
        "topic_attributes": BATCH_TOPICS if version >= "5" else {},
    }


def make(root: Path, version: str, **others: Any) -> None:
    """Queues that end early, that go on to the end, that have expired messages only, or a few."""
    batch = {"sys_flag": INNER, "properties": {"INNER_NUM": "3"}}
    with rocketstore.open(root, "x", **options_of(version), **others) as store:
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
    """Compare every answer with what was there from log offset ``minimum`` on."""
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
