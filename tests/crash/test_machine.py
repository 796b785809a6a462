"""G02 and G05 to G08: no space, no memory, no descriptors, files that others truncate, Ctrl-C: the
error names the cause, and the store continues."""

from __future__ import annotations

import _thread
import asyncio
import errno
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from corruption.crafted import snapshot
from crash.test_failures import OPTIONS, check_all, full_disk, no_room_for, put_some
from golden import golden_stores
from rocketstore import StoreFullError, kernels
from rocketstore.cleaning.cleaner import StoreCleaner
from rocketstore.files.mapped_file_queue import MappedFileQueue
from rocketstore.flush.async_appends import AsyncAppends
from rocketstore.flush.group_commit import GroupCommitService
from rocketstore.services.service_thread import ServiceThread
from support.own_process import run_python
from support.syncs import LONG_S

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="stores are only read there")


# --- G02 --------------------------------------------------------------------------------------


def make_sparse(path: Path) -> None:
    """Leave blocks only where there are bytes, as RocketMQ's files on ext4 and xfs."""
    content = path.read_bytes()
    path.write_bytes(content.rstrip(b"\0"))
    os.truncate(path, len(content))


@pytest.mark.parametrize("name", ["plain-4.9.8", "plain-5.5.0"])
def test_g02_disk_full_after_a_segment_of_rocketmq(tmp_path: Path, name: str) -> None:
    """Bytes stored into a hole of a full disk are SIGBUS; blocks are asked for first."""
    root = golden_stores.unpack(name, tmp_path)
    for path in (root / "commitlog").iterdir():
        make_sparse(path)
    with rocketstore.open(root) as store:
        before = [bytes(message.raw) for message in store.scan()]
    with full_disk(no_room_for("commitlog")) as asked:
        for _ in range(2):
            with pytest.raises(StoreFullError):
                rocketstore.open(root, "r+")
        with rocketstore.open(root) as store:
            assert [bytes(message.raw) for message in store.scan()] == before
    assert asked
    with rocketstore.open(root, "r+") as store:
        assert store.put("TopicA", b"x" * 5000).ok
        assert [bytes(message.raw) for message in store.scan()][:-1] == before
        assert store.verify().ok


# --- G05 --------------------------------------------------------------------------------------

FILE_SIZE_LIMIT = """
import resource, sys
import rocketstore
from rocketstore import StoreFullError

_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
with rocketstore.open(sys.argv[1], "x", mapped_file_size_commit_log=1 << 20, **{options}) as store:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 19, hard))
    for _ in range(3):
        try:
            store.put("T", b"body 0", 0, "Tag", "k0")
        except StoreFullError as error:
            print(error.errno)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    for number in range(20):
        assert store.put("T", b"body %d" % number, number % 3, "Tag", f"k{{number}}").ok
"""


@pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_g05_file_size_limit(tmp_path: Path, flush_disk_type: str) -> None:
    options = {**OPTIONS, "flush_disk_type": flush_disk_type}
    del options["mapped_file_size_commit_log"]
    done = run_python(FILE_SIZE_LIMIT.format(options=options), str(tmp_path / "s"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(errno.EFBIG)] * 3
    with rocketstore.open(tmp_path / "s", "r+") as store:
        assert store.recovery_report.clean
        check_all(store, 20)


# --- G06 --------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.ENOMEM, errno.EMFILE])
def test_g06_no_mapping_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Segments, queues and index: each asks in its turn, is refused, and asks again."""
    refused = []
    with rocketstore.open(tmp_path / "s", "x", start=False, **OPTIONS) as store:
        put_some(store, 10)
        store.wait_dispatched()
        stored = 10
        for _ in range(4):
            with monkeypatch.context() as patch:

                def refuse(*arguments: Any) -> Any:
                    raise OSError(number, os.strerror(number))

                patch.setattr(kernels.mapping, "Mapping", refuse)
                try:
                    while True:
                        put_some(store, 1, stored)
                        stored += 1
                        store.wait_dispatched()
                except OSError as error:
                    refused.append(error.errno)
            put_some(store, 1, stored)
            stored += 1
            store.wait_dispatched()
            check_all(store, stored)
    with rocketstore.open(tmp_path / "s", "r+") as store:
        assert store.recovery_report.clean
        check_all(store, stored)
    assert refused == [number] * 4


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
@pytest.mark.parametrize("number", [errno.ENOMEM, errno.EMFILE])
def test_g06_dispatch_continues_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, flush_disk_type: str
) -> None:
    """No descriptor for a queue's file, once: dispatch ended, and with it all writing."""
    refused: list[str] = []
    create = MappedFileQueue.create_spare

    def refuse(queue: MappedFileQueue, *arguments: Any, **others: Any) -> Any:
        if "consumequeue" not in queue.directory.parts:
            return create(queue, *arguments, **others)
        refused.append(str(queue.directory))
        raise OSError(number, os.strerror(number), str(queue.directory))

    with rocketstore.open(tmp_path / "s", "x", flush_disk_type=flush_disk_type, **OPTIONS) as store:
        with monkeypatch.context() as patch:
            patch.setattr(MappedFileQueue, "create_spare", refuse)
            put_some(store, 10)
            with pytest.raises(OSError, match=os.strerror(number)) as caught:
                store.wait_dispatched()
            assert (caught.value.errno, caught.value.filename) == (number, refused[0])
            assert not store.wait_dispatched(0.001)
            wait_for(lambda: len(refused) > 2)
            put_some(store, 10, 10)
        assert store.wait_dispatched(LONG_S)
        check_all(store, 20)
    with rocketstore.open(tmp_path / "s", "r+") as store:
        assert store.recovery_report.clean
        check_all(store, 20)


def test_g06_marks_are_written_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No descriptor for the state file, once: writing ended."""
    refused: list[Path] = []
    often = {"flush_interval_consume_queue": 1, "flush_consume_queue_thorough_interval": 1}

    def refuse(path: Path, content: bytes) -> None:
        refused.append(path)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))

    with rocketstore.open(tmp_path / "s", "x", **OPTIONS, **often) as store:
        with monkeypatch.context() as patch:
            patch.setattr("rocketstore.directory.state.write_file", refuse)
            put_some(store, 10)
            with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
                store.flush()
            wait_for(lambda: len(refused) > 3)
            put_some(store, 10, 10)
        store.flush()
        assert store.wait_dispatched(LONG_S)
        check_all(store, 20)
    with rocketstore.open(tmp_path / "s", "r+") as store:
        assert store.recovery_report.clean
        check_all(store, 20)


def test_g06_cleaning_continues_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No descriptor at one look: the cleaning service ended, and with it all writing."""
    monkeypatch.setattr("rocketstore.cleaning.clean_service.FIRST_LOOK_S", 0.0)
    looks: list[str] = []
    options: dict[str, Any] = {
        **OPTIONS,
        "clean_resource_enable": True,
        "clean_resource_interval": 1,
        "file_reserved_time": 0,
        "delete_when": ";".join(map(str, range(24))),
    }

    def refuse(name: str) -> Callable[..., Any]:
        def call(*_: Any) -> Any:
            looks.append(name)
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), name)

        return call

    with rocketstore.open(tmp_path / "s", "x", **options) as store:
        with monkeypatch.context() as patch:
            for name in ("clean_log", "clean_followers"):
                patch.setattr(StoreCleaner, name, refuse(name))
            put_some(store, 300)
            wait_for(lambda: min(looks.count("clean_log"), looks.count("clean_followers")) > 1)
        wait_for(lambda: store.min_physical_offset > 0)
        put_some(store, 10, 300)


