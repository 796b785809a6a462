"""Stores as kills left them, opened by the real RocketMQ: it shows all that was acknowledged."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

from interop.maven import require_java

require_java()

PROGRAM = Path(__file__).resolve().parents[1] / "crash" / "kill_campaign.py"
KILLS = 40
VERSION = "5.3.3"


def test_rocketmq_shows_what_was_acknowledged_before_a_kill() -> None:
    seed = random.SystemRandom().randrange(1 << 31)
    options = ["--kills", str(KILLS), "--seed", str(seed), "--rocketmq", VERSION]
    print("python tests/crash/kill_campaign.py", *options)
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *options], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    counts = json.loads(done.stdout.splitlines()[-1])
    # One in ten kills is due; where the pool lost what it may lose, the next one is taken.
    assert counts["opened by rocketmq"] >= KILLS // 10 - 1
