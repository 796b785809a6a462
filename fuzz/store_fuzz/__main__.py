"""``python -m store_fuzz``: damage stores for some minutes, or run one case again."""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import random
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # a process that forks must have one thread

from store_fuzz import bases  # noqa: E402
from store_fuzz.bases import Base  # noqa: E402
from store_fuzz.cases import Case, Finding, make_case, run_here, shrink, try_case  # noqa: E402


def prepare(names: list[str], directory: Path) -> list[Base]:
    """Load stores, and determine which checks they pass undamaged."""
    found = []
    for name in names:
        base = bases.load(name, directory / "base")
        for check in ("openable", "writable", "verified", "pulled", "found"):
            base.whole[check] = True
        for _ in range(6):
            finding = try_case(base, Case(name, 0, ()), directory / "whole")
            if finding is None:
                break
            weakened = _weaken(base, finding)
            if not weakened:
                raise SystemExit(f"the undamaged store {name} fails: {finding.detail}")
            print(f"{name}: {weakened} is not checked: {finding.detail.splitlines()[-2][:150]}")
        found.append(base)
    return found


def _weaken(base: Base, finding: Finding) -> str:
    signs = {
        "mode r refuses": "openable",
        "mode r+ refuses": "writable",
        "verify finds": "verified",
        "were read": "pulled",
        "not found": "found",
    }
    for sign, check in signs.items():
        if sign in finding.detail and base.whole[check]:
            base.whole[check] = False
            return check
    return ""


#: Damage inside an index file that opening for writing does not look for: ``verify`` finds it.
UNSEEN = ("not rebuilt: index:",)


def hunt(
    loaded: list[Base],
    seeds: Iterator[int],
    directory: Path,
    until: Callable[[int], bool],
    ignored: Sequence[str] = (),
) -> tuple[int, list[Finding]]:
    """Try a case for each seed until ``until`` is true; return their number and the findings, one
    shrunken finding of each kind."""
    count, kinds = 0, {}
    numbers = itertools.count()
    for seed in seeds:
        if until(count):
            break
        base = loaded[seed % len(loaded)]
        case = make_case(base, seed)
        finding = try_case(base, case, directory / f"case{next(numbers)}")
        count += 1
        if finding is None or any(text in finding.kind for text in ignored):
            continue
        if finding.kind not in kinds:
            least = shrink(base, finding, lambda: directory / f"case{next(numbers)}")
            kinds[finding.kind] = least
            report(least)
    return count, list(kinds.values())


def report(finding: Finding) -> None:
    """Print a finding and how to reproduce it."""
    print(f"\n=== {finding.kind}\n{finding.detail.rstrip()}")
    print(f"seed {finding.case.seed}; reproduce with:")
    print(f"  PYTHONPATH=fuzz:src python -m store_fuzz --case '{finding.case.to_json()}'")
    sys.stdout.flush()


def main(arguments: list[str] | None = None) -> int:
    """Run the fuzzer; return the exit status: 1 if something was found."""
    parser = argparse.ArgumentParser(prog="store_fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--count", type=int, help="number of cases, instead of minutes")
    parser.add_argument("--seed", type=int, help="first seed (default: drawn)")
    parser.add_argument("--bases", nargs="*", help="names of stores (default: all)")
    parser.add_argument("--ignore", nargs="*", default=UNSEEN, help="kinds of findings to ignore")
    parser.add_argument("--case", help="one case, as it was printed, without a child process")
    options = parser.parse_args(arguments)
    logging.getLogger("rocketstore").setLevel(logging.CRITICAL)
    directory = bases.working_directory()
    try:
        if options.case:
            case = Case.from_json(options.case)
            (base,) = prepare([case.base], directory)
            run_here(base, case, directory / "again")
            print("nothing is wrong with this case")
            return 0
        seed = random.SystemRandom().randrange(10**9) if options.seed is None else options.seed
        loaded = prepare(options.bases or bases.names(), directory)
        print(f"seed {seed}, {len(loaded)} stores")
        end = time.monotonic() + 60 * options.minutes
        most = options.count
        began = time.monotonic()
        count, found = hunt(
            loaded,
            itertools.count(seed),
            directory,
            lambda done: done >= most if most is not None else time.monotonic() > end,
            options.ignore,
        )
        passed = time.monotonic() - began
        print(f"{count} cases in {passed:.0f} s ({count / passed:.1f}/s), {len(found)} findings")
        return 1 if found else 0
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
