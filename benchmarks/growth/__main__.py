"""Measure how cost grows: ``make growth``, or

    PYTHONPATH=benchmarks:src python -m growth --only queues --json growth.json --svg build/growth

Each curve lies in stores of its own below ``--folder``. A point is a median of three, but for puts
and openings, which happen once. ``growth.page`` writes the figures into the documentation.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from race.busy import Watch
from race.machine import ROOT, machine

from growth.curves import CURVES, Curve, Point
from growth.page import charts, table

BUILD = ROOT / "build" / "growth"


def main() -> int:
    """Run the curves; print a table of each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--only", action="append", choices=[curve.name for curve in CURVES])
    parser.add_argument("--quick", action="store_true", help="few small points, to try it")
    parser.add_argument("--count", type=int, default=200_000, help="messages of a point")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--json", type=Path, default=BUILD / "growth.json")
    parser.add_argument("--svg", type=Path, default=BUILD, help="folder of the charts")
    options = parser.parse_args()
    watch = Watch(_cpu_s, os.sysconf("SC_CLK_TCK"))
    watch.look_before()
    result: dict[str, Any] = {
        "machine": machine(options.folder), "count": options.count, "quick": options.quick,
        "curves": [], "busy": [],
    }  # fmt: skip
    for curve in CURVES:
        if options.only and curve.name not in options.only:
            continue
        watch.begin_round()
        points = _measure(curve, options)
        watch.end_round()
        found = {"name": curve.name, "label": curve.label, "of": curve.of, "points": points}
        result["curves"].append(found)
        print(f"## {curve.name}\n\n{table(found)}\n", flush=True)
        result["busy"] = watch.sentences()
        _write(options, result)
    print(*(f"The machine was busy: {sentence}." for sentence in result["busy"]), sep="\n")
    print(f"JSON: {options.json}; charts: {options.svg}")
    return 0


def _write(options: argparse.Namespace, result: dict[str, Any]) -> None:
    """Write the figures and the charts; after every curve, for all of them take long."""
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    options.svg.mkdir(parents=True, exist_ok=True)
    for name, chart in charts(result).items():
        (options.svg / name).write_text(chart, encoding="utf-8")


def _cpu_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _measure(curve: Curve, options: argparse.Namespace) -> list[Point]:
    values = curve.quick if options.quick else curve.values
    count = min(options.count, 2000) if options.quick else options.count
    with tempfile.TemporaryDirectory(prefix="rocketstore-growth-", dir=options.folder) as folder:
        points = []
        for point in curve.measure(Path(folder), values, count):
            points.append(point)
            if sys.stderr.isatty():
                print(f"{curve.name}: {point[0]:,} done", file=sys.stderr)
        return points


if __name__ == "__main__":
    sys.exit(main())
