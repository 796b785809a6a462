"""Embedded stores beside rocketstore, by durability: what a put costs a program of its own.

Each durability is a row; all contestants put the same messages of 100 bytes with a producer's
properties. rocketstore also keeps queues and an index of keys, the others do not.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from race import contestants
from race.busy import Watch
from race.contestants import Contestant
from race.figures import NATIVE, Figure, Sample, figure
from race.messages import QUEUES, MessageSet
from race.rounds import WrongResultError, settle

#: Module that each store needs, by its name.
MODULES = {"lmdb": "lmdb", "sqlite": "sqlite3", "persist-queue": "persistqueue"}
NAMES = tuple(MODULES)
STEP = 1000


@dataclass(frozen=True)
class Durability:
    """A row: how a store is opened, and how many messages are put in which way."""

    name: str
    opened: str
    call: str
    ours: str
    count: int


DURABILITIES = (
    Durability("each put, not synced", "async", "each", "put_message", 20_000),
    Durability("groups of 1,000, not synced", "async", "group", "put_many", 100_000),
    Durability("each put durable", "sync", "each", "put_message", 300),
    Durability("groups of 1,000 durable", "sync", "group", "put_many", 20_000),
)


@dataclass(frozen=True)
class PeerLine:
    """A row of the table of embedded stores."""

    name: str
    figures: dict[str, Figure]

    def as_json(self) -> dict[str, Any]:
        """Everything."""
        return asdict(self)


class _Starts(Protocol):
    def start(self, make: Callable[[], Contestant]) -> Contestant: ...


def installed(python: str, names: list[str]) -> tuple[list[str], list[str]]:
    """Return the stores that ``python`` can import, and a sentence for each other one."""
    found, sentences = [], []
    for name in names:
        done = subprocess.run(
            [python, "-c", f"import {MODULES[name]}"], capture_output=True, check=False
        )
        if done.returncode == 0:
            found.append(name)
        else:
            sentences.append(f"{name} is left out: {python} cannot import {MODULES[name]}")
    return found, sentences


def _peer(name: str, python: str, scratch: Path) -> Contestant:
    program = contestants.HERE / "embedded.py"
    paths = [str(contestants.HERE.parent), os.environ.get("PYTHONPATH", "")]
    return Contestant(
        name, [python, str(program), name], scratch,
        {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
    )  # fmt: skip


def _put(one: Contestant, row: Durability, folder: Path) -> dict[str, Any] | None:
    """Put into a new store; ``None`` for what a store cannot do."""
    ours = one.name == NATIVE
    if one.name == "persist-queue" and row.call == "group":
        return None
    shutil.rmtree(folder, ignore_errors=True)
    one.do(f"open {folder} {row.opened}")
    answer = one.do(f"put {row.ours if ours else row.call} 0 {row.count} {STEP}")
    if ours:
        one.do("dispatched")
    stored = one.do(f"end {QUEUES}")["count"]
    if stored != row.count:
        raise WrongResultError(f"{one.name}: {row.name}: {stored} instead of {row.count} messages")
    one.do("close")
    settle(folder)
    shutil.rmtree(folder)
    return answer


def race(
    given: argparse.Namespace, starter: _Starts, scratch: Path, watch: Watch
) -> tuple[list[PeerLine], list[str]]:
    """Race the embedded stores; return the rows, and sentences about what is left out."""
    names, remarks = installed(given.peers_python, given.peers)
    if not names:
        return [], remarks
    chosen = MessageSet.make("producer", "100", 0, max(row.count for row in DURABILITIES))
    path = scratch / "peers-set"
    chosen.write(path)
    field = [starter.start(partial(contestants.ours, "5.5.0", scratch))]
    field += [starter.start(partial(_peer, name, given.peers_python, scratch)) for name in names]
    for one in field:
        one.do(f"set {path}")
    samples: dict[tuple[str, str], list[Sample]] = {}
    for number in range(given.rounds + 1):
        watch.begin_round()
        first = number % len(field)
        for row in DURABILITIES:
            for one in field[first:] + field[:first]:
                answer = _put(one, row, given.folder / one.name)
                if answer is not None and number > 0:  # the first round warms up
                    sample = Sample(
                        "producer", "100", row.name, one.name, number,
                        answer["wall"], answer["cpu"], answer["process"], row.count,
                    )  # fmt: skip
                    samples.setdefault((row.name, one.name), []).append(sample)
        watch.end_round()
        print(f"embedded stores: round {number} of {given.rounds}", file=sys.stderr)
    found = []
    for row in DURABILITIES:
        figures = {one.name: figure(samples.get((row.name, one.name), [])) for one in field}
        found.append(
            PeerLine(row.name, {name: one for name, one in figures.items() if one is not None})
        )
    if "persist-queue" in names:
        remarks.append("persist-queue puts no groups: each of its puts is a transaction")
    return found, remarks
