"""Opening a clean store of 100 segments of 16 MiB, for reading and for writing.

The store holds 400,000 messages of 4 KiB in 8 queues, one in a hundred with a key, and takes
1.6 GiB in the temporary directory. Pages are in the cache; what a first open after a start of the
machine takes is the disk's affair. ``close`` is not counted.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rocketstore

SEGMENTS = 100
SEGMENT_NBYTES = 16 * 1024 * 1024
BODY_NBYTES = 4096
ROUNDS = 15


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store, closed in good order."""
    path = tmp_path_factory.mktemp("open") / "store"
    count = 1000
    offsets = np.arange(count + 1, dtype=np.int64) * BODY_NBYTES
    data = np.random.default_rng(1).bytes(count * BODY_NBYTES)
    with rocketstore.open(path, "x", mapped_file_size_commit_log=SEGMENT_NBYTES) as store:
        number = 0
        while store.max_physical_offset < (SEGMENTS - 1) * SEGMENT_NBYTES:
            assert store.put_columns("T", offsets, data, queue_id=number % 8, tags="Tag").ok
            for key in range(10):
                store.put("T", b"", number % 8, "Tag", f"{number}-{key}")
            number += 1
        assert store.wait_dispatched()
    assert len(list((path / "commitlog").iterdir())) >= SEGMENTS
    return path


@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("r", {}),
        ("r", {"derive": "none"}),
        ("r", {"derive": "full"}),
        ("r+", {"start": False}),
        ("r+", {}),
    ],
    ids=["r", "r-none", "r-full", "r+-unstarted", "r+"],
)
def test_open(root: Path, mode: str, options: dict[str, Any], benchmark: Any) -> None:
    took = []
    for _ in range(3 if options.get("derive") == "full" else ROUNDS):
        begun = time.perf_counter()
        store = rocketstore.open(root, mode, **options)
        took.append(time.perf_counter() - begun)
        assert store.recovery_report.clean
        assert store.max_physical_offset > (SEGMENTS - 1) * SEGMENT_NBYTES
        store.close()
    times = iter(took)
    # The rounds have their own clock, which stops in front of ``close``.
    benchmark.pedantic(lambda: next(times), rounds=1, iterations=1)
    benchmark.extra_info.update(
        least_ms=round(min(took) * 1e3, 2), median_ms=round(sorted(took)[len(took) // 2] * 1e3, 2)
    )
    print(f"\nopen {mode} {options}: {benchmark.extra_info}")
