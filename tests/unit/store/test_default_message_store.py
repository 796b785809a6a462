"""The store's public class: modes, statuses, stepping by hand, what ``close`` leaves."""

from __future__ import annotations

import copy
import functools
import io
import math
import os
import pickle
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rocketstore
from rocketstore import (
    ConfigError,
    ForkedStoreError,
    GetMessageStatus,
    Message,
    MessageBatch,
    MessageStoreConfig,
    PutMessageStatus,
    StoreClosedError,
    StoreLockedError,
    TagFilter,
)
from rocketstore.files.mapped_file_queue import MappedFileQueue
from rocketstore.log.writable_commit_log import WritableCommitLog
from support.syncs import LONG_S

OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": 64 * 1024,
    "mapped_file_size_consume_queue": 400,
    "max_hash_slot_num": 50,
    "max_index_num": 200,
}


def make(root: Path, count: int = 30, **options: Any) -> Path:
    """A closed store with ``count`` messages in T/0."""
    with rocketstore.open(root, "x", **{**OPTIONS, **options}) as store:
        for number in range(count):
            tag = "TagA" if number % 2 else "TagB"
            store.put("T", f"body {number}".encode(), 0, tag, f"key-{number}")
    return root


# --- modes ------------------------------------------------------------------------------------


def test_modes_and_missing_directories(tmp_path: Path) -> None:
    for mode in ("r", "r+"):
        with pytest.raises(FileNotFoundError):
            rocketstore.open(tmp_path / "none", mode)
    assert os.listdir(tmp_path) == []
    with rocketstore.open(tmp_path / "deep" / "store", "a", **OPTIONS):
        pass
    with pytest.raises(FileExistsError):
        rocketstore.open(tmp_path / "deep" / "store", "x")
    with pytest.raises(ValueError, match="mode"):
        rocketstore.open(tmp_path, "w")


def test_derive_is_for_reading(tmp_path: Path) -> None:
    root = make(tmp_path / "s")
    with pytest.raises(ValueError, match="derive"):
        rocketstore.open(root, "r+", derive="tail")
    with pytest.raises(ValueError, match="derive"):
        rocketstore.open(root, "r", derive="some")


def test_one_writer_at_a_time_and_readers_beside_it(tmp_path: Path) -> None:
    root = make(tmp_path / "s")
    with rocketstore.open(root, "r+") as writer:
        with pytest.raises(StoreLockedError):
            rocketstore.open(root, "r+")
        with rocketstore.open(root) as reader:
            assert reader.max_offset_in_queue("T", 0) == 30
            writer.put("T", b"new")
            assert reader.max_offset_in_queue("T", 0) == 30
            reader.refresh()
            assert reader.max_offset_in_queue("T", 0) == 31
    with rocketstore.open(root, "r+") as again:
        assert again.recovery_report.clean


def test_reading_changes_nothing(tmp_path: Path) -> None:
    root = make(tmp_path / "s")

    def snapshot() -> dict[str, tuple[int, int, bytes]]:
        return {
            str(path): (path.stat().st_mtime_ns, path.stat().st_size, path.read_bytes())
            for path in root.rglob("*")
            if path.is_file()
        }

    before = snapshot()
    with rocketstore.open(root) as store:
        assert len(list(store.scan())) == 30
        assert list(store.find(topic="T", key="key-3"))
        with pytest.raises(io.UnsupportedOperation):
            store.put("T", b"x")
        with pytest.raises(io.UnsupportedOperation):
            store.flush()
    assert snapshot() == before


