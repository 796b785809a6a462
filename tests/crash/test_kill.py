"""Writers killed at random moments: nothing acknowledged is missing, everything agrees."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("kill_campaign.py")
#: In three parts, so that processes share them. ``make kills`` has the long form.
KILLS = 300
PARTS = 3


@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(PARTS))
def test_killed_writer_loses_nothing_acknowledged(part: int) -> None:
    """G10: killed while it puts, rolls, recovers and cleans up, also several times in a row."""
    seed = random.SystemRandom().randrange(1 << 31)
    print(f"python tests/crash/kill_campaign.py --kills {KILLS // PARTS} --seed {seed}")
    command = [sys.executable, str(PROGRAM), "--kills", str(KILLS // PARTS), "--seed", str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    counts = json.loads(done.stdout.splitlines()[-1])
    assert counts["kills"] == KILLS // PARTS
    for what in ("kills while opening", "kills in a row", "kills of cleaning", "acknowledged"):
        assert counts[what] > 0, done.stdout
