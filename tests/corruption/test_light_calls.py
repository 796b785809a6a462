"""Bad input in what light queues, inner batches and whole-record CRCs brought to a put: refused
without a trace, and the next good call works."""

from __future__ import annotations

import os
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from corruption import crafted
from corruption.crafted import snapshot
from rocketstore import Message, PutMessageStatus, formats

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="stores are only read there")
REJECTED = (ValueError, TypeError)
INNER = formats.SYS_FLAG_INNER_BATCH
OPTIONS: dict[str, Any] = {
    **crafted.OPTIONS,
    "enable_lmq": True,
    "enable_multi_dispatch": True,
    "enabled_append_prop_crc": True,
    "topic_attributes": {"BCQ": {"queue.type": "BatchCQ"}},
}


@pytest.fixture(scope="module", params=["4.9.8", "5.3.3"])
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[rocketstore.DefaultMessageStore]:
    """One store for all calls: what is refused leaves no trace in it."""
    root = tmp_path_factory.mktemp("calls") / "store"
    options = {**OPTIONS, "broker_version": request.param}
    options["enabled_append_prop_crc"] = request.param != "4.9.8"
    with rocketstore.open(root, "x", clock=crafted.Clock(), start=False, **options) as opened:
        assert opened.put("Orders", b"first", properties=names("%LMQ%a")).ok
        yield opened


@pytest.fixture
def no_trace(store: rocketstore.DefaultMessageStore) -> Iterator[None]:
    """Nothing on disk changes during the test, and a put into the same light queue still works."""
    assert store.wait_dispatched(120)
    before, end = snapshot(store.path), store.max_physical_offset
    light_offset = store.max_offset_in_queue("%LMQ%a", 0)
    yield
    assert snapshot(store.path) == before
    assert store.max_physical_offset == end
    result = store.put("Orders", b"good", properties=names("%LMQ%a"))
    assert result.ok
    assert store.wait_dispatched(120)
    assert store.max_offset_in_queue("%LMQ%a", 0) == light_offset + 1
    found = store.get_message("g", "%LMQ%a", 0, light_offset).messages
    assert [message.physical_offset for message in found] == [end]


def names(value: Any) -> dict[str, Any]:
    return {formats.PROPERTY_INNER_MULTI_DISPATCH: value}


def all_puts(store: Any, **values: Any) -> list[Callable[[], Any]]:
    """The same message through every way to put one alone."""
    topic = values.pop("topic", "Orders")
    bounds = memoryview(bytes(8)).cast("i")

    def message() -> Message:
        return Message(topic, b"x", **values)

    return [
        lambda: store.put(topic, b"x", **values),
        lambda: store.put_message(message()),
        lambda: store.put_many([Message("Orders", b"good"), message()][1:])[0],
        lambda: store.put_columns(topic, bounds, b"", **values)[0],
    ]


BAD_NAMES = ["/abs", "../../x", "a/b", "%LMQ%a/../b", "%LMQ%a,..", ".,%LMQ%a", ",%LMQ%a", "a,,b",
             ",", ",,", "%LMQ%a\n", "\x7f", "%LMQ%\x03", "%LMQ%\x1f,x"]  # fmt: skip


@pytest.mark.parametrize("value", BAD_NAMES, ids=ascii)
def test_f01_names_that_can_be_no_queue(store: Any, no_trace: None, value: str) -> None:
    for call in all_puts(store, properties=names(value)):
        with pytest.raises(ValueError, match="INNER_MULTI_DISPATCH"):
            call()


@pytest.mark.parametrize("value", ["%LMQ%" + "x" * 251, "%LMQ%" + "é" * 126, "%LMQ%" + "x" * 9999])
def test_f01_names_that_are_too_long(store: Any, no_trace: None, value: str) -> None:
    for call in all_puts(store, properties=names(value)):
        outcome = call()
        assert outcome.status == PutMessageStatus.MESSAGE_ILLEGAL
        assert outcome.physical_offset is None


@pytest.mark.parametrize("name", ["%LMQ%über", "%LMQ%😀", "%LMQ%a b", "%LMQ%$T$x", "%LMQ%:\\"])
def test_f01_names_that_only_look_odd(store: Any, name: str) -> None:
    """A light queue's name is no topic that a broker checks: it need not be RocketMQ's ASCII."""
    offset = store.max_offset_in_queue(name, 0)
    assert store.put("Orders", b"odd", properties=names(f"{name},%LMQ%a,")).ok
    assert store.wait_dispatched(120)
    assert [m.body for m in store.get_message("g", name, 0, offset).messages] == [b"odd"]
    assert name in store.topics()


