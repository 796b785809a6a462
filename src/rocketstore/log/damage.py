"""Corrupt ranges of a log, and what recovery truncated."""

from __future__ import annotations

import os
from dataclasses import dataclass

from rocketstore.errors import CorruptMessageError, MappedFileError, RocketStoreError


@dataclass(frozen=True, slots=True)
class DamagedRange:
    """A corrupt range of the log.

    Attributes
    ----------
    path, position : str, int
        Where the range begins.
    start, stop : int
        Physical offsets of the range; ``stop`` is the next good record.
    reason : str
    claimed_start : int or None
        Offset at which a segment with a wrong name belongs.
    is_another_log : bool
        Whether the whole log belongs to another store.
    """

    path: str
    position: int
    start: int
    stop: int
    reason: str
    claimed_start: int | None = None
    is_another_log: bool = False

    def __str__(self) -> str:
        return f"{self.path} at position {self.position}: {self.reason}"

    def error(self) -> CorruptMessageError:
        """Return the error that reading the range raises."""
        return CorruptMessageError(self.path, self.position, self.reason)

    def refusal(self) -> RocketStoreError:
        """Return the error that opening for writing raises."""
        if self.is_another_log:
            return MappedFileError(self.reason)
        if os.path.lexists(self.path):
            return self.error()
        return MappedFileError(
            f"{self.path}: {self.reason}. Put the file back, or call salvage (rocketstore "
            "salvage), which fills the gap"
        )


@dataclass(frozen=True, slots=True)
class CutRange:
    """Bytes that recovery truncated from the end of the log.

    Attributes
    ----------
    path : str
        The segment file.
    position, start : int
        Where the bytes began, in the file and in the log.
    nbytes : int
    reason : str
        Why the record there is not valid.
    quarantined : str or None
        The folder with a copy of the complete records among the bytes; None without any.
    """

    path: str
    position: int
    start: int
    nbytes: int
    reason: str
    quarantined: str | None

    def __str__(self) -> str:
        kept = "" if self.quarantined is None else f"; complete records are in {self.quarantined}"
        return (
            f"{self.path} at position {self.position}: {self.nbytes} bytes were truncated, "
            f"{self.reason}{kept}"
        )
