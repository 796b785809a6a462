"""``readStream`` of ``format("rocketstore")``; Spark prescribes the method names."""
# ruff: noqa: N802

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from rocketstore.errors import ConfigError, MappedFileError
from rocketstore.spark.base.schema import resolve_schema
from rocketstore.spark.base.shipping import Shipped
from rocketstore.spark.reading.reader import of_plain, read_partition, to_plain
from rocketstore.spark.stream.offsets import StreamOffset
from rocketstore.spark.stream.plan import StreamPlan, queue_bounds

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    LIMITS = True
except ImportError:  # PySpark 4.1 passes a source neither limits nor the start of a batch
    SupportsTriggerAvailableNow = object  # type: ignore[misc, assignment]
    LIMITS = False

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

    from rocketstore.spark.base.options import ReadOptions

_log = logging.getLogger(__name__)


class LogStreamReader(Shipped, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a growing log in micro-batches.

    Spark creates it on the driver, in a Python process that lives as long as the query, and sends a
    copy to each task. For its offsets see ``rocketstore.spark.stream.offsets``.

    Parameters
    ----------
    options : ReadOptions
        ``startingOffsets`` defaults to ``latest`` if no option says where to begin.
    schema : StructType

    Raises
    ------
    ConfigError
        For options that a stream does not support: any ``ending…``, and limits per trigger with
        PySpark older than 4.2, which would ignore them.

    Notes
    -----
    ``maxOffsetsPerTrigger`` counts the messages that the query reads, as Kafka's counts offsets of
    subscribed topics. ``maxBytesPerTrigger`` counts bytes of the log; the record that contains the
    last of them is read whole. With both, the nearer end applies. To count messages, or to stop at
    damage, the driver reads a batch's part of the log before the tasks do.

    With ``onCorruption="stop"`` a stream waits before a corrupt record. A torn write at the log's
    tail always counts as a record that is being written, whatever the option says.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        if not LIMITS:
            for name, value in (
                ("maxOffsetsPerTrigger", options.max_offsets_per_trigger),
                ("maxBytesPerTrigger", options.max_bytes_per_trigger),
            ):
                if value is not None:
                    raise ConfigError(f"{name} needs PySpark 4.2; older versions would ignore it")
        self._plan = StreamPlan(options)
        self._names = resolve_schema(schema)
        self._initial: StreamOffset | None = None
        self._last: StreamOffset | None = None
        self._ceiling: int | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Return where a new query begins; the same on each call."""
        return self._begin().to_json()

    def _begin(self) -> StreamOffset:
        if self._initial is None:
            self._initial = self._plan.initial()
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit that the options set for one batch."""
        options = self._plan.options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Use the log's current end as the end of this run."""
        self._ceiling = self._plan.end()

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Return the end of the batch that begins at ``start``.

        PySpark 4.1 passes neither argument: there a batch ends at the log's end.

        Raises
        ------
        MappedFileError
            If messages after ``start`` were deleted or truncated, and ``failOnDataLoss`` is on.
        CorruptMessageError
            If messages are counted, one is corrupt, and ``onCorruption`` is ``fail``.
        """
        begin = StreamOffset.from_json(start) if start else self._last or self._begin()
        max_records = max_bytes = None
        if LIMITS and isinstance(limit, ReadMaxRows):
            max_records = limit.max_rows
            max_bytes = self._plan.options.max_bytes_per_trigger
        elif LIMITS and isinstance(limit, ReadMaxBytes):
            max_bytes = limit.max_bytes
        self._last = self._plan.advance(
            begin, max_records=max_records, max_bytes=max_bytes, ceiling=self._ceiling
        )
        return self._last.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the log's end, for the progress report of a query."""
        return StreamOffset(self._plan.last_end).to_json() if self._plan.last_end else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks of a batch, in log order.

        Raises
        ------
        MappedFileError
            If messages after ``start`` were deleted, and ``failOnDataLoss`` is on.
        """
        found = self._plan.splits(StreamOffset.from_json(start), StreamOffset.from_json(end))
        return [InputPartition((to_plain(split), tuple(q.items()))) for split, q in found]

    def read(self, partition: InputPartition | None) -> Iterator[pyarrow.RecordBatch]:
        """Yield the record batches of one task.

        Raises
        ------
        MappedFileError
            If the file was deleted after the batch was planned, and ``failOnDataLoss`` is on.
        CorruptMessageError
            For a corrupt record, if ``onCorruption`` is ``fail``.
        """
        if partition is None or partition.value is None:
            return
        values, queues = partition.value
        options, split = self._plan.options, of_plain(values)
        begins = queue_bounds(dict(queues))
        try:
            yield from read_partition(options, self._names, split, start_offsets=begins)
        except (MappedFileError, FileNotFoundError) as error:
            if options.fail_on_data_loss or not self._plan.is_deleted(split):
                raise
            _log.warning("messages from %d on are lost: %s", split.base_offset + split.start, error)
