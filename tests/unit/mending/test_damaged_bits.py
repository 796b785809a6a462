"""``plan`` puts right a damaged record of which one bit outside the body is wrong."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

import rocketstore
from rocketstore import Message, formats

SEGMENT = 4096
BODY = b"body" * 20
_HEAD = formats.RECORD_HEAD
_BODY_AT = (
    _HEAD.nbytes + formats.RECORD_STORED.nbytes + formats.RECORD_TAIL.nbytes
    + 2 * formats.HOST_V4.nbytes
)  # fmt: skip
_TOPIC_AT = _BODY_AT + len(BODY) + formats.TOPIC_LENGTH_NBYTES_V1
#: First byte and bytes of what each check of a record covers.
PLACES = {
    "total size": (0, 4),
    "magic": (4, 4),
    "body crc": (8, 4),
    "physical offset": (_HEAD.at("physical_offset"), 8),
    "body length": (_BODY_AT - 4, 4),
    "topic length": (_TOPIC_AT - 1, 1),
    "properties' length": (_TOPIC_AT + len("Orders"), 2),
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty messages of two topics in several segments."""
    path = tmp_path_factory.mktemp("sound") / "store"
    sizes = {"mapped_file_size_commit_log": SEGMENT, "max_hash_slot_num": 10, "max_index_num": 100}
    with rocketstore.open(path, "x", **sizes) as store:
        for number in range(40):
            assert store.put(("Orders", "Events")[number % 2], BODY, keys=f"k{number}").ok
    return path


def _log(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (root / "commitlog").iterdir()}


def _record(root: Path, number: int) -> Message:
    with rocketstore.open(root, "r") as store:
        return next(one for one in store.scan(topics=["Orders"]) if one.queue_offset == number)


def _write(root: Path, offset: int, content: bytes) -> None:
    path = root / "commitlog" / formats.offset_to_file_name(offset - offset % SEGMENT)
    with path.open("r+b") as file:
        file.seek(offset % SEGMENT)
        file.write(content)


def _read(root: Path, offset: int, nbytes: int) -> bytes:
    name = formats.offset_to_file_name(offset - offset % SEGMENT)
    return _log(root)[name][offset % SEGMENT : offset % SEGMENT + nbytes]


def _flip(root: Path, offset: int, bit: int) -> None:
    (old,) = _read(root, offset, 1)
    _write(root, offset, bytes((old ^ 1 << bit,)))


@pytest.mark.parametrize("has_units", [True, False])
@pytest.mark.parametrize("field", PLACES)
def test_one_wrong_bit_outside_the_body(
    sound: Path, tmp_path: Path, field: str, *, has_units: bool
) -> None:
    first, nbytes = PLACES[field]
    chosen = random.Random(field)
    start = _record(sound, 7).physical_offset
    assert start is not None
    for _ in range(3):
        root = tmp_path / "store"
        shutil.copytree(sound, root)
        if not has_units:
            shutil.rmtree(root / "consumequeue")
        _flip(root, start + first + chosen.randrange(nbytes), chosen.randrange(8))
        plan = rocketstore.plan(root)
        assert not plan.already
        assert not plan.placeholders
        step = next(one for one in plan.steps if one.kind == "log.fill")
        assert step.reason.startswith("log.")
        assert f"at log offset {start} has one wrong bit in its {field}" in step.sentence
        rocketstore.repair(root, plan)
        assert _log(root) == _log(sound)
        assert rocketstore.doctor(root).state == "well"
        assert rocketstore.plan(root).empty
        shutil.rmtree(root)


@pytest.mark.parametrize("damage", ["body", "two bits", "a copy"])
def test_what_one_bit_does_not_prove_is_lost(sound: Path, tmp_path: Path, damage: str) -> None:
    root = Path(shutil.copytree(sound, tmp_path / "store"))
    record, other = _record(sound, 7), _record(sound, 6)
    start, copied = record.physical_offset, other.physical_offset
    assert start is not None
    assert copied is not None
    if damage == "body":
        _flip(root, start + _BODY_AT + 3, 1)
    elif damage == "two bits":
        _flip(root, start + 2, 1)
        _flip(root, start + 6, 1)
    else:  # of another record, which the log has already: its offset is one bit from right
        content = bytearray(_read(sound, copied, record.store_size))
        at = _HEAD.at("physical_offset")
        content[at : at + 8] = (start ^ 1 << 40).to_bytes(8, "big")
        _write(root, start, bytes(content))
    plan = rocketstore.plan(root)
    assert [(one["topic"], one["queueOffset"]) for one in plan.placeholders] == [("Orders", 7)]
    assert "wrong bit" not in " ".join(step.sentence for step in plan.steps)
    rocketstore.repair(root, plan)
    assert rocketstore.plan(root).empty
