"""``replay``: what is kept, selections, batches, damage, kills, full disks, and what is refused."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from golden.golden_stores import unpack
from rocketstore import formats
from rocketstore.errors import (
    CorruptMessageError,
    MappedFileError,
    ServiceFailedError,
    SourceChangedError,
    StoreLockedError,
)
from rocketstore.moving import replay as module
from rocketstore.moving.exports import import_new, pieces
from rocketstore.moving.exports.unfinished import open_to_put
from rocketstore.moving.replay import WORK_SUFFIX, replay
from rocketstore.status import FlushDiskType, PutMessageStatus
from support.file_trees import tree_of
from support.kill_points import run_until_change
from support.looked_stores import HOUR_MS, START, make_store, open_looked, plain_records

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="stores are only read there")

#: Every how many changes of the file system a process is killed; 0 is the short form: a few.
STRIDE = int(os.environ.get("ROCKETSTORE_MOVING_STRIDE", "0"))
KILLS = range(1, 5000, STRIDE) if STRIDE else (6, 40, 75, 5000)
HALF, ROLLBACK = 4, 12


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_store(tmp_path / "store")


def kept(store: rocketstore.DefaultMessageStore, **chosen: Any) -> list[tuple[Any, ...]]:
    """What a replay keeps of the messages, in the order of the log."""
    return [
        (one.topic, one.queue_id, one.body, list(one.properties.items()), one.born_timestamp,
         one.born_host, one.flag, one.reconsume_times)
        for one in store.scan(records="queues", **chosen)
    ]  # fmt: skip


def messages(root: Path, **chosen: Any) -> list[tuple[Any, ...]]:
    with rocketstore.open(root) as store:
        return kept(store, **chosen)


def spoil(root: Path, number: int) -> int:
    """Change a byte of a record's body; return its log offset."""
    offset = [one.offset for one in plain_records(root) if one.topic is not None][number]
    path = next(path for path in sorted((root / "commitlog").iterdir(), reverse=True)
                if int(path.name) <= offset)  # fmt: skip
    content = bytearray(path.read_bytes())
    content[offset - int(path.name) + 88] ^= 1
    path.write_bytes(content)
    return offset


# --- what is put --------------------------------------------------------------------------------


def test_messages_keep_what_their_producers_gave(root: Path, tmp_path: Path) -> None:
    with open_looked(root, "r+") as store:
        store.put("Orders", b"\xff\x00", 1, flag=3, properties={"p": "a", "e": ""},
                  unique_key="0A0000010000000000000000000000FF")  # fmt: skip
        store.put("Orders", b"", 1, born_host="[2001:db8::1]:99", born_timestamp=7)
        store.put("%RETRY%group", b"again", 0, reconsume_times=2)
        store.put("%DLQ%group", b"dead", 0)
    before = tree_of(root)
    report = replay(root, tmp_path / "new")
    assert (report.messages, report.skipped, report.ok, report.resumed) == (154, 0, True, False)
    assert messages(tmp_path / "new") == messages(root)
    assert tree_of(root) == before
    with rocketstore.open(root) as store:
        assert (report.read_start, report.read_end) == (0, store.max_physical_offset)
    with rocketstore.open(tmp_path / "new") as store:
        assert (report.log_start, report.log_end) == (0, store.max_physical_offset)
        assert store.recovery_report.clean
        assert store.verify().ok
        found = list(store.find(unique_key="0A0000010000000000000000000000FF"))
        assert [one.body for one in found] == [b"\xff\x00"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "store"]


