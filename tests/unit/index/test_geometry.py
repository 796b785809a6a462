"""File sizes detected from the files: odd ones, tiny ones, configured ones that contradict."""

from __future__ import annotations

import datetime
import shutil
from pathlib import Path

import pytest

import rocketstore
from corruption.crafted import Clock, snapshot
from golden import golden_stores
from rocketstore import ConfigError, formats
from rocketstore.index import geometry
from rocketstore.index.geometry import choose_geometry

RATIOS = [(1, 2), (1, 50), (13, 50), (2, 3), (5, 5), (20, 4), (3, 1000), (1000, 2), (101, 53)]
DEFAULT = (5_000_000, 20_000_000)


def build(root: Path, pair: tuple[int, int], count: int, **options: object) -> None:
    """A store of an odd log size and queue files of three units, without a hint of its sizes."""
    sizes = {"mapped_file_size_commit_log": 20_003, "mapped_file_size_consume_queue": 60}
    slots, entries = pair
    with rocketstore.open(
        root,
        "x",
        clock=Clock(),
        max_hash_slot_num=slots,
        max_index_num=entries,
        **{**sizes, **options},
    ) as store:
        put(store, 0, count)
    (root / "rocketstore.state").unlink()


def put(store: rocketstore.DefaultMessageStore, first: int, count: int) -> None:
    for number in range(first, first + count):
        keys = [f"k{number}", f"all{number % 2}"][: number % 3]
        assert store.put(f"T{number % 3}", b"x" * (number % 20), number % 2, None, keys).ok


def check(store: rocketstore.DefaultMessageStore, count: int) -> None:
    """Every key of every message is found, and no other."""
    for number in range(count):
        found = [m.body for m in store.find(topic=f"T{number % 3}", key=f"k{number}")]
        assert found == ([b"x" * (number % 20)] if number % 3 else [])


@pytest.mark.parametrize("pair", RATIOS, ids=str)
@pytest.mark.parametrize("count", [2, 5, 31])
def test_sizes_are_detected(tmp_path: Path, pair: tuple[int, int], count: int) -> None:
    root = tmp_path / "store"
    build(root, pair, count)
    before = snapshot(root)
    with rocketstore.open(root) as store:
        assert store.facts.index.pair == pair
        assert store.facts.index.doubts == []
        assert store.facts.commit_log_file_size == 20_003
        assert store.facts.consume_queue_file_size == 60
        check(store, count)
    assert snapshot(root) == before
    with rocketstore.open(root, "r+") as store:
        assert store.facts.index.pair == pair
        put(store, count, 5)
    with rocketstore.open(root) as store:
        check(store, count + 5)
        assert store.verify().ok


@pytest.mark.parametrize("size", [257, 4095, 4097, 65_537, 100_001])
def test_log_sizes_that_are_no_multiple_of_a_page(tmp_path: Path, size: int) -> None:
    root = tmp_path / "store"
    build(root, (13, 50), 12, mapped_file_size_commit_log=size)
    files = sorted((root / "commitlog").iterdir())
    assert {path.stat().st_size for path in files} == {size}
    assert [int(path.name) for path in files] == list(range(0, size * len(files), size))
    with rocketstore.open(root, "r+") as store:
        assert store.facts.commit_log_file_size == size
        check(store, 12)
        put(store, 12, 3)
    with rocketstore.open(root) as store:
        check(store, 15)


@pytest.mark.parametrize(("given", "stored"), [(1, 20), (19, 20), (20, 20), (21, 40), (4096, 4100)])
def test_queue_sizes_are_rounded_up_to_whole_units(tmp_path: Path, given: int, stored: int) -> None:
    root = tmp_path / "store"
    build(root, (13, 50), 12, mapped_file_size_consume_queue=given)
    sizes = {path.stat().st_size for path in (root / "consumequeue").rglob("0" * 20)}
    assert sizes == {stored}
    for size in (given, stored):
        with rocketstore.open(root, mapped_file_size_consume_queue=size) as store:
            check(store, 12)


