"""Bit maps of SQL92 filters: ours used by a real broker, and a real broker's used by us.

Whether a bit map was used shows in messages whose properties were changed in the log later, so that
they match now: they are returned if they are read, and not if the bit map is trusted.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from interop.broker.broker import GROUP, STORE_CONFIG, VERSIONS, BrokerDriver, to_send
from interop.broker.tables import write_tables
from interop.maven import require_java
from rocketstore import MessageStoreConfig, Sql92Filter
from support.directory import files_below

require_java()
pytestmark = pytest.mark.xdist_group("broker")

CONFIG = {**STORE_CONFIG, "enableConsumeQueueExt": "true", "mappedFileSizeConsumeQueueExt": "3000"}
BROKER_CONFIG = {"enablePropertyFilter": "true", "enableCalcFilterBitMap": "true"}
TOPIC, QUEUES = "Filtered", 2
WANTED = "color = 'rose' AND n >= 10"
COLORS = (b"rose", b"blue", b"gold")
#: Groups: one whose filter is known before the messages come, and one that comes after them.
EARLY, LATE = "early", "late"


@pytest.fixture(scope="module", params=VERSIONS)
def driver(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerDriver]:
    with BrokerDriver(tmp_path_factory.mktemp("broker"), request.param) as driver:
        yield driver


@pytest.fixture
def config(driver: BrokerDriver) -> MessageStoreConfig:
    found = MessageStoreConfig.from_properties({**CONFIG, **BROKER_CONFIG})
    assert found.enable_calc_filter_bit_map
    return found.replace(broker_version=driver.version)


def properties(number: int) -> dict[str, str]:
    return {"color": COLORS[number % 3].decode(), "n": str(number)}


def put(store: rocketstore.DefaultMessageStore, numbers: Iterable[int]) -> None:
    for number in numbers:
        body = f"message {number} ".encode().ljust(60, b".")
        assert store.put(TOPIC, body, number % QUEUES, properties=properties(number)).ok


def produce(driver: BrokerDriver, numbers: Iterable[int]) -> None:
    rows = [to_send(TOPIC, number % QUEUES, number, 60) for number in numbers]
    for number, row in zip(numbers, rows, strict=True):
        row["props"] |= properties(number)
    driver.produce(rows)


def change_colors(root: Path, config: MessageStoreConfig) -> set[int]:
    """Let all blue messages look rose from now on; return their log offsets."""
    with rocketstore.open(root, "r", config=config) as store:
        blue = Sql92Filter("color = 'blue'")
        offsets = {m.physical_offset: len(m.raw) for m in store.scan() if blue.matches(m)}
    for path in (root / "commitlog").iterdir():
        content, first = bytearray(path.read_bytes()), int(path.name)
        for offset, nbytes in offsets.items():
            if first <= offset < first + len(content):
                at = content.index(b"color\x01blue", offset - first, offset - first + nbytes)
                content[at + 6 : at + 10] = b"rose"
        path.write_bytes(content)
    return set(offsets)


def bodies(rows: Iterable[Any]) -> list[int]:
    """The numbers of messages that a client received, ascending."""
    return sorted(int(row["body"].split()[1]) for row in rows)


def read(root: Path, group: str, config: MessageStoreConfig) -> list[int]:
    """The numbers that a group of ours reads, ascending."""
    found = []
    with rocketstore.open(root, "r", config=config) as store:
        wanted = Sql92Filter(WANTED)
        for queue_id in store.queues(TOPIC):
            offset = 0
            while offset < store.max_offset_in_queue(TOPIC, queue_id):
                result = store.get_message(group, TOPIC, queue_id, offset, filter=wanted)
                found += [{"body": bytes(message.body)} for message in result.messages]
                offset = result.next_begin_offset
    return bodies(found)


def matching(*ranges: range, colors: tuple[int, ...] = (0,)) -> list[int]:
    return sorted(n for one in ranges for n in one if n >= 10 and n % 3 in colors)


def register(store: rocketstore.DefaultMessageStore, group: str) -> None:
    assert store._writer is not None
    store._writer.register_filter(TOPIC, group, WANTED)


def test_a_broker_uses_the_bit_maps_that_we_wrote(
    driver: BrokerDriver, config: MessageStoreConfig, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    before, after, more = range(60), range(60, 360), range(360, 420)
    with rocketstore.open(root, "x", config=config) as store:
        put(store, before)
        store.wait_dispatched()
        register(store, EARLY)
        put(store, after)
        store.wait_dispatched()
    write_tables(root, {TOPIC: QUEUES}, (GROUP, EARLY, LATE))
    assert read(root, EARLY, config) == read(root, LATE, config) == matching(before, after)
    assert change_colors(root, config)
    # Changed messages that are older than the filter are read; the later ones are not.
    once = sorted(matching(before, colors=(0, 1)) + matching(after))
    always = matching(before, after, colors=(0, 1))
    assert (read(root, EARLY, config), read(root, LATE, config)) == (once, always)
    driver.start_broker(root, CONFIG, BROKER_CONFIG)
    with driver.client():
        with driver.subscription(LATE, TOPIC, WANTED):
            assert bodies(driver.received(len(always))) == always
        with driver.subscription(EARLY, TOPIC, WANTED):
            assert bodies(driver.received(len(once))) == once
            produce(driver, more)
            expected = sorted(once + matching(more))
            assert bodies(driver.received(len(expected))) == expected
    driver.stop_broker()
    # The broker kept our filter, for its expression did not change.
    table = json.loads((root / "config" / "consumerFilter.json").read_bytes())
    groups = table["filterDataByTopic"][TOPIC]["groupFilterData"]
    assert set(groups) == {EARLY, LATE}
    assert groups[EARLY]["bornTime"] < groups[LATE]["bornTime"]
    with rocketstore.open(root, "r+", config=config) as store:
        assert store.verify().ok
        put(store, range(420, 450))
    assert read(root, EARLY, config) == sorted(expected + matching(range(420, 450)))


def test_we_use_the_bit_maps_that_a_broker_wrote(
    driver: BrokerDriver, config: MessageStoreConfig, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    before, after = range(60), range(60, 300)
    with rocketstore.open(root, "x", config=config):
        pass
    write_tables(root, {TOPIC: QUEUES}, (GROUP, EARLY, LATE))
    driver.start_broker(root, CONFIG, BROKER_CONFIG)
    with driver.client():
        produce(driver, before)
        with driver.subscription(EARLY, TOPIC, WANTED):
            assert bodies(driver.received(len(matching(before)))) == matching(before)
            produce(driver, after)
            everything = matching(before, after)
            assert bodies(driver.received(len(everything))) == everything
    driver.stop_broker()
    assert read(root, EARLY, config) == read(root, LATE, config) == everything
    # Rebuilt by us with the filters of the broker's table: the broker's bytes.
    again = tmp_path / "again"
    shutil.copytree(root, again)
    for name in ("consumequeue", "consumequeue_ext"):
        shutil.rmtree(again / name)
    with rocketstore.open(again, "r+", config=config) as store:
        assert store.verify().ok
    for name in ("consumequeue", "consumequeue_ext"):
        files = {k: v for k, v in files_below(root / name).items() if k.startswith(TOPIC)}
        ours = files_below(again / name)
        assert files
        assert {name: ours.get(name) for name in files} == files
    assert change_colors(root, config)
    once = sorted(matching(before, colors=(0, 1)) + matching(after))
    assert read(root, EARLY, config) == once
    assert read(root, LATE, config) == matching(before, after, colors=(0, 1))
