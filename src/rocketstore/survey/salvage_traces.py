"""Traces of a salvage: placeholders, filler records, and quarantined files."""

from __future__ import annotations

import datetime
import os
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from rocketstore import formats
from rocketstore.log.commit_log import CommitLog
from rocketstore.log.scan import LogScan, RecordBatch, find_next_record

#: Topics and files that are listed by name; the rest is counted.
_MOST_NAMED = 10
#: Topic of the records that fill a lost range and have no queue; shortened if there is no room.
FILLER_TOPIC = "rocketstore_lost"
#: The property that marks a placeholder, if there is room for it.
LOST_PROPERTY = "ROCKETSTORE_LOST"
LOST_MARK = f"{LOST_PROPERTY}{chr(formats.NAME_VALUE_SEPARATOR)}".encode()


class SalvageNote(NamedTuple):
    """A note; ``is_loss``: ``number`` messages or records are in place of lost ones."""

    text: str
    is_loss: bool = False
    number: int = 0


def salvage_notes(root: Path, traces: SalvageTraces) -> Iterator[SalvageNote]:
    """Yield notes about the store at ``root``; nothing if it was never salvaged."""
    if traces.placeholders:
        counts = sorted(traces.placeholders.items(), key=lambda item: -item[1].count)
        named = _named([f"{topic} {one.count:,}" for topic, one in counts])
        oldest = min(one.oldest for _, one in counts)
        newest = max(one.newest for _, one in counts)
        yield SalvageNote(
            f"a salvage put {traces.placeholder_count:,} empty placeholders in place of lost "
            f"messages, which were stored about {_time(oldest)} to {_time(newest)}: {named}",
            is_loss=True,
            number=traces.placeholder_count,
        )
    if traces.fillers:
        is_one = traces.fillers == 1
        records = "1 record that belongs" if is_one else f"{traces.fillers:,} records that belong"
        yield SalvageNote(
            f"a salvage filled {traces.filler_nbytes:,} lost bytes of the log with "
            f"{records} to no queue",
            is_loss=True,
            number=traces.fillers,
        )
    try:
        files = quarantined_files(root)
    except OSError as error:
        yield SalvageNote(f"the quarantine folder could not be read: {error}")
        return
    if files:
        times = [one.timestamp for one in files if one.timestamp]
        when = f" from {_time(min(times))} to {_time(max(times))}" if times else ""
        named = _named([os.path.relpath(one.path, root) for one in files])
        yield SalvageNote(
            f"recovery or salvage moved files or parts of them to quarantine{when}: {named}"
        )


def _named(names: list[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _time(timestamp: int) -> str:
    """Format an epoch-ms time in UTC; return the number if it is out of range."""
    try:
        moment = datetime.datetime.fromtimestamp(timestamp // 1000, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class PlaceholderCount:
    """Number of placeholders of one topic, and their earliest and latest store time (epoch ms)."""

    count: int = 0
    oldest: int = 0
    newest: int = 0

    def take(self, timestamp: int) -> None:
        """Count one placeholder."""
        self.count += 1
        self.oldest = min(self.oldest or timestamp, timestamp)
        self.newest = max(self.newest, timestamp)


@dataclass
class SalvageTraces:
    """Records that a salvage put in place of lost ones.

    Attributes
    ----------
    placeholders : dict of str to PlaceholderCount
        By topic: empty messages with the property ``ROCKETSTORE_LOST``. A placeholder without room
        for the property looks like an empty message and is not counted.
    fillers, filler_nbytes : int
        Records of no queue that fill lost ranges, and their bytes.
    offsets : array of int
        Log offsets of all of them.
    """

    placeholders: dict[str, PlaceholderCount] = field(default_factory=dict)
    fillers: int = 0
    filler_nbytes: int = 0
    offsets: array[int] = field(default_factory=lambda: array("q"), repr=False)

    @property
    def placeholder_count(self) -> int:
        """Return the number of placeholders of all topics."""
        return sum(one.count for one in self.placeholders.values())

    def __bool__(self) -> bool:
        return bool(self.placeholders or self.fillers)

    def take(self, batch: RecordBatch) -> None:
        """Count the placeholders and fillers of a batch."""
        columns = batch.columns
        sys_flags = columns["sys_flag"] & formats.SYS_FLAG_TRANSACTION_MASK
        rolled_back = sys_flags == formats.SYS_FLAG_TRANSACTION_ROLLBACK
        rolled_back &= columns["topic_nbytes"] <= len(FILLER_TOPIC)
        marked = (columns["body_nbytes"] <= 1) & (columns["properties_nbytes"] > len(LOST_MARK))
        for number in (rolled_back | marked).nonzero()[0].tolist():
            row = batch.row(number)
            record = memoryview(batch.window.buffer)[row["position"] :]
            if rolled_back[number]:
                topic = bytes(record[row["topic_at"] :][: row["topic_nbytes"]])
                if FILLER_TOPIC.encode().startswith(topic):
                    self.fillers += 1
                    self.filler_nbytes += row["total_size"]
                    self.offsets.append(row["physical_offset"])
            elif record[row["properties_at"] :][: len(LOST_MARK)] == LOST_MARK:
                topic_name = batch.window.message(row["position"]).topic
                count = self.placeholders.setdefault(topic_name, PlaceholderCount())
                count.take(row["store_timestamp"])
                self.offsets.append(row["physical_offset"])


def find_traces(log: CommitLog, start: int = 0, stop: int | None = None) -> SalvageTraces:
    """Find the traces of a salvage from ``start`` to ``stop``, the log's end by default.

    Corrupt ranges are skipped. The log's end must be known.
    """
    traces, start = SalvageTraces(), max(log.min_offset, start)
    stop = log.max_offset if stop is None else min(stop, log.max_offset)
    while start < stop:
        scan = LogScan(log, start, stop, 0)
        for batch in scan:
            traces.take(batch)
        following = find_next_record(log, scan.offset + 1) if scan.offset < stop else None
        if following is None:
            break
        start = following
    return traces


class QuarantinedFile(NamedTuple):
    """A quarantined file or folder; ``timestamp`` (epoch ms, 0: unknown) is when it was moved."""

    path: str
    timestamp: int
    nbytes: int


def quarantined_files(root: Path) -> list[QuarantinedFile]:
    """List the quarantine folder of the store at ``root``, in order of name."""
    folder, found = root / formats.QUARANTINE_DIR, []
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    for name in names:
        path = folder / name
        head = name.split("-", 1)[0]
        moved_at = int(head) if head.isascii() and head.isdigit() and len(head) == 13 else 0
        found.append(QuarantinedFile(str(path), moved_at, _nbytes_below(path)))
    return found


def _nbytes_below(path: Path) -> int:
    if not path.is_dir():
        return path.lstat().st_size
    return sum(
        os.lstat(os.path.join(folder, name)).st_size
        for folder, _, names in os.walk(path)
        for name in names
    )
