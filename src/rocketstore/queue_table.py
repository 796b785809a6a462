"""The table of a store's queues of both types, and which topics have which."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from rocketstore import formats
from rocketstore.batch_consume_queue import BatchConsumeQueue
from rocketstore.consume_queue import ConsumeQueue, ConsumeQueueTable
from rocketstore.errors import ConfigError
from rocketstore.mapped_file_queue import MappedFileQueue, list_directory
from rocketstore.mapping_cache import QUEUE_MAPPINGS
from rocketstore.queue_folders import queue_directories

QUEUE_TYPE_ATTRIBUTE = "queue.type"
BATCH_QUEUE_TYPE = "BatchCQ"
SIMPLE_QUEUE_TYPE = "SimpleCQ"


class QueueTypes(NamedTuple):
    """The queue types of a store's topics.

    Attributes
    ----------
    batch : frozenset of str
        Topics whose queues are BatchConsumeQueues.
    contradictions : list of str
        Topics whose files are of another type than their table says, in words.
    """

    batch: frozenset[str]
    contradictions: list[str]


def queue_types(
    declared: dict[str, str], simple: set[str], batch: set[str], batch_folders: set[str]
) -> QueueTypes:
    """Decide each topic's queue type.

    Parameters
    ----------
    declared : dict
        ``queue.type`` by topic, where a table or the caller says it.
    simple, batch : set of str
        Topics with files in ``consumequeue`` and in ``batchconsumequeue``. Files win against what
        is declared: they are what can be read.
    batch_folders : set of str
        Topics with a folder in ``batchconsumequeue``, which decides where nothing else does.

    Notes
    -----
    Source: RocketMQ ``store/queue/ConsumeQueueStore.java``, which refuses contradictions.
    """
    contradictions = [
        f"topic {topic} has queues of both types, in {formats.CONSUME_QUEUE_DIR} and in "
        f"{formats.BATCH_QUEUE_DIR}"
        for topic in sorted(simple & batch)
    ]
    wanted = {topic for topic, kind in declared.items() if kind == BATCH_QUEUE_TYPE}
    plain = {topic for topic, kind in declared.items() if kind != BATCH_QUEUE_TYPE}
    contradictions += [
        f"topic {topic} has the queue type {BATCH_QUEUE_TYPE}, but its queues lie in "
        f"{formats.CONSUME_QUEUE_DIR}"
        for topic in sorted(wanted & (simple - batch))
    ]
    contradictions += [
        f"topic {topic} has the queue type {declared[topic]}, but its queues lie in "
        f"{formats.BATCH_QUEUE_DIR}"
        for topic in sorted(plain & (batch - simple))
    ]
    both = simple & batch
    chosen = (batch - both) | (wanted & both) | (wanted - simple)
    chosen |= batch_folders - simple - plain
    return QueueTypes(frozenset(chosen), contradictions)


def topics_below(
    directory: Path, root: Path, *, tolerant: bool, among: frozenset[str] | None = None
) -> tuple[set[str], set[str]]:
    """Topics (``among`` these, or all) with a queue's folder below ``directory``, and those of them
    with a queue file."""
    folders: set[str] = set()
    with_files: set[str] = set()
    for topic, queue in queue_directories(directory, root, [], tolerant=tolerant):
        if topic.name not in with_files and (among is None or topic.name in among):
            folders.add(topic.name)
            listing = list_directory(
                queue, root, tolerate_unreadable=tolerant, tolerate_odd=tolerant
            )
            if any(size for _, _, size in listing.files):
                with_files.add(topic.name)
    return folders, with_files


class QueueTable(ConsumeQueueTable):
    """All queues of a store, each of its topic's type.

    Parameters
    ----------
    directory, file_size, root, writable, in_memory
        As in ``ConsumeQueueTable``.
    batch_directory : Path
        ``batchconsumequeue``.
    batch_file_size : int
        Bytes of a file in it, a multiple of 46.
    batch_topics : iterable of str
        Topics whose queues are BatchConsumeQueues.
    **others
        Passed on to ``ConsumeQueueTable``.
    """

    def __init__(
        self,
        directory: Path,
        file_size: int,
        root: Path,
        *,
        writable: bool,
        in_memory: bool = False,
        batch_directory: Path,
        batch_file_size: int,
        batch_topics: Iterable[str],
        **others: Any,
    ) -> None:
        super().__init__(
            directory, file_size, root, writable=writable, in_memory=in_memory, **others
        )
        self.batch_directory = batch_directory
        self.batch_file_size = batch_file_size
        self.batch_topics = set(batch_topics)

    def _load(self) -> None:
        """Open the queues below both directories; what is none is listed in ``skipped``."""
        super()._load()
        for key in [key for key in self.table if key[0] in self.batch_topics]:
            self.skipped.append(self.directory / key[0] / str(key[1]))
            self.table.pop(key).close()
        for topic_directory, queue_directory in queue_directories(
            self.batch_directory, self._root, self.skipped, tolerant=self._in_memory
        ):
            topic, queue_id = topic_directory.name, int(queue_directory.name)
            if topic not in self.batch_topics:
                self.skipped.append(queue_directory)
                continue
            self._load_batch_queue(topic, queue_id, queue_directory)

    def _load_batch_queue(self, topic: str, queue_id: int, directory: Path) -> None:
        listing = self._list(directory)
        queue = self._new(topic, queue_id)
        queue.queue.load(self._fit(listing, self.batch_file_size))
        self.table[topic, queue_id] = queue

    def _new(self, topic: str, queue_id: int) -> ConsumeQueue:
        if topic not in self.batch_topics:
            return super()._new(topic, queue_id)
        directory = self.batch_directory / topic / str(queue_id)
        self._make_way(directory)
        files = MappedFileQueue(
            directory,
            self.batch_file_size,
            self._root,
            writable=self._writable,
            cache=QUEUE_MAPPINGS,
        )
        return BatchConsumeQueue(topic, queue_id, files, in_memory=self._in_memory)

    def take_batch_topic(self, topic: str) -> bool:
        """Give a topic without a queue yet the type ``BatchCQ``, because its first record is a
        batch (``inner_batch``), which no other type takes; False when it has queues of the
        other type."""
        if topic in self.batch_topics:
            return True
        if any(name == topic for name, _ in list(self.table)):
            return False
        self.batch_topics.add(topic)
        return True


def refuse_contradictions(types: QueueTypes) -> None:
    """Raise ``ConfigError`` when a topic's queues are of another type than declared, as a broker
    refuses to start on them."""
    if types.contradictions:
        raise ConfigError(
            "; ".join(types.contradictions) + ": a broker does not start on such a store; remove "
            "the queue files that are wrong (they are made again from the log)"
        )
