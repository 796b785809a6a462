"""Transactions begun here and decided by a real broker, and the other way round."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from interop.broker.broker import STORE_CONFIG, VERSIONS, BrokerDriver
from interop.broker.tables import write_tables
from interop.maven import require_java
from rocketstore import MessageStoreConfig, TransactionState

require_java()
pytestmark = pytest.mark.xdist_group("broker")

TOPIC, GROUP, READERS = "Bookings", "bookers", "travellers"
#: A broker that asks soon; its first round is as long after its start as the interval. From 5.1
#: on it would commit twice if it asked again before it had written its op message.
ASKING = {
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "3000",
    "transactionOpBatchInterval": "100",
}
PATIENT = {"transactionTimeOut": "600000", "transactionCheckInterval": "600000"}


@pytest.fixture(scope="module", params=VERSIONS)
def driver(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerDriver]:
    with BrokerDriver(tmp_path_factory.mktemp("broker"), request.param) as driver:
        yield driver


@pytest.fixture
def config(driver: BrokerDriver) -> MessageStoreConfig:
    found = MessageStoreConfig.from_properties(STORE_CONFIG)
    return found.replace(broker_version=driver.version, message_delay_level="1s 2s 3s 5s")


def begin(store: rocketstore.DefaultMessageStore, name: str) -> Any:
    return store.begin(TOPIC, name.encode(), group=GROUP, tags="booked", keys=name)


def undecided(store: rocketstore.DefaultMessageStore) -> list[str]:
    return sorted(transaction.message.keys for transaction in store.transactions())


def states(store: rocketstore.DefaultMessageStore) -> dict[str, TransactionState]:
    return {one.message.keys: one.state for one in store.transactions(state=None)}


def received(driver: BrokerDriver, count: int) -> list[tuple[str, bytes]]:
    with driver.subscription(READERS, TOPIC):
        return sorted((row["keys"], row["body"]) for row in driver.received(count))


def sent(name: str, state: str) -> dict[str, Any]:
    body = base64.b64encode(name.encode()).decode()
    return {"topic": TOPIC, "body": body, "props": {"KEYS": name}, "state": state}


def bodies(*names: str) -> list[tuple[str, bytes]]:
    return [(name, name.encode()) for name in names]


def test_a_broker_decides_what_we_began(
    driver: BrokerDriver, config: MessageStoreConfig, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    with rocketstore.open(root, "x", config=config) as store:
        begin(store, "a-committed").commit()
        begin(store, "b-rolled-back").rollback()
        begin(store, "c-to-commit")
        begin(store, "d-to-roll-back")
        begin(store, "e-unknown")
    write_tables(root, {TOPIC: 1}, (READERS,))
    driver.start_broker(root, {**STORE_CONFIG, "messageDelayLevel": "1s 2s 3s 5s"}, ASKING)
    answers = {"c-to-commit": "COMMIT_MESSAGE", "d-to-roll-back": "ROLLBACK_MESSAGE"}
    with driver.client(), driver.transactions(GROUP, [TOPIC], answers):
        asked = driver.asked(until=("c-to-commit", "d-to-roll-back", "e-unknown"))
        assert set(asked) == {"c-to-commit", "d-to-roll-back", "e-unknown"}
        assert received(driver, 2) == bodies("a-committed", "c-to-commit")
    driver.stop_broker()
    with rocketstore.open(root, "r+", config=config) as store:
        assert store.verify().ok
        assert undecided(store) == ["e-unknown"]
        (left,) = store.transactions()
        assert left.checks >= 1
        left.commit()
        assert states(store) == {
            "a-committed": TransactionState.COMMIT,
            "b-rolled-back": TransactionState.ROLLBACK,
            "c-to-commit": TransactionState.COMMIT,
            "d-to-roll-back": TransactionState.ROLLBACK,
            "e-unknown": TransactionState.COMMIT,
        }
    # Given back: the broker asks about nothing more, and delivers what we committed.
    driver.start_broker(root, STORE_CONFIG, ASKING)
    with driver.client(), driver.transactions(GROUP, [TOPIC], {}):
        driver.transact([sent("f-last", "UNKNOW")])
        assert set(driver.asked(until=("f-last",))) == {"f-last"}
        with driver.subscription("others", TOPIC):
            rows = driver.received(3)
        assert sorted(row["keys"] for row in rows) == ["a-committed", "c-to-commit", "e-unknown"]
    driver.stop_broker()


def test_we_decide_what_a_broker_s_producer_began(
    driver: BrokerDriver, config: MessageStoreConfig, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    with rocketstore.open(root, "x", config=config):
        pass
    write_tables(root, {TOPIC: 1}, (READERS,))
    driver.start_broker(root, STORE_CONFIG, PATIENT)
    with driver.client(), driver.transactions(GROUP, [TOPIC], {}):
        driver.transact(
            [
                sent("a-committed", "COMMIT_MESSAGE"),
                sent("b-rolled-back", "ROLLBACK_MESSAGE"),
                *(sent(name, "UNKNOW") for name in ("c-to-commit", "d-to-roll-back", "e-asked")),
            ]
        )
        assert received(driver, 1) == bodies("a-committed")
    driver.stop_broker()
    with rocketstore.open(root, "r+", config=config) as store:
        assert undecided(store) == ["c-to-commit", "d-to-roll-back", "e-asked"]
        by_name = {one.message.keys: one for one in store.transactions()}
        by_name["c-to-commit"].commit()
        by_name["d-to-roll-back"].rollback()
        report = store.transaction_check(lambda message: TransactionState.COMMIT, force=True)
        assert (report.asked, report.committed) == (1, 1)
        assert undecided(store) == []
        assert store.verify().ok
    driver.start_broker(root, STORE_CONFIG, ASKING)
    with driver.client(), driver.transactions(GROUP, [TOPIC], {}):
        driver.transact([sent("f-last", "UNKNOW")])
        assert set(driver.asked(until=("f-last",))) == {"f-last"}
        assert received(driver, 2) == bodies("c-to-commit", "e-asked")
    driver.stop_broker()
