"""Run the script once for every file operation and error, each in a fork of this process.

``make faults`` runs all of it; ``python -m crash.faults`` starts it by hand.
"""

from __future__ import annotations

import argparse
import errno
import faulthandler
import gc
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import rocketstore
from crash.campaigns import Ticker, finish, scratch_folder
from crash.faults import library
from crash.faults.library import ONCE, SHORT, STICKY, Faults
from crash.faults.script import MODES, OPTIONS, BrokenPromiseError, Script
from rocketstore.testing import check_invariants

ERRORS = {
    name: getattr(errno, name) for name in ("EIO", "ENOSPC", "EDQUOT", "EMFILE", "ENOMEM", "EINTR")
}
#: Operations that may be interrupted; Python and the kernels have to try them again.
INTERRUPTIBLE = {"open", "create", "ftruncate", "fallocate", "mmap", "msync", "fsync", "fdatasync"}
INTERRUPTIBLE |= {"pread", "pwrite", "write", "lock"}
#: Operations that allocate disk space; after a moment without space, writing continues.
ASKS_FOR_ROOM = {"create", "mkdir", "link", "ftruncate", "fallocate", "write", "pwrite"}
#: Seconds after which a run hangs.
LIMIT_S = 150


class Case(NamedTuple):
    """One run: the operation's number, the error's name, and ``once``, ``sticky`` or ``short``."""

    mode: str
    number: int
    error: str
    manner: str

    def __str__(self) -> str:
        return f"{self.mode} {self.number} {self.error} {self.manner}"


def all_cases(mode: str, points: list[str]) -> Iterator[Case]:
    """Every operation with every error; interrupts come once, or nothing would ever end."""
    for number, point in enumerate(points):
        for error in ERRORS:
            yield Case(mode, number, error, "once")
            if error != "EINTR":
                yield Case(mode, number, error, "sticky")
        if point.split()[0] in ("write", "pwrite"):
            yield Case(mode, number, "EIO", "short")


def run_case(case: Case, root: Path, faults: Faults) -> dict[str, Any]:
    """Run the script with one fault, then without; raise when a promise is broken."""
    faults.watch(root)
    manner = {"once": ONCE, "sticky": STICKY, "short": SHORT}[case.manner]
    faults.arm(case.number, ERRORS[case.error], manner)
    # What never ends while the fault lasts shall not be waited for.
    script = Script(root, case.mode, faults, 0.3 if case.manner == "sticky" else 60.0)
    script.run()
    fired, count = faults.fired, faults.fired_count
    faults.disarm()
    script.let_go()
    errors = script.outcome.errors
    kind = fired.split()[0] if fired else ""
    # With threads the number may be that of another operation than a write, as a read, which is
    # short where a file was truncated.
    is_short_write = case.manner == "short" and kind in ("write", "pwrite")
    if errors and (is_short_write or (case.error == "EINTR" and kind in INTERRUPTIBLE)):
        raise BrokenPromiseError(f"an error from what can be gone on with: {errors}")
    if case.error in ("ENOSPC", "EDQUOT") and case.manner == "once" and kind in ASKS_FOR_ROOM:
        final = [error for error in errors if error.startswith("ServiceFailedError")]
        if final:
            reported = sorted({*final})
            raise BrokenPromiseError(f"a disk that was full for a moment ended writing: {reported}")
    check_store(root, script)
    return {"fired": fired, "count": count, "errors": errors}


def check_store(root: Path, script: Script) -> None:
    """Open without faults: everything acknowledged is there, nothing is there that was not put."""
    outcome = script.outcome
    with rocketstore.open(root, "a", start=False, **OPTIONS) as store:
        report = store.recovery_report
        if report.damaged or report.gaps:
            raise BrokenPromiseError(f"reopened with damage: {report}")
        bodies = Counter(bytes(message.body) for message in store.scan())
        repeated = [body for body, count in bodies.items() if count > 1]
        invented = bodies.keys() - outcome.attempted
        if repeated or invented:
            raise BrokenPromiseError(f"repeated {repeated}, invented {invented}")
        if not store.put("Orders", b"after all of it", 0, "TagA", "last").ok:
            raise BrokenPromiseError("the reopened store takes no message")
        store.wait_dispatched()
        verified = store.verify()
        if not verified.ok:
            raise BrokenPromiseError(f"verify: {verified.findings[:5]}")
    check_invariants(root, acknowledged=outcome.promised(), clock_steps=True).require()


def in_fork(case: Case, faults: Faults, scratch: Path) -> dict[str, Any]:
    """Run one case in a child."""
    root = scratch / "store"
    shutil.rmtree(root, ignore_errors=True)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os._exit(_child(case, root, faults, writing))
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    reported: dict[str, Any] = json.loads(answer or b"{}")
    if status:
        code = os.waitstatus_to_exitcode(status)
        reported.setdefault("broken", f"ended with {code}")
        if code == -signal.SIGALRM:
            reported["broken"] = f"hung for {LIMIT_S} s"
    return reported


