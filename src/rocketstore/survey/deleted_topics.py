"""Topics that a broker deleted while the log still has their messages.

They come back when queues are rebuilt from the log.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rocketstore import formats
from rocketstore.config_managers.files import (
    TOPICS_FILE,
    ContentError,
    config_path,
    read_config_file,
)
from rocketstore.errors import CorruptionError, MappedFileError, UnsafePathError

_MOST_NAMED = 5
#: Topics that a broker keeps without a row in its table.
_UNLISTED = (
    formats.TOPIC_LMQ_PREFIX,
    formats.TOPIC_SYSTEM_PREFIX,
    formats.TOPIC_SYSTEM_PREFIX.upper(),
)


def known_topics(root: Path) -> frozenset[str] | None:
    """Return the topics of ``config/topics.json``; ``None`` if it is missing or unusable."""
    try:
        found = read_config_file(config_path(root, TOPICS_FILE), root, _names)
    except (CorruptionError, MappedFileError, UnsafePathError, OSError):
        return None  # verify and info report what is wrong with the table
    return found.content or None


def _names(document: dict[str, Any]) -> frozenset[str]:
    table = document.get("topicConfigTable") or {}
    if not isinstance(table, dict):
        raise ContentError("$.topicConfigTable: not an object")
    return frozenset(table)


def is_unlisted(topic: str, known: frozenset[str] | None) -> bool:
    """Return whether a non-empty table of topics lacks a topic that it should have."""
    if known is None or topic in known or topic == formats.TOPIC_SCHEDULE:
        return False
    return not topic.startswith(_UNLISTED)


def deleted_topics_note(topics: Iterable[str], what: str) -> str | None:
    """Return a note on deleted topics and ``what`` happens to their queues; ``None`` if none."""
    names = sorted(topics)
    if not names:
        return None
    more = len(names) - _MOST_NAMED
    return (
        "topics with messages in the log had neither a folder nor a row in topics.json, so they "
        f"were deleted; {what}: {', '.join(names[:_MOST_NAMED])}"
        + (f" and {more} more" if more > 0 else "")
    )
