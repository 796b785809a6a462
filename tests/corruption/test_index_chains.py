"""Damaged index chains: every walk ends, with what is real and a status that says so."""

from __future__ import annotations

import mmap
import random
import sys
import time
from array import array
from pathlib import Path

import pytest

from rocketstore import formats
from rocketstore.status import KernelStatus, RecordStatus
from support.kernel_bodies import NATIVE, both

SLOTS, ENTRIES = 4, 64
STORED = 1_700_000_000_000
FOREVER = 2**63 - 1
KEY = b"topic#key"
KEY_HASH = NATIVE.index_file.key_hash(KEY)


def chain_of(count: int) -> bytearray:
    """``count`` messages of one key; entry n holds offset 100 n."""
    file = bytearray(formats.index_file_nbytes(SLOTS, ENTRIES))
    for number in range(1, count + 1):
        put = (KEY, 100 * number, STORED + number)
        assert both("index_file", "put_key", file, SLOTS, ENTRIES, *put)
    return file


def set_previous(file: bytearray, number: int, previous: int) -> None:
    at = formats.index_file_nbytes(SLOTS, number) + formats.INDEX_ENTRY.at("previous_index")
    file[at : at + 4] = previous.to_bytes(4, "big", signed=True)


def set_slot(file: bytearray, value: int) -> None:
    at = formats.INDEX_HEADER.nbytes + KEY_HASH % SLOTS * formats.INDEX_SLOT.nbytes
    file[at : at + 4] = value.to_bytes(4, "big", signed=True)


def set_count(file: bytearray, count: int) -> None:
    at = formats.INDEX_HEADER.at("index_count")
    file[at : at + 4] = count.to_bytes(4, "big", signed=True)


def answers(file: bytearray) -> tuple[list[int], int]:
    """What all three ways to look the key up say; they must agree."""
    place = (file, SLOTS, ENTRIES)
    selected = both("index_file", "select_offsets", *place, KEY, 1000, 0, FOREVER)
    walked = both("index_file", "walk_key", *place, KEY, 0, FOREVER)
    assert selected == walked
    keys, offsets = array("q", bytes(8 * ENTRIES)), array("q", bytes(8 * ENTRIES))
    hashes = array("i", [KEY_HASH])
    arguments = (*place, hashes, 0, FOREVER, keys, offsets, 0)
    hits, following, status = both("index_file", "lookup", *arguments)
    assert (offsets[:hits].tolist(), status) == walked
    assert following == 1
    return walked


def test_a_chain_that_turns_back_ends() -> None:
    """a -> b -> a: RocketMQ walks it for ever. Each entry is returned once."""
    file = chain_of(5)
    set_previous(file, 3, 5)
    assert answers(file) == ([500, 400, 300], KernelStatus.BAD_CHAIN)
    assert both("index_file", "check_entries", file, SLOTS, ENTRIES, FOREVER) == (
        2,
        KernelStatus.BAD_ENTRY,
    )
    assert both("index_file", "contradictions", file, SLOTS, ENTRIES) > 0


def test_an_entry_that_names_itself_ends_its_chain() -> None:
    """RocketMQ itself writes such an entry, in a slot ahead of its header, and stops there."""
    file = chain_of(5)
    set_previous(file, 3, 3)
    assert answers(file) == ([500, 400, 300], KernelStatus.OK)
    assert both("index_file", "check_entries", file, SLOTS, ENTRIES, FOREVER)[0] == 2


@pytest.mark.parametrize("count", [0, -1, -(2**31)])
def test_a_count_below_one_is_an_empty_file(count: int) -> None:
    file = chain_of(5)
    set_count(file, count)
    assert answers(file) == ([], KernelStatus.OK)
    assert both("index_file", "read_header", file)[5] == 1
    # Its slots say that something was there.
    checked = both("index_file", "check_entries", file, SLOTS, ENTRIES, FOREVER)
    assert checked == (0, KernelStatus.BAD_ENTRY)


