"""Race rocketstore beside the real RocketMQ on messages as a Java producer makes them.

    python benchmarks/race --quick
    python benchmarks/race --rounds 7 --messages producer --bodies 100 --rows put_message query
    python benchmarks/race --quick --rows group_commit threads --without reference
    python benchmarks/race --short

Contestants take turns in every round, each in a process of its own: the rocketmq-store jars,
rocketstore with its native kernels and, on fewer messages, its reference kernels, and a bare loop
in C as the limit. One uncounted round of fewer messages warms all of them up. Then embedded stores
are compared by durability (``peers.py``). The figures are medians of the rounds.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from race import contestants, peers, report
from race.busy import Watch
from race.contestants import BUILD, Contestant
from race.figures import LIMIT, NATIVE, REFERENCE, Sample, lines
from race.machine import machine
from race.messages import BODIES, SHAPES, MessageSet
from race.rounds import Field, Round
from race.rows import FAMILIES, NAMES, SHORT

VERSIONS = ("4.9.8", "5.5.0")
MIB = 1 << 20
#: Messages of the round that warms up.
WARM_COUNT = 100_000
SHORT_MOST = 250_000


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="race",
        description=(__doc__ or "").split("\n\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--mib", type=int, default=1000, help="log of each store; at most one segment of 1,024"
    )
    parser.add_argument("--quick", action="store_true", help="100 MiB, 3 rounds, 100-byte bodies")
    parser.add_argument(
        "--short", action="store_true",
        help="256 MiB, producer messages, the main rows, no reference kernels; durable puts, "
        "several threads and openings for the first size of bodies alone",
    )  # fmt: skip
    parser.add_argument(
        "--most", type=int, metavar="COUNT",
        help="messages of a row whose store is not read afterwards (short: 250,000)",
    )  # fmt: skip
    parser.add_argument("--messages", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--bodies", nargs="+", choices=BODIES, default=list(BODIES))
    parser.add_argument("--versions", nargs="*", default=list(VERSIONS), help="none: no jars")
    parser.add_argument(
        "--rows", nargs="+", choices=(*FAMILIES, "peers", *NAMES), default=[*FAMILIES, "peers"],
        metavar="ROW", help=f"rows or families: {', '.join(FAMILIES)}, peers",
    )  # fmt: skip
    parser.add_argument("--without", nargs="+", choices=(REFERENCE, LIMIT), default=[])
    parser.add_argument("--peers", nargs="*", choices=peers.NAMES, default=list(peers.NAMES))
    parser.add_argument("--peers-python", default=sys.executable, help="interpreter that has them")
    parser.add_argument("--folder", type=Path, default=BUILD / "stores", help="for the stores")
    parser.add_argument("--json", type=Path, default=BUILD / "race.json")
    parser.add_argument("--svg", type=Path, default=BUILD, help="folder for the charts")
    parser.add_argument("--trace", action="store_true", help="print each step with its seconds")
    given = parser.parse_args(words)
    Contestant.trace = given.trace
    given.rows = [row for name in given.rows for row in FAMILIES.get(name, (name,))]
    if given.short:
        given.mib, given.messages = min(given.mib, 256), ["producer"]
        given.rows, given.without = list(SHORT), [REFERENCE, *given.without]
        given.most = given.most or SHORT_MOST
    if given.quick:
        given.mib = min(given.mib, 100)
        given.rounds = min(given.rounds, 3)
        given.bodies = given.bodies[:1]
    if given.rounds < 1 or not 1 <= given.mib <= 1020:
        parser.error("--rounds must be at least 1, and --mib 1 to 1020")
    return given


class Starter:
    """Starts contestants, and knows the CPU time of all that ever ran."""

    def __init__(self) -> None:
        self.running: list[Contestant] = []

    def start(self, make: Callable[[], Contestant]) -> Contestant:
        """Start one and keep it in mind."""
        one = make()
        self.running.append(one)
        return one

    def cpu_s(self) -> float:
        """CPU seconds of this process, of processes that ended, and of those that run."""
        times = os.times()
        own = times.user + times.system + times.children_user + times.children_system
        return own + sum(one.cpu_s() for one in self.running if one.is_running())

    def kill_all(self) -> None:
        """End all of them."""
        for one in self.running:
            one.kill()


def field_of(given: argparse.Namespace, starter: Starter, scratch: Path) -> Field:
    """Start the contestants."""
    sys.path.insert(0, str(contestants.ROOT / "tests"))
    from interop import maven

    versions = list(given.versions)
    if versions and (reason := maven.lacks_java()):
        print(f"no jars: {reason}")
        versions = []
    # Our records are those of the newest version.
    ours = max(versions, key=lambda text: [int(part) for part in text.split(".")], default="5.5.0")
    makers: dict[str, Callable[[], Contestant]] = {}
    for version in versions:
        makers[f"jar {version}"] = partial(contestants.java, version, scratch)
    makers[NATIVE] = partial(contestants.ours, ours, scratch)
    if REFERENCE not in given.without:
        makers[REFERENCE] = partial(contestants.ours, ours, scratch, REFERENCE)
    if LIMIT not in given.without:
        makers[LIMIT] = partial(contestants.limit, scratch)
    started = [starter.start(make) for make in makers.values()]
    again = {name: partial(starter.start, make) for name, make in makers.items()}
    return Field(
        started,
        again,
        given.folder,
        frozenset(given.rows),
        f"jar {ours}" if versions else "",
        given.most,
    )


def settings(given: argparse.Namespace) -> dict[str, Any]:
    """What the stores are given beside their defaults."""
    return {
        "options": {name: str(value) for name, value in vars(given).items()},
        "jar": contestants.JAVA_SETTINGS,
        "jvm": list(contestants.JVM_FLAGS),
        "rocketstore": contestants.OUR_SETTINGS,
        "limits.c": list(contestants.C_FLAGS),
    }


def race_set(
    field: Field, watch: Watch, given: argparse.Namespace, shape: str, body: str
) -> list[Sample]:
    """Race with one message set; return all samples but those of the first round."""
    chosen = MessageSet.make(shape, body, given.mib * MIB)
    path = field.folder / "set"
    chosen.write(path)
    for one in field.contestants:
        one.do(f"set {path}")
    field.rows = rows_of(given, body)
    turn = Round(field, shape, body, chosen)
    samples: list[Sample] = []
    try:
        turn.run(0, min(WARM_COUNT, len(chosen)))
        for number in range(1, given.rounds + 1):
            began = time.monotonic()
            watch.begin_round()
            samples += turn.run(number, len(chosen))
            watch.end_round()
            print(
                f"{shape} {body}: round {number} of {given.rounds}, {len(chosen):,} messages, "
                f"{time.monotonic() - began:.0f} s",
                file=sys.stderr,
            )
    finally:
        turn.close()
    return samples


def sets(given: argparse.Namespace) -> list[tuple[str, str]]:
    """Shapes and bodies: all bodies for producers, the first body for the other shapes."""
    return [
        (shape, body)
        for shape in given.messages
        for body in (given.bodies if shape == "producer" else given.bodies[:1])
    ]


def rows_of(given: argparse.Namespace, body: str) -> frozenset[str]:
    """Rows of a message set; a short race has no waiters or threads with later sizes of bodies."""
    rows = frozenset(given.rows)
    if given.short and body != given.bodies[0]:
        rows -= {name for family in ("group_commit", "threads") for name in FAMILIES[family]}
    return rows


def _end(*_: object) -> None:
    """End as after an error, so that the stores are removed; ``timeout`` sends the signal twice."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(1)


