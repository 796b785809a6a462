"""``plan`` puts back what one wrong bit moved to another topic, queue or queue offset."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

import rocketstore
from rocketstore import Message, formats

_HEAD = formats.RECORD_HEAD
#: Byte positions from a record's start; of the topic from its end, as lengths come before it.
FIELDS = {
    "queue id": range(_HEAD.at("queue_id"), _HEAD.at("queue_id") + 4),
    "queue offset": range(_HEAD.at("queue_offset"), _HEAD.at("queue_offset") + 8),
    "topic": range(6),
}
SIZES = {"mapped_file_size_commit_log": 4096, "max_hash_slot_num": 10, "max_index_num": 100}
Flip = tuple[int, int]
#: Of the type of transactions one bit only makes a message without a unit.
TYPE = range(_HEAD.at("sys_flag") + 3, _HEAD.at("sys_flag") + 4)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty messages of two topics and two queues in several segments."""
    path = tmp_path_factory.mktemp("sound") / "store"
    with rocketstore.open(path, "x", **SIZES) as store:
        for number in range(40):
            topic, queue_id = ("Orders", "Events")[number % 2], number // 2 % 2
            assert store.put(topic, b"body" * 20, queue_id=queue_id, keys=f"k{number}").ok
    return path


@pytest.fixture
def root(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "store"))


def _log(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (root / "commitlog").iterdir()}


def _records(root: Path) -> dict[tuple[str, int, int], Message]:
    with rocketstore.open(root, "r") as store:
        return {(one.topic, one.queue_id, one.queue_offset or 0): one for one in store.scan()}


def _flip(root: Path, record: Message, field: str, byte: int, bit: int) -> None:
    start = record.physical_offset
    assert start is not None
    path = root / "commitlog" / formats.offset_to_file_name(start - start % 4096)
    content = bytearray(path.read_bytes())
    at = start % 4096 + {**FIELDS, "transaction type": TYPE}[field][byte]
    if field == "topic":
        at = content.index(record.topic.encode(), start % 4096) + byte
    content[at] ^= 1 << bit
    path.write_bytes(content)


def _mend(root: Path) -> list[str]:
    """Plan and repair; return the sentences of the steps that change the log."""
    plan = rocketstore.plan(root)
    assert not plan.losses["already"]
    assert not plan.losses["byRepair"]
    rocketstore.repair(root, plan)
    assert rocketstore.plan(root).empty
    return [step.sentence for step in plan.steps if step.kind.startswith("log.")]


def _bits(field: str) -> list[Flip]:
    """Some bits of a field, and the outermost ones; negative numbers are damage of another kind."""
    chosen, last = random.Random(field), len(FIELDS[field]) - 1
    highest = 7 if field == "topic" else 6
    inner = [(chosen.randint(1, last - 1), chosen.randrange(8)) for _ in range(2)]
    return [(0, highest), (last, 1), *inner]


@pytest.mark.parametrize("queue_offset", [0, 4, 9])
@pytest.mark.parametrize("field", FIELDS)
def test_the_queues_show_where_a_record_was(
    sound: Path, tmp_path: Path, field: str, queue_offset: int
) -> None:
    """The first, a middle and the last record of a queue."""
    before = _log(sound)
    record = _records(sound)["Orders", 1, queue_offset]
    for number, (byte, bit) in enumerate(_bits(field)):
        root = Path(shutil.copytree(sound, tmp_path / f"{number}"))
        _flip(root, record, field, byte, bit)
        (sentence,) = _mend(root) or ("",)
        assert (
            f"at log offset {record.physical_offset} has one wrong bit in its {field}" in sentence
        ), (byte, bit)
        assert f"queue offset {queue_offset} of Orders queue 1" in sentence
        assert _log(root) == before, (byte, bit)


@pytest.mark.parametrize("field", FIELDS)
def test_a_gap_shows_where_a_record_was(sound: Path, tmp_path: Path, field: str) -> None:
    """Queues and index are gone; a record between two others of its queue left a gap."""
    before = _log(sound)
    record = _records(sound)["Events", 0, 5]
    for number, (byte, bit) in enumerate(_bits(field)):
        root = Path(shutil.copytree(sound, tmp_path / f"{number}"))
        shutil.rmtree(root / "consumequeue")
        shutil.rmtree(root / "index")
        _flip(root, record, field, byte, bit)
        (sentence,) = _mend(root)
        assert f"one wrong bit in its {field}; it is queue offset 5 of Events queue 0" in sentence
        assert _log(root) == before, (byte, bit)


