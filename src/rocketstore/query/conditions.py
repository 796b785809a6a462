"""Conditions on stored messages, for ``find`` and the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rocketstore import formats
from rocketstore.filter import TagFilter
from rocketstore.message import StoredMessage


@dataclass(frozen=True, slots=True)
class Conditions:
    """Conditions that a message must meet, all of them; ``None`` allows everything.

    Attributes
    ----------
    topics : frozenset of str
    key : str
        One complete key of the message.
    unique_key : str
    tags : TagFilter
        Compared with the message's tag, not only with its hash.
    body_contains : bytes
        Occurs in the body as stored (a compressed body is not decompressed).
    begin, end : int
        Store times in epoch ms, ``begin <= time < end``.
    """

    topics: frozenset[str] | None = None
    key: str | None = None
    unique_key: str | None = None
    tags: TagFilter | None = None
    body_contains: bytes | None = None
    begin: int | None = None
    end: int | None = None

    @classmethod
    def of(
        cls,
        *,
        topics: Sequence[str] | None = None,
        key: str | None = None,
        unique_key: str | None = None,
        tags: str | None = None,
        body_contains: str | bytes | None = None,
        begin: int | None = None,
        end: int | None = None,
    ) -> Conditions:
        """Build from plain values; a text for ``body_contains`` is encoded as UTF-8.

        Raises ``TypeError`` for a value of the wrong type.
        """
        if isinstance(topics, str):
            raise TypeError("topics must be a sequence of str, not str")
        topics = None if topics is None else list(topics)
        names = [("topic", topic) for topic in topics or ()]
        for name, value in (*names, ("key", key), ("unique_key", unique_key)):
            if not isinstance(value, str | None):
                raise TypeError(f"{name} must be str, not {type(value).__name__}")
        if isinstance(body_contains, str):
            body_contains = body_contains.encode("utf-8", "surrogateescape")
        elif body_contains is not None:
            body_contains = _bytes_of(body_contains)
        return cls(
            None if topics is None else frozenset(topics),
            key,
            unique_key,
            None if tags is None else TagFilter(tags, exact=True),
            body_contains,
            begin,
            end,
        )

    @property
    def empty(self) -> bool:
        """Return whether every message matches."""
        return self == Conditions()

    def match(self, message: StoredMessage) -> bool:
        """Return whether ``message`` meets all conditions; check the cheap ones first."""
        if self.topics is not None and message.topic not in self.topics:
            return False
        if self.begin is not None and message.store_timestamp < self.begin:
            return False
        if self.end is not None and message.store_timestamp >= self.end:
            return False
        if self.key is not None and not carries_key(message, self.key):
            return False
        if self.unique_key is not None and message.unique_key != self.unique_key:
            return False
        if self.tags is not None and not self.tags.is_matched_by_commit_log(message):
            return False
        return self.body_contains is None or self.body_contains in message.body


def carries_key(message: StoredMessage, key: str) -> bool:
    """Return whether ``key`` is one of the message's keys."""
    keys = message.keys
    return keys is not None and key in keys.split(formats.KEY_SEPARATOR)


def _bytes_of(value: Any) -> bytes:
    try:
        return bytes(memoryview(value))
    except TypeError:
        raise TypeError(
            f"body_contains must be str or bytes-like, not {type(value).__name__}"
        ) from None