def main(words: Sequence[str] | None = None) -> int:
    """Run the race and report it."""
    given = arguments(words)
    given.folder.mkdir(parents=True, exist_ok=True)
    # Whatever else the folder holds is left as it is.
    given.folder = Path(tempfile.mkdtemp(prefix="race-", dir=given.folder)).resolve()
    scratch = given.folder / "scratch"
    scratch.mkdir()
    signal.signal(signal.SIGTERM, _end)
    starter = Starter()
    result: dict[str, Any] = {"machine": machine(given.folder), "settings": settings(given)}
    tables = []
    watch = Watch(starter.cpu_s, contestants.TICKS)
    try:
        field = field_of(given, starter, scratch)
        jars = [one.name for one in field.contestants if one.name.startswith("jar")]
        watch.look_before()
        every: list[Sample] = []
        if set(given.rows).intersection(NAMES):
            for shape, body in sets(given):
                every += race_set(field, watch, given, shape, body)
        for shape, body in sets(given):
            mine = [one for one in every if (one.shape, one.body) == (shape, body)]
            tables.append((shape, body, lines(mine)))
        found: list[peers.PeerLine] = []
        remarks: list[str] = []
        if "peers" in given.rows:
            found, remarks = peers.race(given, starter, scratch, watch)
    finally:
        starter.kill_all()
        shutil.rmtree(given.folder, ignore_errors=True)
    busy = watch.sentences()
    result |= {
        "rounds": given.rounds,
        "busy": busy,
        "others_before": watch.before,
        "others_during": watch.during,
        "calibration_ns": watch.calibrations,
        "tables": [
            {"messages": shape, "body": body, "rows": [line.as_json() for line in table]}
            for shape, body, table in tables
        ],
        "peers": [line.as_json() for line in found],
        "samples": [vars(one) for one in every],
    }
    report.show(result["machine"], given.rounds, tables, jars, found, remarks, busy)
    report.write_json(given.json, result)
    report.write_charts(given.svg, result)
    print(f"JSON: {given.json}; charts: {given.svg}")
    return 0