@pytest.mark.parametrize("has_units", [True, False])
def test_a_message_turned_into_half_of_a_transaction(
    root: Path, sound: Path, *, has_units: bool
) -> None:
    if not has_units:
        shutil.rmtree(root / "consumequeue")
    _flip(root, _records(root)["Orders", 1, 5], "transaction type", 0, 2)
    plan = rocketstore.plan(root)
    assert not plan.left
    (sentence,) = _mend(root)
    assert "transaction type; it is queue offset 5 of Orders queue 1" in sentence
    assert _log(root) == _log(sound)


def test_several_records_are_put_back(root: Path, sound: Path) -> None:
    records = _records(root)
    _flip(root, records["Orders", 0, 3], "topic", 2, 1)
    _flip(root, records["Orders", 0, 4], "queue offset", 7, 3)
    _flip(root, records["Events", 1, 9], "queue id", 3, 5)
    _mend(root)
    assert _log(root) == _log(sound)


def test_a_record_that_two_places_lack_is_left(root: Path) -> None:
    """Of two records for one place neither is changed, nor is one with two wrong bits."""
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")
    records = _records(root)
    for bit in (0, 1):
        _flip(root, records["Orders", 0, 5], "topic", 3, bit)
    before = _log(root)
    assert not _mend(root)
    assert _log(root) == before


@pytest.mark.parametrize("has_units", [True, False])
def test_of_two_records_for_one_place_only_units_show_the_wrong_one(
    root: Path, sound: Path, *, has_units: bool
) -> None:
    if not has_units:
        shutil.rmtree(root / "consumequeue")
        shutil.rmtree(root / "index")
    for key in (("Events", 0, 5), ("Orders", 1, 2)):
        _flip(root, _records(sound)[key], "queue id", 3, 0)
    before = _log(root)
    _mend(root)
    assert _log(root) == (_log(sound) if has_units else before)


def test_a_new_topic_beside_a_lost_message_is_left(tmp_path: Path) -> None:
    """The names differ in one bit; both topics are real, and nothing shows a wrong bit."""
    path = tmp_path / "store"
    with rocketstore.open(path, "x", **SIZES) as store:
        for topic in ("order1", "order0", "order1", "order0", "order0"):
            assert store.put(topic, b"body").ok
    (path / "checkpoint").unlink()
    before = _log(path)
    assert not _mend(path)
    assert _log(path) == before


@pytest.mark.parametrize("is_unclean", [True, False])
def test_a_stale_unit_is_no_evidence(tmp_path: Path, *, is_unclean: bool) -> None:
    """A crash lost the newest message, and another of the same size took its place in the log."""
    path = tmp_path / "store"
    for number, topics in enumerate((("other", "order0"), ("other", "order1"))):
        shutil.copytree(path, tmp_path / "old") if number else None
        shutil.rmtree(path, ignore_errors=True)
        with rocketstore.open(path, "x", **SIZES) as store:
            for topic in topics:
                assert store.put(topic, b"body").ok
    shutil.rmtree(path / "consumequeue")
    shutil.copytree(tmp_path / "old" / "consumequeue", path / "consumequeue")
    if is_unclean:
        (path / "abort").touch()
    before = _log(path)
    bits = [s for s in _mend(path) if "wrong bit" in s]
    assert bool(bits) != is_unclean
    assert (_log(path) == before) == is_unclean


def test_a_wrong_bit_beside_other_damage(root: Path, sound: Path) -> None:
    """The place of a record that is found gets no placeholder."""
    records = _records(root)
    lost, moved = records["Orders", 0, 4], records["Orders", 0, 5]
    assert lost.physical_offset is not None
    path = root / "commitlog" / formats.offset_to_file_name(lost.physical_offset // 4096 * 4096)
    content = bytearray(path.read_bytes())
    at = lost.physical_offset % 4096
    content[at : at + 90] = bytes(90)
    path.write_bytes(content)
    _flip(root, moved, "topic", 0, 2)
    plan = rocketstore.plan(root)
    assert [(one["topic"], one["queueOffset"]) for one in plan.placeholders] == [("Orders", 4)]
    rocketstore.repair(root, plan)
    after = _records(root)
    assert after["Orders", 0, 5].body == moved.body
    assert after["Orders", 0, 5].physical_offset == moved.physical_offset
    assert after.keys() == _records(sound).keys()
