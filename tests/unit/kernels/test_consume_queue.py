"""Queue kernels of both bodies: units, ranges, tags, and getMessage's loop."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from golden import golden_stores
from rocketstore import Sql92Filter, formats
from rocketstore.status import GetMessageStatus, KernelStatus, RecordFlags, RecordStatus
from support.kernel_bodies import REFERENCE, both

UNIT = formats.CONSUME_QUEUE_UNIT.struct
FILLER = (0, formats.FILLER_UNIT_SIZE, 0)
UNWRITTEN = (0, 0, 0)
WHOLE = 2**63 - 1


def queue_file(*units: tuple[int, int, int], nbytes: int = 0) -> bytearray:
    content = b"".join(UNIT.pack(*unit) for unit in units)
    return bytearray(content.ljust(nbytes, b"\0"))


def columns(units: Sequence[tuple[int, int, int]]) -> tuple[array, array, array]:
    offsets, sizes, codes = zip(*units, strict=True) if units else ((), (), ())
    return array("q", offsets), array("i", sizes), array("q", codes)


# --- Columns ------------------------------------------------------------------------------------


def test_the_worked_example() -> None:
    units = [(0, 162, 2598919), (512, 415, 2598920)]
    file = bytearray(160)
    assert both("consume_queue", "put_units", file, 0, *columns(units)) == 2
    assert file[:40].hex(" ", 4) == (
        "00000000 00000000 000000a2 00000000 0027a807 00000000 00000200 0000019f 00000000 0027a808"
    )
    assert file[40:] == bytes(120)


def test_put_stops_at_the_end_of_the_file_and_read_at_every_limit() -> None:
    units = [(100 * number, 100, -number) for number in range(10)]
    file = bytearray(7 * 20 + 13)
    assert both("consume_queue", "put_units", file, 40, *columns(units)) == 5
    assert file == queue_file(UNWRITTEN, UNWRITTEN, *units[:5], nbytes=153)
    assert both("consume_queue", "put_units", file, 140, *columns(units)) == 0
    room = columns([UNWRITTEN] * 4)
    assert both("consume_queue", "read_units", file, 60, 153, *room) == 4
    assert room == columns(units[1:5])
    assert both("consume_queue", "read_units", file, 60, 99, *room) == 1
    assert both("consume_queue", "read_units", file, 60, 60, *room) == 0
    assert both("consume_queue", "put_units", file, 0, *columns([])) == 0


def test_extreme_numbers_go_through() -> None:
    units = [(-(2**63), -(2**31), 2**63 - 1), (2**63 - 1, 2**31 - 1, -(2**63))]
    file, room = bytearray(40), columns([UNWRITTEN] * 2)
    assert both("consume_queue", "put_units", file, 0, *columns(units)) == 2
    assert both("consume_queue", "read_units", file, 0, 40, *room) == 2
    assert room == columns(units)


def test_fill_writes_rocketmqs_filler() -> None:
    file = bytearray(80)
    both("consume_queue", "fill_units", file, 20, 60)
    assert file[20:40].hex() == "00000000000000007fffffff0000000000000000"
    assert file == queue_file(UNWRITTEN, FILLER, FILLER, UNWRITTEN)


@pytest.mark.parametrize(
    ("position", "stop"), [(-20, 40), (10, 40), (0, 101), (60, 40), (120, 120), (0, -1)]
)
def test_a_range_outside_the_file_is_refused(position: int, stop: int) -> None:
    file = bytearray(100)
    room = columns([UNWRITTEN])
    calls: tuple[tuple[Any, ...], ...] = (
        ("fill_units", position, stop),
        ("read_units", position, stop, *room),
        ("scan_units", position, stop, -1, WHOLE),
        ("find_unit", position, stop, 0),
        ("filter_units", position, stop, array("q", [1]), array("q", bytes(800))),
    )
    for name, *arguments in calls:
        with pytest.raises(ValueError, match="not within a file of 100 bytes"):
            both("consume_queue", name, file, *arguments)
    assert file == bytes(100)


def test_wrong_arrays_are_refused() -> None:
    one, two, sizes = array("q", [1]), array("q", [1, 2]), array("i", [1])
    file = bytearray(100)
    with pytest.raises(ValueError, match="differ in length: 1, 1, 2"):
        both("consume_queue", "put_units", file, 0, one, sizes, two)
    with pytest.raises(ValueError, match="differ in length: 2, 1, 2"):
        both("consume_queue", "read_units", file, 0, 100, two, sizes, two)
    with pytest.raises(ValueError, match="sizes must hold integers of 4 bytes"):
        both("consume_queue", "put_units", file, 0, one, one, one)
    with pytest.raises(ValueError, match="out has room for 2 of 5 units"):
        both("consume_queue", "filter_units", file, 0, 100, one, two)
    with pytest.raises(ValueError, match="not a multiple of 20"):
        both("consume_queue", "put_units", file, 30, one, sizes, one)
    with pytest.raises(BufferError):
        both("consume_queue", "put_units", bytes(file), 0, one, sizes, one)
    with pytest.raises(BufferError):
        both("consume_queue", "read_units", file, 0, 100, bytes(8), bytes(4), bytes(8))
    assert file == bytes(100)


# --- Scan and search ----------------------------------------------------------------------------

GOOD = [(100, 50, 1), (150, 50, 2), (300, 100, 3)]


def scan(units: Sequence[tuple[int, int, int]], last_end: int = -1, log_end: int = 1000):
    file = queue_file(*units)
    return both("consume_queue", "scan_units", file, 0, len(file), last_end, log_end)


def test_scan_walks_good_units() -> None:
    assert scan(GOOD) == (60, 400, RecordStatus.END)
    assert scan(GOOD, 100, 400) == (60, 400, RecordStatus.END)
    assert scan([]) == (0, -1, RecordStatus.END)
    assert scan([(0, 10, 0)]) == (20, 10, RecordStatus.END)
    file = queue_file(*GOOD, nbytes=75)
    ragged = both("consume_queue", "scan_units", file, 0, 75, -1, 1000)
    assert ragged == (60, 400, RecordStatus.END)


@pytest.mark.parametrize(
    ("unit", "status"),
    [
        (UNWRITTEN, KernelStatus.NO_UNIT),
        (FILLER, KernelStatus.BAD_UNIT),
        ((-1, 50, 0), KernelStatus.BAD_UNIT),
        ((-(2**63), 50, 0), KernelStatus.BAD_UNIT),
        ((400, 0, 0), KernelStatus.BAD_UNIT),
        ((0, 0, 7), KernelStatus.BAD_UNIT),
        ((400, -1, 0), KernelStatus.BAD_UNIT),
        ((399, 50, 0), KernelStatus.BAD_UNIT),
        ((300, 100, 3), KernelStatus.BAD_UNIT),
        ((951, 50, 0), KernelStatus.BAD_UNIT),
        ((1001, 1, 0), KernelStatus.BAD_UNIT),
        ((2**63 - 1, 2**31 - 1, 0), KernelStatus.BAD_UNIT),
    ],
)
def test_scan_stops_at_what_cannot_follow(unit: tuple[int, int, int], status: int) -> None:
    assert scan([*GOOD, unit, (500, 50, 0)]) == (60, 400, status)


def test_scan_accepts_fillers_only_before_the_first_message() -> None:
    """RocketMQ takes a filler for the end of a message at 2**31 - 1 (D-10); it ends nowhere."""
    assert scan([FILLER, FILLER, *GOOD], log_end=2**40) == (100, 400, RecordStatus.END)
    assert scan([FILLER, FILLER]) == (40, -1, RecordStatus.END)
    assert scan([FILLER, *GOOD], 0, 2**40) == (0, 0, KernelStatus.BAD_UNIT)
    assert scan([GOOD[0], FILLER], log_end=2**40) == (20, 150, KernelStatus.BAD_UNIT)


@pytest.mark.parametrize("log_end", [0, -1, -(2**63), 149])
def test_scan_with_a_log_that_lost_its_tail(log_end: int) -> None:
    assert scan(GOOD, log_end=log_end) == (0, -1, KernelStatus.BAD_UNIT)


@pytest.mark.parametrize(
    ("offset", "position"),
    [(-1, 0), (0, 40), (100, 40), (101, 60), (150, 60), (300, 80), (301, 100), (2**63 - 1, 100)],
)
def test_find_counts_fillers_as_minus_one(offset: int, position: int) -> None:
    file = queue_file(FILLER, FILLER, *GOOD, nbytes=130)
    assert both("consume_queue", "find_unit", file, 0, 100, offset) == position
    assert both("consume_queue", "find_unit", file, 0, 119, offset) == position
    expected = max(position, 40)
    assert both("consume_queue", "find_unit", file, 40, 100, offset) == expected


@pytest.mark.parametrize("units", range(64))
def test_find_is_not_led_astray_by_fillers_between_units(units: int) -> None:
    """A filler counted as a unit of offset -1, and everything before it as still lower: in a queue
    with a gap after damage, the messages before the gap were not found."""
    file = queue_file(*[(100 * n, 50, n) if units >> n & 1 else FILLER for n in range(6)])
    for offset in (0, 1, 100, 150, 250, 300, 450, 500, 501):
        wanted = [n for n in range(6) if units >> n & 1 and 100 * n >= offset]
        position = 20 * min(wanted, default=6)
        assert both("consume_queue", "find_unit", file, 0, 120, offset) == position


# --- Tags ---------------------------------------------------------------------------------------


def numbers(file: bytearray, position: int, stop: int, codes: Sequence[int]) -> list[int]:
    out = array("q", bytes(8 * ((stop - position) // 20)))
    arguments = (file, position, stop, array("q", codes), out)
    return out[: both("consume_queue", "filter_units", *arguments)].tolist()


def test_filter_finds_tags_and_never_a_filler() -> None:
    codes = [7, -7, 0, 7, 2**40, -(2**63), 0, 7]
    units = [(100 * number, 100, code) for number, code in enumerate(codes)]
    file = queue_file(FILLER, *units, UNWRITTEN, UNWRITTEN)
    assert numbers(file, 0, len(file), [7]) == [1, 4, 8]
    assert numbers(file, 20, len(file), [7]) == [0, 3, 7]
    assert numbers(file, 0, len(file), [0]) == [3, 7]
    assert numbers(file, 0, len(file), [0, -7, 7]) == [1, 2, 3, 4, 7, 8]
    assert numbers(file, 0, len(file), [2**40, -(2**63)]) == [5, 6]
    assert numbers(file, 0, len(file), []) == []
    assert numbers(file, 0, len(file), [5]) == []
    assert numbers(file, 60, 60, [7]) == []


# --- Messages -----------------------------------------------------------------------------------

TOPIC = "Topic"
CHECK_CRC = int(RecordFlags.CHECK_BODY_CRC)


def record(offset: int, queue_offset: int, **changes: Any) -> bytes:
    arguments = {
        "topic": TOPIC,
        "body": b"body of %d" % queue_offset,
        "queue_id": 3,
        "sys_flag": 0,
        "born_host": "10.0.0.1:1",
        "store_host": "10.0.0.2:2",
        "properties": b"TAGS\x01a\x02",
        "version": 1,
    } | changes
    return REFERENCE.message.encode_record(
        arguments["topic"],
        arguments["body"],
        arguments["queue_id"],
        queue_offset,
        offset,
        0,
        arguments["sys_flag"],
        1,
        arguments["born_host"],
        2,
        arguments["store_host"],
        0,
        0,
        arguments["properties"],
        arguments["version"],
    )


@dataclass
class Queue:
    """A log segment with the records of one queue, and the queue's units."""

    base_offset: int = 4096
    segment_nbytes: int = 4096
    log: bytearray = field(default_factory=bytearray)
    units: list[tuple[int, int, int]] = field(default_factory=list)

    def add(self, tags_code: int = 1, **changes: Any) -> None:
        offset = self.base_offset + len(self.log)
        content = record(offset, len(self.units), **changes)
        self.units.append((offset, len(content), tags_code))
        self.log += content


