"""Index-file kernels of both bodies: RocketMQ's bytes, its answers, and the exact ways."""

from __future__ import annotations

import itertools
import sys
from array import array
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golden import golden_stores
from rocketstore import formats
from rocketstore.status import KernelStatus
from support.kernel_bodies import NATIVE, REFERENCE, both

SLOTS, ENTRIES = 50, 1000
FIRST_STORED = 1_700_000_000_000
FOREVER = 2**63 - 1
#: The keys of one message on 5.5.0: text, key hash, slot of 50.
WORKED_KEYS = (
    (b"TopicA#0A09080700002A9F0000000000000001", 0x78D8E0F7, 37),
    (b"TopicA#order-1", 0x00B8A701, 27),
    (b"TopicA#order-2", 0x00B8A702, 28),
    (b"TopicA#T#TagA", 0x72BBCF67, 1),
)


def new_file(slots: int = SLOTS, entries: int = ENTRIES) -> bytearray:
    return bytearray(formats.index_file_nbytes(slots, entries))


def put(file: bytearray, key: bytes, offset: int, stored: int, slots=SLOTS, entries=ENTRIES):
    return both("index_file", "put_key", file, slots, entries, key, offset, stored)


def slot(file: bytearray, number: int) -> int:
    return formats.INDEX_SLOT.struct.unpack_from(
        file, formats.INDEX_HEADER.nbytes + number * formats.INDEX_SLOT.nbytes
    )[0]


def entry_at(number: int, slots: int = SLOTS) -> int:
    return formats.index_file_nbytes(slots, number)


def entry(file: bytearray, number: int, slots: int = SLOTS) -> tuple[int, int, int, int]:
    return formats.INDEX_ENTRY.struct.unpack_from(file, entry_at(number, slots))


# --- Put ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "key_hash"),
    [
        *((key, key_hash) for key, key_hash, _ in WORKED_KEYS),
        (b"TopicA#T#x y", 0x5F64CC8F),
        (b"TopicA#k1", 1903240649),
        (b"Aa", 2112),
        (b"BB", 2112),
        (b"polygenelubricants", 0),
        (b"", 0),
        ("TopicA#\N{GRINNING FACE}é".encode(), None),
    ],
)
def test_key_hash_is_the_absolute_hash_code(text: bytes, key_hash: int | None) -> None:
    if key_hash is None:
        units = memoryview(text.decode().encode("utf-16-le")).cast("H")
        key_hash = 0
        for unit in units:
            key_hash = (31 * key_hash + unit) % 2**32
        key_hash = min(key_hash, 2**32 - key_hash)
    assert both("index_file", "key_hash", text) == key_hash
    assert both("index_file", "key_hash", bytearray(text)) == key_hash


def test_one_message_gives_the_worked_bytes() -> None:
    file = new_file()
    for key, _, _ in WORKED_KEYS:
        assert put(file, key, 0, FIRST_STORED)
    assert both("index_file", "read_header", file) == (FIRST_STORED, FIRST_STORED, 0, 0, 4, 5)
    for number, (_, key_hash, slot_number) in enumerate(WORKED_KEYS, 1):
        assert entry(file, number) == (key_hash, 0, 0, 0)
        assert slot(file, slot_number) == number
    assert put(file, b"TopicA#T#x y", 190, FIRST_STORED)
    assert entry(file, 5) == (0x5F64CC8F, 190, 0, 1)
    assert slot(file, 37) == 5
    assert put(file, b"TopicA#T#p", 316, FIRST_STORED)
    assert slot(file, 0) == 6
    assert both("index_file", "read_header", file)[3:] == (316, 5, 7)


