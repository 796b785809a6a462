"""How fast stores go through Spark, beside a Parquet scan of the same rows in the same session.

    .venv/bin/python benchmarks/spark_figures.py --rows 5000000 --rounds 5 [--json FILE]

Makes a store in the layout of the design's laboratory (304 bytes a record on average, 4 topics of
8 queues, keys, unique keys and tags) and the same rows as Parquet with snappy, then runs every job
and the Parquet scan in turn, round after round. Printed are the least time of a job's rounds as
rows a second, processor time a row (JVM and Python workers, of that round), and the ratio to the
Parquet scan of eight columns. Only the least of interleaved rounds means something on a shared
machine.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext

import rocketstore
from rocketstore.spark import (
    bulk_load,
    export_parquet,
    fsck,
    local_session,
    rebuild_consume_queues,
    rebuild_index,
    scan,
    stats,
)
from rocketstore.spark.base.worker import begin_task
from rocketstore.spark.sink.stage import DEFAULT_QUEUES, encoder_settings, write_stage

COLUMNS = "topic,queueId,queueOffset,physicalOffset,tags,keys,body,storeTimestamp"
#: Rows a second that the design asks for.
TARGETS = {
    "source, 8 columns": 2.6,
    "source, count of 1 column": 6.0,
    "scan, 8 columns": 3.4,
    "stats by topic and queue": 6.0,
    "fsck": 5.5,
    "rebuild queues": 7.0,
    "export, snappy": 2.5,
    "sink's tasks alone": 1.6,
}
#: An SQL92 filter that one message of a hundred passes.
_ONE_PERCENT = "KEYS ENDSWITH '07'"
FIRST_TIME = 1_700_000_000_000
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


def messages(count: int) -> Iterator[rocketstore.Message]:
    """Messages of the laboratory's layout; the same in every run."""
    chance = random.Random(17)
    data = chance.randbytes(1 << 16)
    for number in range(count):
        first = chance.randrange(1 << 15)
        message = rocketstore.Message(
            f"Topic{number % 4}",
            data[first : first + 64 + first % 127],
            queue_id=number // 4 % 8,
            born_timestamp=FIRST_TIME + number // 10,
            properties={"UNIQ_KEY": f"{number:032X}", "WAIT": "true"},
        )
        message.tags = f"Tag{first % 8}"
        message.keys = f"order-{number}"
        yield message


def make_store(root: Path, count: int) -> None:
    """Write the store, with queues and index, and close it."""
    now = iter(range(FIRST_TIME * 10, 1 << 62))
    with rocketstore.open(
        root,
        "x",
        clock=lambda: next(now) // 10,
        mapped_file_size_commit_log=128 << 20,
        max_hash_slot_num=500_000,
        max_index_num=2_000_000,
    ) as store:
        found: Iterator[rocketstore.Message] = messages(count)
        for _ in range(0, count, 50_000):
            chunk = list(itertools.islice(found, 50_000))
            assert all(result.ok for result in store.put_many(chunk))
        store.wait_dispatched(600)


def cpu_ticks() -> dict[int, int]:
    """Clock ticks of this process, the JVM and the workers so far, by process."""
    parents, ticks = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
            ticks[int(entry.name)] = int(fields[11]) + int(fields[12])
    own = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in own} - own:
        own |= more
    return {pid: ticks[pid] for pid in own if pid in ticks}


def cpu_seconds_since(before: dict[int, int]) -> float:
    """Processor time since ``before``, of processes that are still there: workers are reused."""
    now = cpu_ticks()
    return sum(ticks - before.get(pid, 0) for pid, ticks in now.items()) / _CLOCK_TICKS


def to_noop(frame: Any) -> None:
    """Make every row, keep none."""
    frame.write.format("noop").mode("overwrite").save()


def _drop(batches: Iterator[Any]) -> Iterator[Any]:
    """What of the sink's time is Spark's way of handing rows to Python."""
    for _ in batches:
        pass
    return iter(())


def staging(folder: Path) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """What the sink's tasks do: encode rows with their checksums into staged files, synced."""
    settings = encoder_settings(str(folder))

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        begin_task()
        number = TaskContext.get().partitionId()
        write_stage(
            *(batches, str(folder)),
            partition=number,
            attempt=number,
            settings=settings,
            topic=None,
            queues=DEFAULT_QUEUES,
        )
        return iter(())

    return run


