"""What tells of lost messages: what a salvage left behind, and what points behind the log's end."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rocketstore import formats
from rocketstore.batch_consume_queue import BatchConsumeQueue
from rocketstore.commit_log import CommitLog
from rocketstore.log_scan import LogScan, RecordBatch, find_next_record

if TYPE_CHECKING:
    from rocketstore.consume_queue import ConsumeQueue
    from rocketstore.index_service import IndexService
    from rocketstore.mapped_file import MappedFile

#: Topic of the records that fill a lost stretch; they have no queue (shortened where there is no
#: room for it).
FILLER_TOPIC = "rocketstore_lost"
#: The property that marks a placeholder, where there is room for it.
LOST_PROPERTY = "ROCKETSTORE_LOST"
LOST_MARK = f"{LOST_PROPERTY}{chr(formats.NAME_VALUE_SEPARATOR)}".encode()


# --- what a salvage left --------------------------------------------------------------------------


@dataclass
class PlaceholderCount:
    """Placeholders of one topic, and the earliest and latest store time (epoch ms) beside them."""

    count: int = 0
    oldest: int = 0
    newest: int = 0

    def take(self, timestamp: int) -> None:
        """Count one more."""
        self.count += 1
        self.oldest = min(self.oldest or timestamp, timestamp)
        self.newest = max(self.newest, timestamp)


@dataclass
class SalvageTraces:
    """Records that a salvage put in place of lost ones.

    Attributes
    ----------
    placeholders : dict of str to PlaceholderCount
        By topic: empty messages with the property ``ROCKETSTORE_LOST``. Where there was no room for
        the property, a placeholder is not told from an empty message.
    fillers, filler_nbytes : int
        Records of no queue that fill what was lost, and their bytes.
    offsets : array of int
        Log offsets of all of them.
    """

    placeholders: dict[str, PlaceholderCount] = field(default_factory=dict)
    fillers: int = 0
    filler_nbytes: int = 0
    offsets: array[int] = field(default_factory=lambda: array("q"), repr=False)

    @property
    def placeholder_count(self) -> int:
        """Placeholders of all topics."""
        return sum(one.count for one in self.placeholders.values())

    def __bool__(self) -> bool:
        return bool(self.placeholders or self.fillers)

    def take(self, batch: RecordBatch) -> None:
        """Look through the records of a batch."""
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
    """Look for what a salvage left from ``start`` to ``stop`` (the log's end) of a log whose end is
    known; damage is skipped."""
    traces, start = SalvageTraces(), max(log.min_offset, start)
    stop = log.max_offset if stop is None else min(stop, log.max_offset)
    while start < stop:
        scan = LogScan(log, start, stop, 0)
        for batch in scan:
            traces.take(batch)
        behind = find_next_record(log, scan.offset + 1) if scan.offset < stop else None
        if behind is None:
            break
        start = behind
    return traces


class QuarantinedFile(NamedTuple):
    """A file or folder that was put aside; ``timestamp`` (epoch ms, 0: not told) is when."""

    path: str
    timestamp: int
    nbytes: int


def quarantined_files(root: Path) -> list[QuarantinedFile]:
    """Return what lies in the quarantine folder of the store at ``root``, in order of name."""
    folder, found = root / formats.QUARANTINE_DIR, []
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    for name in names:
        path = folder / name
        head = name.split("-", 1)[0]
        told = int(head) if head.isascii() and head.isdigit() and len(head) == 13 else 0
        found.append(QuarantinedFile(str(path), told, _nbytes_below(path)))
    return found


def _nbytes_below(path: Path) -> int:
    if not path.is_dir():
        return path.lstat().st_size
    return sum(
        os.lstat(os.path.join(folder, name)).st_size
        for folder, _, names in os.walk(path)
        for name in names
    )


# --- what points behind the end -------------------------------------------------------------------


@dataclass
class PointersBehind:
    """What names records behind a log's end: messages that were there once.

    Attributes
    ----------
    end : int
        The log's end.
    queues : dict of (topic, queue id) to int
        Units of records that end behind it.
    keys : int
        Index entries of records that begin there.
    keyed_records : int
        Records that those name.
    last_offset : int
        The furthest log offset that any of them names.
    records : dict of int to int
        Log offset of each record that any of them names, and its bytes (1 where only a key names
        it).
    """

    end: int
    queues: dict[tuple[str, int], int] = field(default_factory=dict)
    keys: int = 0
    keyed_records: int = 0
    last_offset: int = -1
    records: dict[int, int] = field(default_factory=dict, repr=False)

    @property
    def message_count(self) -> int:
        """Messages that are gone at the least."""
        return max(sum(self.queues.values()), self.keyed_records)

    def __bool__(self) -> bool:
        return bool(self.queues or self.keys)

    def reach(self, most_nbytes: int) -> int:
        """Where the records that are named end, from the log's end on; one that leaves more than
        ``most_nbytes`` between itself and the one in front of it is no proof: nothing else tells
        of what would lie there, and one flipped bit makes such an offset."""
        reached = self.end
        for offset in sorted(self.records):
            if offset - reached > most_nbytes:
                break
            reached = max(reached, offset + self.records[offset])
        return reached

    def __str__(self) -> str:
        topics: dict[str, int] = {}
        for (topic, _), count in sorted(self.queues.items()):
            topics[topic] = topics.get(topic, 0) + count
        named = ", ".join(f"{topic} {count}" for topic, count in topics.items())
        text = f"at least {self.message_count} messages behind log offset {self.end} are gone"
        return f"{text} ({named})" if named else text


def pointers_behind(
    end: int, queues: Iterable[ConsumeQueue], index: IndexService | None = None
) -> PointersBehind:
    """Count the units and index entries on disk that name what lies behind a log's ``end``.

    Queues are looked at from their newest file back to the first that begins in front of ``end``;
    light queues name other queues' messages, so they count only where there is nothing else.
    """
    found = PointersBehind(end)
    for queue in queues:
        count = 0
        for file in reversed(queue.queue.files):
            units, records, is_all = units_behind(queue, file, end)
            count += units
            found.records.update(records)
            if not is_all:
                break
        if count and not queue.is_light:
            found.queues[queue.topic, queue.queue_id] = count
    if index is not None:
        _take_keys(found, index)
    found.last_offset = max(found.records, default=-1)
    return found


def units_behind(
    queue: ConsumeQueue, file: MappedFile, end: int
) -> tuple[int, dict[int, int], bool]:
    """Messages behind ``end`` that a queue file names, their records' places and bytes, and whether
    the file in front of it may name more."""
    import numpy

    is_batch = isinstance(queue, BatchConsumeQueue)
    layout = formats.BATCH_QUEUE_UNIT if is_batch else formats.CONSUME_QUEUE_UNIT
    content = file.read(0, file.file_size - file.file_size % layout.nbytes)
    units = numpy.frombuffer(content[: len(content) // layout.nbytes * layout.nbytes], layout.dtype)
    offsets, sizes = units["physical_offset"].astype("i8"), units["size"].astype("i8")
    written = sizes > 0
    behind = written & (offsets + sizes > end) & (sizes != formats.FILLER_UNIT_SIZE)
    is_all = not bool((written & ~behind).any())
    if not behind.any():
        return 0, {}, is_all
    counts = units["batch_size"][behind].astype("i8") if is_batch else behind[behind]
    records = dict(zip(offsets[behind].tolist(), sizes[behind].tolist(), strict=True))
    return int(counts.sum()), records, is_all


def _take_keys(found: PointersBehind, index: IndexService) -> None:
    places: set[int] = set()
    for file in reversed(index.files):
        count = min(file.entry_count, file.entries - 1)
        before = len(places)
        for number in range(count, 0, -1):
            key_hash, offset, *_ = file.entry(number)
            if key_hash < 0 or offset < found.end:
                break
            found.keys += 1
            places.add(offset)
        if len(places) == before:
            break
    found.keyed_records = len(places)
    for place in places:
        found.records.setdefault(place, 1)
