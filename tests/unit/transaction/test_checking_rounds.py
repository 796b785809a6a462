"""Rounds of checks that end early, meet each other, or ask in vain."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import TransactionState, formats
from rocketstore.errors import ReentrantCallError, TransactionError
from rocketstore.transaction.checking import CheckReport

OPTIONS: dict[str, Any] = {"mapped_file_size_commit_log": 1 << 20, "broker_version": "5.3.3"}
UNKNOWN, COMMIT = TransactionState.UNKNOWN, TransactionState.COMMIT
LONG_S = 20


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with rocketstore.open(tmp_path, "a", **OPTIONS) as opened:
        yield opened


def ops(store: Any) -> list[bytes]:
    store.wait_dispatched()
    return [one.body for one in store.scan() if one.topic == formats.TOPIC_OP]


def in_thread(call: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(call()))
    thread.start()
    return thread, answers


class Slow:
    """A callback that waits until ``go`` is set."""

    def __init__(self, answer: Any = None) -> None:
        self.came, self.go = threading.Event(), threading.Event()
        self.answer = answer
        self.asked: list[bytes] = []

    def __call__(self, message: Any) -> Any:
        self.asked.append(message.body)
        self.came.set()
        assert self.go.wait(LONG_S)
        return self.answer


# --- ends of rounds -----------------------------------------------------------------------------


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_interrupted_round_names_what_it_copied(
    error: type[BaseException], store: Any, tmp_path: Path
) -> None:
    """Else a broker that goes on would ask about the first half message and its copy."""
    store.begin("Orders", b"silent", group="a")
    for body in (b"1", b"2", b"3"):
        store.begin("Orders", body, group="b")

    def ask(message: Any) -> None:
        if message.body == b"3":
            raise error

    with pytest.raises(error):
        store.transaction_check(ask, group="b", force=True)
    assert ops(store) == [b"1,2,"]
    assert {one.message.body: one.checks for one in store.transactions()} == {
        **{b"silent": 0, b"1": 1, b"2": 1, b"3": 0}
    }


def test_the_first_error_of_a_round_is_raised(store: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Not that of its end; what could not be named is owed."""
    store.begin("Orders", b"silent", group="a")
    store.begin("Orders", b"1", group="b")
    store.begin("Orders", b"2", group="b")
    ledger = store.transaction(0).ledger

    def ask(message: Any) -> None:
        if message.body == b"2":
            store.reader.log.appender.refuse(4)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.transaction_check(ask, group="b", force=True)
    assert ledger.owed == [1]
    store.reader.log.appender.refuse(None)
    store.transaction_check(lambda message: None, group="b")
    assert ops(store) == [b"1,"]


def test_rounds_run_one_after_another(store: Any) -> None:
    """Two at once would copy the same half message, and lose one of the copies."""
    store.begin("Orders", b"silent", group="a")
    one = store.begin("Orders", b"1", group="b")
    slow, second = Slow(), Slow()
    second.go.set()
    threads = []
    for callback in (slow, second):
        threads.append(in_thread(partial(store.transaction_check, callback, group="b", force=True)))
        assert slow.came.wait(LONG_S)
    assert not second.came.wait(0.1)
    slow.go.set()
    for thread, _ in threads:
        thread.join(LONG_S)
    assert [answer.unknown for _, (answer,) in threads] == [1, 1]
    assert (one.checks, one.message.queue_offset) == (2, 3)
    assert sorted(b"".join(ops(store)).split(b",")) == [b"", b"1", b"2"]


def test_a_callback_begins_no_round(store: Any) -> None:
    store.begin("Orders", b"1", group="g")
    refused = []

    def nested() -> None:
        with pytest.raises(ReentrantCallError, match="from inside another"):
            store.transaction_check(lambda message: None, force=True)
        refused.append(threading.current_thread() is threading.main_thread())

    async def ask(message: Any) -> TransactionState:
        nested()
        await asyncio.to_thread(nested)
        return COMMIT

    def sync(message: Any) -> None:
        nested()

    store.transaction_check(sync, force=True)
    assert store.transaction_check(ask, force=True).committed == 1
    assert refused == [True, True, False]


