"""Reading: by queue, by key, by offset, by time, and in log order."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from check import messages, stores
from check.counter import CountedPath
from check.messages import ROUND
from rocketstore import DefaultMessageStore, GetMessageStatus, StoredMessage, TagFilter

COUNT = 64 * ROUND
PULL = 32
PULLS = 32
ASKED = 32
GROUP, TOPIC, QUEUE = messages.GROUP, messages.topic_of(0), 0
#: Keys are order-00000000 and so on; every fifth message has the tag.
SELECTIVE = "TAGS IN ('Tag2', 'Tag9') AND KEYS STARTSWITH 'order-0000'"
#: What passes none.
NOTHING = "TAGS IN ('Tag8', 'Tag9') AND KEYS STARTSWITH 'order'"
#: Numbers of messages all over the store.
NUMBERS = range(0, COUNT, COUNT // ASKED)


def paths() -> Iterator[CountedPath]:
    """Yield the paths on one store of small messages, and pulls of larger ones."""
    with stores.filled(COUNT, 100) as store:
        yield from _pulls(store)
        yield from _by_key(store)
        yield from _by_place(store)
        yield from _in_log_order(store)
        yield from _attributes(store)
    with stores.filled(ROUND * PULL, 4096) as store:
        yield _pull(store, "get_message.32.body.4KiB", PULL, _bodies)


def _bodies(found: list[StoredMessage]) -> None:
    for message in found:
        message.body  # noqa: B018 - the access is what is counted


def _properties(found: list[StoredMessage]) -> None:
    for message in found:
        message.properties  # noqa: B018 - the access is what is counted


def _touched(found: list[StoredMessage]) -> None:
    for _ in found:
        pass


def _pull(
    store: DefaultMessageStore,
    name: str,
    count: int,
    use: Callable[..., None] | None,
    chosen: TagFilter | str | None = None,
) -> CountedPath:
    get = store.get_message
    first = get(GROUP, TOPIC, QUEUE, 0, count, filter=chosen)
    assert first.status == GetMessageStatus.FOUND
    assert len(first.messages) == count

    def work() -> None:
        for _ in range(PULLS):
            result = get(GROUP, TOPIC, QUEUE, 0, count, filter=chosen)
            if use is not None:
                use(result.messages)

    return CountedPath(name=name, work=work, units=PULLS, of="call", loops=PULLS)


def _pulls(store: DefaultMessageStore) -> Iterator[CountedPath]:
    yield _pull(store, "get_message.32.unread", PULL, None)
    yield _pull(store, "get_message.32.objects", PULL, _touched)
    yield _pull(store, "get_message.32.body", PULL, _bodies)
    yield _pull(store, "get_message.32.properties", PULL, _properties)
    yield _pull(store, "get_message.1.body", 1, _bodies)
    # Every fifth message of a queue has this tag.
    yield _pull(store, "get_message.8.tag-filter", 8, _bodies, TagFilter("Tag2"))
    yield _pull(store, "get_message.1.sql-filter", 1, _bodies, SELECTIVE)


def _asking(name: str, ask: Callable[[int], object]) -> CountedPath:
    assert ask(NUMBERS[1]) is not None

    def work() -> None:
        for number in NUMBERS:
            ask(number)

    return CountedPath(name=name, work=work, units=len(NUMBERS), of="call", loops=len(NUMBERS))


def _by_key(store: DefaultMessageStore) -> Iterator[CountedPath]:
    asked = {n: (messages.topic_of(n), messages.key_of(n)) for n in NUMBERS}
    unique = {n: messages.unique_key_of(n) for n in NUMBERS}

    def query(number: int) -> bytes:
        topic, key = asked[number]
        (message,) = store.query_message(topic, key, 1).messages
        return message.body

    def find(number: int) -> bytes:
        topic, key = asked[number]
        (message,) = store.find(topic=topic, key=key)
        return message.body

    def find_unique(number: int) -> bytes:
        (message,) = store.find(topic=asked[number][0], unique_key=unique[number])
        return message.body

    yield _asking("query_message.1", query)
    yield _asking("find.key", find)
    yield _asking("find.unique-key", find_unique)
    keys = [messages.key_of(number) for number in range(0, COUNT, ROUND)]
    found, _ = store.index_offsets(TOPIC, keys)
    assert len(found) >= len(keys)

    def look_up() -> None:
        for _ in range(ASKED):
            store.index_offsets(TOPIC, keys)

    yield CountedPath(
        name="index_offsets", work=look_up, units=ASKED * len(keys), of="key", loops=ASKED
    )


def _by_place(store: DefaultMessageStore) -> Iterator[CountedPath]:
    stored = list(store.scan())
    offsets = {n: stored[n].physical_offset for n in NUMBERS}
    ids = {n: stored[n].msg_id for n in NUMBERS}
    times = {n: stored[n].store_timestamp for n in NUMBERS}

    def by_offset(number: int) -> bytes:
        message = store.look_message_by_offset(offsets[number])
        assert message is not None
        return message.body

    def by_id(number: int) -> bytes:
        message = store.look_message_by_id(ids[number])
        assert message is not None
        return message.body

    def by_time(number: int) -> int:
        return store.get_offset_in_queue_by_time(TOPIC, QUEUE, times[number], boundary="lower")

    yield _asking("look.offset", by_offset)
    yield _asking("look.id", by_id)
    yield _asking("look.time", by_time)
    yield _asking("queue.bounds", lambda _: store.max_offset_in_queue(TOPIC, QUEUE))

    yield _asking("queue.view", lambda _: store.queue_view(TOPIC, QUEUE))
    yield _asking("queue.filter", lambda _: store.filter_units(TOPIC, QUEUE, "Tag2"))


def _in_log_order(store: DefaultMessageStore) -> Iterator[CountedPath]:
    end = [message.store_timestamp for message in store.scan()][-1] + 1

    def scan() -> None:
        for _ in store.scan():
            pass

    def scan_bodies() -> None:
        for message in store.scan():
            message.body  # noqa: B018 - the access is what is counted

    def scan_filtered() -> None:
        assert next(store.scan(filter=NOTHING), None) is None

    def find_by_time() -> None:
        for _ in store.find(begin=0, end=end):
            pass

    def arrow(columns: str) -> Callable[[], None]:
        def work() -> None:
            for _ in store.scan_arrow(columns):
                pass

        return work

    loops = {"scan": scan, "scan.body": scan_bodies, "find.time": find_by_time}
    for name, work in loops.items():
        yield CountedPath(name=name, work=work, units=COUNT, of="message", loops=COUNT)
    yield CountedPath(
        name="scan.sql-filter", work=scan_filtered, units=COUNT, of="message", loops=0
    )
    for columns in ("core", "full", "queueId"):
        yield CountedPath(
            name=f"arrow.{columns}", work=arrow(columns), units=COUNT, of="message", loops=0
        )


def _attributes(store: DefaultMessageStore) -> Iterator[CountedPath]:
    """Yield the paths through single messages: making one, and reading what it has."""
    found = 8 * list(store.get_message(GROUP, TOPIC, QUEUE, 0, PULL).messages)
    numbers = range(len(found))

    def make() -> None:
        for number in numbers:
            messages.stock(number, 100)

    def numeric() -> None:
        for m in found:
            m.queue_offset, m.physical_offset, m.store_timestamp  # noqa: B018 - as above

    def texts() -> None:
        for m in found:
            m.topic, m.tags, m.keys, m.unique_key  # noqa: B018 - as above

    works = {"message.make": make, "message.numbers": numeric, "message.texts": texts}
    for name, work in works.items():
        yield CountedPath(name=name, work=work, units=len(found), of="message", loops=len(found))
