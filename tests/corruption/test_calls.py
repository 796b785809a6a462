"""Calls with arguments that cannot be: refused without a trace, and the next good call works."""

from __future__ import annotations

import os
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from corruption import crafted
from corruption.crafted import snapshot
from rocketstore import (
    ConfigError,
    ForkedStoreError,
    GetMessageStatus,
    Message,
    MessageBatch,
    PutMessageStatus,
    StoreClosedError,
    StoreLockedError,
    kernels,
)

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="stores are only read there")
REJECTED = (ValueError, TypeError)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rocketstore.DefaultMessageStore]:
    """One store for all calls: what is refused leaves no trace in it."""
    root = tmp_path_factory.mktemp("calls") / "store"
    with rocketstore.open(
        root, "x", clock=crafted.Clock(), start=False, **crafted.OPTIONS
    ) as opened:
        assert opened.put("Orders", b"first", 0, "Tag", "key").ok
        yield opened


@pytest.fixture(autouse=True)
def no_trace(request: pytest.FixtureRequest) -> Iterator[None]:
    """Nothing on disk changes during a test that uses the common store, and a put still works."""
    if "store" not in request.fixturenames:
        yield
        return
    store = request.getfixturevalue("store")
    assert store.wait_dispatched(10)
    before, end = snapshot(store.path), store.max_physical_offset
    next_offset = store.max_offset_in_queue("Orders", 0)
    yield
    assert snapshot(store.path) == before
    assert store.max_physical_offset == end
    result = store.put("Orders", b"good", 0)
    assert result.ok
    assert result.physical_offset == end
    assert store.wait_dispatched(10)
    assert store.max_offset_in_queue("Orders", 0) == next_offset + 1


def all_puts(store: Any, topic: Any, body: Any = b"x", **others: Any) -> list[Callable[[], Any]]:
    """The same message through every way to put one."""
    queue_id = others.get("queue_id", 0)
    properties = others.get("properties")

    def message() -> Message:
        return Message(topic, body, queue_id=queue_id, properties=properties)

    return [
        lambda: store.put(topic, body, queue_id, properties=properties),
        lambda: store.put_message(message()),
        lambda: store.put_many([Message("Orders", b"good"), message()][1:]),
        lambda: store.put_messages(
            MessageBatch(
                [Message("Orders", body, properties=properties)], topic=topic, queue_id=queue_id
            )
        ),
    ]


# --- F01: topics ------------------------------------------------------------------------------

BAD_TOPICS = ["", ".", "..", "../../x", "a/b", "/abs", "a\0b", "😀", "a b", "a\nb", "a.b", "über",
              "a\\b", "~", "$(x)", "a:b", "\ud800", " ", "a+b", "a$b", "%RETRY%a/b", "%LMQ%..",
              "%RETRY%../x", "\x7f"]  # fmt: skip


@pytest.mark.parametrize("topic", BAD_TOPICS, ids=ascii)
def test_f01_bad_topic(store: Any, topic: str) -> None:
    for call in all_puts(store, topic):
        with pytest.raises(REJECTED):
            call()
    with pytest.raises(REJECTED):
        store.put_columns(topic, memoryview(bytes(16)).cast("q"), b"")


@pytest.mark.parametrize("topic", [None, b"Orders", 5, ["Orders"], bytearray(b"x")], ids=repr)
def test_f01_topic_that_is_no_text(store: Any, topic: Any) -> None:
    for call in all_puts(store, topic):
        with pytest.raises(REJECTED):
            call()


@pytest.mark.parametrize("topic", ["x" * 128, "x" * 255, "x" * 70_000, "%RETRY%" + "x" * 300])
def test_f01_topic_that_is_too_long(store: Any, topic: str) -> None:
    for call in all_puts(store, topic):
        outcome = call()
        outcome = outcome[0] if isinstance(outcome, rocketstore.PutManyResult) else outcome
        assert outcome.status == PutMessageStatus.MESSAGE_ILLEGAL
        assert outcome.physical_offset is None


@pytest.mark.parametrize("topic", ["", ".", "..", "../..", "a/b", "/etc", "a\0b", "😀", "x" * 9999])
def test_f01_questions_about_bad_topics(store: Any, topic: str) -> None:
    """An unknown topic is answered as such and creates nothing."""
    result = store.get_message("g", topic, 0, 0)
    assert result.status == GetMessageStatus.NO_MESSAGE_IN_QUEUE
    assert store.queues(topic) == []
    assert store.max_offset_in_queue(topic, 0) == 0
    assert list(store.find(topic=topic, key="key")) == []
    assert store.query_message(topic, "key").messages == []
    assert len(store.queue_view(topic, 0)) == 0
    assert store.get_offset_in_queue_by_time(topic, 0, 1) == 0


