"""Determine where the batches of a stream begin and end; needs the log, but no Spark.

A batch ends at the end of a complete record with a valid checksum, never at the file's size. A
broker preallocates its files, and may be writing a record.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rocketstore import formats, kernels
from rocketstore.errors import ConfigError, MappedFileError
from rocketstore.query.queue_records import QueueRecords
from rocketstore.sources.files import local_path, read_at
from rocketstore.sources.policy import lost_error
from rocketstore.sources.segments import LogFiles
from rocketstore.sources.splits import Split, plan_splits, tail_offset
from rocketstore.sources.walk import log_end, walk
from rocketstore.spark.reading.listing import list_to_read
from rocketstore.spark.reading.queue_names import check_queue_names, store_with_queues
from rocketstore.spark.reading.reader import partition_bytes
from rocketstore.spark.stream.offsets import Latest, StreamOffset, batch_ranges, starting_queues
from rocketstore.store.default_message_store import DefaultMessageStore
from rocketstore.store.default_message_store import open as open_store

if TYPE_CHECKING:
    import pyarrow

    from rocketstore.spark.base.options import ReadOptions

Found = TypeVar("Found")

_log = logging.getLogger(__name__)
#: Rows counted at a time.
_COUNT_ROWS = 8192
_WHOLE = 1 << 62
#: Size and magic of a record or of a segment's blank.
_MARK_NBYTES = 8
_HEAD = formats.RECORD_HEAD
#: Bytes before the stream's position that are searched first for a record.
_BEFORE_NBYTES = 1 << 20


def stream_options(options: ReadOptions) -> ReadOptions:
    """Return the options for reading each batch, without those that say where the stream begins.

    Raises
    ------
    ConfigError
        If an end is given: a stream has none.
    """
    for name, value in (
        ("endingOffsets", options.ending_offsets),
        ("endingTimestamp", options.ending_timestamp),
        ("endingPhysicalOffset", options.ending_physical_offset),
    ):
        if value is not None:
            raise ConfigError(f"{name} says where reading ends; a stream has no end")
    return replace(
        options, starting_offsets=None, starting_timestamp=None, starting_physical_offset=None
    )


class StreamPlan:
    """Determines the offsets of one stream over a log.

    Parameters
    ----------
    options : ReadOptions
        As given by the user.

    Raises
    ------
    ConfigError
        For options that a stream does not support.

    Notes
    -----
    Holds plain data only and is picklable. Each method reads the directory again. Only one thread
    at a time may use it.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._given = options
        self.options = stream_options(options)
        self._last_end: int | None = None
        #: Path, position and inode of the log's end, on local disks.
        self._place: tuple[str, int, int] | None = None
        #: Log end when its file had another inode; some mounts have no stable inodes.
        self._doubted: int | None = None
        self._has_numbers = True
        self._warned = ""
        self._begin = 0  # of the log when it was last listed

    def log(self) -> LogFiles:
        """List the log in its current state."""
        log = list_to_read(
            self.options.path,
            self.options.on_corruption,
            storage_options=self.options.storage_options,
        )
        self._begin = log.min_offset
        return log

    def _beside_deletion(self, find: Callable[[], Found]) -> Found:
        """Call ``find``; retry if a segment was deleted meanwhile and data loss is allowed."""
        while True:
            try:
                return find()
            except MappedFileError:
                begin = self._begin
                if self.options.fail_on_data_loss or self.log().min_offset <= begin:
                    raise

    # --- the beginning --------------------------------------------------------------------------

    def initial(self) -> StreamOffset:
        """Return where a new query begins.

        Raises
        ------
        ConfigError
            If ``startingPhysicalOffset`` is past the log's end.
        MappedFileError
            If it lies before the log's beginning and ``failOnDataLoss`` is on.
        """
        return self._beside_deletion(self._initial)

    def _initial(self) -> StreamOffset:
        given, log = self._given, self.log()
        begin = log.min_offset
        if given.starting_timestamp is not None:
            return StreamOffset(self._first_since(log, given.starting_timestamp), initial=True)
        if given.starting_physical_offset is not None:
            start, end = given.starting_physical_offset, self._end(log, None)
            if start > end:
                raise ConfigError(f"startingPhysicalOffset is {start}, past the log's end at {end}")
            start = self._kept(log, start, "startingPhysicalOffset")
            return StreamOffset(self._boundary(log, start, end), initial=True)
        offsets = given.starting_offsets
        if offsets == "earliest":
            return StreamOffset(begin, initial=True)
        if offsets is None or isinstance(offsets, str):
            return StreamOffset(self._end(log, None), initial=True)
        check_queue_names(given)
        end = self._end(log, None)
        numbers, latest = starting_queues(offsets, end)
        begin = max(begin, min(end, self._queues_begin(numbers, latest)))
        return StreamOffset(begin, numbers, latest, initial=True)

    def _queues_begin(self, numbers: Mapping[str, Mapping[int, int]], latest: Latest | None) -> int:
        """Return a physical offset before which the query needs nothing, from the consume queues.

        It is 0 on remote storage, or if a queue is read from its beginning. A queue's messages lie
        in the log in the order of their queue offsets.
        """
        root = store_with_queues(self.options.path)
        if root is None:
            return 0
        begins = []
        with open_store(os.fspath(root)) as store:
            for topic in store.topics():
                asked = self.options.queue_ids
                for queue_id in store.queues(topic) if self.options.takes_topic(topic) else ():
                    if asked is not None and queue_id not in asked[topic]:
                        continue
                    first = numbers.get(topic, {}).get(queue_id)
                    if first is not None:
                        begins.append(self._queue_begin(store, topic, queue_id, first))
                    elif latest is None or queue_id not in latest.queues.get(topic, ()):
                        begins.append(0)
        return min(begins, default=_WHOLE)

    def _queue_begin(
        self, store: DefaultMessageStore, topic: str, queue_id: int, first: int
    ) -> int:
        """Return where message ``first`` of a queue, or the next existing one, lies in the log."""
        smallest = store.min_offset_in_queue(topic, queue_id)
        if first < smallest:
            self._lost(
                f"{self.options.path}: startingOffsets asks for {first} of queue {queue_id} of "
                f"{topic!r}, which begins at {smallest}: older messages were deleted"
            )
        if first >= store.max_offset_in_queue(topic, queue_id):
            return _WHOLE
        found = store.get_message("", topic, queue_id, max(first, smallest), 1).messages
        return found[0].physical_offset if len(found) else 0

    def _first_since(self, log: LogFiles, begin: int) -> int:
        """Return the first record with a storeTimestamp of ``begin`` or later, or the end."""
        end = self._end(log, None)
        splits = plan_splits(log, split_bytes=_WHOLE, begin=begin, stop=end)
        found = self._rows(splits, ["physicalOffset"], 1, begin=begin)
        return next((table["physicalOffset"][0].as_py() for table in found), end)

    def _boundary(self, log: LogFiles, offset: int, end: int) -> int:
        """Return the first record that begins at or after ``offset``, an arbitrary byte offset."""
        if offset >= end:
            return end
        splits = plan_splits(log, split_bytes=_WHOLE, start=offset, stop=end)
        found = self._rows(splits, ["physicalOffset"], 1)
        return next((table["physicalOffset"][0].as_py() for table in found), end)

    # --- the end of a batch ---------------------------------------------------------------------

    def end(self) -> int:
        """Return the log's current end."""
        return self._end(self.log(), None)

    def _end(self, log: LogFiles, start: int | None) -> int:
        """Return the log's end, searched from the known part on; ``start`` is the stream's
        position."""
        known = self._last_end
        if known is not None and known > log.end_offset:
            known = None
        if known is None and start is not None and start >= tail_offset(log):
            # If a record begins at ``start``, the log cannot end before it.
            known = start if self._goes_on_at(log, start) else None
        end = log_end(log, start=known)
        if self._doubted is not None:
            self._has_numbers, self._doubted = self._doubted != end, None
        self._last_end, self._place = end, None
        for segment in log.segments:
            path = local_path(segment.uri)
            if segment.base_offset <= end < segment.end_offset and path is not None:
                with contextlib.suppress(FileNotFoundError):
                    position = end - segment.base_offset
                    self._place = segment.uri, position, file_number(path)
        return end

    def _goes_on_at(self, log: LogFiles, offset: int) -> bool:
        """Return whether a record, or a full segment's blank, begins at a physical offset."""
        for segment in log.segments:
            position = offset - segment.base_offset
            if 0 <= position < segment.file_size:
                head = read_at(
                    segment.uri, position, _HEAD.nbytes, storage_options=log.storage_options
                )
                size, magic = formats.BLANK.struct.unpack_from(head.ljust(_MARK_NBYTES, b"\0"))
                if magic == formats.BLANK_MAGIC:
                    return bool(position + size == segment.segment_size)
                own = head[_HEAD.at("physical_offset") : _HEAD.at("physical_offset") + 8]
                is_record = magic in (formats.MAGIC_V1, formats.MAGIC_V2)
                return is_record and own == offset.to_bytes(8, "big")
        return False

    def _place_to_read(self, log: LogFiles, offset: int) -> int:
        """Return the first byte of a batch at ``offset``.

        It differs if deletion has moved the log's beginning, or if a record lies across ``offset``.
        """
        at = self._kept(log, offset, "the stream's position")
        if self._goes_on_at(log, at):
            return at
        record_end = self._end_before(log, at)
        if record_end <= at:
            return at  # damage, or not yet written
        self._lost(
            f"in the log {log.root} a record lies across the stream's position {at}: the log was "
            "truncated and then appended to, or replaced"
        )
        return record_end

    def _end_before(self, log: LogFiles, offset: int) -> int:
        """Return the end of the last record that begins before ``offset`` in its segment, or 0."""
        begin = max((s.base_offset for s in log.segments if s.base_offset < offset), default=0)
        for nbytes in (_BEFORE_NBYTES, _WHOLE):
            splits = plan_splits(
                log, split_bytes=_WHOLE, start=max(begin, offset - nbytes), stop=offset
            )
            end = 0
            for table in self._rows(splits, ["physicalOffset", "storeSize"], _COUNT_ROWS):
                end = table["physicalOffset"][-1].as_py() + table["storeSize"][-1].as_py()
            if end:
                return int(end)
        return 0

    def _is_quiet(self, end: int) -> bool:
        """Return whether the log still ends at ``end``, where only zeros stand.

        A new record or a full segment's blank would begin there. Spark asks every ten
        milliseconds, so this lists no files.
        """
        if end != self._last_end or self._place is None:
            return False
        path, position, number = self._place
        try:
            if self._has_numbers and file_number(path) != number:
                self._last_end, self._doubted = None, end  # a different file: its end is unknown
                return False
            return read_at(path, position, _MARK_NBYTES) == bytes(_MARK_NBYTES)
        except (FileNotFoundError, NotADirectoryError, MappedFileError):
            return False  # the file is gone; the next listing handles that

    @property
    def last_end(self) -> int | None:
        """Return the log's end at the last search; None before the first."""
        return self._last_end

    def advance(
        self,
        start: StreamOffset,
        *,
        max_records: int | None = None,
        max_bytes: int | None = None,
        ceiling: int | None = None,
    ) -> StreamOffset:
        """Return the end of the batch that begins at ``start``.

        Parameters
        ----------
        start : StreamOffset
            Returned itself if no record was added.
        max_records : int, optional
            Maximum number of messages that the query reads, by topics, queues, tags and keys;
            other messages are not counted.
        max_bytes : int, optional
            Maximum bytes of log; the record that contains the last of them is read whole.
        ceiling : int, optional
            A physical offset that the batch must not pass.

        Raises
        ------
        MappedFileError
            If the log's beginning has moved past ``start`` or the log ends before it, and
            ``failOnDataLoss`` is on.
        CorruptMessageError
            If records are counted, one is corrupt, and ``onCorruption`` is ``fail``.
        """
        if not start.initial and self._is_quiet(start.physical_offset):
            return start
        return self._beside_deletion(lambda: self._advance(start, max_records, max_bytes, ceiling))

    def _advance(
        self,
        start: StreamOffset,
        max_records: int | None,
        max_bytes: int | None,
        ceiling: int | None,
    ) -> StreamOffset:
        log = self.log()
        at = self._kept(log, start.physical_offset, "the stream's position")
        end = self._end(log, at)
        if end < at and not start.initial:
            self._lost(
                f"the log {log.root} ends at {end}, before the stream's position {at}: it was "
                "truncated or replaced"
            )
            return start
        end = self._readable_end(log, at, end)
        if ceiling is not None:
            end = min(end, ceiling)
        if end > at and max_bytes is not None and at + max_bytes < end:
            end = self._boundary(log, at + max_bytes, end)
        if end > at and (max_records is not None or self.options.on_corruption == "stop"):
            end = self._counted(log, start, start.advanced(end), max_records)
        if end <= start.physical_offset and not start.initial:
            return start
        return start.advanced(max(end, start.physical_offset))

    def _readable_end(self, log: LogFiles, start: int, end: int) -> int:
        """Return ``end``, or the start of a missing segment before it.

        Raises ``CorruptMessageError`` for a missing segment with ``onCorruption=fail``.
        """
        lost = None if self.options.on_corruption == "skip" else log.first_lost(start)
        if lost is None or lost.start > self._past_blank(log, end):
            return end
        if self.options.on_corruption == "fail":
            raise lost_error(log, lost)
        return max(start, min(end, lost.start))

    def _past_blank(self, log: LogFiles, end: int) -> int:
        """Return ``end``, or the end of its segment if only the segment's blank follows ``end``.

        The log's end stays before the blank until the next segment exists.
        """
        if not self._goes_on_at(log, end):
            return end
        return end - end % log.segment_size + log.segment_size

    def _counted(
        self, log: LogFiles, start: StreamOffset, end: StreamOffset, max_records: int | None
    ) -> int:
        """Return where the ``max_records``-th record ends, or the first damage if the stream stops
        there."""
        options, count = self.options, 0
        columns = ["physicalOffset", "storeSize"]
        if options.topic_pattern is not None:
            columns.append("topic")
        damaged: list[int] = []
        for split, queues in self._splits(log, start, end, _WHOLE):
            for table in self._rows([split], columns, _COUNT_ROWS, queues, damaged):
                taken = self._taken(table)
                if max_records is not None and count + len(taken) >= max_records:
                    last = taken[max_records - count - 1]
                    if options.records == "queues":  # keep the messages of a batch together
                        at = table["physicalOffset"][last].as_py() + 1
                        return self._boundary(log, at, end.physical_offset)
                    return int(
                        table["physicalOffset"][last].as_py() + table["storeSize"][last].as_py()
                    )
                count += len(taken)
            if damaged and options.on_corruption == "stop":
                return damaged[0]
        return end.physical_offset

    def _taken(self, table: pyarrow.RecordBatch) -> range | list[int]:
        """Return the rows of selected topics; the decoder does not support patterns."""
        if self.options.topic_pattern is None:
            return range(table.num_rows)
        takes: dict[str, bool] = {}
        topics = table["topic"].to_pylist()
        for topic in set(topics):
            takes[topic] = self.options.takes_topic(topic)
        return [row for row, topic in enumerate(topics) if takes[topic]]

    def _rows(
        self,
        splits: list[Split],
        columns: list[str],
        rows: int,
        queues: Mapping[tuple[str, int], int] | None = None,
        damaged: list[int] | None = None,
        begin: int | None = None,
    ) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow

        options = self.options
        filters: dict[str, Any] = {} if queues is None else options.filters()
        if begin is not None:
            filters["begin"] = begin
        counted = queues is not None
        for split in splits:
            decoder = kernels.arrow.BatchDecoder(
                columns, start_offsets=queue_bounds(queues or {}), batch_rows=rows, **filters
            )
            queues_only = counted and options.records == "queues"
            for _ in walk(
                split,
                QueueRecords(decoder) if queues_only else decoder,
                on_corruption=options.on_corruption if counted else "skip",
                # Records that are only counted are read again later, with their checksum.
                check_crc=options.check_crc and options.on_corruption == "stop",
                storage_options=options.storage_options,
                on_damage=lambda first, _next, _status: (
                    None if damaged is None else damaged.append(first)
                ),
            ):
                if decoder.rows:
                    yield pyarrow.record_batch(decoder.take())

    # --- the reading of a batch -----------------------------------------------------------------

    def splits(
        self, start: StreamOffset, end: StreamOffset
    ) -> list[tuple[Split, dict[tuple[str, int], int]]]:
        """Return the splits of a batch in log order, each with the queues that start later.

        Raises
        ------
        MappedFileError
            If the log's beginning has moved past ``start``, and ``failOnDataLoss`` is on.
        """
        if all(False for _ in batch_ranges(start, end)):
            return []

        def find() -> list[tuple[Split, dict[tuple[str, int], int]]]:
            log = self.log()
            return list(self._splits(log, start, end, partition_bytes(self.options, log)))

        return self._beside_deletion(find)

    def _splits(
        self, log: LogFiles, start: StreamOffset, end: StreamOffset, split_bytes: int
    ) -> Iterator[tuple[Split, dict[tuple[str, int], int]]]:
        ranges = list(batch_ranges(start, end))
        if ranges:
            self._readable_end(log, ranges[0].start, ranges[-1].stop - 1)
        first = self._place_to_read(log, ranges[0].start) if ranges else 0
        for part in ranges:
            for split in plan_splits(
                log,
                split_bytes=split_bytes,
                min_partitions=self.options.min_partitions,
                start=max(part.start, first),
                stop=part.stop,
                aligned_start=True,
            ):
                # The range is known to be complete, so missing bytes are an error, not the tail
                # of a growing log.
                yield replace(split, tail=False), dict(part.queues)

    def is_deleted(self, split: Split) -> bool:
        """Return whether the log's beginning has moved past a split."""
        return split.base_offset < self.log().min_offset

    def _kept(self, log: LogFiles, offset: int, what: str) -> int:
        """Return ``offset``, or the log's beginning if that has moved past it."""
        begin = log.min_offset
        if not log.segments or offset >= begin:
            return offset
        self._lost(
            f"the log {log.root} begins at {begin}, {what} is {offset}: the messages between "
            "were deleted"
        )
        return begin

    def _lost(self, fault: str) -> None:
        if self.options.fail_on_data_loss:
            raise MappedFileError(
                f"{fault}; with failOnDataLoss=false the stream continues with what is left"
            )
        if fault != self._warned:  # Spark asks every ten milliseconds
            self._warned = fault
            _log.warning("%s", fault)


def file_number(path: str | Path) -> int:
    """Return the inode, which distinguishes a file from a replacement of the same name."""
    return os.stat(path).st_ino


def queue_bounds(
    queues: Mapping[tuple[str, int], int],
) -> dict[tuple[str, int], tuple[int, int | None]] | None:
    """Return the queues' first offsets in the decoder's format."""
    return {queue: (first, None) for queue, first in queues.items()} or None
