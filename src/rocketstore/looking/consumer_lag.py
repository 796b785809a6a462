"""``lag``: unread messages of consumer groups."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from rocketstore import formats
from rocketstore.config_managers.files import CONSUMER_OFFSETS_FILE, LMQ_CONSUMER_OFFSETS_FILE
from rocketstore.config_managers.managers import (
    TOPIC_GROUP_SEPARATOR,
    ConsumerOffsetManager,
    LmqConsumerOffsetManager,
)
from rocketstore.query.store_reader import StoreReader
from rocketstore.queues.batch_consume_queue import BatchConsumeQueue
from rocketstore.queues.consume_queue import ConsumeQueue
from rocketstore.store.default_message_store import DefaultMessageStore

#: Units examined for the first message that can be read.
_MOST_FILLERS = 4096
#: Folders of brokers that keep their tables in RocksDB.
_ROCKSDB_FOLDERS = ("consumerOffsets", "metadata", "RocksDBConfigManager")


class LagState(StrEnum):
    """What a committed offset is like."""

    OK = "ok"
    #: Past the queue's end: the queue was truncated or restored; new messages are skipped.
    BEYOND = "beyond"
    #: Below the queue's first message: unread messages expired.
    BELOW = "below"
    #: The group reads the topic, but never committed an offset for this queue.
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class QueueLag:
    """The unread messages of a group in one queue.

    Attributes
    ----------
    group, topic : str
    queue_id : int
    committed : int or None
        Next queue offset to consume; ``None`` without one.
    min_offset, max_offset : int
        Of the queue; ``max_offset`` is that of the next message (at the time that was asked for).
    messages : int
        Unread messages that can still be read.
    nbytes : int
        Bytes of their records.
    age_ms : int or None
        Age of the oldest of them, 0 without any; ``None`` if its record cannot be read.
    lost_unread : int
        Messages that were deleted before the group read them.
    state : LagState
    """

    group: str
    topic: str
    queue_id: int
    committed: int | None
    min_offset: int
    max_offset: int
    messages: int
    nbytes: int
    age_ms: int | None
    lost_unread: int
    state: LagState


@dataclass(slots=True)
class LagReport:
    """The lag of every group, by group, topic and queue.

    Attributes
    ----------
    path : str
    at : int
        Epoch ms that ages count to.
    queues : list of QueueLag
    notes : list of str
        What is unusual about the broker's tables.
    """

    path: str
    at: int
    queues: list[QueueLag] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def messages(self) -> int:
        """Unread messages of all groups."""
        return sum(one.messages for one in self.queues)

    @property
    def ok(self) -> bool:
        """Whether no offset is beyond or below its queue."""
        return all(one.state in (LagState.OK, LagState.NEVER) for one in self.queues)


def lag(
    store: DefaultMessageStore, *, group: str | None = None, at: int | None = None
) -> LagReport:
    """Compare the committed offsets of ``config/consumerOffset.json`` with the queues.

    Parameters
    ----------
    store : DefaultMessageStore
        Open in any mode.
    group : str, optional
        Only this consumer group.
    at : int, optional
        Epoch ms: messages stored at or after it do not count, and ages count to it. By default the
        system's time. The committed offsets are always those of the file.

    Raises
    ------
    CorruptionError
        The broker's table and its ``.bak`` are unreadable.
    MappedFileError, UnsafePathError, PermissionError
        The table is no regular file, leaves the store, or is not readable.

    Notes
    -----
    A broker writes the table every 5 seconds. Memory: one queue file at a time.
    """
    now = time.time_ns() // 1_000_000
    report = LagReport(str(store.path), now if at is None else at)
    table = load_offsets(Path(store.path), report.notes)
    reader = store.reader
    for name, topic in sorted(table):
        if group is not None and name != group:
            continue
        offsets = table[name, topic]
        for queue_id in sorted({*offsets, *reader.queues.queue_ids(topic)}):
            asked = _QueueOf(store, reader, topic, queue_id, at)
            report.queues.append(asked.lag(name, offsets.get(queue_id), report.at))
    return report


def load_offsets(root: Path, notes: list[str]) -> dict[tuple[str, str], dict[int, int]]:
    """Return the committed offsets of each queue, by group and topic; add to ``notes``.

    Raises as ``lag``.
    """
    folder = root / formats.CONFIG_DIR
    table: dict[tuple[str, str], dict[int, int]] = {}
    kinds: tuple[type[ConsumerOffsetManager], ...] = (ConsumerOffsetManager,)
    if any(os.path.lexists(folder / (LMQ_CONSUMER_OFFSETS_FILE + end)) for end in ("", ".bak")):
        kinds = (ConsumerOffsetManager, LmqConsumerOffsetManager)
    found = False
    for kind in kinds:
        manager = kind(root)
        if not manager.load():
            continue
        found = True
        if manager.problem is not None:
            notes.append(f"{manager.problem}; {manager.loaded_path} was read instead")
        for key, offsets in _entries(manager):
            topic, separator, group = key.rpartition(TOPIC_GROUP_SEPARATOR)
            if not separator or TOPIC_GROUP_SEPARATOR in topic:
                notes.append(f"{kind.FILE_NAME} names {key!r}, which is not topic@group")
                continue
            table.setdefault((group, topic), {}).update(offsets)
    if not found:
        rocks = [name for name in _ROCKSDB_FOLDERS if (folder / name).is_dir()]
        if rocks:
            notes.append(
                f"the broker keeps its offsets in RocksDB ({formats.CONFIG_DIR}/{rocks[0]}), which "
                "is not read; mqadmin rocksDBConfigToJson writes them as JSON"
            )
        else:
            notes.append(f"there is no {formats.CONFIG_DIR}/{CONSUMER_OFFSETS_FILE}")
    return table


def _entries(manager: ConsumerOffsetManager) -> Iterator[tuple[str, dict[int, int]]]:
    yield from manager.offset_table.items()
    if isinstance(manager, LmqConsumerOffsetManager):
        for key, offset in manager.lmq_offset_table.items():
            yield key, {0: offset}


class _QueueOf:
    """One queue, asked by a group."""

    def __init__(
        self,
        store: DefaultMessageStore,
        reader: StoreReader,
        topic: str,
        queue_id: int,
        at: int | None,
    ) -> None:
        self._topic, self._queue_id = topic, queue_id
        self._reader = reader
        self._queue = reader.queues.get(topic, queue_id)
        self._min = self._max = 0
        if self._queue is not None:
            self._min, self._max = self._queue.min_index, self._queue.max_index
            if at is not None:
                upto = store.get_offset_in_queue_by_time(topic, queue_id, at, boundary="lower")
                self._max = max(min(upto, self._max), self._min)

    def lag(self, group: str, committed: int | None, at: int) -> QueueLag:
        """Return the lag of a group that committed ``committed``."""
        state, lost = LagState.OK, 0
        end = self._max if self._queue is None else self._queue.max_index
        if committed is None:
            state = LagState.NEVER
        elif committed > end:
            state = LagState.BEYOND
        elif committed < self._min:
            state, lost = LagState.BELOW, self._min - committed
        first = max(self._min, 0 if committed is None else committed)
        messages = max(0, self._max - first)
        age: int | None = 0
        nbytes = 0
        if messages and self._queue is not None:
            nbytes = unread_nbytes(self._queue, first, self._max)
            stored = self._first_time(self._queue, first)
            age = None if stored is None else max(0, at - stored)
        return QueueLag(
            group, self._topic, self._queue_id, committed, self._min, self._max, messages, nbytes,
            age, lost, state,
        )  # fmt: skip

    def _first_time(self, queue: ConsumeQueue, first: int) -> int | None:
        """Return the store time of the first message that can be read, ``None`` without one."""
        for index in range(first, min(self._max, first + _MOST_FILLERS)):
            stored = self._reader.store_timestamp_of(queue, index)
            if stored >= 0:
                return stored
        return None


def unread_nbytes(queue: ConsumeQueue, first: int, stop: int) -> int:
    """Return the bytes of the records of queue offsets ``first`` to ``stop``, from the units."""
    import numpy

    if isinstance(queue, BatchConsumeQueue):
        units: Any = queue.array()
        ends = units["base_offset"].astype(numpy.int64) + units["batch_size"]
        inside = (units["base_offset"] < stop) & (ends > first)
        return int(units["size"][inside].sum(dtype=numpy.int64))
    total = 0
    for start, buffer, count in queue.view():
        low, high = max(first - start, 0), min(stop - start, count)
        if low >= high:
            continue
        units = numpy.frombuffer(buffer, formats.CONSUME_QUEUE_UNIT.dtype, count)[low:high]
        real = units["size"] != formats.FILLER_UNIT_SIZE
        total += int(units["size"][real].sum(dtype=numpy.int64))
    return total
