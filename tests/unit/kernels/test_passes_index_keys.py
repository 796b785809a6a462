"""The pass that gathers index keys: the keys that dispatch puts, in any windows, in both bodies."""

from __future__ import annotations

import struct
from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketstore import formats
from rocketstore.status import RecordFlags, RecordStatus
from support.kernel_bodies import NATIVE, REFERENCE, Bodies, both
from support.record_factory import V4, V6, make_log
from support.record_rows import changed, rows_of
from support.reput_store import MemoryStore

MARK = -(2**31)
FAR = 2**62
TEXTS = st.sampled_from([b"", b"a", b"key-7", b"x" * 40, "標籤".encode(), b"\xff\xfe", b"a b"])


def properties(*pairs: tuple[str, bytes]) -> bytes:
    return b"".join(name.encode() + b"\x01" + value + b"\x02" for name, value in pairs)


def records() -> st.SearchStrategy[list[dict[str, Any]]]:
    return st.lists(
        st.fixed_dictionaries(
            {
                "topic": st.sampled_from([b"TopicA", "Tœ".encode(), b"..", b"t" * 100]),
                "body": st.sampled_from([b"", b"body" * 9]),
                "version": st.sampled_from([1, 2]),
                "born_host": st.sampled_from([V4, V6]),
                "sys_flag": st.sampled_from([0, 4, 8, 12]),
                "store_timestamp": st.integers(1_700_000_000_000, 1_700_000_900_000),
                "properties": st.lists(
                    st.tuples(st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "OTHER"]), TEXTS),
                    max_size=5,
                ).map(lambda pairs: properties(*pairs)),
            }
        ),
        min_size=1,
        max_size=12,
    )


def gathered(
    body: Bodies, log: bytes, windows: list[int] | None = None, **options: Any
) -> list[tuple[int, int, int]]:
    """The keys of a whole log that lies at offset 0, read in windows that begin at each place."""
    keys = body.passes_index_keys.IndexKeysPass(**options)
    found: list[tuple[int, int, int]] = []
    position = 0
    for stop in (*(windows or ()), len(log)):
        while True:
            start = position
            status, at = keys.consume(log[start:stop], 0, stop - start, start, len(log), FAR, 1)
            position = start + at
            if status != RecordStatus.FULL:
                break
            found += zip(*keys.take(), strict=True)
        assert status == (RecordStatus.END if position == stop else RecordStatus.INCOMPLETE)
        assert keys.next_offset == position
    assert position == len(log)
    return found + list(zip(*keys.take(), strict=True))


def dispatched(log: bytes, index_tags: bool) -> list[tuple[int, int]]:
    """Hash and offset of the entries that the dispatcher puts for the log."""
    store = MemoryStore(NATIVE, index_tags=index_tags)
    assert store.dispatch(log) == (len(log), RecordStatus.END)
    return [entry[:2] for entry in store.entries_put()]


@given(rows=records(), index_tags=st.booleans(), data=st.data())
def test_the_keys_are_those_that_dispatch_puts(
    rows: list[dict[str, Any]], index_tags: bool, data: st.DataObject
) -> None:
    log = make_log(*({"queue_offset": n, "queue_id": n, **row} for n, row in enumerate(rows)))
    places = data.draw(st.lists(st.integers(0, len(log)), max_size=4).map(sorted))
    native = gathered(NATIVE, log, places, index_tags=index_tags)
    assert native == gathered(REFERENCE, log, index_tags=index_tags)
    assert [key[:2] for key in native] == dispatched(log, index_tags)
    for body in (NATIVE, REFERENCE):
        keys = body.passes_index_keys.IndexKeysPass(index_tags=index_tags, counts_only=True)
        assert keys.consume(log, 0, len(log), 0, len(log), FAR, 0) == (RecordStatus.END, len(log))
        assert keys.take_count() == len(native)
        assert keys.records == sum(row["topic"] != b".." for row in rows)


def test_tag_keys_are_marked(kernels: Bodies) -> None:
    log = make_log({"properties": properties(("TAGS", b"TagA"), ("KEYS", b"k"))})
    key, tag = gathered(kernels, log, mark_tags=True)
    assert key[0] == kernels.index_file.key_hash(b"TopicA#k")
    assert tag[0] - MARK == kernels.index_file.key_hash(b"TopicA#T#TagA")
    assert tag[1:] == (0, 1_700_000_000_123)


def test_records_after_the_limit_are_left_to_others(kernels: Bodies) -> None:
    log = make_log({}, {}, {})
    size = len(log) // 3
    keys = kernels.passes_index_keys.IndexKeysPass()
    for limit, taken in ((size, 1), (size + 1, 2), (2 * size, 2)):
        status, position = keys.consume(log, 0, len(log), 0, len(log), limit, 0)
        assert (status, position) == (RecordStatus.END, taken * size)
        assert len(keys.take()[0]) == 2 * taken
    assert keys.consume(log, size, len(log), 0, len(log), 5, 0) == (RecordStatus.END, size)