@pytest.mark.parametrize("name", ["inner-5.3.3", "lmq-5.3.3", "plain-4.9.8", "broker-5.3.3"])
def test_a_brokers_store(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    report = replay(root, tmp_path / "new")
    own = (formats.PROPERTY_CRC32, formats.PROPERTY_INNER_MULTI_QUEUE_OFFSET,
           formats.PROPERTY_DELAY, formats.PROPERTY_TIMER_OUT_MS,
           formats.PROPERTY_TIMER_DELIVER_MS, formats.PROPERTY_TIMER_DELAY_SEC,
           formats.PROPERTY_TIMER_DELAY_MS)  # fmt: skip
    wanted = [
        one
        for one in messages(root)
        if one[0] != formats.TOPIC_SCHEDULE and not one[0].lower().startswith("rmq_sys_")
    ]
    wanted = [(*one[:3], [pair for pair in one[3] if pair[0] not in own], *one[4:])
              for one in wanted]  # fmt: skip
    found = [(*one[:3], [pair for pair in one[3] if pair[0] not in own], *one[4:])
             for one in messages(tmp_path / "new")]  # fmt: skip
    assert found == wanted
    assert report.messages == len(wanted)
    assert report.messages + report.skipped == len(messages(root))
    with rocketstore.open(tmp_path / "new") as store:
        assert store.verify().ok


def test_what_consumers_never_got_is_not_put(root: Path, tmp_path: Path) -> None:
    with open_looked(root, "r+") as store:
        store.put("rmq_sys_wheel_timer", b"own", 0)
        store.put("RMQ_SYS_TRANS_HALF_TOPIC", b"half", 0)
        store.put("Orders", b"later", 0, delay_level=3)
        store.put("Orders", b"half", 0, sys_flag=HALF)
        store.put("Orders", b"rolled back", 0, sys_flag=ROLLBACK)
    report = replay(root, tmp_path / "new")
    assert (report.messages, report.skipped) == (150, 3)
    with rocketstore.open(tmp_path / "new") as store:
        assert store.topics() == ["Logs", "Orders", "Pays"]


def test_an_existing_store_gets_a_selection_and_a_map(root: Path, tmp_path: Path) -> None:
    make_store(tmp_path / "there", 30)
    first = messages(tmp_path / "there")
    with rocketstore.open(tmp_path / "there") as store:
        end = store.max_physical_offset
    chosen = {"topics": ["Orders", "Pays"], "begin": START + HOUR_MS, "end": START + 9 * HOUR_MS}
    report = replay(root, tmp_path / "there", map=tmp_path / "map", filter="region = 'eu'",
                    start=500, stop=20_000, **chosen)  # fmt: skip
    wanted = messages(root, start=500, stop=20_000, filter="region = 'eu'", **chosen)
    assert 5 < len(wanted) == report.messages < 100
    assert messages(tmp_path / "there") == first + wanted
    lines = [json.loads(line) for line in (tmp_path / "map").read_text().splitlines()]
    assert lines[0]["physicalOffset"] == end
    with rocketstore.open(root) as old, rocketstore.open(tmp_path / "there") as new:
        for line in lines:
            a = old.look_message_by_offset(line["fromPhysicalOffset"])
            b = new.look_message_by_offset(line["physicalOffset"])
            assert a is not None
            assert b is not None
            assert (a.body, a.queue_offset, b.queue_offset) == (
                b.body, line["fromQueueOffset"], line["queueOffset"],
            )  # fmt: skip
    with pytest.raises(FileExistsError):
        replay(root, tmp_path / "there", map=tmp_path / "map")


def test_the_end_is_that_of_the_beginning(root: Path, tmp_path: Path) -> None:
    with open_looked(root, "r+") as store:  # a writer has it open

        def put_more(what: str, done: int, total: int) -> None:
            store.put("Orders", b"new", 0)
            store.flush()

        report = replay(root, tmp_path / "new", progress=put_more)
        assert report.messages == 150
        assert replay(root, tmp_path / "new", start=report.read_end).messages == 150


def test_puts_go_into_a_store_whose_broker_delivers_and_cleans(root: Path, tmp_path: Path) -> None:
    """A broker's file must not add or delete messages meanwhile, nor sync each of them."""
    config = rocketstore.MessageStoreConfig(
        schedule_message_enable=True, clean_resource_enable=True, flush_disk_type="SYNC_FLUSH"
    )
    with open_to_put(tmp_path / "new", config) as store:
        assert store.delay_service is None
        assert not store.config.clean_resource_enable
        assert store.config.flush_disk_type == FlushDiskType.ASYNC_FLUSH
    assert replay(root, tmp_path / "new", config_to=config).messages == 150


# --- damage -------------------------------------------------------------------------------------


def test_damage_stops_it_and_the_next_call_goes_on(root: Path, tmp_path: Path) -> None:
    bodies = [one[2] for one in messages(root)]
    offset = spoil(root, 60)
    new = tmp_path / "new"
    with pytest.raises(CorruptMessageError):
        replay(root, new)
    assert [one[2] for one in messages(new)] == bodies[:60]
    report = replay(root, new, on_corruption="skip")
    assert report.resumed
    assert [one["kind"] for one in report.findings] == ["lost"]
    assert report.findings[0]["log"][0] == offset
    assert (report.messages, report.finding_count, report.ok) == (149, 1, False)
    assert [one[2] for one in messages(new)] == bodies[:60] + bodies[61:]
    report = replay(root, tmp_path / "stopped", on_corruption="stop")
    assert (report.messages, report.finding_count) == (60, 1)


def test_a_missing_segment_is_refused_before_there_is_a_store(root: Path, tmp_path: Path) -> None:
    sorted((root / "commitlog").iterdir())[1].unlink()
    with pytest.raises(CorruptMessageError):
        replay(root, tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]
    report = replay(root, tmp_path / "new", on_corruption="skip")
    assert (report.messages < 150, report.findings[0]["kind"]) == (True, "lost")


def test_a_refused_message_is_listed(root: Path, tmp_path: Path) -> None:
    report = replay(root, tmp_path / "new", max_message_size=100)
    assert not report.ok
    assert report.messages + report.finding_count == 150
    assert report.findings[0]["reason"].startswith("the store answered MESSAGE_ILLEGAL")


# --- interruptions ------------------------------------------------------------------------------


def test_a_kill_at_any_change_is_resumed(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_new, "MARK_ROWS", 40)
    monkeypatch.setattr(pieces, "PIECE_NBYTES", 5000)
    new, mapped = tmp_path / "new", tmp_path / "map"
    make_store(tmp_path / "there", 30)
    wanted = messages(tmp_path / "there") + messages(root)
    offsets = [one.offset for one in plain_records(root) if one.topic is not None]
    was_resumed = False

    def run() -> rocketstore.ReplayReport:
        return replay(root, new, map=mapped)

    for number in KILLS:
        shutil.copytree(tmp_path / "there", new)
        was_killed = run_until_change(run, number)
        if (tmp_path / f"new{WORK_SUFFIX}").exists() or not mapped.exists():
            assert was_killed
            report = run()
            was_resumed |= report.resumed
            assert report.messages == 150
        assert messages(new) == wanted
        lines = [json.loads(line) for line in mapped.read_text().splitlines()]
        assert [line["fromPhysicalOffset"] for line in lines] == offsets
        mapped.unlink()
        with rocketstore.open(new) as store:
            assert store.recovery_report.clean
        shutil.rmtree(new)
        shutil.rmtree(tmp_path / f"new{WORK_SUFFIX}-over", ignore_errors=True)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["store", "there"]
        if not was_killed:
            assert was_resumed
            return
    raise AssertionError("it never ended")


def interrupted(root: Path, new: Path, after: int, **options: Any) -> None:
    """Replay until so many messages are put."""
    count = 0

    def interrupt(what: str, done: int, total: int) -> None:
        nonlocal count
        count += 1
        if count == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replay(root, new, progress=interrupt, **options)


def test_batches_are_resumed_in_their_midst(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = unpack("inner-5.3.3", tmp_path)
    assert replay(root, tmp_path / "whole").ok
    wanted = messages(tmp_path / "whole")
    with rocketstore.open(root) as store:
        offsets = [one.physical_offset for one in store.scan(records="queues")]
    # After the first, before the last, and after the last message of a batch.
    first = next(n for n, offset in enumerate(offsets) if offsets.count(offset) > 2)
    last = first + offsets.count(offsets[first]) - 1
    for after in range(1, len(wanted)) if STRIDE else (first + 1, last, last + 1):
        # A mark after each row, and none.
        monkeypatch.setattr(import_new, "MARK_ROWS", after - 1 if after % 2 and after > 1 else 999)
        interrupted(root, tmp_path / "new", after)
        assert replay(root, tmp_path / "new").resumed
        assert messages(tmp_path / "new") == wanted
        shutil.rmtree(tmp_path / "new")


def test_segments_that_expired_meanwhile(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_new, "MARK_ROWS", 10)
    wanted = messages(root)
    segments = sorted((root / "commitlog").iterdir())
    begins = int(segments[1].name)
    offsets = [one.offset for one in plain_records(root) if one.topic is not None]
    read = sum(offset < begins for offset in offsets)
    # After the segment's last message, nothing is missing.
    interrupted(root, tmp_path / "new", read + 15)
    shutil.copytree(root, tmp_path / "copy")
    segments[0].unlink()
    report = replay(root, tmp_path / "new")
    assert (report.resumed, report.messages, report.ok) == (True, 150, True)
    assert messages(tmp_path / "new") == wanted
    # Before it, the rest of the segment is, and a message that was put cannot be known again.
    shutil.rmtree(root)
    (tmp_path / "copy").rename(root)
    interrupted(root, tmp_path / "more", 25)
    segments[0].unlink()
    with pytest.raises(CorruptMessageError, match="were deleted"):
        replay(root, tmp_path / "more")
    with pytest.raises(SourceChangedError, match="its source is gone"):
        replay(root, tmp_path / "more", on_corruption="skip")
    assert messages(tmp_path / "more") == wanted[:25]


def test_another_writer_meanwhile_is_noticed(root: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    interrupted(root, new, 70)
    with rocketstore.open(new, "r+") as store:
        store.put("Orders", b"of another", 0)
    before = messages(new)
    with pytest.raises(SourceChangedError, match="by another program"):
        replay(root, new)
    assert messages(new) == before
    with pytest.raises(FileExistsError, match="with map None"):
        replay(root, new, map=tmp_path / "map")
    with pytest.raises(FileExistsError, match="with topics None, not"):
        replay(root, new, topics=["Orders"])


def test_another_source_meanwhile_is_noticed(root: Path, tmp_path: Path) -> None:
    interrupted(root, tmp_path / "new", 70)
    root.rename(tmp_path / "moved")
    make_store(root, 20)
    with pytest.raises(SourceChangedError, match="another store"):
        replay(root, tmp_path / "new")
    shutil.rmtree(root)
    make_store(root)
    spoil(root, 147)
    with pytest.raises(SourceChangedError, match="other bytes"):
        replay(root, tmp_path / "new")
    with pytest.raises(FileExistsError, match="with source"):
        replay(tmp_path / "moved", tmp_path / "new")


def test_an_answer_of_the_store_is_no_message_that_it_refused(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that cannot put now is not a reason to leave a message out."""

    class Busy:
        appended = False
        status = PutMessageStatus.OS_PAGE_CACHE_BUSY

    def opened(*arguments: Any) -> Any:
        store = open_to_put(*arguments)
        put, calls = store.put_message, itertools.count()
        store.put_message = (  # type: ignore[method-assign]
            lambda message: put(message) if next(calls) < 40 else Busy  # type: ignore[return-value]
        )
        return store

    with monkeypatch.context() as patched:
        patched.setattr(module, "open_to_put", opened)
        with pytest.raises(ServiceFailedError, match="OS_PAGE_CACHE_BUSY"):
            replay(root, tmp_path / "new")
    assert replay(root, tmp_path / "new").messages == 150
    assert messages(tmp_path / "new") == messages(root)


# --- refusals -----------------------------------------------------------------------------------


def test_refusals_change_nothing(root: Path, tmp_path: Path) -> None:
    before = tree_of(tmp_path, times=False)
    for arguments, error in (
        ((root, root), MappedFileError),
        ((root, root / "below"), MappedFileError),
        ((root / "commitlog", root), MappedFileError),
        ((tmp_path / "nothing", tmp_path / "new"), FileNotFoundError),
        ((root, tmp_path / "no" / "folder"), FileNotFoundError),
    ):
        with pytest.raises(error):
            replay(*arguments)
    for options, error in (
        ({"start": -1}, ValueError), ({"stop": "x"}, TypeError), ({"begin": 1.5}, TypeError),
        ({"topics": "Orders"}, TypeError), ({"filter": "a >"}, ValueError),
        ({"on_corruption": "ask"}, ValueError),
        ({"store_path_commit_log": str(root / "commitlog")}, MappedFileError),
    ):  # fmt: skip
        with pytest.raises(error):
            replay(root, tmp_path / "new", **options)
    assert tree_of(tmp_path, times=False) == before
    make_store(tmp_path / "there", 3)
    with open_looked(tmp_path / "there", "r+"), pytest.raises(StoreLockedError):
        replay(root, tmp_path / "there")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store", "there"]


def test_one_call_at_a_time(root: Path, tmp_path: Path) -> None:
    def again(what: str, done: int, total: int) -> None:
        with contextlib.suppress(StoreLockedError):
            replay(root, tmp_path / "new")
            raise AssertionError("both ran")

    assert replay(root, tmp_path / "new", progress=again).messages == 150
