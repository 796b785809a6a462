"""Durable puts a second: RocketMQ's own SYNC_FLUSH beside ours, on the same disk, round by round.

    python benchmarks/group_commit_against_rocketmq.py --version 5.3.3 --rounds 5

``threads``: so many threads put and wait, each for its message. ``futures``: one thread keeps so
many puts under way (``asyncPutMessage``; ``aput`` by as many coroutines). RocketMQ runs in a JVM of
its own, warmed up by a round that is not counted; both stores stay open for all rounds, and while
one puts the other rests. Messages have 200 bytes of body and no properties, segments 256 MiB. A put
counts when it was answered PUT_OK. A JDK and Maven are needed. Not part of ``make bench``.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import rocketstore

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from interop import maven
from interop.harness import HERE, VERSIONS, line_of

BODY = b"x" * 200
SEGMENT_NBYTES = 256 * 1024 * 1024
#: Kind of waiting, and how many wait at once.
SHAPES = (("threads", 1), ("threads", 64), ("futures", 64), ("futures", 1000))
SYNC_COUNT = 300


class Theirs:
    """RocketMQ's store in a process of its own."""

    def __init__(self, version: str, root: Path) -> None:
        path = maven.class_path(HERE / "java" / "pom.xml", version)
        sources = [
            Path(__file__).resolve().parent / "java" / "GroupCommit.java",
            *(HERE / "java" / f"line{line_of(version)}").glob("*.java"),
        ]
        classes = maven.compiled(sources, path, version)
        places = f"{classes}:{HERE / 'java' / 'resources'}:{path}"
        with open(root.parent / "rocketmq.log", "wb") as log:
            self._process = subprocess.Popen(
                [
                    *("java", "-Xms512m", "-Xmx512m", f"-Duser.home={root.parent}"),
                    *(*maven.JVM_OPENS, "-cp", places, "rocketstore.interop.GroupCommit"),
                    *(str(root), str(len(BODY)), str(SEGMENT_NBYTES)),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._answer() == "ready"

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("RocketMQ ended; see rocketmq.log beside its store")
        return line.strip()

    def rate(self, kind: str, width: int, seconds: float) -> float:
        """Puts a second."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{kind} {width} {seconds}\n")
        self._process.stdin.flush()
        count, took = self._answer().split()
        return int(count) / float(took)

    def close(self) -> None:
        """Shut the store down."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def by_threads(store: rocketstore.DefaultMessageStore, width: int, seconds: float) -> int:
    end, counts = time.perf_counter() + seconds, [0] * width

    def put_on(number: int) -> None:
        count = 0
        while time.perf_counter() < end:
            assert store.put("T", BODY, number % 8).ok
            count += 1
        counts[number] = count

    threads = [threading.Thread(target=put_on, args=(number,)) for number in range(width)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts)


def by_futures(store: rocketstore.DefaultMessageStore, width: int, seconds: float) -> int:
    async def put_on(number: int, end: float) -> int:
        count = 0
        while time.perf_counter() < end:
            assert (await store.aput("T", BODY, number % 8)).ok
            count += 1
        return count

    async def put_all() -> int:
        end = time.perf_counter() + seconds
        return sum(await asyncio.gather(*(put_on(number, end) for number in range(width))))

    return asyncio.run(put_all())


OURS: dict[str, Callable[[rocketstore.DefaultMessageStore, int, float], int]] = {
    "threads": by_threads,
    "futures": by_futures,
}


def our_rate(
    store: rocketstore.DefaultMessageStore, kind: str, width: int, seconds: float
) -> float:
    began = time.perf_counter()
    count = OURS[kind](store, width, seconds)
    took = time.perf_counter() - began
    assert store.flushed_offset == store.max_physical_offset
    return count / took


def sync_us(folder: Path) -> float:
    """Median microseconds of an ``fdatasync`` after a write of 4 KiB to allocated blocks."""
    took = []
    with open(folder / "syncs", "wb", buffering=0) as file:
        file.write(bytes(4096 * SYNC_COUNT))
        os.fsync(file.fileno())
        for number in range(SYNC_COUNT):
            os.pwrite(file.fileno(), b"y" * 4096, number * 4096)
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            took.append((time.perf_counter() - began) * 1e6)
    return statistics.median(took)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--version", choices=VERSIONS, default="5.3.3")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.5, help="of each turn of each store")
    options = parser.parse_args()
    seconds = options.seconds
    with tempfile.TemporaryDirectory(prefix="group-commit-against-rocketmq-") as scratch:
        theirs = Theirs(options.version, Path(scratch) / "theirs")
        rates: dict[tuple[str, int], tuple[list[float], list[float]]] = {
            shape: ([], []) for shape in SHAPES
        }
        with rocketstore.open(
            Path(scratch) / "ours", "x", flush_disk_type="SYNC_FLUSH",
            mapped_file_size_commit_log=SEGMENT_NBYTES, broker_version=options.version,
        ) as store:  # fmt: skip
            for kind, width in SHAPES[1:3]:
                theirs.rate(kind, width, seconds)
            for _ in range(options.rounds):
                for shape in SHAPES:
                    rates[shape][0].append(theirs.rate(*shape, seconds))
                    rates[shape][1].append(our_rate(store, *shape, seconds))
        theirs.close()
        print(f"sync of 4 KiB: {sync_us(Path(scratch)):.0f} us; load {os.getloadavg()[0]:.1f}")
    print(f"durable puts a second, median of {options.rounds} rounds of {seconds} s")
    print(f"{'waiting':>15} {'RocketMQ ' + options.version:>16} {'rocketstore':>12} {'ratio':>6}")
    for (kind, width), (a, b) in rates.items():
        ratio = statistics.median(mine / his for his, mine in zip(a, b, strict=True))
        print(
            f"{width:>7} {kind} {statistics.median(a):16,.0f} {statistics.median(b):12,.0f} "
            f"{ratio:6.2f}   ({min(b):,.0f} to {max(b):,.0f})"
        )


if __name__ == "__main__":
    main()
