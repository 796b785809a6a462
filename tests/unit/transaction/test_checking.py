"""Rounds of checks: who is asked, what is counted, decided, copied and discarded."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import TransactionState, formats
from rocketstore.transaction.checking import CheckReport
from rocketstore.transaction.progress import read_progress

NOW = 1_800_000_000_000
UNKNOWN, COMMIT, ROLLBACK = (
    TransactionState.UNKNOWN,
    TransactionState.COMMIT,
    TransactionState.ROLLBACK,
)


class Clock:
    """Epoch ms, by hand."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Any:
    options: dict[str, Any] = {
        "mapped_file_size_commit_log": 1 << 20,
        "broker_version": "5.3.3",
        "transaction_check_max": 3,
    }
    with rocketstore.open(tmp_path, "a", clock=clock, **options) as opened:
        yield opened


def on(store: Any, topic: str) -> list[Any]:
    store.wait_dispatched()
    return [one for one in store.scan() if one.topic == topic]


def asked(store: Any, answer: Any = None, **options: Any) -> tuple[list[bytes], CheckReport]:
    bodies: list[bytes] = []

    def callback(message: Any) -> Any:
        bodies.append(message.body)
        return answer

    return bodies, store.transaction_check(callback, **options)


def test_the_young_are_not_asked_about(store: Any, clock: Clock) -> None:
    store.begin("Orders", b"old", group="g")
    clock.now += 6000
    store.begin("Orders", b"young", group="g")
    bodies, report = asked(store)
    assert (bodies, report) == ([b"old"], CheckReport(asked=1, unknown=1, immune=1))
    bodies, report = asked(store, COMMIT, force=True)
    assert (bodies, report.committed) == ([b"young", b"old"], 2)  # the old one has a new copy
    assert asked(store, force=True) == ([], CheckReport())


def test_answers_decide(store: Any, clock: Clock) -> None:
    answers = {b"c": COMMIT, b"r": ROLLBACK, b"u": UNKNOWN, b"n": None, b"x": "nonsense"}
    begun = {body: store.begin("Orders", body, group="g") for body in answers}
    report = store.transaction_check(lambda message: answers[message.body], force=True)
    assert report == CheckReport(asked=5, committed=1, rolled_back=1, unknown=3)
    states = {body: one.state.name for body, one in begun.items()}
    assert states == {
        **{b"c": "COMMIT", b"r": "ROLLBACK"},
        **dict.fromkeys((b"u", b"n", b"x"), "UNKNOWN"),
    }
    assert begun[b"c"].commit().ok
    assert {one.message.body: one.checks for one in store.transactions()} == {
        **{b"u": 1, b"n": 1, b"x": 1}
    }


def test_an_exception_counts_as_unknown(store: Any, caplog: pytest.LogCaptureFixture) -> None:
    def fail(message: Any) -> None:
        raise KeyError("lost")

    store.begin("Orders", b"1", group="g")
    with caplog.at_level(logging.ERROR):
        assert store.transaction_check(fail, force=True).unknown == 1
    assert "check of a transaction of group 'g' failed" in caplog.text


def test_groups_and_limits(store: Any) -> None:
    for number in range(6):
        store.begin("Orders", b"%d" % number, group="ab"[number % 2])
    assert asked(store, group="b", force=True)[0] == [b"1", b"3", b"5"]
    assert asked(store, max_count=2, force=True)[0] == [b"0", b"2"]
    assert asked(store, group="none", force=True) == ([], CheckReport())


def test_async_callbacks_are_awaited(store: Any) -> None:
    async def answer(message: Any) -> TransactionState:
        await asyncio.sleep(0)
        return COMMIT

    store.begin("Orders", b"1", group="g")
    assert store.transaction_check(answer, force=True).committed == 1


def test_decided_while_it_is_asked_about(store: Any) -> None:
    one = store.begin("Orders", b"1", group="g")

    def decide(message: Any) -> TransactionState:
        one.rollback()
        return COMMIT

    report = store.transaction_check(decide, force=True)
    assert (report.asked, report.committed) == (1, 0)
    assert one.state == ROLLBACK


def test_d_62_copies_keep_all_fields(store: Any) -> None:
    """RocketMQ's lose flag and reconsume times."""
    one = store.begin("Orders", b"1", group="g", flag=1234, tags="t", keys="k")
    first = one.message.detach()
    asked(store, force=True)
    copy = one.message
    assert copy.queue_offset == 1
    assert copy.properties == {**first.properties, "TRANSACTION_CHECK_TIMES": "1"}
    kept = ("flag", "sys_flag", "born_timestamp", "born_host", "store_host", "body", "tags")
    assert [getattr(copy, name) for name in kept] == [getattr(first, name) for name in kept]
    outcome = one.commit()
    message = store.look_message_by_offset(outcome.physical_offset)
    assert (message.flag, message.prepared_transaction_offset) == (1234, copy.physical_offset)
    for reference in (first.physical_offset, copy.physical_offset, first.unique_key):
        assert store.transaction(reference).commit() == outcome


def test_d_61_immunity_of_its_own_uses_up_no_checks(store: Any, clock: Clock) -> None:
    """RocketMQ copies the message in each round, counts, and discards it unasked."""
    one = store.begin(
        "Orders", b"1", group="g", properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": "3600"}
    )
    for _ in range(20):
        clock.now += 100_000
        assert asked(store) == ([], CheckReport(immune=1))
    assert (one.checks, one.message.queue_offset) == (0, 0)
    clock.now = NOW + 3_600_000
    assert asked(store)[0] == [b"1"]


