"""The exceptions of rocketstore. Each says what to do about it; corruption names file and
position."""

from __future__ import annotations

import os


class RocketStoreError(Exception):
    """Base of every error that rocketstore raises on its own account."""


class StoreClosedError(RocketStoreError):
    """The store (or a part of it) was used after ``close()``."""


class StoreLockedError(RocketStoreError):
    """Another process, or another store of this process, writes this directory."""


class StoreFullError(RocketStoreError, OSError):
    """The disk has no room for the next blocks; nothing was acknowledged. Puts work again with
    room."""


class ForkedStoreError(RocketStoreError):
    """A store opened by the parent was used in a forked child; open it by path there."""


class ServiceFailedError(RocketStoreError):
    """A sync or a service failed; nothing is appended any more until the store is reopened."""


class ReentrantCallError(RocketStoreError):
    """A signal handler, finalizer or hook called a store while its thread was inside a step of one;
    call again when it has returned, or from another thread. What was under way goes on."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(
            *arguments
            or (
                "a signal handler, finalizer or hook called the store while its own thread was "
                "inside a step that cannot be left half done; call again when it has returned, or "
                "from another thread",
            )
        )


class ConfigError(RocketStoreError, ValueError):
    """A configuration value is wrong, or contradicts the files of the directory."""


class UnsafePathError(RocketStoreError):
    """A file of the store is a link that leaves its root, or has hard links elsewhere where it
    would be written; nothing was touched."""


class DecodeError(RocketStoreError, ValueError):
    """Bytes could not be decoded within their limits."""


class MappedFileError(RocketStoreError):
    """A file of a queue has the wrong size, name, or kind, or one is missing."""


class CorruptionError(RocketStoreError):
    """Bytes on disk are damaged.

    Attributes
    ----------
    path : str
        File.
    position : int
        First damaged byte, from the start of the file.
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
    """A commit-log record is damaged."""


class CorruptConsumeQueueError(CorruptionError):
    """A consume-queue file is damaged."""


class CorruptIndexError(CorruptionError):
    """An index file is damaged."""


def told(error: BaseException | None) -> str:
    """What another error says of ``error``: its type, and its own words where it has any."""
    words = str(error)
    return f"{type(error).__name__}: {words}" if words else type(error).__name__