@pytest.mark.parametrize(
    "value", [None, 5, b"%LMQ%a", ["%LMQ%a"], "%LMQ%\x00", "%LMQ%a\x01", "\x02"], ids=repr
)
def test_f03_names_that_are_no_property(store: Any, no_trace: None, value: Any) -> None:
    for call in all_puts(store, properties=names(value)):
        with pytest.raises(REJECTED):
            call()


def test_f03_names_beyond_the_limit_of_properties(store: Any, no_trace: None) -> None:
    for call in all_puts(store, properties=names("%LMQ%a," * 4000 + "%LMQ%a")):
        assert not call().appended
    many = ",".join(["%LMQ%a"] * 4000)
    assert len(many) < formats.MAX_PROPERTIES_NBYTES
    for call in all_puts(store, properties=names(many)):
        assert not call().appended  # with the offsets it is too long


@pytest.mark.parametrize("count", ["0", "-1", "32768", "", "x", "1.0", " 1", "٣", "9" * 5000])
def test_f03_counts_of_inner_batches(tmp_path: Path, count: str) -> None:
    with rocketstore.open(
        tmp_path / "store", "x", start=False, broker_version="5.3.3", **OPTIONS
    ) as store:
        for call in all_puts(
            store, topic="BCQ", sys_flag=INNER, properties={formats.PROPERTY_INNER_NUM: count}
        ):
            assert call().status == PutMessageStatus.MESSAGE_ILLEGAL
        assert store.max_physical_offset == 0
        good = store.put("BCQ", b"", sys_flag=INNER, properties={formats.PROPERTY_INNER_NUM: "2"})
        assert good.ok


@pytest.mark.parametrize("bad", [-1, True, "5", 1.0, None])
def test_f06_the_limit_of_light_queues_is_a_number(tmp_path: Path, bad: Any) -> None:
    with pytest.raises(rocketstore.ConfigError, match="max_lmq_consume_queue_num"):
        rocketstore.open(tmp_path / "store", "x", max_lmq_consume_queue_num=bad)
    assert not (tmp_path / "store").exists()


def test_f07_after_closing(tmp_path: Path) -> None:
    store = rocketstore.open(tmp_path / "store", "x", broker_version="5.3.3", **OPTIONS)
    assert store.put("Orders", b"x", properties=names("%LMQ%a")).ok
    store.close()
    store.close()
    for call in all_puts(store, properties=names("%LMQ%a")):
        with pytest.raises(rocketstore.StoreClosedError):
            call()
    with rocketstore.open(tmp_path / "store", "r+", **OPTIONS) as again:
        result = again.put("Orders", b"y", properties=names("%LMQ%a,%LMQ%b"))
        message = again.look_message_by_offset(result.physical_offset)
        assert message is not None
        assert message.properties["INNER_MULTI_QUEUE_OFFSET"] == "1,0"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_f08_in_a_forked_child(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "store", "x", broker_version="5.3.3", **OPTIONS) as store:
        calls = all_puts(store, properties=names("%LMQ%a"))
        child = os.fork()
        if child == 0:
            status = 0
            for call in calls:
                try:
                    call()
                    status = 1
                except rocketstore.ForkedStoreError:
                    continue
            os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert store.put("Orders", b"x", properties=names("%LMQ%a")).queue_offset == 0


def test_f09_body_changed_by_another_thread(tmp_path: Path) -> None:
    """The CRCs of body and record are those of the bytes that were stored."""
    body, done = bytearray(50_000), threading.Event()

    def change() -> None:
        number = 0
        while not done.is_set():
            number += 1
            body[:] = bytes([number % 256]) * len(body)

    changer = threading.Thread(target=change)
    options = {**OPTIONS, "mapped_file_size_commit_log": 1 << 20, "force_verify_prop_crc": True}
    with rocketstore.open(tmp_path / "s", "x", broker_version="5.3.3", **options) as store:
        changer.start()
        try:
            for _ in range(30):
                assert store.put("Orders", body, properties=names("%LMQ%a")).ok
                assert store.put("Orders", body).ok
        finally:
            done.set()
            changer.join()
        found = list(store.scan())
        assert len(found) == 60
        for message in found:
            raw = bytes(message.raw)
            assert zlib.crc32(message.body) & 0x7FFFFFFF == message.body_crc
            crc = zlib.crc32(raw[: -formats.PROPERTY_CRC32_NBYTES]) & 0x7FFFFFFF
            assert message.properties["__CRC32#"] == f"{crc:010d}"[::-1]
        assert store.verify().ok