DESCRIPTOR_LIMIT = """
import errno, os, resource, sys
import rocketstore

_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
options = {options}
store = rocketstore.open(sys.argv[1], "x", start=False, **options)
number = refused = 0
while number < 300:
    if number % 50 == 25:
        used = max(int(name) for name in os.listdir("/dev/fd")) + 1
        resource.setrlimit(resource.RLIMIT_NOFILE, (used - 1, hard))
        try:
            rocketstore.open(sys.argv[1])
        except OSError as error:
            refused += error.errno == errno.EMFILE
    try:
        assert store.put("T", b"body %d" % number, number % 3, "Tag", f"k{{number}}").ok
        number += 1
        store.wait_dispatched()
    except OSError as error:
        assert error.errno == errno.EMFILE, error
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
store.wait_dispatched()
store.close()
print(refused)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts by /dev/fd")
def test_g06_no_descriptor_left(tmp_path: Path) -> None:
    done = run_python(DESCRIPTOR_LIMIT.format(options=OPTIONS), str(tmp_path / "s"))
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == 6
    with rocketstore.open(tmp_path / "s", "r+") as store:
        assert store.recovery_report.clean
        check_all(store, 300)


# --- G07 --------------------------------------------------------------------------------------

CUT_BY_OTHERS = """
import os, shutil, sys
import rocketstore
from rocketstore.errors import RocketStoreError

def ask(real, question, *arguments, **options):
    try:
        for message in question(*arguments, **options):
            assert bytes(message.raw) == real[message.physical_offset]
    except (RocketStoreError, OSError):
        pass

def change(root, folder, how):
    paths = sorted(os.path.join(at, name) for at, _, names in os.walk(os.path.join(root, folder))
                   for name in names)
    for path in paths[:1] if folder == "commitlog" else paths:
        if how == "delete":
            os.unlink(path)
        else:
            os.truncate(path, {"empty": 0, "page": 4096, "odd": 1001}[how])

def case(root, folder, how):
    store = rocketstore.open(root, mode)
    real = {m.physical_offset: bytes(m.raw) for m in store.scan()}
    change(root, folder, how)
    for number, offset in enumerate(real):
        ask(real, lambda: filter(None, [store.look_message_by_offset(offset)]))
        ask(real, store.find, topic="T", key=f"k{number}")
        ask(real, lambda: store.query_message("T", f"k{number}").messages)
    for queue_id in range(3):
        for offset in range(0, 120, 10):
            ask(real, lambda: store.get_message("g", "T", queue_id, offset).messages)
        ask(real, lambda: [][: store.get_offset_in_queue_by_time("T", queue_id, 5)])
    ask(real, store.scan)
    ask(real, store.scan, on_corruption="skip")
    if mode == "r":
        ask(real, lambda: store.refresh() or [])
    ask(real, lambda: store.verify() and [])
    try:
        store.close()
    except (RocketStoreError, OSError):
        pass

template, place, mode = sys.argv[1:]
for folder in ("commitlog", "consumequeue", "index"):
    for how in ("delete", "empty", "page", "odd"):
        print(folder, how, flush=True)
        root = os.path.join(place, folder + how)
        shutil.copytree(template, root)
        case(root, folder, how)
