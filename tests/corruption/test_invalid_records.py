"""Odd records that are not damage, and ghosts: accepted or skipped, and reported."""

from __future__ import annotations

import pytest

import rocketstore
from corruption import crafted
from corruption.crafted import Crafted, Record, snapshot
from corruption.record_checks import (
    GEOMETRY,
    both_modes,
    check_damaged,
    check_truncated,
    of_kind,
    rebuild_queues,
    rebuild_state,
    with_properties,
)
from rocketstore import CorruptionError, PutMessageStatus, formats
from rocketstore.directory.checkpoint import StoreCheckpoint


@pytest.mark.parametrize("rebuild", [True, False])
@pytest.mark.parametrize("change", [-1, -2, 1, 3], ids=lambda c: f"{c:+d}")
def test_a10_queue_offset_out_of_order(store: Crafted, change: int, rebuild: bool) -> None:
    target = of_kind(store.records, 2, 1)
    changed = target.with_number("queue_offset", target.queue_offset + change)
    store.write(target.offset, changed)
    if rebuild:
        rebuild_queues(store)
    reports = both_modes(store)
    for report in reports:
        assert not report.damaged
        assert not report.cut
        places = [r[3] for r in report.repeated]
        assert report.gaps or places
        if change < 0:
            assert target.offset in places
    with rocketstore.open(store.root, "r+") as writer:
        message = writer.look_message_by_offset(target.offset)
        assert message is not None
        assert bytes(message.raw) == changed
        units = writer.queue_view(target.topic, target.queue_id)
        own = {r.queue_offset: r.offset for r in queue_of(store, target) if r != target}
        for queue_offset, unit in enumerate(units.tolist()):
            if unit[0] and queue_offset in own and change < 0:
                assert unit[0] == own[queue_offset]
        end = writer.max_offset_in_queue(target.topic, target.queue_id)
        result = writer.put(target.topic, b"next", target.queue_id)
        assert result.queue_offset == end


def queue_of(store: Crafted, record: Record) -> list[Record]:
    """Records of the same queue."""
    return [r for r in store.records if (r.topic, r.queue_id) == (record.topic, record.queue_id)]


ODD_PROPERTIES: dict[str, bytes] = {
    "none": b"",
    "text_without_separators": b"justtext",
    "pair_separators_only": b"\x02\x02\x02\x02",
    "name_separators_only": b"\x01\x01\x01",
    "all_separators": b"\x01\x02\x01\x02",
    "no_name": b"\x01value\x02",
    "no_value": b"name\x01\x02",
    "the_same_twice": b"KEYS\x01first\x02KEYS\x01second\x02",
    "two_name_separators": b"name\x01a\x01b\x02",
    "not_utf_8": b"name\x01\xff\xfe\x80\x02",
    "control_characters": b"na\x03me\x01\x7f\x1f\x02",
    "a_surrogate": b"name\x01\xed\xa0\x80\x02",
}


@pytest.mark.parametrize("properties", ODD_PROPERTIES.values(), ids=ODD_PROPERTIES.keys())
def test_a17_odd_properties_are_accepted(store: Crafted, properties: bytes) -> None:
    target = of_kind(store.records, 2, 1)
    raw = with_properties(target, properties)
    store.write(target.offset, raw)
    rebuild_queues(store)
    for report in both_modes(store):
        assert not report.damaged
        assert not report.cut
    with rocketstore.open(store.root, "r+") as writer:
        found = writer.get_message("g", target.topic, target.queue_id, target.queue_offset, 1)
        assert [bytes(m.raw) for m in found.messages] == [raw]
        assert isinstance(found.messages[0].properties, dict)
        if b"second" in properties:
            assert found.messages[0].keys == "second"
        assert writer.put("Orders", b"next").ok
        assert writer.verify().ok


@pytest.mark.parametrize("level", ["abc", "1x", "", " 1", "0x1", "99999999999999999999", "1.0"])
def test_a18_delay_that_is_no_number_counts_as_absent(store: Crafted, level: str) -> None:
    target = of_kind(store.records, 2, 1)
    properties = f"DELAY\x01{level}\x02REAL_TOPIC\x01Orders\x02".encode()
    topic = formats.TOPIC_SCHEDULE.encode()
    store.write(target.offset, with_properties(target, properties, topic))
    rebuild_queues(store)
    with rocketstore.open(store.root, "r", **GEOMETRY) as reader:
        assert len(list(reader.scan())) == len(store.records)
        notes = [note for note in reader.recovery_report.notes if "DELAY" in note]
        assert len(notes) == (1 if level else 0)
        assert all(str(target.offset) in note for note in notes)
    with rocketstore.open(store.root, "r+", **GEOMETRY) as writer:
        assert not writer.recovery_report.cut
        message = writer.look_message_by_offset(target.offset)
        assert message is not None
        assert message.delay_level == 0
        assert len(list(writer.scan())) == len(store.records)


