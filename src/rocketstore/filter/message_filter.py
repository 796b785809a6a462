"""RocketMQ's interface of a message filter."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, runtime_checkable

from rocketstore import kernels

if TYPE_CHECKING:
    from rocketstore.filter.sql92.sql92_filter import Sql92Filter
    from rocketstore.message import StoredMessage


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


def is_compiled(message_filter: Any) -> TypeGuard[Sql92Filter]:
    """Return whether kernels can evaluate a filter: a ``Sql92Filter``, not of a subclass."""
    module = sys.modules.get("rocketstore.filter.sql92.sql92_filter")
    return module is not None and type(message_filter) is module.Sql92Filter


def check_filter(message_filter: Any) -> None:
    """Raise ``TypeError`` unless an object has RocketMQ's two methods."""
    if not isinstance(message_filter, MessageFilter):
        raise TypeError(
            "filter must be a str, TagFilter, Sql92Filter or another MessageFilter, not "
            f"{type(message_filter).__name__}"
        )


def accepts(message_filter: MessageFilter, message: StoredMessage) -> bool:
    """Return whether a message passes; its queue unit is judged by the code of its tags alone."""
    tags = message.tags
    code = 0 if tags is None else kernels.message.string_hash_code(tags.encode())
    return message_filter.is_matched_by_consume_queue(
        code, None
    ) and message_filter.is_matched_by_commit_log(message)


#: Filters that a store keeps, as a broker does.
CACHED_FILTERS = 100
#: ``(expression, broker_version, strict)`` to the filter; a cache may be used by many threads.
FilterCache = Callable[[str, str | None, bool], "Sql92Filter"]


def filter_cache() -> FilterCache:
    """Return a compiler of expressions that keeps the filters used last."""
    return functools.lru_cache(CACHED_FILTERS)(_compiled)


def _compiled(expression: str, broker_version: str | None, strict: bool) -> Sql92Filter:
    from rocketstore.filter.sql92.sql92_filter import Sql92Filter

    return Sql92Filter(expression, broker_version=broker_version, strict=strict)


def sql_filter(given: str | Sql92Filter) -> Sql92Filter:
    """Return a filter with a program; a str is an expression in the newest dialect.

    Raises ``FilterSyntaxError``, or ``TypeError`` for any other filter.
    """
    if isinstance(given, str):
        return _compiled(given, None, False)
    if not is_compiled(given):
        raise TypeError(f"filter must be a str or a Sql92Filter, not {type(given).__name__}")
    return given
