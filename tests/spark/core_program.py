"""The core of the suite as a program of its own: on a cluster of two workers, or through Connect.

Arguments: ``cluster`` or ``connect``; a store; a file with the Arrow table that ``store.scan``
yields of it; a folder for new files. Prints one line of JSON.
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
    "spark.python.authenticate.socketTimeout": "120s",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}


def session(mode: str) -> Any:
    from rocketstore.spark.local import java_environment, local_session

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


def main(mode: str, root: str, expected_file: str, folder: str) -> dict[str, Any]:
    import rocketstore
    from rocketstore.spark import scan

    expected = pa.ipc.open_file(expected_file).read_all()
    spark = session(mode)

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
        found["told"] = "did you mean 'subscribe'" in str(error)
    if mode == "cluster":
        found["executors"] = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
    copy = Path(folder) / "copy"
    rocketstore.open(copy, "x", mapped_file_size_commit_log=1 << 20).close()
    rows = scan(spark, root, columns="topic,body,tags,keys,queueId", topics="TopicC")
    rows.write.format("rocketstore").mode("append").save(str(copy))
    with rocketstore.open(copy) as store:
        found["written"] = sum(1 for _ in store.scan())
    spark.stop()
    return found


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
