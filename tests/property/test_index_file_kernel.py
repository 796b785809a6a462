"""Index kernels on any puts and any bytes: both bodies agree, and the facts of a good file hold."""

from __future__ import annotations

from array import array

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rocketstore import formats
from rocketstore.status import KernelStatus
from support.kernel_bodies import NATIVE, both

STORED = 1_700_000_000_000
any_int64 = st.integers(-(2**63), 2**63 - 1)
times = st.one_of(st.integers(STORED - 5000, STORED + 20_000), any_int64)
geometries = st.tuples(st.integers(1, 9), st.integers(1, 20))
keys = st.sampled_from([b"t#%d" % number for number in range(6)] + ["é#\U0001f600".encode(), b""])
puts = st.lists(st.tuples(keys, st.integers(0, 400), times), max_size=25)


def build(geometry: tuple[int, int], preset: tuple[int, int], rows: list) -> bytearray:
    """A file with the puts that fit, at rising offsets."""
    file = bytearray(formats.index_file_nbytes(*geometry))
    both("index_file", "init_header", file, *preset)
    for number, (key, step, stored) in enumerate(rows):
        offset = 1000 * number + step
        fits = both("index_file", "put_key", file, *geometry, key, offset, stored)
        assert fits == (number < geometry[1] - 1)
    return file


@settings(max_examples=120, deadline=None)
@given(geometries, st.tuples(times, st.integers(-1, 9)), puts, times, times)
def test_puts_agree_and_everything_put_is_found(
    geometry: tuple[int, int], preset: tuple[int, int], rows: list, begin: int, end: int
) -> None:
    file = build(geometry, preset, rows)
    kept = rows[: geometry[1] - 1]
    offsets = [1000 * number + step for number, (_, step, _) in enumerate(kept)]
    header = both("index_file", "read_header", file)
    assert header[5] == len(kept) + 1
    assert both("index_file", "contradictions", file, *geometry) == 0
    good = both("index_file", "check_entries", file, *geometry, 10**6)
    assert good == (len(kept), KernelStatus.OK)
    for key in {key for key, _, _ in kept}:
        mine = [offset for offset, row in zip(offsets, kept, strict=True) if row[0] == key]
        found, status = both("index_file", "walk_key", file, *geometry, key, -(2**63), 2**63 - 1)
        assert status == KernelStatus.OK
        # Times so far apart that a difference was clamped may lie anywhere; others are all there.
        if all(abs(stored - kept[0][2]) < 10**12 and kept[0][2] > 0 for _, _, stored in kept):
            assert [offset for offset in found if offset in mine] == mine[::-1]
        both("index_file", "walk_key", file, *geometry, key, begin, end)
        both("index_file", "select_offsets", file, *geometry, key, 3, begin, end)


@settings(max_examples=120, deadline=None)
@given(geometries, puts, st.integers(-3000, 20_000), st.integers(0, 20_000))
def test_walk_key_misses_no_message_of_a_time_range(
    geometry: tuple[int, int], rows: list, since: int, length: int
) -> None:
    """Whatever the clock did, every message stored in the range is among the hits."""
    rows = [row for row in rows if abs(row[2] - STORED) < 10**9]
    file = build(geometry, (0, 0), rows)
    begin, end = STORED + since, STORED + since + length
    for number, (key, step, stored) in enumerate(rows[: geometry[1] - 1]):
        if begin <= stored <= end:
            found, _ = both("index_file", "walk_key", file, *geometry, key, begin, end)
            assert 1000 * number + step in found


@settings(max_examples=100, deadline=None)
@given(geometries, puts, st.integers(0, 25), st.binary(max_size=60))
def test_rebuild_gives_the_file_that_stopped_there(
    geometry: tuple[int, int], rows: list, keep: int, rubbish: bytes
) -> None:
    keep = min(keep, len(rows), geometry[1] - 1)
    shorter = build(geometry, (0, 0), rows[:keep])
    file = build(geometry, (0, 0), rows)
    later = formats.index_file_nbytes(geometry[0], keep + 1)
    file[later : later + len(rubbish)] = rubbish[: len(file) - later]
    stored = (rows[0][2], rows[keep - 1][2]) if keep else (0, 0)
    both("index_file", "rebuild", file, *geometry, keep, stored)
    assert file == shorter


