"""``stats``: aggregate a store's log by group, natively in the tasks."""

from __future__ import annotations

import os
import pickle
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rocketstore import kernels
from rocketstore.sources.splits import DEFAULT_SPLIT_BYTES, Split
from rocketstore.sources.walk import walk
from rocketstore.spark.reading.selection import Selection, nearest, plain

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

#: Group columns and their types, in the order of a group of StatsPass.
GROUPS = {
    "topic": "string",
    "queueId": "int",
    "tags": "string",
    "bucket": "timestamp",
    "bodySize": "int",
}
#: Measures: type, index in a group of StatsPass, and how to merge two groups.
MEASURES = {
    "count": ("bigint", 5, "sum"),
    "bytes": ("bigint", 6, "sum"),
    "bodyBytes": ("bigint", 7, "sum"),
    "minStoreTimestamp": ("timestamp", 8, "min"),
    "maxStoreTimestamp": ("timestamp", 9, "max"),
    "minQueueOffset": ("bigint", 10, "min"),
    "maxQueueOffset": ("bigint", 11, "max"),
}
_MAX_MS = (2**63 - 1) // 1000
_JOIN: dict[str, Callable[[Iterable[int]], int]] = {"sum": sum, "min": min, "max": max}


@dataclass(frozen=True, slots=True)
class Question:
    """The aggregation to compute, as plain data that travels to the tasks.

    Attributes
    ----------
    by, measures : tuple of str
        Keys of ``GROUPS`` and ``MEASURES``.
    bucket_ms : int
        Width of a time bucket.
    """

    by: tuple[str, ...]
    measures: tuple[str, ...]
    bucket_ms: int

    @property
    def types(self) -> dict[str, str]:
        """Return name and Spark type of every column."""
        types = {name: GROUPS[name] for name in self.by}
        types.update({name: MEASURES[name][0] for name in self.measures})
        return types


def question(
    by: str | Sequence[str],
    bucket: int | None,
    measures: str | Sequence[str],
) -> Question:
    """Validate the aggregation; see ``stats``."""
    groups = [by] if isinstance(by, str) else list(by)
    if bucket is not None and "bucket" not in groups:
        groups.append("bucket")
    wanted = [measures] if isinstance(measures, str) else list(measures)
    for name in groups:
        if name not in GROUPS:
            raise ValueError(f"by={name!r}: {nearest(name, GROUPS)}")
    for name in wanted:
        if name not in MEASURES:
            raise ValueError(f"measure {name!r}: {nearest(name, MEASURES)}")
    if len(set(groups)) < len(groups) or len(set(wanted)) < len(wanted) or not wanted:
        raise ValueError("by and measures must name each column once, and at least one measure")
    if "bucket" in groups and bucket is None:
        raise ValueError("by='bucket' needs the width of a bucket, e.g. bucket=60_000 (a minute)")
    if bucket is not None and bucket < 1:
        raise ValueError(f"bucket is {bucket}; it must be 1 or more milliseconds")
    return Question(tuple(groups), tuple(wanted), bucket or 1)


