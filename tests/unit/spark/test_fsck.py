"""The check of a whole store, without Spark: it finds what ``verify`` finds."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from golden import golden_stores
from rocketstore import formats
from rocketstore.config import MessageStoreConfig
from rocketstore.errors import ConfigError
from rocketstore.files.mapped_file_queue import list_directory
from rocketstore.store.read_only import ReadOnlyParts
from rocketstore.store.verifying import verify_files

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from rocketstore.spark.jobs.fsck import job as fsck
from rocketstore.spark.jobs.fsck.job import check_store

OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": 65536,
    "mapped_file_size_consume_queue": 400,
    "max_hash_slot_num": 10,
    "max_index_num": 200,
}
UNIT = formats.CONSUME_QUEUE_UNIT.struct
LOG_AND_QUEUES = ("log-file", "record", "queue-offset", "queue-file", "unit", "missing-unit")


def compare(root: Path, **options: Any) -> Any:
    """Check a store by both ways; both must find the same. Returns the job's report."""
    level = options.get("level", "crc")
    wanted = verify_files(root, MessageStoreConfig(), max_findings=10_000, level=level)
    for split_bytes in (4000, 1 << 28):
        found = check_store(None, root, split_bytes=split_bytes, **options)
        rows = [row for row in found.rows if row[0] in LOG_AND_QUEUES]
        assert sorted((row[0], row[2], row[3], row[4], row[8]) for row in rows) == sorted(
            (one.kind, one.path, one.position, one.offset, one.reason)
            for one in wanted.findings
            if one.kind in LOG_AND_QUEUES
        )
        assert set(found.finding_counts) == set(wanted.finding_counts)
        summary = found.summary
        assert (summary["records"], summary["bytes"]) == (wanted.records, wanted.nbytes)
        assert (summary["logStart"], summary["logEnd"]) == (wanted.log_start, wanted.log_end)
        assert (summary["queues"], summary["units"]) == (wanted.queues, wanted.units)
        assert found.ok == wanted.ok
    return found


