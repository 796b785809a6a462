"""Calls that are wrong in ways close to those of ``test_calls.py``: numbers, hosts, columns,
filters, clocks and paths."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from corruption import crafted
from corruption.crafted import snapshot
from rocketstore import GetMessageStatus, Message, MessageBatch, PutMessageStatus, TagFilter

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="stores are only read there")
REJECTED = (ValueError, TypeError)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One open store; every test leaves it as it was."""
    root = tmp_path_factory.mktemp("calls") / "store"
    crafted.build(root, 16)
    with rocketstore.open(root, "r+") as store:
        yield store


@pytest.fixture
def store(shared: Any) -> Iterator[Any]:
    """The store; nothing was appended, and the next good put works."""
    end, topics = shared.max_physical_offset, shared.topics()
    yield shared
    assert shared.max_physical_offset == end
    assert shared.topics() == topics
    assert shared.put("Orders", b"next").ok


# --- F04: numbers -----------------------------------------------------------------------------

WRONG_NUMBERS = [
    *((name, value) for name in ("born_timestamp", "prepared_transaction_offset")
      for value in (2**63, -(2**63) - 1, 2**64, 1.0, True, "1")),
    *((name, value) for name in ("flag", "sys_flag", "reconsume_times")
      for value in (2**31, -(2**31) - 1, 2**32, 1.0, True, "1", None)),
    *(("delay_level", value) for value in (-1, 2**31, 2**64, 1.0, True, "1", None)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), WRONG_NUMBERS, ids=repr)
def test_f04_number_out_of_its_field(store: Any, name: str, value: Any) -> None:
    with pytest.raises(REJECTED, match=name):
        store.put("Orders", b"x", **{name: value})


@pytest.mark.parametrize("queue_id", [True, 1.0, "0", None, b"0"], ids=repr)
def test_f04_questions_with_queue_ids_that_are_no_ints(store: Any, queue_id: Any) -> None:
    """1.0 and True were taken for queue 1, and others for a queue that is not there."""
    for ask in (
        store.min_offset_in_queue,
        store.max_offset_in_queue,
        store.queue_view,
        lambda topic, queue_id: store.filter_units(topic, queue_id, "Tag0"),
    ):
        with pytest.raises(TypeError, match="queue_id"):
            ask("Orders", queue_id)


WRONG_HOSTS = [
    "", ":", "10.0.0.1", "host:1", "10.0.0.1:", "10.0.0.1:65536", "10.0.0.1:-1", "10.0.0.1:+1",
    "10.0.0.1:1:2", "256.0.0.1:1", "10.0.0:1", "10.0.0.1.2:1", "010.0.0.1:1", "10.0.0.1: 1",
    "10.0.0.1:\u0663", "[::1]", "[::gg]:1", "[::1]:70000", "::1:5", "[10.0.0.1]:1",
    "[fe80::1%eth0]:1", "[::1:1", "\ud800:1", "10.0.0.1:1\0", 5, b"10.0.0.1:1", ("10.0.0.1", 1),
]  # fmt: skip


@pytest.mark.parametrize("host", WRONG_HOSTS, ids=ascii)
def test_f04_hosts_that_are_none(store: Any, host: Any) -> None:
    for name in ("born_host", "store_host"):
        with pytest.raises(REJECTED, match="host"):
            store.put("Orders", b"x", **{name: host})
    with pytest.raises(REJECTED, match="host"):
        store.put_message(Message("Orders", b"x", born_host=host))


# --- F02: columns -----------------------------------------------------------------------------


def numbers(*values: int, kind: str = "q") -> memoryview:
    width = {"q": 8, "i": 4, "h": 2}[kind]
    content = b"".join(value.to_bytes(width, sys.byteorder, signed=True) for value in values)
    return memoryview(content).cast(kind)


