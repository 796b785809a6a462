"""Random stores, handed from a real RocketMQ to rocketstore and back, in every version."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from interop import catalogue, maven
from interop.harness import VERSIONS

maven.require_java()

SEEDS = os.environ.get("ROCKETSTORE_INTEROP_SEEDS")
#: Versions whose every rule is that of 5.3.3 or of 5.5.0, which run all seeds.
ALIKE = ("5.4.0",)


def seeds(version: str) -> range:
    """Random stores: each feature once at the least in every version that is not alike another.

    ``make interop`` runs 20 in all versions, ``ROCKETSTORE_INTEROP_SEEDS=5:25`` others.
    """
    first, stop = map(int, (SEEDS or ("0:4" if version in ALIKE else "0:10")).split(":"))
    return range(first, stop)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", catalogue.CASES)
def test_stores_are_the_same_for_both(name: str, version: str, tmp_path: Path) -> None:
    case = catalogue.CASES[name]
    jobs = catalogue.jobs_of(case, version, seeds(version))
    outcomes = case.run(version, jobs, tmp_path)
    catalogue.record(name, version, catalogue.rows_of(outcomes))
    assert sum(outcome.found.compared for outcome in outcomes) > 50 * len(jobs)
    problems = catalogue.failures(case, version, outcomes)
    assert not problems, problems
