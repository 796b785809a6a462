"""States that a power failure may leave: nothing confirmed is lost, nothing is invented.

``make powercut`` judges any number of them, this 4,000.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import pytest

if not sys.platform.startswith("linux"):
    pytest.skip("the model of a disk reads /proc", allow_module_level=True)

from crash import power_cut_campaign as campaign
from crash.power_cut_life import MODES
from rocketstore.files import durable as durable_file
from rocketstore.log.writable_commit_log import WritableCommitLog

SEED = 20261122
STATES = 2_000


@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", MODES)
def test_no_power_failure_breaks_a_promise(mode: str) -> None:
    states = thorough = 0
    for story in campaign.stories(SEED, [mode], 1):
        assert not story.broken, f"--seed {SEED} {story.broken[0]}"
        states, thorough = states + story.states, thorough + story.thorough
        if states >= STATES // len(MODES):
            break
    assert thorough >= states // campaign.THOROUGH_EVERY


def broken_promises(tmp_path: Path, mode: str) -> str:
    """What is seen in a few stories."""
    found = []
    for number in itertools.count():
        found += campaign.run_story(SEED, mode, number, tmp_path).broken
        if found or number == 20:
            return "\n".join(found)
    raise AssertionError


def test_a_log_that_is_not_synced_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forget(log: WritableCommitLog, offset: int | None = None) -> int:
        log.queue.flushed_where = log.commit() if offset is None else min(offset, log.max_offset)
        return log.queue.flushed_where

    monkeypatch.setattr(WritableCommitLog, "flush", forget)
    found = broken_promises(tmp_path, "sync")
    # Which is seen first depends on what the threads had written when the power went.
    assert "confirmed" in found or "zeros where a record should be" in found


def test_a_folder_that_is_not_synced_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable_file, "sync_directory", lambda path: None)
    assert broken_promises(tmp_path, "sync")
