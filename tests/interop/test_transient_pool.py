"""Stores that were written through the transient store pool, opened by a real RocketMQ."""

from __future__ import annotations

from pathlib import Path

import pytest

from interop import case_ours_write, catalogue, maven
from interop.harness import VERSIONS

maven.require_java()

SEEDS = range(500, 504)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("version", VERSIONS)
def test_rocketmq_reads_what_was_committed_from_the_pool(version: str, tmp_path: Path) -> None:
    case = catalogue.CASES["ours-clean"]
    jobs = catalogue.jobs_of(case, version, SEEDS)
    outcomes = case_ours_write.clean(
        version, jobs, tmp_path, transient_store_pool_enable=True, transient_store_pool_size=2
    )
    assert sum(outcome.found.compared for outcome in outcomes) > 50 * len(jobs)
    problems = catalogue.failures(case, version, outcomes)
    assert not problems, problems
