"""Queues whose files are missing and whose messages have all expired.

The log no longer shows their next queue offset; the broker's tables of offsets still do. RocketMQ
restarts such a queue at 0, and a group gets nothing until the queue has passed the group's offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from rocketstore import formats
from rocketstore.config_managers.managers import (
    LMQ_PREFIX,
    TOPIC_GROUP_SEPARATOR,
    ConfigManager,
    ConsumerOffsetManager,
    DelayOffsetManager,
    LmqConsumerOffsetManager,
)
from rocketstore.errors import CorruptionError, MappedFileError, UnsafePathError
from rocketstore.queues.directories import is_folder_name
from rocketstore.survey.deleted_topics import is_unlisted

Key = tuple[str, int]


class StatedEnd(NamedTuple):
    """The highest offset that a table holds for a queue, and its owner."""

    offset: int
    owner: str


class LostQueue(NamedTuple):
    """A queue without a message in its files or in the log.

    Attributes
    ----------
    topic : str
    queue_id : int
    next_offset : int
        Lower bound of the queue's next queue offset.
    owner : str
        The owner of the offset that shows it.
    """

    topic: str
    queue_id: int
    next_offset: int
    owner: str

    def __str__(self) -> str:
        return (
            f"{self.topic} queue {self.queue_id} has no message in its files or in the log, but "
            f"{self.owner} has reached queue offset {self.next_offset}"
        )


def committed_offsets(manager: ConsumerOffsetManager) -> Iterator[tuple[str, str, int, int]]:
    """Yield topic, group, queue id and offset of every entry of a table."""
    tables = (manager.offset_table, manager.pull_offset_table)
    for key, offsets in (item for table in tables for item in table.items()):
        topic, separator, group = key.partition(TOPIC_GROUP_SEPARATOR)
        if separator:
            yield from ((topic, group, queue_id, offsets[queue_id]) for queue_id in offsets)
    if isinstance(manager, LmqConsumerOffsetManager):
        for key, offset in manager.lmq_offset_table.items():
            topic, separator, group = key.partition(TOPIC_GROUP_SEPARATOR)
            if separator and topic.startswith(LMQ_PREFIX):
                yield topic, group, 0, offset


def stated_ends(managers: Iterable[ConfigManager]) -> dict[Key, StatedEnd]:
    """Return, by queue, the highest offset that consumers or delayed delivery have reached.

    Light queues are omitted: a broker deletes them with their clients.
    """
    found: dict[Key, StatedEnd] = {}

    def take(key: Key, end: StatedEnd) -> None:
        if end.offset > 0 and end > found.get(key, StatedEnd(0, "")):
            found[key] = end

    for manager in managers:
        if isinstance(manager, ConsumerOffsetManager):
            for topic, group, queue_id, offset in committed_offsets(manager):
                if not topic.startswith(LMQ_PREFIX):
                    take((topic, queue_id), StatedEnd(offset, f"group {group}"))
        elif isinstance(manager, DelayOffsetManager):
            for level, offset in manager.offset_table.items():
                end = StatedEnd(offset, f"the delivery of delay level {level}")
                take((formats.TOPIC_SCHEDULE, level - 1), end)
    return found


def read_stated_ends(root: Path) -> dict[Key, StatedEnd]:
    """Return ``stated_ends`` of the tables of the store at ``root``; ignore unreadable ones."""
    managers: list[ConfigManager] = []
    for kind in (ConsumerOffsetManager, LmqConsumerOffsetManager, DelayOffsetManager):
        manager = kind(root)
        try:
            manager.load()
        except (CorruptionError, MappedFileError, UnsafePathError, OSError):
            continue  # verify reports it
        managers.append(manager)
    return stated_ends(managers)


def find_lost_queues(
    stated: Mapping[Key, StatedEnd],
    has_messages: Callable[[str, int], bool],
    known_topics: frozenset[str] | None,
    batch_topics: Iterable[str],
    log_end: int,
) -> list[LostQueue]:
    """Return the queues that only the tables of offsets show.

    Parameters
    ----------
    stated : mapping
        By queue, as ``stated_ends`` returns it.
    has_messages : callable
        Return whether files or log have, or may have, a message of a queue.
    known_topics : frozenset of str or None
        The topics of ``topics.json``; a deleted topic's offsets remain in the tables.
    batch_topics : iterable of str
    log_end : int
        Bounds the number of messages; higher queue offsets are ignored.
    """
    batch = frozenset(batch_topics)
    found = []
    for (topic, queue_id), end in sorted(stated.items()):
        nbytes = formats.BATCH_ITEM_MIN_NBYTES if topic in batch else formats.RECORD_MIN_NBYTES
        if end.offset > log_end // nbytes or not 0 <= queue_id < 2**31:
            continue
        if not is_folder_name(topic) or is_unlisted(topic, known_topics):
            continue
        if not has_messages(topic, queue_id):
            found.append(LostQueue(topic, queue_id, *end))
    return found