@dataclass(frozen=True)
class Selection:
    """The arguments of ``select_messages`` beside the files, with getMessage's defaults."""

    position: int = 0
    queue_offset: int = 0
    log_stop: int | None = None
    min_offset: int = 0
    topic: bytes = TOPIC.encode()
    queue_id: int = 3
    tags_codes: tuple[int, ...] | None = None
    filter: Any = None
    max_count: int = 32
    max_nbytes: int = 262144
    disk_below: int = -1
    max_disk_count: int = 8
    max_disk_nbytes: int = 65536
    selected_nbytes: int = 0
    selected_count: int = 0
    flags: int = CHECK_CRC
    room: int = 40

    def __call__(self, queue: Queue) -> tuple[tuple[int, ...], list[tuple[int, int, int, int]]]:
        """Return what the kernel returned, and the rows without their reserved field."""
        units = queue_file(*queue.units)
        log = queue.log.ljust(queue.segment_nbytes, b"\0")
        out = bytearray(self.room * formats.SELECTED_MESSAGE.nbytes)
        answer = both(
            "consume_queue",
            "select_messages",
            units,
            self.position,
            len(units),
            self.queue_offset,
            log,
            len(queue.log) if self.log_stop is None else self.log_stop,
            queue.base_offset,
            queue.base_offset + queue.segment_nbytes,
            self.min_offset,
            self.topic,
            self.queue_id,
            None if self.tags_codes is None else array("q", self.tags_codes),
            self.filter,
            self.max_count,
            self.max_nbytes,
            self.disk_below,
            self.max_disk_count,
            self.max_disk_nbytes,
            self.selected_nbytes,
            self.selected_count,
            self.flags,
            out,
        )
        rows = formats.SELECTED_MESSAGE.struct.iter_unpack(out)
        return answer, [row[:4] for row, _ in zip(rows, range(answer[1]), strict=False)]


