"""A writer with a transient store pool, killed at a random moment: what is lost was only in
memory and never promised."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from crash import killing
from rocketstore.testing import check_invariants

WRITER = Path(__file__).with_name("pool_writer.py")
KILLS_PER_STORE = 8


@pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
@pytest.mark.parametrize("round_number", range(2))
def test_killed_writer_loses_only_what_was_not_committed(
    flush_disk_type: str, round_number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(killing, "WRITER", WRITER)
    name = f"{flush_disk_type}-{random.SystemRandom().randrange(1 << 31)}"
    print(f"seed {name!r}")
    chance = random.Random(name)
    root, acknowledged = tmp_path / "store", killing.Acknowledged()
    for kill in range(KILLS_PER_STORE):
        moment = killing.KillMoment.choose(chance)
        output = killing.run_and_kill(root, flush_disk_type, round_number * 1000 + kill, moment)
        acknowledged.take(output)
        if root.exists():  # else the very first writer was killed before it made anything
            killing.check_store(root, acknowledged)
    # One more, so that something was written whatever the moments were.
    last = killing.KillMoment(True, 0.5)
    output = killing.run_and_kill(root, flush_disk_type, 1, last, least_rows=1)
    acknowledged.take(output)
    killing.check_store(root, acknowledged)
    assert acknowledged.rows
    check_invariants(root, clock_steps=True).require()
