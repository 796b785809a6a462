"""The demo's last step: count the stores with Spark and plot their volume over time."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocketstore.cli.common.output import print_rows, print_text
from rocketstore.cli.common.quantities import counted, format_size, format_time
from rocketstore.cli.common.table import cut_to
from rocketstore.spark.base.local import local_session, require, stopping
from rocketstore.store.default_message_store import open as open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Say = Callable[[bool, str], None]
_BARS = 48
_TOPICS = 8


def run(stores: Mapping[str, Path], plot: Path | None, say: Say) -> None:
    """Count each store with Spark, compare with a plain scan, and plot.

    Parameters
    ----------
    stores : mapping of str to Path
        Name and directory of each store.
    plot : Path, optional
        The PNG to write.
    say : callable
        ``say(holds, text)``.

    Raises
    ------
    RocketStoreError
        If a package is not installed, or no Java is found.
    """
    require("pyspark")
    if plot is not None:
        require("matplotlib", "demo")
    with stopping(lambda: local_session("rocketstore demo")) as spark:
        call = "java_method('java.lang.System', 'getProperty', 'java.version') AS version"
        java = spark.range(1).selectExpr(call).collect()[0]["version"]
        say(True, f"Spark {spark.version} runs on Java {java}")
        volumes = {name: _count(spark, name, root, say) for name, root in stores.items()}
    if plot is not None:
        draw(volumes, plot)
        say(plot.stat().st_size > 0, f"volume over time plotted to {plot}")


def _count(spark: SparkSession, name: str, root: Path, say: Say) -> list[tuple[Any, ...]]:
    """Print a table of the store's topics; return (topic, bucket in ms, messages)."""
    import pyspark.sql.functions as sf

    frame = (
        spark.read.format("rocketstore")
        .option("columns", "topic,queueId,storeTimestamp,storeSize")
        .load(str(root))
    )
    time = sf.unix_millis("storeTimestamp")
    rows = (
        frame.groupBy("topic")
        .agg(
            sf.countDistinct("queueId").alias("queues"),
            sf.count("*").alias("messages"),
            sf.sum("storeSize").alias("bytes"),
            sf.min(time).alias("first"),
            sf.max(time).alias("last"),
        )
        .orderBy("topic")
        .collect()
    )
    with open_store(root) as store:
        scanned = sum(1 for _ in store.scan())
    total = sum(row["messages"] for row in rows)
    nbytes = sum(row["bytes"] for row in rows)
    say(
        total == scanned,
        f"Spark counts {counted(total, 'message')} ({format_size(nbytes)}) in {name}; "
        f"so does a scan",
    )
    cells = [
        (
            cut_to(row["topic"], 32),
            row["queues"],
            row["messages"],
            row["bytes"],
            format_time(row["first"]),
            format_time(row["last"]),
        )
        for row in rows
    ]
    headings = ("topic", "queues", "messages", "bytes", "first stored", "last stored")
    print_text()
    print_rows(headings, cells, right=("queues", "messages", "bytes"), shrink=("topic",))
    print_text()
    return _volume(frame, rows)


def _volume(frame: DataFrame, rows: list[Any]) -> list[tuple[Any, ...]]:
    import pyspark.sql.functions as sf

    if not rows:
        return []
    first, last = min(row["first"] for row in rows), max(row["last"] for row in rows)
    width = max(1, -(-(last - first + 1) // _BARS))
    bucket = sf.floor((sf.unix_millis("storeTimestamp") - first) / width) * width + first
    counts = frame.groupBy("topic", bucket.alias("bucket")).count().collect()
    return sorted((row["topic"], row["bucket"], row["count"]) for row in counts)


def draw(volumes: Mapping[str, list[tuple[Any, ...]]], plot: Path) -> None:
    """Plot messages over time as stacked bars, one panel per store.

    Parameters
    ----------
    volumes : mapping of str to list of (str, int, int)
        By store: topic, bucket start in epoch ms, number of messages.
    plot : Path
        The PNG to write; its folder is created.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        len(volumes), 1, figsize=(9, 3.4 * len(volumes)), squeeze=False, layout="constrained"
    )
    for axis, (name, rows) in zip(axes[:, 0], volumes.items(), strict=True):
        _panel(axis, name, rows)
    plot.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(plot, dpi=110)
    pyplot.close(figure)


def _panel(axis: Any, name: str, rows: list[tuple[Any, ...]]) -> None:
    totals: dict[str, int] = {}
    for topic, _, count in rows:
        totals[topic] = totals.get(topic, 0) + count
    shown = sorted(totals, key=lambda topic: -totals[topic])[:_TOPICS]
    buckets = sorted({bucket for _, bucket, _ in rows})
    start = buckets[0] if buckets else 0
    steps = [later - earlier for earlier, later in itertools.pairwise(buckets)]
    width = min(steps, default=1) / 1000
    below = dict.fromkeys(buckets, 0)
    for topic in [*shown, None]:
        heights = dict.fromkeys(buckets, 0)
        for other, bucket, count in rows:
            if other == topic or (topic is None and other not in shown):
                heights[bucket] += count
        if not any(heights.values()):
            continue
        axis.bar(
            [(bucket - start) / 1000 for bucket in buckets],
            [heights[bucket] for bucket in buckets],
            width,
            bottom=[below[bucket] for bucket in buckets],
            align="edge",
            # In matplotlib a dollar begins a formula, and a leading underscore hides the entry.
            label=_plain("other topics" if topic is None else topic),
        )
        below = {bucket: below[bucket] + heights[bucket] for bucket in buckets}
    moment = datetime.datetime.fromtimestamp(start / 1000, datetime.UTC)
    axis.set_title(f"{name}: messages over time".replace("$", r"\$"), loc="left")
    axis.set_xlabel(f"seconds from {moment:%Y-%m-%d %H:%M:%S} UTC")
    axis.set_ylabel(f"messages in {width:g} s")
    axis.spines[["top", "right"]].set_visible(False)
    if rows:
        axis.legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))


def _plain(text: str) -> str:
    """Return a name that matplotlib shows literally."""
    short = text if len(text) <= 24 else text[:23] + "…"
    return (" " if short.startswith("_") else "") + short.replace("$", r"\$")
