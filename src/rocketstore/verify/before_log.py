"""Units and keys of records before the log's beginning: expired, or of a removed segment."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rocketstore import formats
from rocketstore.queues.batch_consume_queue import BatchConsumeQueue

if TYPE_CHECKING:
    from rocketstore.index.index_file import IndexFile
    from rocketstore.index.index_service import IndexService
    from rocketstore.queues.consume_queue import ConsumeQueue


@dataclass
class BeforeLog:
    """Units and index entries that name log offsets before the log's beginning.

    RocketMQ deletes queue and index files some time after the segments that they name, so this is
    not a fault. A segment that was deleted by hand has the same effect.

    Attributes
    ----------
    units : int
    queues : set of (topic, queue id)
        Queues with such units.
    files : set of str
        Index files with such entries.
    low, high : int
        Lowest and highest log offset named; -1 without any.
    """

    units: int = 0
    queues: set[tuple[str, int]] = field(default_factory=set)
    files: set[str] = field(default_factory=set)
    low: int = -1
    high: int = -1

    def take_units(self, queue: tuple[str, int], offsets: Any) -> None:
        """Count units of a queue by the log offsets that they name (an array)."""
        if len(offsets):
            self.units += len(offsets)
            self.queues.add(queue)
            self._take(int(offsets.min()), int(offsets.max()))

    def take_keys(self, path: str, low: int, high: int) -> None:
        """Count an index file whose entries name log offsets from ``low`` to ``high``."""
        self.files.add(path)
        self._take(low, high)

    def _take(self, low: int, high: int) -> None:
        self.low = low if self.low < 0 else min(self.low, low)
        self.high = max(self.high, high)

    def notes(self, start: int) -> Iterator[str]:
        """Yield the note about a log that begins at ``start``, if anything was counted."""
        parts = []
        if self.units:
            parts.append(f"{_counted(self.units, 'unit')} of {_counted(len(self.queues), 'queue')}")
        if self.files:
            parts.append(_counted(len(self.files), "index file"))
        if parts:
            verb = "names" if self.units + len(self.files) == 1 else "name"
            yield (
                f"{' and '.join(parts)} {verb} log offsets {self.low} to {self.high}, before the "
                f"log's beginning {start}: those messages expired, or their segment was removed"
            )


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def find_before_log(
    start: int, queues: Iterable[ConsumeQueue], index: IndexService | None
) -> BeforeLog:
    """Count the units and index entries before a log that begins at ``start``.

    Each queue is read up to the first file with a unit of a record that the log has.
    """
    import numpy

    found = BeforeLog()
    for queue in queues:
        is_batch = isinstance(queue, BatchConsumeQueue)
        layout = formats.BATCH_QUEUE_UNIT if is_batch else formats.CONSUME_QUEUE_UNIT
        for mapped in queue.queue.files:
            content = mapped.read(0, mapped.file_size - mapped.file_size % layout.nbytes)
            content = content[: len(content) - len(content) % layout.nbytes]
            units = numpy.frombuffer(content, layout.dtype)
            real = (units["size"] > 0) & (units["size"] != formats.FILLER_UNIT_SIZE)
            offsets = units["physical_offset"].astype("i8")
            before = real & (offsets >= 0) & (offsets < start)
            found.take_units((queue.topic, queue.queue_id), offsets[before])
            if (real & ~before).any():
                break
    for file in () if index is None else index.files:
        low = file.header.begin_physical_offset
        if file.header.index_count > 1 and 0 <= low < start:
            found.take_keys(str(file.path), low, _last_key_before(file, start))
    return found


def _last_key_before(file: IndexFile, start: int) -> int:
    """Return the highest log offset below ``start`` in an index file; entries are in log order."""
    count = min(file.header.index_count, file.entries) - 1
    number = bisect.bisect_left(range(1, count + 1), start, key=lambda at: file.entry(at)[1])
    return int(file.entry(max(number, 1))[1])