@st.composite
def hostile_files(draw: st.DrawFn) -> tuple[bytearray, int, int]:
    """A file of small numbers, half of them plausible, with a geometry that fits."""
    slots, entries = draw(geometries)
    numbers = st.integers(-2, entries + 2) | st.sampled_from([2**31 - 1, -(2**31)])
    file = bytearray(formats.index_file_nbytes(slots, entries) + draw(st.integers(0, 30)))
    begin = draw(times)
    formats.INDEX_HEADER.struct.pack_into(
        file, 0, begin, begin + 1 if begin < 2**62 else 0, draw(st.integers(0, 9)),
        draw(st.integers(0, 9)), draw(numbers), draw(numbers),
    )  # fmt: skip
    for slot in range(slots):
        at = formats.INDEX_HEADER.nbytes + slot * formats.INDEX_SLOT.nbytes
        formats.INDEX_SLOT.struct.pack_into(file, at, draw(numbers))
    hashes = st.sampled_from([NATIVE.index_file.key_hash(b"t#0"), 0, 1, slots, -1])
    diffs = st.sampled_from([0, 0, 1, 5, -1, 2**31 - 1])
    offsets = st.integers(0, 9) | any_int64
    for number in range(entries):
        at = formats.index_file_nbytes(slots, number)
        row = (draw(hashes), draw(offsets), draw(diffs), draw(numbers))
        formats.INDEX_ENTRY.struct.pack_into(file, at, *row)
    return file, slots, entries


@settings(max_examples=200, deadline=None)
@given(hostile_files(), times, times, st.integers(-1, 30), st.integers(0, 12))
def test_hostile_files_agree(
    hostile: tuple[bytearray, int, int], begin: int, end: int, cap: int, room: int
) -> None:
    file, slots, entries = hostile
    pair = (slots, entries)
    both("index_file", "read_header", file)
    both("index_file", "check_entries", file, *pair, 100)
    contradictions = both("index_file", "contradictions", file, *pair)
    assert 0 <= contradictions <= 4 + slots + 2 * entries + len(file) // 20
    selected, _ = both("index_file", "select_offsets", file, *pair, b"t#0", cap, begin, end)
    assert len(selected) <= max(0, min(cap, entries))
    walked, status = both("index_file", "walk_key", file, *pair, b"t#0", begin, end)
    assert len(walked) < entries + 1
    hashes = array("i", [NATIVE.index_file.key_hash(b"t#0"), 0, 1])
    out = array("q", bytes(8 * room)), array("q", bytes(8 * room))
    hits, following, looked = both("index_file", "lookup", file, *pair, hashes, begin, end, *out, 0)
    assert following > 0 or len(walked) > room
    if following > 0:
        assert out[1][: len(walked)].tolist() == walked
        assert looked == KernelStatus.BAD_CHAIN or status == KernelStatus.OK
    assert out[0][:hits].tolist() == sorted(out[0][:hits])


@settings(max_examples=100, deadline=None)
@given(hostile_files(), keys, st.integers(0, 20), times)
def test_puts_into_and_rebuilds_of_hostile_files_agree(
    hostile: tuple[bytearray, int, int], key: bytes, count: int, stored: int
) -> None:
    file, slots, entries = hostile
    both("index_file", "put_key", file, slots, entries, key, 7, stored)
    hashes = array("i", [0, 1, 2, 2**31 - 1])
    offsets = array("q", [8, 9, 10, 11])
    both(
        "index_file", "put_hashes", file, slots, entries, hashes, offsets, array("q", [stored] * 4)
    )
    assume(count < entries)
    kept = (formats.index_file_nbytes(slots, number) for number in range(1, count + 1))
    if all(file[at] < 128 for at in kept):
        both("index_file", "rebuild", file, slots, entries, count, (stored, stored))
        assert both("index_file", "read_header", file)[5] == count + 1
        assert both("index_file", "contradictions", file, slots, entries) == 0
