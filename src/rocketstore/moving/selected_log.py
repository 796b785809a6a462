"""A log read in order, record by record, for ``split`` and ``merge``; damage stops it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from rocketstore import formats
from rocketstore.errors import CorruptMessageError, MappedFileError
from rocketstore.log.commit_log import CommitLog
from rocketstore.log.scan import LogScan, RecordBatch
from rocketstore.status import RecordFlags

_CAPACITY = 1024
#: Bytes of records that are read at once, if they are not of one record.
_READ_NBYTES = 4 << 20
_NAMES = tuple(field.name for field in formats.PARSED_RECORD.fields)


class Record(NamedTuple):
    """One record: its log offset, topic, parsed row and bytes (a copy)."""

    offset: int
    topic: str
    row: dict[str, int]
    content: bytearray


def records_of(
    log: CommitLog,
    start: int,
    stop: int,
    takes: Callable[[str], bool],
    advance: Callable[[int], None],
) -> Iterator[Record]:
    """Yield the records between two log offsets whose topic ``takes`` accepts.

    ``advance`` is called with the offset after each batch.

    Raises
    ------
    CorruptMessageError, MappedFileError
        At a corrupt range, or a missing segment.
    """
    flags = int(log.record_flags) | RecordFlags.REPORT_PROPERTY_CRC
    flags |= RecordFlags.PARSE_PROPERTIES  # which name light queues
    scan = LogScan(log, start, stop, flags, capacity=_CAPACITY)
    decisions: dict[bytes, str | None] = {}
    for batch in scan:
        yield from _records_in(batch, takes, decisions)
        forget_pages(batch)
        row = batch.last()
        advance(batch.window.base_offset + row["position"] + row["total_size"])
    if scan.offset < stop:
        if log.window(scan.offset) is None:
            path, _, reason = log.place(scan.offset)
            raise MappedFileError(f"{path}: {reason}; use salvage first")
        found: CorruptMessageError = log.corruption(scan.offset, scan.status)
        raise found


def forget_pages(batch: RecordBatch) -> None:
    """Give back the memory of a batch's pages of the file; they stay in the system's cache."""
    row = batch.last()
    start = batch.row(0)["position"]
    batch.window.file.mapping.advise("dontneed", start, row["position"] + row["total_size"] - start)


def _records_in(
    batch: RecordBatch, takes: Callable[[str], bool], decisions: dict[bytes, str | None]
) -> Iterator[Record]:
    columns = batch.columns
    ends = columns["position"].astype("i8") + columns["total_size"]
    first = 0
    while first < batch.count:
        # As many records as fit, at least one.
        limit = int(columns["position"][first]) + _READ_NBYTES
        last = max(first + 1, int(np.searchsorted(ends, limit, "right")))
        yield from _records_of_rows(batch, columns[first:last], takes, decisions)
        first = last


def _records_of_rows(
    batch: RecordBatch,
    columns: np.ndarray[Any, Any],
    takes: Callable[[str], bool],
    decisions: dict[bytes, str | None],
) -> Iterator[Record]:
    base = batch.window.base_offset
    first = int(columns["position"][0])
    stop = int(columns["position"][-1]) + int(columns["total_size"][-1])
    content = memoryview(batch.window.file.read(first, stop - first))
    if len(content) < stop - first:
        raise batch.window.gone(first)
    topics: list[str | None] = []
    starts = columns["position"] + columns["topic_at"] - first
    for at, nbytes in zip(starts.tolist(), columns["topic_nbytes"].tolist(), strict=True):
        stored = bytes(content[at : at + nbytes])
        if stored not in decisions:
            topic = stored.decode("utf-8", "surrogateescape")
            decisions[stored] = topic if takes(topic) else None
        topics.append(decisions[stored])
    for number in np.flatnonzero([topic is not None for topic in topics]).tolist():
        row: dict[str, Any] = dict(zip(_NAMES, columns[number].item(), strict=True))
        at = row["position"] - first
        record = bytearray(content[at : at + row["total_size"]])
        yield Record(base + row["position"], str(topics[number]), row, record)
