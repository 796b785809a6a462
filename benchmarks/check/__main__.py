"""The command: ``python -m check`` compares, ``--update`` writes the baselines."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import toolchain
from check import baselines, callgrind, comparing

MOVED, MISSING_TOOL, NO_BASELINE = 1, 2, 3
KEPT = callgrind.ROOT / "build" / "bench-check"


def parse(arguments: list[str]) -> argparse.Namespace:
    """Return the chosen options."""
    parser = argparse.ArgumentParser(
        prog="bench-check", description="Compare instruction counts with their baselines."
    )
    parser.add_argument("--update", action="store_true", help="write the baselines")
    parser.add_argument(
        "--allow-missing", action="store_true", help="succeed if there are none for this machine"
    )
    parser.add_argument("--tolerance", type=float, default=3.0, metavar="PERCENT")
    parser.add_argument("--paths", default="", metavar="TEXT", help="only paths with this text")
    parser.add_argument("--baselines", type=Path, default=baselines.FILE, metavar="FILE")
    parser.add_argument("--spread", action="store_true", help="also show how far runs lie apart")
    return parser.parse_args(arguments)


def show(counts: dict[str, callgrind.Count]) -> None:
    """Print the counts alone, and how far their runs lie apart."""
    width = max(map(len, counts))
    for name, count in counts.items():
        print(f"{name:{width}}  {count.instructions:>12,} per {count.of:8} ± {count.spread:.2%}")


def main(arguments: list[str]) -> int:
    """Entry point; the exit status says what happened."""
    chosen = parse(arguments)
    if chosen.update and chosen.paths:
        print("bench-check: --update counts all paths, so it takes no --paths", file=sys.stderr)
        return MISSING_TOOL
    try:
        counts = callgrind.run(KEPT, chosen.paths)
    except toolchain.MissingError as missing:
        print(f"bench-check: {missing}", file=sys.stderr)
        return MISSING_TOOL
    about, name = baselines.details(), baselines.key()
    found = baselines.read(chosen.baselines)
    renewed = baselines.with_counts(found, name, about, counts)
    if not chosen.paths:
        # Another machine's counts can be committed from here, for example those of a CI job.
        baselines.write(KEPT / baselines.FILE.name, renewed)
    print(f"Instructions of the calling thread, counted by callgrind (valgrind "
          f"{about['valgrind']}); environment: {name}.")  # fmt: skip
    if chosen.spread:
        show(counts)
    if chosen.update:
        baselines.write(chosen.baselines, renewed)
        print(f"{len(counts)} baselines written to {chosen.baselines}.")
        return 0
    before = baselines.instructions(found, name)
    if before is None:
        show(counts)
        print("There are no baselines for this environment: write them from an unchanged checkout "
              "with `make bench-check UPDATE=1` and commit the file.")  # fmt: skip
        return 0 if chosen.allow_missing else NO_BASELINE
    before = {path: count for path, count in before.items() if chosen.paths in path}
    now = {path: count.instructions for path, count in counts.items()}
    least_moves = {path: count.least_move for path, count in counts.items()}
    changes = comparing.compare(before, now, chosen.tolerance, least_moves)
    print(comparing.table(changes))
    print(comparing.summary(changes, chosen.tolerance))
    if not comparing.has_moved(changes):
        return 0
    for difference in baselines.differences(found, name, about):
        print(f"The baselines were counted with {difference}.")
    print(f"`callgrind_annotate {KEPT.relative_to(callgrind.ROOT)}/PATH.callgrind` shows where a "
          "path's instructions go; `make bench-check UPDATE=1` writes new baselines.")  # fmt: skip
    return MOVED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