def test_close_leaves_a_clean_directory(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with rocketstore.open(root, "x", **OPTIONS) as store:
        assert (root / "abort").read_text() == str(os.getpid())
        assert (root / "rocketstore.state").exists()
        store.put("T", b"x", 0, None, "key")
    names = {path.name for path in root.iterdir()}
    assert names == {
        "checkpoint", "commitlog", "consumequeue", "index", "lock", "rocketstore.state",
    }  # fmt: skip
    assert (root / "checkpoint").stat().st_size == 4096
    assert (root / "lock").read_bytes() == b"lock"


def test_everything_after_close_is_refused(tmp_path: Path) -> None:
    store = rocketstore.open(make(tmp_path / "s"), "r+")
    store.close()
    store.close()
    assert store.closed
    for call in (
        lambda: store.put("T", b""),
        lambda: store.get_message("g", "T", 0, 0),
        lambda: store.topics(),
        lambda: list(store.scan()),
        lambda: store.flush(),
    ):
        with pytest.raises(StoreClosedError):
            call()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork is needed")
def test_forked_child_is_refused_and_the_parent_unharmed(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "s", "x", **OPTIONS) as store:
        store.put("T", b"one")
        child = os.fork()
        if child == 0:
            status = 1
            try:
                store.put("T", b"two")
            except ForkedStoreError:
                try:
                    store.get_message("g", "T", 0, 0)
                except ForkedStoreError:
                    status = 0
            os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert store.put("T", b"three").queue_offset == 1
        with pytest.raises(StoreLockedError):
            rocketstore.open(store.path, "r+")


# --- options ----------------------------------------------------------------------------------


def test_sizes_are_detected_and_contradictions_refused(tmp_path: Path) -> None:
    root = make(tmp_path / "s", 300)
    (root / "rocketstore.state").unlink()
    with rocketstore.open(root) as store:
        assert store.facts.commit_log_file_size == 64 * 1024
        assert store.facts.consume_queue_file_size == 400
        assert store.facts.index.pair == (50, 200)
    for wrong in (
        {"mapped_file_size_commit_log": 128 * 1024},
        {"mapped_file_size_consume_queue": 800},
        {"max_hash_slot_num": 60, "max_index_num": 200},
    ):
        with pytest.raises(ConfigError):
            rocketstore.open(root, "r+", **wrong)


def test_broker_file_and_options_together(tmp_path: Path) -> None:
    source = io.StringIO(
        "brokerName=b\nmappedFileSizeCommitLog = 65536\nflushDiskType=SYNC_FLUSH\n"
    )
    config = MessageStoreConfig.from_properties(source)
    with rocketstore.open(tmp_path / "s", "x", config=config, broker_version="4.9.8") as store:
        store.put("T", b"x")
        assert store.broker_version == "4.9.8"
        assert store.flushed_offset == store.max_physical_offset > 0
        assert (tmp_path / "s" / "abort").read_bytes() == b""
    assert [p.stat().st_size for p in (tmp_path / "s" / "commitlog").iterdir()] == [65536]


def test_slave_refuses_puts(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "s", "x", broker_role="SLAVE", **OPTIONS) as store:
        result = store.put("T", b"x")
        assert result.status == PutMessageStatus.SERVICE_NOT_AVAILABLE
        assert result.physical_offset is None


# --- reading ----------------------------------------------------------------------------------


def test_statuses_around_a_queues_bounds(tmp_path: Path) -> None:
    with rocketstore.open(make(tmp_path / "s")) as store:
        for offset, status, following in (
            (-1, GetMessageStatus.OFFSET_TOO_SMALL, 0),
            (0, GetMessageStatus.FOUND, 20),
            (20, GetMessageStatus.FOUND, 30),
            (30, GetMessageStatus.OFFSET_OVERFLOW_ONE, 30),
            (31, GetMessageStatus.OFFSET_OVERFLOW_BADLY, 30),
        ):
            result = store.get_message("g", "T", 0, offset)
            assert (result.status, result.next_begin_offset) == (status, following)
        unknown = store.get_message("g", "None", 0, 0)
        assert unknown.status == GetMessageStatus.NO_MESSAGE_IN_QUEUE
        assert store.queues("None") == []
        for wrong in (True, 1.0, "0"):
            with pytest.raises(TypeError):
                store.get_message("g", "T", 0, wrong)  # type: ignore[arg-type]


def test_filters_tags_views_and_keys_agree(tmp_path: Path) -> None:
    with rocketstore.open(make(tmp_path / "s")) as store:
        chosen = store.get_message("g", "T", 0, 0, filter=TagFilter("TagA"))
        assert [m.tags for m in chosen.messages] == ["TagA"] * 10
        offsets = store.filter_units("T", 0, "TagA")
        assert offsets.tolist() == list(range(1, 30, 2))
        view = store.queue_view("T", 0)
        assert len(view) == 30
        keys = [f"key-{number}" for number in range(30)] + ["none"]
        found, splits = store.index_offsets("T", keys)
        for wrong in (b"k", 7, None):
            with pytest.raises(TypeError, match="keys must be str, not"):
                store.index_offsets("T", ["k", wrong])  # type: ignore[list-item]
        assert np.diff(splits).tolist() == [1] * 30 + [0]
        assert found.tolist() == view["physical_offset"].tolist()

        class Short:
            """Passes bodies of six bytes."""

            def is_matched_by_consume_queue(self, tags_code: int | None, ext: Any) -> bool:
                return True

            def is_matched_by_commit_log(self, message: Any) -> bool:
                return len(message.body) == 6

        short = store.get_message("g", "T", 0, 0, filter=Short())
        assert [m.body for m in short.messages] == [b"body %d" % n for n in range(10)]


def test_find_by_everything(tmp_path: Path) -> None:
    with rocketstore.open(
        tmp_path / "s", "x", clock=iter(range(1000, 9000)).__next__, **OPTIONS
    ) as s:
        for number in range(20):
            s.put("T", b"%d" % number, 0, "Aa" if number % 2 else "BB", f"a k{number} b",
                  unique_key=f"U{number}")  # fmt: skip
        assert s.wait_dispatched(10)
        one = list(s.find(topic="T", key="k7"))
        assert [m.body for m in one] == [b"7"]
        assert list(s.find(topic="T", key="7")) == []
        assert list(s.find(topic="Other", key="k7")) == []
        assert [m.body for m in s.find(topic="T", unique_key="U9")] == [b"9"]
        assert len(list(s.find(topic="T", key="a"))) == 20
        assert len(list(s.find(tags="BB"))) == 10
        stored = one[0].store_timestamp
        assert list(s.find(topic="T", key="k7", begin=stored, end=stored + 1)) == one
        assert list(s.find(topic="T", key="k7", begin=stored + 1)) == []
        assert list(s.find(topic="T", key="k7", end=stored)) == []


def test_messages_by_offset_and_id(tmp_path: Path) -> None:
    with rocketstore.open(make(tmp_path / "s")) as store:
        for message in store.scan():
            assert store.look_message_by_offset(message.physical_offset) == message
            assert store.look_message_by_id(message.msg_id.lower()) == message
            assert store.look_message_by_offset(message.physical_offset + 1) is None
            assert pickle.loads(pickle.dumps(message)) == message
        assert store.look_message_by_offset(store.max_physical_offset) is None
        assert store.look_message_by_id("0" * 32) is None
        with pytest.raises(ValueError, match="is not a message id"):
            store.look_message_by_id("zz")


def test_offset_by_time_bounds(tmp_path: Path) -> None:
    times = iter([100, 200, 200, 200, 300])
    with rocketstore.open(tmp_path / "s", "x", clock=lambda: next(times, 400), start=False,
                          **OPTIONS) as store:  # fmt: skip
        for number in range(5):
            store.put("T", b"%d" % number)
        store.wait_dispatched()
        stored = [m.store_timestamp for m in store.scan()]

        def lower(t: int) -> int:
            return sum(s < t for s in stored)

        def upper(t: int) -> int:
            return max(sum(s <= t for s in stored) - 1, 0)

        for t in (0, 99, 100, 150, 200, 250, 300, 400, 500):
            by_time = store.get_offset_in_queue_by_time
            assert by_time("T", 0, t, boundary="lower") == lower(t)
            assert by_time("T", 0, t, boundary="upper") == upper(t)
        assert store.get_offset_in_queue_by_time("None", 0, 5) == 0


# --- writing ----------------------------------------------------------------------------------


def test_stepping_by_hand(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "s", "x", start=False, **OPTIONS) as store:
        store.put("T", b"x", 0, None, "k")
        assert store.dispatch_behind_nbytes > 0
        assert store.get_message("g", "T", 0, 0).status == GetMessageStatus.NO_MESSAGE_IN_QUEUE
        assert store.wait_dispatched()
        assert store.dispatch_behind_nbytes == 0
        assert store.get_message("g", "T", 0, 0).messages[0].keys == "k"


@pytest.mark.parametrize(
    ("name", "value"),
    [("clock", 5), ("arriving_listener", 5), ("progress", "x"), ("start", "no"), ("start", 1)],
)
def test_an_argument_of_open_that_is_of_no_use(tmp_path: Path, name: str, value: Any) -> None:
    """The first put was acknowledged, and then the store stopped."""
    with pytest.raises(TypeError, match=f"{name} must be"):
        rocketstore.open(tmp_path / "s", "a", **{name: value})
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda store: store.wait_dispatched("1"), "timeout_s"),
        (lambda store: store.wait_dispatched(-1), "timeout_s"),
        (lambda store: store.wait_dispatched(float("nan")), "timeout_s"),
        (lambda store: store.wait_dispatched(True), "timeout_s"),
        (lambda store: store.tail(timeout_s="x"), "timeout_s"),
        (lambda store: store.tail(interval_s=-1), "interval_s"),
        (lambda store: store.tail(start="0"), "start"),
    ],
)
def test_a_wrong_argument_is_named(tmp_path: Path, call: Any, name: str) -> None:
    with rocketstore.open(tmp_path / "s", "x", **OPTIONS) as store:
        assert store.put("T", b"1").ok
        assert store.wait_dispatched(math.inf)
        with pytest.raises((TypeError, ValueError), match=name):
            call(store)


