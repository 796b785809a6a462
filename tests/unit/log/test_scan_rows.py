"""Judging rows of ``scan_records``: both bodies, on records of every kind and on hostile rows."""

from __future__ import annotations

import random
from typing import Any

import pytest

from rocketstore import formats
from rocketstore.status import RecordFlags, RecordStatus
from support.kernel_bodies import NATIVE, REFERENCE, Bodies, both
from support.record_factory import make_log
from support.record_rows import changed, rows_of

ROW = formats.PARSED_RECORD
INNER_BATCH = formats.SYS_FLAG_INNER_BATCH
NEVER, ALWAYS = -(2**63), 2**63 - 1


def summary(*records: dict[str, Any], before: int = NEVER) -> tuple[Any, ...]:
    log = make_log(*records)
    found: tuple[Any, ...] = both("passes_rows", "summarize", log, rows_of(log), before)
    return found


def test_summary_of_good_records() -> None:
    times = ({"store_timestamp": time} for time in (5, 9, 7, 8))
    good, newest, last, previous, end, covered_end, *rest = summary(*times, before=8)
    log = make_log(*({"store_timestamp": time} for time in (5, 9, 7, 8)))
    assert (good, newest, last, previous, end) == (4, 9, 8, 7, len(log))
    assert covered_end == len(make_log(*({"store_timestamp": time} for time in (5, 9, 7))))
    assert rest == [False, False, False, 0]


def test_no_rows_and_one_row() -> None:
    assert both("passes_rows", "summarize", b"", b"", ALWAYS) == (
        *(0, 0, 0, 0, -1, -1),
        *(False, False, False, 0),
    )
    log = make_log({"store_timestamp": -3})
    found = summary({"store_timestamp": -3}, before=ALWAYS)
    assert found == (1, -3, -3, 0, len(log), len(log), False, False, False, 0)
    assert summary({"store_timestamp": -3})[5] == -1


@pytest.mark.parametrize(
    ("record", "good", "odd", "special", "crcs"),
    [
        ({"physical_offset": 3}, 1, True, False, 0),  # a ghost
        ({"properties": b"X\x01a\x00b\x02"}, 1, True, False, 0),
        ({"topic": b"a/b"}, 2, True, False, 0),
        ({"topic": b"SCHEDULE_TOPIC_XXXX"}, 2, False, True, 0),
        ({"topic": b"SCHEDULE_TOPIC_XXXY"}, 2, False, False, 0),
        ({"sys_flag": INNER_BATCH}, 2, False, True, 0),
        ({"property_crc": True}, 2, False, False, 1),
    ],
)
def test_records_that_need_a_second_look(
    record: dict[str, Any], good: int, odd: bool, special: bool, crcs: int
) -> None:
    found = summary({"store_timestamp": 1}, {"store_timestamp": 2, **record}, before=ALWAYS)
    assert (found[0], *found[6:]) == (good, odd, special, False, crcs)
    assert found[1] == found[2] == good


def test_records_that_name_other_queues() -> None:
    log = make_log(
        {}, {"properties": b"INNER_MULTI_DISPATCH\x01%LMQ%a\x02INNER_MULTI_QUEUE_OFFSET\x010\x02"}
    )
    assert not both("passes_rows", "summarize", log, rows_of(log), 0)[8]
    assert both("passes_rows", "summarize", log, rows_of(log, RecordFlags.PARSE_PROPERTIES), 0)[8]


def test_valid_and_invalid_crcs_are_both_seen() -> None:
    log = make_log({"property_crc": True}, {"property_crc": True})
    rows = changed(rows_of(log), 1, "property_crc", 2)
    assert both("passes_rows", "summarize", log, rows, NEVER)[9] == 3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("position", -1), ("position", 2**31 - 1), ("topic_at", -1), ("topic_at", 2**31 - 1)),
        *(("topic_nbytes", -1), ("topic_nbytes", 32768)),
    ],
)
@pytest.mark.parametrize("body", [NATIVE, REFERENCE], ids=repr)
def test_rows_of_another_buffer(body: Bodies, name: str, value: int) -> None:
    log = make_log({}, {})
    rows = changed(rows_of(log), 1, name, value)
    for judge in (
        lambda: body.passes_rows.summarize(log, rows, 0),
        lambda: body.passes_rows.QueueOffsets().follow(log, rows),
        lambda: body.passes_rows.QueueNumbers().number(log, rows, bytearray(8)),
    ):
        with pytest.raises(ValueError, match=f"the topic of row 1 .* within {len(log)} bytes"):
            judge()


