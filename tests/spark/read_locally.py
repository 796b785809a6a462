"""Runs a reader of the Spark source in this process, as Spark does in its own: plan, send, read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle

from rocketstore.arrow.columns import arrow_schema
from rocketstore.spark.source import RocketStoreSource


def source_of(root: Path | str, **options: Any) -> RocketStoreSource:
    """A source with options as Spark hands them over: names in lower case, values as text."""
    texts = {name.lower(): str(value) for name, value in options.items()}
    return RocketStoreSource({"path": str(root), **texts})


def batches(root: Path | str, schema: Any = None, **options: Any) -> Iterator[pa.RecordBatch]:
    """Yield the batches of all parts."""
    source = source_of(root, **options)
    reader = source.reader(source.schema() if schema is None else schema)
    sent = cloudpickle.loads(cloudpickle.dumps(reader))
    for part in cloudpickle.loads(cloudpickle.dumps(reader.partitions())):
        yield from sent.read(part)


def table(root: Path | str, **options: Any) -> pa.Table:
    """The table of all parts, in their order."""
    schema = arrow_schema(source_of(root, **options).schema().fieldNames())
    return pa.Table.from_batches(batches(root, **options), schema)
