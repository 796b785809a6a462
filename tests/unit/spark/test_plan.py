"""The batches of a stream, without Spark: each message in exactly one, whatever the limits."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.errors import ConfigError, CorruptMessageError, MappedFileError
from rocketstore.sources.splits import Split
from rocketstore.spark.base.options import parse_read
from rocketstore.spark.reading.reader import read_partition
from rocketstore.spark.stream import plan as stream_plan
from rocketstore.spark.stream.offsets import StreamOffset
from rocketstore.spark.stream.plan import StreamPlan, queue_bounds
from support.stream_store import FIRST_TIME, Row, grow, rows_of, segments

COUNT = 240


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Row]]:
    """A store that no test changes, and its messages."""
    root = tmp_path_factory.mktemp("stream") / "store"
    grow(root, 0, COUNT)
    return root, rows_of(root)


@pytest.fixture
def growing(tmp_path: Path) -> Path:
    """A store for one test."""
    grow(tmp_path / "store", 0, COUNT)
    return tmp_path / "store"


def plan_of(root: Path, **options: object) -> StreamPlan:
    texts = {name: str(value) for name, value in options.items()}
    return StreamPlan(parse_read({"path": str(root), "startingOffsets": "earliest", **texts}))


def read(plan: StreamPlan, start: StreamOffset, end: StreamOffset) -> list[int]:
    """Physical offsets of the messages of one batch, which is read as its tasks would."""
    found: list[int] = []
    for split, queues in plan.splits(start, end):
        assert not split.tail
        for batch in read_partition(
            plan.options, ["physicalOffset"], split, start_offsets=queue_bounds(queues)
        ):
            found += batch["physicalOffset"].to_pylist()
    return found


def run(plan: StreamPlan, start: StreamOffset | None = None, **limits: Any) -> list[list[int]]:
    """All batches up to the log's end, with each offset going through the checkpoint's form."""
    at = plan.initial() if start is None else start
    batches = []
    while True:
        end = StreamOffset.from_json(plan.advance(at, **limits).to_json())
        if end == at:
            return batches
        batches.append(read(plan, at, end))
        # Read again after a restart, a batch is the same.
        assert read(plan, plan.initial() if at.initial else at, end) == batches[-1]
        if end.physical_offset == at.physical_offset:
            assert at.initial
        at = end


def flat(batches: list[list[int]]) -> list[int]:
    return [offset for batch in batches for offset in batch]


@pytest.mark.parametrize("limit", [1, 7, 50, COUNT - 1, COUNT, COUNT + 1, None])
def test_a_limit_of_records(store: tuple[Path, list[Row]], limit: int | None) -> None:
    root, rows = store
    batches = run(plan_of(root), max_records=limit)
    assert flat(batches) == [row.physical_offset for row in rows]
    assert all(len(batch) == (limit or COUNT) for batch in batches[:-1])


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"subscribe": "Orders"}, lambda r: r.topic == "Orders"),
        ({"subscribePattern": "(Bills|Alerts-.)"}, lambda r: r.topic != "Orders"),
        ({"tags": "red"}, lambda r: r.tags == "red"),
        (
            {"assign": '{"Orders": [1], "Bills": [0, 2]}'},
            lambda r: (r.topic, r.queue_id) in {("Orders", 1), ("Bills", 0), ("Bills", 2)},
        ),
    ],
)
def test_a_limit_counts_what_is_read(
    store: tuple[Path, list[Row]], options: dict[str, str], wanted: Any
) -> None:
    root, rows = store
    batches = run(plan_of(root, **options), max_records=9)
    assert flat(batches) == [row.physical_offset for row in rows if wanted(row)]
    assert {len(batch) for batch in batches[:-1]} == {9}


@pytest.mark.parametrize("limit", [1, 500, 5_000, 16 * 1024, 40_000])
def test_a_limit_of_bytes(store: tuple[Path, list[Row]], limit: int) -> None:
    root, rows = store
    sizes = {row.physical_offset: row.store_size for row in rows}
    batches = run(plan_of(root), max_bytes=limit)
    assert flat(batches) == list(sizes)
    for batch in batches:
        assert sum(sizes[offset] for offset in batch[:-1]) <= limit


def test_both_limits(store: tuple[Path, list[Row]]) -> None:
    root, rows = store
    batches = run(plan_of(root), max_bytes=3000, max_records=8)
    assert flat(batches) == [row.physical_offset for row in rows]
    assert max(map(len, batches)) == 8
    assert min(map(len, batches[:-1])) < 8


@pytest.mark.parametrize("nbytes", [100, 1_000, 10_000])
def test_small_tasks(store: tuple[Path, list[Row]], nbytes: int) -> None:
    root, rows = store
    batches = run(plan_of(root, maxPartitionBytes=nbytes), max_records=100)
    assert flat(batches) == [row.physical_offset for row in rows]


def test_the_beginning(store: tuple[Path, list[Row]]) -> None:
    root, rows = store
    end = rows[-1].physical_offset + rows[-1].store_size

    def begin(**options: object) -> int:
        found = plan_of(root, **options).initial()
        assert found.initial
        return found.physical_offset

    assert begin() == 0
    assert begin(startingOffsets="latest") == end
    # A stream begins at the end when nothing is said.
    assert StreamPlan(parse_read({"path": str(root)})).initial().physical_offset == end
    assert begin(startingPhysicalOffset=0) == 0
    # Anywhere in a record: the next one.
    assert begin(startingPhysicalOffset=rows[5].physical_offset - 1) == rows[5].physical_offset
    assert begin(startingPhysicalOffset=rows[5].physical_offset) == rows[5].physical_offset
    assert begin(startingPhysicalOffset=end) == end
    assert begin(startingTimestamp=0) == 0
    middle = rows[130].store_timestamp
    first = next(row for row in rows if row.store_timestamp >= middle)
    assert begin(startingTimestamp=middle) == first.physical_offset
    assert begin(startingTimestamp=middle, startingOffsets="latest") == first.physical_offset
    assert begin(startingTimestamp=FIRST_TIME + 10**9) == end


def test_a_beginning_past_the_end(store: tuple[Path, list[Row]]) -> None:
    with pytest.raises(ConfigError, match="startingPhysicalOffset is 999999999"):
        plan_of(store[0], startingPhysicalOffset=999999999).initial()


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingPhysicalOffset"])
def test_a_stream_has_no_end(store: tuple[Path, list[Row]], name: str) -> None:
    value = '{"Orders": {"0": 3}}' if name == "endingOffsets" else 5
    with pytest.raises(ConfigError, match=name):
        plan_of(store[0], **{name: value})


def test_queues_begin_at_the_given_offsets(growing: Path) -> None:
    old = rows_of(growing)
    reported = (
        '{"Orders": {"0": 11, "1": -1, "2": -2}, "Alerts-1": {"0": -2, "1": -2, "2": 0}, '
        '"Bills": {"broker-a": {"0": -2, "1": -1, "2": -2}}}'
    )
    plan = plan_of(growing, startingOffsets=reported)
    start = plan.initial()
    begins = {("Orders", 0): 11}
    late = {("Orders", 1), ("Bills", 1)}
    grow(growing, COUNT, 60)
    batches = run(plan, start, max_records=25)
    wanted = [
        row.physical_offset
        for number, row in enumerate(rows_of(growing))
        if row.queue_offset >= begins.get((row.topic, row.queue_id), 0)
        and (number >= len(old) or (row.topic, row.queue_id) not in late)
    ]
    assert 0 < len(wanted) < COUNT + 60 - 11
    assert flat(batches) == wanted


ALL_ORDERS = '{"Orders": {"0": 20, "1": -1, "2": 25}}'


@pytest.mark.parametrize("options", [{"subscribe": "Orders"}, {"subscribePattern": "Ord.*"}])
def test_what_lies_before_all_queues_is_not_read(
    store: tuple[Path, list[Row]], options: dict[str, str]
) -> None:
    root, rows = store
    reported = {("Orders", 0): 20, ("Orders", 2): 25}
    wanted = [r.physical_offset for r in rows if reported.get(r[2:4], 10**9) <= r.queue_offset]
    plan = plan_of(root, startingOffsets=ALL_ORDERS, **options)
    assert plan.initial().physical_offset == wanted[0] > 0
    assert flat(run(plan)) == wanted
    # Offsets name the queues that are read, or are refused, as in Kafka's source.
    with pytest.raises(ConfigError, match=r"omits queue 0 of 'Alerts-1'.*subscribe"):
        plan_of(root, startingOffsets=ALL_ORDERS).initial()


def test_queues_that_have_not_come_so_far(store: tuple[Path, list[Row]]) -> None:
    root, rows = store
    reported = '{"Bills": {"0": 1000, "1": 1000, "2": -1}}'
    plan = plan_of(root, subscribe="Bills", startingOffsets=reported)
    assert plan.initial().physical_offset == rows[-1].physical_offset + rows[-1].store_size
    assert flat(run(plan)) == []


def test_without_consume_queues_the_log_is_read_from_its_beginning(growing: Path) -> None:
    rows = rows_of(growing)
    shutil.rmtree(growing / "consumequeue")
    plan = plan_of(growing, subscribe="Orders", startingOffsets=ALL_ORDERS)
    assert plan.initial().physical_offset == 0
    reported = {("Orders", 0): 20, ("Orders", 2): 25}
    wanted = [r.physical_offset for r in rows if reported.get(r[2:4], 10**9) <= r.queue_offset]
    assert flat(run(plan)) == wanted


@pytest.mark.parametrize("fail", [True, False])
def test_queue_offsets_that_were_deleted(growing: Path, fail: bool) -> None:
    rows = [row for row in rows_of(growing) if row.physical_offset >= 16384]
    os.unlink(segments(growing)[0])
    options = {"assign": '{"Orders": [0]}', "startingOffsets": '{"Orders": {"0": 1}}'}
    plan = plan_of(growing, failOnDataLoss=fail, **options)
    if fail:
        with pytest.raises(MappedFileError, match=r"asks for 1 of queue 0 of 'Orders'"):
            plan.initial()
    else:
        wanted = [row.physical_offset for row in rows if row[2:4] == ("Orders", 0)]
        assert flat(run(plan)) == wanted


def test_a_store_grows_while_it_is_read(growing: Path) -> None:
    plan = plan_of(growing)
    at, found, written = plan.initial(), [], COUNT
    for _ in range(6):
        end = plan.advance(at)
        found += read(plan, at, end)
        # Nothing new: the very same offset, or Spark would run empty batches.
        assert plan.advance(end) is end
        grow(growing, written, 70)
        written, at = written + 70, end
    found += read(plan, at, plan.advance(at))
    assert found == [row.physical_offset for row in rows_of(growing)]
    assert len(segments(growing)) > 10


def test_a_ceiling_is_not_passed(growing: Path) -> None:
    plan = plan_of(growing)
    ceiling = plan.end()
    grow(growing, COUNT, 30)
    start = plan.initial()
    for limits in ({}, {"max_records": 1000}, {"max_bytes": 1 << 30}):
        end = plan.advance(start, ceiling=ceiling, **limits)
        assert end.physical_offset == ceiling
        assert plan.advance(end, ceiling=ceiling, **limits) is end


def test_a_store_elsewhere(store: tuple[Path, list[Row]]) -> None:
    fsspec = pytest.importorskip("fsspec", reason="fsspec opens remote stores")
    root, rows = store
    remote = fsspec.filesystem("memory")
    remote.put(str(root), "/stream-elsewhere", recursive=True)
    try:
        plan = StreamPlan(
            parse_read({"path": "memory://stream-elsewhere", "startingOffsets": "earliest"})
        )
        batches = run(plan, max_records=100)
        assert flat(batches) == [row.physical_offset for row in rows]
        reported = {"path": "memory://stream-elsewhere", "startingOffsets": ALL_ORDERS}
        with pytest.raises(ConfigError, match=r"cannot be listed.*assign"):
            StreamPlan(parse_read(reported)).initial()
        reported["assign"] = '{"Orders": [0, 1, 2]}'
        assert StreamPlan(parse_read(reported)).initial().physical_offset == 0
    finally:
        remote.rm("/stream-elsewhere", recursive=True)


def test_an_empty_store(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "store", "a"):
        pass
    plan = plan_of(tmp_path / "store")
    start = plan.initial()
    assert start.physical_offset == 0
    assert read(plan, start, plan.advance(start)) == []
    assert run(plan) == [[]]


# --- deletion, truncation, damage -------------------------------------------------------------


def test_deleted_segments_fail_the_stream(growing: Path) -> None:
    plan = plan_of(growing)
    start = plan.initial()
    end = plan.advance(start, max_records=10)
    os.unlink(segments(growing)[0])
    for call in (lambda: plan.advance(end), lambda: plan.splits(start, end)):
        with pytest.raises(MappedFileError, match=r"begins at 16384.*failOnDataLoss=false"):
            call()


def test_deleted_segments_are_skipped(growing: Path) -> None:
    plan = plan_of(growing, failOnDataLoss=False)
    rows = rows_of(growing)
    start = plan.initial()
    end = plan.advance(start, max_records=10)
    os.unlink(segments(growing)[0])
    assert read(plan, start, end) == []
    left = [row.physical_offset for row in rows if row.physical_offset >= 16384]
    assert flat(run(plan, end, max_records=50)) == left
    assert flat(run(plan, start)) == left


@pytest.mark.parametrize("fail", [True, False])
def test_segments_deleted_while_they_are_counted(
    fail: bool, growing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream that lets lost messages pass failed all the same when a segment was deleted between
    the listing of the log and the count of its messages.
    """
    plan = plan_of(growing, failOnDataLoss=fail)
    left = [row.physical_offset for row in rows_of(growing) if row.physical_offset >= 16384]
    start = plan.initial()
    read_on = stream_plan.walk

    def late(split: Split, *arguments: Any, **options: Any) -> Any:
        if split.base_offset == 0:
            segments(growing)[0].unlink()
        return read_on(split, *arguments, **options)

    monkeypatch.setattr(stream_plan, "walk", late)
    if fail:
        with pytest.raises(MappedFileError, match="does not exist"):
            plan.advance(start, max_records=50)
    else:
        end = plan.advance(start, max_records=50)
        assert read(plan, start, end) == left[:50]