def stats(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    by: str | Sequence[str] = ("topic", "queueId"),
    bucket: int | None = None,
    measures: str | Sequence[str] = ("count", "bytes"),
    on_corruption: str = "fail",
    check_crc: bool = True,
    split_bytes: int = DEFAULT_SPLIT_BYTES,
    min_partitions: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """Aggregate the messages of a store by group. Tasks return only groups, no messages.

    Parameters
    ----------
    spark : SparkSession
        May be a Spark Connect session.
    path : str or path-like
        The store's root or its ``commitlog`` folder: a path or URI that driver and executors see.
    by : str or sequence of str
        Group columns, any of ``topic``, ``queueId``, ``tags`` (null: no tags), ``bucket`` (of the
        store time) and ``bodySize`` (the body's bytes, rounded down to a power of two; 0 for an
        empty body). Empty: one group.
    bucket : int, optional
        Width of a time bucket in ms; adds ``bucket`` to ``by``. The column has the start of each
        bucket; buckets are counted from the epoch in UTC.
    measures : str or sequence of str
        Any of ``count``, ``bytes`` (of whole records), ``bodyBytes``, ``minStoreTimestamp``,
        ``maxStoreTimestamp``, ``minQueueOffset``, ``maxQueueOffset``.
    on_corruption : {"fail", "skip", "stop"}
        At a corrupt range: fail, continue after it, or count what lies before it.
    check_crc : bool
        Compare bodies with their CRCs; False is about twice as fast.
    split_bytes, min_partitions : int
        See ``rocketstore.sources.plan_splits``.
    storage_options : mapping, optional
        fsspec options for remote paths.

    Returns
    -------
    DataFrame
        The columns of ``by``, then the measures; one row for each group, unordered. The log is
        listed now, and read when the DataFrame is used.

    Raises
    ------
    ValueError
        For invalid names and numbers.
    FileNotFoundError, MappedFileError, ConfigError
        As ``rocketstore.sources.list_log`` raises. Errors in tasks (such as
        ``CorruptMessageError``) arrive as PySpark's ``PythonException``, which names them.
    """
    from pyspark.sql import functions as f

    from rocketstore.spark.base.shipping import shipped_function

    asked = question(by, bucket, measures)
    selection = Selection(
        split_bytes=split_bytes,
        min_partitions=min_partitions,
        on_corruption=on_corruption,
        check_crc=check_crc,
        storage_options=plain(storage_options),
    )
    splits = selection.plan(selection.list_log(path))
    packed = zlib.compress(pickle.dumps((asked, selection.reading, splits)))
    columns = [f"`{name}` {kind}" for name, kind in asked.types.items()]
    numbers = spark.range(0, len(splits), 1, max(1, len(splits)))
    parts = numbers.mapInArrow(shipped_function(work, packed), ", ".join(columns))
    join = {"sum": f.sum, "min": f.min, "max": f.max}
    sums = [join[MEASURES[name][2]](name).alias(name) for name in asked.measures]
    if not asked.by:
        return parts.agg(*sums).na.fill(0, [n for n in asked.measures if MEASURES[n][2] == "sum"])
    return parts.groupBy(*asked.by).agg(*sums)


def work(packed: bytes, batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Yield the groups of the splits whose numbers come in (a task)."""
    asked, reading, splits = pickle.loads(zlib.decompress(packed))
    for batch in batches:
        for number in batch.column(0).to_pylist():
            for groups in split_groups(asked, splits[number], reading):
                yield _batch(asked, groups)


def split_groups(
    asked: Question, split: Split, reading: Mapping[str, Any]
) -> Iterator[list[tuple[Any, ...]]]:
    """Yield the groups of one split from StatsPass; a group may be repeated."""
    consumer = kernels.passes_stats.StatsPass(asked.by, bucket_ms=asked.bucket_ms)
    for _ in walk(split, consumer, **reading):
        groups = consumer.take()
        if groups:
            yield groups


def _batch(asked: Question, groups: Sequence[tuple[Any, ...]]) -> pyarrow.RecordBatch:
    """Return the requested columns of groups."""
    import pyarrow as pa

    places = [list(GROUPS).index(name) for name in asked.by]
    places += [MEASURES[name][1] for name in asked.measures]
    arrays = []
    for place, kind in zip(places, asked.types.values(), strict=True):
        values = [group[place] for group in groups]
        if kind == "string":
            arrays.append(pa.array(map(_text, values), pa.string()))
        elif kind == "timestamp":
            times = [min(max(value, -_MAX_MS), _MAX_MS) * 1000 for value in values]
            arrays.append(pa.array(times, pa.int64()).cast(pa.timestamp("us", "UTC")))
        else:
            arrays.append(pa.array(values, pa.int32() if kind == "int" else pa.int64()))
    return pa.RecordBatch.from_arrays(arrays, names=list(asked.types))


def _text(stored: bytes | None) -> str | None:
    """Decode a topic or tags as messages do; invalid UTF-8 is replaced."""
    if stored is None:
        return None
    try:
        return stored.decode()
    except UnicodeDecodeError:
        pair = b"x\x01" + stored + b"\x02"
        return str(kernels.message.parse_properties(pair)["x"])


def stats_table(
    path: str | os.PathLike[str],
    *,
    by: str | Sequence[str] = ("topic", "queueId"),
    bucket: int | None = None,
    measures: str | Sequence[str] = ("count", "bytes"),
    on_corruption: str = "fail",
    check_crc: bool = True,
    split_bytes: int = DEFAULT_SPLIT_BYTES,
    storage_options: Mapping[str, Any] | None = None,
) -> pyarrow.Table:
    """Compute ``stats`` in this process, without Spark.

    Parameters
    ----------
    path : str or path-like
    by, bucket, measures, on_corruption, check_crc, split_bytes, storage_options
        As for ``stats``.

    Returns
    -------
    pyarrow.Table
        The rows in order of appearance in the log.
    """
    import pyarrow as pa

    asked = question(by, bucket, measures)
    selection = Selection(
        split_bytes=split_bytes,
        on_corruption=on_corruption,
        check_crc=check_crc,
        storage_options=plain(storage_options),
    )
    sums: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    for split in selection.plan(selection.list_log(path)):
        for groups in split_groups(asked, split, selection.reading):
            for group in groups:
                topic, queue_id, tags, *rest = group[:5]
                key = (_text(topic), queue_id, _text(tags), *rest)
                sums.setdefault(key, []).append(group)
    rows = []
    for found in sums.values():
        row = list(found[0])
        for _, place, how in MEASURES.values():
            row[place] = _JOIN[how](group[place] for group in found)
        rows.append(tuple(row))
    return pa.Table.from_batches([_batch(asked, rows)])
