"""``find`` by a key where the index does not cover the log: a file is missing, damaged, or was
never written. ``find`` reads that part of the log."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import rocketstore
from corruption.crafted import Clock
from golden import golden_stores
from rocketstore import formats
from rocketstore.store import read_only as reader
from support.command_line import lines, run

SMALL = {
    "mapped_file_size_commit_log": 65_536,
    "max_hash_slot_num": 13,
    "max_index_num": 50,
    "clock": Clock(),
}


def overwritten(start: int, stop: int, byte: int) -> Callable[[Path], None]:
    """Damage that sets a part of a file."""

    def damage(path: Path) -> None:
        content = bytearray(path.read_bytes())
        part = slice(start, min(stop, len(content)))
        content[part] = bytes([byte]) * len(content[part])
        path.write_bytes(content)

    return damage


DAMAGE: dict[str, Callable[[Path], object]] = {
    "gone": Path.unlink,
    "truncated": lambda path: os.truncate(path, 2000),
    "header": overwritten(0, 40, 0x5A),
    "slots": overwritten(40, 240, 0),
    "entries": overwritten(240, 10**6, 0),
    "some entries": overwritten(300, 1200, 0xFF),
    "all": overwritten(0, 10**6, 0x33),
    "random": lambda path: path.write_bytes(random.Random(0).randbytes(4240)),
    "negative places": lambda path: (
        path.write_bytes(path.read_bytes()[:16] + b"\x10" * 8 + b"\xf0" * 8 + b"\1" * 4208) and None
    ),
}


@pytest.fixture(scope="module", params=["plain-4.9.8", "plain-5.5.0"])
def golden(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return golden_stores.unpack(request.param, tmp_path_factory.mktemp("golden"))


def answers(store: rocketstore.DefaultMessageStore) -> dict[tuple[str, str], list[int]]:
    """What each key of each message finds."""
    keys = {(m.topic, key) for m in store.scan() for key in (m.keys or "").split()}
    return {
        (topic, key): [m.physical_offset for m in store.find(topic=topic, key=key)]
        for topic, key in keys
    }


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_every_key_is_found_without_an_older_file(
    golden: Path, tmp_path: Path, damage: Callable[[Path], object], number: int
) -> None:
    with rocketstore.open(golden) as store:
        assert store.reader.index.gaps == ()
        wanted = answers(store)
    root = tmp_path / "store"
    shutil.copytree(golden, root)
    damage(sorted((root / "index").iterdir())[number])
    with rocketstore.open(root) as store:
        assert answers(store) == wanted
        (topic, key), offsets = next((one, found) for one, found in wanted.items() if found)
        assert [m.physical_offset for m in store.find(topic=topic, key=key, begin=1)] == offsets
        assert not list(store.find(topic=topic, key="none"))
    found = lines(run("find", root, "--topic", topic, "--key", key, "--format", "ndjson"))
    assert [row["physicalOffset"] for row in found] == offsets


def test_healthy_stores_have_no_gaps(tmp_path: Path) -> None:
    for name in golden_stores.names("plain-", "crash-", "lag-", "expire-", "broker-"):
        with rocketstore.open(golden_stores.unpack(name, tmp_path / name)) as store:
            # A broker may have put records without keys where a file begins.
            for start, stop in store.reader.index.gaps:
                between = [m for m in store.scan(start=start, stop=stop) if m.keys or m.unique_key]
                assert [m.physical_offset for m in between[1:]] == []


def test_a_range_without_keys_is_read_once(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with rocketstore.open(root, "x", **SMALL) as store:
        for number in range(300):
            assert store.put("T", b"plain" * 10, 0).ok
            if number >= 100:
                assert store.put("T", b"keyed", 0, None, f"k{number}").ok
    with rocketstore.open(root) as store:
        first = next(m.physical_offset for m in store.scan() if m.keys)
        assert store.reader.index.gaps[0] == (0, first)
        assert [m.body for m in store.find(topic="T", key="k100")] == [b"keyed"]
        assert store.reader.index.gaps == ()
        assert [m.body for m in store.find(topic="T", key="k299")] == [b"keyed"]


def test_a_log_without_an_index_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker with messageIndexEnable=false writes none."""
    root = tmp_path / "store"
    with rocketstore.open(root, "x", message_index_enable=False, **SMALL) as store:
        for number in range(50):
            assert store.put("T", b"body", 0, None, f"k{number}").ok
    (root / "rocketstore.state").unlink()
    monkeypatch.setattr(reader, "COMPARED_NBYTES", 0)
    with rocketstore.open(root) as store:
        assert any("find() scans the log" in note for note in store.recovery_report.notes)
        assert not store.query_message("T", "k7").messages
        assert [m.queue_offset for m in store.find(topic="T", key="k7")] == [7]
        assert not list(store.find(topic="T", key="none"))
    with rocketstore.open(root, message_index_enable=False) as store:
        assert not list(store.find(topic="T", key="k7"))


def test_damage_in_a_range_that_is_read(golden: Path, tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(golden, root)
    with rocketstore.open(root) as store:
        records = [m for m in store.scan() if m.keys]
        bad, later = records[1], records[5]
        (place, topic, key) = (bad.physical_offset, later.topic, (later.keys or "").split()[0])
        wanted = [m.physical_offset for m in store.find(topic=topic, key=key)]
    sorted((root / "index").iterdir())[0].unlink()
    with (root / "commitlog" / ("0" * 20)).open("r+b") as log:
        log.seek(place + formats.RECORD_HEAD.at("magic"))
        log.write(b"none")
    with rocketstore.open(root) as store:
        with pytest.raises(rocketstore.CorruptMessageError):
            list(store.find(topic=topic, key=key))
        found = store.find(topic=topic, key=key, on_corruption="skip")
        assert [m.physical_offset for m in found] == wanted
        found = store.find(topic=topic, key=key, on_corruption="stop")
        assert [m.physical_offset for m in found] == [at for at in wanted if at < place]
