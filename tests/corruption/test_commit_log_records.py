"""Damaged commit-log records: truncated if torn, refused if durable, never returned as good.

Every kind of damage is placed at the log's end, before good records above the durable offset, and
below it. The durable offset comes from a state file or from the checkpoint's times.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import rocketstore
from corruption import crafted
from corruption.crafted import Crafted, Record, snapshot
from corruption.damage_cases import CASES, GHOSTLY, ONE_OF_EACH_ROW, Damage
from corruption.record_checks import (
    both_modes,
    check_damaged,
    check_truncated,
    of_kind,
    rebuild_state,
    with_properties,
)
from golden import golden_stores
from rocketstore import CorruptionError, CorruptMessageError, formats

# --- torn: above the mark ---------------------------------------------------------------------


@pytest.mark.parametrize("mark", ["state", "checkpoint"])
@pytest.mark.parametrize(("damage", "kind"), CASES.values(), ids=CASES.keys())
def test_a_torn_last_record_is_truncated(
    store: Crafted, damage: Damage, kind: int, mark: str
) -> None:
    target = of_kind(store.records, kind, 2)
    store.zero_from(target.end)
    store.write(target.offset, damage(store, target))
    store.set_mark(mark, target.offset)
    store.crashed()
    check_truncated(store, target, [])


@pytest.mark.parametrize(("damage", "kind"), CASES.values(), ids=CASES.keys())
def test_a_torn_record_before_good_ones_is_truncated(
    store: Crafted, damage: Damage, kind: int
) -> None:
    """The state file shows that none of them was durable; quarantine keeps the later ones."""
    target = of_kind(store.records, kind, 1)
    later = [r for r in store.records if r.offset > target.offset]
    store.write(target.offset, damage(store, target))
    store.set_state(target.offset - 1)
    store.crashed()
    check_truncated(store, target, later)


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
def test_a_torn_last_record_of_rocketmq_is_truncated(
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
        assert crafted.content_after(store.root, target.offset, store.segment_size) == b""
        assert writer.put(target.topic, b"again", target.queue_id).ok
    with rocketstore.open(store.root, "r") as reader:
        assert [bytes(m.raw) for m in reader.scan()][:-1] == good
        assert [m.body for m in reader.scan()][-1] == b"again"


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
    """Topic or properties changed to other letters: only the whole-record CRC detects it."""
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
def test_a20_torn_record_with_wrong_whole_record_crc_is_truncated(
    crc_template: Path, tmp_path: Path, damage: Damage
) -> None:
    store = Crafted(crc_template, tmp_path / "store")
    target = of_kind(store.records, 2, 2)
    store.zero_from(target.end)
    store.write(target.offset, damage(store, target))
    rebuild_state(store, "state", target.offset)
    # Complete but for its whole-record CRC, it is kept aside.
    check_truncated(store, target, [replace(target, raw=damage(store, target))])


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
    """The property was switched on in mid-segment, after the records that are checked first."""
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


def test_a22_stale_record_after_a_torn_one_does_not_come_back(store: Crafted) -> None:
    """The old record fits exactly after a new one of the torn one's length."""
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
def test_a22_stale_tail_is_distinguished_from_durable_records(store: Crafted, kind: str) -> None:
    records = store.records
    torn = of_kind(records, 2, 2)
    later = [r for r in records if r.offset > torn.offset and r.offset // crafted.SEGMENT == 2]
    for record in later:
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
        assert crafted.content_after(store.root, torn.offset, store.segment_size) == b""


def test_a22_durable_records_after_damage_are_never_truncated(store: Crafted) -> None:
    """Without a mark that covers them, what follows shows that the damaged record was durable."""
    target = of_kind(store.records, 2, 1)
    store.write(target.offset, target.with_number("total_size", 0))
    store.set_checkpoint(0)
    store.crashed()
    check_damaged(store, target)
