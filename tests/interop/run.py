"""Run one case again, make a failing script short, or run new seeds for a while.

Usage::

    python tests/interop/run.py --case java-halted --version 5.3.3 --seed 17 [--shrink]
    python tests/interop/run.py --minutes 30 [--first-seed 1000]
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "src")]

from interop import catalogue  # noqa: E402
from interop.comparing import shown  # noqa: E402
from interop.harness import VERSIONS  # noqa: E402
from interop.workload import Job, Op  # noqa: E402

SEEDS_AT_ONCE = 20
#: How many shorter scripts are tried beside one another.
TRIED_AT_ONCE = 8


def run(case: catalogue.Case, version: str, jobs: list[Job], keep: bool) -> list[list[str]]:
    """Run ``jobs``; return the failures of each, those that were known counted on stderr."""
    scratch = Path(tempfile.mkdtemp(prefix="rocketstore-interop-"))
    try:
        outcomes = case.run(version, jobs, scratch)
    finally:
        if keep:
            print(f"the stores are in {scratch}", file=sys.stderr)
        else:
            shutil.rmtree(scratch, ignore_errors=True)
    known: Counter[str] = sum((outcome.found.known for outcome in outcomes), Counter())
    compared = sum(outcome.found.compared for outcome in outcomes)
    print(
        f"{case.name} {version}: {len(jobs)} stores, {compared} answers, known {dict(known)}",
        file=sys.stderr,
    )
    return [outcome.failures for outcome in outcomes]


def shorter(script: tuple[Op, ...], pieces: int) -> list[tuple[Op, ...]]:
    """The script without each of its ``pieces`` parts."""
    borders = [number * len(script) // pieces for number in range(pieces + 1)]
    ranges = itertools.pairwise(borders)
    return [script[:start] + script[stop:] for start, stop in ranges if start < stop]


def shrink(case: catalogue.Case, version: str, job: Job) -> Job:
    """Take parts of the script away as long as it still fails."""
    pieces = TRIED_AT_ONCE
    while True:
        found = None
        candidates = shorter(job.script, min(pieces, len(job.script)))
        for start in range(0, len(candidates), TRIED_AT_ONCE):
            group = candidates[start : start + TRIED_AT_ONCE]
            for script in group:
                # One store a run: names and random choices go by the seed.
                smaller = job.with_script(script)
                if run(case, version, [smaller], keep=False)[0]:
                    found = smaller
                    break
            if found:
                break
        if found is not None:
            job = found
            print(f"still fails with {len(job.script)} operations", file=sys.stderr)
        elif pieces >= len(job.script):
            return job
        else:
            pieces *= 2


def replay(arguments: argparse.Namespace) -> int:
    """Run one seed; with ``--shrink`` print the shortest script found that fails."""
    case = catalogue.CASES[arguments.case]
    (job,) = catalogue.jobs_of(case, arguments.version, [arguments.seed])
    (failures,) = run(case, arguments.version, [job], keep=not arguments.shrink)
    for failure in failures:
        print(failure)
    if failures and arguments.shrink:
        job = shrink(case, arguments.version, job)
        print(f"shortest script found, options {json.dumps(job.config)}:")
        for op in job.script:
            print(shown(json.dumps(op, ensure_ascii=False)))
    return 1 if failures else 0


def soak(arguments: argparse.Namespace) -> int:
    """Run new seeds of all cases and versions until the time is up; stop at a difference."""
    end = time.monotonic() + 60 * arguments.minutes
    # itertools.product would try to hold all seeds there are.
    rounds = (
        (first, case, version)
        for first in itertools.count(arguments.first_seed, SEEDS_AT_ONCE)
        for case in catalogue.CASES.values()
        for version in VERSIONS
    )
    stores = 0
    for first, case, version in rounds:
        if time.monotonic() > end:
            break
        jobs = catalogue.jobs_of(case, version, range(first, first + SEEDS_AT_ONCE))
        failed = False
        for job, failures in zip(jobs, run(case, version, jobs, keep=False), strict=True):
            if failures:
                failed = True
                print(f"{catalogue.replay_command(case, version, job.seed)}\n{failures[0]}")
        stores += len(jobs)
        if failed:
            return 1
    print(f"{stores} stores without a difference that is not known")
    return 0


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", choices=catalogue.CASES)
    parser.add_argument("--version", choices=VERSIONS)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--first-seed", type=int, default=1000)
    arguments = parser.parse_args()
    if arguments.minutes is not None:
        return soak(arguments)
    if None in (arguments.case, arguments.version, arguments.seed):
        parser.error("--case, --version and --seed, or --minutes")
    return replay(arguments)


if __name__ == "__main__":
    sys.exit(main())