MIXED_RECORDS: tuple[dict[str, Any], ...] = (
    {},
    {"body": b""},
    {"born_host": "[2001:db8::1]:7", "store_host": "10.0.0.1:1"},
    {"born_host": "[2001:db8::1]:7", "store_host": "[2001:db8::2]:7", "version": 2},
    {"version": 2},
    {"sys_flag": formats.SYS_FLAG_TRANSACTION_COMMIT},
    {"properties": b""},
)


def mixed_queue() -> Queue:
    queue = Queue()
    for number, changes in enumerate(MIXED_RECORDS):
        queue.add(number % 3, **changes)
    return queue


def test_select_follows_all_kinds_of_records() -> None:
    queue = mixed_queue()
    answer, rows = Selection()(queue)
    nbytes = len(queue.log)
    assert answer == (140, 7, nbytes, RecordStatus.END, 0)
    for number, (row, unit) in enumerate(zip(rows, queue.units, strict=True)):
        assert row == (unit[0] - queue.base_offset, number, unit[2], unit[1])


def test_select_with_a_program() -> None:
    """Both bodies skip the same records, and count the same errors."""
    queue = Queue()
    for number in range(12):
        queue.add(properties=b"n\x01%d\x02c\x01%s\x02" % (number, b"x" if number % 3 else b"7"))
    over = Sql92Filter("n > 5")
    answer, rows = Selection(filter=over)(queue)
    nbytes = sum(unit[1] for unit in queue.units[6:])
    unmatched = GetMessageStatus.NO_MATCHED_MESSAGE
    assert answer == (240, 6, nbytes, RecordStatus.END, unmatched)
    assert [row[1] for row in rows] == list(range(6, 12))
    made = Sql92Filter("c < 8")
    answer, rows = Selection(filter=made)(queue)
    assert [row[1] for row in rows] == [0, 3, 6, 9]
    assert made.errors == 2 * 8  # by each body
    # Limits are looked at before a record is judged, as RocketMQ does.
    answer, rows = Selection(filter=over, max_count=3)(queue)
    assert (answer[0], answer[1], answer[3]) == (180, 3, KernelStatus.LIMIT)
    answer, rows = Selection(filter=over, tags_codes=(5,))(queue)
    assert answer == (240, 0, 0, RecordStatus.END, unmatched)
    # Damage is found before it is judged.
    queue = mixed_queue()
    queue.log[queue.units[1][0] - queue.base_offset + 4] ^= 1
    answer, rows = Selection(filter=Sql92Filter("TAGS = 'z'"))(queue)
    assert answer == (20, 0, 0, RecordStatus.BAD_MAGIC, unmatched)


