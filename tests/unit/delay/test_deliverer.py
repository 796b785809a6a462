"""Delivery: what is due, in order, once; failures, parking, skipping."""

from __future__ import annotations

import json
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from crash.abandoning import abandon
from rocketstore import PutMessageStatus, formats
from rocketstore.errors import ReentrantCallError, StoreFullError
from support.delayed_stores import NOW, DelayedStore, bodies, deliveries, put_raw


@pytest.fixture
def delayed(tmp_path: Path) -> DelayedStore:
    return DelayedStore(tmp_path / "store")


def test_levels_are_delivered_when_they_are_due(delayed: DelayedStore) -> None:
    with delayed.open() as store:
        for level in (3, 1, 2, 1):
            store.put("T", f"{level}".encode(), delay_level=level)
        for now, expected in ((999, b""), (1000, b"11"), (4999, b"11"), (10_000, b"1123")):
            delayed.clock.now = NOW + now
            store.deliver_due()
            assert b"".join(bodies(store)) == expected


def test_a_delivered_message_is_not_delayed_again(delayed: DelayedStore) -> None:
    with delayed.open() as store:
        store.put("T", b"x", 2, "tag", "key", delay_level=1)
        delayed.clock.now += 1000
        assert store.deliver_due() == 1
        (message,) = deliveries(store)
        assert (message.topic, message.queue_id, message.queue_offset) == ("T", 2, 0)
        assert message.properties == {
            "DELAY": "1", "REAL_TOPIC": "T", "REAL_QID": "2", "TAGS": "tag", "KEYS": "key",
        }  # fmt: skip
        store.wait_dispatched()
        assert store.get_message("g", "T", 2, 0).messages[0].body == b"x"
        assert [m.topic for m in store.find(topic="T", key="key")] == ["T"]
        delayed.clock.now += 10**6
        assert store.deliver_due() == 0


def test_what_arrives_while_others_are_delivered_is_not_early(tmp_path: Path) -> None:
    """Its due time was a whole delay after the time that the delivery had asked for before, as if
    the clock had been set back: it was delivered at once."""
    arriving: list[int] = []

    class Busy(DelayedStore):
        def open(self, mode: str = "a", **options: Any) -> Any:
            return super().open(mode, clock=self.read_clock, **options)

        def read_clock(self) -> int:
            now = self.clock()
            if arriving:
                level = arriving.pop()
                self.clock.now += 1
                with ThreadPoolExecutor(1) as producer:
                    producer.submit(store.put, "T", b"late", delay_level=level).result()
                    producer.submit(store.wait_dispatched).result()
            return now

    delayed = Busy(tmp_path / "store")
    with delayed.open() as store:
        assert store.deliver_due() == 0
        for level in (1, 2, 3):
            store.put("T", b"%d" % level, delay_level=level)
            delayed.clock.now += 10_000
            arriving.append(level)
            assert store.deliver_due() == 1
            assert not arriving
            assert store.deliver_due() == 0
            delayed.clock.now += 10_000
            assert store.deliver_due() == 1
        assert bodies(store) == [b"1", b"late", b"2", b"late", b"3", b"late"]


def test_at_most_max_count_messages_are_delivered(delayed: DelayedStore) -> None:
    with delayed.open() as store:
        for number in range(5):
            store.put("T", b"%d" % number, delay_level=1)
        delayed.clock.now += 1000
        assert [store.deliver_due(max_count=n) for n in (0, 2, 1, 9)] == [0, 2, 1, 2]
        assert b"".join(bodies(store)) == b"01234"
        for wrong in (-1, True, 1.5, "3"):
            with pytest.raises(ValueError, match="max_count"):
                store.deliver_due(max_count=wrong)  # type: ignore[arg-type]


def test_many_messages_over_many_files(delayed: DelayedStore) -> None:
    """Queue files hold ten units, and a segment some eighty records."""
    with delayed.open() as store:
        for number in range(300):
            store.put("T", b"%d," % number, number % 3, delay_level=1 + number % 2)
        delayed.clock.now += 5000
        assert store.deliver_due() == 300
        found = [int(body[:-1]) for body in bodies(store)]
        assert sorted(found) == list(range(300))
        for level in (0, 1):
            assert [n for n in found if n % 2 == level] == [n for n in range(300) if n % 2 == level]


