"""Kernels of BatchConsumeQueue units, both bodies: write, scan, search; examples and any bytes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golden import golden_stores
from rocketstore import formats
from rocketstore.status import KernelStatus, RecordStatus
from support.kernel_bodies import Bodies, both

LAYOUT = formats.BATCH_QUEUE_UNIT
UNIT, NBYTES = LAYOUT.struct, LAYOUT.nbytes
BASE_AT, TIME_AT = LAYOUT.at("base_offset"), LAYOUT.at("store_timestamp")
MODULE = "batch_consume_queue"
WHOLE = 2**63 - 1

Unit = tuple[int, int, int, int, int, int]


def packed(*units: Unit, ragged: bytes = b"") -> bytearray:
    return bytearray(b"".join(UNIT.pack(*unit, -1, 0) for unit in units) + ragged)


def chain(count: int) -> list[Unit]:
    """Good units: records of 100 bytes and more, batches of 1, 2, 3 ... messages."""
    units, offset, base = [], 0, 0
    for number in range(count):
        units.append((offset, 100 + number, number, 1000 + 10 * number, base, 1 + number))
        offset, base = offset + 150 + number, base + 1 + number
    return units


def scan(file: bytearray, *args: int) -> Any:
    return both(MODULE, "scan_units", file, 0, len(file), *args)


def test_units_are_written_as_rocketmq_writes_them(tmp_path: Path) -> None:
    root = golden_stores.unpack("inner-5.3.3", tmp_path)
    for path in sorted((root / "batchconsumequeue" / "BCQ").glob("*/*")):
        expected = path.read_bytes()
        file = bytearray(len(expected))
        written = [row for row in UNIT.iter_unpack(expected) if row[1]]
        assert written
        for number, row in enumerate(written):
            both(MODULE, "put_unit", file, number * NBYTES, *row[:6])
        assert file == expected
        count = len(written)
        assert scan(file, -1, 0, WHOLE) == (
            count * NBYTES,
            written[-1][0] + written[-1][1],
            written[-1][4] + written[-1][5],
            KernelStatus.NO_UNIT,
        )


def test_put_writes_one_unit_and_nothing_else() -> None:
    file = bytearray(b"\xff" * (3 * NBYTES + 5))
    both(MODULE, "put_unit", file, NBYTES, 7, 8, -9, 10, 11, 12)
    assert file[:NBYTES] == b"\xff" * NBYTES
    assert UNIT.unpack(file[NBYTES : 2 * NBYTES]) == (7, 8, -9, 10, 11, 12, -1, 0)
    assert file[2 * NBYTES :] == b"\xff" * (NBYTES + 5)


@pytest.mark.parametrize(
    ("position", "change", "error", "text"),
    [
        (46, {}, ValueError, "no room"),
        (92, {}, ValueError, "not within"),
        (-46, {}, ValueError, "not within"),
        (20, {}, ValueError, "multiple of 46"),
        (0, {1: 2**31}, OverflowError, "size 2147483648"),
        (0, {1: -(2**31) - 1}, OverflowError, "size"),
        (0, {5: 2**15}, OverflowError, "batch_size 32768"),
        (0, {0: 2**63}, OverflowError, "too large"),
    ],
)
def test_put_refuses(
    position: int, change: dict[int, int], error: type[Exception], text: str
) -> None:
    values = [change.get(number, number + 1) for number in range(6)]
    file = bytearray(NBYTES + 45)
    with pytest.raises(error, match=text):
        both(MODULE, "put_unit", file, position, *values)
    assert file == bytes(NBYTES + 45)


def test_a_file_that_may_not_be_written_is_refused() -> None:
    with pytest.raises(BufferError, match="not writable"):
        both(MODULE, "put_unit", bytes(NBYTES), 0, 1, 2, 3, 4, 5, 6)


def test_scan_walks_good_units_to_the_end() -> None:
    units = chain(5)
    assert scan(packed(*units), -1, 0, WHOLE) == (
        5 * NBYTES,
        units[4][0] + 104,
        15,
        RecordStatus.END,
    )
    assert scan(packed(*units, ragged=b"x" * 45), -1, 0, WHOLE)[0] == 5 * NBYTES
    assert scan(bytearray(), 9, 8, WHOLE) == (0, 9, 8, RecordStatus.END)


@pytest.mark.parametrize(
    ("field", "value"),
    [(0, -1), (0, 0), (1, 0), (1, -5), (4, -1), (4, 0), (5, 0), (5, -1), (0, WHOLE), (4, WHOLE)],
)
def test_scan_stops_at_a_bad_unit(field: int, value: int) -> None:
    units = chain(5)
    bad = list(units[3])
    bad[field] = value
    file = packed(*units[:3], tuple(bad), units[4])
    end = units[2][0] + units[2][1]
    assert scan(file, -1, 0, WHOLE) == (3 * NBYTES, end, 6, KernelStatus.BAD_UNIT)


def test_scan_stops_at_the_log_end_and_at_zeros() -> None:
    units = chain(3)
    end = units[2][0] + units[2][1]
    assert scan(packed(*units), -1, 0, end)[3] == RecordStatus.END
    position, _, following, status = scan(packed(*units), -1, 0, end - 1)
    assert (position, following, status) == (2 * NBYTES, 3, KernelStatus.BAD_UNIT)
    assert scan(packed(*units, ragged=bytes(NBYTES)), -1, 0, end)[3] == KernelStatus.NO_UNIT


def test_scan_continues_from_the_file_before() -> None:
    units = chain(6)
    second = packed(*units[3:])
    _, last_end, following, _ = scan(packed(*units[:3]), -1, 0, WHOLE)
    assert scan(second, last_end, following, WHOLE)[3] == RecordStatus.END
    assert scan(second, units[3][0] + 1, following, WHOLE)[0] == 0
    assert scan(second, last_end, units[3][4] + 1, WHOLE)[0] == 0


def test_search_finds_the_first_unit_that_is_not_less() -> None:
    units = chain(7)
    file = packed(*units)
    for field, at in ((0, 0), (4, BASE_AT), (3, TIME_AT)):
        values = [unit[field] for unit in units]
        for value in [number + step for number in values for step in (-1, 0, 1)]:
            expected = sum(number < value for number in values) * NBYTES
            assert both(MODULE, "search_units", file, 0, len(file), at, value) == expected
    assert both(MODULE, "search_units", file, 92, 138, 0, 2**62) == 138
    assert both(MODULE, "search_units", file, 92, 92, 0, 0) == 92
    for field_at in (-1, NBYTES - 7):
        with pytest.raises(ValueError, match="no int64"):
            both(MODULE, "search_units", file, 0, 46, field_at, 0)
    with pytest.raises(ValueError, match="not within"):
        both(MODULE, "search_units", file, 0, len(file) + 1, 0, 0)


# --- a file that is shortened while it is mapped ----------------------------------------------


@contextmanager
def shortened(kernels: Bodies, path: Path, content: bytes) -> Iterator[Any]:
    path.write_bytes(content)
    fd = os.open(path, os.O_RDWR)
    try:
        mapping = kernels.mapping.Mapping(fd, len(content), True)
        os.ftruncate(fd, 0)
        yield mapping
        os.ftruncate(fd, len(content))
        mapping.close()
    finally:
        os.close(fd)


def test_a_shortened_file_is_an_outcome(tmp_path: Path) -> None:
    native = Bodies("native")
    kernel = native.batch_consume_queue
    with shortened(native, tmp_path / "units", bytes(packed(*chain(200)))) as mapping:
        size = 200 * NBYTES
        assert kernel.scan_units(mapping, 0, size, -1, 0, WHOLE) == (0, -1, 0, RecordStatus.FAULT)
        with pytest.raises(OSError, match="shortened"):
            kernel.read_unit(mapping, 46)
        with pytest.raises(OSError, match="shortened"):
            kernel.search_units(mapping, 0, size, 0, 5)
        with pytest.raises(OSError, match="shortened"):
            kernel.put_unit(mapping, 0, 1, 2, 3, 4, 5, 6)


# --- any bytes --------------------------------------------------------------------------------

int64 = st.one_of(st.integers(-3, 600), st.integers(-(2**63), 2**63 - 1))
int32 = st.one_of(st.integers(-3, 600), st.sampled_from([2**31 - 1, -(2**31)]))
int16 = st.one_of(st.integers(-2, 4), st.sampled_from([2**15 - 1, -(2**15)]))
unit = st.one_of(
    st.just((0, 0, 0, 0, 0, 0)),
    st.tuples(
        *(st.integers(0, 600), st.integers(1, 90), int64, int64),
        *(st.integers(0, 30), st.integers(1, 4)),
    ),
    st.tuples(int64, int32, int64, int64, int64, int16),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(unit, max_size=8), st.binary(max_size=45), int64, int64, int64, int64)
def test_both_bodies_agree_on_any_units(
    units: list[Unit], ragged: bytes, last_end: int, following: int, log_end: int, value: int
) -> None:
    file = packed(*units, ragged=ragged)
    position, end, base, status = scan(file, last_end, following, log_end)
    assert position % NBYTES == 0
    assert (status == RecordStatus.END) == (position == NBYTES * len(units))
    assert end >= last_end
    assert base >= following or position == 0
    for at in (0, TIME_AT, BASE_AT):
        found = both(MODULE, "search_units", file, 0, len(file), at, value)
        assert 0 <= found <= NBYTES * len(units)


@settings(max_examples=100, deadline=None)
@given(unit, st.integers(0, 3))
def test_what_was_put_is_read_back(values: Unit, number: int) -> None:
    file = bytearray(3 * NBYTES)
    if number == 3:
        with pytest.raises(ValueError, match="no room"):
            both(MODULE, "put_unit", file, number * NBYTES, *values)
        return
    both(MODULE, "put_unit", file, number * NBYTES, *values)
    assert UNIT.unpack_from(file, number * NBYTES) == (*values, -1, 0)
    assert both(MODULE, "read_unit", file, number * NBYTES) == (*values, -1, 0)


@settings(max_examples=100, deadline=None)
@given(st.binary(min_size=NBYTES, max_size=NBYTES), st.integers(-1, 3))
def test_any_unit_is_read(content: bytes, number: int) -> None:
    file = bytearray(NBYTES) + content + bytearray(NBYTES - 1)
    if number not in (0, 1):
        with pytest.raises(ValueError, match=r"no unit|not within"):
            both(MODULE, "read_unit", file, number * NBYTES)
        return
    expected = UNIT.unpack_from(file, number * NBYTES)
    assert both(MODULE, "read_unit", file, number * NBYTES) == expected