# --- F02: bodies ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [None, "text", 5, 1.5, [1, 2], memoryview(bytes(20))[::2], object()],
    ids=["None", "text", "int", "float", "list", "strided view", "object"],
)
def test_f02_bad_body(store: Any, body: Any) -> None:
    for call in all_puts(store, "Orders", body):
        with pytest.raises((*REJECTED, BufferError)):
            call()
    with pytest.raises(REJECTED):
        store.put("Orders", body)


@pytest.mark.parametrize("version", ["4.9.8", "5.3.3", "5.5.0"])
def test_f02_body_sizes(tmp_path: Path, version: str) -> None:
    options = {**crafted.OPTIONS, "max_message_size": 2000, "broker_version": version}
    with rocketstore.open(tmp_path / "s", "x", **options) as store:
        for body in (b"", bytes(1), bytes(2000), memoryview(bytes(100)), bytearray(5)):
            result = store.put("Orders", body)
            assert result.ok
            message = store.look_message_by_offset(result.physical_offset)
            assert message is not None
            assert message.body == bytes(body)
        for body in (bytes(2001), bytes(2**20)):
            for call in all_puts(store, "Orders", body):
                outcome = call()
                if isinstance(outcome, rocketstore.PutManyResult):
                    outcome = outcome[0]
                assert outcome.status == PutMessageStatus.MESSAGE_ILLEGAL
                assert outcome.physical_offset is None
        assert store.verify().ok


# --- F03: properties, keys, tags --------------------------------------------------------------


@pytest.mark.parametrize("text", ["a\0b", "a\x01b", "a\x02b", "\x01", "\x02", "\0"], ids=ascii)
def test_f03_separators_in_texts(store: Any, text: str) -> None:
    for properties in ({text: "value"}, {"name": text}):
        for call in all_puts(store, "Orders", properties=properties):
            with pytest.raises(REJECTED):
                call()
    for others in ({"tags": text}, {"keys": text}, {"keys": [text]}, {"unique_key": text}):
        with pytest.raises(REJECTED):
            store.put("Orders", b"x", **others)


@pytest.mark.parametrize("value", [5, b"bytes", 1.5, ("x",), True], ids=repr)
def test_f03_properties_that_are_no_text(store: Any, value: Any) -> None:
    for properties in ({"name": value}, {value: "value"}):
        for call in all_puts(store, "Orders", properties=properties):
            with pytest.raises(REJECTED):
                call()
    with pytest.raises(REJECTED):
        store.put("Orders", b"x", tags=value)
    if not isinstance(value, tuple):
        with pytest.raises(REJECTED):
            store.put("Orders", b"x", keys=value)


def test_f03_properties_that_are_no_mapping(store: Any) -> None:
    for properties in (5, "a=b", [("a", "b")], b"a"):
        with pytest.raises(REJECTED):
            store.put("Orders", b"x", properties=properties)


@pytest.mark.parametrize("keys", [["a b"], [5], [None], [b"x"], ["a", "\0"], 5], ids=ascii)
def test_f03_bad_keys(store: Any, keys: Any) -> None:
    with pytest.raises(REJECTED):
        store.put("Orders", b"x", keys=keys)


def test_f03_a_name_given_twice(store: Any) -> None:
    for others in (
        {"tags": "a", "properties": {"TAGS": "b"}},
        {"keys": "a", "properties": {"KEYS": "b"}},
        {"delay_level": 1, "properties": {"DELAY": "2"}},
    ):
        with pytest.raises(ValueError, match=r"."):
            store.put("Orders", b"x", **others)


@pytest.mark.parametrize("version", ["4.9.8", "5.1.4", "5.3.3", "5.5.0"])
def test_f03_properties_that_are_too_long(tmp_path: Path, version: str) -> None:
    options = {**crafted.OPTIONS, "mapped_file_size_commit_log": 1 << 17}
    statuses = (PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED)
    with rocketstore.open(tmp_path / "s", "x", broker_version=version, **options) as store:
        for value in ("v" * 32768, "v" * 70_000, "ü" * 16_500, "😀" * 9000):
            result = store.put("Orders", b"x", properties={"name": value})
            assert result.status in statuses
            assert result.physical_offset is None
            result = store.put("Orders", b"x", keys=value)
            assert result.status in statuses
        assert store.max_physical_offset <= 0
        assert store.put("Orders", b"x", properties={"name": "v" * 32_700}).ok
        assert store.verify().ok


# --- F04: queue ids ---------------------------------------------------------------------------


