"""The exceptions of rocketstore. Each says what to do; corruption names file and position."""

from __future__ import annotations

import os


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
    """A configuration value is wrong, or contradicts the files of the directory."""


class UnsafePathError(RocketStoreError):
    """A store file is a link that leaves the root, or a file to be written has other hard links.

    Nothing was changed.
    """


class DecodeError(RocketStoreError, ValueError):
    """Bytes could not be decoded within their limits."""


class MappedFileError(RocketStoreError):
    """A file of a queue has the wrong size, name, or kind, or one is missing."""


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


def error_text(error: BaseException | None) -> str:
    """Return the type and, if any, the message of ``error``, to quote it in another error."""
    words = str(error)
    return f"{type(error).__name__}: {words}" if words else type(error).__name__