UNSAFE_TOPICS: dict[str, bytes] = {
    "not_utf_8": b"bad\xff\xfename",
    "overlong": b"bad\xc0\xafname",
    "slash": b"up/down",
    "absolute": b"/abs/path",
    "escape": b"../../out",
    "dot": b".",
    "two_dots": b"..",
    "inner_nul": b"a\0b",
    "newline": b"a\nb",
    "escape_character": b"a\x1b[2Jb",
    "delete": b"a\x7fb",
    "surrogate": b"a\xed\xa0\x80b",
}


@pytest.mark.parametrize("topic", UNSAFE_TOPICS.values(), ids=UNSAFE_TOPICS.keys())
def test_a19_unsafe_topic_makes_no_directory(store: Crafted, topic: bytes) -> None:
    target = of_kind(store.records, 2, 1)
    raw = with_properties(target, b"KEYS\x01odd\x02", topic)
    store.write(target.offset, raw)
    rebuild_queues(store)
    outside = {path for path in store.root.parent.iterdir() if path != store.root}
    for report in both_modes(store):
        assert report.unsafe_topics == [target.offset]
        assert not report.damaged
        assert not report.cut
    with rocketstore.open(store.root, "r+") as writer:
        message = writer.look_message_by_offset(target.offset)
        assert message is not None
        assert bytes(message.raw) == raw
        assert writer.topics() == sorted({"Orders", crafted.LONG_TOPIC})
        assert writer.put("Orders", b"next").ok
    assert sorted(p.name for p in (store.root / "consumequeue").iterdir()) == sorted(
        {"Orders", crafted.LONG_TOPIC}
    )
    assert {path for path in store.root.parent.iterdir() if path != store.root} == outside


@pytest.mark.parametrize("topic", ["%RETRY%a+b", "%LMQ%$x$1", "über", "a b", "😀", "x" * 127])
def test_a19_any_other_topic_is_dispatched(store: Crafted, topic: str) -> None:
    target = of_kind(store.records, 5, 1)
    raw = with_properties(target, b"KEYS\x01odd\x02", topic.encode())
    raw = raw[:20] + bytes(8) + raw[28:]  # queue offset 0
    store.write(target.offset, raw)
    rebuild_queues(store)
    with rocketstore.open(store.root, "r+", **GEOMETRY) as writer:
        assert topic in writer.topics()
        found = writer.get_message("g", topic, target.queue_id, 0)
        assert [bytes(m.raw) for m in found.messages] == [raw]
        assert [m.physical_offset for m in writer.find(topic=topic, key="odd")] == [target.offset]


NUL_PROPERTIES = {"inner": b"a\x01x\0y\x02", "three_at_the_end": b"a\x01xy\0\0\0"}


@pytest.mark.parametrize("mark", ["state", "checkpoint"])
@pytest.mark.parametrize("properties", NUL_PROPERTIES.values(), ids=NUL_PROPERTIES.keys())
def test_a16_few_nuls_are_accepted_below_the_mark(
    store: Crafted, properties: bytes, mark: str
) -> None:
    target = of_kind(store.records, 2, 1)
    raw = with_properties(target, properties)
    store.write(target.offset, raw)
    rebuild_state(store, mark, store.records[-1].end)
    for report in both_modes(store):
        assert report.nul_properties == [target.offset]
        assert not report.cut
    with rocketstore.open(store.root, "r") as reader:
        message = reader.look_message_by_offset(target.offset)
        assert message is not None
        assert bytes(message.raw) == raw


@pytest.mark.parametrize("mark", ["state", "checkpoint"])
@pytest.mark.parametrize("properties", NUL_PROPERTIES.values(), ids=NUL_PROPERTIES.keys())
def test_a16_few_nuls_are_torn_above_the_mark(store: Crafted, properties: bytes, mark: str) -> None:
    target = of_kind(store.records, 2, 2)
    raw = with_properties(target, properties)
    store.zero_from(target.end)
    store.write(target.offset, raw)
    rebuild_state(store, mark, target.offset)
    with rocketstore.open(store.root, "r+") as writer:
        assert writer.max_physical_offset == target.offset
        assert [part.start for part in writer.recovery_report.cut] == [target.offset]
        # It was complete, so it is kept.
        assert raw.rstrip(b"\0") in crafted.quarantined(store.root)


# --- A08: ghosts ------------------------------------------------------------------------------


def insert(store: Crafted, at: Record, content: bytes) -> None:
    """Insert ``content`` before a record: the later records of its segment move up.

    The last of them are lost at the segment's end. The others get their new offsets, and queue
    offsets continue without the lost ones.
    """
    segment = at.offset - at.offset % store.segment_size
    stop = segment + store.segment_size
    place, log = at.offset, content
    ends = {
        (r.topic, r.queue_id): r.queue_offset for r in reversed(store.records) if r.end > at.offset
    }
    for record in store.records:
        if record.offset < at.offset:
            continue
        key = (record.topic, record.queue_id)
        moved = place + len(log)
        if moved % store.segment_size + record.size + 8 > store.segment_size or moved >= stop:
            break
        raw = record.moved_to(moved)
        raw = raw[:20] + ends[key].to_bytes(8, "big") + raw[28:]
        ends[key] += 1
        log += raw
    store.zero_from(at.offset)
    store.write(at.offset, log)
    rebuild_queues(store)
    newest = max(record.store_timestamp for record in store.records if record.offset < place)
    path = store.root / "checkpoint"  # its times are not those of records that fell off
    checkpoint = StoreCheckpoint.from_bytes(path.read_bytes())
    checkpoint.replace(physic_timestamp=newest, logics_timestamp=newest).write(path)


