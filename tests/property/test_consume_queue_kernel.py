"""Queue kernels on any bytes: both bodies agree, and nothing is selected that is not there."""

from __future__ import annotations

from array import array

from hypothesis import given, settings
from hypothesis import strategies as st

from rocketstore import formats
from rocketstore.status import KernelStatus, RecordFlags, RecordStatus
from support.kernel_bodies import REFERENCE, both

UNIT = formats.CONSUME_QUEUE_UNIT.struct
int64 = st.one_of(st.integers(-3, 600), st.integers(-(2**63), 2**63 - 1))
int32 = st.one_of(st.integers(-3, 600), st.sampled_from([2**31 - 1, -(2**31)]))
tags = st.sampled_from([0, 1, -1, formats.MAX_EXT_ADDRESS, 2**40])
unit = st.one_of(
    st.just((0, 0, 0)),
    st.just((0, formats.FILLER_UNIT_SIZE, 0)),
    st.tuples(st.integers(0, 600), st.integers(1, 200), tags),
    st.tuples(int64, int32, tags),
)
some_units = st.lists(unit, max_size=12)


def packed(units: list[tuple[int, int, int]], ragged: bytes = b"") -> bytearray:
    return bytearray(b"".join(UNIT.pack(*each) for each in units) + ragged)


@settings(max_examples=150, deadline=None)
@given(some_units, st.binary(max_size=19), int64, int64, int64)
def test_ranges_agree(
    units: list[tuple[int, int, int]], ragged: bytes, last_end: int, log_end: int, offset: int
) -> None:
    file = packed(units, ragged)
    size = len(file)
    position, end, status = both("consume_queue", "scan_units", file, 0, size, last_end, log_end)
    assert position % 20 == 0
    assert (status == RecordStatus.END) == (position == 20 * len(units))
    assert end <= max(last_end, log_end)
    found = both("consume_queue", "find_unit", file, 0, size, offset)
    assert found % 20 == 0
    assert 0 <= found <= 20 * len(units)