@pytest.mark.parametrize("count", [ENTRIES + 1, 2**31 - 1])
def test_a_count_beyond_the_file_reads_nothing_outside(count: int) -> None:
    file = chain_of(5)
    set_count(file, count)
    assert answers(file) == ([500, 400, 300, 200, 100], KernelStatus.OK)
    for outside in (ENTRIES, count):
        set_slot(file, outside)
        assert answers(file) == ([], KernelStatus.BAD_CHAIN)
        set_slot(file, 5)
        set_previous(file, 4, outside)
        assert answers(file) == ([500, 400], KernelStatus.BAD_CHAIN)
        set_previous(file, 4, 3)
    assert both("index_file", "check_entries", file, SLOTS, ENTRIES, FOREVER) == (
        5,
        KernelStatus.BAD_ENTRY,
    )
    assert both("index_file", "contradictions", file, SLOTS, ENTRIES) > 0


@pytest.mark.parametrize("value", [7, 2**31 - 1, -1, -(2**31)])
def test_a_slot_beyond_the_count_is_empty(value: int) -> None:
    file = chain_of(5)
    set_slot(file, value)
    assert answers(file) == ([], KernelStatus.OK)
    assert both("index_file", "contradictions", file, SLOTS, ENTRIES) > 0
    checked = both("index_file", "check_entries", file, SLOTS, ENTRIES, FOREVER)
    assert checked == (5, KernelStatus.BAD_ENTRY)


@pytest.mark.parametrize("lost", ["header", "slots"])
def test_what_a_kill_or_a_power_failure_leaves_is_detected_and_repaired(lost: str) -> None:
    """After a kill in mid-batch the header lags the slots; after a power failure the slots may lag.

    Each entry by itself is good then. But the next puts would treat a slot beyond the count as
    empty, and would lose every older key of its chain.
    """
    before, after = chain_of(5), chain_of(9)
    file = bytearray(after)
    start = formats.INDEX_HEADER.nbytes
    end = formats.index_file_nbytes(SLOTS, 0)
    if lost == "header":
        file[:start] = before[:start]
    else:
        file[start:end] = before[start:end]
    kept, expected = (5, before) if lost == "header" else (9, after)
    checked = both("index_file", "check_entries", file, SLOTS, ENTRIES, FOREVER)
    assert checked == (kept, KernelStatus.BAD_ENTRY)
    both("index_file", "rebuild", file, SLOTS, ENTRIES, kept, (STORED + 1, STORED + kept))
    assert file == expected
    checked = both("index_file", "check_entries", file, SLOTS, ENTRIES, FOREVER)
    assert checked == (kept, KernelStatus.OK)


@pytest.mark.parametrize("previous", [-1, -(2**31)])
def test_a_negative_number_ends_a_chain(previous: int) -> None:
    file = chain_of(5)
    set_previous(file, 3, previous)
    assert answers(file) == ([500, 400, 300], KernelStatus.OK)
    assert both("index_file", "check_entries", file, SLOTS, ENTRIES, FOREVER)[0] == 2


def test_a_negative_time_ends_a_chain() -> None:
    file = chain_of(5)
    at = formats.index_file_nbytes(SLOTS, 3) + formats.INDEX_ENTRY.at("time_diff")
    file[at] = 0x80
    assert answers(file) == ([500, 400], KernelStatus.BAD_CHAIN)


@pytest.mark.parametrize("nbytes", [0, 40, formats.index_file_nbytes(SLOTS, ENTRIES) - 1])
def test_a_short_file_is_refused(nbytes: int) -> None:
    file = chain_of(5)[:nbytes]
    with pytest.raises(ValueError, match="does not fit"):
        both("index_file", "walk_key", file, SLOTS, ENTRIES, KEY, 0, FOREVER)


def test_every_single_damaged_byte_leaves_real_offsets_only() -> None:
    whole = chain_of(12)
    generator = random.Random(20)
    for at in range(formats.index_file_nbytes(SLOTS, 13)):
        file = bytearray(whole)
        file[at] ^= generator.choice((0x01, 0x80, 0xFF))
        found, _ = both("index_file", "walk_key", file, SLOTS, ENTRIES, KEY, 0, FOREVER)
        assert len(found) == len(set(found)) <= 13
        written = {
            formats.INDEX_ENTRY.struct.unpack_from(file, formats.index_file_nbytes(SLOTS, n))[1]
            for n in range(ENTRIES)
        }
        assert written.issuperset(found)
        both("index_file", "check_entries", file, SLOTS, ENTRIES, 5000)
        both("index_file", "contradictions", file, SLOTS, ENTRIES)


