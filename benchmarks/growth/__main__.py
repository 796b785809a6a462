"""Measure how cost grows, and draw it: ``make growth``, or

    PYTHONPATH=benchmarks:src python -m growth --only queues --svg build/growth --json growth.json

Each curve lies in stores of its own below ``--folder``. A point is a median of three, but for puts
and openings, which happen once. The ratio is that of the last point to the first.
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

from growth.curves import CURVES, Curve, Point


def main() -> int:
    """Run the curves; print a table of each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--only", action="append", choices=[curve.name for curve in CURVES])
    parser.add_argument("--quick", action="store_true", help="few small points, to try it")
    parser.add_argument("--count", type=int, default=200_000, help="messages of a point")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--svg", type=Path, help="folder of the pictures")
    options = parser.parse_args()
    watch = Watch(_cpu_s, os.sysconf("SC_CLK_TCK"))
    watch.look_before()
    found: dict[str, Any] = {}
    for curve in CURVES:
        if options.only and curve.name not in options.only:
            continue
        watch.begin_round()
        points = _measure(curve, options)
        watch.end_round()
        found[curve.name] = points
        print(_table(curve, points), flush=True)
        if options.svg:
            draw(options.svg / f"growth-{curve.name}.svg", curve, points)
    busy = watch.sentences()
    print(*(f"The machine was busy: {sentence}." for sentence in busy), sep="\n")
    if options.json:
        options.json.write_text(json.dumps({"curves": found, "busy": busy}, indent=1) + "\n")
    return 0


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


def _table(curve: Curve, points: list[Point]) -> str:
    names = list(points[0][1])
    lines = [
        f"## {curve.name}: nanoseconds for each {curve.of}, by {curve.label}", "",
        f"| {curve.label} | {' | '.join(names)} |", f"|---|{'---|' * len(names)}",
    ]  # fmt: skip
    for x, figures in points:
        lines.append(f"| {x:,} | {' | '.join(f'{figures[name]:,.0f}' for name in names)} |")
    ratios = [points[-1][1][name] / points[0][1][name] for name in names]
    lines.append(f"| last / first | {' | '.join(f'{ratio:.2f}' for ratio in ratios)} |")
    return "\n".join(lines) + "\n"


def draw(path: Path, curve: Curve, points: list[Point]) -> None:
    """Draw a curve as SVG, both axes logarithmic."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.5, 3.2))
    colors = ("#d1495b", "#2e7d6b", "#30638e", "#edae49")
    for name, color in zip(points[0][1], colors, strict=False):
        axes.plot(
            [x for x, _ in points], [figures[name] for _, figures in points],
            marker="o", label=name, color=color,
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(curve.label)
    axes.set_ylabel(f"ns for each {curve.of}")
    axes.legend(frameon=False, fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
    pyplot.close(figure)


if __name__ == "__main__":
    sys.exit(main())
