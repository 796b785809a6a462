"""Queues and the index as arrays, on stores of every kind of queue, against the messages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import rocketstore
from golden import golden_stores
from rocketstore import DefaultMessageStore, StoredMessage, formats, kernels

STORES = (
    *("plain-4.9.8", "plain-5.3.3", "plain-5.5.0", "ext-4.9.8", "lmq-5.3.3", "inner-5.3.3"),
    *("crc-5.3.3", "expire-4.9.8", "rocksdb-5.5.0", "lag-5.3.3"),
)


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DefaultMessageStore]:
    with rocketstore.open(golden_stores.unpack(request.param, tmp_path)) as opened:
        yield opened


def messages_of(store: DefaultMessageStore, topic: str, queue_id: int) -> dict[int, StoredMessage]:
    """Messages by queue offset, as pulls give them; of an inner batch only its first offset."""
    found: dict[int, StoredMessage] = {}
    offset = store.min_offset_in_queue(topic, queue_id)
    end = store.max_offset_in_queue(topic, queue_id)
    while offset < end:
        result = store.get_message("g", topic, queue_id, offset, 1)
        for message in result.messages:
            found[offset] = message
        assert result.next_begin_offset > offset
        offset = result.next_begin_offset
    return found


def hash_of(text: str) -> int:
    return kernels.message.string_hash_code(text.encode("utf-8", "replace"))


def delayed(topic: str) -> bool:
    """Whether its units carry times instead of codes."""
    return topic == "SCHEDULE_TOPIC_XXXX"


def test_views_and_filters_agree_with_the_messages(store: DefaultMessageStore) -> None:
    seen = 0
    for topic in store.topics():
        for queue_id in store.queues(topic):
            messages = messages_of(store, topic, queue_id)
            view = store.queue_view(topic, queue_id)
            expected = {message.physical_offset for message in messages.values()}
            assert expected <= set(view["physical_offset"].tolist())
            if view.dtype.names == formats.CONSUME_QUEUE_UNIT.dtype.names:
                first = view.first_offset
                assert first is not None
                assert first >= store.min_offset_in_queue(topic, queue_id)
                assert len(view) == store.max_offset_in_queue(topic, queue_id) - first
                for offset, message in messages.items():
                    unit = view[offset - first]
                    assert unit["physical_offset"] == message.physical_offset
                    assert unit["size"] == message.store_size
            seen += len(messages)
            if delayed(topic):
                continue
            for tag in {message.tags for message in messages.values()} - {None, ""}:
                offsets = store.filter_units(topic, queue_id, tag)
                wanted = {
                    offset
                    for offset, message in messages.items()
                    if message.tags and hash_of(message.tags) == hash_of(tag)
                }
                assert wanted <= set(offsets.tolist())
                if view.dtype.names == formats.CONSUME_QUEUE_UNIT.dtype.names:
                    assert offsets.tolist() == sorted(wanted)
    assert seen


def test_index_offsets_hold_every_message_of_a_key(store: DefaultMessageStore) -> None:
    by_key: dict[tuple[str, str], set[int]] = defaultdict(set)
    for message in store.scan():
        if (
            message.sys_flag & formats.SYS_FLAG_TRANSACTION_MASK
            == formats.SYS_FLAG_TRANSACTION_ROLLBACK
        ):
            continue
        for key in (message.keys or "").split(formats.KEY_SEPARATOR):
            if key:
                by_key[message.topic, key].add(message.physical_offset)
    topics = defaultdict(list)
    for topic, key in by_key:
        topics[topic].append(key)
    for topic, keys in topics.items():
        asked = [*keys, "never put", ""]
        offsets, splits = store.index_offsets(topic, asked)
        assert (splits[0], splits[-1], len(splits)) == (0, len(offsets), len(asked) + 1)
        for number, key in enumerate(asked):
            hits = offsets[splits[number] : splits[number + 1]].tolist()
            assert hits == sorted(hits)
            exact = {message.physical_offset for message in store.find(topic=topic, key=key)}
            assert exact <= set(hits)
            assert exact == by_key.get((topic, key), set())


def test_nothing_asked_and_nothing_there(store: DefaultMessageStore) -> None:
    offsets, splits = store.index_offsets("TopicA", [])
    assert (offsets.tolist(), splits.tolist()) == ([], [0])
    assert len(store.queue_view("TopicA", 99)) == 0
    assert store.filter_units("None", 0, "TagA").tolist() == []
