"""The appender of both bodies: how long its calls take."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import pytest

from rocketstore.errors import ServiceFailedError
from rocketstore.status import PutMessageStatus
from support.appenders import Log, batch, message
from support.kernel_bodies import NATIVE, REFERENCE, Bodies


def counts(log: Log) -> tuple[int, int, int]:
    """The number of calls, those of the sample that are timed, and those that waited."""
    calls, _, sampled, waited = log.appender.times
    return calls, sum(sampled.values()), sum(waited.values())


def slow(_: int) -> int:
    time.sleep(0.003)
    return PutMessageStatus.PUT_OK


def test_both_bodies_time_the_same_sample() -> None:
    found = []
    for bodies in (NATIVE, REFERENCE):
        log = Log(bodies, segment_nbytes=1 << 20)
        states = []
        for _ in range(1000):
            log.appender.put("T", b"x")
            states.append(counts(log))
        found.append(states)
    assert found[0] == found[1]
    calls, sampled, waited = found[0][-1]
    assert (calls, waited) == (1000, 1)  # the first made room
    assert 2 <= sampled <= 8


def test_the_sample_is_one_of_256_and_keeps_no_step(kernels: Bodies) -> None:
    log = Log(kernels, segment_nbytes=1 << 24)
    chosen: list[int] = []
    before = 0
    for number in range(20_000):
        log.appender.put("T", b"x")
        now = counts(log)[1]
        if now != before:
            chosen.append(number)
        before = now
    assert counts(log) == (20_000, len(chosen), 1)
    assert 60 <= len(chosen) <= 100
    steps = {after - one for one, after in itertools.pairwise(chosen)}
    assert len(steps) > 50
    assert len({number % 64 for number in chosen}) > 30


def test_a_call_that_makes_room_is_timed_whatever_its_number(kernels: Bodies) -> None:
    log = Log(kernels, segment_nbytes=1024)
    made = log.roll

    def roll(nbytes: int) -> None:
        time.sleep(0.003)
        made(nbytes)

    appender = log.appender = kernels.commit_log.Appender(
        roll=roll, extend=log.extend, segment_nbytes=1024
    )
    for _ in range(30):
        appender.put("T", b"x" * 50)
    calls, longest_ms, _, waited = appender.times
    assert calls == 30
    assert sum(waited.values()) == len(log.rolls) > 3
    assert min(waited) >= 3
    assert longest_ms == max(waited)


@pytest.mark.parametrize(
    "call",
    [
        lambda a: a.put("T", b"x"),
        lambda a: a.put_message(message()),
        lambda a: a.put_messages(batch(message(), message())),
        lambda a: a.put_many([message(), message()]),
        lambda a: a.put_columns("T", memoryview(b"\0\0\0\0\1\0\0\0").cast("i"), b"x"),
    ],
    ids=["put", "put_message", "put_messages", "put_many", "put_columns"],
)
def test_each_call_that_waits_for_the_disk_is_one_time(
    kernels: Bodies, call: Callable[[Any], Any]
) -> None:
    log = Log(kernels, segment_nbytes=1 << 16, wait=slow)
    for _ in range(5):
        call(log.appender)
    calls, longest_ms, sampled, waited = log.appender.times
    assert (calls, sampled, sum(waited.values())) == (5, {}, 5)
    assert 3 <= min(waited) <= longest_ms


def test_the_caller_counts_a_wait_of_its_own(kernels: Bodies) -> None:
    log = Log(kernels, segment_nbytes=1 << 16, wait=slow)
    log.appender.put("T", b"x", _wait=lambda _: 0)
    log.appender.put_many([message()], _wait=lambda _: 0)
    assert log.appender.times == (0, 0, {}, {})
    log.appender.add_wait(7)
    log.appender.add_wait(90_000)
    assert log.appender.times == (2, 90_000, {}, {7: 1, 10_001: 1})


def test_puts_that_are_refused_early_or_raise_are_not_timed(kernels: Bodies) -> None:
    log = Log(kernels, segment_nbytes=1 << 16)
    log.appender.put("T", b"x")
    log.appender.put("T", b"x", properties={"k": "v" * 40_000})
    with pytest.raises(TypeError):
        log.appender.put("T", 5)
    assert counts(log) == (1, 0, 1)


def test_a_wait_that_fails_is_no_time(kernels: Bodies) -> None:
    def fail(_: int) -> int:
        raise ServiceFailedError("disk")

    log = Log(kernels, segment_nbytes=1 << 16, wait=fail)
    with pytest.raises(ServiceFailedError):
        log.appender.put("T", b"x")
    assert counts(log)[1:] == (0, 0)


def test_what_is_returned_is_a_copy(kernels: Bodies) -> None:
    log = Log(kernels, segment_nbytes=1 << 16)
    log.appender.put("T", b"x")
    log.appender.times[3].clear()
    assert counts(log) == (1, 0, 1)
