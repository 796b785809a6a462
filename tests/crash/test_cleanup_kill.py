"""A cleanup killed before each of its file operations leaves a good store, which is complete from
a later message on, and the next cleanup continues."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import rocketstore
from rocketstore.testing import check_invariants
from support.cleaned_stores import OPTIONS, check, killed_everywhere
from support.expired_stores import look, make
from support.syncs import LONG_S

PROGRAM = Path(__file__).with_name("cleaning_program.py")
VERSIONS = ("4.9.8", "5.5.0")
START = 1_709_294_400_000
#: Every so many file operations one cleanup is killed; 1 tries all.
STEP = int(os.environ.get("ROCKETSTORE_CLEANUP_KILL_STEP", "12"))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("compares", [True, False])
def test_a_cleanup_killed_anywhere(
    tmp_path: Path, version: str, compares: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a short log, opening compares every unit. In a long one it trusts the state file, which
    may lag the files after a kill."""
    if not compares:
        monkeypatch.setattr("rocketstore.store.dispatch_recovery.COMPARED_NBYTES", 0)
    pristine, folder = tmp_path / "pristine", tmp_path / "killed"
    make(pristine, version, clock=lambda: START)
    was = look(pristine, version, OPTIONS)
    now = START + 100 * 3_600_000
    first = (VERSIONS.index(version) * 2 + compares) * 3 % STEP
    count = killed_everywhere(pristine, folder, now, first, STEP)
    assert count > 60
    minimums = set()
    for root in sorted(folder.iterdir(), key=lambda path: int(path.name)):
        minimums.add(check(root, was, now))
        shutil.rmtree(root)
    assert len(minimums) > 1  # it was killed between segments, too


# --- at random moments ----------------------------------------------------------------------------

#: Kills of one store, one after the other.
KILLS = int(os.environ.get("ROCKETSTORE_CLEANUP_KILLS", "12"))


def run_and_kill(
    root: Path, seed: int, delay_s: float, *, until_cleaned: bool
) -> list[tuple[int, int, int, int]]:
    """Start a writer that cleans, kill it; return what it acknowledged."""
    source = os.pathsep.join([str(Path(rocketstore.__file__).parents[1]), *filter(None, sys.path)])
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM.with_name("cleaning_writer.py")), str(root), str(seed)],
        env={**os.environ, "PYTHONPATH": source},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,  # what a buffer of ours had taken, communicate would not return
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    time.sleep(delay_s)
    deadline = time.monotonic() + LONG_S
    while until_cleaned and (root / "commitlog" / ("0" * 20)).exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.001)
    process.kill()
    output, errors = process.communicate()
    assert first == b"open\n", errors.decode()
    lines = output.split(b"\n")[:-1]  # what follows the last line end was never finished
    return [tuple(map(int, line.split(b"\t"))) for line in lines]  # type: ignore[misc]


def test_a_writer_that_cleans_is_killed_at_random_moments(tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    chance, root = random.Random(seed), tmp_path / "store"
    stored: list[tuple[int, int, int, int]] = []
    for kill in range(1, KILLS + 1):
        delay_s = chance.choice((0.02, 0.1, 0.3))
        stored += run_and_kill(root, kill, delay_s, until_cleaned=kill == KILLS)
        with rocketstore.open(root, "r+") as store:
            minimum = store.min_physical_offset
            assert store.recovery_report.damaged == []
            assert store.recovery_report.gaps == []
            stored = [row for row in stored if row[0] >= minimum]
            for offset, queue_id, queue_offset, number in stored:
                message = store.look_message_by_offset(offset)
                assert message is not None, f"the acknowledged message at {offset} is gone"
                assert int(message.body) == number
                found = store.get_message("g", "T", queue_id, queue_offset, 1).messages
                assert [m.physical_offset for m in found] == [offset]
                assert offset in [
                    m.physical_offset for m in store.find(topic="T", key=f"k{number}")
                ]
                assert store.max_offset_in_queue("T", queue_id) > queue_offset
            assert store.verify().findings == []
        check_invariants(root, clock_steps=True, reopen=False).require()
    assert minimum > 0
    check_invariants(root, clock_steps=True).require()
