"""Chains through the timer log: no position from the disk is trusted."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

import rocketstore
from rocketstore import formats
from support.timer_files import NOW, TimedStore, after

UNIT = formats.TIMER_UNIT.nbytes
DELAYS = (5_000, 5_000, 5_000, 9_000)


@pytest.fixture
def chained(timed: TimedStore) -> TimedStore:
    """Three units of one slot, and one of another."""
    timed.files.enqueue_all(timed.put(*map(after, DELAYS)), NOW)
    timed.files.write()
    return timed


def relink(timed: TimedStore, number: int, previous: int) -> None:
    at = number * UNIT + formats.TIMER_UNIT.at("previous_position")
    timed.files.log[at : at + 8] = previous.to_bytes(8, "big", signed=True)
    timed.files.write()


def test_good_chains(chained: TimedStore) -> None:
    assert chained.delays() == sorted(DELAYS)
    assert chained.kinds() == []


@pytest.mark.parametrize(
    ("previous", "words"),
    [
        (2 * UNIT, "not before it"),  # to itself: a circle
        (3 * UNIT, "not before it"),
        (1 << 50, "not before it"),
        (-2, "out of range"),
        (-(1 << 63), "out of range"),
        (7, "not that of a unit of this slot"),
    ],
)
def test_a_link_that_leads_nowhere(chained: TimedStore, previous: int, words: str) -> None:
    relink(chained, 2, previous)
    report, pending = chained.report()
    assert len(pending) == 2  # the newest one of the slot, and that of the other slot
    first, *unlinked = [one for one in report.findings if one.kind == "timer-chain"]
    assert first.position == 2 * UNIT
    assert words in first.reason
    assert [one.position for one in unlinked] == [0, UNIT]
    counts = [one for one in report.findings if one.kind == "timer-count"]
    assert len(counts) == 1


def test_units_that_are_skipped(chained: TimedStore) -> None:
    relink(chained, 2, 0)
    report, pending = chained.report()
    assert len(pending) == 3
    assert [(one.kind, one.position) for one in report.findings] == [
        ("timer-chain", UNIT), ("timer-count", report.findings[1].position)
    ]  # fmt: skip


def test_two_units_that_link_to_each_other(chained: TimedStore) -> None:
    relink(chained, 1, 2 * UNIT)
    assert len(chained.report()[1]) == 3
    assert "timer-chain" in chained.kinds()


def test_a_link_into_another_slot(chained: TimedStore) -> None:
    relink(chained, 3, 2 * UNIT)
    assert len(chained.report()[1]) == 4
    (one,) = chained.report()[0].findings
    assert (one.kind, one.position) == ("timer-chain", 3 * UNIT)


@pytest.mark.parametrize("last", [-1, 7, 3 * UNIT, 1 << 50])
def test_a_slot_whose_last_position_is_wrong(chained: TimedStore, last: int) -> None:
    """Nothing is lost: a unit itself holds the time of its slot."""
    slot = next(iter(chained.files.slots.values()))
    slot[1] = last
    chained.files.write()
    chained.files.write_checkpoint(flushed=20 * chained.files.segment_nbytes)
    report, pending = chained.report()
    assert len(pending) == 4
    assert [one.kind for one in report.findings if one.kind != "timer-check"] in (
        ["timer-slot"], []
    )  # fmt: skip
    assert ("timer-slot" in chained.kinds()) == (last > 2 * UNIT)


def test_a_slot_without_units(chained: TimedStore) -> None:
    chained.files.slots[NOW // 1000 + 99] = [UNIT, UNIT, 1]
    chained.files.write()
    (one,) = chained.report()[0].findings
    assert (one.kind, one.path) == ("timer-slot", str(chained.root / "timerwheel"))
    assert "last position 52" in one.reason


def test_a_wrong_first_position_does_not_matter(timed: TimedStore) -> None:
    delays = [5_000] * 150 + [9_000]
    timed.files.enqueue_all(timed.put(*map(after, delays)), NOW)
    for slot in timed.files.slots.values():
        slot[0] = slot[1]
    timed.files.write()
    assert timed.delays() == delays
    assert timed.kinds() == []


def test_a_deleted_segment(timed: TimedStore) -> None:
    timed.files.enqueue_all(timed.put(*(after(5_000) for _ in range(150))), NOW)
    timed.files.write()
    (timed.root / "timerlog" / ("0" * 20)).unlink()
    report, pending = timed.report()
    assert len(pending) == 51
    (one, count) = report.findings
    assert "in a file that was deleted" in one.reason
    assert count.kind == "timer-count"


@pytest.mark.parametrize("shape", ["long", "wide"])
def test_hostile_chains_take_no_longer(timed: TimedStore, shape: str) -> None:
    """Each unit is visited once, however slots and links are arranged."""
    number = random.Random(7)
    timed.put(after(5_000))
    files = timed.files
    for one in range(20_000):
        time = NOW // 1000 + (1 if shape == "long" else one % 5_000)
        previous = number.randrange(-1, 20_000 * UNIT)
        files.log += formats.TIMER_UNIT.struct.pack(
            UNIT, previous, 1, NOW // 1000 * 1000, time * 1000 - NOW // 1000 * 1000, 0, 1, 0, 0
        )
        files.slots[time] = [0, number.randrange(20_000 * UNIT), 1]
    files.segment_nbytes = len(files.log)
    files.write()
    report, pending = timed.report()
    assert pending == []
    assert report.findings[-1].kind == "timer-more"


CHANGES: list[tuple[str, Callable[[TimedStore], object]]] = [
    ("wheel", lambda timed: timed.files.write_wheel()),
    ("log", lambda timed: timed.files.write_log()[0]),
    ("check", lambda timed: timed.files.write_checkpoint()),
]


@pytest.mark.parametrize("seed", range(30))
def test_random_bytes_give_a_finding_or_the_right_answer(timed: TimedStore, seed: int) -> None:
    number = random.Random(seed)
    delays = [1000 * number.randrange(2, 40) for _ in range(60)]
    timed.files.enqueue_all(timed.put(*map(after, delays)), NOW)
    timed.files.read_time = NOW - 500
    timed.files.write()
    right = timed.report()[1]
    length = {"timerwheel": len(timed.files.wheel_bytes()), "timerlog": 60 * UNIT, "check": 32}
    part = number.choice(sorted(length))
    path = {
        "timerwheel": timed.root / "timerwheel",
        "timerlog": timed.root / "timerlog" / ("0" * 20),
        "check": timed.root / "config" / "timercheck",
    }[part]
    with path.open("r+b") as file:
        for _ in range(number.randrange(1, 4)):
            at = number.randrange(length[part])
            if part == "timerwheel":
                slot = number.choice(list(timed.files.slots)) % formats.TIMER_SLOT_COUNT
                at = slot * formats.TIMER_SLOT.nbytes + number.randrange(formats.TIMER_SLOT.nbytes)
            file.seek(at)
            file.write(bytes([number.randrange(256)]))
    with rocketstore.open(timed.root, clock=lambda: NOW) as store:
        report = store.timers()
        found = [one.message.detach() for one in report.pending]
    read_time = int.from_bytes((timed.root / "config" / "timercheck").read_bytes()[:8], "big")
    if part == "check" and read_time != NOW - 500 and read_time < 1 << 63:
        right = [one for one in right if int(one.properties["TIMER_OUT_MS"]) >= read_time]
    assert report.findings or found == right
