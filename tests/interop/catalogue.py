"""The cases that are run for every version, by the name that replays them."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interop import case_damage, case_java_writes, case_ours_write, case_relay
from interop.cases import Outcome
from interop.maven import BUILD
from interop.workload import Job, make_job

RESULTS = BUILD / "results"
SHOWN_FAILURES = 3


@dataclass(frozen=True)
class Case:
    """One way in which RocketMQ and rocketstore meet."""

    name: str
    #: What is done, as a column of the published table.
    title: str
    run: Callable[[str, Sequence[Job], Path], list[Outcome]]
    #: Operations of a script.
    length: int = 130
    #: The version whose scripts are written, by the tested version and the seed.
    script_version: Callable[[str, int], str] = lambda version, seed: version
    #: Whether only RocketMQ writes.
    only_reads: bool = False


CASES = {
    case.name: case
    for case in (
        Case(
            "java-clean",
            "RocketMQ writes, closes; rocketstore opens",
            case_java_writes.clean,
            only_reads=True,
        ),
        Case(
            "java-halted",
            "RocketMQ is halted; both open",
            case_java_writes.halted,
            only_reads=True,
        ),
        Case("ours-clean", "rocketstore writes, closes; RocketMQ opens", case_ours_write.clean),
        Case("ours-killed", "rocketstore is killed; both open", case_ours_write.killed),
        Case("damage", "one place is damaged; both open", case_damage.damaged, length=90),
        Case(
            "relay",
            "both write by turns, five turns, versions upward to this one",
            case_relay.up_to,
            length=100,
            script_version=case_relay.first_version,
        ),
    )
}


def jobs_of(case: Case, version: str, seeds: Sequence[int]) -> list[Job]:
    """The stores of ``seeds``."""
    return [
        make_job(
            seed,
            case.script_version(version, seed),
            length=case.length,
            only_writable=not case.only_reads,
        )
        for seed in seeds
    ]


def replay_command(case: Case, version: str, seed: int) -> str:
    """What a developer runs to see the failure again."""
    options = f"--case {case.name} --version {version} --seed {seed}"
    return f"python tests/interop/run.py {options} (and --shrink)"


def failures(case: Case, version: str, outcomes: Sequence[Outcome]) -> str:
    """What went wrong, with a command for each seed; empty when nothing did."""
    blocks = []
    for outcome in outcomes:
        if outcome.failures:
            count = len(outcome.failures)
            head = f"{outcome.job.name}: {count} differences; replay: "
            head += replay_command(case, version, outcome.job.seed)
            blocks.append("\n".join([head, *outcome.failures[:SHOWN_FAILURES]]))
    return "\n\n".join(blocks)


def record(case: str, version: str, rows: Sequence[dict[str, Any]]) -> None:
    """Keep the results of one run for the published table."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{case}-{version}.json"
    path.write_text(json.dumps({"case": case, "version": version, "rows": rows}, indent=1))


def record_tables(version: str, held: Sequence[dict[str, Any]]) -> None:
    """Keep how many tables of ``config`` each side read from the other, by kind."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"config-{version}.json"
    path.write_text(json.dumps({"version": version, "tables": list(held)}, indent=1))


def rows_of(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Stores, answers compared and known differences, by feature."""
    stores: Counter[str] = Counter()
    compared: Counter[str] = Counter()
    known: defaultdict[str, Counter[str]] = defaultdict(Counter)
    failed: Counter[str] = Counter()
    for outcome in outcomes:
        name = outcome.job.feature.name
        stores[name] += 1
        compared[name] += outcome.found.compared
        known[name] += outcome.found.known
        failed[name] += bool(outcome.failures)
    return [
        {
            "feature": name,
            "stores": stores[name],
            "compared": compared[name],
            "failed": failed[name],
            "known": dict(known[name]),
        }
        for name in sorted(stores)
    ]