@pytest.mark.parametrize("value", [True, False, 0, 1, 1.0, None, "sync"])
def test_a_flush_disk_type_that_is_none(tmp_path: Path, value: Any) -> None:
    """``True`` meant ASYNC_FLUSH."""
    with pytest.raises(rocketstore.ConfigError, match="flush_disk_type"):
        rocketstore.open(tmp_path / "s", "x", flush_disk_type=value)


def test_every_way_to_put(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "s", "x", **OPTIONS) as store:
        assert store.put("T", b"1").queue_offset == 0
        assert store.put_message(Message("T", b"2")).queue_offset == 1
        batch = MessageBatch([Message("T", b"3"), Message("T", b"4")], topic="T")
        assert store.put_messages(batch).queue_offset == 2
        many = store.put_many([Message("T", b"5"), Message("U", b"6")])
        with pytest.raises(TypeError, match="tuple has no attribute 'topic'; give a Message"):
            store.put_many([("T", b"x")])  # type: ignore[list-item]
        assert [r.queue_offset for r in many] == [4, 0]
        data = b"7" + b"88" + b""
        columns = store.put_columns("T", np.array([0, 1, 3, 3], np.int64), data)
        assert [r.queue_offset for r in columns] == [5, 6, 7]
        assert store.wait_dispatched(10)
        bodies = [m.body for m in store.get_message("g", "T", 0, 0).messages]
        assert bodies == [b"1", b"2", b"3", b"4", b"5", b"7", b"88", b""]
        assert store.verify().ok