def jobs(spark: Any, store: Path, parquet: Path, scratch: Path) -> dict[str, Callable[[], Any]]:
    """What is measured, by name."""
    path = str(store)
    numbers = iter(range(1 << 30))

    def source(columns: str, **options: str) -> Any:
        reading = spark.read.format("rocketstore").options(columns=columns, **options)
        return reading.load(path)

    def place() -> Path:
        return scratch / f"out-{next(numbers)}"

    def rows() -> Any:
        return spark.read.parquet(str(parquet)).select("topic", "queueId", "tags", "keys", "body")

    def sink() -> None:
        rows().write.format("rocketstore").mode("append").save(str(place()))

    return {
        "Parquet snappy, 8 columns": lambda: to_noop(
            spark.read.parquet(str(parquet)).select(*COLUMNS.split(","))
        ),
        "source, 8 columns": lambda: to_noop(source(COLUMNS)),
        "source, 8 columns, filter of 1 %": lambda: to_noop(source(COLUMNS, filter=_ONE_PERCENT)),
        "source, count of 1 column": lambda: source("queueId").count(),
        "scan, 8 columns": lambda: to_noop(scan(spark, path, columns=COLUMNS.split(","))),
        "scan, 8 columns, no CRC": lambda: to_noop(
            scan(spark, path, columns=COLUMNS.split(","), check_crc=False)
        ),
        "stats by topic and queue": lambda: stats(spark, path).collect(),
        "stats by topic, tag and minute": lambda: stats(
            spark, path, by=("topic", "tags"), bucket=60_000
        ).collect(),
        "fsck": lambda: fsck(spark, path).summary,
        "rebuild queues": lambda: rebuild_consume_queues(spark, path, place()).collect(),
        "rebuild index": lambda: rebuild_index(spark, path, place()).collect(),
        "export, snappy": lambda: export_parquet(
            spark, path, str(place()), columns=COLUMNS.split(","), partition_by=()
        ).collect(),
        "rows to Python, dropped": lambda: rows().mapInArrow(_drop, "nothing int").collect(),
        "sink's tasks alone": lambda: rows().mapInArrow(staging(place()), "nothing int").collect(),
        "sink": sink,
        "bulk_load": lambda: bulk_load(rows(), place()),
    }


def measure(
    found: dict[str, Callable[[], Any]], rounds: int, scratch: Path
) -> dict[str, tuple[float, float]]:
    """(wall seconds, processor seconds) of each job's quickest round, after one that warms up."""
    best: dict[str, tuple[float, float]] = {}
    for number in range(rounds + 1):
        for name, job in found.items():
            before, began = cpu_ticks(), time.perf_counter()
            job()
            took = time.perf_counter() - began, cpu_seconds_since(before)
            if number:
                best[name] = min(best.get(name, took), took)
            for path in scratch.iterdir():
                shutil.rmtree(path)
        print(f"round {number} of {rounds}", file=sys.stderr)
    return best


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--only", help="Of the jobs, those with one of these texts in their names: a,b"
    )
    parser.add_argument("--folder", type=Path, help="Where the store is made.")
    parser.add_argument("--json", type=Path, help="Write the figures to this file, too.")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.folder) as name:
        folder = Path(name)
        store, parquet, scratch = folder / "store", folder / "parquet", folder / "scratch"
        scratch.mkdir()
        make_store(store, chosen.rows)
        # The JVM is left to compile as it likes.
        spark = local_session(
            "figures",
            2,
            **{"spark.driver.memory": "4g", "spark.driver.extraJavaOptions": ""},
        )
        export_parquet(spark, str(store), str(parquet), columns=COLUMNS, partition_by=()).collect()
        found = jobs(spark, store, parquet, scratch)
        baseline = next(iter(found))
        texts = (chosen.only or "").split(",")
        found = {
            name: job
            for name, job in found.items()
            if name == baseline or any(text in name for text in texts)
        }
        best = measure(found, chosen.rounds, scratch)
        version = spark.version
        spark.stop()
    base = best[baseline][0]
    print(f"PySpark {version}, {os.cpu_count()} processors, {chosen.rows:,} rows")
    print(f"{'job':<32}{'M rows/s':>9}{'wanted':>8}{'CPU us/row':>12}{'of Parquet':>12}")
    for name, (took, cpu) in best.items():
        wanted = f"{TARGETS[name]:.1f}" if name in TARGETS else ""
        print(
            f"{name:<32}{chosen.rows / took / 1e6:>9.2f}{wanted:>8}"
            f"{cpu / chosen.rows * 1e6:>12.2f}{base / took:>12.2f}"
        )
    if chosen.json is not None:
        chosen.json.write_text(
            json.dumps({"rows": chosen.rows, "pyspark": version, "best": best}, indent=1)
        )


if __name__ == "__main__":
    main()
