"""A streaming source that dies at a chosen step, and a program that streams in its own process."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: Steps of a micro-batch, in the order in which Spark takes them.
READER_STEPS = (
    *("before-initialOffset", "after-initialOffset", "before-latestOffset", "after-latestOffset"),
    *("before-partitions", "after-partitions", "before-read", "in-read", "after-read"),
    *("before-commit", "after-commit"),
)


def faulty_source(tokens: str) -> Any:
    """Return a data source class ``faulty`` that reads as rocketstore does and dies at a step for
    which there is a file in the folder ``tokens``: its process ends, or with it all processes of
    its session where the file holds ``everything``. Each file works once. The classes travel by
    value."""
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader

    from rocketstore.spark.stream.stream_reader import SupportsTriggerAvailableNow

    def step(name: str) -> None:
        path = os.path.join(tokens, name)
        try:
            with open(path) as file:
                what = file.read()
            os.rename(path, path + ".taken")
        except OSError:
            return
        if what == "everything":
            # Spark's workers have a process group of their own, but not a session.
            for entry in os.listdir("/proc"):
                if entry.isdigit() and int(entry) != os.getpid():
                    try:
                        if os.getsid(int(entry)) == os.getsid(0):
                            os.kill(int(entry), signal.SIGKILL)
                    except ProcessLookupError:
                        continue
        os._exit(9)

    class Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def initialOffset(self) -> Any:
            step("before-initialOffset")
            found = self.inner.initialOffset()
            step("after-initialOffset")
            return found

        def getDefaultReadLimit(self) -> Any:
            return self.inner.getDefaultReadLimit()

        def prepareForTriggerAvailableNow(self) -> None:
            self.inner.prepareForTriggerAvailableNow()

        def latestOffset(self, start: Any = None, limit: Any = None) -> Any:
            step("before-latestOffset")
            found = self.inner.latestOffset(start, limit)
            step("after-latestOffset")
            return found

        def partitions(self, start: Any, end: Any) -> Any:
            step("before-partitions")
            found = self.inner.partitions(start, end)
            step("after-partitions")
            return found

        def read(self, partition: Any) -> Any:
            step("before-read")
            for batch in self.inner.read(partition):
                yield batch
                step("in-read")
            step("after-read")

        def commit(self, end: Any) -> None:
            step("before-commit")
            self.inner.commit(end)
            step("after-commit")

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "faulty"

        def _inner(self) -> Any:
            from rocketstore.spark import RocketStoreSource

            return RocketStoreSource(dict(self.options))

        def schema(self) -> Any:
            return self._inner().schema()

        def streamReader(self, schema: Any) -> Any:
            return Reader(self._inner().streamReader(schema))

    return Source


def limited(rows: int) -> dict[str, object]:
    """The option by which a batch has so many rows; none on PySpark 4.1, whose batches have all
    rows."""
    from rocketstore.spark.stream.stream_reader import LIMITS

    return {"maxOffsetsPerTrigger": rows} if LIMITS else {}


def run_available(
    spark: Any, source: str, store: Path, out: Path, checkpoint: Path, **options: object
) -> Any:
    """Stream all there is into Parquet files; return the query, ended."""
    texts = {name: str(value) for name, value in options.items()}

    def start() -> Any:
        frame = spark.readStream.format(source).options(**texts).load(str(store))
        writer = frame.writeStream.format("parquet").option("path", str(out))
        return writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)

    return ended(start)


def ended(writer: Callable[[], Any]) -> Any:
    """Start the query and wait for its end; once more where a busy machine did not bring up a
    Python process within the ten seconds that Spark gives it."""
    while True:
        query = writer().start()
        try:
            query.awaitTermination()
        except Exception as error:
            if "connect back" not in str(error):
                raise
        else:
            return query


def main() -> None:
    """``python stream_faults.py STORE OUT CHECKPOINT TOKENS``: stream until killed."""
    store, out, checkpoint, tokens = map(Path, sys.argv[1:])
    from rocketstore.spark import local_session

    spark = local_session("killed")
    spark.dataSource.register(faulty_source(str(tokens)))
    options = {"startingOffsets": "earliest", **limited(50)}
    run_available(spark, "faulty", store, out, checkpoint, **options)


if __name__ == "__main__":
    main()
