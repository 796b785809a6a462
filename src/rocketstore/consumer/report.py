"""What consumer groups have committed, and what waits for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rocketstore import formats

if TYPE_CHECKING:
    from rocketstore.query.store_reader import StoreReader
    from rocketstore.queues.consume_queue import ConsumeQueue

Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class GroupReport:
    """The state of one consumer group.

    Attributes
    ----------
    group : str
    committed : dict of (str, int) to int
        Next queue offset to consume, by topic and queue id; of the retry topic too.
    lag : dict of (str, int) to int
        Messages from there to the queue's end, as the queue counts them.
    lag_ms : dict of (str, int) to int
        Age of the next message to consume, from its store time; 0 if there is none.
    retry_count : int
        Messages on ``%RETRY%group`` that were not consumed. Those that are still delayed are in
        ``store.delays()``.
    dead_letter_count : int
        Messages on ``%DLQ%group``.
    beyond : tuple of (str, int)
        Queues that end before the committed offset: their files are older than it.
    """

    group: str
    committed: dict[Key, int] = field(default_factory=dict)
    lag: dict[Key, int] = field(default_factory=dict)
    lag_ms: dict[Key, int] = field(default_factory=dict)
    retry_count: int = 0
    dead_letter_count: int = 0
    beyond: tuple[Key, ...] = ()

    @property
    def total_lag(self) -> int:
        """Messages that were not consumed, over all queues."""
        return sum(self.lag.values())


def group_reports(
    reader: StoreReader,
    committed: Mapping[str, Mapping[Key, int]],
    clock: Callable[[], int],
) -> dict[str, GroupReport]:
    """Return the report of every group that committed, or has a retry or dead letter topic.

    Parameters
    ----------
    reader : StoreReader
    committed : mapping
        Offsets by group and (topic, queue id).
    clock : callable
        Epoch ms.
    """
    groups = set(committed)
    for topic, _ in list(reader.queues.table):
        for prefix in (formats.TOPIC_RETRY_PREFIX, formats.TOPIC_DLQ_PREFIX):
            if topic.startswith(prefix):
                groups.add(topic[len(prefix) :])
    now = clock()
    return {
        group: _report(reader, group, committed.get(group, {}), now) for group in sorted(groups)
    }


def _report(reader: StoreReader, group: str, committed: Mapping[Key, int], now: int) -> GroupReport:
    lag, lag_ms, beyond = {}, {}, []
    for key, offset in sorted(committed.items()):
        queue = reader.queues.table.get(key)
        end = 0 if queue is None else queue.max_index
        lag[key], lag_ms[key] = max(0, end - offset), 0
        if offset > end:
            beyond.append(key)
        elif queue is not None and offset < end:
            lag_ms[key] = _age(reader, queue, max(offset, queue.min_index), now)
    return GroupReport(
        group,
        dict(sorted(committed.items())),
        lag,
        lag_ms,
        _count(reader, formats.TOPIC_RETRY_PREFIX + group, committed),
        _count(reader, formats.TOPIC_DLQ_PREFIX + group, {}),
        tuple(beyond),
    )


def _age(reader: StoreReader, queue: ConsumeQueue, offset: int, now: int) -> int:
    stored = reader.store_timestamp_of(queue, offset)
    return 0 if stored < 0 else max(0, now - stored)


def _count(reader: StoreReader, topic: str, committed: Mapping[Key, int]) -> int:
    """Return the messages of a topic from what was committed on."""
    total = 0
    for key, queue in list(reader.queues.table.items()):
        if key[0] == topic:
            total += max(0, queue.max_index - max(queue.min_index, committed.get(key, 0)))
    return total