def test_work_is_bounded_by_the_file() -> None:
    """One chain holds all of 200,000 entries, then every slot names its newest."""
    slots, entries = 100_000, 200_001
    file = bytearray(formats.index_file_nbytes(slots, entries))
    hashes = array("i", bytes(4 * (entries - 1)))
    numbers = array("q", range(entries - 1))
    assert NATIVE.index_file.put_hashes(file, slots, entries, hashes, numbers, numbers) == 200_000
    began = time.monotonic()
    assert NATIVE.index_file.contradictions(file, slots, entries) == 0
    start, end = formats.INDEX_HEADER.nbytes, formats.index_file_nbytes(slots, 0)
    file[start:end] = formats.INDEX_SLOT.struct.pack(200_000) * slots
    assert NATIVE.index_file.contradictions(file, slots, entries) == slots - 1
    assert NATIVE.index_file.contradictions(file, slots // 2, entries + slots // 10) > slots // 2
    assert time.monotonic() - began < 5


@pytest.mark.skipif(sys.platform == "win32", reason="a mapped file cannot be shortened there")
def test_a_shortened_file_is_an_error_not_a_signal(tmp_path: Path) -> None:
    """The native bodies survive what would be a SIGBUS."""
    path = tmp_path / "file"
    slots, entries = 5000, 5000
    path.write_bytes(bytes(formats.index_file_nbytes(slots, entries)))
    with path.open("r+b") as stream, mmap.mmap(stream.fileno(), 0) as file:
        place = (file, slots, entries)
        stream.truncate(0)
        index, queue = NATIVE.index_file, NATIVE.consume_queue
        hashes, one = array("i", [1]), array("q", [1])
        for call in (
            lambda: index.read_header(file),
            lambda: index.init_header(file, 1, 1),
            lambda: index.key_hash(memoryview(file)[5:50]),
            lambda: index.put_key(*place, KEY, 0, 0),
            lambda: index.put_hashes(*place, hashes, one, one),
            lambda: index.select_offsets(*place, KEY, 1, 0, FOREVER),
            lambda: index.walk_key(*place, KEY, 0, FOREVER),
            lambda: index.rebuild(*place, 0, (0, 0)),
            lambda: index.contradictions(*place),
            lambda: queue.put_units(file, 0, one, hashes, one),
            lambda: queue.fill_units(file, 0, 100),
            lambda: queue.read_units(file, 0, 100, one, hashes, one),
            lambda: queue.find_unit(file, 0, 100, 1),
            lambda: queue.filter_units(file, 0, 20, one, one),
        ):
            with pytest.raises(OSError, match="the mapped file was shortened"):
                call()
        fault = RecordStatus.FAULT
        assert index.check_entries(*place, 100) == (0, fault)
        assert index.lookup(*place, hashes, 0, FOREVER, one, one, 0) == (0, 0, fault)
        assert queue.scan_units(file, 40, 100, 7, 100) == (40, 7, fault)
        out = bytearray(formats.SELECTED_MESSAGE.nbytes)
        limits = (32, 2**20, 0, 32, 2**20, 0, 0, 1)
        log = (bytes(100), 100, 0, 100, 0)
        selected = queue.select_messages(file, 0, 100, 0, *log, b"T", 0, None, None, *limits, out)
        assert selected == (0, 0, 0, fault, 0)
        units = formats.CONSUME_QUEUE_UNIT.struct.pack(100, 100, 0) * 2
        mapped = (file, len(file), 0, len(file), 0)
        selected = queue.select_messages(
            units, 0, 40, 0, *mapped, b"T", 0, None, None, *limits, out
        )
        assert selected == (0, 0, 0, fault, 0)
