"""Messages with a delivery time that we put, delivered by a real broker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import rocketstore
from interop.broker.broker import STORE_CONFIG, VERSIONS, BrokerDriver
from interop.broker.tables import write_tables
from interop.maven import require_java
from rocketstore import MessageStoreConfig

require_java()
pytestmark = pytest.mark.xdist_group("broker")

TOPIC, GROUP = "Alarms", "sleepers"
CONFIG = {**STORE_CONFIG, "timerWheelEnable": "true"}


@pytest.fixture(scope="module", params=[one for one in VERSIONS if not one.startswith("4.")])
def driver(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerDriver]:
    with BrokerDriver(tmp_path_factory.mktemp("broker"), request.param) as driver:
        yield driver


def test_a_broker_delivers_what_we_timed(driver: BrokerDriver, tmp_path: Path) -> None:
    root = tmp_path / "store"
    config = MessageStoreConfig.from_properties(CONFIG).replace(broker_version=driver.version)
    assert config.timer_wheel_enable
    later = time.time_ns() // 1_000_000 + 5_000
    wishes = {
        "soon": {"TIMER_DELAY_SEC": "1"},
        "in-milliseconds": {"TIMER_DELAY_MS": "1500"},
        "at": {"TIMER_DELIVER_MS": str(later)},
        "past": {"TIMER_DELIVER_MS": "1"},
    }
    with rocketstore.open(root, "x", config=config) as store:
        for name, wish in wishes.items():
            assert store.put(TOPIC, b"ring", keys=name, properties=wish).ok
        store.wait_dispatched()
        assert store.max_offset_in_queue(TOPIC, 0) == 1
        assert [one.topic for one in store.timers().pending] == [TOPIC] * 3
    write_tables(root, {TOPIC: 1}, (GROUP,))
    driver.start_broker(root, CONFIG)
    with driver.client(), driver.subscription(GROUP, TOPIC):
        rows = driver.received(4)
    assert sorted(row["keys"] for row in rows) == sorted(wishes)
    (at,) = (row for row in rows if row["keys"] == "at")
    assert at["storeTimestamp"] >= later - 1000
    driver.stop_broker()
    with rocketstore.open(root, "r", config=config) as store:
        report = store.timers()
        assert (list(report.pending), report.findings) == ([], [])
        assert store.verify().ok
