"""The passes that read log windows: both bodies, any window sizes, against the log's own
records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from golden.golden_stores import geometry, names, unpack
from rocketstore import formats
from rocketstore.config import MessageStoreConfig
from rocketstore.status import RecordFlags, RecordStatus
from support.kernel_bodies import NATIVE, REFERENCE, Bodies
from support.record_factory import V6, make_log, make_record

NO_LIMIT = 2**62
GOLDEN = names("plain-5.3.3", "plain-4.9.8", "lmq-5.3.3", "inner-5.3.3", "crc-5.3.3")
DELAY_MS = (1000, 5000, 10000)
#: Statuses after which a segment is done.
DONE = (RecordStatus.BLANK, RecordStatus.EMPTY)


def _properties(**values: str) -> bytes:
    return "".join(f"{name}\x01{value}\x02" for name, value in values.items()).encode()


MIXED = make_log(
    {"topic": b"A", "queue_id": 0, "queue_offset": 0, "body": b""},
    {"topic": b"A", "queue_id": 0, "queue_offset": 1, "properties": b"", "store_timestamp": -1},
    {"topic": b"B" * 40, "queue_id": 1, "queue_offset": 7, "born_host": V6, "version": 2},
    {"topic": b"A", "queue_id": 0, "queue_offset": 3, "store_timestamp": -(2**63)},
    {"topic": b"A", "queue_id": 0, "queue_offset": 4, "sys_flag": 4},  # PREPARED
    {"topic": b"A", "queue_id": 0, "queue_offset": 4, "sys_flag": 8},  # COMMIT
    {"topic": b"A", "queue_id": 0, "queue_offset": 5, "sys_flag": 12},  # ROLLBACK
    {"topic": b"A", "queue_id": 1, "queue_offset": 2**63 - 1, "properties": b"TAGS\x01\xff\x02"},
    {"topic": b"a/b", "queue_id": 0, "queue_offset": 0},
    {"topic": b"A", "queue_id": 0, "queue_offset": 5, "properties": b"X\x01a\x00b\x02"},
    {"topic": b"SCHEDULE_TOPIC_XXXX", "queue_offset": 0, "properties": _properties(DELAY="2")},
    {"topic": b"A", "queue_id": 0, "queue_offset": 6, "physical_offset": 3},  # a ghost
    {
        **{"topic": b"A", "queue_id": 0, "queue_offset": 6},
        "properties": _properties(
            INNER_MULTI_DISPATCH="%LMQ%x,A,%LMQ%x,other", INNER_MULTI_QUEUE_OFFSET="4,0,5,3"
        ),
    },
    {"topic": b"A", "queue_id": 0, "queue_offset": 7, "property_crc": True},
    {"topic": b"A", "queue_id": 0, "queue_offset": 8, "body": b"x" * 3000, "sys_flag": 0x80},
)


def segments(name: str, tmp_path: Path) -> Iterator[tuple[int, bytes, int]]:
    """Yield (base offset, bytes, segment size) of a golden store's log."""
    root = unpack(name, tmp_path)
    size = geometry(name).commit_log_nbytes
    for path in sorted((root / "commitlog").iterdir()):
        yield int(path.name), path.read_bytes(), size


def drive(
    subject: Any, content: bytes, base: int, size: int, flags: int = 1, window_nbytes: int = 1 << 16
) -> tuple[list[Any], int, int]:
    """Run a pass on a segment in windows; return what it gave, the last status and position."""
    taken, position, nbytes = [], 0, window_nbytes
    while True:
        window = bytearray(content[position : position + nbytes])
        is_last = position + nbytes >= len(content)
        status, at = subject.consume(
            window, 0, len(window), base + position, base + size, NO_LIMIT, flags
        )
        position += at
        if status == RecordStatus.FULL:
            taken.append(subject.take())
        elif status == RecordStatus.INCOMPLETE and not is_last:
            nbytes *= 1 if at else 2
        elif status != RecordStatus.END or position >= len(content):
            taken.append(subject.take())
            return taken, status, position


