"""Delayed messages: ours delivered by a real broker, and its own delivered here, each once."""

from __future__ import annotations

import time
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

TOPIC, GROUP = "Reminders", "sleepers"
CONFIG = {**STORE_CONFIG, "messageDelayLevel": "1s 2s 10m"}
LATER_MS = 3_600_000


@pytest.fixture(scope="module", params=VERSIONS)
def driver(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerDriver]:
    with BrokerDriver(tmp_path_factory.mktemp("broker"), request.param) as driver:
        yield driver


@pytest.fixture
def config(driver: BrokerDriver) -> MessageStoreConfig:
    return MessageStoreConfig.from_properties(CONFIG).replace(broker_version=driver.version)


def keys(driver: BrokerDriver, group: str, count: int) -> list[str]:
    with driver.subscription(group, TOPIC):
        return sorted(row["keys"] for row in driver.received(count))


def test_a_broker_delivers_what_we_did_not(
    driver: BrokerDriver, config: MessageStoreConfig, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    with rocketstore.open(root, "x", config=config) as store:
        for number in range(6):
            level = 1 + number % 2
            result = store.put(TOPIC, b"wake", keys=f"k{number}", delay_level=level)
            assert result.ok
        time.sleep(1.2)
        delivered = store.deliver_due()
        assert 3 <= delivered <= 6
    write_tables(root, {TOPIC: 1}, (GROUP,))
    driver.start_broker(root, CONFIG)
    with driver.client():
        assert keys(driver, GROUP, 6) == [f"k{number}" for number in range(6)]
    driver.stop_broker()
    with rocketstore.open(root, "r+", config=config) as store:
        assert store.deliver_due() == 0
        assert store.verify().ok
        assert store.max_offset_in_queue(TOPIC, 0) == 6


def test_we_deliver_what_a_broker_did_not(
    driver: BrokerDriver, config: MessageStoreConfig, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    with rocketstore.open(root, "x", config=config):
        pass
    write_tables(root, {TOPIC: 1}, (GROUP,))
    driver.start_broker(root, CONFIG)
    with driver.client():
        rows = [to_send(TOPIC, 0, number) for number in range(8)]
        for number, row in enumerate(rows):
            row["props"] |= {"DELAY": "1" if number < 4 else "3"}
        driver.produce(rows)
        assert keys(driver, GROUP, 4) == [f"key-{number}" for number in range(4)]
    driver.stop_broker()
    clock = lambda: time.time_ns() // 1_000_000 + LATER_MS  # noqa: E731
    with rocketstore.open(root, "r+", config=config, clock=clock) as store:
        assert [level.pending for level in store.delays().levels if level.pending] == [4]
        assert store.deliver_due() == 4
        assert store.deliver_due() == 0
        assert store.verify().ok
    # The broker takes over again: it finds what we delivered, and delivers nothing twice.
    driver.start_broker(root, CONFIG)
    with driver.client():
        assert keys(driver, "others", 8) == [f"key-{number}" for number in range(8)]
    driver.stop_broker()
