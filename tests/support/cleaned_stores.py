"""Cleanups that were killed, and what a store must still be afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import rocketstore
from rocketstore.testing import check_invariants
from support.expired_stores import Was, assert_is_what_is_left

PROGRAM = Path(__file__).parents[1] / "crash" / "cleaning_program.py"
OPTIONS: dict[str, Any] = {"max_hash_slot_num": 5, "max_index_num": 40}


def killed_everywhere(
    pristine: Path, folder: Path, now: int, first: int, step: int, *how: str
) -> int:
    """Copies of ``pristine`` whose cleanups were killed; the number of the one that was not."""
    source = os.pathsep.join([str(Path(rocketstore.__file__).parents[1]), *filter(None, sys.path)])
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *map(str, (pristine, folder, now, first, step)), *how],
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def check(root: Path, was: Was, now: int) -> int:
    """Compare a store with what it held, then clean it; return where its log began before."""
    with rocketstore.open(
        root, "r+", clock=lambda: now, broker_version=was.version, **OPTIONS
    ) as store:
        minimum = store.min_physical_offset
        assert store.recovery_report.damaged == []
        assert store.recovery_report.gaps == []
        assert_is_what_is_left(store, was, minimum)
        assert store.verify().findings == []
    check_invariants(root).require()
    with rocketstore.open(
        root, "r+", clock=lambda: now, broker_version=was.version, **OPTIONS
    ) as store:
        store.clean_expired()
        last = store.min_physical_offset
    with rocketstore.open(root, "r+", broker_version=was.version, **OPTIONS) as store:
        assert_is_what_is_left(store, was, last)
        for topic, queue_id in was.ends:
            if not topic.startswith("SCHEDULE"):
                put = store.put(topic, b"new", queue_id)
                assert put.queue_offset == was.ends[topic, queue_id]
        assert store.wait_dispatched(120)
        assert store.verify().findings == []
    assert len(list((root / "commitlog").iterdir())) == 1
    return minimum
