"""One policy for damage in all readers: they fail at a corrupt range, skip it, or stop there.

Each reader had its own behaviour: ``get`` skipped a missing segment with exit status 0, ``tail``
skipped damage with any option, Spark refused to plan where ``scan`` continued, and unreadable files
counted as expired.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.arrow import to_parquet
from rocketstore.cli.commands.get import Pull
from rocketstore.errors import CorruptionError, MappedFileError
from rocketstore.spark.base.options import parse_read
from rocketstore.spark.jobs.stats import stats_table
from rocketstore.spark.reading.reader import plan, read_partition
from rocketstore.spark.stream.plan import StreamPlan
from support.command_line import lines, run
from support.other_user import as_nobody, reachable_folder

SEGMENT = 16384
COUNT = 400


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five segments: topics A and B with two queues each, keys k0 to k399."""
    root = tmp_path_factory.mktemp("policy") / "store"
    with rocketstore.open(
        root, "x", mapped_file_size_commit_log=SEGMENT, mapped_file_size_consume_queue=200,
        max_hash_slot_num=50, max_index_num=200,
    ) as store:  # fmt: skip
        for i in range(COUNT):
            assert store.put("AB"[i % 2], b"x" * 60, i // 2 % 2, f"T{i % 3}", f"k{i}").ok
    return root


@pytest.fixture
def root(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole, tmp_path / "store")
    return tmp_path / "store"


def segments(root: Path) -> list[Path]:
    return sorted((root / "commitlog").iterdir())


def overwrite(offset: int, content: bytes) -> Callable[[Path], object]:
    def damage(root: Path) -> None:
        with open(segments(root)[offset // SEGMENT], "r+b") as file:
            file.seek(offset % SEGMENT)
            file.write(content)

    return damage


def remove(*numbers: int) -> Callable[[Path], object]:
    return lambda root: [path.unlink() for path in [segments(root)[n] for n in numbers]]


def truncated(number: int, nbytes: int) -> Callable[[Path], object]:
    return lambda root: os.truncate(segments(root)[number], nbytes)


#: Damage, and the name of the file that an error must hold ("": none is raised).
DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "none": (lambda root: None, ""),
    "a middle segment is missing": (remove(1), f"{SEGMENT:020}"),
    "two segments in a row are missing": (remove(1, 2), f"{SEGMENT:020}"),
    "two segments are missing": (remove(3, 1), f"{SEGMENT:020}"),
    "the first segment is gone, as if expired": (remove(0), ""),
    "zero page": (overwrite(20000, bytes(4096)), f"{SEGMENT:020}"),
    "zeros at the log's start": (overwrite(0, bytes(4096)), f"{0:020}"),
    "wrong CRC": (overwrite(6850, b"\xff\xff"), f"{0:020}"),
    "two wrong CRCs": (
        lambda root: (overwrite(6850, b"\xff")(root), overwrite(40000, b"\xff")(root)),
        f"{0:020}",
    ),
    "the last segment is short": (truncated(-1, 2000), f"{4 * SEGMENT:020}"),
    "a middle segment is short": (truncated(1, 8192), f"{SEGMENT:020}"),
    "a middle segment is empty": (truncated(1, 0), f"{SEGMENT:020}"),
    "the first segment is empty": (truncated(0, 0), f"{0:020}"),
}


def by_scan(root: Path, policy: str) -> Iterator[int]:
    with rocketstore.open(root) as store:
        yield from (message.physical_offset for message in store.scan(on_corruption=policy))


def by_scan_arrow(root: Path, policy: str) -> Iterator[int]:
    with rocketstore.open(root) as store:
        for batch in store.scan_arrow("physicalOffset", on_corruption=policy):
            yield from batch.column(0).to_pylist()


def by_spark(root: Path, policy: str, **options: str) -> Iterator[int]:
    reported = parse_read({"path": str(root), "onCorruption": policy, **options})
    for split in plan(reported):
        for batch in read_partition(reported, ["physicalOffset"], split):
            yield from batch.column(0).to_pylist()


def by_small_splits(root: Path, policy: str) -> Iterator[int]:
    return by_spark(root, policy, maxPartitionBytes="3001")


def answer(read: Callable[[Path, str], Iterator[int]], root: Path, policy: str) -> Any:
    found: list[int] = []
    try:
        for offset in read(root, policy):
            found.append(offset)
    except CorruptionError as error:
        return found, os.path.basename(error.path)
    return found, ""


@pytest.mark.parametrize("name", DAMAGE)
def test_all_readers_give_the_same(name: str, root: Path, tmp_path: Path) -> None:
    damage, named = DAMAGE[name]
    damage(root)
    skipped, _ = answer(by_scan, root, "skip")
    stopped, _ = answer(by_scan, root, "stop")
    failed, error = answer(by_scan, root, "fail")
    assert failed == stopped == skipped[: len(stopped)]
    assert error == named
    for read in (by_scan_arrow, by_spark, by_small_splits):
        assert answer(read, root, "skip") == (skipped, "")
        assert answer(read, root, "stop") == (stopped, "")
        found, error = answer(read, root, "fail")
        assert error == named
        assert found == failed[: len(found)]
    for policy, rows in (("skip", skipped), ("stop", stopped)):
        assert sum(stats_table(root, on_corruption=policy)["count"].to_pylist()) == len(rows)
        out = tmp_path / f"{policy}.parquet"
        assert to_parquet(root, out, "topic", on_corruption=policy) == len(rows)
    if named:
        with pytest.raises(CorruptionError, match=named):
            stats_table(root)
        with pytest.raises(CorruptionError, match=named):
            to_parquet(root, tmp_path / "fail.parquet")


@pytest.mark.parametrize("tags", [None, "T1", "T0 || T2"])
@pytest.mark.parametrize("name", DAMAGE)
def test_get_names_what_a_pull_skips(name: str, tags: str | None, root: Path) -> None:
    damage, named = DAMAGE[name]
    damage(root)
    wanted = None if tags is None else [tag.strip() for tag in tags.split("||")]
    with rocketstore.open(root) as store:
        rows = [
            message.queue_offset
            for message in store.scan(topics=["A"], on_corruption="skip")
            if message.queue_id == 0 and (wanted is None or message.tags in wanted)
        ]
        lost = bool(named) and not name.startswith("the last")

        def pull(policy: str) -> tuple[list[int], list[int], str]:
            pulled = Pull(store, "A", 0, store.min_offset_in_queue("A", 0), tags, policy)
            found: list[int] = []
            try:
                for message in pulled.messages(COUNT):
                    found.append(message.queue_offset)
            except CorruptionError as error:
                return found, [], os.path.basename(error.path)
            return found, [one.queue_offset for one in pulled.passed], ""

        found, passed, _ = pull("skip")
        assert found == rows
        assert set(found).isdisjoint(passed)
        if tags is None and lost:
            assert sorted(found + passed) == list(range(min(found + passed), 100))
        in_front = [offset for offset in rows if not passed or offset < passed[0]]
        assert pull("stop") == (in_front, passed[:1], "")
        assert pull("fail") == (in_front, [], named if passed else "")


def test_get_over_a_hole(root: Path) -> None:
    remove(1)(root)
    result = run("get", root, "A", 0, "-n", 90, "-q", code=3)
    assert len(lines(result)) == 24
    assert f"{SEGMENT:020}" in result.stderr
    assert "the segment is missing" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert len(lines(run("get", root, "A", 0, "-n", 90, "-q", "--on-corruption", "stop"))) == 24
    skipped = run("get", root, "A", 0, "-n", 90, "--on-corruption", "skip")
    assert len(lines(skipped)) == 76
    assert "skipped 24 messages" in skipped.stderr
    # In front of the hole nothing is wrong.
    assert len(lines(run("get", root, "A", 0, "-n", 24, "-q"))) == 24
    run("show", root, SEGMENT + 100, "-q", code=3)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        (name, count)
        for row, name in enumerate(DAMAGE)
        for column, count in enumerate([1, 300, 380, 399, 500])
        if (row + column) % 2 == 0
    ],
)
def test_tail_goes_by_the_policy(name: str, count: int, root: Path) -> None:
    damage, _ = DAMAGE[name]
    damage(root)
    skipped, _ = answer(by_scan, root, "skip")
    with rocketstore.open(root) as store:
        begin = skipped[-count] if count <= len(skipped) else max(store.min_physical_offset, 0)
        good, error = [], ""
        try:
            for message in store.scan(start=begin):
                good.append(message.physical_offset)
        except CorruptionError as raised:
            error = str(raised)

    def shown(policy: str, code: int) -> tuple[list[int], str]:
        result = run("tail", root, "-n", count, "-q", "--on-corruption", policy, code=code)
        return [row["physicalOffset"] for row in lines(result)], result.stderr

    found, message = shown("fail", 3 if error else 0)
    assert found == good
    assert error in message
    assert shown("skip", 0)[0] == skipped[-count:]
    assert shown("stop", 0 if good else 1)[0] == good


