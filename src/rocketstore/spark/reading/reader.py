"""Shared by all Spark readers: plan the splits of a log, and read one of them in a task."""

from __future__ import annotations

import dataclasses
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocketstore.arrow.reading import read_batches
from rocketstore.errors import ConfigError, MappedFileError
from rocketstore.sources.policy import plan_reading
from rocketstore.sources.segments import LogFiles
from rocketstore.sources.splits import Split, plan_splits
from rocketstore.spark.base.options import EARLIEST, LATEST, Offsets, ReadOptions
from rocketstore.spark.base.worker import begin_task
from rocketstore.spark.reading.listing import list_to_read
from rocketstore.spark.reading.queue_names import check_queue_names, store_with_queues
from rocketstore.store.default_message_store import DefaultMessageStore
from rocketstore.store.default_message_store import open as open_store

if TYPE_CHECKING:
    import pyarrow

#: Bytes of a segment to read to estimate the message size.
_SAMPLE_NBYTES = 1 << 20
#: Queue offsets to read by (topic, queue id), end exclusive; None: unbounded.
QueueRanges = dict[tuple[str, int], tuple[int | None, int | None]]


# --- in the driver ----------------------------------------------------------------------------


def plan(options: ReadOptions, bounds: ReadOptions | None = None) -> list[Split]:
    """Return the splits of the log for a batch query, in log order.

    Parameters
    ----------
    options : ReadOptions
        The user's options; the messages that they name must exist.
    bounds : ReadOptions, optional
        The same, narrowed by pushed-down filters.

    Raises
    ------
    ConfigError
        If offsets ask for what a batch cannot provide.
    FileNotFoundError, MappedFileError
        If the path is not a store, or selected messages are gone (failOnDataLoss).
    CorruptMessageError
        With onCorruption=fail, if a segment is missing.
    """
    ranges = queue_ranges(options)
    log = list_to_read(options.path, options.on_corruption, storage_options=options.storage_options)
    check_queue_names(options)
    if options.fail_on_data_loss:
        _refuse_lost_offsets(options, log, ranges)
    bounds = bounds or options
    if () in (bounds.topics, bounds.tags, bounds.keys):
        return []
    return plan_reading(
        log,
        options.on_corruption,
        check_crc=options.check_crc,
        split_bytes=partition_bytes(options, log),
        min_partitions=options.min_partitions,
        begin=bounds.starting_timestamp,
        end=bounds.ending_timestamp,
        start=bounds.starting_physical_offset,
        stop=bounds.ending_physical_offset,
    )


def queue_ranges(options: ReadOptions) -> QueueRanges:
    """Return the queue offsets that startingOffsets and endingOffsets select in a batch query.

    Timestamps take precedence over offsets, as they do in Kafka's source.

    Raises
    ------
    ConfigError
        If a batch is to begin at the latest or to end at the earliest offset.
    """
    starting = None if options.starting_timestamp is not None else options.starting_offsets
    ending = None if options.ending_timestamp is not None else options.ending_offsets
    if starting == "latest" or LATEST in _values(starting):
        raise ConfigError("startingOffsets: a batch query cannot begin at the latest offset (-1)")
    if ending == "earliest" or EARLIEST in _values(ending):
        raise ConfigError("endingOffsets: a batch query cannot end at the earliest offset (-2)")
    ranges: QueueRanges = {}
    for topic, queues in _by_topic(starting).items():
        for queue_id, offset in queues.items():
            ranges[topic, queue_id] = (None if offset == EARLIEST else offset, None)
    for topic, queues in _by_topic(ending).items():
        for queue_id, offset in queues.items():
            first = ranges.get((topic, queue_id), (None, None))[0]
            ranges[topic, queue_id] = (first, None if offset == LATEST else offset)
    return {queue: bounds for queue, bounds in ranges.items() if bounds != (None, None)}


def _by_topic(offsets: Offsets | None) -> dict[str, dict[int, int]]:
    return offsets if isinstance(offsets, dict) else {}


def _values(offsets: Offsets | None) -> set[int]:
    return {value for queues in _by_topic(offsets).values() for value in queues.values()}


def partition_bytes(options: ReadOptions, log: LogFiles) -> int:
    """Return the maximum bytes of the log that one task reads.

    This is maxPartitionBytes, or less for maxRecordsPerPartition, which is converted with the
    average message size at the beginning of the first and the last segment.
    """
    if options.max_records_per_partition is None or not log.segments:
        return options.max_partition_bytes
    wanted = options.max_records_per_partition * _average_size(options, log)
    return max(1, min(options.max_partition_bytes, wanted))