def rows(content: bytes, base: int, size: int) -> list[dict[str, int]]:
    """All records of a segment, parsed by the record kernel."""
    layout = formats.PARSED_RECORD
    out = bytearray(layout.nbytes * (len(content) // formats.RECORD_MIN_NBYTES + 1))
    count, _, _ = NATIVE.message.scan_records(
        content, 0, len(content), base, base + size, RecordFlags.PARSE_PROPERTIES, out, DELAY_MS
    )
    fields = [field.name for field in layout.fields]
    return [
        dict(zip(fields, layout.struct.unpack_from(out, n * layout.nbytes), strict=True))
        for n in range(count)
    ]


def topic_of(content: bytes, row: dict[str, int]) -> bytes:
    """The stored topic of a parsed record."""
    start = row["position"] + row["topic_at"]
    return content[start : start + row["topic_nbytes"]]


def with_unit(row: dict[str, int]) -> bool:
    """Whether a parsed record has a unit."""
    return row["status"] in (0, RecordStatus.NUL_PROPERTIES) and not row["sys_flag"] & 4


def logs(tmp_path: Path) -> Iterator[tuple[int, bytes, int]]:
    """The segments that the tests look at."""
    yield 0, MIXED, 1 << 20
    for name in GOLDEN:
        (tmp_path / name).mkdir()
        yield from segments(name, tmp_path / name)


PASSES: dict[str, tuple[str, dict[str, Any]]] = {
    "units": ("passes_queue_units", {"delay_ms": DELAY_MS, "multi_dispatch": 3}),
    "few units": ("passes_queue_units", {"max_nbytes": 50, "with_times": True}),
    "few runs": ("passes_queue_units", {"max_runs": 2, "multi_dispatch": 15}),
    "some queues": ("passes_queue_units", {"queues": [(b"A", 0), (b"%LMQ%x", 0)]}),
    "fsck": ("passes_fsck", {"delay_ms": DELAY_MS, "report_property_crc": True}),
    "fsck with keys": ("passes_fsck", {"index_keys": True}),
    "few queues": ("passes_fsck", {"max_queues": 1}),
    "by all": ("passes_stats", {"by": ("topic", "queueId", "tags", "bucket", "bodySize")}),
    "by nothing": ("passes_stats", {}),
    "by tags": ("passes_stats", {"by": ["tags"], "max_groups": 2}),
    "by time": ("passes_stats", {"by": ["bucket"], "bucket_ms": 7}),
}
CLASSES = {
    "passes_queue_units": "QueueUnitsPass",
    "passes_fsck": "FsckPass",
    "passes_stats": "StatsPass",
}


def make(body: Bodies, which: str) -> Any:
    """A pass of a body."""
    module, arguments = PASSES[which]
    return getattr(getattr(body, module), CLASSES[module])(**arguments)


@pytest.mark.parametrize("which", PASSES)
def test_both_bodies_take_the_same_through_any_windows(which: str, tmp_path: Path) -> None:
    for base, content, size in logs(tmp_path):
        wanted = drive(make(REFERENCE, which), content, base, size, window_nbytes=1 << 20)
        for window_nbytes in (1 << 16, 137):
            found = drive(make(NATIVE, which), content, base, size, window_nbytes=window_nbytes)
            assert found == wanted
        assert wanted[1] in (RecordStatus.END, *DONE)


def test_units_are_those_of_the_records(kernels: Bodies, tmp_path: Path) -> None:
    unit = formats.CONSUME_QUEUE_UNIT.struct
    for base, content, size in logs(tmp_path):
        subject = kernels.passes_queue_units.QueueUnitsPass(delay_ms=DELAY_MS)
        found: dict[tuple[bytes, int], list[tuple[int, ...]]] = {}
        for taken in drive(subject, content, base, size)[0]:
            for topic, queue_id, named, first, start, end, units in taken:
                assert not named
                entries = list(unit.iter_unpack(units))
                assert (start, end) == (entries[0][0], entries[-1][0] + entries[-1][1])
                queue = found.setdefault((topic, queue_id), [])
                queue += [(first + n, *entry) for n, entry in enumerate(entries)]
        wanted: dict[tuple[bytes, int], list[tuple[int, ...]]] = {}
        for row in filter(with_unit, rows(content, base, size)):
            wanted.setdefault((topic_of(content, row), row["queue_id"]), []).append(
                (row["queue_offset"], row["physical_offset"], row["total_size"], row["tags_code"])
            )
        assert found == wanted


def test_groups_count_what_the_records_say(kernels: Bodies, tmp_path: Path) -> None:
    for base, content, size in logs(tmp_path):
        subject = kernels.passes_stats.StatsPass(["topic", "queueId"])
        wanted: dict[tuple[bytes, int], list[dict[str, int]]] = {}
        for row in rows(content, base, size):
            if row["status"] != RecordStatus.GHOST:
                wanted.setdefault((topic_of(content, row), row["queue_id"]), []).append(row)
        (groups,) = drive(subject, content, base, size)[0]
        assert [group[:2] for group in groups] == list(wanted)
        for group, of_it in zip(groups, wanted.values(), strict=True):
            times = [row["store_timestamp"] for row in of_it]
            offsets = [row["queue_offset"] for row in of_it]
            assert group[2:5] == (None, None, None)
            assert group[5:] == (
                len(of_it),
                sum(row["total_size"] for row in of_it),
                sum(row["body_nbytes"] for row in of_it),
                *(min(times), max(times), min(offsets), max(offsets)),
            )


def test_buckets_begin_at_multiples_and_sizes_at_powers(kernels: Bodies) -> None:
    times = (-(2**63), -61, -60, -1, 0, 59, 60, 2**63 - 1)
    sizes = (0, 1, 2, 5, 3, 1023, 1024, 5000)
    log = make_log(
        *(
            {"store_timestamp": time, "body": b"b" * size}
            for time, size in zip(times, sizes, strict=True)
        )
    )
    subject = kernels.passes_stats.StatsPass(("bucket", "bodySize"), bucket_ms=60)
    (groups,) = drive(subject, log, 0, 1 << 20)[0]
    assert [group[3] for group in groups] == [max(-(2**63), t // 60 * 60) for t in times]
    assert [group[4] for group in groups] == [0, 1, 2, 4, 2, 512, 1024, 4096]


def test_queues_sum_up_to_their_units(kernels: Bodies, tmp_path: Path) -> None:
    """The queue files that RocketMQ wrote have the checksums of its log."""
    name = "plain-5.3.3"
    root = unpack(name, tmp_path)
    log: dict[tuple[bytes, int], tuple[int, int]] = {}
    for path in sorted((root / "commitlog").iterdir()):
        size = geometry(name).commit_log_nbytes
        subject = kernels.passes_fsck.FsckPass(delay_ms=MessageStoreConfig().delay_ms)
        for counts, queues, wrong in drive(subject, path.read_bytes(), int(path.name), size)[0]:
            assert not wrong
            assert counts["records"] >= sum(queue[2] for queue in queues)
            for topic, queue_id, count, *_, breaks, total in queues:
                assert not breaks
                number, before = log.get((topic, queue_id), (0, 0))
                log[topic, queue_id] = (number + count, (before + total) % 2**64)
    for (topic, queue_id), (count, total) in log.items():
        found, summed = 0, 0
        for path in sorted((root / "consumequeue" / topic.decode() / str(queue_id)).iterdir()):
            sums = kernels.passes_fsck.sum_units(path.read_bytes(), int(path.name) // 20)
            found += sums[0]
            summed = (summed + sums[3]) % 2**64
        assert (found, summed) == (count, total)
    assert len(log) > 3


@pytest.mark.parametrize("room", [0, 1, 2, 50000])
def test_keys_gathered_beside_are_those_of_the_keys_pass(
    kernels: Bodies, tmp_path: Path, room: int
) -> None:
    """With room for one record's keys alone, for some, and for all."""
    capacity = kernels.passes_index_keys.MAX_RECORD_KEYS + room
    for base, content, size in logs(tmp_path):
        alone = kernels.passes_index_keys.IndexKeysPass(mark_tags=True, capacity=70000)
        assert alone.consume(content, 0, len(content), base, base + size, NO_LIMIT, 1)[1] > 0
        wanted = [column.tolist() for column in alone.take()]
        plain = kernels.passes_fsck.FsckPass(delay_ms=DELAY_MS)
        end = plain.consume(content, 0, len(content), base, base + size, NO_LIMIT, 1)
        both = kernels.passes_fsck.FsckPass(
            delay_ms=DELAY_MS, index_keys=True, key_capacity=capacity
        )
        found: list[list[int]] = [[], [], []]
        status, position = RecordStatus.FULL, 0
        while status == RecordStatus.FULL:
            status, position = both.consume(
                content, position, len(content), base, base + size, NO_LIMIT, 1
            )
            for column, more in zip(found, both.take_keys(), strict=True):
                column += more.tolist()
        assert ((status, position), both.take()) == (end, plain.take())
        assert found == wanted
        assert found[0]


def test_keys_that_were_not_requested(kernels: Bodies) -> None:
    with pytest.raises(ValueError, match="gathers no keys"):
        kernels.passes_fsck.FsckPass().take_keys()


def test_units_that_do_not_count(kernels: Bodies) -> None:
    pack = formats.CONSUME_QUEUE_UNIT.struct.pack
    filler = pack(0, formats.FILLER_UNIT_SIZE, 0)
    units = filler + pack(10, 100, 5) + pack(200, 100, -7) + bytes(20) + pack(300, 91, 0) + b"xy"
    count, first, last, total, fillers, expired, passed = kernels.passes_fsck.sum_units(
        units, 40, 150
    )
    assert (count, first, last, fillers, expired, passed) == (2, 42, 44, 1, 1, 41)
    one = kernels.passes_fsck.sum_units(pack(200, 100, -7), 42)
    other = kernels.passes_fsck.sum_units(pack(300, 91, 0), 44)
    assert (one[3] + other[3]) % 2**64 == total
    assert kernels.passes_fsck.sum_units(b"", 0) == (0, -1, -1, 0, 0, 0, -1)


@pytest.mark.parametrize("unit", [(-1, 100, 5), (-(2**63), 100, 5), (10, 0, 5), (10, -1, 5)])
def test_only_what_may_have_been_a_record_has_expired(
    kernels: Bodies, unit: tuple[int, int, int]
) -> None:
    """Units of no record at all counted as expired, because they point before the log."""
    sums = kernels.passes_fsck.sum_units(formats.CONSUME_QUEUE_UNIT.struct.pack(*unit), 40, 150)
    assert (*sums[:3], *sums[4:]) == (1, 40, 40, 0, 0, -1)


def test_every_field_of_a_unit_counts(kernels: Bodies) -> None:
    pack = formats.CONSUME_QUEUE_UNIT.struct.pack
    cases = [(0, 1, 2, 3), (1, 1, 2, 3), (0, 2, 2, 3), (0, 1, 3, 3), (0, 1, 2, 4), (0, 2, 1, 3)]
    sums = {kernels.passes_fsck.sum_units(pack(*unit), index)[3] for index, *unit in cases}
    assert len(sums) == len(cases)


@pytest.mark.parametrize("which", PASSES)
def test_a_record_after_the_limit_is_left_to_others(kernels: Bodies, which: str) -> None:
    first = len(make_record())
    log = make_log({"queue_offset": 0}, {"queue_offset": 1}, {"queue_offset": 2}, base_offset=1000)
    for limit, wanted in ((0, 0), (1000, 0), (1001, 1), (1000 + first, 1), (1001 + first, 2)):
        subject = make(kernels, which)
        position, status = 0, RecordStatus.FULL
        while status == RecordStatus.FULL:
            status, position = subject.consume(
                log, position, len(log), 1000, 1 << 20, limit, RecordFlags.CHECK_BODY_CRC
            )
            subject.take()
        assert (status, position) == (RecordStatus.END, wanted * first)


@pytest.mark.parametrize("which", PASSES)
def test_what_is_there_is_reported(kernels: Bodies, which: str) -> None:
    good = make_record(queue_id=0)
    blank = formats.BLANK.struct.pack(500, formats.BLANK_MAGIC)
    wrong_crc = make_record(queue_id=0, physical_offset=len(good), body_crc=1)
    for following, end, wanted in (
        (b"", 1000, RecordStatus.END),
        (good[:50], 1000, RecordStatus.INCOMPLETE),
        (blank, len(good) + 500, RecordStatus.BLANK),
        (bytes(100), 1000, RecordStatus.EMPTY),
        (b"x" * 100, 1000, RecordStatus.BAD_MAGIC),
        (wrong_crc, 1000, RecordStatus.BAD_BODY_CRC),
    ):
        window = good + following
        found = make(kernels, which).consume(window, 0, len(window), 0, end, NO_LIMIT, 1)
        assert found == (wanted, len(good))


@pytest.mark.parametrize(
    ("module", "arguments", "error"),
    [
        ("passes_stats", {"by": ["topics"]}, ValueError),
        ("passes_stats", {"bucket_ms": 0}, ValueError),
        ("passes_stats", {"max_groups": 0}, ValueError),
        ("passes_fsck", {"max_queues": 0}, ValueError),
        ("passes_fsck", {"index_keys": True, "key_capacity": 16385}, ValueError),
        ("passes_fsck", {"delay_ms": [-1]}, ValueError),
        ("passes_fsck", {"delay_ms": ["1"]}, TypeError),
        ("passes_queue_units", {"multi_dispatch": 16}, ValueError),
        ("passes_queue_units", {"max_nbytes": 0}, ValueError),
        ("passes_queue_units", {"queues": [("A", 0)]}, TypeError),
        ("passes_queue_units", {"queues": [(b"", 0)]}, ValueError),
        ("passes_queue_units", {"queues": [(b"A", -1)]}, ValueError),
    ],
)
def test_wrong_arguments(
    kernels: Bodies, module: str, arguments: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        getattr(getattr(kernels, module), CLASSES[module])(**arguments)


def test_wrong_ranges(kernels: Bodies) -> None:
    subject = kernels.passes_stats.StatsPass()
    for arguments in ((1, 0, 0, 10), (0, 11, 0, 10), (-1, 5, 0, 10), (0, 5, -1, 10), (0, 5, 0, -1)):
        with pytest.raises(ValueError, match=r"position|base_offset"):
            subject.consume(bytes(10), *arguments, NO_LIMIT, 1)
    with pytest.raises(TypeError):
        subject.consume("text", 0, 1, 0, 10, NO_LIMIT, 1)
    with pytest.raises(ValueError, match="first_index"):
        kernels.passes_fsck.sum_units(bytes(20), -1)