def test_two_messages_give_the_bytes_that_java_accepted() -> None:
    """The small index of two messages with one key in common, as three RocketMQ lines opened it."""
    file = new_file(4, 6)
    unique = b"TopicA#0A0102031A2B18B4AAC20000000A0007"
    assert put(file, unique, 0, 1700000000500, 4, 6)
    assert put(file, b"TopicA#k1", 0, 1700000000500, 4, 6)
    assert put(file, b"TopicA#k1", 512, 1700000003700, 4, 6)
    assert bytes(file) == bytes.fromhex(
        "0000018bcfe569f4 0000018bcfe57674 0000000000000000 0000000000000200 00000002 00000004"
        "00000001 00000003 00000000 00000000"
        + "00"
        * 20
        + "4d090748 0000000000000000 00000000 00000000"
        "717125c9 0000000000000000 00000000 00000000"
        "717125c9 0000000000000200 00000003 00000002" + "00" * 40
    )


def test_the_first_entry_of_a_rolled_file_counts_from_the_preset_time() -> None:
    """RocketMQ measures it before it replaces the begin time (D-2); the bytes are kept."""
    file = new_file()
    both("index_file", "init_header", file, FIRST_STORED, 4096)
    header = (FIRST_STORED, FIRST_STORED, 4096, 4096, 0, 1)
    assert both("index_file", "read_header", file) == header
    assert put(file, b"t#a", 5000, FIRST_STORED + 2500)
    assert put(file, b"t#b", 6000, FIRST_STORED + 4400)
    assert entry(file, 1)[2] == 2
    assert entry(file, 2)[2] == 1
    header = (FIRST_STORED + 2500, FIRST_STORED + 4400, 5000, 6000, 2, 3)
    assert both("index_file", "read_header", file) == header


@pytest.mark.parametrize("value", [0, -1, -(2**63)])
def test_nothing_is_preset_from_a_previous_file_without_a_value(value: int) -> None:
    file = new_file()
    both("index_file", "init_header", file, value, value)
    assert bytes(file) == bytes(len(file))


@pytest.mark.parametrize(
    ("begin", "stored", "diff"),
    [
        (FIRST_STORED, FIRST_STORED + 999, 0),
        (FIRST_STORED, FIRST_STORED + 1000, 1),
        (FIRST_STORED, FIRST_STORED - 1, 0),
        (FIRST_STORED, FIRST_STORED - 5000, 0),
        (1, 2**62, 2**31 - 1),
        (1, -(2**63), 2**31 - 1),  # Java's difference wraps round
        (2**63 - 1, -(2**63), 0),
        (1, 1000 * 2**31 + 1, 2**31 - 1),
        (1, 1000 * (2**31 - 1) + 1, 2**31 - 1),
        (1, 1000 * (2**31 - 1), 2**31 - 2),
        (-5, FIRST_STORED, 0),
    ],
)
def test_time_differences_are_clamped_as_java_does(begin: int, stored: int, diff: int) -> None:
    file = new_file()
    assert put(file, b"t#a", 0, begin)
    assert put(file, b"t#b", 1, stored)
    assert entry(file, 2)[2] == diff


def test_a_file_holds_one_entry_less_than_its_numbers() -> None:
    file = new_file(3, 4)
    for number in range(3):
        assert put(file, b"t#%d" % number, number, FIRST_STORED, 3, 4)
    before = bytes(file)
    assert not put(file, b"t#3", 3, FIRST_STORED, 3, 4)
    assert bytes(file) == before
    assert not put(new_file(1, 1), b"t#0", 0, 0, 1, 1)


@pytest.mark.parametrize("stale", [-1, -(2**31), 2, 2**31 - 1])
def test_a_slot_outside_the_count_is_taken_for_empty(stale: int) -> None:
    file = new_file(1, 8)
    formats.INDEX_SLOT.struct.pack_into(file, formats.INDEX_HEADER.nbytes, stale)
    assert put(file, b"t#a", 7, FIRST_STORED, 1, 8)
    assert entry(file, 1, 1)[3] == 0
    assert both("index_file", "read_header", file)[4:] == (1, 2)