def test_select_goes_on_where_it_stopped() -> None:
    queue = mixed_queue()
    (position, rows, nbytes, status, _), first = Selection(room=3)(queue)
    assert (position, rows, status) == (60, 3, KernelStatus.OK)
    selection = Selection(position=60, queue_offset=3, selected_count=3, selected_nbytes=nbytes)
    (position, rows, more, status, _), second = selection(queue)
    assert (position, rows, nbytes + more, status) == (140, 4, len(queue.log), RecordStatus.END)
    assert first + second == Selection()(queue)[1]
    assert Selection(room=0)(queue)[0] == (0, 0, 0, KernelStatus.OK, 0)


def test_select_filters_by_tag_before_it_reads_the_log() -> None:
    queue = mixed_queue()
    answer, rows = Selection(tags_codes=(1,))(queue)
    assert [row[1] for row in rows] == [1, 4]
    assert answer[3:] == (RecordStatus.END, GetMessageStatus.NO_MATCHED_MESSAGE)
    answer, rows = Selection(tags_codes=(2, 0))(queue)
    assert [row[1] for row in rows] == [0, 2, 3, 5, 6]
    queue.log[:] = bytes(len(queue.log))
    answer, rows = Selection(tags_codes=(9,))(queue)
    assert answer == (140, 0, 0, RecordStatus.END, GetMessageStatus.NO_MATCHED_MESSAGE)


