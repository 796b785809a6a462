"""After close and the last view, descriptors, mappings and memory are back where they were."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("leak_program.py")
ROUNDS = 20
#: Allocator noise over all rounds; one leaked segment a round would be 5 MiB.
ALLOWED_NBYTES = 2 * 1024 * 1024


@pytest.mark.skipif(
    not Path("/proc/self/maps").exists(), reason="/proc is needed to count mappings"
)
@pytest.mark.parametrize("body", ["native", "reference"])
def test_nothing_is_left_behind(body: str, tmp_path: Path) -> None:
    environment = {**os.environ, "ROCKETSTORE_KERNELS": body}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(tmp_path), str(ROUNDS)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    before, after = result["before"], result["after"]
    for name in ("descriptors", "mappings", "mapped_nbytes"):
        assert after[name] == before[name], result
    assert after["resident_nbytes"] - before["resident_nbytes"] < ALLOWED_NBYTES, result
