"""The queue type of each topic, from the broker's tables and from the queue files."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from rocketstore import formats
from rocketstore.errors import ConfigError
from rocketstore.files.mapped_file_queue import list_directory
from rocketstore.queues.directories import queue_directories

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
        Topics whose files contradict their declared type, in words.
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
        ``queue.type`` by topic, if a table or the caller declares it.
    simple, batch : set of str
        Topics with files in ``consumequeue`` and in ``batchconsumequeue``. Files take precedence
        over declarations, because they are what can be read.
    batch_folders : set of str
        Topics with a folder in ``batchconsumequeue``; used if nothing else determines the type.

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
    """Return the topics with a queue folder below ``directory``, and those with a queue file.

    ``among`` restricts the result to these topics.
    """
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


def refuse_contradictions(types: QueueTypes) -> None:
    """Raise ``ConfigError`` if a topic's queue files contradict its declared type.

    A broker does not start with such a store.
    """
    if types.contradictions:
        raise ConfigError(
            "; ".join(types.contradictions) + ": a broker does not start with such a store. Remove "
            "the queue files of the wrong type; they are rebuilt from the log"
        )
