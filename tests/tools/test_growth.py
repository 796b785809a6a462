"""The plots of growth: every curve is measured and drawn, on few messages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import rocketstore

ROOT = Path(__file__).resolve().parents[2]
#: The benchmarks' modules, and the package as this process imports it.
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join(
        [str(ROOT / "benchmarks"), str(Path(rocketstore.__file__).parents[1])]
    ),
}
CURVES = (
    "queues", "segments", "index-files", "messages", "bodies", "properties", "threads",
    "dirty-tail",
)  # fmt: skip


@pytest.mark.parametrize("name", CURVES)
def test_a_curve(tmp_path: Path, name: str) -> None:
    stores = tmp_path / "stores"
    stores.mkdir()
    command = [
        *(sys.executable, "-m", "growth", "--quick", "--only", name, "--count", "1000"),
        *("--folder", stores, "--svg", tmp_path, "--json", tmp_path / "found.json"),
    ]
    done = subprocess.run(
        command, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    (points,) = json.loads((tmp_path / "found.json").read_text())["curves"].values()
    assert len(points) == 2
    assert all(ns > 0 for _, figures in points for ns in figures.values())
    assert done.stdout.startswith(f"## {name}: nanoseconds for each ")
    assert "| last / first |" in done.stdout
    assert (tmp_path / f"growth-{name}.svg").stat().st_size > 1000
    assert list(stores.iterdir()) == []


def test_all_curves_are_known_here() -> None:
    program = "from growth.curves import CURVES; print(*(curve.name for curve in CURVES))"
    names = subprocess.run(
        [sys.executable, "-c", program],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert tuple(names) == CURVES
