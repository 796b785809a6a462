"""How long a message takes from being written to a micro-batch that is done.

A query runs with no pause between batches, a local checkpoint and a sink that drops everything.
Each round puts ten messages and waits until the query's progress counts them; the rounds of
rocketstore and of Spark's own text source (a new file of ten lines) alternate in one session::

    python benchmarks/spark_latency.py [--rounds N]

prints the medians. What stands for Spark itself is in the text source's figure: the log of offsets,
the plan, a task, the log of commits.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rocketstore
from rocketstore.message import Message
from rocketstore.spark import local_session

ROWS = 10
#: Batches before the JVM has compiled most of what they need.
WARM_UP = 15
PATIENCE_S = 120


def run(reader: Any, checkpoint: Path) -> Any:
    """Start a query that drops what it reads."""
    sink = reader.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    return sink.start()


def measure(query: Any, last: int, put: Callable[[], None]) -> tuple[float, Any]:
    """Seconds from before ``put`` until the progress shows its rows, and that progress. ``last`` is
    the number of the last batch with rows; an idle query's progress has the next one's."""
    begun = time.perf_counter()
    put()
    while True:
        progress = query.lastProgress
        took = time.perf_counter() - begun
        if progress is not None and progress["batchId"] > last and progress["numInputRows"]:
            if progress["numInputRows"] != ROWS:
                raise RuntimeError(f"a batch of {progress['numInputRows']} rows")
            return took, progress
        if took > PATIENCE_S or query.exception() is not None:
            raise RuntimeError(f"nothing came: {query.exception()}")
        time.sleep(0.002)


def main() -> None:
    """Measure, and print a line for each source."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    rounds = parser.parse_args().rounds
    spark = local_session("latency")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        lines = root / "lines"
        lines.mkdir()
        with rocketstore.open(root / "store", "a") as store:
            messages = [Message("T", b"x" * 100, queue_id=n % 4) for n in range(ROWS)]
            store.put_many(messages)
            written = 0

            def put_messages() -> None:
                assert store.put_many(messages).ok

            def put_lines() -> None:
                nonlocal written
                written += 1
                part = root / f"part-{written}"
                part.write_text("x" * 100 + "\n" + ("x" * 100 + "\n") * (ROWS - 1))
                os.rename(part, lines / part.name)

            source = spark.readStream.format("rocketstore").load(str(root / "store"))
            queries = {
                "rocketstore": (run(source, root / "c1"), put_messages),
                "text": (run(spark.readStream.text(str(lines)), root / "c2"), put_lines),
            }
            # Where a query begins is fixed with its first batch, which is empty.
            first = queries["rocketstore"][0]
            while first.lastProgress is None:
                if first.exception() is not None:
                    raise RuntimeError(f"the stream did not begin: {first.exception()}")
                time.sleep(0.1)
            last = dict.fromkeys(queries, -1)
            times: dict[str, list[float]] = {name: [] for name in queries}
            steps: dict[str, dict[str, list[int]]] = {name: {} for name in queries}
            for number in range(WARM_UP + rounds):
                for name, (query, put) in queries.items():
                    took, progress = measure(query, last[name], put)
                    last[name] = progress["batchId"]
                    if number >= WARM_UP:
                        times[name].append(took * 1000)
                        for step, duration in progress["durationMs"].items():
                            steps[name].setdefault(step, []).append(duration)
            for name, (query, _) in queries.items():
                query.stop()
                shown = ", ".join(f"{s} {statistics.median(d):.0f}" for s, d in steps[name].items())
                print(
                    f"{name}: median {statistics.median(times[name]):.0f} ms, least "
                    f"{min(times[name]):.0f} ms, of {rounds} rounds ({shown})"
                )
    spark.stop()


if __name__ == "__main__":
    main()
