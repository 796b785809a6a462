"""``keys``: chains and collisions against a plain reader of the files; broken files."""

from __future__ import annotations

import collections
import struct
from pathlib import Path

import pytest

import rocketstore
from golden.golden_stores import unpack
from rocketstore.looking.index_health import IndexHealth, keys
from support.looked_stores import make_store

SLOTS, ENTRIES = 20, 100


def asked(root: Path) -> IndexHealth:
    with rocketstore.open(root) as store:
        return keys(store)


def entry_at(number: int) -> int:
    return 40 + 4 * SLOTS + 20 * number


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_store(tmp_path / "store")


def test_figures_are_those_of_a_plain_reader(root: Path) -> None:
    health = asked(root)
    paths = sorted((root / "index").iterdir())
    assert [one.path for one in health.files] == [str(path) for path in paths]
    assert health.ok
    for path, one in zip(paths, health.files, strict=True):
        content = path.read_bytes()
        count = struct.unpack_from(">i", content, 36)[0] - 1
        hashes = [
            struct.unpack_from(">i", content, entry_at(number + 1))[0] for number in range(count)
        ]
        chains = collections.Counter(value % SLOTS for value in hashes)
        assert (one.entries, one.capacity, one.slots) == (count, ENTRIES - 1, SLOTS)
        assert (one.used_slots, one.longest_chain) == (len(chains), max(chains.values()))
        assert one.distinct_hashes == len(set(hashes))
        assert one.collisions == len(set(hashes)) - len(chains)
        walked = sum(length * (length + 1) / 2 for length in chains.values())
        assert one.mean_chain == pytest.approx(walked / count)
        assert sum(one.chains.values()) == one.used_slots
        assert one.broken == 0
    assert health.files[0].fullness == 1.0


@pytest.mark.parametrize(
    ("position", "value"),
    [
        (entry_at(60) + 16, 60),
        (entry_at(60) + 16, 99),
        (entry_at(60) + 16, -5),
        (entry_at(60), -1),
    ],
)
def test_broken_entries_are_counted(root: Path, position: int, value: int) -> None:
    path = min((root / "index").iterdir())
    content = bytearray(path.read_bytes())
    struct.pack_into(">i", content, position, value)
    path.write_bytes(content)
    health = asked(root)
    assert health.files[0].broken > 0
    assert not health.ok


def test_a_slot_that_lost_its_chain(root: Path) -> None:
    path = min((root / "index").iterdir())
    content = bytearray(path.read_bytes())
    used = next(
        number for number in range(SLOTS) if struct.unpack_from(">i", content, 40 + 4 * number)[0]
    )
    struct.pack_into(">i", content, 40 + 4 * used, 0)
    path.write_bytes(content)
    assert asked(root).files[0].broken == 1


def test_files_that_cannot_be_used(root: Path) -> None:
    path = max((root / "index").iterdir())
    (root / "index" / "notes.txt").write_text("x")
    with path.open("r+b") as file:
        file.truncate(1000)
    health = asked(root)
    assert {Path(name).name for name, _ in health.unreadable} == {path.name, "notes.txt"}
    assert not health.ok


def test_no_index(root: Path) -> None:
    for path in (root / "index").iterdir():
        path.unlink()
    health = asked(root)
    assert all(one.in_memory for one in health.files)


@pytest.mark.parametrize("name", ["plain-5.3.3", "crash-4.9.8", "rocksdb-5.5.0"])
def test_golden_stores(name: str, tmp_path: Path) -> None:
    health = asked(unpack(name, tmp_path))
    assert health.files
    assert not any(one.broken for one in health.files)