def test_one_answer_holds_what_was_put_since_the_last_reading(tmp_path: Path) -> None:
    """A window on the log is kept between readings. An answer that began inside it ended where the
    log had ended then, although more messages were dispatched: 5 of 8 came, now and then, when
    dispatch made a queue (it looks at the record, through such a window) between two puts."""
    with rocketstore.open(tmp_path / "s", "x", **OPTIONS) as store:
        for number in range(5):
            store.put("T", b"%d" % number)
        assert store.wait_dispatched(120)
        assert len(store.get_message("g", "T", 0, 0).messages) == 5
        for number in range(5, 8):
            store.put("T", b"%d" % number)
        assert store.wait_dispatched(120)
        found = store.get_message("g", "T", 0, 0)
        assert [m.body for m in found.messages] == [b"%d" % number for number in range(8)]
        assert found.next_begin_offset == 8


def test_delayed_message_lies_on_the_schedule_topic(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "s", "x", **OPTIONS) as store:
        store.put("T", b"later", 2, "Tag", delay_level=3)
        assert store.wait_dispatched(10)
        message = store.get_message("g", "SCHEDULE_TOPIC_XXXX", 2, 0).messages[0]
        assert message.properties["REAL_TOPIC"] == "T"
        assert message.properties["REAL_QID"] == "2"
        code = store.queue_view("SCHEDULE_TOPIC_XXXX", 2)["tags_code"][0]
        assert code == message.store_timestamp + 10_000


def test_listener_hears_of_every_message(tmp_path: Path) -> None:
    heard: list[tuple[Any, ...]] = []
    with rocketstore.open(
        tmp_path / "s", "x", arriving_listener=lambda *row: heard.append(row), **OPTIONS
    ) as store:
        for number in range(5):
            store.put("T", b"%d" % number, 1, "TagA")
        assert store.wait_dispatched(10)
    assert [(row[0], row[1], row[2]) for row in heard] == [("T", 1, n + 1) for n in range(5)]
    assert heard[0][3] == 2598919
    assert heard[0][6] == {"TAGS": "TagA"}


