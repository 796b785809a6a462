"""A whole store through its public calls: put, dispatch, get, find, recovery, open, import.

Each row runs in a process of its own per body of the kernels, so both stand in one run. The extra
information of a row names what one operation is (``of``), nanoseconds for it (``each_ns``), whether
the pages were fresh or resident, how many bytes were involved and where the clock stopped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).with_name("store_program.py")
#: Rounds of each row; the reference does a fraction of the work per round.
ROUNDS = 5
ROWS = (
    "put_fresh",
    "put_dispatched_fresh",
    "dispatch_resident",
    "get_32",
    "find_by_key",
    "index_offsets",
    "scan",
    "recovery_scan",
    "open_clean",
    "import",
)


@pytest.mark.parametrize("body", ["native", "reference"])
@pytest.mark.parametrize("row", ROWS)
def test_store(row: str, body: str, benchmark: Any, tmp_path: Path) -> None:
    environment = {**os.environ, "ROCKETSTORE_KERNELS": body}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, str(PROGRAM), row, str(tmp_path), str(ROUNDS)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    seconds = result.pop("seconds")
    times = iter(seconds)

    def replay() -> float:
        """The measured process has its own clock; this hands its rounds to the report."""
        return next(times)

    benchmark.pedantic(replay, rounds=1, iterations=1)
    benchmark.extra_info.update(result)
    benchmark.extra_info["each_ns"] = round(min(seconds) / result["operations"] * 1e9, 1)
    benchmark.extra_info["median_each_ns"] = round(
        sorted(seconds)[len(seconds) // 2] / result["operations"] * 1e9, 1
    )
    print(f"\n{row} [{body}]: {benchmark.extra_info['each_ns']} ns per {result['of']}; "
          f"{result['pages']} pages, {result['nbytes']} bytes; {result['clock']}")  # fmt: skip
