"""Bells, and threads that wait for an offset, in both bodies."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from rocketstore.services.waiting import Wakeup
from support.kernel_bodies import Bodies
from support.syncs import LONG_S

BODIES = ("native", "reference")


@pytest.fixture
def waiters(kernels: Bodies) -> Any:
    return kernels.waiting.OffsetWaiters()


class Waiting:
    """A thread that waits for ``offset``, and what it was answered."""

    def __init__(self, waiters: Any, offset: int, timeout_s: float = LONG_S) -> None:
        self.answers: list[bool] = []
        self._thread = threading.Thread(
            target=lambda: self.answers.append(waiters.wait(offset, timeout_s))
        )
        self._thread.start()

    @property
    def answer(self) -> bool:
        self._thread.join(LONG_S)
        assert not self._thread.is_alive()
        return self.answers[0]


def until(condition: Any) -> None:
    deadline = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_only_those_whose_offset_is_reached_are_woken(waiters: Any) -> None:
    waiting = {offset: Waiting(waiters, offset) for offset in (10, 20, 30)}
    until(lambda: len(waiters) == 3)
    waiters.reach(20)
    assert waiting[10].answer is waiting[20].answer is True
    until(lambda: len(waiters) == 1)
    assert waiting[30].answers == []
    waiters.reach(30)
    assert waiting[30].answer is True
    assert len(waiters) == 0


def test_what_was_reached_is_not_waited_for(waiters: Any) -> None:
    waiters.reach(10)
    assert waiters.wait(10, 0)
    assert waiters.wait(-5, 0)
    assert not waiters.wait(11, 0)
    assert len(waiters) == 0


@pytest.mark.parametrize("timeout_s", [-1.0, 0.0, 0.001, 0.05])
def test_a_wait_that_takes_too_long(waiters: Any, timeout_s: float) -> None:
    began = time.monotonic()
    assert waiters.wait(1, timeout_s) is False
    assert time.monotonic() - began >= timeout_s
    assert len(waiters) == 0


@pytest.mark.parametrize("timeout_s", [1e9, 1e300, float("inf")])
def test_a_wait_without_an_end(waiters: Any, timeout_s: float) -> None:
    waiting = Waiting(waiters, 1, timeout_s)
    until(lambda: len(waiters) == 1)
    waiters.reach(1)
    assert waiting.answer is True


def test_a_failure_wakes_everyone_for_good(waiters: Any) -> None:
    waiting = [Waiting(waiters, offset) for offset in range(1, 21)]
    until(lambda: len(waiters) == 20)
    waiters.fail()
    assert all(one.answer for one in waiting)
    assert waiters.wait(1 << 62, LONG_S)


def test_each_of_many_is_woken_once_its_turn_comes(waiters: Any) -> None:
    """More than are woken at once, entered in no order, reached in steps."""
    waiting = {offset: Waiting(waiters, offset) for offset in [7 * n % 101 for n in range(1, 101)]}
    until(lambda: len(waiters) == 100)
    for reached in (0, 13, 14, 60, 100):
        waiters.reach(reached)
        assert all(waiting[offset].answer for offset in waiting if offset <= reached)
        until(lambda reached=reached: len(waiters) == 100 - reached)


def test_those_who_give_up_let_the_others_be_woken(waiters: Any) -> None:
    patient = [Waiting(waiters, 5) for _ in range(10)]
    hasty = [Waiting(waiters, 5, 0.001 * n) for n in range(20)]
    until(lambda: len(waiters) >= 10)
    time.sleep(0.01)
    waiters.reach(5)
    assert all(one.answer for one in patient)
    assert all(one.answer in (True, False) for one in hasty)
    assert len(waiters) == 0


@pytest.mark.parametrize("kind", [Wakeup, *(Bodies(body).waiting.OffsetWaiters for body in BODIES)])
def test_a_bell_rings_once_however_often_it_is_rung(kind: Any) -> None:
    bell = kind()
    assert not bell.listen(0)
    for _ in range(3):
        bell.ring()
    assert bell.listen(LONG_S)
    assert not bell.listen(0.001)


def test_whoever_waits_rings(waiters: Any) -> None:
    waiting = Waiting(waiters, 5)
    assert waiters.listen(LONG_S)
    waiters.reach(5)
    assert waiting.answer is True


@pytest.fixture
def interrupts() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGALRM")
def test_an_interrupt_ends_a_wait(waiters: Any, interrupts: None) -> None:
    other = Waiting(waiters, 5)
    until(lambda: len(waiters) == 1)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    with pytest.raises(KeyboardInterrupt):
        waiters.wait(5, LONG_S)
    assert len(waiters) == 1
    waiters.reach(5)
    assert other.answer is True


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGALRM")
def test_a_handler_that_returns_does_not_end_a_wait(waiters: Any, interrupts: None) -> None:
    """It may wait itself, and reach what the interrupted call waits for."""
    nested: list[bool] = []

    def handle(*_: object) -> None:
        nested.append(waiters.wait(9, 0.01))
        waiters.reach(5)

    signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    assert waiters.wait(5, LONG_S)
    assert nested == [False]
    assert len(waiters) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_nobody_waits_in_a_forked_child(waiters: Any) -> None:
    waiting = [Waiting(waiters, 5) for _ in range(8)]
    until(lambda: len(waiters) == 8)
    child = os.fork()
    if child == 0:
        try:
            right = len(waiters) == 0 and not waiters.listen(0) and not waiters.wait(7, 0.001)
            waiters.reach(7)
            os._exit(0 if right and waiters.wait(7, 0) else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    waiters.reach(5)
    assert all(one.answer for one in waiting)