@pytest.mark.parametrize(
    ("name", "follow"),
    [
        ("none", ()),
        ("a middle segment is missing", ()),
        ("a middle segment is missing", ("-F", "--idle", 0)),
        ("wrong CRC", ()),
        ("wrong CRC", ("-F", "--idle", 0.01)),
        ("the first segment is empty", ()),
    ],
)
def test_tail_from_a_place_goes_by_the_policy(
    name: str, follow: tuple[Any, ...], root: Path
) -> None:
    # The command ended at the first look at damage, with exit status 0, as its time was over.
    damage, named = DAMAGE[name]
    damage(root)
    with rocketstore.open(root) as store:
        start = max(store.min_physical_offset, 0)

    def shown(policy: str, code: int) -> tuple[list[int], str]:
        more = ("--start", start, "-q", "--on-corruption", policy, "--interval", 0.01)
        result = run("tail", root, *follow, *more, code=code)
        return [row["physicalOffset"] for row in lines(result)], result.stderr

    found, message = shown("fail", 3 if named else 0)
    assert named in message
    assert found == answer(by_scan, root, "fail")[0]
    assert shown("skip", 0)[0] == answer(by_scan, root, "skip")[0]
    assert shown("stop", 0 if found or follow else 1)[0] == found
    with rocketstore.open(root) as store:
        tailed = store.tail(start=start, timeout_s=0, interval_s=0.01, on_corruption="skip")
        assert [m.physical_offset for m in tailed] == answer(by_scan, root, "skip")[0]