def test_an_ext_address_matches_every_tag() -> None:
    queue = Queue()
    queue.add(formats.MAX_EXT_ADDRESS)
    queue.add(formats.MAX_EXT_ADDRESS + 1)
    queue.add(-(2**63))
    assert [row[1] for row in Selection(tags_codes=(9,))(queue)[1]] == [0, 2]


@pytest.mark.parametrize(
    ("limits", "rows", "status"),
    [
        ({"max_count": 2}, 2, KernelStatus.LIMIT),
        ({"max_count": 7}, 7, RecordStatus.END),
        ({"max_count": 0}, 1, KernelStatus.LIMIT),
        ({"max_count": -1}, 1, KernelStatus.LIMIT),
        ({"max_nbytes": 0}, 1, KernelStatus.LIMIT),
        ({"max_nbytes": -(2**63)}, 1, KernelStatus.LIMIT),
        ({"max_disk_count": 2}, 7, RecordStatus.END),
        ({"max_disk_count": 2, "disk_below": 2**62}, 2, KernelStatus.LIMIT),
        ({"max_count": 2, "max_disk_count": 5, "disk_below": 2**62}, 5, KernelStatus.LIMIT),
        ({"max_disk_nbytes": 1, "disk_below": 2**62}, 1, KernelStatus.LIMIT),
        ({"max_count": 3, "selected_count": 2}, 1, KernelStatus.LIMIT),
        ({"max_count": 3, "selected_count": 3}, 0, KernelStatus.LIMIT),
        ({"max_nbytes": 1000, "selected_count": 1, "selected_nbytes": 1000}, 0, KernelStatus.LIMIT),
    ],
)
def test_batch_limits(limits: dict[str, int], rows: int, status: int) -> None:
    answer, _ = Selection(**limits)(mixed_queue())
    assert (answer[1], answer[3]) == (rows, status)
    assert answer[0] == 20 * rows