COLUMNS: dict[str, tuple[Any, Any]] = {
    "falling": (numbers(0, 4, 2), bytes(8)),
    "negative": (numbers(-1, 4), bytes(8)),
    "beyond the data": (numbers(0, 9), bytes(8)),
    "far beyond": (numbers(0, 2**62), bytes(8)),
    "lowest and highest": (numbers(-(2**63), 2**63 - 1), bytes(8)),
    "beyond 32 bits": (numbers(2**32, 2**32 + 4), bytes(8)),
    "two bytes wide": (numbers(0, 4, kind="h"), bytes(8)),
    "floats": (memoryview(bytes(16)).cast("d"), bytes(8)),
    "unsigned": (memoryview(bytes(16)).cast("Q"), bytes(8)),
    "bytes": (bytes(16), bytes(8)),
    "strided": (numbers(0, 1, 4, 5)[::2], bytes(8)),
    "two dimensions": (memoryview(bytes(32)).cast("q", (2, 2)), bytes(8)),
    "none": (numbers(), b""),
    "a list": ([0, 4], bytes(8)),
    "None": (None, bytes(8)),
    "data is text": (numbers(0, 4), "abcd"),
    "data is strided": (numbers(0, 2), memoryview(bytes(8))[::2]),
    "data is None": (numbers(0, 4), None),
}


@pytest.mark.parametrize(("offsets", "data"), COLUMNS.values(), ids=COLUMNS.keys())
def test_f02_columns_that_are_none(store: Any, offsets: Any, data: Any) -> None:
    with pytest.raises((*REJECTED, BufferError)):
        store.put_columns("Orders", offsets, data)


def test_f02_lists_that_are_none(store: Any) -> None:
    wrong: list[Callable[[], Any]] = [
        lambda: store.put_many(None),
        lambda: store.put_many([1, 2]),
        lambda: store.put_many([None]),
        lambda: store.put_many([MessageBatch([Message("Orders")], topic="Orders")]),
        lambda: store.put_messages(MessageBatch([], topic="Orders")),
        lambda: store.put_messages([Message("Orders")]),
        lambda: store.put_messages(None),
        lambda: store.put_message(None),
        lambda: store.put_message({"topic": "Orders"}),
        lambda: store.put_message("Orders"),
    ]
    for call in wrong:
        with pytest.raises(REJECTED):
            call()


def test_f02_an_iterable_that_raises_stores_all_or_nothing_of_what_it_gave(tmp_path: Path) -> None:
    """What the caller's iterable raises comes through; the store goes on."""

    def messages() -> Iterator[Message]:
        yield Message("Orders", b"first")
        raise KeyError("mine")

    with rocketstore.open(tmp_path / "s", "x", **crafted.OPTIONS) as store:
        with pytest.raises(KeyError, match="mine"):
            store.put_many(messages())
        assert store.put("Orders", b"next").ok
        bodies = [m.body for m in store.scan()]
        assert bodies in ([b"next"], [b"first", b"next"])
        assert store.verify().ok


# --- F05: questions ---------------------------------------------------------------------------


def test_f05_times_beyond_64_bits(store: Any) -> None:
    """They ended in an OverflowError; they are times like others, where nothing is."""
    wide = store.query_message("Orders", "k1", 64, -(2**64), 2**64).messages
    assert [m.keys for m in wide] == [m.keys for m in store.query_message("Orders", "k1").messages]
    assert len(wide) > 0
    for begin, end in ((2**63, 2**64), (2**64, 0), (-(2**70), -(2**64)), (2**63 - 1, -(2**63))):
        assert store.query_message("Orders", "k1", 64, begin, end).messages == []
        assert list(store.find(topic="Orders", key="k1", begin=begin, end=end)) == []
        assert list(store.scan(begin=begin, end=end)) == []
    for time in (-(2**63), -(2**64), 2**63, 2**64):
        low, high = store.min_offset_in_queue("Orders", 0), store.max_offset_in_queue("Orders", 0)
        for boundary in (None, "lower", "upper"):
            answer = store.get_offset_in_queue_by_time("Orders", 0, time, boundary=boundary)
            assert low <= answer <= high