def test_half_a_row() -> None:
    with pytest.raises(ValueError, match="whole rows of 144 bytes, not 145 bytes"):
        both("passes_rows", "summarize", b"", bytes(145), 0)


@pytest.mark.parametrize("seed", range(30))
def test_any_numbers_in_rows(seed: int) -> None:
    choose = random.Random(seed)
    log = make_log(*({"queue_offset": number} for number in range(4)))
    rows = rows_of(log)
    for _ in range(4):
        name = choose.choice(("store_timestamp", "physical_offset", "status", "sys_flag"))
        value = choose.choice((0, 1, -1, 2**31 - 1, -(2**31), int(RecordStatus.UNSAFE_TOPIC)))
        rows = changed(rows, choose.randrange(4), name, value)
    both("passes_rows", "summarize", log, rows, choose.choice((0, 1, NEVER, ALWAYS)))
    assert len({_followed(body, log, rows) for body in (NATIVE, REFERENCE)}) == 1


def _followed(body: Bodies, log: bytes, rows: bytes) -> tuple[Any, ...]:
    offsets = body.passes_rows.QueueOffsets()
    return offsets.follow(log, rows), tuple(offsets.ends().items())


@pytest.mark.parametrize("body", [NATIVE, REFERENCE], ids=repr)
def test_queue_offsets(body: Bodies) -> None:
    offsets = body.passes_rows.QueueOffsets()

    def follow(*records: dict[str, Any]) -> bool:
        log = make_log(*records)
        followed: bool = offsets.follow(log, rows_of(log))
        return followed

    a, b = {"topic": b"A", "queue_id": 0}, {"topic": b"A", "queue_id": 256}
    assert follow({**a, "queue_offset": 5}, {**b, "queue_offset": 0}, {**a, "queue_offset": 6})
    known = {("A", 0): 7, ("A", 256): 1}
    assert offsets.ends() == known
    for bad in (
        {**a, "queue_offset": 6},
        {**a, "queue_offset": 8},
        {**a, "queue_offset": 7, "sys_flag": INNER_BATCH},
        {"topic": b"C", "queue_offset": 2**63 - 1},
    ):
        assert not follow({**b, "queue_offset": 1}, {"topic": b"New", "queue_offset": 3}, bad)
        assert offsets.ends() == known, "a batch that does not follow changes nothing"
    # Without a unit: a half message, a rollback, a ghost, a topic that names no directory.
    assert follow(
        {**a, "queue_offset": 0, "sys_flag": 4},
        {**a, "queue_offset": 0, "sys_flag": 12},
        {**a, "queue_offset": 90, "physical_offset": 3},
        {**a, "queue_offset": 90, "topic": b"a/b"},
        {**a, "queue_offset": 7, "properties": b"X\x01a\x00b\x02"},
        {"topic": "é".encode(), "queue_id": 1, "queue_offset": 3},
    )
    assert offsets.ends() == {("A", 0): 8, ("A", 256): 1, ("é", 1): 4}


@pytest.mark.parametrize("body", [NATIVE, REFERENCE], ids=repr)
def test_many_queues(body: Bodies) -> None:
    offsets = body.passes_rows.QueueOffsets()
    for first in (10, 13):
        for number in range(40):
            log = make_log(
                *(
                    {"topic": b"t%d" % (number * 10 + each), "queue_offset": first + more}
                    for each in range(10)
                    for more in range(3)
                )
            )
            assert offsets.follow(log, rows_of(log))
    assert list(offsets.ends().values()) == [16] * 400