@pytest.mark.parametrize("key", ["k20", "k100", "k150"])
def test_find_names_a_hit_that_cannot_be_read(key: str, root: Path) -> None:
    remove(1)(root)
    lost = key != "k20"
    topic = "A"
    result = run("find", root, "-t", topic, "-k", key, "-q", code=3 if lost else 0)
    assert (f"{SEGMENT:020}" in result.stderr) == lost
    for policy in ("skip", "stop"):
        run("find", root, "-t", topic, "-k", key, "-q", "--on-corruption", policy, code=int(lost))
    with rocketstore.open(root) as store:
        assert len(list(store.find(topic=topic, key=key, on_corruption="skip"))) == (not lost)
        if lost:
            with pytest.raises(CorruptionError, match=f"{SEGMENT:020}"):
                list(store.find(topic=topic, key=key))
        # A broker's query leaves out what it cannot read.
        assert len(store.query_message(topic, key).messages) == (not lost)
    run("find", root, "--tags", "T1", "-q", code=3)
    assert run("find", root, "--tags", "T1", "-q", "--on-corruption", "skip").stdout


@pytest.mark.parametrize("numbers", [(1,), (1, 2), (1, 3)])
def test_each_missing_file_is_reported_by_its_name(numbers: tuple[int, ...], root: Path) -> None:
    missing = [str(segments(root)[number]) for number in numbers]
    remove(*numbers)(root)
    with rocketstore.open(root) as store:
        found = store.recovery_report.damaged
        assert [(one.path, one.start, one.stop) for one in found] == [
            (path, int(Path(path).name), int(Path(path).name) + SEGMENT) for path in missing
        ]
        assert all("the segment is missing" in one.reason for one in found)
        for one in found:
            with pytest.raises(CorruptionError, match=Path(one.path).name):
                store.look_message_by_offset(one.start + 17)


