"""Deliveries found in the log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crash.abandoning import abandon
from rocketstore.delay.levels import LevelQueue
from rocketstore.delay.matching import Delivered, delivery_key, find_delivered
from support.delayed_stores import DelayedStore, bodies


@pytest.fixture
def delayed(tmp_path: Path) -> DelayedStore:
    return DelayedStore(tmp_path / "store")


def test_d_54_nothing_is_delivered_again_after_a_crash(delayed: DelayedStore) -> None:
    store = delayed.open()
    for number in range(9):
        store.put("T", b"%d" % number, delay_level=1 + number % 2)
    delayed.clock.now += 1000
    assert store.deliver_due() == 5
    assert store.delay_service is not None
    store.delay_service.persist()
    delayed.clock.now += 4000
    assert store.deliver_due(max_count=2) == 2
    abandon(store)
    with delayed.open() as store:
        assert store.recovery_report.clean is False
        assert store.deliver_due() == 2
        assert sorted(bodies(store)) == [b"%d" % number for number in range(9)]


def test_d_54_also_if_the_store_was_opened_in_between(delayed: DelayedStore) -> None:
    store = delayed.open()
    store.put("T", b"a", delay_level=1)
    store.put("T", b"b", delay_level=1)
    delayed.clock.now += 1000
    store.deliver_due(max_count=1)
    abandon(store)
    with delayed.open() as store:
        store.put("T", b"plain")
    with delayed.open() as store:
        assert store.deliver_due() == 1
        assert bodies(store) == [b"a", b"b"]


def test_what_was_delivered_before_its_time_is_found_however_far_ahead(
    delayed: DelayedStore,
) -> None:
    """Delivered under a shorter level, and matched under the longer one."""
    count = 1100
    store = delayed.open()
    for number in range(count):
        store.put("T", b"%d" % number, delay_level=3)
    assert store.deliver_due() == 0
    store.close()
    store = delayed.open(message_delay_level="1s 5s 5s")
    delayed.clock.now += 5000
    assert store.deliver_due(max_count=1) == 1
    assert store.delay_service is not None
    store.delay_service.persist()
    assert store.deliver_due() == count - 1
    abandon(store)
    with delayed.open() as store:
        delayed.clock.now += 60_000
        assert store.deliver_due() == 0


def test_a_broker_that_was_killed_after_its_clock_was_set_back(delayed: DelayedStore) -> None:
    """Its deliveries are older than the due times: the search must not begin after them."""
    store = delayed.open(mapped_file_size_commit_log=4096)
    for number in range(10):
        store.put("T", b"%d" % number, delay_level=3)
    delayed.clock.now -= 60_000
    store.deliver_due(max_count=5)
    for _ in range(100):
        store.put("P", b"x" * 100)
        delayed.clock.now += 1
    store.deliver_due(max_count=2)
    abandon(store)
    (delayed.root / "config").mkdir(exist_ok=True)
    (delayed.root / "config" / "delayOffset.json").write_text('{"offsetTable":{3:2}}')
    with delayed.open(mapped_file_size_commit_log=4096) as store:
        assert store.deliver_due() == 3
        assert b"".join(bodies(store)) == b"0123456789"


def test_a_killed_broker_s_log_is_read_from_the_first_due_time_on(
    delayed: DelayedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = delayed.open(mapped_file_size_commit_log=4096)
    store.put("T", b"x", delay_level=3)
    for _ in range(100):
        store.put("P", b"x" * 100)
        delayed.clock.now += 200
    store.deliver_due()
    abandon(store)
    (delayed.root / "config").mkdir(exist_ok=True)
    (delayed.root / "config" / "delayOffset.json").write_text('{"offsetTable":{3:0}}')
    starts: list[int] = []

    def noting(log: Any, queues: Any, offsets: Any, start: int, *others: Any, **names: Any) -> Any:
        starts.append(start)
        return find_delivered(log, queues, offsets, start, *others, **names)

    monkeypatch.setattr("rocketstore.delay.progress.find_delivered", noting)
    with delayed.open(mapped_file_size_commit_log=4096) as store:
        assert store.deliver_due() == 0
    assert starts[0] >= 4096


def test_twins_are_matched_one_by_one(delayed: DelayedStore) -> None:
    """The same body, born time and topic, without a unique key."""
    store = delayed.open()
    for _ in range(5):
        store.put("T", b"twin", delay_level=1)
    delayed.clock.now += 1000
    store.deliver_due(max_count=2)
    abandon(store)
    with delayed.open() as store:
        assert store.deliver_due() == 3


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("counted", [1, 2])
def test_twins_that_a_broker_s_table_counts_leave_the_others(
    counted: int, is_killed: bool, delayed: DelayedStore
) -> None:
    """The deliveries of counted ones were taken for those of the next ones, which were lost."""
    store = delayed.open()
    store.put("T", b"first", delay_level=1)
    delayed.clock.now += 1
    for _ in range(2):
        store.put("T", b"twin", delay_level=1)
        store.put("T", b"other", 1, delay_level=1)
    store.put("T", b"twin", delay_level=1)
    delayed.clock.now += 1000
    store.deliver_due(max_count=4)
    if is_killed:
        abandon(store)
    else:
        store.close()
    (delayed.root / "config").mkdir(exist_ok=True)
    offset = 1 + counted if is_killed else 4
    (delayed.root / "config" / "delayOffset.json").write_text(f'{{"offsetTable":{{1:{offset}}}}}')
    with delayed.read() as reader:
        assert reader.delays().pending == 2
    with delayed.open() as store:
        assert store.deliver_due() == 2
        assert b"".join(bodies(store)) == b"firsttwinothertwinothertwin"


def test_messages_of_applications_are_no_deliveries(delayed: DelayedStore) -> None:
    with delayed.open() as store:
        store.put("T", b"x", delay_level=1)
        others = (
            {"DELAY": "1", "REAL_TOPIC": "Other", "REAL_QID": "0"},
            {"DELAY": "-1", "REAL_TOPIC": "T", "REAL_QID": "0"},
            {"REAL_TOPIC": "T", "REAL_QID": "0"},
        )
        for properties in others:
            result = store.put("T", b"x", properties={**properties, "DELAY": "-1"})
            assert result.ok
        delayed.clock.now += 1000
        assert store.deliver_due() == 1


def test_what_lies_between_matched_messages_is_in_doubt(delayed: DelayedStore) -> None:
    """A unit in doubt is delivered: nothing is lost."""
    with delayed.open() as store:
        for number in range(3):
            store.put("T", b"%d" % number, delay_level=1)
        store.wait_dispatched()
        start = store.max_physical_offset
        delayed.clock.now += 1000
        store.deliver_due()
        log, queues = store.reader.log, store.reader.queues
        records = [m for m in store.scan() if m.topic == "T"]
        queue = LevelQueue(log, queues, 1, 1000)
        assert find_delivered(log, {1: queue}, {1: 0}, start) == {1: Delivered(3, set())}
        after_first = records[1].physical_offset
        found = find_delivered(log, {1: queue}, {1: 0}, after_first)
        assert found == {1: Delivered(0, {1, 2})}
        assert find_delivered(log, {1: queue}, {1: 3}, start) == {1: Delivered(3, set())}


def test_the_key_of_a_message(delayed: DelayedStore) -> None:
    with delayed.open() as store:
        store.put("T", b"x", 3, delay_level=1, unique_key="u", born_timestamp=7)
        store.put("T", b"x")
        message, plain = list(store.scan())
        assert delivery_key(message) == ("T", 3, 7, message.body_crc, "u")
        assert delivery_key(plain) is None
        store.put("T", b"x", properties={"REAL_TOPIC": "T", "REAL_QID": "9" * 5000})
        assert delivery_key(list(store.scan())[-1]) is None
