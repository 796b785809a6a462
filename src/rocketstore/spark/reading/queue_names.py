"""Check that offsets by queue name exactly the queues that are read, as Kafka's source does."""

from __future__ import annotations

import os
from pathlib import Path

from rocketstore import formats
from rocketstore.errors import ConfigError
from rocketstore.sources.files import local_path
from rocketstore.spark.base.options import LATEST, Offsets, ReadOptions
from rocketstore.store.default_message_store import open as open_store

Queues = set[tuple[str, int]]
_MAX_SHOWN = 5


def check_queue_names(options: ReadOptions) -> None:
    """Refuse offsets that omit a queue that is read, or name one that does not exist.

    Raises
    ------
    ConfigError
        Lists the queues. Also if a queue would end before it begins, or if the queues of a log
        cannot be listed and ``assign`` does not name them.
    """
    given: dict[str, dict[str, dict[int, int]]] = {}
    for name, offsets, timestamp in (
        ("startingOffsets", options.starting_offsets, options.starting_timestamp),
        ("endingOffsets", options.ending_offsets, options.ending_timestamp),
    ):
        if isinstance(offsets, dict) and timestamp is None:
            given[name] = offsets
    if not given:
        return
    there = _queues_of(options)
    asked = _asked(options, there)
    for name, offsets in given.items():
        named = _named(offsets)
        if asked is None:
            raise ConfigError(
                f"{name}: the queues of {options.path} cannot be listed; also name those to read "
                "with the option assign"
            )
        if named - asked or (there is not None and named - there):
            unknown = named - asked if named - asked else named - (there or set())
            raise ConfigError(f"{name} names {_shown(unknown)}, which {options.path} does not have")
        if asked - named:
            raise ConfigError(
                f"{name} omits {_shown(asked - named)}: offsets must name every queue that is "
                "read (-2 is the earliest, -1 the latest offset); select topics with subscribe, or "
                "queues with assign"
            )
    _check_order(given.get("startingOffsets"), given.get("endingOffsets"))


def _check_order(starting: Offsets | None, ending: Offsets | None) -> None:
    if not isinstance(starting, dict) or not isinstance(ending, dict):
        return
    for topic, queues in starting.items():
        for queue_id, first in queues.items():
            last = ending.get(topic, {}).get(queue_id, LATEST)
            if 0 <= last < first:
                raise ConfigError(
                    f"endingOffsets ends queue {queue_id} of {topic!r} at {last}, before "
                    f"startingOffsets begins it at {first}"
                )


def _named(offsets: dict[str, dict[int, int]]) -> Queues:
    return {(topic, queue_id) for topic, queues in offsets.items() for queue_id in queues}


def _asked(options: ReadOptions, there: Queues | None) -> Queues | None:
    """Return the queues that are read; ``None`` if they are unknown."""
    if options.queue_ids is not None:
        return {(topic, number) for topic, ids in options.queue_ids.items() for number in ids}
    if there is None:
        return None
    return {(topic, number) for topic, number in there if options.takes_topic(topic)}


def local_store(path: str) -> Path | None:
    """Return the root of the local store that ``path``, its root or log folder, belongs to."""
    root = local_path(path)
    if root is not None and root.name == formats.COMMIT_LOG_DIR:
        root = root.parent
    return root if root is not None and (root / formats.COMMIT_LOG_DIR).is_dir() else None


def store_with_queues(path: str) -> Path | None:
    """Return ``local_store`` if it has folders of queues, of any type."""
    root = local_store(path)
    names = (formats.CONSUME_QUEUE_DIR, formats.BATCH_QUEUE_DIR)
    return root if root is not None and any((root / name).is_dir() for name in names) else None


def _queues_of(options: ReadOptions) -> Queues | None:
    """Return the queues of a store on local disks; ``None`` for other logs.

    Light queues are excluded: their messages are read with the topics they were sent to.
    """
    root = local_store(options.path)
    if root is None:
        return None
    with open_store(os.fspath(root), message_index_enable=False) as store:
        return {
            (topic, queue_id)
            for topic in store.topics()
            if not topic.startswith(formats.TOPIC_LMQ_PREFIX)
            for queue_id in store.queues(topic)
        }


def _shown(queues: Queues) -> str:
    found = [f"queue {number} of {topic!r}" for topic, number in sorted(queues)]
    more = len(found) - _MAX_SHOWN
    return ", ".join(found[:_MAX_SHOWN]) + (f" and {more} more" if more > 0 else "")