@pytest.mark.parametrize("boundary", ["lower", "upper"])
def test_a_search_by_time_goes_past_what_cannot_be_read(boundary: str, tmp_path: Path) -> None:
    # An unreadable time counted as the earliest, so a search that met a hole in the middle
    # answered with an offset after it.
    ticks = iter(range(1_700_000_000_000, 1_800_000_000_000, 1000))
    root = tmp_path / "timed"
    with rocketstore.open(
        root, "x", clock=lambda: next(ticks), mapped_file_size_commit_log=4096
    ) as store:
        for _ in range(60):
            store.put("T", b"." * 100)
    with rocketstore.open(root) as store:
        times = {m.queue_offset: m.store_timestamp for m in store.scan()}
    remove(1)(root)
    with rocketstore.open(root) as store:
        for message in store.scan(on_corruption="skip"):
            ask = ("T", 0, times[message.queue_offset])
            found = store.get_offset_in_queue_by_time(*ask, boundary=boundary)
            assert found == message.queue_offset or (
                boundary == "lower"
                and found not in {m.queue_offset for m in store.scan(on_corruption="skip")}
                and found < message.queue_offset
            )


# --- files of another user ----------------------------------------------------------------------


@pytest.fixture
def shared(whole: Path) -> Iterator[Path]:
    """A copy that another user reaches."""
    with reachable_folder() as folder:
        shutil.copytree(whole, folder / "store")
        for path in (folder / "store", *(folder / "store").rglob("*")):
            path.chmod(0o755)
        yield folder / "store"


def ask_readers(root: Path) -> list[Any]:
    found: list[Any] = []
    for policy in ("fail", "skip", "stop"):
        for read in (by_scan, by_scan_arrow, by_spark):
            try:
                offsets, named = answer(read, root, policy)
                found.append((policy, read.__name__, len(offsets), named))
            except PermissionError as error:
                found.append((policy, read.__name__, 0, os.path.basename(str(error.filename))))
    with rocketstore.open(root) as store:
        pull = Pull(store, "A", 0, store.min_offset_in_queue("A", 0), None, "skip")
        rows = len(list(pull.messages(COUNT)))
        found.append((rows, len(pull.passed) > 0, len(store.recovery_report.damaged)))
    return found


@pytest.mark.parametrize("number", [0, 2, -1])
def test_a_segment_of_another_user(number: int, shared: Path, whole: Path) -> None:
    path = segments(shared)[number]
    path.chmod(0)
    *answers, (rows, passed, damaged) = as_nobody(ask_readers, shared, whole)
    shutil.copytree(whole, copy := shared.parent / "copy")
    expected = {policy: len(answer(by_scan, copy, policy)[0]) for policy in ("skip",)}
    assert expected == {"skip": COUNT}
    lost = sum(
        int(path.name) <= offset < int(path.name) + SEGMENT
        for offset in answer(by_scan, copy, "skip")[0]
    )
    for policy, reader, count, named in answers:
        if policy == "fail":
            assert named == path.name, (reader, count)
        elif policy == "skip":
            assert (count, named) == (COUNT - lost, ""), reader
    assert len({count for policy, _, count, _ in answers if policy == "stop"}) == 1
    assert passed
    assert damaged == 1
    assert 0 < rows < 100


def test_no_segment_that_may_be_read(shared: Path, whole: Path) -> None:
    for path in segments(shared):
        path.chmod(0)
    text = as_nobody(lambda root: len(list(by_scan(root, "skip"))), shared, whole)
    assert str(text).startswith("PermissionError")
    assert segments(shared)[0].name in text


def ask_queues(root: Path) -> tuple[int, int, list[str]]:
    with rocketstore.open(root) as store:
        count = 0
        for topic in store.topics():
            for queue_id in store.queues(topic):
                pull = Pull(store, topic, queue_id, 0, None)
                count += len(list(pull.messages(COUNT)))
        hits = sum(len(list(store.find(topic="A", key=f"k{i}"))) for i in range(0, COUNT, 2))
        return count, hits, store.recovery_report.notes


