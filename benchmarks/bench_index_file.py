"""Index files: put and look up keys, one by one and in batches; whole-file passes; pages resident.

``key_ns`` in a result's extra information is the time of one key (or entry). The file has
RocketMQ's default geometry, 5,000,000 slots in 20 MB, and keys hash all over it; 1,000,000 entries
for the native kernels, 5,000 for the reference.
"""

from __future__ import annotations

import mmap
import random
from array import array
from functools import cache
from typing import Any

import pytest

from rocketstore import formats
from rocketstore.status import KernelStatus
from support.kernel_bodies import NATIVE, Bodies

SLOTS, ENTRIES = 5_000_000, 20_000_000
COUNTS = {"native": 1_000_000, "reference": 5_000}
BODIES = pytest.mark.parametrize("body", COUNTS)
STORED = 1_700_000_000_000
FOREVER = 2**63 - 1
ASKED = 20_000


@cache
def keys(count: int) -> tuple[array, array, array]:
    """Hashes, physical offsets, and store times."""
    pick = random.Random(20)
    hashes = array("i", [pick.getrandbits(31) for _ in range(count)])
    return hashes, array("q", range(0, 200 * count, 200)), array("q", [STORED] * count)


@cache
def empty_file() -> mmap.mmap:
    return mmap.mmap(-1, formats.index_file_nbytes(SLOTS, ENTRIES))


@cache
def filled_file(count: int) -> mmap.mmap:
    file = mmap.mmap(-1, formats.index_file_nbytes(SLOTS, ENTRIES))
    assert NATIVE.index_file.put_hashes(file, SLOTS, ENTRIES, *keys(count)) == count
    for number in range(500):
        key = b"TopicTest#order-%d" % number
        NATIVE.index_file.put_key(file, SLOTS, ENTRIES, key, 200 * number, STORED)
    return file


def report(benchmark: Any, count: int) -> None:
    benchmark.extra_info["keys"] = count
    benchmark.extra_info["key_ns"] = benchmark.stats.stats.median / count * 1e9


@BODIES
def test_put_hashes(benchmark: Any, body: str) -> None:
    count, file = COUNTS[body], empty_file()
    arguments = (file, SLOTS, ENTRIES, *keys(count))

    def reset() -> tuple[tuple[Any, ...], dict[str, Any]]:
        Bodies("native").index_file.rebuild(file, SLOTS, ENTRIES, 0, (0, 0))
        return arguments, {}

    put_hashes = Bodies(body).index_file.put_hashes
    rounds = 7 if body == "native" else 3
    assert benchmark.pedantic(put_hashes, setup=reset, rounds=rounds, warmup_rounds=1) == count
    assert NATIVE.index_file.read_header(file)[5] == count + 1
    report(benchmark, count)


@BODIES
def test_put_key(benchmark: Any, body: str) -> None:
    """One key a call, hashed from its text."""
    file, kernels = empty_file(), Bodies(body).index_file
    NATIVE.index_file.rebuild(file, SLOTS, ENTRIES, 0, (0, 0))
    key = b"TopicTest#0A09080700002A9F0000000000000001"
    assert benchmark(kernels.put_key, file, SLOTS, ENTRIES, key, 0, STORED)
    assert kernels.select_offsets(file, SLOTS, ENTRIES, key, 2, 0, FOREVER)[0] == [0, 0]


@BODIES
def test_lookup(benchmark: Any, body: str) -> None:
    """Half the keys are there; slots and entries lie all over 40 MB."""
    count = COUNTS[body]
    file, kernels = filled_file(COUNTS["native"]), Bodies(body).index_file
    asked = min(ASKED, count)
    pick = random.Random(21)
    known = pick.sample(keys(COUNTS["native"])[0], asked // 2)
    hashes = array("i", known + [pick.getrandbits(31) for _ in range(asked // 2)])
    out = array("q", bytes(16 * asked)), array("q", bytes(16 * asked))
    arguments = (file, SLOTS, ENTRIES, hashes, 0, FOREVER, *out, 0)
    rounds = 15 if body == "native" else 3
    hits, following, status = benchmark.pedantic(kernels.lookup, arguments, rounds=rounds)
    assert hits >= asked // 2
    assert (following, status) == (asked, KernelStatus.OK)
    report(benchmark, asked)


@BODIES
@pytest.mark.parametrize("name", ["select_offsets", "walk_key"])
def test_one_key(benchmark: Any, body: str, name: str) -> None:
    """One key a call, hashed from its text; its chain has one or two entries."""
    file, function = filled_file(COUNTS["native"]), getattr(Bodies(body).index_file, name)
    cap = (64,) if name == "select_offsets" else ()
    arguments = (file, SLOTS, ENTRIES, b"TopicTest#order-7", *cap, 0, FOREVER)
    assert benchmark(function, *arguments) == ([1400], KernelStatus.OK)


@BODIES
def test_check_entries(benchmark: Any, body: str) -> None:
    slots = 50_000 if body == "native" else 1_000
    count, file = small_file(slots)
    check_entries = Bodies(body).index_file.check_entries
    result = benchmark(check_entries, file, slots, 4 * slots, FOREVER)
    assert result == (count, KernelStatus.OK)
    report(benchmark, count)


@BODIES
def test_contradictions(benchmark: Any, body: str) -> None:
    slots = 50_000 if body == "native" else 1_000
    count, file = small_file(slots)
    assert benchmark(Bodies(body).index_file.contradictions, file, slots, 4 * slots) == 0
    report(benchmark, count)


@BODIES
def test_rebuild(benchmark: Any, body: str) -> None:
    slots = 50_000 if body == "native" else 1_000
    count, file = small_file(slots)
    whole = bytes(file)
    arguments = (file, slots, 4 * slots, count, (STORED, STORED))
    benchmark(Bodies(body).index_file.rebuild, *arguments)
    assert file == whole
    report(benchmark, count)


def small_file(slots: int) -> tuple[int, bytearray]:
    """A full file of the default's proportions: four entry numbers a slot."""
    count = 4 * slots - 1
    file = bytearray(formats.index_file_nbytes(slots, 4 * slots))
    assert NATIVE.index_file.put_hashes(file, slots, 4 * slots, *keys(count)) == count
    return count, file
