"""Records, segments, folders and marks that are odd in ways close to the rows of the list: what is
good is shown, what is written durably stays, and what cannot be opened is refused untouched."""

from __future__ import annotations

import dataclasses
import os
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from corruption import crafted
from corruption.crafted import SEGMENT, Crafted, Record, body_crc, snapshot
from corruption.record_checks import GEOMETRY, of_kind, rebuild_queues
from rocketstore import CorruptionError, MappedFileError, RocketStoreError, formats
from rocketstore.directory.state import StoreState

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="stores are only read there")


def shown(root: Path, mode: str, **options: Any) -> list[bytes]:
    """Return every record that a mode shows, after reading all its attributes."""
    with rocketstore.open(root, mode, **options) as opened:
        raws = []
        for message in opened.scan(on_corruption="skip"):
            repr(message)
            assert isinstance(message.born_host, str)
            assert isinstance(message.store_host, str)
            assert isinstance(message.msg_id, str)
            dict(message.properties)
            raws.append(bytes(message.raw))
        return raws


def pulled(root: Path, **options: Any) -> list[bytes]:
    """Every record that is read from its queue."""
    with rocketstore.open(root, "r", **options) as opened:
        messages, _ = crafted.pull_all(opened)
        return crafted.in_log_order(messages)


# --- A: records that are odd but good ---------------------------------------------------------


def with_tail_number(record: Record, at: int, width: int, value: int) -> bytes:
    """A number between the store host and the body's length."""
    content = (value % (1 << 8 * width)).to_bytes(width, "big")
    return record.with_bytes(record.body_at - 16 + at, content)


ODD: dict[str, tuple[int, Callable[[Record], bytes]]] = {
    "flag of all ones": (2, lambda r: r.with_number("flag", -1)),
    "unknown system flags": (2, lambda r: r.with_number("sys_flag", 0x7FFFFF00)),
    "compressed, but it is not": (2, lambda r: r.with_number("sys_flag", 1)),
    "several tags": (2, lambda r: r.with_number("sys_flag", 2)),
    "committed": (2, lambda r: r.with_number("sys_flag", 8)),
    "born before 1970": (2, lambda r: r.with_number("born_timestamp", -1)),
    "born at the end of time": (2, lambda r: r.with_number("born_timestamp", 2**63 - 1)),
    "reconsumed -1 times": (2, lambda r: with_tail_number(r, 0, 4, -1)),
    "reconsumed as often as can be": (2, lambda r: with_tail_number(r, 0, 4, 2**31 - 1)),
    "prepared at -1": (2, lambda r: with_tail_number(r, 4, 8, -1)),
    "prepared past the log": (2, lambda r: with_tail_number(r, 4, 8, 2**63 - 1)),
    "born host of ones": (2, lambda r: r.with_bytes(48, b"\xff" * 8)),
    "born host of zeros": (2, lambda r: r.with_bytes(48, bytes(8))),
    "born host 6 of ones": (4, lambda r: r.with_bytes(48, b"\xff" * 20)),
    "store host of ones": (2, lambda r: r.with_bytes(64, b"\xff" * 8)),
    "CRC of an empty body": (0, lambda r: r.with_number("body_crc", -5)),
}


@pytest.mark.parametrize(("kind", "change"), ODD.values(), ids=ODD.keys())
def test_a17_odd_numbers_are_accepted(
    store: Crafted, kind: int, change: Callable[[Record], bytes]
) -> None:
    target = of_kind(store.records, kind, 1)
    raw = change(target)
    store.write(target.offset, raw)
    wanted = [raw if r is target else r.raw for r in store.records]
    assert shown(store.root, "r") == wanted
    rebuild_queues(store)
    assert pulled(store.root, derive="full", **GEOMETRY) == wanted
    assert shown(store.root, "r+", **GEOMETRY) == wanted
    with rocketstore.open(store.root, "r+") as opened:
        assert opened.put(target.topic, b"next", target.queue_id).ok
        assert opened.verify().ok


@pytest.mark.parametrize("value", [2**63 - 1, 2**62, 10**9, 100_000])
@pytest.mark.parametrize("rebuild", [True, False])
def test_a10_a_queue_offset_far_ahead_takes_no_room(
    store: Crafted, value: int, rebuild: bool
) -> None:
    """No queue is filled up to it; the queue goes on where it was."""
    target = of_kind(store.records, 2, 1)
    raw = target.with_number("queue_offset", value)
    store.write(target.offset, raw)
    wanted = [raw if r is target else r.raw for r in store.records]
    if rebuild:
        rebuild_queues(store)
    assert shown(store.root, "r", **GEOMETRY) == wanted
    assert shown(store.root, "r+", **GEOMETRY) == wanted
    size = sum(path.lstat().st_size for path in (store.root / "consumequeue").rglob("*"))
    assert size < 1 << 20
    others = [r.raw for r in store.records if r is not target]
    assert [raw for raw in pulled(store.root) if raw in others] == others
    with rocketstore.open(store.root, "r+") as opened:
        next_offset = max(
            r.queue_offset for r in store.records if (r.topic, r.queue_id) == ("Orders", 0)
        )
        assert opened.put("Orders", b"next", 0).queue_offset == next_offset + 1
        message = opened.look_message_by_offset(target.offset)
        assert message is not None
        assert message.queue_offset == value