def test_a_damaged_count_of_slots_wraps_and_a_huge_count_is_full() -> None:
    file = new_file()
    formats.INDEX_HEADER.struct.pack_into(file, 0, 0, 0, 0, 0, 2**31 - 1, -7)
    assert put(file, b"t#a", 7, FIRST_STORED)
    assert both("index_file", "read_header", file)[4:] == (-(2**31), 2)
    formats.INDEX_HEADER.struct.pack_into(file, 0, 0, 0, 0, 0, 0, 2**31 - 1)
    assert not put(file, b"t#b", 8, FIRST_STORED)


def test_put_hashes_equals_put_key_for_each() -> None:
    keys = [b"topic#key-%d" % (number % 40) for number in range(120)]
    hashes = array("i", [NATIVE.index_file.key_hash(key) for key in keys])
    offsets = array("q", range(0, 12000, 100))
    stored = array("q", [FIRST_STORED + 333 * number for number in range(120)])
    one_by_one, at_once = new_file(16, 100), new_file(16, 100)
    for row in zip(keys, offsets, stored, strict=True):
        put(one_by_one, *row, 16, 100)
    assert both("index_file", "put_hashes", at_once, 16, 100, hashes, offsets, stored) == 99
    assert at_once == one_by_one
    assert both("index_file", "put_hashes", at_once, 16, 100, hashes, offsets, stored) == 0
    assert at_once == one_by_one


# --- Arguments ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slots", "entries"), [(0, 10), (10, 0), (-1, 10), (2**31, 1), (1, 2**31), (4, 7), (2**62, 9)]
)
def test_a_geometry_that_does_not_fit_is_refused(slots: int, entries: int) -> None:
    file = new_file(4, 6)
    empty = array("q")
    calls = (
        ("put_key", b"k", 0, 0),
        ("put_hashes", array("i"), empty, empty),
        ("select_offsets", b"k", 1, 0, 0),
        ("walk_key", b"k", 0, 0),
        ("lookup", array("i"), 0, 0, empty, empty, 0),
        ("check_entries", 0),
        ("rebuild", 0, (0, 0)),
        ("contradictions",),
    )
    for name, *rest in calls:
        with pytest.raises(ValueError, match="does not fit"):
            both("index_file", name, file, slots, entries, *rest)
    assert file == new_file(4, 6)


@pytest.mark.parametrize("nbytes", [0, 1, 39])
def test_a_header_needs_its_bytes(nbytes: int) -> None:
    with pytest.raises(ValueError, match="cannot hold an index header"):
        both("index_file", "read_header", bytes(nbytes))
    with pytest.raises(ValueError, match="cannot hold an index header"):
        both("index_file", "init_header", bytearray(nbytes), 1, 1)


def test_wrong_arrays_are_refused_before_anything_is_written() -> None:
    file = new_file()
    one, two = array("q", [1]), array("q", [1, 2])
    with pytest.raises(ValueError, match="differ in length: 1, 2, 1"):
        both("index_file", "put_hashes", file, SLOTS, ENTRIES, array("i", [1]), two, one)
    with pytest.raises(ValueError, match="hash -2 at 1 is negative"):
        both("index_file", "put_hashes", file, SLOTS, ENTRIES, array("i", [1, -2]), two, two)
    with pytest.raises(ValueError, match="hashes must hold integers of 4 bytes"):
        both("index_file", "put_hashes", file, SLOTS, ENTRIES, one, one, one)
    with pytest.raises(ValueError, match="start 2 is outside 1 hashes"):
        both("index_file", "lookup", file, SLOTS, ENTRIES, array("i", [1]), 0, 0, one, one, 2)
    with pytest.raises(ValueError, match="differ in length: 1, 2"):
        both("index_file", "lookup", file, SLOTS, ENTRIES, array("i"), 0, 0, one, two, 0)
    with pytest.raises(BufferError):
        both("index_file", "put_key", bytes(file), SLOTS, ENTRIES, b"k", 0, 0)
    with pytest.raises(OverflowError):
        both("index_file", "put_key", file, SLOTS, ENTRIES, b"k", 2**63, 0)
    assert file == new_file()