def test_what_follows_is_reported(kernels: Bodies) -> None:
    record = make_log({})
    blank = struct.pack(">ii", 16, formats.BLANK_MAGIC) + bytes(8)
    for following, status in (
        (blank, RecordStatus.BLANK),
        (bytes(16), RecordStatus.EMPTY),
        (b"x" * 16, RecordStatus.BAD_MAGIC),
    ):
        log = record + following
        keys = kernels.passes_index_keys.IndexKeysPass()
        assert keys.consume(log, 0, len(log), 0, len(log), FAR, 0) == (status, len(record))
        assert keys.count == 2
    bad_crc = bytearray(record)
    bad_crc[record.index(b"hello")] ^= 1
    keys = kernels.passes_index_keys.IndexKeysPass()
    flags = RecordFlags.CHECK_BODY_CRC
    answer = keys.consume(bad_crc, 0, len(record), 0, len(record), FAR, flags)
    assert answer == (RecordStatus.BAD_BODY_CRC, 0)
    assert keys.consume(bad_crc, 0, len(record), 0, len(record), FAR, 0)[0] == RecordStatus.END


def test_a_full_pass_loses_no_key(kernels: Bodies) -> None:
    """Records with as many keys as there can be, one after the other, fill the smallest pass."""
    most = kernels.passes_index_keys.MAX_RECORD_KEYS
    many = properties(("KEYS", b" ".join([b"k"] * 9000)), ("TAGS", b"t"))
    log = make_log(*[{"properties": many, "version": 2}] * 4)
    found = gathered(kernels, log, capacity=most)
    assert len(found) == 4 * 9001
    assert [key[1] for key in found] == sorted(key[1] for key in found)
    keys = kernels.passes_index_keys.IndexKeysPass(counts_only=True, capacity=9001)
    size = len(log) // 4
    assert keys.consume(log, 0, len(log), 0, len(log), FAR, 0) == (RecordStatus.FULL, size)
    assert (keys.take_count(), keys.next_offset) == (9001, size)


# --- the keys of rows -----------------------------------------------------------------------------


def keys_of_rows(body: Bodies, log: bytes, rows: bytes, **options: Any) -> list[Any]:
    keys = body.passes_index_keys.IndexKeysPass(**options)
    found: list[Any] = []
    row, count = 0, len(rows) // formats.PARSED_RECORD.nbytes
    while True:
        row = keys.consume_rows(log, rows, row)
        if row == count:
            break
        found += zip(*keys.take(), strict=True)
    return [*found, *zip(*keys.take(), strict=True), keys.records]


@given(rows=records(), index_tags=st.booleans(), mark_tags=st.booleans())
def test_rows_have_the_keys_of_their_records(
    rows: list[dict[str, Any]], index_tags: bool, mark_tags: bool
) -> None:
    log = make_log(*rows)
    parsed = rows_of(log, RecordFlags.PARSE_PROPERTIES)
    for body in (NATIVE, REFERENCE):
        keys = body.passes_index_keys.IndexKeysPass(index_tags=index_tags, mark_tags=mark_tags)
        keys.consume(log, 0, len(log), 0, len(log), FAR, 0)
        wanted = [*zip(*keys.take(), strict=True), keys.records]
        found = keys_of_rows(body, log, parsed, index_tags=index_tags, mark_tags=mark_tags)
        assert found == wanted


def test_rows_of_many_keys_fill_a_pass(kernels: Bodies) -> None:
    most = kernels.passes_index_keys.MAX_RECORD_KEYS
    many = properties(("KEYS", b" ".join([b"k"] * 9000)), ("TAGS", b"t"))
    log = make_log(*[{"properties": many, "version": 2}] * 4)
    rows = rows_of(log, RecordFlags.PARSE_PROPERTIES)
    assert keys_of_rows(kernels, log, rows, capacity=most) == [*gathered(kernels, log), 4]


def test_a_record_that_was_overwritten_has_no_keys(kernels: Bodies) -> None:
    log = bytearray(make_log({}, {}))
    rows = rows_of(bytes(log), RecordFlags.PARSE_PROPERTIES)
    log[:4] = bytes(4)
    *found, count = keys_of_rows(kernels, bytes(log), rows)
    assert (found, count) == (gathered(kernels, make_log({}, {}))[2:], 1)


