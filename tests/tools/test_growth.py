"""The plots of growth: every curve is measured and drawn, on few messages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

import rocketstore
from support.benchmark_modules import benchmark_module

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
    (curve,) = json.loads((tmp_path / "found.json").read_text())["curves"]
    points = curve["points"]
    assert len(points) == 2
    assert all(ns > 0 for _, figures in points for ns in figures.values())
    assert done.stdout.startswith(f"## {name}\n\n| {curve['label']} | ")
    assert "| last / first |" in done.stdout
    chart = ElementTree.parse(tmp_path / f"growth-{name}.svg").getroot()
    assert len(list(chart.iter("{http://www.w3.org/2000/svg}polyline"))) == len(points[0][1])
    assert list(stores.iterdir()) == []


def test_the_page_shows_the_curves(tmp_path: Path) -> None:
    points = [[1, {"put_many": 800.0}], [1000, {"put_many": 880.0}]]
    curve = {"name": "queues", "label": "queues", "of": "message", "points": points}
    machine = {
        "cpu": "Some CPU", "processors": 2, "memory_gib": 24, "system": "Linux 6.1.2-build",
        "file_system": "ext4", "python": "3.11.7",
    }  # fmt: skip
    found = {"machine": machine, "count": 1000, "quick": True, "curves": [curve], "busy": ["much"]}
    figures, target = tmp_path / "growth.json", tmp_path / "page.md"
    figures.write_text(json.dumps(found))
    target.write_text("before\n<!-- growth: begin -->\nold\n<!-- growth: end -->\nafter\n")
    page = benchmark_module("growth.page")
    for _ in range(2):
        assert page.main([str(figures), str(target)]) == 0
    text = target.read_text()
    assert text.startswith("before\n<!-- growth: begin -->\n\n2 processors (Some CPU), 24 GiB")
    assert text.endswith("<!-- growth: end -->\nafter\n")
    assert "The machine was busy: much." in text
    assert "| 1,000 | 880 ns |\n| last / first | 1.10 |" in text
    assert "(images/growth-queues.svg)" in text
    assert "put_many, 1,000 queues: 880 ns" in (tmp_path / "images/growth-queues.svg").read_text()


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