print("alive")
"""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("template") / "s"
    with rocketstore.open(root, "x", **OPTIONS) as store:
        put_some(store, 100)
    return root


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_g07_file_truncated_or_deleted_by_another(
    template: Path, tmp_path: Path, mode: str
) -> None:
    """Truncated queue files killed ``get_message`` by SIGBUS."""
    done = run_python(CUT_BY_OTHERS, str(template), str(tmp_path), mode)
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr[-2000:])
    assert done.stdout.endswith("alive\n")
    if mode == "r":
        whole = snapshot(template)
        for folder in ("commitlog", "consumequeue", "index"):
            for root in tmp_path.glob(f"{folder}*"):
                after = snapshot(root)
                others = {name: content for name, content in whole.items() if folder not in name}
                assert {name: after[name] for name in others} == others


# --- G08 --------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", ["before", "after"])
def test_g08_interrupted_while_waiting_for_the_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """What an interrupted put stored is unknown to its caller, but it is whole, and the store goes
    on."""
    wait = GroupCommitService.wait
    interrupt, interrupts = [True], 0

    def interrupted(service: GroupCommitService, *arguments: Any) -> Any:
        if interrupt[0] and moment == "before":
            _thread.interrupt_main()
        outcome = wait(service, *arguments)
        if interrupt[0] and moment == "after":
            _thread.interrupt_main()
        return outcome

    monkeypatch.setattr(GroupCommitService, "wait", interrupted)
    with rocketstore.open(tmp_path / "s", "x", flush_disk_type="SYNC_FLUSH", **OPTIONS) as store:
        for number in range(60):
            interrupt[0] = number % 3 != 0
            put = (b"body %d" % number, number % 3, "Tag", f"k{number}")
            if not interrupt[0]:
                assert store.put("T", *put).ok
                continue
            try:
                assert store.put("T", *put).ok
                for _ in range(1000):  # the interpreter looks for signals here at the latest
                    pass
            except KeyboardInterrupt:
                interrupts += 1
        assert interrupts == 40
        interrupt[0] = False
        put_some(store, 10, 60)
        assert store.wait_dispatched(120)
        check_all(store, 70)
    with rocketstore.open(tmp_path / "s", "r+") as store:
        assert store.recovery_report.clean
        check_all(store, 70)


def test_g08_interrupted_while_closing_waits_for_a_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything was closed under the service, which went on writing without the lock; or closing
    found it at work, and the lock was never given back."""
    begun, go_on = threading.Event(), threading.Event()
    shutdown = ServiceThread.shutdown
    interrupts: list[str] = []

    def listen(*_: Any) -> None:
        begun.set()
        assert go_on.wait(LONG_S)

    def interrupted_once(service: ServiceThread, *arguments: Any) -> None:
        if service.name == "reput":
            if not interrupts:
                interrupts.append(service.name)
                raise KeyboardInterrupt
            go_on.set()
        shutdown(service, *arguments)

    monkeypatch.setattr(ServiceThread, "shutdown", interrupted_once)
    store = rocketstore.open(tmp_path / "s", "x", arriving_listener=listen, **OPTIONS)
    services = store._writing().services
    try:
        put_some(store, 100)
        assert begun.wait(LONG_S)
        with pytest.raises(KeyboardInterrupt):
            store.close()
        assert not any(service.is_running for service in services)
    finally:
        go_on.set()
    with rocketstore.open(tmp_path / "s", "r+", **OPTIONS) as store:
        assert not store.recovery_report.clean
        check_all(store, 100)


def test_g08_an_interrupted_wait_for_a_service_can_be_repeated() -> None:
    """Behind an interrupt within ``Thread.join`` a live thread looked dead."""
    begun, go_on = threading.Event(), threading.Event()

    class Busy(ServiceThread):
        def run_once(self) -> bool:
            begun.set()
            assert go_on.wait(LONG_S)
            return False

    def interrupted_shutdown() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        service.shutdown()

    service = Busy("busy", 0.01, lambda error: None)
    service.start()
    try:
        assert begun.wait(LONG_S)
        before = signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            for _ in range(3):
                with pytest.raises(KeyboardInterrupt):
                    interrupted_shutdown()
        finally:
            signal.signal(signal.SIGALRM, before)
        with pytest.raises(rocketstore.ServiceFailedError, match="did not stop"):
            service.shutdown(0.01)
    finally:
        go_on.set()
    service.shutdown()
    assert not service.is_running


def test_g08_interrupted_while_closing_awaited_puts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store was closed for all who asked, and its lock never given back."""

    def interrupted(_: AsyncAppends) -> None:
        raise KeyboardInterrupt

    store = rocketstore.open(tmp_path / "s", "x", **OPTIONS)
    assert asyncio.run(store.aput("T", b"body 0", 0, "Tag", "k0")).ok
    monkeypatch.setattr(AsyncAppends, "close", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.close()
    with rocketstore.open(tmp_path / "s", "r+", **OPTIONS) as store:
        assert store.recovery_report.clean
        check_all(store, 1)


STORM = """
import signal, sys
import rocketstore

