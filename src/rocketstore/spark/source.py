"""The data source ``format("rocketstore")``: read and write, in batches and streams."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from rocketstore.display.columns import resolve
from rocketstore.errors import ConfigError
from rocketstore.spark.base.options import ReadOptions, parse_read
from rocketstore.spark.base.schema import resolve_schema, spark_schema
from rocketstore.spark.base.shipping import Shipped, shipped
from rocketstore.spark.reading.filters import narrowed
from rocketstore.spark.reading.reader import of_plain, plan, queue_ranges, read_partition, to_plain

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

__all__ = ["LogReader", "RocketStoreSource", "RocketStoreSourceWithFilters", "register"]

_PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession, *, filters: bool = False) -> None:
    """Register ``format("rocketstore")`` with a session.

    Spark usually finds the source itself. Use this for sessions that do not search for sources (a
    Spark Connect server with another environment), and for ``filters``.

    Parameters
    ----------
    spark : SparkSession
    filters : bool
        Let Spark push down comparisons of topic, tags, keys, storeTimestamp and physicalOffset,
        to read less; this turns ``spark.sql.python.filterPushdown.enabled`` on for the session.

        .. warning:: Spark 4.1 to 4.3 keep the filters of one query in an object that all queries
           derived from the same DataFrame share: after ``df.where(…).count()`` a plain
           ``df.count()`` counts only the filtered rows. With ``filters`` repeat
           ``spark.read…load()`` for each query. The options ``subscribe``, ``tags``,
           ``startingTimestamp`` … restrict what is read without this danger.

    Raises
    ------
    ConfigError
        With ``filters``, if Spark is older than 4.1.
    """
    if filters:
        version = tuple(map(int, spark.version.split(".")[:2]))
        if version < (4, 1):
            raise ConfigError(f"filters need Spark 4.1 or later, not {spark.version}")
        spark.conf.set(_PUSH_DOWN, "true")
    spark.dataSource.register(RocketStoreSourceWithFilters if filters else RocketStoreSource)


class RocketStoreSource(DataSource):
    """Messages of a store directory, as Spark's data source ``rocketstore``.

    Parameters
    ----------
    options : dict of str to str
        As given to the reader or the writer; checked on use.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(…)``."""
        return "rocketstore"

    def schema(self) -> StructType:
        """Return the schema that the options select.

        Raises
        ------
        ConfigError
            For invalid options.
        """
        options = parse_read(self.options)
        return spark_schema(_columns(options), check_crc=options.check_crc)

    def reader(self, schema: StructType) -> LogReader:
        """Return the reader of a batch query; ``schema`` may be the user's own."""
        return LogReader(parse_read(self.options), schema)

    def streamReader(self, schema: StructType) -> Any:  # noqa: N802
        """Return the reader of a stream."""
        from rocketstore.spark.stream.stream_reader import LogStreamReader

        return LogStreamReader(parse_read(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        """Return the writer of a batch."""
        from rocketstore.spark.sink.writer import StagedWriter

        return StagedWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802
        """Return the writer of a stream."""
        from rocketstore.spark.sink.writer import StagedStreamWriter

        return StagedStreamWriter(self.options, schema, overwrite)

    def __reduce__(self) -> Any:
        return shipped(type(self).__module__, type(self).__qualname__, (dict(self.options),))


class RocketStoreSourceWithFilters(RocketStoreSource):
    """The data source that accepts pushed-down filters; see ``register``."""

    def reader(self, schema: StructType) -> LogReader:
        """Return the reader of a batch query."""
        return FilteredLogReader(parse_read(self.options), schema)


def _columns(options: ReadOptions) -> list[str]:
    try:
        return resolve(options.columns, include_properties=options.include_properties)
    except ValueError as error:
        raise ConfigError(f"columns: {error}") from None


class LogReader(Shipped, DataSourceReader):
    """Reads a log in a batch query, split by split.

    Parameters
    ----------
    options : ReadOptions
    schema : StructType
        The columns, in order.

    Raises
    ------
    ConfigError
        For a schema with unknown columns or wrong types, and for options of streams.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        for value, name in (
            (options.max_offsets_per_trigger, "maxOffsetsPerTrigger"),
            (options.max_bytes_per_trigger, "maxBytesPerTrigger"),
        ):
            if value is not None:
                raise ConfigError(f"{name} is for streams; a batch query reads everything")
        self._given = self._options = options
        self._names = resolve_schema(schema)
        self._ranges = queue_ranges(options)

    def partitions(self) -> list[InputPartition]:
        """Return the splits of the log in order, as plain values."""
        return [InputPartition(to_plain(split)) for split in plan(self._given, self._options)]

    def read(self, partition: InputPartition | None) -> Iterator[pyarrow.RecordBatch]:
        """Yield one split's messages as record batches; an empty plan has the split None."""
        if partition is None or partition.value is None:
            return
        yield from read_partition(
            self._options, self._names, of_plain(partition.value), start_offsets=self._ranges
        )


class FilteredLogReader(LogReader):
    """A reader that uses filters to read less; Spark applies all of them itself."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802
        """Use the supported filters; return all, so that Spark checks each row again."""
        self._options = narrowed(self._options, filters)
        return filters
