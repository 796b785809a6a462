"""A log whose newest part is gone although the store was left in order: not torn, but missing."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from corruption.crafted import Crafted, snapshot
from golden import golden_stores
from rocketstore import CorruptionError, MappedFileError, RocketStoreError, formats
from rocketstore.directory.checkpoint import StoreCheckpoint
from support.command_line import run

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="stores are only read there")
# The newest segment was deleted after an orderly stop. Recovery ignored the state file, assigned
# the offsets of synced messages to new puts, and truncated queues and index. A broker's store lost
# its units and keys without a report.


def last_deleted(store: Crafted) -> int:
    last = store.segments()[-1]
    last.unlink()
    return int(last.name)


def two_deleted(store: Crafted) -> int:
    last_deleted(store)
    return last_deleted(store)


def last_zeroed(store: Crafted) -> int:
    last = store.segments()[-1]
    last.write_bytes(bytes(store.segment_size))
    return int(last.name)


def tail_zeroed(store: Crafted) -> int:
    record = store.records[-3]
    store.write(record.offset, bytes(store.files_end() - record.offset))
    return record.offset


def last_emptied(store: Crafted) -> int:
    last = store.segments()[-1]
    os.truncate(last, 0)
    return int(last.name)


GONE = [last_deleted, two_deleted, last_zeroed, tail_zeroed, last_emptied]
Proof = Callable[[Path], object]


def by_state(root: Path) -> None: ...


def by_state_alone(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")


def as_a_brokers(root: Path) -> None:
    (root / "rocketstore.state").unlink()


def by_units_alone(root: Path) -> None:
    as_a_brokers(root)
    shutil.rmtree(root / "index")
    (root / "checkpoint").unlink()


def by_keys_alone(root: Path) -> None:
    as_a_brokers(root)
    shutil.rmtree(root / "consumequeue")
    (root / "checkpoint").unlink()


def by_times_alone(root: Path) -> None:
    as_a_brokers(root)
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")


PROOFS = [by_state, by_state_alone, as_a_brokers, by_units_alone, by_keys_alone, by_times_alone]


@pytest.mark.parametrize("gone", GONE)
@pytest.mark.parametrize("proof", PROOFS)
def test_the_end_is_missing(store: Crafted, gone: Callable[[Crafted], int], proof: Proof) -> None:
    end = gone(store)
    proof(store.root)
    good = [record.raw for record in store.records if record.end <= end]
    before = snapshot(store.root)
    with rocketstore.open(store.root) as reader:
        assert [bytes(message.raw) for message in reader.scan(on_corruption="skip")] == good
        with pytest.raises(rocketstore.CorruptMessageError):
            list(reader.scan())
        damaged = reader.recovery_report.damaged
    first = damaged[0]
    assert first.start == (end if gone is not two_deleted else damaged[0].start)
    assert first.path == str(store.segment(first.start))
    assert "reached offset" in first.reason or gone is tail_zeroed
    error = CorruptionError if os.path.exists(first.path) else MappedFileError
    for mode in ("r+", "a"):
        with pytest.raises(error, match=Path(first.path).name):
            rocketstore.open(store.root, mode)
    assert snapshot(store.root) == before
    rocketstore.salvage(store.root)
    with rocketstore.open(store.root, "r+") as writer:
        assert [bytes(message.raw) for message in writer.scan()][: len(good)] == good
        offset = writer.put("Orders", b"next").physical_offset
        assert offset > first.start
        if proof in (by_state, by_state_alone):
            assert offset >= store.records[-1].end  # none is given again
    with rocketstore.open(store.root) as reader:
        assert reader.recovery_report.damaged == []


@pytest.mark.parametrize("gone", GONE)
def test_no_question_about_the_end_is_answered_with_nothing(
    store: Crafted, gone: Callable[[Crafted], int]
) -> None:
    """``find`` by a key had no hit, a place in the missing end was wrong usage, and a topic that
    lay there was listed as an empty one."""
    end, last = gone(store), store.records[-1]
    assert last.key is not None
    commands: list[tuple[Any, ...]] = [
        ("find", store.root, "--topic", last.topic, "--key", last.key),
        ("find", store.root, "--topic", last.topic, "--key", "none"),
        ("scan", store.root, "--start", last.offset),
        ("tail", store.root, "--start", last.offset),
        ("ls", store.root),
        ("ls", store.root, last.topic),
    ]
    for command in commands:
        assert str(store.root) in run(*command, code=3).stderr
        if command[0] != "ls":
            for policy in ("skip", "stop"):
                run(*command, "--on-corruption", policy, code=1)
    run("scan", store.root, "--start", 10**9, code=2)
    with rocketstore.open(store.root) as reader:
        found = reader.find(topic=last.topic, key=last.key)
        with pytest.raises(rocketstore.CorruptMessageError):
            list(found)
        assert not list(reader.find(topic=last.topic, key=last.key, on_corruption="skip"))
        first = next(record for record in store.records if record.key and record.end <= end)
        hits = reader.find(topic=first.topic, key=first.key)
        assert next(hits).physical_offset == first.offset


@pytest.mark.parametrize("proof", PROOFS)
def test_after_a_crash_the_end_is_torn(store: Crafted, proof: Proof) -> None:
    """A broker truncates the log then, and so does rocketstore."""
    end = tail_zeroed(store)
    proof(store.root)
    store.crashed()
    with rocketstore.open(store.root, "r+") as writer:
        assert writer.max_physical_offset == end
        assert writer.put("Orders", b"next").physical_offset == end


@pytest.mark.parametrize("wrong", ["unit", "far unit", "physic", "future", "key"])
def test_one_wrong_number_is_no_missing_end(store: Crafted, wrong: str) -> None:
    """What one place says and no other is damage of that place; the log is whole."""
    as_a_brokers(store.root)
    checkpoint = StoreCheckpoint.read(store.root / "checkpoint", store.root)
    later = store.records[-1].store_timestamp + 1000
    if wrong in ("unit", "far unit"):
        path = sorted((store.root / "consumequeue" / "Orders" / "0").iterdir())[-1]
        content = path.read_bytes().rstrip(b"\0")
        last = len(content) - len(content) % 20 - (0 if len(content) % 20 else 20)
        place = store.files_end() + 100 if wrong == "unit" else 2**45
        with path.open("r+b") as file:
            file.seek(last)
            file.write(place.to_bytes(8, "big"))
    elif wrong == "physic":
        checkpoint.replace(physic_timestamp=later).write(store.root / "checkpoint")
    elif wrong == "future":
        values = {"physic_timestamp": 2**61, "logics_timestamp": 2**61}
        checkpoint.replace(**values).write(store.root / "checkpoint")
    else:
        with sorted((store.root / "index").iterdir())[-1].open("r+b") as file:
            file.seek(formats.INDEX_HEADER.at("end_physical_offset"))
            file.write((store.files_end() + 100).to_bytes(8, "big"))
    with rocketstore.open(store.root) as reader:
        assert reader.recovery_report.damaged == []
        assert [bytes(message.raw) for message in reader.scan()] == [r.raw for r in store.records]
    with rocketstore.open(store.root, "r+") as writer:
        assert [bytes(message.raw) for message in writer.scan()] == [r.raw for r in store.records]
        writer.wait_dispatched()
        assert writer.verify().ok


@pytest.mark.parametrize("name", golden_stores.names("plain", "inner", "lmq", "crc", "ext"))
def test_a_brokers_store(name: str, tmp_path: Path) -> None:
    root = golden_stores.unpack(name, tmp_path)
    with rocketstore.open(root) as reader:
        end = reader.max_physical_offset
        assert reader.recovery_report.damaged == []
    size = golden_stores.geometry(name).commit_log_nbytes
    last = root / "commitlog" / formats.offset_to_file_name((end - 1) // size * size)
    for path in sorted(last.parent.iterdir()):
        if path >= last:
            path.unlink()
    before = snapshot(root)
    with rocketstore.open(root) as reader:
        damaged = reader.recovery_report.damaged
    assert damaged[0].path == str(last)
    with pytest.raises(RocketStoreError):
        rocketstore.open(root, "r+")
    assert snapshot(root) == before


@pytest.mark.parametrize("proof", [by_state, as_a_brokers, by_units_alone])
def test_what_is_gone_is_counted(store: Crafted, proof: Proof) -> None:
    end = last_deleted(store)
    proof(store.root)
    with rocketstore.open(store.root) as reader:
        (damage,) = reader.recovery_report.damaged
    lost = [record for record in store.records if record.offset >= end]
    assert f"at least {len(lost)} messages" in damage.reason


@pytest.mark.parametrize(
    "words", [("put", "Orders", "x"), ("clean", "--hours", "0"), ("put", "--lines", os.devnull)]
)
def test_writing_commands_refuse(store: Crafted, words: tuple[str, ...]) -> None:
    last_deleted(store)
    before = snapshot(store.root)
    result = run(words[0], store.root, *words[1:], code=3)
    assert "the segment is missing" in result.stderr
    assert snapshot(store.root) == before


@pytest.mark.parametrize("name", ["crash-5.3.3", "crash-4.9.8", "plain-4.9.8", "inner-5.3.3"])
@pytest.mark.parametrize("command", [("put", "T", "x"), ("clean", "--hours", "0"), ("recover",)])
def test_a_log_of_zeros_after_a_crash(name: str, command: tuple[str, ...], tmp_path: Path) -> None:
    """The whole log was zeros and ``abort`` existed: a put began again at offset 0, and recovery
    deleted queues and index without a copy."""
    root = golden_stores.unpack(name, tmp_path)
    for segment in (root / "commitlog").iterdir():
        segment.write_bytes(bytes(segment.stat().st_size))
    (root / "abort").touch()
    before = snapshot(root)
    ended = run(command[0], root, *command[1:], code=3)
    assert "no record is left" in ended.stderr
    assert snapshot(root) == before
    with rocketstore.open(root) as reader:
        (damage,) = reader.recovery_report.damaged
        assert not reader.verify().ok
        with pytest.raises(CorruptionError, match=r"no record is left|EMPTY"):
            list(reader.scan())
    assert damage.start == 0
    report = rocketstore.salvage(root)
    assert report.segments
    with rocketstore.open(root, "r+") as writer:
        assert writer.put("T", b"new").physical_offset > 0
