"""Damaged commit-log records: cut when torn, refused when rotten, never returned as good.

Every kind of damage is put at the log's end, in front of good records above the durable mark, and
below the mark, with the mark from a state file and from the checkpoint's times.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from corruption import crafted
from corruption.crafted import Crafted, Record, body_crc, snapshot
from golden import golden_stores
from rocketstore import CorruptionError, CorruptMessageError, PutMessageStatus, formats
from rocketstore.store_checkpoint import StoreCheckpoint

Damage = Callable[[Crafted, Record], bytes]
#: For opening a store that has neither queues nor index nor state file.
GEOMETRY = {
    name: crafted.OPTIONS[name]
    for name in ("mapped_file_size_consume_queue", "max_hash_slot_num", "max_index_num")
}


# --- the kinds of damage ----------------------------------------------------------------------


def number(name: str, value: int | Callable[[Crafted, Record], int]) -> Damage:
    """Set a number of the record."""

    def change(store: Crafted, record: Record) -> bytes:
        wanted = value if isinstance(value, int) else value(store, record)
        return record.with_number(name, wanted)

    return change


def added(name: str, difference: int) -> Damage:
    """Add to a number of the record."""
    return number(name, lambda _, record: record.number(name) + difference)


def left(store: Crafted, record: Record) -> int:
    """Bytes from the record's start to the end of its segment."""
    return store.segment_size - record.offset % store.segment_size


def zeroed(start: Callable[[Record], int], nbytes: Callable[[Record], int]) -> Damage:
    """Zero a stretch of the record."""

    def change(_: Crafted, record: Record) -> bytes:
        at = start(record)
        stop = min(at + nbytes(record), record.size)
        assert 0 <= at < stop
        assert any(record.raw[at:stop])
        return record.with_bytes(at, bytes(stop - at))

    return change


def flipped(at: Callable[[Record], int], bit: int) -> Damage:
    """Flip one bit."""

    def change(_: Crafted, record: Record) -> bytes:
        return record.with_bytes(at(record), bytes([record.raw[at(record)] ^ 1 << bit]))

    return change


def marker(size: Callable[[Crafted, Record], int]) -> Damage:
    """An end-of-segment marker in front of the record's other bytes."""

    def change(store: Crafted, record: Record) -> bytes:
        marked = record.with_number("magic", formats.BLANK_MAGIC)
        return formats.BLANK.struct.pack(size(store, record), formats.BLANK_MAGIC) + marked[8:]

    return change