def test_arrays_may_lie_at_odd_addresses() -> None:
    file = new_file()
    room = bytearray(17)
    keys, offsets = memoryview(room)[1:9], memoryview(room)[9:]
    put(file, b"t#a", 77, FIRST_STORED)
    hashes = memoryview(b"\0" + array("i", [NATIVE.index_file.key_hash(b"t#a")]).tobytes())[1:]
    answer = NATIVE.index_file.lookup(file, SLOTS, ENTRIES, hashes, 0, FOREVER, keys, offsets, 0)
    assert answer == (1, 1, KernelStatus.OK)
    assert memoryview(bytes(offsets)).cast("q")[0] == 77


# --- Look up ------------------------------------------------------------------------------------


def filled() -> bytearray:
    """Ten messages a second and a half apart, all of one key and one other each."""
    file = new_file()
    for number in range(10):
        stored = FIRST_STORED + 1500 * number
        put(file, b"t#all", 100 * number, stored)
        put(file, b"t#%d" % number, 100 * number, stored)
    return file


def select(file: bytearray, key: bytes, count: int, begin: int, end: int):
    return both("index_file", "select_offsets", file, SLOTS, ENTRIES, key, count, begin, end)


def walk(file: bytearray, key: bytes, begin: int, end: int):
    return both("index_file", "walk_key", file, SLOTS, ENTRIES, key, begin, end)


def test_select_offsets_goes_newest_first_and_stops_at_the_cap() -> None:
    file = filled()
    assert select(file, b"t#all", 64, 0, FOREVER) == (list(range(900, -1, -100)), KernelStatus.OK)
    assert select(file, b"t#all", 3, 0, FOREVER) == ([900, 800, 700], KernelStatus.OK)
    assert select(file, b"t#all", 0, 0, FOREVER) == ([], KernelStatus.OK)
    assert select(file, b"t#all", -1, 0, FOREVER) == ([], KernelStatus.OK)
    assert select(file, b"t#none", 64, 0, FOREVER) == ([], KernelStatus.OK)
    assert select(new_file(), b"t#all", 64, 0, FOREVER) == ([], KernelStatus.OK)


def test_select_offsets_rounds_times_and_walk_key_mends_it() -> None:
    """A record stored at .500 is kept at its full second, so its own exact time misses it (D-3)."""
    file = filled()
    stored = FIRST_STORED + 1500
    assert select(file, b"t#1", 64, stored, stored) == ([], KernelStatus.OK)
    assert select(file, b"t#1", 64, stored - 500, stored) == ([100], KernelStatus.OK)
    assert walk(file, b"t#1", stored, stored) == ([100], KernelStatus.OK)
    assert walk(file, b"t#1", stored + 501, FOREVER) == ([], KernelStatus.OK)
    assert walk(file, b"t#all", stored, stored) == ([100], KernelStatus.OK)
    assert walk(file, b"t#all", stored + 500, stored + 500) == ([100], KernelStatus.OK)
    assert walk(file, b"t#all", stored + 1500, stored + 1500) == ([200], KernelStatus.OK)
    assert walk(file, b"t#all", -(2**63), FOREVER)[0] == list(range(900, -1, -100))


def test_select_offsets_ends_where_the_chain_gets_older_than_begin() -> None:
    """The clock went back for one message: RocketMQ's walk ends there, the exact one goes on."""
    file = new_file()
    for offset, stored in ((0, 10_000), (100, 20_000), (200, 6_000), (300, 30_000)):
        put(file, b"t#k", offset, FIRST_STORED + stored)
    begin = FIRST_STORED + 15_000
    assert select(file, b"t#k", 64, begin, FOREVER) == ([300], KernelStatus.OK)
    assert walk(file, b"t#k", begin, FOREVER) == ([300, 100], KernelStatus.OK)