def test_the_byte_limit_is_inclusive_and_changes_with_the_place() -> None:
    queue = mixed_queue()
    sizes = [size for _, size, _ in queue.units]
    assert Selection(max_nbytes=sum(sizes[:3]))(queue)[0][1] == 3
    assert Selection(max_nbytes=sum(sizes[:3]) - 1)(queue)[0][1] == 2
    # Below the third record the disk's limit holds, from it on the memory's.
    disk_below = queue.units[2][0]
    assert Selection(max_disk_count=1, disk_below=disk_below)(queue)[0][1] == 1
    assert Selection(max_disk_count=2, max_count=5, disk_below=disk_below)(queue)[0][1] == 5


def test_expired_units_and_fillers_are_skipped() -> None:
    queue = mixed_queue()
    queue.units = [FILLER, FILLER, (0, 100, 1), (90, 100, 1), *queue.units]
    answer, rows = Selection(queue_offset=-4 + 4, min_offset=4096, topic=b"")(queue)
    removing = GetMessageStatus.MESSAGE_WAS_REMOVING
    assert answer == (220, 7, len(queue.log), RecordStatus.END, removing)
    assert [row[1] for row in rows] == [4, 5, 6, 7, 8, 9, 10]


def test_the_rest_of_an_expired_file_is_skipped_whatever_its_tags() -> None:
    """RocketMQ skips to the next log file when a record is gone, so the reason stays."""
    queue = Queue(base_offset=3 * 4096)
    queue.units = [(4000, 50, 5), (4050, 40, 1), (4200, 50, 1)]
    selection = Selection(min_offset=3 * 4096)
    no_match, removing = GetMessageStatus.NO_MATCHED_MESSAGE, GetMessageStatus.MESSAGE_WAS_REMOVING
    assert selection(queue)[0] == (60, 0, 0, RecordStatus.END, removing)
    assert replace(selection, tags_codes=(5,))(queue)[0][3:] == (RecordStatus.END, no_match)
    queue.units.pop()
    assert replace(selection, tags_codes=(5,))(queue)[0][3:] == (RecordStatus.END, removing)
    assert replace(selection, tags_codes=(1,))(queue)[0][3:] == (RecordStatus.END, removing)


@pytest.mark.parametrize(
    ("unit", "status"),
    [
        (UNWRITTEN, KernelStatus.NO_UNIT),
        ((-1, 100, 1), KernelStatus.BAD_UNIT),
        ((-(2**63), 100, 1), KernelStatus.BAD_UNIT),
        ((4096, 0, 1), KernelStatus.BAD_UNIT),
        ((4096, -5, 1), KernelStatus.BAD_UNIT),
        ((2**63 - 50, 100, 1), KernelStatus.BAD_UNIT),
        ((4095, 100, 1), KernelStatus.OTHER_SEGMENT),
        ((8192, 100, 1), KernelStatus.OTHER_SEGMENT),
        ((2**62, 100, 1), KernelStatus.OTHER_SEGMENT),
        ((4097, 100, 1), RecordStatus.BAD_MAGIC),
        ((5500, 100, 1), RecordStatus.INCOMPLETE),
    ],
)
def test_select_stops_at_a_unit_without_a_record(unit: tuple[int, int, int], status: int) -> None:
    queue = mixed_queue()
    queue.units[2] = unit
    answer, _ = Selection()(queue)
    assert (answer[0], answer[1], answer[3]) == (40, 2, status)


def test_select_stops_at_a_torn_or_missing_record() -> None:
    queue = mixed_queue()
    third = queue.units[2][0] - queue.base_offset
    for log_stop in (third, third + 1, third + 8, third + 50, queue.units[3][0] - 4097):
        answer, _ = Selection(log_stop=log_stop)(queue)
        assert (answer[0], answer[1], answer[3]) == (40, 2, RecordStatus.INCOMPLETE), log_stop
    queue.log[third : third + 8] = bytes(8)
    assert Selection()(queue)[0][3] == RecordStatus.EMPTY
    left = queue.segment_nbytes - third
    queue.log[third : third + 8] = formats.BLANK.struct.pack(left, formats.BLANK_MAGIC)
    assert Selection()(queue)[0][3] == KernelStatus.MISMATCH


