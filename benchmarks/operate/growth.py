"""How time and memory of checks grow with the store: figures, and a chart into the documentation.

    PYTHONPATH=benchmarks:src python -m operate.growth --json growth.json
    PYTHONPATH=benchmarks:src python -m operate.growth --page growth.json

Each segment of 1 GiB holds 64 MiB of messages, and its end marker says that the rest is unused; so
20 GiB need little more than 1 GiB of disk. CPU seconds are shown: on a busy machine they differ
less than what a clock says.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from charts.curves import curves
from charts.texts import write_between
from race.busy import Watch
from race.machine import ROOT, described, machine

from operate.measuring import measure, run

PAGE = ROOT / "docs" / "performance.md"
CHART = "operate-size.svg"
TITLE = "CPU time of a check, by GiB of log"
COMMANDS = {
    "doctor": ("doctor", "STORE", "--quiet"),
    "doctor --quick": ("doctor", "STORE", "--quick", "--quiet"),
    "plan": ("plan", "STORE", "-o", "PLAN", "--quiet"),
    "verify": ("verify", "STORE", "--quiet"),
    "du": ("du", "STORE", "--quiet"),
}


def main() -> int:
    """Measure, or write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--gib", type=int, nargs="+", default=[1, 5, 10, 20])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "operate" / "growth.json")
    parser.add_argument("--page", type=Path, help="write the figures of this file into the page")
    options = parser.parse_args()
    if options.page is not None:
        found = json.loads(options.page.read_text(encoding="utf-8"))
        write_between(PAGE, "operate", section(found), {CHART: chart(found)})
        return 0
    watch = Watch(_cpu_s, os.sysconf("SC_CLK_TCK"))
    watch.look_before()
    found: dict[str, Any] = {"machine": machine(options.folder), "points": []}
    with tempfile.TemporaryDirectory(prefix="rocketstore-operate-", dir=options.folder) as folder:
        store = Path(folder) / "store"
        for gib in sorted(options.gib):
            measure([sys.executable, "-m", "operate.stores", "sparse", str(store), str(gib)])
            watch.begin_round()
            found["points"].append([gib, _costs(store, Path(folder) / "plan.json")])
            watch.end_round()
            found["busy"] = watch.sentences()
            options.json.parent.mkdir(parents=True, exist_ok=True)
            options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
            print(table(found), flush=True)
    return 0


def _costs(store: Path, plan: Path) -> dict[str, Any]:
    found = {}
    for name, words in COMMANDS.items():
        places = {"STORE": str(store), "PLAN": str(plan)}
        found[name] = run([places.get(word, word) for word in words], allowed=(0,)).json()
        plan.unlink(missing_ok=True)
    return found


def table(found: dict[str, Any]) -> str:
    """Return CPU seconds and the most memory of each command, by GiB."""
    lines = ["| GiB of log | " + " | ".join(COMMANDS) + " |", "|---|" + "---|" * len(COMMANDS)]
    for gib, costs in found["points"]:
        cells = [f"{costs[n]['cpu_s']:.1f} s, {costs[n]['peak_mib']:.0f} MiB" for n in COMMANDS]
        lines.append(f"| {gib} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _notes(found: dict[str, Any]) -> str:
    text = f"{described(found['machine'])}."
    if found.get("busy"):
        text += f" The machine was busy: {'; '.join(found['busy'])}."
    return text


def chart(found: dict[str, Any]) -> str:
    """Return the chart of CPU times."""
    points = [
        (gib, {name: costs[name]["cpu_s"] * 1e9 for name in COMMANDS})
        for gib, costs in found["points"]
    ]
    return curves(TITLE, "GiB of log", _notes(found), points)


def section(found: dict[str, Any]) -> str:
    """Return everything between the markers."""
    parts = (_notes(found), f"![{TITLE}](images/{CHART})", table(found))
    return "\n\n".join(parts) + "\n"


def _cpu_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


if __name__ == "__main__":
    sys.exit(main())
