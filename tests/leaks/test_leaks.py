"""After close and the last view, descriptors, mappings and memory are back where they were."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("leak_program.py")
OPEN_PROGRAM = Path(__file__).with_name("open_program.py")
ROUNDS = 20
#: ``make leaks`` makes it 10,000.
OPENS = int(os.environ.get("ROCKETSTORE_LEAK_OPENS", "200"))
#: 10,000 opens were seen to leave 1.7 MiB, 300 of them 0.5 MiB; a kilobyte an open would be 10 MiB.
ALLOWED_BY_OPENS_NBYTES = 4 * 1024 * 1024
#: Allocator noise over all rounds; one leaked segment a round would be 5 MiB.
ALLOWED_NBYTES = 4 * 1024 * 1024


NEEDS_PROC = pytest.mark.skipif(
    not Path("/proc/self/maps").exists(), reason="/proc is needed to count mappings"
)


def left_over(program: Path, root: Path, rounds: int, body: str) -> dict[str, dict[str, int]]:
    """Run a program that prints what there was before and after its rounds."""
    environment = {**os.environ, "ROCKETSTORE_KERNELS": body}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, str(program), str(root), str(rounds)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=280 + rounds,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, dict[str, int]] = json.loads(done.stdout)
    print(body, rounds, result)
    for name in ("descriptors", "mappings", "mapped_nbytes"):
        assert result["after"][name] == result["before"][name], result
    return result


@NEEDS_PROC
@pytest.mark.parametrize("body", ["native", "reference"])
def test_nothing_leaks(body: str, tmp_path: Path) -> None:
    result = left_over(PROGRAM, tmp_path, ROUNDS, body)
    grown = result["after"]["resident_nbytes"] - result["before"]["resident_nbytes"]
    assert grown < ALLOWED_NBYTES, result


@NEEDS_PROC
@pytest.mark.parametrize("body", ["native", "reference"])
def test_opening_and_closing_leaves_nothing(body: str, tmp_path: Path) -> None:
    result = left_over(OPEN_PROGRAM, tmp_path / "store", OPENS, body)
    before, between, after = (
        result[when]["resident_nbytes"] for when in ("before", "between", "after")
    )
    # What leaks does so in both halves; the allocator's arenas of new threads come once.
    assert 2 * min(between - before, after - between) < ALLOWED_BY_OPENS_NBYTES, result
