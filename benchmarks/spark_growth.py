"""How the time of a Spark job grows with the store and shrinks with tasks: figures and a picture.

    .venv/bin/python benchmarks/spark_growth.py --gib 1 4 16 64 --cores 1 2 4 --plot growth.png

A store of one GiB is written; a larger one is simulated by handing out its splits again and again,
each time as tasks of their own. So planning, scheduling, reading and sending home are those of the
large store, but the bytes come from the page cache. The job is ``stats`` by topic and queue.

With ``--store`` the store is kept, and with ``--json`` the figures are added to those of runs
before: long measurements can be made in parts.
"""

from __future__ import annotations

import argparse
import json
import pickle
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spark_figures import make_store

from rocketstore.sources import list_log, plan_splits
from rocketstore.spark import local_session
from rocketstore.spark.base.shipping import shipped_function
from rocketstore.spark.jobs.stats import question, work

ROWS_A_GIB = 3_400_000
_DDL = "topic string, queueId int, count bigint, bytes bigint"


def run(spark: Any, store: Path, times: int, split_bytes: int) -> tuple[float, int, int]:
    """(seconds, rows, tasks) of counting the store ``times`` times over in one job."""
    began = time.perf_counter()
    asked = question(("topic", "queueId"), None, ("count", "bytes"))
    splits = plan_splits(list_log(store), split_bytes=split_bytes) * times
    packed = zlib.compress(pickle.dumps((asked, {}, splits)))
    numbers = spark.range(0, len(splits), 1, len(splits))
    parts = numbers.mapInArrow(shipped_function(work, packed), _DDL)
    rows = parts.groupBy("topic", "queueId").sum("count").collect()
    return time.perf_counter() - began, sum(row[2] for row in rows), len(splits)


def measure(chosen: argparse.Namespace, store: Path) -> Iterator[dict[str, Any]]:
    """Yield a point for each number of cores and size; the least of its rounds."""
    split_bytes = chosen.split_mib << 20
    nbytes = sum(split.nbytes for split in plan_splits(list_log(store), split_bytes=split_bytes))
    for cores in chosen.cores:
        spark = local_session("growth", cores, **{"spark.driver.extraJavaOptions": ""})
        for _ in range(4):  # the JVM compiles what it runs often
            run(spark, store, 4, split_bytes)
        for gib in chosen.gib:
            times = round((gib << 30) / nbytes)
            found = [run(spark, store, times, split_bytes) for _ in range(chosen.rounds)]
            took, rows, tasks = min(found)
            print(
                f"{cores} at once, {gib:>3} GiB, {tasks:>4} tasks: {took:7.2f} s, "
                f"{rows / took / 1e6:5.2f} M rows/s",
                flush=True,
            )
            yield {"cores": cores, "gib": gib, "seconds": took, "rows": rows, "tasks": tasks}
        spark.stop()


def draw(points: list[dict[str, Any]], plot: Path) -> None:
    """Draw seconds over GiB, a line for each number of cores."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    for cores in sorted({point["cores"] for point in points}):
        line = [(point["gib"], point["seconds"]) for point in points if point["cores"] == cores]
        axis.plot(
            *zip(*sorted(line), strict=True),
            marker="o",
            label=f"{cores} task{'s' * (cores > 1)} at once",
        )
    axis.set(xscale="log", yscale="log", xlabel="GiB of log", ylabel="seconds of stats")
    sizes = sorted({point["gib"] for point in points})
    axis.set_xticks(sizes, [str(size) for size in sizes])
    axis.minorticks_off()
    axis.legend(frameon=False)
    axis.grid(alpha=0.3)
    figure.savefig(plot, dpi=80)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--gib", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--cores", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument("--rows", type=int, default=ROWS_A_GIB, help="Rows of the store itself.")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--split-mib", type=int, default=256)
    parser.add_argument("--store", type=Path, help="Use this store; made when it is not there.")
    parser.add_argument("--plot", type=Path, help="Draw this PNG or SVG.")
    parser.add_argument("--json", type=Path, help="Add the figures to this file.")
    chosen = parser.parse_args()
    points: list[dict[str, Any]] = []
    if chosen.json is not None and chosen.json.exists():
        points = json.loads(chosen.json.read_text())
    with tempfile.TemporaryDirectory() as name:
        store = chosen.store or Path(name) / "store"
        if not store.exists():
            make_store(store, chosen.rows)
        points += measure(chosen, store)
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(points, indent=1))
    if chosen.plot is not None:
        draw(points, chosen.plot)


if __name__ == "__main__":
    main()
