"""A store under mixed load for a long time, with roll and cleanup: memory, descriptors, mappings
and the latency of puts over time.

Usage: ``python soak.py --minutes 30 --seed 1 --out build/soak``. Writes ``soak.json`` and, where
matplotlib is installed, ``soak.png``; prints what was flat. The exit status is 1 when a thread
failed or something grew.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torn_reads import QUEUES, TOPICS, Reader, make_body

import rocketstore
from rocketstore import Message

OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": 4 * 1024 * 1024,
    "mapped_file_size_consume_queue": 20 * 3000,
    "max_hash_slot_num": 5000,
    "max_index_num": 20_000,
    "flush_interval_consume_queue": 200,
    "flush_consume_queue_thorough_interval": 5000,
    "clean_resource_enable": True,
    "clean_resource_interval": 2000,
    "delete_when": ";".join(map(str, range(24))),
    "file_reserved_time": 0,
}
#: Puts a second; the rest of the time the machine is free, so that latency is the store's.
PUTS_A_SECOND = int(os.environ.get("ROCKETSTORE_SOAK_PUTS", "1500"))
#: How much the last quarter may be above the second one (the first warms up).
MOST_GROWTH = 1.25
#: Bytes of memory below which growth does not differ from noise.
NOISE_NBYTES = 12 * 1024 * 1024


#: Rows that are needed to compare the second with the last quarter.
LEAST_SAMPLES = 5


def own_memory() -> int:
    """Bytes of this process's own memory (not those of mapped files)."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the system does not report RssAnon")


def descriptor_count() -> int:
    """Open descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))


def mapping_counts() -> tuple[int, int]:
    """Mappings of the store's files in this process, and those of them whose file is deleted."""
    text = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    lines = [line for line in text.splitlines() if "/soak-" in line]
    return len(lines), sum(line.endswith("(deleted)") for line in lines)