@pytest.mark.parametrize("body", [NATIVE, REFERENCE], ids=repr)
@pytest.mark.parametrize("number", [0, 2, 4])
@pytest.mark.parametrize("change", ["zeros", "size", "other", "blank"])
def test_a_record_that_was_overwritten_since_is_not_followed(
    body: Bodies, number: int, change: str
) -> None:
    records = [{"topic": b"A", "queue_offset": n, "body": b"x" * 40} for n in range(5)]
    log = make_log(*records)
    rows, size = rows_of(log), len(log) // 5
    start = number * size
    if change == "zeros":
        content = bytes(size)
    elif change == "size":
        content = (size - 1).to_bytes(4, "big")
    elif change == "other":
        content = make_log({"topic": b"A", "queue_offset": number, "body": b"x" * 30})
    else:
        content = (len(log) - start).to_bytes(4, "big") + formats.BLANK_MAGIC.to_bytes(
            4, "big", signed=True
        )
        content = content if number < 4 else bytes(8)  # the last one's size would be the same
    overwritten = log[:start] + content + log[start + len(content) :]
    offsets = body.passes_rows.QueueOffsets()
    assert not offsets.follow(overwritten, rows)
    assert offsets.ends() == {}
    assert offsets.follow(log, rows)


# --- queue numbers ------------------------------------------------------------------------------


def numbers_of(queues: Any, *records: dict[str, Any]) -> list[int]:
    log = make_log(*records)
    rows = rows_of(log)
    numbers = bytearray(4 * len(records))
    queues.number(log, rows, numbers)
    return memoryview(numbers).cast("i").tolist()


@pytest.mark.parametrize("body", [NATIVE, REFERENCE], ids=repr)
def test_queues_are_numbered_in_order_of_appearance(body: Bodies) -> None:
    queues = body.passes_rows.QueueNumbers()
    a, b = {"topic": b"A", "queue_id": 0}, {"topic": b"A", "queue_id": 256}
    assert numbers_of(queues, a, b, a) == [0, 1, 0]
    assert numbers_of(queues, {"topic": b"C" * 40}, b, {**a, "sys_flag": 8}) == [2, 1, 0]
    assert queues.queues() == [(b"A", 0), (b"A", 256), (b"C" * 40, 3)]
    assert queues.queues(2) == [(b"C" * 40, 3)]
    assert queues.queues(3) == []
    # A half message, a rollback, a ghost, a topic that names no directory: without a unit.
    odd = ({"sys_flag": 4}, {"sys_flag": 12}, {"physical_offset": 3}, {"topic": b"a/b"})
    assert numbers_of(queues, *({**a, **one} for one in odd)) == [-1, -1, -1, -1]
    inner = {**a, "sys_flag": INNER_BATCH}
    assert numbers_of(queues, inner, {"topic": "é".encode(), "queue_id": 1}) == [0, 3]
    assert numbers_of(queues) == []
    with pytest.raises(ValueError, match="negative"):
        queues.queues(-1)


@pytest.mark.parametrize("body", [NATIVE, REFERENCE], ids=repr)
def test_many_queues_are_numbered(body: Bodies) -> None:
    queues = body.passes_rows.QueueNumbers()
    topics = [b"t%d" % number for number in range(500)]
    for _ in range(2):
        found = []
        for first in range(0, 500, 50):
            found += numbers_of(queues, *({"topic": one} for one in topics[first : first + 50]))
        assert found == list(range(500))
    assert [topic for topic, _ in queues.queues()] == topics


@pytest.mark.parametrize("body", [NATIVE, REFERENCE], ids=repr)
def test_a_record_that_was_overwritten_has_no_number(body: Bodies) -> None:
    log = bytearray(make_log({"body": b"x" * 40}, {"body": b"x" * 40}))
    rows = rows_of(bytes(log))
    log[:4] = bytes(4)
    numbers = bytearray(8)
    body.passes_rows.QueueNumbers().number(log, rows, numbers)
    assert memoryview(numbers).cast("i").tolist() == [-1, 0]


@pytest.mark.parametrize("nbytes", [0, 7, 9, 12])
@pytest.mark.parametrize("body", [NATIVE, REFERENCE], ids=repr)
def test_room_for_other_rows(body: Bodies, nbytes: int) -> None:
    log = make_log({}, {})
    with pytest.raises(ValueError, match="4 bytes for each of 2 rows"):
        body.passes_rows.QueueNumbers().number(log, rows_of(log), bytearray(nbytes))