@pytest.mark.parametrize(
    "name",
    ["consumequeue/A/0/" + "0" * 20, "consumequeue/B/1", "consumequeue/A", "consumequeue",
     "index/first", "index/last", "index"],
)  # fmt: skip
def test_queues_and_index_of_another_user_are_made_from_the_log(
    name: str, shared: Path, whole: Path
) -> None:
    # A file that could not be read was left out, and with it messages and keys, without a word.
    path = shared / name
    if path.parent.name == "index":
        path = sorted(path.parent.iterdir())[0 if path.name == "first" else -1]
    path.chmod(0)
    count, hits, notes = as_nobody(ask_queues, shared, whole)
    assert (count, hits) == (COUNT, COUNT // 2)
    assert any(f"{path}: no read permission" in note for note in notes)


def test_a_segment_with_a_wrong_name(root: Path) -> None:
    segments(root)[2].rename(root / "commitlog" / f"{40000:020}")
    skipped, _ = answer(by_scan, root, "skip")
    for read in (by_scan_arrow, by_spark):
        assert answer(read, root, "skip") == (skipped, "")
    with pytest.raises((CorruptionError, MappedFileError)):
        list(by_spark(root, "fail"))


# --- a log that is not there --------------------------------------------------------------------

LOST: dict[str, Callable[[Path], object]] = {
    "no folder": lambda root: shutil.rmtree(root / "commitlog"),
    "no file": lambda root: remove(*range(len(segments(root))))(root),
    "files without a byte": lambda root: [
        truncated(n, 0)(root) for n in range(len(segments(root)))
    ],
    "nor a state file": lambda root: (
        shutil.rmtree(root / "commitlog"),
        (root / "rocketstore.state").unlink(),
    ),
    "nor a checkpoint": lambda root: (
        shutil.rmtree(root / "commitlog"),
        (root / "rocketstore.state").unlink(),
        (root / "checkpoint").unlink(),
    ),
}


@pytest.mark.parametrize("policy", ["fail", "skip", "stop"])
@pytest.mark.parametrize("name", LOST)
def test_a_log_that_is_not_there_is_not_read_as_empty(
    name: str, policy: str, root: Path, tmp_path: Path
) -> None:
    # Spark counted 0 messages where a log had been.
    LOST[name](root)
    for read in (by_scan, by_spark):
        with pytest.raises(MappedFileError, match="the log is missing"):
            list(read(root, policy))
    with pytest.raises(MappedFileError, match="the log is missing"):
        stats_table(root, on_corruption=policy)
    with pytest.raises(MappedFileError, match="the log is missing"):
        to_parquet(root, tmp_path / "x.parquet", on_corruption=policy)
    reported = {"path": str(root), "onCorruption": policy, "failOnDataLoss": "false"}
    with pytest.raises(MappedFileError, match="the log is missing"):
        StreamPlan(parse_read(reported)).initial()


@pytest.mark.parametrize("move", ["root", "commitlog"])
@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
def test_a_store_that_vanishes_below_a_stream(
    move: str, fail_on_data_loss: str, root: Path, tmp_path: Path
) -> None:
    reported = {
        "path": str(root),
        "startingOffsets": "earliest",
        "failOnDataLoss": fail_on_data_loss,
    }
    stream = StreamPlan(parse_read(reported))
    start = stream.initial()
    end = stream.advance(start, max_records=10)
    planned = stream.splits(start, end)
    (root if move == "root" else root / "commitlog").rename(tmp_path / "vanished")
    for call in (
        lambda: stream.advance(end),
        lambda: stream.splits(start, end),
        stream.end,
        lambda: list(read_partition(stream.options, ["topic"], planned[0][0])),
        lambda: stream.is_deleted(planned[0][0]),
    ):
        with pytest.raises((FileNotFoundError, MappedFileError), match=str(root)):
            call()


def test_a_stream_meets_a_hole(root: Path) -> None:
    whole_rows = answer(by_scan, root, "skip")[0]
    remove(1)(root)
    rows = answer(by_scan, root, "skip")[0]

    def streamed(policy: str) -> list[int]:
        reported = {"path": str(root), "startingOffsets": "earliest", "onCorruption": policy}
        stream = StreamPlan(parse_read(reported))
        at, found = stream.initial(), list[int]()
        while True:
            end = stream.advance(at, max_records=50)
            if end.physical_offset == at.physical_offset:
                return found
            for split, _ in stream.splits(at, end):
                for batch in read_partition(stream.options, ["physicalOffset"], split):
                    found += batch.column(0).to_pylist()
            at = end

    assert streamed("skip") == rows
    assert streamed("stop") == [offset for offset in whole_rows if offset < SEGMENT]
    with pytest.raises(CorruptionError, match=f"{SEGMENT:020}"):
        streamed("fail")