@pytest.mark.parametrize("nbytes", [255, 256, 300, 4000])
def test_a19_topic_longer_than_a_folder_name(store: Crafted, nbytes: int) -> None:
    """A topic of version 2 may have 32,767 bytes, the name of a folder 255."""
    target = of_kind(store.records, 6, 1)
    body = bytes(i % 250 for i in range(target.size - target.body_at - 2 - nbytes - 2))
    raw = target.with_number("magic", formats.MAGIC_V2)[: target.body_at - 4]
    raw += len(body).to_bytes(4, "big") + body + nbytes.to_bytes(2, "big") + b"t" * nbytes
    raw += bytes(2)
    at = formats.RECORD_HEAD.at("body_crc")
    raw = raw[:at] + body_crc(body).to_bytes(4, "big") + raw[at + 4 :]
    assert len(raw) == target.size
    store.write(target.offset, raw)
    rebuild_queues(store)
    wanted = [raw if r is target else r.raw for r in store.records]
    dispatched = wanted if nbytes <= 255 else [r.raw for r in store.records if r is not target]
    for mode in ("r", "r+"):
        assert shown(store.root, mode, **GEOMETRY) == wanted
    assert pulled(store.root) == dispatched
    assert pulled(store.root, derive="full") == dispatched
    with rocketstore.open(store.root) as opened:
        message = opened.look_message_by_offset(target.offset)
        assert message is not None
        assert message.topic == "t" * nbytes


# --- A: stretches of damage -------------------------------------------------------------------


def after(store: Crafted, record: Record, count: int) -> list[Record]:
    """``record`` and those after it, ``count`` in all."""
    number = store.records.index(record)
    return store.records[number : number + count]


def two_heads(store: Crafted) -> list[Record]:
    targets = after(store, of_kind(store.records, 2, 1), 2)
    for record in targets:
        store.write(record.offset, record.with_number("magic", 1))
    return targets


def hole(store: Crafted) -> list[Record]:
    targets = after(store, of_kind(store.records, 2, 1), 3)
    start, end = targets[0].offset, targets[-1].end
    store.write(start, bytes(end - start))
    return targets


def across_a_segments_end(store: Crafted) -> list[Record]:
    last = [r for r in store.records if r.offset < SEGMENT][-1]
    first = next(r for r in store.records if r.offset >= SEGMENT)
    store.write(last.offset + 60, b"\xff" * (SEGMENT - last.offset - 60))
    store.write(first.offset, b"\xff" * 40)
    return [last, first]


def segment_of(content: bytes) -> Callable[[Crafted], list[Record]]:
    def change(store: Crafted) -> list[Record]:
        store.segments()[1].write_bytes(content)
        return [r for r in store.records if SEGMENT <= r.offset < 2 * SEGMENT]

    return change


def swapped(store: Crafted) -> list[Record]:
    first, second = store.segments()[:2]
    contents = first.read_bytes(), second.read_bytes()
    first.write_bytes(contents[1])
    second.write_bytes(contents[0])
    return [r for r in store.records if r.offset < 2 * SEGMENT]


def segments_end(content: Callable[[int], bytes]) -> Callable[[Crafted], list[Record]]:
    """Replace what follows the first segment's last record."""

    def change(store: Crafted) -> list[Record]:
        last = [r for r in store.records if r.offset < SEGMENT][-1]
        store.write(last.end, content(SEGMENT - last.end))
        return []

    return change


STRETCHES = {
    "two heads in a row": two_heads,
    "a hole over three records": hole,
    "over a segment's end": across_a_segments_end,
    "a segment of zeros": segment_of(bytes(SEGMENT)),
    "a segment of ones": segment_of(b"\xff" * SEGMENT),
    "a segment of noise": segment_of(random.Random(5).randbytes(SEGMENT)),
    "two segments swapped": swapped,
    "a segment's end zeroed": segments_end(lambda left: bytes(8)),
    "a segment's end of ones": segments_end(lambda left: b"\xff" * 8),
    "a segment's end of a wrong size": segments_end(
        lambda left: formats.BLANK.struct.pack(left - 1, formats.BLANK_MAGIC)
    ),
}