def _average_size(options: ReadOptions, log: LogFiles) -> int:
    """Return about how many bytes a message has in the log, at least 1."""
    plain = ReadOptions(
        options.path, options.storage_options, on_corruption="stop", check_crc=False
    )
    rows = nbytes = 0
    for base in {log.segments[0].base_offset, log.segments[-1].base_offset}:
        for split in plan_splits(log, start=base, stop=base + _SAMPLE_NBYTES):
            for batch in read_partition(plain, ["storeSize"], split):
                rows += batch.num_rows
                nbytes += sum(batch.column(0).to_pylist())
    return max(1, nbytes // rows) if rows else 1


def _refuse_lost_offsets(options: ReadOptions, log: LogFiles, ranges: QueueRanges) -> None:
    """Raise ``MappedFileError`` if the requested beginning is no longer, or not yet, in the log.

    Queue offsets are looked up in the consume queues. Without them, or on remote storage, the
    check is skipped.
    """
    begin = log.segments[0].base_offset if log.segments else 0
    asked = options.starting_physical_offset
    hint = "older messages were deleted (failOnDataLoss=false reads the remaining ones)"
    if asked is not None and asked < begin:
        raise MappedFileError(
            f"{options.path}: startingPhysicalOffset is {asked}, but the log begins at {begin}; "
            f"{hint}"
        )
    wanted = {queue: first for queue, (first, _) in ranges.items() if first is not None}
    root = store_with_queues(options.path) if wanted else None
    if root is None:
        return
    with open_store(os.fspath(root), derive="none") as store:
        for (topic, queue_id), first in wanted.items():
            if queue_id not in store.queues(topic):
                continue
            smallest = store.min_offset_in_queue(topic, queue_id)
            if first < smallest:
                raise MappedFileError(
                    f"{options.path}: startingOffsets asks for {first} of queue {queue_id} of "
                    f"{topic!r}, which begins at {smallest}; {hint}"
                )
        late = [queue for queue, first in wanted.items() if first > _end(store, queue)]
    if late:
        _refuse_later_offsets(options, root, {queue: wanted[queue] for queue in late})


def _end(store: DefaultMessageStore, queue: tuple[str, int]) -> int:
    """Return the next offset of a queue; of one that does not exist, more than any."""
    topic, queue_id = queue
    known = queue_id in store.queues(topic)
    return store.max_offset_in_queue(topic, queue_id) if known else sys.maxsize


def _refuse_later_offsets(
    options: ReadOptions, root: Path, wanted: dict[tuple[str, int], int]
) -> None:
    """Raise if queues end before the offsets, although what dispatch lacks is added to them."""
    with open_store(os.fspath(root)) as store:
        for (topic, queue_id), first in wanted.items():
            end = _end(store, (topic, queue_id))
            if first > end:
                raise MappedFileError(
                    f"{options.path}: startingOffsets asks for {first} of queue {queue_id} of "
                    f"{topic!r}, which ends at {end}: its end was lost, or the offsets are another "
                    "store's (failOnDataLoss=false reads nothing of it)"
                )


# --- between driver and executors --------------------------------------------------------------


def to_plain(split: Split) -> tuple[Any, ...]:
    """Return a split as a tuple, which executors unpickle without classes of rocketstore."""
    return tuple(getattr(split, field.name) for field in dataclasses.fields(split))


def of_plain(values: tuple[Any, ...]) -> Split:
    """Return the split that ``to_plain`` converted."""
    return Split(*values)


# --- in a task --------------------------------------------------------------------------------


def read_partition(
    options: ReadOptions,
    names: Sequence[str],
    split: Split,
    *,
    start_offsets: Mapping[tuple[str, int], tuple[int | None, int | None]] | None = None,
) -> Iterator[pyarrow.RecordBatch]:
    """Yield the messages of one split as record batches, none of them empty.

    Parameters
    ----------
    options : ReadOptions
        Its filters, batch limits and corruption policy.
    names : sequence of str
        The columns, in order.
    split : Split
    start_offsets : mapping of (str, int) to (int or None, int or None), optional
        Queue offsets to read by (topic, queue id), end exclusive; other queues are read whole.

    Raises
    ------
    CorruptMessageError
        At a corrupt range, with ``on_corruption="fail"``.
    """
    begin_task()
    pattern = options.topic_pattern
    decoded = list(names)
    if pattern is not None and "topic" not in decoded:
        decoded.append("topic")
    batches = read_batches(
        split,
        decoded,
        **options.filters(),
        start_offsets=start_offsets or None,
        batch_rows=options.batch_rows,
        batch_bytes=options.batch_bytes,
        on_corruption=options.on_corruption,
        check_crc=options.check_crc,
        storage_options=options.storage_options,
        records=options.records,
    )
    if pattern is None:
        yield from batches
        return
    for batch in batches:
        kept = _with_topics_like(batch, pattern)
        if kept.num_rows:
            yield kept.select(list(names))


def _with_topics_like(batch: pyarrow.RecordBatch, pattern: str) -> pyarrow.RecordBatch:
    import pyarrow as pa
    import pyarrow.compute

    column = batch.column("topic")
    topics = column.unique().to_pylist()
    taken = [topic for topic in topics if re.fullmatch(pattern, topic)]
    if len(taken) == len(topics):
        return batch
    return batch.filter(pyarrow.compute.is_in(column, pa.array(taken, pa.string())))
