"""``grep``: conditions, compressed bodies, batches, damage, and where it goes on."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from golden.golden_stores import unpack
from rocketstore import formats
from rocketstore.errors import FilterSyntaxError
from rocketstore.looking.search import grep
from support.directory import files_below
from support.looked_stores import HOUR_MS, SEGMENT, START, make_store, open_looked, plain_records


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("looked") / "store")


def offsets(root: Path, *given: Any, **options: Any) -> list[int]:
    return [match.message.physical_offset for match in grep(root, *given, **options)]


def test_conditions_are_those_of_a_plain_reader(root: Path) -> None:
    before = files_below(root)
    records = [one for one in plain_records(root) if one.topic is not None]
    eu = [one.offset for one in records if one.properties.get("region") == "eu"]
    assert offsets(root, "region = 'eu'") == eu
    assert offsets(root / "commitlog", "region = 'eu'") == eu
    sevens = [one.offset for one in records if one.body.startswith(b"77")]
    assert offsets(root, body_regex="^(77)+$") == sevens
    assert offsets(root, "n > 12", body_regex="12") == [
        one.offset for one in records if b"12" in one.body and int(one.properties["n"]) > 12
    ]
    assert offsets(root, topics=["Pays"], begin=START + 5 * HOUR_MS) == [
        one.offset for one in records if one.topic == "Pays" and one.stored >= START + 5 * HOUR_MS
    ]
    assert offsets(root, keys=["k7"]) == [
        one.offset for one in records if one.properties["KEYS"] == "k7"
    ]
    last = root / "commitlog" / f"{SEGMENT:020d}"
    assert offsets(last) == [one.offset for one in records if SEGMENT <= one.offset < 2 * SEGMENT]
    assert files_below(root) == before


def test_it_goes_on_where_it_stopped(root: Path) -> None:
    whole = offsets(root, "region = 'us'")
    found: list[int] = []
    start = None
    while True:
        part = grep(root, "region = 'us'", limit=7, start=start)
        some = [match.message.physical_offset for match in part]
        found += some
        start = part.position
        if len(some) < 7:
            break
    assert found == whole


def test_bodies_are_decompressed(tmp_path: Path) -> None:
    text = b'{"order": {"items": [{"sku": "A-17"}, {"sku": "B-2"}], "total": 12.5}}'
    with open_looked(tmp_path / "store") as store:
        packed = formats.SYS_FLAG_COMPRESSED
        for flag, body in (
            (0, text),
            (packed, zlib.compress(text)),
            (packed | formats.COMPRESSION_ZLIB, zlib.compress(text)),
            (packed, b"A-17, and no zlib"),
            (packed | 0x500, b"A-17, of no known type"),
        ):
            store.put_message(rocketstore.Message("T", body, sys_flag=flag))
    condition = "order.items[*].sku=A-17"
    search = grep(tmp_path / "store", body_json=condition)
    assert [match.body for match in search] == [text] * 3
    assert (search.undecompressed, search.matches) == (2, 3)
    assert "not zlib" in search.first_undecompressed
    assert [match.body for match in grep(tmp_path / "store", body_json=condition, raw=True)] == [
        text
    ]
    assert len(offsets(tmp_path / "store", body_regex="A-17")) == 5


def test_messages_of_batches(tmp_path: Path) -> None:
    root = unpack("inner-5.3.3", tmp_path)
    with rocketstore.open(root) as store:
        expected = [one.queue_offset for one in store.scan(records="queues", topics=["Batch"])]
        everything = [one.queue_offset for one in store.scan(records="queues")]
    found = [match.message.queue_offset for match in grep(root, records="queues", raw=True)]
    assert found == everything
    some = grep(root, records="queues", topics=["Batch"], raw=True)
    assert [match.message.queue_offset for match in some] == expected


def test_damage_is_skipped_and_listed(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store")
    records = [one for one in plain_records(root) if one.topic is not None]
    hurt = records[20]
    path = root / "commitlog" / f"{0:020d}"
    content = bytearray(path.read_bytes())
    content[hurt.offset + 88] ^= 1
    path.write_bytes(content)
    search = grep(root)
    found = [match.message.physical_offset for match in search]
    assert found == [one.offset for one in records if one is not hurt]
    assert [(one.start, one.stop) for one in search.damaged] == [
        (hurt.offset, hurt.offset + hurt.nbytes)
    ]


@pytest.mark.parametrize(
    ("options", "column"),
    [
        ({"expression": "a >"}, 4),
        ({"body_regex": "a+b["}, 4),
        ({"body_json": "a..b=1"}, 3),
    ],
)
def test_an_invalid_expression_shows_where(
    root: Path, options: dict[str, str], column: int
) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        grep(root, **options)  # type: ignore[arg-type]
    assert caught.value.column == column


@pytest.mark.parametrize("records", ["log", "queues"])
def test_jobs_find_the_same(tmp_path: Path, records: str) -> None:
    root = make_store(tmp_path / "store", 3000)
    segments = sorted((root / "commitlog").iterdir())
    assert len(segments) > 4
    with open(segments[2], "r+b") as file:
        file.seek(3000)
        file.write(bytes(2000))

    def found(jobs: int, **options: object) -> tuple[object, ...]:
        search = grep(root, topics=["Orders", "Logs"], records=records, jobs=jobs, **options)
        places = [(one.message.physical_offset, one.body) for one in search]
        damage = [(one.start, one.stop, one.reason) for one in search.damaged]
        return places, damage, search.position, search.matches

    for options in ({}, {"limit": 700}, {"body_regex": "7"}, {"start": 100_000, "stop": 200_000}):
        assert found(1, **options) == found(2, **options) == found(9, **options)
    with pytest.raises(ValueError, match="jobs is 0"):
        grep(root, topics=["Logs"], jobs=0)


def test_memory_is_that_of_some_of_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The file is read in windows of 1 MiB; every message of a segment was kept until its end.
    root = tmp_path / "store"
    with rocketstore.open(root, "x", mapped_file_size_commit_log=32 << 20) as store:
        store.put_many([rocketstore.Message("T", b"x" * 2000)] * 10_000)
    search = grep(root, topics=["T"], jobs=1)
    (split,) = search._splits
    steps = [len(step.matches) for step in search._steps(split, 0)]
    assert sum(steps) == 10_000
    assert max(steps) < 4000