def test_walk_key_knows_that_entry_one_carries_no_time_of_its_own() -> None:
    """D-2: the first entry of a rolled file says two hours, its message is the file's first."""
    file = new_file()
    both("index_file", "init_header", file, FIRST_STORED, 1)
    put(file, b"t#k", 100, FIRST_STORED + 7_200_000)
    put(file, b"t#k", 200, FIRST_STORED + 7_200_500)
    begin, end = FIRST_STORED + 7_199_000, FIRST_STORED + 7_201_000
    assert select(file, b"t#k", 64, begin, end) == ([200], KernelStatus.OK)
    assert walk(file, b"t#k", begin, end) == ([200, 100], KernelStatus.OK)


def test_walk_key_keeps_what_a_clock_set_back_made_older_than_the_file() -> None:
    file = new_file()
    put(file, b"t#k", 0, FIRST_STORED)
    put(file, b"t#k", 100, FIRST_STORED - 60_000)
    assert entry(file, 2)[2] == 0
    assert walk(file, b"t#k", FIRST_STORED - 60_000, FIRST_STORED - 1) == ([100], KernelStatus.OK)
    unclocked = new_file()
    put(unclocked, b"t#k", 0, 0)
    put(unclocked, b"t#k", 100, FIRST_STORED)
    assert walk(unclocked, b"t#k", FIRST_STORED, FIRST_STORED)[0] == [100]


def test_equal_hashes_are_all_returned() -> None:
    file = new_file()
    put(file, b"t#Aa", 0, FIRST_STORED)
    put(file, b"t#BB", 100, FIRST_STORED)
    assert select(file, b"t#Aa", 64, 0, FOREVER)[0] == [100, 0]
    assert walk(file, b"t#BB", 0, FOREVER)[0] == [100, 0]


def test_a_long_chain_is_collected_whole() -> None:
    file = new_file()
    hashes = array("i", [NATIVE.index_file.key_hash(b"t#k")] * 500)
    offsets, stored = array("q", range(500)), array("q", [FIRST_STORED] * 500)
    both("index_file", "put_hashes", file, SLOTS, ENTRIES, hashes, offsets, stored)
    assert walk(file, b"t#k", 0, FOREVER) == (list(range(499, -1, -1)), KernelStatus.OK)
    assert select(file, b"t#k", 100, 0, FOREVER)[0] == list(range(499, 399, -1))
    assert select(file, b"t#k", 64, 0, FOREVER)[0] == list(range(499, 435, -1))


def lookup_all(file: bytearray, slots: int, entries: int, keys: list[bytes], room: int):
    """Every answer of ``lookup``, called until it is done, with how often it was."""
    hashes = array("i", [NATIVE.index_file.key_hash(key) for key in keys])
    answers: list[list[int]] = [[] for _ in keys]
    start, statuses, calls = 0, set(), 0
    while start < len(hashes):
        out_keys, out_offsets = array("q", bytes(8 * room)), array("q", bytes(8 * room))
        arguments = (file, slots, entries, hashes, 0, FOREVER, out_keys, out_offsets, start)
        hits, following, status = both("index_file", "lookup", *arguments)
        for number, offset in itertools.islice(zip(out_keys, out_offsets, strict=True), hits):
            answers[number].append(offset)
        assert following > start
        start, calls = following, calls + 1
        statuses.add(status)
    return answers, statuses, calls


@pytest.mark.parametrize("room", [40, 64, 1000])
def test_lookup_answers_as_walk_key_in_every_room(room: int) -> None:
    file = new_file(16, 400)
    for number in range(399):
        put(file, b"t#%d" % (number * number % 97), number, FIRST_STORED + number, 16, 400)
    keys = [b"t#%d" % number for number in range(150)] + [b"t#0", b"t#0"]
    expected = [both("index_file", "walk_key", file, 16, 400, key, 0, FOREVER)[0] for key in keys]
    answers, statuses, calls = lookup_all(file, 16, 400, keys, room)
    assert answers == expected
    assert statuses == {KernelStatus.OK}
    assert (calls == 1) == (room == 1000)