@pytest.mark.parametrize("pair", [(13, 50), (1, 5), (1000, 2)], ids=str)
@pytest.mark.parametrize("hint", [True, False], ids=["state", "no_state"])
@pytest.mark.parametrize("mode", ["r", "r+"])
def test_given_pairs_that_contradict_the_content(
    tmp_path: Path, pair: tuple[int, int], hint: bool, mode: str
) -> None:
    """A pair of the same file length was believed: nothing was found in mode "r", and a writer
    dropped good entries as damaged ones."""
    root = tmp_path / "store"
    build(root, pair, 12)
    if hint:
        with rocketstore.open(root, "r+"):
            pass
    slots, entries = pair
    others = [(slots + 5 * n, entries - n) for n in (-2, -1, 1, 2, 10)]
    before = snapshot(root)
    tried = 0
    for other in others:
        if other[0] < 1 or other[1] < 2:
            continue
        tried += 1
        assert formats.index_file_nbytes(*other) == formats.index_file_nbytes(*pair)
        with pytest.raises(ConfigError, match=f"; {slots} and {entries} explain it"):
            rocketstore.open(root, mode, max_hash_slot_num=other[0], max_index_num=other[1])
    assert tried
    for other in ((slots + 1, entries), (slots, entries + 1), DEFAULT):
        with pytest.raises(ConfigError, match="make index files of"):
            rocketstore.open(root, mode, max_hash_slot_num=other[0], max_index_num=other[1])
    assert snapshot(root) == before
    with rocketstore.open(root, mode, max_hash_slot_num=slots, max_index_num=entries) as store:
        check(store, 12)


def test_a_truncated_file_does_not_contradict_what_is_given(tmp_path: Path) -> None:
    root = tmp_path / "store"
    build(root, (13, 50), 12)
    (path,) = (root / "index").iterdir()
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size - 7)
    pair = {"max_hash_slot_num": 13, "max_index_num": 50}
    assert "index.file.size" in rocketstore.doctor(root, **pair).counts
    with rocketstore.open(root, "r+", **pair) as store:
        check(store, 12)


def test_large_files_are_judged_by_what_the_header_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(geometry, "JUDGED_WHOLE_NBYTES", 0)
    test_given_pairs_that_contradict_the_content(tmp_path / "a", (13, 50), False, "r")
    root = tmp_path / "store"
    build(root, (13, 50), 1)  # no key: nothing can be said against a pair of that length
    with rocketstore.open(root, max_hash_slot_num=18, max_index_num=49) as store:
        check(store, 1)