known = set()
armed = [False]

def strike(signal_number, frame):
    if armed[0]:
        armed[0] = False
        raise KeyboardInterrupt

store = rocketstore.open(sys.argv[1], "x", flush_disk_type="SYNC_FLUSH", **{options})
signal.signal(signal.SIGALRM, strike)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
for number in range(1, 401):
    try:
        armed[0] = True
        result = store.put("T", b"body %d" % number, number % 3, "Tag", f"k{{number}}")
        if result.ok:
            known.add(number)
        armed[0] = False
    except KeyboardInterrupt:
        pass
signal.setitimer(signal.ITIMER_REAL, 0)
store.close()
print(*sorted(known))
"""


def test_g08_storm_of_interrupts(tmp_path: Path) -> None:
    """However many there are, and wherever they strike: what was acknowledged is there, nothing is
    there twice, and nothing is half."""
    done = run_python(STORM.format(options=OPTIONS), str(tmp_path / "s"))
    assert done.returncode == 0, done.stderr
    known = {int(word) for word in done.stdout.split()}
    with rocketstore.open(tmp_path / "s", "r+") as store:
        bodies = [int(message.body.split()[1]) for message in store.scan()]
        assert bodies == sorted(set(bodies))
        assert known <= set(bodies) <= set(range(1, 401))
        assert store.verify().ok
        assert store.put("T", b"body 401").ok


STORM_OVER_ALL_CALLS = """
import random, signal, sys
import rocketstore
from rocketstore import Message

known = set()
armed = [False]
last = 0
pick = random.Random(int(sys.argv[2]))

def strike(signal_number, frame):
    if armed[0]:
        armed[0] = False
        raise KeyboardInterrupt

def put():
    global last
    last = number = last + 1
    if store.put("T", b"body %d" % number, number % 3, "Tag", f"k{{number}}").ok:
        known.add(number)

def put_many():
    global last
    numbers = range(last + 1, last + 6)
    last += 5
    messages = [Message("T", b"body %d" % number, queue_id=number % 3) for number in numbers]
    known.update(
        number for number, result in zip(numbers, store.put_many(messages)) if result.ok
    )

def read():
    store.wait_dispatched()
    store.get_message("g", "T", 0, 0)

def find():
    store.flush()
    list(store.find(topic="T", key=f"k{{last}}"))

flush = pick.choice(("SYNC_FLUSH", "ASYNC_FLUSH"))
interval = pick.choice((0.0003, 0.0007, 0.001, 0.003))
store = rocketstore.open(sys.argv[1], "x", flush_disk_type=flush, **{options})
signal.signal(signal.SIGALRM, strike)
signal.setitimer(signal.ITIMER_REAL, interval, interval)
for _ in range(400):
    call = pick.choice((put, put, put, put_many, read, find))
    try:
        armed[0] = True
        call()
        armed[0] = False
    except KeyboardInterrupt:
        pass
signal.setitimer(signal.ITIMER_REAL, 0)
store.close()
print(last, *sorted(known))
"""


@pytest.mark.parametrize("seed", range(4))
def test_g08_storm_over_all_calls(tmp_path: Path, seed: int) -> None:
    """Single puts, many at once, waiting for dispatch, reading, syncing: all are interrupted."""
    program = STORM_OVER_ALL_CALLS.format(options=OPTIONS)
    done = run_python(program, str(tmp_path / "s"), str(seed))
    assert done.returncode == 0, done.stderr
    last, *words = map(int, done.stdout.split())
    with rocketstore.open(tmp_path / "s", "r+") as store:
        bodies = [int(message.body.split()[1]) for message in store.scan()]
        assert bodies == sorted(set(bodies))
        assert set(words) <= set(bodies) <= set(range(1, last + 1))
        assert store.verify().ok
        assert store.put("T", b"one more").ok
