"""The two questions RocketMQ asks of a filter."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class MessageFilter(Protocol):
    """Anything with RocketMQ's two methods can filter ``get_message``."""

    def is_matched_by_consume_queue(self, tags_code: int | None, ext: Any) -> bool:
        """Judge by the queue's unit alone; True when only the message can tell.

        ``tags_code`` is the hash of the tag (0: no tag), ``None`` when nobody knows it any more;
        ``ext`` a ``CqExtUnit`` (tags code, store timestamp, bit map) where the queue keeps
        those, else ``None``.
        """
        ...

    def is_matched_by_commit_log(self, message: Any) -> bool:
        """Judge by the message."""
        ...
