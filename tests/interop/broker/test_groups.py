"""A consumer group that moves between this library and the stock client of a real broker: each
goes on where the other stopped, and consumes the other's retries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import rocketstore
from interop.broker.broker import STORE_CONFIG, VERSIONS, BrokerDriver, to_send
from interop.broker.tables import write_tables
from interop.maven import require_java
from rocketstore import MessageStoreConfig

require_java()
pytestmark = pytest.mark.xdist_group("broker")

TOPIC, GROUP, QUEUES = "Work", "workers", 2
CONFIG = {**STORE_CONFIG, "messageDelayLevel": "1s 2s 3s 4s 5s"}


@pytest.fixture(scope="module", params=VERSIONS)
def driver(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerDriver]:
    with BrokerDriver(tmp_path_factory.mktemp("broker"), request.param) as driver:
        yield driver


@pytest.fixture
def config(driver: BrokerDriver) -> MessageStoreConfig:
    return MessageStoreConfig.from_properties(CONFIG).replace(broker_version=driver.version)


def keys(numbers: range | list[int]) -> list[str]:
    return sorted(f"k{number}" for number in numbers)


def test_a_group_goes_to_a_broker_and_comes_back(
    driver: BrokerDriver, config: MessageStoreConfig, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    with rocketstore.open(root, "x", config=config) as store:
        for number in range(20):
            assert store.put(TOPIC, b"job", number % QUEUES, keys=f"k{number}", unique_key=True).ok
        with store.consumer(GROUP, TOPIC, ack="manual") as consumer:
            taken = consumer.poll(12)
            assert len(taken) == 12
            again = [taken[0], taken[11]]
            for message in taken:
                if message in again:
                    consumer.retry(message, 1)
                else:
                    consumer.ack(message)
            positions = consumer.positions
        assert sum(positions.values()) == 12
        numbers = {int(message.keys[1:]) for message in taken}
        expected = [n for n in range(20) if n not in numbers] + [int(m.keys[1:]) for m in again]
    write_tables(root, {TOPIC: QUEUES}, (GROUP,))
    driver.start_broker(root, CONFIG)
    with driver.client(GROUP):
        for queue_id in range(QUEUES):
            assert driver.committed(TOPIC, queue_id) == positions.get((TOPIC, queue_id), -1)
    with driver.client():  # of another group, which takes no queue from this one
        with driver.subscription(GROUP, TOPIC):
            received = driver.received(len(expected))
        # The client shows a message from the retry topic with its own topic, as we do.
        assert {row["topic"] for row in received} == {TOPIC}
        assert sorted(row["keys"] for row in received) == keys(expected)
        driver.produce([to_send(TOPIC, number % QUEUES, number) for number in range(6)])
    driver.stop_broker()
    with rocketstore.open(root, "r+", config=config) as store:
        with store.consumer(GROUP, TOPIC, idle_timeout_s=0) as consumer:
            found = sorted(message.keys for message in consumer)
            assert found == [f"key-{number}" for number in range(6)]
        report = store.groups()[GROUP]
        assert (report.total_lag, report.retry_count, report.dead_letter_count) == (0, 0, 0)
        assert store.verify().ok