def test_a_clock_that_is_set_back_delivers_at_once(delayed: DelayedStore) -> None:
    with delayed.open() as store:
        store.put("T", b"x", delay_level=2)
        delayed.clock.now -= 60_000
        assert store.deliver_due() == 1


def test_a_longer_level_waits_at_least_as_long_as_before(delayed: DelayedStore) -> None:
    with delayed.open() as store:
        store.put("T", b"x", delay_level=2)
    with delayed.open(message_delay_level="1s 9s") as store:
        delayed.clock.now += 4999
        assert store.deliver_due() == 0
        delayed.clock.now += 4001
        assert store.deliver_due() == 1


def test_a_shorter_level_waits_no_longer_than_its_new_delay(delayed: DelayedStore) -> None:
    with delayed.open() as store:
        store.put("T", b"x", delay_level=2)
    with delayed.open(message_delay_level="1s 4s") as store:
        delayed.clock.now += 4000
        assert store.deliver_due() == 1


def test_a_removed_level_is_delivered_when_due_and_reported(delayed: DelayedStore) -> None:
    with delayed.open() as store:
        store.put("T", b"x", delay_level=3)
    with delayed.open(message_delay_level="1s") as store:
        report = store.delays()
        assert (report.levels[1].level, report.levels[1].delay_ms) == (3, None)
        assert any("no such level" in note for note in report.notes)
        assert store.deliver_due() == 0
        delayed.clock.now += 10_000
        assert store.deliver_due() == 1


