"""Queue files made by the job, without Spark: byte for byte those that the store makes."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from golden import golden_stores
from rocketstore import formats
from rocketstore.config import MessageStoreConfig
from rocketstore.errors import ConfigError, CorruptMessageError, MappedFileError
from support.directory import files_below
from support.record_factory import make_record

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from rocketstore.spark.jobs import queue_units
from rocketstore.spark.jobs.queue_units import build_queues

OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": 65536,
    "mapped_file_size_consume_queue": 400,
    "max_hash_slot_num": 10,
    "max_index_num": 1000,
}
UNIT = formats.CONSUME_QUEUE_UNIT.struct


def dispatched(root: Path, **options: Any) -> dict[str, bytes]:
    """The queue files that the store makes of its log when it has lost them."""
    ours = root.parent / "dispatched"
    shutil.copytree(root, ours)
    shutil.rmtree(ours / "consumequeue", ignore_errors=True)
    (ours / "rocketstore.state").unlink(missing_ok=True)
    with rocketstore.open(ours, "r+", **{**OPTIONS, **options}):
        pass
    return files_below(ours / "consumequeue")


def made(root: Path, out: Path, **options: Any) -> dict[str, bytes]:
    """The queue files that the job makes."""
    options.setdefault("mapped_file_size_consume_queue", 400)
    build_queues(None, root, out, **options)
    return files_below(out)


@pytest.mark.parametrize("split_bytes", [3000, 1 << 28])
@pytest.mark.parametrize("name", golden_stores.names("plain-", "crash-", "crc-", "lmq-", "lag-"))
def test_rocketmqs_files_come_back(name: str, split_bytes: int, tmp_path: Path) -> None:
    root = golden_stores.unpack(name, tmp_path)
    geometry = golden_stores.geometry(name)
    found = made(
        root,
        tmp_path / "out",
        split_bytes=split_bytes,
        broker_version=golden_stores.about(name)["rocketmq"],
        mapped_file_size_consume_queue=geometry.consume_queue_nbytes,
    )
    wanted = files_below(root / "consumequeue")
    if name.startswith("lag-"):
        wanted = dispatched(
            root,
            mapped_file_size_commit_log=geometry.commit_log_nbytes,
            mapped_file_size_consume_queue=geometry.consume_queue_nbytes,
            max_hash_slot_num=geometry.slots,
            max_index_num=geometry.entries,
        )
    assert found == wanted


def write(root: Path, count: int = 300, seed: int = 1) -> list[tuple[str, int, int]]:
    """Write a store of a few queues; return (topic, queue id, physical offset) of its records."""
    chance = random.Random(seed)
    with rocketstore.open(root, "x", **OPTIONS) as store:
        for number in range(count):
            topic, queue_id = chance.choice(["A", "B" * 30, "C"]), chance.randrange(3)
            body = b"x" * chance.choice([0, 10, 3000])
            tags = chance.choice([None, "t", "u" * 40])
            assert store.put(topic, body, queue_id, tags=tags, keys=str(number)).ok
    with rocketstore.open(root) as store:
        return [(m.topic, m.queue_id, m.physical_offset) for m in store.scan()]


def claim(root: Path, offset: int, queue_offset: int) -> None:
    """Overwrite the queue offset of the record at ``offset``."""
    segment = offset - offset % OPTIONS["mapped_file_size_commit_log"]
    with open(root / "commitlog" / formats.offset_to_file_name(segment), "r+b") as file:
        file.seek(offset - segment + formats.RECORD_HEAD.at("queue_offset"))
        file.write(queue_offset.to_bytes(8, "big"))


def test_rows_report_what_was_built(tmp_path: Path) -> None:
    places = write(tmp_path / "store")
    reported: list[tuple[int, int]] = []
    rows = build_queues(
        None,
        tmp_path / "store",
        tmp_path / "out",
        split_bytes=20000,
        progress=lambda done, total: reported.append((done, total)),
    )
    assert [row[:2] for row in rows] == sorted({place[:2] for place in places})
    for row in rows:
        count = sum(place[:2] == row[:2] for place in places)
        assert row[2:7] == (0, count, count, 0, 0)
        assert row.files == -(-count // 20)
    assert reported == sorted(reported)
    assert reported[-1][0] == reported[-1][1] > 0


@pytest.mark.parametrize("seed", range(5))
def test_wrong_queue_offsets_are_judged_as_the_store_does(seed: int, tmp_path: Path) -> None:
    root = tmp_path / "store"
    places = write(root, seed=seed)
    chance = random.Random(seed)
    for topic, queue_id, offset in chance.sample(places, 25):
        in_queue = [place for place in places if place[:2] == (topic, queue_id)]
        own = in_queue.index((topic, queue_id, offset))
        claimed = chance.choice(
            [0, own - 1, own - 2, own + 1, own + 2, own + 3, own + 7, own + 1000, 2**40, 2**62]
        )
        claim(root, offset, max(claimed, 0))
    firsts = {place[:2]: place[2] for place in reversed(places)}
    for offset in chance.sample(sorted(firsts.values()), 3):
        claim(root, offset, chance.choice([1, 2, 5, 30, 2**40]))
    wanted = dispatched(root)
    for split_bytes in (1000, 1 << 28):
        out = tmp_path / f"out {split_bytes}"
        assert made(root, out, split_bytes=split_bytes) == wanted


def crafted_log(seed: int) -> bytes:
    """One segment of records that name light queues, with offsets that do not always fit."""
    chance = random.Random(seed)
    following: dict[tuple[bytes, int], int] = {}

    def number(topic: bytes, queue_id: int, odd: float) -> int:
        key = (topic, queue_id)
        value = following.get(key, 0)
        if chance.random() < odd:
            value += chance.choice([-3, -1, 1, 2, 40, 2**40])
        else:
            following[key] = value + 1
        return max(value, 0)

    log = b""
    while len(log) < 50_000:
        topic = chance.choice([b"A", b"B", b"%LMQ%x", b"%RETRY%g", b"SCHEDULE_TOPIC_XXXX"])
        named = chance.choices([b"%LMQ%x", b"%LMQ%y", b"%LMQ%z", b"C"], k=chance.randrange(4))
        offsets = [str(number(name, 0, 0.1)) for name in named]
        properties = b""
        if named:
            properties = b"INNER_MULTI_DISPATCH\x01" + b",".join(named) + b"\x02"
            properties += b"INNER_MULTI_QUEUE_OFFSET\x01" + ",".join(offsets).encode() + b"\x02"
        queue_id = chance.randrange(2)
        log += make_record(
            topic=topic,
            queue_id=queue_id,
            queue_offset=number(topic, queue_id, 0.05),
            sys_flag=chance.choice([0, 0, 0, 4, 8, 12]),
            properties=properties + b"TAGS\x01t\x02",
            physical_offset=len(log),
            body=b"",
        )
    return log + bytes(65536 - len(log))


@pytest.mark.parametrize(("seed", "version"), [(0, "5.3.3"), (1, "4.9.8"), (2, "5.1.0")])
def test_light_queues(seed: int, version: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    (root / "commitlog").mkdir(parents=True)
    (root / "commitlog" / formats.offset_to_file_name(0)).write_bytes(crafted_log(seed))
    names_any = {"enable_multi_dispatch": True} if version == "4.9.8" else {}
    wanted = dispatched(root, broker_version=version, **names_any)
    assert any("%LMQ%y" in name for name in wanted)
    for split_bytes in (700, 1 << 28):
        out = tmp_path / f"out {split_bytes}"
        found = made(root, out, split_bytes=split_bytes, broker_version=version, **names_any)
        assert found == wanted


def test_a_log_whose_head_is_gone(tmp_path: Path) -> None:
    root = tmp_path / "store"
    write(root, 400)
    segments = sorted((root / "commitlog").iterdir())
    assert len(segments) > 4
    for path in segments[:2]:
        path.unlink()
    found = made(root, tmp_path / "out", split_bytes=10000)
    assert found == dispatched(root)
    heads = [name for name in found if not name.endswith("0" * 20)]
    assert heads, "no queue begins in a later file"
    filler = UNIT.pack(0, formats.FILLER_UNIT_SIZE, 0)
    assert any(content.startswith(filler) for content in found.values())


def test_damage_is_an_error_or_skipped(tmp_path: Path) -> None:
    root = tmp_path / "store"
    places = write(root)
    wanted = files_below(root / "consumequeue")
    for _, _, offset in places[20:200:30]:
        segment = offset - offset % 65536
        path = root / "commitlog" / formats.offset_to_file_name(segment)
        content = bytearray(path.read_bytes())
        content[offset - segment + 4] ^= 1
        path.write_bytes(content)
    with pytest.raises(CorruptMessageError, match="commitlog"):
        made(root, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]
    filler = UNIT.pack(0, formats.FILLER_UNIT_SIZE, 0)
    lost = {place[2] for place in places[20:200:30]}
    for name, content in wanted.items():
        units = [content[at : at + UNIT.size] for at in range(0, len(content), UNIT.size)]
        kept = [filler if UNIT.unpack(unit)[0] in lost and any(unit) else unit for unit in units]
        wanted[name] = b"".join(kept)
    for split_bytes in (5000, 1 << 28):
        out = tmp_path / f"out {split_bytes}"
        assert made(root, out, split_bytes=split_bytes, on_corruption="skip") == wanted


def test_delayed_messages_and_transactions(tmp_path: Path) -> None:
    root = tmp_path / "store"
    levels = "3s 5m"
    with rocketstore.open(root, "x", message_delay_level=levels, **OPTIONS) as store:
        for number in range(30):
            sys_flag = (0, 4, 8, 12)[number % 4]
            store.put("A", b"x", 0, sys_flag=sys_flag, tags="t")
            store.put(formats.TOPIC_SCHEDULE, b"x", 1, properties={formats.PROPERTY_DELAY: "2"})
    found = made(root, tmp_path / "out", message_delay_level=levels)
    assert found == dispatched(root, message_delay_level=levels)
    assert found != made(root, tmp_path / "other")


def test_the_store_decides_what_is_not_given(tmp_path: Path) -> None:
    root = tmp_path / "store"
    write(root)
    before = files_below(root)
    build_queues(None, root, tmp_path / "out")
    assert files_below(tmp_path / "out") == files_below(root / "consumequeue")
    assert files_below(root) == before
    log = tmp_path / "alone" / "commitlog"
    shutil.copytree(root / "commitlog", log)
    build_queues(None, log, tmp_path / "of the log")
    sizes = {len(content) for content in files_below(tmp_path / "of the log").values()}
    assert sizes == {300_000 * UNIT.size}
    assert MessageStoreConfig().mapped_file_size_consume_queue is None


@pytest.mark.parametrize(
    ("name", "reason"), [("inner-5.3.3", "batch"), ("ext-4.9.8", "consumequeue_ext")]
)
def test_other_kinds_of_queues_are_refused(name: str, reason: str, tmp_path: Path) -> None:
    root = golden_stores.unpack(name, tmp_path)
    with pytest.raises(MappedFileError, match=reason):
        build_queues(None, root, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_wrong_arguments(tmp_path: Path) -> None:
    root = tmp_path / "store"
    write(root, 3)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(FileExistsError, match="not empty"):
        build_queues(None, root, tmp_path / "full")
    with pytest.raises(ValueError, match="on_corruption"):
        build_queues(None, root, tmp_path / "out", on_corruption="stop")
    with pytest.raises(ConfigError, match="broker_version"):
        build_queues(None, root, tmp_path / "out", broker_version="six")
    with pytest.raises(ConfigError, match="message_delay_level"):
        build_queues(None, root, tmp_path / "out", message_delay_level="soon")
    with pytest.raises(FileNotFoundError):
        build_queues(None, tmp_path / "nothing", tmp_path / "out")
    assert sorted(os.listdir(tmp_path)) == ["full", "store"]


class StopHereError(Exception):
    """Raised where an attempt is killed."""


def test_a_second_attempt_that_dies_leaves_the_first_ones_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark kills the slower of two attempts wherever it is."""
    root = tmp_path / "store"
    write(root)
    wanted = dispatched(root)
    kept: list[tuple[queue_units.FilePlan, ...]] = []
    first = queue_units.write_files

    def die(*_: Any, **__: Any) -> None:
        raise StopHereError

    def twice(plans: tuple[queue_units.FilePlan, ...]) -> None:
        first(plans)
        kept.append(plans)
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", die)
            with pytest.raises(StopHereError):
                first(plans)

    monkeypatch.setattr(queue_units, "write_files", twice)
    assert made(root, tmp_path / "out") == wanted
    assert kept


def test_units_that_are_gone_are_not_filled_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    write(root)
    first = queue_units.write_files

    def shorten(plans: tuple[queue_units.FilePlan, ...]) -> None:
        source = Path(plans[-1].pieces[-1].source)
        os.truncate(source, source.stat().st_size - 1)
        first(plans)

    monkeypatch.setattr(queue_units, "write_files", shorten)
    with pytest.raises(MappedFileError, match="ends at position"):
        made(root, tmp_path / "out")
    assert not (tmp_path / "out").exists()
