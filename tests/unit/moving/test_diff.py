"""``diff``: what differs, where first, and what is never called equal."""

from __future__ import annotations

import json
import os
import shutil
import tracemalloc
from pathlib import Path

import pytest

import rocketstore
from golden.golden_stores import unpack
from rocketstore.arguments import Progress
from rocketstore.errors import ConfigError
from rocketstore.moving.clone import clone
from rocketstore.moving.comparing import key_diff, log_diff, queue_diff
from rocketstore.moving.comparing.difference import Difference
from rocketstore.moving.diff import diff
from support.file_trees import tree_of
from support.looked_stores import SEGMENT, make_store, open_looked, plain_records

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="stores are only read there")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("made") / "store")


@pytest.fixture
def pair(made: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Two stores with the same files."""
    shutil.copytree(made, tmp_path / "a")
    shutil.copytree(made, tmp_path / "b")
    return tmp_path / "a", tmp_path / "b"


def by_kind(found: list[Difference], kind: str) -> list[Difference]:
    return [one for one in found if one.kind == kind]


def change(path: Path, position: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content)


@pytest.mark.parametrize(
    "name", ["broker-5.3.3", "crash-4.9.8", "expire-4.9.8", "ext-4.9.8", "inner-5.3.3", "lmq-5.3.3"]
)
def test_a_copy_is_equal_and_only_read(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    shutil.copytree(root, tmp_path / "copy")
    before = tree_of(root)
    report = diff(root, tmp_path / "copy")
    assert (report.state, report.counts, report.unread) == ("equal", {}, [])
    assert report.equal
    assert repr(report).endswith(": equal>")
    with rocketstore.open(root) as store:
        assert report.log_a == (store.min_physical_offset, store.max_physical_offset)
        assert report.compared["records"] == sum(1 for _ in store.scan(records="log"))
        assert report.compared["queues"] > 5
        assert report.compared["keys"] > 10
    assert tree_of(root) == before == tree_of(tmp_path / "copy")


def test_the_first_differing_offset_is_that_of_the_record(pair: tuple[Path, Path]) -> None:
    a, b = pair
    records = [one for one in plain_records(a) if one.topic is not None]
    for number in (0, 17, len(records) - 1):
        one = records[number]
        file = b / "commitlog" / str(one.offset // SEGMENT * SEGMENT).zfill(20)
        former = file.read_bytes()
        # The last byte belongs to the properties: the record stays good.
        at = one.offset % SEGMENT + one.nbytes - 2
        change(file, at, bytes([former[at] ^ 1]))
        report = diff(a, b)
        assert report.first_offset == one.offset
        assert report.state == "different"
        (found,) = report.differences
        assert (found.kind, found.offset) == ("log.record", one.offset)
        assert found.a["topic"] == found.b["topic"] == one.topic
        assert diff(b, a).first_offset == one.offset
        assert diff(a, b, since=one.offset + one.nbytes).equal
        assert diff(a, b, since=one.offset + one.nbytes - 1).first_offset == one.offset
        file.write_bytes(former)
    assert diff(a, b).equal


def test_more_records_show_in_log_queues_and_keys(pair: tuple[Path, Path]) -> None:
    a, b = pair
    with open_looked(b, "r+") as store:
        end = store.max_physical_offset
        for number in range(3):
            store.put("Orders", b"%d" % number, 0, keys="more")
        store.put("New", b"", 7)
    report = diff(a, b)
    assert report.first_offset == end == report.log_a[1]
    (log,) = by_kind(report.differences, "log.end")
    assert (log.a, log.b) == report.log_a[1:] + report.log_b[1:]
    (one,) = by_kind(report.differences, "queue.range")
    assert one.where == "Orders/0"
    assert one.b[1] == one.a[1] + 3
    assert one.queue_offset == one.a[1]
    (new,) = by_kind(report.differences, "queue.missing")
    assert (new.where, new.a, new.b) == ("New/7", None, (0, 1))
    assert set(report.counts) == {"log.end", "queue.range", "queue.missing"}
    assert diff(a, b, parts=["keys", "config"]).equal


def test_damage_in_one_is_a_difference_and_in_both_is_unreadable(pair: tuple[Path, Path]) -> None:
    a, b = pair
    records = [one for one in plain_records(a) if one.topic is not None]
    one, later = records[20], records[60]
    for root in (b, a):
        first = root / "commitlog" / str(one.offset // SEGMENT * SEGMENT).zfill(20)
        change(first, one.offset % SEGMENT + 88, b"\xff")  # the body; its CRC does not fit
        report = diff(a, b)
        if root == b:
            assert (report.state, report.first_offset) == ("different", one.offset)
            assert "damaged" in report.differences[0].text
            second = b / "commitlog" / str(later.offset // SEGMENT * SEGMENT).zfill(20)
            change(second, later.offset % SEGMENT + 88, b"\xff")
            assert diff(a, b).counts["log.record"] == 2
            change(second, later.offset % SEGMENT + 88, later.body[:1])
    assert (report.state, report.equal, report.counts) == ("unreadable", False, {})
    assert any(str(one.offset) in text for text in report.unread)
    assert diff(a, b, since=one.offset + one.nbytes).equal


@pytest.mark.parametrize("what", ["segment", "zeros", "short"])
def test_a_lost_part_of_both_logs_is_never_equal(pair: tuple[Path, Path], what: str) -> None:
    for root in pair:
        path = root / "commitlog" / str(SEGMENT).zfill(20)
        if what == "segment":
            path.rename(root / "moved")
        elif what == "zeros":
            change(path, 3000, bytes(4096))
        else:
            os.truncate(path, SEGMENT // 2)
    report = diff(*pair)
    assert report.state == "unreadable"
    assert report.unread


def test_queues_and_keys_that_cannot_be_read_are_never_equal(pair: tuple[Path, Path]) -> None:
    a, b = pair
    for root in pair:
        os.truncate(next((root / "consumequeue/Orders/0").iterdir()), 1999)
    report = diff(a, b)
    assert report.state == "unreadable"
    assert all("Orders" in text for text in report.unread)
    index = [min((root / "index").iterdir()) for root in pair]
    for path in index:
        os.truncate(path, path.stat().st_size - 1)
    assert diff(a, b, parts=["keys"]).state == "unreadable"


def test_a_unit_that_differs(pair: tuple[Path, Path]) -> None:
    a, b = pair
    path = next((b / "consumequeue/Pays/1").iterdir())
    change(path, 3 * 20 + 19, b"\x77")
    report = diff(a, b)
    (one,) = report.differences
    assert (one.kind, one.where, one.queue_offset) == ("queue.unit", "Pays/1", 3)
    assert one.a["offset"] == one.b["offset"] == one.offset
    assert one.a["tagsCode"] != one.b["tagsCode"]
    assert report.first_offset is None
    assert diff(a, b, since=one.offset + 1).equal


def test_index_files_may_differ_if_their_keys_do_not(pair: tuple[Path, Path]) -> None:
    a, b = pair
    shutil.rmtree(b / "index")
    lacking = diff(a, b)
    keys = lacking.counts["key.missing"]
    assert set(lacking.counts) == {"key.missing"}
    assert all(one.b is None and one.a is not None for one in lacking.differences)
    rocketstore.reindex(b, undo=b.parent / "undo", max_hash_slot_num=50, max_index_num=37)
    assert len(list((b / "index").iterdir())) != len(list((a / "index").iterdir()))
    report = diff(a, b, parts=["log", "queues", "keys"])
    assert report.equal
    assert report.compared["keys"] == keys
    with open_looked(a) as store:
        # Each message has one key; tags have entries, too.
        assert keys == sum(1 + bool(one.tags) for one in store.scan())


def test_tables_are_compared_by_value(pair: tuple[Path, Path]) -> None:
    a, b = pair
    topics = {"Orders": {"readQueueNums": 4, "perm": 6}, "Pays": {"readQueueNums": 4}}
    for root in pair:
        (root / "config").mkdir(exist_ok=True)
        table = {"dataVersion": {"counter": len(str(root))}, "topicConfigTable": topics}
        (root / "config/topics.json").write_text(json.dumps(table))
    (b / "config/topics.json.bak").write_text("{}")
    assert diff(a, b).equal
    topics["Orders"]["readQueueNums"] = 8
    (b / "config/topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    (b / "config/groups").write_bytes(b"x")
    report = diff(a, b)
    assert [(one.kind, one.where, one.a, one.b) for one in report.differences] == [
        ("config.missing", "config/groups", False, True),
        ("config.value", "config/topics.json: topicConfigTable.Orders.readQueueNums", 4, 8),
    ]
    (a / "config/groups").write_bytes(b"y")
    assert diff(a, b).counts["config.bytes"] == 1
    for root in pair:
        (root / "config/topics.json").write_text("{")
        (root / "config/topics.json.bak").unlink(missing_ok=True)
        (root / "config/groups").unlink()
    report = diff(a, b)
    assert report.state == "unreadable"


def test_two_stores_that_have_nothing_to_do_with_each_other(tmp_path: Path, made: Path) -> None:
    with open_looked(tmp_path / "other") as store:
        for number in range(40):
            store.put("Other", b"x" * number, 0, keys=f"k{number}")
    report = diff(made, tmp_path / "other", limit=7)
    assert report.first_offset == 0
    assert report.truncated
    assert len(report.differences) == 7
    assert report.counts["log.record"] == 1
    assert report.counts["queue.missing"] == 13


def test_other_segment_sizes(tmp_path: Path) -> None:
    for name, size in (("a", SEGMENT), ("b", 2 * SEGMENT)):
        with rocketstore.open(
            tmp_path / name, "a", mapped_file_size_commit_log=size, clock=lambda: 1_700_000_000_000
        ) as store:
            for number in range(60):
                store.put("T", b"%d" % number * 200, 0, born_timestamp=1)
    report = diff(tmp_path / "a", tmp_path / "b", parts=["log"])
    assert report.state == "different"
    assert SEGMENT - 1024 < report.first_offset < SEGMENT
    assert "segment" in report.differences[0].text


def test_a_log_that_begins_later(pair: tuple[Path, Path]) -> None:
    a, b = pair
    (b / "commitlog" / "0".zfill(20)).unlink()
    report = diff(a, b)
    (one,) = by_kind(report.differences, "log.start")
    assert (one.offset, one.a, one.b) == (0, 0, SEGMENT)
    assert report.first_offset == 0
    assert diff(a, b, since=SEGMENT).equal


def test_beside_a_writer_and_a_settled_copy(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made, tmp_path / "a")
    with open_looked(tmp_path / "a", "r+") as store:
        store.put("Orders", b"more", 0)
        assert clone(tmp_path / "a", tmp_path / "copy", live=True).ok
        report = diff(tmp_path / "a", tmp_path / "copy")
    assert report.state == "equal", report
    assert diff(tmp_path / "a", tmp_path / "copy").equal


def test_a_bare_log(pair: tuple[Path, Path]) -> None:
    a, b = pair
    report = diff(a / "commitlog", b)
    assert (report.state, report.parts) == ("equal", ("log",))
    assert "only the logs" in report.notes[0]
    assert diff(a / "commitlog", b / "commitlog").equal


def test_what_is_refused(pair: tuple[Path, Path], tmp_path: Path) -> None:
    a, b = pair
    (tmp_path / "empty").mkdir()
    for other in (tmp_path / "empty", tmp_path / "missing", a / "checkpoint"):
        with pytest.raises(FileNotFoundError):
            diff(a, other)
        with pytest.raises(FileNotFoundError):
            diff(other, a)
    with pytest.raises(ValueError, match="the logs end at"):
        diff(a, b, since=10**9)
    with pytest.raises(ValueError, match="0 or more"):
        diff(a, b, since=-1)
    with pytest.raises(ValueError, match="parts must be"):
        diff(a, b, parts=["logs"])
    log = tmp_path / "log"
    (a / "commitlog").rename(log)
    assert diff(a, b, store_path_commit_log=str(log)).equal
    (b / "commitlog").rename(tmp_path / "other")
    elsewhere = rocketstore.MessageStoreConfig(store_path_commit_log=str(log))
    with pytest.raises(ConfigError, match="both stores have the log"):
        diff(a, b, config=elsewhere, config_b=elsewhere)


def test_an_interrupt_says_how_to_go_on(pair: tuple[Path, Path]) -> None:
    def stop_at(word: str) -> Progress:
        def progress(what: str, done: int, total: int) -> None:
            if what == word:
                raise KeyboardInterrupt

        return progress

    with pytest.raises(KeyboardInterrupt) as error:
        diff(*pair, progress=stop_at("comparing logs"))
    (note,) = error.value.__notes__
    at = int(note.partition("--since ")[2].split()[0])
    assert at > 0
    assert diff(*pair, since=at).equal
    with pytest.raises(KeyboardInterrupt) as error:
        diff(*pair, progress=stop_at("comparing queues"))
    assert "--only queues --only keys --only config" in error.value.__notes__[0]


def test_memory_does_not_grow_with_the_stores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (log_diff, queue_diff, key_diff):
        for name in ("_STEP_COUNT", "_BATCH_COUNT"):
            monkeypatch.setattr(module, name, 64, raising=False)
    monkeypatch.setattr(log_diff, "_STEP_NBYTES", 4096)
    found = [_traced_peak(tmp_path / str(count), count) for count in (200, 1600)]
    assert found[1] < 1.5 * found[0] + (64 << 10)


def _traced_peak(folder: Path, count: int) -> int:
    """The most memory of comparing two stores with so many messages, after they were opened."""
    a, b = folder / "a", folder / "b"
    folder.mkdir()
    with open_looked(a, mapped_file_size_commit_log=1 << 20) as store:
        for number in range(count):
            store.put("T", b"x" * 50, 0, keys=f"k{number}")
    shutil.copytree(a, b)
    peaks: dict[str, int] = {}

    def progress(what: str, *_: int) -> None:
        if what not in peaks and what.startswith("comparing"):
            peaks[what] = tracemalloc.get_traced_memory()[1]
            tracemalloc.reset_peak()  # opening the stores is not what is judged

    diff(a, a)  # modules and caches
    tracemalloc.start()
    try:
        report = diff(a, b, progress=progress)
        peaks["end"] = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert report.equal
    assert report.compared["keys"] == report.compared["units"] == count
    assert list(peaks) == ["comparing logs", "comparing queues", "comparing keys", "end"]
    return max(list(peaks.values())[1:])
