"""Reading the wheel: which file, which slots, and what is not in its place."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

from rocketstore import formats
from rocketstore.timer.findings import TimerFindings
from rocketstore.timer.wheel import read_wheel

COUNT = formats.TIMER_SLOT_COUNT
TIME = 1_700_000_000


def write(path: Path, *slots: tuple[int, int, int, int], at: int | None = None) -> Path:
    """A wheel with slots of (time, first, last, count), each in its place or at ``at``."""
    with path.open("wb") as file:
        for slot in slots:
            file.seek((slot[0] % COUNT if at is None else at) * formats.TIMER_SLOT.nbytes)
            file.write(formats.TIMER_SLOT.struct.pack(*slot, 0))
        file.truncate(formats.TIMER_WHEEL_NBYTES)
    return path


def test_the_slots_in_use(tmp_path: Path) -> None:
    path = write(tmp_path / "timerwheel", (TIME + 5, 52, 104, 2), (TIME, 0, 0, 1))
    findings = TimerFindings()
    wheel = read_wheel(tmp_path, 1_000, findings)
    assert wheel is not None
    assert (wheel.path, wheel.snapshot_position, findings) == (path, -1, [])
    assert wheel.times.tolist() == [TIME, TIME + 5]
    assert wheel.first.tolist() == [0, 52]
    assert wheel.last.tolist() == [0, 104]
    assert wheel.counts.tolist() == [1, 2]
    assert wheel.position_of(1) == (TIME + 5) % COUNT * 32


def test_no_wheel_and_an_empty_one(tmp_path: Path) -> None:
    findings = TimerFindings()
    assert read_wheel(tmp_path, 0, findings) is None
    (tmp_path / "timerwheel").touch()
    wheel = read_wheel(tmp_path, 0, findings)
    assert wheel is not None
    assert (len(wheel.times), findings) == (0, [])


@pytest.mark.parametrize("nbytes", [1, 31, formats.TIMER_WHEEL_NBYTES - 32, 1 << 27])
def test_a_wrong_size(tmp_path: Path, nbytes: int) -> None:
    path = tmp_path / "timerwheel"
    path.touch()
    os.truncate(path, nbytes)
    findings = TimerFindings()
    assert read_wheel(tmp_path, 0, findings) is None
    (one,) = findings
    assert (one.kind, one.path) == ("timer-wheel", str(path))
    assert f"{nbytes} bytes instead of" in one.reason


@pytest.mark.parametrize("slot", [(TIME, 0, 0, 1), (-TIME, 0, 0, 1), (-(1 << 63), 0, 0, 1)])
def test_a_slot_in_another_place(tmp_path: Path, slot: tuple[int, int, int, int]) -> None:
    path = write(tmp_path / "timerwheel", slot, at=77)
    findings = TimerFindings()
    wheel = read_wheel(tmp_path, 0, findings)
    assert wheel is not None
    assert len(wheel.times) == 0
    (one,) = findings
    assert (one.kind, one.path, one.position) == ("timer-slot", str(path), 77 * 32)


def test_a_link_out_of_the_store(tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.mkdir()
    write(tmp_path / "other", (TIME, 0, 0, 1))
    (root / "timerwheel").symlink_to(tmp_path / "other")
    findings = TimerFindings()
    assert read_wheel(root, 0, findings) is None
    assert [one.kind for one in findings] == ["timer-wheel"]


def test_snapshots_that_are_none(tmp_path: Path) -> None:
    write(tmp_path / "timerwheel", (TIME, 0, 0, 1))
    for name in ("timerwheel.x", "timerwheel.520.tmp", "timerwheel.", "timerwheels"):
        write(tmp_path / name, (TIME + 1, 0, 0, 1))
    wheel = read_wheel(tmp_path, 1_000, TimerFindings())
    assert wheel is not None
    assert wheel.path.name == "timerwheel"


def test_a_full_wheel_is_read_in_a_moment(tmp_path: Path) -> None:
    """All 1,209,600 slots in use, in 38.7 MB without holes."""
    slots = np.zeros(COUNT, formats.TIMER_SLOT.dtype)
    slots["time"] = TIME - TIME % COUNT + np.arange(COUNT)
    slots["last_position"] = np.arange(COUNT) * 52
    slots["count"] = 1
    slots.tofile(tmp_path / "timerwheel")
    best = 1e9
    for _ in range(5):
        begin = time.perf_counter()
        wheel = read_wheel(tmp_path, 1 << 40, TimerFindings())
        best = min(best, time.perf_counter() - begin)
    assert wheel is not None
    assert len(wheel.times) == COUNT
    assert wheel.last.tolist() == (np.arange(COUNT) * 52).tolist()
    assert best < 1.0  # about 40 ms; the machine that tests may be busy
    print(f"{best * 1000:.1f} ms")


@pytest.mark.parametrize("seed", range(6))
def test_slots_of_several_rounds_are_ascending(tmp_path: Path, seed: int) -> None:
    """A few runs are put together; many are sorted."""
    random = np.random.default_rng(seed)
    places = np.sort(random.choice(COUNT, 2_000, replace=False))
    laps = random.integers(1, 4, 2_000) if seed % 2 else 3 - np.arange(2_000) // 700
    path = tmp_path / "timerwheel"
    write(
        path,
        *(
            (int(lap * COUNT + place), 0, int(place), 1)
            for lap, place in zip(laps, places, strict=True)
        ),
    )
    wheel = read_wheel(tmp_path, 1 << 40, TimerFindings())
    assert wheel is not None
    assert wheel.times.tolist() == sorted((laps * COUNT + places).tolist())
    assert (wheel.times % COUNT).tolist() == wheel.places.tolist() == wheel.last.tolist()
    since = int(np.median(wheel.times))
    later = read_wheel(tmp_path, 1 << 40, TimerFindings(), since=since)
    assert later is not None
    assert later.times.tolist() == [time for time in wheel.times.tolist() if time >= since]