@pytest.mark.parametrize("queue_id", [-1, 2**31, 2**63, 2**64, -(2**31), -(2**70)], ids=repr)
def test_f04_queue_id_out_of_range(store: Any, queue_id: int) -> None:
    for call in all_puts(store, "Orders", queue_id=queue_id):
        with pytest.raises(REJECTED):
            call()
    result = store.get_message("g", "Orders", queue_id, 0)
    assert result.status == GetMessageStatus.NO_MESSAGE_IN_QUEUE


@pytest.mark.parametrize("queue_id", [True, 1.0, "0", None, b"0"], ids=repr)
def test_f04_queue_id_that_is_no_int(store: Any, queue_id: Any) -> None:
    for call in all_puts(store, "Orders", queue_id=queue_id):
        with pytest.raises(REJECTED):
            call()
    with pytest.raises(REJECTED):
        store.get_message("g", "Orders", queue_id, 0)


# --- F05: reading at places where nothing is --------------------------------------------------

NOWHERE = [-1, -(2**63), 2**63 - 1, 2**63, 2**64, -(2**64), 10**30, 1, 8, 50, 2**31]


@pytest.mark.parametrize("offset", NOWHERE)
def test_f05_reading_where_no_record_starts(store: Any, offset: int) -> None:
    assert store.look_message_by_offset(offset) is None
    if offset < 0 or offset >= store.max_physical_offset:
        assert list(store.scan(start=max(offset, -1), stop=offset + 10)) == []
    else:
        with pytest.raises(ValueError, match=str(offset)):
            list(store.scan(start=offset, stop=offset + 10))
    result = store.get_message("g", "Orders", 0, offset)
    if 0 <= offset < result.max_offset:
        assert result.messages[0].queue_offset == offset
    else:
        assert result.status != GetMessageStatus.FOUND
        assert len(result.messages) == 0
        assert 0 <= result.next_begin_offset <= result.max_offset


def test_f05_every_offset_of_the_log(store: Any) -> None:
    """Only records' starts answer, with that very record."""
    starts = {m.physical_offset: bytes(m.raw) for m in store.scan()}
    for offset in range(-3, store.max_physical_offset + 50):
        message = store.look_message_by_offset(offset)
        assert (message is not None) == (offset in starts)
        if message is not None:
            assert bytes(message.raw) == starts[offset]


@pytest.mark.parametrize("msg_id", ["", "x", "0" * 31, "0" * 33, "0" * 57, "g" * 32, "-" * 32,
                                    "0x" + "0" * 30, " " * 32, "\u0660" * 32])  # fmt: skip
def test_f05_text_that_is_no_message_id(store: Any, msg_id: str) -> None:
    with pytest.raises(ValueError, match="message id"):
        store.look_message_by_id(msg_id)


def test_f05_message_ids_of_nothing(store: Any) -> None:
    for offset in (2**63 - 1, 2**64 - 1, 1, 2**63):
        assert store.look_message_by_id("0A000007" + "00002A9F" + f"{offset:016X}") is None
    real = next(iter(store.scan())).msg_id
    assert store.look_message_by_id(real.lower()) is not None
    assert store.look_message_by_id("01020304" + real[8:]) is None  # another broker's


@pytest.mark.parametrize("wrong", [True, 1.0, "0", None, b"0"], ids=repr)
def test_f05_places_that_are_no_ints(store: Any, wrong: Any) -> None:
    for call in (
        lambda: store.look_message_by_offset(wrong),
        lambda: store.get_message("g", "Orders", 0, wrong),
        lambda: store.get_message("g", "Orders", 0, 0, wrong),
        lambda: store.get_offset_in_queue_by_time("Orders", 0, wrong),
        lambda: store.query_message("Orders", "key", wrong),
    ):
        with pytest.raises(TypeError):
            call()
    if wrong is not None:
        for others in ({"start": wrong}, {"stop": wrong}, {"begin": wrong}, {"end": wrong}):
            with pytest.raises(TypeError):
                list(store.scan(**others))


@pytest.mark.parametrize("count", [0, -1, 2**31, 2**63, 2**64, -(2**63)])
def test_f05_counts_out_of_range(store: Any, count: int) -> None:
    """No count makes a huge allocation."""
    if count < 0:
        with pytest.raises(ValueError, match="max_count"):
            store.get_message("g", "Orders", 0, 0, count)
    else:
        assert len(store.get_message("g", "Orders", 0, 0, count).messages) <= 32
    assert len(store.query_message("Orders", "key", count).messages) <= 64


