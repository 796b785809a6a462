"""Questions to an open rocketstore; what is asked for is chosen before the clock starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from race.messages import MessageSet
from race.worker import Clock
from rocketstore import GetMessageStatus

GROUP = "race-group"
#: One of the eight tags of the producer's messages.
TAGS = "TagA"


def ask(store: Any, chosen: MessageSet, put: int, name: str, words: list[str]) -> dict[str, int]:
    """Answer one line."""
    if name == "get":
        most, body, queues, limit = int(words[0]), words[1] == "body", int(words[2]), int(words[3])
        return _get(store, chosen, most, body, queues, limit)
    if name in _SCANS:
        clock = Clock()
        with clock:
            count = _SCANS[name](store)
        return clock.answer(count)
    count = int(words[0])
    numbers = [int(number) % put for number in chosen.samples[:count]]
    while len(numbers) < count:
        numbers += numbers[: count - len(numbers)]
    return _QUESTIONS[name](store, chosen, numbers)


def _get(
    store: Any, chosen: MessageSet, most: int, body: bool, queues: int, limit: int
) -> dict[str, int]:
    """Read queue after queue to its end, or ``limit`` messages; ``body`` takes each body."""
    clock = Clock()
    count = 0
    get_message, found = store.get_message, GetMessageStatus.FOUND
    with clock:
        for topic in chosen.topics:
            for queue in range(queues):
                offset = 0
                while count < limit:
                    result = get_message(GROUP, topic, queue, offset, most)
                    if result.status is not found and result.status != found:
                        break
                    offset = result.next_begin_offset
                    if body:
                        for message in result.messages:
                            message.body  # noqa: B018 - decodes it
                    count += len(result.messages)
    return clock.answer(count)


def _query(store: Any, chosen: MessageSet, numbers: list[int]) -> dict[str, int]:
    asked = [(one.topic, one.properties["KEYS"]) for one in map(chosen.__getitem__, numbers)]
    query_message, clock, hits = store.query_message, Clock(), 0
    with clock:
        for topic, key in asked:
            hits += len(query_message(topic, key, 1).messages)
    return clock.answer(hits)


def _find(store: Any, chosen: MessageSet, numbers: list[int]) -> dict[str, int]:
    asked = [(one.topic, one.properties["KEYS"]) for one in map(chosen.__getitem__, numbers)]
    find, clock, hits = store.find, Clock(), 0
    with clock:
        for topic, key in asked:
            for _ in find(topic=topic, key=key):
                hits += 1
    return clock.answer(hits)


def _index_offsets(store: Any, chosen: MessageSet, numbers: list[int]) -> dict[str, int]:
    """All keys of a topic in one call."""
    by_topic: dict[str, list[str]] = {}
    for one in map(chosen.__getitem__, numbers):
        by_topic.setdefault(one.topic, []).append(one.properties["KEYS"])
    clock, hits = Clock(), 0
    with clock:
        for topic, keys in by_topic.items():
            _, splits = store.index_offsets(topic, keys)
            hits += int((splits[1:] > splits[:-1]).sum())
    return clock.answer(hits)


def _places(store: Any, chosen: MessageSet, numbers: list[int]) -> list[Any]:
    """Messages of the queues of these messages, at places that the numbers choose."""
    found = []
    for number in numbers:
        one = chosen[number]
        offset = number % store.max_offset_in_queue(one.topic, one.queue)
        (message,) = store.get_message(GROUP, one.topic, one.queue, offset, 1).messages
        found.append(message)
    return found


def _by_id(store: Any, chosen: MessageSet, numbers: list[int]) -> dict[str, int]:
    ids = [message.msg_id for message in _places(store, chosen, numbers)]
    look, clock, hits = store.look_message_by_id, Clock(), 0
    with clock:
        for msg_id in ids:
            message = look(msg_id)
            if message is not None:
                message.body  # noqa: B018 - decodes it
                hits += 1
    return clock.answer(hits)


def _by_time(store: Any, chosen: MessageSet, numbers: list[int]) -> dict[str, int]:
    asked = [
        (message.topic, message.queue_id, message.store_timestamp)
        for message in _places(store, chosen, numbers)
    ]
    ends = [store.max_offset_in_queue(topic, queue) for topic, queue, _ in asked]
    by_time, clock = store.get_offset_in_queue_by_time, Clock()
    with clock:
        offsets = [by_time(topic, queue, timestamp) for topic, queue, timestamp in asked]
    return clock.answer(sum(0 <= at < end for at, end in zip(offsets, ends, strict=True)))


def _scan(store: Any) -> int:
    return sum(1 for _ in store.scan())


def _scan_body(store: Any) -> int:
    count = 0
    for message in store.scan():
        message.body  # noqa: B018 - decodes it
        count += 1
    return count


def _scan_arrow(store: Any) -> int:
    return sum(batch.num_rows for batch in store.scan_arrow("core"))


def _filter_units(store: Any) -> int:
    """Filter the units of all queues by one tag; return how many units there are."""
    places = [(topic, queue) for topic in store.topics() for queue in store.queues(topic)]
    for topic, queue in places:
        store.filter_units(topic, queue, TAGS)
    return sum(store.max_offset_in_queue(topic, queue) for topic, queue in places)


_SCANS: dict[str, Callable[[Any], int]] = {
    "scan": _scan,
    "scan_body": _scan_body,
    "scan_arrow": _scan_arrow,
    "filter_units": _filter_units,
}
_QUESTIONS: dict[str, Callable[[Any, MessageSet, list[int]], dict[str, int]]] = {
    "query": _query,
    "find": _find,
    "keys": _index_offsets,
    "id": _by_id,
    "time": _by_time,
}
