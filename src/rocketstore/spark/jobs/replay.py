"""Convert a store's messages to rows that can be written again, selected by key, time or topic."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rocketstore import formats
from rocketstore.body_codec import decompressed
from rocketstore.errors import DecodeError
from rocketstore.spark.base.shipping import shipped_function
from rocketstore.spark.reading.scanning import scan_selected
from rocketstore.spark.reading.selection import Selection, filter_of, plain, words

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import Column, DataFrame, SparkSession

    from rocketstore.filter.sql92.sql92_filter import Sql92Filter

#: Columns of the sink that a replayed message keeps.
WRITTEN = ("topic", "queueId", "tags", "keys", "properties", "flag", "bornTimestamp", "body")
#: Columns to read for them.
READ = (*WRITTEN, "sysFlag", "physicalOffset")
#: Additional columns that a condition may name.
_FOR_CONDITIONS = (
    *("queueOffset", "storeTimestamp", "uniqKey", "storeSize", "bodySize", "bornHost"),
    *("storeHost", "reconsumeTimes", "offsetMsgId", "preparedTransactionOffset", "bodyCRC"),
)
#: Properties that have their own columns, that the first store set, or that cause another delay.
DROPPED_PROPERTIES = (
    *(formats.PROPERTY_TAGS, formats.PROPERTY_KEYS, formats.PROPERTY_CRC32),
    *(formats.PROPERTY_INNER_MULTI_QUEUE_OFFSET, formats.PROPERTY_DELAY),
    *(formats.PROPERTY_TIMER_DELIVER_MS, formats.PROPERTY_TIMER_DELAY_SEC),
    *(formats.PROPERTY_TIMER_DELAY_MS, formats.PROPERTY_TIMER_OUT_MS),
)
_DDL = (
    "topic string, queueId int, tags string, keys string, properties map<string,string>, "
    "flag int, bornTimestamp timestamp, body binary"
)


def replay(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    where: str | Column | None = None,
    topic: str | None = None,
    topics: str | Iterable[str] | None = None,
    tags: str | Iterable[str] | None = None,
    keys: str | Iterable[str] | None = None,
    filter: str | Sql92Filter | None = None,
    begin: int | None = None,
    end: int | None = None,
    start: int | None = None,
    stop: int | None = None,
    split_bytes: int = 256 << 20,
    min_partitions: int | None = None,
    unpack: bool = True,
    on_corruption: str = "fail",
    check_crc: bool = True,
    storage_options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """Return selected messages as rows for ``.write.format("rocketstore")``, in log order.

    Parameters
    ----------
    spark : SparkSession
        May be a Spark Connect session.
    path : str or path-like
        The store to read: a path that driver and executors see, or a URI.
    where : str or Column, optional
        An additional condition, in SQL or as a Column, on the columns of the preset ``full`` and
        ``bodySize``. The filters below are faster, because they apply while the log is read.
    topic : str, optional
        The topic for all messages; None: each keeps its own.
    topics, tags, keys : str or iterable of str, optional
        Only messages of these topics, with one of these tags and one of these keys.
    filter : str or Sql92Filter, optional
        An SQL92 expression of RocketMQ over the properties; a str is one of the newest dialect.
    begin, end : int, optional
        Epoch ms of storeTimestamp, end exclusive; whole segments outside are not read.
    start, stop : int, optional
        Physical offsets; the end is exclusive.
    unpack : bool
        Decompress bodies. With False they stay as stored, but the written messages no longer carry
        the compression flag.
    split_bytes, min_partitions, on_corruption, check_crc, storage_options
        As for ``scan``.

    Returns
    -------
    DataFrame
        topic, queueId, tags, keys, properties, flag, bornTimestamp, body: the sink's columns.

    Raises
    ------
    Whatever ``scan`` raises. In the tasks ``DecodeError`` for a compressed body that cannot be
    decompressed, and for an inner batch.

    Notes
    -----
    Messages that consumers never got are omitted: prepared and rolled back messages of
    transactions, and without ``topics`` those of RocketMQ's system topics. A message is not delayed
    again, and gets a new offset, store time and born host (the writer's).
    """
    import pyspark.sql.functions as sf

    columns = READ if where is None else (*READ, *_FOR_CONDITIONS)
    selection = Selection(
        topics=words(topics, "topics"),
        tags=words(tags, "tags"),
        keys=words(keys, "keys"),
        filter=filter_of(filter),
        begin=begin,
        end=end,
        start=start,
        stop=stop,
        split_bytes=split_bytes,
        min_partitions=min_partitions,
        on_corruption=on_corruption,
        check_crc=check_crc,
        storage_options=plain(storage_options),
    )
    frame = scan_selected(spark, path, selection, columns)
    if where is not None:
        frame = frame.where(where)
    if topics is None:
        lower = sf.lower(sf.col("topic"))
        frame = frame.where(
            ~lower.startswith(formats.TOPIC_SYSTEM_PREFIX)
            & (sf.col("topic") != formats.TOPIC_SCHEDULE)
        )
    if topic is not None:
        frame = frame.withColumn("topic", sf.lit(topic))
    return as_written(frame, unpack=unpack)


def as_written(frame: DataFrame, *, unpack: bool) -> DataFrame:
    """Return messages with the columns of ``READ`` in the form that the sink accepts."""
    import pyspark.sql.functions as sf

    own = sf.col("sysFlag").bitwiseAND(formats.SYS_FLAG_TRANSACTION_MASK)
    frame = frame.where(
        own.isin(formats.SYS_FLAG_TRANSACTION_NOT, formats.SYS_FLAG_TRANSACTION_COMMIT)
    )
    kept = sf.map_filter("properties", lambda name, _: ~name.isin(*DROPPED_PROPERTIES))
    frame = frame.withColumn("properties", kept).select(*READ)
    return frame.mapInArrow(shipped_function(written, unpack), _DDL)


def written(unpack: bool, batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Yield the batches with the columns of ``WRITTEN``; decompress bodies if requested."""
    import pyarrow as pa

    for batch in batches:
        flags = batch.column("sysFlag").to_numpy(zero_copy_only=False)
        body = batch.column("body")
        odd = flags & (formats.SYS_FLAG_INNER_BATCH | (unpack and formats.SYS_FLAG_COMPRESSED))
        if odd.any():
            offsets = batch.column("physicalOffset")
            bodies = body.to_pylist()
            for row in odd.nonzero()[0].tolist():
                bodies[row] = unpacked(bodies[row], int(flags[row]), offsets[row].as_py())
            body = pa.array(bodies, pa.binary())
        columns = [body if name == "body" else batch.column(name) for name in WRITTEN]
        yield pa.RecordBatch.from_arrays(columns, names=list(WRITTEN))


def unpacked(body: bytes, sys_flag: int, physical_offset: int) -> bytes:
    """Return the body as the client sent it, given the stored one.

    Parameters
    ----------
    body : bytes
    sys_flag : int
        The record's flags; they say whether and how the body is compressed.
    physical_offset : int
        Physical offset for error messages.

    Raises
    ------
    DecodeError
        For an inner batch, and for a body that does not decompress to at most 64 MiB.
    """
    where = f"the message at log offset {physical_offset}"
    if sys_flag & formats.SYS_FLAG_INNER_BATCH:
        raise DecodeError(f"{where} is an inner batch, which is not supported")
    try:
        return decompressed(body, sys_flag)
    except DecodeError as error:
        raise DecodeError(f"the body of {where} cannot be decompressed: {error}") from error
