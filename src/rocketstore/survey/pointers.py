"""Units and index entries that name records past the log's end: messages that are lost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rocketstore import formats
from rocketstore.queues.batch_consume_queue import BatchConsumeQueue

if TYPE_CHECKING:
    from rocketstore.files.mapped_file import MappedFile
    from rocketstore.index.index_service import IndexService
    from rocketstore.log.commit_log import CommitLog
    from rocketstore.log.damage import DamagedRange
    from rocketstore.queues.consume_queue import ConsumeQueue

#: Units of one queue that are looked at to judge whether it is of this log.
_MOST_UNITS = 10_000
#: So many wrong ones, without a right one, show that a queue is not.
_FOREIGN_UNITS = 2


@dataclass
class PointersPastEnd:
    """Units and index entries that name records past a log's end, which were lost.

    Attributes
    ----------
    end : int
        The log's end.
    queues : dict of (topic, queue id) to int
        Number of units of records that end past it.
    keys : int
        Number of index entries of records that begin past it.
    keyed_records : int
        Number of records that these entries name.
    last_offset : int
        The highest log offset that a unit or entry names.
    records : dict of int to int
        Log offset and bytes of each named record (1 byte if only an index entry names it).
    """

    end: int
    queues: dict[tuple[str, int], int] = field(default_factory=dict)
    keys: int = 0
    keyed_records: int = 0
    last_offset: int = -1
    records: dict[int, int] = field(default_factory=dict, repr=False)

    @property
    def message_count(self) -> int:
        """Return the minimum number of lost messages."""
        return max(sum(self.queues.values()), self.keyed_records)

    def __bool__(self) -> bool:
        return bool(self.queues or self.keys)

    def reach(self, most_nbytes: int) -> int:
        """Return the end of the named records after the log's end.

        A record more than ``most_nbytes`` after the previous one is no proof, because a single
        flipped bit can produce such an offset.
        """
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
        text = f"at least {self.message_count} messages past log offset {self.end} are lost"
        return f"{text} ({named})" if named else text


def pointers_past_end(
    end: int, queues: Iterable[ConsumeQueue], index: IndexService | None = None
) -> PointersPastEnd:
    """Count the units and index entries on disk that name records past a log's ``end``.

    Each queue is read backwards, from its newest file to the first that also names earlier records.
    Units of light queues are not counted, because they name messages of other queues.
    """
    found = PointersPastEnd(end)
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


def is_of_log(
    log: CommitLog, queue: ConsumeQueue, end: int, damaged: Sequence[DamagedRange]
) -> bool:
    """Return whether a queue's newest units before the log's ``end`` name its records.

    If none of two does, the queue is of another store, and its other units say nothing of this log.
    """
    if queue.is_light or isinstance(queue, BatchConsumeQueue):
        return True
    wrong = 0
    numbers = range(queue.max_index - 1, queue.min_index - 1, -1)
    for number in numbers[:_MOST_UNITS]:
        unit = queue.unit(number)
        if unit is None or unit[0] + unit[1] > end:
            continue
        if unit[0] < log.min_offset or any(one.start <= unit[0] < one.stop for one in damaged):
            return wrong == 0
        _, record = log.record_at(unit[0])
        place = (queue.topic, queue.queue_id, number)
        if record is not None and (record.topic, record.queue_id, record.queue_offset) == place:
            return True
        wrong += 1
        if wrong == _FOREIGN_UNITS:
            return False
    return wrong == 0


def units_behind(
    queue: ConsumeQueue, file: MappedFile, end: int
) -> tuple[int, dict[int, int], bool]:
    """Return what a queue file names past ``end``.

    Returns the number of messages, their records' log offsets and bytes, and whether the previous
    file may name more.
    """
    import numpy

    is_batch = isinstance(queue, BatchConsumeQueue)
    layout = formats.BATCH_QUEUE_UNIT if is_batch else formats.CONSUME_QUEUE_UNIT
    content = file.read(0, file.file_size - file.file_size % layout.nbytes)
    units = numpy.frombuffer(content[: len(content) // layout.nbytes * layout.nbytes], layout.dtype)
    offsets, sizes = units["physical_offset"].astype("i8"), units["size"].astype("i8")
    written = sizes > 0
    past = written & (offsets + sizes > end) & (sizes != formats.FILLER_UNIT_SIZE)
    is_all = not bool((written & ~past).any())
    if not past.any():
        return 0, {}, is_all
    counts = units["batch_size"][past].astype("i8") if is_batch else past[past]
    records = dict(zip(offsets[past].tolist(), sizes[past].tolist(), strict=True))
    return int(counts.sum()), records, is_all


def _take_keys(found: PointersPastEnd, index: IndexService) -> None:
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