@pytest.mark.parametrize("wrong", [True, 1.0, "0", None, b"0"], ids=repr)
def test_f05_times_that_are_no_ints(store: Any, wrong: Any) -> None:
    for others in ({"begin": wrong}, {"end": wrong}):
        with pytest.raises(TypeError):
            store.query_message("Orders", "k1", **others)


@pytest.mark.parametrize("keys", ["k1", 5, None, b"k1"], ids=repr)
def test_f05_keys_that_are_no_sequence_of_texts(store: Any, keys: Any) -> None:
    if isinstance(keys, bytes):
        assert store.index_offsets("Orders", [])[1].tolist() == [0]
        return
    with pytest.raises(TypeError):
        store.index_offsets("Orders", keys)


@pytest.mark.parametrize("wrong", [5, b"k1", ["k1"], 1.0, True], ids=repr)
def test_f05_conditions_that_are_no_texts(store: Any, wrong: Any) -> None:
    """They found nothing, as if nothing were there."""
    for others in (
        {"topic": "Orders", "key": wrong},
        {"topic": "Orders", "unique_key": wrong},
        {"topic": "Orders", "tags": wrong},
        {"topic": wrong, "key": "k1"},
        {"topic": wrong},
    ):
        with pytest.raises(TypeError):
            list(store.find(**others))


class Raising:
    """A filter whose owner made a mistake."""

    def is_matched_by_consume_queue(self, tags_code: int, ext: Any) -> bool:
        raise KeyError("mine")

    def is_matched_by_commit_log(self, message: Any) -> bool:
        raise KeyError("mine")


@pytest.mark.parametrize("wrong", [5, TagFilter, ["TagA"], b"x"], ids=ascii)
def test_f05_filters_that_are_none(store: Any, wrong: Any) -> None:
    """They ended in an AttributeError, and only where a queue had messages."""
    if wrong is TagFilter:
        wrong = type("Nothing", (), {})()
    for topic in ("Orders", "Unknown"):
        with pytest.raises(TypeError, match="filter"):
            store.get_message("g", topic, 0, 0, filter=wrong)


def test_f05_a_filter_that_raises_is_not_hidden(store: Any) -> None:
    with pytest.raises(KeyError, match="mine"):
        store.get_message("g", "Orders", 0, 0, filter=Raising())
    assert store.get_message("g", "Orders", 0, 0).status == GetMessageStatus.FOUND


# --- F06: opening -----------------------------------------------------------------------------

WRONG_OPTIONS: list[dict[str, Any]] = [
    {"store_host": "nowhere"}, {"store_host": 5}, {"timezone": "Mars/Olympus"},
    {"timezone": "../../etc/passwd"}, {"timezone": "/etc/localtime"}, {"timezone": 5},
    {"broker_version": "abc"}, {"broker_version": "3.2.6"}, {"broker_version": 5},
    {"broker_version": "99.0.0"}, {"flush_disk_type": "MAYBE"}, {"flush_disk_type": 7},
    {"config": {}}, {"clock": 5}, {"nonsense": 1}, {"derive": "tail"},
    {"max_hash_slot_num": 0, "max_index_num": 10}, {"max_hash_slot_num": 10, "max_index_num": -1},
    {"max_hash_slot_num": 2**40, "max_index_num": 10}, {"max_message_size": -1},
    {"mapped_file_size_consume_queue": 0}, {"mapped_file_size_consume_queue": 2**40},
]  # fmt: skip


@pytest.mark.parametrize("options", WRONG_OPTIONS, ids=str)
def test_f06_wrong_options_make_nothing(tmp_path: Path, options: dict[str, Any]) -> None:
    for mode in ("x", "a"):
        with pytest.raises(REJECTED):
            rocketstore.open(tmp_path / "s", mode, **options)
        assert not (tmp_path / "s").exists()


