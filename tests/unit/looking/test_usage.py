"""``du`` and ``volume``: sums against a plain reader, fillers, damage, limits."""

from __future__ import annotations

import collections
from collections.abc import Callable, Hashable
from pathlib import Path

import pytest

from golden.golden_stores import names, unpack
from rocketstore.errors import MappedFileError
from rocketstore.looking import usage as module
from rocketstore.looking.usage import Usage, du, volume
from support.directory import files_below
from support.looked_stores import HOUR_MS, SEGMENT, Record, make_store, plain_records

KEYS: dict[str, Callable[[Record], Hashable]] = {
    "topic": lambda one: one.topic,
    "queue": lambda one: one.queue_id,
    "tag": lambda one: one.properties.get("TAGS"),
    "hour": lambda one: one.stored - one.stored % HOUR_MS,
    "property:region": lambda one: one.properties.get("region"),
    "property:absent": lambda one: None,
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("looked") / "store")


def plain_sums(root: Path, by: tuple[str, ...]) -> dict[tuple[Hashable, ...], list[int]]:
    sums: dict[tuple[Hashable, ...], list[int]] = {}
    for one in plain_records(root):
        if one.topic is not None:
            key = tuple(KEYS[name](one) for name in by)
            found = sums.setdefault(key, [0, 0, 0, one.stored, one.stored])
            found[0] += 1
            found[1] += one.nbytes
            found[2] += len(one.body)
            found[3:] = min(found[3], one.stored), max(found[4], one.stored)
    return sums


def sums_of(usage: Usage) -> dict[tuple[Hashable, ...], list[int | None]]:
    return {
        row.key: [
            row.messages, row.nbytes, row.body_nbytes, row.first_timestamp, row.last_timestamp,
        ]
        for row in usage.rows
        if row.kind == "messages"
    }  # fmt: skip


def total(usage: Usage) -> int:
    return sum(row.nbytes for row in usage.rows)


@pytest.mark.parametrize(
    "by",
    [
        ("topic",),
        ("topic", "queue"),
        ("hour", "topic"),
        ("tag",),
        ("queue", "tag", "hour"),
        ("property:region",),
        ("topic", "property:region", "hour", "tag", "queue"),
        ("property:absent", "property:region"),
    ],
)
@pytest.mark.parametrize("jobs", [1, 3])
def test_sums_are_those_of_a_plain_reader(root: Path, by: tuple[str, ...], jobs: int) -> None:
    before = files_below(root)
    usage = du(root, ",".join(by), jobs=jobs)
    assert sums_of(usage) == plain_sums(root, by)
    records = list(plain_records(root))
    fillers = sum(one.nbytes for one in records if one.topic is None)
    assert (usage.filler_nbytes, usage.damaged_nbytes) == (fillers, 0)
    assert usage.start == 0
    assert total(usage) == usage.nbytes == records[-1].offset + records[-1].nbytes
    sizes = [row.nbytes for row in usage.rows if row.kind == "messages"]
    assert sizes == sorted(sizes, reverse=True)
    assert usage.rows[-1].key[0] == "(filler)"
    assert files_below(root) == before


def test_volume_is_in_order_of_time(root: Path) -> None:
    usage = volume(root, "hour")
    assert sums_of(usage) == plain_sums(root, ("hour",))
    times = [row.key[0] for row in usage.rows if row.kind == "messages"]
    assert times == sorted(times)
    by_topic = volume(root, "hour", "topic")
    assert sums_of(by_topic) == plain_sums(root, ("hour", "topic"))
    assert total(by_topic) == by_topic.nbytes


def test_other_places_are_read(root: Path) -> None:
    whole = du(root)
    assert sums_of(du(root / "commitlog")) == sums_of(whole)
    parts: collections.Counter[tuple[Hashable, ...]] = collections.Counter()
    nbytes = 0
    for path in sorted((root / "commitlog").iterdir()):
        one = du(path)
        nbytes += one.nbytes
        parts.update({row.key: row.nbytes for row in one.rows if row.kind == "messages"})
    assert nbytes == whole.nbytes
    assert parts == {row.key: row.nbytes for row in whole.rows if row.kind == "messages"}


def test_a_part_of_the_log(root: Path) -> None:
    first = du(root, stop=SEGMENT)
    rest = du(root, start=SEGMENT)
    assert (first.start, first.stop, rest.start) == (0, SEGMENT, SEGMENT)
    assert first.nbytes + rest.nbytes == du(root).nbytes
    assert total(first) == first.nbytes
    assert total(rest) == rest.nbytes