@pytest.mark.parametrize("name", golden_stores.NAMES)
def test_rocketmqs_stores(name: str, tmp_path: Path) -> None:
    compare(golden_stores.unpack(name, tmp_path))


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of a few queues in some segments."""
    root = tmp_path_factory.mktemp("pristine") / "store"
    chance = random.Random(5)
    with rocketstore.open(root, "x", **OPTIONS) as store:
        for number in range(400):
            topic, queue_id = chance.choice(["A", "B" * 30, "C"]), chance.randrange(3)
            body = b"x" * chance.choice([0, 10, 2000])
            assert store.put(topic, body, queue_id, tags="t", keys=str(number)).ok
    return root


@pytest.fixture
def root(pristine: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(pristine, tmp_path / "store"))


def log_of(root: Path, number: int) -> Path:
    return sorted((root / "commitlog").iterdir())[number]


def change(path: Path, position: int, content: bytes) -> None:
    """Overwrite bytes of a file."""
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content)


def records(root: Path) -> list[Any]:
    """(topic, queue id, queue offset, physical offset) of all records."""
    with rocketstore.open(root, mode="r") as store:
        return [
            (m.topic, m.queue_id, m.queue_offset, m.physical_offset)
            for m in store.scan(on_corruption="skip")
        ]


def unit_at(root: Path, topic: str, queue_id: int, index: int) -> tuple[Path, int]:
    """File and position of a unit."""
    folder = root / "consumequeue" / topic / str(queue_id)
    return folder / formats.offset_to_file_name(index // 20 * 400), index % 20 * 20


def lose_magic(root: Path) -> set[str]:
    offset = records(root)[50][3]
    change(log_of(root, 0), offset + 4, b"xxxx")
    return {"record"}


def lose_the_first_record_of_a_segment(root: Path) -> set[str]:
    change(log_of(root, 2), 4, b"xxxx")
    return {"record"}


def lose_the_end_of_a_segment(root: Path) -> set[str]:
    change(log_of(root, 1), 65536 - 9000, bytes(9000))
    return {"record"}


def lose_a_segment(root: Path) -> set[str]:
    log_of(root, 1).unlink()
    return {"record"}


def shorten_a_segment(root: Path) -> set[str]:
    with log_of(root, 1).open("r+b") as file:
        file.truncate(60000)
    return {"log-file", "record"}


def change_a_queue_offset(root: Path) -> set[str]:
    place = records(root)[60][3]
    change(log_of(root, 0), place + formats.RECORD_HEAD.at("queue_offset"), bytes(7) + b"\x63")
    return {"queue-offset", "unit"}


def repeat_a_queue_offset(root: Path) -> set[str]:
    place = records(root)[60][3]
    change(log_of(root, 0), place + formats.RECORD_HEAD.at("queue_offset"), bytes(8))
    return {"queue-offset", "unit"}


def change_a_unit(root: Path) -> set[str]:
    path, position = unit_at(root, "A", 1, 25)
    change(path, position, UNIT.pack(77, 100, 3))
    return {"unit"}


def change_a_tags_code(root: Path) -> set[str]:
    path, position = unit_at(root, "C", 0, 3)
    change(path, position + 12, (9).to_bytes(8, "big"))
    return {"unit"}


def swap_units(root: Path) -> set[str]:
    path, position = unit_at(root, "C", 2, 3)
    content = path.read_bytes()
    change(path, position, content[position + 20 : position + 40] + content[position:][:20])
    return {"unit"}


def lose_units(root: Path) -> set[str]:
    path, position = unit_at(root, "A", 1, 4)
    change(path, position, bytes(60))
    return {"missing-unit"}


def add_a_unit(root: Path) -> set[str]:
    places = records(root)
    last = max(place[2] for place in places if place[:2] == ("A", 0))
    path, position = unit_at(root, "A", 0, last + 1)
    change(path, position, UNIT.pack(places[3][3], 100, 0))
    return {"unit"}


def lose_a_queue(root: Path) -> set[str]:
    shutil.rmtree(root / "consumequeue" / "A" / "0")
    return {"missing-unit"}


def add_a_queue(root: Path) -> set[str]:
    shutil.copytree(root / "consumequeue" / "A" / "0", root / "consumequeue" / "A" / "7")
    return {"unit"}


def shorten_a_queue_file(root: Path) -> set[str]:
    path, _ = unit_at(root, "A", 1, 4)
    with path.open("r+b") as file:
        file.truncate(399)
    return {"queue-file", "missing-unit"}


def change_a_body(root: Path) -> set[str]:
    content = log_of(root, 0).read_bytes()
    change(log_of(root, 0), content.index(b"x" * 1000) + 500, b"y")
    return {"record"}


DAMAGE: list[Callable[[Path], set[str]]] = [
    lose_magic,
    lose_the_first_record_of_a_segment,
    lose_the_end_of_a_segment,
    lose_a_segment,
    shorten_a_segment,
    change_a_queue_offset,
    repeat_a_queue_offset,
    change_a_unit,
    change_a_tags_code,
    swap_units,
    lose_units,
    add_a_unit,
    lose_a_queue,
    add_a_queue,
    shorten_a_queue_file,
    change_a_body,
]


@pytest.mark.parametrize("damage", DAMAGE)
def test_planted_damage_is_found_as_verify_finds_it(
    damage: Callable[[Path], set[str]], root: Path
) -> None:
    kinds = damage(root)
    report = compare(root)
    assert kinds <= set(report.finding_counts)
    assert not report.ok


def test_what_a_last_segment_lost_is_not_newer(root: Path) -> None:
    """What a last segment had lost with its end counted as records of a segment that a writer had
    created since. verify reported its units and keys as newer than its scan of the log, and fsck
    did not report the keys. Later each of them was a separate finding; now a note counts them
    beside the one place that is damaged.
    """
    places = records(root)
    with log_of(root, -1).open("r+b") as file:
        file.truncate(places[-20][3] % 65536 + 10)
    counts = dict(compare(root).finding_counts)
    wanted = verify_files(root, MessageStoreConfig())
    assert counts == wanted.finding_counts == {"log-file": 1, "record": 1}
    assert not any("newer" in note for note in wanted.notes)
    (units,) = [note for note in wanted.notes if note.startswith("units that point into corrupt")]
    assert units.endswith(": 20")


def test_findings_name_queue_and_place(root: Path) -> None:
    change_a_unit(root)
    report = check_store(None, root)
    (row,) = [row for row in report.rows if row[0] == "unit"]
    assert row[1:3] == ("error", str(unit_at(root, "A", 1, 25)[0]))
    assert row[5:8] == ("A", 1, 25)
    assert "unit 25" in row[8]


def test_a_sound_store(root: Path) -> None:
    reported: list[tuple[int, int]] = []
    report = check_store(
        None, root, split_bytes=30000, progress=lambda done, total: reported.append((done, total))
    )
    assert report.ok
    assert report.rows == []
    assert report.summary["records"] == report.summary["units"] == 400
    assert report.summary["indexFiles"] == len(list((root / "index").iterdir()))
    assert reported[-1][0] == reported[-1][1] == report.summary["logEnd"]


def test_structure_leaves_bodies_alone(root: Path) -> None:
    change_a_body(root)
    assert compare(root, level="structure").ok


def test_parts_can_be_left_out(root: Path) -> None:
    change_a_unit(root)
    shutil.rmtree(root / "index")
    assert check_store(None, root, cross_check=()).ok
    assert not check_store(None, root, cross_check=("consumequeue",)).ok
    report = check_store(None, root, cross_check=("index",))
    assert report.summary["units"] == 0


@pytest.mark.parametrize("kind", ["light", "batch"])
def test_damaged_bodies_beside_odd_queues(kind: str, tmp_path: Path) -> None:
    """Where a store has light or batch queues, the driver compares queues. It read the records
    without their CRCs: units of a damaged record counted as matching it, and units that its
    damaged properties no longer named were findings, although verify judges neither.
    """
    root = tmp_path / "store"
    options: dict[str, Any] = {"topic_attributes": {"Batches": {"queue.type": "BatchCQ"}}}
    if kind == "light":
        options = {"enable_lmq": True, "enable_multi_dispatch": True}
    with rocketstore.open(root, "x", **OPTIONS, **options) as store:
        for number in range(20):
            body = b"%04d" % number * 500
            if kind == "light":
                named = {"INNER_MULTI_DISPATCH": "%LMQ%x,%LMQ%y"}
                assert store.put("A", body, 0, properties=named).ok
            else:
                batch = [rocketstore.Message("Batches", body)]
                assert store.put_messages(rocketstore.MessageBatch(batch, topic="Batches")).ok
    content = log_of(root, 0).read_bytes()
    assert compare(root).summary["units"] == 20 * (3 if kind == "light" else 1)
    change(log_of(root, 0), content.index(b"0007" * 9), b"9")
    if kind == "light":
        change(log_of(root, 0), content.index(b"%LMQ%y", content.index(b"0007" * 9)) + 5, b"z")
    report = compare(root)
    assert report.finding_counts == {"record": 1}
    assert report.summary["units"] == 19 * (3 if kind == "light" else 1)


def test_expired_heads(root: Path) -> None:
    for number in (0, 0):
        log_of(root, number).unlink()
    compare(root)


def test_spoilt_units_among_expired_ones(root: Path) -> None:
    """A unit with a negative offset or size was taken for one of a record that has expired, and the
    queue for sound, though verify finds it.
    """
    for number in (0, 0):
        log_of(root, number).unlink()
    for unit, queue_id in (((-5, 100, 0), 0), ((5, -100, 0), 1), ((5, 0, 1), 2)):
        path, position = unit_at(root, "A", queue_id, 3)
        change(path, position, UNIT.pack(*unit))
    assert compare(root).finding_counts == {"unit": 3}


def test_files_that_a_writer_made_meanwhile(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a writer, queues were listed one after the other, the log's end was found later, and
    units in files that came in between were missed."""

    def opened(*arguments: Any, **options: Any) -> Any:
        parts = ReadOnlyParts(*arguments, **options)
        queue = parts.queues.get("A", 1)
        assert queue is not None
        listing = list_directory(queue.queue.directory, root)
        del listing.files[-1:]
        queue.queue.load(listing)
        return parts

    monkeypatch.setattr(fsck, "ReadOnlyParts", opened)
    assert check_store(None, root).ok


