"""The store called from code that interrupts it: signal handlers, finalizers, callbacks, hooks.

Such code runs on whatever thread it meets, in the middle of a step that holds a lock. Each call
gets a result or a clear error at once, and what was interrupted goes on.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.errors import ReentrantCallError, RocketStoreError
from rocketstore.lock_order import LockRank
from support.kernel_bodies import Bodies

OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": 64 * 1024,
    "mapped_file_size_consume_queue": 400,
    "max_hash_slot_num": 40,
    "max_index_num": 100,
}
#: What a call may take at most on a busy machine; one that hangs is ended by the test's limit.
LONGEST_S = 60.0
pytestmark = pytest.mark.timeout(180)

INNER: dict[str, Callable[[rocketstore.DefaultMessageStore], object]] = {
    "put": lambda store: store.put("Inner", b"x" * 900),
    "large put": lambda store: store.put("Inner", b"x" * 60_000),
    "put_many": lambda store: store.put_many([rocketstore.Message("Inner", b"!")] * 3),
    "flush": lambda store: store.flush(),
    "wait": lambda store: store.wait_dispatched(),
    "get": lambda store: store.get_message("G", "T", 0, 0, 5),
    "find": lambda store: list(store.find(topic="T", key="k")),
    "scan": lambda store: sum(1 for _ in store.scan()),
    "clean": lambda store: store.clean_expired(),
    "close": lambda store: store.close(),
}
#: Where the interruption strikes: a function that runs while a lock is held.
PLACES = {
    "fsync": (os, "fsync"),
    "open": (os, "open"),
    "fstat": (os, "fstat"),
    "link": (os, "link"),
    "pread": (os, "pread"),
    "replace": (os, "replace"),
}


def interrupting(
    monkeypatch: pytest.MonkeyPatch, place: tuple[Any, str], every: int, call: Callable[[], None]
) -> None:
    """Call ``call`` in the middle of each ``every``-th call of a function, on the main thread."""
    module, name = place
    real = getattr(module, name)
    count = [0]
    main = threading.main_thread()

    def wrapped(*arguments: Any, **options: Any) -> Any:
        if threading.current_thread() is main:
            count[0] += 1
            if count[0] % every == 0:
                call()
        return real(*arguments, **options)

    monkeypatch.setattr(module, name, wrapped)


class Calls:
    """Calls the store from within, once at a time, and keeps what came of it."""

    def __init__(
        self, store: rocketstore.DefaultMessageStore, inner: Callable[..., object]
    ) -> None:
        self.store, self.inner = store, inner
        self.results: list[object] = []
        self.errors: list[BaseException] = []
        self._within = False

    def __call__(self, *_: object) -> None:
        if self._within or len(self.results) + len(self.errors) > 40:
            return
        self._within = True
        began = time.monotonic()
        try:
            self.results.append(self.inner(self.store))
        except (RocketStoreError, OSError) as error:
            self.errors.append(error)
        finally:
            self._within = False
        assert time.monotonic() - began < LONGEST_S


def check_after(store: rocketstore.DefaultMessageStore, confirmed: int, root: Path) -> None:
    """The store goes on, and everything that was confirmed is there."""
    if store.closed:
        with rocketstore.open(root, "r+", **OPTIONS):
            pass
    else:
        assert store.put("T", b"following").ok
        confirmed += 1
        store.wait_dispatched()
        store.close()
    with rocketstore.open(root) as reader:
        assert not reader.recovery_report.damaged
        assert reader.max_offset_in_queue("T", 0) >= confirmed
        assert reader.verify().ok


@pytest.mark.parametrize(
    ("inner", "flush", "start"),
    [
        pytest.param(inner, flush, start, id=f"{inner}-{flush}-{'threads' if start else 'by hand'}")
        for number, inner in enumerate(INNER)
        for flush, start in (("SYNC_FLUSH", number % 2 == 0), ("ASYNC_FLUSH", number % 2 == 1))
    ],
)
def test_a_handler_in_the_middle_of_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inner: str, flush: str, start: bool
) -> None:
    """A put from a handler that struck while its thread made the next segment waited for that
    thread: the process stood still for ever."""
    root = tmp_path / "s"
    store = rocketstore.open(root, "x", flush_disk_type=flush, start=start, **OPTIONS)
    calls = Calls(store, INNER[inner])
    former = signal.signal(signal.SIGUSR1, calls)
    confirmed = 0
    try:
        with monkeypatch.context() as patch:
            for number, place in enumerate(PLACES.values()):
                strike = 2 + number % 3
                interrupting(patch, place, strike, lambda: signal.raise_signal(signal.SIGUSR1))
            for _ in range(300):
                try:
                    confirmed += store.put("T", b"x" * 900, keys="k").ok
                    if confirmed % 60 == 0:
                        store.wait_dispatched()
                        store.flush()
                        store.clean_expired()
                        store.get_message("G", "T", 0, 0, 5)
                except RocketStoreError:
                    if not store.closed:
                        raise
                    break
    finally:
        signal.signal(signal.SIGUSR1, former)
    assert calls.results or calls.errors
    assert all(str(error) for error in calls.errors)
    check_after(store, confirmed, root)


@pytest.mark.parametrize(
    ("way", "inner"),
    [
        (way, inner)
        for row, way in enumerate(["__del__", "weakref", "gc", "profile", "clock", "listener"])
        for column, inner in enumerate(["put", "flush", "wait", "get", "large put"])
        if (row + column) % 2 == 0
    ],
)
def test_other_code_that_interrupts(tmp_path: Path, way: str, inner: str) -> None:
    """The same by finalizers, callbacks and hooks, on every thread that they meet."""
    root = tmp_path / "s"
    calls: Calls | None = None

    def call(*_: object) -> None:
        if calls is not None:
            calls()

    ticks = [0]

    def clock() -> int:
        ticks[0] += 1
        if ticks[0] % 40 == 0:
            call()
        return 1_763_000_000_000 + ticks[0]

    class Finalized:
        def __del__(self) -> None:
            call()

    class Cycle:
        me: object

    options: dict[str, Any] = dict(OPTIONS, flush_disk_type="SYNC_FLUSH")
    if way == "clock":
        options["clock"] = clock
    if way == "listener":
        options["arriving_listener"] = call
    store = rocketstore.open(root, "x", **options)
    calls = Calls(store, INNER[inner])
    refs = []
    if way == "gc":
        gc.callbacks.append(call)
    if way == "profile":
        events = [0]

        def profiler(*_: object) -> None:
            events[0] += 1
            if events[0] % 17 == 0:
                call()

        sys.setprofile(profiler)
    try:
        for number in range(200):
            assert store.put("T", b"x" * 900, keys="k").ok
            if way in ("__del__", "weakref") and number % 20 == 0:
                one = Finalized() if way == "__del__" else Cycle()
                if way == "weakref":
                    refs.append(weakref.ref(one, call))
                    one.me = one  # type: ignore[union-attr]
                del one
                gc.collect()
            if way == "gc" and number % 20 == 0:
                gc.collect()
    finally:
        sys.setprofile(None)
        if way == "gc":
            gc.callbacks.remove(call)
        calls.inner = lambda store: None
    assert calls.results or calls.errors
    check_after(store, 200, root)


@pytest.mark.parametrize("inner", ["put", "flush", "wait", "get", "scan", "large put"])
def test_a_timer_strikes_anywhere(tmp_path: Path, inner: str) -> None:
    """A second of handlers between any two bytecodes of the main thread."""
    root = tmp_path / "s"
    store = rocketstore.open(root, "x", flush_disk_type="ASYNC_FLUSH", **OPTIONS)
    calls = Calls(store, INNER[inner])
    former = signal.signal(signal.SIGALRM, calls)
    confirmed = 0
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0007)
        end = time.monotonic() + 0.7
        while time.monotonic() < end:
            confirmed += store.put("T", b"x" * 900, keys="k").ok
            if confirmed % 50 == 0:
                calls.results.clear()
                calls.errors.clear()
                store.wait_dispatched()
                store.flush()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)
    check_after(store, confirmed, root)


# --- the locks themselves -------------------------------------------------------------------------


def test_a_lock_is_no_way_back(kernels: Bodies) -> None:
    make = kernels.locks.OrderedLock
    low, middle, high = make(LockRank.LEAF), make(LockRank.ROLL), make(LockRank.MARKS)
    twin = make(LockRank.ROLL)
    assert not kernels.locks.holds_any()
    with high, middle, low:
        for lock in (low, middle, high, twin):
            with pytest.raises(ReentrantCallError, match="inside a store operation"), lock:
                raise AssertionError("entered")
        assert kernels.locks.holds_any()
    with low, pytest.raises(ReentrantCallError), high:
        raise AssertionError("entered")
    assert not kernels.locks.holds_any()
    with twin, low:
        pass


def test_a_lock_excludes_other_threads(kernels: Bodies) -> None:
    lock = kernels.locks.OrderedLock(1)
    total = 0

    def add() -> None:
        nonlocal total
        for _ in range(2000):
            with lock:
                now = total
                total = now + 1

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert total == 8000


def test_an_error_within_gives_the_lock_back(kernels: Bodies) -> None:
    lock = kernels.locks.OrderedLock(1)
    with pytest.raises(KeyError), lock:
        raise KeyError(1)
    with lock:
        pass
    assert not kernels.locks.holds_any()


def test_an_interrupt_while_waiting_leaves_nothing(kernels: Bodies) -> None:
    lock = kernels.locks.OrderedLock(1)
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            entered.set()
            leave.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    entered.wait(20)
    timer = threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt), lock:
        raise AssertionError("entered")
    assert not kernels.locks.holds_any()
    leave.set()
    thread.join()
    timer.join()
    with lock:
        pass


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork is needed")
@pytest.mark.parametrize("holder", ["another thread", "the one that forks"])
def test_a_forked_child_finds_the_lock_free(kernels: Bodies, holder: str) -> None:
    lock = kernels.locks.OrderedLock(1)
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            entered.set()
            leave.wait(20)

    def fork() -> int:
        child = os.fork()
        if child == 0:
            signal.alarm(20)
        return child

    if holder == "another thread":
        thread = threading.Thread(target=hold)
        thread.start()
        entered.wait(20)
        child = fork()
    else:
        with lock:
            child = fork()
    if child == 0:
        with lock:
            pass
        os._exit(0)
    leave.set()
    if holder == "another thread":
        thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with lock:
        pass


@pytest.mark.parametrize("rank", [-1, 2**40])
def test_ranks_are_small_numbers(rank: int) -> None:
    with pytest.raises((ValueError, OverflowError)):
        Bodies("native").locks.OrderedLock(rank)