def test_lookup_says_when_the_arrays_are_too_small() -> None:
    file = filled()
    hashes = array("i", [NATIVE.index_file.key_hash(b"t#all")])
    room = array("q", bytes(8 * 9))
    arguments = (file, SLOTS, ENTRIES, hashes, 0, FOREVER, room, array("q", room), 0)
    assert both("index_file", "lookup", *arguments) == (0, 0, KernelStatus.OK)
    done = (file, SLOTS, ENTRIES, hashes, 0, FOREVER, room, array("q", room), 1)
    assert both("index_file", "lookup", *done) == (0, 1, KernelStatus.OK)


# --- Check, rebuild, geometry -------------------------------------------------------------------


def test_check_entries_and_contradictions_accept_a_good_file() -> None:
    file = filled()
    assert both("index_file", "check_entries", file, SLOTS, ENTRIES, 901) == (20, KernelStatus.OK)
    assert both("index_file", "contradictions", file, SLOTS, ENTRIES) == 0
    empty = new_file()
    assert both("index_file", "check_entries", empty, SLOTS, ENTRIES, 0) == (0, KernelStatus.OK)
    assert both("index_file", "contradictions", empty, SLOTS, ENTRIES) == 0


def test_check_entries_tells_the_entries_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    numpy = pytest.importorskip("numpy")
    step = 1 << 20
    count, slots = step + 2, step + 8
    header = formats.INDEX_HEADER.struct.pack(1000, 1000, 1, count, count, count + 1)
    numbers = numpy.arange(1, count + 1)
    table = numpy.zeros(slots, ">i4")
    table[1 : count + 1] = numbers
    entries = numpy.zeros(count + 1, formats.INDEX_ENTRY.dtype)
    entries["key_hash"][1:] = entries["physical_offset"][1:] = numbers
    file = header + table.tobytes() + entries.tobytes()
    steps: list[int] = []
    check = NATIVE.index_file.check_entries
    assert check(file, slots, count + 1, 2**40, steps.append) == (count, KernelStatus.OK)
    assert steps == [step]
    assert check(file, slots, count + 1, 2**40) == (count, KernelStatus.OK)

    monkeypatch.setattr(REFERENCE.index_file, "_CHECKED_AT_ONCE", 5)
    steps.clear()
    check = REFERENCE.index_file.check_entries
    assert check(filled(), SLOTS, ENTRIES, 901, steps.append) == (20, KernelStatus.OK)
    assert steps == [5, 10, 15]


def test_check_entries_stops_at_the_log_end() -> None:
    file = filled()
    bad = KernelStatus.BAD_ENTRY
    assert both("index_file", "check_entries", file, SLOTS, ENTRIES, 900) == (18, bad)
    assert both("index_file", "check_entries", file, SLOTS, ENTRIES, 0) == (0, bad)


def test_rebuild_after_truncation_equals_a_file_that_never_grew_further() -> None:
    shorter, file = new_file(), filled()
    for number in range(4):
        stored = FIRST_STORED + 1500 * number
        put(shorter, b"t#all", 100 * number, stored)
        put(shorter, b"t#%d" % number, 100 * number, stored)
    times = (FIRST_STORED, FIRST_STORED + 4500)
    both("index_file", "rebuild", file, SLOTS, ENTRIES, 8, times)
    assert file == shorter


def test_rebuild_to_nothing_zeroes_the_file() -> None:
    file = filled()
    both("index_file", "rebuild", file, SLOTS, ENTRIES, 0, (FIRST_STORED, FIRST_STORED))
    assert file == new_file()


def test_rebuild_trusts_the_caller_about_what_follows_the_content() -> None:
    file, whole = filled(), filled()
    times = (FIRST_STORED, FIRST_STORED + 4500)
    both("index_file", "rebuild", whole, SLOTS, ENTRIES, 8, times)
    both("index_file", "rebuild", file, SLOTS, ENTRIES, 8, times, entry_at(21))
    assert file == whole
    content = bytes(file)
    both("index_file", "rebuild", file, SLOTS, ENTRIES, 8, times, 0)
    assert file == content  # nothing to clear is nothing to do
    for end in (-1, len(file) + 1):
        with pytest.raises(ValueError, match="is outside"):
            both("index_file", "rebuild", file, SLOTS, ENTRIES, 8, times, end)