def test_limits(root: Path) -> None:
    for path in sorted((root / "consumequeue" / "A" / "1").iterdir()):
        change(path, 0, UNIT.pack(5, 5, 5) * 20)
    report = check_store(None, root, max_findings=3, cross_check=("consumequeue",))
    assert len(report.rows) == 3
    assert sum(report.finding_counts.values()) > 20


def test_a_remote_store(root: Path) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.put(str(root), "/fsck/store", recursive=True)
    try:
        report = check_store(None, "memory://fsck/store", split_bytes=20000)
        assert report.ok
        assert report.summary["records"] == 400
        assert report.summary["keys"] > 400
        assert any("queue files" in note for note in report.notes)
        with pytest.raises(ConfigError, match="mounted"):
            check_store(None, "memory://fsck/store", cross_check=("consumequeue",))
    finally:
        memory.rm("/fsck", recursive=True)


@pytest.mark.parametrize("harm", ["magic", "truncated"])
def test_a_remote_store_that_lost_its_last_record(harm: str, root: Path) -> None:
    """The last record of a closed store was damaged. fsck reported it in a store on this machine,
    because recovery reads the marks of its writer. In a copy in a bucket it reported nothing,
    although reading the copy failed at the same place.
    """
    import fsspec

    last = records(root)[-1][3]
    path, place = log_of(root, -1), last % 65536
    if harm == "magic":
        change(path, place + 4, b"xxxx")
    else:
        with path.open("r+b") as file:
            file.truncate(place + 20)
    here = [row for row in compare(root).rows if row[0] == "record"]
    assert len(here) == 1
    memory = fsspec.filesystem("memory")
    memory.put(str(root), "/fsck/lost", recursive=True)
    try:
        for split_bytes in (4000, 1 << 28):
            report = check_store(None, "memory://fsck/lost", split_bytes=split_bytes)
            there = [row for row in report.rows if row[0] == "record"]
            assert [row[3:] for row in there] == [row[3:] for row in here]
            assert report.finding_counts["record"] == 1
    finally:
        memory.rm("/fsck", recursive=True)


def test_wrong_arguments(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="did you mean 'crc'"):
        check_store(None, tmp_path, level="crcs")
    with pytest.raises(ValueError, match="cross_check"):
        check_store(None, tmp_path, cross_check=("queues",))
    with pytest.raises(FileNotFoundError):
        check_store(None, tmp_path / "nothing")
