"""Measure what the commands for operators cost: ``make bench-operate``, or

    PYTHONPATH=benchmarks:src python -m operate --gib 2 --only checking --only looking

A store of messages as a Java producer sends them is made below ``--folder``, and each command runs
in a process of its own. Files are read once before, so that all is in the system's cache.
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

from operate.commands import GROUPS, Place
from operate.measuring import Cost, measure, warm

BUILD = ROOT / "build" / "operate"
#: The promise for memory, MiB.
MOST_MIB = 300


def main() -> int:
    """Make the store, run the groups, print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--gib", type=float, default=2, help="size of the log [default: 2]")
    parser.add_argument("--kind", choices=("full", "sparse"), default="full")
    parser.add_argument("--only", action="append", choices=list(GROUPS))
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--store", type=Path, help="use this store if it exists, and keep it")
    parser.add_argument("--json", type=Path, default=BUILD / "operate.json")
    options = parser.parse_args()
    watch = Watch(_cpu_s, os.sysconf("SC_CLK_TCK"))
    watch.look_before()
    rows: dict[str, Any] = {}
    result = {"machine": machine(options.folder), "gib": options.gib, "kind": options.kind}
    with tempfile.TemporaryDirectory(prefix="rocketstore-operate-", dir=options.folder) as folder:
        place = Place(options.store or Path(folder) / "store", Path(folder))
        make_store(place.store, options.kind, options.gib)
        watch.begin_round()
        print(*HEAD, sep="\n", flush=True)
        for name, group in GROUPS.items():
            if options.only and name not in options.only:
                continue
            for label, cost in group(place):
                print(line(label, cost), flush=True)
                rows[label] = cost.json()
            place.clean()
        watch.end_round()
    options.json.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**result, "rows": rows, "busy": watch.sentences()}, indent=1)
    options.json.write_text(text + "\n", encoding="utf-8")
    print(*(f"The machine was busy: {sentence}." for sentence in watch.sentences()), sep="\n")
    over = [label for label, row in rows.items() if row["peak_mib"] > MOST_MIB]
    print(f"Above {MOST_MIB} MiB: {', '.join(over) or 'none'}. JSON: {options.json}")
    return 0


HEAD = (
    "| command | seconds | CPU seconds | MiB at most | of them not files | exit | load |",
    "|---|---|---|---|---|---|---|",
)


def line(label: str, cost: Cost) -> str:
    """Return a row of the table."""
    own = "" if cost.anonymous_mib is None else f"{cost.anonymous_mib:.0f}"
    return (
        f"| {label} | {cost.seconds:.2f} | {cost.cpu_s:.2f} | {cost.peak_mib:.0f} | {own} "
        f"| {cost.status} | {cost.load:.1f} |"
    )


def make_store(path: Path, kind: str, gib: float) -> None:
    """Make the store in a process of its own, unless it exists; read it once."""
    if not path.exists():
        measure([sys.executable, "-m", "operate.stores", kind, str(path), str(gib)])
    if kind == "full":
        warm(path)


def _cpu_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


if __name__ == "__main__":
    sys.exit(main())