class Failing:
    """Puts of staged deliveries that return given statuses first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, store: Any, *statuses: Any) -> None:
        self.statuses = list(statuses)
        self.calls = 0
        store.deliver_due()
        deliverer = store.delay_service._deliverer
        put = deliverer._put

        def failing(method: Any, *arguments: Any) -> Any:
            self.calls += 1
            if self.statuses:
                status = self.statuses.pop(0)
                if isinstance(status, Exception):
                    deliverer._doubtful_from = store.max_physical_offset
                    raise status
                if status in (PutMessageStatus.FLUSH_DISK_TIMEOUT,
                              PutMessageStatus.SLAVE_NOT_AVAILABLE):  # fmt: skip
                    return put(method, *arguments).with_flush_status(status)
                store.reader.log.appender.refuse(status)
                try:
                    return put(method, *arguments)
                finally:
                    store.reader.log.appender.refuse(None)
            return put(method, *arguments)

        monkeypatch.setattr(deliverer, "_put", failing)


@pytest.mark.parametrize(
    "status", [PutMessageStatus.FLUSH_DISK_TIMEOUT, PutMessageStatus.SLAVE_NOT_AVAILABLE]
)
def test_d_42_what_is_stored_counts_as_delivered(
    status: PutMessageStatus, delayed: DelayedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with delayed.open() as store:
        Failing(monkeypatch, store, status)
        store.put("T", b"x", delay_level=1)
        delayed.clock.now += 1000
        assert store.deliver_due() == 1
        delayed.clock.now += 10**6
        assert store.deliver_due() == 0
        assert bodies(store) == [b"x"]


def test_d_50_a_failing_put_is_retried_with_growing_pauses_and_then_parked(
    delayed: DelayedStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with delayed.open(delay_max_attempts=9) as store:
        failing = Failing(monkeypatch, store, *[PutMessageStatus.UNKNOWN_ERROR] * 9)
        store.put("T", b"bad", delay_level=1)
        store.put("T", b"good", delay_level=1)
        delayed.clock.now += 1000
        for attempt, pause in enumerate((100, 200, 400, 800, 1600, 3200, 6400, 10_000), 1):
            assert store.deliver_due() == 0
            delayed.clock.now += pause - 1
            assert store.deliver_due() == 0
            assert failing.calls == attempt
            delayed.clock.now += 1
        with caplog.at_level(logging.ERROR, "rocketstore"):
            store.deliver_due()
        assert "cannot be delivered: UNKNOWN_ERROR after 9 attempts" in caplog.text
        assert bodies(store) == [b"good"]
        level = store.delays().levels[0]
        assert (dict(level.parked), level.pending) == ({0: "UNKNOWN_ERROR after 9 attempts"}, 0)
    with delayed.read() as reader:
        level = reader.delays().levels[0]
        assert (dict(level.parked), level.pending) == ({0: "UNKNOWN_ERROR after 9 attempts"}, 0)


def test_a_store_that_takes_no_puts_parks_nothing(
    delayed: DelayedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with delayed.open(delay_max_attempts=2) as store:
        Failing(monkeypatch, store, *[PutMessageStatus.SERVICE_NOT_AVAILABLE] * 5)
        store.put("T", b"x", delay_level=1)
        delayed.clock.now += 1000
        for _ in range(6):
            store.deliver_due()
            delayed.clock.now += 10_000
        assert bodies(store) == [b"x"]


def test_a_full_disk_raises_and_the_rest_stays_due(
    delayed: DelayedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with delayed.open() as store:
        Failing(monkeypatch, store, StoreFullError("no space"))
        store.put("T", b"x", delay_level=1)
        delayed.clock.now += 1000
        with pytest.raises(StoreFullError):
            store.deliver_due()
        assert store.delays().overdue == 1
        assert store.deliver_due() == 1
        assert bodies(store) == [b"x"]


def test_a_put_that_raises_after_it_appended_is_found_in_the_log(
    delayed: DelayedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with delayed.open() as store:
        for number in range(4):
            store.put("T", b"%d" % number, delay_level=1)
        store.deliver_due()
        service = store.delay_service
        assert service is not None
        put = service._deliverer._put_staged

        def half(level: int, rows: int, staged: bytes) -> int:
            def interrupted(data: bytes, base: int) -> Any:
                end = 0
                for _ in range(2):
                    end += int.from_bytes(data[end : end + 4], "big")
                store.reader.log.appender.put_staged(data[:end], base)
                raise KeyboardInterrupt

            with pytest.raises(KeyboardInterrupt):
                service._deliverer._put(interrupted, staged, 0)
            raise KeyboardInterrupt

        monkeypatch.setattr(service._deliverer, "_put_staged", half)
        delayed.clock.now += 1000
        with pytest.raises(KeyboardInterrupt):
            store.deliver_due()
        monkeypatch.setattr(service._deliverer, "_put_staged", put)
        assert store.deliver_due() == 2
        assert b"".join(bodies(store)) == b"0123"


def test_an_interrupt_before_deliveries_are_counted_delivers_none_twice(
    delayed: DelayedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with delayed.open() as store:
        for number in range(3):
            store.put("T", b"%d" % number, delay_level=1)
        store.deliver_due()
        service = store.delay_service
        assert service is not None
        delayed.clock.now += 1000
        with monkeypatch.context() as patched:

            def interrupted(level: int, count: int) -> int:
                raise KeyboardInterrupt

            patched.setattr(service._deliverer, "_delivered", interrupted)
            with pytest.raises(KeyboardInterrupt):
                store.deliver_due()
        assert store.deliver_due() == 0
        assert b"".join(bodies(store)) == b"012"


def test_a_message_that_breaks_a_limit_is_parked_at_once(delayed: DelayedStore) -> None:
    """With its own topic, which is longer than the schedule topic, it fits into no segment. Its
    level must not wait for attempts that cannot succeed."""
    with delayed.open(mapped_file_size_commit_log=4096) as store:
        for nbytes in range(3700, 3900):
            store.put("T" * 100, b"x" * nbytes, delay_level=1)
        store.put("T", b"after", delay_level=1)
        delayed.clock.now += 1000
        store.deliver_due()
        assert bodies(store)[-1] == b"after"
        level = store.delays().levels[0]
        assert level.pending == 0
        assert set(level.parked.values()) == {"the put answered MESSAGE_ILLEGAL"}


@pytest.mark.parametrize("status", ["SERVICE_NOT_AVAILABLE", "UNKNOWN_ERROR"])
def test_a_call_tries_a_failing_message_once_while_the_clock_goes_on(
    status: str, delayed: DelayedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the eighth pause on, a call repeated it without end, or used up all attempts."""

    def ticking() -> int:
        delayed.clock.now += 1
        return delayed.clock.now

    with delayed.open(clock=ticking) as store:
        failing = Failing(monkeypatch, store, *[PutMessageStatus[status]] * 12)
        store.put("T", b"x", delay_level=1)
        for attempt in range(1, 13):
            delayed.clock.now += 20_000
            store.deliver_due()
            assert failing.calls == attempt
        delayed.clock.now += 20_000
        assert store.deliver_due() == 1


