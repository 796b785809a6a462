"""Random stores, handed from a real RocketMQ to rocketstore and back, in every version."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from interop import catalogue, maven
from interop.harness import VERSIONS

maven.require_java()

#: Each feature once at the least. ``make interop`` runs 20 seeds,
#: ``ROCKETSTORE_INTEROP_SEEDS=5:25`` others.
FIRST, BEHIND = map(int, os.environ.get("ROCKETSTORE_INTEROP_SEEDS", "0:10").split(":"))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", catalogue.CASES)
def test_stores_are_the_same_for_both(name: str, version: str, tmp_path: Path) -> None:
    case = catalogue.CASES[name]
    jobs = catalogue.jobs_of(case, version, range(FIRST, BEHIND))
    outcomes = case.run(version, jobs, tmp_path)
    catalogue.record(name, version, catalogue.rows_of(outcomes))
    assert sum(outcome.found.compared for outcome in outcomes) > 50 * len(jobs)
    problems = catalogue.failures(case, version, outcomes)
    assert not problems, problems