def test_select_checks_the_body_only_on_request() -> None:
    queue = Queue()
    queue.add(body=b"hello")
    at = queue.log.index(b"hello")
    queue.log[at] ^= 1
    assert Selection()(queue)[0][1:4:2] == (0, RecordStatus.BAD_BODY_CRC)
    assert Selection(flags=0)(queue)[0][1:4:2] == (1, RecordStatus.END)


@pytest.mark.parametrize(
    "changes",
    [
        {"topic": b"Topix"},
        {"topic": b"Topic1"},
        {"topic": b"Topi"},
        {"queue_id": 2},
        {"queue_id": 3 + 2**32},
        {"queue_offset": 1},
    ],
)
def test_a_record_of_another_queue_is_never_selected(changes: dict[str, Any]) -> None:
    queue = mixed_queue()
    assert Selection(**changes)(queue)[0] == (0, 0, 0, KernelStatus.MISMATCH, 0)
    # A light queue's unit names a record of another topic; the caller looks at its properties.
    assert replace(Selection(**changes), topic=b"")(queue)[0][1] == 7


def test_a_record_that_is_in_no_queue_is_never_selected() -> None:
    for kind in (formats.SYS_FLAG_TRANSACTION_PREPARED, formats.SYS_FLAG_TRANSACTION_ROLLBACK):
        queue = Queue()
        queue.add(sys_flag=kind)
        assert Selection()(queue)[0][1:4:2] == (0, KernelStatus.MISMATCH)


@pytest.mark.parametrize("change", [-1, 1])
def test_the_units_size_must_be_the_records(change: int) -> None:
    queue = mixed_queue()
    offset, size, code = queue.units[0]
    queue.units[0] = (offset, size + change, code)
    assert Selection()(queue)[0] == (0, 0, 0, KernelStatus.MISMATCH, 0)


