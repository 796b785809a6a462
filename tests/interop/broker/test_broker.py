"""A real broker and stock client: on a directory of ours, beside our reader, and after us."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from interop.broker.broker import GROUP, STORE_CONFIG, VERSION, BrokerDriver, shown, to_send
from interop.broker.tables import write_tables
from interop.maven import require_java
from rocketstore import MessageStoreConfig
from rocketstore.config_managers import ConsumerOffsetManager

require_java()
pytestmark = pytest.mark.xdist_group("broker")

TOPICS = {"Orders": 3, "Prices": 2}
QUEUES = [(topic, queue_id) for topic, count in TOPICS.items() for queue_id in range(count)]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerDriver]:
    with BrokerDriver(tmp_path_factory.mktemp("broker")) as driver:
        yield driver


def config() -> MessageStoreConfig:
    return MessageStoreConfig.from_properties(STORE_CONFIG).replace(broker_version=VERSION)


def put(store: rocketstore.DefaultMessageStore, first: int, count: int) -> None:
    """Put messages round the queues; every third has a unique key."""
    for number in range(first, first + count):
        topic, queue_id = QUEUES[number % len(QUEUES)]
        result = store.put(
            topic,
            f"message {number} ".encode().ljust(200, b"."),
            queue_id,
            f"tag-{number % 3}",
            f"key-{number}",
            unique_key=True if number % 3 == 0 else None,
        )
        assert result.ok


def in_queues(store: rocketstore.DefaultMessageStore) -> dict[tuple[str, int], list[Any]]:
    """Everything in the queues, as the client would show it."""
    found: dict[tuple[str, int], list[Any]] = {}
    for topic, queue_id in QUEUES:
        rows = found[topic, queue_id] = []
        offset = store.min_offset_in_queue(topic, queue_id)
        while offset < store.max_offset_in_queue(topic, queue_id):
            result = store.get_message(GROUP, topic, queue_id, offset)
            rows += map(shown, result.messages)
            offset = result.next_begin_offset
    return found


def assert_served(driver: BrokerDriver, ours: dict[tuple[str, int], list[Any]]) -> None:
    """The consumer gets every message that ``ours`` holds: by queue, key, and unique key."""
    for (topic, queue_id), expected in ours.items():
        assert driver.queues(topic)[queue_id][1] == (
            expected[-1]["queueOffset"] + 1 if expected else 0
        )
        assert driver.pull(topic, queue_id) == expected
    for rows in ours.values():
        for row in rows[:: max(1, len(rows) // 10)]:
            assert row in driver.query(row["topic"], row["keys"])
            if row["uniqKey"] is not None:
                assert row in driver.unique(row["topic"], row["uniqKey"])


def test_broker_serves_what_we_wrote_and_we_continue_after_it(
    driver: BrokerDriver, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    with rocketstore.open(root, "x", config=config()) as store:
        put(store, 0, 900)
        store.wait_dispatched()
        ours = in_queues(store)
        end = store.max_physical_offset
    assert sum(map(len, ours.values())) == 900
    write_tables(root, TOPICS, (GROUP,))
    offsets = ConsumerOffsetManager(root)
    offsets.commit_offset(GROUP, "Orders", 1, 7)
    offsets.persist()
    started = driver.start_broker(root)
    assert (started["min"], started["max"], started["behind"]) == (0, end, 0)
    with driver.client():
        assert_served(driver, ours)
        assert driver.committed("Orders", 1) == 7
        driver.commit("Orders", 1, 50)
        sent = driver.produce([to_send("Orders", 1, number) for number in range(5000, 5040)])
        first = ours["Orders", 1][-1]["queueOffset"] + 1
        assert [row["queueOffset"] for row in sent] == list(range(first, first + 40))
    driver.stop_broker()

    offsets = ConsumerOffsetManager(root)
    assert offsets.load()
    assert offsets.query_offset(GROUP, "Orders", 1) == 50
    with rocketstore.open(root, "r+", config=config()) as store:
        assert store.recovery_report.clean
        assert [m.keys for m in store.find(topic="Orders", key="key-5039")] == ["key-5039"]
        put(store, 900, 300)
        store.wait_dispatched()
        assert not store.verify().findings
        ours = in_queues(store)
    assert sum(map(len, ours.values())) == 900 + 40 + 300

    driver.start_broker(root)
    with driver.client():
        assert_served(driver, ours)
        # The consumer goes on where it was.
        assert driver.committed("Orders", 1) == 50
        assert driver.pull("Orders", 1, 50) == ours["Orders", 1][50:]
    driver.stop_broker()


class LiveReader(threading.Thread):
    """Reads a directory that a broker writes, in every way, until it must stop."""

    def __init__(self, root: Path) -> None:
        super().__init__(name="live reader")
        self.done = threading.Event()
        self.failure: BaseException | None = None
        self.rounds = 0
        self._root = root
        #: Messages delivered, by log offset.
        self.messages: dict[int, dict[str, Any]] = {}

    def run(self) -> None:
        try:
            with rocketstore.open(self._root, "r", config=config()) as store:
                while not self.done.is_set():
                    self._read(store)
                    store.refresh()
                    self.rounds += 1
                self._read(store)
        except BaseException as error:
            self.failure = error
            raise

    def _read(self, store: rocketstore.DefaultMessageStore) -> None:
        for rows in in_queues(store).values():
            self._keep(rows)
        self._keep(map(shown, store.find(topic="Orders", key=f"key-{self.rounds}")))
        self._keep(map(shown, store.scan()))

    def _keep(self, rows: Any) -> None:
        for row in rows:
            known = self.messages.setdefault(row["physicalOffset"], row)
            assert row == known


def is_what_was_sent(row: dict[str, Any]) -> bool:
    """Whether body, key and tag of a message belong together."""
    number = int(row["keys"].removeprefix("key-"))
    body = f"message {number} ".encode()
    return bool(row["body"].startswith(body)) and row["tags"] == f"tag-{number % 3}"


def numbered(numbers: range) -> list[dict[str, Any]]:
    return [to_send(*QUEUES[number % len(QUEUES)], number, 400) for number in numbers]


def test_reader_beside_a_broker(driver: BrokerDriver, tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.mkdir()
    write_tables(root, TOPICS, (GROUP,))
    offsets = ConsumerOffsetManager(root)
    offsets.commit_offset(GROUP, "Orders", 1, 7)
    offsets.persist()
    driver.start_broker(root)
    with driver.client():
        number = 0
        driver.produce(numbered(range(50)))
        reader = LiveReader(root)
        reader.start()
        try:
            # Six rounds roll the log's files some ten times; in half of them files go.
            for turn in range(6):
                numbers = range(50 + turn * 200, 250 + turn * 200)
                sent = driver.produce([to_send(*QUEUES[i % len(QUEUES)], i, 400) for i in numbers])
                number = numbers[-1]
                if turn % 2:
                    assert driver.expire(root, keep=2)["min"] > 0
        finally:
            reader.done.set()
            reader.join()
        assert reader.failure is None
        assert all(map(is_what_was_sent, reader.messages.values()))
        # The broker was not disturbed, and what it has now is what a reader finds now.
        with rocketstore.open(root, "r", config=config()) as store:
            for (topic, queue_id), rows in in_queues(store).items():
                first, last = driver.queues(topic)[queue_id]
                assert store.max_offset_in_queue(topic, queue_id) == last
                served = driver.pull(topic, queue_id, first)
                assert rows == [row for row in served if row["queueOffset"] >= first]
            found = [shown(m) for m in store.find(topic="Orders", unique_key=sent[-1]["uniqKey"])]
            found += [shown(m) for m in store.find(topic="Prices", unique_key=sent[-1]["uniqKey"])]
            assert [row["queueOffset"] for row in found] == [sent[-1]["queueOffset"]]
            assert [m.keys for m in store.scan()][-1] == f"key-{number}"
    driver.stop_broker()


def test_reader_beside_a_broker_that_is_killed_and_recovers(tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.mkdir()
    write_tables(root, TOPICS, (GROUP,))
    offsets = ConsumerOffsetManager(root)
    offsets.commit_offset(GROUP, "Orders", 1, 7)
    offsets.persist()
    with BrokerDriver(tmp_path / "first") as first:
        first.start_broker(root)
        with first.client():
            first.produce(numbered(range(300)))
            reader = LiveReader(root)
            reader.start()
            first.produce_and_die(numbered(range(300, 2300)), 500)
    try:
        with BrokerDriver(tmp_path / "second") as second:
            second.start_broker(root)
            with second.client():
                second.produce(numbered(range(3000, 3300)))
            second.stop_broker()
    finally:
        reader.done.set()
        reader.join()
    assert reader.failure is None
    assert all(map(is_what_was_sent, reader.messages.values()))
    with rocketstore.open(root, "r", config=config()) as store:
        numbers = [int(message.keys.removeprefix("key-")) for message in store.scan()]
    # What was acknowledged is there, in order, and nothing is there twice.
    assert numbers == [*range(len(numbers) - 300), *range(3000, 3300)]
    assert len(numbers) >= 600