def test_d_63_rounds_without_a_callback_use_up_no_checks(store: Any, clock: Clock) -> None:
    """RocketMQ counts although no producer is connected."""
    one = store.begin("Orders", b"1", group="g")
    store.on_transaction_check("other", lambda message: None)
    service = store._transactions.service
    for _ in range(20):
        clock.now += 100_000
        service.step()
        asked(store, group="other")
    assert (one.checks, one.state) == (0, UNKNOWN)


def test_d_43_it_is_discarded_after_the_last_check(store: Any, clock: Clock) -> None:
    """And stays undecided if that cannot be stored; RocketMQ goes on as if it were."""
    one = store.begin("Orders", b"1", group="g", flag=5)
    for count in range(1, 4):
        clock.now += 60_000
        assert asked(store) == ([b"1"], CheckReport(asked=1, unknown=1))
        assert one.checks == count
    clock.now += 60_000
    appender = store.reader.log.appender
    appender.refuse(4)
    assert asked(store) == ([], CheckReport())
    assert one.state == UNKNOWN
    appender.refuse(None)
    newest = one.message.detach()
    assert asked(store) == ([], CheckReport(discarded=1))
    (message,) = on(store, formats.TOPIC_DISCARDED)
    assert (message.body, message.flag, message.queue_id) == (b"1", 5, 0)
    assert message.properties == newest.properties
    assert one.state == TransactionState.DISCARDED
    with pytest.raises(rocketstore.TransactionStateError, match="DISCARDED"):
        one.commit()
    assert [found.state.name for found in store.transactions(state=None)] == ["DISCARDED"]


def test_nothing_is_discarded_that_was_not_asked_about(store: Any, tmp_path: Path) -> None:
    """A half message whose checks were used up elsewhere is asked about once more."""
    put = store.put(
        formats.TOPIC_HALF,
        b"1",
        properties={
            "TRAN_MSG": "true",
            "PGROUP": "g",
            "REAL_TOPIC": "Orders",
            "REAL_QID": "0",
            "TRANSACTION_CHECK_TIMES": "99",
        },
    )
    (one,) = store.transactions()
    assert (one.offset, one.checks) == (put.physical_offset, 99)
    bodies, report = asked(store, force=True)
    assert (bodies, report.discarded, report.unknown) == ([b"1"], 1, 0)


def test_a_clock_that_went_back(store: Any, clock: Clock) -> None:
    store.begin("Orders", b"1", group="g")
    clock.now -= 10_000
    assert asked(store)[0] == [b"1"]


def test_a_half_message_that_expired_is_gone(store: Any, caplog: pytest.LogCaptureFixture) -> None:
    one = store.begin("Orders", b"1", group="g")
    one.ledger.remove(one.key)
    one.ledger.add(one.key, one.key, 1 << 40, 100, 0, 0, 0, -1, 0)
    with caplog.at_level(logging.WARNING):
        assert asked(store, force=True) == ([], CheckReport(gone=1))
    assert "expired undecided" in caplog.text


def test_d_64_progress_waits_for_every_half_message(store: Any, tmp_path: Path) -> None:
    """An op message is done when all that it names are; a broker that goes on misses nothing."""
    first = store.begin("Orders", b"1", group="a")
    for _ in range(5):
        store.begin("Orders", b"x", group="b").commit()
    asked(store, group="none")
    assert read_progress(tmp_path) == (-1, -1)
    first.rollback()
    asked(store)
    assert read_progress(tmp_path) == (6, 6)


def test_copies_before_an_older_undecided_one_are_named_in_an_op(
    store: Any, tmp_path: Path
) -> None:
    """Else a broker that goes on would ask about them twice."""
    store.begin("Orders", b"silent", group="a")
    two = store.begin("Orders", b"2", group="b")
    asked(store, group="b", force=True)
    assert [one.body for one in on(store, formats.TOPIC_OP)] == [b"1,"]
    assert two.checks == 1
    assert read_progress(tmp_path) == (-1, -1)
    store.close()
    with rocketstore.open(tmp_path, "r") as reopened:
        found = {one.message.body: one.checks for one in reopened.transactions()}
    assert found == {b"silent": 0, b"2": 1}


def test_the_service_asks_in_the_background(tmp_path: Path) -> None:
    came = threading.Event()

    def answer(message: Any) -> TransactionState:
        came.set()
        return COMMIT

    options = {"transaction_check_interval": 20, "transaction_time_out": 0}
    with rocketstore.open(tmp_path, "a", **options) as store:
        one = store.begin("Orders", b"1", group="g")
        store.on_transaction_check("g", answer)
        assert came.wait(20)
        assert one.commit().appended
        store.on_transaction_check("g", None)
        came.clear()
        store.begin("Orders", b"2", group="g")
        assert not came.wait(0.1)


def test_an_async_callback_runs_on_its_loop(tmp_path: Path) -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        came = asyncio.Event()

        async def answer(message: Any) -> TransactionState:
            assert asyncio.get_running_loop() is loop
            came.set()
            return ROLLBACK

        options = {"transaction_check_interval": 20, "transaction_time_out": 0}
        with rocketstore.open(tmp_path, "a", **options) as store:
            store.on_transaction_check("g", answer)
            one = await store.abegin("Orders", b"1", group="g")
            await asyncio.wait_for(came.wait(), 20)
            while one.state == UNKNOWN:
                await asyncio.sleep(0.01)
            assert one.state == ROLLBACK

    asyncio.run(work())
