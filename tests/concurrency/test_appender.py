"""Threads under one appender: no gap in the log, dense queue offsets, bytes and CRC that agree."""

from __future__ import annotations

import sys
import threading
import zlib
from array import array
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from rocketstore.errors import StoreClosedError
from rocketstore.status import RecordFlags, RecordStatus
from support.appenders import Log, batch, message
from support.kernel_bodies import NATIVE, Bodies
from support.syncs import LONG_S

THREADS = 4


@pytest.fixture(autouse=True)
def _switch_often() -> Iterator[None]:
    """Let threads take turns within a put."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def run(work: Callable[[int], None], count: int = THREADS) -> None:
    """Run ``work(number)`` in threads; raise what one of them raised."""
    errors: list[BaseException] = []
    start = threading.Barrier(count)

    def body(number: int) -> None:
        try:
            start.wait(LONG_S)
            work(number)
        except BaseException as error:  # noqa: BLE001 - handed to the test's thread
            errors.append(error)

    threads = [threading.Thread(target=body, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_S)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]


def records(log: Log) -> list[Any]:
    """All records, each strictly checked, without a byte left out between them."""
    found = []
    end = log.appender.write_offset
    for number, segment in enumerate(log.segments):
        base, position = number * log.segment_nbytes, 0
        while position < log.segment_nbytes and base + position < end:
            stop = min(end - base, log.segment_nbytes)
            where = (position, stop, base, base + log.segment_nbytes)
            flags = int(RecordFlags.CHECK_BODY_CRC)
            status, size = NATIVE.message.check_record(segment, *where, flags)
            assert status in (RecordStatus.OK, RecordStatus.BLANK), (base + position, status)
            if status == RecordStatus.OK:
                view = NATIVE.message.StoredMessage
                found.append(view(segment, position, base, base + log.segment_nbytes))
            position += size
    return found


def assert_dense(log: Log) -> list[Any]:
    """Queue offsets count without a gap in the order of the log; times never go back."""
    found = records(log)
    counts: dict[tuple[str, int], int] = {}
    for record in found:
        key = (record.topic, record.queue_id)
        assert record.queue_offset == counts.get(key, 0)
        counts[key] = record.queue_offset + 1
    times = [record.store_timestamp for record in found]
    assert times == sorted(times)
    return found


def item(body: bytes | bytearray) -> SimpleNamespace:
    return message("T", body, queue_id=1)


@pytest.mark.parametrize("populated", [False, True])
def test_threads_put_while_the_log_rolls(kernels: Bodies, populated: bool) -> None:
    log = Log(kernels, segment_nbytes=1024, extent_nbytes=256, clock=None)
    rolled = log.roll

    def roll(needed_nbytes: int) -> None:
        rolled(needed_nbytes)
        if populated:
            log.appender.set_populated(log.segment_nbytes)

    log.appender = kernels.commit_log.Appender(
        roll=roll, extend=log.extend, segment_nbytes=log.segment_nbytes
    )
    rounds = 60
    results: list[list[Any]] = [[] for _ in range(THREADS)]

    def work(number: int) -> None:
        for turn in range(rounds):
            body = bytes([number]) * (turn % 50)
            mine = results[number]
            mine.append(log.appender.put(f"T{turn % 3}", body, turn % 2, "tag"))
            mine += log.appender.put_many([item(body), item(body)])
            pair = batch(item(body), item(body), queue_id=1)
            mine.append(log.appender.put_messages(pair))
            mine += log.appender.put_columns("C", array("i", [0, 1, 2]), b"ab")

    run(work)
    found = assert_dense(log)
    assert len(found) == THREADS * rounds * 7 == log.appender.put_times
    assert log.appender.put_nbytes == sum(record.store_size for record in found)
    assert log.appender.failed_times == 0
    assert len(log.rolls) == len(log.segments)
    answered = {r.physical_offset: r for mine in results for r in mine}
    assert answered.keys() <= {record.physical_offset for record in found}
    for record in found:
        result = answered.get(record.physical_offset)
        if result is not None and result.message_count == 1:
            assert (result.queue_offset, result.msg_id) == (record.queue_offset, record.msg_id)


@pytest.mark.parametrize("nbytes", [100, 200_000])
def test_a_body_that_changes_meanwhile(kernels: Bodies, nbytes: int) -> None:
    """Stored is one of the body's states or a mixture; the CRC must be that of what is stored."""
    log = Log(kernels, segment_nbytes=8 << 20, clock=None)
    body = bytearray(nbytes)
    done = threading.Event()

    def change(number: int) -> None:
        if number:
            while not done.is_set():
                body[:] = bytes([body[0] + 1 & 255]) * nbytes
            return
        try:
            for _ in range(30):
                log.appender.put("T", body)
                log.appender.put_many([item(b"x"), item(body)])
                log.appender.put_columns("T", array("q", [0, nbytes]), body)
        finally:
            done.set()

    run(change, 2)
    for record in records(log):
        assert zlib.crc32(record.body) & 0x7FFFFFFF == record.body_crc


