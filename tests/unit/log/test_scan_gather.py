"""Gathering rows of ``scan_records``: both bodies, on records of every kind and on hostile rows."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest

from rocketstore import formats
from rocketstore.status import RecordFlags, RecordStatus
from support.kernel_bodies import both
from support.record_factory import make_log
from support.record_rows import changed, rows_of

COUNTS = (
    *("queued", "records", "nbytes", "newest", "first", "last", "backward", "ghosts"),
    *("nul_properties", "unsafe_topics", "judged_crcs", "rolled_back", "short_bodies", "named"),
)


def gathered(rows: bytes, numbers: list[int]) -> tuple[dict[str, int], list[tuple[int, ...]]]:
    """The counts, and of each gathered row the four numbers, the size and the number."""
    count = len(rows) // formats.PARSED_RECORD.nbytes
    queued, sizes, places = bytearray(32 * count), bytearray(4 * count), bytearray(4 * count)
    packed = struct.pack(f"={len(numbers)}i", *numbers)
    found = both("passes_rows", "gather", rows, packed, queued, sizes, places)
    counts = dict(zip(COUNTS, found, strict=True))
    kept = [
        (*four, *size, *number)
        for four, size, number in zip(
            struct.iter_unpack("=4q", queued),
            struct.iter_unpack("=i", sizes),
            struct.iter_unpack("=i", places),
            strict=True,
        )
    ]
    assert not any(any(one) for one in kept[counts["queued"] :])
    return counts, kept[: counts["queued"]]


def test_rows_with_a_number_are_gathered() -> None:
    records = (
        {"queue_offset": 7 + n, "store_timestamp": 100 - n, "body": b"x" * n} for n in range(4)
    )
    log = make_log(*records)
    rows = rows_of(log)
    size = len(make_log({}))
    counts, kept = gathered(rows, [0, -1, 5, 2**31 - 1])
    sizes = [struct.unpack_from("=i", rows, n * 144 + 52)[0] for n in range(4)]
    offsets = [sum(sizes[:n]) for n in range(4)]
    assert sizes[0] <= size
    assert [one[:2] for one in kept] == [(7, 0), (9, offsets[2]), (10, offsets[3])]
    assert [one[3:] for one in kept] == [
        (100, sizes[0], 0),
        (98, sizes[2], 5),
        (97, sizes[3], 2**31 - 1),
    ]
    assert counts == {
        **dict.fromkeys(COUNTS, 0),
        **{"queued": 3, "records": 4, "nbytes": len(log), "newest": 100, "first": 100, "last": 97},
        **{"backward": 3, "short_bodies": 2},
    }


def test_no_rows() -> None:
    assert gathered(b"", []) == (dict.fromkeys(COUNTS, 0), [])


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"physical_offset": 3}, {"ghosts": 1, "records": 1, "last": 1, "newest": 1}),
        ({"properties": b"X\x01a\x00b\x02"}, {"nul_properties": 1}),
        ({"topic": b"a/b"}, {"unsafe_topics": 1}),
        ({"sys_flag": formats.SYS_FLAG_TRANSACTION_ROLLBACK}, {"rolled_back": 1}),
        ({"sys_flag": formats.SYS_FLAG_TRANSACTION_PREPARED}, {}),
        ({"property_crc": True}, {"judged_crcs": 1}),
        ({"body": b""}, {"short_bodies": 1}),
        ({"body": b"x"}, {"short_bodies": 1}),
        ({"store_timestamp": 0}, {"backward": 1, "last": 0, "newest": 1}),
    ],
)
def test_odd_records_are_counted(record: dict[str, Any], expected: dict[str, int]) -> None:
    body = {"body": b"long"}
    log = make_log({"store_timestamp": 1, **body}, {"store_timestamp": 2, **body, **record})
    counts, kept = gathered(rows_of(log), [4, -1])
    plain = {"queued": 1, "records": 2, "newest": 2, "first": 1, "last": 2}
    nbytes = counts.pop("nbytes")
    assert nbytes == len(log) if not expected.get("ghosts") else nbytes < len(log)
    wanted = {**dict.fromkeys(COUNTS, 0), **plain, **expected}
    del wanted["nbytes"]
    assert counts == wanted
    assert len(kept) == 1


def test_only_gathered_rows_name_other_queues() -> None:
    properties = b"INNER_MULTI_DISPATCH\x01%LMQ%a\x02INNER_MULTI_QUEUE_OFFSET\x010\x02"
    rows = rows_of(make_log({"properties": properties}), RecordFlags.PARSE_PROPERTIES)
    assert gathered(rows, [0])[0]["named"] == 1
    assert gathered(rows, [-1])[0]["named"] == 0


@pytest.mark.parametrize("seed", range(30))
def test_any_numbers_in_rows(seed: int) -> None:
    choose = random.Random(seed)
    rows = rows_of(make_log(*({"queue_offset": number} for number in range(4))))
    names = (
        "store_timestamp",
        "physical_offset",
        "status",
        "sys_flag",
        "total_size",
        "body_nbytes",
    )
    for _ in range(4):
        value = choose.choice((0, 1, -1, 2**31 - 1, -(2**31), int(RecordStatus.UNSAFE_TOPIC)))
        rows = changed(rows, choose.randrange(4), choose.choice(names), value)
    gathered(rows, [choose.choice((-1, 0, 3)) for _ in range(4)])


@pytest.mark.parametrize("place", range(5))
@pytest.mark.parametrize("change", [-1, 1])
def test_room_for_other_rows(place: int, change: int) -> None:
    rows = rows_of(make_log({}, {}))
    sizes = [len(rows), 8, 64, 8, 8]
    sizes[place] += change
    arguments = [bytearray(size) for size in sizes]
    with pytest.raises(ValueError, match=r"bytes for each of \d rows"):
        both("passes_rows", "gather", *arguments)


def test_outputs_must_be_writable() -> None:
    rows = rows_of(make_log({}))
    with pytest.raises((BufferError, TypeError)):
        both("passes_rows", "gather", rows, bytes(4), bytes(32), bytearray(4), bytearray(4))
