"""An allocation fails, wherever: its caller hears of it, and the store goes on."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.errors import ServiceFailedError
from rocketstore.services.service_thread import ServiceThread, is_lack_of_memory

OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": 64 * 1024,
    "mapped_file_size_consume_queue": 400,
    "max_hash_slot_num": 40,
    "max_index_num": 100,
}

FAILING = """
import random, sys, warnings
import _testcapi, rocketstore
root, flush, pool, seed = sys.argv[1], sys.argv[2], sys.argv[3] == "pool", int(sys.argv[4])
warnings.simplefilter("ignore")
sys.unraisablehook = lambda *_: None
store = rocketstore.open(
    root, "x", flush_disk_type=flush, transient_store_pool_enable=pool,
    mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=400, max_hash_slot_num=40,
    max_index_num=100, flush_interval_consume_queue=20, flush_interval_commit_log=20,
    flush_consume_queue_least_pages=0, flush_consume_queue_thorough_interval=60,
    arriving_listener=(lambda *_: None) if seed % 2 else None)
assert store.put("T", b"one").ok
random = random.Random(seed)
confirmed = []
for round in range(300):
    n = random.randrange(1, 120)
    call = random.choice((store.put, store.put, store.put, store.flush, store.wait_dispatched))
    arguments = ("T", b"x" * 300, 0, None, "k") if call == store.put else ()
    result = None
    try:
        _testcapi.set_nomemory(n, n + 1)
        result = call(*arguments)
    except (MemoryError, TypeError, SystemError):
        pass  # CPython itself takes a lack of memory for other errors here and there
    finally:
        _testcapi.remove_mem_hooks()
    if call == store.put and result is not None and result.ok:
        confirmed.append(result.physical_offset)
assert store.put("T", b"three").ok
assert store.wait_dispatched(60)
store.flush()
store.close()
with rocketstore.open(root) as reader:
    for offset in confirmed:
        assert reader.look_message_by_offset(offset) is not None
    assert not reader.recovery_report.damaged
    assert reader.verify().ok
print("fine", len(confirmed))
"""


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("mode", ["SYNC_FLUSH", "ASYNC_FLUSH", "ASYNC_FLUSH pool"])
def test_one_failed_allocation_ends_nothing(tmp_path: Path, mode: str, seed: int) -> None:
    """A background thread that met it was taken for failed, and with it the whole store:
    ``syncing the log failed ()``, although no sync had."""
    pytest.importorskip("_testcapi")
    flush, _, pool = mode.partition(" ")
    done = subprocess.run(
        [sys.executable, "-c", FAILING, str(tmp_path / "s"), flush, pool, str(seed)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    if done.returncode == -signal.SIGSEGV and sys.version_info[:2] in ((3, 12), (3, 13)):
        pytest.skip("CPython 3.12 and 3.13 die of a failed allocation, also without our extensions")
    assert done.stdout.startswith("fine"), (done.returncode, done.stderr[-9000:])


def lacking(real: Callable[..., Any], times: int) -> Callable[..., Any]:
    """``real``, which lacks memory the first few times that another thread calls it."""
    left = [times]
    here = threading.current_thread()

    def call(*arguments: Any, **options: Any) -> Any:
        if threading.current_thread() is not here and left[0] > 0:
            left[0] -= 1
            raise MemoryError
        return real(*arguments, **options)

    return call


@contextlib.contextmanager
def store_that_lacks(
    root: Path, part: str, method: str, **options: Any
) -> Iterator[rocketstore.DefaultMessageStore]:
    """A store, one of whose parts lacks memory for a while."""
    store = rocketstore.open(root, "x", **OPTIONS, **options)
    owner = store._writer
    for name in part.split("."):
        owner = getattr(owner, name)
    setattr(owner, method, lacking(getattr(owner, method), 3))
    yield store
    for number in range(120):
        assert store.put("T", b"%d" % number + b"x" * 900, keys="k").ok
    assert store.wait_dispatched(60)
    store.flush()
    store.close()
    with rocketstore.open(root) as reader:
        assert reader.max_offset_in_queue("T", 0) == 120
        assert reader.verify().ok


@pytest.mark.parametrize(
    ("part", "method", "options"),
    [
        ("allocate", "run_once", {}),
        ("flush_log", "run_once", {"flush_disk_type": "SYNC_FLUSH"}),
        ("flush_log", "run_once", {"flush_interval_commit_log": 10}),
        ("flush_queues", "run_once", {"flush_interval_consume_queue": 10}),
        ("reput", "run_once", {}),
        ("flushed", "flush", {"flush_disk_type": "SYNC_FLUSH"}),
        ("flushed", "let_go", {"flush_disk_type": "SYNC_FLUSH"}),
        ("dispatcher", "dispatch_until", {}),
        ("log", "commit", {"transient_store_pool_enable": True}),
        ("cleaning.log_service", "_look", {"clean_resource_enable": True}),
        ("cleaning.queue_service", "_look", {"clean_resource_enable": True}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_service_tries_again(
    tmp_path: Path,
    part: str,
    method: str,
    options: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rocketstore.cleaning.clean_service.FIRST_LOOK_S", 0.01)
    if "clean" in part:
        options = {**options, "clean_resource_interval": 20}
    with store_that_lacks(tmp_path / "s", part, method, **options):
        time.sleep(0.1)


def test_a_listener_that_lacks_memory_hears_of_the_message_again(tmp_path: Path) -> None:
    heard: list[int] = []
    failures = [2]

    def listener(topic: str, queue_id: int, next_offset: int, *_: object) -> None:
        if next_offset == 6 and failures[0]:
            failures[0] -= 1
            raise MemoryError
        heard.append(next_offset)

    with rocketstore.open(tmp_path / "s", "x", arriving_listener=listener, **OPTIONS) as store:
        for _ in range(10):
            assert store.put("T", b"x").ok
        end = time.monotonic() + 20
        while len(heard) < 10 and time.monotonic() < end:
            time.sleep(0.01)
        assert heard == list(range(1, 11))


def test_a_failed_sync_stays_one_whatever_memory_there_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of the sync is remembered where it came up: the next try must not believe a later
    success."""
    store = rocketstore.open(tmp_path / "s", "x", flush_disk_type="SYNC_FLUSH", **OPTIONS)
    log = store._writer.log  # type: ignore[union-attr]
    real = log.flush
    outcomes: list[BaseException] = [MemoryError(), OSError(5, "Input/output error")]

    def flush(*arguments: Any) -> int:
        if outcomes:
            raise outcomes.pop(0)
        return real(*arguments)

    monkeypatch.setattr(log, "flush", flush)
    for _ in range(2):
        with pytest.raises(ServiceFailedError, match=r"OSError: .*Input/output error"):
            store.put("T", b"x")
    with pytest.raises(ServiceFailedError, match="OSError"):
        store.close()


