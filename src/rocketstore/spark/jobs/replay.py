"""Messages of a store in the form in which they are written again, chosen by key, time or topic."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rocketstore import formats
from rocketstore.errors import DecodeError
from rocketstore.spark.base.shipping import shipped_function
from rocketstore.spark.reading.scanning import scan

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import Column, DataFrame, SparkSession

#: What the sink takes, and what a replayed message keeps.
WRITTEN = ("topic", "queueId", "tags", "keys", "properties", "flag", "bornTimestamp", "body")
#: What has to be read for it.
READ = (*WRITTEN, "sysFlag", "physicalOffset")
#: What a condition may name beside it.
_FOR_CONDITIONS = (
    *("queueOffset", "storeTimestamp", "uniqKey", "storeSize", "bodySize", "bornHost"),
    *("storeHost", "reconsumeTimes", "offsetMsgId", "preparedTransactionOffset", "bodyCRC"),
)
#: Columns of their own, what the first store made, and what would delay the message once more.
DROPPED_PROPERTIES = (
    *(formats.PROPERTY_TAGS, formats.PROPERTY_KEYS, formats.PROPERTY_CRC32),
    *(formats.PROPERTY_INNER_MULTI_QUEUE_OFFSET, formats.PROPERTY_DELAY),
    *(formats.PROPERTY_TIMER_DELIVER_MS, formats.PROPERTY_TIMER_DELAY_SEC),
    *(formats.PROPERTY_TIMER_DELAY_MS, formats.PROPERTY_TIMER_OUT_MS),
)
#: Bytes that a compressed body may unpack to.
MAX_UNPACKED_NBYTES = 64 << 20
_ZLIB, _LZ4, _ZSTD = 3, 1, 2
_CODECS = {_LZ4: "lz4", _ZSTD: "zstd"}
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
    """Return chosen messages as rows that ``.write.format("rocketstore")`` takes, in log order.

    Parameters
    ----------
    spark : SparkSession
        Also one of Spark Connect.
    path : str or path-like
        The store to read: a path that driver and executors see, or a URI.
    where : str or Column, optional
        A further condition, in SQL or as a Column, on the columns of the preset ``full`` and
        ``bodySize``. The choices below cost less: they are made while the log is read.
    topic : str, optional
        The topic that all messages go to; None: each stays on its own.
    topics, tags, keys : str or iterable of str, optional
        Only messages of these topics; with one of these tags; with one of these keys.
    begin, end : int, optional
        Epoch ms of storeTimestamp, half open; whole segments outside are not read.
    start, stop : int, optional
        Physical offsets, half open.
    unpack : bool
        Unpack bodies that a client compressed. False: as they are stored, though nothing will tell
        consumers any more that they are compressed.
    split_bytes, min_partitions, on_corruption, check_crc, storage_options
        As for ``scan``.

    Returns
    -------
    DataFrame
        topic, queueId, tags, keys, properties, flag, bornTimestamp, body: the sink's columns.

    Raises
    ------
    Whatever ``scan`` raises. In the tasks ``DecodeError`` for a compressed body that does not
    unpack, and for an inner batch.

    Notes
    -----
    What consumers never got is left out: prepared and rolled back messages of transactions, and
    without ``topics`` those of RocketMQ's own topics. A message is not delayed a second time, and
    gets a new offset, store time and born host (the writer's).
    """
    import pyspark.sql.functions as sf

    columns = READ if where is None else (*READ, *_FOR_CONDITIONS)
    frame = scan(
        spark,
        path,
        topics=topics,
        tags=tags,
        keys=keys,
        columns=columns,
        begin=begin,
        end=end,
        start=start,
        stop=stop,
        split_bytes=split_bytes,
        min_partitions=min_partitions,
        on_corruption=on_corruption,
        check_crc=check_crc,
        storage_options=storage_options,
    )
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
    """Return messages with the columns of ``READ`` in the form that the sink takes."""
    import pyspark.sql.functions as sf

    own = sf.col("sysFlag").bitwiseAND(formats.SYS_FLAG_TRANSACTION_MASK)
    frame = frame.where(
        own.isin(formats.SYS_FLAG_TRANSACTION_NOT, formats.SYS_FLAG_TRANSACTION_COMMIT)
    )
    kept = sf.map_filter("properties", lambda name, _: ~name.isin(*DROPPED_PROPERTIES))
    frame = frame.withColumn("properties", kept).select(*READ)
    return frame.mapInArrow(shipped_function(written, unpack), _DDL)


def written(unpack: bool, batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Yield the batches with the columns of ``WRITTEN``, compressed bodies unpacked if wanted."""
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
    """Return the body that a client sent, given the one that is stored.

    Parameters
    ----------
    body : bytes
    sys_flag : int
        Of the record; says whether and how the body is compressed.
    physical_offset : int
        For messages.

    Raises
    ------
    DecodeError
        For an inner batch, and for a body that does not unpack to at most 64 MiB.
    """
    where = f"the message at log offset {physical_offset}"
    if sys_flag & formats.SYS_FLAG_INNER_BATCH:
        raise DecodeError(f"{where} is a batch of messages in one record, which is not supported")
    if not sys_flag & formats.SYS_FLAG_COMPRESSED:
        return body
    kind = (sys_flag & formats.SYS_FLAG_COMPRESSION_TYPE_MASK) >> 8
    try:
        if kind in (0, _ZLIB):
            packed = zlib.decompressobj()
            content = packed.decompress(body, MAX_UNPACKED_NBYTES + 1)
            if not packed.eof and len(content) <= MAX_UNPACKED_NBYTES:
                raise zlib.error("it ends too early")
        elif kind in _CODECS:
            import pyarrow as pa

            with pa.input_stream(pa.BufferReader(body), compression=_CODECS[kind]) as stream:
                content = stream.read(MAX_UNPACKED_NBYTES + 1)
        else:
            raise DecodeError(f"{where} is compressed in a way unknown here ({kind})")
    except (OSError, zlib.error) as error:
        raise DecodeError(f"the body of {where} does not unpack: {error}") from error
    if len(content) > MAX_UNPACKED_NBYTES:
        raise DecodeError(f"the body of {where} unpacks to more than {MAX_UNPACKED_NBYTES} bytes")
    return content