CLOCKS: dict[str, Any] = {
    "None": None, "a float": 1.5, "a text": "0", "a bool": True, "2**63": 2**63, "-2**63-1":
    -(2**63) - 1,
}  # fmt: skip


@pytest.mark.parametrize("time", CLOCKS.values(), ids=CLOCKS.keys())
def test_f06_clock_that_gives_no_time(tmp_path: Path, time: Any) -> None:
    """Nothing is stored under such a time; with a good clock the store works."""
    root = tmp_path / "s"
    crafted.build(root, 8)
    times: list[Any] = []
    with rocketstore.open(root, "r+", clock=lambda: times[0] if times else crafted.TIME) as store:
        end = store.max_physical_offset
        times.append(time)
        with pytest.raises(REJECTED, match="clock"):
            store.put("Orders", b"x")
        assert store.max_physical_offset == end
        times[0] = crafted.TIME + 10**6
        assert store.put("Orders", b"x").ok
    with rocketstore.open(root, "r+") as store:
        assert store.verify().ok


@pytest.mark.parametrize("time", [-1, -(2**63), 0, 2**62, 2**63 - 1])
def test_f06_clock_that_gives_odd_times(tmp_path: Path, time: int) -> None:
    root = tmp_path / "s"
    crafted.build(root, 8)
    with rocketstore.open(root, "r+", clock=lambda: time) as store:
        assert store.put("Orders", b"odd", 0, None, "odd").ok
    for mode in ("r", "r+"):
        with rocketstore.open(root, mode) as store:
            assert [m.body for m in store.find(topic="Orders", key="odd")] == [b"odd"]
            assert not store.recovery_report.cut
            assert store.verify().ok


PATHS: list[Any] = [None, 5, b"store", "", "\0", "a\0b", "x" * 5000, "\ud800", 1.0, ["store"]]


@pytest.mark.parametrize("path", PATHS, ids=ascii)
def test_b14_paths_that_are_none(path: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """An empty path was taken for the current directory."""
    monkeypatch.chdir(tmp_path)
    for mode in ("r", "r+", "a", "x"):
        with pytest.raises((*REJECTED, OSError)):
            rocketstore.open(path, mode)
    assert list(tmp_path.iterdir()) == []


def test_b14_any_way_to_write_a_path_works(tmp_path: Path, monkeypatch: Any) -> None:
    root = tmp_path / "störe"
    crafted.build(root, 8)
    (tmp_path / "link").symlink_to("störe")
    monkeypatch.chdir(tmp_path)
    before = snapshot(root)
    for path in (str(root) + "/", "störe", "./störe/../störe", tmp_path / "link", "link/"):
        with rocketstore.open(path) as store:
            assert len(list(store.scan())) == 8
    assert snapshot(root) == before
    with rocketstore.open("link", "r+") as store:
        assert store.put("Orders", b"x").ok
    assert (tmp_path / "link").is_symlink()


def test_f03_more_keys_than_an_index_file_has_room_for(tmp_path: Path) -> None:
    root = tmp_path / "s"
    keys = [f"key{number}" for number in range(700)]
    with rocketstore.open(root, "x", **crafted.OPTIONS) as store:
        result = store.put("Orders", b"x", keys=keys)
        assert result.status == PutMessageStatus.PUT_OK
        store.put("Orders", b"y", keys=["last"])
        assert store.wait_dispatched(120)
        for key in (keys[0], keys[199], keys[200], keys[-1]):
            assert [m.body for m in store.find(topic="Orders", key=key)] == [b"x"]
        assert store.verify().ok
    with rocketstore.open(root, "r", derive="full") as store:
        assert [m.body for m in store.find(topic="Orders", key="last")] == [b"y"]
        assert [m.body for m in store.find(topic="Orders", key=keys[-1])] == [b"x"]