def _child(case: Case, root: Path, faults: Faults, writing: int) -> int:
    faulthandler.dump_traceback_later(LIMIT_S - 1, file=sys.__stderr__)
    signal.alarm(LIMIT_S)
    try:
        reported = run_case(case, root, faults)
    except BaseException as error:  # noqa: BLE001 - sent to the parent, which fails
        reported = {"broken": f"{error!r}", "where": traceback.format_exc(), "fired": faults.fired}
    faults.pause(True)
    content = json.dumps(reported).encode()
    while content:
        content = content[os.write(writing, content) :]
    return 0


def list_points(mode: str, root: Path, faults: Faults) -> list[str]:
    """Every operation of a run without a fault. Here, not in a fork: what is imported on first use
    is there for all children then."""
    faults.watch(root)
    script = Script(root, mode, faults)
    script.run()
    points = faults.points
    if script.outcome.errors:
        raise BrokenPromiseError(f"errors without a fault: {script.outcome.errors}")
    faults.pause(True)
    check_store(root, script)
    shutil.rmtree(root)
    return points


def choose_cases(
    cases: list[Case], points: dict[str, list[str]], runs: int, chance: random.Random
) -> list[Case]:
    """All cases, or ``runs`` of them by chance: first one of each kind of operation, then equally
    many of each mode and kind, a few runs all kinds of a few modes."""
    if not runs or runs >= len(cases):
        return cases
    chance.shuffle(cases)
    groups: dict[tuple[str, ...], list[Case]] = {}
    firsts: dict[str, Case] = {}
    # With threads a number may be that of another operation in the next run.
    for case in sorted(cases, key=lambda case: case.mode.startswith("threads")):
        kind = points[case.mode][case.number].split()[0]
        if firsts.setdefault(kind, case) is not case:
            groups.setdefault((case.mode, kind), []).append(case)
    modes = list(points)
    chance.shuffle(modes)
    in_turn = sorted(groups, key=lambda mode_and_kind: modes.index(mode_and_kind[0]))
    chosen = list(firsts.values())[:runs]
    while len(chosen) < runs:
        for group in map(groups.__getitem__, in_turn):
            if group and len(chosen) < runs:
                chosen.append(group.pop())
    return chosen


def main(arguments: list[str] | None = None) -> int:
    """Run the campaign; print what it did, and every broken promise."""
    parser = argparse.ArgumentParser(prog="crash.faults.campaign", description=__doc__)
    parser.add_argument("--runs", type=int, default=0, help="at most so many runs; 0: all")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--errors", nargs="+", choices=ERRORS, default=list(ERRORS))
    parser.add_argument("--case", nargs=4, metavar=("MODE", "NUMBER", "ERROR", "MANNER"))
    parser.add_argument("--report", type=Path, help="write the counts to this JSON file")
    options = parser.parse_args(arguments)
    seed = options.seed if options.seed is not None else random.randrange(1 << 32)
    faults = Faults()
    began, broken = time.monotonic(), 0
    kinds: Counter[str] = Counter()
    with scratch_folder("faults") as scratch:
        points = {mode: list_points(mode, scratch / "store", faults) for mode in MODES}
        cases = [case for mode in options.modes for case in all_cases(mode, points[mode])]
        cases = [case for case in cases if case.error in options.errors]
        cases = choose_cases(cases, points, options.runs, random.Random(seed))
        if options.case:
            mode, number, error, manner = options.case
            cases = [Case(mode, int(number), error, manner)]
        gc.freeze()
        ticker = Ticker("runs", len(cases))
        for number, case in enumerate(cases):
            ticker.report(number, broken)
            reported = in_fork(case, faults, scratch)
            kinds[reported.get("fired", "").split(" ")[0] or "none"] += 1
            if "broken" in reported:
                broken += 1
                print(f"BROKEN --case {case} ({reported.get('fired')}): {reported['broken']}")
                print(reported.get("where", ""), flush=True)
            elif options.case:
                print(json.dumps(reported, indent=1))
    summary = {
        "runs": len(cases),
        "seed": seed,
        "kernels": rocketstore.kernels.name,
        "version": rocketstore.__version__,
        "points": {mode: len(points[mode]) for mode in options.modes},
        "fired": dict(sorted(kinds.items())),
        "broken": broken,
        "seconds": round(time.monotonic() - began, 1),
    }
    return finish(summary, options.report)


_PROGRAM = """
import sys
from crash.faults import campaign
{prelude}
sys.exit(campaign.main(sys.argv[1:]))
"""


def start(
    *arguments: str, prelude: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the campaign in a process that loads the library before the C library; ``prelude`` is
    Python code that runs before."""
    tests = Path(__file__).resolve().parents[2]
    path = os.pathsep.join([str(Path(rocketstore.__file__).parents[1]), str(tests)])
    return subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(prelude=prelude), *arguments],
        env={
            **os.environ,
            "PYTHONPATH": path,
            "LD_PRELOAD": str(library.build()),
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
    )


if __name__ == "__main__":
    sys.exit(main())
