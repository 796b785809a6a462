"""Run a piece of Python in a process of its own, with the rocketstore that is tested here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import rocketstore


def run_python(
    program: str, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run ``program`` to its end; its exit status may be anything."""
    source = Path(rocketstore.__file__).parents[1]
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, "PYTHONPATH": str(source), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
