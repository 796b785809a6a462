"""Opening a clean store of 100 segments of 16 MiB, for reading and writing; and one after a kill.

The store holds 400,000 messages of 4 KiB in 8 queues, one in a hundred with a key, and takes
1.6 GiB in the temporary directory. Pages are in the cache; the first open after a start of the
machine depends on the disk. ``close`` is not counted.

After a kill, opening checks and dispatches what was not synced, and checks a range before it. The
pages are in the cache, most of them not written back yet. Two lengths show the time per GiB.
"""

from __future__ import annotations

import os
import shutil
import signal
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


def put_nbytes(store: rocketstore.DefaultMessageStore, nbytes: int) -> None:
    """Put messages of 4 KiB into 8 queues."""
    count = 1000
    offsets = np.arange(count + 1, dtype=np.int64) * BODY_NBYTES
    data = np.random.default_rng(1).bytes(count * BODY_NBYTES)
    stop, number = store.max_physical_offset + nbytes, 0
    while store.max_physical_offset < stop:
        assert store.put_columns("T", offsets, data, queue_id=number % 8, tags="Tag").ok
        number += 1


def leave_dirty(path: Path, nbytes: int) -> None:
    """Kill a writer that has written ``nbytes`` and neither synced nor dispatched them."""
    child = os.fork()
    if child == 0:
        store = rocketstore.open(path, "r+", start=False)
        put_nbytes(store, nbytes)
        os.kill(os.getpid(), signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)


@pytest.mark.parametrize("mib", [256, 1280])
def test_open_after_a_kill(mib: int, tmp_path: Path, benchmark: Any) -> None:
    took, cpu = [], []
    for number in range(3):
        path = tmp_path / f"store-{number}"
        with rocketstore.open(path, "x", mapped_file_size_commit_log=64 << 20) as store:
            put_nbytes(store, 512 << 20)
            assert store.wait_dispatched()
        leave_dirty(path, mib << 20)
        begun, begun_cpu = time.perf_counter(), time.process_time()
        store = rocketstore.open(path, "r+", start=False)
        took.append(time.perf_counter() - begun)
        cpu.append(time.process_time() - begun_cpu)
        assert not store.recovery_report.clean
        assert store.recovery_report.rebuilt_units >= mib * 250
        store.close()
        shutil.rmtree(path)
    times = iter(took)
    benchmark.pedantic(lambda: next(times), rounds=1, iterations=1)
    benchmark.extra_info.update(
        dirty_mib=mib,
        least_ms=round(min(took) * 1e3, 1),
        least_cpu_ms=round(min(cpu) * 1e3, 1),
    )
    print(f"\nopen after a kill: {benchmark.extra_info}")


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
    # The rounds have their own clock, which stops before ``close``.
    benchmark.pedantic(lambda: next(times), rounds=1, iterations=1)
    benchmark.extra_info.update(
        least_ms=round(min(took) * 1e3, 2), median_ms=round(sorted(took)[len(took) // 2] * 1e3, 2)
    )
    print(f"\nopen {mode} {options}: {benchmark.extra_info}")
