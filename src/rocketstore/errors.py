"""The exceptions of rocketstore. Each says what to do; corruption names file and position."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class RocketStoreError(Exception):
    """Base class of the errors that rocketstore defines."""


class StoreClosedError(RocketStoreError):
    """The store (or a part of it) was used after ``close()``."""


class StoreLockedError(RocketStoreError):
    """Another process, or another store of this process, writes this directory."""


class StoreFullError(RocketStoreError, OSError):
    """The disk is full and nothing was acknowledged. Puts work again once there is space."""


class ForkedStoreError(RocketStoreError):
    """A store opened by the parent was used in a forked child; open it by path there."""


class ServiceFailedError(RocketStoreError):
    """A sync or a service failed; the store accepts no puts until it is reopened."""


class ReentrantCallError(RocketStoreError):
    """A signal handler, finalizer or hook called a store from inside a store operation.

    The interrupted operation continues. Call again after it has returned, or from another thread.
    """

    def __init__(self, *arguments: object) -> None:
        super().__init__(
            *arguments
            or (
                "a signal handler, finalizer or hook called the store from inside a store "
                "operation of the same thread; call again after it has returned, or from another "
                "thread",
            )
        )


class ConfigError(RocketStoreError, ValueError):
    """A configuration value is wrong, or contradicts the files of the directory.

    Attributes
    ----------
    path : str or None
        The configuration file, if the value comes from one.
    line : int or None
        Line of the file, from 1.
    key : str or None
        The option: as it is written in the file, otherwise the field of ``MessageStoreConfig``.
    errors : tuple of ConfigError
        One for each wrong value of a file, by line; ``path``, ``line`` and ``key`` above are those
        of the first.
    """

    def __init__(
        self,
        *arguments: object,
        path: str | None = None,
        line: int | None = None,
        key: str | None = None,
        errors: Iterable[ConfigError] = (),
    ) -> None:
        super().__init__(*arguments)
        self.path = path
        self.line = line
        self.key = key
        self._errors = tuple(errors)

    @property
    def errors(self) -> tuple[ConfigError, ...]:
        """The errors of a file, one for each wrong value; this one alone if there is only one."""
        return self._errors or (self,)


class UnsafePathError(RocketStoreError):
    """A store file is a link that leaves the root, or a file to be written has other hard links.

    Nothing was changed.
    """


class RepairRefusedError(RocketStoreError):
    """There is no safe plan, or the store is not as a plan expects; nothing was changed."""


class DecodeError(RocketStoreError, ValueError):
    """Bytes could not be decoded within their limits."""


class MappedFileError(RocketStoreError):
    """A file of a queue has the wrong size, name, or kind, or one is missing."""


class SourceChangedError(MappedFileError):
    """Another process changed a store while it was copied; nothing has the copy's name."""


class CorruptionError(RocketStoreError):
    """Bytes on disk are corrupt.

    Attributes
    ----------
    path : str
        File.
    position : int
        First corrupt byte, from the start of the file.
    reason : str
        What was found and what was expected.
    """

    def __init__(self, path: str | os.PathLike[str], position: int, reason: str) -> None:
        super().__init__(f"{os.fspath(path)} at position {position}: {reason}")
        self.path = os.fspath(path)
        self.position = position
        self.reason = reason

    def __reduce__(self) -> tuple[type[CorruptionError], tuple[str, int, str]]:
        return type(self), (self.path, self.position, self.reason)


class CorruptMessageError(CorruptionError):
    """A commit-log record is corrupt."""


class CorruptConsumeQueueError(CorruptionError):
    """A consume-queue file is corrupt."""


class CorruptIndexError(CorruptionError):
    """An index file is corrupt."""


class FilterError(RocketStoreError):
    """A filter's expression cannot be used."""


#: Characters of an expression that are shown on each side of a fault.
_SHOWN = 36


def shown_at(expression: str, column: int) -> str:
    """Return the line of ``expression`` that holds ``column``, and a caret under the column."""
    at = max(0, column - 1)
    begin = max(expression.rfind("\n", 0, at), expression.rfind("\r", 0, at)) + 1
    begin = max(begin, at - _SHOWN)
    line = re.split("[\r\n]", expression[begin : at + _SHOWN], maxsplit=1)[0]
    line = "".join(c if c.isprintable() else " " if c == "\t" else "\ufffd" for c in line)
    return f"  {line}\n  {' ' * (at - begin)}^"


class FilterSyntaxError(FilterError, ValueError):
    """An SQL92 expression is refused, by RocketMQ or because of ``strict``.

    Attributes
    ----------
    expression : str
    column : int
        The character where the fault is, counted from 1 over the whole expression.
    reason : str
    """

    def __init__(self, expression: str, column: int, reason: str) -> None:
        super().__init__(f"{reason} (column {column})\n{shown_at(expression, column)}")
        self.expression = expression
        self.column = column
        self.reason = reason

    def __reduce__(self) -> tuple[type[FilterSyntaxError], tuple[str, int, str]]:
        return type(self), (self.expression, self.column, self.reason)


class FilterEvaluationError(FilterError):
    """RocketMQ's evaluator raises for these properties, so that a broker drops the message.

    Attributes
    ----------
    expression : str
    column : int
        The operator that cannot be evaluated.
    reason : str
    """

    def __init__(self, expression: str, column: int, reason: str) -> None:
        super().__init__(f"{reason} (column {column})\n{shown_at(expression, column)}")
        self.expression = expression
        self.column = column
        self.reason = reason

    def __reduce__(self) -> tuple[type[FilterEvaluationError], tuple[str, int, str]]:
        return type(self), (self.expression, self.column, self.reason)


class FilterWarning(UserWarning):
    """RocketMQ accepts an SQL92 expression but ignores a part of it, or a part never matches."""


class TransactionError(RocketStoreError):
    """A transaction could not be begun or decided."""


class TransactionStateError(TransactionError):
    """The transaction was decided the other way before. Nothing was stored."""


class TransactionNotFoundError(TransactionError, LookupError):
    """No half message has this log offset, message id or unique key."""


class ConsumerError(RocketStoreError):
    """A message could not be consumed, retried or given up."""


class ConsumerConflictError(ConsumerError):
    """The group consumes one of these queues already, in this process; close that consumer."""


class OffsetOutOfRangeError(ConsumerError, LookupError):
    """A queue has no message at the offset from which a group would go on.

    Attributes
    ----------
    topic : str
    queue_id : int
    offset : int
    min_offset, max_offset : int
        Bounds of the queue: of its first message, and of its next one.
    """

    def __init__(
        self, reason: str, topic: str, queue_id: int, offset: int, min_offset: int, max_offset: int
    ) -> None:
        super().__init__(reason)
        self.topic = topic
        self.queue_id = queue_id
        self.offset = offset
        self.min_offset = min_offset
        self.max_offset = max_offset

    def __reduce__(self) -> tuple[type[OffsetOutOfRangeError], tuple[str, str, int, int, int, int]]:
        place = (self.topic, self.queue_id, self.offset, self.min_offset, self.max_offset)
        return type(self), (str(self), *place)


def error_text(error: BaseException | None) -> str:
    """Return the type and, if any, the message of ``error``, to quote it in another error."""
    words = str(error)
    return f"{type(error).__name__}: {words}" if words else type(error).__name__