def test_a_delay_of_the_clock_that_is_set_back_does_not_hold_a_retry(
    delayed: DelayedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with delayed.open() as store:
        Failing(monkeypatch, store, PutMessageStatus.UNKNOWN_ERROR)
        store.put("T", b"x", delay_level=1)
        delayed.clock.now += 10**6
        assert store.deliver_due() == 0
        delayed.clock.now -= 900_000
        assert store.deliver_due() == 1


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({}, "no REAL_TOPIC"),
        ({"REAL_TOPIC": "T", "REAL_QID": "2147483648"}, "REAL_QID is '2147483648'"),
        ({"REAL_TOPIC": "T", "REAL_QID": "9" * 5000}, f"REAL_QID is '{'9' * 40}'"),
        ({"REAL_TOPIC": "T" * 128, "REAL_QID": "0"}, "has 128 bytes, more than 127"),
        ({"REAL_TOPIC": "T" * 300, "REAL_QID": "0"}, "has 300 bytes, more than 127"),
        ({"REAL_TOPIC": "T"}, "REAL_QID is ''"),
        ({"REAL_TOPIC": "T", "REAL_QID": "-1"}, "REAL_QID is '-1'"),
        ({"REAL_TOPIC": "T/x", "REAL_QID": "0"}, "UNSAFE_TOPIC"),
        ({"REAL_TOPIC": formats.TOPIC_SCHEDULE, "REAL_QID": "0"}, "schedule topic"),
    ],
)
def test_d_50_poison_is_parked_and_the_level_goes_on(
    properties: dict[str, str], reason: str, delayed: DelayedStore
) -> None:
    with delayed.open() as store:
        store.put("T", b"before", delay_level=1)
        if "REAL_TOPIC" in properties:
            put_raw(store, b"poison", **properties)
        else:
            # A put would give it a real topic: no level, so the queue is the message's own.
            result = store.put(formats.TOPIC_SCHEDULE, b"poison", 0)
            assert result.ok
        store.put("T", b"after", delay_level=1)
        store.wait_dispatched()
        assert len(list(store.delays().due())) == 3
        delayed.clock.now += 1000
        store.deliver_due()
        assert bodies(store) == [b"before", b"after"]
        parked = store.delays().levels[0].parked
        assert list(parked) == [1]
        assert reason in parked[1]


def test_d_76_a_half_message_is_parked(delayed: DelayedStore) -> None:
    with delayed.open() as store:
        put_raw(store, REAL_TOPIC=formats.TOPIC_HALF, REAL_QID="0")
        delayed.clock.now += 1000
        assert store.deliver_due() == 0
        assert "half message" in store.delays().levels[0].parked[0]


def test_a_placeholder_of_a_salvage_is_skipped(delayed: DelayedStore) -> None:
    """It stands for a lost message; brokers drop it as a delayed message for the half topic."""
    properties = {"REAL_TOPIC": formats.TOPIC_HALF, "REAL_QID": "0"}
    with delayed.open() as store:
        assert store.put(formats.TOPIC_SCHEDULE, b"", 0, properties=properties).ok
        store.put("T", b"next", delay_level=1)
        delayed.clock.now += 1000
        assert store.deliver_due() == 1
        level = store.delays().levels[0]
        assert (level.skipped, dict(level.parked), level.pending) == (1, {}, 0)