def test_an_event_loop_waits_for_no_round(store: Any) -> None:
    store.begin("Orders", b"1", group="g")
    slow = Slow(COMMIT)
    thread, answers = in_thread(lambda: store.transaction_check(slow, force=True))
    assert slow.came.wait(LONG_S)

    async def work() -> None:
        with pytest.raises(TransactionError, match="another round"):
            store.transaction_check(lambda message: None, force=True)
        slow.go.set()
        await asyncio.to_thread(thread.join, LONG_S)
        assert store.transaction_check(lambda message: None, force=True) == CheckReport()

    asyncio.run(work())
    assert answers[0].committed == 1


# --- closing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [None, COMMIT])
@pytest.mark.parametrize("is_background", [False, True])
def test_closing_waits_for_the_callback_that_runs(
    answer: Any, is_background: bool, tmp_path: Path
) -> None:
    """It may use the store still. An answer counts, the lack of one does not."""
    options = {**OPTIONS, "transaction_check_interval": 1, "transaction_time_out": 0}
    store = rocketstore.open(tmp_path, "a", **options)
    store.begin("Orders", b"1", group="g")
    store.begin("Orders", b"2", group="g")
    slow = Slow(answer)

    def ask(message: Any) -> Any:
        found = slow(message)
        assert store.transaction(message.physical_offset).state == UNKNOWN
        return found

    if is_background:
        store.on_transaction_check("g", ask)
    else:
        asker, _ = in_thread(lambda: store.transaction_check(ask, force=True))
    assert slow.came.wait(LONG_S)
    closer, _ = in_thread(store.close)
    closer.join(0.1)
    assert closer.is_alive()
    slow.go.set()
    closer.join(LONG_S)
    assert store.closed
    if not is_background:
        asker.join(LONG_S)
    assert slow.asked == [b"1"]
    with rocketstore.open(tmp_path, "r", **OPTIONS) as reopened:
        left = {one.message.body: one.checks for one in reopened.transactions()}
    assert left == ({b"2": 0} if answer else {b"1": 0, b"2": 0})


def test_an_answer_that_never_comes_is_not_counted_at_close(tmp_path: Path) -> None:
    options = {**OPTIONS, "transaction_check_interval": 1, "transaction_time_out": 0}

    async def work() -> None:
        came = asyncio.Event()

        async def ask(message: Any) -> None:
            came.set()
            await asyncio.sleep(3600)

        store = rocketstore.open(tmp_path, "a", **options)
        store.on_transaction_check("g", ask)
        store.begin("Orders", b"1", group="g")
        await asyncio.wait_for(came.wait(), LONG_S)
        await asyncio.to_thread(store.close)

    asyncio.run(work())
    with rocketstore.open(tmp_path, "r", **OPTIONS) as reopened:
        assert [one.checks for one in reopened.transactions()] == [0]


def test_a_callback_may_close_the_store(tmp_path: Path) -> None:
    store = rocketstore.open(tmp_path, "a", **OPTIONS)
    store.begin("Orders", b"1", group="g")
    store.begin("Orders", b"2", group="g")
    asked = []

    def ask(message: Any) -> None:
        asked.append(message.body)
        store.close()

    store.transaction_check(ask, force=True)
    assert asked == [b"1"]
    with rocketstore.open(tmp_path, "r", **OPTIONS) as reopened:
        assert [one.checks for one in reopened.transactions()] == [0, 0]