def test_a_split_of_a_deleted_segment_is_known(growing: Path) -> None:
    plan = plan_of(growing, failOnDataLoss=False)
    splits = plan.splits(plan.initial(), plan.advance(plan.initial()))
    os.unlink(segments(growing)[0])
    assert [plan.is_deleted(split) for split, _ in splits] == [True] + [False] * (len(splits) - 1)


def test_a_log_that_was_truncated(growing: Path) -> None:
    at = StreamOffset(10**6)
    with pytest.raises(MappedFileError, match="before the stream's position 1000000"):
        plan_of(growing).advance(at)
    assert plan_of(growing, failOnDataLoss=False).advance(at) is at


@pytest.mark.parametrize("policy", ["fail", "skip", "stop"])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_log_that_was_written_again(restarted: bool, policy: str, tmp_path: Path) -> None:
    """A stream whose store had lost its end, or had been put back from a copy, took the zeros at
    its place in the file for a log that does not go on: it waited, though it read nothing of what
    came. When the log had grown over the place, the middle of a record stood there, which was
    called damage; with ``onCorruption=skip`` nothing was said at all. Only a file that was itself
    shorter than the place was seen.
    """
    root = tmp_path / "store"
    grow(root, 0, 40)
    plan = plan_of(root, onCorruption=policy)
    lenient = plan_of(root, onCorruption=policy, failOnDataLoss=False)
    place = StreamOffset(plan.advance(plan.initial()).physical_offset)
    assert plan.advance(place) is lenient.advance(place) is place

    def again(plan: StreamPlan) -> StreamPlan:
        return StreamPlan(plan._given) if restarted else plan

    root.rename(tmp_path / "earlier")
    grow(root, 1000, 10)
    with pytest.raises(MappedFileError, match=r"ends at \d+, before the stream's position 11637"):
        again(plan).advance(place)
    assert again(lenient).advance(place) is place

    grow(root, 1010, 60)
    rows = rows_of(root)
    assert place.physical_offset not in [row.physical_offset for row in rows]
    plan, lenient = again(plan), again(lenient)
    with pytest.raises(MappedFileError, match="a record lies across the stream's position"):
        plan.splits(place, plan.advance(place))
    left = [row.physical_offset for row in rows if row.physical_offset > place.physical_offset]
    assert flat(run(lenient, place)) == left


