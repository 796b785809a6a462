"""The core of the suite as a program of its own: on a cluster of two workers, or through Connect.

Arguments: ``cluster`` or ``connect``; a store; a copy of it that is damaged; a file with the Arrow
table that ``store.scan`` yields of the store; a folder for new files. Prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException

SETTINGS = {
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.connect.progress.reportInterval": "200ms",
    "spark.python.authenticate.socketTimeout": "120s",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}


def session(mode: str) -> Any:
    from rocketstore.spark.base.local import java_environment, local_session

    if mode == "cluster":
        more = {
            "spark.master": "local-cluster[2,1,1024]",
            "spark.executor.memory": "1g",
            "spark.executor.extraJavaOptions": SETTINGS["spark.driver.extraJavaOptions"],
            "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        }
        return local_session("rocketstore core", **SETTINGS, **more)
    from pyspark.sql import SparkSession

    os.environ.update(java_environment(), PYSPARK_PYTHON=sys.executable)
    # With this variable the server takes a free port.
    os.environ.update(SPARK_TESTING="1", SPARK_LOCAL_IP="127.0.0.1")
    builder = SparkSession.builder.remote("local[2]")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def messages(spark: Any, root: str, expected_file: str, mode: str) -> dict[str, Any]:
    """Reading, by the source, the scan and SQL."""
    from rocketstore.spark import scan

    expected = pa.ipc.open_file(expected_file).read_all()

    def same(frame: Any) -> bool:
        return bool(frame.toArrow().cast(expected.schema).equals(expected))

    read = spark.read.format("rocketstore")
    found: dict[str, Any] = {
        "source": same(read.option("maxPartitionBytes", "400k").load(root)),
        "scan": same(scan(spark, root, split_bytes=500_000)),
        "topics": sorted(row[0] for row in scan(spark, root).select("topic").distinct().collect()),
    }
    view = f"{mode}_core_messages"
    spark.sql(f"CREATE TEMPORARY VIEW {view} USING rocketstore OPTIONS (path '{root}')")
    found["sql"] = spark.sql(f"SELECT count(*) FROM {view} WHERE tags = 'red'").first()[0]
    try:
        read.option("subscibe", "TopicA").load(root).count()
    except PySparkException as error:
        found["suggested"] = "did you mean 'subscribe'" in str(error)
    return found


def written(spark: Any, root: str, copy: Path) -> int:
    """How many messages the sink wrote of one topic."""
    import rocketstore
    from rocketstore.spark import scan

    rocketstore.open(copy, "x", mapped_file_size_commit_log=1 << 20).close()
    rows = scan(spark, root, columns="topic,body,tags,keys,queueId", topics="TopicC")
    rows.write.format("rocketstore").mode("append").save(str(copy))
    with rocketstore.open(copy) as store:
        return sum(1 for _ in store.scan())


def jobs(spark: Any, root: str, damaged: str, folder: Path) -> dict[str, Any]:
    """Every job; what they write is left in ``folder``."""
    from rocketstore import spark as pipeline

    reported: list[tuple[int, int]] = []
    report = pipeline.fsck(
        spark, damaged, split_bytes=500_000, progress=lambda *both: reported.append(both)
    )
    rebuilt = {"queues": pipeline.rebuild_consume_queues, "index": pipeline.rebuild_index}
    sizes: dict[str, dict[str, Any]] = {
        "queues": {"mapped_file_size_consume_queue": 1_200_000},
        "index": {"max_hash_slot_num": 500, "max_index_num": 4000},
    }
    found: dict[str, Any] = {
        "stats": sorted(
            [list(row) for row in pipeline.stats(spark, root, by=("topic", "queueId")).collect()]
        ),
        "fsck": [report.summary["records"], sorted(report.finding_counts.items())],
        "findings": sorted(row.reason for row in report.findings.collect()),
        "progress": reported == sorted(reported) and reported[-1][0] == reported[-1][1],
    }
    for name, rebuild in rebuilt.items():
        target = str(folder / name)
        found[name] = rebuild(spark, root, target, split_bytes=500_000, **sizes[name]).count()
    files = pipeline.export_parquet(spark, root, str(folder / "parquet"), split_bytes=500_000)
    found["exported"] = files.agg({"rows": "sum"}).first()[0]
    again = pipeline.replay(spark, root, where="queueId = 1", topic="Again", topics="TopicB")
    again.write.format("rocketstore").mode("append").save(str(folder / "again"))
    found["compact"] = [
        row.asDict()
        for row in pipeline.compact(spark, root, folder / "compact", topics="Prices").collect()
    ]
    return found


def is_watched(spark: Any, folder: Path) -> bool:
    """Whether progress reports a stage while it runs: its last task waits for that."""
    from rocketstore.spark.base.watching import watched

    flag = str(folder / "seen")

    def task(batches: Any) -> Any:
        import os
        import time

        deadline = time.monotonic() + 240
        for batch in batches:
            while batch.column(0)[0].as_py() == 3 and not os.path.exists(flag):
                if time.monotonic() > deadline:
                    raise TimeoutError("no progress was reported")
                time.sleep(0.02)
            yield batch

    def look(stages: Any) -> None:
        if any(0 < done < total == 4 for _, done, total in stages):
            open(flag, "w").close()

    with watched(spark, look):
        return bool(spark.range(0, 4, 1, 4).mapInArrow(task, "id bigint").count() == 4)


def main(mode: str, root: str, damaged: str, expected_file: str, folder: str) -> dict[str, Any]:
    spark = session(mode)
    found = messages(spark, root, expected_file, mode)
    if mode == "cluster":
        found["executors"] = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
    found["written"] = written(spark, root, Path(folder, "copy"))
    found["jobs"] = jobs(spark, root, damaged, Path(folder))
    found["watched"] = is_watched(spark, Path(folder))
    spark.stop()
    return found


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