@pytest.mark.parametrize("count", [0, 1, 60, 61, 62, 63, 64, 65, 300])
def test_check_entries_looks_at_every_slot_of_a_file_with_few_entries(count: int) -> None:
    slots, entries = 1009, 400
    file = bytearray(formats.index_file_nbytes(slots, entries))
    for number in range(count):
        key = b"t#%d" % (number * number % 91)
        assert both("index_file", "put_key", file, slots, entries, key, number, FIRST_STORED)
    place = (slots, entries, 2**62)
    assert both("index_file", "check_entries", file, *place) == (count, KernelStatus.OK)
    layout, first = formats.INDEX_SLOT.struct, formats.INDEX_HEADER.nbytes
    for slot in range(0, slots, 7 if count else 91):
        damaged = bytearray(file)
        (head,) = layout.unpack_from(file, first + 4 * slot)
        layout.pack_into(damaged, first + 4 * slot, head + 1 if slot % 2 else max(head - 1, -1))
        status = KernelStatus.OK if damaged == file else KernelStatus.BAD_ENTRY
        assert both("index_file", "check_entries", damaged, *place) == (count, status)
    used = [slot for slot in range(slots) if layout.unpack_from(file, first + 4 * slot)[0]]
    if used:  # as many slots as before, one of them elsewhere
        moved = bytearray(file)
        free = next(slot for slot in range(slots) if slot not in used)
        moved[first + 4 * free : first + 4 * free + 4] = (7).to_bytes(4, "big")
        moved[first + 4 * used[-1] : first + 4 * used[-1] + 4] = bytes(4)
        expected = (count, KernelStatus.BAD_ENTRY)
        assert both("index_file", "check_entries", moved, *place) == expected


def test_rebuild_refuses_before_it_changes_anything() -> None:
    file = filled()
    formats.INDEX_ENTRY.struct.pack_into(file, entry_at(7), -1, 0, 0, 0)
    before = bytes(file)
    with pytest.raises(ValueError, match="entry 7 has a negative hash"):
        both("index_file", "rebuild", file, SLOTS, ENTRIES, 20, (0, 0))
    for count in (-1, ENTRIES, 2**40):
        with pytest.raises(ValueError, match="cannot keep"):
            both("index_file", "rebuild", file, SLOTS, ENTRIES, count, (0, 0))
    assert file == before


@pytest.mark.skipif(sys.platform == "win32", reason="files have holes only on POSIX systems")
def test_rebuild_keeps_a_sparse_file_sparse(disk_path: Path) -> None:
    import mmap

    path = disk_path / "index"
    nbytes = formats.index_file_nbytes(1000, 400_000)
    with path.open("w+b") as stream:
        stream.truncate(nbytes)
        with mmap.mmap(stream.fileno(), nbytes) as file:
            assert NATIVE.index_file.put_key(file, 1000, 400_000, b"t#k", 0, FIRST_STORED)
            times = (FIRST_STORED, FIRST_STORED)
            NATIVE.index_file.rebuild(file, 1000, 400_000, 1, times)
            file.flush()
    assert path.stat().st_blocks * 512 < nbytes // 8


# --- Golden -------------------------------------------------------------------------------------


@cache
def golden_index(name: str) -> tuple[bytes, ...]:
    """The index files of a golden store, oldest first."""
    with TemporaryDirectory() as directory:
        root = golden_stores.unpack(name, Path(directory))
        return tuple(path.read_bytes() for path in sorted((root / "index").iterdir()))


@cache
def golden_log(name: str) -> tuple[int, int]:
    """First offset and end of the files of the log."""
    with TemporaryDirectory() as directory:
        root = golden_stores.unpack(name, Path(directory))
        files = sorted((root / "commitlog").iterdir())
        return int(files[0].name), int(files[-1].name) + files[-1].stat().st_size


