"""Reads that wait for messages: what ends a wait, what does not, and what it leaves."""

from __future__ import annotations

import asyncio
import gc
import io
import math
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import Message, Sql92Filter, StoredMessage, TagFilter, formats
from rocketstore.errors import (
    CorruptMessageError,
    ForkedStoreError,
    ReentrantCallError,
    ServiceFailedError,
    StoreClosedError,
)
from rocketstore.services.waiting import Wakeup
from rocketstore.status import GetMessageStatus, RecordStatus
from support.syncs import LONG_S
from support.waiting import Call, bodies, held, until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="stores are only read there")

Status = GetMessageStatus
INNER = formats.SYS_FLAG_INNER_BATCH | formats.SYS_FLAG_NEED_UNWRAP


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Any]:
    with rocketstore.open(tmp_path / "s", "x") as opened:
        yield opened


def repr_of(value: Any) -> str:
    return repr(value)[:12]


def wait(store: Any, topic: str = "T", offset: int = 0, **options: Any) -> Call:
    """Begin a read that waits without end, and return when it does."""
    call = Call(store.get_message, "g", topic, 0, offset, wait_s=math.inf, **options)
    held(store)
    return call


def test_d_27_a_message_between_the_read_and_the_wait_is_seen(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RocketMQ's broker misses a message that comes between the empty read and the registration."""
    enter = type(store.hold)._enter

    def put_first(hold: Any, *arguments: Any) -> None:
        store.put("T", b"%d" % len(found))
        assert store.wait_dispatched(LONG_S)
        enter(hold, *arguments)

    found: list[list[bytes]] = []
    monkeypatch.setattr(type(store.hold), "_enter", put_first)
    found.append(bodies(store.get_message("g", "T", 0, 0, wait_s=math.inf)))
    found.append(bodies(asyncio.run(store.aget_message("g", "T", 0, 1, wait_s=math.inf))))
    assert found == [[b"0"], [b"1"]]


# --- What ends a wait -----------------------------------------------------------------------------


def test_a_read_waits_for_a_queue_that_does_not_exist_yet(store: Any) -> None:
    call = wait(store)
    store.put("Other", b"")
    store.put("T", b"", 1)
    store.wait_dispatched()
    assert not call.is_over
    assert store.topics() == ["Other", "T"]
    store.put("T", b"came")
    result = call.result()
    assert (result.status, bodies(result), result.next_begin_offset) == (Status.FOUND, [b"came"], 1)
    assert store.hold.held == {}


def test_a_read_waits_at_the_end_of_its_queue(store: Any) -> None:
    store.put("T", b"old")
    store.wait_dispatched()
    call = wait(store, offset=1)
    store.put("T", b"new")
    assert bodies(call.result()) == [b"new"]


def test_what_came_before_the_read_waits_is_returned_at_once(store: Any) -> None:
    store.put("T", b"old")
    store.wait_dispatched()
    assert bodies(store.get_message("g", "T", 0, 0, wait_s=math.inf)) == [b"old"]
    assert len(store.hold) == 0


@pytest.mark.parametrize(
    ("topic", "offset", "status", "following"),
    [
        ("T", 3, Status.OFFSET_OVERFLOW_BADLY, 2),
        ("T", -1, Status.OFFSET_TOO_SMALL, 0),
        ("Unknown", 5, Status.NO_MESSAGE_IN_QUEUE, 0),
        ("Unknown", -1, Status.NO_MESSAGE_IN_QUEUE, 0),
    ],
)
def test_an_offset_outside_the_queue_is_answered_at_once(
    store: Any, topic: str, offset: int, status: Status, following: int
) -> None:
    """As a broker does: it holds a pull only if its answer is PULL_NOT_FOUND."""
    store.put_many([Message("T", b"x")] * 2)
    store.wait_dispatched()
    result = store.get_message("g", topic, 0, offset, wait_s=math.inf)
    assert (result.status, result.next_begin_offset) == (status, following)
    assert result == store.get_message("g", topic, 0, offset)


@pytest.mark.parametrize(("offset", "status"), [(0, "NO_MESSAGE_IN_QUEUE"), (1, "OVERFLOW_ONE")])
def test_a_wait_that_is_over_gives_the_usual_answer(store: Any, offset: int, status: str) -> None:
    if offset:
        store.put("T", b"x")
        store.wait_dispatched()
    begun = time.monotonic()
    result = store.get_message("g", "T", 0, offset, wait_s=0.05)
    assert 0.05 <= time.monotonic() - begun < LONG_S
    assert result == store.get_message("g", "T", 0, offset)
    assert result.status.name.endswith(status)
    assert asyncio.run(store.aget_message("g", "T", 0, offset, wait_s=0.01)) == result
    assert len(store.hold) == 0


def test_no_time_to_wait_is_a_plain_read(store: Any) -> None:
    for wait_s in (0, 0.0, None):
        result = store.get_message("g", "T", 0, 0, wait_s=wait_s)
        assert result == store.get_message("g", "T", 0, 0)
        assert asyncio.run(store.aget_message("g", "T", 0, 0, wait_s=wait_s)) == result


@pytest.mark.parametrize(
    ("wait_s", "error"),
    [
        (-1, ValueError),
        (-0.001, ValueError),
        (-math.inf, ValueError),
        (math.nan, ValueError),
        (threading.TIMEOUT_MAX * 2, ValueError),
        (10**400, ValueError),
        (-(10**400), ValueError),
        (True, TypeError),
        ("1", TypeError),
        (b"1", TypeError),
        ([], TypeError),
        (1j, TypeError),
    ],
    ids=repr_of,
)
def test_a_wait_must_be_a_number_of_seconds(store: Any, wait_s: Any, error: Any) -> None:
    with pytest.raises(error, match="wait_s"):
        store.get_message("g", "T", 0, 0, wait_s=wait_s)
    with pytest.raises(error, match="wait_s"):
        asyncio.run(store.aget_message("g", "T", 0, 0, wait_s=wait_s))
    with pytest.raises(error, match="interval_s"):
        store.atail(interval_s=wait_s)
    with pytest.raises(error, match="timeout_s"):
        store.atail(timeout_s=wait_s)


def test_other_wrong_arguments_are_refused_as_without_waiting(store: Any) -> None:
    for arguments in (("T", "0", 0), ("T", 0, 0.5), ("T", 0, 0, -1), ("T", 0, 0, True)):
        for wait_s in (None, 5.0):
            with pytest.raises((TypeError, ValueError)):
                store.get_message("g", *arguments, wait_s=wait_s)
    with pytest.raises(TypeError, match="filter"):
        store.get_message("g", "T", 0, 0, filter=5, wait_s=5)
    with pytest.raises(rocketstore.FilterSyntaxError):
        store.get_message("g", "T", 0, 0, filter="a >", wait_s=5)


# --- Filters --------------------------------------------------------------------------------------


class BodyFilter:
    """Passes messages with a body, and counts its calls."""

    def __init__(self, wanted: bytes) -> None:
        self.wanted, self.calls = wanted, 0
        self.fails = False

    def is_matched_by_consume_queue(self, tags_code: int | None, ext: Any) -> bool:
        return True

    def is_matched_by_commit_log(self, message: StoredMessage) -> bool:
        self.calls += 1
        if self.fails:
            raise LookupError("no such thing")
        return message.body == self.wanted


@pytest.mark.parametrize(
    "make",
    [
        lambda: TagFilter("B || C"),
        lambda: Sql92Filter("n > 5"),
        lambda: "n > 5",
        lambda: BodyFilter(b"hit"),
    ],
    ids=["tags", "sql", "text", "python"],
)
def test_only_what_passes_the_filter_ends_the_wait(store: Any, make: Callable[[], Any]) -> None:
    call = wait(store, filter=make())
    for number in range(5):
        store.put("T", b"miss", tags="A", properties={"n": str(number)})
        store.wait_dispatched()
    until(lambda: [pull.offset for pull in store.hold.pulls_of(("T", 0))] == [5])
    assert not call.is_over
    store.put("T", b"hit", tags="C", properties={"n": "6"})
    store.put("T", b"later", tags="A", properties={"n": "1"})
    result = call.result()
    assert [message.queue_offset for message in result.messages] == [5]


def test_equal_tag_hashes_do_not_end_the_wait(store: Any) -> None:
    """``AaAa`` and ``BBBB`` have the same code in the queue; only the message has the tag."""
    call = wait(store, filter=TagFilter("AaAa", exact=True))
    store.put("T", b"collides", tags="BBBB")
    store.wait_dispatched()
    until(lambda: [pull.offset for pull in store.hold.pulls_of(("T", 0))] == [1])
    assert not call.is_over
    store.put("T", b"hit", tags="AaAa")
    assert bodies(call.result()) == [b"hit"]


def test_after_the_time_a_filtered_read_continues_where_it_was(store: Any) -> None:
    store.put_many([Message("T", b"x", tags="A")] * 2000)
    store.wait_dispatched()
    wanted = TagFilter("B")
    plain = store.get_message("g", "T", 0, 0, filter=wanted)
    assert plain.status == Status.NO_MATCHED_MESSAGE
    assert plain.next_begin_offset < 2000
    result = store.get_message("g", "T", 0, 0, filter=wanted, wait_s=0.2)
    assert (result.status, result.next_begin_offset) == (Status.OFFSET_OVERFLOW_ONE, 2000)


def test_a_long_way_of_messages_that_do_not_pass_lets_other_tasks_run(store: Any) -> None:
    store.put_many([Message("T", b"x", tags="A")] * 8_000)
    store.put("T", b"hit", tags="B")
    store.wait_dispatched()

    async def main() -> tuple[Any, int]:
        turns = 0
        task = asyncio.create_task(
            store.aget_message("g", "T", 0, 0, filter=TagFilter("B"), wait_s=LONG_S)
        )
        while not task.done():
            turns += 1
            await asyncio.sleep(0)
        return await task, turns

    result, turns = asyncio.run(main())
    assert bodies(result) == [b"hit"]
    assert turns > 5


def test_the_waiting_read_meets_the_error_of_its_filter(store: Any) -> None:
    wanted = BodyFilter(b"never")
    wanted.fails = True
    call = wait(store, filter=wanted)
    store.put("T", b"x")
    with pytest.raises(LookupError, match="no such thing"):
        call.result()
    assert store.wait_dispatched(LONG_S)
    store.put("T", b"y")
    assert bodies(store.get_message("g", "T", 0, 1, wait_s=LONG_S)) == [b"y"]


def test_a_corrupt_message_ends_the_wait_as_it_ends_a_read(store: Any) -> None:
    call = wait(store, filter=BodyFilter(b"never"))
    with store._writer.reput.paused():
        result = store.put("T", b"damaged")
        store._writer.log.damage[result.physical_offset] = RecordStatus.BAD_BODY_CRC
    with pytest.raises(CorruptMessageError):
        call.result()


# --- What dispatch brings -------------------------------------------------------------------------


def test_light_queues_wake(tmp_path: Path) -> None:
    options: Any = {"enable_lmq": True, "enable_multi_dispatch": True, "broker_version": "5.3.3"}
    with rocketstore.open(tmp_path / "s", "x", **options) as store:
        call = wait(store, topic="%LMQ%a")
        store.put("T", b"plain")
        store.wait_dispatched()
        assert not call.is_over
        store.put("T", b"light", properties={"INNER_MULTI_DISPATCH": "%LMQ%a"})
        assert bodies(call.result()) == [b"light"]


def test_batch_queues_wake(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "s", "x", broker_version="5.3.3") as store:
        store._writer.log.appender.set_batch_topics(["BCQ"])
        store._writer.queues.batch_topics.add("BCQ")
        call = wait(store, topic="BCQ")
        store.put("BCQ", b"packed", sys_flag=INNER, properties={"INNER_NUM": "3"})
        result = call.result()
        assert (bodies(result), result.next_begin_offset) == ([b"packed"], 3)
        call = wait(store, topic="BCQ", offset=3)
        store.put("BCQ", b"more", sys_flag=INNER, properties={"INNER_NUM": "2"})
        assert bodies(call.result()) == [b"more"]


def test_delivered_messages_wake(tmp_path: Path) -> None:
    options: Any = {"schedule_message_enable": True, "message_delay_level": "1s"}
    with rocketstore.open(tmp_path / "s", "x", **options) as store:
        call = wait(store)
        store.put("T", b"delayed", delay_level=1)
        assert bodies(call.result()) == [b"delayed"]


def test_committed_transactions_wake_and_halves_do_not(store: Any) -> None:
    call = wait(store)
    tx = store.begin("T", b"decided", group="producers")
    gone = store.begin("T", b"dropped", group="producers")
    gone.rollback()
    store.wait_dispatched()
    assert not call.is_over
    tx.commit()
    assert bodies(call.result()) == [b"decided"]


def test_sync_flush_wakes_after_the_sync(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "s", "x", flush_disk_type="SYNC_FLUSH") as store:
        call = wait(store)
        assert store.put("T", b"synced").ok
        assert bodies(call.result()) == [b"synced"]


def test_dispatch_that_is_stepped_by_hand(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "s", "x", start=False) as store:
        call = wait(store)
        store.put("T", b"by hand")
        assert not call.is_over
        store._writer.reput.step()
        assert bodies(call.result()) == [b"by hand"]
        call = wait(store, offset=1)
        store.put("T", b"more")
        assert store.wait_dispatched()
        assert bodies(call.result()) == [b"more"]


def test_an_announcement_that_failed_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Out of memory after dispatch and before the wake-up: an idle step does it again."""
    with rocketstore.open(tmp_path / "s", "x", start=False) as store:
        call = wait(store)
        store.put("T", b"x")
        with monkeypatch.context() as patch:
            patch.setattr(type(store.hold), "_wake_unfiltered", _no_memory)
            with pytest.raises(MemoryError):
                store._writer.reput.step()
        assert not call.is_over
        assert store._writer.reput.step() is False
        assert bodies(call.result()) == [b"x"]


def _no_memory(*_: Any) -> Any:
    raise MemoryError


# --- Ends -----------------------------------------------------------------------------------------


def test_close_wakes_all(tmp_path: Path) -> None:
    store: Any = rocketstore.open(tmp_path / "s", "x")
    calls = [Call(store.get_message, "g", "T", n, 0, wait_s=math.inf) for n in range(5)]
    held(store, 5)

    async def main() -> list[Any]:
        reads = [store.aget_message("g", "T", n, 0, wait_s=60 + n) for n in range(5)]
        tail = store.atail(interval_s=60)
        tasks = [*map(asyncio.ensure_future, reads), asyncio.ensure_future(anext(tail))]
        while len(store.hold) < 11:
            await asyncio.sleep(0)
        store.close()
        return await asyncio.gather(*tasks, return_exceptions=True)

    for error in asyncio.run(main()):
        assert isinstance(error, StoreClosedError), error
    for call in calls:
        with pytest.raises(StoreClosedError, match="is closed"):
            call.result()
    with pytest.raises(StoreClosedError):
        store.get_message("g", "T", 0, 0, wait_s=1)
    assert store.hold.held == {}


@pytest.mark.parametrize("is_before", [True, False])
def test_a_failure_of_the_store_wakes_all(tmp_path: Path, is_before: bool) -> None:
    store: Any = rocketstore.open(tmp_path / "s", "x")
    store.put("T", b"x")
    store.wait_dispatched()
    failure = OSError(5, "the disk is gone")
    call = Call(store.get_message, "g", "T", 0, 1, wait_s=math.inf) if is_before else None
    if is_before:
        held(store)
    store._writer.fail(failure)
    if call is not None:
        with pytest.raises(ServiceFailedError, match="the disk is gone") as caught:
            call.result()
        assert caught.value.__cause__ is failure
    with pytest.raises(ServiceFailedError, match="the disk is gone"):
        asyncio.run(store.aget_message("g", "T", 0, 1, wait_s=math.inf))
    assert bodies(store.get_message("g", "T", 0, 0, wait_s=1)) == [b"x"]
    with pytest.raises(ServiceFailedError):
        store.close()


def test_the_end_of_dispatch_wakes_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store: Any = rocketstore.open(tmp_path / "s", "x")
    call = wait(store)

    def fail(*_: Any, **__: Any) -> Any:
        raise ValueError("dispatch met a defect")

    monkeypatch.setattr(store._writer.dispatcher, "dispatch_until", fail)
    store.put("T", b"x")
    with pytest.raises(ServiceFailedError, match="dispatch met a defect"):
        call.result()
    with pytest.raises(ServiceFailedError):
        store.close()


def test_cancelling_leaves_nothing(store: Any) -> None:
    async def main() -> weakref.ref[Any]:
        task = asyncio.create_task(
            store.aget_message("g", "T", 0, 0, wait_s=60, filter=TagFilter("A"))
        )
        while not len(store.hold):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return weakref.ref(task)

    task = asyncio.run(main())
    gc.collect()
    assert task() is None
    assert store.hold.held == {}
    assert store.hold._loops == set()
    assert store.hold._unrung == {}


def test_a_message_that_comes_with_a_cancellation_is_there_for_others(store: Any) -> None:
    async def main() -> list[Any]:
        tasks = [
            asyncio.create_task(store.aget_message("g", "T", 0, 0, wait_s=60)) for _ in range(3)
        ]
        while len(store.hold) < 3:
            await asyncio.sleep(0)
        store.put("T", b"x")
        until(lambda: not len(store.hold))  # the loop does not run: their futures stay undone
        tasks[1].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    first, cancelled, last = asyncio.run(main())
    assert isinstance(cancelled, asyncio.CancelledError)
    assert bodies(first) == bodies(last) == bodies(store.get_message("g", "T", 0, 0)) == [b"x"]


def test_an_interrupt_ends_a_wait(store: Any) -> None:
    timer = threading.Timer(0.05, lambda: os.kill(os.getpid(), 2))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        store.get_message("g", "T", 0, 0, wait_s=LONG_S)
    assert store.hold.held == {}
    store.put("T", b"x")
    assert bodies(store.get_message("g", "T", 0, 0, wait_s=LONG_S)) == [b"x"]


def test_a_closed_loop_does_not_keep_others_from_waking(store: Any) -> None:
    loop = asyncio.new_event_loop()
    deserted = loop.create_task(store.aget_message("g", "T", 0, 0, wait_s=math.inf))
    loop.run_until_complete(asyncio.sleep(0))
    held(store)
    loop.close()
    call = Call(store.get_message, "g", "T", 0, 0, wait_s=math.inf)
    held(store, 2)
    store.put("T", b"x")
    assert bodies(call.result()) == [b"x"]
    assert store.hold.held == {}
    _forget(deserted)


def test_reads_of_closed_loops_are_dropped(store: Any) -> None:
    loop = asyncio.new_event_loop()
    deserted = loop.create_task(store.aget_message("g", "T", 0, 0, wait_s=math.inf))
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    asyncio.run(store.aget_message("g", "U", 0, 0, wait_s=0.01))
    assert store.hold.held == {}
    _forget(deserted)


def _forget(task: Any) -> None:
    """Let a task that never ends go without a complaint."""
    task._log_destroy_pending = False
    task.get_coro().close()


def test_loops_of_several_threads(store: Any) -> None:
    async def read(queue_id: int) -> list[bytes]:
        return bodies(await store.aget_message("g", "T", queue_id, 0, wait_s=LONG_S))

    calls = [Call(asyncio.run, read(number % 2)) for number in range(4)]
    held(store, 4)
    store.put("T", b"zero", 0)
    store.put("T", b"one", 1)
    assert [call.result() for call in calls] == [[b"zero"], [b"one"]] * 2


def test_a_forked_child_is_refused(store: Any) -> None:
    call = wait(store)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            store.get_message("g", "T", 0, 0, wait_s=1)
        except ForkedStoreError:
            try:
                asyncio.run(store.aget_message("g", "T", 0, 0, wait_s=1))
            except ForkedStoreError:
                code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    store.put("T", b"x")
    assert bodies(call.result()) == [b"x"]


@pytest.mark.parametrize("start", [True, False])
def test_a_listener_may_not_wait(tmp_path: Path, start: bool) -> None:
    """It runs on the thread that dispatches, so nothing would arrive while it waits."""
    seen: list[Any] = []

    def listen(topic: str, queue_id: int, following: int, *_: Any) -> None:
        try:
            store.get_message("g", topic, queue_id, following, wait_s=math.inf)
        except ReentrantCallError as error:
            seen.append(str(error))

    store: Any = rocketstore.open(tmp_path / "s", "x", start=start, arriving_listener=listen)
    with store:
        store.put("T", b"x")
        assert store.wait_dispatched(LONG_S)
        until(lambda: seen)
    assert "wait on another thread" in seen[0]


def test_the_hold_is_made_by_the_first_read_that_waits(store: Any) -> None:
    store.put("T", b"x")
    store.wait_dispatched()
    store.get_message("g", "T", 0, 0)
    assert store._hold is None
    assert store._writer.reput.hold is None
    appender = store._writer.log.appender
    assert appender.bell is None
    call = wait(store, offset=1)
    assert appender.bell is store._writer.reput.bell.lock
    store.put("T", b"y")
    call.result()
    assert appender.bell is None


class Listened(Wakeup):
    """A bell that never rings, and the pauses that were made."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float] = []

    def listen(self, timeout_s: float) -> bool:
        """Do not wait."""
        self.pauses.append(timeout_s)
        return False


def test_dispatch_looks_more_often_while_records_wait_for_the_disk(tmp_path: Path) -> None:
    """Their messages are visible after the sync, which rings no bell."""
    with rocketstore.open(tmp_path / "s", "x", flush_disk_type="SYNC_FLUSH") as store:
        writer = store._writer
        assert writer.reput.written_offset is None
        call = wait(store)
        assert writer.reput.written_offset() == writer.log.wrote_offset == 0
        store.put("T", b"x")
        call.result()
        assert writer.reput.written_offset is None
    with rocketstore.open(tmp_path / "s", "r+", start=False) as store:
        reput, end = store._writer.reput, store.max_physical_offset
        reput._bell = listened = Listened()
        for written in (None, lambda: end, lambda: end + 1):
            reput.written_offset = written
            reput._listen(0.5)
        assert listened.pauses[:2] == [0.5, 0.5]
        assert listened.pauses[2] < 0.01


def test_mode_r_refuses_nothing_but_puts(tmp_path: Path) -> None:
    rocketstore.open(tmp_path / "s", "x").close()
    with rocketstore.open(tmp_path / "s") as reader:
        result = reader.get_message("g", "T", 0, 0, wait_s=0.05)
        assert result.status == Status.NO_MESSAGE_IN_QUEUE
        with pytest.raises(io.UnsupportedOperation):
            reader.put("T", b"x")