@settings(max_examples=100, deadline=None)
@given(some_units, st.lists(tags, max_size=4), st.integers(0, 12))
def test_filter_equals_a_list_comprehension(
    units: list[tuple[int, int, int]], codes: list[int], skip: int
) -> None:
    file, position = packed(units), 20 * min(skip, len(units))
    out = array("q", bytes(8 * len(units)))
    arguments = (file, position, len(file), array("q", codes), out)
    hits = both("consume_queue", "filter_units", *arguments)
    nothing = ((0, 0, 0), (0, formats.FILLER_UNIT_SIZE, 0))
    expected = [
        number
        for number, each in enumerate(units[position // 20 :])
        if each[2] in codes and each not in nothing
    ]
    assert out[:hits].tolist() == expected


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(int64, int32, int64), max_size=12), st.integers(0, 5), st.binary())
def test_columns_round_trip(units: list[tuple[int, int, int]], skip: int, content: bytes) -> None:
    file = bytearray(content)
    position = 20 * min(skip, len(file) // 20)
    columns = [array(code, (unit[at] for unit in units)) for at, code in enumerate("qiq")]
    written = both("consume_queue", "put_units", file, position, *columns)
    assert written == min(len(units), (len(file) - position) // 20)
    room = [array(column.typecode, bytes(column.itemsize * len(units))) for column in columns]
    read = both("consume_queue", "read_units", file, position, position + 20 * written, *room)
    assert read == written
    assert [room_column[:read] for room_column in room] == [c[:written] for c in columns]


BASE = 1000
SEGMENT_NBYTES = 2000


def log_records() -> tuple[bytes, list[tuple[int, int, int]]]:
    """A short log of mixed records of one queue, and the queue's true units."""
    log, units = b"", []
    kinds = (
        ("10.0.0.1:1", "10.0.0.2:2", 0, b"TAGS\x01a\x02", 1),
        ("[2001:db8::1]:1", "10.0.0.2:2", formats.SYS_FLAG_TRANSACTION_COMMIT, b"", 2),
        ("[2001:db8::1]:1", "[2001:db8::2]:2", 0, b"k\x01\0v\x02", 1),
        ("10.0.0.1:1", "10.0.0.2:2", formats.SYS_FLAG_TRANSACTION_PREPARED, b"", 1),
        ("10.0.0.1:1", "[2001:db8::2]:2", 0, b"TAGS\x01a\x02KEYS\x01b\x02", 2),
        ("10.0.0.1:1", "10.0.0.2:2", 0, b"", 1),
    )
    for number, (born_host, store_host, sys_flag, properties, version) in enumerate(kinds):
        offset = BASE + len(log)
        record = REFERENCE.message.encode_record(
            "T", b"b" * number, 0, number, offset, 0, sys_flag, 1, born_host, 2, store_host, 0, 0,
            properties, version,
        )  # fmt: skip
        units.append((offset, len(record), number % 3 - 1))
        log += record
    return log, units


LOG, UNITS = log_records()
small = st.integers(-2, 10)
sizes = st.one_of(st.integers(-2, 700), st.sampled_from([2**62, -(2**62)]))
true_or_any_unit = st.one_of(st.sampled_from(UNITS), unit)


@settings(max_examples=300, deadline=None)
@given(
    units=st.one_of(st.just(UNITS), st.lists(true_or_any_unit, max_size=10)),
    first=st.sampled_from([0, 0, 0, 1, 2**40]),
    log_stop=st.one_of(st.just(len(LOG)), st.integers(0, SEGMENT_NBYTES)),
    damage=st.lists(st.tuples(st.integers(0, len(LOG) - 1), st.integers(1, 255)), max_size=2),
    min_offset=st.sampled_from([0, 0, BASE, BASE + 200, 2**63 - 1, -(2**63)]),
    codes=st.one_of(st.none(), st.lists(tags, max_size=3)),
    limits=st.tuples(small, sizes, st.sampled_from([0, BASE + 300, 2**63 - 1]), small, sizes),
    selected=st.tuples(st.integers(0, 500), st.integers(0, 10)),  # bytes, messages
    topic=st.sampled_from([b"T", b"T", b"T", b"", b"U", b"TT"]),
    flags=st.sampled_from([0, int(RecordFlags.CHECK_BODY_CRC)]),
    room=st.integers(0, 8),
)
def test_select_agrees_and_names_only_real_records(
    units: list[tuple[int, int, int]],
    first: int,
    log_stop: int,
    damage: list[tuple[int, int]],
    min_offset: int,
    codes: list[int] | None,
    limits: tuple[int, int, int, int, int],
    selected: tuple[int, int],
    topic: bytes,
    flags: int,
    room: int,
) -> None:
    log = bytearray(LOG.ljust(SEGMENT_NBYTES, b"\0"))
    for at, mask in damage:
        log[at] ^= mask
    file, out = packed(units), bytearray(room * formats.SELECTED_MESSAGE.nbytes)
    wanted = None if codes is None else array("q", codes)
    position, rows, nbytes, status, _ = both(
        "consume_queue", "select_messages", file, 0, len(file), first, log, log_stop, BASE,
        BASE + SEGMENT_NBYTES, min_offset, topic, 0, wanted, None, *limits, *selected, flags, out,
    )  # fmt: skip
    assert 0 <= position <= len(file)
    assert (status == RecordStatus.END) == (position == len(file))
    table = [*formats.SELECTED_MESSAGE.struct.iter_unpack(out)][:rows]
    assert nbytes == sum(row[3] for row in table)
    if rows > 1:
        assert selected[1] + rows <= max(limits[0], limits[3], 1)
    for at, queue_offset, code, size, _ in table:
        unit_number = queue_offset - first
        assert units[unit_number] == (BASE + at, size, code)
        assert at + size <= log_stop
        judged = REFERENCE.message.check_record(
            log, at, log_stop, BASE, BASE + SEGMENT_NBYTES, flags
        )
        assert judged[1] == size
    if status == KernelStatus.OTHER_SEGMENT:
        assert not BASE <= units[position // 20][0] < BASE + SEGMENT_NBYTES
