"""Consumers: loops, polls, acknowledgements, positions, and who may consume."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import TagFilter
from rocketstore.config_managers import ConsumerOffsetManager
from rocketstore.errors import (
    ConsumerConflictError,
    ConsumerError,
    OffsetOutOfRangeError,
    StoreClosedError,
)
from support.consumed_stores import PATIENCE_S, Store, everything, fill, numbers


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with rocketstore.open(tmp_path / "s", "a", message_delay_level="1s " * 6) as opened:
        yield opened


# --- ack="next" -----------------------------------------------------------------------------------


def test_every_message_comes_once_and_in_the_order_of_its_queue(store: Store) -> None:
    fill(store, 1000, queues=3)
    found = everything(store)
    assert sorted(found) == list(range(1000))
    for queue in range(3):
        assert [one for one in found if one % 3 == queue] == list(range(queue, 1000, 3))
    assert everything(store) == []
    fill(store, 10, first=1000)
    assert everything(store) == list(range(1000, 1010))
    assert len(everything(store, "other")) == 1010


def test_asking_for_the_next_message_settles_the_one_before(store: Store) -> None:
    fill(store, 100)
    with store.consumer("g", "T") as consumer:
        for number, message in enumerate(consumer):
            assert consumer.positions == {("T", 0): number} == {("T", 0): message.queue_offset}
            if number == 69:
                break
        assert consumer.lag == {("T", 0): 31}
    assert everything(store) == list(range(69, 100))


def test_leaving_by_an_exception_does_not_settle(store: Store) -> None:
    fill(store, 10)

    def work(consumer: rocketstore.Consumer) -> None:
        for message in consumer:
            if int(message.body) == 4:
                raise ZeroDivisionError

    with store.consumer("g", "T", idle_timeout_s=0) as consumer:
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                work(consumer)
            assert consumer.positions == {("T", 0): 4}
        assert numbers(consumer) == [4, 5, 6, 7, 8, 9]


def test_the_message_at_hand_can_be_settled_before_a_break(store: Store) -> None:
    fill(store, 5)
    with store.consumer("g", "T") as consumer:
        for message in consumer:
            if message.body == b"2":
                consumer.ack(message)
                break
            former = message
        with pytest.raises(ValueError, match="at hand"):
            consumer.ack(former)
    assert everything(store) == [3, 4]


def test_polled_messages_are_settled_by_the_next_poll_or_by_commit(store: Store) -> None:
    fill(store, 100, queues=2)
    with store.consumer("g", "T") as consumer:
        first = consumer.poll(40)
        assert len(first) == 40
        assert sum(consumer.positions.values()) == 0
        second = consumer.poll(30)
        assert len(second) == 30
        assert sum(consumer.positions.values()) == 40
        consumer.commit()
        assert sum(consumer.positions.values()) == 70
        assert not set(numbers(first)) & set(numbers(second))
        third = consumer.poll(1000)
        assert consumer.poll() == []
        assert sorted(numbers([*first, *second, *third])) == list(range(100))


@pytest.mark.parametrize("ack", ["next", "manual"])
def test_a_loop_goes_on_after_a_poll_inside_it(store: Store, ack: Any) -> None:
    """The loop waited for a queue that its own thread held."""
    fill(store, 10)
    got: list[int] = []
    with store.consumer("g", "T", ack=ack, idle_timeout_s=5) as consumer:
        for message in consumer:
            got += numbers([message])
            if got == [0, 1, 2]:
                got += numbers(consumer.poll(2))
            if 9 in got:
                break
    assert sorted(set(got)) == list(range(10))
    assert len(got) <= 11  # the loop's own message may come again


def test_polled_messages_of_a_closed_consumer_come_again(store: Store) -> None:
    fill(store, 10)
    with store.consumer("g", "T") as consumer:
        assert numbers(consumer.poll(4)) == [0, 1, 2, 3]
    assert everything(store) == list(range(10))


def test_a_poll_ends_although_other_topics_get_messages(store: Store) -> None:
    ended = threading.Event()

    def put() -> None:
        while not ended.is_set():
            store.put("other", b"x")

    thread = threading.Thread(target=put)
    thread.start()
    try:
        with store.consumer("g", "T", idle_timeout_s=0) as consumer:
            assert consumer.poll() == []
            assert consumer.poll(timeout_s=0.05) == []
            assert list(consumer) == []
    finally:
        ended.set()
        thread.join()


def test_a_poll_waits_no_longer_than_it_may(store: Store) -> None:
    with store.consumer("g", "T") as consumer:
        began = time.monotonic()
        assert consumer.poll(timeout_s=0.2) == []
        assert 0.2 <= time.monotonic() - began < PATIENCE_S
        timer = threading.Timer(0.1, fill, (store, 1))
        timer.start()
        assert numbers(consumer.poll(timeout_s=PATIENCE_S)) == [0]
        timer.join()


def test_an_idle_loop_ends_after_its_timeout(store: Store) -> None:
    fill(store, 3)
    consumer = store.consumer("g", "T", idle_timeout_s=0.2)
    began = time.monotonic()
    assert numbers(consumer) == [0, 1, 2]
    assert time.monotonic() - began >= 0.2
    fill(store, 2)
    assert numbers(consumer) == [0, 1]
    consumer.close()


def test_waiting_costs_no_processor_time(store: Store) -> None:
    with store.consumer("g", "T") as consumer:
        before = time.process_time()
        assert consumer.poll(timeout_s=1.5) == []
        assert time.process_time() - before < 0.5


# --- ack="manual" ---------------------------------------------------------------------------------


def test_a_gap_holds_the_position_back(store: Store) -> None:
    fill(store, 5)
    with store.consumer("g", "T", ack="manual") as consumer:
        found = consumer.poll()
        for number, position in ((1, 0), (3, 0), (0, 2), (3, 2), (2, 4), (4, 5)):
            consumer.ack(found[number])
            assert consumer.positions["T", 0] == position


def test_what_was_not_acknowledged_comes_again(store: Store) -> None:
    fill(store, 50)
    with store.consumer("g", "T", ack="manual", idle_timeout_s=0) as consumer:
        for message in consumer:
            if int(message.body) not in (17, 30):
                consumer.ack(message)
        assert consumer.poll() == []
    assert everything(store) == list(range(17, 50))


def test_a_loop_that_is_left_gives_back_what_it_did_not_hand_out(store: Store) -> None:
    fill(store, 20)
    with store.consumer("g", "T", ack="manual", idle_timeout_s=0) as consumer:
        for message in consumer:
            if message.body == b"5":
                break
        assert numbers(consumer) == list(range(6, 20))
        assert consumer.positions["T", 0] == 0


def test_retries_come_back_and_end_as_dead_letters(store: Store) -> None:
    fill(store, 3)
    with store.consumer("g", "T", ack="manual", max_reconsume_times=2) as consumer:
        first = consumer.poll(timeout_s=PATIENCE_S)
        origin = first[1].msg_id
        consumer.ack(first[0])
        consumer.dead(first[2])
        consumer.retry(first[1])
        assert consumer.positions["T", 0] == 3
        for times in (1, 2):
            (again,) = consumer.poll(timeout_s=PATIENCE_S)
            assert (again.topic, again.retry_topic, again.body) == ("T", "%RETRY%g", b"1")
            assert (again.reconsume_times, again.origin_msg_id) == (times, origin)
            assert again.queue_offset == times - 1
            consumer.retry(again, 1)
        store.wait_dispatched()
        report = store.groups()["g"]
        assert (report.dead_letter_count, report.retry_count) == (2, 2)
        consumer.commit()
        assert store.groups()["g"].retry_count == 0
    dead = store.get_message("x", "%DLQ%g", 0, 0).messages
    assert numbers(dead) == [2, 1]
    assert [message.reconsume_times for message in dead] == [1, 3]
    assert [message.properties["DELAY"] for message in dead] == ["0", "0"]


def test_a_message_is_given_back_once(store: Store) -> None:
    fill(store, 2)
    with store.consumer("g", "T", ack="manual") as consumer:
        one, two = consumer.poll()
        consumer.retry(one)
        for call in (consumer.retry, consumer.dead):
            with pytest.raises(ConsumerError, match="settled already"):
                call(one)
        consumer.ack(two)
        consumer.ack(two)
        with pytest.raises(ConsumerError):
            consumer.dead(two)
        with pytest.raises(TypeError, match="message must be"):
            consumer.ack("T")  # type: ignore[arg-type]
        assert sum(m.topic == "SCHEDULE_TOPIC_XXXX" for m in store.scan()) == 1


def test_retries_need_acknowledgements_by_hand(store: Store) -> None:
    fill(store, 1)
    with store.consumer("g", "T") as consumer:
        (message,) = consumer.poll()
        with pytest.raises(ValueError, match="manual"):
            consumer.retry(message)
        assert store.delay_service is None


def test_a_consumer_that_never_retries_starts_no_delivery(store: Store) -> None:
    fill(store, 1)
    store.put("T", b"late", delay_level=1)
    with store.consumer("g", "T", ack="manual", max_reconsume_times=0) as consumer:
        assert store.delay_service is None
        (message,) = consumer.poll()
        consumer.retry(message)
        store.wait_dispatched()
        assert store.max_offset_in_queue("%DLQ%g", 0) == 1


def test_a_refused_retry_leaves_the_message_pending(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("T", bytes(100), properties={f"p{n}": "x" * 650 for n in range(50)})
    with store.consumer("g", "T", ack="manual") as consumer:
        (message,) = consumer.poll()
        with pytest.raises(ConsumerError, match="32767"):
            consumer.retry(message)
        assert consumer.positions["T", 0] == 0
        consumer.ack(message)
        assert consumer.positions["T", 0] == 1


# --- queues, filters, starts ----------------------------------------------------------------------


def test_new_queues_and_topics_are_found(store: Store) -> None:
    with store.consumer("g", ["T", "U"], start="latest", idle_timeout_s=0) as consumer:
        assert numbers(consumer) == []
        fill(store, 6, queues=3)
        assert sorted(numbers(consumer)) == list(range(6))
        fill(store, 2, topic="U")
        assert numbers(consumer) == [0, 1]
        assert set(consumer.positions) == {("T", 0), ("T", 1), ("T", 2), ("U", 0)}


def test_only_the_given_queues_are_read(store: Store) -> None:
    fill(store, 9, queues=3)
    assert sorted(everything(store, queue_ids=[1, 2, 7])) == [1, 2, 4, 5, 7, 8]
    assert everything(store) == [0, 3, 6]


@pytest.mark.parametrize("wanted", ["TAGS = 'odd'", TagFilter("odd")])
def test_messages_that_do_not_pass_count_as_consumed(store: Store, wanted: Any) -> None:
    fill(store, 10)
    with store.consumer("g", "T", filter=wanted, idle_timeout_s=0) as consumer:
        assert numbers(consumer) == [1, 3, 5, 7, 9]
        assert consumer.positions == {("T", 0): 10}
    fill(store, 3, first=10)
    with store.consumer("g", "T", filter="TAGS = 'none'", idle_timeout_s=0) as consumer:
        assert numbers(consumer) == []
        assert consumer.positions == {("T", 0): 13}


def test_retries_are_read_without_the_filter(store: Store) -> None:
    fill(store, 1)
    with store.consumer("g", "T", ack="manual") as consumer:
        consumer.retry(consumer.poll()[0], 1)
    with store.consumer("g", "T", ack="manual", filter="TAGS = 'none'") as consumer:
        (again,) = consumer.poll(timeout_s=PATIENCE_S)
        assert again.retry_topic == "%RETRY%g"
        consumer.ack(again)


def test_latest_keeps_its_place(store: Store) -> None:
    fill(store, 5)
    assert everything(store, start="latest") == []
    fill(store, 2, first=5)
    assert everything(store, start="latest") == [5, 6]


def test_a_start_by_time(tmp_path: Path) -> None:
    now = [1_000_000]
    with rocketstore.open(tmp_path / "s", "a", clock=lambda: now[0]) as store:
        for number in range(10):
            now[0] = 1_000_000 + 1000 * number
            store.put("T", b"%d" % number)
        assert everything(store, "a", start=1_003_500) == [4, 5, 6, 7, 8, 9]
        assert everything(store, "b", start=0) == list(range(10))
        assert everything(store, "c", start=9_000_000) == []
        with store.consumer("d", "T", idle_timeout_s=0) as consumer:
            assert len(numbers(consumer)) == 10
            consumer.seek_to_time(1_007_000)
            assert numbers(consumer) == [7, 8, 9]
            consumer.seek("T", 0, 2)
            assert numbers(consumer) == list(range(2, 10))


def test_a_seek_forgets_what_was_handed_out(store: Store) -> None:
    fill(store, 40)
    with store.consumer("g", "T", idle_timeout_s=0) as consumer:
        seen = []
        for message in consumer:
            seen.append(int(message.body))
            if len(seen) == 3:
                consumer.seek("T", 0, 38)
        assert seen == [0, 1, 2, 38, 39]
        for bad in (-1, 41):
            with pytest.raises(OffsetOutOfRangeError) as caught:
                consumer.seek("T", 0, bad)
            assert (caught.value.offset, caught.value.max_offset) == (bad, 40)
        with pytest.raises(ValueError, match="does not read"):
            consumer.seek("U", 0, 0)
    with store.consumer("h", "T", ack="manual") as consumer:
        found = consumer.poll()
        consumer.seek("T", 0, 10)
        consumer.ack(found[0])
        assert consumer.positions["T", 0] == 10


def test_an_offset_past_the_queue_is_an_error_until_a_seek(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    fill(store, 5)
    offsets = ConsumerOffsetManager(store.path)
    offsets.commit_offset("g", "T", 0, 9)
    offsets.persist()
    with caplog.at_level(logging.WARNING):
        consumer = store.consumer("g", "T", idle_timeout_s=0)
    assert "from offset 9" in caplog.text
    for read in (lambda: next(iter(consumer)), consumer.poll):
        with pytest.raises(OffsetOutOfRangeError, match="queue 0 of T") as caught:
            read()
        assert (caught.value.topic, caught.value.offset, caught.value.max_offset) == ("T", 9, 5)
    assert store.groups()["g"].beyond == (("T", 0),)
    consumer.seek("T", 0, 3)
    assert numbers(consumer) == [3, 4]
    consumer.close()


def test_deleted_messages_are_skipped_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options: dict[str, Any] = {"mapped_file_size_commit_log": 8192}
    with rocketstore.open(tmp_path / "s", "a", **options) as store:
        for number in range(200):
            store.put("T", b"%d" % number + bytes(100))
        store.wait_dispatched()
        with store.consumer("g", "T") as consumer:
            next(iter(consumer))
    oldest = min((tmp_path / "s" / "commitlog").iterdir())
    oldest.unlink()
    with rocketstore.open(tmp_path / "s", "r+", **options) as store:
        first = store.min_offset_in_queue("T", 0)
        assert first > 0
        with (
            caplog.at_level(logging.WARNING),
            store.consumer("g", "T", idle_timeout_s=0) as consumer,
        ):
            offsets = [message.queue_offset for message in consumer]
    assert offsets == list(range(first, 200))
    assert f"from offset 0 to {first - 1}" in caplog.text


# --- who may consume ------------------------------------------------------------------------------


def test_one_consumer_for_each_queue(store: Store) -> None:
    fill(store, 4, queues=4)
    first = store.consumer("g", "T", queue_ids=[0, 1])
    second = store.consumer("g", "T", queue_ids=[2])
    for queue_ids in (None, [1, 5], [2]):
        with pytest.raises(ConsumerConflictError, match="group g"):
            store.consumer("g", "T", queue_ids=queue_ids)
    store.consumer("h", "T").close()
    store.consumer("g", "U").close()
    first.close()
    first.close()
    store.consumer("g", "T", queue_ids=[0]).close()
    second.close()
    store.consumer("g", "T").close()


def test_a_store_opened_twice_knows_its_consumers(store: Store, tmp_path: Path) -> None:
    fill(store, 1)
    (tmp_path / "link").symlink_to(store.path)
    with (
        rocketstore.open(tmp_path / "link", "r") as other,
        store.consumer("g", "T"),
        pytest.raises(ConsumerConflictError),
    ):
        other.consumer("g", "T")


def test_a_consumer_that_is_garbage_frees_its_queues_and_keeps_its_place(store: Store) -> None:
    fill(store, 10)
    consumer: Any = store.consumer("g", "T")
    messages = iter(consumer)
    assert numbers(next(messages) for _ in range(4)) == [0, 1, 2, 3]
    del consumer, messages
    gc.collect()
    assert everything(store) == list(range(3, 10))


def test_a_forked_child_has_no_consumers(store: Store) -> None:
    fill(store, 3)
    consumer = store.consumer("g", "T")
    child = os.fork()
    if child == 0:  # pragma: no cover - in the child
        status = 1
        try:
            try:
                consumer.poll()
            except rocketstore.ForkedStoreError:
                with rocketstore.open(store.path, "r") as other:
                    status = 0 if everything(other) == [0, 1, 2] else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert numbers(consumer.poll()) == [0, 1, 2]
    consumer.close()


def test_the_retry_topic_is_read_by_one_consumer_of_the_group(store: Store) -> None:
    fill(store, 2, queues=2)
    first = store.consumer("g", "T", queue_ids=[0], ack="manual")
    second = store.consumer("g", "T", queue_ids=[1], ack="manual")
    second.retry(second.poll()[0], 1)
    (again,) = first.poll(1, timeout_s=PATIENCE_S)
    while not hasattr(again, "retry_topic"):
        first.ack(again)
        (again,) = first.poll(1, timeout_s=PATIENCE_S)
    first.close()
    assert numbers(second.poll(timeout_s=PATIENCE_S)) == [1]
    second.close()


def test_wrong_arguments_are_refused(store: Store) -> None:
    bad: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        (("", "T"), {}), (("a b", "T"), {}), (("g@h", "T"), {}), (("g", ""), {}), (("g", []), {}),
        (("g", "T"), {"ack": "auto"}), (("g", "T"), {"start": "first"}),
        (("g", "T"), {"start": -1}), (("g", "T"), {"queue_ids": []}),
        (("g", "T"), {"queue_ids": [-1]}), (("g", "T"), {"queue_ids": [2**31]}),
        (("g", "T"), {"max_reconsume_times": -1}),
        (("g", "T"), {"max_count": 0}), (("g", "T"), {"idle_timeout_s": -1}),
        (("g", "T"), {"filter": "a ="}),
    ]  # fmt: skip
    for arguments, options in bad:
        with pytest.raises(ValueError):  # noqa: PT011 - many texts
            store.consumer(*arguments, **options)
    for arguments, options in (
        ((1, "T"), {}), (("g", [1]), {}), (("g", "T"), {"start": 1.5}),
        (("g", "T"), {"queue_ids": ["0"]}), (("g", "T"), {"filter": 1}),
        (("g", "T"), {"queue_ids": 5}), (("g", "T"), {"queue_ids": iter([0])}),
    ):  # fmt: skip
        with pytest.raises(TypeError):
            store.consumer(*arguments, **options)
    store.consumer("g", "T").close()


def test_a_closed_consumer_that_is_collected_commits_nothing(store: Store) -> None:
    fill(store, 10)
    former: Any = store.consumer("g", "T", idle_timeout_s=0)
    former.poll(3)
    former.close()
    assert everything(store) == list(range(10))
    del former
    gc.collect()
    assert everything(store) == []


# --- threads and loops ----------------------------------------------------------------------------


@pytest.mark.parametrize("ack", ["next", "manual"])
def test_threads_share_a_consumer(store: Store, ack: Any) -> None:
    fill(store, 4000, queues=5)
    found: list[list[Any]] = [[] for _ in range(4)]
    with store.consumer("g", "T", ack=ack, idle_timeout_s=0.2) as consumer:

        def work(own: list[Any]) -> None:
            for message in consumer:
                own.append(message)
                if ack == "manual":
                    consumer.ack(message)

        threads = [threading.Thread(target=work, args=(own,)) for own in found]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert sorted(numbers(one for own in found for one in own)) == list(range(4000))
        assert set(consumer.positions.values()) == {800}
    for own in found:  # each thread saw the messages of a queue in order
        for queue in range(5):
            offsets = [one.queue_offset for one in own if one.queue_id == queue]
            assert offsets == sorted(offsets)


def test_messages_of_a_thread_that_ended_are_given_back(store: Store) -> None:
    fill(store, 3)
    with store.consumer("g", "T") as consumer:
        thread = threading.Thread(target=consumer.poll)
        thread.start()
        thread.join()
        del thread
        gc.collect()
        assert numbers(consumer.poll(timeout_s=PATIENCE_S)) == [0, 1, 2]


def test_closing_wakes_those_who_wait(store: Store) -> None:
    caught: list[BaseException] = []
    consumer = store.consumer("g", "T")

    def wait() -> None:
        try:
            next(iter(consumer))
        except BaseException as error:  # noqa: BLE001 - compared below
            caught.append(error)

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    began = time.monotonic()
    store.close()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert time.monotonic() - began < PATIENCE_S
    assert [type(error) for error in caught] == [StoreClosedError] * 3
    assert "store" in str(caught[0])
    for call in (consumer.poll, consumer.commit, lambda: iter(consumer), lambda: consumer.lag):
        with pytest.raises(StoreClosedError):
            call()


def test_a_loop_of_events_consumes(store: Store) -> None:
    fill(store, 100, queues=2)

    async def run() -> list[int]:
        found = []
        async with asyncio.timeout(PATIENCE_S):
            with store.consumer("g", "T", idle_timeout_s=0) as consumer:
                async for message in consumer:
                    found.append(int(message.body))
                assert await consumer.apoll() == []
                task = asyncio.create_task(consumer.apoll(timeout_s=PATIENCE_S))
                await asyncio.sleep(0.05)
                fill(store, 1, first=100)
                found += numbers(await task)
        return found

    assert sorted(asyncio.run(run())) == list(range(101))
    assert everything(store) == [100]  # polled, but no one asked for the next


def test_cancelling_loses_no_position(store: Store) -> None:
    fill(store, 10)

    async def run() -> None:
        with store.consumer("g", "T") as consumer:
            reached = asyncio.Event()

            async def work() -> None:
                async for message in consumer:
                    if message.body == b"6":
                        reached.set()
                        await asyncio.sleep(PATIENCE_S)

            task = asyncio.create_task(work())
            await reached.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            waiting = asyncio.create_task(consumer.apoll(timeout_s=PATIENCE_S))
            again = await waiting
            assert numbers(again) == [6, 7, 8, 9]
            await asyncio.sleep(0)
            idle = asyncio.create_task(consumer.apoll(timeout_s=PATIENCE_S))
            await asyncio.sleep(0.05)
            idle.cancel()
            await asyncio.gather(idle, return_exceptions=True)

    asyncio.run(run())
    assert everything(store)[0] <= 6 + 4


@pytest.mark.parametrize(
    "topic", ["T\0", "T\x01", "a b", "T/1", "Töpfe", "T+", "$", "%LMQ%a+", "."]
)
def test_topics_that_no_put_takes_are_refused(store: Store, topic: str) -> None:
    for asked in (topic, ["T", topic]):
        with pytest.raises(ValueError, match="does not allow"):
            store.consumer("g", asked)
    with pytest.raises(ValueError, match="does not allow"):
        store.put(topic, b"")


@pytest.mark.parametrize("topic", ["T|1%", "%RETRY%g+h", "%LMQ%a$b", "none-yet"])
def test_topics_that_a_put_takes_are_consumed(store: Store, topic: str) -> None:
    with store.consumer("g", topic) as consumer:
        assert consumer is not None


@pytest.mark.parametrize(
    ("topics", "kind"),
    [(b"T", "bytes"), (bytearray(b"T"), "bytearray"), (7, "int"), ([b"T"], "bytes")],
)
def test_topics_that_are_no_text_are_named(store: Store, topics: Any, kind: str) -> None:
    with pytest.raises(TypeError, match=rf"must be str.*not {kind}$"):
        store.consumer("g", topics)