def test_listener_hears_of_light_queues(tmp_path: Path) -> None:
    """It was called only for a message's own queue, so callers that waited for a light queue were
    never woken."""
    heard: list[tuple[Any, ...]] = []
    light = {"enable_lmq": True, "enable_multi_dispatch": True, **OPTIONS}
    with rocketstore.open(
        tmp_path / "s", "x", arriving_listener=lambda *row: heard.append(row), **light
    ) as store:
        names = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"}
        for number in range(2):
            store.put("T", b"%d" % number, 3, "TagA", properties=names)
        # A copy for a retry carries the original's offsets, but goes into no light queue.
        store.put("%RETRY%g", b"", properties={**names, "INNER_MULTI_QUEUE_OFFSET": "0,1"})
        assert store.wait_dispatched(120)
        assert store.max_offset_in_queue("%LMQ%b", 0) == 2
    assert [row[:3] for row in heard] == [
        *[("T", 3, 1), ("%LMQ%a", 0, 1), ("%LMQ%b", 0, 1)],
        *[("T", 3, 2), ("%LMQ%a", 0, 2), ("%LMQ%b", 0, 2)],
        ("%RETRY%g", 0, 1),
    ]
    assert {row[3] for row in heard[:6]} == {2598919}


@pytest.mark.parametrize("flush_disk_type", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_listener_may_put_while_puts_wait_for_dispatch(
    tmp_path: Path, flush_disk_type: str
) -> None:
    """From 5.4 on a put that rolls waits for dispatch when that lags nine segments, and
    dispatch for the listener: a put in the listener then waited for the first put, or when it
    rolled itself for its own thread, for ever."""
    copied: list[int] = []
    done = threading.Event()

    def listener(topic: str, queue_id: int, next_queue_offset: int, *_: Any) -> None:
        if topic == "T":
            if next_queue_offset == 1:
                waits.wait(20)
            assert store.put("Copy", bytes(300)).ok
            copied.append(next_queue_offset)
            if len(copied) == 150:
                done.set()

    small = {**OPTIONS, "mapped_file_size_commit_log": 1024, "broker_version": "5.5.0"}
    store = rocketstore.open(
        tmp_path / "s",
        "x",
        arriving_listener=listener,
        flush_disk_type=flush_disk_type,
        **small,
    )
    writer = store._writer
    assert writer is not None
    waits = threading.Event()
    wait_until = writer.reput.wait_until

    def waiting(offset: int, timeout_s: float | None) -> bool:
        waits.set()
        return wait_until(offset, timeout_s)

    writer.reput.wait_until = waiting  # type: ignore[method-assign]

    def put() -> None:
        for _ in range(150):
            store.put("T", bytes(300))

    thread = threading.Thread(target=put, daemon=True)
    thread.start()
    assert done.wait(60)
    thread.join(60)
    assert waits.is_set()
    assert store.wait_dispatched(60)
    assert copied == list(range(1, 151))
    assert store.max_offset_in_queue("Copy", 0) == 150
    store.close()


def test_a_listener_may_wait_for_dispatch(tmp_path: Path) -> None:
    """It waited for its own thread. What is dispatched meanwhile it hears of when it has
    returned."""
    heard: list[tuple[str, int]] = []
    dispatched: list[int] = []
    done = threading.Event()

    def listener(topic: str, queue_id: int, next_queue_offset: int, *_: Any) -> None:
        heard.append((topic, next_queue_offset))
        if topic == "T":
            assert store.put("Copy", b"x").ok
            assert store.wait_dispatched()
            dispatched.append(store.max_offset_in_queue("Copy", 0))
        if len(heard) == 4:
            done.set()

    store = rocketstore.open(tmp_path / "s", "x", arriving_listener=listener, **OPTIONS)
    for number in range(2):
        assert store.put("T", b"%d" % number).ok
    assert done.wait(60)
    assert dispatched == [1, 2]
    assert sorted(heard) == [("Copy", 1), ("Copy", 2), ("T", 1), ("T", 2)]
    store.close()


@pytest.mark.parametrize("count", [0, 1])
def test_a_put_that_is_about_to_make_room_while_the_store_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """It made a segment in a directory that others might write by then, or left the descriptor of
    the last one open."""
    begun, go_on = threading.Event(), threading.Event()
    outcomes: list[Any] = []
    roll = WritableCommitLog._roll

    def states(path: Path) -> tuple[int, ...]:
        """What a change of the file changes; listing a folder changes only its access time."""
        state = path.stat()
        times = (state.st_mtime_ns, state.st_ctime_ns)
        return (state.st_mode, state.st_ino, state.st_nlink, state.st_size, *times)

    def roll_late(log: WritableCommitLog, needed_nbytes: int) -> Any:
        if store is not None:
            begun.set()
            assert go_on.wait(LONG_S)
        return roll(log, needed_nbytes)

    def put() -> None:
        try:
            outcomes.append(store.put("T", bytes(40_000)))  # type: ignore[union-attr]
        except StoreClosedError as error:
            outcomes.append(error)

    store: rocketstore.DefaultMessageStore | None = None
    monkeypatch.setattr(WritableCommitLog, "_roll", roll_late)
    opened = rocketstore.open(tmp_path / "s", "x", **OPTIONS)
    for _ in range(count):
        assert opened.put("T", bytes(40_000)).ok
    store = opened
    thread = threading.Thread(target=put, daemon=True)
    thread.start()
    assert begun.wait(LONG_S)
    store.close()
    before = {path: states(path) for path in tmp_path.rglob("*")}
    go_on.set()
    thread.join(LONG_S)
    assert isinstance(outcomes[0], StoreClosedError)
    assert {path: states(path) for path in tmp_path.rglob("*")} == before
    assert store._writer is not None
    assert [file._fd for file in store._writer.log.queue.files] == [None] * count
    with rocketstore.open(tmp_path / "s", "r+") as reopened:
        assert reopened.max_offset_in_queue("T", 0) == count


def test_numbering_goes_on_after_reopening(tmp_path: Path) -> None:
    root = make(tmp_path / "s", 5)
    for expected in (5, 6, 7):
        with rocketstore.open(root, "r+") as store:
            assert store.put("T", b"x").queue_offset == expected
            assert store.put("New", b"x").queue_offset == expected - 5
    with rocketstore.open(root) as store:
        assert store.verify().ok


def test_lost_queue_is_rebuilt_although_the_state_file_reports_no_loss(tmp_path: Path) -> None:
    """A single queue that was deleted is found by the names kept at the last close (D-24)."""
    import shutil

    root = make(tmp_path / "s", 5)
    with rocketstore.open(root, "r+") as store:
        store.put("U", b"x")
    shutil.rmtree(root / "consumequeue" / "T")
    with rocketstore.open(root, "r+") as store:
        assert store.max_offset_in_queue("T", 0) == 5
        assert store.verify().ok


def test_lost_index_is_rebuilt(tmp_path: Path) -> None:
    root = make(tmp_path / "s", 300)
    newest = sorted((root / "index").iterdir())[-1]
    newest.unlink()
    with rocketstore.open(root, "r+") as store:
        for number in range(300):
            assert len(list(store.find(topic="T", key=f"key-{number}"))) == 1
        assert store.verify().ok


def test_index_file_of_no_known_geometry_is_moved_aside(tmp_path: Path) -> None:
    """A file without entries, of a length no hint explains, is in a broker's way and in ours."""
    root = make(tmp_path / "s", 20)
    odd = root / "index" / "20200101000000000"
    odd.write_bytes(bytes(40 + 4 * 7 + 20 * 9 + 3))
    with rocketstore.open(root) as store:
        assert str(odd) in store.recovery_report.skipped
    with rocketstore.open(root, "r+") as store:
        assert not odd.exists()
        assert (root / "quarantine" / "index-20200101000000000").stat().st_size == 251
        assert any("unknown size" in note for note in store.recovery_report.notes)
        assert len(list(store.find(topic="T", key="key-7"))) == 1


def test_given_sizes_are_known_after_a_kill(tmp_path: Path) -> None:
    # A store made with default sizes and without a message was opened with others given, which
    # stood nowhere until the first flush: opened after a kill, it got an index file of 420 MB.
    root, copy = tmp_path / "store", tmp_path / "copy"
    rocketstore.open(root, "x", mapped_file_size_commit_log=4096).close()
    given = {"max_hash_slot_num": 7, "max_index_num": 20, "mapped_file_size_consume_queue": 400}
    with rocketstore.open(root, "r+", start=False, **given) as store:
        assert store.put("T", b"x", keys="k").ok
        shutil.copytree(root, copy)  # as a kill would leave it, before any dispatch
    with rocketstore.open(copy, "r+") as store:
        assert [message.body for message in store.find(topic="T", key="k")] == [b"x"]
    assert [path.stat().st_size for path in (copy / "index").iterdir()] == [40 + 7 * 4 + 20 * 20]
    assert [path.stat().st_size for path in (copy / "consumequeue/T/0").iterdir()] == [400]


def test_keys_of_a_store_that_died_before_its_first_index_file(tmp_path: Path) -> None:
    # A broker that was killed soon after its start leaves queues and no index: no key was found
    # with mode "r".
    root = tmp_path / "store"
    with rocketstore.open(root, "x", max_hash_slot_num=7, max_index_num=50) as store:
        for number in range(5):
            assert store.put("T", b"%d" % number, keys=f"k{number}").ok
    shutil.rmtree(root / "index")
    for name in ("rocketstore.state", "checkpoint"):
        (root / name).unlink()
    with rocketstore.open(root) as store:
        for number in range(5):
            assert [m.body for m in store.find(topic="T", key=f"k{number}")] == [b"%d" % number]
            assert len(store.query_message("T", f"k{number}").messages) == 1


def test_waiting_for_dispatch_while_the_store_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without threads the one that waits dispatches: where closing had come to the dispatcher and
    not to the log, it raised ``ValueError``."""
    store = rocketstore.open(tmp_path / "s", "x", start=False)
    assert store.put("T", b"x").ok
    writer = store._writer
    assert writer is not None
    original = writer.dispatcher.dispatch_until

    def close_before(*arguments: Any, **others: Any) -> Any:
        monkeypatch.undo()
        store._closed = True
        writer.dispatcher.close()
        return original(*arguments, **others)

    monkeypatch.setattr(writer.dispatcher, "dispatch_until", close_before)
    with pytest.raises(StoreClosedError):
        store.wait_dispatched(120)
    writer._parts.close()
    writer._lock.release()


# --- what services do -------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_an_open_store_is_neither_copied_nor_pickled(tmp_path: Path, mode: Any) -> None:
    """A copy shared its files: to close it closed both."""
    with rocketstore.open(make(tmp_path / "s"), mode) as store:
        for call in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match=r"cannot be copied or pickled: open .*/s where"):
                call(store)


@pytest.mark.parametrize("topic", [b"T", None, 5])
def test_a_topic_that_is_no_text_is_not_an_empty_one(tmp_path: Path, topic: Any) -> None:
    with rocketstore.open(make(tmp_path / "s"), "r") as store:
        for call in (
            lambda: store.get_message("g", topic, 0, 0),
            lambda: store.max_offset_in_queue(topic, 0),
            lambda: store.min_offset_in_queue(topic, 0),
        ):
            with pytest.raises(TypeError, match="topic must be str, not"):
                call()


def _put_for_ever(store: rocketstore.DefaultMessageStore) -> None:
    while True:
        store.put("T", b"x" * 9000)


@pytest.mark.parametrize("name", ["flush", "put"])
def test_a_handler_that_raises_timeouterror_is_no_failed_disk(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store refused all puts after it, and a file's name took the place of its text."""
    late = TimeoutError("late")

    def interrupted(*_: Any, **__: Any) -> Any:
        raise late

    with rocketstore.open(make(tmp_path / "s"), "r+", **OPTIONS) as store:
        with monkeypatch.context() as patched:
            if name == "flush":
                patched.setattr(WritableCommitLog, "flush", interrupted)
                call = store.flush
            else:
                patched.setattr(MappedFileQueue, "create_spare", interrupted)
                call = functools.partial(_put_for_ever, store)
            with pytest.raises(TimeoutError, match=r"^late$"):
                call()
        assert store.put("T", b"after").ok
        store.flush()
    with rocketstore.open(tmp_path / "s") as store:
        assert [message.body for message in store.scan()][-1] == b"after"
        assert store.verify().findings == []
