"""Topics that a broker deleted while the log still has their messages: they come back when queues
are made from the log."""

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
    """Return the topics of ``config/topics.json``; ``None`` when it tells nothing."""
    try:
        found = read_config_file(config_path(root, TOPICS_FILE), root, _names)
    except (CorruptionError, MappedFileError, UnsafePathError, OSError):
        return None  # what is wrong with the table is told by verify and info
    return found.content or None


def _names(document: dict[str, Any]) -> frozenset[str]:
    table = document.get("topicConfigTable") or {}
    if not isinstance(table, dict):
        raise ContentError("$.topicConfigTable: no object")
    return frozenset(table)


def is_unlisted(topic: str, known: frozenset[str] | None) -> bool:
    """Whether a topic is in no row of a table that has others, although it should be."""
    if known is None or topic in known or topic == formats.TOPIC_SCHEDULE:
        return False
    return not topic.startswith(_UNLISTED)


def deleted_topics_note(topics: Iterable[str], what: str) -> str | None:
    """Words about deleted topics and ``what`` becomes of their queues; ``None`` without any."""
    names = sorted(topics)
    if not names:
        return None
    more = len(names) - _MOST_NAMED
    return (
        "topics with messages in the log that had neither a folder nor a row in topics.json, so "
        f"that they were deleted; {what}: {', '.join(names[:_MOST_NAMED])}"
        + (f" and {more} more" if more > 0 else "")
    )