@pytest.mark.parametrize("change", STRETCHES.values(), ids=STRETCHES.keys())
@pytest.mark.parametrize("mark", ["clean", "state", "checkpoint", "none"])
def test_a_stretch_of_damage_is_refused_and_read_around(
    store: Crafted, change: Callable[[Crafted], list[Record]], mark: str
) -> None:
    """Also without any mark: what follows proves that it was durable. All that is good is shown,
    in log order and in its queue, whether queues are taken from the files or made in memory."""
    lost = change(store)
    if mark in ("state", "checkpoint"):
        store.set_mark(mark, store.records[-1].end)
    elif mark == "none":
        (store.root / "rocketstore.state").unlink()
        (store.root / "checkpoint").unlink()
    if mark != "clean":
        store.crashed()
    before = snapshot(store.root)
    with pytest.raises(CorruptionError):
        rocketstore.open(store.root, "r+")
    assert snapshot(store.root) == before
    good = [r.raw for r in store.records if r not in lost]
    assert shown(store.root, "r") == good
    for derive in ("tail", "full"):
        assert pulled(store.root, derive=derive) == good
    assert snapshot(store.root) == before


# --- B: segments ------------------------------------------------------------------------------


def extra(number: int, content: bytes) -> Callable[[Crafted], Path]:
    """One more segment, ``number`` places after the last."""

    def make(store: Crafted) -> Path:
        name = f"{store.files_end() + number * SEGMENT:020d}"
        path = store.root / "commitlog" / name
        path.write_bytes(content)
        return path

    return make


def at_offset(offset: int, content: bytes) -> Callable[[Crafted], Path]:
    def make(store: Crafted) -> Path:
        path = store.root / "commitlog" / f"{offset:020d}"
        path.write_bytes(content)
        return path

    return make


ALLOWED_EXTRAS = {
    "zeros": extra(0, bytes(SEGMENT)),
    "noise": extra(0, random.Random(3).randbytes(SEGMENT)),
    "ones": extra(0, b"\xff" * SEGMENT),
    "empty, after a gap": extra(1, b""),
    "empty, far away": at_offset(2**62, b""),
    "zeros, beyond the last offset": at_offset(2**63 - SEGMENT, bytes(SEGMENT)),
    "zeros, at the last offset": at_offset(2**63 - 1, bytes(SEGMENT)),
}
REFUSED_EXTRAS = {
    "short": extra(0, bytes(100)),
    "zeros, after a gap": extra(1, bytes(SEGMENT)),
    "zeros, far away": at_offset(2**62, bytes(SEGMENT)),
}


@pytest.mark.parametrize("make", ALLOWED_EXTRAS.values(), ids=ALLOWED_EXTRAS.keys())
@pytest.mark.parametrize("state", [True, False])
def test_b01_a_segment_too_many_is_no_loss(
    store: Crafted, make: Callable[[Crafted], Path], state: bool
) -> None:
    make(store)
    if not state:
        (store.root / "rocketstore.state").unlink()
    good = [r.raw for r in store.records]
    before = snapshot(store.root)
    assert shown(store.root, "r") == good
    assert snapshot(store.root) == before
    assert shown(store.root, "r+") == good
    with rocketstore.open(store.root, "r+") as opened:
        assert opened.put("Orders", b"next").physical_offset == store.records[-1].end
        assert opened.verify().ok


@pytest.mark.parametrize("make", REFUSED_EXTRAS.values(), ids=REFUSED_EXTRAS.keys())
def test_b05_a_segment_that_does_not_join_is_refused(
    store: Crafted, make: Callable[[Crafted], Path]
) -> None:
    make(store)
    before = snapshot(store.root)
    with pytest.raises(MappedFileError):
        rocketstore.open(store.root, "r+")
    assert shown(store.root, "r") == [r.raw for r in store.records]
    assert snapshot(store.root) == before


@pytest.mark.parametrize("more", [1, 100, SEGMENT])
def test_b03_last_segment_too_long(store: Crafted, more: int) -> None:
    path = store.segments()[-1]
    path.write_bytes(path.read_bytes() + b"\x01" * more)
    before = snapshot(store.root)
    with pytest.raises(MappedFileError, match=str(SEGMENT + more)):
        rocketstore.open(store.root, "r+")
    assert shown(store.root, "r") == [r.raw for r in store.records]
    assert snapshot(store.root) == before


# --- B: folders -------------------------------------------------------------------------------


def replace_by(make: Callable[[Path], None]) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        shutil.rmtree(path)
        make(path)

    return change


