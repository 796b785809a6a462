"""Index files made from a log in tasks are those that dispatch makes, whatever the splits."""

from __future__ import annotations

import datetime
import itertools
import shutil
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from golden import golden_stores
from rocketstore import formats
from rocketstore.errors import ConfigError, CorruptMessageError
from rocketstore.spark.jobs.index import build_index
from support.directory import files_below

SLOTS, ENTRIES = 20, 60
#: So few keys that a file of ``ENTRIES`` begins between two marks and at one.
MARK_KEYS = 7


def make(root: Path, count: int = 150, **options: Any) -> Path:
    """Write a store of several segments and index files, with all sorts of records."""
    ticks = iter(range(1_700_000_000_000, 1_800_000_000_000, 700))
    sizes = {"max_hash_slot_num": SLOTS, "max_index_num": ENTRIES, **options}
    with rocketstore.open(
        root,
        "x",
        clock=lambda: next(ticks),
        mapped_file_size_commit_log=8192,
        mapped_file_size_consume_queue=400,
        **sizes,
    ) as store:
        for number in range(count):
            result = store.put(
                "TopicA" if number % 3 else "%RETRY%" + "t" * 100,
                b"body %d" % number * (number % 7),
                number % 2,
                f"Tag{number % 4}" if number % 4 else None,
                " ".join(f"key-{one}" for one in range(number % 5)),
                delay_level=3 if number % 11 == 0 else 0,
                sys_flag=(0, 4, 8, 12)[number % 4] if number % 13 == 0 else 0,
            )
            assert result.ok
        assert store.wait_dispatched(20)
    return root


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("index") / "store")


def contents(folder: Path) -> list[bytes]:
    return list(files_below(folder).values())


@pytest.mark.parametrize("split_bytes", [257, 1000, 5000, 1 << 20])
def test_the_files_are_those_of_the_store(pristine: Path, tmp_path: Path, split_bytes: int) -> None:
    reported: list[tuple[int, int]] = []
    rows = build_index(
        None,
        pristine,
        tmp_path / "index",
        split_bytes=split_bytes,
        mark_keys=MARK_KEYS,
        timezone="UTC",
        progress=lambda done, total: reported.append((done, total)),
    )
    assert len(rows) > 5
    assert contents(tmp_path / "index") == contents(pristine / "index")
    assert [row.path for row in rows] == [
        str(path) for path in sorted((tmp_path / "index").glob("*"))
    ]
    assert [row.keys for row in rows[:-1]] == [ENTRIES - 1] * (len(rows) - 1)
    for one, other in itertools.pairwise(rows):
        assert one.end_timestamp <= other.begin_timestamp
    name = formats.timestamp_to_index_name(rows[0].begin_timestamp, datetime.UTC)
    assert Path(rows[0].path).name == name
    assert reported == sorted(reported)
    assert reported[-1][0] == reported[-1][1] > 0


@pytest.mark.parametrize("time", [253_402_300_800_000, 2**62, 2**63 - 1, -(2**63)])
def test_times_that_no_name_can_hold(pristine: Path, tmp_path: Path, time: int) -> None:
    """No checksum covers a record's store time, and if the first one of an index file was
    after the year 9999, the whole job failed: "year 10000 is out of range".
    """
    sound = build_index(None, pristine, tmp_path / "sound")
    root = Path(shutil.copytree(pristine, tmp_path / "store"))
    with (root / "commitlog" / formats.offset_to_file_name(0)).open("r+b") as file:
        file.seek(
            sound[0].begin_physical_offset + formats.RECORD_HEAD.nbytes + formats.HOST_V4.nbytes
        )
        file.write(time.to_bytes(8, "big", signed=True))
    rows = build_index(None, root, tmp_path / "index", timezone="Pacific/Kiritimati")
    assert rows[0].begin_timestamp == time
    names = [Path(row.path).name for row in rows]
    assert names == sorted(set(names))
    assert all(formats.is_index_name(name) for name in names)
    assert [row.keys for row in rows] == [row.keys for row in sound]


@pytest.mark.parametrize("version", ["5.3.3", "5.4.0"])
@pytest.mark.parametrize("entries", [2, 3, 40, 100_000])
def test_geometry_and_version_are_found_or_given(
    tmp_path: Path, version: str, entries: int
) -> None:
    """A file of two numbers holds one key: each file continues the times of another (D-2)."""
    sizes = {"max_hash_slot_num": 3, "max_index_num": entries}
    store = make(tmp_path / "store", 20, broker_version=version, **sizes)
    original = contents(store / "index")
    build_index(None, store / "commitlog", tmp_path / "found", mark_keys=MARK_KEYS)
    assert contents(tmp_path / "found") == original
    shutil.copytree(store / "commitlog", tmp_path / "log")
    build_index(None, tmp_path / "log", tmp_path / "given", broker_version=version, **sizes)
    assert contents(tmp_path / "given") == original