def test_a_call_that_interrupts_a_delivery_is_refused(
    delayed: DelayedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with delayed.open() as store:
        store.deliver_due()
        service = store.delay_service
        assert service is not None
        monkeypatch.setattr(service._deliverer, "deliver", lambda count: store.deliver_due())
        with pytest.raises(ReentrantCallError):
            store.deliver_due()


def test_d_53_properties_of_the_timer_do_not_time_it_again(delayed: DelayedStore) -> None:
    """Also where puts give offsets in other queues, so that the message goes through the rules."""
    extra = {"TIMER_DELAY_MS": "60000", "REAL_TOPIC": "T", "REAL_QID": "0"}
    with delayed.open(enable_lmq=True, enable_multi_dispatch=True, broker_version="5.3.3") as store:
        put_raw(store, b"plain", **extra)
        put_raw(store, b"named", **extra, INNER_MULTI_DISPATCH="%LMQ%a")
        delayed.clock.now += 1000
        assert store.deliver_due() == 2
        assert bodies(store) == [b"plain", b"named"]
        assert store.delays().pending == 0


def test_light_queues_get_the_message_when_it_is_delivered(delayed: DelayedStore) -> None:
    with delayed.open(enable_lmq=True, enable_multi_dispatch=True, broker_version="5.3.3") as store:
        store.put("T", b"x", delay_level=1, properties={"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"})
        store.wait_dispatched()
        assert store.max_offset_in_queue("%LMQ%a", 0) == 0
        delayed.clock.now += 1000
        assert store.deliver_due() == 1
        store.wait_dispatched()
        assert store.max_offset_in_queue("%LMQ%a", 0) == 1
        assert store.get_message("g", "%LMQ%b", 0, 0).messages[0].body == b"x"
    (delayed.root / "config" / "delayOffset.json").unlink()
    with delayed.open(enable_lmq=True, enable_multi_dispatch=True, broker_version="5.3.3") as store:
        assert store.deliver_due() == 0, "the log shows it, although the record has no level"


@pytest.mark.parametrize("version", ["4.9.8", "5.5.0"])
@pytest.mark.parametrize("names", ["%LMQ%a,%LMQ%b", " "])
@pytest.mark.parametrize("topic", ["T", "%RETRY%g", "rmq_sys_x"])
def test_deliveries_that_name_light_queues_are_found_after_a_crash(
    topic: str, names: str, version: str, delayed: DelayedStore
) -> None:
    """Some topics are never in light queues: their deliveries must bear the level."""
    for switches in ((True, True), (True, False), (False, True)):
        options = dict(zip(("enable_lmq", "enable_multi_dispatch"), switches, strict=True))
        delayed.root = delayed.root.with_name(f"{switches}")
        store = delayed.open(broker_version=version, **options)
        for number in range(3):
            properties = {"INNER_MULTI_DISPATCH": names}
            assert store.put(topic, b"%d" % number, delay_level=1, properties=properties).ok
        delayed.clock.now += 1000
        assert store.deliver_due(max_count=2) == 2
        abandon(store)
        with delayed.open(broker_version=version, **options) as store:
            assert store.deliver_due() == 1
            store.wait_dispatched()
            assert [m.body for m in store.get_message("g", topic, 0, 0).messages] == [
                b"0", b"1", b"2"
            ]  # fmt: skip
            assert store.verify().findings == []


@pytest.mark.parametrize("version", ["4.9.8", "5.0.0", "5.1.4"])
def test_light_queues_of_delayed_messages_are_right_for_verify(
    version: str, delayed: DelayedStore
) -> None:
    """Up to 5.0, the delayed record is in the light queues too, with its due time as the code."""
    with delayed.open(enable_lmq=True, enable_multi_dispatch=True, broker_version=version) as store:
        store.put("T", b"x", delay_level=1, properties={"INNER_MULTI_DISPATCH": "%LMQ%a"})
        delayed.clock.now += 1000
        assert store.deliver_due() == 1
        store.wait_dispatched()
        assert store.max_offset_in_queue("%LMQ%a", 0) == (1 if version == "5.1.4" else 2)
        assert store.verify().findings == []


@pytest.mark.parametrize("version", ["5.1.4", "5.5.0"])
def test_a_message_of_a_batch_topic(version: str, delayed: DelayedStore) -> None:
    """It is delivered into the topic's batch queue, and found in the log after a crash."""
    attributes = {"queue.type": "BatchCQ"}
    table = {"B": {"topicName": "B", "perm": 6, "attributes": attributes}}
    (delayed.root / "config").mkdir(parents=True)
    (delayed.root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}))
    store = delayed.open(broker_version=version)
    assert store.put("B", b"first").ok
    for body in (b"second", b"third"):
        assert store.put("B", body, tags="t", delay_level=1).ok
    delayed.clock.now += 1000
    assert store.deliver_due(max_count=1) == 1
    assert store.put("B", b"fourth").ok
    abandon(store)
    with delayed.open(broker_version=version) as store:
        assert store.deliver_due() == 1
        store.wait_dispatched()
        found = store.get_message("g", "B", 0, 0).messages
        assert [m.body for m in found] == [b"first", b"second", b"fourth", b"third"]
        assert [m.queue_offset for m in found] == [0, 1, 2, 3]
        assert [m.tags for m in found] == [None, "t", None, "t"]
        assert list((delayed.root / "batchconsumequeue" / "B").iterdir())
        assert store.verify().findings == []