# --- F06: configuration -----------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["a", "x"])
@pytest.mark.parametrize("size", [0, -1, 127, 2**31, 2**63, -(2**31), True, 1.5, "65536"], ids=repr)
def test_f06_segment_size(tmp_path: Path, size: Any, mode: str) -> None:
    with pytest.raises(REJECTED):
        rocketstore.open(tmp_path / "s", mode, mapped_file_size_commit_log=size)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", [128, 129, 1000, 4095, 4096, 4097, 65537])
def test_f06_any_other_segment_size_is_legal(tmp_path: Path, size: int) -> None:
    options = {**crafted.OPTIONS, "mapped_file_size_commit_log": size}
    with rocketstore.open(tmp_path / "s", "x", **options) as store:
        results = [store.put("T", bytes(10)) for _ in range(20)]
        fits = size >= 91 + 1 + 10 + 8
        assert all(result.ok for result in results) == fits
    with rocketstore.open(tmp_path / "s", "r+") as store:
        assert len(list(store.scan())) == (20 if fits else 0)
        assert store.verify().ok
    for path in (tmp_path / "s" / "commitlog").glob("*"):
        assert path.stat().st_size == size


@pytest.mark.parametrize(
    "options",
    [
        {"mapped_file_size_consume_queue": 0},
        {"mapped_file_size_consume_queue": -20},
        {"max_hash_slot_num": 0, "max_index_num": 10},
        {"max_hash_slot_num": 10, "max_index_num": -1},
        {"max_hash_slot_num": 10},
        {"store_host": "nowhere"},
        {"broker_version": "3.2.6"},
        {"broker_version": "six"},
        {"flush_disk_type": "NEVER"},
        {"no_such_option": 1},
        {"message_delay_level": "soon"},
        {"timezone": "Moon/Crater"},
    ],
    ids=repr,
)
def test_f06_other_options(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(REJECTED):
        rocketstore.open(tmp_path / "s", "x", **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", ["", "w", "rw", "r+b", None, 0], ids=repr)
def test_f06_modes(tmp_path: Path, mode: Any) -> None:
    with pytest.raises(REJECTED):
        rocketstore.open(tmp_path / "s", mode)
    assert list(tmp_path.iterdir()) == []


# --- F07: closing -----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_f07_use_after_close(tmp_path: Path, mode: str) -> None:
    root = tmp_path / "store"
    crafted.build(root, count=10)
    store = rocketstore.open(root, mode)
    messages = list(store.scan())
    bodies = [m.body for m in messages]
    views = [m.body_view for m in messages]
    iterator = store.scan()
    next(iterator)
    put = store.put
    store.close()
    store.close()
    calls: list[Callable[[], Any]] = [
        lambda: store.get_message("g", "Orders", 0, 0),
        lambda: store.query_message("Orders", "k0"),
        lambda: list(store.find(topic="Orders", key="k0")),
        lambda: list(store.scan()),
        lambda: store.look_message_by_offset(0),
        lambda: store.topics(),
        lambda: store.queue_view("Orders", 0),
        lambda: store.max_physical_offset,
        lambda: store.wait_dispatched(0),
        lambda: store.verify(),
        lambda: store.runtime_info(),
        lambda: store.__enter__(),
    ]
    calls += [lambda: put("Orders", b"x"), lambda: store.flush()] if mode == "r+" else []
    for call in calls:
        with pytest.raises(StoreClosedError):
            call()
    assert [m.body for m in messages] == bodies
    assert [bytes(view) for view in views] == bodies
    assert store.closed


def test_f07_iterator_outlives_the_store(tmp_path: Path) -> None:
    """An iterator in use ends or raises; it never crashes."""
    root = tmp_path / "store"
    crafted.build(root)
    store = rocketstore.open(root)
    iterator = store.scan()
    first = next(iterator)
    store.close()
    try:
        rest = list(iterator)
    except StoreClosedError:
        rest = []
    assert all(m.store_size > 0 for m in [first, *rest])


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_f07_close_right_before_a_read_touches_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """A call that had got a queue file's mapping when another thread closed the store raised
    ``ValueError``: the mapping was closed. Now it is there for the call, and goes with it."""
    root = tmp_path / "store"
    crafted.build(root, count=20)
    before = kernels.mapping.mapped_nbytes()
    for name in ("select_messages", "read_units", "filter_units"):
        store = rocketstore.open(root, mode)
        with monkeypatch.context() as patch:
            original = getattr(kernels.consume_queue, name)

            def close_and_call(
                *arguments: Any, close: Any = store.close, original: Any = original
            ) -> Any:
                close()
                return original(*arguments)

            patch.setattr(kernels.consume_queue, name, close_and_call)
            try:
                store.get_message("g", "Orders", 0, 0)
                store.filter_units("Orders", 0, "TagA")
                store.get_offset_in_queue_by_time("Orders", 0, 0)
            except StoreClosedError:
                pass
            assert store.closed
        assert kernels.mapping.mapped_nbytes() == before


@pytest.mark.timeout(60)
@pytest.mark.parametrize("round_number", range(4))
def test_f07_close_while_others_work(tmp_path: Path, round_number: int) -> None:
    root = tmp_path / "store"
    crafted.build(root, count=20)
    store = rocketstore.open(root, "r+")
    failures: list[BaseException] = []
    acknowledged: list[int] = []

    def work(step: Callable[[], None]) -> None:
        try:
            while True:
                step()
        except StoreClosedError:
            pass
        except BaseException as error:  # noqa: BLE001 - handed to the test's own thread
            failures.append(error)

    def put() -> None:
        result = store.put("Orders", os.urandom(50))
        if result.ok:
            acknowledged.append(result.physical_offset)
        elif result.status == PutMessageStatus.SERVICE_NOT_AVAILABLE:
            raise StoreClosedError("refused while closing")

    def read() -> None:
        for message in store.get_message("g", "Orders", 0, 0).messages:
            assert len(message.body) == message.body_view.nbytes

    steps = [put, put, read, lambda: list(store.scan()), lambda: store.look_message_by_offset(0)]
    threads = [threading.Thread(target=work, args=(step,)) for step in steps]
    for thread in threads:
        thread.start()
    time.sleep(0.02 * round_number)
    store.close()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert not failures, failures
    with rocketstore.open(root, "r+") as again:
        assert again.recovery_report.clean
        offsets = {m.physical_offset for m in again.scan()}
        assert offsets.issuperset(acknowledged)
        assert again.verify().ok


# --- F08: forks -------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork is needed")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("mode", ["r", "r+"])
def test_f08_every_call_in_a_forked_child_is_refused(tmp_path: Path, mode: str) -> None:
    root = tmp_path / "store"
    crafted.build(root, count=10)
    store = rocketstore.open(root, mode)
    put = store.put
    calls: list[Callable[[], Any]] = [
        lambda: store.get_message("g", "Orders", 0, 0),
        lambda: list(store.scan()),
        lambda: store.look_message_by_offset(0),
        lambda: store.topics(),
    ]
    if mode == "r+":
        calls += [
            lambda: store.put("Orders", b"x"),
            lambda: put("Orders", b"x"),
            lambda: store.put_message(Message("Orders", b"x")),
            lambda: store.put_many([Message("Orders", b"x")]),
            lambda: store.flush(),
            lambda: store.wait_dispatched(1),
        ]
    child = os.fork()
    if child == 0:
        status = 0
        for call in calls:
            try:
                call()
                status = 1
            except ForkedStoreError:
                continue
            except BaseException:  # noqa: BLE001 - the exit status reports it
                status = 2
        store.close()  # a no-op here
        os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    if mode == "r+":
        with pytest.raises(StoreLockedError):
            rocketstore.open(root, "r+")
        assert store.put("Orders", b"after").ok
    assert len(list(store.scan())) == (11 if mode == "r+" else 10)
    store.close()
    with rocketstore.open(root, "r+") as again:
        assert again.recovery_report.clean
        assert again.verify().ok


# --- F09: bodies that change under the put ----------------------------------------------------


@pytest.mark.timeout(60)
def test_f09_body_changed_by_another_thread(tmp_path: Path) -> None:
    """Which of the bytes are stored is open; that CRC and bytes agree is not."""
    options = {**crafted.OPTIONS, "mapped_file_size_commit_log": 1 << 20}
    body = bytearray(100_000)
    done = threading.Event()

    def change() -> None:
        number = 0
        while not done.is_set():
            number += 1
            body[:] = bytes([number % 256]) * len(body)

    changer = threading.Thread(target=change)
    with rocketstore.open(tmp_path / "s", "x", **options) as store:
        changer.start()
        try:
            for _ in range(60):
                assert store.put("Orders", body).ok
                assert store.put_message(Message("Orders", body)).ok
        finally:
            done.set()
            changer.join()
        messages = list(store.scan())
        assert len(messages) == 120
        for message in messages:
            assert zlib.crc32(message.body) & 0x7FFFFFFF == message.body_crc
        assert store.verify().ok
    with rocketstore.open(tmp_path / "s", "r+") as store:
        assert len(list(store.scan())) == 120


def test_config_error_is_a_value_error() -> None:
    assert issubclass(ConfigError, ValueError)
