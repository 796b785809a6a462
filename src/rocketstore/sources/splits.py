"""Splits a log into byte ranges that can be read independently."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from rocketstore import formats
from rocketstore.files.durable import is_zeros
from rocketstore.sources.files import data_end, read_at
from rocketstore.sources.segments import LogFiles, Segment

DEFAULT_SPLIT_BYTES = 256 << 20
MIN_SPLIT_BYTES = 64 << 20
#: A broker's clock may go back so far without a time range missing a message.
CLOCK_SLACK_MS = 10 * 60 * 1000
_HEAD_NBYTES = 128


@dataclass(frozen=True, slots=True)
class Split:
    """A byte range of one segment; it has the records that begin in it.

    Attributes
    ----------
    uri : str
        The segment's path or URI.
    base_offset : int
        Physical offset of the file's first byte.
    start, stop : int
        Positions in the file.
    file_size, segment_size : int
        Bytes present, and bytes of a complete segment.
    aligned : bool
        ``start`` is known to be a record's first byte. If not, reading starts at the first record
        at or after ``start``.
    tail : bool
        The split is in the log's last segment, where a writer may append. Zeros or a torn record
        without a good record after them are the log's end, not corruption.
    range_stop : int
        Position up to which the splits of the plan read the file; what is there or after it belongs
        to no split.
    durable_stop : int
        Position up to which the file was on disk once, according to the store's files. Before it,
        anything that is not a record is corruption, even if nothing follows. 0 or less if unknown.

    Notes
    -----
    Plain data, pickled in less than 200 bytes besides the URI.
    """

    uri: str
    base_offset: int
    start: int
    stop: int
    file_size: int
    segment_size: int
    aligned: bool
    tail: bool
    range_stop: int
    durable_stop: int = 0

    @property
    def nbytes(self) -> int:
        """Size of the range."""
        return self.stop - self.start


def plan_splits(
    log: LogFiles,
    *,
    split_bytes: int = DEFAULT_SPLIT_BYTES,
    min_partitions: int | None = None,
    begin: int | None = None,
    end: int | None = None,
    start: int | None = None,
    stop: int | None = None,
    aligned_start: bool = False,
) -> list[Split]:
    """Split a log into byte ranges, in log order.

    Parameters
    ----------
    log : LogFiles
    split_bytes : int
        Upper bound of a split, bytes.
    min_partitions : int, optional
        Make splits smaller to get about so many, but not below 64 MiB (or ``split_bytes`` if that
        is less).
    begin, end : int, optional
        Store times, epoch ms, ``begin <= time < end``. Only whole segments are skipped, by the time
        of their first records (one small read each). The reader must also compare the time of each
        record. A broker's clock may have gone back by ten minutes.
    start, stop : int, optional
        Physical offsets. Records that begin at or after ``start`` and before ``stop`` are read.
    aligned_start : bool
        ``start`` is known to be a record's first byte or the end of one, as ``log_end`` returns it.
        If there is no good record, that is corruption. Otherwise reading starts at the first good
        record after it.

    Returns
    -------
    list of Split
        Empty if there is nothing to read.

    Raises
    ------
    ValueError
        A size is not positive.
    MappedFileError
        A segment is gone.
    """
    if split_bytes < 1 or (min_partitions is not None and min_partitions < 1):
        raise ValueError("split_bytes and min_partitions must be positive")
    tail = tail_offset(log)
    chosen = []
    for segment in _in_time(log, begin, end):
        first = max(0, (start or 0) - segment.base_offset)
        last = segment.file_size
        if stop is not None:
            last = min(last, stop - segment.base_offset)
        if first < last:
            chosen.append((segment, first, last))
    total = sum(last - first for _, first, last in chosen)
    nbytes = split_bytes
    if min_partitions is not None:
        nbytes = min(split_bytes, max(-(-total // min_partitions), min(MIN_SPLIT_BYTES, nbytes)))
    if total > nbytes:
        # A segment is created with its full size: make no splits that are only a hole.
        chosen = [
            (
                segment,
                first,
                min(last, data_end(segment.uri, last)) if segment.base_offset >= tail else last,
            )
            for segment, first, last in chosen
        ]
    return [
        Split(
            segment.uri,
            segment.base_offset,
            at,
            to,
            segment.file_size,
            segment.segment_size,
            at == 0 or (aligned_start and segment.base_offset + at == start),
            segment.base_offset >= tail,
            _range_stop(segment, stop),
            log.durable_offset - segment.base_offset,
        )
        for segment, first, last in chosen
        if first < last
        for at, to in _pieces(first, last, nbytes)
    ]


def _range_stop(segment: Segment, stop: int | None) -> int:
    """Return the position up to which a plan reads a segment."""
    if stop is None or stop - segment.base_offset >= segment.file_size:
        return segment.segment_size
    return stop - segment.base_offset


def _pieces(first: int, last: int, nbytes: int) -> Iterator[tuple[int, int]]:
    """Split a range into pieces of nearly equal size."""
    count = -(-(last - first) // nbytes)
    edges = [first + (last - first) * number // count for number in range(count + 1)]
    return itertools.pairwise(edges)


def tail_offset(log: LogFiles) -> int:
    """Return the base offset of the last segment with a record; later segments are preallocated."""
    for segment in reversed(log.segments):
        head = read_at(segment.uri, 0, 8, storage_options=log.storage_options)
        if not is_zeros(head):
            return segment.base_offset
    return log.min_offset


def _in_time(log: LogFiles, begin: int | None, end: int | None) -> list[Segment]:
    """Return the segments that may hold records of a time range."""
    if begin is None and end is None:
        return list(log.segments)
    times = [first_store_timestamp(log, segment) for segment in log.segments]
    chosen = []
    for number, segment in enumerate(log.segments):
        time = times[number]
        following = times[number + 1] if number + 1 < len(times) else None
        too_late = end is not None and time is not None and time - CLOCK_SLACK_MS >= end
        too_early = (
            begin is not None and following is not None and following + CLOCK_SLACK_MS < begin
        )
        if not too_late and not too_early:
            chosen.append(segment)
    return chosen


def first_store_timestamp(log: LogFiles, segment: Segment) -> int | None:
    """Return the store time (epoch ms) of a segment's first record, or ``None`` without one.

    Raises ``MappedFileError`` if the segment is gone.
    """
    head = read_at(segment.uri, 0, _HEAD_NBYTES, storage_options=log.storage_options)
    layout = formats.RECORD_HEAD
    if len(head) < formats.RECORD_MIN_NBYTES:
        return None
    names = (field.name for field in layout.fields)
    values = dict(zip(names, layout.struct.unpack_from(head), strict=True))
    if values["magic"] not in (formats.MAGIC_V1, formats.MAGIC_V2):
        return None
    if values["physical_offset"] != segment.base_offset:
        return None
    host = formats.HOST_V4
    if values["sys_flag"] & formats.SYS_FLAG_BORN_HOST_V6:
        host = formats.HOST_V6
    stored = formats.RECORD_STORED.struct.unpack_from(head, layout.nbytes + host.nbytes)
    return int(stored[0])