def test_a_callback_that_closes_the_store_ends_its_round(tmp_path: Path) -> None:
    """What was copied before is named when the store is opened again."""
    options = {**OPTIONS, "transaction_check_interval": 1, "transaction_time_out": 0}
    store = rocketstore.open(tmp_path, "a", **options)
    store.begin("Orders", b"silent", group="a")
    for body in (b"1", b"2", b"3"):
        store.begin("Orders", body, group="b")
    asked = []

    def ask(message: Any) -> None:
        asked.append(message.body)
        if message.body == b"2":
            # The round of the service waits for this one; closing waits for neither.
            store.on_transaction_check("b", lambda message: None)
            store.close()

    report = store.transaction_check(ask, group="b", force=True)
    assert (asked, report.asked, report.unknown) == ([b"1", b"2"], 2, 1)
    with rocketstore.open(tmp_path, "r+", **OPTIONS) as reopened:
        checks = {one.message.body: one.checks for one in reopened.transactions()}
        assert checks == {b"silent": 0, b"1": 1, b"2": 0, b"3": 0}
        assert ops(reopened) == [b"1,"]


def test_an_interrupt_after_a_copy_was_stored(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store.begin("Orders", b"silent", group="a")
    store.begin("Orders", b"1", group="b")
    book = store._transactions.book
    ledger = book.ledger

    class Ledger:
        def __getattr__(self, name: str) -> Any:
            return getattr(ledger, name)

        def put_copy(self, *given: Any) -> None:
            ledger.put_copy(*given)
            raise KeyboardInterrupt

    monkeypatch.setattr(book, "ledger", Ledger())
    with pytest.raises(KeyboardInterrupt):
        store.transaction_check(lambda message: None, group="b", force=True)
    assert ops(store) == [b"1,"]
    assert [one.checks for one in store.transactions()] == [0, 1]


def test_a_slave_asks_about_none(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path, "a", **OPTIONS) as store:
        store.begin("Orders", b"1", group="g")
    options = {**OPTIONS, "transaction_check_interval": 1, "transaction_time_out": 0}
    asked: list[Any] = []
    with rocketstore.open(tmp_path, "r+", broker_role="SLAVE", **options) as store:
        assert store.transaction_check(asked.append, force=True) == CheckReport()
        store.on_transaction_check("g", asked.append)
        threading.Event().wait(0.05)
        assert len(list(store.transactions())) == 1
    assert asked == []


def test_closing_names_what_is_owed(tmp_path: Path) -> None:
    """Else a broker that goes on would ask about it."""
    with rocketstore.open(tmp_path, "a", **OPTIONS) as store:
        store.begin("Orders", b"silent", group="a")
        store.begin("Orders", b"1", group="b")
        appender = store.reader.log.appender
        store._transactions.book.ledger.put_copy(1, 1, None)
        store._transactions.book.ledger.owe([1])
        appender.refuse(4)
        assert store._transactions.book.ledger.write_ops(None) == 0
        appender.refuse(None)
    with rocketstore.open(tmp_path, "r", **OPTIONS) as reopened:
        assert ops(reopened) == [b"1,"]


# --- callbacks ----------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [asyncio.CancelledError, SystemExit, GeneratorExit, KeyError])
def test_a_callback_of_the_service_ends_only_its_own_check(
    error: type[BaseException], tmp_path: Path
) -> None:
    options = {**OPTIONS, "transaction_check_interval": 1, "transaction_time_out": 0}
    with rocketstore.open(tmp_path, "a", **options) as store:
        one = store.begin("Orders", b"1", group="g")
        two = store.begin("Orders", b"2", group="g")
        done = threading.Event()

        def ask(message: Any) -> Any:
            if message.body == b"1":
                raise error
            done.set()
            return COMMIT

        store.on_transaction_check("g", ask)
        assert done.wait(LONG_S)
        store.on_transaction_check("g", None)
        assert store.put("T", b"x").ok
        assert two.commit().appended
        assert one.state == UNKNOWN


@pytest.mark.parametrize("answer", [True, 1, "COMMIT", TransactionState.DISCARDED, 2.0])
def test_only_a_state_is_an_answer(
    answer: Any, store: Any, caplog: pytest.LogCaptureFixture
) -> None:
    one = store.begin("Orders", b"1", group="g")
    assert store.transaction_check(lambda message: answer, force=True).unknown == 1
    assert (one.state, one.checks) == (UNKNOWN, 1)
    assert "not a TransactionState" in caplog.text


def test_async_callbacks_need_a_thread_without_a_loop(store: Any) -> None:
    one = store.begin("Orders", b"1", group="g")

    async def ask(message: Any) -> TransactionState:
        return COMMIT

    class Asks:
        async def __call__(self, message: Any) -> TransactionState:
            return COMMIT

    async def work() -> None:
        for callback in (ask, Asks(), lambda message: ask(message)):
            with pytest.raises(TypeError, match="on_transaction_check"):
                store.transaction_check(callback, force=True)
        assert (one.state, one.checks) == (UNKNOWN, 0)
        report = await asyncio.to_thread(store.transaction_check, ask, force=True)
        assert report.committed == 1

    asyncio.run(work())


@pytest.mark.parametrize("given", [{"callback": None}, {"max_count": "1"}, {"max_count": True}])
def test_arguments_of_another_type_are_refused(given: dict[str, Any], store: Any) -> None:
    store.begin("Orders", b"1", group="g")
    with pytest.raises(TypeError):
        store.transaction_check(**{"callback": lambda message: COMMIT, **given}, force=True)
    with pytest.raises(ValueError, match="negative"):
        store.transaction_check(lambda message: COMMIT, max_count=-1, force=True)
    assert store.transaction_check(lambda message: COMMIT, max_count=0, force=True).asked == 0


def test_with_a_limit_all_have_their_turn(store: Any) -> None:
    for number in range(5):
        store.begin("Orders", b"%d" % number, group="g")
    asked: list[bytes] = []
    for _ in range(5):
        store.transaction_check(lambda message: asked.append(message.body), max_count=2, force=True)
    assert b"".join(asked) == b"0123401234"


def test_callbacks_of_two_loops_run_on_their_own(tmp_path: Path) -> None:
    options = {**OPTIONS, "transaction_check_interval": 1, "transaction_time_out": 0}
    with rocketstore.open(tmp_path, "a", **options) as store:
        seen: dict[str, set[bool]] = {"a": set(), "b": set()}
        ready = threading.Barrier(2)

        async def work(group: str) -> None:
            loop = asyncio.get_running_loop()

            async def ask(message: Any) -> TransactionState:
                seen[group].add(asyncio.get_running_loop() is loop)
                return COMMIT

            store.on_transaction_check(group, ask)
            await asyncio.to_thread(ready.wait, LONG_S)
            one = store.begin("Orders", b"1", group=group)
            async with asyncio.timeout(LONG_S):
                while one.state == UNKNOWN:
                    await asyncio.sleep(0.005)

        threads = [in_thread(lambda group=group: asyncio.run(work(group)))[0] for group in "ab"]
        for thread in threads:
            thread.join(LONG_S)
        assert seen == {"a": {True}, "b": {True}}


def test_a_loop_that_ended_uses_up_no_checks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with rocketstore.open(tmp_path, "a", transaction_time_out=0, **OPTIONS) as store:
        one = store.begin("Orders", b"1", group="g")

        async def ask(message: Any) -> TransactionState:
            return COMMIT

        async def work() -> None:
            store.on_transaction_check("g", ask)

        asyncio.run(work())
        for _ in range(3):
            store._transactions.service.step()
        assert (one.state, one.checks) == (UNKNOWN, 0)
        assert "gave no answer" in caplog.text


def test_a_time_out_of_an_async_callback_counts(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path, "a", transaction_time_out=0, **OPTIONS) as store:
        one = store.begin("Orders", b"1", group="g")

        async def ask(message: Any) -> None:
            raise TimeoutError

        async def work() -> None:
            store.on_transaction_check("g", ask)
            service = store._transactions.service
            async with asyncio.timeout(LONG_S):
                while not one.checks:
                    await asyncio.to_thread(service.step)

        asyncio.run(work())


# --- half messages that cannot be decided -------------------------------------------------------

GOOD = {"TRAN_MSG": "true", "PGROUP": "g", "REAL_TOPIC": "Orders", "REAL_QID": "0"}
POISON = [
    {"REAL_QID": "9999999999"},
    {"REAL_QID": "2147483648"},
    {"REAL_QID": "9" * 5000},
    {"REAL_QID": "-1"},
    {"REAL_QID": "\N{ARABIC-INDIC DIGIT ONE}"},
    {"REAL_QID": None},
    {"REAL_TOPIC": None},
    {"REAL_TOPIC": "a b"},
    {"REAL_TOPIC": "x" * 300},
    *({"REAL_TOPIC": name} for name in (formats.TOPIC_HALF, formats.TOPIC_OP)),
    *({"REAL_TOPIC": name} for name in (formats.TOPIC_DISCARDED, formats.TOPIC_SCHEDULE)),
    {"REAL_TOPIC": formats.TOPIC_TIMER},
]


@pytest.mark.parametrize("changes", POISON)
def test_a_half_message_that_cannot_be_committed_ends_no_round(
    changes: dict[str, str | None], store: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It is counted, so that it is discarded some day; the others are decided."""
    properties = {name: value for name, value in {**GOOD, **changes}.items() if value is not None}
    store.put(formats.TOPIC_HALF, b"poison", properties=properties)
    good = store.begin("Orders", b"good", group="g")
    end = store.max_physical_offset
    report = store.transaction_check(lambda message: COMMIT, force=True)
    assert (report.asked, report.committed, report.unknown) == (2, 1, 1)
    assert good.state == COMMIT
    (one,) = store.transactions()
    assert (one.message.body, one.checks) == (b"poison", 1)
    store.wait_dispatched()
    topics = [message.topic for message in store.scan() if message.physical_offset >= end]
    # The copy of the first one, the message of the other one, and op messages.
    assert {*topics} == {"Orders", formats.TOPIC_HALF, formats.TOPIC_OP}
    assert (topics.count("Orders"), topics.count(formats.TOPIC_HALF)) == (1, 1)
    assert store.put("T", b"x").ok
    one.rollback()


@pytest.mark.parametrize("refused", [None, 4])
def test_a_commit_that_is_refused_for_now_is_not_counted(refused: Any, store: Any) -> None:
    one = store.begin("Orders", b"1", group="g")
    store.reader.log.appender.refuse(refused)
    report = store.transaction_check(lambda message: COMMIT, force=True)
    store.reader.log.appender.refuse(None)
    assert (report.unknown, one.checks) == (int(refused is not None), 0 if refused else one.checks)


def test_a_damaged_half_message_is_not_taken_for_an_expired_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with rocketstore.open(tmp_path, "a", **OPTIONS) as store:
        one = store.begin("Orders", b"x" * 50, group="g")
        (segment,) = (tmp_path / "commitlog").iterdir()
        content = segment.read_bytes()
        with segment.open("r+b") as file:
            file.seek(content.index(b"x" * 50))
            file.write(b"y")
        report = store.transaction_check(lambda message: COMMIT, force=True)
        assert report == CheckReport(damaged=1)
        assert "is damaged" in caplog.text
        with pytest.raises(TransactionError, match="is damaged"):
            one.commit()
        assert [found.offset for found in store.transactions()] == [one.offset]
        one.rollback()


def test_logging_of_a_round_that_ends_with_a_flush_status(
    store: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.begin("Orders", b"1", group="g")
    book = store._transactions.book
    status = rocketstore.PutMessageStatus.FLUSH_DISK_TIMEOUT

    class Ledger:
        def __getattr__(self, name: str) -> Any:
            return getattr(ledger, name)

        def wait_for(self, end: int, wait: Any) -> int:
            return status

    ledger = book.ledger
    monkeypatch.setattr(book, "ledger", Ledger())
    with caplog.at_level(logging.WARNING):
        store.transaction_check(lambda message: None, force=True)
    assert "FLUSH_DISK_TIMEOUT" in caplog.text