def test_limit_and_table_size_join_the_rest(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = du(root, "topic,queue", limit=2)
    assert [row.kind for row in usage.rows] == ["messages", "messages", "other", "filler"]
    assert usage.messages == 150
    assert total(usage) == usage.nbytes
    monkeypatch.setattr(module, "MAX_GROUPS", 3)
    usage = du(root, "property:n", limit=2)
    assert [row.kind for row in usage.rows] == ["messages", "messages", "other", "filler"]
    assert (usage.messages, total(usage)) == (150, usage.nbytes)


@pytest.mark.parametrize("by", ["topic", "property:region"])
def test_damage_is_counted(tmp_path: Path, by: str) -> None:
    root = make_store(tmp_path / "store")
    records = [one for one in plain_records(root) if one.topic is not None]
    whole = du(root, by)
    hurt = [records[5], records[6], records[60]]
    for one in hurt:
        path = root / "commitlog" / f"{one.offset - one.offset % SEGMENT:020d}"
        content = bytearray(path.read_bytes())
        at = one.offset % SEGMENT
        content[at + 4 : at + 8] = b"\0\0\0\0"
        path.write_bytes(content)
    usage = du(root, by)
    assert usage.damaged_nbytes == sum(one.nbytes for one in hurt)
    assert [(one.start, one.stop) for one in usage.damaged] == [
        (hurt[0].offset, hurt[1].offset + hurt[1].nbytes),
        (hurt[2].offset, hurt[2].offset + hurt[2].nbytes),
    ]
    assert total(usage) == usage.nbytes == whole.nbytes
    assert usage.messages == whole.messages - 3
    assert usage.rows[-1].key == ("(damaged)",)


def test_a_wrong_crc_is_damage_if_it_is_checked(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store")
    path = root / "commitlog" / f"{0:020d}"
    content = bytearray(path.read_bytes())
    content[88] ^= 1
    path.write_bytes(content)
    first = next(plain_records(root))
    assert du(root).damaged_nbytes == first.nbytes
    usage = du(root, check_crc=False)
    assert (usage.damaged_nbytes, usage.messages) == (0, 150)


def test_a_missing_and_a_short_segment(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store", 300)
    whole = du(root)
    (root / "commitlog" / f"{SEGMENT:020d}").unlink()
    usage = du(root)
    assert usage.damaged_nbytes == SEGMENT
    assert usage.damaged[0].reason == "the segment is missing"
    assert total(usage) == usage.nbytes == whole.nbytes
    first = root / "commitlog" / f"{0:020d}"
    records = [one for one in plain_records(root) if one.offset < SEGMENT and one.topic]
    with first.open("r+b") as file:
        file.truncate(records[10].offset)
    usage = du(root)
    assert usage.damaged_nbytes == 2 * SEGMENT - records[10].offset
    assert total(usage) == usage.nbytes == whole.nbytes


def test_ghosts_are_damage(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store", 20)
    records = list(plain_records(root))
    path = root / "commitlog" / f"{0:020d}"
    content = bytearray(path.read_bytes())
    at = records[3].offset
    content[at + 28 : at + 36] = (records[2].offset).to_bytes(8, "big")
    path.write_bytes(content)
    usage = du(root)
    assert usage.damaged_nbytes == records[3].nbytes
    assert total(usage) == usage.nbytes


@pytest.mark.parametrize("name", names("plain", "crash", "inner", "expire", "lmq"))
def test_golden_stores_add_up(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    for by in ("topic,queue", "property:UNIQ_KEY,hour"):
        usage = du(root, by)
        assert total(usage) == usage.nbytes > 0
        assert usage.damaged_nbytes == 0


@pytest.mark.parametrize("by", ["", "colour", "topic,topic", "hour,day", "property:", []])
def test_invalid_groups(root: Path, by: str) -> None:
    with pytest.raises(ValueError, match=r"group|hour"):
        du(root, by)


def test_invalid_numbers_and_places(root: Path, tmp_path: Path) -> None:
    for options in ({"limit": 0}, {"jobs": 0}):
        with pytest.raises(ValueError, match="1 or more"):
            du(root, **options)
    with pytest.raises(ValueError, match="per is"):
        volume(root, "week")
    with pytest.raises(FileNotFoundError):
        du(tmp_path / "absent")
    (tmp_path / "text").write_bytes(b"no record" * 20)
    with pytest.raises(MappedFileError, match="no segment"):
        du(tmp_path / "text")
    (tmp_path / f"{0:020d}").touch()
    with pytest.raises(MappedFileError, match="empty"):
        du(tmp_path / f"{0:020d}")


@pytest.mark.parametrize("jobs", [1, 3])
@pytest.mark.parametrize("calls", [1, 2, 5, 9])
def test_both_parts_of_an_interrupted_sum_add_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int, calls: int
) -> None:
    root = make_store(tmp_path / "store", 1500)
    segments = sorted((root / "commitlog").iterdir())
    with open(segments[1], "r+b") as file:
        file.seek(2000)
        file.write(bytes(1000))
    monkeypatch.setattr(module, "_STEP_NBYTES", 1)
    left = [calls]

    def interrupt(what: str, done: int, total: int) -> None:
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt

    by = ("topic", "queue")
    whole = du(root, by, jobs=jobs)
    try:
        du(root, by, jobs=jobs, progress=interrupt)
    except module.UsageInterrupted as error:
        part = error.usage
    except KeyboardInterrupt:  # before the first sum
        assert calls == 1 or jobs > 1  # threads may all have called once
        return
    rest = du(root, by, start=part.stop)
    assert part.start == whole.start < part.stop == rest.start < rest.stop == whole.stop
    for answer in (part, rest, whole):
        assert sum(row.nbytes for row in answer.rows) == answer.nbytes
    sums = collections.Counter[Hashable]()
    for answer in (part, rest):
        sums.update({row.key: row.messages for row in answer.rows})
    assert sums == {row.key: row.messages for row in whole.rows}