@pytest.mark.parametrize(
    "name", golden_stores.names("plain-", "crash-", "crc-", "inner-", "ext-", "lmq-")
)
def test_what_rocketmq_indexed_comes_back(name: str, tmp_path: Path) -> None:
    root = golden_stores.unpack(name, tmp_path)
    geometry = golden_stores.geometry(name)
    original = contents(root / "index")
    shutil.rmtree(root / "index")
    build_index(
        None,
        root,
        tmp_path / "index",
        max_hash_slot_num=geometry.slots,
        max_index_num=geometry.entries,
        broker_version=golden_stores.about(name)["rocketmq"],
        split_bytes=3000,
        mark_keys=MARK_KEYS,
    )
    assert contents(tmp_path / "index") == original


def test_both_bodies_make_the_same(
    pristine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rocketstore import kernels
    from rocketstore._reference import index_file, passes_index_keys

    monkeypatch.setattr(kernels, "passes_index_keys", passes_index_keys, raising=False)
    monkeypatch.setattr(kernels, "index_file", index_file)
    build_index(None, pristine, tmp_path / "index", mark_keys=MARK_KEYS)
    assert contents(tmp_path / "index") == contents(pristine / "index")


def test_names_rise_even_where_clocks_do_not(tmp_path: Path) -> None:
    """Files whose first records have one store time must still sort as they were made."""
    with rocketstore.open(
        tmp_path / "store",
        "x",
        clock=lambda: 1_700_000_000_000,
        mapped_file_size_commit_log=8192,
        max_hash_slot_num=4,
        max_index_num=3,
    ) as store:
        for number in range(10):
            assert store.put("TopicA", b"x", keys=f"k{number}").ok
        assert store.wait_dispatched(20)
    rows = build_index(None, tmp_path / "store", tmp_path / "index")
    assert len({row.path for row in rows}) == len(rows) == 5
    assert contents(tmp_path / "index") == contents(tmp_path / "store" / "index")


def test_a_log_without_keys_has_no_index(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "store", "x"):
        pass
    assert build_index(None, tmp_path / "store", tmp_path / "index") == []
    assert list((tmp_path / "index").iterdir()) == []


def damage(store: Path) -> tuple[Path, int]:
    """Change a byte of a body in the second segment; return its file and record's position."""
    with rocketstore.open(store, "r") as opened:
        message = next(
            one for one in opened.scan() if one.physical_offset > 9000 and len(one.body) > 20
        )
        at = message.physical_offset
        raw, body = bytes(message.raw), message.body
    path = sorted((store / "commitlog").iterdir())[at // 8192]
    with open(path, "r+b") as file:
        file.seek(at % 8192 + raw.index(body))
        file.write(b"#")
    return path, at % 8192


def test_damage_is_an_error_or_skipped(pristine: Path, tmp_path: Path) -> None:
    store = shutil.copytree(pristine, tmp_path / "store")
    path, position = damage(store)
    with pytest.raises(CorruptMessageError) as raised:
        build_index(None, store, tmp_path / "index", mark_keys=MARK_KEYS)
    assert (raised.value.path, raised.value.position) == (str(path), position)
    assert not (tmp_path / "index").exists()
    assert [one.name for one in tmp_path.iterdir()] == ["store"]
    rows = build_index(None, store, tmp_path / "index", on_corruption="skip", mark_keys=MARK_KEYS)
    whole = build_index(None, pristine, tmp_path / "whole", mark_keys=MARK_KEYS)
    with rocketstore.open(pristine, "r") as opened:
        lost = opened.look_message_by_offset(8192 + position)
        assert lost is not None
        keys = len((lost.keys or "").split()) + bool(lost.tags)
    missing = sum(row.keys for row in whole) - sum(row.keys for row in rows)
    assert missing == keys > 0


def test_nothing_is_written_over(pristine: Path, tmp_path: Path) -> None:
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").touch()
    with pytest.raises(FileExistsError, match="used is not empty"):
        build_index(None, pristine, tmp_path / "used")
    with pytest.raises(FileExistsError, match="file exists and is not a directory"):
        build_index(None, pristine, tmp_path / "used" / "file")
    (tmp_path / "empty").mkdir()
    assert build_index(None, pristine, tmp_path / "empty")
    assert contents(tmp_path / "empty") == contents(pristine / "index")


def test_wrong_arguments(pristine: Path, tmp_path: Path) -> None:
    out = tmp_path / "index"
    with pytest.raises(ValueError, match="must be one of fail, skip"):
        build_index(None, pristine, out, on_corruption="stop")
    with pytest.raises(ConfigError, match="given together"):
        build_index(None, pristine, out, max_index_num=5)
    with pytest.raises(ConfigError, match="is not a version"):
        build_index(None, pristine, out, broker_version="new")
    with pytest.raises(ConfigError, match="is remote"):
        build_index(None, pristine, "s3://bucket/index")
    with pytest.raises(FileNotFoundError, match="is not a store"):
        build_index(None, tmp_path, out)
    assert list(tmp_path.iterdir()) == []


def test_a_remote_log(pristine: Path, tmp_path: Path) -> None:
    """Of a remote store sizes and version are not looked for: they are given."""
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.put(str(pristine), "/job-index/store", recursive=True)
    try:
        build_index(
            None,
            "memory://job-index/store",
            tmp_path / "index",
            max_hash_slot_num=SLOTS,
            max_index_num=ENTRIES,
            split_bytes=5000,
        )
    finally:
        memory.rm("/job-index", recursive=True)
    assert contents(tmp_path / "index") == contents(pristine / "index")