def from_another_segment(direction: int) -> Damage:
    """A whole good record of an earlier or a later segment, of the same length."""

    def change(store: Crafted, record: Record) -> bytes:
        here = record.offset // store.segment_size
        others = [
            other
            for other in store.records
            if (other.offset // store.segment_size - here) * direction > 0
            and other.size == record.size
        ]
        if others:
            return others[0].raw
        # There is no later one when the record is the last: one from a segment yet to come.
        return record.moved_to(record.offset + direction * store.segment_size)

    return change


def two_byte_topic_length(length: int) -> Damage:
    """The topic length of a version-2 record; the record is rewritten to be one."""

    def change(_: Crafted, record: Record) -> bytes:
        raw = record.with_number("magic", formats.MAGIC_V2)
        at = record.topic_length_at
        width = 2
        return raw[:at] + (length % 65536).to_bytes(width, "big") + raw[at + width :]

    return change


def reversed_magic(_: Crafted, record: Record) -> bytes:
    at, width = record.field("magic")
    return record.with_bytes(at, record.raw[at : at + width][::-1])


def shorter_topic(_: Crafted, record: Record) -> bytes:
    """The topic's last byte counts as the properties length's first: everything is off by one."""
    return record.with_number("topic_length", record.number("topic_length") - 1)


def host_flag(bit: int) -> Damage:
    """One of the IPv6 flags turned over, the record's layout left as it is."""
    return number("sys_flag", lambda _, record: record.sys_flag ^ bit)


BOTH_V6 = formats.SYS_FLAG_BORN_HOST_V6 | formats.SYS_FLAG_STORE_HOST_V6

#: What no reader can tell from a ghost unless its queue shows the gap.
GHOSTLY = ("a08_offset_one_less", "a08_copy_of_an_earlier_segment", "a08_offset_zero")

ANY_RECORD: dict[str, Damage] = {
    "a01_size_zero": number("total_size", 0),
    "a01_first_8_bytes_zero": zeroed(lambda _: 0, lambda _: 8),
    "a01_first_64_bytes_zero": zeroed(lambda _: 0, lambda _: 64),
    "a02_size_minus_one": number("total_size", -1),
    "a02_size_lowest": number("total_size", -(2**31)),
    "a02_size_negated": number("total_size", lambda _, record: -record.size),
    "a03_size_1": number("total_size", 1),
    "a03_size_7": number("total_size", 7),
    "a03_size_8": number("total_size", 8),
    "a03_size_90": number("total_size", 90),
    "a03_size_91": number("total_size", 91),
    "a04_size_highest": number("total_size", 2**31 - 1),
    "a04_size_one_more_than_left": number("total_size", lambda s, r: left(s, r) + 1),
    "a04_size_of_the_rest": number("total_size", left),
    "a04_size_of_two_segments": number("total_size", lambda s, _: 2 * s.segment_size),
    "a05_size_one_more": added("total_size", 1),
    "a05_size_one_less": added("total_size", -1),
    "a05_body_one_more": added("body_length", 1),
    "a05_body_one_less": added("body_length", -1),
    "a05_topic_one_more": added("topic_length", 1),
    "a05_topic_one_less": shorter_topic,
    "a05_properties_one_more": added("properties_length", 1),
    "a05_properties_one_less": added("properties_length", -1),
    "a06_magic_zero": number("magic", 0),
    "a06_magic_reversed": reversed_magic,
    "a06_magic_first_bit": flipped(lambda _: 4, 7),
    "a06_magic_middle_bit": flipped(lambda _: 6, 3),
    "a06_magic_last_bit": flipped(lambda _: 7, 0),
    "a06_magic_of_the_other_version": number(
        "magic",
        lambda _, r: formats.MAGIC_V1 if r.magic == formats.MAGIC_V2 else formats.MAGIC_V2,
    ),
    "a07_marker_size_0": marker(lambda *_: 0),
    "a07_marker_negative": marker(lambda *_: -1),
    "a07_marker_lowest": marker(lambda *_: -(2**31)),
    "a07_marker_8": marker(lambda *_: 8),
    "a07_marker_one_short": marker(lambda s, r: left(s, r) - 1),
    "a07_marker_one_long": marker(lambda s, r: left(s, r) + 1),
    "a07_marker_of_the_record": marker(lambda _, r: r.size),
    "a07_marker_of_a_segment": marker(lambda s, _: s.segment_size),
    "a08_offset_one_more": added("physical_offset", 1),
    "a08_offset_one_less": added("physical_offset", -1),
    "a08_offset_zero": number("physical_offset", 0),
    "a08_offset_negative": number("physical_offset", -1),
    "a08_offset_high_bit": added("physical_offset", 2**40),
    "a08_copy_of_an_earlier_segment": from_another_segment(-1),
    "a08_copy_of_a_later_segment": from_another_segment(1),
    "a09_queue_id_minus_one": number("queue_id", -1),
    "a09_queue_id_lowest": number("queue_id", -(2**31)),
    "a09_queue_offset_minus_one": number("queue_offset", -1),
    "a09_queue_offset_lowest": number("queue_offset", -(2**63)),
    "a11_body_length_minus_one": number("body_length", -1),
    "a11_body_length_lowest": number("body_length", -(2**31)),
    "a12_body_longer_than_the_rest": number("body_length", lambda _, r: r.size),
    "a12_body_one_beyond_the_rest": number(
        "body_length", lambda _, r: r.size - r.body_at - 1 - 2 + 1
    ),
    "a12_body_highest": number("body_length", 2**31 - 1),
    "a12_body_overflows_the_sum": number("body_length", lambda _, r: 2**31 - r.body_at),
    "a14_topic_empty": number("topic_length", 0),
    "a14_topic_past_the_record": number("topic_length", 127),
    "a14_two_byte_topic_ffff": two_byte_topic_length(0xFFFF),
    "a14_two_byte_topic_7fff": two_byte_topic_length(0x7FFF),
    "a15_properties_minus_one": number("properties_length", -1),
    "a15_properties_lowest": number("properties_length", -32768),
    "a15_properties_past_the_record": number("properties_length", 32767),
    "a16_topic_zero": zeroed(lambda r: r.topic_at, lambda r: len(r.topic)),
    "a16_topic_begins_with_nul": zeroed(lambda r: r.topic_at, lambda _: 1),
    "a16_topic_ends_with_nul": zeroed(lambda r: r.properties_length_at - 1, lambda _: 1),
    "a16_topic_and_properties_zero": zeroed(lambda r: r.topic_at, lambda r: r.size),
    "a16_properties_zero": zeroed(lambda r: r.properties_at, lambda r: r.size),
    "a16_last_4_bytes_zero": zeroed(lambda r: r.size - 4, lambda _: 4),
    "a21_born_host_flag": host_flag(formats.SYS_FLAG_BORN_HOST_V6),
    "a21_store_host_flag": host_flag(formats.SYS_FLAG_STORE_HOST_V6),
    "a21_both_host_flags": host_flag(BOTH_V6),
}

WITH_BODY: dict[str, Damage] = {
    "a13_first_bit": flipped(lambda r: r.body_at, 7),
    "a13_middle_bit": flipped(lambda r: r.body_at + r.body_nbytes // 2, 4),
    "a13_last_bit": flipped(lambda r: r.topic_length_at - 1, 0),
    "a13_stored_crc": flipped(lambda _: 8, 0),
    "a13_stored_crc_sign": flipped(lambda _: 8, 7),
}
VERSION_1: dict[str, Damage] = {
    "a14_topic_0x80": number("topic_length", 0x80),
    "a14_topic_0xff": number("topic_length", 0xFF),
}
WIDE: dict[str, Damage] = {
    "a16_sector_of_512": zeroed(lambda r: r.properties_at + 100, lambda _: 512),
    "a16_sector_to_the_end": zeroed(lambda r: r.size - 512, lambda _: 512),
    "a16_first_sector_of_properties": zeroed(lambda r: r.properties_at, lambda _: 512),
    "a16_sector_over_the_topic": zeroed(lambda r: r.topic_at - 1, lambda _: 513),
}
VERY_WIDE: dict[str, Damage] = {
    "a16_page_of_4096": zeroed(lambda r: r.properties_at + 50, lambda _: 4096),
}
IPV6: dict[str, Damage] = {
    "a21_ipv6_laid_out_as_ipv4": host_flag(formats.SYS_FLAG_BORN_HOST_V6),
}

#: name -> (damage, kind of record it is done to: its number modulo 8)
CASES: dict[str, tuple[Damage, int]] = {
    **{name: (damage, 2) for name, damage in ANY_RECORD.items()},
    **{name: (damage, 2) for name, damage in WITH_BODY.items()},
    **{name: (damage, 2) for name, damage in VERSION_1.items()},
    **{name: (damage, 5) for name, damage in WIDE.items()},
    **{name: (damage, 6) for name, damage in VERY_WIDE.items()},
    **{name: (damage, 4) for name, damage in IPV6.items()},
    # Version 2, long topic.
    "a05_v2_topic_one_more": (added("topic_length", 1), 3),
    "a06_v2_magic_of_version_1": (number("magic", formats.MAGIC_V1), 3),
    "a13_v2_body": (WITH_BODY["a13_middle_bit"], 3),
    "a14_v2_topic_empty": (number("topic_length", 0), 3),
    "a14_v2_topic_negative": (number("topic_length", -1), 3),
    "a16_v2_topic_zero": (ANY_RECORD["a16_topic_zero"], 3),
}

ONE_OF_EACH_ROW = {name[:3]: name for name in reversed(CASES)}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of ``crafted.COUNT`` messages, closed in order."""
    root = tmp_path_factory.mktemp("template") / "store"
    crafted.build(root)
    return root


@pytest.fixture
def store(template: Path, tmp_path: Path) -> Crafted:
    """A copy to be damaged."""
    return Crafted(template, tmp_path / "store")


def of_kind(records: list[Record], kind: int, segment: int) -> Record:
    """The first record of a kind in a segment that has neighbours there."""
    inside = [r for r in records if r.offset // crafted.SEGMENT == segment][1:-1]
    return next(r for r in inside if r.key and int(r.key[1:]) % 8 == kind)


def check_cut(store: Crafted, target: Record, behind: list[Record]) -> None:
    """Open for writing: the log ends at ``target``, and goes on from there."""
    good = [r.raw for r in store.records if r.offset < target.offset]
    before = snapshot(store.root)
    with rocketstore.open(store.root, "r") as reader:
        assert reader.max_physical_offset == target.offset
        assert [bytes(m.raw) for m in reader.scan()] == good
        messages, errors = crafted.pull_all(reader)
        assert (crafted.in_log_order(messages), errors) == (good, [])
        assert reader.look_message_by_offset(target.offset) is None
        assert list(reader.find(topic=target.topic, key=target.key)) == []
    assert snapshot(store.root) == before

    with rocketstore.open(store.root, "r+", clock=crafted.Clock(crafted.TIME + 10**6)) as writer:
        report = writer.recovery_report
        assert not report.damaged
        assert report.log_end == writer.max_physical_offset == target.offset
        assert report.cut[0].start == target.offset
        assert report.cut[0].path == str(store.segment(target.offset))
        assert report.cut[0].nbytes > 0
        assert str(target.offset) in report.cut[0].reason
        assert crafted.content_behind(store.root, target.offset, store.segment_size) == b""
        kept = crafted.quarantined(store.root)
        for record in behind:
            assert record.raw in kept
        assert bool(kept) == bool(behind)
        result = writer.put(target.topic, b"again", target.queue_id, None, "after")
        assert (result.physical_offset, result.queue_offset) == (
            target.offset,
            target.queue_offset,
        )
    with rocketstore.open(store.root, "r+") as writer:
        assert not writer.recovery_report.cut
        raws = [bytes(m.raw) for m in writer.scan()]
        assert raws[:-1] == good
        assert [m.body for m in writer.find(topic=target.topic, key="after")] == [b"again"]
        messages, errors = crafted.pull_all(writer)
        assert (crafted.in_log_order(messages), errors) == (raws, [])
        verified = writer.verify()
        assert verified.ok, verified.findings
    for path in store.segments():
        assert path.stat().st_size == store.segment_size


def check_damaged(store: Crafted, target: Record, lost: int = 1) -> None:
    """Refused for writing without a change; readable but for the damaged record."""
    before = snapshot(store.root)
    with pytest.raises(CorruptionError) as caught:
        rocketstore.open(store.root, "r+")
    assert caught.value.path == str(store.segment(target.offset))
    assert caught.value.position == target.offset % store.segment_size
    assert str(target.offset) in str(caught.value)
    assert snapshot(store.root) == before

    good = [r for r in store.records if r.offset != target.offset]
    raws = [r.raw for r in good]
    with rocketstore.open(store.root, "r") as reader:
        (damaged,) = reader.recovery_report.damaged
        assert (damaged.start, damaged.path) == (target.offset, caught.value.path)
        assert [bytes(m.raw) for m in reader.scan(on_corruption="skip")] == raws
        with pytest.raises(CorruptMessageError, match=str(target.offset)):
            list(reader.scan())
        stopped = list(reader.scan(on_corruption="stop"))
        assert [m.physical_offset for m in stopped] == [
            r.offset for r in good if r.offset < target.offset
        ]
        with pytest.raises(CorruptMessageError, match=str(target.offset)):
            reader.look_message_by_offset(target.offset)
        for record in good:
            message = reader.look_message_by_offset(record.offset)
            assert message is not None
            assert bytes(message.raw) == record.raw
        messages, errors = crafted.pull_all(reader)
        assert crafted.in_log_order(messages) == raws
        assert len(errors) == lost
        assert all(error.position == caught.value.position for error in errors)
    assert snapshot(store.root) == before


# --- torn: above the mark ---------------------------------------------------------------------


@pytest.mark.parametrize("mark", ["state", "checkpoint"])
@pytest.mark.parametrize(("damage", "kind"), CASES.values(), ids=CASES.keys())
def test_a_torn_last_record_is_cut(store: Crafted, damage: Damage, kind: int, mark: str) -> None:
    target = of_kind(store.records, kind, 2)
    store.zero_from(target.end)
    store.write(target.offset, damage(store, target))
    store.set_mark(mark, target.offset)
    store.crashed()
    check_cut(store, target, [])


@pytest.mark.parametrize(("damage", "kind"), CASES.values(), ids=CASES.keys())
def test_a_torn_record_in_front_of_good_ones_is_cut(
    store: Crafted, damage: Damage, kind: int
) -> None:
    """The state file knows that none of them was durable; those behind are kept aside."""
    target = of_kind(store.records, kind, 1)
    behind = [r for r in store.records if r.offset > target.offset]
    store.write(target.offset, damage(store, target))
    store.set_state(target.offset - 1)
    store.crashed()
    check_cut(store, target, behind)


# --- rotten: below the mark -------------------------------------------------------------------


@pytest.mark.parametrize(("damage", "kind"), CASES.values(), ids=CASES.keys())
def test_a_damaged_record_is_refused(store: Crafted, damage: Damage, kind: int) -> None:
    """In a store that was closed in order."""
    target = of_kind(store.records, kind, 1)
    store.write(target.offset, damage(store, target))
    check_damaged(store, target)


@pytest.mark.parametrize("mark", ["state", "checkpoint"])
@pytest.mark.parametrize("name", [*ONE_OF_EACH_ROW.values(), *GHOSTLY])
def test_a_damaged_record_below_the_mark_is_refused(store: Crafted, name: str, mark: str) -> None:
    """In a store whose writer was killed."""
    damage, kind = CASES[name]
    target = of_kind(store.records, kind, 1)
    later = of_kind(store.records, kind, 2)
    store.write(target.offset, damage(store, target))
    store.set_mark(mark, later.offset)
    store.crashed()
    check_damaged(store, target)


@pytest.mark.parametrize(
    "name",
    ["a01_first_8_bytes_zero", "a04_size_highest", "a06_magic_zero", "a13_last_bit"],
)
@pytest.mark.parametrize("place", ["first of the log", "first of a segment", "last of a segment"])
def test_damage_at_the_edges_is_refused(store: Crafted, name: str, place: str) -> None:
    damage, _ = CASES[name]
    records = [r for r in store.records if r.body_nbytes]
    segment = crafted.SEGMENT
    target = {
        "first of the log": store.records[0],
        "first of a segment": next(r for r in records if r.offset == segment),
        "last of a segment": [r for r in records if r.offset < segment][-1],
    }[place]
    if not target.body_nbytes:
        damage = CASES["a06_magic_zero"][0]
    store.write(target.offset, damage(store, target))
    check_damaged(store, target)


def test_two_damaged_records_are_both_named(store: Crafted) -> None:
    targets = [of_kind(store.records, 2, 0), of_kind(store.records, 2, 1)]
    for target in targets:
        store.write(target.offset, target.with_number("magic", 0))
    before = snapshot(store.root)
    with pytest.raises(CorruptionError):
        rocketstore.open(store.root, "r+")
    with rocketstore.open(store.root) as reader:
        damaged = reader.recovery_report.damaged
        assert [d.start for d in damaged] == [t.offset for t in targets]
        raws = [bytes(m.raw) for m in reader.scan(on_corruption="skip")]
        assert raws == [r.raw for r in store.records if r not in targets]
    assert snapshot(store.root) == before


# --- in stores that RocketMQ wrote ------------------------------------------------------------


@pytest.fixture(scope="module")
def golden_template(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A store that RocketMQ 5.3.3 wrote, as it left it."""
    return golden_stores.unpack(request.param, tmp_path_factory.mktemp(request.param))


@pytest.mark.parametrize("golden_template", ["plain-5.3.3", "crash-5.3.3"], indirect=True)
@pytest.mark.parametrize("name", ONE_OF_EACH_ROW.values())
def test_a_damaged_record_of_rocketmq_is_refused(
    golden_template: Path, tmp_path: Path, name: str
) -> None:
    store = Crafted(golden_template, tmp_path / "store")
    damage, _ = CASES[name]
    fitting = [r for r in store.records[: len(store.records) // 2] if r.body_nbytes > 8]
    fitting = [r for r in fitting if r.magic == formats.MAGIC_V1] or fitting
    if name.startswith("a16"):
        fitting = [r for r in fitting if len(r.raw) - r.properties_at > 4]
        damage = CASES["a16_topic_zero"][0]
    target = fitting[len(fitting) // 2]
    store.write(target.offset, damage(store, target))
    before = snapshot(store.root)
    with pytest.raises(CorruptionError) as caught:
        rocketstore.open(store.root, "r+")
    assert caught.value.path == str(store.segment(target.offset))
    assert caught.value.position == target.offset % store.segment_size
    with rocketstore.open(store.root, "r") as reader:
        offsets = [m.physical_offset for m in reader.scan(on_corruption="skip")]
        assert offsets == [r.offset for r in store.records if r != target]
        assert [d.start for d in reader.recovery_report.damaged] == [target.offset]
        with pytest.raises(CorruptMessageError):
            reader.look_message_by_offset(target.offset)
    assert snapshot(store.root) == before


@pytest.mark.parametrize("name", ONE_OF_EACH_ROW.values())
@pytest.mark.parametrize("golden_template", ["crash-5.3.3"], indirect=True)
def test_a_torn_last_record_of_rocketmq_is_cut(
    golden_template: Path, tmp_path: Path, name: str
) -> None:
    store = Crafted(golden_template, tmp_path / "store")
    damage, _ = CASES[name]
    fitting = [r for r in store.records if r.body_nbytes > 8 and r.magic == formats.MAGIC_V1]
    if name.startswith("a16"):
        damage = CASES["a16_topic_zero"][0]
    target = fitting[-1]
    store.zero_from(target.end)
    store.write(target.offset, damage(store, target))
    good = [r.raw for r in store.records if r.offset < target.offset]
    with rocketstore.open(store.root, "r+") as writer:
        assert writer.max_physical_offset == target.offset
        assert writer.recovery_report.cut[0].start == target.offset
        assert [bytes(m.raw) for m in writer.scan()] == good
        assert crafted.content_behind(store.root, target.offset, store.segment_size) == b""
        assert writer.put(target.topic, b"again", target.queue_id).ok
    with rocketstore.open(store.root, "r") as reader:
        assert [bytes(m.raw) for m in reader.scan()][:-1] == good
        assert [m.body for m in reader.scan()][-1] == b"again"


# --- rows that are not damage -----------------------------------------------------------------


def both_modes(store: Crafted) -> tuple[Any, Any]:
    """Reports of opening for reading and for writing; both must show the same messages."""
    with rocketstore.open(store.root, "r", **GEOMETRY) as reader:
        shown = [bytes(m.raw) for m in reader.scan()]
        first = reader.recovery_report
    with rocketstore.open(store.root, "r+", **GEOMETRY) as writer:
        assert [bytes(m.raw) for m in writer.scan()] == shown
        return first, writer.recovery_report


def rebuild_queues(store: Crafted) -> None:
    """Let queues and index be made from the log again."""
    shutil.rmtree(store.root / "consumequeue")
    shutil.rmtree(store.root / "index")
    (store.root / "rocketstore.state").unlink()


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


def with_properties(record: Record, properties: bytes, topic: bytes | None = None) -> bytes:
    """The record with other properties, as long as before: its body grows or shrinks."""
    name = topic if topic is not None else record.topic.encode()
    width = record.topic_length_nbytes
    room = record.size - record.body_at - width - len(name) - 2 - len(properties)
    assert room >= 0
    body = bytes(i % 250 for i in range(room))
    raw = record.raw[: record.body_at - 4] + room.to_bytes(4, "big") + body
    raw += len(name).to_bytes(width, "big") + name
    raw += len(properties).to_bytes(2, "big") + properties
    assert len(raw) == record.size
    at = formats.RECORD_HEAD.at("body_crc")
    return raw[:at] + body_crc(body).to_bytes(4, "big") + raw[at + 4 :]


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


def rebuild_state(store: Crafted, mark: str, offset: int) -> None:
    store.set_mark(mark, offset)
    store.crashed()


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
        assert [cut.start for cut in writer.recovery_report.cut] == [target.offset]
        assert raw.rstrip(b"\0") in crafted.quarantined(
            store.root
        )  # it was complete, so it is kept


@pytest.mark.parametrize("nbytes", [1, 2, 3])
def test_a16_sector_that_begins_at_the_end_of_the_properties(store: Crafted, nbytes: int) -> None:
    """A lost sector takes a record's last bytes and the next one's head: both are damaged."""
    records = store.records
    target = of_kind(records, 2, 1)
    following = records[records.index(target) + 1]
    store.write(target.end - nbytes, bytes(512))
    stop = target.end - nbytes + 512
    before = snapshot(store.root)
    with pytest.raises(CorruptionError) as caught:
        rocketstore.open(store.root, "r+")
    assert caught.value.position == target.offset % store.segment_size
    good = [r.raw for r in records if r.end <= target.offset or r.offset >= stop]
    with rocketstore.open(store.root, "r") as reader:
        assert [bytes(m.raw) for m in reader.scan(on_corruption="skip")] == good
        with pytest.raises(CorruptMessageError):
            reader.look_message_by_offset(target.offset)
        assert following.raw not in [bytes(m.raw) for m in reader.scan(on_corruption="skip")]
        messages, errors = crafted.pull_all(reader)
        assert crafted.in_log_order(messages) == good
        assert errors
    assert snapshot(store.root) == before


# --- A08: ghosts ------------------------------------------------------------------------------


def insert(store: Crafted, at: Record, content: bytes) -> None:
    """Put ``content`` in front of a record: what follows it in its segment moves up.

    The last of them fall off the segment's end; those that stay carry their new offsets, and queue
    offsets count on without them.
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


@pytest.mark.parametrize("count", [1, 3])
def test_a08_ghosts_between_good_records_are_passed_over(store: Crafted, count: int) -> None:
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
def test_a08_ghost_as_the_last_thing_is_cut(store: Crafted, mark: str) -> None:
    target = of_kind(store.records, 2, 2)
    store.zero_from(target.offset)
    store.write(target.offset, store.records[2].raw)
    rebuild_state(store, mark, target.offset)
    with rocketstore.open(store.root, "r+") as writer:
        assert writer.max_physical_offset == target.offset
        assert [cut.start for cut in writer.recovery_report.cut] == [target.offset]
        assert crafted.content_behind(store.root, target.offset, store.segment_size) == b""


def test_a08_ghost_in_front_of_damage_is_damage(store: Crafted) -> None:
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


# --- A20: the whole-record CRC ----------------------------------------------------------------


@pytest.fixture(scope="module")
def crc_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose records carry whole-record CRCs."""
    root = tmp_path_factory.mktemp("crc") / "store"
    crafted.build(root, enabled_append_prop_crc=True)
    return root


def wrong_digit(_: Crafted, record: Record) -> bytes:
    at = record.size - 3
    return record.with_bytes(at, b"1" if record.raw[at : at + 1] != b"1" else b"2")


def other_text(_: Crafted, record: Record) -> bytes:
    """Topic or properties changed to other letters: only the whole-record CRC can tell."""
    return record.with_bytes(record.properties_at + 8, b"#")


def other_topic(_: Crafted, record: Record) -> bytes:
    return record.with_bytes(record.topic_at, b"X")


CRC_DAMAGE = {"digit": wrong_digit, "properties": other_text, "topic": other_topic}


@pytest.mark.parametrize("damage", CRC_DAMAGE.values(), ids=CRC_DAMAGE.keys())
@pytest.mark.parametrize("segment", [0, 1])
def test_a20_wrong_whole_record_crc_is_damage(
    crc_template: Path, tmp_path: Path, damage: Damage, segment: int
) -> None:
    store = Crafted(crc_template, tmp_path / "store")
    target = of_kind(store.records, 2, segment)
    store.write(target.offset, damage(store, target))
    check_damaged(store, target)


@pytest.mark.parametrize("damage", CRC_DAMAGE.values(), ids=CRC_DAMAGE.keys())
def test_a20_torn_record_with_wrong_whole_record_crc_is_cut(
    crc_template: Path, tmp_path: Path, damage: Damage
) -> None:
    store = Crafted(crc_template, tmp_path / "store")
    target = of_kind(store.records, 2, 2)
    store.zero_from(target.end)
    store.write(target.offset, damage(store, target))
    rebuild_state(store, "state", target.offset)
    # Complete but for its whole-record CRC, it is kept aside.
    check_cut(store, target, [replace(target, raw=damage(store, target))])


@pytest.mark.parametrize("value", ["0000000001", "-123456789", "abcdefghij", "12345"])
def test_a20_copied_crc_in_a_store_without_them_says_nothing(store: Crafted, value: str) -> None:
    """A plain 4.9 record may hold the property of the message it was copied from."""
    target = of_kind(store.records, 2, 1)
    raw = with_properties(target, f"KEYS\x01a\x02__CRC32#\x01{value}\x02".encode())
    store.write(target.offset, raw)
    for report in both_modes(store):
        assert not report.damaged
        assert not report.cut
    with rocketstore.open(store.root, "r+", force_verify_prop_crc=False) as writer:
        message = writer.look_message_by_offset(target.offset)
        assert message is not None
        assert bytes(message.raw) == raw


def test_a20_crcs_that_begin_late_in_a_segment(template: Path, tmp_path: Path) -> None:
    """The property was switched on in mid-segment, behind the records looked at first."""
    root = tmp_path / "plain"
    options = {**crafted.OPTIONS, "mapped_file_size_commit_log": 128 * 1024}
    with rocketstore.open(root, "x", clock=crafted.Clock(), **options) as writer:
        for _ in range(200):
            writer.put("Orders", b"body")
    with rocketstore.open(
        root, "r+", clock=crafted.Clock(crafted.TIME + 10**6), enabled_append_prop_crc=True
    ) as writer:
        for _ in range(200):
            writer.put("Orders", b"body", properties={"name": "some value"})
    store = Crafted(root, tmp_path / "store")
    target = store.records[300]
    store.write(target.offset, wrong_digit(store, target))
    check_damaged(store, target)


# --- A22: stale tails -------------------------------------------------------------------------


def test_a22_stale_record_behind_a_torn_one_does_not_come_back(store: Crafted) -> None:
    """The old record fits exactly behind a new one of the torn one's length."""
    records = store.records
    torn = of_kind(records, 2, 2)
    stale = records[records.index(torn) + 1]
    store.zero_from(stale.end)
    store.write(torn.offset, torn.with_number("magic", 0))
    old = stale.with_number("store_timestamp", records[0].store_timestamp - 1000)
    store.write(stale.offset, old)
    store.set_checkpoint(torn.offset)
    store.crashed()
    properties = {"number": "2222"}
    clock = crafted.Clock(crafted.TIME + 10**6)
    with rocketstore.open(store.root, "r+", clock=clock) as writer:
        assert writer.max_physical_offset == torn.offset
        assert old in crafted.quarantined(store.root)
        result = writer.put(
            torn.topic, bytes(torn.body_nbytes), torn.queue_id, "Tag0", torn.key,
            properties=properties, born_host="10.1.2.3:4000",
        )  # fmt: skip
        assert (result.physical_offset, result.nbytes) == (torn.offset, torn.size)
        image = store.root.with_name("killed")
        writer.flush()
        shutil.copytree(store.root, image)
    (image / "abort").write_bytes(b"")
    for state in (True, False):
        if not state:
            (image / "rocketstore.state").unlink()
        with rocketstore.open(image, "r+") as writer:
            assert writer.max_physical_offset == torn.end
            assert [m.physical_offset for m in writer.scan()][-1] == torn.offset
        (image / "abort").write_bytes(b"")


@pytest.mark.parametrize("kind", ["used queue offset", "older"])
def test_a22_stale_tail_is_told_from_durable_records(store: Crafted, kind: str) -> None:
    records = store.records
    torn = of_kind(records, 2, 2)
    behind = [r for r in records if r.offset > torn.offset and r.offset // crafted.SEGMENT == 2]
    for record in behind:
        if kind == "older":
            raw = record.with_number("store_timestamp", records[0].store_timestamp - 5)
        else:
            raw = record.with_number("queue_offset", 0)
        store.write(record.offset, raw)
    store.zero_from(3 * crafted.SEGMENT)
    store.write(torn.offset, torn.with_number("total_size", 0))
    store.set_checkpoint(torn.offset)
    store.crashed()
    with rocketstore.open(store.root, "r+") as writer:
        assert writer.max_physical_offset == torn.offset
        assert crafted.content_behind(store.root, torn.offset, store.segment_size) == b""


def test_a22_durable_records_behind_damage_are_never_cut(store: Crafted) -> None:
    """Without a mark that covers them, what follows shows that the damaged record was durable."""
    target = of_kind(store.records, 2, 1)
    store.write(target.offset, target.with_number("total_size", 0))
    store.set_checkpoint(0)
    store.crashed()
    check_damaged(store, target)


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
    check_cut(store, target, [])
