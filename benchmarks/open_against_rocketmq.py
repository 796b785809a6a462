"""Opening a clean store of 100 segments of 16 MiB: RocketMQ's own start beside ours.

    python benchmarks/open_against_rocketmq.py --version 5.3.3 --rounds 7

RocketMQ's figures are taken inside its process, around ``load`` and ``start`` of the store alone:
the first of a new process, whose code is not compiled yet, and the median of the later ones. Ours
are ``rocketstore.open``, the first of a new process and the median of the later ones, too. All open
the same directory in turn, its pages in the cache; closing is not counted. A JDK and Maven are
needed, and 2 GiB in the temporary directory. Not part of ``make bench``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import rocketstore

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from interop.harness import VERSIONS, Driver

SEGMENTS = 100
SEGMENT_NBYTES = 16 * 1024 * 1024
BODY_NBYTES = 4096
JAVA_CONFIG = {
    "mappedFileSizeCommitLog": str(SEGMENT_NBYTES),
    "timerWheelEnable": "false",
    "diskMaxUsedSpaceRatio": "99",
}
OURS = """
import json, sys, time
import rocketstore
root, mode, rounds, version = sys.argv[1:]
took = []
for _ in range(int(rounds)):
    began = time.perf_counter()
    store = rocketstore.open(root, mode, broker_version=version)
    took.append((time.perf_counter() - began) * 1000)
    store.close()
print(json.dumps(took))
"""


def write(root: Path, version: str) -> None:
    """Fill the segments with messages of 4 KiB in 8 queues, some with a key; close it well."""
    count = 1000
    offsets = np.arange(count + 1, dtype=np.int64) * BODY_NBYTES
    data = np.random.default_rng(1).bytes(count * BODY_NBYTES)
    with rocketstore.open(
        root, "x", mapped_file_size_commit_log=SEGMENT_NBYTES, broker_version=version
    ) as store:
        number = 0
        while store.max_physical_offset < (SEGMENTS - 1) * SEGMENT_NBYTES:
            assert store.put_columns("T", offsets, data, queue_id=number % 8, tags="Tag").ok
            for key in range(10):
                store.put("T", b"", number % 8, "Tag", f"{number}-{key}")
            number += 1
        assert store.wait_dispatched()
    files = len(list((root / "commitlog").iterdir()))
    assert files >= SEGMENTS, files


def theirs(root: Path, version: str, rounds: int, scratch: Path) -> tuple[list[float], int]:
    """Milliseconds of load and start in one process, and where its log ends."""
    took = []
    with Driver(version, scratch) as driver:
        for number in range(rounds):
            name = str(number)
            opened = driver.open(name, root, JAVA_CONFIG).result()
            assert opened["load"], "RocketMQ does not load the store"
            took.append(float(opened["startMs"]))
            driver.close([name])
    return took, int(opened["maxPhy"])


def ours(root: Path, mode: str, rounds: int, version: str) -> list[float]:
    """Milliseconds of ``rocketstore.open`` in one process."""
    command = [sys.executable, "-c", OURS, str(root), mode, str(rounds), version]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    took: list[float] = json.loads(done.stdout)
    return took


def show(name: str, took: Sequence[float]) -> None:
    later = took[1:]
    print(
        f"{name:24} first {took[0]:8.1f} ms   later: median {statistics.median(later):8.1f} ms, "
        f"least {min(later):8.1f}, most {max(later):8.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--version", choices=VERSIONS, default="5.3.3")
    parser.add_argument("--rounds", type=int, default=7, help="openings by each; at least 2")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="open-against-rocketmq-") as scratch:
        root = Path(scratch) / "store"
        write(root, options.version)
        java, end = theirs(root, options.version, options.rounds, Path(scratch))
        with rocketstore.open(root, "r", broker_version=options.version) as store:
            assert store.max_physical_offset == end
        files = len(list((root / "commitlog").iterdir()))
        print(f"{files} segments of 16 MiB; load of the machine {os.getloadavg()[0]:.1f}")
        show(f"RocketMQ {options.version}", java)
        for mode in ("r", "r+"):
            show(f'rocketstore "{mode}"', ours(root, mode, options.rounds, options.version))


if __name__ == "__main__":
    main()