PLAIN = golden_stores.names("plain-")


@pytest.mark.parametrize("name", PLAIN)
def test_golden_files_are_good_and_rebuilt_byte_for_byte(name: str) -> None:
    geometry = golden_stores.geometry(name)
    pair = (geometry.slots, geometry.entries)
    files = golden_index(name)
    assert files
    log_end = golden_log(name)[1]
    for number, content in enumerate(files):
        file = bytearray(content)
        header = both("index_file", "read_header", file)
        count = header[5] - 1
        assert count > 0
        assert (count == geometry.entries - 1) == (number < len(files) - 1)
        good = both("index_file", "check_entries", file, *pair, log_end)
        assert good == (count, KernelStatus.OK)
        assert both("index_file", "contradictions", file, *pair) == 0
        both("index_file", "rebuild", file, *pair, count, header[:2])
        assert file == content


@pytest.mark.parametrize("name", PLAIN)
def test_golden_files_contradict_every_other_geometry_of_their_length(name: str) -> None:
    geometry = golden_stores.geometry(name)
    for content in golden_index(name):
        for fewer in (*range(-150, -1, 7), -10, -5, -1, 1, 2, 5, 9):
            pair = (geometry.slots + 5 * fewer, geometry.entries - fewer)
            if pair[0] < 1 or pair[1] < 1:
                continue
            assert formats.index_file_nbytes(*pair) == len(content)
            assert both("index_file", "contradictions", content, *pair) > 0, pair


@pytest.mark.parametrize("name", PLAIN)
def test_golden_files_are_put_again_byte_for_byte(name: str) -> None:
    """Entries put again in order, each at a time that its difference stands for."""
    geometry = golden_stores.geometry(name)
    pair = (geometry.slots, geometry.entries)
    previous = (0, 0)
    for content in golden_index(name):
        begin, end, _, end_offset, _, count = both("index_file", "read_header", content)
        entries = [entry(bytearray(content), number, pair[0]) for number in range(1, count)]
        stored = [begin] + [begin + 1000 * diff for _, _, diff, _ in entries[1:-1]] + [end]
        file = new_file(*pair)
        both("index_file", "init_header", file, *previous)
        hashes = array("i", [key_hash for key_hash, _, _, _ in entries])
        offsets = array("q", [offset for _, offset, _, _ in entries])
        arguments = (file, *pair, hashes, offsets, array("q", stored))
        assert both("index_file", "put_hashes", *arguments) == count - 1
        assert file == content
        previous = (end, end_offset)


def query_offset(name: str, key: bytes, count: int, begin: int, end: int) -> list[int]:
    """RocketMQ's ``queryOffset`` over the golden files, with the kernel for each file."""
    geometry = golden_stores.geometry(name)
    found: list[int] = []
    for content in reversed(golden_index(name)):
        first, last = both("index_file", "read_header", content)[:2]
        if (begin < first and end > last) or first <= begin <= last or first <= end <= last:
            arguments = (key, count - len(found), begin, end)
            pair = (geometry.slots, geometry.entries)
            offsets, status = both("index_file", "select_offsets", content, *pair, *arguments)
            assert status == KernelStatus.OK
            found += offsets
        if first < begin or len(found) >= count:
            break
    return found


@pytest.mark.parametrize("name", PLAIN)
def test_golden_queries_are_answered_as_rocketmq_did(name: str) -> None:
    asked = 0
    for step in golden_stores.questions(name):
        if step.op != "query":
            continue
        ask = step.ask
        key = f"{ask['topic']}#{ask['key']}".encode()
        times = (ask.get("begin", 0), ask.get("end", FOREVER))
        offsets = query_offset(name, key, min(ask.get("max", 32), 64), *times)
        assert sorted(offsets) == [message["offset"] for message in step.answer["messages"]], ask
        asked += 1
    assert asked > 100


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_hash_alike(text: bytes) -> None:
    assert 0 <= both("index_file", "key_hash", text) < 2**31
