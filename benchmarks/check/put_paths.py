"""Putting: one by one, many at once, and as columns."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Iterator
from typing import Any

from check import messages, stores
from check.counter import CountedPath
from check.messages import ROUND, SIZES
from rocketstore import DefaultMessageStore, Message

MANY = 1000
BATCH = 32
BATCHES = 16


def paths() -> Iterator[CountedPath]:
    """Yield the paths on one store, whose segment has room for all of them."""
    with stores.empty() as store:
        for path in _on(store):
            # Every put finds disk blocks and pages, as it does beside the store's own threads.
            stores.allocate(store)
            yield path
    with stores.empty(enabled_append_prop_crc=True) as store:
        yield _put_message("put_message.property-crc.100B", store, 100)


def _on(store: DefaultMessageStore) -> Iterator[CountedPath]:
    for size, nbytes in SIZES.items():
        yield _one_by_one(f"put.stock.{size}", _stock_put(store, nbytes))
    yield _one_by_one("put.body-only.100B", _bare_put(store))
    yield _one_by_one("put.tags-keys.100B", _named_put(store))
    for size, nbytes in SIZES.items():
        yield _put_message(f"put_message.stock.{size}", store, nbytes)
    kinds = {"delay": messages.delayed, "retry": messages.retried, "half": messages.half}
    for kind, make in kinds.items():
        yield _put_message(f"put_message.{kind}.100B", store, 100, make)
    for size, nbytes in SIZES.items():
        yield _put_many(f"put_many.stock.{size}", store, nbytes)
    yield _put_messages(store)
    for size in ("100B", "1KiB"):
        yield _put_columns(f"put_columns.{size}", store, SIZES[size])
    yield _aput(store)


def _one_by_one(name: str, work: Callable[[], object]) -> CountedPath:
    return CountedPath(name=name, work=work, units=ROUND, of="message", loops=ROUND)


def _stock_put(store: DefaultMessageStore, nbytes: int) -> Callable[[], object]:
    calls = [
        (m.topic, m.body, m.queue_id, dict(m.properties), m.born_timestamp, m.born_host)
        for m in messages.many(ROUND, nbytes)
    ]
    put = store.put

    def work() -> None:
        for topic, body, queue_id, properties, born, host in calls:
            put(
                topic, body, queue_id, properties=properties, born_timestamp=born, born_host=host
            )  # fmt: skip

    topic, body, queue_id, properties, *_ = calls[0]
    assert put(topic, body, queue_id, properties=properties).ok
    return work


def _bare_put(store: DefaultMessageStore) -> Callable[[], object]:
    calls = [(messages.topic_of(n), messages.body_of(n, 100)) for n in range(ROUND)]
    put = store.put

    def work() -> None:
        for topic, body in calls:
            put(topic, body)

    return work


def _named_put(store: DefaultMessageStore) -> Callable[[], object]:
    calls = [(m.topic, m.body, m.queue_id, m.tags, m.keys) for m in messages.many(ROUND, 100)]
    put = store.put

    def work() -> None:
        for topic, body, queue_id, tags, keys in calls:
            put(topic, body, queue_id, tags, keys)

    return work


def _put_message(
    name: str,
    store: DefaultMessageStore,
    nbytes: int,
    make: Callable[[int, int], Message] = messages.stock,
) -> CountedPath:
    given = messages.many(ROUND, nbytes, make)
    put = store.put_message
    assert put(given[0]).ok

    def work() -> None:
        for message in given:
            put(message)

    return _one_by_one(name, work)


def _put_many(name: str, store: DefaultMessageStore, nbytes: int) -> CountedPath:
    given = messages.many(MANY, nbytes)

    def work() -> None:
        store.put_many(given)

    assert all(result.ok for result in store.put_many(given))
    return CountedPath(name=name, work=work, units=MANY, of="message", loops=0)


def _put_messages(store: DefaultMessageStore) -> CountedPath:
    given = [messages.batch(BATCH, 100)] * BATCHES

    def work() -> None:
        for batch in given:
            store.put_messages(batch)

    assert store.put_messages(given[0]).ok
    return CountedPath(
        name="put_messages.stock.100B",
        work=work,
        units=BATCHES * BATCH,
        of="message",
        loops=BATCHES,
    )


def _put_columns(name: str, store: DefaultMessageStore, nbytes: int) -> CountedPath:
    data = b"".join(messages.body_of(number, nbytes) for number in range(MANY))
    offsets = array("q", range(0, len(data) + 1, nbytes))
    same: dict[str, Any] = {
        "queue_id": 1,
        "properties": messages.stock_properties(7),
        "born_timestamp": messages.BORN,
        "born_host": messages.BORN_HOST,
    }
    topic = messages.topic_of(0)

    def work() -> None:
        store.put_columns(topic, offsets, data, **same)

    assert len(store.put_columns(topic, offsets, data, **same)) == MANY
    return CountedPath(name=name, work=work, units=MANY, of="message", loops=0)


def _aput(store: DefaultMessageStore) -> CountedPath:
    given = messages.many(ROUND, 100)
    loop = asyncio.new_event_loop()

    async def put_all() -> None:
        for m in given:
            await store.aput(
                m.topic, m.body, m.queue_id, properties=m.properties,
                born_timestamp=m.born_timestamp, born_host=m.born_host,
            )  # fmt: skip

    def work() -> None:
        loop.run_until_complete(put_all())

    return _one_by_one("aput.stock.100B", work)