@pytest.mark.parametrize("name", ["topic", "unique_key", "keys", "tags"])
@pytest.mark.parametrize(
    ("part", "value"), [("at", 2**31 - 1), ("nbytes", -1), ("nbytes", 32767), ("nbytes", 32768)]
)
def test_rows_of_another_buffer(kernels: Bodies, name: str, part: str, value: int) -> None:
    pairs = properties(("UNIQ_KEY", b"u"), ("KEYS", b"k"), ("TAGS", b"t"))
    log = make_log({"properties": pairs}, {"properties": pairs})
    rows = changed(rows_of(log, RecordFlags.PARSE_PROPERTIES), 1, f"{name}_{part}", value)
    keys = kernels.passes_index_keys.IndexKeysPass()
    with pytest.raises(ValueError, match=f"texts of row 1 do not lie within {len(log)} bytes"):
        keys.consume_rows(log, rows)
    assert (keys.count, keys.records) == (3, 1)


def test_wrong_rows(kernels: Bodies) -> None:
    keys = kernels.passes_index_keys.IndexKeysPass()
    rows = rows_of(log := make_log({}, {}), RecordFlags.PARSE_PROPERTIES)
    with pytest.raises(ValueError, match="must be whole rows of 144 bytes, not 287 bytes"):
        keys.consume_rows(log, rows[:-1])
    for first in (-1, 3):
        with pytest.raises(ValueError, match=f"first must be within 2 rows, not {first}"):
            keys.consume_rows(log, rows, first)
    with pytest.raises(ValueError, match="texts of row 0"):
        keys.consume_rows(log, changed(rows, 0, "position", -1))
    assert keys.consume_rows(log, rows, 2) == 2
    assert keys.count == 0


def test_wrong_arguments(kernels: Bodies) -> None:
    module = kernels.passes_index_keys
    with pytest.raises(ValueError, match=f"capacity 5 is below {module.MAX_RECORD_KEYS}"):
        module.IndexKeysPass(capacity=5)
    with pytest.raises(ValueError, match="capacity 0 is below 1"):
        module.IndexKeysPass(capacity=0, counts_only=True)
    with pytest.raises(ValueError, match="only counts"):
        module.IndexKeysPass(counts_only=True).take()
    keys = module.IndexKeysPass()
    with pytest.raises(ValueError, match="do not lie in order within 10 bytes"):
        keys.consume(bytes(10), 0, 11, 0, 100, FAR, 0)
    with pytest.raises(ValueError, match="base_offset -1"):
        keys.consume(bytes(10), 0, 10, -1, 100, FAR, 0)


BEGIN = 1_700_000_000_000
ENTRY = st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 1))


@given(
    entries=st.lists(ENTRY, max_size=6),
    keys=st.lists(st.tuples(ENTRY, st.booleans()), max_size=6),
    start=st.integers(0, 7),
)
def test_entries_and_keys_are_stepped_through_alike(
    entries: list[tuple[int, int, int]],
    keys: list[tuple[tuple[int, int, int], bool]],
    start: int,
) -> None:
    packed = b"".join(formats.INDEX_ENTRY.struct.pack(*entry, 0) for entry in entries)
    hashes = array("i", [key[0] + (MARK if marked else 0) for key, marked in keys])
    offsets = array("q", [key[1] for key, _ in keys])
    times = array("q", [BEGIN + 1000 * key[2] for key, _ in keys])
    arguments = (packed, start, hashes, offsets, times, 0, BEGIN)
    if start > len(entries):
        with pytest.raises(ValueError, match="is outside"):
            both("passes_index_keys", "match_entries", *arguments)
        return
    entry, key = both("passes_index_keys", "match_entries", *arguments)
    passed = [n for n in range(key) if not keys[n][1] or keys[n][0] in entries[start:entry]]
    assert entry - start <= key
    assert set(entries[start:entry]) == {keys[n][0] for n in passed}


def test_matching_stops_where_they_part(kernels: Bodies) -> None:
    log = make_log(*[{"properties": properties(("KEYS", b"a b"), ("TAGS", b"t"))}] * 3)
    keys = kernels.passes_index_keys.IndexKeysPass(mark_tags=True)
    keys.consume(log, 0, len(log), 0, len(log), FAR, 0)
    hashes, offsets, times = keys.take()
    rows = [(h % 2**31, o, 0, 0) for h, o in zip(hashes, offsets, strict=True) if h >= 0 or o > 0]
    entries = b"".join(formats.INDEX_ENTRY.struct.pack(*row) for row in rows)
    match = kernels.passes_index_keys.match_entries
    arrays = (hashes, offsets, times)
    assert match(entries, 0, *arrays, 0, times[0]) == (8, 9)
    assert match(entries, 0, *arrays, 0, 0) == (8, 9)
    assert match(entries, 0, *arrays, 0, times[0] - 999) == (8, 9)
    assert match(entries, 0, *arrays, 0, times[0] - 1000) == (0, 0)
    assert match(entries[20:], 0, *arrays, 0, 0) == (0, 0)
    assert match(entries[20:], 0, *arrays, 1, 0) == (7, 9)
    with pytest.raises(ValueError, match="differ in length: 9, 8, 9"):
        match(entries, 0, hashes, offsets[1:], times, 0, 0)