def test_damaged_files_do_not_contradict_the_right_pair(tmp_path: Path) -> None:
    root = tmp_path / "store"
    build(root, (13, 50), 31)
    path = sorted((root / "index").iterdir())[0]
    content = bytearray(path.read_bytes())
    for at in range(len(content) // 2, len(content) // 2 + 60):
        content[at] ^= 0x55
    path.write_bytes(content)
    with rocketstore.open(root, "r+", max_hash_slot_num=13, max_index_num=50) as store:
        check(store, 31)
        assert store.verify().ok
    with pytest.raises(ConfigError, match="13 and 50 explain it"):
        rocketstore.open(root, max_hash_slot_num=8, max_index_num=51)


def test_fewest_contradictions_are_reported(tmp_path: Path) -> None:
    root = tmp_path / "store"
    build(root, (13, 50), 31)
    path = sorted((root / "index").iterdir())[-1]
    content = bytearray(path.read_bytes())
    at = formats.index_file_nbytes(13, 2)
    content[at] = 0x80  # a negative hash
    path.write_bytes(content)
    with rocketstore.open(root) as store:
        assert store.facts.index.pair == (13, 50)
        assert "fewest contradictions" in store.facts.index.doubts[0]
        assert store.facts.index.doubts[0] in store.facts.notes
        check(store, 31)


#: Parts of an index file of 13 slots and 50 entries (1092 bytes), and what is written over them.
DAMAGE = {
    "slots zeroed": (40, 92, b"\0"),
    "slots set": (40, 92, b"\xff"),
    "entries zeroed": (92, 1092, b"\0"),
    "a block zeroed": (60, 572, b"\0"),
    "its end set": (800, 1092, b"\xff"),
    "header set": (0, 40, b"\x5a"),
    "all zeroed": (0, 1092, b"\0"),
}


def damage(path: Path, name: str) -> None:
    start, stop, byte = DAMAGE[name]
    content = path.read_bytes()
    path.write_bytes(content[:start] + byte * (stop - start) + content[stop:])


@pytest.fixture(scope="module")
def three_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("three") / "store"
    build(root, (13, 50), 110)
    assert len(list((root / "index").iterdir())) == 3
    return root


@pytest.mark.parametrize("number", [0, 2])
@pytest.mark.parametrize("name", DAMAGE)
def test_whole_files_outvote_a_damaged_one(
    three_files: Path, tmp_path: Path, name: str, number: int
) -> None:
    """It made all of them files of no known geometry, and a writer began one of RocketMQ's
    default size."""
    root = tmp_path / "store"
    shutil.copytree(three_files, root)
    path = sorted((root / "index").iterdir())[number]
    damage(path, name)
    with rocketstore.open(root) as store:
        assert store.facts.index.pair == (13, 50)
        assert not store.reader.index.unusable
        doubts = store.facts.index.doubts
        assert not doubts or path.name in doubts[0]
    with rocketstore.open(root, "r+") as store:
        put(store, 110, 3)
    sizes = {path.stat().st_size for path in (root / "index").iterdir()}
    assert sizes == {formats.index_file_nbytes(13, 50)}
    with rocketstore.open(root) as store:
        check(store, 113)
        assert store.verify().ok


@pytest.mark.parametrize("name", ["slots zeroed", "slots set", "a block zeroed"])
def test_links_show_the_slots_of_a_damaged_file(
    three_files: Path, tmp_path: Path, name: str
) -> None:
    for number in range(2):
        root = tmp_path / f"{number}"
        shutil.copytree(three_files, root)
        for path in sorted((root / "index").iterdir()):
            damage(path, name)
        for path in sorted((root / "index").iterdir())[:number]:
            path.unlink()
        with rocketstore.open(root) as store:
            assert store.facts.index.pair == (13, 50)
            assert "fewest contradictions" in store.facts.index.doubts[0]


def test_default_sizes_are_taken_with_a_note(three_files: Path, tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(three_files, root)
    for path in (root / "index").iterdir():
        damage(path, "all zeroed")
    with rocketstore.open(root) as store:
        assert store.facts.index.pair == DEFAULT
        assert "configure max_hash_slot_num and max_index_num" in store.recovery_report.notes[0]


def test_most_files_decide_among_geometries_of_one_length(tmp_path: Path) -> None:
    roots = [tmp_path / "a", tmp_path / "b"]
    build(roots[0], (13, 50), 110)
    build(roots[1], (18, 49), 12)
    name = formats.timestamp_to_index_name(Clock().now + 10**9, datetime.UTC)
    (other,) = (roots[1] / "index").iterdir()
    other.rename(roots[0] / "index" / name)
    choice = choose_geometry(roots[0] / "index", roots[0], None, [], DEFAULT)
    assert choice.pair == (13, 50)
    assert name in choice.doubts[0]


def test_files_of_two_geometries(tmp_path: Path) -> None:
    """Each is read as its own; the newest one's is written."""
    roots = [tmp_path / "a", tmp_path / "b"]
    build(roots[0], (13, 50), 12)
    build(roots[1], (1, 30), 12)
    name = formats.timestamp_to_index_name(Clock().now + 10**9, datetime.UTC)
    (other,) = (roots[1] / "index").iterdir()
    other.rename(roots[0] / "index" / name)
    choice = choose_geometry(roots[0] / "index", roots[0], None, [], DEFAULT)
    assert choice.pair == (1, 30)
    assert sorted(choice.by_nbytes.values()) == [(1, 30), (13, 50)]
    assert choice.doubts == []


def test_golden_stores_agree_with_what_they_were_written_with(tmp_path: Path) -> None:
    for name in golden_stores.names("plain-", "crash-", "lag-", "expire-"):
        root = golden_stores.unpack(name, tmp_path / name)
        wanted = golden_stores.geometry(name)
        with rocketstore.open(root, derive="none") as store:
            assert store.facts.index.pair == (wanted.slots, wanted.entries), name
            assert store.facts.commit_log_file_size == wanted.commit_log_nbytes
            assert store.facts.consume_queue_file_size == wanted.consume_queue_nbytes
        with pytest.raises(ConfigError, match="explain it"):
            rocketstore.open(
                root, max_hash_slot_num=wanted.slots + 5, max_index_num=wanted.entries - 1
            )


@pytest.mark.parametrize(("slots", "entries"), [(0, 50), (1, 1), (1, 0), (2**31, 2), (1, 2**31)])
def test_pairs_that_cannot_be(tmp_path: Path, slots: int, entries: int) -> None:
    """One entry is too few: number 0 is never used, and dispatch would begin new files forever."""
    with pytest.raises(ConfigError, match="max_"):
        rocketstore.open(tmp_path / "s", "x", max_hash_slot_num=slots, max_index_num=entries)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("now", [253_402_300_800_000, 10**15, 2**53, 2**60, 0, -1])
def test_a_clock_outside_all_years_makes_index_files(now: int, tmp_path: Path) -> None:
    """A year of five digits ended dispatch when the second file was made, for good."""
    with rocketstore.open(
        tmp_path / "s", "x", clock=lambda: now, max_hash_slot_num=5, max_index_num=20
    ) as store:
        for number in range(70):
            assert store.put("T", b"x", 0, None, f"k{number}").ok
        store.wait_dispatched(60)
    names = sorted(path.name for path in (tmp_path / "s" / "index").iterdir())
    assert len(names) == 4
    assert all(map(formats.is_index_name, names))
    with rocketstore.open(tmp_path / "s") as store:
        for number in range(70):
            (found,) = store.find(topic="T", key=f"k{number}")
            assert found.queue_offset == number