def test_a_record_with_nuls_in_its_properties_is_delivered() -> None:
    queue = Queue()
    queue.add(properties=b"k\x01a\0b\x02")
    assert Selection()(queue)[0][1:4:2] == (1, RecordStatus.END)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"log_stop": 4097}, "log_stop 4097 is outside a buffer of 4096 bytes"),
        ({"log_stop": -1}, "log_stop -1 is outside"),
        ({"queue_offset": -1}, "queue_offset -1 leaves no queue offsets"),
        ({"queue_offset": 2**63 - 7}, "leaves no queue offsets for 7 units"),
        ({"selected_count": -1}, "selected_count -1 .* is out of range"),
        ({"selected_nbytes": 2**63 - 1}, "selected_nbytes .* is out of range"),
        ({"position": 10}, "not a multiple of 20"),
    ],
)
def test_select_refuses_what_makes_no_sense(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Selection(**changes)(mixed_queue())
    for base_offset, nbytes in ((-1, 4096), (4096, 0)):
        with pytest.raises(ValueError, match="no segment from"):
            Selection(log_stop=0)(Queue(base_offset, nbytes))


# --- Golden -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GoldenStore:
    """The queue and log files of a golden store, by path and by offset."""

    queues: dict[tuple[str, int], dict[int, bytes]]
    log: dict[int, bytes]
    log_file_nbytes: int
    queue_file_nbytes: int


@cache
def golden_store(name: str) -> GoldenStore:
    geometry = golden_stores.geometry(name)
    with TemporaryDirectory() as directory:
        root = golden_stores.unpack(name, Path(directory))
        queues: dict[tuple[str, int], dict[int, bytes]] = {}
        for path in sorted((root / "consumequeue").glob("*/*/*")):
            key = (path.parent.parent.name, int(path.parent.name))
            queues.setdefault(key, {})[int(path.name)] = path.read_bytes()
        log = {int(path.name): path.read_bytes() for path in (root / "commitlog").iterdir()}
    return GoldenStore(queues, log, geometry.commit_log_nbytes, geometry.consume_queue_nbytes)


PLAIN = golden_stores.names("plain-")


def queue_end(store: GoldenStore, topic: str, queue_id: int) -> int:
    """Units of a queue, from its last file."""
    files = store.queues[topic, queue_id]
    first = max(files)
    arguments = (files[first], 0, len(files[first]), -1, WHOLE)
    position, _, _ = both("consume_queue", "scan_units", *arguments)
    return (first + position) // 20


@pytest.mark.parametrize("name", PLAIN)
def test_scan_walks_every_golden_queue(name: str) -> None:
    store = golden_store(name)
    log_end = max(store.log) + store.log_file_nbytes
    for files in store.queues.values():
        last_end = -1
        for number, (first, content) in enumerate(sorted(files.items())):
            arguments = (content, 0, len(content), last_end, log_end)
            position, last_end, status = both("consume_queue", "scan_units", *arguments)
            if number < len(files) - 1 or position == len(content):
                assert (position, status) == (len(content), RecordStatus.END), first
            else:
                assert status == KernelStatus.NO_UNIT
                assert not any(content[position:])
            copy, room = bytearray(len(content)), columns([UNWRITTEN] * (position // 20))
            assert both("consume_queue", "read_units", content, 0, position, *room) == len(room[0])
            assert both("consume_queue", "put_units", copy, 0, *room) == len(room[0])
            assert copy == content


def get_message(name: str, ask: dict[str, Any]) -> tuple[list[int], int]:
    """RocketMQ's loop over one queue file, with the kernel for each log file it touches."""
    store = golden_store(name)
    end = queue_end(store, ask["topic"], ask["queueId"])
    nbytes = store.queue_file_nbytes
    first = ask["offset"] * 20 // nbytes * nbytes
    content = store.queues[ask["topic"], ask["queueId"]][first]
    stop = min(end * 20 - first, nbytes)
    position, selected, found = ask["offset"] * 20 - first, 0, []
    tags = [tag.strip().encode() for tag in ask["tags"].split("||")]
    codes = array("q", [REFERENCE.message.string_hash_code(tag) for tag in tags])
    wanted = None if ask["tags"] in ("", "*") else codes
    while position < stop:
        offset = UNIT.unpack_from(content, position)[0]
        base = offset - offset % store.log_file_nbytes
        log, out = store.log[base], bytearray(64 * formats.SELECTED_MESSAGE.nbytes)
        following, rows, added, status, _ = both(
            "consume_queue",
            "select_messages",
            content,
            position,
            stop,
            (first + position) // 20,
            log,
            len(log),
            base,
            base + len(log),
            0,
            ask["topic"].encode(),
            ask["queueId"],
            wanted,
            None,
            min(ask["max"], 32),
            262144,
            0,
            8,
            65536,
            selected,
            len(found),
            CHECK_CRC,
            out,
        )
        table = list(formats.SELECTED_MESSAGE.struct.iter_unpack(out))[:rows]
        found += [base + row[0] for row in table]
        assert [row[1] for row in table] == sorted(row[1] for row in table)
        position, selected = following, selected + added
        if status != KernelStatus.OTHER_SEGMENT:
            assert status in (RecordStatus.END, KernelStatus.LIMIT)
            break
    return found, (first + position) // 20


@pytest.mark.parametrize("name", PLAIN)
def test_golden_gets_are_answered_as_rocketmq_did(name: str) -> None:
    asked = 0
    for step in golden_stores.questions(name):
        if step.op != "get" or step.answer["status"] not in ("FOUND", "NO_MATCHED_MESSAGE"):
            continue
        ask = {"max": 32, "tags": "", **step.ask}
        offsets, following = get_message(name, ask)
        assert offsets == [message["offset"] for message in step.answer["messages"]], ask
        assert following == step.answer["next"], ask
        asked += 1
    assert asked > 50
