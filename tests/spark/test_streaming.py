"""Streams in Spark: each message arrives once, whatever happens on the way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

import rocketstore
from rocketstore.spark.stream.stream_reader import LIMITS
from support.stream_faults import READER_STEPS, ended, faulty_source, limited, run_available
from support.stream_store import SEGMENT_NBYTES, Row, grow, rows_of, segments

pytestmark = pytest.mark.xdist_group("spark-streams")

WAIT_S = 300
PROGRAMS = Path(__file__).parents[1] / "support"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    grow(tmp_path / "store", 0, 240)
    return tmp_path / "store"


def places(rows: list[Row]) -> list[int]:
    return [row.physical_offset for row in rows]


def written(spark: Any, out: Path) -> list[int]:
    """Physical offsets in the sink's output, from the sink's own log."""
    table = spark.read.parquet(str(out)).select("physicalOffset").toArrow()
    return sorted(table["physicalOffset"].to_pylist())


def batch_sizes(query: Any) -> list[int]:
    return [progress["numInputRows"] for progress in query.recentProgress]


def run_to_the_end(*arguments: Any, **options: object) -> None:
    """Repeat the batch that died, and read the rest."""
    run_available(*arguments, **options)
    if not LIMITS:
        # A run is one batch: that was the repeated one.
        run_available(*arguments, **options)


def test_available_now_in_limited_batches(spark: Any, store: Path, tmp_path: Path) -> None:
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    options = {"startingOffsets": "earliest", **limited(100)}
    query = run_available(spark, "rocketstore", store, out, checkpoint, **options)
    assert batch_sizes(query) == ([100, 100, 40] if LIMITS else [240])
    rows = rows_of(store)
    table = spark.read.parquet(str(out)).orderBy("physicalOffset").toArrow()
    assert table["physicalOffset"].to_pylist() == places(rows)
    assert table["topic"].to_pylist() == [row.topic for row in rows]
    assert table["queueOffset"].to_pylist() == [row.queue_offset for row in rows]
    assert table["tags"].to_pylist() == [row.tags for row in rows]
    assert table["body"].to_pylist() == [row.body for row in rows]

    # Restarted, with nothing new: no batch. Then with more, in new segments.
    again = run_available(spark, "rocketstore", store, out, checkpoint, **options)
    assert sum(batch_sizes(again)) == 0
    grow(store, 240, 130)
    third = run_available(spark, "rocketstore", store, out, checkpoint, **options)
    assert batch_sizes(third) == ([100, 30] if LIMITS else [130])
    assert written(spark, out) == places(rows_of(store))


def test_a_first_batch_that_died_begins_where_it_began(
    spark: Any, store: Path, tmp_path: Path
) -> None:
    """Spark asks again for the initial offset when it repeats a query's first batch; by then
    "latest" was elsewhere, and what had come in between was lost."""
    out, checkpoint, tokens = tmp_path / "out", tmp_path / "checkpoint", tmp_path / "tokens"
    old = len(rows_of(store))
    tokens.mkdir()
    spark.dataSource.register(faulty_source(str(tokens)))
    (tokens / "before-partitions").write_text("exit")
    with pytest.raises(StreamingQueryException):
        run_available(spark, "faulty", store, out, checkpoint)
    assert (tokens / "before-partitions.taken").exists()
    grow(store, 240, 20)
    run_to_the_end(spark, "faulty", store, out, checkpoint)
    assert written(spark, out) == places(rows_of(store)[old:])


def test_a_stream_that_dies_at_every_step(spark: Any, store: Path, tmp_path: Path) -> None:
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    options = {"startingOffsets": "earliest", **limited(60)}
    count = 240
    # Without limits a run is one batch, and Spark commits a batch when it plans the next.
    for name in READER_STEPS if LIMITS else READER_STEPS[:-2]:
        # A folder of its own: a task of the query before may still run, and must not die instead.
        tokens = tmp_path / "tokens" / name
        tokens.mkdir(parents=True)
        spark.dataSource.register(faulty_source(str(tokens)))
        (tokens / name).write_text("exit")
        with pytest.raises(StreamingQueryException):
            run_available(spark, "faulty", store, out, checkpoint, **options)
        assert (tokens / f"{name}.taken").exists()
        if not LIMITS and name != "before-initialOffset":
            # The next run would only repeat the batch that died.
            run_available(spark, "faulty", store, out, checkpoint, **options)
        # Each time there is more than one batch left, so that every step is reached.
        grow(store, count, 120)
        count += 120
    run_to_the_end(spark, "faulty", store, out, checkpoint, **options)
    assert written(spark, out) == places(rows_of(store))


def test_a_function_for_each_batch_that_dies(spark: Any, store: Path, tmp_path: Path) -> None:
    """A sink that knows which batch it has taken gets the same batch again, and no other."""
    taken: dict[int, list[int]] = {}
    faults = {(0, "before"), (0, "after")}
    if LIMITS:
        faults |= {(1, "after"), (2, "before"), (2, "after")}

    def write(frame: Any, batch_id: int) -> None:
        if (batch_id, "before") in faults:
            faults.discard((batch_id, "before"))
            raise RuntimeError("planned")
        found = frame.select("physicalOffset").toArrow()["physicalOffset"].to_pylist()
        assert taken.setdefault(batch_id, sorted(found)) == sorted(found)
        if (batch_id, "after") in faults:
            faults.discard((batch_id, "after"))
            raise RuntimeError("planned")

    def writer() -> Any:
        return (
            spark.readStream.format("rocketstore")
            .options(startingOffsets="earliest", **limited(70))
            .load(str(store))
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
        )

    for _ in range(len(faults)):
        with pytest.raises(StreamingQueryException, match="planned"):
            ended(writer)
    ended(writer)
    assert not faults
    assert [offset for batch in sorted(taken) for offset in taken[batch]] == places(rows_of(store))


def environment() -> dict[str, str]:
    """Where the programs find the package and their helpers."""
    folders = (Path(rocketstore.__file__).parents[1], PROGRAMS.parent)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))}


def test_everything_is_killed(spark: Any, store: Path, tmp_path: Path) -> None:
    """JVM, driver and workers die at once, in the midst of a task."""
    out, checkpoint, tokens = tmp_path / "out", tmp_path / "checkpoint", tmp_path / "tokens"
    tokens.mkdir()
    (tokens / "in-read").write_text("everything")
    killed = subprocess.run(
        [sys.executable, PROGRAMS / "stream_faults.py", store, out, checkpoint, tokens],
        env=environment(),
        start_new_session=True,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert killed.returncode == -9, killed.stderr
    grow(store, 240, 20)
    options = {"startingOffsets": "earliest", **limited(100)}
    run_to_the_end(spark, "rocketstore", store, out, checkpoint, **options)
    assert written(spark, out) == places(rows_of(store))


def test_a_live_writer_that_rolls_and_deletes(spark: Any, tmp_path: Path) -> None:
    root, out, checkpoint = tmp_path / "store", tmp_path / "out", tmp_path / "checkpoint"
    count = 2000
    grow(root, 0, 10)

    def start() -> Any:
        return (
            spark.readStream.format("rocketstore")
            .options(startingOffsets="earliest", onCorruption="fail", **limited(300))
            .load(str(root))
            .select("physicalOffset", "body")
            .writeStream.format("parquet")
            .option("path", str(out))
            .option("checkpointLocation", str(checkpoint))
            .start()
        )

    deleted = 0
    writer = subprocess.Popen(
        [sys.executable, PROGRAMS / "stream_writer.py", root, str(count)],
        env=environment(),
    )

    def all_is_read() -> bool:
        nonlocal deleted
        end = committed_end(checkpoint)
        for path in segments(root)[:-2]:
            if int(path.name) + SEGMENT_NBYTES <= end:
                path.unlink()
                deleted += 1
        return writer.poll() is not None and end >= log_end(root)

    query = start()
    deadline = time.monotonic() + WAIT_S
    try:
        while not all_is_read():
            assert time.monotonic() < deadline, "the stream did not get there"
            if (error := query.exception()) is not None:
                assert "connect back" in str(error)  # Spark did not get its Python process in time
                query = start()
            time.sleep(0.02)
    finally:
        query.stop()
        writer.wait(WAIT_S)
    assert writer.returncode == 0
    assert deleted > 5
    table = spark.read.parquet(str(out)).orderBy("physicalOffset").toArrow()
    numbers = [int(body[:6]) for body in table["body"].to_pylist()]
    assert numbers == [*range(10), *range(count)]


def committed_end(checkpoint: Path) -> int:
    """Where the last batch ended that the query's own log says is done."""
    done = [int(p.name) for p in (checkpoint / "commits").glob("[0-9]*") if p.name.isdigit()]
    if not done:
        return 0
    lines = (checkpoint / "offsets" / str(max(done))).read_text().splitlines()
    return int(json.loads(lines[-1])["phy"])


def log_end(root: Path) -> int:
    """The end of the last message."""
    with rocketstore.open(root, "r", derive="none") as opened:
        return opened.max_physical_offset
