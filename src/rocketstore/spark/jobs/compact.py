"""Write the latest message of each key to a new store.

The first pass shuffles only keys and offsets: each split yields its latest message of each key, and
Spark takes the latest of all splits. The second pass reads the survivors in log order.
"""

from __future__ import annotations

import os
import pickle
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rocketstore import formats
from rocketstore.sources import LogFiles, Split, plan_splits
from rocketstore.spark.base.apart import check_apart
from rocketstore.spark.base.shipping import shipped_function
from rocketstore.spark.jobs.replay import READ, as_written
from rocketstore.spark.reading.selection import Selection, plain, words

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

#: Columns that can serve as key.
KEYS = ("keys", "uniqKey")
_PARTIAL_DDL = "topic string, key string, single bigint, place bigint, messages bigint"
_SUMMARY_DDL = (
    "topic string, messages bigint, keys bigint, tombstones bigint, unkeyed bigint, kept bigint"
)


def compact(
    spark: SparkSession,
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    key: str = "keys",
    topics: str | Iterable[str],
    keep_unkeyed: bool = True,
    unpack: bool = True,
    split_bytes: int = 256 << 20,
    min_partitions: int | None = None,
    on_corruption: str = "fail",
    check_crc: bool = True,
    storage_options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """Write the latest message of each key of some topics to a new store.

    Parameters
    ----------
    spark : SparkSession
        May be a Spark Connect session.
    path : str or path-like
        The store to read: a path that driver and executors see, or a URI.
    out : str or path-like
        The new store, as for ``bulk_load``: a path that driver and executors see.
    key : str
        ``"keys"``, all of KEYS as one key, as in RocketMQ's compaction; or ``"uniqKey"``.
    topics : str or iterable of str
        Keys belong to their topic: the same key in two topics counts as two keys.
    keep_unkeyed : bool
        Keep all messages without a key, or drop them.
    unpack : bool
        As for ``replay``.
    split_bytes, min_partitions, on_corruption, check_crc, storage_options
        As for ``scan``.

    Returns
    -------
    DataFrame
        A row for each topic: topic, messages (read), keys (distinct), tombstones (keys whose
        latest message has an empty body, and of which nothing is kept), unkeyed (messages kept
        without a key), kept (messages written).

    Raises
    ------
    ValueError
        For an unknown ``key``, or no topics.
    FileExistsError
        If ``out`` is not empty.
    CorruptMessageError
        In the tasks, at a corrupt range: Spark reports a failed job.

    Notes
    -----
    The latest message is the last one in the log. Messages keep topic, queue, keys, tags,
    properties and body (see ``replay``), and their order. Prepared and rolled back messages of
    transactions do not count.
    """
    import pyspark.sql.functions as sf

    from rocketstore.spark.base.schema import spark_schema
    from rocketstore.spark.jobs.bulk_loading import bulk_load

    check_apart(path, out)
    if key not in KEYS:
        raise ValueError(f"key is {key!r}; it must be one of {', '.join(KEYS)}")
    selection = Selection(
        topics=words(topics, "topics"),
        split_bytes=split_bytes,
        min_partitions=min_partitions,
        on_corruption=on_corruption,
        check_crc=check_crc,
        storage_options=plain(storage_options),
    )
    if not selection.topics:
        raise ValueError("topics is empty; give at least one topic")
    log = selection.list_log(path)
    splits = selection.plan(log)
    reading = {"topics": selection.topics, **selection.reading}
    packed = zlib.compress(pickle.dumps(splits))
    count = max(1, len(splits))
    partial = spark.range(0, len(splits), 1, count).mapInArrow(
        shipped_function(latest_of_splits, packed, key, keep_unkeyed, reading), _PARTIAL_DDL
    )
    survivors = (
        partial.groupBy("topic", "key", "single")
        .agg(sf.max("place").alias("place"), sf.sum("messages").alias("messages"))
        .persist()
    )
    try:
        places = survivors.where("place % 2 = 0 AND place >= 0").select(
            sf.expr("place div 2").alias("physicalOffset")
        )
        ordered = places.repartitionByRange(count, "physicalOffset").sortWithinPartitions(
            "physicalOffset"
        )
        gather = shipped_function(gather_rows, zlib.compress(pickle.dumps(log)), reading)
        kept = ordered.mapInArrow(gather, spark_schema(READ))
        bulk_load(as_written(kept, unpack=unpack), out)
        rows = _counted(survivors)
    finally:
        survivors.unpersist()
    return spark.createDataFrame([tuple(row) for row in rows], _SUMMARY_DDL)


def _counted(survivors: DataFrame) -> list[Any]:
    """Return a row for each topic, for ``compact``."""
    import pyspark.sql.functions as sf

    counts = survivors.groupBy("topic").agg(
        sf.sum("messages").alias("messages"),
        sf.count("key").alias("keys"),
        sf.expr("count_if(key IS NOT NULL AND place % 2 = 1)").alias("tombstones"),
        sf.expr("count_if(key IS NULL AND place >= 0)").alias("unkeyed"),
        sf.expr("count_if(place >= 0 AND place % 2 = 0)").alias("kept"),
    )
    return counts.orderBy("topic").collect()


def latest_of_splits(
    packed: bytes,
    key: str,
    keep_unkeyed: bool,
    reading: dict[str, Any],
    batches: Iterable[pyarrow.RecordBatch],
) -> Iterator[pyarrow.RecordBatch]:
    """Yield the latest of each key in the splits whose numbers come in (the first pass's task)."""
    splits: Sequence[Split] = pickle.loads(zlib.decompress(packed))
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from latest(splits[number], key, keep_unkeyed, reading)


def latest(
    split: Split, key: str, keep_unkeyed: bool, reading: dict[str, Any]
) -> Iterator[pyarrow.RecordBatch]:
    """Yield where the latest message of each key of a split is.

    Columns: topic; key (null: none); single (the offset of a message without a key, else null);
    place (twice the physical offset, plus 1 for a tombstone; -1: nothing to keep); messages (how
    many were read).
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from rocketstore.arrow.reading import read_batches

    names = ["topic", key, "physicalOffset", "bodySize", "sysFlag"]
    tables = []
    for batch in read_batches(split, names, **reading):
        kind = pc.bit_wise_and(batch.column("sysFlag"), formats.SYS_FLAG_TRANSACTION_MASK)
        counted = pc.is_in(
            kind,
            pa.array(
                [formats.SYS_FLAG_TRANSACTION_NOT, formats.SYS_FLAG_TRANSACTION_COMMIT], pa.int32()
            ),
        )
        tables.append(_places(batch.filter(counted), key, keep_unkeyed))
    if not tables:
        return
    found = (
        pa.Table.from_batches(tables)
        .group_by(["topic", "key", "single"], use_threads=False)
        .aggregate([("place", "max"), ("messages", "sum")])
        .select(["topic", "key", "single", "place_max", "messages_sum"])
        .rename_columns(["topic", "key", "single", "place", "messages"])
    )
    yield from found.to_batches(max_chunksize=65536)


def _places(batch: pyarrow.RecordBatch, key: str, keep_unkeyed: bool) -> pyarrow.RecordBatch:
    import pyarrow as pa
    import pyarrow.compute as pc

    keys, offsets = batch.column(key), batch.column("physicalOffset")
    keys = pc.if_else(pc.equal(keys, ""), pa.scalar(None, pa.string()), keys)
    unkeyed = pc.is_null(keys)
    twice = pc.multiply(offsets, 2)
    tombstone = pc.equal(batch.column("bodySize"), 0).cast(pa.int64())
    place = pc.if_else(unkeyed, twice if keep_unkeyed else -1, pc.add(twice, tombstone))
    single = pc.if_else(unkeyed, offsets if keep_unkeyed else 0, pa.scalar(None, pa.int64()))
    ones = pa.array([1] * batch.num_rows, pa.int64())
    return pa.RecordBatch.from_arrays(
        [batch.column("topic"), keys, single, place.cast(pa.int64()), ones],
        names=["topic", "key", "single", "place", "messages"],
    )


def gather_rows(
    packed: bytes, reading: dict[str, Any], batches: Iterable[pyarrow.RecordBatch]
) -> Iterator[pyarrow.RecordBatch]:
    """Yield the messages at the incoming offsets, which ascend (the second pass's task)."""
    import numpy as np

    log: LogFiles = pickle.loads(zlib.decompress(packed))
    parts = [batch.column(0).to_numpy() for batch in batches]
    if parts:
        yield from gather(log, np.concatenate(parts), reading)


def gather(log: LogFiles, offsets: Any, reading: dict[str, Any]) -> Iterator[pyarrow.RecordBatch]:
    """Yield the messages that begin at ``offsets`` (int64, ascending), with the columns ``READ``.

    Reads the log from the first of them to the last.
    """
    import numpy as np

    from rocketstore.arrow.reading import read_batches

    if not len(offsets):
        return
    if reading.get("on_corruption") == "stop":
        # Damage ended a split of the first pass, but later splits have survivors after it.
        reading = {**reading, "on_corruption": "skip"}
    first, last = int(offsets[0]), int(offsets[-1])
    for piece in plan_splits(log, start=first, stop=last + 1, aligned_start=True):
        for batch in read_batches(piece, list(READ), **reading):
            found = batch.column("physicalOffset").to_numpy()
            at = np.minimum(np.searchsorted(offsets, found), len(offsets) - 1)
            kept = np.flatnonzero(offsets[at] == found)
            if len(kept) == batch.num_rows:
                yield batch
            elif len(kept):
                yield batch.take(kept)