@pytest.mark.parametrize("error", [KeyError(), ValueError(""), RecursionError(), ValueError("so")])
def test_what_ended_a_service_is_named_with_its_type(error: Exception) -> None:
    """``allocate failed:`` and nothing after it."""

    class Failing(ServiceThread):
        def run_once(self) -> bool:
            raise error

    reported: list[BaseException] = []
    service = Failing("allocate", 0.01, reported.append)
    service.start()
    end = time.monotonic() + 20
    while not reported and time.monotonic() < end:
        time.sleep(0.005)
    with pytest.raises(ServiceFailedError, match=f"allocate failed: {type(error).__name__}"):
        service.shutdown()
    assert reported == [error]


def test_a_put_for_which_there_was_no_thread_is_not_made_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The awaited put raised, and was appended with the next one's thread."""
    import asyncio

    async def run() -> None:
        with rocketstore.open(tmp_path / "s", "x", **OPTIONS) as store:

            def refuse(thread: threading.Thread) -> None:
                raise RuntimeError("can't start new thread")

            with monkeypatch.context() as patch:
                patch.setattr(threading.Thread, "start", refuse)
                with pytest.raises(RuntimeError, match="thread"):
                    await store.aput("T", b"x" * 60_000)
            assert (await store.aput("T", b"y" * 60_000)).ok
            assert [bytes(m.body[:1]) for m in store.scan()] == [b"y"]

    asyncio.run(run())


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        SystemError("error return without exception set"),
        SystemError("<built-in function x> returned NULL without setting an exception"),
        RuntimeError("can't allocate lock"),
        TypeError("expected str, bytes or os.PathLike object, not PosixPath"),
        TypeError("lstat: path should be string, bytes or os.PathLike, not PosixPath"),
    ],
    ids=repr,
)
def test_a_service_tries_again_where_the_interpreter_renames_the_lack(error: Exception) -> None:
    """CPython loses the ``MemoryError`` on its own: ``os.stat(path)``, locks, generators."""
    tries = []

    class Once(ServiceThread):
        def run_once(self) -> bool:
            tries.append(len(tries))
            if len(tries) == 1:
                raise error
            return False

    failures: list[BaseException] = []
    service = Once("once", 0.001, failures.append)
    service.start()
    while len(tries) < 2 and not failures:
        time.sleep(0.001)
    service.shutdown()
    assert not failures
    assert service.failure is None


@pytest.mark.parametrize(
    "error",
    [
        TypeError("expected str"),
        TypeError("listener() takes 0 positional arguments but 1 was given"),
        SystemError("x"),
        RuntimeError("y"),
    ],
)
def test_other_errors_of_these_types_end_a_service(error: Exception) -> None:
    assert not is_lack_of_memory(error)


def test_a_service_that_got_no_thread_is_stopped_like_any(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python starts no thread once the main thread has ended (3.12), nor does a system at its
    limit. The error was "cannot join thread before it is started"."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    failures: list[BaseException] = []
    service = ServiceThread("idle", 0.001, failures.append)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="at interpreter shutdown"):
            service.start()
    service.shutdown()
    assert not service.is_running
    assert not failures