@pytest.mark.parametrize("count", [1, 3])
def test_a08_ghosts_between_good_records_are_skipped(store: Crafted, count: int) -> None:
    target = of_kind(store.records, 2, 1)
    ghost = store.records[2].raw
    insert(store, target, ghost * count)
    places = [target.offset + number * len(ghost) for number in range(count)]
    for report in both_modes(store):
        assert report.ghosts == places
        assert not report.damaged
        assert not report.cut
    with rocketstore.open(store.root, "r+") as writer:
        raws = [bytes(m.raw) for m in writer.scan()]
        assert len(raws) > store.records.index(target) + 1
        messages, errors = crafted.pull_all(writer)
        assert (crafted.in_log_order(messages), errors) == (raws, [])
        for place in places:
            assert writer.look_message_by_offset(place) is None
        key = store.records[2].key
        assert [m.physical_offset for m in writer.find(topic="Orders", key=key)] == [
            store.records[2].offset
        ]
        assert writer.verify().ok


@pytest.mark.parametrize("mark", ["state", "checkpoint"])
def test_a08_ghost_as_the_last_record_is_truncated(store: Crafted, mark: str) -> None:
    target = of_kind(store.records, 2, 2)
    store.zero_from(target.offset)
    store.write(target.offset, store.records[2].raw)
    rebuild_state(store, mark, target.offset)
    with rocketstore.open(store.root, "r+") as writer:
        assert writer.max_physical_offset == target.offset
        assert [part.start for part in writer.recovery_report.cut] == [target.offset]
        assert crafted.content_after(store.root, target.offset, store.segment_size) == b""


def test_a08_ghost_before_damage_is_damage(store: Crafted) -> None:
    """Shorter than the record it overwrote: garbage follows it."""
    records = store.records
    target = of_kind(records, 5, 1)
    short = next(r for r in records if r.size < target.size - 100 and r.offset < target.offset)
    store.write(target.offset, short.raw)
    check_damaged(store, target)


def test_a08_whole_segment_copied_over_another(store: Crafted) -> None:
    """Nothing in it is delivered; what follows goes on."""
    first, second = store.segments()[:2]
    second.write_bytes(first.read_bytes())
    size = store.segment_size
    before = snapshot(store.root)
    with pytest.raises(CorruptionError) as caught:
        rocketstore.open(store.root, "r+")
    assert caught.value.path == str(second)
    with rocketstore.open(store.root, "r") as reader:
        good = [r.raw for r in store.records if not size <= r.offset < 2 * size]
        assert [bytes(m.raw) for m in reader.scan(on_corruption="skip")] == good
        messages, _ = crafted.pull_all(reader)
        assert crafted.in_log_order(messages) == good
    assert snapshot(store.root) == before


# --- A23: times -------------------------------------------------------------------------------

TIMES = {
    "zero": 0,
    "negative": -1,
    "lowest": -(2**63),
    "year_9999": 253_402_300_799_000,
    "highest": 2**63 - 1,
    "an_hour_earlier": crafted.TIME - 3_600_000,
}


@pytest.mark.parametrize("time", TIMES.values(), ids=TIMES.keys())
@pytest.mark.parametrize("where", ["middle", "last"])
@pytest.mark.parametrize("mark", ["clean", "state", "checkpoint"])
def test_a23_odd_store_times_are_accepted(store: Crafted, time: int, where: str, mark: str) -> None:
    target = of_kind(store.records, 2, 1) if where == "middle" else store.records[-1]
    raw = target.with_number("store_timestamp", time)
    store.write(target.offset, raw)
    if mark != "clean":
        rebuild_state(store, mark, store.records[-3].offset)
    expected = [raw if r is target else r.raw for r in store.records]
    with rocketstore.open(store.root, "r") as reader:
        assert [bytes(m.raw) for m in reader.scan()] == expected
    with rocketstore.open(store.root, "r+") as writer:
        report = writer.recovery_report
        assert not report.cut
        assert not report.damaged
        assert [bytes(m.raw) for m in writer.scan()] == expected
        assert writer.put("Orders", b"next").status == PutMessageStatus.PUT_OK
    with rocketstore.open(store.root, "r+") as writer:
        assert [bytes(m.raw) for m in writer.scan()][:-1] == expected


def test_a23_times_do_not_decide_where_checking_begins(store: Crafted) -> None:
    """A checkpoint from the future does not hide a torn tail."""
    target = of_kind(store.records, 2, 2)
    store.zero_from(target.end)
    store.write(target.offset, target.with_number("magic", 0))
    (store.root / "rocketstore.state").unlink()
    path = store.root / "checkpoint"
    old = StoreCheckpoint.from_bytes(path.read_bytes())
    old.replace(physic_timestamp=2**62, logics_timestamp=2**62).write(path)
    store.crashed()
    check_truncated(store, target, [])
