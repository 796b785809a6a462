"""Cutting a log into byte ranges that are read independently of each other."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from rocketstore import formats
from rocketstore.sources.files import data_end, read_at
from rocketstore.sources.segments import LogFiles, Segment

DEFAULT_SPLIT_BYTES = 256 << 20
MIN_SPLIT_BYTES = 64 << 20
#: So far a broker's clock may go back without a message being missed by its time.
CLOCK_SLACK_MS = 10 * 60 * 1000
_HEAD_NBYTES = 128


@dataclass(frozen=True, slots=True)
class Split:
    """A byte range of one segment; the records that begin in it are its own.

    Attributes
    ----------
    uri : str
        The segment's path or URI.
    base_offset : int
        Physical offset of the file's first byte.
    start, stop : int
        Positions in the file.
    file_size, segment_size : int
        Bytes that are there, and bytes of a whole segment.
    aligned : bool
        ``start`` is known to be a record's first byte. Elsewhere the first record at or behind
        ``start`` is looked for.
    tail : bool
        In the log's last segment, where a writer may be at work: zeros or a torn record with
        nothing good behind are the log's end, not damage.
    range_stop : int
        Position up to which the file is read by all the splits of the plan: what stands there, or
        behind, is nobody's affair.
    durable_stop : int
        Position in front of which all was on disk once, as far as the store's files tell; what is
        no record there is damage, also where nothing follows. 0 or less: nothing is known.

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
        """Bytes of the range."""
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
    """Cut a log into splits, in log order.

    Parameters
    ----------
    log : LogFiles
    split_bytes : int
        Upper bound of a split, bytes.
    min_partitions : int, optional
        Make splits smaller, so that there are about so many, but not below 64 MiB (or
        ``split_bytes`` if that is less).
    begin, end : int, optional
        Store times, epoch ms, ``begin <= time < end``. Whole segments are left out by the time of
        their first records (one small read each); single records are not looked at, so the reader
        has to compare them too. A broker's clock may have gone back by ten minutes.
    start, stop : int, optional
        Physical offsets. The records that begin at or behind ``start`` and in front of ``stop``
        are read.
    aligned_start : bool
        ``start`` is known to be the end of a record or a record's first byte, as ``log_end``
        tells it: if no good record stands there, that is damage. Otherwise the first good record
        behind is taken.

    Returns
    -------
    list of Split
        Empty when nothing is to be read.

    Raises
    ------
    ValueError
        When a size is not positive.
    MappedFileError
        When a segment is gone.
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
        # A segment is made at its full length: who has nothing but a hole to read is not needed.
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
        for at, to in _cuts(first, last, nbytes)
    ]


def _range_stop(segment: Segment, stop: int | None) -> int:
    """Position up to which a plan reads a segment."""
    if stop is None or stop - segment.base_offset >= segment.file_size:
        return segment.segment_size
    return stop - segment.base_offset


def _cuts(first: int, last: int, nbytes: int) -> Iterator[tuple[int, int]]:
    """Pieces of nearly equal length."""
    count = -(-(last - first) // nbytes)
    edges = [first + (last - first) * number // count for number in range(count + 1)]
    return itertools.pairwise(edges)


def tail_offset(log: LogFiles) -> int:
    """Base offset of the last segment that was begun; those behind it wait for their first
    record."""
    for segment in reversed(log.segments):
        head = read_at(segment.uri, 0, 8, storage_options=log.storage_options)
        if head.strip(b"\0"):
            return segment.base_offset
    return log.min_offset


def _in_time(log: LogFiles, begin: int | None, end: int | None) -> list[Segment]:
    """The segments that may hold records of a time range."""
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
    """Store time of a segment's first record, epoch ms; ``None`` when none begins there.

    Raises ``MappedFileError`` when the segment is gone.
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
