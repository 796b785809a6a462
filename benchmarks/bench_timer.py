"""Reading the timer: a wheel with all of its 1,209,600 slots in use, and a million units.

The wheel is a file of 38.7 MB without holes, in the page cache. The units are 52 MB of timer log in
86,400 slots; their chains are followed and compared with the slots' counts, and no record is read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rocketstore import formats
from rocketstore.timer.chains import Chains
from rocketstore.timer.findings import TimerFindings
from rocketstore.timer.timer_log import TimerLog
from rocketstore.timer.wheel import read_wheel

UNITS, SLOTS = 1_000_000, 86_400
BEGIN = 1_700_000_000


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel whose first slots hold the units, in order of their positions."""
    path = tmp_path_factory.mktemp("timer")
    number = np.arange(UNITS)
    units = np.zeros(UNITS, formats.TIMER_UNIT.dtype)
    units["size"] = formats.TIMER_UNIT.nbytes
    units["previous_position"] = np.where(number < SLOTS, -1, (number - SLOTS) * 52)
    units["magic"] = formats.TIMER_UNIT_DEFAULT
    units["write_time"] = (BEGIN - 1) * 1000
    units["delay"] = (number % SLOTS + 1) * 1000
    units["physical_offset"] = number * 300
    units["message_size"] = 300
    (path / formats.TIMER_LOG_DIR).mkdir()
    units.tofile(path / formats.TIMER_LOG_DIR / formats.offset_to_file_name(0))
    places = np.arange(formats.TIMER_SLOT_COUNT)
    slots = np.zeros(len(places), formats.TIMER_SLOT.dtype)
    begin = BEGIN - BEGIN % len(places)
    slots["time"] = np.where(places < BEGIN % len(places), begin + len(places), begin) + places
    slot = (slots["time"] - BEGIN).astype(np.int64)
    is_used = slot < SLOTS
    slots["first_position"] = np.where(is_used, slot * 52, 0)
    last = slot + (UNITS - 1 - slot) // SLOTS * SLOTS
    slots["last_position"] = np.where(is_used, last * 52, 0)
    slots["count"] = np.where(is_used, (UNITS - 1 - slot) // SLOTS + 1, 0)
    slots["time"][~is_used] -= len(places)  # read long ago
    slots.tofile(path / formats.TIMER_WHEEL_FILE)
    return path


def test_wheel(benchmark: Any, root: Path) -> None:
    """Find the slots that are not read yet."""
    wheel = benchmark(read_wheel, root, UNITS * 52, TimerFindings(), since=BEGIN)
    assert len(wheel.times) == SLOTS


def test_whole_wheel(benchmark: Any, root: Path) -> None:
    """Find all of them."""
    wheel = benchmark(read_wheel, root, UNITS * 52, TimerFindings())
    assert len(wheel.times) == formats.TIMER_SLOT_COUNT


def test_chains(benchmark: Any, root: Path) -> None:
    """Read the units, and follow the chains of all slots."""
    findings = TimerFindings()
    wheel = read_wheel(root, UNITS * 52, findings)
    log = TimerLog(root, findings)
    chains = benchmark(Chains, wheel, log, 1000, BEGIN * 1000, 0, findings)
    assert (len(chains.units.positions), findings) == (UNITS, [])