def test_closing_while_threads_put(kernels: Bodies) -> None:
    log = Log(kernels, segment_nbytes=4096, clock=None)
    put: list[int] = []

    def work(number: int) -> None:
        if number == 0:
            while len(put) < 200:
                pass
            log.appender.close()
            return
        while True:
            try:
                log.appender.put("T", b"body")
            except StoreClosedError:
                return
            put.append(number)

    run(work)
    assert len(assert_dense(log)) == log.appender.put_times == len(put)


def test_one_roll_serves_all_that_wait_for_it(kernels: Bodies) -> None:
    log = Log(kernels, segment_nbytes=1 << 16, clock=None)
    waiting = threading.Barrier(THREADS)
    rolled = log.roll
    calls: list[int] = []

    def roll(needed_nbytes: int) -> None:
        calls.append(threading.get_ident())
        rolled(needed_nbytes)

    log.appender = kernels.commit_log.Appender(
        roll=roll, extend=log.extend, segment_nbytes=log.segment_nbytes
    )

    def work(number: int) -> None:
        waiting.wait(LONG_S)
        log.appender.put("T", bytes(number))

    run(work)
    assert len(calls) == 1
    assert len(assert_dense(log)) == THREADS


def test_a_follower_sees_a_batch_at_once(kernels: Bodies) -> None:
    """A reader that follows the log by its bytes finds all records of a batch, or none."""
    log = Log(kernels, segment_nbytes=1 << 20, clock=None)
    log.appender.put("T", b"")
    sent = batch(*[item(bytes(500))] * 8)
    size = 92 + 500
    done = threading.Event()

    def follow(number: int) -> None:
        if number == 0:
            try:
                for _ in range(150):
                    log.appender.put_messages(sent)
            finally:
                done.set()
            return
        position, segment = 92, log.segments[0]
        while not done.is_set():
            head = bytes(segment[position : position + 4])
            if head == bytes(4):
                continue
            for _ in range(8):
                where = (position, len(segment), 0, len(segment))
                assert NATIVE.message.check_record(segment, *where, 1) == (RecordStatus.OK, size)
                position += size

    run(follow, 2)


@pytest.mark.parametrize("populated", [False, True])
def test_light_queues_and_inner_batches_count_on_without_a_gap(
    kernels: Bodies, populated: bool
) -> None:
    """What is filled in under the mutex is right however the threads take turns."""
    log = Log(kernels, segment_nbytes=4096, extent_nbytes=512, clock=None)
    rolled = log.roll

    def roll(needed_nbytes: int) -> None:
        rolled(needed_nbytes)
        if populated:
            log.appender.set_populated(log.segment_nbytes)

    log.appender = kernels.commit_log.Appender(
        roll=roll,
        extend=log.extend,
        segment_nbytes=log.segment_nbytes,
        enable_lmq=True,
        append_property_crc=True,
    )
    log.appender.set_batch_topics(["BCQ"])
    names = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"}
    inner = {"topic": "BCQ", "sys_flag": 0x80, "properties": {"INNER_NUM": "3"}}
    rounds = 40

    def work(number: int) -> None:
        for turn in range(rounds):
            log.appender.put("T", bytes(turn), number, properties=names)
            log.appender.put_many([message("T", properties=names), message(**inner)])
            log.appender.put_columns("T", array("i", [0, 1, 2]), b"ab", properties=names)

    run(work)
    light = base = 0
    for record in records(log):
        if record.topic == "BCQ":
            assert record.properties["INNER_BASE"] == str(record.queue_offset) == str(base)
            base += 3
        else:
            assert record.properties["INNER_MULTI_QUEUE_OFFSET"] == f"{light},{light}"
            light += 1
    assert (light, base) == (THREADS * rounds * 4, THREADS * rounds * 3)
    assert log.appender.next_queue_offset("%LMQ%a", 0) == light
    assert log.appender.next_queue_offset("BCQ", 0) == base