LINK_TO_NOTHING = replace_by(lambda path: path.symlink_to("nowhere"))
NO_FOLDERS = {
    "file": replace_by(lambda path: path.write_bytes(b"x") and None),
    "fifo": replace_by(os.mkfifo),
    "link to nothing": LINK_TO_NOTHING,
    "link to itself": replace_by(lambda path: path.symlink_to(path.name)),
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("change", NO_FOLDERS.values(), ids=NO_FOLDERS.keys())
@pytest.mark.parametrize("name", ["commitlog", "consumequeue", "index"])
def test_b09_what_should_be_a_folder(
    store: Crafted, name: str, change: Callable[[Path], None]
) -> None:
    """A link to nothing was detected only before a write below it. By then the abort file existed,
    and a log without segments had been taken for a new one."""
    change(store.root / name)
    before = snapshot(store.root)
    with pytest.raises((RocketStoreError, OSError), match=name):
        rocketstore.open(store.root, "r+")
    assert snapshot(store.root) == before
    if name != "commitlog":
        assert shown(store.root, "r") == [r.raw for r in store.records]
    else:
        with pytest.raises((RocketStoreError, OSError), match=name):
            rocketstore.open(store.root, "r")
    assert snapshot(store.root) == before


@pytest.mark.timeout(120)
@pytest.mark.parametrize("change", NO_FOLDERS.values(), ids=NO_FOLDERS.keys())
@pytest.mark.parametrize("name", ["consumequeue/Orders", "consumequeue/Orders/0"])
def test_b12_no_folder_where_a_queue_should_be_is_read_around(
    store: Crafted, name: str, change: Callable[[Path], None]
) -> None:
    change(store.root / name)
    before = snapshot(store.root)
    assert pulled(store.root, derive="full") == [r.raw for r in store.records]
    assert shown(store.root, "r") == [r.raw for r in store.records]
    assert snapshot(store.root) == before


@pytest.mark.parametrize("target", ["nowhere", "Orders", "../../outside", "../checkpoint"])
@pytest.mark.parametrize("name", ["consumequeue/Orders", "consumequeue/Orders/0"])
def test_b10_links_to_no_folder_are_refused_for_writing(
    store: Crafted, name: str, target: str
) -> None:
    """They were detected only when a folder was created; by then the abort file existed."""
    (store.root.parent / "outside").write_bytes(b"precious")
    path = store.root / name
    shutil.rmtree(path)
    path.symlink_to(path.name if target == "Orders" else target)
    before = snapshot(store.root)
    with pytest.raises(RocketStoreError, match=name):
        rocketstore.open(store.root, "r+")
    assert snapshot(store.root) == before
    assert (store.root.parent / "outside").read_bytes() == b"precious"


# --- E: a state file that lies ----------------------------------------------------------------

LIES: list[dict[str, Any]] = [
    {"flushed_offset": -1}, {"flushed_offset": 2**62}, {"dispatched_offset": -5},
    {"dispatched_offset": 77}, {"dispatched_offset": 2**62}, {"indexed_offset": -1},
    {"indexed_offset": 77}, {"indexed_offset": 2**62}, {"log_end_offset": -1},
    {"commit_log_file_size": 0}, {"commit_log_file_size": -1}, {"commit_log_file_size": 2**31},
    {"consume_queue_file_size": 0}, {"consume_queue_file_size": -20},
    {"consume_queue_file_size": 7}, {"hash_slot_num": 0}, {"hash_slot_num": -1},
    {"hash_slot_num": 2**31 - 1, "index_num": 2**31 - 1}, {"index_num": 0}, {"queue_count": -1},
    {"queue_crc": 1}, {"index_file_count": -5}, {"index_file_count": 2**31 - 1},
    {"broker_version": ""}, {"broker_version": "99.9.9"}, {"timezone": "Mars/X"},
    {"timezone": "../../x"}, {"clean": False},
]  # fmt: skip


@pytest.mark.parametrize("lie", LIES, ids=str)
@pytest.mark.parametrize("aborted", [True, False])
def test_e02_state_file_that_lies(store: Crafted, lie: dict[str, Any], aborted: bool) -> None:
    """Whole, with the right CRC, and wrong: it is a hint, and the result is the same."""
    path = store.root / "rocketstore.state"
    state = StoreState.from_bytes(path.read_bytes())
    assert state is not None
    dataclasses.replace(state, **lie).write(path)
    if aborted:
        store.crashed()
    good = [r.raw for r in store.records]
    assert shown(store.root, "r") == good
    with rocketstore.open(store.root, "r+") as opened:
        assert not opened.recovery_report.cut
        assert [bytes(m.raw) for m in opened.scan()] == good
        messages, errors = crafted.pull_all(opened)
        assert (crafted.in_log_order(messages), errors) == (good, [])
        for record in store.records[::7]:
            found = opened.find(topic=record.topic, key=record.key)
            assert record.offset in [m.physical_offset for m in found]
        assert opened.verify().ok
