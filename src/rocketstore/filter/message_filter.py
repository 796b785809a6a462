"""RocketMQ's interface of a message filter."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class MessageFilter(Protocol):
    """A filter for ``get_message``: any object with RocketMQ's two methods."""

    def is_matched_by_consume_queue(self, tags_code: int | None, ext: Any) -> bool:
        """Return whether a queue unit may match; True if only the message can decide.

        Parameters
        ----------
        tags_code : int or None
            Hash of the tag (0: no tag), ``None`` if it is unknown.
        ext : CqExtUnit or None
            Tags code, store timestamp and bit map, if the queue has ext units.
        """
        ...

    def is_matched_by_commit_log(self, message: Any) -> bool:
        """Return whether the message matches."""
        ...