def test_a_mount_that_keeps_no_file_numbers(growing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A number that changes although the log is the same proves nothing: it is checked once, and
    the end of the last file is not searched again every ten milliseconds.
    """
    plan = plan_of(growing)
    place = StreamOffset(plan.advance(plan.initial()).physical_offset)
    looks: list[object] = []
    find = stream_plan.log_end

    def counted(log: Any, *, start: int | None = None) -> int:
        looks.append(start)
        return find(log, start=start)

    numbers = iter(range(1000))
    monkeypatch.setattr(stream_plan, "log_end", counted)
    monkeypatch.setattr(stream_plan, "file_number", lambda _: next(numbers))
    for _ in range(5):
        assert plan.advance(place) is place
    assert len(looks) == 1


def test_a_warning_is_given_once(growing: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Spark asks for the end of the log every ten milliseconds, and each time a stream that waited
    for a log to come back wrote the same line to the driver's log.
    """
    plan = plan_of(growing, failOnDataLoss=False)
    for _ in range(3):
        plan.advance(StreamOffset(10**6))
    assert len(caplog.records) == 1


@pytest.mark.parametrize("limit", [None, 1, 30])
def test_a_place_with_damage_on_both_sides(growing: Path, limit: int | None) -> None:
    """What stands at a stream's place need be no record: that is damage, not another log."""
    rows = rows_of(growing)
    damage(growing, rows[100])
    damage(growing, rows[101])
    plan = plan_of(growing, onCorruption="skip")
    start = StreamOffset(rows[101].physical_offset)
    left = [row.physical_offset for row in rows[102:]]
    assert flat(run(plan, start, max_records=limit)) == left


def damage(root: Path, row: Row) -> None:
    """Flip a bit of the row's body, so that its checksum fails."""
    number, position = divmod(row.physical_offset, 16384)
    path = segments(root)[number]
    data = bytearray(path.read_bytes())
    at = data.index(row.body, position)
    data[at] ^= 1
    path.write_bytes(data)


def test_damage_fails_the_stream(growing: Path) -> None:
    row = rows_of(growing)[100]
    damage(growing, row)
    plan = plan_of(growing)
    start = plan.initial()
    end = plan.advance(start)
    assert end.physical_offset == plan.end()
    with pytest.raises(CorruptMessageError) as caught:
        read(plan, start, end)
    assert caught.value.position == row.physical_offset % 16384


@pytest.mark.parametrize("limit", [None, 30])
def test_damage_is_skipped(growing: Path, limit: int | None) -> None:
    rows = rows_of(growing)
    damage(growing, rows[100])
    del rows[100]
    plan = plan_of(growing, onCorruption="skip")
    assert flat(run(plan, max_records=limit)) == [row.physical_offset for row in rows]


@pytest.mark.parametrize("limit", [None, 30])
def test_a_stream_stops_at_damage(growing: Path, limit: int | None) -> None:
    rows = rows_of(growing)
    damage(growing, rows[100])
    plan = plan_of(growing, onCorruption="stop")
    assert flat(run(plan, max_records=limit)) == [row.physical_offset for row in rows[:100]]
    grow_end = plan.end()
    assert grow_end > rows[100].physical_offset  # what follows has been seen, and waits
    damage(growing, rows[100]._replace(body=bytes([rows[100].body[0] ^ 1]) + rows[100].body[1:]))
    assert flat(run(plan, max_records=limit)) == [row.physical_offset for row in rows]


def test_a_torn_record_at_the_end_is_not_there_yet(growing: Path) -> None:
    rows = rows_of(growing)
    whole = segments(growing)[-1].read_bytes()
    damage(growing, rows[-1])
    (growing / "abort").touch()  # its writer is at work
    plan = plan_of(growing)
    batches = run(plan)
    assert flat(batches) == [row.physical_offset for row in rows[:-1]]
    at = plan.advance(plan.initial())
    segments(growing)[-1].write_bytes(whole)
    assert read(plan, at, plan.advance(at)) == [rows[-1].physical_offset]
