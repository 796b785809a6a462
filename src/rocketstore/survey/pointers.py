"""What tells of lost messages: what a salvage left behind, and what points behind the log's end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rocketstore import formats
from rocketstore.queues.batch_consume_queue import BatchConsumeQueue

if TYPE_CHECKING:
    from rocketstore.files.mapped_file import MappedFile
    from rocketstore.index.index_service import IndexService
    from rocketstore.queues.consume_queue import ConsumeQueue


# --- what a salvage left --------------------------------------------------------------------------


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