def test_messages_that_expire_while_they_wait_count_as_skipped(
    delayed: DelayedStore, caplog: pytest.LogCaptureFixture
) -> None:
    with delayed.open() as store:
        assert store.deliver_due() == 0
        for _ in range(200):
            store.put("T", b"x" * 200, delay_level=2)
        store.wait_dispatched()
        delayed.clock.now += 200 * 3_600_000
        store.flush()
        assert store.clean_expired().files
        with caplog.at_level(logging.WARNING, "rocketstore"):
            delivered = store.deliver_due()
        level = store.delays().levels[1]
        assert level.skipped > 0
        assert level.skipped + delivered == 200
        assert "gone from the log" in caplog.text


def test_messages_that_expired_count_as_skipped(
    delayed: DelayedStore, caplog: pytest.LogCaptureFixture
) -> None:
    with delayed.open() as store:
        for _ in range(200):
            store.put("T", b"x" * 200, delay_level=2)
        store.wait_dispatched()
        delayed.clock.now += 200 * 3_600_000
        store.put("T", b"last", delay_level=2)
        store.wait_dispatched()
        store.flush()
        assert store.clean_expired().files
        with caplog.at_level(logging.WARNING, "rocketstore"):
            delivered = store.deliver_due()
        level = store.delays().levels[1]
        assert level.skipped > 0
        assert level.skipped + delivered + level.pending == 201
        assert "expired before they were delivered" in caplog.text


def test_a_slave_delivers_nothing_and_says_what_is_due(delayed: DelayedStore) -> None:
    with delayed.open() as store:
        store.put("T", b"x", delay_level=1)
    delayed.clock.now += 1000
    with delayed.open(broker_role="SLAVE", schedule_message_enable=True) as store:
        assert store.delay_service is None
        assert store.deliver_due() == 0
        assert store.delays().overdue == 1


def test_extension_units_hold_the_due_time(delayed: DelayedStore) -> None:
    with delayed.open(enable_consume_queue_ext=True, broker_version="4.9.8") as store:
        for number in range(30):
            store.put("T", b"%d," % number, delay_level=1)
        assert store.deliver_due() == 0
        store.wait_dispatched()
        assert store.delays().levels[0].next_due == NOW + 1000
        delayed.clock.now += 1000
        assert store.deliver_due() == 30
        assert b"".join(bodies(store)) == b"".join(b"%d," % n for n in range(30))


@pytest.mark.parametrize("version", ["4.9.8", "5.1.4", "5.3.3", "5.5.0"])
def test_every_dialect_with_and_without_a_crc(version: str, tmp_path: Path) -> None:
    crc = version >= "5.2"
    delayed = DelayedStore(
        tmp_path / "s", broker_version=version, enabled_append_prop_crc=crc,
        force_verify_prop_crc=crc,
    )  # fmt: skip
    with delayed.open() as store:
        store.put("T", b"x", 0, "tag", delay_level=1)
        delayed.clock.now += 1000
        assert store.deliver_due() == 1
        assert store.verify().ok
    with delayed.read() as reader:
        assert bodies(reader) == [b"x"]
