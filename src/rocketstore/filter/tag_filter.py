"""Subscription by tags: ``"TagA || TagB"``."""

from __future__ import annotations

from array import array
from typing import Any

from rocketstore import kernels


class TagFilter:
    """Matches messages by their tag.

    Parameters
    ----------
    expression : str
        Tags separated by ``||``; ``"*"`` or an empty string matches everything.
    exact : bool
        Also compare the message's own TAGS. RocketMQ's store compares hashes only and leaves
        collisions ("Aa" and "BB" share a hash) to the consumer, as False does.

    Notes
    -----
    Source: RocketMQ ``store/DefaultMessageFilter.java``, ``common/filter/FilterAPI.java``.
    """

    def __init__(self, expression: str = "*", *, exact: bool = False) -> None:
        if not isinstance(expression, str):
            raise TypeError(f"expression must be str, not {type(expression).__name__}")
        self.expression = expression
        self.exact = exact
        tags = [tag.strip() for tag in expression.split("||")]
        self.tags = frozenset(tag for tag in tags if tag)
        if not self.tags or expression.strip() == "*":
            self.tags = frozenset()
        self._codes = frozenset(
            kernels.message.string_hash_code(tag.encode("utf-8", "replace")) for tag in self.tags
        )
        #: The codes as int64 in native byte order, ``None`` if every message matches.
        self.tags_codes = None if self.passes_all else array("q", sorted(self._codes)).tobytes()

    @property
    def passes_all(self) -> bool:
        """Whether every message matches."""
        return not self.tags

    def is_matched_by_consume_queue(self, tags_code: int | None, ext: Any = None) -> bool:
        """Return whether the unit's code matches; an unknown code does."""
        return self.passes_all or tags_code is None or tags_code in self._codes

    def is_matched_by_commit_log(self, message: Any) -> bool:
        """Return whether the message's tag matches; checked only if ``exact``."""
        return self.passes_all or not self.exact or message.tags in self.tags

    def __repr__(self) -> str:
        return f"TagFilter({self.expression!r})"