class Soak:
    """Threads that put, read, look up keys, scan and refresh, and one that samples.

    Parameters
    ----------
    root : Path
        A store that does not exist yet; its path holds ``/soak-``.
    seed : int
    """

    def __init__(self, root: Path, seed: int) -> None:
        self.samples: list[dict[str, float]] = []
        self.errors: list[str] = []
        self._root = root
        self._seed = seed
        self._stop = threading.Event()
        self._latencies: list[float] = []
        self._lock = threading.Lock()
        self._puts = 0

    def run(self, seconds: float) -> None:
        """Do it for so long at the least; ``samples`` then holds one row a second, ``errors`` what
        went wrong."""
        with rocketstore.open(self._root, "x", **OPTIONS) as store:
            store.put(TOPICS[0], make_body(0, random.Random(0)))
            assert store._writer is not None
            for service in store._writer.cleaning.services:
                service.wakeup()  # the first look would come after a minute
            works = (self._put, self._read, self._find, self._read_from_outside)
            threads = [
                threading.Thread(target=self._guard, args=(work, store), name=work.__name__)
                for work in works
            ]
            for thread in threads:
                thread.start()
            begun = time.monotonic()
            while not self.errors and (
                time.monotonic() - begun < seconds or not self._has_seen_enough
            ):
                self._stop.wait(1.0)
                self._sample(store, time.monotonic() - begun)
            self._stop.set()
            for thread in threads:
                thread.join(120)
                if thread.is_alive():
                    self.errors.append(f"{thread.name} hangs")
            report = store.verify()
            if not report.ok:
                self.errors.append(f"findings: {report.findings[:3]}")

    @property
    def _has_seen_enough(self) -> bool:
        """Whether there are samples to compare, and segments went; a busy machine may be slow."""
        rows = self.samples
        return len(rows) >= LEAST_SAMPLES and rows[-1]["deleted_nbytes"] > 0

    def _guard(self, work: Callable[[Any], None], store: Any) -> None:
        try:
            work(store)
        except Exception as error:  # noqa: BLE001 - reported at the end
            self.errors.append(f"{work.__name__}: {type(error).__name__}: {error}")

    def _put(self, store: rocketstore.DefaultMessageStore) -> None:
        chance, number = random.Random(self._seed), 0
        begun = time.monotonic()
        while not self._stop.is_set():
            number += 1
            topic, queue_id = chance.choice(TOPICS), chance.randrange(QUEUES)
            body = make_body(number, chance)
            before = time.perf_counter()
            if number % 50:
                assert store.put(topic, body, queue_id, "Tag", f"k{number}").ok
            else:
                messages = [Message(topic, body, queue_id=queue_id) for _ in range(20)]
                assert all(result.ok for result in store.put_many(messages))
            with self._lock:
                self._latencies.append(time.perf_counter() - before)
                self._puts = number
            ahead = number / PUTS_A_SECOND - (time.monotonic() - begun)
            if ahead > 0.01:
                self._stop.wait(ahead)

    def _read(self, store: rocketstore.DefaultMessageStore) -> None:
        reader = Reader(store, self._seed + 1)
        while not self._stop.wait(0.05):
            reader.step()

    def _find(self, store: rocketstore.DefaultMessageStore) -> None:
        chance = random.Random(self._seed + 2)
        while not self._stop.wait(0.02):
            key = f"k{chance.randrange(max(1, self._puts - 20_000), self._puts + 2)}"
            for topic in TOPICS:
                for message in store.find(topic=topic, key=key):
                    assert message.keys == key

    def _read_from_outside(self, _: Any) -> None:
        """A reader with a snapshot of its own, as another process has it."""
        with rocketstore.open(self._root) as store:
            reader = Reader(store, self._seed + 3)
            while not self._stop.wait(0.1):
                reader.step()

    def _sample(self, store: rocketstore.DefaultMessageStore, at: float) -> None:
        with self._lock:
            latencies, self._latencies = sorted(self._latencies), []
        if not latencies:
            return
        segments = len(os.listdir(self._root / "commitlog"))
        mappings, deleted_mappings = mapping_counts()
        row = {
            "second": round(at, 1),
            "memory_nbytes": own_memory(),
            "descriptors": descriptor_count(),
            "mappings": mappings,
            "deleted_mappings": deleted_mappings,
            "put_p50_us": round(latencies[len(latencies) // 2] * 1e6, 1),
            "put_p99_us": round(latencies[len(latencies) * 99 // 100] * 1e6, 1),
            "puts": len(latencies),
            "segments": segments,
            "queue_files": len(list(self._root.glob("consumequeue/*/*/*"))),
            "index_files": len(list(self._root.glob("index/*"))),
            "deleted_nbytes": max(0, store.min_physical_offset),
            "behind_nbytes": store.dispatch_behind_nbytes,
        }
        self.samples.append(row)


#: Figures that count files of the store.
FILE_COUNTS = ("queue_files", "index_files", "segments")
#: Mappings of one file at the most: the writer's, and those of two readers.
MAPPINGS_PER_FILE = 3
#: Mappings that are no sign of a leak: of files that came or went while they were counted.
SPARE_MAPPINGS = 12


def judge(samples: list[dict[str, float]]) -> dict[str, dict[str, float]]:
    """Median of the second and of the last quarter, and the most, of each figure."""
    quarter = max(1, len(samples) // 4)
    names = [name for name in samples[0] if name not in ("second", "puts", "deleted_nbytes")]
    return {
        name: {
            "before": statistics.median(row[name] for row in samples[quarter : 2 * quarter]),
            "after": statistics.median(row[name] for row in samples[-quarter:]),
            "most": max(row[name] for row in samples),
        }
        for name in names
    }


def grown(figures: dict[str, dict[str, float]]) -> list[str]:
    """Return what grew: memory, descriptors, mappings. Latency is reported but not judged, because
    other programs use the machine, too."""
    bad = []
    for name, slack in {"memory_nbytes": NOISE_NBYTES, "descriptors": 4}.items():
        before, after = figures[name]["before"], figures[name]["after"]
        if after > before * MOST_GROWTH and after - before > slack:
            bad.append(f"{name} grew from {before:.0f} to {after:.0f}")
    # Queues get files in a short run: mappings are compared with the files that there are.
    files = sum(figures[name]["after"] for name in FILE_COUNTS)
    mappings, deleted = (figures[name]["after"] for name in ("mappings", "deleted_mappings"))
    if mappings - deleted > MAPPINGS_PER_FILE * files + SPARE_MAPPINGS:
        bad.append(f"{mappings - deleted:.0f} mappings of {files:.0f} files")
    if deleted > SPARE_MAPPINGS:
        bad.append(f"{deleted:.0f} mappings of deleted files")
    return bad


def plot(samples: list[dict[str, float]], path: Path) -> None:
    """Draw memory, descriptors and mappings, latency and segments over time."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    minutes = [row["second"] / 60 for row in samples]
    figure, axes = pyplot.subplots(4, 1, figsize=(9, 10), sharex=True)
    rows: list[tuple[str, list[tuple[str, str, float]]]] = [
        ("own memory, MiB", [("memory_nbytes", "memory", 1 << 20)]),
        ("count", [("descriptors", "descriptors", 1), ("mappings", "mapped store files", 1)]),
        ("put, \u00b5s", [("put_p50_us", "p50", 1), ("put_p99_us", "p99", 1)]),
        (
            "count",
            [("segments", "log files on disk", 1), ("queue_files", "queue files on disk", 1)],
        ),
    ]
    for axis, (label, lines) in zip(axes, rows, strict=True):
        for name, text, unit in lines:
            axis.plot(minutes, [row[name] / unit for row in samples], label=text, linewidth=0.8)
        axis.set_ylabel(label)
        axis.set_ylim(bottom=0)
        axis.legend(loc="upper right", fontsize="small")
        axis.grid(alpha=0.3)
    axes[2].set_yscale("log")
    axes[2].set_ylim(0.1, 10_000)
    axes[-1].set_xlabel("minutes")
    figure.suptitle("Mixed load with roll and cleanup")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--out", type=Path, default=None)
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.randrange(1 << 30)
    print(f"soak: {arguments.minutes} minutes, SEED={seed}", file=sys.stderr)
    sys.path.append(str(Path(__file__).parents[1]))
    from support import half_full_disk

    half_full_disk.pretend()  # on a full one puts are refused
    with tempfile.TemporaryDirectory(prefix="soak-") as directory:
        soak = Soak(Path(directory) / "store", seed)
        soak.run(arguments.minutes * 60)
    figures = judge(soak.samples)
    result: dict[str, Any] = {
        "seed": seed,
        "minutes": arguments.minutes,
        "errors": soak.errors + grown(figures),
        "puts": int(sum(row["puts"] for row in soak.samples)),
        "deleted_nbytes": soak.samples[-1]["deleted_nbytes"],
        "figures": figures,
    }
    if arguments.out is not None:
        arguments.out.mkdir(parents=True, exist_ok=True)
        document = json.dumps({**result, "samples": soak.samples}, indent=1)
        (arguments.out / "soak.json").write_text(document, encoding="utf-8")
        with contextlib.suppress(ModuleNotFoundError):  # the figures are there without a picture
            plot(soak.samples, arguments.out / "soak.png")
    print(json.dumps(result))
    return 1 if result["errors"] else 0


if __name__ == "__main__":
    sys.exit(main())
