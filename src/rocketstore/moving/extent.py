"""Which part of a log is copied: from its first offset to a record's end."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

from rocketstore.config import MessageStoreConfig
from rocketstore.errors import SourceChangedError
from rocketstore.log.commit_log import CommitLog
from rocketstore.log.scan import LogScan
from rocketstore.store.default_message_store import open as open_store

_TAIL_NBYTES = 64 << 10


class Extent(NamedTuple):
    """Offsets of a log, and what its end looks like.

    Attributes
    ----------
    start, end : int
    size : int
        Bytes of a segment.
    damaged : bool
        There is a corrupt range, or a segment is missing.
    newest : int
        Store time of the last record, epoch ms; 0 without one.
    tail : str
        SHA-256 of the last bytes before ``end``.
    """

    start: int
    end: int
    size: int
    damaged: bool
    newest: int
    tail: str


def extent_of(root: Path, config: MessageStoreConfig, at: int | None) -> Extent:
    """Return the log's extent now, or up to the last record that ends at or before ``at``.

    Raises ``ValueError`` if the log does not have the offset.
    """
    with open_store(root, "r", config=config, derive="none") as store:
        log = store.reader.log
        start, end = max(log.min_offset, 0), log.max_offset
        if at is not None and not start <= at <= end:
            raise ValueError(f"the log has offsets {start} to {end}, and no {at}")
        last, stop = _last_record(log, end if at is None else at)
        if at is not None:
            end = stop
        damaged = bool(log.damage) or bool(log.holes)
        newest = 0
        if last is not None:
            newest = log.view(last).store_timestamp
        return Extent(start, end, log.segment_size, damaged, newest, _tail(log, end))


def check_tail(root: Path, config: MessageStoreConfig, extent: Extent) -> None:
    """Raise ``SourceChangedError`` if the log no longer has the same bytes before the end."""
    with open_store(root, "r", config=config, derive="none") as store:
        log = store.reader.log
        is_short = log.max_offset < extent.end
        expired = max(log.min_offset, 0) >= extent.end > 0
        if is_short or (not expired and _tail(log, extent.end) != extent.tail):
            raise SourceChangedError(
                f"the log of {root} was truncated while it was copied, before offset {extent.end}"
            )


def _last_record(log: CommitLog, stop: int) -> tuple[int | None, int]:
    """Return offset and end of the last good record that ends at or before ``stop``."""
    size, start = log.segment_size, max(log.min_offset, 0)
    base = max(start, (stop - 1) // size * size if stop else 0)
    while base >= start:
        last, end = None, base
        for batch in LogScan(log, base, min(stop, base + size), int(log.record_flags)):
            for number in range(batch.count):
                row = batch.row(number)
                offset = batch.window.base_offset + row["position"]
                if offset + row["total_size"] <= stop:
                    last, end = offset, offset + row["total_size"]
        if last is not None or base == start:
            return last, end
        base -= size
    return None, start


def _tail(log: CommitLog, end: int) -> str:
    """Return the SHA-256 of the last bytes of the segment's part before ``end``."""
    window = log.window(end - 1) if end > 0 else None
    if window is None:
        return ""
    stop = end - window.base_offset
    start = max(0, stop - _TAIL_NBYTES)
    return hashlib.sha256(window.file.read(start, stop - start)).hexdigest()
